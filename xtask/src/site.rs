//! Site: the pages of `docs` with a search, made by mdBook, that are read without a network.
//!
//! Pages keep their paths from the root of the project, so links between them hold as they are. A
//! link to another file or to a folder goes to a page that shows it.

use crate::benchmark::escaped;
use crate::programs::{run, target_folder, workspace};
use crate::requirements;
use crate::tidy::{Tree, links, resolved};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// First page of the site.
const FIRST: &str = "README.md";

/// Page whose tables list the others in the order of the site.
const INDEX: &str = "docs/README.md";

/// Configuration of mdBook. Pages are as a forge shows them: without includes, hidden lines and
/// other additions to Markdown.
const CONFIG: &str = r#"
[book]
title = "Tyrant"
[build]
use-default-preprocessors = false
[output.html]
default-theme = "light"
preferred-dark-theme = "coal"
smart-punctuation = false
definition-lists = false
admonitions = false
additional-css = ["site.css"]
input-404 = ""
no-section-label = true
[output.html.playground]
runnable = false
[output.html.print]
enable = false
"#;

/// Head of a page that shows a file or a folder.
const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>:root { color-scheme: light dark } body { overflow-wrap: anywhere }
pre { overflow-x: auto }</style>
"#;

/// Makes the site.
pub(crate) fn run_all() -> Result<()> {
    let mdbook = requirements::mdbook()?;
    let target = target_folder().canonicalize().context("no target folder")?;
    let (book, site) = (target.join("site-source"), target.join("site"));
    if book.exists() {
        fs::remove_dir_all(&book).context("the site of an earlier run")?;
    }
    let mut files = files(workspace())?;
    files.insert("../book.toml".to_owned(), CONFIG.to_owned());
    files.insert("../site.css".to_owned(), include_str!("site.css").to_owned());
    for (path, text) in files {
        let path = book.join("src").join(path);
        let folder = path.parent().context("a file without folder")?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    copy_pixels(workspace(), &book.join("src"))?;
    run(Command::new(mdbook).arg("build").arg("--dest-dir").arg(&site).arg(&book))?;
    println!("the site is {}", site.join("index.html").display());
    Ok(())
}

/// Copies the pictures in PNG, which are not text.
fn copy_pixels(root: &Path, site: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    for path in below(&tree, "docs").filter(|path| path.ends_with(".png")) {
        let to = site.join(path);
        let folder = to.parent().context("a picture without folder")?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        fs::copy(root.join(path), to).with_context(|| format!("cannot copy {path}"))?;
    }
    Ok(())
}

/// Returns the files that mdBook reads, by their paths: the pages and pictures, a list of them, and
/// a page for each other file and folder that they link to.
fn files(root: &Path) -> Result<BTreeMap<String, String>> {
    let tree = Tree::read(root)?;
    let summary = summary(&tree)?;
    let pages: BTreeSet<&str> = links(&summary).collect();
    let mut files = BTreeMap::new();
    let mut shown = BTreeSet::new();
    for page in &pages {
        let end = |path: &str| {
            let is_folder = tree.folders.contains(path);
            let is_picture = path.ends_with(".svg") || path.ends_with(".png");
            let is_there = is_folder || tree.paths.contains(path);
            if pages.contains(path) || is_picture || !is_there {
                return "";
            }
            shown.insert(path.to_owned());
            if is_folder { "/index.html" } else { ".html" }
        };
        files.insert((*page).to_owned(), with_ends(page, text(&tree, page)?, end));
    }
    let other = |path: &&str| !pages.contains(path) && !path.ends_with(".png");
    for path in below(&tree, "docs").filter(other) {
        ensure!(!path.ends_with(".md"), "{path} is not in {INDEX}: add it to a table there");
        files.insert(path.to_owned(), read(root, path)?);
    }
    let folders = shown.iter().filter(|path| tree.folders.contains(*path));
    let folders: Vec<String> = folders.cloned().collect();
    for folder in folders {
        let mut list = String::from("<ul>\n");
        for path in below(&tree, &folder) {
            let name = &path[folder.len() + 1..];
            let page = match name.strip_suffix(".md") {
                Some(start) if pages.contains(path) => format!("{start}.html"),
                _ => format!("{name}.html"),
            };
            let address = escaped(&page.replace('%', "%25"));
            let _ = writeln!(list, "<li><a href=\"{address}\">{}</a>", escaped(name));
            if !pages.contains(path) {
                shown.insert(path.to_owned());
            }
        }
        files.insert(format!("{folder}/index.html"), shown_as(&folder, &(list + "</ul>\n")));
    }
    for path in shown.iter().filter(|path| tree.paths.contains(*path)) {
        let code = format!("<pre>{}</pre>\n", escaped(&read(root, path)?));
        files.insert(format!("{path}.html"), shown_as(path, &code));
    }
    files.insert("SUMMARY.md".to_owned(), summary);
    Ok(files)
}

/// Returns the list of the pages for mdBook: those that a table of the index names in its first
/// column. If the first column has a folder, its pages are those of the second column, one level
/// below the page before.
fn summary(tree: &Tree) -> Result<String> {
    let title = |page: &str| {
        let first = text(tree, page)?.lines().next().and_then(|line| line.strip_prefix("# "));
        first.with_context(|| format!("{page} does not begin with a heading"))
    };
    let mut out =
        format!("# Summary\n\n[{}]({FIRST})\n[{}]({INDEX})\n", title(FIRST)?, title(INDEX)?);
    for line in text(tree, INDEX)?.lines() {
        if let Some(part) = line.strip_prefix("## ") {
            let _ = writeln!(out, "\n# {part}\n");
        }
        let mut columns = line.split(" | ");
        let [Some(first), Some(second)] = [columns.next(), columns.next()] else { continue };
        let mut is_folder = false;
        for path in links(first).filter_map(|link| resolved(INDEX, link)) {
            if path.ends_with(".md") {
                let _ = writeln!(out, "- [{}]({path})", title(&path)?);
            }
            is_folder |= tree.folders.contains(&path);
        }
        for link in links(second).filter(|_| is_folder) {
            let path = resolved(INDEX, link).unwrap_or_default();
            ensure!(tree.paths.contains(&path), "{INDEX} names {link}, which is not there");
            let _ = writeln!(out, "  - [{}]({path})", title(&path)?);
        }
    }
    Ok(out)
}

/// Returns a page in which `end` of the path from the root is appended to the path of each link.
fn with_ends(page: &str, text: &str, mut end: impl FnMut(&str) -> &'static str) -> String {
    let mut parts = text.split("](");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let target = part.split([')', '#']).next().unwrap_or_default();
        let end = match resolved(page, target) {
            Some(path) if !target.is_empty() => end(&path),
            _ => "",
        };
        let (target, rest) = part.split_at(target.len());
        out += "](";
        out += target.trim_end_matches('/');
        out += end;
        out += rest;
    }
    out
}

