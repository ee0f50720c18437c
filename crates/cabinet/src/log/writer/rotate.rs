//! Rotation: seals the active segment, begins the next one, and gives back preallocated space.

use super::Tail;
use super::allocate::reserve_bytes;
use super::append_blocks::AllClosed;
use crate::io::{Appender, Open};
use crate::log::record;
use crate::log::segments::{
    MARGIN_BYTES, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, segment_path,
};
use crate::log::space::Pressure;
use crate::log::{Log, error_at};
use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// State of a log at the moment its active segment was sealed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealed {
    /// Segments with a lower number hold everything appended before that moment, and nothing else.
    pub(crate) before: u64,
    pub(crate) next_sequence: u64,
}

impl Log {
    /// Seals the tail's segment and begins another, into which `total` bytes fit.
    pub(super) fn rotate(
        &self,
        tail: &mut Tail,
        total: usize,
        clears: bool,
        closed: &AllClosed<'_>,
    ) -> Result<()> {
        debug_assert!(closed.is_of(&self.writer.blocks), "blocks are in the active segment");
        let wanted = self.space.next_capacity(&self.segments);
        let needed = SEGMENT_HEADER_BYTES + total;
        let capacity = if needed + reserve_bytes(wanted) <= wanted {
            wanted
        } else {
            needed + needed / 15 + record::ALIGNMENT
        };
        let header = SegmentHeader {
            number: tail.segment.number + 1,
            is_bound: true,
            clears,
            is_behind_pages: !tail.has_changes,
            first_sequence: tail.next_sequence,
            previous_bytes: tail.appender.end() as u64,
            capacity: capacity as u64,
        };
        let needed_bytes = needed + reserve_bytes(capacity);
        self.manifest.allocate()?;
        let (segment, appender) = self.begin_segment(&header, needed_bytes)?;
        tail.segment.sealed.store(true, Ordering::Release);
        self.manifest.note_begun(header.number, clears, &tail.segment, header.first_sequence);
        self.commit.add_sealed(Arc::clone(&tail.segment));
        tail.base += tail.appender.end() as u64;
        self.writer.active_number.store(segment.number, Ordering::Release);
        tail.segment = segment;
        tail.appender = appender;
        tail.has_changes = false;
        self.space.lower(Pressure::ENDING);
        self.writer.note_appended(tail);
        self.space.note_pressure(&self.segments);
        self.maintenance.wake();
        Ok(())
    }

    fn begin_segment(
        &self,
        header: &SegmentHeader,
        needed_bytes: usize,
    ) -> Result<(Arc<Segment>, Appender)> {
        let directory = self.segments.directory();
        let path = segment_path(directory.path(), header.number);
        let capacity = usize::try_from(header.capacity).unwrap_or(usize::MAX);
        self.segments.add(|slot| {
            let file = directory
                .storage()
                .open(&path, Open::New)
                .map_err(|error| error_at("create", &path, error))?;
            let begin = || {
                let map = file.map(capacity, 0).map_err(|error| error_at("map", &path, error))?;
                let id = &self.database_id;
                let segment = Segment::new(header, id, slot, path.clone(), Arc::clone(&file), map);
                segment.all_live.begin();
                if self.space.quota().is_capped() {
                    segment.access_bits.watch(capacity);
                }
                self.writer.allocate(&segment, needed_bytes)?;
                let Some(mut appender) = Appender::of(&segment.map) else {
                    return Err(Error::NoSpace { path: path.clone() });
                };
                if !appender.append(&[&header.encode(&self.database_id)], SEGMENT_HEADER_BYTES) {
                    return Err(Error::NoSpace { path: path.clone() });
                }
                Ok((Arc::new(segment), appender))
            };
            begin().inspect_err(|_| {
                // A leftover file would make the next attempt fail.
                let _ = directory.storage().remove(&path);
            })
        })
    }

    /// Begins a new segment that makes everything before it void, and returns its number. The
    /// caller holds all locks of its index. It then releases them and calls [`Log::remove_before`].
    pub(crate) fn clear(&self) -> Result<u64> {
        let closed = self.writer.close_blocks();
        let mut tail = self.writer.lock();
        self.commit.check()?;
        if let Err(Error::NoSpace { .. }) = self.rotate(&mut tail, 0, true, &closed) {
            // Everything is about to be removed, so the preallocated space is given back first.
            self.space.release_reserve(self.segments.directory());
            let segment = &tail.segment;
            segment
                .file
                .give_back(&segment.map, MARGIN_BYTES)
                .map_err(|error| error_at("cut", &segment.path, error))?;
            self.rotate(&mut tail, 0, true, &closed)?;
        }
        let first = tail.segment.number;
        drop(tail);
        drop(closed);
        let old: Vec<_> =
            self.segments().in_order().into_iter().filter(|old| old.number < first).collect();
        for segment in &old {
            segment.live_bytes.set(0);
            segment.tombstone_bytes.store(0, Ordering::Relaxed);
        }
        Ok(first)
    }

    /// Gives back preallocated space, except for the margin.
    pub(crate) fn trim(&self) -> Result<()> {
        self.trim_to(MARGIN_BYTES)
    }

    /// Gives back preallocated space, except for `kept` bytes.
    fn trim_to(&self, kept: usize) -> Result<()> {
        let _closed = self.writer.close_blocks();
        let tail = self.writer.lock();
        let segment = &tail.segment;
        let _growing = segment.growing.lock();
        let given = segment.file.give_back(&segment.map, kept);
        given.map_err(|error| error_at("cut", &segment.path, error))
    }

    /// Seals the active segment unless it is empty, so that all records so far are in segments that
    /// no longer change.
    pub(crate) fn seal(&self) -> Result<Sealed> {
        let closed = self.writer.close_blocks();
        let mut tail = self.writer.lock();
        if tail.appender.end() > SEGMENT_HEADER_BYTES {
            self.rotate(&mut tail, 0, false, &closed)?;
        }
        Ok(Sealed { before: tail.segment.number, next_sequence: tail.next_sequence })
    }

    /// Seals the active segment if it is at least a quarter full. Returns whether it did. A full
    /// disk is no error: the active segment then stays as it is.
    pub(in crate::log) fn seal_if_worth_it(&self) -> Result<bool> {
        let closed = self.writer.close_blocks();
        let mut tail = self.writer.lock();
        if tail.appender.end() < tail.segment.capacity / 4 {
            return Ok(false);
        }
        match self.rotate(&mut tail, 0, false, &closed) {
            Err(Error::NoSpace { .. }) => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Records the final end of the log. Everything is synced, and nothing is appended later.
    pub(crate) fn note_closed(&self) -> Result<()> {
        let end = self.writer.lock().end();
        self.manifest.note_closed(end)?;
        // The manifest now records the end of the log, so the margin is not needed to find it.
        self.trim_to(0)
    }
}
