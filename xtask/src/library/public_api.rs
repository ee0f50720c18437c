//! Page of all public items of the library, from the output of rustdoc.

use super::PACKAGE;
use crate::programs::{run as run_program, target_folder, workspace};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The page.
const PAGE: &str = "docs/internals/public-api.md";

const HEAD: &str = "# Public items of the library

All that a program can name in `tyrant-cabinet` with its default features: types with their fields,
variants and methods, functions with their parameters, and traits that are not derived. `cargo doc
--open -p tyrant-cabinet` has the rest. `cargo xtask library public-api` writes this page, `.ci/run`
fails if it is out of date. The features `internals` and `testing` export more, which no version
promises.
";

/// Longest line of the page, in bytes.
const LINE_BYTES_MAX: usize = 100;

/// Beginning of the lines of an item after the first.
const INDENT: &str = "    ";

/// Writes the page, or fails if it is out of date.
pub(super) fn run(check: bool) -> Result<()> {
    let json = rustdoc(workspace(), &target_folder())?;
    let text = fs::read(&json).with_context(|| json.display().to_string())?;
    let page = page(&serde_json::from_slice(&text).context("the output of rustdoc")?)?;
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

/// Runs rustdoc on the library of a workspace, which it builds in `target`. Returns the path of its
/// JSON.
pub(super) fn rustdoc(workspace: &Path, target: &Path) -> Result<PathBuf> {
    // The option is unstable. Allowing it to rustdoc alone spares a build of all dependencies.
    let folder = target_folder().join("xtask");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let program = folder.join("rustdoc");
    fs::write(&program, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let target = std::path::absolute(target)?;
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["rustdoc", "--quiet", "--package", PACKAGE, "--lib", "--"])
        .args(["-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"])
        .env("RUSTDOC", std::path::absolute(&program)?)
        .env("CARGO_TARGET_DIR", &target)
        .current_dir(workspace);
    run_program(&mut command)?;
    Ok(target.join("doc/cabinet.json"))
}

/// Returns the page for the output of rustdoc.
fn page(json: &Value) -> Result<String> {
    let mut listing = Listing {
        index: &json["index"],
        modules: BTreeMap::new(),
        homes: BTreeMap::new(),
        later: Vec::new(),
    };
    let root = id(&json["root"])?;
    let name = listing.item(&root)?["name"].as_str().context("the crate has no name")?.to_owned();
    listing.module(&name, &root)?;
    let mut page = HEAD.to_owned();
    for (module, items) in &listing.modules {
        page.push_str(&format!("\n## `{module}`\n\n```text\n"));
        // Items without members share lines.
        let mut names: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for ((kind, name), lines) in items {
            match lines {
                Some(lines) => page.push_str(lines),
                None => names.entry(*kind).or_default().push(name.clone()),
            }
        }
        for (kind, names) in names {
            page.push_str(&wrapped(KINDS.get(kind).map_or("use", |(_, title)| title), &names));
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

struct Listing<'j> {
    index: &'j Value,
    /// Paths of modules; in each the items, by kind and name, with their lines if they have members
    /// or parameters.
    modules: BTreeMap<String, BTreeMap<(usize, String), Option<String>>>,
    /// Path of the module that has an item.
    homes: BTreeMap<String, String>,
    /// Modules that were found, and are not listed yet.
    later: Vec<(String, String)>,
}

/// Kinds of items, in the order of the page, as rustdoc and as the page calls them.
const KINDS: [(&str, &str); 9] = [
    ("struct", "struct"),
    ("enum", "enum"),
    ("union", "union"),
    ("trait", "trait"),
    ("function", "fn"),
    ("type_alias", "type"),
    ("constant", "const"),
    ("static", "static"),
    ("macro", "macro"),
];

impl<'j> Listing<'j> {
    fn item(&self, id: &str) -> Result<&'j Value> {
        self.index.get(id).with_context(|| format!("rustdoc lists no item {id}"))
    }

    /// Lists the items of a module under a path, those of the modules in it after its own.
    fn module(&mut self, path: &str, module: &str) -> Result<()> {
        self.items(path, module)?;
        let inner = std::mem::take(&mut self.later);
        inner.into_iter().try_for_each(|(path, module)| self.module(&path, &module))
    }

    fn items(&mut self, path: &str, module: &str) -> Result<()> {
        let items = self.item(module)?["inner"]["module"]["items"].as_array();
        for child in items.context("a module without items")? {
            let item = self.item(&id(child)?)?;
            let (name, target) = match item["inner"].get("use") {
                None => (item["name"].as_str(), Some(id(child)?)),
                Some(used) if used["is_glob"] == true => {
                    self.items(path, &id(&used["id"])?)?;
                    continue;
                }
                Some(used) => (used["name"].as_str(), id(&used["id"]).ok()),
            };
            let name = name.context("an item without name")?;
            match target.and_then(|target| self.index.get(&target)) {
                Some(target) if target["inner"].get("module").is_some() => {
                    self.later.push((format!("{path}::{name}"), id(&target["id"])?));
                }
                Some(target) => self.enter(path, name, target)?,
                None => {
                    let source = item["inner"]["use"]["source"].as_str().unwrap_or(name);
                    self.add(path, KINDS.len(), source, None);
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, path: &str, name: &str, item: &Value) -> Result<()> {
        let inner = item["inner"].as_object().context("an item without content")?;
        let (kind, content) = inner.iter().next().context("an item without kind")?;
        let Some(place) = KINDS.iter().position(|(known, _)| known == kind) else {
            bail!("an item of kind {kind}, which this program does not know");
        };
        let home = self.homes.entry(id(&item["id"])?).or_insert_with(|| path.to_owned()).clone();
        if home != path {
            self.add(path, KINDS.len(), &format!("{home}::{name}"), None);
            return Ok(());
        }
        if kind == "function" {
            self.add(path, place, name, Some(format!("fn {}\n", named(name, content))));
            return Ok(());
        }
        // Names of traits, then fields and variants, then methods.
        let (mut traits, mut parts, mut methods) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for field in ["items", "variants"] {
            self.members(&content[field], &mut parts, &mut methods)?;
        }
        for fields in [&content["kind"]["plain"]["fields"], &content["kind"]["tuple"]] {
            self.members(fields, &mut parts, &mut methods)?;
        }
        for implementation in content["impls"].as_array().into_iter().flatten() {
            let Some(item) = self.index.get(&id(implementation)?) else { continue };
            let block = &item["inner"]["impl"];
            let is_derived = item["attrs"].to_string().contains("automatically_derived");
            if is_derived || block["is_synthetic"] == true || !block["blanket_impl"].is_null() {
                continue;
            }
            match block["trait"]["path"].as_str() {
                None => self.members(&block["items"], &mut parts, &mut methods)?,
                Some("StructuralPartialEq") => {}
                Some(path) => {
                    traits.insert(format!("impl {}", path.rsplit("::").next().unwrap_or(path)));
                }
            }
        }
        let members: Vec<String> = traits.into_iter().chain(parts).chain(methods).collect();
        let lines = wrapped(&format!("{kind} {name}"), &members);
        self.add(path, place, name, (!members.is_empty()).then_some(lines));
        Ok(())
    }

    /// Adds the names of fields and variants to `parts`, and those of methods with their
    /// parameters. Members that are not public are not listed by rustdoc.
    fn members(
        &self,
        ids: &Value,
        parts: &mut BTreeSet<String>,
        methods: &mut BTreeSet<String>,
    ) -> Result<()> {
        for member in ids.as_array().into_iter().flatten().filter(|id| !id.is_null()) {
            let Some(item) = self.index.get(&id(member)?) else { continue };
            let name = item["name"].as_str().context("a member without name")?;
            match item["inner"].get("function") {
                Some(function) => methods.insert(named(name, function)),
                None => parts.insert(name.to_owned()),
            };
        }
        Ok(())
    }

    fn add(&mut self, path: &str, kind: usize, name: &str, lines: Option<String>) {
        self.modules.entry(path.to_owned()).or_default().insert((kind, name.to_owned()), lines);
    }
}

/// Returns a function as its name with the names of its parameters, but for `self`.
fn named(name: &str, function: &Value) -> String {
    let signature = if function["sig"].is_null() { &function["decl"] } else { &function["sig"] };
    let inputs = signature["inputs"].as_array().into_iter().flatten();
    let names = inputs.filter_map(|input| input[0].as_str()).filter(|name| *name != "self");
    let names: Vec<&str> = names.map(|name| name.trim_start_matches('_')).collect();
    format!("{name}({})", names.join(", "))
}

/// Returns an item, or several without members, and a list as lines that are not too long.
fn wrapped(first: &str, members: &[String]) -> String {
    let mut lines = format!("{first}:");
    let mut bytes = lines.len();
    for (at, member) in members.iter().enumerate() {
        let comma = if at + 1 < members.len() { "," } else { "" };
        if bytes + 1 + member.len() + comma.len() > LINE_BYTES_MAX {
            lines.push('\n');
            lines.push_str(INDENT);
            bytes = INDENT.len();
        } else {
            lines.push(' ');
            bytes += 1;
        }
        lines.push_str(member);
        lines.push_str(comma);
        bytes += member.len() + comma.len();
    }
    lines + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_are_no_longer_than_the_page_is_wide() {
        assert_eq!(wrapped("type", &["A".into(), "B".into()]), "type: A, B\n");
        let long = "m".repeat(LINE_BYTES_MAX - "struct B: ".len());
        assert_eq!(wrapped("struct B", std::slice::from_ref(&long)), format!("struct B: {long}\n"));
        let members = [long.clone(), "n".into()];
        assert_eq!(wrapped("struct B", &members), format!("struct B:\n    {long}, n\n"));
    }

    #[test]
    fn a_page_has_modules_with_items_and_their_members() {
        let takes = |names: &[&str]| {
            let inputs: Vec<_> = names.iter().map(|name| json!([name, {}])).collect();
            json!({"function": {"sig": {"inputs": inputs}}})
        };
        let block = |of: Value, items: &[u64]| {
            json!({"impl": {
                "trait": of, "items": items, "is_synthetic": false, "blanket_impl": null
            }})
        };
        let index = json!({
            "0": {"id": 0, "name": "krate", "inner": {"module": {"items": [1, 2, 11]}}},
            "1": {"id": 1, "name": "a", "inner": takes(&["x", "_y"])},
            "2": {"id": 2, "name": null, "inner": {"use": {"name": "m", "id": 3, "is_glob": false}}},
            "3": {"id": 3, "name": "inner", "inner": {"module": {"items": [4, 12]}}},
            "4": {"id": 4, "name": "S", "inner": {"struct": {
                "kind": {"plain": {"fields": [5]}}, "impls": [6, 8, 9]
            }}},
            "5": {"id": 5, "name": "f", "inner": {"struct_field": {}}},
            "6": {"id": 6, "attrs": [], "inner": block(Value::Null, &[7])},
            "7": {"id": 7, "name": "m", "inner": takes(&["self", "z"])},
            "8": {"id": 8, "attrs": ["automatically_derived"],
                "inner": block(json!({"path": "Clone"}), &[])},
            "9": {"id": 9, "attrs": [], "inner": block(json!({"path": "std::ops::Drop"}), &[])},
            "10": {"id": 10, "name": "T", "inner": {"type_alias": {}}},
            "11": {"id": 11, "name": null, "inner": {"use": {"name": "T", "id": 10}}},
            "12": {"id": 12, "name": null, "inner": {"use": {"name": "T", "id": 10}}},
        });
        let page = page(&json!({"root": 0, "index": index})).expect("a page");
        let listed = page.strip_prefix(HEAD).expect("the head");
        assert_eq!(
            listed,
            "\n## `krate`\n\n```text\nfn a(x, y)\ntype: T\n```\n\n## `krate::m`\n\n```text\nstruct \
             S: impl Drop, f, m(z)\nuse: krate::T\n```\n"
        );
    }

    #[test]
    fn a_difference_names_the_lines_of_both() {
        assert_eq!(difference("a\nb\n", "b\nc\n"), ["- a", "+ c"]);
    }
}
