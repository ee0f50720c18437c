//! Errors of a database.

use crate::Kind;
use crate::limits::VALUE_BYTES_MAX;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Result of every operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why an operation failed. Nothing was changed unless the variant says so.
///
/// The text of each says what failed, and then what to do about it.
///
/// `Debug` prints the same text as `Display`: a program whose `main` returns the error shows it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a file operation.
    #[error("{operation} {}: {source}{}", path.display(), advice_after(source))]
    Io {
        /// Operation that failed, as a verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// A file is damaged.
    #[error(
        "{} is corrupted at byte {offset}: {what}{}",
        file.display(),
        advice_on_damage(what)
    )]
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
    #[error(
        "no space left for {}: free space on its file system, or raise its cap (capsiz) if it has \
         one",
        path.display()
    )]
    NoSpace {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// The disk is full to which the program around the database logs changes before they are made.
    /// Reads still work; writes work again when there is space.
    #[error("no space left for the update log {}: free space on its file system", path.display())]
    NoLogSpace {
        /// The file that could not grow, or its folder.
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
    #[error(
        "writing stopped after an earlier failure ({0}): remove its cause, then close the database \
         and open it again"
    )]
    Poisoned(String),
    /// Changes are refused: the database was opened for reading only, or is such a copy.
    #[error("{0}")]
    ReadOnly(String),
    /// The program around the database allows no changes at present; the same change can succeed
    /// later.
    #[error("{0}")]
    Unavailable(String),
    /// The key is longer than [`crate::limits::KEY_BYTES_MAX`].
    #[error(
        "key of {bytes} bytes is over the limit of {max}: use a shorter one, such as a hash of it"
    )]
    KeyTooLong {
        /// Length of the key given.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The value is (or would become) longer than [`crate::limits::VALUE_BYTES_MAX`], or its record
    /// is longer than a cap on bytes allows.
    #[error("value of {bytes} bytes is over the limit of {max}, {}", origin_of_value_limit(*max))]
    ValueTooLong {
        /// Length of the value.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A batch or transaction holds more than [`crate::limits::BATCH_BYTES_MAX`], or takes more
    /// of a log than [`crate::limits::BATCH_LOG_BYTES_MAX`]; or a row of a table has more postings
    /// in its indices than [`crate::limits::ROW_POSTINGS_BYTES_MAX`].
    #[error("batch of {bytes} bytes is over the limit of {max}: write it in smaller parts")]
    BatchTooLong {
        /// Bytes it would take.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The program around the database has no memory at present for the changes of a transaction:
    /// see [`transaction_within`](crate::Database::transaction_within).
    #[error("no memory for {bytes} bytes of changes: try again later")]
    NoRoom {
        /// Bytes that there would be.
        bytes: usize,
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
    #[error(
        "the record does not hold a number of {width} bytes, or the sum is none: remove the record, \
         or add to another one"
    )]
    NotANumber {
        /// Bytes that the number takes: 4 for integers, 8 for doubles.
        width: usize,
    },
    /// A transaction read a record that another writer has changed since. Nothing was written.
    #[error(
        "a record read in the transaction was changed by another writer: read again, and retry"
    )]
    Conflict,
    /// The deadline of this thread has passed: see [`crate::with_deadline`].
    #[error("the deadline has passed: allow more time, or search less at a time")]
    Late,
    /// Only with a handle that does not wait, see [`crate::Database::nonblocking`]: the record is
    /// not in memory, or another thread holds its lock.
    #[error("the operation would have to wait: repeat it on a handle that is not nonblocking")]
    WouldBlock,
    /// A callback of the database has called the database: see [`crate::Database`] for the calls
    /// that a callback may make.
    #[error(
        "a callback called the database that it was called by: call it after the callback returns"
    )]
    Reentrant,
    /// Another process (or another handle of this one) has the database open.
    #[error(
        "{} is in use by another process, or is open in this one already: close it there, or use a \
         clone of its handle",
        path.display()
    )]
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
    #[error("nothing is removed by this search: {0}; correct that, and search again")]
    BadSearch(String),
    /// There is an index on the column already.
    #[error("there is an index on the column already: keep it, or remove it first")]
    IndexExists,
    /// There is no index on the column.
    #[error("there is no index on the column: set one first")]
    NoIndex,
    /// This kind of database, this state or part of it, or this build of the library does not have
    /// this operation.
    #[error("{kind} does not support {operation}: {advice}")]
    Unsupported {
        /// The operation, or what it is done with.
        operation: &'static str,
        /// Name of that which lacks it, with an article: `a hash database`, `a transaction`.
        kind: &'static str,
        /// Advice on what to do instead.
        advice: &'static str,
    },
    /// An argument is invalid for this database.
    #[error("bad argument: {0}")]
    InvalidArgument(String),
    /// The files hold a database of another kind than was requested.
    #[error("{} is {found}, not {wanted}: {}", path.display(), advice_on_kind(path, found))]
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
    #[error("bad pattern: {0}; correct it, and write \\ before a character that stands for itself")]
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
    /// Returns the error of a build of this crate that lacks a feature of Cargo's. `advice` names
    /// the feature.
    pub(crate) fn without_feature(operation: &'static str, advice: &'static str) -> Self {
        Self::Unsupported { operation, kind: "this build", advice }
    }

    /// Returns the error of a build without tables.
    #[cfg(not(feature = "table"))]
    pub(crate) fn without_tables() -> Self {
        let advice = "build the crate tyrant-cabinet with its feature `table`";
        Self::without_feature("tables", advice)
    }

    /// Returns the error of a change to a database that was opened for reading only.
    pub(crate) fn read_only() -> Self {
        Self::ReadOnly("the database was opened for reading only: open it for writing".into())
    }
}

