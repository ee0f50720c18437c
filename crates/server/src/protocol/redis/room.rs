//! Memory for long values, of which there is one budget for all requests.

use super::{COPIES, Failed, Found, NO_ROOM};
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

/// Memory for a value that a change makes longer, besides that of the value that it finds.
pub(super) struct Growth {
    charge: Charge,
    bytes: usize,
}

impl Growth {
    /// Prepares for a value of at least this length in bytes. A long one is for a thread that may
    /// wait.
    pub(super) fn to(context: &Context<'_>, bytes: usize) -> Result<Self, Failed> {
        if bytes >= LONG_BYTES_MIN {
            context.wait()?;
        }
        Ok(Self { charge: Charge::none(&context.shared.served.budget), bytes })
    }

    /// Takes the memory for the copies, but for those that the found value is charged for.
    pub(super) fn take(&mut self, found: Option<&Found>) -> Result<(), Failed> {
        let is_long = |bytes: &usize| *bytes >= LONG_BYTES_MIN;
        let charged = found.map(|found| found.value.len()).filter(is_long).unwrap_or(0);
        let bytes = Some(self.bytes).filter(is_long).unwrap_or(0);
        match self.charge.set(COPIES.saturating_mul(bytes.saturating_sub(charged))) {
            true => Ok(()),
            false => Err(NO_ROOM.into()),
        }
    }
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
