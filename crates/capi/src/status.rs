//! Results of calls: statuses, and reasons of failures.

use cabinet_rs::Error;
use std::ffi::{CStr, CString};
use std::fmt;

/// Result of a call: CABINET_OK or another result of 0 or more if the call did what it is for, one
/// of the negative numbers if it failed.
pub type cabinet_status = i32;

/// The call did what it is for.
pub const CABINET_OK: i32 = 0;
/// There is no such record, row, column or value; an iteration is at its end.
pub const CABINET_NOT_FOUND: i32 = 1;
/// There is a record already, so nothing was stored.
pub const CABINET_EXISTS: i32 = 2;
/// The record has another version, so nothing was stored.
pub const CABINET_CHANGED: i32 = 3;
/// A callback ended the call by its result.
pub const CABINET_STOPPED: i32 = 4;
/// The value is longer than the given buffer; its length was returned.
pub const CABINET_BUFFER_TOO_SMALL: i32 = 5;

/// The operating system refused a file operation.
pub const CABINET_IO: i32 = -1;
/// A file is damaged.
pub const CABINET_CORRUPTED: i32 = -2;
/// The disk, or the cap of the database, is full. Reads still work.
pub const CABINET_NO_SPACE: i32 = -3;
/// A database in memory uses all the memory that it may, or there is none for the copy that
/// `cabinet_get` returns. If memory runs out elsewhere, the process may end by `abort`.
pub const CABINET_NO_MEMORY: i32 = -4;
/// An earlier write or sync failed, so all later ones are refused. Reads still work.
pub const CABINET_POISONED: i32 = -5;
/// The database was opened for reading only.
pub const CABINET_READ_ONLY: i32 = -6;
/// Changes are refused at present.
pub const CABINET_UNAVAILABLE: i32 = -7;
/// A key, a value or a batch is over its limit.
pub const CABINET_TOO_LONG: i32 = -8;
/// An argument, a name or its tuning is wrong: NULL, a length, a number that has no meaning.
pub const CABINET_INVALID: i32 = -9;
/// The record does not hold a number of the right width, or the sum is not a number.
pub const CABINET_NOT_A_NUMBER: i32 = -10;
/// Another writer has changed a record that the transaction or batch depends on. Nothing was
/// written.
pub const CABINET_CONFLICT: i32 = -11;
/// The deadline has passed.
pub const CABINET_LATE: i32 = -12;
/// The call would have to wait, on a handle that does not.
pub const CABINET_WOULD_BLOCK: i32 = -13;
/// A callback called the database that had called it.
pub const CABINET_REENTRANT: i32 = -14;
/// The database is open already, in this process or another one.
pub const CABINET_IN_USE: i32 = -15;
/// The path has another kind of database, or a file of Tokyo Cabinet's.
pub const CABINET_WRONG_KIND: i32 = -16;
/// There is an index on the column already, or none.
pub const CABINET_INDEX: i32 = -17;
/// This kind of database, or this handle, does not have the operation.
pub const CABINET_UNSUPPORTED: i32 = -18;
/// The database has the maximum number of something.
pub const CABINET_TOO_MANY: i32 = -19;
/// A defect of this library. Nothing was changed.
pub const CABINET_INTERNAL: i32 = -20;
/// The handle is closed.
pub const CABINET_CLOSED: i32 = -21;
/// The database was opened before this process was forked off.
pub const CABINET_FORKED: i32 = -22;

/// Names by status.
const NAMES: [(i32, &CStr); 28] = [
    (CABINET_OK, c"ok"),
    (CABINET_NOT_FOUND, c"not found"),
    (CABINET_EXISTS, c"exists"),
    (CABINET_CHANGED, c"changed"),
    (CABINET_STOPPED, c"stopped"),
    (CABINET_BUFFER_TOO_SMALL, c"buffer too small"),
    (CABINET_IO, c"input or output failed"),
    (CABINET_CORRUPTED, c"corrupted"),
    (CABINET_NO_SPACE, c"no space"),
    (CABINET_NO_MEMORY, c"no memory"),
    (CABINET_POISONED, c"writing stopped"),
    (CABINET_READ_ONLY, c"read only"),
    (CABINET_UNAVAILABLE, c"unavailable"),
    (CABINET_TOO_LONG, c"too long"),
    (CABINET_INVALID, c"invalid argument"),
    (CABINET_NOT_A_NUMBER, c"not a number"),
    (CABINET_CONFLICT, c"conflict"),
    (CABINET_LATE, c"late"),
    (CABINET_WOULD_BLOCK, c"would block"),
    (CABINET_REENTRANT, c"reentrant"),
    (CABINET_IN_USE, c"in use"),
    (CABINET_WRONG_KIND, c"wrong kind"),
    (CABINET_INDEX, c"index"),
    (CABINET_UNSUPPORTED, c"unsupported"),
    (CABINET_TOO_MANY, c"too many"),
    (CABINET_INTERNAL, c"internal"),
    (CABINET_CLOSED, c"closed"),
    (CABINET_FORKED, c"forked"),
];