/// Returns what to do about an error of the operating system.
fn advice_on(source: &io::Error) -> &'static str {
    const TOO_MANY_OPEN_FILES: i32 = 24;
    if source.raw_os_error() == Some(TOO_MANY_OPEN_FILES) {
        return "raise the limit of open files (ulimit -n)";
    }
    match source.kind() {
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::InvalidFilename
        | ErrorKind::InvalidInput => "check the path",
        ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty => "choose another path",
        ErrorKind::PermissionDenied => "give this user access to it",
        ErrorKind::ReadOnlyFilesystem => {
            "mount its file system for writing, or let the unit of systemd write (ReadWritePaths=)"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space on its file system",
        ErrorKind::OutOfMemory => "free memory",
        _ => "check the file system, and the log of the operating system",
    }
}

/// Returns the end of a text that ends with an error of the system. An error with a text of its own
/// has its advice in that.
fn advice_after(source: &io::Error) -> String {
    if source.get_ref().is_some() { String::new() } else { format!("; {}", advice_on(source)) }
}

/// Returns what to do about damage, unless its description says that.
fn advice_on_damage(what: &str) -> &'static str {
    if what.contains("salvage") { "" } else { "; salvage the database, or restore a backup" }
}

/// Returns where a limit of values comes from, and what to do with longer ones.
fn origin_of_value_limit(max: usize) -> &'static str {
    if max == VALUE_BYTES_MAX {
        "that of all databases: divide it among several records"
    } else {
        "that of this database's cap, update log or store: divide it among several records, or \
         raise that limit"
    }
}

