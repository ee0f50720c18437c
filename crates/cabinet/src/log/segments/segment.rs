//! A segment: one file of a log, with counts of its records.

use super::access_bits::AccessBits;
use super::all_live::AllLive;
use super::cold::Shared as Cold;
use super::faults::Faults;
use super::header::{SEGMENT_HEADER_BYTES, SegmentHeader};
use super::location::Location;
use super::read::FirstRead;
use crate::base::sync::Mutex;
use crate::io::{File, Map};
use crate::log::DatabaseId;
use crate::log::binding::Binding;
use crate::log::scan::Scanner;
use crate::log::stats::percent;
use crate::log::thread::number_of_thread;
use crossbeam_utils::CachePadded;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Bytes that file systems allocate to files at a time.
pub(in crate::log) const DISK_BLOCK_BYTES: u64 = 4096;

/// Count of bytes that many threads change: it is spread over cache lines, of which each thread has
/// mostly one.
#[derive(Default)]
pub(crate) struct LiveBytes([CachePadded<AtomicI64>; 16]);

impl LiveBytes {
    #[inline]
    fn add(&self, bytes: i64) {
        self.0[number_of_thread() % self.0.len()].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the sum. Counts come from a checkpoint that was written beside writers. So after a
    /// crash they may be off by the changes of that moment, but are never below zero.
    pub(crate) fn get(&self) -> u64 {
        let sum: i64 = self.0.iter().map(|part| part.load(Ordering::Relaxed)).sum();
        sum.max(0) as u64
    }

    /// Creates a count of `bytes` bytes.
    pub(crate) fn of(bytes: u64) -> Self {
        let live = Self::default();
        live.set(bytes);
        live
    }

    /// Sets the count. The caller keeps other threads from counting meanwhile.
    pub(crate) fn set(&self, bytes: u64) {
        for (index, part) in self.0.iter().enumerate() {
            let bytes = if index == 0 { i64::try_from(bytes).unwrap_or(i64::MAX) } else { 0 };
            part.store(bytes, Ordering::Relaxed);
        }
    }
}

/// One file of a log.
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) slot: usize,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) map: Map,
    /// Start and masks of the checksums of its records.
    pub(crate) binding: Binding,
    pub(crate) capacity: usize,
    /// Bytes of records that the engine's index points to.
    pub(crate) live_bytes: LiveBytes,
    /// Whether the index points to all records.
    pub(crate) all_live: AllLive,
    /// Bytes of tombstones.
    pub(crate) tombstone_bytes: AtomicU64,
    /// Earliest expiry among the records, in milliseconds since the Unix epoch; `u64::MAX` if none.
    pub(crate) next_expiry_ms: AtomicU64,
    /// Whether the segment is complete: nothing is appended to it any more.
    pub(crate) sealed: AtomicBool,
    /// Whether all its pages were in memory at the last check.
    pub(crate) resident: AtomicBool,
    /// Bytes of a record to read at first where its pages are not in memory.
    pub(crate) first_read: FirstRead,
    /// Whether a part of the segment could not be read. Then its file is kept.
    pub(crate) damaged: AtomicBool,
    /// Whether compaction has moved all live records. Then its file is removed with those of the
    /// next emptied segments.
    pub(in crate::log) emptied: AtomicBool,
    /// Whether the segment was removed from the set. Then another segment may have its slot.
    pub(in crate::log) taken_out: AtomicBool,
    /// Whether its file is missing. The segment is then a placeholder for records that cannot be
    /// read.
    pub(crate) is_missing: bool,
    /// Held while the file is extended before appends, or cut after the last record.
    pub(in crate::log) growing: Mutex<()>,
    /// Failed reads of the segment, and the resulting state of its file.
    pub(crate) faults: Faults,
    /// Access bits of its records, if there is a cap.
    pub(crate) access_bits: AccessBits,
    /// State shared by the readers that keep the segment out of the page cache.
    pub(super) cold: Cold,
}

impl Segment {
    /// Creates a segment with this header that can be appended to.
    pub(in crate::log) fn new(
        header: &SegmentHeader,
        database_id: &DatabaseId,
        slot: usize,
        path: PathBuf,
        file: Arc<dyn File>,
        map: Map,
    ) -> Self {
        Self {
            number: header.number,
            slot,
            path,
            file,
            map,
            binding: header.binding(database_id),
            capacity: usize::try_from(header.capacity).unwrap_or(usize::MAX),
            live_bytes: LiveBytes::default(),
            all_live: AllLive::default(),
            tombstone_bytes: AtomicU64::new(0),
            next_expiry_ms: AtomicU64::new(u64::MAX),
            sealed: AtomicBool::new(false),
            resident: AtomicBool::new(true),
            first_read: FirstRead::default(),
            access_bits: AccessBits::default(),
            damaged: AtomicBool::new(false),
            emptied: AtomicBool::new(false),
            taken_out: AtomicBool::new(false),
            is_missing: false,
            growing: Mutex::default(),
            faults: Faults::default(),
            cold: Cold::default(),
        }
    }

