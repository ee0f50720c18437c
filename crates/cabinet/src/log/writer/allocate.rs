//! Allocation: reserves space for appends, in the active segment or in the next one.

use super::append_blocks::AllClosed;
use super::{Purpose, Tail, Writer};
use crate::log::segments::{MARGIN_BYTES, SEGMENT_BYTES_MAX, Segment};
use crate::log::space::{LARGE_CHANGE_BYTES, Pressure};
use crate::log::{Log, error_at, is_full};
use crate::{Durability, Error, Result, Wait};

/// Bytes of a file that are allocated at a time.
const ALLOCATION_BYTES: usize = 16 << 20;

/// Bytes that are allocated at the beginning of a segment: a small database stays small.
pub(in crate::log) const ALLOCATION_BYTES_FIRST: usize = 1 << 20;

/// Bytes that are allocated at a time where pages are also brought into memory.
const PREPARATION_BYTES: usize = 1 << 20;

/// Once fewer preallocated bytes than this are left, the writer wakes the background.
const PREALLOCATED_BYTES_MIN: usize = 4 << 20;

/// Maximum number of bytes that are left free after an append.
const RESERVE_BYTES_MAX: usize = 1 << 20;

/// The background begins the next segment when one part in this many of the active one is left.
/// Until it has, threads that must not wait pass their appends to others.
const ENDING_SHARE: usize = 64;

impl Log {
    /// Makes `total` more bytes fit into the tail's segment. The last record begins at `last_at`.
    /// Returns false if another segment is needed and append blocks may be open.
    #[inline]
    pub(super) fn allocate_for(
        &self,
        tail: &mut Tail,
        total: usize,
        last_at: usize,
        purpose: Purpose,
        closed: Option<&AllClosed<'_>>,
    ) -> Result<bool> {
        self.commit.check()?;
        let reserve = purpose.reserve_for(tail.segment.capacity);
        let backed = tail.segment.map.backed();
        let needed = tail.appender.end() + total + reserve;
        let is_in_reach = tail.appender.end() + last_at < SEGMENT_BYTES_MAX;
        // After the reserve was given up, its space is for compaction alone.
        let is_allowed = purpose == Purpose::Move || !self.space.has_given_reserve_up();
        if needed <= backed && is_in_reach && is_allowed {
            if backed - needed < PREALLOCATED_BYTES_MIN {
                if backed < tail.segment.capacity {
                    self.writer.want_preallocation();
                } else if tail.is_ending(total) {
                    self.space.raise(Pressure::ENDING);
                    self.writer.want_preallocation();
                }
            }
            return Ok(true);
        }
        self.allocate_more(tail, total, last_at, purpose, closed)
    }

    #[cold]
    fn allocate_more(
        &self,
        tail: &mut Tail,
        total: usize,
        last_at: usize,
        purpose: Purpose,
        closed: Option<&AllClosed<'_>>,
    ) -> Result<bool> {
        let max = self.space.quota().record_bytes_max();
        if purpose == Purpose::Store && total > max {
            return Err(Error::ValueTooLong { bytes: total, max });
        }
        let reserve = purpose.reserve_for(tail.segment.capacity);
        let needed = tail.appender.end() + total + reserve;
        let is_in_reach = tail.appender.end() + last_at < SEGMENT_BYTES_MAX;
        let takes_kept = purpose != Purpose::Move && self.would_take_kept(tail, needed);
        let takes_reserve = purpose != Purpose::Move && self.space.lacks_reserve(&self.segments);
        if takes_kept {
            self.space.want(&self.segments);
        }
        let result = if takes_kept && purpose == Purpose::Store || takes_reserve {
            Err(Error::NoSpace { path: self.directory().to_owned() })
        } else if needed <= tail.segment.capacity && is_in_reach {
            self.writer.allocate(&tail.segment, needed)
        } else {
            let Some(closed) = closed else { return Ok(false) };
            self.rotate(tail, total, false, closed)
        };
        if !matches!(result, Err(Error::NoSpace { .. })) {
            return result.map(|()| true);
        }
        if purpose == Purpose::Move && self.space.release_reserve(self.segments.directory()) {
            return self.allocate_more(tail, total, last_at, purpose, closed);
        }
        self.space.want(&self.segments);
        if purpose == Purpose::Store {
            self.space.quota().note_refused(true);
        }
        let least = tail.appender.end() + total + MARGIN_BYTES;
        if purpose == Purpose::Remove && least <= tail.segment.map.backed() {
            // A removal may use the reserve. Writers give space back before their next write.
            if least + reserve / 2 > tail.segment.map.backed() {
                self.space.note_dire();
            }
            return Ok(true);
        }
        result.map(|()| true)
    }

    /// Fails on a thread that must not wait if records with values of `value_bytes` bytes may well
    /// need another segment. For short values, callers check [`Pressure::ENDING`].
    #[inline]
    pub(crate) fn check_space_at_once(&self, value_bytes: usize, wait: Wait) -> Result<()> {
        let is_ready = wait == Wait::Block
            || value_bytes < self.settings.segment_bytes_min / ENDING_SHARE / 2
            || self.writer.tail.try_lock().is_none_or(|tail| !tail.is_ending(value_bytes));
        if is_ready { Ok(()) } else { Err(Error::WouldBlock) }
    }

    /// Returns whether allocating up to `needed` bytes of the segment, or beginning another one,
    /// would use space that is kept free for the next checkpoint.
    pub(super) fn would_take_kept(&self, tail: &Tail, needed: usize) -> bool {
        let kept = self.space.kept_free_bytes(&self.segments);
        let step = self.writer.step(needed).min(tail.segment.capacity);
        kept > 0 && self.free_bytes() < kept.saturating_add(step as u64)
    }
}

impl Purpose {
    /// Returns the number of bytes that are left free after an append, so that space can still be
    /// reclaimed when the disk is full. Compaction may use half of this reserve. A removal may use
    /// all of it when there is no other space.
    #[inline]
    fn reserve_for(self, capacity: usize) -> usize {
        match self {
            Self::Store | Self::Remove => reserve_bytes(capacity),
            Self::Move => reserve_bytes(capacity) / 2,
        }
    }
}

/// Returns the number of bytes of a segment that are left free, see [`Purpose::reserve_for`].
#[inline]
pub(super) fn reserve_bytes(capacity: usize) -> usize {
    RESERVE_BYTES_MAX.min(capacity / 16)
}

impl Tail {
    /// Returns whether the active segment is nearly full once `total` more bytes are in it.
    pub(super) fn is_ending(&self, total: usize) -> bool {
        let capacity = self.segment.capacity;
        let needed = self.appender.end() + total + reserve_bytes(capacity);
        needed + capacity / ENDING_SHARE > capacity
    }
}

impl Writer {
    /// Allocates at least the first `needed` bytes of a segment.
    pub(super) fn allocate(&self, segment: &Segment, needed: usize) -> Result<()> {
        let allocate = |bytes: usize| {
            // With constant syncs, prepared pages would be written twice. So would those of a large
            // record, which takes long anyway.
            let is_large = needed.saturating_sub(segment.map.backed()) >= LARGE_CHANGE_BYTES;
            if self.durability == Durability::None && !is_large {
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

    /// Returns how many bytes to allocate at a time after the first `end`.
    pub(super) fn step(&self, end: usize) -> usize {
        if end <= ALLOCATION_BYTES_FIRST {
            ALLOCATION_BYTES_FIRST
        } else if self.durability == Durability::None {
            PREPARATION_BYTES
        } else {
            ALLOCATION_BYTES
        }
    }
}
