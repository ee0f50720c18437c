//! Copies of records from and to servers of Redis's protocol.

pub(crate) mod export;
pub(crate) mod import;
mod source;
mod writer;

/// Longest value that is copied, in bytes: clients of the other protocols can read it.
pub(crate) const VALUE_BYTES_MAX: usize = wire::limits::BINARY_ARGUMENT_BYTES_MAX;

/// Returns whether an error of a server is about the one record, so that others may be copied.
fn is_of_one_record(error: &str) -> bool {
    ["ERR ", "NOPERM ", "WRONGTYPE "].iter().any(|code| error.starts_with(code))
}
