//! Keyed engine: the common parts of engines that keep an index in memory over a log on disk.
//!
//! An [`Index`] maps a key to its shard and to the tag under which the shard's [`ShardIndex`] has
//! the location of its record. This module does the rest: reads, changes, batches, recovery,
//! compaction, sweeping and checkpoints. Writers of different shards meet only at the tail of the
//! log.
//!
//! # Locks
//!
//! Each shard has one lock. A change of a key appends to the log under the lock of the key's shard.
//! The log therefore has the changes of each key in order, and replaying it gives the same index.
//! Readers hold the lock only while they look up the location. The record at a location never
//! changes. It stays readable while the reader holds the set of segments that it loaded under the
//! lock, or that was current then, see [`group`]. [`crate::base::locks`] lists the locks that an
//! event loop waits for.

mod alive;
mod backoff;
mod batch;
mod building;
mod check;
mod damaged;
mod full_scan;
mod group;
mod handle;
mod iteration;
mod locks;
mod maintenance;
mod recover;
mod repair;
mod run;
#[cfg(test)]
mod scaling;
mod scans;
mod shard;
mod shard_index;

pub(crate) use check::walk_with_index;
pub(crate) use group::GROUP_KEYS_MAX;
pub(crate) use handle::EngineHandle;
pub(crate) use run::{Before, Run, difference, tag_of};
pub(crate) use shard_index::{Match, Seen, ShardIndex, find_location};

use crate::base::compress;
use crate::base::expired::ExpiryStats;
use crate::base::sync::Mutex;
use crate::log::record::{Kind, Record};
use crate::log::{
    Check, LargeValue, Location, Log, Lsn, Pressure, Purpose, Segments, Usage, with_record,
};
use crate::{
    Change, Clock, Compression, Decide, Error, Meta, RecordRef, Result, Version, Visit, VisitKey,
    Wait,
};
use alive::Alive;
use backoff::Backoff;
use parking_lot::RwLockReadGuard;
use scans::Scans;
use shard::{Growth, Shard};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a writer pauses, once per [`BEHIND_WRITES`] writes, while compaction cannot keep up.
const BEHIND_PAUSE: Duration = Duration::from_millis(6);
const BEHIND_WRITES: u32 = 64;

/// Most attempts to read a part of a run without the lock of its shard. Memory may lose the part
/// again before the lock is taken. After that it is read under the lock.
const RUN_READS_MAX: usize = 3;

/// Maps keys to shards and index entries.
pub(crate) trait Index: Send + Sync + Sized + 'static {
    /// Entries of the keys of one shard.
    type ShardIndex: ShardIndex;

    /// Number of shards.
    const SHARDS: usize;

    /// Returns a table without entries.
    fn new_shard_index(&self) -> Self::ShardIndex;

    /// Returns a number that stands for a key. Two keys of a database share one with a probability
    /// of 2^-64. Returns `None` if no record of this kind of engine can have the key: the record is
    /// then damaged, and is ignored.
    fn name(&self, key: &[u8]) -> Option<u64>;

    /// Returns the index key of the key with this name.
    fn index_key_of_name(&self, name: u64) -> IndexKey<Self>;

    /// Returns the index key of a key; `None` if the key has no name.
    #[inline]
    fn index_key(&self, key: &[u8]) -> Option<IndexKey<Self>> {
        self.name(key).map(|name| self.index_key_of_name(name))
    }
}

/// Tag that distinguishes an entry from the others of its shard.
pub(crate) type Tag<I> = <<I as Index>::ShardIndex as ShardIndex>::Tag;

/// Key of an entry in the index: its shard and tag.
pub(crate) struct IndexKey<I: Index> {
    pub(crate) shard: usize,
    pub(crate) tag: Tag<I>,
}

impl<I: Index> Clone for IndexKey<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I: Index> Copy for IndexKey<I> {}

