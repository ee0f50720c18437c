//! Operations on a database whose keys are ids, in addition to those on any database.

use crate::{RecordRef, Result};
use std::ops::{ControlFlow, RangeInclusive};

/// A database of records with ids: numbers from 1 on.
///
/// A key is the decimal text of an id. All digits of a key count, and other bytes are skipped.
/// There are four keys without digits: `min` and `max` mean the first and the last record, `prev`
/// and `next` a new one before the first and after the last. The latter two have this meaning only
/// where something is stored: the record is given an id that no other caller is given.
/// Any other key fails with [`crate::Error::NoId`], as do ids over [`Numbered::id_max`]. Visitors
/// are shown the decimal text without zeros in front.
///
/// In a callback of the database [`Numbered::for_each_in`] and [`Numbered::for_each_key_in`] fail
/// with [`crate::Error::Reentrant`], and `min` and `max` are not known, see [`crate::Database`].
pub trait Numbered {
    /// Longest value, in bytes. Longer values are truncated silently.
    fn width(&self) -> u64;

    /// The greatest id that there may be.
    fn id_max(&self) -> u64;

    /// The least id that there is. Expired records count until they are reclaimed.
    fn min(&self) -> Option<u64>;

    /// The greatest id that there is. Expired records count until they are reclaimed.
    fn max(&self) -> Option<u64>;

    /// The id that a key means now; `None` if there cannot be a record under this key, or under
    /// `min` or `max` is none.
    fn id(&self, key: &[u8]) -> Option<u64>;

    /// The ids that an interval such as `[min,10]` or `(5,next)` has in it now: brackets belong
    /// to ends that belong to it, parentheses to others. `None` if it is not an interval.
    fn interval(&self, text: &[u8]) -> Option<RangeInclusive<u64>>;

    /// Visits the records with these ids, in their order, until `visit` breaks.
    fn for_each_in(
        &self,
        ids: RangeInclusive<u64>,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Visits the keys with these ids, in the order of ids, until `visit` breaks.
    fn for_each_key_in(
        &self,
        ids: RangeInclusive<u64>,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()>;
}
