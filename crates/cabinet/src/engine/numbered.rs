//! Operations on a database whose keys are ids, in addition to those on any database.

use crate::{RecordRef, Result};
use std::ops::{ControlFlow, RangeInclusive};

/// A database of records with ids: numbers from 1 on.
///
/// A key is the decimal text of an id. All digits of a key count, and other bytes are skipped. Four
/// keys have no digits: `min` and `max` name the first and the last record, `prev` and `next` a new
/// one before the first and after the last. `prev` and `next` work only in operations that store:
/// the record gets an id that no other caller gets. Any other key fails with
/// [`crate::Error::NoId`], as do ids over [`Numbered::id_max`]. Visitors get the decimal text
/// without leading zeros.
///
/// In a callback of the database [`Numbered::for_each_in`] and [`Numbered::for_each_key_in`] fail
/// with [`crate::Error::Reentrant`], and `min` and `max` are unknown, see [`crate::Database`].
pub trait Numbered {
    /// Returns the bytes of the longest value. Longer values are truncated silently.
    fn width(&self) -> u64;

    /// Returns the greatest possible id.
    fn id_max(&self) -> u64;

    /// Returns the least id of a record. Expired records count until they are reclaimed.
    fn min(&self) -> Option<u64>;

    /// Returns the greatest id of a record. Expired records count until they are reclaimed.
    fn max(&self) -> Option<u64>;

    /// Returns the id that a key names now. Returns `None` if the key cannot name a record, or if
    /// it is `min` or `max` and there is no record.
    fn id(&self, key: &[u8]) -> Option<u64>;

    /// Returns the ids that an interval such as `[min,10]` or `(5,next)` has now. Brackets include
    /// their end, parentheses exclude it. Returns `None` if the text is no interval.
    fn interval(&self, text: &[u8]) -> Option<RangeInclusive<u64>>;

    /// Calls `visit` with the records of these ids, in order, until it breaks.
    fn for_each_in(
        &self,
        ids: RangeInclusive<u64>,
        visit: &mut dyn FnMut(RecordRef<'_>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Calls `visit` with the keys of these ids, in order, until it breaks.
    fn for_each_key_in(
        &self,
        ids: RangeInclusive<u64>,
        visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()>;
}
