//! Batches: changes of many keys at once, atomic also across a crash.

use super::shard::Locked;
use super::{Found, Index, IndexKey, KeyedEngine, ShardIndex, Slot, find_location};
use crate::batch::BatchChange;
use crate::log::record::{Kind, Prepared};
use crate::log::{Appended, Check, Purpose};
use crate::{Batch, Compression, Error, KeyOrder, Meta, Result, Wait, engine::batch_plan};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// One change as it will be logged.
struct ShardChange<'a, I: Index> {
    index_key: IndexKey<I>,
    key: &'a [u8],
    value: Cow<'a, [u8]>,
    meta: Meta,
    compression: Compression,
    kind: Kind,
    /// Entry that the change replaces.
    found: Option<Found<Slot<I>>>,
}

type Tables<'a, I> = BTreeMap<usize, Locked<'a, <I as Index>::ShardIndex>>;

impl<I: Index> KeyedEngine<I> {
    /// Applies a batch. Locks all shards of the batch in ascending order. Single changes have one
    /// lock each, so they cannot deadlock with it.
    pub(crate) fn write_batch(&self, batch: &Batch, wait: Wait) -> Result<()> {
        self.log.check_space_at_once(batch.check_length()?, wait)?;
        self.with_space(wait, || {
            let read = || self.read_ahead(batch);
            batch_plan::read_then_write(wait, read, |reads| self.write_once(batch, reads, wait))
        })
    }

