//! Binary interface of the library for C: symbols with their version, declarations of the header,
//! layouts of its structures. The stored dump is what programs were built for.

use super::{FOLDER, Face, Flavour, SHARED, source};
use crate::programs::workspace;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The stored dump, in the folder of the crate.
const DUMP: &str = "interface.txt";

/// Prefix of all symbols, and their version.
const PREFIX: &str = "cabinet_";
const VERSION: &str = "CABINET_1.0";

/// Compares the interface of the library with the stored one, or stores it.
pub(super) fn check(face: &Face, is_written: bool) -> Result<()> {
    let symbols = symbols(&face.library.join(SHARED))?;
    check_tested(&symbols)?;
    let header = fs::read_to_string(face.include.join("cabinet.h")).context("the header")?;
    let declarations = declarations(&header);
    for symbol in &symbols {
        let call = format!("{symbol}(");
        let is_declared = declarations.iter().any(|declaration| declaration.contains(&call));
        ensure!(is_declared, "{symbol} is exported and not in the header");
    }
    let layouts = output(&mut Command::new(face.compile(&source("layout"), Flavour::C)?))?;
    let soname = output(Command::new("readelf").arg("-d").arg(face.library.join(SHARED)))?;
    ensure!(soname.contains(&format!("[{SHARED}]")), "the library is not called {SHARED}");
    let mut dump = format!("soname {SHARED}\n");
    symbols.iter().for_each(|symbol| dump.push_str(&format!("symbol {symbol}@@{VERSION}\n")));
    dump.push_str(&layouts);
    declarations.iter().for_each(|line| dump.push_str(&format!("{line}\n")));
    let path = workspace().join(FOLDER).join(DUMP);
    if is_written {
        return fs::write(path, dump).context("cannot write the dump");
    }
    compare(&fs::read_to_string(path).unwrap_or_default(), &dump)
}

/// Returns the symbols that a shared library exports. Fails if one has another prefix or version.
fn symbols(library: &Path) -> Result<BTreeSet<String>> {
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only", "--with-symbol-versions"]).arg(library);
    let mut symbols = BTreeSet::new();
    for line in output(&mut nm)?.lines() {
        let symbol = line.split_whitespace().next_back().unwrap_or_default();
        if symbol == VERSION || symbol == format!("{VERSION}@@{VERSION}") {
            continue;
        }
        let (name, version) = symbol.split_once("@@").unwrap_or((symbol, ""));
        ensure!(
            name.starts_with(PREFIX) && version == VERSION,
            "the library exports {symbol}: only {PREFIX}* with {VERSION} may be"
        );
        symbols.insert(name.to_owned());
    }
    ensure!(!symbols.is_empty(), "the library exports nothing");
    Ok(symbols)
}

/// Fails if the test program calls a function nowhere.
fn check_tested(symbols: &BTreeSet<String>) -> Result<()> {
    let mut tests = fs::read_to_string(source("functions"))?;
    tests.push_str(&fs::read_to_string(source("functions").with_file_name("support.h"))?);
    let is_untested = |symbol: &&String| !tests.contains(&format!("{symbol}("));
    let untested: Vec<_> = symbols.iter().filter(is_untested).cloned().collect();
    ensure!(untested.is_empty(), "no test calls {}", untested.join(", "));
    Ok(())
}

/// Returns the declarations and constants of a header, one line each, without comments.
fn declarations(header: &str) -> Vec<String> {
    let mut code = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    let mut declarations = Vec::new();
    let mut declaration = String::new();
    for line in code.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with('#') {
            if line.split_whitespace().count() > 2 && line.starts_with("#define ") {
                declarations.push(line.to_owned());
            }
            continue;
        }
        if line.contains("extern \"C\"") {
            continue;
        }
        let separator = if declaration.is_empty() { "" } else { " " };
        declaration.push_str(&format!("{separator}{line}"));
        let depth = declaration.matches('{').count() - declaration.matches('}').count();
        if depth == 0 && line.ends_with(';') {
            declarations.extend(of_structure(&declaration));
            declaration.clear();
        }
    }
    declarations
}

/// Returns the lines of a declaration: one for each member of a structure, which may get more.
fn of_structure(declaration: &str) -> Vec<String> {
    let Some((name, rest)) = declaration.split_once(" {") else {
        return vec![declaration.to_owned()];
    };
    let members = rest.split_once('}').map_or("", |(members, _)| members);
    let line = |member: &str| format!("{name}: {}", member.trim());
    members.split(';').filter(|member| !member.trim().is_empty()).map(line).collect()
}

/// Fails if the interface differs from the stored one.
fn compare(stored: &str, now: &str) -> Result<()> {
    let (before, after): (BTreeSet<_>, BTreeSet<_>) =
        (stored.lines().collect(), now.lines().collect());
    let gone: Vec<_> = before.difference(&after).map(|line| format!("- {line}\n")).collect();
    let new: Vec<_> = after.difference(&before).map(|line| format!("+ {line}\n")).collect();
    if !gone.is_empty() {
        bail!(
            "programs that were built for the library no longer work:\n{}{}keep that, or raise the \
             name and the version of the library; then `cargo xtask capi --write`",
            gone.concat(),
            new.concat()
        );
    }
    ensure!(
        new.is_empty(),
        "the library has more than its stored interface:\n{}`cargo xtask capi --write` stores it",
        new.concat()
    );
    Ok(())
}

/// Returns the output of a program that must succeed.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    String::from_utf8(output.stdout).context("output that is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "/* A. */\n#ifndef H\n#define H\n#include <a.h>\n\n/**\n * One; {\n */\n\
        #define ONE 1\n\ntypedef struct a {\n  /* b */\n  int b;\n} a;\n\n#ifdef __cplusplus\n\
        extern \"C\" {\n#endif\n\nint f(int a,\n      int b);\n\n#ifdef __cplusplus\n\
        }  // extern \"C\"\n#endif\n";

    #[test]
    fn declarations_are_lines_without_comments() {
        assert_eq!(
            declarations(HEADER),
            ["#define ONE 1", "typedef struct a: int b", "int f(int a, int b);"]
        );
    }

    #[test]
    fn a_line_less_breaks_programs_and_a_line_more_is_to_be_stored() {
        assert!(compare("a\nb\n", "b\na\n").is_ok());
        let text = |stored, now| compare(stored, now).unwrap_err().to_string();
        assert!(text("a\nb\n", "a\nc\n").contains("no longer work:\n- b\n+ c\n"));
        assert!(text("a\n", "a\nb\n").contains("more than its stored interface:\n+ b\n"));
    }
}