/// Returns what to do with a database of another kind than the suffix of its path names.
fn advice_on_kind(path: &Path, found: &str) -> String {
    let suffixes =
        [(Kind::Hash, "tch"), (Kind::Tree, "tcb"), (Kind::Fixed, "tcf"), (Kind::Table, "tct")];
    match suffixes.into_iter().find(|(kind, _)| kind.described() == found) {
        Some((_, suffix)) if Kind::of_path(path).is_some() => {
            format!("rename it to {}", path.with_extension(suffix).display())
        }
        _ => "open it as what it is".to_owned(),
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
    #[error("tuning {0:?} is not of the form key=value: write it as in durability=always")]
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
    use std::collections::HashSet;
    use std::mem::discriminant;

    #[test]
    fn an_error_that_main_returns_is_printed_as_a_sentence() {
        let source = io::Error::from(ErrorKind::PermissionDenied);
        let error = Error::Io { operation: "open", path: "prices.tcb".into(), source };
        let text = "open prices.tcb: permission denied; give this user access to it";
        assert_eq!(format!("{error:?}"), text);
        let error = Error::from(NameError::NotAPair("mode".into()));
        let text = "tuning \"mode\" is not of the form key=value: write it as in durability=always";
        assert_eq!(format!("{error:?}"), text);
    }

    /// Returns the advice that ends the text of an error; `None` if those who make the error give
    /// it. A new variant is added here, and to [`every_variant`].
    fn advice(error: &Error) -> Option<&'static str> {
        Some(match error {
            Error::Io { .. } => "; check the path",
            Error::Corrupted { .. } => "; salvage the database, or restore a backup",
            Error::NoSpace { .. } => {
                ": free space on its file system, or raise its cap (capsiz) if it has one"
            }
            Error::NoLogSpace { .. } => "a: free space on its file system",
            Error::NoMemory { .. } => {
                "; remove some, or set a cap (capsiz), over which those not used lately are evicted"
            }
            Error::Poisoned(_) => ": remove its cause, then close the database and open it again",
            Error::KeyTooLong { .. } => ": use a shorter one, such as a hash of it",
            Error::ValueTooLong { max: VALUE_BYTES_MAX, .. } => {
                ", that of all databases: divide it among several records"
            }
            Error::ValueTooLong { .. } => {
                ", that of this database's cap, update log or store: divide it among several \
                 records, or raise that limit"
            }
            Error::BatchTooLong { .. } => ": write it in smaller parts",
            Error::NoRoom { .. } => ": try again later",
            Error::NoId { .. } => ": ids are numbers from 1 to 9",
            Error::NotANumber { .. } => ": remove the record, or add to another one",
            Error::Conflict => ": read again, and retry",
            Error::Late => ": allow more time, or search less at a time",
            Error::WouldBlock => ": repeat it on a handle that is not nonblocking",
            Error::Reentrant => ": call it after the callback returns",
            Error::InUse { .. } => ": close it there, or use a clone of its handle",
            Error::LegacyFile { .. } => ": `tyrant import a --into NAME` converts it to a database",
            Error::BadSearch(_) => "; correct that, and search again",
            Error::IndexExists => ": keep it, or remove it first",
            Error::NoIndex => ": set one first",
            Error::Unsupported { .. } => ": open a B+ tree",
            Error::WrongKind { .. } => ": open it as what it is",
            Error::TooMany { .. } => ": move records to another one",
            Error::BadPattern(_) => {
                "; correct it, and write \\ before a character that stands for itself"
            }
            Error::Name(NameError::UnknownKind(_)) => {
                ": it is *, +, or ends in .tch, .hdb, .tcb, .bdb, .tcf, .fdb, .tct or .tdb"
            }
            Error::Name(NameError::NotAPair(_)) => ": write it as in durability=always",
            Error::Name(NameError::UnknownKey(_)) => "lsmax, width, limsiz, dbgfd",
            Error::Name(NameError::BadValue { .. }) => ": mode takes letters",
            Error::ReadOnly(_) | Error::Unavailable(_) => return None,
            Error::BadColumn(_) | Error::InvalidArgument(_) => return None,
            Error::Internal(_) => return None,
        })
    }

    fn every_variant() -> Vec<Error> {
        let path = || PathBuf::from("a");
        let name = || "a".to_owned();
        let [what, operation, kind] = ["segments", "ranges", "a hash database"];
        let bad_value = NameError::BadValue {
            key: "mode".into(),
            value: "x".into(),
            allowed: "letters".into(),
        };
        vec![
            Error::Io { operation, path: path(), source: ErrorKind::NotFound.into() },
            Error::Corrupted { file: path(), offset: 1, what: name() },
            Error::NoSpace { path: path() },
            Error::NoLogSpace { path: path() },
            Error::NoMemory { path: path(), max: 1 },
            Error::Poisoned(name()),
            Error::ReadOnly(name()),
            Error::Unavailable(name()),
            Error::KeyTooLong { bytes: 2, max: 1 },
            Error::ValueTooLong { bytes: VALUE_BYTES_MAX + 1, max: VALUE_BYTES_MAX },
            Error::ValueTooLong { bytes: 2, max: 1 },
            Error::BatchTooLong { bytes: 2, max: 1 },
            Error::NoRoom { bytes: 2 },
            Error::NoId { key: name(), max: 9 },
            Error::NotANumber { width: 4 },
            Error::Conflict,
            Error::Late,
            Error::WouldBlock,
            Error::Reentrant,
            Error::InUse { path: path() },
            Error::LegacyFile { path: path(), what },
            Error::BadColumn(name()),
            Error::BadSearch(name()),
            Error::IndexExists,
            Error::NoIndex,
            Error::Unsupported { operation, kind, advice: "open a B+ tree" },
            Error::InvalidArgument(name()),
            Error::WrongKind { path: path(), found: name(), wanted: name() },
            Error::TooMany { what, max: 1 },
            Error::Internal(name()),
            Error::BadPattern(name()),
            NameError::UnknownKind(name()).into(),
            NameError::NotAPair(name()).into(),
            NameError::UnknownKey(name()).into(),
            bad_value.into(),
        ]
    }

    #[test]
    fn the_text_of_every_error_ends_with_what_to_do() {
        const VARIANTS: usize = 31;
        let errors = every_variant();
        assert_eq!(errors.iter().map(discriminant).collect::<HashSet<_>>().len(), VARIANTS);
        for error in errors {
            let text = error.to_string();
            assert!(!text.ends_with('.'), "{text}");
            let Some(advice) = advice(&error) else { continue };
            assert!(text.len() > advice.len() && text.ends_with(advice), "{text}");
        }
    }

    #[test]
    fn a_database_with_the_suffix_of_another_kind_is_to_be_renamed() {
        let text = |path: &str| {
            let (found, wanted) = (Kind::Hash.described().into(), Kind::Tree.described().into());
            Error::WrongKind { path: path.into(), found, wanted }.to_string()
        };
        let named = text("a/b.tcb");
        assert!(
            named.ends_with("is a hash database, not a B+ tree database: rename it to a/b.tch"),
            "{named}"
        );
        assert!(text("a/b").ends_with(": open it as what it is"), "{}", text("a/b"));
    }

    #[test]
    fn an_error_of_the_system_has_advice_for_its_cause() {
        let advice = |kind: ErrorKind| advice_on(&kind.into());
        assert_eq!(advice(ErrorKind::StorageFull), "free space on its file system");
        assert_eq!(advice(ErrorKind::AlreadyExists), "choose another path");
        assert!(advice(ErrorKind::Other).starts_with("check the file system"));
        assert!(advice_on(&io::Error::from_raw_os_error(24)).contains("ulimit -n"));
    }
}
