//! Batches: many keys change together, also across a crash.

use super::{Found, Hash, SHARDS, Shared, Table};
use crate::batch::BatchChange;
use crate::limits::BATCH_BYTES_MAX;
use crate::log::record::{Kind, Prepared};
use crate::log::{Appended, Check};
use crate::{Batch, Compression, Error, Meta, Result, Wait};
use parking_lot::RwLockWriteGuard;
use std::collections::BTreeMap;

/// One change as it will be written.
struct Step<'a> {
    hash: Hash,
    key: &'a [u8],
    value: Vec<u8>,
    meta: Meta,
    compression: Compression,
    kind: Kind,
}

impl Shared {
    /// Applies a batch. All shards it touches are locked, in their order, which single changes,
    /// having one lock each, cannot come across.
    pub(super) fn write_batch(&self, batch: &Batch) -> Result<()> {
        let bytes: usize = batch
            .changes
            .iter()
            .map(|(key, change)| match change {
                BatchChange::Put(value, _) => key.len() + value.len(),
                BatchChange::Remove => key.len(),
            })
            .sum();
        if bytes > BATCH_BYTES_MAX {
            return Err(Error::BatchTooLong { bytes, max: BATCH_BYTES_MAX });
        }
        let mut tables = self.lock_shards(batch);
        for (key, expected) in &batch.expected {
            if self.version_of(&tables, key)? != *expected {
                return Err(Error::Conflict);
            }
        }
        let steps = self.steps(batch, &tables)?;
        if steps.is_empty() {
            return Ok(());
        }
        let mut records: Vec<Prepared<'_>> = steps
            .iter()
            .map(|step| {
                self.log.prepare(step.kind, step.key, &step.value, step.meta, step.compression)
            })
            .collect();
        let totals: Vec<usize> = records.iter().map(Prepared::total).collect();
        let mut places: Vec<Option<Appended>> = vec![None; steps.len()];
        self.log.append_batch(&mut records, |index, appended| places[index] = Some(appended))?;
        for ((step, total), appended) in steps.iter().zip(totals).zip(places) {
            let (Some(appended), Some(table)) = (appended, tables.get_mut(&step.hash.shard)) else {
                continue;
            };
            self.apply(table, step, appended, total)?;
        }
        Ok(())
    }

    fn lock_shards(&self, batch: &Batch) -> BTreeMap<usize, RwLockWriteGuard<'_, Table>> {
        let keys = batch.changes.iter().map(|(key, _)| key);
        let keys = keys.chain(batch.expected.iter().map(|(key, _)| key));
        let mut shards: Vec<usize> = keys.map(|key| self.hash(key).shard).collect();
        shards.sort_unstable();
        shards.dedup();
        debug_assert!(shards.len() <= SHARDS);
        shards.into_iter().map(|shard| (shard, self.shards[shard].0.write())).collect()
    }

    fn lookup(
        &self,
        tables: &BTreeMap<usize, RwLockWriteGuard<'_, Table>>,
        hash: Hash,
        key: &[u8],
    ) -> Result<Option<Found>> {
        match tables.get(&hash.shard) {
            Some(table) => self.find(table, &self.log.segments(), hash, key, Wait::Block),
            None => Ok(None),
        }
    }

    fn version_of(
        &self,
        tables: &BTreeMap<usize, RwLockWriteGuard<'_, Table>>,
        key: &[u8],
    ) -> Result<Option<u64>> {
        let Some(found) = self.lookup(tables, self.hash(key), key)? else { return Ok(None) };
        let segments = self.log.segments();
        self.with(&segments, found.location, Wait::Block, Check::Whole, |record| {
            let expired = record.meta.is_expired(self.now_ms(record.meta));
            (!expired).then_some(record.sequence)
        })
    }

    /// The last change of each key, less removals of what does not exist.
    fn steps<'a>(
        &self,
        batch: &'a Batch,
        tables: &BTreeMap<usize, RwLockWriteGuard<'_, Table>>,
    ) -> Result<Vec<Step<'a>>> {
        let last: BTreeMap<&[u8], &BatchChange> =
            batch.changes.iter().map(|(key, change)| (&key[..], change)).collect();
        let birth = self.log.active_number().to_le_bytes();
        let mut steps = Vec::with_capacity(last.len());
        for (key, change) in last {
            let hash = self.hash(key);
            let step = match change {
                BatchChange::Put(value, meta) => {
                    let mut buffer = Vec::new();
                    let (value, compression) = self.compress(value, &mut buffer);
                    let value = value.to_vec();
                    Step { hash, key, value, meta: *meta, compression, kind: Kind::Put }
                }
                BatchChange::Remove if self.lookup(tables, hash, key)?.is_none() => continue,
                BatchChange::Remove => Step {
                    hash,
                    key,
                    value: birth.to_vec(),
                    meta: Meta::NONE,
                    compression: Compression::None,
                    kind: Kind::Tombstone,
                },
            };
            steps.push(step);
        }
        Ok(steps)
    }

    fn apply(
        &self,
        table: &mut Table,
        step: &Step<'_>,
        appended: Appended,
        total: usize,
    ) -> Result<()> {
        let segments = self.log.segments();
        let found = self.find(table, &segments, step.hash, step.key, Wait::Block)?;
        if let Some(found) = &found {
            self.log.remove_live(&segments, found.location, found.total);
        }
        let segment = segments.get(appended.location);
        match (step.kind, found) {
            (Kind::Put, found) => {
                if let Some(segment) = segment {
                    segment.add_live(total);
                    segment.note_expiry(step.meta.expires_at_ms);
                }
                match found {
                    Some(found) => table.replace(found.slot, appended.location),
                    None => table.insert(step.hash.tag, appended.location),
                }
            }
            (_, found) => {
                if let Some(segment) = segment {
                    segment.add_tombstone(total);
                }
                if let Some(found) = found {
                    table.remove(found.slot);
                }
            }
        }
        Ok(())
    }
}
