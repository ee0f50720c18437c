//! `cargo xtask test`: every suite of the project, side by side, each to its end.
//!
//! The programs that suites need are installed first, and all tests are built once. A suite is a
//! process of its own, whose output is a file below `target/test`. The output of one that fails is
//! printed.

mod durations;
mod install;
mod schedule;
mod suites;

use crate::programs::{PROGRAMS_VARIABLE, target_folder};
use crate::test_binaries::Built;
use anyhow::{Context, Result, bail, ensure};
use schedule::Ended;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Tests of which the time is printed at the end.
const SLOWEST: usize = 10;

/// Last lines that are printed of the output of a suite that fails.
const SHOWN_LINES: usize = 200;

/// Those that are printed again at the very end, where a long output is read first.
const CLOSING_LINES: usize = 12;

/// Which suites to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run these suites alone: names as in --list, or their beginning up to `::`.
    names: Vec<String>,
    /// Print the names of the suites, and what each does.
    #[arg(long)]
    list: bool,
    /// Start three nodes of Cassandra in place of one, and kill them under load too.
    #[arg(long)]
    cluster: bool,
}

/// Runs the suites, or lists them. Fails if one of them fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let all = suites::all(options.cluster)?;
    if options.list {
        for suite in &all {
            println!("{:<32} {}", suite.name, suite.about);
        }
        return Ok(());
    }
    let wanted = suites::chosen(all, &options.names)?;
    let begun = Instant::now();
    let logs = target_folder().join("test");
    if logs.exists() {
        std::fs::remove_dir_all(&logs).context("cannot remove the output of an earlier run")?;
    }
    std::fs::create_dir_all(&logs).context("cannot write to the target folder")?;

    // One waits for the network, the other for the processors.
    let built = thread::scope(|scope| {
        let installing = scope.spawn(|| install::all(&wanted));
        let built = Built::new();
        installing.join().expect("no panic")?;
        built
    })?;
    // A disk that other programs fill fails tests in many ways.
    let free = |folder: &Path| Ok::<_, anyhow::Error>(free_bytes(folder)? as f64 / 1e9);
    println!(
        "\ninstalled and built in {:.0} s; running {} suites, their output is in {}; free are \
         {:.1} GB there and {:.1} GB in {}",
        begun.elapsed().as_secs_f64(),
        wanted.len(),
        logs.display(),
        free(&logs)?,
        free(&std::env::temp_dir())?,
        std::env::temp_dir().display()
    );
    let programs = built.programs()?;
    let variables = [(PROGRAMS_VARIABLE, programs)];
    let commands = wanted.into_iter().map(|suite| suite.command(&built)).collect::<Result<_>>()?;
    let ended = schedule::run(commands, &logs, &variables, report);
    summarize(&ended, begun.elapsed())
}

/// Returns the bytes that this user may still write to the disk of a folder.
fn free_bytes(folder: &Path) -> Result<u64> {
    let disk = rustix::fs::statvfs(folder).context("cannot look at the disk")?;
    Ok(disk.f_bavail * disk.f_frsize)
}

/// Prints the end of a suite, and the output of one that failed.
fn report(ended: &Ended) {
    let result = if ended.is_passed() { "ok    " } else { "FAILED" };
    println!("{result} {:<32} {:>6.1} s{}", ended.name, ended.seconds(), ended.counted());
    if ended.is_passed() {
        return;
    }
    for line in last_lines(&ended.log, SHOWN_LINES) {
        println!("    {line}");
    }
    println!("    {}: all of its output is in {}", ended.name, ended.log.display());
}

fn last_lines(log: &Path, count: usize) -> Vec<String> {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(count)).map(|line| (*line).to_owned()).collect()
}

/// Prints the closing lines of the test runners, the slowest tests, and the table of suites.
fn summarize(ended: &[Ended], total: Duration) -> Result<()> {
    ensure!(!ended.is_empty(), "no suite has run");
    println!("\nclosing lines of the suites:");
    for ended in ended {
        for line in &ended.closing_lines {
            println!("{line}");
        }
    }
    let mut tests: Vec<_> = ended.iter().flat_map(|ended| &ended.slow_tests).collect();
    tests.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    println!("\nslowest tests:");
    for test in tests.iter().take(SLOWEST) {
        println!("{:>7.1} s  {}", test.seconds, test.name);
    }
    let mut table: Vec<&Ended> = ended.iter().collect();
    table.sort_by(|a, b| b.seconds().total_cmp(&a.seconds()));
    println!("\n{:<32} {:>8}  result", "suite", "seconds");
    for ended in table {
        println!("{:<32} {:>8.1}  {}", ended.name, ended.seconds(), ended.result());
    }
    let failed: Vec<&Ended> = ended.iter().filter(|ended| !ended.is_passed()).collect();
    for ended in &failed {
        println!("\nend of the output of {}:", ended.name);
        for line in last_lines(&ended.log, CLOSING_LINES) {
            println!("    {line}");
        }
    }
    let minutes = total.as_secs_f64() / 60.0;
    println!("\n{} suites in {minutes:.1} minutes", ended.len());
    println!("{} passed, {} failed", ended.len() - failed.len(), failed.len());
    let free = free_bytes(&std::env::temp_dir())? as f64 / 1e9;
    if free < 1.0 {
        println!("the disk of temporary files is nearly full: {free:.1} GB are free");
    }
    if !failed.is_empty() {
        let failed: Vec<&str> = failed.iter().map(|ended| &*ended.name).collect();
        let again = failed.join(" ");
        bail!("failed: {}; `cargo xtask test {again}` runs them again", failed.join(", "));
    }
    Ok(())
}
