//! Banned words: comments and Markdown name the component, and use one word for one meaning.

use super::Problem;
use super::tree::{Kind, Tree};

/// Words that prose does not have, each with the folders or files where it is banned and with
/// what to write. A word counts as a whole and as it is written here: a capital is an opening.
const BANNED: &[(&str, &[&str], &str)] = &[
    ("The original", EVERYWHERE, "write `Tokyo Tyrant` or `Tokyo Cabinet`"),
    ("the original", EVERYWHERE, "write `Tokyo Tyrant` or `Tokyo Cabinet`"),
    ("anew", EVERYWHERE, "write `again`"),
    ("Of", EVERYWHERE, "begin with the part that is meant, or with its name"),
    ("What", PLAIN, NAME_IT),
    ("Where", PLAIN, "begin with `If`, or with the place"),
    ("Who", EVERYWHERE, NAME_IT),
    ("Whoever", EVERYWHERE, NAME_IT),
    ("Nobody", EVERYWHERE, NAME_IT),
];

const EVERYWHERE: &[&str] = &[""];
const PLAIN: &[&str] = &[
    "CONTRIBUTING.md",
    "README.md",
    "bin",
    "crates/cabinet",
    "crates/capi",
    "crates/client",
    "crates/cluster",
    "crates/compare",
    "crates/python",
    "crates/scripts",
    "crates/server",
    "crates/tls",
    "crates/webdav",
    "crates/wire",
    "docs",
    "fuzz",
    "xtask",
];
const NAME_IT: &str = "begin the sentence with a noun: the server, the record";

pub(super) fn problems(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, lines) in tree.prose() {
        let banned = || BANNED.iter().filter(|(_, folders, _)| within(file, folders));
        for (index, line) in lines.iter().enumerate() {
            if line.kind == Kind::Code {
                continue;
            }
            // The next line is there for what begins in this one and ends in the next.
            let next = lines.get(index + 1).filter(|next| next.number == line.number + 1);
            let text = format!("{} {}", line.prose, next.map_or("", |next| next.prose));
            for (word, _, instead) in banned().filter(|(word, ..)| has(&text, line.prose, word)) {
                problems.push(Problem {
                    file: file.clone(),
                    line: line.number,
                    what: format!("`{word}` is banned, {instead}"),
                });
            }
        }
    }
    problems
}

fn within(file: &str, folders: &[&str]) -> bool {
    folders.iter().any(|folder| file.starts_with(folder))
}

/// Returns whether `word` begins within `line`, the beginning of `text`, outside of code.
fn has(text: &str, line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).take_while(|(at, _)| *at < line.len()).any(|(at, _)| {
        !text[..at].ends_with(part_of_word)
            && !text[at + word.len()..].starts_with(part_of_word)
            && text[..at].matches('`').count().is_multiple_of(2)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn each_banned_word_is_found_wherever_it_is_banned() {
        for (word, folders, instead) in BANNED {
            for folder in *folders {
                let file = match *folder {
                    "" => "docs/a.md".to_string(),
                    file if file.ends_with(".md") => file.to_string(),
                    folder if folder.starts_with("docs") => format!("{folder}/a.md"),
                    folder => format!("{folder}/src/a.rs"),
                };
                let start = if file.ends_with(".rs") { "// " } else { "" };
                let text = format!("{start}Good.\n{start}{word} is not.\n");
                assert_eq!(
                    found(&[(&file, &text)], problems),
                    [format!("{file}:2: `{word}` is banned, {instead}")]
                );
            }
        }
    }

    #[test]
    fn comments_on_their_own_lines_and_after_code_are_read() {
        for start in ["//!", "    ///", "//", "let a = 1; //"] {
            let text = format!("{start} Whoever.\n");
            assert_eq!(found(&[("bin/src/a.rs", &text)], problems).len(), 1, "{start}");
        }
    }

    #[test]
    fn code_longer_words_and_other_cases_pass() {
        let text = "let anew = \"anew\";\n// `anew` renewed whoever_it_is nobody\n";
        let markdown = "```\nWhoever\n```\n`Whoever`\n";
        assert!(found(&[("bin/src/a.rs", text), ("docs/a.md", markdown)], problems).is_empty());
    }

    #[test]
    fn words_apart_by_the_end_of_a_line_are_found() {
        assert!(has("as the original", "as the", "the original"));
        assert!(!has("as the original", "as", "the original"));
    }
}
