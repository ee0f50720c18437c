//! Errors of a database.

use std::fmt;
use std::path::PathBuf;

/// Result of every operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why an operation failed. Nothing was changed unless the variant says so.
///
/// `Debug` prints the same text as `Display`: a program whose `main` returns the error shows it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a file operation.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// Operation that failed, as a verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's own error.
        source: std::io::Error,
    },
    /// A file is damaged.
    #[error("{} is corrupted at byte {offset}: {what}", file.display())]
    Corrupted {
        /// The file.
        file: PathBuf,
        /// Byte offset of the damage.
        offset: u64,
        /// Description of the damage.
        what: String,
    },
    /// The disk (or the given capacity) is full. Reads still work; writes work again when there is
    /// space.
    #[error("no space left for {}", path.display())]
    NoSpace {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// An on-memory database uses all the memory that it may. Reads, removals and changes that need
    /// no more memory still work. Other writes work again after records are removed.
    #[error(
        "no memory left in {}: its records take the {max} bytes that they may; remove some, or set \
         a cap (capsiz), over which those not used lately are evicted",
        path.display()
    )]
    NoMemory {
        /// The database.
        path: PathBuf,
        /// Maximum number of bytes that it may use.
        max: u64,
    },
    /// An earlier write or sync failed, so all later ones are refused. Reads still work.
    #[error("writing stopped after an earlier failure: {0}")]
    Poisoned(String),
    /// Changes are refused: the database was opened for reading only, or the program around it
    /// allows no changes at present.
    #[error("{0}")]
    ReadOnly(String),
    /// The key is longer than [`crate::limits::KEY_BYTES_MAX`].
    #[error("key of {bytes} bytes is over the limit of {max}")]
    KeyTooLong {
        /// Length of the key given.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The value is (or would become) longer than [`crate::limits::VALUE_BYTES_MAX`], or its record
    /// is longer than a cap on bytes allows.
    #[error("value of {bytes} bytes is over the limit of {max}")]
    ValueTooLong {
        /// Length of the value.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A batch or transaction holds more than [`crate::limits::BATCH_BYTES_MAX`], or takes more
    /// of a log than [`crate::limits::BATCH_LOG_BYTES_MAX`]; or a row of a table has more postings
    /// in its indices than [`crate::limits::ROW_POSTINGS_BYTES_MAX`].
    #[error("batch of {bytes} bytes is over the limit of {max}")]
    BatchTooLong {
        /// Bytes it would take.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The key is not an id that a fixed-length database can have: see [`crate::Numbered`].
    #[error("{key:?} is no id: ids are numbers from 1 to {max}")]
    NoId {
        /// The key given, shortened.
        key: String,
        /// The greatest id that this database takes.
        max: u64,
    },
    /// The record to add to does not hold a number of the right width, or the sum would not be a
    /// number.
    #[error("the record does not hold a number of {width} bytes, or the sum is none")]
    NotANumber {
        /// Bytes that the number takes: 4 for integers, 8 for doubles.
        width: usize,
    },
    /// A transaction read a record that another writer has changed since. Nothing was written.
    #[error("a record read in the transaction was changed by another writer")]
    Conflict,
    /// The deadline of this thread has passed: see [`crate::with_deadline`].
    #[error("the deadline has passed: allow more time, or search less at a time")]
    Late,
    /// Only with [`crate::Wait::Never`]: the record is not in memory, or another thread holds its
    /// lock.
    #[error("the operation would have to wait")]
    WouldBlock,
    /// A callback of the database has called the database: see [`crate::Database`] for the calls
    /// that a callback may make.
    #[error(
        "a callback called the database that it was called by: call it after the callback returns"
    )]
    Reentrant,
    /// Another process (or another handle of this one) has the database open.
    #[error("{} is in use by another process, or is open in this one already", path.display())]
    InUse {
        /// The database.
        path: PathBuf,
    },
    /// The file is one of Tokyo Cabinet's own, not a database of this library.
    #[error(
        "{} is {what}: `tyrant import {} --into NAME` converts it to a database",
        path.display(),
        path.display()
    )]
    LegacyFile {
        /// The file.
        path: PathBuf,
        /// Kind of the file, in words.
        what: &'static str,
    },
    /// The name of a column of a table is empty or too long, or has no value.
    #[error("{0}")]
    BadColumn(String),
    /// A search for rows to remove has an invalid part, so that it would remove other rows than
    /// were meant.
    #[error("nothing is removed by this search: {0}")]
    BadSearch(String),
    /// There is an index on the column already.
    #[error("there is an index on the column already")]
    IndexExists,
    /// There is no index on the column.
    #[error("there is no index on the column")]
    NoIndex,
    /// This kind of database, or this state of it, does not have this operation.
    #[error("not supported: {0}")]
    NotSupported(String),
    /// An argument is invalid for this database.
    #[error("bad argument: {0}")]
    InvalidArgument(String),
    /// The files hold a database of another kind than was requested.
    #[error("{} is {found}, not {wanted}: open it as what it is", path.display())]
    WrongKind {
        /// The file or folder.
        path: PathBuf,
        /// Kind that was found.
        found: String,
        /// Kind that was requested.
        wanted: String,
    },
    /// The database has the maximum number of something.
    #[error("a database has at most {max} {what}: move records to another one")]
    TooMany {
        /// Things of which there are too many, in the plural.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// A defect of this library. Nothing was changed.
    #[error("a defect of this library, please report it: {0}")]
    Internal(String),
    /// A regular expression that does not parse.
    #[error("bad pattern: {0}")]
    BadPattern(String),
    /// A database name or its tuning is wrong.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Error {
    /// Returns the error of a build of this crate that lacks a feature of Cargo's.
    pub(crate) fn without_feature(what: &str, feature: &str) -> Self {
        Self::NotSupported(format!("{what}: build the crate cabinet with its feature `{feature}`"))
    }

    /// Returns the error of a change to a database that was opened for reading only.
    pub(crate) fn read_only() -> Self {
        Self::ReadOnly("the database was opened for reading only".into())
    }
}

/// Keys of a name's tuning, for the error that lists them.
pub(crate) const TUNING_KEYS: &str = "mode, opts, compression, durability, dead, compaction, \
    order, cache, index, capnum, capsiz, idx, memory, query_memory, bnum, apow, fpow, rcnum, xmsiz, \
    dfunit, lmemb, nmemb, lcnum, ncnum, lsmax, width, limsiz, dbgfd";

/// Reason why a name is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The path has no suffix that names a kind.
    #[error(
        "cannot tell the kind of database from the name {0:?}: it is *, +, or ends in .tch, \
         .hdb, .tcb, .bdb, .tcf, .fdb, .tct or .tdb"
    )]
    UnknownKind(String),
    /// A part after a `#` is not of the form `key=value`.
    #[error("tuning {0:?} is not of the form key=value")]
    NotAPair(String),
    /// There is no such tuning.
    #[error("unknown tuning {0:?}: known are {TUNING_KEYS}")]
    UnknownKey(String),
    /// The value does not fit the key.
    #[error("tuning {key}={value} is wrong: {key} takes {allowed}")]
    BadValue {
        /// The key.
        key: String,
        /// The value given.
        value: String,
        /// Values that the key takes.
        allowed: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_main_returns_is_printed_as_a_sentence() {
        let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let error = Error::Io { operation: "open", path: "prices.tcb".into(), source };
        assert_eq!(format!("{error:?}"), "open prices.tcb: permission denied");
        let error = Error::from(NameError::NotAPair("mode".into()));
        assert_eq!(format!("{error:?}"), "tuning \"mode\" is not of the form key=value");
    }
}
