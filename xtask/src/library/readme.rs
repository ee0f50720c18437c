//! README of the library, as its reader follows it: a new project with the dependency that it
//! names, in which each of its programs is built and run.

use super::{FOLDER, PACKAGE};
use crate::programs::{run, target_folder, workspace};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Folder beside the project in which the README expects a checkout.
const CHECKOUT: &str = "tyrant";

/// Begins a project as the README tells, and runs each Rust block of it there.
pub(super) fn run_all() -> Result<()> {
    let path = workspace().join(FOLDER).join("README.md");
    let readme = fs::read_to_string(path).context("the README of the library")?;
    let manifests = blocks(&readme, "toml");
    let programs = blocks(&readme, "rust");
    ensure!(!programs.is_empty(), "the README has no program");
    let [manifest, lean @ ..] = &manifests[..] else {
        anyhow::bail!("the README names no dependency")
    };
    let folder = tempfile::tempdir().context("a folder for the project")?;
    symlink(fs::canonicalize(workspace())?, folder.path().join(CHECKOUT))?;
    let project = folder.path().join("project");
    let binaries = project.join("src/bin");
    fs::create_dir_all(&binaries).context("the project")?;
    for (number, program) in (1..).zip(&programs) {
        fs::write(binaries.join(format!("program{number}.rs")), program)?;
    }
    // The versions that the other crates of the workspace have been built with.
    fs::copy(workspace().join("Cargo.lock"), project.join("Cargo.lock")).context("Cargo.lock")?;
    // Each line names a dependency of the reader, the first one that of the programs.
    for manifest in lean {
        begin(&project, manifest)?;
        run(cargo(&project)?.args(["tree", "--quiet", "--offline", "--depth", "1"]))?;
    }
    begin(&project, manifest)?;
    run(cargo(&project)?.args(["build", "--quiet", "--offline"]))?;
    for number in 1..=programs.len() {
        let program = format!("program{number}");
        run(cargo(&project)?.args(["run", "--quiet", "--offline", "--bin", &program]))?;
    }
    println!("{} programs of the README of {PACKAGE} ran", programs.len());
    Ok(())
}

/// Writes the manifest of a new project, with the line of a dependency.
fn begin(project: &Path, dependency: &str) -> Result<()> {
    let head = "[package]\nname = \"project\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    let dependencies = match dependency.contains("[dependencies]") {
        true => dependency.to_owned(),
        false => format!("[dependencies]\n{dependency}"),
    };
    let manifest = format!("{head}\n{dependencies}");
    fs::write(project.join("Cargo.toml"), manifest).context("the manifest of the project")
}

/// Returns cargo in the project, which builds in a folder that later runs find again.
fn cargo(project: &Path) -> Result<Command> {
    let target = std::path::absolute(target_folder().join("xtask/readme"))?;
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(project).env("CARGO_TARGET_DIR", target);
    // Without symbols for a debugger it takes two thirds of the time.
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    Ok(command)
}

/// Returns the blocks of code of a page in a language.
pub(crate) fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let block: String = lines
            .by_ref()
            .take_while(|line| *line != "```")
            .flat_map(|line| [line, "\n"])
            .collect();
        if info.split(',').next() == Some(language) {
            blocks.push(block);
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_their_language() {
        let page =
            "a\n```rust,no_run\nfn main() {\n}\n```\n\n```toml\nb = 1\n```\n```rust\nc\n```\n";
        assert_eq!(blocks(page, "rust"), ["fn main() {\n}\n", "c\n"]);
        assert_eq!(blocks(page, "toml"), ["b = 1\n"]);
        assert_eq!(blocks(page, "sh"), Vec::<String>::new());
    }
}
