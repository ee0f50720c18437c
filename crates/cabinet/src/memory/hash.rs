//! On-memory hash database, `*`.
//!
//! # Threads and locks
//!
//! Records are assigned to shards by the highest bits of their hash; each shard has a lock. An
//! operation on one record takes one lock. A batch takes the locks of its shards, and an operation
//! on all shards takes all, in ascending order. Eviction beyond the shard of the write locks one
//! shard after another, and holds no other lock meanwhile.
//!
//! # Order
//!
//! A scan goes by (shard, tag), both of which are bits of the key's hash. This position never
//! changes while the record exists, however the tables grow. A step visits the records of a range
//! of positions, under the lock of one shard after another, and never splits the records of one
//! position. The ranges of the steps are disjoint and cover all positions. So a record that exists
//! throughout is visited exactly once.
//!
//! # Cost
//!
//! A record takes one allocation with 12 bytes of header (24 with flags or expiry), 18 bytes on
//! average for its place and 12 for its entry in the index. A read costs one hash, one lock and
//! three cache lines: index, place, record.

use super::capacity::{Added, Capacity, Profile};
use super::copy::copy_records;
use super::expiry::SEARCHES;
use super::record::Record;
use super::shard::Shard;
use super::{MemoryEngine, ScanBudget};
use crate::base::{locks, reentry};
use crate::{
    Batch, Change, Engine, Family, Meta, Options, Result, ScanCursor, Version, Visitor, Wait,
    engine::batch_plan,
};
use crate::{Decide, Visit};
use parking_lot::{RwLock, RwLockWriteGuard};
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Shards of an engine without a cap, or with a large one.
const SHARDS_MAX: usize = 64;

/// Fewest records per shard with a cap on records. Eviction chooses within a shard, so it needs
/// enough records to choose from.
const RECORDS_PER_SHARD_MIN: u64 = 1024;

/// Fewest bytes per shard with a cap on bytes.
const BYTES_PER_SHARD_MIN: u64 = 1 << 20;

/// Bytes of the longest value that overwrites another in place, and whose record is built under the
/// lock.
const OVERWRITE_BYTES_MAX: usize = 512;

/// Name of the engine, and the memory of its records beyond the bytes that the cap counts.
const PROFILE: Profile = Profile { kind: "on-memory hash", path: "*", overhead_bytes: 16 };

/// On-memory hash database with optional caps, above which records not used lately are evicted.
#[derive(Debug)]
pub struct MemoryHash {
    shards: Box<[Padded<RwLock<Shard>>]>,
    /// Binary logarithm of the number of shards, which is a power of two.
    shard_bits: u32,
    seed: u64,
    versions: Padded<AtomicU64>,
    capacity: Capacity,
    options: Options,
}

/// Keeps data written by different threads on different cache lines.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Padded<T>(T);

impl MemoryHash {
    /// Returns an empty database. Uses the caps, the compression and the clock of the options.
    pub fn new(options: &Options) -> Self {
        let capacity = Capacity::new(options, PROFILE);
        let enough = (capacity.records_max() / RECORDS_PER_SHARD_MIN)
            .min(capacity.bytes_max() / BYTES_PER_SHARD_MIN)
            .max(1);
        let shard_bits = enough.ilog2().min(SHARDS_MAX.ilog2());
        Self {
            shards: (0..1usize << shard_bits).map(|_| Padded::default()).collect(),
            shard_bits,
            // Random, so that clients cannot choose keys that all collide.
            seed: RandomState::new().hash_one(0u64),
            versions: Padded(AtomicU64::new(0)),
            capacity,
            options: options.clone(),
        }
    }

    /// Returns the shard and the tag of a key.
    fn place(&self, key: &[u8]) -> (usize, u32) {
        let position = xxh3_64_with_seed(key, self.seed) >> (32 - self.shard_bits);
        ((position >> 32) as usize, position as u32)
    }

    fn tag(&self, key: &[u8]) -> u32 {
        self.place(key).1
    }

