//! The hash database (`.tch`): an index in memory over a log on disk.
//!
//! A key's hash gives its shard (10 bits), its home in the shard's [`slot_table`](slot_table) and
//! its tag there (24 bits). A get is one probe of the table and one read of the log. The record in
//! the log has the key, which shows whether it is the right one. [`crate::keyed`] has the parts
//! that engines share, including the locks.

mod slot_table;

use crate::io::Storage;
use crate::keyed::{EngineHandle, GROUP_KEYS_MAX, Index, IndexKey, ShardIndex as _, Stretch};
use crate::log::{DatabaseId, EngineParameters, Location, StoredKind};
use crate::{
    Batch, Decide, Engine, Family, FullScan, IterationState, KeyReports, LargeValue, Logged,
    Maintenance, Medium, Meta, Options, Persistence, Result, ScanCursor, Version, Visit, VisitKey,
    VisitMany, Visitor, Wait, Wanted,
};
pub(crate) use slot_table::SlotTable;
use slot_table::TAG_BITS;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SHARD_BITS: u32 = 10;

/// Bits of a hash that form a position of a scan.
const POSITION_BITS: u32 = SHARD_BITS + TAG_BITS;

/// Approximate number of records that one step of a scan visits.
const SCAN_STEP: usize = 256;

/// A hash database. Dropping it closes it.
pub struct HashDatabase {
    engine: EngineHandle<HashIndex>,
}

/// Maps keys to shards and tags by their hash.
pub(crate) struct HashIndex {
    seed: u64,
}

impl Index for HashIndex {
    type ShardIndex = SlotTable;

    const SHARDS: usize = 1 << SHARD_BITS;

    fn new_shard_index(&self) -> SlotTable {
        SlotTable::default()
    }

    #[inline]
    fn name(&self, key: &[u8]) -> Option<u64> {
        Some(xxh3_64_with_seed(key, self.seed))
    }

    #[inline]
    fn index_key_of_name(&self, name: u64) -> IndexKey<Self> {
        at_position(name >> (64 - POSITION_BITS))
    }
}

impl HashIndex {
    pub(crate) fn of(database_id: &DatabaseId) -> Self {
        Self { seed: database_id.hash_seed }
    }

    #[inline]
    fn index_key_of(&self, key: &[u8]) -> IndexKey<Self> {
        self.index_key_of_name(xxh3_64_with_seed(key, self.seed))
    }
}

#[inline]
fn at_position(position: u64) -> IndexKey<HashIndex> {
    IndexKey {
        shard: (position >> TAG_BITS) as usize,
        tag: (position & ((1 << TAG_BITS) - 1)) as u32,
    }
}

fn position_at(shard: usize, tag: u32) -> u64 {
    (shard as u64) << TAG_BITS | u64::from(tag)
}

