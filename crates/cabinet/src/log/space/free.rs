//! The free space of the disk, and the part of it that is kept for reclaiming space.

use super::Space;
use crate::log::Log;
use crate::log::segments::SegmentSet;
use crate::log::writer::ALLOCATION_BYTES_FIRST;
use crate::{Error, Result};
use std::sync::atomic::Ordering;

/// One part in this many of the live bytes is left free for checkpoints to move pages, up to a
/// maximum in bytes.
const FREE_PART_OF_LIVE: u64 = 2;
const FREE_BYTES_MAX: u64 = 256 << 20;

impl Space {
    /// Returns whether a writer found the disk full since space was last reclaimed.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Requests that space is reclaimed, by the background or by a writer before it writes.
    pub(in crate::log) fn want(&self, segments: &SegmentSet) {
        self.is_wanted.store(true, Ordering::Relaxed);
        self.note_pressure(segments);
        self.signals.wake();
    }

    /// Requests that dead bytes are reclaimed, however few: the next removals may be refused.
    pub(in crate::log) fn note_dire(&self) {
        self.is_dire.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_dire(&self) -> bool {
        self.is_wanted() && self.is_dire.load(Ordering::Relaxed)
    }

    /// Records that a segment was removed.
    pub(in crate::log) fn note_gained(&self, segments: &SegmentSet) {
        self.is_wanted.store(false, Ordering::Relaxed);
        self.is_dire.store(false, Ordering::Relaxed);
        self.quota.note_refused(false);
        self.note_pressure(segments);
    }

    /// Returns the number of bytes of the disk that are kept free for the next checkpoint: its
    /// pages, its list, and a part of the live bytes, so that pages can be moved.
    pub(in crate::log) fn kept_free_bytes(&self, segments: &SegmentSet) -> u64 {
        if !self.quota.needs_space() {
            return 0;
        }
        let moved = (segments.load().live_bytes() / FREE_PART_OF_LIVE).min(FREE_BYTES_MAX);
        self.checkpoint_needs_bytes(segments).saturating_add(moved)
    }

    /// Returns the number of bytes that the next checkpoint takes: its pages, its list, and the
    /// rest of the segments in which it begins and ends.
    fn checkpoint_needs_bytes(&self, segments: &SegmentSet) -> u64 {
        let beside = self.quota.checkpoint_bytes() + 2 * self.next_capacity(segments) as u64;
        self.quota.unwritten_bytes().saturating_add(beside)
    }

    /// Returns whether a writer found the disk full and it still is. Other processes may have freed
    /// space.
    pub(in crate::log) fn is_disk_full(&self, segments: &SegmentSet) -> bool {
        let needed = self.kept_free_bytes(segments).saturating_add(ALLOCATION_BYTES_FIRST as u64);
        self.is_wanted() && !self.quota.is_capped() && segments.directory().free_bytes() < needed
    }
}

impl Log {
    /// Returns the number of free bytes on the disk; `u64::MAX` if the disk does not report it.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.segments.directory().free_bytes()
    }

    /// Like [`Space::checkpoint_needs_bytes`].
    pub(crate) fn checkpoint_needs_bytes(&self) -> u64 {
        self.space.checkpoint_needs_bytes(&self.segments)
    }

    /// Returns whether so little of the disk is free that a checkpoint should reclaim space.
    pub(crate) fn is_disk_short(&self) -> bool {
        let kept = self.space.kept_free_bytes(&self.segments);
        self.space.is_wanted() || kept > 0 && self.free_bytes() / 2 < kept
    }

    /// Sets the cap. The background then holds the log to it.
    pub(crate) fn set_capacity(&self, bytes_max: u64) -> Result<()> {
        self.space.quota.set(bytes_max);
        if self.writer.lock().segment().capacity > self.space.quota.segment_bytes_max() {
            // The active segment would count as full until it is sealed.
            match self.seal() {
                // Eviction makes the space.
                Err(Error::NoSpace { .. }) => self.space.is_wanted.store(true, Ordering::Relaxed),
                sealed => drop(sealed?),
            }
        }
        for segment in self.segments().iter() {
            segment.access_bits.watch(segment.map.written().max(segment.capacity));
        }
        // A reserve that was set aside without a cap does not fit into the cap.
        self.space.keep_reserve(&self.segments);
        self.space.note_pressure(&self.segments);
        self.maintenance.wake();
        Ok(())
    }
}
