//! Limits of long values, wherever values are received, sent and copied.

/// Length in bytes from which a value is received into a file and read in pieces. If it is held in
/// memory nevertheless, it counts against the server's memory.
pub(crate) const LONG_BYTES_MIN: usize = 1 << 20;

/// Bytes of a long value that are read, sent or copied at once.
pub const PIECE_BYTES: usize = 256 << 10;