impl HashDatabase {
    /// Opens the database in a directory, or creates it.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        Self::open_on(crate::io::storage(options.read_only), path, options, !options.read_only)
    }

    /// Like `open`, on a given storage. Without background threads the caller does their work with
    /// `run_maintenance`.
    pub fn open_on(
        storage: Arc<dyn Storage>,
        path: &Path,
        options: &Options,
        background: bool,
    ) -> Result<Self> {
        let parameters = EngineParameters::of(StoredKind::Hash);
        let engine = EngineHandle::open(
            storage,
            path,
            options,
            background,
            parameters,
            |database_id, _| Ok(HashIndex::of(database_id)),
        )?;
        Ok(Self { engine })
    }

    /// Does one round of the background threads' work: truncates sealed segments, sweeps expired
    /// records and compacts the segments that are due.
    #[cfg(feature = "testing")]
    pub fn run_maintenance(&self) -> Result<()> {
        self.engine.run_maintenance()
    }

    /// Writes a checkpoint, so that the next opening need not replay the log so far.
    pub fn checkpoint(&self) -> Result<()> {
        self.engine.write_index()
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &crate::keyed::KeyedEngine<HashIndex> {
        &self.engine
    }

    /// Returns the index keys of at most [`GROUP_KEYS_MAX`] keys.
    #[inline]
    fn index_keys_of(&self, keys: &[&[u8]]) -> [IndexKey<HashIndex>; GROUP_KEYS_MAX] {
        let mut index_keys = [at_position(0); GROUP_KEYS_MAX];
        for (index_key, key) in index_keys.iter_mut().zip(keys) {
            *index_key = self.engine.index.index_key_of(key);
        }
        index_keys
    }

    /// Returns some entries from a position on, all entries of a hash together, and the next
    /// position.
    pub(crate) fn step(
        &self,
        from: &ScanCursor,
    ) -> Result<Option<(Stretch<HashIndex>, ScanCursor)>> {
        let mut index_key = at_position(match from {
            ScanCursor::Hash(position) => *position,
            ScanCursor::Start | ScanCursor::Key(_) | ScanCursor::Id(_) => 0,
        });
        while index_key.shard < HashIndex::SHARDS {
            let shard = index_key.shard;
            let table = self.engine.table(shard);
            let (entries, next_tag, segments) = match table.run().cloned() {
                None => {
                    let (entries, next) = Self::some_of(&table, index_key.tag);
                    (entries, next, self.engine.log.segments())
                }
                Some(run) => {
                    drop(table);
                    let (in_run, next) = run.read_from(index_key.tag, SCAN_STEP)?;
                    let table = self.engine.table(shard);
                    if !table.run().is_some_and(|now| Arc::ptr_eq(now, &run)) {
                        continue;
                    }
                    let entries = table.entries_between(index_key.tag, next, &in_run);
                    (entries, next, self.engine.log.segments())
                }
            };
            index_key = match next_tag {
                Some(tag) => IndexKey { shard, tag },
                None => IndexKey { shard: shard + 1, tag: 0 },
            };
            if !entries.is_empty() {
                let next = position_at(index_key.shard, index_key.tag);
                return Ok(Some((Stretch { shard, entries, segments }, ScanCursor::Hash(next))));
            }
        }
        Ok(None)
    }

    /// Returns some entries of a table in memory from a tag on, and the next tag.
    fn some_of(table: &SlotTable, tag: u32) -> (Vec<(u32, Location)>, Option<u32>) {
        let mut entries = Vec::new();
        let mut last = None;
        for (tag, location) in table.entries_from(tag) {
            if entries.len() >= SCAN_STEP && last != Some(tag) {
                return (entries, Some(tag));
            }
            entries.push((tag, location));
            last = Some(tag);
        }
        (entries, None)
    }
}

impl Engine for HashDatabase {
    fn read(&self, key: &[u8], wait: Wait, visit: &mut Visit<'_>) -> Result<bool> {
        self.engine.read(self.engine.index.index_key_of(key), key, wait, visit)
    }

    fn prefetch(&self, keys: &[&[u8]]) {
        for keys in keys.chunks(GROUP_KEYS_MAX) {
            self.engine.prefetch_group(&self.index_keys_of(keys)[..keys.len()]);
        }
    }

    fn read_each(&self, keys: &[&[u8]], wait: Wait, visit: &mut VisitMany<'_>) -> ControlFlow<()> {
        for keys in keys.chunks(GROUP_KEYS_MAX) {
            self.engine.read_group(&self.index_keys_of(keys)[..keys.len()], keys, wait, visit)?;
        }
        ControlFlow::Continue(())
    }

    fn put(&self, key: &[u8], value: &[u8], meta: Meta, wait: Wait) -> Result<Version> {
        self.engine.put(self.engine.index.index_key_of(key), key, value, meta, wait)
    }

    fn update(&self, key: &[u8], wait: Wait, decide: &mut Decide<'_>) -> Result<Version> {
        self.engine.update(self.engine.index.index_key_of(key), key, wait, decide)
    }

