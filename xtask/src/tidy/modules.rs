//! Layers: the modules right below `src/` of a crate do not use each other in a circle.
//!
//! A use is a path that begins with `crate::`, or with as many `super::` as lead to the root, in
//! a `use` or within code. A name that the root takes from a module by `pub use` counts as that
//! module. Comments, items under `#[cfg(test)]`, the files of modules that are declared there, and
//! modules called `tests` are left out. Not seen are names behind a `*`, paths that macros put
//! together, `super::` within a module in braces, and methods of a type that reached the module
//! some other way.

use super::Problem;
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Source folders of the crates that are held to the rule.
const CRATES: &[&str] = &[
    "bin/src",
    "crates/cabinet/src",
    "crates/capi/src",
    "crates/client/src",
    "crates/cluster/src",
    "crates/compare/src",
    "crates/python/src",
    "crates/scripts/src",
    "crates/server/src",
    "crates/tls/src",
    "crates/webdav/src",
    "crates/wire/src",
    "xtask/src",
];

/// Modules right below `src/`, those that each uses, and where it does so first.
type Uses = BTreeMap<String, BTreeMap<String, (String, usize)>>;

pub(super) fn problems(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for folder in tree.paths.iter().filter_map(|path| path.strip_suffix("/Cargo.toml")) {
        let source = format!("{folder}/src");
        if CRATES.contains(&source.as_str()) {
            problems.extend(circles(&uses(tree, &source)));
        } else if tree.folders.contains(&source) {
            let what = format!("the crate is not in {}, add it", file!());
            let file = format!("{folder}/Cargo.toml");
            problems.push(Problem { file, line: 1, what });
        }
    }
    problems
}

/// Returns a problem for each circle, until every module in a circle is in one of those.
fn circles(uses: &Uses) -> Vec<Problem> {
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for module in uses.keys() {
        if seen.contains(module) {
            continue;
        }
        let Some(circle) = circle(uses, module) else { continue };
        let steps = circle.iter().zip(circle.iter().cycle().skip(1));
        let places: Vec<(&str, &(String, usize))> =
            steps.map(|(from, to)| (to.as_str(), &uses[from][to])).collect();
        let shown: Vec<String> =
            places.iter().map(|(to, (file, line))| format!("{file}:{line} uses {to}")).collect();
        let what = format!(
            "modules in a circle ({}), turn one of the uses around or move what is shared below both",
            shown.join(", ")
        );
        let (file, line) = places[0].1.clone();
        problems.push(Problem { file, line, what });
        seen.extend(circle);
    }
    problems
}

/// Returns the shortest circle from a module back to it.
fn circle(uses: &Uses, start: &String) -> Option<Vec<String>> {
    let mut paths = VecDeque::from([vec![start.clone()]]);
    let mut reached = BTreeSet::new();
    while let Some(path) = paths.pop_front() {
        let next = path.last().and_then(|last| uses.get(last)).into_iter().flat_map(BTreeMap::keys);
        for next in next {
            if next == start {
                return Some(path);
            }
            if reached.insert(next.clone()) {
                paths.push_back([path.as_slice(), std::slice::from_ref(next)].concat());
            }
        }
    }
    None
}

