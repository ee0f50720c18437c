//! Certificates: what TLS connections begin with, read again without losing a connection.

use crate::access::log_limit::LogLimit;
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tls::{Error, ServerConfig, ServerFiles, Session};

/// The certificates of a server, and what its handshakes have in common.
pub(crate) struct Certificates {
    files: ServerFiles,
    handshake_timeout: Duration,
    config: ArcSwap<ServerConfig>,
    failures: LogLimit,
}

impl Certificates {
    pub(crate) fn read(files: ServerFiles, handshake_timeout: Duration) -> Result<Self, Error> {
        let config = ArcSwap::from_pointee(files.read()?);
        Ok(Self { files, handshake_timeout, config, failures: LogLimit::new() })
    }

    /// Reads the files again. If that fails, everything remains as it was.
    pub(crate) fn reload(&self) -> Result<(), Error> {
        self.config.store(self.files.read()?.into());
        Ok(())
    }

    /// Begins a session with a client.
    pub(crate) fn session(&self) -> Result<Session, Error> {
        Session::server(&self.config.load())
    }

    /// Returns the time after which the first of the present certificates is no longer valid.
    pub(crate) fn expires(&self) -> Option<SystemTime> {
        self.config.load().expires()
    }

    /// Returns what was read last.
    pub(crate) fn present(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }

    /// Returns the time in which a handshake must be complete.
    pub(crate) fn handshake_timeout(&self) -> Duration {
        self.handshake_timeout
    }

    /// Logs that a session has failed, unless there are too many such lines.
    pub(crate) fn log_failure(&self, from: Option<SocketAddr>, reason: &str) {
        if let Some(unlogged) = self.failures.admit(Instant::now()) {
            let from = from.map_or("a Unix socket".to_owned(), |address| address.to_string());
            tracing::warn!("TLS failed: {from}: {reason}{unlogged}");
        }
    }
}
