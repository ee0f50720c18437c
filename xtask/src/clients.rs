//! Third-party clients, driven by the scripts and programs in `tests/clients`.

use crate::programs::{Profile, Server, build, run, workspace};
use crate::{languages, requirements};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs every script and program against a new server on a persistent database.
pub(crate) fn run_all(profile: Profile) -> Result<()> {
    requirements::install_programs()?;
    let python = requirements::python()?;
    let programs = build(profile)?;
    for script in scripts()? {
        with_server(&programs, |port| {
            let mut command = Command::new(&python);
            command.arg("-B").arg(script).arg(port.to_string()).arg(&programs);
            command
        })?;
    }
    for test in languages::tests()? {
        with_server(&programs, |port| test.command(port))?;
    }
    Ok(())
}

fn with_server(programs: &Path, test: impl FnOnce(u16) -> Command) -> Result<()> {
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let server = Server::start(programs, &folder.path().join("casket.tch"))?;
    run(&mut test(server.port))
}

fn scripts() -> Result<Vec<PathBuf>> {
    let folder = workspace().join("tests/clients");
    let mut scripts = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with("_test.py") {
            scripts.push(path);
        }
    }
    ensure!(!scripts.is_empty(), "no scripts in {}", folder.display());
    scripts.sort();
    Ok(scripts)
}