/// Returns which modules of a crate use which.
fn uses(tree: &Tree, source: &str) -> Uses {
    let texts: Vec<(&str, Vec<&str>, &str)> = tree
        .texts
        .iter()
        .filter_map(|(path, text)| {
            let module = path.strip_prefix(source)?.strip_prefix('/')?.strip_suffix(".rs")?;
            let module = module.strip_suffix("/mod").unwrap_or(module);
            Some((path.as_str(), module.split('/').collect(), text.as_str()))
        })
        .collect();
    let of_tests: Vec<Vec<&str>> = texts
        .iter()
        .flat_map(|(_, module, text)| {
            let above = if is_root(module) { &[][..] } else { module };
            test_modules(text).map(move |name| [above, &[name]].concat())
        })
        .collect();
    let files: Vec<(&str, Vec<&str>, String)> = texts
        .into_iter()
        .filter(|(_, module, _)| !of_tests.iter().any(|tests| module.starts_with(tests)))
        .map(|(path, module, text)| (path, module, without_tests(text)))
        .collect();
    let modules: BTreeSet<&str> = files
        .iter()
        .filter(|(_, module, _)| !is_root(module) && module[0] != "tests")
        .map(|(_, module, _)| module[0])
        .collect();

    // Names that the root takes from its modules.
    let mut taken = BTreeMap::new();
    for (_, _, text) in files.iter().filter(|(_, module, _)| is_root(module)) {
        for (at, _) in text.match_indices("use ") {
            for path in paths(&text[at + 4..]) {
                let path = path.strip_prefix("crate::").unwrap_or(&path).to_string();
                let first = path.split("::").next().unwrap_or(&path);
                if let Some(module) = modules.get(first) {
                    let name = path.rsplit([':', ' ']).next().unwrap_or(&path);
                    taken.insert(name.to_string(), *module);
                }
            }
        }
    }

    let mut uses = Uses::new();
    let tests = |module: &[&str]| module.contains(&"tests");
    for (file, module, text) in
        files.iter().filter(|(_, module, _)| !is_root(module) && !tests(module))
    {
        for (at, names) in names_of_root(text, module.len()) {
            for name in names {
                let used = modules.get(name.as_str()).or_else(|| taken.get(&name));
                let Some(used) = used.filter(|used| **used != module[0]) else { continue };
                let line = text[..at].lines().count().max(1);
                let of_module = uses.entry(module[0].to_string()).or_default();
                of_module.entry(used.to_string()).or_insert_with(|| (file.to_string(), line));
            }
        }
    }
    uses
}

/// Returns whether a module is the root of its crate.
fn is_root(module: &[&str]) -> bool {
    matches!(module, ["lib" | "main"])
}

/// Returns the names of the modules with files of their own that a text declares for tests only.
fn test_modules(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim);
    lines.clone().zip(lines.skip(1)).filter(|(above, _)| *above == "#[cfg(test)]").filter_map(
        |(_, line)| {
            let declaration = line.rsplit_once("mod ").map_or("", |(_, name)| name);
            declaration.strip_suffix(';')
        },
    )
}

/// Returns the names that a text takes from the root, and where it does so. `depth` is the number
/// of modules above the text, with its own.
fn names_of_root(text: &str, depth: usize) -> Vec<(usize, Vec<String>)> {
    let above = "super::".repeat(depth);
    let begins =
        |at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
    let starts = ["crate::", &above].map(|start| {
        let places = text.match_indices(start).map(|(at, start)| (at, at + start.len()));
        places.filter(|(at, _)| begins(*at)).collect::<Vec<_>>()
    });
    let names = |(at, end): (usize, usize)| {
        let first = |path: String| path.split([':', ' ']).next().unwrap_or(&path).to_string();
        (at, paths(&text[end..]).into_iter().map(first).collect())
    };
    starts.concat().into_iter().map(names).collect()
}

