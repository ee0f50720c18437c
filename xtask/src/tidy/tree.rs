//! Files of the project in memory, and the prose in them: comments of Rust, text of Markdown.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;

/// Pages beside those in `docs/`.
const PAGES: [&str; 2] = ["CONTRIBUTING.md", "README.md"];

/// Ends of the names of text files, which rules read. All others are known by path only.
const READ: &[&str] = &[".rs", ".md", "Cargo.toml"];

pub(crate) struct Tree {
    /// Paths of all files, from the root, with `/` between folders.
    pub(crate) paths: BTreeSet<String>,
    /// Paths of all folders.
    pub(crate) folders: BTreeSet<String>,
    /// Paths and texts of the files that rules read, by path.
    pub(crate) texts: Vec<(String, String)>,
}

impl Tree {
    /// Reads what is below `root`, but for hidden folders and what Cargo builds.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self { paths: BTreeSet::new(), folders: BTreeSet::new(), texts: Vec::new() };
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let failed = || format!("cannot list {folder}");
            for entry in root.join(&folder).read_dir().with_context(failed)? {
                let entry = entry.with_context(failed)?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path =
                    if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                if !entry.file_type().with_context(failed)?.is_dir() {
                    if READ.iter().any(|end| name.ends_with(end)) {
                        let text = std::fs::read_to_string(entry.path())
                            .with_context(|| format!("cannot read {path}"))?;
                        tree.texts.push((path.clone(), text));
                    }
                    tree.paths.insert(path);
                } else if !name.starts_with('.') && name != "target" {
                    tree.folders.insert(path.clone());
                    folders.push(path);
                }
            }
        }
        tree.texts.sort();
        Ok(tree)
    }

    /// Files of prose: Rust, `README.md`, and the Markdown of `docs`.
    pub(super) fn prose(&self) -> impl Iterator<Item = (&String, Vec<Line<'_>>)> {
        self.texts.iter().filter_map(|(path, text)| {
            if path.ends_with(".rs") {
                return Some((path, comments(text)));
            }
            let markdown =
                PAGES.contains(&&**path) || (path.starts_with("docs/") && path.ends_with(".md"));
            markdown.then(|| (path, markdown_lines(text)))
        })
    }
}

/// Line that has prose in it.
pub(super) struct Line<'a> {
    /// Number in the file, from 1.
    pub(super) number: usize,
    /// Whole line.
    pub(super) whole: &'a str,
    /// Prose of the line: in Rust the comment without its slashes.
    pub(super) prose: &'a str,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Comment on a line of its own, or text of Markdown.
    Text,
    /// Comment after code.
    Trailing,
    Table,
    /// Block of code in Markdown.
    Code,
}

/// Returns the comments of Rust source. A line of a string literal that looks like one counts.
fn comments<'a>(text: &'a str) -> Vec<Line<'a>> {
    let comment = |(index, whole): (usize, &'a str)| {
        let (kind, prose) = match whole.trim_start().strip_prefix("//") {
            Some(rest) => (Kind::Text, rest.trim_start_matches(['/', '!']).trim()),
            None => (Kind::Trailing, whole.split_once(" // ")?.1.trim()),
        };
        let kind = if prose.starts_with('|') { Kind::Table } else { kind };
        Some(Line { number: index + 1, whole, prose, kind })
    };
    text.lines().enumerate().filter_map(comment).collect()
}

/// Returns all lines of Markdown.
fn markdown_lines<'a>(text: &'a str) -> Vec<Line<'a>> {
    let mut in_code = false;
    let line = |(index, whole): (usize, &'a str)| {
        let prose = whole.trim();
        let fence = prose.starts_with("```");
        in_code ^= fence;
        let kind = match prose {
            _ if in_code || fence => Kind::Code,
            _ if prose.starts_with('|') => Kind::Table,
            _ => Kind::Text,
        };
        Line { number: index + 1, whole, prose, kind }
    };
    text.lines().enumerate().map(line).collect()
}
