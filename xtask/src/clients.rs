//! Clients of other people, driven by the scripts in `tests/clients`.

use crate::programs::{Profile, Server, build, run, workspace};
use crate::requirements;
use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// Runs every script against a fresh server on a persistent database.
pub(crate) fn run_all(profile: Profile) -> Result<()> {
    requirements::install_programs()?;
    let python = requirements::python()?;
    let programs = build(profile)?;
    for script in scripts()? {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let server = Server::start(&programs, &folder.path().join("casket.tch"))?;
        run(Command::new(&python)
            .arg("-B")
            .arg(script)
            .arg(server.port.to_string())
            .arg(&programs))?;
    }
    Ok(())
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