    /// Returns a copy of the segment with another map, for an opening: no record was read yet.
    pub(in crate::log) fn with_map(&self, map: Map) -> Self {
        let copy = |number: &AtomicU64| AtomicU64::new(number.load(Ordering::Relaxed));
        Self {
            number: self.number,
            slot: self.slot,
            path: self.path.clone(),
            file: Arc::clone(&self.file),
            map,
            binding: self.binding,
            capacity: self.capacity,
            live_bytes: LiveBytes::of(self.live_bytes.get()),
            all_live: AllLive::default(),
            tombstone_bytes: copy(&self.tombstone_bytes),
            next_expiry_ms: copy(&self.next_expiry_ms),
            sealed: AtomicBool::new(self.is_sealed()),
            resident: AtomicBool::new(true),
            first_read: FirstRead::default(),
            access_bits: AccessBits::default(),
            damaged: AtomicBool::new(self.is_damaged()),
            emptied: AtomicBool::new(false),
            taken_out: AtomicBool::new(false),
            is_missing: self.is_missing,
            growing: Mutex::default(),
            faults: Faults::default(),
            cold: Cold::default(),
        }
    }

    /// Returns a scanner of the records from `start` to `end`, offsets in bytes.
    pub(crate) fn scanner(&self, start: u64, end: u64) -> Scanner {
        Scanner::new(Arc::clone(&self.file), self.binding, start, end)
    }

    /// Returns the location of the record at an offset that a scan has visited.
    pub(crate) fn at(&self, offset: u64) -> Location {
        Location::new(self.slot, usize::try_from(offset).unwrap_or(usize::MAX))
    }

    /// Returns the number of bytes of the header and the records.
    pub(crate) fn bytes(&self) -> u64 {
        self.map.written() as u64
    }

    /// Returns the number of bytes that the file takes on the disk, or may come to take.
    pub(in crate::log) fn disk_bytes(&self) -> u64 {
        let bytes = if self.is_sealed() { self.map.backed() } else { self.capacity };
        (bytes as u64).max(self.bytes()).next_multiple_of(DISK_BLOCK_BYTES)
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Returns whether compaction has moved all live records.
    pub(crate) fn is_emptied(&self) -> bool {
        self.emptied.load(Ordering::Relaxed)
    }

    /// Returns whether the segment was removed from the set. A thread that finds, under the lock of
    /// its shard, an index entry that points to a later segment in the same slot sees that.
    pub(crate) fn is_taken_out(&self) -> bool {
        self.taken_out.load(Ordering::Acquire)
    }

    /// Returns the number of bytes that compaction would free. Tombstones count if no older segment
    /// is left.
    pub(crate) fn dead_bytes(&self, is_oldest: bool) -> u64 {
        let mut kept = self.live_bytes.get() + SEGMENT_HEADER_BYTES as u64;
        if !is_oldest {
            kept += self.tombstone_bytes.load(Ordering::Relaxed);
        }
        self.bytes().saturating_sub(kept)
    }

    /// Like `dead_bytes`, as a share of all bytes, in percent.
    pub(in crate::log) fn dead_percent(&self, is_oldest: bool) -> u64 {
        percent(self.dead_bytes(is_oldest), self.bytes())
    }

    pub(crate) fn add_live(&self, bytes: usize) {
        self.live_bytes.add(bytes as i64);
    }

    pub(crate) fn remove_live(&self, bytes: usize) {
        self.all_live.lose();
        self.live_bytes.add(-(bytes as i64));
    }

    pub(crate) fn add_tombstone(&self, bytes: usize) {
        self.tombstone_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn note_expiry(&self, expires_at_ms: u64) {
        if expires_at_ms != 0 {
            self.next_expiry_ms.fetch_min(expires_at_ms, Ordering::Relaxed);
        }
    }
}

/// Returns the file name of a segment.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:010}.log")
}

/// Returns the path of a segment.
pub(crate) fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(segment_name(number))
}

/// Returns the number in a segment's file name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    let number = digits.parse().ok()?;
    // The same number in another notation is another file.
    (segment_name(number) == name).then_some(number)
}