    /// Reads the records that a batch compares into memory.
    fn read_ahead(&self, batch: &Batch) -> Result<()> {
        let expected = batch.expected.iter().map(|(key, _)| (key, Check::Whole));
        let changed = batch.changes.iter().map(|(key, _)| (key, Check::Lengths));
        for (key, check) in expected.chain(changed) {
            let index_key = self.index_key_of(key)?;
            let (segments, locations) = self.locations(index_key, Wait::Block)?;
            for location in locations {
                match self.with(&segments, location, Wait::Block, check, |_| ()) {
                    // The consequence of damage depends on the expectations.
                    Ok(()) | Err(Error::Corrupted { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Applies a batch. Reads from the disk under the locks only if `reads` allows it, and waits
    /// for the locks only if `wait` does.
    fn write_once(&self, batch: &Batch, reads: Wait, wait: Wait) -> Result<()> {
        let mut tables = self.lock_shards(batch, wait)?;
        batch_plan::check_expected(&batch.expected, |key| self.version_of(&tables, key, reads))?;
        let planned = self.planned(batch, &tables, reads)?;
        if planned.is_empty() {
            return Ok(());
        }
        let mut records: Vec<Prepared<'_>> = planned
            .iter()
            .map(|change| {
                self.log.prepare(
                    change.kind,
                    change.key,
                    &change.value,
                    change.meta,
                    change.compression,
                )
            })
            .collect();
        let totals: Vec<usize> = records.iter().map(Prepared::total).collect();
        let mut places: Vec<Option<Appended>> = vec![None; planned.len()];
        let only_removes = planned.iter().all(|change| change.kind == Kind::Tombstone);
        if I::ShardIndex::HAS_RUNS && !only_removes {
            self.check_index_memory()?;
        }
        let purpose = if only_removes { Purpose::Remove } else { Purpose::Store };
        let segments = self.log.segments();
        let found = planned.iter().filter_map(|change| change.found.as_ref());
        found.for_each(|found| segments.note_loss(found.location));
        drop(segments);
        let mut note = |index: usize, appended| places[index] = Some(appended);
        self.log.append_batch(&mut records, purpose, &mut note)?;
        for ((change, total), appended) in planned.iter().zip(totals).zip(places) {
            let (Some(appended), Some(table)) = (appended, tables.get_mut(&change.index_key.shard))
            else {
                continue;
            };
            self.apply(table, change, appended, total);
        }
        Ok(())
    }

    /// Returns the index key of a key that was accepted.
    fn index_key_of(&self, key: &[u8]) -> Result<IndexKey<I>> {
        let what = || Error::Internal("a key of a batch has no index key".into());
        self.index.index_key(key).ok_or_else(what)
    }

    fn lock_shards(&self, batch: &Batch, wait: Wait) -> Result<Tables<'_, I>> {
        let shard = |key| self.index_key_of(key).map(|index_key| index_key.shard);
        let shards = batch_plan::keys(batch).map(shard).collect::<Result<Vec<usize>>>()?;
        let shards = batch_plan::lock_order(shards, usize::cmp);
        debug_assert!(shards.len() <= I::SHARDS);
        let lock = |shard: usize| Ok((shard, self.shards[shard].write_for(wait)?));
        shards.into_iter().map(lock).collect()
    }

    fn lookup(
        &self,
        tables: &Tables<'_, I>,
        index_key: IndexKey<I>,
        key: &[u8],
        wait: Wait,
    ) -> Result<Option<Found<Slot<I>>>> {
        match tables.get(&index_key.shard) {
            Some(table) => self.find(table, &self.log.segments(), index_key, key, wait),
            None => Ok(None),
        }
    }

    fn version_of(&self, tables: &Tables<'_, I>, key: &[u8], wait: Wait) -> Result<Option<u64>> {
        let index_key = self.index_key_of(key)?;
        let Some(found) = self.lookup(tables, index_key, key, wait)? else { return Ok(None) };
        let segments = self.log.segments();
        self.check_found(&segments, Some(&found), index_key, wait)?;
        self.with_found(&segments, &found, key, wait, |record| {
            let expired = record.meta.is_expired(self.now_ms(record.meta));
            (!expired).then_some(record.sequence)
        })
    }

    /// Returns the last change of each key, without removals of keys that do not exist.
    fn planned<'a>(
        &self,
        batch: &'a Batch,
        tables: &Tables<'_, I>,
        wait: Wait,
    ) -> Result<Vec<ShardChange<'a, I>>> {
        let last = batch_plan::last_changes(batch, KeyOrder::Lexical);
        let birth = self.log.active_number().to_le_bytes();
        let mut planned = Vec::with_capacity(last.len());
        for (key, change) in last {
            let index_key = self.index_key_of(key)?;
            // Everything that can fail comes before the first change.
            let found = self.lookup(tables, index_key, key, wait)?;
            let change = match change {
                BatchChange::Put(value, meta) => {
                    let mut buffer = Vec::new();
                    let (value, compression) = match self.compress(value, &mut buffer) {
                        (_, Compression::None) => (Cow::Borrowed(&value[..]), Compression::None),
                        (_, compression) => (Cow::Owned(buffer), compression),
                    };
                    ShardChange {
                        index_key,
                        key,
                        value,
                        meta: *meta,
                        compression,
                        kind: Kind::Put,
                        found,
                    }
                }
                BatchChange::Remove if found.is_none() => continue,
                BatchChange::Remove => ShardChange {
                    index_key,
                    key,
                    value: birth.to_vec().into(),
                    meta: Meta::NONE,
                    compression: Compression::None,
                    kind: Kind::Tombstone,
                    found,
                },
            };
            planned.push(change);
        }
        batch_plan::longest_last(&mut planned, |change| change.value.len());
        Ok(planned)
    }

    fn apply(
        &self,
        table: &mut I::ShardIndex,
        change: &ShardChange<'_, I>,
        appended: Appended,
        total: usize,
    ) {
        let segments = self.log.segments();
        // The slot of an entry changes with changes of other keys. The location does not while the
        // shard is locked.
        let slot = change.found.as_ref().and_then(|found| {
            segments.remove_live(found.location, found.total);
            // Over a run, the slot is the entry itself.
            let slot = match table.run() {
                Some(_) => Some(found.slot),
                None => find_location(table, change.index_key.tag, found.location),
            }?;
            Some((slot, found.location))
        });
        let segment = segments.get(appended.location);
        match (change.kind, slot) {
            (Kind::Put, slot) => {
                if let Some(segment) = segment {
                    segment.add_live(total);
                    segment.note_expiry(change.meta.expires_at_ms);
                    self.note_expiry(change.meta);
                }
                match slot {
                    Some((slot, from)) => {
                        table.replace(slot, appended.location, total);
                        self.note_moved(&segments, change.key, from, appended.location);
                    }
                    None => table.insert(change.index_key.tag, appended.location, total),
                }
            }
            (_, slot) => {
                if let Some(segment) = segment {
                    segment.add_tombstone(total);
                }
                if let Some((slot, _)) = slot {
                    table.remove(slot);
                }
                self.note_forgotten(change.index_key.shard, &segments, appended.location);
            }
        }
    }
}