    fn write(&self, batch: &Batch, wait: Wait) -> Result<()> {
        self.engine.write_batch(batch, wait)
    }

    fn scan(&self, from: &ScanCursor, visitor: Visitor<'_>) -> Result<Option<ScanCursor>> {
        let Some((stretch, next)) = self.step(from)? else { return Ok(None) };
        match visitor {
            Visitor::Records(visit) => self.engine.visit_entries(&stretch, visit)?,
            Visitor::Keys(visit) => self.engine.visit_keys(&stretch, visit)?,
        }
        Ok(Some(next))
    }

    fn full_scan(&self, wanted: Wanted, _is_in_order: bool) -> Result<Box<dyn FullScan + '_>> {
        Ok(self.engine.full_scan(self, wanted))
    }

    fn scan_cursor_of(&self, key: &[u8]) -> ScanCursor {
        let index_key = self.engine.index.index_key_of(key);
        ScanCursor::Hash(position_at(index_key.shard, index_key.tag))
    }

    fn family(&self) -> Family<'_> {
        Family::Logged(self)
    }
}

impl Logged for HashDatabase {
    fn large_value(&self, key: &[u8], bytes_min: usize, wait: Wait) -> Result<Option<LargeValue>> {
        self.engine.large_value(self.engine.index.index_key_of(key), key, bytes_min, wait)
    }

    /// Keys of large records are read faster in the order of positions. An iteration from a key on
    /// is often short, and one in log order would read all runs of the index.
    fn iteration(&self, from: Option<&[u8]>) -> Result<Option<IterationState>> {
        let is_over_runs = self.engine.is_over_runs();
        if self.engine.has_large_records() || from.is_some() && is_over_runs {
            return Ok(None);
        }
        let from = from.map(|key| (self.engine.index.index_key_of(key), key));
        self.engine.iteration(from).map(|iteration| Some(IterationState::new(iteration)))
    }

    fn step_iteration(
        &self,
        iteration: &mut IterationState,
        visit: &mut VisitKey<'_>,
    ) -> Result<bool> {
        self.engine.step_iteration(iteration.of()?, visit, &|from| self.step(from))
    }
}

impl Maintenance for HashDatabase {
    fn len(&self) -> u64 {
        self.engine.len()
    }

    fn is_read_only(&self) -> bool {
        self.engine.is_read_only()
    }

    fn evicts(&self) -> bool {
        self.engine.log.space().quota().is_capped()
    }

    fn stats(&self) -> Vec<(&'static str, String)> {
        self.engine.stats()
    }

    fn optimize(&self, options: Option<&Options>) -> Result<()> {
        self.engine.optimize(options)
    }

    fn replace_all(&self, batch: &Batch) -> Result<()> {
        self.engine.replace_all(batch)
    }

    fn remove_expired(&self, key: &[u8], wait: Wait) -> Result<bool> {
        self.engine.remove_expired(self.engine.index.index_key_of(key), key, wait)
    }

    fn reports(&self) -> Option<&KeyReports> {
        self.engine.clock.reports()
    }

    fn remove_damaged(&self, key: &[u8], wait: Wait) -> Result<bool> {
        self.engine.remove_damaged(self.engine.index.index_key_of(key), key, wait)
    }

    fn medium(&self) -> &dyn Medium {
        &self.engine.log
    }