    /// Returns the live record in a place.
    fn live<'a>(&self, shard: &'a Shard, place: Option<u32>) -> Option<&'a Record> {
        shard.record(place?).filter(|record| self.is_live(record.meta()))
    }

    fn next_version(&self) -> Version {
        self.versions.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Stores a record in a locked shard, as the next version.
    fn store(
        &self,
        shard: &mut Shard,
        tag: u32,
        place: Option<u32>,
        mut record: Record,
    ) -> (u32, Version) {
        let version = self.next_version();
        record.set_version(version);
        (shard.put(tag, place, record, &self.capacity), version)
    }

    /// Overwrites a value with one of the same length, if nothing else changes. The value may stay
    /// uncompressed: each record has its own flag for compression.
    fn overwrite(
        &self,
        shard: &mut Shard,
        place: Option<u32>,
        value: &[u8],
        meta: Meta,
    ) -> Option<Version> {
        let place = place.filter(|_| value.len() <= OVERWRITE_BYTES_MAX)?;
        let version = self.next_version();
        shard.overwrite(place, value, meta, version).then_some(version)
    }

    /// Refuses a record of `bytes` bytes if there is no memory for it. Then also removes some
    /// expired records of the shard, so that a later write may fit.
    fn check_memory(&self, shard: &mut Shard, place: Option<u32>, bytes: usize) -> Result<()> {
        let mut added = Added::default();
        let found = place.and_then(|place| shard.record(place));
        added.change(found.map(Record::size_bytes), Some(bytes));
        self.capacity.check_memory(added).inspect_err(|_| self.sweep(shard))
    }

    /// Ends a write: removes some expired records, and evicts down to the caps, except the record
    /// just written.
    fn complete_write(
        &self,
        index: usize,
        mut shard: RwLockWriteGuard<'_, Shard>,
        spare: Option<u32>,
        wait: Wait,
    ) {
        self.sweep(&mut shard);
        self.evict(&mut shard, spare.as_slice());
        drop(shard);
        // This shard had nothing else to evict.
        for other in 1..self.shards.len() {
            if !self.capacity.is_over() {
                return;
            }
            let other = (index + other) % self.shards.len();
            // A shard locked for long is left to the next write.
            if let Ok(mut shard) = locks::write(&self.shards[other].0, wait) {
                self.evict(&mut shard, &[]);
            }
        }
    }

    /// Like `complete_write`, after a batch that wrote records in these places of shards.
    fn complete_batch(&self, mut written: BTreeMap<usize, Vec<u32>>, wait: Wait) {
        for places in written.values_mut() {
            places.sort_unstable();
            places.dedup();
        }
        let first = written.keys().next().copied().unwrap_or(0);
        // Records of the batch are evicted only if no others are left.
        for is_spared in [true, false] {
            for index in (0..self.shards.len()).map(|n| (first + n) % self.shards.len()) {
                if !self.capacity.is_over() {
                    return;
                }
                let spare = written.get(&index).filter(|_| is_spared);
                let spare = spare.map_or(&[][..], Vec::as_slice);
                // A shard locked for long is left to the next write.
                if let Ok(mut shard) = locks::write(&self.shards[index].0, wait) {
                    self.evict(&mut shard, spare);
                }
            }
        }
    }

    fn evict(&self, shard: &mut Shard, spare: &[u32]) {
        if !self.capacity.is_over() {
            return;
        }
        for _ in 0..shard.others(spare) {
            shard.evict(spare, |key| self.tag(key), &self.capacity);
            if !self.capacity.is_over() {
                return;
            }
        }
    }

    fn sweep(&self, shard: &mut Shard) {
        if shard.may_expire() {
            let now_ms = self.options.clock.now_ms();
            shard.sweep(now_ms, |key| self.tag(key), &self.capacity, &self.options.clock);
        }
    }

    /// Does one step of a scan.
    fn scan_records(&self, from: &ScanCursor, visit: &mut Visit<'_>) -> Result<Option<ScanCursor>> {
        let start = match from {
            ScanCursor::Start => 0,
            ScanCursor::Hash(position) => *position,
            ScanCursor::Key(key) => return self.scan_records(&self.scan_cursor_of(key), visit),
            ScanCursor::Id(_) => {
                return Err(from.foreign());
            }
        };
        let first = (start >> 32) as usize;
        let mut from_tag = start as u32;
        let mut budget = ScanBudget::default();
        for index in first..self.shards.len() {
            let shard = self.shards[index].0.read();
            let mut last = None;
            for (tag, place) in shard.from(from_tag) {
                if budget.is_spent() && last != Some(tag) {
                    return Ok(Some(ScanCursor::Hash((index as u64) << 32 | u64::from(tag))));
                }
                last = Some(tag);
                if let Some(record) = self.live(&shard, Some(place)) {
                    budget.spend(record.size_bytes());
                    record.visit(&mut *visit)?;
                }
            }
            from_tag = 0;
        }
        Ok(None)
    }
}

