//! Room for what is appended: blocks, segments, and what is left free for reclaiming.

use super::lane::Settled;
use super::long_change::LONG_CHANGE_BYTES;
use super::record;
use super::segment::{
    self, MARGIN_BYTES, SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES, Segment, SegmentHeader, Segments,
    segment_path,
};
use super::{Log, Pressure, Purpose, Tail, error_at, is_full, new_segment};
use crate::io::{Appender, Open};
use crate::{Durability, Error, Result};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of file that are allocated at a time.
const ALLOCATION_BYTES: usize = 16 << 20;

/// As above, at the beginning of a segment: a small database stays small.
pub(super) const ALLOCATION_BYTES_FIRST: usize = 1 << 20;

/// As above, where pages are also brought into memory.
const PREPARATION_BYTES: usize = 1 << 20;

/// The background is asked for more once less than this is left.
const AHEAD_BYTES_MIN: usize = 4 << 20;

/// Most bytes that are left free behind an append.
const RESERVE_BYTES_MAX: usize = 1 << 20;

/// Share of a segment, as a divisor, that is left when the background begins the next one. Threads
/// that must not wait leave their appends to others until that is done.
const ENDING_SHARE: usize = 64;

/// Name of the file whose blocks are the reserve.
pub(super) const RESERVE_NAME: &str = "reserve";

/// What a log had come to when its active segment was sealed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealed {
    /// Segments with a lower number hold everything up to that moment, and nothing else.
    pub(crate) before: u64,
    pub(crate) next_sequence: u64,
}

impl Log {
    /// Makes the tail's segment one that `total` more bytes fit into, of which the last record
    /// begins at `last_at`. False if another segment is needed and the lanes are not settled.
    #[inline]
    pub(super) fn make_room(
        &self,
        tail: &mut Tail,
        total: usize,
        last_at: usize,
        purpose: Purpose,
        settled: Option<&Settled<'_>>,
    ) -> Result<bool> {
        self.commit.check()?;
        let reserve = self.reserve_for(purpose, tail.segment.capacity);
        let backed = tail.segment.map.backed();
        let needed = tail.appender.end() + total + reserve;
        if needed <= backed && tail.appender.end() + last_at < SEGMENT_BYTES_MAX {
            if backed - needed < AHEAD_BYTES_MIN {
                if backed < tail.segment.capacity {
                    self.want_ahead();
                } else if self.is_ending(tail, total) {
                    self.pressure.fetch_or(Pressure::ENDING, Ordering::Relaxed);
                    self.want_ahead();
                }
            }
            return Ok(true);
        }
        self.make_more_room(tail, total, last_at, purpose, settled)
    }

    #[cold]
    pub(super) fn make_more_room(
        &self,
        tail: &mut Tail,
        total: usize,
        last_at: usize,
        purpose: Purpose,
        settled: Option<&Settled<'_>>,
    ) -> Result<bool> {
        let max = self.capacity.record_bytes_max();
        if purpose == Purpose::Store && total > max {
            return Err(Error::ValueTooLong { bytes: total, max });
        }
        let reserve = self.reserve_for(purpose, tail.segment.capacity);
        let needed = tail.appender.end() + total + reserve;
        let is_in_reach = tail.appender.end() + last_at < SEGMENT_BYTES_MAX;
        let takes_kept = purpose != Purpose::Move && self.would_take_kept(tail, needed);
        if takes_kept {
            self.want_space();
        }
        let result = if takes_kept && purpose == Purpose::Store {
            Err(Error::NoSpace { path: self.directory.clone() })
        } else if needed <= tail.segment.capacity && is_in_reach {
            self.allocate(&tail.segment, needed)
        } else {
            let Some(settled) = settled else { return Ok(false) };
            self.rotate(tail, total, false, settled)
        };
        if !matches!(result, Err(Error::NoSpace { .. })) {
            return result.map(|()| true);
        }
        if purpose == Purpose::Move && self.release_reserve() {
            return self.make_more_room(tail, total, last_at, purpose, settled);
        }
        self.want_space();
        if purpose == Purpose::Store {
            self.capacity.note_refused(true);
        }
        let least = tail.appender.end() + total + MARGIN_BYTES;
        if purpose == Purpose::Remove && least <= tail.segment.map.backed() {
            // What is kept is for removals. Writers give space back before the next one.
            return Ok(true);
        }
        result.map(|()| true)
    }

    /// Whether little is left of the active segment when `total` more bytes are in it.
    fn is_ending(&self, tail: &Tail, total: usize) -> bool {
        let capacity = tail.segment.capacity;
        let needed = tail.appender.end() + total + self.reserve_bytes(capacity);
        needed + capacity / ENDING_SHARE > capacity
    }

