//! The log: what every disk engine stands on.
//!
//! A log is a directory of numbered segments to which records are appended, one behind the
//! other. An engine keeps an index from keys to [`Location`]s, in memory; the log keeps what the
//! index points to, across the death of the process or of the power, and gives back the space
//! of what it no longer points to.
//!
//! # Threads and locks
//!
//! - Any thread may append or read. `tail` is held for the copy of a record into the mapped
//!   segment, so that whatever lies before an acknowledged record is whole: a process that is
//!   killed can only leave a torn record at the very end.
//! - `sync` is held while files are being synced, by the syncing thread or a caller.
//! - `structure` is held while the set of segments changes, `maintenance` by whatever takes
//!   segments out or relies on none being taken out.
//! - Order: `maintenance`, then an engine's own locks, then `sync`, `tail`, `structure`.
//! - Readers take no lock: they load the set of segments, which keeps each one mapped.
//!   An engine loads it while it holds the lock that protects the location, and compaction takes
//!   a segment out only after it has changed every such location under the same lock.
//!
//! # Cost of an append
//!
//! One lock, one copy into mapped pages that a background thread has populated ahead, and the
//! checksum of twelve bytes: the rest of it is computed before the lock is taken.

mod background;
mod checkpoint;
mod commit;
mod compact;
mod manifest;
mod read;
pub(crate) mod record;
mod recover;
mod scan;
pub(crate) mod segment;
mod snapshot;

pub(crate) use background::{Background, Engaged};
pub(crate) use compact::{Rescue, Usage};
pub(crate) use read::{Check, with_record};
pub(crate) use recover::Recovery;
pub(crate) use segment::{Location, Segment, Segments};

use crate::io::{Appender, Open, Storage};
use crate::limits::BATCH_LOG_BYTES_MAX;
use crate::{Durability, Error, LogPosition, Result};
use arc_swap::ArcSwap;
use commit::Commit;
use parking_lot::Mutex;
use read::FirstRead;
use record::{Kind, Prepared};
use segment::{SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES, SegmentHeader, segment_path};
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Random numbers that tell a log's files from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) id: u64,
    pub(crate) hash_seed: u64,
    pub(crate) salt: u32,
}

/// How a log is kept.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) durability: Durability,
    /// Capacity of the segments of a small log, in bytes.
    pub(crate) segment_bytes_min: usize,
    /// Capacity of the segments of a large one.
    pub(crate) segment_bytes_max: usize,
    /// Share of dead bytes above which compaction works.
    pub(crate) dead_percent_max: u8,
    /// Most bytes a second that compaction reads while there is no hurry.
    pub(crate) compaction_bytes_per_second: u64,
}

impl Settings {
    pub(crate) fn of(options: &crate::Options) -> Self {
        let fixed = options.segment_bytes.map(|bytes| {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            bytes.clamp(64 << 10, SEGMENT_BYTES_MAX)
        });
        Self {
            durability: options.durability,
            segment_bytes_min: fixed.unwrap_or(4 << 20),
            segment_bytes_max: fixed.unwrap_or(SEGMENT_BYTES_MAX),
            dead_percent_max: options.dead_percent_max,
            compaction_bytes_per_second: options.compaction_bytes_per_second,
        }
    }
}

/// Bytes of file that are allocated at a time.
const ALLOCATION_BYTES: usize = 16 << 20;

/// As above, at the beginning of a segment: a small database stays small.
const ALLOCATION_BYTES_FIRST: usize = 1 << 20;

/// Name of the file whose blocks are the reserve.
const RESERVE_NAME: &str = "reserve";

/// Who appends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A writer that needs more space.
    Store,
    /// Compaction, which makes space. May use half of the reserve.
    Move,
    /// A removal, which makes space. May use the reserve.
    Remove,
}

/// Where a record went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    pub(crate) location: Location,
    pub(crate) sequence: u64,
}

struct Tail {
    segment: Arc<Segment>,
    appender: Appender,
    next_sequence: u64,
    /// Log position of the segment's beginning.
    base: LogPosition,
}

