//! The space that is free on the disk, and the part of it that is left for giving space back.

use super::Space;
use crate::log::Log;
use crate::log::segments::SegmentSet;
use crate::log::writer::ALLOCATION_BYTES_FIRST;
use crate::{Error, Result};
use std::sync::atomic::Ordering;

/// Part of the live bytes that is left free for checkpoints to move pages, and its bound.
const FREE_PART_OF_LIVE: u64 = 2;
const FREE_BYTES_MAX: u64 = 256 << 20;

impl Space {
    /// Whether a writer found the disk full since space was given back last.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Has space given back: by the background, or by a writer before it writes.
    pub(in crate::log) fn want(&self, segments: &SegmentSet) {
        self.is_wanted.store(true, Ordering::Relaxed);
        self.note_pressure(segments);
        self.signals.wake();
    }

    /// Has whatever is dead given back, however little it is: the next removals may be refused.
    pub(in crate::log) fn note_dire(&self) {
        self.is_dire.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_dire(&self) -> bool {
        self.is_wanted() && self.is_dire.load(Ordering::Relaxed)
    }

    /// Notes that a segment was given back.
    pub(in crate::log) fn note_gained(&self, segments: &SegmentSet) {
        self.is_wanted.store(false, Ordering::Relaxed);
        self.is_dire.store(false, Ordering::Relaxed);
        self.quota.note_refused(false);
        self.note_pressure(segments);
    }

    /// Bytes of the disk that are left free for the next checkpoint: its pages and its list, and a
    /// part of what is alive, so that pages can be moved.
    pub(in crate::log) fn kept_free_bytes(&self, segments: &SegmentSet) -> u64 {
        if !self.quota.needs_space() {
            return 0;
        }
        let moved = (segments.load().live_bytes() / FREE_PART_OF_LIVE).min(FREE_BYTES_MAX);
        self.checkpoint_needs_bytes(segments).saturating_add(moved)
    }

    /// Bytes that the next checkpoint takes: its pages, its list, and what is left of the segments
    /// that it begins and ends with.
    fn checkpoint_needs_bytes(&self, segments: &SegmentSet) -> u64 {
        let beside = self.quota.checkpoint_bytes() + 2 * self.next_capacity(segments) as u64;
        self.quota.unwritten_bytes().saturating_add(beside)
    }

    /// Whether a writer found the disk full, and it still is: others may have given space back.
    pub(in crate::log) fn is_disk_full(&self, segments: &SegmentSet) -> bool {
        let needed = self.kept_free_bytes(segments).saturating_add(ALLOCATION_BYTES_FIRST as u64);
        self.is_wanted() && !self.quota.is_capped() && segments.directory().free_bytes() < needed
    }
}

impl Log {
    /// Bytes that are free on the disk, if it says so.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.segments.directory().free_bytes()
    }

    /// As [`Space::checkpoint_needs_bytes`].
    pub(crate) fn checkpoint_needs_bytes(&self) -> u64 {
        self.space.checkpoint_needs_bytes(&self.segments)
    }

    /// Whether so little of the disk is free that a checkpoint should give space back.
    pub(crate) fn is_disk_short(&self) -> bool {
        let kept = self.space.kept_free_bytes(&self.segments);
        self.space.is_wanted() || kept > 0 && self.free_bytes() / 2 < kept
    }

    /// Sets the cap, to which the background then keeps the log.
    pub(crate) fn set_capacity(&self, bytes_max: u64) -> Result<()> {
        self.space.quota.set(bytes_max);
        if self.writer.lock().segment().capacity > self.space.quota.segment_bytes_max() {
            // It would count as full for as long as it is appended to.
            match self.seal() {
                // Eviction makes the space.
                Err(Error::NoSpace { .. }) => self.space.is_wanted.store(true, Ordering::Relaxed),
                sealed => drop(sealed?),
            }
        }
        for segment in self.segments().iter() {
            segment.access_bits.watch(segment.map.written().max(segment.capacity));
        }
        // A reserve that was set aside without a cap is not within the cap.
        self.space.keep_reserve(&self.segments);
        self.space.note_pressure(&self.segments);
        self.maintenance.wake();
        Ok(())
    }
}
