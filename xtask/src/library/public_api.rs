//! Page of all public items of the library, from the output of rustdoc and the source.
//!
//! rustdoc tells which items are public and where each begins and ends; the text of a declaration
//! is the source's. So the page depends little on the format of rustdoc's JSON, which is not
//! stable.

use super::PACKAGE;
use crate::programs::{run as run_program, target_folder, workspace};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The page.
const PAGE: &str = "docs/internals/public-api.md";

const HEAD: &str = "# Public items of the library

All that a program can name in `tyrant-cabinet` with its default features, for reviews of changes.
`cargo xtask library public-api` writes this page, `.ci/run` fails if it is out of date. The
features `files` and `testing` export more, which no version promises.
";

/// Writes the page, or fails if it is out of date.
pub(super) fn run(check: bool) -> Result<()> {
    let json = rustdoc()?;
    let page = page(&json, &mut |file| {
        fs::read_to_string(workspace().join(file)).with_context(|| format!("cannot read {file}"))
    })?;
    let path = workspace().join(PAGE);
    if !check {
        return fs::write(&path, page).context(PAGE);
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    if present == page {
        return Ok(());
    }
    for line in difference(&present, &page) {
        println!("{line}");
    }
    bail!("{PAGE} is out of date: run `cargo xtask library public-api`, and review the change");
}

/// Returns the lines that only one of two pages has, those of the first with `-` before them.
fn difference(old: &str, new: &str) -> Vec<String> {
    let (before, after): (BTreeSet<&str>, BTreeSet<&str>) =
        (old.lines().collect(), new.lines().collect());
    let gone = old.lines().filter(|line| !after.contains(line)).map(|line| format!("- {line}"));
    let come = new.lines().filter(|line| !before.contains(line)).map(|line| format!("+ {line}"));
    gone.chain(come).collect()
}

/// Runs rustdoc on the library. Returns its JSON.
fn rustdoc() -> Result<Value> {
    // The option is unstable. Allowing it to rustdoc alone spares a build of all dependencies.
    let folder = target_folder().join("xtask");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let program = folder.join("rustdoc");
    fs::write(&program, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["rustdoc", "--quiet", "--package", PACKAGE, "--lib", "--"])
        .args(["-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"])
        .env("RUSTDOC", std::path::absolute(&program)?)
        .current_dir(workspace());
    run_program(&mut command)?;
    let output = target_folder().join("doc/cabinet.json");
    let text = fs::read(&output).with_context(|| output.display().to_string())?;
    serde_json::from_slice(&text).context("the output of rustdoc")
}

/// Reads a file of the source, by its path from the workspace.
type Read<'r> = dyn FnMut(&str) -> Result<String> + 'r;

/// Returns the page for the output of rustdoc.
fn page(json: &Value, read: &mut Read<'_>) -> Result<String> {
    let mut listing = Listing { index: &json["index"], modules: BTreeMap::new(), read };
    let root = id(&json["root"])?;
    let name = listing.item(&root)?["name"].as_str().context("the crate has no name")?.to_owned();
    listing.module(&name, &root)?;
    let mut page = HEAD.to_owned();
    for (module, items) in &listing.modules {
        let Some(last) = items.len().checked_sub(1) else { continue };
        write!(page, "\n## `{module}`\n\n```rust\n")?;
        for (place, (_, lines)) in items.iter().enumerate() {
            page.push_str(lines);
            // Types with members stand apart.
            if place < last && lines.lines().count() > 1 {
                page.push('\n');
            }
        }
        page.push_str("```\n");
    }
    Ok(page)
}

fn id(value: &Value) -> Result<String> {
    match value {
        Value::Number(number) => Ok(number.to_string()),
        Value::String(text) => Ok(text.clone()),
        _ => bail!("rustdoc names no item where one should be: {value}"),
    }
}

struct Listing<'r, 'j> {
    index: &'j Value,
    /// Paths of modules; in each the items, by kind and name, with their lines.
    modules: BTreeMap<String, BTreeMap<(u8, String), String>>,
    read: &'r mut Read<'r>,
}

/// Kinds of items, in the order of the page.
const KINDS: [&str; 9] =
    ["struct", "enum", "union", "trait", "function", "type_alias", "constant", "static", "macro"];

impl<'j> Listing<'_, 'j> {
    fn item(&self, id: &str) -> Result<&'j Value> {
        self.index.get(id).with_context(|| format!("rustdoc lists no item {id}"))
    }

    /// Lists the items of a module under a path, those of the modules in it after its own.
    fn module(&mut self, path: &str, module: &str) -> Result<()> {
        let items = self.item(module)?["inner"]["module"]["items"].as_array();
        let mut inner = Vec::new();
        for child in items.context("a module without items")? {
            let item = self.item(&id(child)?)?;
            let (name, target) = match item["inner"].get("use") {
                None => (item["name"].as_str(), Some(id(child)?)),
                Some(used) if used["is_glob"] == true => {
                    self.module(path, &id(&used["id"])?)?;
                    continue;
                }
                Some(used) => (used["name"].as_str(), id(&used["id"]).ok()),
            };
            let name = name.context("an item without name")?;
            match target.and_then(|target| self.index.get(&target)) {
                Some(target) if target["inner"].get("module").is_some() => {
                    inner.push((format!("{path}::{name}"), id(&target["id"])?));
                }
                Some(target) => self.enter(path, name, target)?,
                None => {
                    let source = item["inner"]["use"]["source"].as_str().unwrap_or(name);
                    let line = format!("pub use {source};\n");
                    let items = self.modules.entry(path.to_owned()).or_default();
                    items.insert((u8::MAX, name.to_owned()), line);
                }
            }
        }
        inner.into_iter().try_for_each(|(path, module)| self.module(&path, &module))
    }

    fn enter(&mut self, path: &str, name: &str, item: &Value) -> Result<()> {
        let inner = item["inner"].as_object().context("an item without content")?;
        let (kind, content) = inner.iter().next().context("an item without kind")?;
        let Some(place) = KINDS.iter().position(|known| known == kind) else {
            bail!("an item of kind {kind}, which this program does not know");
        };
        let mut lines = self.declaration(item)?;
        lines.push('\n');
        let mut members = BTreeSet::new();
        let mut derived = BTreeSet::new();
        for field in ["items", "variants"] {
            self.members(&content[field], &mut members)?;
        }
        self.members(&content["kind"]["plain"]["fields"], &mut members)?;
        for implementation in content["impls"].as_array().into_iter().flatten() {
            let Some(item) = self.index.get(&id(implementation)?) else { continue };
            let block = &item["inner"]["impl"];
            if block["is_synthetic"] == true || !block["blanket_impl"].is_null() {
                continue;
            }
            let Some(of) = block["trait"]["path"].as_str() else {
                self.members(&block["items"], &mut members)?;
                continue;
            };
            let text = self.declaration(item)?;
            if text.starts_with("impl") {
                members.insert(text);
            } else if of != "StructuralPartialEq" {
                derived.insert(of.rsplit("::").next().unwrap_or(of).to_owned());
            }
        }
        for member in members {
            writeln!(lines, "    {member}")?;
        }
        if !derived.is_empty() {
            writeln!(lines, "    derives {}", Vec::from_iter(derived).join(", "))?;
        }
        let items = self.modules.entry(path.to_owned()).or_default();
        items.insert((place as u8, name.to_owned()), lines);
        Ok(())
    }

    /// Adds the declarations of members. Those that are not public are not listed by rustdoc.
    fn members(&mut self, ids: &Value, members: &mut BTreeSet<String>) -> Result<()> {
        for member in ids.as_array().into_iter().flatten().filter(|id| !id.is_null()) {
            if let Some(item) = self.index.get(&id(member)?) {
                members.insert(self.declaration(item)?);
            }
        }
        Ok(())
    }

    /// Returns the text of an item, without its body.
    fn declaration(&mut self, item: &Value) -> Result<String> {
        let span = &item["span"];
        let file = span["filename"].as_str().context("an item without a place")?;
        let line = |end: &str| span[end][0].as_u64().and_then(|line| usize::try_from(line).ok());
        let (Some(first), Some(last)) = (line("begin"), line("end")) else {
            bail!("an item of {file} without lines");
        };
        ensure!(!Path::new(file).is_absolute(), "{file} is not a file of the workspace");
        let text = (self.read)(file)?;
        let lines: Vec<&str> =
            text.lines().skip(first.saturating_sub(1)).take(last + 1 - first).collect();
        let has_body = item["inner"].get("variant").is_none();
        Ok(shortened(&lines, has_body))
    }
}