/// Returns a page that shows a file or a folder.
fn shown_as(path: &str, body: &str) -> String {
    let path = escaped(path);
    format!("{HEAD}<title>{path}</title>\n<h1>{path}</h1>\n{body}")
}

fn below<'a>(tree: &'a Tree, folder: &str) -> impl Iterator<Item = &'a str> {
    let start = format!("{folder}/");
    tree.paths.iter().map(String::as_str).filter(move |path| path.starts_with(&start))
}

/// Returns the text of a page.
fn text<'a>(tree: &'a Tree, page: &str) -> Result<&'a str> {
    let found = tree.texts.iter().find(|(path, _)| path == page);
    Ok(&found.with_context(|| format!("there is no page {page}"))?.1)
}

/// Returns the text of a file of any kind.
fn read(root: &Path, path: &str) -> Result<String> {
    let bytes = fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|_| "This file is not text.".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_of_pixels_are_copied_byte_by_byte() {
        let (root, site) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let picture = "docs/pictures/a.png";
        fs::create_dir_all(root.path().join("docs/pictures")).unwrap();
        fs::write(root.path().join(picture), b"\x89PNG\xff").unwrap();
        copy_pixels(root.path(), site.path()).unwrap();
        assert_eq!(fs::read(site.path().join(picture)).unwrap(), b"\x89PNG\xff");
    }

    /// Returns the files of a site of these files.
    fn site_of(sources: &[(&str, &str)]) -> Result<BTreeMap<String, String>> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in sources {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        files(folder.path())
    }

    const INDEX_TEXT: &str =
        "# All\n\n## Users\n\n| [a.md](a.md) | [x](../src) |\n| [b/](b) | [c](b/c.md) |\n";

    const SOURCES: &[(&str, &str)] = &[
        (FIRST, "# Project\n"),
        (INDEX, INDEX_TEXT),
        ("docs/a.md", "# A\n\n[gone](gone.rs) [out](https://a/b) [here](#a)\n"),
        ("docs/b/c.md", "# C\n\n[code](../../src/a.rs#L1) and [A](../a.md#a), ![s](../s.svg)\n"),
        ("docs/s.svg", "<svg/>"),
        ("src/a.rs", "a < b\n"),
        ("src/b/50%.rs", "c\n"),
    ];

    #[test]
    fn pages_are_in_the_order_of_the_index_and_those_of_a_folder_one_level_lower() {
        let summary = "# Summary\n\n[Project](README.md)\n[All](docs/README.md)\n\n# Users\n\n\
                       - [A](docs/a.md)\n  - [C](docs/b/c.md)\n";
        assert_eq!(site_of(SOURCES).unwrap()["SUMMARY.md"], summary);
    }

    #[test]
    fn links_to_pages_and_pictures_stay_and_others_go_to_a_page_that_shows_the_file_or_folder() {
        let files = site_of(SOURCES).unwrap();
        assert_eq!(files["docs/a.md"], SOURCES[2].1);
        let links = "# C\n\n[code](../../src/a.rs.html#L1) and [A](../a.md#a), ![s](../s.svg)\n";
        assert_eq!(files["docs/b/c.md"], links);
        assert_eq!(files["docs/s.svg"], "<svg/>");
        assert!(files[INDEX].contains("[x](../src/index.html)"), "{}", files[INDEX]);
        assert!(files[INDEX].contains("[b/](b/index.html)"), "{}", files[INDEX]);
        assert!(files["src/a.rs.html"].contains("<pre>a &lt; b\n</pre>"));
        assert!(files["src/index.html"].contains("<a href=\"b/50%25.rs.html\">b/50%.rs</a>"));
        assert!(files["docs/b/index.html"].contains("<a href=\"c.html\">c.md</a>"));
    }

    #[test]
    fn a_page_that_the_index_does_not_list_is_refused() {
        let error = site_of(&[SOURCES, &[("docs/d.md", "# D\n")]].concat()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "docs/d.md is not in docs/README.md: add it to a table there"
        );
    }
}
