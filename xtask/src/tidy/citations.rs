//! Citations: the files, folders, tests and commands that prose names are there.
//!
//! A word in back quotes is a file where it ends in `.rs`, `.md`, `.toml` or `.sh` and does not
//! begin with a slash, and a folder where it ends in a slash and is of lower-case letters, digits
//! and underscores, two at least. Either is there if the path of one in the tree is the word or
//! ends with it after a slash. Braces hold alternatives, as in Bash. A word that begins with a
//! folder of the root must be a path from there. In Markdown a word of five parts or more with
//! underscores between them is a function, and the target of a link without scheme is a path
//! from the folder of the page.

use super::Problem;
use super::tree::{Kind, Line, Tree};
use std::collections::HashSet;

pub(super) fn problems(tree: &Tree, commands: &[String]) -> Vec<Problem> {
    let functions = functions(tree);
    let mut problems = Vec::new();
    for (file, lines) in tree.prose() {
        for line in &lines {
            let mut problem = |what| {
                problems.push(Problem { file: file.clone(), line: line.number, what });
            };
            for command in commands_in(line.prose) {
                if !commands.iter().any(|known| known == command) {
                    problem(format!("cargo xtask has no command `{command}`, name one it has"));
                }
            }
            if line.kind == Kind::Code {
                continue;
            }
            for word in quoted(line) {
                for path in alternatives(word) {
                    if is_path(tree, &path) && !is_there(tree, &path) {
                        problem(format!("`{path}` is not there, name the path it has now"));
                    }
                }
                let markdown = file.ends_with(".md");
                if markdown && is_function(word) && !functions.contains(word) {
                    problem(format!("no function is called `{word}`, name the one that is meant"));
                }
            }
            if file.ends_with(".md") {
                for target in
                    links(line.prose).filter(|target| !target_is_there(tree, file, target))
                {
                    problem(format!(
                        "the target {target} is not there, link to the path it has now"
                    ));
                }
            }
        }
    }
    problems
}

/// Returns the words that follow `cargo xtask`, but for placeholders.
fn commands_in(prose: &str) -> impl Iterator<Item = &str> {
    prose.split("cargo xtask ").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphabetic() && c != '-').unwrap_or(rest.len());
        Some(&rest[..end]).filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
    })
}

/// Returns the words that stand in back quotes alone.
fn quoted<'a>(line: &Line<'a>) -> impl Iterator<Item = &'a str> {
    line.prose.split('`').skip(1).step_by(2).filter(|word| !word.contains(char::is_whitespace))
}

/// Returns the word, or what comes of its first braces, one word for each alternative.
fn alternatives(word: &str) -> Vec<String> {
    match word.split_once('{').and_then(|(start, rest)| Some((start, rest.split_once('}')?))) {
        Some((start, (parts, end))) => {
            parts.split(',').map(|part| format!("{start}{part}{end}")).collect()
        }
        None => vec![word.to_string()],
    }
}

fn is_path(tree: &Tree, word: &str) -> bool {
    let of_folder = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_/".contains(c);
    let file = [".rs", ".md", ".toml", ".sh"].iter().any(|end| word.ends_with(end));
    let folder =
        word.strip_suffix('/').is_some_and(|name| name.len() > 1 && name.chars().all(of_folder));
    let rooted = word.split_once('/').is_some_and(|(first, _)| tree.folders.contains(first));
    !word.starts_with(['/', '.']) && (file || folder || rooted)
}

fn is_there(tree: &Tree, word: &str) -> bool {
    let path = word.trim_end_matches('/');
    let tail = format!("/{path}");
    let mut paths = tree.paths.iter().chain(&tree.folders);
    match path.split_once('/') {
        Some((first, _)) if tree.folders.contains(first) => {
            tree.paths.contains(path) || tree.folders.contains(path)
        }
        _ => paths.any(|there| there == path || there.ends_with(&tail)),
    }
}

fn is_function(word: &str) -> bool {
    let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    word.chars().all(of_name) && word.split('_').count() >= 5
}

/// Returns the names of all functions of the project.
fn functions(tree: &Tree) -> HashSet<&str> {
    let source = tree.texts.iter().filter(|(path, _)| path.ends_with(".rs"));
    source
        .flat_map(|(_, text)| text.split("fn ").skip(1))
        .map(|rest| {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            &rest[..end]
        })
        .collect()
}

