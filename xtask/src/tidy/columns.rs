//! Width: comment lines and the text of Markdown end at column 100. Tables, code of Markdown and a
//! word on its own may be longer.

use super::Problem;
use super::tree::{Kind, Tree};

const COLUMNS_MAX: usize = 100;

pub(super) fn problems(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, lines) in tree.prose() {
        for line in lines.iter().filter(|line| line.kind == Kind::Text) {
            let columns = line.whole.chars().count();
            // An address cannot be wrapped.
            if columns > COLUMNS_MAX && line.prose.contains(' ') {
                problems.push(Problem {
                    file: file.clone(),
                    line: line.number,
                    what: format!("{columns} columns, wrap the line at {COLUMNS_MAX}"),
                });
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn a_comment_of_100_columns_passes_and_one_of_101_fails() {
        for (start, columns) in [("// a ", 100), ("    /// a ", 100), ("//! ä ", 100)] {
            let line = |columns: usize| {
                format!("{start}{}\n", "x".repeat(columns - start.chars().count()))
            };
            assert!(found(&[("bin/src/a.rs", &line(columns))], problems).is_empty());
            assert_eq!(
                found(&[("bin/src/a.rs", &format!("\n{}", line(columns + 1)))], problems),
                ["bin/src/a.rs:2: 101 columns, wrap the line at 100"]
            );
        }
    }

    #[test]
    fn text_of_markdown_is_held_to_it_and_tables_and_code_are_not() {
        let long = "word ".repeat(21);
        let text = format!("```text\n{long}\n```\n\n| {long} |\n\n{long}\n");
        assert_eq!(
            found(&[("docs/formats/a.md", &text)], problems),
            ["docs/formats/a.md:7: 105 columns, wrap the line at 100"]
        );
    }

    #[test]
    fn code_and_a_single_long_word_may_be_wider() {
        let word = "x".repeat(120);
        let text = format!("const A: &str = \"{word}\";\n// {word}\n");
        assert!(found(&[("bin/src/a.rs", &text)], problems).is_empty());
    }
}
