//! Memory for long values, of which there is one budget for all requests.

use super::{COPIES, Failed, NO_ROOM};
use crate::ops::budget::Charge;
use crate::ops::long::LONG_BYTES_MIN;
use crate::protocol::Context;
use cabinet::limits::VALUE_BYTES_MAX;
use wire::limits::REDIS_STRING_BYTES_MAX;

/// Length in bytes from which a value is read or written by a thread that may wait, if each of its
/// bytes takes long.
pub(super) const SLOW_BYTES_MIN: usize = 64 << 10;

/// Takes the memory for a value of this length, whose copies a change holds. A long one is for a
/// thread that may wait.
pub(super) fn room_for_value(context: &Context<'_>, bytes: usize) -> Result<Charge, Failed> {
    room(context, bytes, COPIES.saturating_mul(bytes))
}

/// Takes this memory, on a thread that may wait if it is much.
pub(super) fn room_for_work(context: &Context<'_>, bytes: usize) -> Result<Charge, Failed> {
    room(context, bytes, bytes)
}

fn room(context: &Context<'_>, bytes: usize, charged_bytes: usize) -> Result<Charge, Failed> {
    let mut charge = Charge::none(&context.shared.served.budget);
    if bytes >= LONG_BYTES_MIN {
        context.wait()?;
        if !charge.set(charged_bytes) {
            return Err(NO_ROOM.into());
        }
    }
    Ok(charge)
}

/// Fails if a value of this length is too long.
pub(super) fn check_value_length(bytes: usize) -> Result<(), Failed> {
    match bytes <= VALUE_BYTES_MAX.min(REDIS_STRING_BYTES_MAX) {
        true => Ok(()),
        false => Err("ERR string exceeds maximum allowed size (proto-max-bulk-len)".into()),
    }
}
