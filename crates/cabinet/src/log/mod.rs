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
//!   segment, or for setting a block aside that one thread fills, see [`lane`]. So a process that
//!   is killed can only leave a torn record at the very end, and one at the end of each block.
//! - `sync` is held while files are being synced, by the syncing thread or a caller.
//! - `structure` is held while the set of segments changes, `maintenance` by whatever takes
//!   segments out or relies on none being taken out.
//! - A lane's lock is held by the thread that appends to it, all of them while none may be open.
//! - A segment's `growing` is held while blocks are allocated ahead for it, or cut off.
//! - Order: `maintenance`, then an engine's own locks, then `sync`, the lanes, `tail`, `structure`,
//!   and last the manifest's.
//! - Readers take no lock: they load the set of segments, which keeps each one mapped.
//!   An engine loads it while it holds the lock that protects the location, and compaction takes
//!   a segment out only after it has changed every such location under the same lock.
//!
//! # Cost of an append
//!
//! One or two locks, one copy into mapped pages that a background thread has prepared ahead, and
//! the checksum of twelve bytes: the rest of it is computed before the lock is taken. What writers
//! change is on cache lines of its own, so that they do not take away what readers need.

mod append;
mod background;
mod capacity;
pub(crate) mod check;
pub(crate) mod checkpoint;
mod cold;
mod commit;
mod compact;
mod evict;
mod faults;
pub(crate) mod holes;
mod identify;
mod lane;
mod long;
mod long_change;
pub(crate) mod manifest;
mod persistence;
mod read;
mod reader;
pub(crate) mod record;
mod recover;
pub(crate) mod remains;
mod room;
mod scan;
pub(crate) mod segment;
mod snapshot;
mod survey;
mod sync;
mod used;
mod verify;

pub(crate) use append::{Appended, Purpose};
pub(crate) use background::{Background, Engaged};
pub(crate) use compact::{Rescue, SHORT_SEGMENTS_MAX, Usage, is_short};
pub use long::LongValue;
pub(crate) use long_change::LONG_CHANGE_BYTES;
pub(crate) use manifest::{Nature, StoredKind};
pub(crate) use read::{Check, peek_record, with_record};
pub(crate) use reader::{Next, Reader};
pub(crate) use recover::Recovery;
pub(crate) use segment::{Age, Location, Segment, Segments};

use crate::io::{Appender, Storage};
use crate::{Damage, Durability, Error, LogPosition};
use arc_swap::ArcSwap;
use capacity::Capacity;
use commit::Commit;
use crossbeam_utils::CachePadded;
use faults::Faults;
use parking_lot::{Mutex, MutexGuard};
use read::FirstRead;
use segment::{LiveBytes, SEGMENT_BYTES_MAX, SegmentHeader};
use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Instant;
use used::Used;

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
    /// Writes are spread over all lanes.
    pub(crate) eager_lanes: bool,
    /// Most bytes that the log takes on the disk when it is opened; 0 is unlimited.
    pub(crate) capacity_bytes: u64,
}

impl Settings {
    pub(crate) fn of(options: &crate::Options) -> Self {
        let fixed = options.segment_bytes.map(|bytes| {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            bytes.clamp(64 << 10, SEGMENT_BYTES_MAX)
        });
        let most = Capacity::new(options.capacity_bytes).segment_bytes_max();
        Self {
            durability: options.durability,
            segment_bytes_min: fixed.unwrap_or(4 << 20).min(most),
            segment_bytes_max: fixed.unwrap_or(SEGMENT_BYTES_MAX).min(most),
            dead_percent_max: options.dead_percent_max,
            compaction_bytes_per_second: options.compaction_bytes_per_second,
            eager_lanes: options.eager_lanes,
            capacity_bytes: options.capacity_bytes,
        }
    }
}

/// How often a writer looks whether the tail is free before it goes to sleep.
const TAIL_LOOKS: usize = 40;

struct Tail {
    segment: Arc<Segment>,
    appender: Appender,
    next_sequence: u64,
    /// The segment holds more than pages of leaves, or may do so.
    has_changes: bool,
    /// Log position of the segment's beginning.
    base: LogPosition,
}

/// See the module.
pub(crate) struct Log {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    identity: Identity,
    nature: Mutex<Nature>,
    manifest: manifest::Manifest,
    settings: Settings,
    segments: ArcSwap<Segments>,
    tail: CachePadded<Mutex<Tail>>,
    lanes: lane::Lanes,
    /// Log position behind the last append.
    appended: CachePadded<AtomicU64>,
    commit: Commit,
    /// Holds the place up to which everything was synced last, and which no mark tells of yet.
    sync: Mutex<Option<holes::Place>>,
    structure: Mutex<()>,
    /// Held by whatever takes segments out, or relies on none being taken out.
    maintenance: Mutex<()>,
    /// Log position at which the last checkpoint was begun.
    checkpointed: AtomicU64,
    /// Number of the segment that was appended to then.
    checkpointed_number: AtomicU64,
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
    /// What writers have to wait for, see [`Pressure`].
    pressure: AtomicU8,
    /// Changes of long values under way.
    long_changes: Mutex<usize>,
    capacity: Capacity,
    figures: Figures,
    /// What the opening found.
    damages: Vec<Damage>,
    background: background::Signals,
    _lock: Box<dyn Any + Send + Sync>,
}

/// Why writers have to wait: bits that may be set together.
pub(crate) struct Pressure;