    fn persistence(&self) -> Option<&dyn Persistence> {
        Some(&self.engine.log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::locks::at_once;
    use crate::io::FaultyStorage;
    use crate::log::{LARGE_CHANGE_BYTES, Maintained};
    use crate::{Change, Clock, Durability, Error};
    use std::sync::atomic::Ordering;

    fn open(storage: &FaultyStorage, options: &Options) -> HashDatabase {
        let storage = Arc::new(storage.clone());
        HashDatabase::open_on(storage, Path::new("casket.tch"), options, false).unwrap()
    }

    #[test]
    fn sweeping_stops_when_told_to_and_continues_from_there() {
        let (clock, time) = Clock::manual(1000);
        let options = Options { segment_bytes: Some(64 << 10), clock, ..Options::default() };
        let database = open(&FaultyStorage::new(), &options);
        let meta = Meta { flags: 0, expires_at_ms: 2000 };
        for number in 0..1000u32 {
            database.put(&number.to_le_bytes(), &[1; 1000], meta, Wait::Block).unwrap();
        }
        time.set(3000);
        let mut left = vec![database.len()];
        while left[left.len() - 1] > 0 {
            database.engine.sweep(&|| false).unwrap();
            left.push(database.len());
        }
        // One segment at a time.
        assert!(left.is_sorted_by(|before, after| before > after), "{left:?}");
        assert!(left.len() > 10, "{left:?}");
    }

    #[test]
    fn after_a_failed_sync_nothing_is_left_to_sync() {
        let storage = FaultyStorage::new();
        let options = Options { durability: Durability::Always, ..Options::default() };
        let database = open(&storage, &options);
        let log = &database.engine.log;
        database.put(b"key", b"value", Meta::NONE, Wait::Block).unwrap();
        assert!(log.has_to_sync());
        storage.faults().fail_syncs.store(true, Ordering::Relaxed);
        database.medium().sync().unwrap_err();
        assert!(log.appended() > log.commit().durable() && !log.has_to_sync());
    }

    #[test]
    fn segments_that_could_not_be_removed_stay_named() {
        let storage = FaultyStorage::new();
        let options = Options { segment_bytes: Some(64 << 10), ..Options::default() };
        let database = open(&storage, &options);
        let fill = |numbers: std::ops::Range<u32>| {
            for number in numbers {
                database.put(&number.to_le_bytes(), &[1; 1000], Meta::NONE, Wait::Block).unwrap();
            }
        };
        fill(0..200);
        storage.faults().fail_syncs.store(true, Ordering::Relaxed);
        database.engine.log.remove_segments(&|segment| segment.number == 1).unwrap_err();
        storage.faults().fail_syncs.store(false, Ordering::Relaxed);
        // Both at once and after later segments were added to the manifest.
        for end in [200, 400] {
            fill(200..end);
            let found = open(&storage.kill(), &options);
            for number in 0..end {
                let key = number.to_le_bytes();
                assert!(found.read(&key, Wait::Block, &mut |_| ()).unwrap(), "{number}");
            }
        }
    }

    #[test]
    fn a_thread_that_must_not_wait_does_not_wait_for_a_lock_that_is_held() {
        let (clock, time) = Clock::manual(1000);
        let options = Options { clock, ..Options::default() };
        let database = Arc::new(open(&FaultyStorage::new(), &options));
        let meta = Meta { flags: 0, expires_at_ms: 2000 };
        database.put(b"key", b"value", meta, Wait::Never).unwrap();
        time.set(3000);
        let held = database.engine.hold(database.engine.index.index_key_of(b"key").shard);
        type Act = fn(&HashDatabase) -> Result<bool>;
        let acts: [(&str, Act); 6] = [
            ("read", |it| it.read(b"key", Wait::Never, &mut |_| ())),
            ("put", |it| it.put(b"key", b"other", Meta::NONE, Wait::Never).map(|_| true)),
            ("update", |it| it.update(b"key", Wait::Never, &mut |_| Change::Keep).map(|_| true)),
            ("write", |it| {
                let mut batch = Batch::new();
                batch.put(b"key", b"other", Meta::NONE);
                it.write(&batch, Wait::Never).map(|()| true)
            }),
            ("remove_expired", |it| it.remove_expired(b"key", Wait::Never)),
            ("remove_damaged", |it| it.remove_damaged(b"key", Wait::Never)),
        ];
        for (name, act) in acts {
            let shared = Arc::clone(&database);
            let result = at_once(move || act(&shared));
            assert!(matches!(result, Err(Error::WouldBlock)), "{name}: {result:?}");
        }
        drop(held);
        assert!(database.remove_expired(b"key", Wait::Never).unwrap());
    }

    #[test]
    fn a_batch_holds_no_lock_while_it_reads_from_the_disk() {
        let storage = FaultyStorage::new();
        let database = Arc::new(open(&storage, &Options::default()));
        let version = database.put(b"key", b"value", Meta::NONE, Wait::Block).unwrap();
        let engine = &database.engine;
        for segment in engine.log.segments().iter() {
            segment.resident.store(false, Ordering::Relaxed);
        }
        for expects in [false, true] {
            let faults = storage.faults();
            faults.stall_all();
            let writer = Arc::clone(&database);
            let writer = std::thread::spawn(move || {
                let mut batch = Batch::new();
                if expects {
                    batch.expect(b"key", Some(version));
                } else {
                    batch.put(b"key", b"value", Meta::NONE);
                    batch.expect(b"other", None);
                }
                writer.write(&batch, Wait::Block)
            });
            faults.await_stalled();
            let is_free = engine.table_at_once(engine.index.index_key_of(b"key").shard).is_some();
            faults.go_on();
            let written = writer.join().expect("a writer");
            assert!(is_free, "{expects}");
            if expects {
                assert!(matches!(written, Err(Error::Conflict)), "{written:?}");
            } else {
                written.unwrap();
            }
        }
    }

    #[test]
    fn a_thread_that_must_not_wait_begins_no_segment() {
        for (eager_append_blocks, durability) in
            [(false, Durability::None), (true, Durability::None), (false, Durability::Always)]
        {
            let segment_bytes = Some(256 << 10);
            let options =
                Options { segment_bytes, eager_append_blocks, durability, ..Options::default() };
            let database = open(&FaultyStorage::new(), &options);
            let log = &database.engine.log;
            let newest = || log.segments().iter().map(|segment| segment.number).max();
            let mut refused = 0;
            for number in 0..5000_u32 {
                let value = vec![1; if number.is_multiple_of(100) { 20_000 } else { 100 }];
                let put = |wait| database.put(&number.to_le_bytes(), &value, Meta::NONE, wait);
                let before = newest();
                let done = put(Wait::Never);
                assert_eq!(newest(), before, "{number}");
                if let Err(error) = done {
                    assert!(matches!(error, Error::WouldBlock), "{error}");
                    // A background thread does the same.
                    log.begin_next_segment().unwrap();
                    put(Wait::Block).unwrap();
                    refused += 1;
                }
            }
            assert!((3..20).contains(&refused), "{refused}");
        }
    }

    #[test]
    fn a_thread_that_must_not_wait_does_not_wait_for_a_large_change() {
        let database = open(&FaultyStorage::new(), &Options::default());
        database.put(b"key", b"value", Meta::NONE, Wait::Never).unwrap();
        let log = &database.engine.log;
        assert!(log.space().begin_large_change(LARGE_CHANGE_BYTES - 1).is_none());
        let first = log.space().begin_large_change(LARGE_CHANGE_BYTES);
        let second = log.space().begin_large_change(LARGE_CHANGE_BYTES);
        drop(first);
        assert_eq!(database.len(), 1);
        let put = database.put(b"key", b"other", Meta::NONE, Wait::Never);
        assert!(matches!(put, Err(Error::WouldBlock)), "{put:?}");
        database.put(b"key", b"third", Meta::NONE, Wait::Block).unwrap();
        let index_key = database.engine.index.index_key_of(b"key");
        let held = database.engine.hold(index_key.shard);
        let read = database.read(b"key", Wait::Never, &mut |_| ());
        assert!(matches!(read, Err(Error::WouldBlock)), "{read:?}");
        assert_eq!(database.len(), 1);
        database.prefetch(&[b"key"]);
        drop(held);
        assert!(database.read(b"key", Wait::Never, &mut |_| ()).unwrap());
        drop(second);
        database.put(b"key", b"other", Meta::NONE, Wait::Never).unwrap();
    }
}
