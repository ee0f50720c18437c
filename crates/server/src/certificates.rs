//! Certificates: what TLS connections begin with, read again without losing a connection.

use crate::log_limit::LogLimit;
use crate::{Error, Result, TlsSettings};
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tls::{ServerConfig, Session};

/// The certificates of a server, and what its handshakes have in common.
pub(crate) struct Certificates {
    settings: TlsSettings,
    config: ArcSwap<ServerConfig>,
    failures: LogLimit,
}

impl Certificates {
    pub(crate) fn read(settings: TlsSettings) -> Result<Self> {
        let config = ArcSwap::from_pointee(settings.files.read().map_err(Error::Tls)?);
        Ok(Self { settings, config, failures: LogLimit::new() })
    }

    /// Reads the files again. If that fails, everything remains as it was.
    pub(crate) fn reload(&self) -> Result<()> {
        self.config.store(self.settings.files.read().map_err(Error::Tls)?.into());
        Ok(())
    }

    /// Begins a session with a client.
    pub(crate) fn session(&self) -> Result<Session> {
        Session::server(&self.config.load()).map_err(Error::Tls)
    }

    /// Returns the time in which a handshake must be complete.
    pub(crate) fn handshake_timeout(&self) -> Duration {
        self.settings.handshake_timeout
    }

    /// Logs that a session has failed, unless there are too many such lines.
    pub(crate) fn log_failure(&self, from: Option<SocketAddr>, reason: &str) {
        if let Some(unlogged) = self.failures.admit(Instant::now()) {
            let from = from.map_or("a Unix socket".to_owned(), |address| address.to_string());
            tracing::warn!("TLS failed: {from}: {reason}{unlogged}");
        }
    }
}
