//! Console: opens the page of the admin listener in a real browser.

use crate::programs::{Profile, build, run, target_folder, workspace};
use crate::requirements;
use anyhow::{Context, Result};
use std::fs;
use std::process::Command;

/// Looks at the console over live servers, at two widths and in two colours. Leaves screenshots in
/// the target folder. With `pictures` it takes those of the documentation instead, and with `cost`
/// it prints the processor time of a dashboard.
pub(crate) fn run_all(profile: Profile, pictures: bool, cost: bool) -> Result<()> {
    requirements::install_programs()?;
    let python = requirements::browser()?;
    let program = std::path::absolute(build(profile)?.join("tyrant"))?;
    let (script, folder) = match pictures {
        true => ("pictures.py", workspace().join("docs/pictures")),
        false => ("console_test.py", std::path::absolute(target_folder().join("console"))?),
    };
    let databases = tempfile::tempdir().context("no temporary folder")?;
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let script = workspace().join("tests/console").join(script);
    let mut command = Command::new(python);
    command.arg(script).arg(program).arg(databases.path()).arg(&folder);
    command.args(cost.then_some("cost"));
    run(command.env("PYTHONDONTWRITEBYTECODE", "1"))?;
    if !cost {
        println!("the pictures are in {}", folder.display());
    }
    Ok(())
}