/// Returns the paths at the beginning of a text, one for each name in braces.
fn paths(text: &str) -> Vec<String> {
    let end = text.find(|c: char| !c.is_alphanumeric() && !"_:".contains(c)).unwrap_or(text.len());
    let (start, rest) = text.split_at(end);
    let Some(list) = rest.strip_prefix('{') else {
        let name = rest.strip_prefix(" as ").map(|rest| paths(rest).concat());
        return vec![name.map_or(start.to_string(), |name| format!("{start} as {name}"))];
    };
    let mut found = Vec::new();
    let (mut depth, mut from) = (0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                let part = list[from..at].trim();
                if !part.is_empty() {
                    found.extend(paths(part).iter().map(|path| format!("{start}{path}")));
                }
                from = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns source with empty lines for comments and for what is compiled for tests only.
pub(super) fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        if !code.starts_with("#[cfg(test)]") {
            kept.push_str(if code.starts_with("//") { "" } else { line });
            kept.push('\n');
            continue;
        }
        // The item ends with the first line of its indentation that closes something.
        kept.push('\n');
        let indentation = line.len() - code.len();
        for line in lines.by_ref() {
            kept.push('\n');
            let code = line.trim_start();
            let closes = code.ends_with([';', '}', ',']) && !code.starts_with("//");
            if closes && line.len() - code.len() == indentation {
                break;
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    /// Returns the problems of a crate of a root and of modules a, b and c.
    fn with(root: &str, a: &str, b: &str, c: &str) -> Vec<String> {
        let files = [
            ("crates/wire/Cargo.toml", ""),
            ("crates/wire/src/lib.rs", root),
            ("crates/wire/src/a.rs", a),
            ("crates/wire/src/b/mod.rs", ""),
            ("crates/wire/src/b/inner.rs", b),
            ("crates/wire/src/c.rs", c),
        ];
        found(&files, problems)
    }

    #[test]
    fn arrows_in_one_direction_pass() {
        let b = "use crate::c::C;\nuse super::Other;\n";
        assert_eq!(with("", "use crate::{b::B, c};\n", b, "use std::a::b;\n"), [""; 0]);
    }

    #[test]
    fn a_circle_fails_however_its_uses_are_written() {
        for (root, b) in [
            ("", "use crate::a::A;"),
            ("", "pub(crate) use crate::{\n    std::{x, y},\n    a::{self, A},\n};"),
            ("", "use super::super::a;"),
            ("", "fn f() -> crate::a::A {}"),
            ("", "fn f() { super::super::a::f() }"),
            ("pub use a::{inner::One, A};", "use crate::A;"),
            ("pub use a::A as Other;", "use crate::Other;"),
        ] {
            let found = with(root, "\nuse crate::b::B;\n", &format!("\n\n{b}\n"), "");
            assert_eq!(
                found,
                ["crates/wire/src/a.rs:2: modules in a circle (crates/wire/src/a.rs:2 uses b, \
                  crates/wire/src/b/inner.rs:3 uses a), turn one of the uses around or \
                  move what is shared below both"],
                "{root} {b}"
            );
        }
    }

    #[test]
    fn tests_may_use_what_is_above_their_module() {
        let files = |declaration: &str| {
            let b = format!("{declaration}\nmod tested;\n");
            let files = [
                ("crates/wire/Cargo.toml", ""),
                ("crates/wire/src/lib.rs", ""),
                ("crates/wire/src/a.rs", "use crate::b::B;\n"),
                ("crates/wire/src/b/mod.rs", &b),
                ("crates/wire/src/b/tested.rs", "use crate::a::A;\n"),
            ];
            found(&files, problems)
        };
        assert_eq!(files("#[cfg(test)]"), [""; 0]);
        assert_eq!(files("").len(), 1);
    }

    #[test]
    fn a_circle_of_three_is_listed_once() {
        let found = with("", "use crate::b;\n", "use crate::c;\n", "// c\nuse crate::a;\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("crates/wire/src/c.rs:2 uses a"));
    }

    #[test]
    fn tests_and_comments_may_close_a_circle() {
        let b = "// crate::a::A\n/// [`crate::a::A`]\nfn f() {}\n\n#[cfg(test)]\nmod tests {\n    \
                 use crate::a::A;\n\n    fn f() {}\n}\n";
        assert_eq!(with("", "use crate::b::B;\n", b, "#[cfg(test)]\nuse crate::a::A;\n"), [""; 0]);
        let field = "struct S {\n    #[cfg(test)]\n    field: crate::a::A,\n";
        assert_eq!(with("", "use crate::b::B;\n", &format!("{field}}}\n"), ""), [""; 0]);
        for before in [b, field, "#[cfg(test)]\nuse crate::{\n    d::D,\n};\n"] {
            let b = format!("{before}use crate::a::A;\n");
            assert_eq!(with("", "use crate::b::B;\n", &b, "").len(), 1, "{before}");
        }
    }

    #[test]
    fn a_crate_without_a_row_fails() {
        let files = [("crates/other/Cargo.toml", ""), ("crates/other/src/lib.rs", "")];
        let found = found(&files, problems);
        assert!(
            found[0].starts_with("crates/other/Cargo.toml:1: the crate is not in"),
            "{found:?}"
        );
    }
}
