//! Errors: of the files of a configuration, and of a session with a peer.

use crate::words::{words, words_of_own};
use std::io;
use std::path::{Path, PathBuf};

/// Reason why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// A file is longer than any list of certificates.
    #[error("{} is longer than {max_bytes} bytes; name a file of certificates or a key", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Longest file, in bytes.
        max_bytes: u64,
    },
    /// A file has no certificate, or one that is malformed.
    #[error("no certificate in {}: it must have certificates in PEM format", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A file has no private key, or one that is malformed.
    #[error("no private key in {}: it must have one in PEM format, without a password", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// A key belongs to another certificate.
    #[error("the key in {} is not that of the certificate in {}", key.display(), path.display())]
    OtherKey {
        /// The file of the certificate.
        path: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The content of a file cannot be used.
    #[error("cannot use {}: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The system has no certificates of authorities.
    #[error("this system has no certificates of authorities; name a file of them")]
    NoAuthorities,
    /// The name of a server is neither a host name nor an address.
    #[error("{0:?} is neither a host name nor an address, which a certificate could have")]
    ServerName(String),
    /// The cryptographic library refuses.
    #[error("cannot set up TLS: {}", words(.0))]
    Library(#[from] rustls::Error),
    /// The client certificates to trust cannot be used.
    #[error("cannot use the certificates in {}: {reason}", path.display())]
    Verifier {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl Error {
    /// Returns the error of a certificate and its key that rustls does not take.
    pub(crate) fn unusable(certificates: &Path, key: &Path, source: &rustls::Error) -> Self {
        match source {
            rustls::Error::InconsistentKeys(_) => {
                Self::OtherKey { path: certificates.to_owned(), key: key.to_owned() }
            }
            source => {
                Self::Unusable { path: certificates.to_owned(), reason: words_of_own(source) }
            }
        }
    }
}

/// Reason why a session has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The peer broke the protocol, or a check of it has failed.
    #[error("{}", words(.0))]
    Protocol(#[from] rustls::Error),
    /// A message of the handshake is longer than a session keeps.
    #[error(
        "a message of the handshake is longer than {} bytes",
        crate::limits::INCOMING_BYTES_MAX
    )]
    TooLong,
    /// There is nothing to encrypt with: the handshake is not complete, or the session has ended.
    #[error("the session cannot send")]
    CannotSend,
    /// The keys have encrypted as much as is safe.
    #[error("the keys of the session are used up")]
    Exhausted,
}

impl From<SessionError> for io::Error {
    fn from(error: SessionError) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}
