//! The quota: a cap on the bytes that a log takes on the disk.
//!
//! The cap covers the segments, two checkpoints (there are two while one replaces the other), and
//! one spare segment, which eviction may need while it works. A segment counts as full while it is
//! appended to.
//!
//! An append that begins a segment leaves space for two more, or wakes the background, which
//! evicts. If there is not even space for one, writers evict before they write. So a log exceeds
//! its cap only by the records that were being written when it became full, if those are longer
//! than a segment.

use super::Space;
use crate::limits::CAPACITY_BYTES_MIN;
use crate::log::segments::{DISK_BLOCK_BYTES, SEGMENT_BYTES_MAX, Segment, SegmentSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A segment takes at most one part in this many of the cap, so that little is left free.
const SEGMENTS_OF_CAP: u64 = 64;

/// Minimum capacity of a segment, in bytes.
const SEGMENT_BYTES_MIN: usize = 64 << 10;

/// A record, or a batch, takes at most one part in this many of the cap.
const RECORDS_OF_CAP: u64 = 4;

/// Bytes that the directory, the manifest and the lock file take.
const SMALL_FILES_BYTES: u64 = 4 * DISK_BLOCK_BYTES;

/// Number of segments for which the background keeps space free.
const SEGMENTS_FREE: u64 = 2;

/// The cap of a log, and counts that it needs. See the module.
#[derive(Debug)]
pub(crate) struct Quota {
    /// `u64::MAX` if there is no cap.
    bytes_max: AtomicU64,
    /// Bytes that a checkpoint would take.
    checkpoint_bytes: AtomicU64,
    evicted: AtomicU64,
    /// Bytes of changed pages, which the next checkpoint must write besides its list.
    unwritten_bytes: AtomicU64,
    /// Whether checkpoints reclaim space, and need some for it.
    needs_space: AtomicBool,
    /// Whether a put was refused since space was last reclaimed.
    refused: AtomicBool,
}

impl Quota {
    /// Creates a quota of `bytes_max` bytes. 0 is no cap; a cap below the minimum is raised to it.
    pub(in crate::log) fn new(bytes_max: u64) -> Self {
        let quota = Self {
            bytes_max: AtomicU64::new(0),
            checkpoint_bytes: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            unwritten_bytes: AtomicU64::new(0),
            needs_space: AtomicBool::new(false),
            refused: AtomicBool::new(false),
        };
        quota.set(bytes_max);
        quota
    }

    pub(super) fn set(&self, bytes_max: u64) {
        let bytes_max = if bytes_max == 0 { u64::MAX } else { bytes_max.max(CAPACITY_BYTES_MIN) };
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    pub(crate) fn bytes_max(&self) -> Option<u64> {
        Some(self.bytes_max.load(Ordering::Relaxed)).filter(|max| *max != u64::MAX)
    }

    #[inline]
    pub(crate) fn is_capped(&self) -> bool {
        self.bytes_max.load(Ordering::Relaxed) != u64::MAX
    }

    /// Returns the maximum size of a record, or of a batch, in bytes.
    pub(in crate::log) fn record_bytes_max(&self) -> usize {
        let max = self.bytes_max().map_or(u64::MAX, |max| max / RECORDS_OF_CAP);
        usize::try_from(max).unwrap_or(usize::MAX)
    }

    /// Returns the maximum capacity of a segment, in bytes.
    pub(in crate::log) fn segment_bytes_max(&self) -> usize {
        let part = self.bytes_max.load(Ordering::Relaxed) / SEGMENTS_OF_CAP;
        usize::try_from(part).unwrap_or(usize::MAX).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
    }

    /// Records how many bytes a checkpoint would take.
    pub(crate) fn note_checkpoint_bytes(&self, bytes: u64) {
        self.checkpoint_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn checkpoint_bytes(&self) -> u64 {
        self.checkpoint_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn count_evicted(&self, records: u64) {
        self.evicted.fetch_add(records, Ordering::Relaxed);
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}

/// Space that checkpoints need, in a log in which they reclaim space.
impl Quota {
    /// Keeps as much of the disk free from now on as a checkpoint needs.
    pub(crate) fn keep_space_for_checkpoints(&self) {
        self.needs_space.store(true, Ordering::Relaxed);
    }

    pub(super) fn needs_space(&self) -> bool {
        self.needs_space.load(Ordering::Relaxed)
    }

    /// Changes the bytes that a page is charged for the next checkpoint from `charged` to `bytes`.
    #[inline]
    pub(crate) fn charge_unwritten(&self, charged: &mut usize, bytes: usize) {
        if *charged != bytes {
            let more = (bytes as u64).wrapping_sub(*charged as u64);
            self.unwritten_bytes.fetch_add(more, Ordering::Relaxed);
            *charged = bytes;
        }
    }

    /// Records whether a put was refused since space was last reclaimed.
    pub(in crate::log) fn note_refused(&self, is_refused: bool) {
        self.refused.store(is_refused, Ordering::Relaxed);
    }

    pub(crate) fn has_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes of changed pages.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        self.unwritten_bytes.load(Ordering::Relaxed)
    }
}

/// Space for segments.
impl Space {
    /// Returns the capacity of the next segment, in bytes: small in a small database, so that
    /// compaction soon reaches its dead bytes.
    pub(in crate::log) fn next_capacity(&self, segments: &SegmentSet) -> usize {
        let sixteenth = usize::try_from(segments.load().live_bytes() / 16).unwrap_or(usize::MAX);
        sixteenth
            .clamp(self.segment_bytes_min, self.segment_bytes_max)
            .min(self.quota.segment_bytes_max())
            .next_multiple_of(4096)
            .min(SEGMENT_BYTES_MAX)
    }

    /// Returns how many segments can be begun: any number without a cap.
    fn segments_free(&self, segments: &SegmentSet) -> u64 {
        let Some(bytes_max) = self.quota.bytes_max() else { return u64::MAX };
        let next = self.next_capacity(segments) as u64;
        let taken = segments.load().disk_bytes();
        let checkpoint_bytes = self.quota.checkpoint_bytes();
        let beside = 2 * checkpoint_bytes.next_multiple_of(DISK_BLOCK_BYTES) + SMALL_FILES_BYTES;
        bytes_max.saturating_sub(taken + beside + next) / next
    }

    /// Returns how many bytes of a segment that will be evicted can be kept, if the segment is
    /// longer than the cap's segments. After the cap was lowered, one segment may hold more than
    /// must be evicted. A checkpoint shrinks with the records.
    pub(in crate::log) fn space_for_part_of(
        &self,
        segments: &SegmentSet,
        segment: &Segment,
    ) -> u64 {
        let Some(bytes_max) = self.quota.bytes_max() else { return 0 };
        if segment.bytes() <= self.quota.segment_bytes_max() as u64 {
            return 0;
        }
        let taken = segments.load().disk_bytes();
        let others = taken.saturating_sub(segment.disk_bytes());
        // The segments that are kept free, and two that may not be full.
        let free = (SEGMENTS_FREE + 3) * self.next_capacity(segments) as u64;
        let space = bytes_max.saturating_sub(free + 3 * SMALL_FILES_BYTES);
        let checkpoints = 2 * self.quota.checkpoint_bytes();
        let share = u128::from(taken) * u128::from(space)
            / (u128::from(taken) + u128::from(checkpoints)).max(1);
        u64::try_from(share).unwrap_or(u64::MAX).saturating_sub(others)
    }

    /// Returns whether so little space is left that a segment should be evicted.
    pub(in crate::log) fn is_short(&self, segments: &SegmentSet) -> bool {
        self.segments_free(segments) < SEGMENTS_FREE
    }

    /// Returns whether the background must evict.
    pub(in crate::log) fn wants_eviction(&self, segments: &SegmentSet) -> bool {
        (self.is_short(segments) || self.is_full(segments)) && !self.signals.stopping()
    }

    /// Returns whether writers must wait for eviction.
    pub(in crate::log) fn is_full(&self, segments: &SegmentSet) -> bool {
        self.quota.is_capped() && (self.segments_free(segments) == 0 || self.is_wanted())
    }
}
