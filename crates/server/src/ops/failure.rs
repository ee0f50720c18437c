//! Failures of operations, with Tokyo Tyrant's numbers and texts.

use cabinet::Error;
use std::sync::atomic::{AtomicU32, Ordering};

/// A kind of failure that clients of Tokyo Tyrant know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Failure {
    Invalid = 2,
    FileNotFound = 3,
    NoPermission = 4,
    BadRecord = 6,
    Read = 13,
    Write = 14,
    Lock = 16,
    ExistingRecord = 21,
    NoRecord = 22,
    Miscellaneous = 9999,
}

impl Failure {
    const ALL: [Self; 10] = [
        Self::Invalid,
        Self::FileNotFound,
        Self::NoPermission,
        Self::BadRecord,
        Self::Read,
        Self::Write,
        Self::Lock,
        Self::ExistingRecord,
        Self::NoRecord,
        Self::Miscellaneous,
    ];

    /// Returns Tokyo Tyrant's text.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Invalid => "invalid operation",
            Self::FileNotFound => "file not found",
            Self::NoPermission => "no permission",
            Self::BadRecord => "invalid record header",
            Self::Read => "read error",
            Self::Write => "write error",
            Self::Lock => "lock error",
            Self::ExistingRecord => "existing record",
            Self::NoRecord => "no record found",
            Self::Miscellaneous => "miscellaneous error",
        }
    }

    /// Returns whether the failure follows from the records, so that every copy of the database
    /// fails alike.
    pub(crate) fn is_of_the_data(self) -> bool {
        matches!(self, Self::Invalid | Self::ExistingRecord | Self::NoRecord)
    }

    /// Returns the reply to `misc error`.
    pub(crate) fn text(failure: Option<Self>) -> String {
        match failure {
            Some(failure) => format!("{}: {}", failure as u32, failure.message()),
            None => "0: success".to_owned(),
        }
    }
}

/// Returns whether a record is present, but could not be read.
pub(crate) fn is_read_failure(error: &Error) -> bool {
    matches!(error, Error::Corrupted { .. } | Error::Io { .. })
}

/// Returns the reason of a failure for a client of HTTP, if it is one that the client or its
/// operator can do something about. The names of files appear only in the server's log.
pub fn client_reason(error: &Error) -> Option<String> {
    Some(match error {
        Error::Corrupted { .. } => "a record is damaged: the server's log tells where".to_owned(),
        Error::NoSpace { .. } => {
            "no space left for the database: free space on the file system of \
                                  the server, or raise the database's cap (capsiz) if it has one"
                .to_owned()
        }
        Error::NoLogSpace { .. } => "no space left for the update log: free space on the file \
                                     system of the server"
            .to_owned(),
        Error::NoMemory { .. } => "the database uses all the memory that it may: remove records, \
                                   or give it a cap (capsiz)"
            .to_owned(),
        Error::ReadOnly(_)
        | Error::Unavailable(_)
        | Error::KeyTooLong { .. }
        | Error::ValueTooLong { .. }
        | Error::InvalidArgument(_) => error.to_string().replace(char::is_control, " "),
        _ => return None,
    })
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        match error {
            Error::Io { source, operation, .. } => match source.kind() {
                std::io::ErrorKind::NotFound => Self::FileNotFound,
                std::io::ErrorKind::PermissionDenied => Self::NoPermission,
                _ if operation.contains("read") => Self::Read,
                _ => Self::Write,
            },
            Error::Corrupted { .. } => Self::BadRecord,
            Error::ReadOnly(_) => Self::NoPermission,
            Error::NoSpace { .. }
            | Error::NoLogSpace { .. }
            | Error::NoMemory { .. }
            | Error::Poisoned(_) => Self::Write,
            Error::InUse { .. } | Error::Conflict => Self::Lock,
            // The present value is not a number.
            Error::NotANumber { .. } | Error::IndexExists => Self::ExistingRecord,
            Error::NoIndex => Self::NoRecord,
            Error::KeyTooLong { .. }
            | Error::ValueTooLong { .. }
            | Error::BatchTooLong { .. }
            | Error::NoRoom { .. }
            | Error::Unsupported { .. }
            | Error::InvalidArgument(_)
            | Error::WrongKind { .. }
            | Error::BadColumn(_)
            | Error::BadSearch(_)
            | Error::BadPattern(_)
            | Error::NoId { .. }
            | Error::Name(_) => Self::Invalid,
            _ => Self::Miscellaneous,
        }
    }
}

/// The last failure of any connection, for clients that request it on a new connection.
#[derive(Debug, Default)]
pub(crate) struct LastFailure(AtomicU32);

impl LastFailure {
    pub(crate) fn set(&self, failure: Failure) {
        // Misses may be frequent, and a cache line that is only read is shared at no cost.
        if self.0.load(Ordering::Relaxed) != failure as u32 {
            self.0.store(failure as u32, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> Option<Failure> {
        let code = self.0.load(Ordering::Relaxed);
        Failure::ALL.into_iter().find(|failure| *failure as u32 == code)
    }
}
