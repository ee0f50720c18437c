//! Server process: log, pid file, signals, and the messages at start and stop.

use crate::logging::{Log, Verbosity, system};
use crate::pid_file::PidFile;
use crate::transfer::import_once::import_if_legacy;
use crate::{daemon, signals};
use anyhow::{Context, Result};
use cabinet::name::Specification;
use cabinet::{Clock, Database};
use rustix::process::{Resource, getrlimit, setrlimit};
use server::{Endpoint, Server};
use std::path::PathBuf;

/// Logged at start if no listen address was given.
const ONLY_THIS_MACHINE: &str =
    "; only this machine can connect; --host 0.0.0.0 to change, --host :: with IPv6";

/// A server to run.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// Name of the database, with its tuning.
    pub database: String,
    /// If the database is a Tokyo Cabinet file, it is imported first.
    pub import: Option<Import>,
    /// Settings of the server.
    pub config: server::Config,
    /// Serve WebDAV too.
    pub webdav: bool,
    /// File for the log; without one, the standard output.
    pub log: Option<PathBuf>,
    /// Verbosity of the log.
    pub verbosity: Verbosity,
    /// File for the process id.
    pub pid: Option<PathBuf>,
    /// Messages logged at start.
    pub notices: Vec<String>,
}

/// How a Tokyo Cabinet file is imported.
#[derive(Clone, Debug, Default)]
pub(crate) struct Import {
    /// Name of the target database; without one, a database beside the file.
    pub into: Option<String>,
}

impl Service {
    /// Serves until SIGTERM or SIGINT. Fails if the database cannot be opened or an endpoint cannot
    /// be bound.
    pub(crate) fn run(&self) -> Result<()> {
        let log = Log::open(self.log.as_deref()).context("cannot open the log")?;
        log.install(self.verbosity);
        let process = std::process::id();
        system(format_args!("--------- logging started [{process}] --------"));
        let result = self.run_logged(&log);
        // The program ends with the error, so the standard output shows it anyway.
        if let (Err(error), Some(_)) = (&result, &self.log) {
            tracing::error!("{}", crate::describe(error));
        }
        system(format_args!("--------- logging finished [{process}] --------"));
        result
    }

    /// Opens the database. If there is an update log, the server removes expired records itself, so
    /// that the removals are logged too.
    fn open(&self, name: &str) -> cabinet::Result<Database> {
        let mut specification = Specification::parse(name)?;
        if self.config.update_log.is_some() {
            specification.options.clock = Clock::real().handing_over();
        }
        Database::open_specification(&specification)
    }

    fn run_logged(&self, log: &Log) -> Result<()> {
        let _pid_file = self.pid.as_deref().map(PidFile::create).transpose()?;
        if let Err(error) = raise_file_limit() {
            tracing::warn!("cannot raise the limit of open files: {error}");
        }
        for notice in &self.notices {
            tracing::info!("{notice}");
        }
        let name = match &self.import {
            Some(import) => import_if_legacy(&self.database, import.into.as_deref())?,
            None => self.database.clone(),
        };
        let database =
            self.open(&name).with_context(|| format!("cannot open the database {name}"))?;
        let server = Server::bind(self.config.clone(), database.clone())?;
        if self.webdav {
            webdav::serve(&server).context("cannot serve WebDAV")?;
        }
        let handle = server.handle();
        let _signals = signals::Listener::start(log.clone(), move || handle.stop())?;
        let process = std::process::id();
        system(format_args!("service started: {process}"));
        let sockets = self.config.listen.iter().filter_map(|endpoint| match endpoint {
            Endpoint::Unix(path) => Some(path.display().to_string()),
            Endpoint::Loopback { .. } | Endpoint::Tcp { .. } => None,
        });
        let addresses = server.local_addresses().into_iter().map(|address| address.to_string());
        let endpoints: Vec<String> = addresses.chain(sockets).collect();
        let is_default =
            self.config.listen.iter().any(|endpoint| matches!(endpoint, Endpoint::Loopback { .. }));
        let reach = if is_default { ONLY_THIS_MACHINE } else { "" };
        system(format_args!(
            "serving {} ({} records) on {}{reach}",
            database.path().display(),
            database.len(),
            endpoints.join(", ")
        ));
        if daemon::is_child() {
            daemon::ready()?;
        }
        server.run()?;
        drop(database);
        system(format_args!("service finished: {process}"));
        Ok(())
    }
}

/// Raises the limit of open files to the system's maximum: every connection takes a file.
fn raise_file_limit() -> rustix::io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
}