/// Returns a declaration in one line, without comments, attributes and its body.
fn shortened(lines: &[&str], has_body: bool) -> String {
    let code = lines.iter().map(|line| line.split_once("//").map_or(*line, |(code, _)| code));
    let code = without_attributes(&code.collect::<Vec<_>>().join(" "));
    let code = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut depth = 0;
    let end = code.char_indices().find_map(|(at, letter)| {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if has_body && depth == 0 => return Some(at),
            ';' if depth == 0 => return Some(at),
            _ => {}
        }
        None
    });
    let code = code[..end.unwrap_or(code.len())].trim().trim_end_matches(',');
    [("( ", "("), (", )", ")"), (" )", ")"), (", }", " }"), ("(mut ", "("), (", mut ", ", ")]
        .iter()
        .fold(code.to_owned(), |code, (from, to)| code.replace(from, to))
}

/// Returns code without `#[...]`.
fn without_attributes(code: &str) -> String {
    let mut rest = code;
    let mut kept = String::new();
    while let Some((before, attribute)) = rest.split_once("#[") {
        kept.push_str(before);
        let mut depth = 1;
        let end = attribute.find(|letter| {
            depth += match letter {
                '[' => 1,
                ']' => -1,
                _ => 0,
            };
            depth == 0
        });
        rest = end.map_or("", |end| &attribute[end + 1..]);
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_declaration_is_one_line_without_comments_attributes_and_body() {
        for (text, short) in [
            ("pub fn a(&self) -> [u8; 4] {", "pub fn a(&self) -> [u8; 4]"),
            (
                "    fn b(\n        &self, // it\n        x: u8,\n    ) -> u8;",
                "fn b(&self, x: u8) -> u8",
            ),
            ("pub fn c(self, mut f: impl F) -> &mut T;", "pub fn c(self, f: impl F) -> &mut T"),
            ("pub const C: u64 = 1 << 3;", "pub const C: u64 = 1 << 3"),
            ("    D,", "D"),
            ("#[a(b[c])] pub struct E<T>\nwhere\n    T: F,\n{", "pub struct E<T> where T: F,"),
        ] {
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(shortened(&lines, true).trim_end_matches(','), short.trim_end_matches(','));
        }
        let lines = ["    A {", "        /// B.", "        b: u8,", "    },"];
        assert_eq!(shortened(&lines, false), "A { b: u8 }");
        assert_eq!(shortened(&["Name(#[from] NameError),"], false), "Name(NameError)");
    }

    #[test]
    fn a_page_has_modules_with_items_and_their_members() {
        let source = "pub fn a() {\n}\npub struct S {\n    pub f: u8,\n}\nimpl S {\n    pub fn m(&self) {\n    }\n}\n";
        let span = |line: u64| json!({"filename": "a.rs", "begin": [line, 1], "end": [line, 9]});
        let index = json!({
            "0": {"id": 0, "name": "krate", "inner": {"module": {"items": [1, 2]}}},
            "1": {"id": 1, "name": "a", "span": span(1), "inner": {"function": {}}},
            "2": {"id": 2, "name": null, "inner": {"use": {"name": "m", "id": 3, "is_glob": false}}},
            "3": {"id": 3, "name": "inner", "inner": {"module": {"items": [4]}}},
            "4": {"id": 4, "name": "S", "span": span(3), "inner": {"struct": {
                "kind": {"plain": {"fields": [5]}}, "impls": [6]
            }}},
            "5": {"id": 5, "name": "f", "span": span(4), "inner": {"struct_field": {}}},
            "6": {"id": 6, "span": span(6), "inner": {"impl": {
                "trait": null, "items": [7], "is_synthetic": false, "blanket_impl": null
            }}},
            "7": {"id": 7, "name": "m", "span": span(7), "inner": {"function": {}}},
        });
        let json = json!({"root": 0, "index": index});
        let page = page(&json, &mut |_| Ok(source.to_owned())).expect("a page");
        let listed = page.strip_prefix(HEAD).expect("the head");
        assert_eq!(
            listed,
            "\n## `krate`\n\n```rust\npub fn a()\n```\n\n## `krate::m`\n\n```rust\npub struct S\n    \
             pub f: u8\n    pub fn m(&self)\n```\n"
        );
    }

    #[test]
    fn a_difference_names_the_lines_of_both() {
        assert_eq!(difference("a\nb\n", "b\nc\n"), ["- a", "+ c"]);
    }
}
