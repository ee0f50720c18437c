//! Errors: the codes and messages of Tokyo Tyrant's client.

use std::io;

/// A result of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments cannot be sent, or an earlier operation broke the connection.
    #[error("invalid operation")]
    InvalidOperation,
    /// The host name does not resolve.
    #[error("host not found")]
    HostNotFound(#[source] io::Error),
    /// No address accepted the connection in time.
    #[error("connection refused")]
    ConnectionRefused(#[source] io::Error),
    /// The handshake of TLS failed: the server is not trusted, refuses the client, or does not
    /// speak TLS.
    #[error("TLS handshake failed")]
    Handshake(#[source] io::Error),
    /// The server refused the login.
    #[error("login refused: {0}")]
    LoginRefused(LoginRefusal),
    /// The login was not sent: the connection to another machine is not encrypted.
    #[error("login not sent without TLS")]
    PlainLogin,
    /// A server of Redis's protocol replied with this error.
    #[error("the server replied: {0}")]
    Replied(String),
    /// Sending the request failed.
    #[error("send error")]
    Send(#[source] io::Error),
    /// The response did not arrive, or is invalid.
    #[error("recv error")]
    Receive(#[source] io::Error),
    /// The existing record does not fit the operation.
    #[error("existing record")]
    ExistingRecord,
    /// The record does not exist. Operations of this library return `None` or `false` instead; the
    /// error is for callers that need one.
    #[error("no record found")]
    NoRecordFound,
    /// A part of a search is invalid. Nothing was sent.
    #[error("{0}")]
    BadSearch(String),
    /// The server failed or refused.
    #[error("miscellaneous error")]
    Miscellaneous,
}

/// Why a server refused a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginRefusal {
    /// The server has no user with this name and password. It does not tell which is wrong.
    #[error("the name or the password is wrong")]
    Wrong,
    /// Too many logins from this address have failed, so the server did not check the password.
    #[error("too many logins have failed")]
    TooMany,
    /// The server has no users, so it takes no login.
    #[error("the server has no users")]
    NoUsers,
}

impl Error {
    /// Returns the number of the error. In Tokyo Tyrant 0 is success.
    pub fn code(&self) -> u32 {
        match self {
            Error::InvalidOperation | Error::BadSearch(_) => 1,
            Error::HostNotFound(_) => 2,
            Error::ConnectionRefused(_)
            | Error::Handshake(_)
            | Error::LoginRefused(_)
            | Error::PlainLogin => 3,
            Error::Send(_) => 4,
            Error::Receive(_) => 5,
            Error::ExistingRecord => 6,
            Error::NoRecordFound => 7,
            Error::Replied(_) | Error::Miscellaneous => 9999,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_messages_match_tokyo_tyrant() {
        let io = || io::Error::from(io::ErrorKind::Other);
        for (error, code, message) in [
            (Error::InvalidOperation, 1, "invalid operation"),
            (Error::BadSearch("no such operator".into()), 1, "no such operator"),
            (Error::HostNotFound(io()), 2, "host not found"),
            (Error::ConnectionRefused(io()), 3, "connection refused"),
            (Error::Handshake(io()), 3, "TLS handshake failed"),
            (
                Error::LoginRefused(LoginRefusal::TooMany),
                3,
                "login refused: too many logins have failed",
            ),
            (Error::PlainLogin, 3, "login not sent without TLS"),
            (Error::Send(io()), 4, "send error"),
            (Error::Receive(io()), 5, "recv error"),
            (Error::ExistingRecord, 6, "existing record"),
            (Error::NoRecordFound, 7, "no record found"),
            (Error::Replied("ERR no".into()), 9999, "the server replied: ERR no"),
            (Error::Miscellaneous, 9999, "miscellaneous error"),
        ] {
            assert_eq!((error.code(), error.to_string()), (code, message.to_string()));
        }
    }
}