impl Pressure {
    /// They are faster than compaction, and are to wait a little.
    pub(crate) const BEHIND: u8 = 1;
    /// The log has come to its cap, and something has to be evicted first.
    pub(crate) const FULL: u8 = 2;
    /// A change of a long value holds locks: nothing for those to wait for that may wait anyway.
    pub(crate) const LONG: u8 = 4;
    /// The disk is full, and removals take what is kept for them: dead space is to be given back
    /// first.
    pub(crate) const SCARCE: u8 = 8;
    /// The active segment is nearly full, and to begin the next one takes a while: nothing for
    /// those to wait for that may wait anyway.
    pub(crate) const ENDING: u8 = 16;
    /// The index takes too much memory until it is merged: they are to wait a little.
    pub(crate) const INDEX: u8 = 32;
}

/// Counts of what the log did since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) syncs: AtomicU64,
    /// Time in which the disk made files durable for these syncs.
    pub(crate) sync_us: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) compaction_us: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) checkpoint_us: AtomicU64,
    pub(crate) compacted_bytes: AtomicU64,
    pub(crate) moved_bytes: AtomicU64,
    /// Blocks given to threads.
    pub(crate) blocks: AtomicU64,
    /// Reads that met damage in segments that are gone.
    pub(crate) damaged_reads: AtomicU64,
    /// Records read from the disk in segments that are gone.
    pub(crate) cold_reads: AtomicU64,
}

/// Adds 1 to `count`, and the time since `began` to `total_us`.
fn count_timed(count: &AtomicU64, total_us: &AtomicU64, began: Instant) {
    count.fetch_add(1, Ordering::Relaxed);
    let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    total_us.fetch_add(us, Ordering::Relaxed);
}

impl Log {
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Places that did not hold what they should when the log was opened.
    pub(crate) fn damages(&self) -> &[Damage] {
        &self.damages
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

    /// Waits awake at first: the tail is mostly held for less time than it takes to go to sleep.
    #[inline]
    fn lock_tail(&self) -> MutexGuard<'_, Tail> {
        for _ in 0..TAIL_LOOKS {
            if let Some(tail) = self.tail.try_lock() {
                return tail;
            }
            std::hint::spin_loop();
        }
        self.tail.lock()
    }

    pub(crate) fn commit(&self) -> &Commit {
        &self.commit
    }

    /// Number of the segment that is being appended to.
    pub(crate) fn active_number(&self) -> u64 {
        self.active_number.load(Ordering::Acquire)
    }

    /// Whether nothing was appended since the last checkpoint was begun.
    pub(crate) fn is_checkpointed(&self) -> bool {
        self.checkpointed.load(Ordering::Relaxed) == self.appended()
    }

    /// Bytes appended since the last checkpoint was begun.
    pub(crate) fn since_checkpoint(&self) -> u64 {
        self.appended().saturating_sub(self.checkpointed.load(Ordering::Relaxed))
    }

    /// Segments begun since the last checkpoint was.
    pub(crate) fn segments_since_checkpoint(&self) -> u64 {
        self.active_number().saturating_sub(self.checkpointed_number.load(Ordering::Relaxed))
    }

    /// Names and figures worth showing.
    pub(crate) fn report(&self) -> Vec<(&'static str, String)> {
        let segments = self.segments();
        let damaged = segments.iter().filter(|segment| segment.is_damaged()).count();
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed).to_string();
        let usage = Usage::of(&segments);
        let in_use = usage.live_bytes + usage.tombstone_bytes;
        let cold_reads = self.cold_reads();
        let mut report = vec![
            ("segments", segments.iter().count().to_string()),
            ("log_bytes", usage.total_bytes.to_string()),
            ("dead_bytes", usage.total_bytes.saturating_sub(in_use).to_string()),
            ("damaged_segments", damaged.to_string()),
            ("damages", self.damages.len().to_string()),
            ("damaged_records", self.failed_reads().to_string()),
            ("cold_reads", cold_reads.to_string()),
            ("syncs", count(&self.figures.syncs)),
            ("sync_us", count(&self.figures.sync_us)),
            ("checkpoints", count(&self.figures.checkpoints)),
            ("checkpoint_us", count(&self.figures.checkpoint_us)),
            ("compactions", count(&self.figures.compactions)),
            ("compaction_us", count(&self.figures.compaction_us)),
            ("compacted_bytes", count(&self.figures.compacted_bytes)),
            ("moved_bytes", count(&self.figures.moved_bytes)),
            ("blocks", count(&self.figures.blocks)),
        ];
        if let Some(refusal) = self.write_refusal() {
            report.push(("write_refusal", refusal));
        }
        report
    }

    /// Returns why writers are refused at present, if they are.
    fn write_refusal(&self) -> Option<String> {
        match self.commit.check() {
            Err(error) => Some(error.to_string()),
            Ok(()) if self.is_disk_full() => {
                Some(Error::NoSpace { path: self.directory.clone() }.to_string())
            }
            Ok(()) => None,
        }
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

    /// What writers have to wait for: 0 for nothing, or bits of [`Pressure`].
    #[inline]
    pub(crate) fn pressure(&self) -> u8 {
        self.pressure.load(Ordering::Relaxed)
    }

    pub(crate) fn capacity(&self) -> &Capacity {
        &self.capacity
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
        live_bytes: LiveBytes::default(),
        tombstone_bytes: AtomicU64::new(0),
        next_expiry_ms: AtomicU64::new(u64::MAX),
        sealed: AtomicBool::new(false),
        resident: AtomicBool::new(true),
        first_read: FirstRead::default(),
        used: Used::default(),
        damaged: AtomicBool::new(false),
        emptied: AtomicBool::new(false),
        taken_out: AtomicBool::new(false),
        is_missing: false,
        growing: Mutex::default(),
        faults: Faults::default(),
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