impl Engine for MemoryHash {
    fn read(&self, key: &[u8], wait: Wait, visit: &mut Visit<'_>) -> Result<bool> {
        let (index, tag) = self.place(key);
        let shard = locks::read(&self.shards[index].0, wait)?;
        let Some(place) = shard.find(tag, key) else { return Ok(false) };
        let Some(record) = self.live(&shard, Some(place)) else {
            self.capacity.expired.count_read();
            return Ok(false);
        };
        shard.mark_accessed(place);
        record.visit(visit)?;
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8], meta: Meta, wait: Wait) -> Result<Version> {
        // A large record is built before the lock is taken.
        let is_small = value.len() <= OVERWRITE_BYTES_MAX;
        let record = if is_small { None } else { Some(self.record(key, value, meta)?) };
        let (index, tag) = self.place(key);
        let mut shard = locks::write(&self.shards[index].0, wait)?;
        shard.check_capacity(1)?;
        let found = shard.find(tag, key);
        if let Some(version) = self.overwrite(&mut shard, found, value, meta) {
            self.complete_write(index, shard, found, wait);
            return Ok(version);
        }
        let record = record.map_or_else(|| self.record(key, value, meta), Ok)?;
        self.check_memory(&mut shard, found, record.size_bytes())?;
        let (place, version) = self.store(&mut shard, tag, found, record);
        self.complete_write(index, shard, Some(place), wait);
        Ok(version)
    }

    fn update(&self, key: &[u8], wait: Wait, decide: &mut Decide<'_>) -> Result<Version> {
        let (index, tag) = self.place(key);
        let mut shard = locks::write(&self.shards[index].0, wait)?;
        shard.check_capacity(1)?;
        let found = shard.find(tag, key);
        let change = match self.live(&shard, found) {
            Some(record) => record.visit(|entry| decide(Some(entry)))?,
            None => decide(None),
        };
        match change {
            Change::Keep => Ok(0),
            Change::Remove => {
                shard.remove(tag, key, &self.capacity);
                self.complete_write(index, shard, None, wait);
                Ok(0)
            }
            Change::Put(value, meta) => {
                if let Some(version) = self.overwrite(&mut shard, found, &value, meta) {
                    self.complete_write(index, shard, found, wait);
                    return Ok(version);
                }
                let record = self.record(key, &value, meta)?;
                self.check_memory(&mut shard, found, record.size_bytes())?;
                let (place, version) = self.store(&mut shard, tag, found, record);
                self.complete_write(index, shard, Some(place), wait);
                Ok(version)
            }
        }
    }

    fn write(&self, batch: &Batch, wait: Wait) -> Result<()> {
        // Everything that can fail comes before the first change.
        let records = self.records(batch)?.into_iter();
        let changes: Vec<_> = records.map(|(key, record)| (self.place(key), key, record)).collect();
        let mut indexes: Vec<usize> = changes.iter().map(|((index, _), ..)| *index).collect();
        indexes.extend(batch.expected.iter().map(|(key, _)| self.place(key).0));
        let indexes = batch_plan::lock_order(indexes, usize::cmp);
        let lock = |&index: &usize| Ok((index, locks::write(&self.shards[index].0, wait)?));
        let mut shards: Vec<_> = indexes.iter().map(lock).collect::<Result<_>>()?;
        let at = |index: usize| indexes.partition_point(|&locked| locked < index);

        batch_plan::check_expected(&batch.expected, |key| {
            let (index, tag) = self.place(key);
            let shard = &shards[at(index)].1;
            Ok(self.live(shard, shard.find(tag, key)).map(Record::version))
        })?;
        let mut added = Added::default();
        for ((index, tag), key, record) in &changes {
            let shard = &shards[at(*index)].1;
            let found = shard.find(*tag, key).and_then(|place| shard.record(place));
            added.change(found.map(Record::size_bytes), record.as_ref().map(Record::size_bytes));
        }
        if let Err(error) = self.capacity.check_memory(added) {
            shards.iter_mut().for_each(|(_, shard)| self.sweep(shard));
            return Err(error);
        }
        for (_, shard) in &shards {
            shard.check_capacity(changes.len())?;
        }
        let mut written: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for ((index, tag), key, record) in changes {
            let shard = &mut shards[at(index)].1;
            match record {
                Some(record) => {
                    let found = shard.find(tag, key);
                    let (place, _) = self.store(shard, tag, found, record);
                    written.entry(index).or_default().push(place);
                }
                None => {
                    shard.remove(tag, key, &self.capacity);
                }
            }
        }
        for (_, shard) in &mut shards {
            self.sweep(shard);
        }
        drop(shards);
        self.complete_batch(written, wait);
        Ok(())
    }

    fn scan(&self, from: &ScanCursor, visitor: Visitor<'_>) -> Result<Option<ScanCursor>> {
        visitor.of_records(|visit| self.scan_records(from, visit))
    }

    fn scan_cursor_of(&self, key: &[u8]) -> ScanCursor {
        let (index, tag) = self.place(key);
        ScanCursor::Hash((index as u64) << 32 | u64::from(tag))
    }

    fn family(&self) -> Family<'_> {
        Family::Unordered
    }
}

