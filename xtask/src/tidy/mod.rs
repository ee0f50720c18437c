//! `cargo xtask tidy`: rules for the source that the compiler does not know, one file a rule.

mod citations;
mod columns;
mod dependencies;
mod executor;
mod modules;
mod shape;
mod tree;
mod unsafe_code;
mod words;

use crate::programs::workspace;
use anyhow::{Result, bail};

pub(crate) use citations::{links, resolved};
pub(crate) use tree::Tree;

/// Breach of a rule. Shown as `FILE:LINE: what is wrong, and what to do`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    file: String,
    line: usize,
    what: String,
}

/// Checks the source of the project. Prints every breach, and fails if there is any.
pub(crate) fn run(commands: &[String]) -> Result<()> {
    let problems = problems(&Tree::read(workspace())?, commands);
    for Problem { file, line, what } in &problems {
        println!("{file}:{line}: {what}");
    }
    if !problems.is_empty() {
        bail!("{} places to mend", problems.len());
    }
    Ok(())
}

/// Returns the breaches of all rules, by file and line.
fn problems(tree: &Tree, commands: &[String]) -> Vec<Problem> {
    let mut problems = columns::problems(tree);
    problems.extend(citations::problems(tree, commands));
    problems.extend(words::problems(tree));
    problems.extend(modules::problems(tree));
    problems.extend(shape::problems(tree));
    problems.extend(dependencies::problems(tree));
    problems.extend(executor::problems(tree));
    problems.extend(unsafe_code::problems(tree));
    problems.sort();
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the breaches in a temporary tree of these files, as they are printed.
    pub(super) fn found(
        files: &[(&str, &str)],
        rule: impl FnOnce(&Tree) -> Vec<Problem>,
    ) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let shown = |Problem { file, line, what }| format!("{file}:{line}: {what}");
        rule(&Tree::read(folder.path()).unwrap()).into_iter().map(shown).collect()
    }

    #[test]
    fn all_breaches_of_all_rules_are_listed_by_file_and_line() {
        let files = [
            ("crates/wire/Cargo.toml", "[package]\nname = \"wire\"\n[dependencies]\nclient = {}\n"),
            ("crates/wire/src/lib.rs", "//! See `gone.rs`.\n\n// Made anew.\n"),
            ("crates/wire/src/a.rs", "use crate::b::B;\n"),
            ("crates/wire/src/b.rs", "use crate::a::A;\n"),
            ("crates/server/src/protocol/a.rs", "fn f() {\n    store.get(k);\n}\n"),
            ("docs/long.md", &"word ".repeat(21)),
        ];
        let found = found(&files, |tree| problems(tree, &[]));
        let places: Vec<&str> = found.iter().map(|line| line.split(": ").next().unwrap()).collect();
        assert_eq!(
            places,
            [
                "crates/server/src/protocol/a.rs:2",
                "crates/wire/Cargo.toml:4",
                "crates/wire/src/a.rs:1",
                "crates/wire/src/lib.rs:1",
                "crates/wire/src/lib.rs:3",
                "docs/long.md:1",
            ]
        );
    }
}
