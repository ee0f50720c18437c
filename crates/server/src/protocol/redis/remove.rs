//! Removal of a record by a command that stores one otherwise.

use super::{Failed, unmasked};
use crate::counters::Count;
use crate::ops::command_mask::Command;
use crate::ops::execute::{NoReply, Outcome};
use crate::ops::operation::Operation;
use crate::protocol::{Context, or_absent};

/// Removes a record, if there is one, unless removals are masked.
pub(super) fn remove_unmasked(context: &mut Context<'_>, key: &[u8]) -> Result<(), Failed> {
    unmasked(context, Command::Out)?;
    context.tally.count(Count::Out);
    or_absent(context.execute(&Operation::remove(key), &mut NoReply)?, Outcome::NoRecord)?;
    Ok(())
}
