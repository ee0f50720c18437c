//! Limits of long values, wherever values are received, sent and copied.

use super::budget::{Budget, Charge};
use std::sync::Arc;

/// Length in bytes from which a value is received into a file and read in pieces. If it is held in
/// memory nevertheless, it counts against the server's memory.
pub(crate) const LONG_BYTES_MIN: usize = 1 << 20;

/// Bytes of a long value that are read, sent or copied at once.
pub const PIECE_BYTES: usize = 256 << 10;

/// Copies of the changes of a transaction: its own, those that are written, and those in the buffer
/// of the update log.
const TRANSACTION_COPIES: usize = 3;

/// Returns a function that takes the memory for a transaction of this many bytes, and returns
/// whether there is as much.
pub(crate) fn room_for_transaction(
    budget: &Arc<Budget>,
) -> impl FnMut(usize) -> bool + Send + use<> {
    let mut charge = Charge::none(budget);
    move |bytes| bytes < LONG_BYTES_MIN || charge.set(TRANSACTION_COPIES * bytes)
}
