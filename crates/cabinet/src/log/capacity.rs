//! A cap on the bytes that a log takes on the disk.
//!
//! Within the cap lie the segments, each of which counts as full while it is appended to, two
//! checkpoints (there are two while one takes the place of the other), and one segment to spare,
//! which eviction may need while it works. An append that begins a segment leaves room for two more
//! or wakes the background, which evicts. Where there is not even room for one, writers evict
//! before they write. So a log is beyond its cap only by what the writers of the moment had begun
//! when it was full, if that is longer than a segment.

use super::room::ALLOCATION_BYTES_FIRST;
use super::segment::{DISK_BLOCK_BYTES, SEGMENT_BYTES_MAX, Segment};
use super::{Log, Pressure};
use crate::limits::CAPACITY_BYTES_MIN;
use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Segments of this part of the cap or less: what is left free is then little.
const SEGMENTS_OF_CAP: u64 = 64;

/// Capacity of the smallest segments, in bytes.
pub(super) const SEGMENT_BYTES_MIN: usize = 64 << 10;

/// A record, or a batch, takes this part of the cap at most.
const RECORDS_OF_CAP: u64 = 4;

/// What the folder, the manifest and the lock take.
const SMALL_FILES_BYTES: u64 = 4 * DISK_BLOCK_BYTES;

/// Part of the live bytes that is left free for checkpoints to move pages, and its bound.
const FREE_PART_OF_LIVE: u64 = 2;
const FREE_BYTES_MAX: u64 = 256 << 20;

/// Segments for which the background keeps room.
const SEGMENTS_FREE: u64 = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct Capacity {
    /// `u64::MAX` if there is no cap.
    bytes_max: AtomicU64,
    /// Bytes that a checkpoint would take.
    checkpoint_bytes: AtomicU64,
    evicted: AtomicU64,
    /// Bytes that the next checkpoint has to write beside its list: those of changed pages.
    unwritten_bytes: AtomicU64,
    /// Checkpoints give space back, and need some for it.
    needs_space: AtomicBool,
    /// A put was refused since space was given back last.
    refused: AtomicBool,
}

impl Capacity {
    /// 0 is no cap; what is less than the least of one counts as that.
    pub(super) fn new(bytes_max: u64) -> Self {
        let capacity = Self {
            bytes_max: AtomicU64::new(0),
            checkpoint_bytes: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            unwritten_bytes: AtomicU64::new(0),
            needs_space: AtomicBool::new(false),
            refused: AtomicBool::new(false),
        };
        capacity.set(bytes_max);
        capacity
    }

