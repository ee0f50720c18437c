//! A process that is measured: its time, and the resources that the system has counted for it.

use anyhow::{Context, Result, ensure};
use rustix::fs::Advice;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time between two looks at the memory of a process.
const LOOK_EVERY: Duration = Duration::from_millis(4);

/// Time and resources that a process took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) seconds: f64,
    /// User and system time.
    pub(super) cpu_seconds: f64,
    /// Bytes that were read from the disk for the process.
    pub(super) read_bytes: u64,
    /// Most anonymous memory that was seen.
    pub(super) anonymous_bytes: u64,
}

/// Runs a command without output, which must succeed.
pub(super) fn run(mut command: Command) -> Result<Run> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let began = Instant::now();
    let mut child = command.spawn().context("cannot start a process to measure")?;
    let folder = PathBuf::from(format!("/proc/{}", child.id()));
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let mut anonymous_bytes = 0;
    // The process is not reaped, so its accounts stay.
    while waitid(WaitId::Pid(Pid::from_child(&child)), ended)?.is_none() {
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        let kilobytes = field(&status, "RssAnon:").unwrap_or(0);
        anonymous_bytes = anonymous_bytes.max(kilobytes * 1024);
        std::thread::sleep(LOOK_EVERY);
    }
    let seconds = began.elapsed().as_secs_f64();
    let account = fs::read_to_string(folder.join("io"))?;
    let stat = fs::read_to_string(folder.join("stat"))?;
    let status = child.wait()?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(Run {
        seconds,
        cpu_seconds: cpu_seconds(&stat).context("no CPU time")?,
        read_bytes: field(&account, "read_bytes:").context("no bytes read")?,
        anonymous_bytes,
    })
}

/// Returns the first number of the line that begins with a name.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Returns the CPU time of a process from its `stat`.
fn cpu_seconds(stat: &str) -> Option<f64> {
    // The name may hold anything, parentheses too.
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    let ticks = |index| rest.split_whitespace().nth(index)?.parse::<u64>().ok();
    let sum = ticks(11)? + ticks(12)?;
    Some(sum as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Drops the pages of files from the page cache.
pub(super) fn forget(files: &[PathBuf]) -> Result<()> {
    for path in files {
        let file = File::open(path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)
            .with_context(|| format!("cannot drop the pages of {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_the_system_are_read() {
        let account = "rchar: 10\nread_bytes: 4096\nwrite_bytes: 0\n";
        assert_eq!(field(account, "read_bytes:"), Some(4096));
        assert_eq!(field(account, "no_bytes:"), None);
        let stat = "71 (a (b) c) S 1 71 71 0 -1 4194560 500 6 7 8 9 10 0 0 20 0 1 0 5";
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(cpu_seconds(stat), Some(19.0 / ticks));
        assert_eq!(cpu_seconds("71 (a"), None);
    }

    #[test]
    fn a_process_is_measured_until_its_end_and_must_succeed() {
        let took = run({
            let mut sleep = Command::new("sleep");
            sleep.arg("0.05");
            sleep
        });
        assert!(took.is_ok_and(|run| run.seconds >= 0.05));
        assert!(run(Command::new("false")).is_err());
    }
}
