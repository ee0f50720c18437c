//! What can go wrong, in the original client's words.

use std::io;

/// A result of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments cannot be sent, or the connection broke in an earlier operation.
    #[error("invalid operation")]
    InvalidOperation,
    /// The name of the server has no address.
    #[error("host not found")]
    HostNotFound(#[source] io::Error),
    /// None of the addresses took the connection in time.
    #[error("connection refused")]
    ConnectionRefused(#[source] io::Error),
    /// The request could not be sent.
    #[error("send error")]
    Send(#[source] io::Error),
    /// The response did not come, or was not one.
    #[error("recv error")]
    Receive(#[source] io::Error),
    /// There is a record that the operation cannot work with.
    #[error("existing record")]
    ExistingRecord,
    /// There is no such record. Operations of this library say so by what they return; the error
    /// is for callers who want to treat it as one.
    #[error("no record found")]
    NoRecordFound,
    /// A search has a part that means nothing. Nothing was sent.
    #[error("{0}")]
    BadSearch(String),
    /// The server failed or refused.
    #[error("miscellaneous error")]
    Miscellaneous,
}

impl Error {
    /// The number of the error; 0 is the original's success.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self {
            Error::InvalidOperation | Error::BadSearch(_) => 1,
            Error::HostNotFound(_) => 2,
            Error::ConnectionRefused(_) => 3,
            Error::Send(_) => 4,
            Error::Receive(_) => 5,
            Error::ExistingRecord => 6,
            Error::NoRecordFound => 7,
            Error::Miscellaneous => 9999,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_messages_are_the_originals() {
        let io = || io::Error::from(io::ErrorKind::Other);
        for (error, code, message) in [
            (Error::InvalidOperation, 1, "invalid operation"),
            (Error::BadSearch("no such operator".into()), 1, "no such operator"),
            (Error::HostNotFound(io()), 2, "host not found"),
            (Error::ConnectionRefused(io()), 3, "connection refused"),
            (Error::Send(io()), 4, "send error"),
            (Error::Receive(io()), 5, "recv error"),
            (Error::ExistingRecord, 6, "existing record"),
            (Error::NoRecordFound, 7, "no record found"),
            (Error::Miscellaneous, 9999, "miscellaneous error"),
        ] {
            assert_eq!((error.code(), error.to_string()), (code, message.to_string()));
        }
    }
}
