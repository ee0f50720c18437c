//! Pid file: names the process of a running server, one file per service.

use crate::errors::require_folder_of;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// A file with this process's id, removed when dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Fails if the file could not be written, whether or not it names a live process. Makes
    /// nothing.
    pub(crate) fn check(path: &Path) -> Result<()> {
        read(path)?;
        require_folder_of(path)
            .with_context(|| format!("cannot write the pid file {}", path.display()))
    }

    /// Writes the file. Fails if it names a live process; the file of a dead process is replaced.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if let Some(pid) = read(path)?
            && is_alive(pid)
        {
            bail!("process {} may be already running ({})", pid.as_raw_nonzero(), path.display());
        }
        let text = format!("{}\n", std::process::id());
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot replace {}", path.display()));
            }
            _ => {}
        }
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write the pid file {}", path.display()))?;
        // An absolute path stays valid if the process changes its folder.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self { path })
    }

    /// Ends the process that the file names: sends SIGTERM, and after ten seconds SIGKILL. Does
    /// nothing if there is no such file or process.
    pub(crate) fn end_process(path: &Path) -> Result<()> {
        let Some(pid) = read(path)? else { return Ok(()) };
        for signal in [Signal::TERM, Signal::KILL] {
            if kill_process(pid, signal).is_err() && !is_alive(pid) {
                break;
            }
            let deadline = Instant::now() + GRACE;
            while is_alive(pid) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        if is_alive(pid) {
            bail!("process {} did not exit", pid.as_raw_nonzero());
        }
        Ok(())
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Returns the process that a file names, if the file exists and the process is not this one.
fn read(path: &Path) -> Result<Option<Pid>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", path.display()));
        }
    };
    let pid = text
        .trim()
        .parse()
        .ok()
        .filter(|pid: &i32| *pid > 0)
        .and_then(Pid::from_raw)
        .with_context(|| {
            format!("{} does not contain a process id: name another file", path.display())
        })?;
    Ok((pid != rustix::process::getpid()).then_some(pid))
}

/// Returns whether a process exists. It may exist without the permission to signal it.
fn is_alive(pid: Pid) -> bool {
    !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::PidFile;
    use std::fs;
    use std::process::Command;

    #[test]
    fn the_file_names_this_process_until_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let file = PidFile::create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn the_file_of_a_live_process_is_kept_and_that_of_a_dead_one_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        fs::write(&path, format!("{}\n", other.id())).unwrap();
        let refusal = PidFile::create(&path).unwrap_err().to_string();
        assert!(refusal.contains("may be already running"), "{refusal}");

        other.kill().unwrap();
        other.wait().unwrap();
        drop(PidFile::create(&path).unwrap());
    }

    #[test]
    fn an_unrelated_file_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        for content in ["", "0\n", "-1\n", "12 monkeys\n", "99999999999\n"] {
            fs::write(&path, content).unwrap();
            PidFile::create(&path).unwrap_err();
            PidFile::end_process(&path).unwrap_err();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
    }

    #[test]
    fn ending_the_process_of_a_missing_file_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        PidFile::end_process(&folder.path().join("pid")).unwrap();
    }
}
