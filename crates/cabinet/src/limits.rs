//! Every limit of the library, named in one place. Above a limit comes an error, never a panic.

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;

/// Longest value, in bytes, before compression.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// Most bytes of keys and values one batch or transaction may hold.
pub const BATCH_BYTES_MAX: usize = 1 << 30;
