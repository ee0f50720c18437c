//! Shape of the modules: few files at the root of a large crate, each module declared once, and no
//! arm for all other requests in the tables of a protocol.

use super::Problem;
use super::tree::Tree;
use std::collections::BTreeSet;

/// Source folders of crates, and the most files right below each.
const FILES_MAX: &[(&str, usize)] = &[("crates/cabinet/src", 12)];

pub(super) fn problems(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (folder, max) in FILES_MAX {
        let is_file = |path: &&String| {
            path.strip_prefix(folder)
                .and_then(|rest| rest.strip_prefix('/'))
                .is_some_and(|name| !name.contains('/'))
        };
        let files = tree.paths.iter().filter(is_file).count();
        if files > *max {
            let what = format!("{files} files, at most {max} may be here: move some into a folder");
            problems.push(Problem { file: (*folder).to_owned(), line: 1, what });
        }
    }
    for (file, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let mut declared = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            let Some(name) = declaration(line) else { continue };
            if !declared.insert(name) {
                let what = format!("the module {name} is declared twice, declare it once");
                problems.push(Problem { file: file.clone(), line: number + 1, what });
            }
        }
    }
    problems.extend(tree.texts.iter().flat_map(|(file, text)| arms_for_others(file, text)));
    problems
}

/// Functions of a protocol that answer something for each request.
const TABLES: [&str; 5] =
    ["fn kind(", "fn only_key(", "fn name(", "fn command(", "fn forbidden_command("];

/// Finds the arms for all other requests, by which a new request would be forgotten.
fn arms_for_others(file: &str, text: &str) -> Vec<Problem> {
    let is_of_protocol = file.starts_with("crates/wire/src/") && file.ends_with("/kind.rs")
        || file.starts_with("crates/server/src/protocol/");
    let mut problems = Vec::new();
    // Indentation of the table that a line is in.
    let mut table = None;
    for (number, line) in text.lines().enumerate().filter(|_| is_of_protocol) {
        let code = line.trim_start();
        let indentation = line.len() - code.len();
        if TABLES.iter().any(|name| code.starts_with(name) || code.contains(&format!(" {name}"))) {
            table = Some(indentation);
        } else if code == "}" && Some(indentation) == table {
            table = None;
        } else if table.is_some() && code.starts_with("_ =>") {
            let what =
                "an arm for all other requests, which forgets the next one: name them".into();
            problems.push(Problem { file: file.to_owned(), line: number + 1, what });
        }
    }
    problems
}

/// Returns the name of the module with a file of its own that a line declares.
fn declaration(line: &str) -> Option<&str> {
    let (before, name) = line.strip_suffix(';')?.split_once("mod ")?;
    let is_visibility = before.is_empty() || before.starts_with("pub") && before.ends_with(' ');
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (is_visibility && is_name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::found;

    #[test]
    fn a_file_too_many_at_the_root_is_found() {
        let names: Vec<String> = (0..13).map(|n| format!("crates/cabinet/src/f{n}.rs")).collect();
        let files: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "")).collect();
        assert_eq!(
            found(&files, problems),
            ["crates/cabinet/src:1: 13 files, at most 12 may be here: move some into a folder"]
        );
        assert!(found(&files[1..], problems).is_empty());
        let below = [&files[1..], &[("crates/cabinet/src/a/b.rs", "")]].concat();
        assert!(found(&below, problems).is_empty());
    }

    #[test]
    fn an_arm_for_all_other_requests_is_found_in_the_tables_of_a_protocol() {
        let table = "impl A {\n    fn kind(&self) -> Kind {\n        match self {\n            _ => 1,\n        }\n    }\n}\n";
        let other = table.replace("fn kind", "fn other");
        let found_in = |file: &str, text: &str| found(&[(file, text)], problems).len();
        assert_eq!(
            found(&[("crates/wire/src/memcached/kind.rs", table)], problems),
            [
                "crates/wire/src/memcached/kind.rs:4: an arm for all other requests, which forgets the \
              next one: name them"
            ]
        );
        assert_eq!(found_in("crates/wire/src/memcached/parse.rs", table), 0);
        assert_eq!(found_in("crates/server/src/protocol/a/mod.rs", table), 1);
        assert_eq!(found_in("crates/server/src/protocol/a/mod.rs", &other), 0);
        let both = table.to_owned() + &other;
        assert_eq!(found_in("crates/server/src/protocol/a/mod.rs", &both), 1);
    }

    #[test]
    fn a_module_that_is_declared_twice_is_found() {
        let twice = "#[cfg(unix)]\nmod a;\n#[cfg(not(unix))]\npub(crate) mod a;\nmod b;\n";
        assert_eq!(
            found(&[("x.rs", twice)], problems),
            ["x.rs:4: the module a is declared twice, declare it once"]
        );
        assert!(found(&[("x.rs", "mod a;\nmod b;\n"), ("y.rs", "mod a;\n")], problems).is_empty());
    }
}
