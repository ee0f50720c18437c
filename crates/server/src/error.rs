//! Errors of a server as a whole.

use crate::{Endpoint, Master};

/// Result of starting or running a server.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why a server does not start, or has stopped. An error of one connection ends only that
/// connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server cannot listen on an endpoint.
    #[error("cannot listen on {endpoint}: {source}")]
    Listen {
        /// The endpoint.
        endpoint: Endpoint,
        /// The system's own error.
        source: std::io::Error,
    },
    /// The kernel allows no ring, which is asked for.
    #[error(
        "cannot read by io_uring: {0}; let the kernel allow it (Linux 6.1 or later, and the rules of \
         the container), or let threads read"
    )]
    Ring(#[source] std::io::Error),
    /// The host name of an endpoint has no address.
    #[error("cannot listen on {0}: the host name has no address; name another host")]
    NoAddress(Endpoint),
    /// The configuration has no endpoint.
    #[error("no endpoint to listen on; give at least one")]
    NoEndpoint,
    /// The certificates of the server cannot be used.
    #[error("{0}")]
    Tls(#[source] tls::Error),
    /// A server with an update log or a master has no valid id.
    #[error(
        "server id {0}: an update log and a master require an id from 1 to 65535; give this server \
         one with --server-id (ttserver: -sid)"
    )]
    ServerId(u32),
    /// The master to follow is the server itself.
    #[error("{0} is the address of this server itself: name the server to follow, or no master")]
    OwnMaster(Master),
    /// Semi-synchronous replication has no update log, or no replicas to wait for.
    #[error("waiting for replicas requires an update log and at least one replica")]
    SemiSync,
    /// A store outside of this process has its own replication.
    #[error("a store outside of this process goes with neither an update log nor a master")]
    RemoteLog,
    /// The update log cannot be opened.
    #[error("update log: {0}")]
    UpdateLog(#[from] crate::update_log::Error),
    /// Changes that a killed process left pending cannot be logged.
    #[error("cannot log the changes that a killed process left pending: {0}")]
    Unfinished(#[source] cabinet::Error),
    /// The database cannot report when changes are durable.
    #[error("cannot watch the durable position of the database: {0}")]
    Database(#[source] cabinet::Error),
    /// A system call that the server needs has failed.
    #[error("cannot {operation}: {source}")]
    System {
        /// The operation, beginning with a verb.
        operation: &'static str,
        /// The system's own error.
        source: std::io::Error,
    },
}

impl Error {
    /// Returns a function for `map_err` on a system call.
    pub(crate) fn system<E: Into<std::io::Error>>(
        operation: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::System { operation, source: source.into() }
    }
}
