//! What counts as a long value, wherever values come, go and are copied.

/// Length from which a value goes through a file, is read in pieces, and counts against the
/// server's memory where it is held after all; in bytes.
pub(crate) const LONG_BYTES_MIN: usize = 1 << 20;

/// Bytes of a long value that are read, sent or copied at once.
pub const PIECE_BYTES: usize = 256 << 10;
