//! Preallocation: a background thread begins the next segment, and prepares the pages for the next
//! appends.

use super::Writer;
use crate::log::Log;
use crate::log::segments::Segment;
use crate::log::space::Pressure;
use crate::{Durability, Error, Result, UsableMemory};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that are prepared after the end of the log.
const PREALLOCATED_BYTES: usize = 8 << 20;

/// Bytes that are sent to the disk at a time where memory is limited.
const WRITTEN_BACK_BYTES: usize = 2 << 20;

impl Writer {
    #[inline]
    pub(super) fn want_preallocation(&self) {
        if !self.is_preallocation_wanted.load(Ordering::Relaxed)
            && !self.is_preallocation_wanted.swap(true, Ordering::Relaxed)
        {
            self.signals.wake();
        }
    }

    /// Returns whether preallocation is wanted.
    pub(in crate::log) fn is_preallocation_wanted(&self) -> bool {
        self.is_preallocation_wanted.load(Ordering::Relaxed)
    }
}

impl Log {
    /// Runs preallocation, if it is wanted.
    pub(in crate::log) fn preallocate(&self) -> Result<()> {
        let is_wanted = self.writer.is_preallocation_wanted.swap(false, Ordering::Relaxed);
        // All free space belongs to the reserve until it is whole.
        if is_wanted && !self.space.lacks_reserve(&self.segments) {
            self.begin_next_segment()?;
            self.preallocate_pages();
        }
        Ok(())
    }

    /// Begins the next segment if the active one is nearly full. A full disk is no error here: the
    /// writer that needs the space reports it.
    pub(crate) fn begin_next_segment(&self) -> Result<()> {
        // At the cap, a segment must be evicted first.
        if self.space.pressure() & (Pressure::ENDING | Pressure::FULL) != Pressure::ENDING {
            return Ok(());
        }
        let closed = self.writer.close_blocks();
        let mut tail = self.writer.lock();
        let needed = tail.segment.capacity + 1;
        if !tail.is_ending(0) || self.would_take_kept(&tail, needed) {
            return Ok(());
        }
        match self.rotate(&mut tail, 0, false, &closed) {
            Err(Error::NoSpace { .. }) => Ok(()),
            result => result,
        }
    }

    /// Allocates and populates the pages for the next appends.
    fn preallocate_pages(&self) {
        let (segment, end) = {
            let tail = self.writer.lock();
            (Arc::clone(&tail.segment), tail.appender.end())
        };
        let until = (end + PREALLOCATED_BYTES).min(segment.capacity);
        self.write_back_early(&segment, end);
        // If the segment is sealed meanwhile, maintenance cuts off the unused space.
        let kept = self.space.kept_free_bytes(&self.segments);
        loop {
            let _growing = segment.growing.lock();
            let step = self.writer.step(end);
            let is_short = kept > 0 && self.free_bytes() < kept.saturating_add(2 * step as u64);
            if is_short || segment.is_sealed() || segment.map.backed() >= until {
                break;
            }
            // The writer that needs the space reports a full disk.
            if self.writer.allocate(&segment, until.min(segment.map.backed() + step)).is_err() {
                break;
            }
        }
    }

    /// Starts to write appended bytes to the disk. If memory is limited, changed pages of files
    /// count and cannot be reclaimed before they are written.
    fn write_back_early(&self, active: &Segment, end: usize) {
        let always_syncs = self.writer.durability == Durability::Always;
        if always_syncs || !UsableMemory::of_process().is_limited {
            return;
        }
        let mut written_back = self.writer.written_back.lock();
        let (number, before) = *written_back;
        if number != active.number {
            for sealed in self.segments().iter().filter(|segment| segment.number == number) {
                sealed.file.write_back(before as u64, sealed.bytes().saturating_sub(before as u64));
            }
            *written_back = (active.number, 0);
        }
        let before = written_back.1;
        if end.saturating_sub(before) >= WRITTEN_BACK_BYTES {
            active.file.write_back(before as u64, (end - before) as u64);
            written_back.1 = end;
        }
    }
}
