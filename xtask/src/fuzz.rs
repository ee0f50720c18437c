//! Fuzzing: short runs of the targets in `fuzz/`.

use crate::programs::{run, workspace};
use anyhow::{Context, Result, ensure};
use std::io::Write;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

/// Runs each target for `seconds`, as many at a time as there are processors, and prints the
/// output of each when it has ended. After the first crash no further target is begun, and it is an
/// error.
///
/// libFuzzer needs flags of the nightly compiler. `RUSTC_BOOTSTRAP` makes the stable compiler
/// accept them, so that no second toolchain is needed.
pub(crate) fn run_all(seconds: u32) -> Result<()> {
    if !cargo_fuzz(&["--version"]).output().is_ok_and(|output| output.status.success()) {
        // Its own speed does not matter, and an optimised build takes minutes.
        run(Command::new(env!("CARGO")).args(["install", "--locked", "--debug", "cargo-fuzz"]))?;
    }
    let list = cargo_fuzz(&["list"]).output().context("cannot list the fuzz targets")?;
    let targets = String::from_utf8(list.stdout).context("strange names of fuzz targets")?;
    let targets: Vec<&str> = targets.split_whitespace().collect();
    ensure!(!targets.is_empty(), "there are no fuzz targets");
    run(&mut cargo_fuzz(&["build"]))?;
    let remaining = Mutex::new(targets.iter());
    let next = || remaining.lock().expect("no thread panics with it").next();
    let stop = || *remaining.lock().expect("no thread panics with it") = [].iter();
    thread::scope(|scope| {
        let work = || {
            while let Some(target) = next() {
                run_target(target, seconds).inspect_err(|_| stop())?;
            }
            Ok(())
        };
        let workers = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })
}

/// Runs a target for `seconds`, and prints its output at the end.
fn run_target(target: &str, seconds: u32) -> Result<()> {
    let time = format!("-max_total_time={seconds}");
    // Only the summary is printed, not each new input.
    let quiet = ["-timeout=10", "-verbosity=0", "-print_final_stats=1"];
    let output = cargo_fuzz(&[&["run", target, "--", &time][..], &quiet].concat())
        .output()
        .with_context(|| format!("cannot run fuzz target {target}"))?;
    let mut shown = std::io::stdout().lock();
    writeln!(shown, "fuzz target {target}:")?;
    shown.write_all(&output.stdout)?;
    shown.write_all(&output.stderr)?;
    ensure!(output.status.success(), "fuzz target {target} failed: {}", output.status);
    Ok(())
}

fn cargo_fuzz(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.arg("fuzz").args(arguments).env("RUSTC_BOOTSTRAP", "1").current_dir(workspace());
    command
}
