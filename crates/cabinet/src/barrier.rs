//! Snapshot barrier: the moment of a copy.

use crate::Result;

/// Chooses the moment of a copy, and calls its argument then: the copy has all changes before the
/// call and none after it.
///
/// The barrier may delay writers around the call, so that what it does beside it belongs to the
/// same moment. If it cannot do so within a short time, it returns false without the call, and is
/// called again.
pub type SnapshotBarrier<'b> = dyn FnMut(&mut dyn FnMut() -> Result<()>) -> Result<bool> + 'b;

/// The [`SnapshotBarrier`] of a copy whose moment does not matter.
pub(crate) fn at_once(take: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
    take()?;
    Ok(true)
}