/// Returns the targets of links without scheme.
pub(crate) fn links(prose: &str) -> impl Iterator<Item = &str> {
    let targets = prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains("://"))
}

/// Returns the path from the root to which a link of a page leads; `None` above the root.
pub(crate) fn resolved(page: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    if !path.is_empty() {
        parts.pop();
    }
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

/// Returns whether the file, and the heading after a `#`, are there.
fn target_is_there(tree: &Tree, page: &str, target: &str) -> bool {
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let Some(path) = resolved(page, path) else { return false };
    if heading.is_empty() {
        return tree.paths.contains(&path) || tree.folders.contains(&path);
    }
    let page = tree.texts.iter().find(|(there, _)| *there == path);
    page.is_some_and(|(_, text)| {
        text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading)
    })
}

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    const TREE: &[(&str, &str)] = &[
        ("crates/server/src/update_log/file.rs", "fn a_name_of_five_parts() {}\n"),
        ("crates/server/src/connection.rs", ""),
        ("docs/formats/log.md", "# Log\n\n## The `end`, and more\n"),
    ];

    /// Returns what is wrong in a page and in a comment that cite.
    fn citing(prose: &str) -> Vec<String> {
        let comment = format!("//! {prose}\n");
        let files = [TREE, &[("docs/a.md", prose), ("bin/src/a.rs", &comment)]].concat();
        found(&files, |tree| problems(tree, &["full-disk".to_string()]))
    }

    #[test]
    fn files_and_folders_that_are_there_pass() {
        for path in [
            "crates/server/src/update_log/file.rs",
            "crates/server/src/{connection,update_log/file}.rs",
            "update_log/file.rs",
            "file.rs",
            "update_log/",
            "crates/server",
            "formats/log.md",
        ] {
            assert_eq!(citing(&format!("See `{path}`.")), [""; 0], "{path}");
        }
    }

    #[test]
    fn files_and_folders_that_are_gone_fail_in_pages_and_comments() {
        for path in [
            "crates/server/src/file.rs",
            "server/file.rs",
            "og.md",
            "gone.toml",
            "gone.sh",
            "gone/",
            "crates/gone",
        ] {
            let what = format!("1: `{path}` is not there, name the path it has now");
            assert_eq!(
                citing(&format!("See `{path}`.")),
                [format!("bin/src/a.rs:{what}"), format!("docs/a.md:{what}")]
            );
        }
        assert_eq!(citing("See `update_log/{file,gone}.rs`.").len(), 2);
    }

    #[test]
    fn addresses_types_and_files_of_other_kinds_are_no_paths() {
        let words = "`/a/b.md` `text/plain` `HTTP/` `/` `casket.tch/` `a/b.txt` `a b.rs`";
        assert_eq!(citing(words), [""; 0]);
    }

    #[test]
    fn links_go_to_files_and_headings_that_are_there() {
        for target in ["formats/log.md", "../bin", "formats/log.md#the-end-and-more", "https://a/b"]
        {
            assert_eq!(citing(&format!("See [it]({target}).")), [""; 0], "{target}");
        }
        for target in ["log.md", "../../docs", "#gone", "formats/log.md#the-beginning"] {
            assert_eq!(
                citing(&format!("See [it]({target}).")),
                [format!(
                    "docs/a.md:1: the target {target} is not there, link to the path it has now"
                )]
            );
        }
    }

    #[test]
    fn tests_and_commands_are_there() {
        let good =
            "`a_name_of_five_parts` `cargo xtask full-disk --size-mib 1`, `cargo xtask NAME`";
        assert_eq!(citing(good), [""; 0]);
        assert_eq!(
            citing("`another_name_of_five_parts` passes"),
            ["docs/a.md:1: no function is called `another_name_of_five_parts`, \
              name the one that is meant"]
        );
        let what = "1: cargo xtask has no command `empty-disk`, name one it has";
        assert_eq!(
            citing("Run cargo xtask empty-disk."),
            [format!("bin/src/a.rs:{what}"), format!("docs/a.md:{what}")]
        );
    }
}