/// See the module.
pub(crate) struct Log {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    identity: Identity,
    settings: Settings,
    segments: ArcSwap<Segments>,
    tail: Mutex<Tail>,
    appended: AtomicU64,
    commit: Commit,
    sync: Mutex<()>,
    structure: Mutex<()>,
    /// Held by whatever takes segments out, or relies on none being taken out.
    maintenance: Mutex<()>,
    /// Log position at which the last checkpoint was begun.
    checkpointed: AtomicU64,
    /// Number of the segment that is being appended to.
    active_number: AtomicU64,
    /// The file of the reserve is there.
    reserved: AtomicBool,
    /// Sealed segments that were not synced yet, oldest first.
    unsynced: Mutex<Vec<Arc<Segment>>>,
    /// Segments that were removed but may still be read: what unmaps one takes its time, and that
    /// should not be a reader's.
    retired: Mutex<Vec<Arc<Segment>>>,
    /// A file was created or removed since the directory was synced.
    directory_changed: AtomicBool,
    /// The background is to allocate ahead.
    ahead_wanted: AtomicBool,
    /// A writer was refused for want of space.
    space_wanted: AtomicBool,
    /// Writers are faster than compaction: they are to wait a little.
    behind: AtomicBool,
    figures: Figures,
    background: background::Signals,
    _lock: Box<dyn Any + Send + Sync>,
}

/// Counts of what the log did since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) syncs: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) compacted_bytes: AtomicU64,
    pub(crate) moved_bytes: AtomicU64,
}