    /// Whether a record with a value of so many bytes hardly needs another segment, so that a
    /// thread may append it that must not wait. For short ones [`Pressure::ENDING`] tells.
    #[inline]
    pub(crate) fn has_room_at_once(&self, value_bytes: usize) -> bool {
        value_bytes < self.settings.segment_bytes_min / ENDING_SHARE / 2
            || self.tail.try_lock().is_none_or(|tail| !self.is_ending(&tail, value_bytes))
    }

    /// Begins the next segment if little is left of the active one. A full disk is for the writer
    /// to report that needs the space.
    pub(crate) fn begin_next_ahead(&self) -> Result<()> {
        // At its cap something has to be evicted first.
        if self.pressure() & (Pressure::ENDING | Pressure::FULL) != Pressure::ENDING {
            return Ok(());
        }
        let settled = self.settle();
        let mut tail = self.lock_tail();
        let needed = tail.segment.capacity + 1;
        if !self.is_ending(&tail, 0) || self.would_take_kept(&tail, needed) {
            return Ok(());
        }
        match self.rotate(&mut tail, 0, false, &settled) {
            Err(Error::NoSpace { .. }) => Ok(()),
            result => result,
        }
    }

    /// Has space given back: by the background, or by a writer before it writes.
    fn want_space(&self) {
        self.space_wanted.store(true, Ordering::Relaxed);
        self.note_pressure();
        self.background.wake();
    }

    /// Whether to allocate up to `needed` bytes of the segment, or to begin another one, would take
    /// from what is kept free for the next checkpoint.
    fn would_take_kept(&self, tail: &Tail, needed: usize) -> bool {
        let kept = self.kept_free_bytes();
        let step = self.step(needed).min(tail.segment.capacity);
        kept > 0 && self.free_bytes() < kept.saturating_add(step as u64)
    }

    /// What is left free behind an append, so that space can still be reclaimed when the disk is
    /// full: compaction may have half of it, and a removal, when there is no more to be had, all.
    #[inline]
    pub(super) fn reserve_for(&self, purpose: Purpose, capacity: usize) -> usize {
        match purpose {
            Purpose::Store | Purpose::Remove => self.reserve_bytes(capacity),
            Purpose::Move => self.reserve_bytes(capacity) / 2,
        }
    }

    pub(super) fn reserve_bytes(&self, capacity: usize) -> usize {
        RESERVE_BYTES_MAX.min(capacity / 16)
    }

    /// Allocates blocks for at least `needed` bytes of a segment.
    pub(super) fn allocate(&self, segment: &Segment, needed: usize) -> Result<()> {
        let allocate = |bytes: usize| {
            // With syncs all the time, prepared pages would be written twice; so would those of a
            // long record, which takes its time anyway.
            let is_long = needed.saturating_sub(segment.map.backed()) >= LONG_CHANGE_BYTES;
            if self.settings.durability == Durability::None && !is_long {
                segment.file.prepare(&segment.map, bytes as u64)
            } else {
                segment.file.allocate(&segment.map, bytes as u64)
            }
        };
        let step = self.step(needed);
        let generous = (needed + step / 2).next_multiple_of(step).min(segment.capacity);
        let result = match allocate(generous) {
            Err(error) if is_full(&error) => allocate(needed),
            result => result,
        };
        result.map_err(|error| error_at("allocate", &segment.path, error))
    }

    /// How many bytes to allocate at a time behind the first `end`.
    pub(super) fn step(&self, end: usize) -> usize {
        if end <= ALLOCATION_BYTES_FIRST {
            ALLOCATION_BYTES_FIRST
        } else if self.settings.durability == Durability::None {
            PREPARATION_BYTES
        } else {
            ALLOCATION_BYTES
        }
    }

