//! Test binaries of the workspace, all from one build, so that no crate is compiled with two sets
//! of features.

use crate::programs::{WORKSPACE, workspace};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A test target of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Name of the package.
    pub(crate) package: String,
    /// Name of the suite: the package without `tyrant-`, and unless it is the library's own tests,
    /// `::` and the target.
    pub(crate) name: String,
}

/// A test binary.
pub(crate) struct Binary {
    pub(crate) target: Target,
    pub(crate) path: PathBuf,
    /// Folder in which cargo would run it.
    pub(crate) folder: PathBuf,
}

/// Result of the build.
pub(crate) struct Built {
    binaries: Vec<Binary>,
    programs: Option<PathBuf>,
}

impl Built {
    /// Builds all tests and programs of the workspace.
    pub(crate) fn new() -> Result<Self> {
        let mut command = Command::new(env!("CARGO"));
        command.arg("test").args(WORKSPACE).arg("--no-run");
        println!("$ cargo test {} --no-run", WORKSPACE.join(" "));
        let mut built = Self { binaries: Vec::new(), programs: None };
        for message in messages(command.arg("--message-format=json-render-diagnostics"))? {
            let Some(path) = message["executable"].as_str().map(PathBuf::from) else { continue };
            if message["profile"]["test"] == true {
                let manifest = PathBuf::from(text(&message["manifest_path"])?);
                let folder = manifest.parent().context("a manifest without a folder")?.to_owned();
                let package = package_of(text(&message["package_id"])?);
                let target = Target::new(package, &message["target"])?;
                built.binaries.push(Binary { target, path, folder });
            } else if text(&message["target"]["name"])? == "tyrant" {
                built.programs = path.parent().map(PathBuf::from);
            }
        }
        ensure!(!built.binaries.is_empty(), "cargo has built no tests");
        Ok(built)
    }

    /// Returns the folder of the programs.
    pub(crate) fn programs(&self) -> Result<PathBuf> {
        self.programs.clone().context("cargo has not built the program `tyrant`")
    }

    /// Returns the binary of a target.
    pub(crate) fn binary(&self, target: &Target) -> Result<&Binary> {
        let binary = self.binaries.iter().find(|binary| binary.target == *target);
        binary.with_context(|| format!("cargo has built no tests of {}", target.name))
    }
}

/// Builds the tests of the workspace. Returns a command for each test binary of a package.
pub(crate) fn of_package(package: &str) -> Result<Vec<Command>> {
    let built = Built::new()?;
    let of_package = built.binaries.iter().filter(|binary| binary.target.package == package);
    let commands: Vec<Command> = of_package.map(Binary::command).collect();
    ensure!(!commands.is_empty(), "the package {package} has no tests");
    Ok(commands)
}

impl Binary {
    /// Returns the command that runs it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder);
        command
    }
}

impl Target {
    fn new(package: String, target: &Value) -> Result<Self> {
        let short = package.strip_prefix("tyrant-").unwrap_or(&package);
        let name = text(&target["name"])?;
        let is_library = kinds(target).any(|kind| kind.ends_with("lib"));
        let name = if is_library { short.to_owned() } else { format!("{short}::{name}") };
        Ok(Self { package, name })
    }
}

/// Returns the test targets of the workspace, without building them.
pub(crate) fn targets() -> Result<Vec<Target>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--format-version=1"]);
    let mut targets = Vec::new();
    for metadata in messages(&mut command)? {
        for package in metadata["packages"].as_array().context("cargo metadata")? {
            let name = text(&package["name"])?;
            for target in package["targets"].as_array().context("cargo metadata")? {
                if target["test"] == true && !kinds(target).any(|kind| kind == "bench") {
                    targets.push(Target::new(name.to_owned(), target)?);
                }
            }
        }
    }
    Ok(targets)
}

/// Runs cargo in the workspace. Returns the lines of JSON that it prints.
fn messages(command: &mut Command) -> Result<Vec<Value>> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).current_dir(workspace());
    let output = output.output().context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo ended with {}, see above", output.status);
    let lines = std::str::from_utf8(&output.stdout).context("the output of cargo")?.lines();
    lines.map(|line| serde_json::from_str(line).context("the output of cargo")).collect()
}

fn kinds(target: &Value) -> impl Iterator<Item = &str> {
    target["kind"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().context("a field that cargo does not print as text")
}

/// Returns the name in a package's id, as `path+file:///f/bin#tyrant-kv@0.1.0` or, if the folder
/// has the name, `path+file:///f/xtask#0.1.0`.
fn package_of(id: &str) -> String {
    let (folder, fragment) = id.rsplit_once('#').unwrap_or((id, id));
    match fragment.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => folder.rsplit('/').next().unwrap_or(folder).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_package_is_in_its_id_or_its_folder() {
        assert_eq!(package_of("path+file:///f/bin#tyrant-kv@0.1.0"), "tyrant-kv");
        assert_eq!(package_of("path+file:///f/xtask#0.1.0"), "xtask");
    }

    #[test]
    fn targets_are_those_of_the_workspace() {
        let targets = targets().unwrap();
        let names: Vec<&str> = targets.iter().map(|target| &*target.name).collect();
        for name in ["cabinet", "cabinet::model", "kv::end_to_end", "xtask::xtask"] {
            assert!(names.contains(&name), "{name} is not among {names:?}");
        }
    }
}