/// The state of an engine, shared with its background threads.
pub(crate) struct KeyedEngine<I: Index> {
    pub(crate) log: Log,
    pub(crate) index: I,
    shards: Box<[Shard<I::ShardIndex>]>,
    compression: Compression,
    pub(crate) clock: Clock,
    /// Whether a record that expires was stored, as far back as the log reaches.
    has_expiries: AtomicBool,
    expired: ExpiryStats,
    /// Writes made while compaction could not keep up.
    paused: AtomicU32,
    scans: Arc<Scans>,
    /// Most bytes of memory that the tables may use.
    index_bytes_max: u64,
    growth: Arc<Growth>,
    /// Whether tables have runs, because all entries would exceed `index_bytes_max`.
    over_runs: AtomicBool,
    /// Entries that point into the segment of the latest lookup, if tables have runs.
    alive: Mutex<Option<Arc<Alive>>>,
    /// Whether the checkpoint must be rewritten although nothing was appended since.
    needs_checkpoint: AtomicBool,
    /// Whether the last merge of the index failed.
    cannot_merge: AtomicBool,
    /// Delays the background's next attempt after a failed merge.
    merge_backoff: Mutex<Backoff>,
    /// Damaged parts of runs that were repaired.
    repaired_pieces: AtomicU64,
    /// Records of such parts that are lost, because the log is damaged too.
    lost_records: AtomicU64,
    /// Time before which parts of runs that could not be repaired are not tried again.
    repair_after: Mutex<Option<Instant>>,
}

/// Entry of a key in the index.
struct Found<S> {
    slot: S,
    location: Location,
    /// Bytes of the record in the log; 0 if unknown.
    total: usize,
    /// Whether the record is damaged, so that its key is unknown. It is then treated as the record
    /// of the key, see [`damaged`].
    is_doubtful: bool,
}

/// Slot type of an index's tables.
type Slot<I> = <<I as Index>::ShardIndex as ShardIndex>::Slot;

/// Entries of one shard whose records one step of a scan visits, and the segments of the records.
pub(crate) struct Stretch<I: Index> {
    pub(crate) shard: usize,
    pub(crate) entries: Vec<(Tag<I>, Location)>,
    pub(crate) segments: arc_swap::Guard<Arc<Segments>>,
}