    /// Seals the tail's segment and begins another, in which `total` bytes fit.
    pub(super) fn rotate(
        &self,
        tail: &mut Tail,
        total: usize,
        clears: bool,
        settled: &Settled<'_>,
    ) -> Result<()> {
        debug_assert!(settled.is_of(self), "blocks are in the active segment");
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
            is_behind_pages: !tail.has_changes,
            first_sequence: tail.next_sequence,
            previous_bytes: tail.appender.end() as u64,
            capacity: capacity as u64,
        };
        let room = needed + self.reserve_bytes(capacity);
        let (segment, appender) = self.begin_segment(&header, room)?;
        tail.segment.sealed.store(true, Ordering::Release);
        self.note_begun(header.number, clears, &tail.segment, header.first_sequence);
        self.unsynced.lock().push(Arc::clone(&tail.segment));
        tail.base += tail.appender.end() as u64;
        self.active_number.store(segment.number, Ordering::Release);
        tail.segment = segment;
        tail.appender = appender;
        tail.has_changes = false;
        self.pressure.fetch_and(!Pressure::ENDING, Ordering::Relaxed);
        self.appended.store(tail.base + tail.appender.end() as u64, Ordering::Release);
        self.note_pressure();
        self.background.wake();
        Ok(())
    }

    /// Capacity of the next segment: small in a small database, so that its dead bytes come
    /// within the reach of compaction soon.
    pub(super) fn next_capacity(&self) -> usize {
        let live: u64 = self.segments().iter().map(|s| s.live_bytes.get()).sum();
        let sixteenth = usize::try_from(live / 16).unwrap_or(usize::MAX);
        sixteenth
            .clamp(self.settings.segment_bytes_min, self.settings.segment_bytes_max)
            .min(self.capacity.segment_bytes_max())
            .next_multiple_of(4096)
            .min(SEGMENT_BYTES_MAX)
    }

    pub(super) fn begin_segment(
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
            if self.capacity.is_capped() {
                segment.used.watch(capacity);
            }
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

    /// Sets blocks aside that compaction may have when the disk is full: a segment, so that one of
    /// which little is dead can be moved. Better none than a refusal to open. With a cap there
    /// is none: eviction makes space without moving anything.
    pub(super) fn keep_reserve(&self) {
        let path = self.directory.join(RESERVE_NAME);
        if self.capacity.is_capped() {
            self.reserved.store(false, Ordering::Release);
            // Mostly there was none.
            let _ = self.storage.remove(&path);
            return;
        }
        if self.reserved.load(Ordering::Acquire) {
            return;
        }
        let bytes = self.next_capacity();
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
    pub(super) fn release_reserve(&self) -> bool {
        self.reserved.swap(false, Ordering::AcqRel)
            && self.storage.remove(&self.directory.join(RESERVE_NAME)).is_ok()
    }

    /// Begins a new segment before which everything is void, and answers its number. The caller
    /// holds all locks of its index, and then calls [`Log::remove_before`] without them.
    pub(crate) fn clear(&self) -> Result<u64> {
        let settled = self.settle();
        let mut tail = self.lock_tail();
        self.commit.check()?;
        if let Err(Error::NoSpace { .. }) = self.rotate(&mut tail, 0, true, &settled) {
            // Everything is about to go: what was allocated ahead may go first.
            self.release_reserve();
            let segment = &tail.segment;
            segment
                .file
                .give_back(&segment.map, MARGIN_BYTES)
                .map_err(|error| error_at("cut", &segment.path, error))?;
            self.rotate(&mut tail, 0, true, &settled)?;
        }
        let first = tail.segment.number;
        drop(tail);
        drop(settled);
        let old: Vec<_> =
            self.segments().in_order().into_iter().filter(|old| old.number < first).collect();
        for segment in &old {
            segment.live_bytes.set(0);
            segment.tombstone_bytes.store(0, Ordering::Relaxed);
        }
        Ok(first)
    }

    /// Gives back what was allocated ahead, but for the margin.
    pub(crate) fn trim(&self) -> Result<()> {
        self.trim_to(MARGIN_BYTES)
    }

    /// Gives back what was allocated ahead, but for so many bytes.
    pub(super) fn trim_to(&self, kept: usize) -> Result<()> {
        let _settled = self.settle();
        let tail = self.lock_tail();
        let segment = &tail.segment;
        let _growing = segment.growing.lock();
        let given = segment.file.give_back(&segment.map, kept);
        given.map_err(|error| error_at("cut", &segment.path, error))
    }

    /// Seals the active segment if there is something in it, so that all before is in segments
    /// that no longer change.
    pub(crate) fn seal(&self) -> Result<Sealed> {
        let settled = self.settle();
        let mut tail = self.lock_tail();
        if tail.appender.end() > SEGMENT_HEADER_BYTES {
            self.rotate(&mut tail, 0, false, &settled)?;
        }
        Ok(Sealed { before: tail.segment.number, next_sequence: tail.next_sequence })
    }

    /// As `seal`, if the active segment is at least a quarter full. A full disk is no reason to
    /// fail: then the active segment is synced as it is.
    pub(super) fn seal_if_worth_it(&self) -> Result<()> {
        let settled = self.settle();
        let mut tail = self.lock_tail();
        if tail.appender.end() >= tail.segment.capacity / 4 {
            match self.rotate(&mut tail, 0, false, &settled) {
                Err(Error::NoSpace { .. }) => {}
                result => result?,
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn want_ahead(&self) {
        if !self.ahead_wanted.load(Ordering::Relaxed)
            && !self.ahead_wanted.swap(true, Ordering::Relaxed)
        {
            self.background.wake();
        }
    }
}
