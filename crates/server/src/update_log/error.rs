//! What can go wrong with an update log.

use std::path::PathBuf;

/// Result of what is done with an update log.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an update log cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a file operation.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's own error.
        source: std::io::Error,
    },
    /// A file has something else in it than entries.
    #[error("{} is corrupted at byte {offset}: {what}", file.display())]
    Corrupted {
        /// The file.
        file: PathBuf,
        /// Byte offset of what is no entry.
        offset: u64,
        /// What was found.
        what: &'static str,
    },
    /// An entry is over the limit of its format.
    #[error("an entry of {bytes} bytes is over the limit")]
    EntryTooLong {
        /// Length of its body.
        bytes: usize,
    },
    /// A file is missing between others.
    #[error("{} is missing", file.display())]
    Missing {
        /// The file.
        file: PathBuf,
    },
    /// The oldest entries that are asked for have been removed.
    #[error("entries since {from_us} us are no longer kept")]
    NotKept {
        /// Since when entries are asked for, in microseconds since 1970.
        from_us: u64,
    },
}