impl<I: Index> KeyedEngine<I> {
    fn with<T>(
        &self,
        segments: &Segments,
        location: Location,
        wait: Wait,
        check: Check,
        visit: impl FnOnce(&Record<'_>) -> T,
    ) -> Result<T> {
        with_record(segments, location, wait, check, visit)
    }

    /// Returns the length of the record at a location, if it is the record of `key`.
    #[inline]
    fn total_of(
        &self,
        segments: &Segments,
        location: Location,
        key: &[u8],
        wait: Wait,
    ) -> Result<Option<usize>> {
        self.with(segments, location, wait, Check::Lengths, |record| {
            (record.key == key).then_some(record.total)
        })
    }

    /// Looks a key up in its shard's table. If no record is the key's but a damaged one may be,
    /// returns the damaged one.
    #[inline]
    fn find(
        &self,
        table: &I::ShardIndex,
        segments: &Segments,
        index_key: IndexKey<I>,
        key: &[u8],
        wait: Wait,
    ) -> Result<Option<Found<Slot<I>>>> {
        if table.run().is_some() {
            return self.find_among_many(table, segments, index_key, key, wait);
        }
        let is_doubtful = false;
        let first = table.matches(index_key.tag).next();
        if let Some(Match { slot, location, total }) = first {
            if let Some(total) = total {
                return Ok(Some(Found { slot, location, total, is_doubtful }));
            }
            match self.total_of(segments, location, key, wait) {
                Ok(Some(total)) => return Ok(Some(Found { slot, location, total, is_doubtful })),
                // It rarely is another key's.
                Ok(None) | Err(Error::Corrupted { .. }) => {
                    return self.find_among_many(table, segments, index_key, key, wait);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Returns the LSN that the next record of a key must exceed. The caller holds the shard's
    /// lock.
    #[inline]
    fn min_lsn(&self, shard: usize, segments: &Segments, found: Option<&Found<Slot<I>>>) -> Lsn {
        let forgot = || Lsn::from_bits(self.shards[shard].forgot.load(Ordering::Relaxed));
        match found {
            Some(found) if !found.is_doubtful => segments.lsn(found.location),
            // The record may be another key's, and this key's may have been removed later.
            Some(found) => segments.lsn(found.location).max(forgot()),
            None => forgot(),
        }
    }

    /// Notes that a shard's table has forgotten a key because of the record at a location.
    fn note_forgotten(&self, shard: usize, segments: &Segments, location: Location) {
        let lsn = segments.lsn(location).bits();
        self.shards[shard].forgot.fetch_max(lsn, Ordering::Relaxed);
    }

    /// Notes that the record of a key has moved. The caller holds the shard's lock, and the
    /// segments of both locations.
    #[inline]
    fn note_moved(&self, segments: &Segments, key: &[u8], from: Location, to: Location) {
        if self.scans.is_any()
            && let Some(name) = self.index.name(key)
        {
            self.scans.note_moved(name, segments.lsn(from), segments.lsn(to));
        }
    }

    /// Appends a put and makes the index point to it. The caller holds the shard's lock.
    fn store(
        &self,
        table: &mut I::ShardIndex,
        index_key: IndexKey<I>,
        segments: &Segments,
        found: Option<Found<Slot<I>>>,
        stored: &Stored<'_>,
    ) -> Result<Version> {
        if I::ShardIndex::HAS_RUNS {
            self.check_index_memory()?;
        }
        let Stored { key, value, meta, compression } = *stored;
        let _change = self.log.space().begin_large_change(value.len());
        let record = self.log.prepare(Kind::Put, key, value, meta, compression);
        let total = record.total();
        let min_lsn = self.min_lsn(index_key.shard, segments, found.as_ref());
        if let Some(found) = &found {
            segments.note_loss(found.location);
        }
        let appended = self.log.append_after(record, Purpose::Store, min_lsn)?;
        let segments = self.log.segments();
        if let Some(segment) = segments.get(appended.location) {
            segment.add_live(total);
            segment.note_expiry(meta.expires_at_ms);
            self.note_expiry(meta);
        }
        match found {
            Some(found) => {
                table.replace(found.slot, appended.location, total);
                self.note_moved(&segments, key, found.location, appended.location);
                segments.remove_live(found.location, found.total);
            }
            None => table.insert(index_key.tag, appended.location, total),
        }
        Ok(appended.sequence)
    }

    /// Appends a tombstone and removes the entry. The caller holds the shard's lock.
    fn delete(
        &self,
        table: &mut I::ShardIndex,
        shard: usize,
        segments: &Segments,
        found: &Found<Slot<I>>,
        key: &[u8],
    ) -> Result<()> {
        segments.note_loss(found.location);
        let appended = self.log.append_tombstone(key, segments.lsn(found.location))?;
        let segments = self.log.segments();
        segments.remove_live(found.location, found.total);
        table.remove(found.slot);
        self.note_forgotten(shard, &segments, appended.location);
        Ok(())
    }

    /// Runs `attempt`, which must not read the disk, under a lock. If it needs the disk and the
    /// caller may wait, the record is first read without the lock, so that other threads do not
    /// wait.
    fn without_reading_locked<T>(
        &self,
        index_key: IndexKey<I>,
        key: &[u8],
        wait: Wait,
        mut attempt: impl FnMut(Wait) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..3 {
            match attempt(Wait::Never) {
                Err(Error::WouldBlock) if wait == Wait::Block => {
                    match self.read(index_key, key, Wait::Block, &mut |_| ()) {
                        // `attempt` decides what damage means.
                        Ok(_) | Err(Error::Corrupted { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                result => return result,
            }
        }
        attempt(Wait::Block)
    }

    /// Returns the segments, and the locations in them of the records that may be the key's.
    #[inline(always)]
    fn locations(
        &self,
        index_key: IndexKey<I>,
        wait: Wait,
    ) -> Result<(arc_swap::Guard<Arc<Segments>>, impl Iterator<Item = Location> + use<I>)> {
        let table = self.table_for(index_key.shard, wait)?;
        if table.run().is_some() {
            let (segments, locations) = self.locations_over_run(table, index_key, wait)?;
            return Ok((segments, None.into_iter().chain(locations)));
        }
        let tag = index_key.tag;
        let mut matches = table.matches(tag).map(|found| found.location);
        let first = matches.next();
        // There rarely are more, and an empty vector allocates nothing.
        let more = matches.collect::<Vec<_>>();
        Ok((self.log.segments(), first.into_iter().chain(more)))
    }

    /// Like `locations`, for a table over a run. Reads the disk without the shard's lock.
    #[cold]
    fn locations_over_run(
        &self,
        table: RwLockReadGuard<'_, I::ShardIndex>,
        index_key: IndexKey<I>,
        wait: Wait,
    ) -> Result<(arc_swap::Guard<Arc<Segments>>, Vec<Location>)> {
        let found = |table: &I::ShardIndex, wait| {
            let matches = table.matches_over_run(index_key.tag, wait)?;
            let locations = matches.into_iter().map(|found| found.location).collect();
            Ok((self.log.segments(), locations))
        };
        let mut table = table;
        for _ in 0..RUN_READS_MAX {
            match found(&table, Wait::Never) {
                Err(Error::WouldBlock) if wait == Wait::Block => {}
                result => return result,
            }
            let run = table.run().cloned();
            drop(table);
            if let Some(run) = run {
                I::ShardIndex::read_ahead(&run, index_key.tag)?;
            }
            table = self.table(index_key.shard);
        }
        found(&table, Wait::Block)
    }

    /// Returns the slot of an entry, if it exists. `alive` may know which entries the run has.
    fn slot_of(
        &self,
        table: &I::ShardIndex,
        index_key: IndexKey<I>,
        location: Location,
        alive: Option<&Alive>,
    ) -> Result<Option<Slot<I>>> {
        let slot = match table.look_in_memory(index_key.tag, location) {
            Seen::Yes(slot) => return Ok(Some(slot)),
            Seen::No => return Ok(None),
            Seen::IfInRun(slot) => slot,
        };
        let is_in_doubt = || table.is_in_doubt(index_key.tag);
        let known = alive
            .and_then(|alive| alive.is_in_run(index_key.shard, table.run()?, location))
            .filter(|is_there| *is_there || !is_in_doubt());
        if let Some(is_there) = known {
            return Ok(is_there.then_some(slot));
        }
        let matches = table.matches_over_run(index_key.tag, Wait::Block)?;
        Ok(matches.into_iter().find(|found| found.location == location).map(|found| found.slot))
    }

    /// Calls `act` with all entries of a shard under its lock. Reads the disk before taking the
    /// lock.
    fn with_entries<T>(
        &self,
        shard: usize,
        act: impl FnOnce(&mut dyn Iterator<Item = (Tag<I>, Location)>) -> T,
    ) -> Result<T> {
        loop {
            let table = self.table(shard);
            let Some(run) = table.run().cloned() else { return Ok(act(&mut table.entries())) };
            drop(table);
            let in_run = run.read_all()?;
            let table = self.table(shard);
            if table.run().is_some_and(|now| Arc::ptr_eq(now, &run)) {
                return Ok(act(&mut table.entries_over_run(&in_run).into_iter()));
            }
        }
    }

    /// Implements [`crate::Engine::read`].
    #[inline]
    pub(crate) fn read(
        &self,
        index_key: IndexKey<I>,
        key: &[u8],
        wait: Wait,
        visit: &mut Visit<'_>,
    ) -> Result<bool> {
        let (segments, locations) = self.locations(index_key, wait)?;
        let mut damage = None;
        for location in locations {
            // It rarely is another key's.
            self.note_access(&segments, location);
            let found = self.with(&segments, location, wait, Check::Whole, |record| {
                if record.key != key {
                    return self
                        .check_place(&segments, location, index_key, record.key)
                        .map(|()| None);
                }
                if record.meta.is_expired(self.now_ms(record.meta)) {
                    self.expired.count_read();
                    return Ok(Some(false));
                }
                visit_record(record, &segments, location, visit)?;
                Ok::<_, Error>(Some(true))
            });
            match found {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(found))) => return Ok(found),
                Ok(Err(error)) | Err(error) => {
                    let found =
                        self.doubt(&segments, location, index_key, key, Err(error), wait)?;
                    damage = damage.or(found);
                }
            }
        }
        damage.map_or(Ok(false), |error| Err(*error))
    }

    /// Implements [`crate::engine::Logged::large_value`].
    pub(crate) fn large_value(
        &self,
        index_key: IndexKey<I>,
        key: &[u8],
        bytes_min: usize,
        wait: Wait,
    ) -> Result<Option<LargeValue>> {
        let (segments, locations) = self.locations(index_key, wait)?;
        for location in locations {
            self.note_access(&segments, location);
            let found = self.with(&segments, location, wait, Check::Lengths, |record| {
                let is_plain = record.compression == Compression::None;
                let is_live = !record.meta.is_expired(self.now_ms(record.meta));
                let is_large = record.value.len() >= bytes_min;
                (record.key == key).then(|| {
                    let segment =
                        segments.get(location).filter(|_| is_plain && is_live && is_large);
                    segment.map(|at| LargeValue::of(at, location.offset(), record))
                })
            });
            match found {
                Ok(Some(value)) => return Ok(value),
                // The caller's `read` reports damage.
                Ok(None) | Err(Error::Corrupted { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Implements [`crate::Engine::put`].
    pub(crate) fn put(
        &self,
        index_key: IndexKey<I>,
        key: &[u8],
        value: &[u8],
        meta: Meta,
        wait: Wait,
    ) -> Result<Version> {
        let mut buffer = Vec::new();
        let (value, compression) = self.compress(value, &mut buffer);
        let stored = Stored { key, value, meta, compression };
        self.log.check_space_at_once(value.len(), wait)?;
        self.with_space(wait, || {
            self.without_reading_locked(index_key, key, wait, |wait| {
                let mut table = self.table_mut(index_key.shard, wait)?;
                let segments = self.log.segments();
                let found = self.find(&table, &segments, index_key, key, wait)?;
                self.store(&mut table, index_key, &segments, found, &stored)
            })
        })
    }

    /// Implements [`crate::Maintenance::remove_expired`].
    pub(crate) fn remove_expired(
        &self,
        index_key: IndexKey<I>,
        key: &[u8],
        wait: Wait,
    ) -> Result<bool> {
        if !self.has_expiries.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let mut attempt = |wait| {
            let mut table = self.table_mut(index_key.shard, wait)?;
            let segments = self.log.segments();
            let found = self.find(&table, &segments, index_key, key, wait)?;
            let Some(found) = found else { return Ok(false) };
            let is_expired = self.with_found(&segments, &found, key, wait, |record| {
                record.meta.is_expired(self.now_ms(record.meta))
            });
            let is_expired = match is_expired {
                // A read reports the damage, and a put replaces the record.
                Err(Error::Corrupted { .. }) => return Ok(false),
                is_expired => is_expired?,
            };
            if is_expired {
                self.delete(&mut table, index_key.shard, &segments, &found, key)?;
                self.expired.count_removed();
            }
            Ok(is_expired)
        };
        self.with_space(wait, || self.without_reading_locked(index_key, key, wait, &mut attempt))
    }

    /// Implements [`crate::Engine::update`].
    pub(crate) fn update(
        &self,
        index_key: IndexKey<I>,
        key: &[u8],
        wait: Wait,
        decide: &mut Decide<'_>,
    ) -> Result<Version> {
        // Decision that a full disk prevented, with the version it was based on: `decide` runs
        // once.
        let mut decided: Option<(Option<Version>, Change)> = None;
        let mut attempt = |wait| {
            let mut table = self.table_mut(index_key.shard, wait)?;
            let segments = self.log.segments();
            let found = self.find(&table, &segments, index_key, key, wait)?;
            self.check_found(&segments, found.as_ref(), index_key, wait)?;
            let mut change = None;
            let mut present = None;
            if let Some(found) = &found {
                self.with_found(&segments, found, key, wait, |record| {
                    if record.meta.is_expired(self.now_ms(record.meta)) {
                        return Ok(());
                    }
                    present = Some(record.sequence);
                    if decided.is_some() {
                        return Ok(());
                    }
                    visit_record(record, &segments, found.location, &mut |entry| {
                        change = Some(decide(Some(entry)));
                    })
                })??;
            }
            let change = match decided.take() {
                Some((version, change)) if version == present => change,
                // Another writer changed the record in between.
                Some(_) => return Err(Error::NoSpace { path: self.log.directory().to_owned() }),
                None => change.unwrap_or_else(|| decide(None)),
            };
            match change {
                Change::Keep => {
                    if let Some(found) = found {
                        self.note_access(&segments, found.location);
                    }
                    Ok(0)
                }
                Change::Remove => {
                    if let (Some(found), Some(_)) = (found, present) {
                        self.delete(&mut table, index_key.shard, &segments, &found, key)?;
                    }
                    Ok(0)
                }
                Change::Put(value, meta) => {
                    let mut buffer = Vec::new();
                    let (smaller, compression) = self.compress(&value, &mut buffer);
                    let stored = Stored { key, value: smaller, meta, compression };
                    let result = self.store(&mut table, index_key, &segments, found, &stored);
                    if matches!(result, Err(Error::NoSpace { .. })) {
                        decided = Some((present, Change::Put(value, meta)));
                    }
                    result
                }
            }
        };
        self.with_space(wait, || self.without_reading_locked(index_key, key, wait, &mut attempt))
    }

    /// Records that a stored record expires. The caller holds the shard's lock.
    #[inline]
    fn note_expiry(&self, meta: Meta) {
        if meta.expires_at_ms != 0 && !self.has_expiries.load(Ordering::Relaxed) {
            self.has_expiries.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the current time if the record expires, otherwise 0.
    fn now_ms(&self, meta: Meta) -> u64 {
        if meta.expires_at_ms == 0 { 0 } else { self.clock.now_ms() }
    }

    /// Makes a writer evict when the log is full, and slows writers that compaction cannot keep up
    /// with. This bounds the space. The caller holds no lock.
    #[inline]
    fn wait_for_space(&self, wait: Wait) -> Result<()> {
        match self.log.space().pressure() {
            0 => Ok(()),
            _ if wait == Wait::Never => Err(Error::WouldBlock),
            pressure => self.make_space(pressure),
        }
    }

    /// Runs `attempt` once there is space. If there is a cap and other files fill the disk, evicts
    /// and tries once more. The caller holds no lock.
    #[inline]
    fn with_space<T>(&self, wait: Wait, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        if I::ShardIndex::HAS_RUNS && self.is_index_high() {
            self.note_index_pressure();
        }
        self.wait_for_space(wait)?;
        match attempt() {
            Err(Error::NoSpace { .. }) if self.log.space().quota().is_capped() => {
                // The log has noted that it must evict.
                self.wait_for_space(wait)?;
                attempt()
            }
            result => result,
        }
    }

    #[cold]
    fn make_space(&self, pressure: u8) -> Result<()> {
        if pressure & Pressure::FULL != 0 {
            self.log.evict_for_writer(self)?;
        }
        if pressure & Pressure::SCARCE != 0 {
            self.log.reclaim(self);
        }
        // Few long pauses rather than many short ones: the end of each pause would interrupt a
        // reader where processors are scarce.
        if pressure & (Pressure::BEHIND | Pressure::INDEX) != 0
            && self.paused.fetch_add(1, Ordering::Relaxed).is_multiple_of(BEHIND_WRITES)
        {
            std::thread::sleep(BEHIND_PAUSE);
        }
        Ok(())
    }

    fn compress<'a>(&self, value: &'a [u8], buffer: &'a mut Vec<u8>) -> (&'a [u8], Compression) {
        match compress::compress(value, self.compression) {
            Some(smaller) => {
                *buffer = smaller;
                (buffer, self.compression)
            }
            None => (value, Compression::None),
        }
    }

    /// Calls `visit` with each live record of a stretch.
    pub(crate) fn visit_entries(&self, stretch: &Stretch<I>, visit: &mut Visit<'_>) -> Result<()> {
        self.announce(stretch);
        let segments = &stretch.segments;
        for &(tag, location) in &stretch.entries {
            let index_key = IndexKey { shard: stretch.shard, tag };
            self.with(segments, location, Wait::Block, Check::Whole, |record| {
                self.check_place(segments, location, index_key, record.key)?;
                if record.meta.is_expired(self.now_ms(record.meta)) {
                    return Ok(());
                }
                visit_record(record, segments, location, visit)
            })??;
        }
        Ok(())
    }

    /// Calls `visit` with the key of each live record of a stretch. A key is right if the record
    /// belongs where the index has it, so its value need not be read.
    pub(crate) fn visit_keys(&self, stretch: &Stretch<I>, visit: &mut VisitKey<'_>) -> Result<()> {
        self.announce(stretch);
        let segments = &stretch.segments;
        for &(tag, location) in &stretch.entries {
            let index_key = IndexKey { shard: stretch.shard, tag };
            let is_right =
                self.with(segments, location, Wait::Block, Check::Lengths, |record| {
                    let is_right = self.belongs(record.key, index_key)
                        && !record.meta.is_expired(self.now_ms(record.meta));
                    if is_right {
                        visit(record.key);
                    }
                    is_right
                })?;
            if !is_right {
                // It has expired, unless it is damaged.
                self.verify(segments, location, index_key, Wait::Block)?;
            }
        }
        Ok(())
    }

    /// Asks the disk to prefetch all records of a step at once. The step still reads them in its
    /// own order: a scan that begins at a key visits that key first.
    fn announce(&self, stretch: &Stretch<I>) {
        let mut sorted: Vec<_> = stretch.entries.iter().map(|(_, location)| *location).collect();
        sorted.sort_unstable();
        for location in sorted {
            Self::announce_record(&stretch.segments, location);
        }
    }

    /// Asks the disk to prefetch the record at a location.
    fn announce_record(segments: &Segments, location: Location) {
        if let Some(segment) = segments.get(location)
            && !segment.resident.load(Ordering::Relaxed)
        {
            segment.file.will_read(location.offset() as u64, 1);
        }
    }

    /// Fetches the record at a location into the processor's cache.
    #[inline]
    pub(crate) fn prefetch_record(segments: &Segments, location: Location) {
        if let Some(segment) = segments.get(location) {
            segment.map.prefetch(location.offset());
            segment.map.prefetch(location.offset() + 64);
            segment.map.prefetch(location.offset() + 128);
        }
    }

    /// Notes the use of a record if the log has a size cap, for eviction.
    #[inline]
    fn note_access(&self, segments: &Segments, location: Location) {
        if self.log.space().quota().is_capped()
            && let Some(segment) = segments.get(location)
        {
            segment.access_bits.mark(location.offset());
        }
    }

    /// Returns the number of records. Expired ones count until they are reclaimed.
    pub(crate) fn len(&self) -> u64 {
        self.shards.iter().map(|shard| shard.len() as u64).sum()
    }

    /// Returns the stats as names and values.
    pub(crate) fn stats(&self) -> Vec<(&'static str, String)> {
        let usage = Usage::of(&self.log.segments());
        // A table locked for a large change is skipped rather than waited for.
        let index = self.index_bytes();
        let mut stats = vec![
            ("index_bytes", index.to_string()),
            ("index_budget_bytes", self.index_bytes_max.to_string()),
            ("index_on_disk", u8::from(self.is_over_runs()).to_string()),
            ("index_damaged_pages", self.damaged_pieces().to_string()),
            ("index_mended_pages", self.repaired_pieces.load(Ordering::Relaxed).to_string()),
            ("index_lost_records", self.lost_records.load(Ordering::Relaxed).to_string()),
            ("live_bytes", usage.live_bytes.to_string()),
            ("dead_percent", usage.dead_percent().to_string()),
            ("limit_bytes", self.log.space().quota().bytes_max().unwrap_or(0).to_string()),
            ("evicted", self.log.space().quota().evicted().to_string()),
        ];
        stats.extend(self.expired.report());
        stats.extend(self.log.report(0));
        stats
    }
}

/// A put as the log stores it.
struct Stored<'a> {
    key: &'a [u8],
    value: &'a [u8],
    meta: Meta,
    compression: Compression,
}

/// Calls `visit` with a record, decompressed. `location` is for the error.
#[inline]
fn visit_record(
    record: &Record<'_>,
    segments: &Segments,
    location: Location,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let (key, meta, version) = (record.key, record.meta, record.sequence);
    if record.compression == Compression::None {
        visit(RecordRef { key, value: record.value, meta, version });
        return Ok(());
    }
    let value = &decompressed(record, segments, location)?;
    visit(RecordRef { key, value, meta, version });
    Ok(())
}

#[inline(never)]
fn decompressed(record: &Record<'_>, segments: &Segments, location: Location) -> Result<Vec<u8>> {
    let damage = |what| {
        let offset = location.offset() as u64;
        match segments.get(location) {
            Some(segment) => segment.corrupted(offset, what),
            None => Error::Corrupted { file: PathBuf::new(), offset, what },
        }
    };
    compress::decompress(record.value, record.compression).map_err(|error| error.or_damage(damage))
}
