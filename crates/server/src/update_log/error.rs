//! Errors of an update log.

use std::path::PathBuf;

/// Result of an operation on an update log.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why an update log cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The operation, beginning with a verb.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's own error.
        source: std::io::Error,
    },
    /// Another server, or another one of this process, has the log open.
    #[error(
        "{} is in use by another server: give each its own folder, or stop that one", folder.display()
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// A file contains bytes that are not an entry.
    #[error("{} is corrupted at byte {offset}: {what}", file.display())]
    Corrupted {
        /// The file.
        file: PathBuf,
        /// Offset of these bytes.
        offset: u64,
        /// Description of these bytes.
        what: &'static str,
    },
    /// An entry is longer than its format allows.
    #[error("an entry of {bytes} bytes is longer than the limit of the format")]
    EntryTooLong {
        /// Length of its body, in bytes.
        bytes: usize,
    },
    /// A file between two others is missing.
    #[error("{} is missing", file.display())]
    Missing {
        /// The file.
        file: PathBuf,
    },
    /// Some of the requested entries have been removed.
    #[error("the log entries from time stamp {from_us} on have been removed")]
    Removed {
        /// Time stamp of the first requested entry, in microseconds since 1970.
        from_us: u64,
    },
}
