//! Copies of records from and to servers of Redis's protocol.

pub(crate) mod export;
pub(crate) mod import;
mod source;
mod writer;

use crate::bytes::quoted;
use crate::transfer::ids::Refused;
use crate::transfer::progress::Progress;

/// Longest value that is copied, in bytes: clients of the other protocols can read it.
pub(crate) const VALUE_BYTES_MAX: usize = wire::limits::BINARY_ARGUMENT_BYTES_MAX;

/// Returns a function that names a record which is not copied, with the reason.
fn refusing<'r>(refused: &'r mut Refused, progress: &'r Progress) -> impl FnMut(&[u8], &str) + 'r {
    |key, reason| {
        refused.note(&format!("key {}", shown(key)), reason, |line| progress.print(line));
    }
}

/// Returns a key for a message, cut if it is long.
fn shown(key: &[u8]) -> String {
    /// Bytes of a key that a message has.
    const SHOWN_BYTES_MAX: usize = 100;
    match key.get(..SHOWN_BYTES_MAX) {
        Some(beginning) if key.len() > SHOWN_BYTES_MAX => format!("{}...", quoted(beginning)),
        _ => quoted(key),
    }
}

/// Returns whether an error of a server is about the one record, so that others may be copied.
fn is_of_one_record(error: &str) -> bool {
    ["ERR ", "NOPERM ", "WRONGTYPE "].iter().any(|code| error.starts_with(code))
}
