//! Client libraries of other languages: installs them below `target` and runs their tests.

use crate::programs::{target_folder, workspace};
use crate::requirements::prepared;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A test of client libraries, run with the port of a server as its last argument.
pub(crate) struct Test {
    program: PathBuf,
    arguments: Vec<PathBuf>,
}

impl Test {
    /// Returns the command that tests a server.
    pub(crate) fn command(&self, port: u16) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(port.to_string());
        command
    }
}

/// Returns the tests of every language, ready to run.
pub(crate) fn tests() -> Result<Vec<Test>> {
    let mut tests = vec![go()?, java()?];
    tests.extend(node()?);
    Ok(tests)
}

fn go() -> Result<Test> {
    let sources = sources("go");
    let folder = installed("go", &["go.mod", "go.sum", "main.go"], |folder| {
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(folder.join("clients")).arg(".").current_dir(&sources);
        vec![build]
    })?;
    Ok(Test { program: folder.join("clients"), arguments: Vec::new() })
}

fn java() -> Result<Test> {
    let sources = sources("java");
    let test = sources.join("ClientTest.java");
    let folder = installed("java", &["pom.xml", "ClientTest.java"], |folder| {
        let mut jars = Command::new("mvn");
        jars.args(["--batch-mode", "--quiet", "--file"])
            .arg(sources.join("pom.xml"))
            .arg("dependency:copy-dependencies")
            .arg(format!("-DoutputDirectory={}", folder.display()));
        let mut classes = Command::new("javac");
        classes.arg("-cp").arg(folder.join("*")).arg("-d").arg(folder).arg(&test);
        vec![jars, classes]
    })?;
    let class_path = format!("{0}:{0}/*", folder.display());
    let arguments = vec!["-cp".into(), class_path.into(), "ClientTest".into()];
    Ok(Test { program: "java".into(), arguments })
}

fn node() -> Result<Vec<Test>> {
    let tests = ["memcached_test.js", "memjs_test.js"];
    let files = ["package.json", "package-lock.json", "check.js", tests[0], tests[1]];
    let sources = sources("node");
    let folder = installed("node", &files, |folder| {
        let mut copy = Command::new("cp");
        copy.args(files.map(|file| sources.join(file))).arg(folder);
        let mut install = Command::new("npm");
        install.args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(folder);
        vec![copy, install]
    })?;
    let test = |name| Test { program: "node".into(), arguments: vec![folder.join(name)] };
    Ok(tests.map(test).into())
}

fn sources(language: &str) -> PathBuf {
    workspace().join("tests/clients").join(language)
}

/// Returns a folder below `target` that commands have filled from these files of a language.
fn installed(
    language: &str,
    files: &[&str],
    commands: impl FnOnce(&Path) -> Vec<Command>,
) -> Result<PathBuf> {
    let mut wanted = String::new();
    for file in files {
        let path = sources(language).join(file);
        let text = std::fs::read_to_string(&path);
        wanted.push_str(&text.with_context(|| format!("cannot read {}", path.display()))?);
    }
    let folder = target_folder().join("clients").join(language);
    let folder = std::path::absolute(folder).context("no target folder")?;
    prepared(&folder, &wanted, || {
        // Files of an older version must not be tested.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).context("cannot write to the target folder")?;
        Ok(commands(&folder))
    })?;
    Ok(folder)
}
