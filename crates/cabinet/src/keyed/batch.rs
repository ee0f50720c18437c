//! Batches: changes of many keys at once, atomic also across a crash.

use super::group::GROUP_KEYS_MAX;
use super::shard::Locked;
use super::{Found, Index, IndexKey, KeyedEngine, ShardIndex, Slot, find_location};
use crate::batch::BatchChange;
use crate::log::record::{Kind, Prepared};
use crate::log::{Appended, Check, Purpose, Segments};
use crate::{Batch, Compression, Error, KeyOrder, Meta, Result, Wait, engine::batch_plan};
use std::borrow::Cow;

/// The last change of a key, as it was given.
struct LastChange<'a, I: Index> {
    index_key: IndexKey<I>,
    key: &'a [u8],
    change: BatchChange<'a>,
}

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

/// Locked tables of the shards of a batch, with the numbers of the shards, in their order.
struct Tables<'a, I: Index>(Vec<(usize, Locked<'a, I::ShardIndex>)>);

impl<'a, I: Index> Tables<'a, I> {
    fn get(&self, shard: usize) -> Option<&Locked<'a, I::ShardIndex>> {
        let place = self.0.binary_search_by_key(&shard, |(shard, _)| *shard).ok()?;
        Some(&self.0[place].1)
    }

    fn get_mut(&mut self, shard: usize) -> Option<&mut Locked<'a, I::ShardIndex>> {
        let place = self.0.binary_search_by_key(&shard, |(shard, _)| *shard).ok()?;
        Some(&mut self.0[place].1)
    }
}

impl<I: Index> KeyedEngine<I> {
    /// Applies a batch. Locks all shards of the batch in ascending order. Single changes have one
    /// lock each, so they cannot deadlock with it.
    pub(crate) fn write_batch(&self, batch: &Batch, wait: Wait) -> Result<()> {
        self.log.check_space_at_once(batch.check_length()?, wait)?;
        let changes = batch_plan::last_changes(batch, KeyOrder::Lexical);
        let mut last: Vec<LastChange<'_, I>> = Vec::with_capacity(changes.len());
        for (key, change) in changes {
            last.push(LastChange { index_key: self.index_key_of(key)?, key, change });
        }
        self.with_space(wait, || {
            let read = || self.read_ahead(batch);
            let write = |reads| self.write_once(batch, &last, reads, wait);
            batch_plan::read_then_write(wait, read, write)
        })
    }

