//! Fuzzing: short runs of the targets in `fuzz/`.

use crate::programs::{run, workspace};
use anyhow::{Context, Result, ensure};
use std::process::Command;

/// Runs each target for `seconds`. The first crash is an error.
///
/// libFuzzer needs flags of the nightly compiler. `RUSTC_BOOTSTRAP` makes the stable compiler
/// accept them, so that no second toolchain is needed.
pub(crate) fn run_all(seconds: u32) -> Result<()> {
    if !cargo_fuzz(&["--version"]).output().is_ok_and(|output| output.status.success()) {
        run(Command::new(env!("CARGO")).args(["install", "--locked", "cargo-fuzz"]))?;
    }
    let list = cargo_fuzz(&["list"]).output().context("cannot list the fuzz targets")?;
    let targets = String::from_utf8(list.stdout).context("strange names of fuzz targets")?;
    ensure!(!targets.trim().is_empty(), "there are no fuzz targets");
    for target in targets.split_whitespace() {
        let time = format!("-max_total_time={seconds}");
        // Only the summary is printed, not each new input.
        let quiet = ["-timeout=10", "-verbosity=0", "-print_final_stats=1"];
        run(&mut cargo_fuzz(&[&["run", target, "--", &time][..], &quiet].concat()))?;
    }
    Ok(())
}

fn cargo_fuzz(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.arg("fuzz").args(arguments).env("RUSTC_BOOTSTRAP", "1").current_dir(workspace());
    command
}
