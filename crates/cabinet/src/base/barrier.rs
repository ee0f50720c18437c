//! Snapshot barrier: the moment of a copy.

use crate::Result;

/// Function that chooses the moment of a copy, and calls its argument then: the copy has all
/// changes before the call and none after it.
///
/// The barrier may delay writers around the call, so that its own work belongs to the same moment.
/// If that takes too long, it returns false without the call, and is called again.
pub type SnapshotBarrier<'b> = dyn FnMut(&mut dyn FnMut() -> Result<()>) -> Result<bool> + 'b;

/// Implements the [`SnapshotBarrier`] of a copy whose moment does not matter.
pub(crate) fn at_once(take: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
    take()?;
    Ok(true)
}
