//! What can go wrong in running a server.

use crate::Endpoint;

/// Result of what a server does as a whole.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a server does not start, or stopped. What goes wrong with one connection ends only that.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An endpoint cannot be listened on.
    #[error("cannot listen on {endpoint}: {source}")]
    Listen {
        /// Where.
        endpoint: Endpoint,
        /// The system's own error.
        source: std::io::Error,
    },
    /// The name of a host means no address.
    #[error("no address for {0}")]
    NoAddress(Endpoint),
    /// There is nothing to listen on.
    #[error("no endpoint to listen on is given")]
    NoEndpoint,
    /// A server that logs what changes, or follows another, has no id.
    #[error("an update log and a master take a server id from 1 to 65535, not {0}")]
    ServerId(u32),
    /// Clients are to wait for replicas where there can be none, or for none.
    #[error("waiting for replicas takes an update log, and at least one of them")]
    SemiSync,
    /// The update log cannot be opened.
    #[error("update log: {0}")]
    UpdateLog(#[from] crate::update_log::Error),
    /// An update log cannot be executed again.
    #[error("{0}")]
    Replay(String),
    /// Changes that a killed process has left cannot be looked up.
    #[error("cannot log changes that were under way: {0}")]
    Unfinished(#[source] cabinet::Error),
    /// The database refused to tell when changes are durable.
    #[error("the database: {0}")]
    Database(#[source] cabinet::Error),
    /// The operating system refused something that an event loop needs.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The system's own error.
        source: std::io::Error,
    },
}

impl Error {
    /// For `map_err` on a system call.
    pub(crate) fn system<E: Into<std::io::Error>>(
        operation: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::System { operation, source: source.into() }
    }
}
