//! The segments of a log: its files, and the set of those that it has.
//!
//! Readers take no lock: they load the set, which keeps each of its segments mapped. An engine
//! loads the set while it holds the lock that protects a location. Compaction removes a segment
//! only after it has changed all such locations under the same lock.

mod access_bits;
mod all_live;
mod cold;
mod directory;
mod faults;
mod header;
mod large_value;
mod location;
mod paused;
mod read;
mod reader;
mod segment;
mod set;
mod walk;

#[cfg(test)]
pub(crate) use all_live::AllLive;
pub(super) use cold::Cold;
pub(super) use directory::Directory;
pub(crate) use faults::Faults;
pub(super) use header::{HeaderFound, read_beginning};
pub(crate) use header::{MARGIN_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader, read_header};
pub use large_value::LargeValue;
pub(super) use location::too_many_segments;
pub(crate) use location::{Location, Lsn, SEGMENT_BYTES_MAX, SEGMENTS_MAX, SegmentOffset};
pub(crate) use paused::PausedReader;
pub(crate) use read::{Check, peek_record, with_record, with_record_of};
pub(crate) use reader::{ReadOutcome, Reader};
pub(super) use segment::DISK_BLOCK_BYTES;
pub(crate) use segment::{Segment, segment_name, segment_number, segment_path};
pub(crate) use set::Segments;
pub(crate) use walk::Gap;

use crate::Result;
use crate::base::sync::Mutex;
use arc_swap::{ArcSwap, Guard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of segments whose pages are checked in one period.
const CHECKED_AT_ONCE: usize = 64;

/// The set of segments of an open log, in its directory.
pub(super) struct SegmentSet {
    current: ArcSwap<Segments>,
    /// Number of changes of the set.
    changes: AtomicU64,
    directory: Directory,
    /// Held while the set changes.
    structure: Mutex<()>,
    /// Segments that were removed but may still be read. Unmapping one takes long, which a reader
    /// should not do.
    retired: Mutex<Vec<Arc<Segment>>>,
    /// Number of reads that met damage in segments that were removed.
    damaged_reads: AtomicU64,
    /// Number of records read from the disk in segments that were removed.
    cold_reads: AtomicU64,
    /// Number of segments whose pages were checked.
    checked: AtomicUsize,
}

impl SegmentSet {
    pub(super) fn new(directory: Directory, segments: Segments) -> Self {
        Self {
            current: ArcSwap::from_pointee(segments),
            changes: AtomicU64::new(0),
            directory,
            structure: Mutex::default(),
            retired: Mutex::default(),
            damaged_reads: AtomicU64::new(0),
            cold_reads: AtomicU64::new(0),
            checked: AtomicUsize::new(0),
        }
    }

    /// Returns the current segments.
    #[inline]
    pub(super) fn load(&self) -> Guard<Arc<Segments>> {
        self.current.load()
    }

    /// Returns the number of changes of the set. A set that is loaded afterwards includes that
    /// change.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Replaces the set.
    fn store(&self, segments: Segments) {
        self.current.store(Arc::new(segments));
        self.changes.fetch_add(1, Ordering::Release);
    }

    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Adds the segment that `begin` creates for a slot.
    pub(super) fn add<T>(
        &self,
        begin: impl FnOnce(usize) -> Result<(Arc<Segment>, T)>,
    ) -> Result<(Arc<Segment>, T)> {
        let _structure = self.structure.lock();
        let mut segments = Segments::clone(&self.current.load());
        let slot = segments.free_slot().ok_or_else(too_many_segments)?;
        let (segment, begun) = begin(slot)?;
        segments.insert(Arc::clone(&segment));
        self.store(segments);
        self.directory.note_change();
        Ok((segment, begun))
    }

    /// Removes a segment from the set.
    pub(super) fn take_out(&self, segment: &Arc<Segment>) {
        {
            let _structure = self.structure.lock();
            let mut segments = Segments::clone(&self.current.load());
            if !segments.remove(segment) {
                return;
            }
            segment.taken_out.store(true, Ordering::Release);
            self.store(segments);
            // A report, which takes this lock, counts the segment exactly once.
            self.damaged_reads.fetch_add(segment.faults.count(), Ordering::Relaxed);
            self.cold_reads.fetch_add(segment.first_read.count(), Ordering::Relaxed);
        }
        self.retired.lock().push(Arc::clone(segment));
    }

    /// Drops segments that were removed and are no longer read.
    pub(super) fn drop_retired(&self) {
        self.retired.lock().retain(|segment| Arc::strong_count(segment) > 1);
    }

    /// Returns the number of reads that met damage since the log was opened.
    pub(super) fn damaged_reads(&self) -> u64 {
        let _structure = self.structure.lock();
        let gone = self.damaged_reads.load(Ordering::Relaxed);
        gone + self.load().iter().map(|segment| segment.faults.count()).sum::<u64>()
    }

    /// Returns the number of reads that had to wait for the disk since the log was opened.
    pub(super) fn cold_reads(&self) -> u64 {
        let _structure = self.structure.lock();
        let gone = self.cold_reads.load(Ordering::Relaxed);
        gone + self.load().iter().map(|segment| segment.first_read.count()).sum::<u64>()
    }

    /// Records which segments can be read through their mapping without waiting: at each call for
    /// some of them, in turn.
    pub(super) fn check_residency(&self) {
        let segments = self.load();
        let all: Vec<_> = segments.iter().collect();
        let first = self.checked.fetch_add(CHECKED_AT_ONCE, Ordering::Relaxed);
        for index in 0..all.len().min(CHECKED_AT_ONCE) {
            let segment = all[first.wrapping_add(index) % all.len()];
            let is_resident = segment.map.is_resident();
            segment.resident.store(is_resident, Ordering::Relaxed);
            segment.renew_period(is_resident);
        }
    }
}