    fn set(&self, bytes_max: u64) {
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

    /// Most bytes of a record, or of a batch.
    pub(super) fn record_bytes_max(&self) -> usize {
        let max = self.bytes_max().map_or(u64::MAX, |max| max / RECORDS_OF_CAP);
        usize::try_from(max).unwrap_or(usize::MAX)
    }

    /// Capacity of the largest segment.
    pub(super) fn segment_bytes_max(&self) -> usize {
        let part = self.bytes_max.load(Ordering::Relaxed) / SEGMENTS_OF_CAP;
        usize::try_from(part).unwrap_or(usize::MAX).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
    }

    /// Notes how many bytes a checkpoint would take.
    pub(crate) fn note_checkpoint_bytes(&self, bytes: u64) {
        self.checkpoint_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_evicted(&self, records: u64) {
        self.evicted.fetch_add(records, Ordering::Relaxed);
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}

/// What checkpoints need to give space back, of a log in which they do that.
impl Capacity {
    /// From now on as much of the disk is left free as a checkpoint needs.
    pub(crate) fn keep_space_for_checkpoints(&self) {
        self.needs_space.store(true, Ordering::Relaxed);
    }

    /// A page takes so many bytes of the next checkpoint now, in place of those it took.
    #[inline]
    pub(crate) fn charge_unwritten(&self, charged: &mut usize, bytes: usize) {
        if *charged != bytes {
            let more = (bytes as u64).wrapping_sub(*charged as u64);
            self.unwritten_bytes.fetch_add(more, Ordering::Relaxed);
            *charged = bytes;
        }
    }

    /// Notes whether a put was refused since space was given back last.
    pub(super) fn note_refused(&self, is_refused: bool) {
        self.refused.store(is_refused, Ordering::Relaxed);
    }

    pub(crate) fn has_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Bytes of changed pages.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        self.unwritten_bytes.load(Ordering::Relaxed)
    }
}

impl Log {
    /// Bytes of the disk that are left free for the next checkpoint: its pages and its list, and a
    /// part of what is alive, so that pages can be moved.
    pub(crate) fn kept_free_bytes(&self) -> u64 {
        if !self.capacity.needs_space.load(Ordering::Relaxed) {
            return 0;
        }
        let live: u64 = self.segments().iter().map(|segment| segment.live_bytes.get()).sum();
        let moved = (live / FREE_PART_OF_LIVE).min(FREE_BYTES_MAX);
        self.checkpoint_needs_bytes().saturating_add(moved)
    }

    /// Bytes that the next checkpoint takes: its pages, its list, and what is left of the segments
    /// that it begins and ends with.
    pub(crate) fn checkpoint_needs_bytes(&self) -> u64 {
        let list = self.capacity.checkpoint_bytes.load(Ordering::Relaxed);
        self.capacity.unwritten_bytes().saturating_add(list + 2 * self.next_capacity() as u64)
    }

    /// Bytes that are free on the disk, if it says so.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.storage.free_bytes(&self.directory).unwrap_or(u64::MAX)
    }

    /// Whether so little of the disk is free that a checkpoint should give space back.
    pub(crate) fn is_disk_short(&self) -> bool {
        let kept = self.kept_free_bytes();
        self.space_wanted.load(Ordering::Relaxed) || kept > 0 && self.free_bytes() / 2 < kept
    }

    /// Whether a writer found the disk full since space was given back last.
    pub(crate) fn wants_space(&self) -> bool {
        self.space_wanted.load(Ordering::Relaxed)
    }

    /// Whether a writer found the disk full, and it still is: others may have given space back.
    pub(super) fn is_disk_full(&self) -> bool {
        let needed = self.kept_free_bytes().saturating_add(ALLOCATION_BYTES_FIRST as u64);
        self.wants_space() && !self.capacity.is_capped() && self.free_bytes() < needed
    }

    /// Nothing more can be given back for now: writers need not wait for it.
    pub(crate) fn give_up_reclaiming(&self) {
        self.pressure.fetch_and(!Pressure::SCARCE, Ordering::Relaxed);
    }

    /// Sets the cap, to which the background then keeps the log.
    pub(crate) fn set_capacity(&self, bytes_max: u64) -> Result<()> {
        self.capacity.set(bytes_max);
        if self.lock_tail().segment.capacity > self.capacity.segment_bytes_max() {
            // It would count as full for as long as it is appended to.
            match self.seal() {
                // Eviction makes the space.
                Err(Error::NoSpace { .. }) => self.space_wanted.store(true, Ordering::Relaxed),
                sealed => drop(sealed?),
            }
        }
        for segment in self.segments().iter() {
            segment.used.watch(segment.map.written().max(segment.capacity));
        }
        // What was set aside without a cap is not within it.
        self.keep_reserve();
        self.note_pressure();
        self.background.wake();
        Ok(())
    }

    /// How many segments can be begun, without a cap any number.
    fn segments_free(&self) -> u64 {
        let Some(bytes_max) = self.capacity.bytes_max() else { return u64::MAX };
        let next = self.next_capacity() as u64;
        let taken: u64 = self.segments().iter().map(|segment| segment.disk_bytes()).sum();
        let checkpoint_bytes = self.capacity.checkpoint_bytes.load(Ordering::Relaxed);
        let beside = 2 * checkpoint_bytes.next_multiple_of(DISK_BLOCK_BYTES) + SMALL_FILES_BYTES;
        bytes_max.saturating_sub(taken + beside + next) / next
    }

    /// Returns how many bytes of a segment that is to go there will be room for without it, if it
    /// is longer than those of the cap: where the cap was lowered, one segment may hold more than
    /// all that has to go. What a checkpoint takes shrinks with the records.
    pub(super) fn room_for_part_of(&self, segment: &Segment) -> u64 {
        let Some(bytes_max) = self.capacity.bytes_max() else { return 0 };
        if segment.bytes() <= self.capacity.segment_bytes_max() as u64 {
            return 0;
        }
        let taken: u64 = self.segments().iter().map(|one| one.disk_bytes()).sum();
        let others = taken.saturating_sub(segment.disk_bytes());
        // Those that are kept free, and two that may not be full.
        let free = (SEGMENTS_FREE + 3) * self.next_capacity() as u64;
        let room = bytes_max.saturating_sub(free + 3 * SMALL_FILES_BYTES);
        let checkpoints = 2 * self.capacity.checkpoint_bytes.load(Ordering::Relaxed);
        let share = u128::from(taken) * u128::from(room)
            / (u128::from(taken) + u128::from(checkpoints)).max(1);
        u64::try_from(share).unwrap_or(u64::MAX).saturating_sub(others)
    }

    /// Whether there is so little room that something should go.
    pub(super) fn is_short(&self) -> bool {
        self.segments_free() < SEGMENTS_FREE
    }

    /// Whether the background is to evict.
    pub(crate) fn wants_eviction(&self) -> bool {
        (self.is_short() || self.is_full()) && !self.background.stopping()
    }

    /// Whether writers are to wait for eviction.
    pub(super) fn is_full(&self) -> bool {
        self.capacity.is_capped()
            && (self.segments_free() == 0 || self.space_wanted.load(Ordering::Relaxed))
    }

    /// Has writers wait for the index, or no longer.
    pub(crate) fn note_index_pressure(&self, is_high: bool) {
        if is_high && self.background.is_running() {
            if self.pressure.fetch_or(Pressure::INDEX, Ordering::Relaxed) & Pressure::INDEX == 0 {
                self.background.wake();
            }
        } else {
            self.pressure.fetch_and(!Pressure::INDEX, Ordering::Relaxed);
        }
    }

    /// Looks what writers have to wait for.
    pub(super) fn note_pressure(&self) {
        let mut pressure = 0;
        if self.is_behind() {
            pressure |= Pressure::BEHIND;
        }
        if self.is_full() {
            pressure |= Pressure::FULL;
        } else if self.space_wanted.load(Ordering::Relaxed) {
            pressure |= Pressure::SCARCE;
        }
        // Long changes say themselves when they begin and end, and so do segments.
        let kept = Pressure::LONG | Pressure::ENDING | Pressure::INDEX | pressure;
        self.pressure.fetch_and(kept, Ordering::Relaxed);
        self.pressure.fetch_or(pressure, Ordering::Relaxed);
    }
}
