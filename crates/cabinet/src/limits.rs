//! Every limit of the library, named in one place. Above a limit comes an error, never a panic.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// Longest value, in bytes, before compression.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Most bytes of keys and values one batch or transaction may hold.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// Most bytes that the records of one batch or transaction may take in the log of a disk database,
/// the longest of them left out; each takes up to 44 bytes beside its key and value.
pub const BATCH_LOG_BYTES_MAX: usize = 60 << 20;
