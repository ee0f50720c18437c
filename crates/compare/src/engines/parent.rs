//! Parent: starts children, samples their memory, and reads their stats.

use super::child::{Assignment, Task};
use super::stats::Stats;
use crate::folder;
use crate::process;
use anyhow::{Context as _, Result, bail, ensure};
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Interval of samples of a child's memory.
const SAMPLE: Duration = Duration::from_millis(20);

/// Runs an assignment in a child. Returns its stats and those measured from outside:
/// `TASK.anonymous_peak`, and `TASK.disk_allocated` and `TASK.disk_apparent` of the files
/// afterwards, all in bytes.
pub fn run(assignment: &Assignment, patience: Duration) -> Result<Stats> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("child")
        .args(assignment.arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start a child")?;
    let deadline = Instant::now() + patience;
    let mut anonymous_peak = 0;
    // The stats are far shorter than a pipe's buffer, so the child never blocks on it.
    let status = loop {
        if let Ok(memory) = process::memory(child.id()) {
            anonymous_peak = anonymous_peak.max(memory.anonymous);
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("not done after {patience:?}");
        }
        std::thread::sleep(SAMPLE);
    };
    let mut text = String::new();
    child.stdout.take().context("no output")?.read_to_string(&mut text)?;
    let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(libc::SIGKILL);
    ensure!(status.success() || (killed && assignment.task == Task::LoadAndDie), "{status}");
    let mut stats = Stats::read(&text);
    let used = folder::usage(&assignment.folder)?;
    let task = format!("{:?}", assignment.task).to_lowercase();
    stats.set(format!("{task}.anonymous_peak"), anonymous_peak as f64);
    stats.set(format!("{task}.disk_allocated"), used.allocated as f64);
    stats.set(format!("{task}.disk_apparent"), used.apparent as f64);
    Ok(stats)
}
