//! Records that are damaged, and whose they may be.
//!
//! A table of hashes does not have the keys: only the record tells whether it is the one that is
//! sought. If it is damaged that cannot be told, so the search goes on. If no record is the
//! key's, the damaged one is taken for it: a read fails, rather than to say that there is nothing,
//! and a put or a removal takes its place in the index. In the log the new record, or the
//! tombstone, comes behind it, so that nothing older comes back.
//!
//! It may still be another key's, of which a hash has the same 34 bits. If the key in the record
//! has them, its bytes are as they were written, and it is told from the one that is sought.

use super::{Found, Index, IndexKey, KeyedEngine, Match, ShardIndex, Slot};
use crate::log::record::Record;
use crate::log::{Check, Location, Segments, peek_record};
use crate::{Error, Result, Wait};

/// Relation of a record to a key that has its index key.
pub(super) enum Compared {
    /// It is the key's, of this length.
    Same(usize),
    /// It is another key's.
    Others,
    /// It is damaged, and may be the key's.
    Damaged,
}

/// Whether a key has this key in an index.
#[inline]
fn belongs<I: Index>(index: &I, key: &[u8], index_key: IndexKey<I>) -> bool {
    index.index_key(key).is_some_and(|own| own.shard == index_key.shard && own.tag == index_key.tag)
}

/// Compares a record with a key, without a note of damage: an entry of a checkpoint may point
/// beyond what the power left of the log.
pub(super) fn compare<I: Index>(
    index: &I,
    salt: u32,
    segments: &Segments,
    location: Location,
    index_key: IndexKey<I>,
    is_key: &dyn Fn(&[u8]) -> bool,
    wait: Wait,
) -> Result<Compared> {
    let peek = |check, visit: &dyn Fn(&Record<'_>) -> Compared| {
        peek_record(segments, salt, location, wait, check, visit)
    };
    let by_key = |record: &Record<'_>| {
        if is_key(record.key) { Compared::Same(record.total) } else { Compared::Others }
    };
    if let Some(Compared::Same(total)) = peek(Check::Lengths, &by_key)? {
        return Ok(Compared::Same(total));
    }
    if peek(Check::Whole, &|_| Compared::Others)?.is_some() {
        return Ok(Compared::Others);
    }
    // Its key may be as it was written all the same.
    let by_place = |record: &Record<'_>| {
        if belongs(index, record.key, index_key) { Compared::Others } else { Compared::Damaged }
    };
    Ok(peek(Check::Lengths, &by_place)?.unwrap_or(Compared::Damaged))
}

impl<I: Index> KeyedEngine<I> {
    /// Whether a key has this key in the index.
    #[inline]
    pub(super) fn belongs(&self, key: &[u8], index_key: IndexKey<I>) -> bool {
        belongs(&self.index, key, index_key)
    }

    /// Fails if the record at a location is damaged.
    pub(super) fn verify(&self, segments: &Segments, location: Location, wait: Wait) -> Result<()> {
        self.with(segments, location, wait, Check::Whole, |_| ())
    }

    /// Returns the damage that verifying a record has found, if the record may be the one of a key
    /// at its place; `None` if it is another key's, or whole. Fails with an error that is no
    /// damage.
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
        let salt = self.log.database_id().salt;
        let is_key = |other: &[u8]| other == key;
        let compared = compare(&self.index, salt, segments, location, index_key, &is_key, wait)?;
        Ok((!matches!(compared, Compared::Others)).then(|| Box::new(error)))
    }

    /// As `find`, where the first record with the index key of the key is not the key's, or is
    /// damaged.
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
            let verified = compared.and_then(|_| self.verify(segments, location, wait));
            let doubt = self.doubt(segments, location, index_key, key, verified, wait)?;
            if doubtful.is_none() && doubt.is_some() {
                doubtful = Some(Found { slot, location, total: 0, is_doubtful: true });
            }
        }
        Ok(doubtful)
    }

    /// Fails with its damage if what was found may be another key's: for those who have to know.
    #[inline]
    pub(super) fn check_found(
        &self,
        segments: &Segments,
        found: Option<&Found<Slot<I>>>,
        wait: Wait,
    ) -> Result<()> {
        match found.filter(|found| found.is_doubtful) {
            Some(found) => self.verify(segments, found.location, wait),
            None => Ok(()),
        }
    }

    /// Removes the record of a key if it is damaged; says whether it was. One that is not stays.
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
            match self.verify(&segments, found.location, wait) {
                Err(Error::Corrupted { .. }) => {}
                verified => return verified.map(|()| false),
            }
            self.delete(&mut table, index_key.shard, &segments, &found, key)?;
            Ok(true)
        };
        self.with_space(wait, || self.without_reading_locked(index_key, key, wait, &mut attempt))
    }
}