    /// Reads the records that a batch compares into memory.
    fn read_ahead(&self, batch: &Batch) -> Result<()> {
        let expected = batch.expected.iter().map(|(key, _)| (&key[..], Check::Whole));
        let changed = batch.changes().map(|(key, _)| (key, Check::Lengths));
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
    fn write_once(
        &self,
        batch: &Batch,
        last: &[LastChange<'_, I>],
        reads: Wait,
        wait: Wait,
    ) -> Result<()> {
        let mut tables = self.lock_shards(batch, last, wait)?;
        // Loaded under the locks: a segment is in the set before the index points into it.
        let segments = self.log.segments();
        let version_of = |key: &[u8]| self.version_of(&tables, &segments, key, reads);
        batch_plan::check_expected(&batch.expected, version_of)?;
        let planned = self.planned(last, &tables, &segments, reads)?;
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
        let only_removes = planned.iter().all(|change| change.kind == Kind::Tombstone);
        if I::ShardIndex::HAS_RUNS && !only_removes {
            self.check_index_memory()?;
        }
        let purpose = if only_removes { Purpose::Remove } else { Purpose::Store };
        let found = planned.iter().filter_map(|change| change.found.as_ref());
        found.for_each(|found| segments.note_loss(found.location));
        drop(segments);
        let appended = self.log.append_batch(&mut records, purpose)?;
        let segments = self.log.segments();
        for (change, (appended, total)) in planned.iter().zip(appended) {
            if let Some(table) = tables.get_mut(change.index_key.shard) {
                self.apply(table, &segments, change, appended, total);
            }
        }
        Ok(())
    }

    /// Returns the index key of a key that was accepted.
    fn index_key_of(&self, key: &[u8]) -> Result<IndexKey<I>> {
        let what = || Error::Internal("a key of a batch has no index key".into());
        self.index.index_key(key).ok_or_else(what)
    }

    fn lock_shards(
        &self,
        batch: &Batch,
        last: &[LastChange<'_, I>],
        wait: Wait,
    ) -> Result<Tables<'_, I>> {
        let mut shards: Vec<usize> = last.iter().map(|change| change.index_key.shard).collect();
        for (key, _) in &batch.expected {
            shards.push(self.index_key_of(key)?.shard);
        }
        // Fetched first, because each lock waits for its cache line.
        shards.iter().take(GROUP_KEYS_MAX).for_each(|shard| self.shards[*shard].prefetch());
        let shards = batch_plan::lock_order(shards, usize::cmp);
        debug_assert!(shards.len() <= I::SHARDS);
        let mut tables = Vec::with_capacity(shards.len());
        for shard in shards {
            tables.push((shard, self.shards[shard].write_for(wait)?));
        }
        Ok(Tables(tables))
    }

    fn lookup(
        &self,
        tables: &Tables<'_, I>,
        segments: &Segments,
        index_key: IndexKey<I>,
        key: &[u8],
        wait: Wait,
    ) -> Result<Option<Found<Slot<I>>>> {
        match tables.get(index_key.shard) {
            Some(table) => self.find(table, segments, index_key, key, wait),
            None => Ok(None),
        }
    }

    /// Fetches the entries and the records of some changes into the processor's cache.
    fn prefetch_changes(
        &self,
        tables: &Tables<'_, I>,
        segments: &Segments,
        changes: &[LastChange<'_, I>],
    ) {
        let index_keys = || changes.iter().map(|change| change.index_key);
        for IndexKey { shard, tag } in index_keys() {
            self.shards[shard].prefetch_slot(tag);
        }
        for IndexKey { shard, tag } in index_keys() {
            let table = tables.get(shard).filter(|table| table.run().is_none());
            if let Some(found) = table.and_then(|table| table.matches(tag).next()) {
                Self::prefetch_record(segments, found.location);
            }
        }
    }

    fn version_of(
        &self,
        tables: &Tables<'_, I>,
        segments: &Segments,
        key: &[u8],
        wait: Wait,
    ) -> Result<Option<u64>> {
        let index_key = self.index_key_of(key)?;
        let Some(found) = self.lookup(tables, segments, index_key, key, wait)? else {
            return Ok(None);
        };
        self.check_found(segments, Some(&found), index_key, wait)?;
        self.with_found(segments, &found, key, wait, |record| {
            let expired = record.meta.is_expired(self.now_ms(record.meta));
            (!expired).then_some(record.sequence)
        })
    }

    /// Returns the changes as they will be logged, without removals of keys that do not exist.
    fn planned<'a>(
        &self,
        last: &[LastChange<'a, I>],
        tables: &Tables<'_, I>,
        segments: &Segments,
        wait: Wait,
    ) -> Result<Vec<ShardChange<'a, I>>> {
        let birth = self.log.active_number().to_le_bytes();
        let mut planned = Vec::with_capacity(last.len());
        for (place, LastChange { index_key, key, change }) in last.iter().enumerate() {
            if place.is_multiple_of(GROUP_KEYS_MAX) {
                let group = &last[place..last.len().min(place + GROUP_KEYS_MAX)];
                self.prefetch_changes(tables, segments, group);
            }
            let (index_key, key) = (*index_key, *key);
            // Everything that can fail comes before the first change.
            let found = self.lookup(tables, segments, index_key, key, wait)?;
            let change = match change {
                BatchChange::Put(value, meta) => {
                    let mut buffer = Vec::new();
                    let (value, compression) = match self.compress(value, &mut buffer) {
                        (_, Compression::None) => (Cow::Borrowed(*value), Compression::None),
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
        segments: &Segments,
        change: &ShardChange<'_, I>,
        appended: Appended,
        total: usize,
    ) {
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
                        self.note_moved(segments, change.key, from, appended.location);
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
                self.note_forgotten(change.index_key.shard, segments, appended.location);
            }
        }
    }
}
