//! Console: opens the page of the admin listener in a real browser.

use crate::programs::{Profile, build, run, target_folder, workspace};
use crate::requirements;
use anyhow::{Context, Result};
use std::fs;
use std::process::Command;

/// Looks at the console over live servers, at two widths and in two colours. Leaves screenshots in
/// the target folder.
pub(crate) fn run_all(profile: Profile) -> Result<()> {
    requirements::install_programs()?;
    let python = requirements::browser()?;
    let program = std::path::absolute(build(profile)?.join("tyrant"))?;
    let folder = std::path::absolute(target_folder().join("console"))?;
    let databases = tempfile::tempdir().context("no temporary folder")?;
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let test = workspace().join("tests/console/console_test.py");
    run(Command::new(python).arg(test).arg(program).arg(databases.path()).arg(&folder))?;
    println!("screenshots are in {}", folder.display());
    Ok(())
}
