//! Runs the program of an experiment with a progress bar, and reads its records.

use super::experiments::{Experiment, Size};
use crate::measurement::{self, Measurement};
use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Most lines shown of a program that failed.
const LAST_LINES: usize = 12;

/// Time between two updates of the progress bar.
const TICK: Duration = Duration::from_millis(200);

/// Folders of a measurement.
pub(super) struct Folders {
    /// Programs of `crates/compare`.
    pub(super) compare: PathBuf,
    /// Programs of tyrant.
    pub(super) tyrant: PathBuf,
    /// Logs and temporary files.
    pub(super) work: PathBuf,
}

/// Returns the command of an experiment, as the pages show it: without folders.
pub(super) fn shown_command(experiment: &Experiment, size: Size) -> String {
    let options: Vec<_> = experiment.options(size).collect();
    format!("{} {}", experiment.program.name(), options.join(" "))
}

/// Runs the program of an experiment, with a bar that begins with `place`.
pub(super) fn measure(
    experiment: &Experiment,
    size: Size,
    folders: &Folders,
    place: &str,
) -> Result<Vec<Measurement>> {
    let name = experiment.name;
    let records = folders.work.join(format!("{name}.jsonl"));
    // Records of an earlier run must not be read.
    if records.exists() {
        std::fs::remove_file(&records).context("cannot remove earlier records")?;
    }
    let tables = File::create(folders.work.join(format!("{name}.tables")))?;
    let mut command = Command::new(folders.compare.join(experiment.program.name()));
    command.args(experiment.options(size)).arg("--json").arg(&records);
    command.arg("--dir").arg(&folders.work);
    if experiment.has_servers {
        let tyrant = folders.tyrant.join("tyrant").display().to_string();
        // The programs split the command at spaces.
        ensure!(!tyrant.contains(char::is_whitespace), "{tyrant}: a path with spaces");
        command.arg("--tyrant");
        command.arg(format!("{tyrant} serve --port {{port}} {{dir}}/casket.tch"));
    }
    let log = folders.work.join(format!("{name}.log"));
    println!("{place} {}", shown_command(experiment, size));
    follow(command.stdout(tables), &log, place)?;
    let text = std::fs::read_to_string(&records);
    let text = text.with_context(|| format!("no records in {}", records.display()))?;
    let mut measurements = measurement::read(&text)?;
    ensure!(!measurements.is_empty(), "{} has no records", records.display());
    for one in &mut measurements {
        one.experiment = name.to_owned();
    }
    Ok(measurements)
}

/// Runs a command, which must succeed, and shows the progress that it prints. Its other lines go to
/// the log.
fn follow(command: &mut Command, log: &Path, place: &str) -> Result<()> {
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {elapsed} {msg}")
        .context("cannot create the progress bar")?;
    let bar = ProgressBar::new(0).with_style(style).with_prefix(place.to_owned());
    bar.enable_steady_tick(TICK);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut log = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    // The last lines of a program that fails become its error.
    let mut child = command
        .env_remove("RUST_BACKTRACE")
        .env_remove("RUST_LIB_BACKTRACE")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let lines = BufReader::new(child.stderr.take().context("no standard error")?);
    let mut last = VecDeque::new();
    for line in lines.split(b'\n') {
        let line = line.context("cannot read the progress")?;
        let line = String::from_utf8_lossy(&line);
        writeln!(log, "{line}").context("cannot write the log")?;
        if let Some((done, total, what)) = measurement::parse_progress(&line) {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(what.to_owned());
            continue;
        }
        last.push_back(line.into_owned());
        if last.len() > LAST_LINES {
            last.pop_front();
        }
    }
    let status = child.wait().context("cannot wait for the program")?;
    bar.finish_and_clear();
    let last: Vec<_> = last.into();
    ensure!(status.success(), "{program} ended with {status}: {}", last.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_removed_from_the_last_lines_and_all_lines_are_in_the_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let run = |end: &str| {
            let script = format!("echo progress 1/2 a >&2; echo words >&2; exit {end}");
            follow(Command::new("sh").args(["-c", &script]), &log, "[1/1]")
        };
        run("0").expect("success");
        assert_eq!(std::fs::read_to_string(&log).expect("a log"), "progress 1/2 a\nwords\n");
        let error = run("3").expect_err("a failure").to_string();
        assert!(error.contains("exit status: 3: words"), "{error}");
        assert!(!error.contains("progress"), "{error}");
    }
}