impl Log {
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn figures(&self) -> &Figures {
        &self.figures
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The segments of this moment. Load it under the lock that protects the location looked up.
    #[inline]
    pub(crate) fn segments(&self) -> arc_swap::Guard<Arc<Segments>> {
        self.segments.load()
    }

    pub(crate) fn appended(&self) -> LogPosition {
        self.appended.load(Ordering::Acquire)
    }

    pub(crate) fn commit(&self) -> &Commit {
        &self.commit
    }

    /// Lays out a record of this log.
    #[inline]
    pub(crate) fn prepare<'a>(
        &self,
        kind: Kind,
        key: &'a [u8],
        value: &'a [u8],
        meta: crate::Meta,
        compression: crate::Compression,
    ) -> Prepared<'a> {
        Prepared::new(self.identity.salt, kind, key, value, meta, compression)
    }

    /// Appends a record under the next sequence number.
    pub(crate) fn append(&self, mut record: Prepared<'_>, purpose: Purpose) -> Result<Appended> {
        let total = record.total();
        let mut tail = self.tail.lock();
        self.make_room(&mut tail, total, 0, purpose)?;
        let sequence = tail.next_sequence;
        let location = self.put_down(&mut tail, &record.seal(sequence), total)?;
        tail.next_sequence += 1;
        drop(tail);
        self.after_append();
        Ok(Appended { location, sequence })
    }

    /// Appends a tombstone, which says itself in which segment it is born.
    pub(crate) fn append_tombstone(&self, key: &[u8]) -> Result<Appended> {
        // The segment may change until the tail is locked, but only to a later one, and what the
        // tombstone removes lies in this one or before: the caller holds the key's lock.
        let birth = self.active_number.load(Ordering::Acquire);
        self.append_tombstone_born_in(key, birth)
    }

    pub(crate) fn append_tombstone_born_in(&self, key: &[u8], birth: u64) -> Result<Appended> {
        let birth = birth.to_le_bytes();
        let meta = crate::Meta::NONE;
        let none = crate::Compression::None;
        let record = self.prepare(Kind::Tombstone, key, &birth, meta, none);
        let total = record.total();
        let appended = self.append(record, Purpose::Remove)?;
        if let Some(segment) = self.segments().get(appended.location) {
            segment.add_tombstone(total);
        }
        Ok(appended)
    }

    /// Appends records as a batch: after a crash there are all of them or none. `each` is told
    /// the index and the place of each one. The last one should be the longest: all begin within
    /// the reach of a [`Location`].
    pub(crate) fn append_batch(
        &self,
        records: &mut [Prepared<'_>],
        mut each: impl FnMut(usize, Appended),
    ) -> Result<()> {
        let inner: usize = records.iter().map(Prepared::total).sum();
        let last_at = inner - records.last().map_or(0, Prepared::total);
        if last_at > BATCH_LOG_BYTES_MAX || inner > record::RECORD_BYTES_MAX {
            return Err(Error::BatchTooLong { bytes: last_at, max: BATCH_LOG_BYTES_MAX });
        }
        let mut bytes = Vec::with_capacity(inner);
        let mut tail = self.tail.lock();
        let mut offsets = Vec::with_capacity(records.len());
        let first = tail.next_sequence;
        for (record, sequence) in records.iter_mut().zip(first + 1..) {
            offsets.push((bytes.len(), sequence));
            record.write_to(sequence, &mut bytes);
        }
        // A key of zeros makes the records behind the header begin where records may begin.
        let probe = self.prepare_batch(&[], &bytes);
        let padding = [0u8; record::ALIGNMENT];
        let padding = &padding[..probe.padding_to_align_value()];
        let mut batch = self.prepare_batch(padding, &bytes);
        let total = batch.total();
        self.make_room(&mut tail, total, total - inner + last_at, Purpose::Store)?;
        let location = self.put_down(&mut tail, &batch.seal(first), total)?;
        tail.next_sequence = first + 1 + records.len() as u64;
        let start = location.offset() + (total - inner);
        for (index, (offset, sequence)) in offsets.into_iter().enumerate() {
            let location = Location::new(location.slot(), start + offset);
            each(index, Appended { location, sequence });
        }
        drop(tail);
        self.after_append();
        Ok(())
    }

    fn prepare_batch<'a>(&self, padding: &'a [u8], records: &'a [u8]) -> Prepared<'a> {
        self.prepare(Kind::Batch, padding, records, crate::Meta::NONE, crate::Compression::None)
    }

    /// Appends the bytes of a record that is already in the log, as they are.
    pub(crate) fn append_copy(&self, bytes: &[u8]) -> Result<Location> {
        let mut tail = self.tail.lock();
        self.make_room(&mut tail, bytes.len(), 0, Purpose::Move)?;
        let location = self.put_down(&mut tail, &[bytes], bytes.len())?;
        drop(tail);
        self.after_append();
        Ok(location)
    }

    fn put_down(&self, tail: &mut Tail, parts: &[&[u8]], total: usize) -> Result<Location> {
        let offset = tail.appender.end();
        if !tail.appender.append(parts, total) {
            // `make_room` has seen to it that there is room.
            return Err(Error::NoSpace { path: tail.segment.path.clone() });
        }
        self.appended.store(tail.base + tail.appender.end() as u64, Ordering::Release);
        Ok(Location::new(tail.segment.slot, offset))
    }

    #[inline]
    fn after_append(&self) {
        if self.settings.durability == Durability::Always {
            self.commit.nudge();
        }
    }

    /// Makes the tail's segment one that `total` more bytes fit into, of which the last record
    /// begins at `last_at`.
    #[inline]
    fn make_room(
        &self,
        tail: &mut Tail,
        total: usize,
        last_at: usize,
        purpose: Purpose,
    ) -> Result<()> {
        self.commit.check()?;
        let reserve = self.reserve_for(purpose, tail.segment.capacity);
        let backed = tail.segment.map.backed();
        let needed = tail.appender.end() + total + reserve;
        if needed <= backed && tail.appender.end() + last_at < SEGMENT_BYTES_MAX {
            if backed - needed < ALLOCATION_BYTES_FIRST && backed < tail.segment.capacity {
                self.want_ahead();
            }
            return Ok(());
        }
        self.make_more_room(tail, total, last_at, purpose)
    }

    #[cold]
    fn make_more_room(
        &self,
        tail: &mut Tail,
        total: usize,
        last_at: usize,
        purpose: Purpose,
    ) -> Result<()> {
        let reserve = self.reserve_for(purpose, tail.segment.capacity);
        let needed = tail.appender.end() + total + reserve;
        let is_in_reach = tail.appender.end() + last_at < SEGMENT_BYTES_MAX;
        let result = if needed <= tail.segment.capacity && is_in_reach {
            self.allocate(&tail.segment, needed)
        } else {
            self.rotate(tail, total, false)
        };
        if !matches!(result, Err(Error::NoSpace { .. })) {
            return result;
        }
        if purpose == Purpose::Move && self.release_reserve() {
            return self.make_more_room(tail, total, last_at, purpose);
        }
        self.space_wanted.store(true, Ordering::Relaxed);
        self.background.wake();
        result
    }

    /// What is left free behind an append, so that space can still be reclaimed when the disk is
    /// full: a removal may have all of it, compaction half.
    #[inline]
    fn reserve_for(&self, purpose: Purpose, capacity: usize) -> usize {
        match purpose {
            Purpose::Store => self.reserve_bytes(capacity),
            Purpose::Move => self.reserve_bytes(capacity) / 2,
            Purpose::Remove => 0,
        }
    }

    fn reserve_bytes(&self, capacity: usize) -> usize {
        (256 << 10).min(capacity / 16)
    }

    /// Allocates blocks for at least `needed` bytes of a segment.
    fn allocate(&self, segment: &Segment, needed: usize) -> Result<()> {
        let step = if needed <= ALLOCATION_BYTES_FIRST {
            ALLOCATION_BYTES_FIRST
        } else {
            ALLOCATION_BYTES
        };
        let generous = (needed + step / 2).next_multiple_of(step).min(segment.capacity);
        let result = match segment.file.allocate(&segment.map, generous as u64) {
            Err(error) if is_full(&error) => segment.file.allocate(&segment.map, needed as u64),
            result => result,
        };
        result.map_err(|error| error_at("allocate", &segment.path, error))
    }

    /// Seals the tail's segment and begins another, in which `total` bytes fit.
    fn rotate(&self, tail: &mut Tail, total: usize, clears: bool) -> Result<()> {
        let wanted = self.next_capacity();
        let needed = SEGMENT_HEADER_BYTES + total;
        let capacity = if needed + self.reserve_bytes(wanted) <= wanted {
            wanted
        } else {
            needed + needed / 15 + record::ALIGNMENT
        };
        let header = SegmentHeader {
            number: tail.segment.number + 1,
            clears,
            first_sequence: tail.next_sequence,
            previous_bytes: tail.appender.end() as u64,
            capacity: capacity as u64,
        };
        let room = needed + self.reserve_bytes(capacity);
        let (segment, appender) = self.begin_segment(&header, room)?;
        tail.segment.sealed.store(true, Ordering::Release);
        self.unsynced.lock().push(Arc::clone(&tail.segment));
        tail.base += tail.appender.end() as u64;
        self.active_number.store(segment.number, Ordering::Release);
        tail.segment = segment;
        tail.appender = appender;
        self.appended.store(tail.base + tail.appender.end() as u64, Ordering::Release);
        self.note_whether_behind();
        self.background.wake();
        Ok(())
    }

    /// Capacity of the next segment: small in a small database, so that its dead bytes come
    /// within the reach of compaction soon.
    fn next_capacity(&self) -> usize {
        let live: u64 = self.segments().iter().map(|s| s.live_bytes.load(Ordering::Relaxed)).sum();
        let sixteenth = usize::try_from(live / 16).unwrap_or(usize::MAX);
        sixteenth
            .clamp(self.settings.segment_bytes_min, self.settings.segment_bytes_max)
            .next_multiple_of(4096)
            .min(SEGMENT_BYTES_MAX)
    }

    fn begin_segment(
        &self,
        header: &SegmentHeader,
        room: usize,
    ) -> Result<(Arc<Segment>, Appender)> {
        let path = segment_path(&self.directory, header.number);
        let _structure = self.structure.lock();
        let mut segments = Segments::clone(&self.segments.load());
        let slot = segments.free_slot().ok_or_else(|| {
            Error::NotSupported(format!("more than {} segments", segment::SEGMENTS_MAX))
        })?;
        let capacity = usize::try_from(header.capacity).unwrap_or(usize::MAX);
        let file = self
            .storage
            .open(&path, Open::New)
            .map_err(|error| error_at("create", &path, error))?;
        let begin = || {
            let map = file.map(capacity, 0).map_err(|error| error_at("map", &path, error))?;
            let segment = new_segment(header, slot, path.clone(), Arc::clone(&file), map);
            self.allocate(&segment, room)?;
            let Some(mut appender) = Appender::of(&segment.map) else {
                return Err(Error::NoSpace { path: path.clone() });
            };
            if !appender.append(&[&header.encode(&self.identity)], SEGMENT_HEADER_BYTES) {
                return Err(Error::NoSpace { path: path.clone() });
            }
            Ok((Arc::new(segment), appender))
        };
        let (segment, appender) = begin().inspect_err(|_| {
            // Left behind it would be in the way of the next try.
            let _ = self.storage.remove(&path);
        })?;
        segments.insert(Arc::clone(&segment));
        self.segments.store(Arc::new(segments));
        self.directory_changed.store(true, Ordering::Release);
        Ok((segment, appender))
    }

    /// Makes everything appended before the call durable.
    pub(crate) fn sync(&self) -> Result<LogPosition> {
        let _one_at_a_time = self.sync.lock();
        self.commit.check()?;
        let (position, active, sealed) = {
            let tail = self.tail.lock();
            let position = tail.base + tail.appender.end() as u64;
            (position, Arc::clone(&tail.segment), self.unsynced.lock().clone())
        };
        if self.directory_changed.swap(false, Ordering::AcqRel)
            && let Err(error) = self.storage.sync_dir(&self.directory)
        {
            return Err(self.stop(error_at("sync", &self.directory, error)));
        }
        for segment in sealed.iter().chain([&active]) {
            if let Err(error) = segment.file.sync() {
                return Err(self.stop(error_at("sync", &segment.path, error)));
            }
        }
        self.unsynced.lock().retain(|one| !sealed.iter().any(|done| Arc::ptr_eq(one, done)));
        self.figures.syncs.fetch_add(1, Ordering::Relaxed);
        self.commit.advance(position);
        Ok(position)
    }

    /// Makes the segments from this number on durable, as far as they are written.
    fn sync_from(&self, number: u64) -> Result<()> {
        let mut segments = self.segments().in_order();
        segments.retain(|segment| segment.number >= number);
        if self.directory_changed.swap(false, Ordering::AcqRel)
            && let Err(error) = self.storage.sync_dir(&self.directory)
        {
            return Err(self.stop(error_at("sync", &self.directory, error)));
        }
        let active = self.active_number();
        let (sealed, open): (Vec<_>, Vec<_>) = segments
            .into_iter()
            .partition(|segment| segment.number < active && segment.is_sealed());
        self.sync_sealed(&sealed)?;
        for segment in open {
            if let Err(error) = segment.file.sync() {
                return Err(self.stop(error_at("sync", &segment.path, error)));
            }
        }
        Ok(())
    }

    /// Makes sealed segments durable.
    fn sync_sealed(&self, sealed: &[Arc<Segment>]) -> Result<()> {
        let _one_at_a_time = self.sync.lock();
        self.commit.check()?;
        for segment in sealed {
            if let Err(error) = segment.file.sync() {
                return Err(self.stop(error_at("sync", &segment.path, error)));
            }
        }
        self.unsynced.lock().retain(|one| !sealed.iter().any(|done| Arc::ptr_eq(one, done)));
        Ok(())
    }

    /// Waits until `position` is durable.
    pub(crate) fn wait_durable(&self, position: LogPosition) -> Result<()> {
        if self.commit.durable() >= position {
            return Ok(());
        }
        if self.settings.durability == Durability::Always && self.background.is_running() {
            self.commit.nudge();
            return self.commit.wait(position);
        }
        self.sync().map(|_| ())
    }

    /// Sets blocks aside that compaction may have when the disk is full: half a segment, so that
    /// one of which half is dead can be moved. Better none than a refusal to open.
    fn keep_reserve(&self) {
        if self.reserved.load(Ordering::Acquire) {
            return;
        }
        let path = self.directory.join(RESERVE_NAME);
        let bytes = self.next_capacity() / 2;
        let make = || -> io::Result<()> {
            let file = match self.storage.open(&path, Open::New) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    self.storage.open(&path, Open::Existing)?
                }
                file => file?,
            };
            file.allocate(&file.map(bytes, 0)?, bytes as u64)
        };
        match make() {
            Ok(()) => self.reserved.store(true, Ordering::Release),
            Err(error) => {
                tracing::debug!("no reserve: {error}");
                let _ = self.storage.remove(&path);
            }
        }
    }

    /// Gives the reserve up; says whether there was one.
    fn release_reserve(&self) -> bool {
        self.reserved.swap(false, Ordering::AcqRel)
            && self.storage.remove(&self.directory.join(RESERVE_NAME)).is_ok()
    }

    /// Begins a new segment before which everything is void, and answers its number. The caller
    /// holds all locks of its index, and then calls [`Log::remove_before`] without them.
    pub(crate) fn clear(&self) -> Result<u64> {
        let mut tail = self.tail.lock();
        self.commit.check()?;
        if let Err(Error::NoSpace { .. }) = self.rotate(&mut tail, 0, true) {
            // Everything is about to go: what was allocated ahead may go first.
            self.release_reserve();
            let segment = &tail.segment;
            segment
                .file
                .give_back(&segment.map)
                .map_err(|error| error_at("cut", &segment.path, error))?;
            self.rotate(&mut tail, 0, true)?;
        }
        let first = tail.segment.number;
        drop(tail);
        let old: Vec<_> =
            self.segments().in_order().into_iter().filter(|old| old.number < first).collect();
        for segment in &old {
            segment.live_bytes.store(0, Ordering::Relaxed);
            segment.tombstone_bytes.store(0, Ordering::Relaxed);
        }
        Ok(first)
    }

    /// Number of the segment that is being appended to.
    pub(crate) fn active_number(&self) -> u64 {
        self.active_number.load(Ordering::Acquire)
    }

    /// Gives back what was allocated ahead. Nothing may be appended any more.
    pub(crate) fn trim(&self) -> Result<()> {
        let tail = self.tail.lock();
        let segment = &tail.segment;
        let given = segment.file.give_back(&segment.map);
        given.map_err(|error| error_at("cut", &segment.path, error))
    }

    /// Whether nothing was appended since the last checkpoint was begun.
    pub(crate) fn is_checkpointed(&self) -> bool {
        self.checkpointed.load(Ordering::Relaxed) == self.appended()
    }

    /// Names and figures worth showing.
    pub(crate) fn report(&self) -> Vec<(&'static str, String)> {
        let damaged = self.segments().iter().filter(|segment| segment.is_damaged()).count();
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed).to_string();
        vec![
            ("segments", self.segments().iter().count().to_string()),
            ("damaged_segments", damaged.to_string()),
            ("syncs", count(&self.figures.syncs)),
            ("compactions", count(&self.figures.compactions)),
            ("compacted_bytes", count(&self.figures.compacted_bytes)),
            ("moved_bytes", count(&self.figures.moved_bytes)),
        ]
    }

    /// Seals the active segment if there is something in it, so that all before is in segments
    /// that no longer change.
    pub(crate) fn seal(&self) -> Result<()> {
        let mut tail = self.tail.lock();
        if tail.appender.end() > SEGMENT_HEADER_BYTES {
            self.rotate(&mut tail, 0, false)?;
        }
        Ok(())
    }

    /// As `seal`, if the active segment is at least a quarter full. A full disk is no reason to
    /// fail: then the active segment is synced as it is.
    fn seal_if_worth_it(&self) -> Result<()> {
        let mut tail = self.tail.lock();
        if tail.appender.end() >= tail.segment.capacity / 4 {
            match self.rotate(&mut tail, 0, false) {
                Err(Error::NoSpace { .. }) => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Bytes that the log's files take on the disk.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.segments().iter().map(|segment| segment.bytes()).sum()
    }

    /// Counts a record that the index does not point to any more.
    #[inline]
    pub(crate) fn remove_live(&self, segments: &Segments, location: Location, bytes: usize) {
        if let Some(segment) = segments.get(location) {
            segment.remove_live(bytes);
        }
    }

    /// Whether writers are to slow down for compaction.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed)
    }

    #[inline]
    fn want_ahead(&self) {
        if !self.ahead_wanted.load(Ordering::Relaxed)
            && !self.ahead_wanted.swap(true, Ordering::Relaxed)
        {
            self.background.wake();
        }
    }

    /// Stops all writing.
    fn stop(&self, error: Error) -> Error {
        self.commit.poison(&error);
        error
    }
}

fn new_segment(
    header: &SegmentHeader,
    slot: usize,
    path: PathBuf,
    file: Arc<dyn crate::io::File>,
    map: crate::io::Map,
) -> Segment {
    Segment {
        number: header.number,
        slot,
        path,
        file,
        map,
        capacity: usize::try_from(header.capacity).unwrap_or(usize::MAX),
        live_bytes: AtomicU64::new(0),
        tombstone_bytes: AtomicU64::new(0),
        next_expiry_ms: AtomicU64::new(u64::MAX),
        sealed: AtomicBool::new(false),
        resident: AtomicBool::new(true),
        first_read: FirstRead::default(),
        damaged: AtomicBool::new(false),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The error of an operation on a file; a full disk is told from the rest.
pub(crate) fn error_at(operation: &'static str, path: &Path, source: io::Error) -> Error {
    if is_full(&source) {
        return Error::NoSpace { path: path.to_owned() };
    }
    Error::Io { operation, path: path.to_owned(), source }
}
