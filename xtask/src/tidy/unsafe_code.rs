//! Unsafe code: the files that have it, and how often, are those that `docs/internals/unsafe.md`
//! states. Clippy holds each place to a comment with its reason.

use super::Problem;
use super::tree::Tree;
use std::collections::BTreeMap;

/// Page with a table of files and numbers.
const PAGE: &str = "docs/internals/unsafe.md";

/// Beginnings of unsafe code.
const BEGINNINGS: [&str; 5] =
    ["unsafe {", "unsafe fn ", "unsafe impl ", "unsafe trait ", "unsafe extern "];

/// Source that is not held to the rule: it links to C libraries.
const ELSEWHERE: &str = "crates/compare/";

pub(super) fn problems(tree: &Tree) -> Vec<Problem> {
    let page = tree.texts.iter().find(|(path, _)| path == PAGE).map_or("", |(_, text)| text);
    let stated: BTreeMap<&str, (usize, usize)> = (1..).zip(page.lines()).filter_map(row).collect();
    let mut problems = Vec::new();
    let mut counted = BTreeMap::new();
    for (file, text) in tree.texts.iter().filter(|(file, _)| file.ends_with(".rs")) {
        let (count, line) = count(text);
        if count == 0 || file.starts_with(ELSEWHERE) || file.ends_with("tidy/unsafe_code.rs") {
            continue;
        }
        counted.insert(file.as_str(), count);
        match stated.get(file.as_str()) {
            Some((stated, _)) if *stated == count => {}
            Some((stated, _)) => problems.push(Problem {
                file: file.clone(),
                line,
                what: format!("{count} places of unsafe code, {PAGE} states {stated}, correct it"),
            }),
            None => problems.push(Problem {
                file: file.clone(),
                line,
                what: format!("unsafe code that {PAGE} does not list, do without or add the file"),
            }),
        }
    }
    for (file, (_, line)) in stated {
        if !counted.contains_key(file) {
            let what = format!("{file} has no unsafe code, remove the row");
            problems.push(Problem { file: PAGE.to_owned(), line, what });
        }
    }
    problems
}

/// Returns the file and the number of a row of the table, with its line.
fn row((line, text): (usize, &str)) -> Option<(&str, (usize, usize))> {
    let mut cells = text.split('|').map(str::trim).skip(1);
    let file = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
    Some((file, (cells.next()?.parse().ok()?, line)))
}

/// Returns how often unsafe code begins in a text, and the line of the first.
fn count(text: &str) -> (usize, usize) {
    let code = |line: &'_ str| line.split("//").next().unwrap_or_default().to_owned();
    let in_line = |line: &str| {
        let code = code(line);
        BEGINNINGS.iter().map(|beginning| code.matches(beginning).count()).sum::<usize>()
    };
    let first = text.lines().position(|line| in_line(line) > 0).map_or(1, |index| index + 1);
    (text.lines().map(in_line).sum(), first)
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    const CODE: &str =
        "// An unsafe { } in prose.\nfn f() {\n    unsafe { g() };\n}\nunsafe fn g() {}\n";

    fn of(rows: &str) -> Vec<String> {
        let page = format!("| file | places |\n|---|---:|\n{rows}");
        found(&[("crates/a/src/lib.rs", CODE), (PAGE, &page)], problems)
    }

    #[test]
    fn the_number_of_the_page_passes_and_another_one_fails() {
        assert!(of("| `crates/a/src/lib.rs` | 2 | maps |\n").is_empty());
        assert_eq!(
            of("| `crates/a/src/lib.rs` | 3 | maps |\n"),
            ["crates/a/src/lib.rs:3: 2 places of unsafe code, docs/internals/unsafe.md states 3, \
              correct it"]
        );
    }

    #[test]
    fn a_file_that_the_page_lacks_fails_and_so_does_one_that_it_has_in_vain() {
        assert_eq!(
            of("| `crates/a/src/other.rs` | 1 | |\n"),
            [
                "crates/a/src/lib.rs:3: unsafe code that docs/internals/unsafe.md does not list, \
                 do without or add the file",
                "docs/internals/unsafe.md:3: crates/a/src/other.rs has no unsafe code, remove the \
                 row",
            ]
        );
    }
}
