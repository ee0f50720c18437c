//! The file that names the running server's process, one per service.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a process has after SIGTERM until it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// A file holding this process's id, removed when dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes the file. Fails if it names a process that is alive; a file left behind by a
    /// process that died is replaced.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        if let Some(pid) = read(path)?
            && is_alive(pid)
        {
            bail!(
                "the process {} may be already running ({})",
                pid.as_raw_nonzero(),
                path.display()
            );
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
        // Absolute, so that it is found again wherever the process is by then.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self { path })
    }

    /// Ends the process that the file names: politely, then, after ten seconds, by force. Does
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
            bail!("the process {} did not end", pid.as_raw_nonzero());
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

/// The process a file names, if there is such a file and it holds a number other than ours.
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
        .with_context(|| format!("{} does not hold a process id", path.display()))?;
    Ok((pid != rustix::process::getpid()).then_some(pid))
}

/// A process we may not signal is alive all the same.
fn is_alive(pid: Pid) -> bool {
    !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::PidFile;
    use std::fs;
    use std::process::Command;

    #[test]
    fn the_file_names_this_process_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let file = PidFile::create(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_living_process_keeps_its_file_and_a_dead_one_loses_it() {
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
    fn a_file_of_something_else_is_not_overwritten() {
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
    fn ending_the_process_of_a_missing_file_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        PidFile::end_process(&folder.path().join("pid")).unwrap();
    }
}
