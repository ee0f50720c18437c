//! Benchmark server: runs on a new database in a temporary folder.

use anyhow::{Context, Result, bail};
use client::Client;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Longest wait for the server to listen, and to close its database.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is stopped, and its folder removed, when dropped.
pub(super) struct OwnServer {
    folder: PathBuf,
    child: Child,
}

impl OwnServer {
    /// Starts a server of the database `name`, with further options, in a new folder below
    /// `parent`.
    pub(super) fn start(parent: &Path, name: &str, options: &[&str]) -> Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("tyrant-bench-{}-{number}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let child = Command::new(program)
            .current_dir(&folder)
            .args(["serve", name, "--unix", "socket", "--log", "log"])
            .args(options)
            .stdin(Stdio::null())
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                let _ = fs::remove_dir_all(&folder);
                return Err(error).context("cannot start a server");
            }
        };
        let mut server = Self { folder, child };
        let deadline = Instant::now() + PATIENCE;
        while server.connect().is_err() {
            if server.child.try_wait()?.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(server.folder.join("log")).unwrap_or_default();
                bail!("the server did not start:\n{log}");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Connects to the server.
    pub(super) fn connect(&self) -> Result<Client> {
        Ok(Client::connect_unix(&self.folder.join("socket"))?)
    }

    /// Returns a number of its `stat`.
    pub(super) fn number(&self, name: &str) -> Result<f64> {
        self.word(name)?.parse().with_context(|| format!("{name} is not a number"))
    }

    /// Returns a value of its `stat`.
    pub(super) fn word(&self, name: &str) -> Result<String> {
        let value = crate::remote::stat_value(&self.connect()?, name)?;
        value.with_context(|| format!("the server has no {name}"))
    }

    /// Returns the processor time of the server, in seconds.
    pub(super) fn processor_seconds(&self) -> Result<f64> {
        Ok(self.number("ru_user")? + self.number("ru_sys")?)
    }

    /// Closes the database. Returns the bytes that its files take on disk.
    pub(super) fn close(&mut self, name: &str) -> Result<u64> {
        self.stop()?;
        let mut bytes = 0;
        for file in fs::read_dir(self.folder.join(name))? {
            bytes += file?.metadata()?.blocks() * 512;
        }
        Ok(bytes)
    }

    fn stop(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            let pid = rustix::process::Pid::from_child(&self.child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        if !self.child.wait()?.success() {
            bail!("the server ended with an error");
        }
        Ok(())
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