impl MemoryEngine for MemoryHash {
    fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn table_bytes(&self) -> u64 {
        // A callback may run under the lock of a shard.
        let is_within = reentry::is_within(reentry::engine_id_of(self));
        let shards_known = if is_within { &[][..] } else { &self.shards };
        // A shard locked for long is left out.
        let shards_known =
            shards_known.iter().filter_map(|shard| locks::read(&shard.0, Wait::Never).ok());
        let tables: usize = shards_known.map(|shard| shard.table_bytes()).sum();
        (tables + size_of_val(&*self.shards)) as u64
    }

    fn copy_to(&self, path: &Path) -> Result<()> {
        let shards: Vec<_> = self.shards.iter().map(|shard| shard.0.read()).collect();
        let places = shards.iter().flat_map(|shard| {
            shard.from(0).filter_map(move |(_, place)| self.live(shard, Some(place)))
        });
        copy_records(path, places)
    }

    fn fit(&self, has_new_caps: bool) {
        for shard in &self.shards {
            let mut shard = shard.0.write();
            if has_new_caps {
                self.evict(&mut shard, &[]);
            } else {
                shard.shrink(|key| self.tag(key));
            }
        }
    }

    fn clear(&self) {
        let shards: Vec<_> = self.shards.iter().map(|shard| shard.0.write()).collect();
        shards.into_iter().for_each(|mut shard| shard.clear(&self.capacity));
    }

    fn remove_if_expired(&self, key: &[u8], wait: Wait) -> Result<bool> {
        let (index, tag) = self.place(key);
        let mut shard = locks::write(&self.shards[index].0, wait)?;
        let found = shard.find(tag, key);
        let is_expired = found.is_some() && self.live(&shard, found).is_none();
        if is_expired {
            shard.remove(tag, key, &self.capacity);
            self.capacity.expired.count_removed();
        }
        Ok(is_expired)
    }

    fn sweep_parts(&self) {
        for shard in &self.shards {
            (0..SEARCHES).for_each(|_| self.sweep(&mut shard.0.write()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Maintenance as _;
    use crate::{Error, Medium};

    fn put_of(key: &[u8]) -> Batch {
        let mut batch = Batch::new();
        batch.put(key, b"value", Meta::NONE);
        batch
    }

    #[test]
    fn a_thread_that_must_not_wait_does_not_wait_for_a_shard_that_is_held() {
        let options = Options { capacity_records: 4096, ..Options::default() };
        let database = std::sync::Arc::new(MemoryHash::new(&options));
        assert!(database.shards.len() > 1);
        let held = database.shards[database.place(b"key").0].0.write();
        let waiter = std::sync::Arc::clone(&database);
        let refused = locks::at_once(move || {
            [
                waiter.read(b"key", Wait::Never, &mut |_| ()),
                waiter.put(b"key", b"value", Meta::NONE, Wait::Never).map(|_| true),
                waiter.update(b"key", Wait::Never, &mut |_| Change::Keep).map(|_| true),
                waiter.remove_expired(b"key", Wait::Never),
                waiter.write(&put_of(b"key"), Wait::Never).map(|()| true),
                Ok(waiter.size_bytes() == 0),
            ]
            .map(|result| matches!(result, Err(Error::WouldBlock)))
        });
        assert_eq!(refused, [true, true, true, true, true, false]);
        // The eviction searches other shards.
        let others = (0..5000u32).map(u32::to_le_bytes);
        let others = others.filter(|key| database.place(key).0 != database.place(b"key").0);
        let others: Vec<_> = others.collect();
        let writer = std::sync::Arc::clone(&database);
        locks::at_once(move || {
            for key in others {
                writer.put(&key, b"value", Meta::NONE, Wait::Never).expect("a put");
                writer.write(&put_of(&key), Wait::Never).expect("a batch");
            }
        });
        drop(held);
        database.put(b"key", b"value", Meta::NONE, Wait::Never).expect("a put");
    }
}
