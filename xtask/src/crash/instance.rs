//! Instances: a server that is killed and started again on the same files and port.

use crate::programs::{Server, free_port};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of a file of an update log: small, so that transactions cross from one to the next.
const LOG_FILE_BYTES: &str = "1m";

/// Bytes of an update log that are kept, which no replica falls behind.
const LOG_KEEP_BYTES: &str = "256m";

pub(super) struct Instance {
    programs: PathBuf,
    database: PathBuf,
    options: Vec<String>,
    pub(super) port: u16,
    server: Option<Server>,
    pub(super) kills: u32,
    pub(super) slowest_start: Duration,
}

impl Instance {
    /// Creates an instance that is not started. Its files are in `folder`.
    pub(super) fn new(programs: &Path, folder: &Path, database: &str) -> Self {
        Self {
            programs: programs.to_owned(),
            database: folder.join(database),
            options: Vec::new(),
            port: free_port(),
            server: None,
            kills: 0,
            slowest_start: Duration::ZERO,
        }
    }

    /// Makes the instance a server of this number among those that replicate each other.
    pub(super) fn with_id(self, id: u8) -> Self {
        self.with("--server-id", &id.to_string())
    }

    /// Gives the instance an update log.
    pub(super) fn with_update_log(self) -> Self {
        let folder = self.database.with_extension("ulog").display().to_string();
        self.with("--update-log", &folder)
            .with("--update-log-file-bytes", LOG_FILE_BYTES)
            .with("--update-log-keep-bytes", LOG_KEEP_BYTES)
    }

    /// Makes the instance a replica.
    pub(super) fn following(self, master: &Self) -> Self {
        let position = self.database.with_extension("rts").display().to_string();
        self.with("--master", &format!("127.0.0.1:{}", master.port))
            .with("--position-file", &position)
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.options.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Returns whether the server runs.
    pub(super) fn is_up(&self) -> bool {
        self.server.is_some()
    }

    /// Starts the server, and waits until it accepts connections.
    pub(super) fn start(&mut self) -> Result<()> {
        let started = Instant::now();
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let Self { port, programs, database, .. } = &*self;
        let log = self.log();
        let server = Server::start_at(*port, |command| command, programs, database, &log, &options);
        self.server =
            Some(server.with_context(|| format!("{} does not open", database.display()))?);
        self.slowest_start = self.slowest_start.max(started.elapsed());
        Ok(())
    }

    /// Sends SIGKILL, and waits until the server has exited. It must have been there.
    pub(super) fn kill(&mut self) -> Result<()> {
        let Some(mut server) = self.server.take() else { bail!("the server is not started") };
        if let Some(status) = server.ending()? {
            bail!("{}: the server ended with {status}", self.database.display());
        }
        self.kills += 1;
        server.kill()
    }

    /// Fails if the server has logged an error.
    pub(super) fn check_log(&self) -> Result<()> {
        let log = std::fs::read_to_string(self.log()).context("no log")?;
        let error = log.lines().find(|line| line.contains("\tERROR\t"));
        let database = self.database.display();
        ensure!(error.is_none(), "{database}: the server logged an error: {}", error.unwrap_or(""));
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.database.with_extension("log")
    }
}
