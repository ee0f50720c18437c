//! Damaged records, and the keys that they may belong to.
//!
//! A hash table does not have the keys: only the record shows whether it is the one sought. A
//! damaged record cannot show that, so the search continues. If no record is the key's, the damaged
//! one is treated as the key's. A read then fails rather than reporting that the key is absent, and
//! a put or a removal replaces the entry. In the log, the new record or tombstone comes after the
//! damaged record, so that nothing older comes back.
//!
//! The record may still be another key's whose hash has the same 34 bits. If the key in the record
//! has these bits, its bytes are intact, and it can be compared with the key sought.
//!
//! A whole record whose key has other bits is damage too: the disk holds it in the place of the one
//! that the index points to, as after a write to a wrong place.

use super::{Found, Index, IndexKey, KeyedEngine, Match, ShardIndex, Slot};
use crate::log::record::Record;
use crate::log::{Check, Location, Segments, peek_record};
use crate::{Error, Result, Wait};

/// Relation of a record to a key with the same index key.
pub(super) enum Compared {
    /// The record is the key's, and has this length.
    Same(usize),
    /// The record is another key's.
    Others,
    /// The record is damaged, and may be the key's.
    Damaged,
}

/// Returns whether a key has this index key.
#[inline]
fn belongs<I: Index>(index: &I, key: &[u8], index_key: IndexKey<I>) -> bool {
    index.index_key(key).is_some_and(|own| own.shard == index_key.shard && own.tag == index_key.tag)
}

/// Compares a record with a key, without noting damage: an entry of a checkpoint may point beyond
/// the part of the log that survived a power failure.
pub(super) fn compare<I: Index>(
    index: &I,
    segments: &Segments,
    location: Location,
    index_key: IndexKey<I>,
    is_key: &dyn Fn(&[u8]) -> bool,
    wait: Wait,
) -> Result<Compared> {
    let peek = |check, visit: &dyn Fn(&Record<'_>) -> Compared| {
        peek_record(segments, location, wait, check, visit)
    };
    let by_key = |record: &Record<'_>| {
        if is_key(record.key) { Compared::Same(record.total) } else { Compared::Others }
    };
    if let Some(Compared::Same(total)) = peek(Check::Lengths, &by_key)? {
        return Ok(Compared::Same(total));
    }
    // The bytes of its key may be intact although others are not.
    let by_place = |record: &Record<'_>| {
        if belongs(index, record.key, index_key) { Compared::Others } else { Compared::Damaged }
    };
    Ok(peek(Check::Lengths, &by_place)?.unwrap_or(Compared::Damaged))
}

/// Returns the error of a whole record that is not the one that the index points to.
#[cold]
fn misplaced(segments: &Segments, location: Location) -> Error {
    let (offset, what) = (location.offset() as u64, "another record is in the place of this one");
    match segments.get(location) {
        Some(segment) => segment.corrupted(offset, what),
        None => Error::Corrupted { file: "index".into(), offset, what: what.into() },
    }
}

impl<I: Index> KeyedEngine<I> {
    /// Returns whether a key has this index key.
    #[inline]
    pub(super) fn belongs(&self, key: &[u8], index_key: IndexKey<I>) -> bool {
        belongs(&self.index, key, index_key)
    }

    /// Fails if the record at a location is damaged, or has no key with this index key.
    pub(super) fn verify(
        &self,
        segments: &Segments,
        location: Location,
        index_key: IndexKey<I>,
        wait: Wait,
    ) -> Result<()> {
        self.with(segments, location, wait, Check::Whole, |record| {
            self.check_place(segments, location, index_key, record.key)
        })?
    }

    /// Fails if the key of a whole record at a location does not have the index key of its entry.
    #[inline]
    pub(super) fn check_place(
        &self,
        segments: &Segments,
        location: Location,
        index_key: IndexKey<I>,
        key: &[u8],
    ) -> Result<()> {
        match self.belongs(key, index_key) {
            true => Ok(()),
            false => Err(misplaced(segments, location)),
        }
    }

    /// Returns the damage found by a verification, if the record may be the key's. Returns `None`
    /// if the record is another key's, or intact. Fails with errors other than damage.
    #[cold]
    pub(super) fn doubt(
        &self,
        segments: &Segments,
        location: Location,
        index_key: IndexKey<I>,
        key: &[u8],
        verified: Result<()>,
        wait: Wait,
    ) -> Result<Option<Box<Error>>> {
        let error = match verified {
            Ok(()) => return Ok(None),
            Err(error @ Error::Corrupted { .. }) => error,
            Err(error) => return Err(error),
        };
        let is_key = |other: &[u8]| other == key;
        let compared = compare(&self.index, segments, location, index_key, &is_key, wait)?;
        Ok((!matches!(compared, Compared::Others)).then(|| Box::new(error)))
    }

    /// Like `find`, where the first record with the key's index key is damaged or another key's.
    #[cold]
    pub(super) fn find_among_many(
        &self,
        table: &I::ShardIndex,
        segments: &Segments,
        index_key: IndexKey<I>,
        key: &[u8],
        wait: Wait,
    ) -> Result<Option<Found<Slot<I>>>> {
        let mut doubtful = None;
        for Match { slot, location, .. } in table.matches_over_run(index_key.tag, wait)? {
            let compared = self.total_of(segments, location, key, wait);
            if let Ok(Some(total)) = compared {
                return Ok(Some(Found { slot, location, total, is_doubtful: false }));
            }
            let verified = compared.and_then(|_| self.verify(segments, location, index_key, wait));
            let doubt = self.doubt(segments, location, index_key, key, verified, wait)?;
            if doubtful.is_none() && doubt.is_some() {
                doubtful = Some(Found { slot, location, total: 0, is_doubtful: true });
            }
        }
        Ok(doubtful)
    }

    /// Fails with the damage of a found record if it may be another key's.
    #[inline]
    pub(super) fn check_found(
        &self,
        segments: &Segments,
        found: Option<&Found<Slot<I>>>,
        index_key: IndexKey<I>,
        wait: Wait,
    ) -> Result<()> {
        match found.filter(|found| found.is_doubtful) {
            Some(found) => self.verify(segments, found.location, index_key, wait),
            None => Ok(()),
        }
    }

    /// Calls `visit` with the record that was found for a key. Fails if it is another key's: an
    /// index that knows its keys finds without reading.
    #[inline]
    pub(super) fn with_found<T>(
        &self,
        segments: &Segments,
        found: &Found<Slot<I>>,
        key: &[u8],
        wait: Wait,
        visit: impl FnOnce(&Record<'_>) -> T,
    ) -> Result<T> {
        self.with(segments, found.location, wait, Check::Whole, |record| match record.key == key {
            true => Ok(visit(record)),
            false => Err(misplaced(segments, found.location)),
        })?
    }

    /// Removes the record of a key if it is damaged. Returns whether it was.
    pub(crate) fn remove_damaged(
        &self,
        index_key: IndexKey<I>,
        key: &[u8],
        wait: Wait,
    ) -> Result<bool> {
        let mut attempt = |wait| {
            let mut table = self.table_mut(index_key.shard, wait)?;
            let segments = self.log.segments();
            let Some(found) = self.find(&table, &segments, index_key, key, wait)? else {
                return Ok(false);
            };
            match self.verify(&segments, found.location, index_key, wait) {
                Err(Error::Corrupted { .. }) => {}
                verified => return verified.map(|()| false),
            }
            self.delete(&mut table, index_key.shard, &segments, &found, key)?;
            Ok(true)
        };
        self.with_space(wait, || self.without_reading_locked(index_key, key, wait, &mut attempt))
    }
}
