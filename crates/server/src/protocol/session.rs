//! What the server remembers of a client from one request to the next.

use super::HttpExchange;
use crate::access::logins::Peer;
use crate::ops::failure::Failure;
use crate::ops::iterator::Cursor;
use cabinet::Error;

/// State of a connection beside its bytes.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Why the last failed operation failed, for `misc error`.
    pub(crate) last_failure: Option<Failure>,
    /// What was wrong with it, where more can be said than the kind of failure.
    pub(crate) last_reason: Option<Box<str>>,
    /// The database could not read a record for the present request, see [`Session::note`].
    pub(crate) has_read_failure: bool,
    /// The iterator, once this client has started one.
    pub(crate) cursor: Option<Box<Cursor>>,
    /// What is under way of HTTP.
    pub(crate) http: HttpExchange,
    /// The same for a request of the binary protocol.
    pub(crate) binary: wire::binary::Progress,
    /// Its client is one of [`crate::Users`].
    pub(crate) is_authenticated: bool,
    /// User of the connection, on a server with users.
    pub(crate) peer: Option<Box<Peer>>,
    /// SASL has begun, and name and password come with its next step.
    pub(crate) expects_credentials: bool,
}

impl Session {
    /// Notes why an operation failed, if that is damage or a disk that does not read.
    #[cold]
    pub(crate) fn note(&mut self, error: &Error) {
        self.has_read_failure |= matches!(error, Error::Corrupted { .. } | Error::Io { .. });
    }

    /// Memory it takes, in bytes, as far as a client can make it grow.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.cursor.as_ref().map_or(0, |cursor| cursor.bytes())
    }
}