/// Error of a call. The caller owns it, and frees it by `cabinet_error_free`. It may be read by
/// any thread.
pub struct cabinet_error {
    pub(crate) code: i32,
    pub(crate) text: CString,
    pub(crate) advice: CString,
}

/// Reason why a call failed, before it is an error of C.
#[derive(Debug)]
pub(crate) struct Failure {
    code: i32,
    /// The failure, and what to do about it.
    text: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: i32, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Returns the failure of a call with a wrong argument.
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(CABINET_INVALID, text)
    }

    /// Returns the failure of a call on a handle that is closed.
    pub(crate) fn closed(what: &str) -> Self {
        Self::new(CABINET_CLOSED, format!("the {what} is closed: open it again"))
    }

    pub(crate) fn code(&self) -> i32 {
        self.code
    }

    /// Returns the error of C.
    pub(crate) fn into_error(self) -> cabinet_error {
        let (text, advice) = split(&self.text);
        cabinet_error { code: self.code, text: c_string(text), advice: c_string(advice) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        use Error as E;
        let code = match &error {
            E::Io { .. } => CABINET_IO,
            E::Corrupted { .. } => CABINET_CORRUPTED,
            E::NoSpace { .. } | E::NoLogSpace { .. } => CABINET_NO_SPACE,
            E::NoMemory { .. } => CABINET_NO_MEMORY,
            E::Poisoned(_) => CABINET_POISONED,
            E::ReadOnly(_) => CABINET_READ_ONLY,
            E::Unavailable(_) | E::NoRoom { .. } => CABINET_UNAVAILABLE,
            E::KeyTooLong { .. } | E::ValueTooLong { .. } | E::BatchTooLong { .. } => {
                CABINET_TOO_LONG
            }
            E::NoId { .. }
            | E::InvalidArgument(_)
            | E::BadColumn(_)
            | E::BadSearch(_)
            | E::BadPattern(_)
            | E::Name(_) => CABINET_INVALID,
            E::NotANumber { .. } => CABINET_NOT_A_NUMBER,
            E::Conflict => CABINET_CONFLICT,
            E::Late => CABINET_LATE,
            E::WouldBlock => CABINET_WOULD_BLOCK,
            E::Reentrant => CABINET_REENTRANT,
            E::InUse { .. } => CABINET_IN_USE,
            E::LegacyFile { .. } | E::WrongKind { .. } => CABINET_WRONG_KIND,
            E::IndexExists | E::NoIndex => CABINET_INDEX,
            E::Unsupported { .. } => CABINET_UNSUPPORTED,
            E::TooMany { .. } => CABINET_TOO_MANY,
            _ => CABINET_INTERNAL,
        };
        Self::new(code, error.to_string())
    }
}

/// Divides the text of an error of the library, which says what failed and then what to do: the
/// advice is after the last colon or semicolon.
fn split(text: &str) -> (&str, &str) {
    let at = [": ", "; "].into_iter().filter_map(|mark| text.rfind(mark)).max();
    at.map_or((text, ""), |at| (&text[..at], &text[at + 2..]))
}

/// Returns the name of a status.
pub(crate) fn name_of(status: cabinet_status) -> &'static CStr {
    let known = NAMES.iter().find(|(known, _)| *known == status);
    known.map_or(c"unknown", |(_, name)| *name)
}

/// Returns the text as a string of C, up to its first NUL.
pub(crate) fn c_string(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_error_is_what_failed_and_what_to_do() {
        let conflict = Error::Conflict.to_string();
        assert_eq!(
            split(&conflict),
            (
                "a record read in the transaction was changed by another writer",
                "read again, and retry"
            )
        );
        let full = Error::NoSpace { path: "/a: b/c.tch".into() }.to_string();
        assert!(split(&full).1.starts_with("free space on its file system"), "{full}");
        assert_eq!(split("all"), ("all", ""));
    }

    #[test]
    fn each_status_has_one_name() {
        let mut numbers: Vec<i32> = NAMES.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (CABINET_FORKED..=CABINET_BUFFER_TOO_SMALL).collect::<Vec<_>>());
    }
}
