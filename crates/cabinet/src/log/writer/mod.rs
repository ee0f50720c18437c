//! The writer: appends records to the end of the log.
//!
//! The tail's lock is held while a record is copied into the mapped segment, or while a thread is
//! given an [append block](append_blocks). The thread fills its block under a lock of its own. The
//! next segment is begun with the tail locked and all append blocks closed.
//!
//! # Cost of an append
//!
//! An append takes one or two locks, one copy into mapped pages that a background thread has
//! preallocated, and the checksum of twelve bytes: the rest is computed before the lock is taken.
//! Fields that writers change have their own cache lines, so that they do not evict those that
//! readers need.

mod allocate;
mod append;
mod append_blocks;
#[cfg(test)]
mod interleavings;
mod preallocate;
mod rotate;

pub(super) use allocate::ALLOCATION_BYTES_FIRST;
pub(crate) use append::{Appended, Purpose};
pub(super) use rotate::Sealed;

use super::maintenance::Signals;
use super::record::{Kind, Prepared};
use super::segments::{Location, MARGIN_BYTES, SEGMENT_BYTES_MAX, Segment, SegmentOffset};
use super::space::LARGE_CHANGE_BYTES;
use crate::base::sync::{Mutex, MutexGuard};
use crate::io::Appender;
use crate::{Durability, Error, LogPosition, Result, UsableMemory};
use append_blocks::{AllClosed, AppendBlocks};
use crossbeam_utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of attempts of a writer to lock the tail before it goes to sleep.
const TAIL_LOOKS: usize = 40;

/// Bytes of a large record that are copied before they are sent to the disk.
const PIECE_BYTES: usize = 2 << 20;

/// The end of the log, to which records are appended.
pub(super) struct Tail {
    segment: Arc<Segment>,
    appender: Appender,
    next_sequence: u64,
    /// Whether the segment may hold records other than pages of leaves.
    has_changes: bool,
    /// Log position of the beginning of the segment.
    base: LogPosition,
}

/// The end of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) position: LogPosition,
    /// Number of the active segment, and the offset in it.
    pub(super) place: SegmentOffset,
    pub(super) next_sequence: u64,
}

impl Tail {
    pub(super) fn end(&self) -> End {
        let offset = self.appender.end() as u64;
        End {
            position: self.base + offset,
            place: (self.segment.number, offset),
            next_sequence: self.next_sequence,
        }
    }

    /// Returns the mask of a record that is appended next.
    #[inline]
    pub(super) fn mask(&self) -> u32 {
        self.segment.binding.mask(self.appender.end())
    }

    /// Returns the active segment.
    pub(super) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }
}

/// The writer of a log. See the module.
pub(super) struct Writer {
    tail: CachePadded<Mutex<Tail>>,
    blocks: AppendBlocks,
    /// Log position after the last append.
    appended: CachePadded<AtomicU64>,
    /// Number of the active segment.
    active_number: AtomicU64,
    /// Whether the background must preallocate.
    is_preallocation_wanted: AtomicBool,
    /// Number of a segment, and how many of its bytes were sent to the disk before a sync.
    written_back: Mutex<(u64, usize)>,
    durability: Durability,
    signals: Arc<Signals>,
}

impl Writer {
    /// Creates a writer that continues a segment after the bytes that the appender has.
    pub(super) fn new(
        segment: Arc<Segment>,
        appender: Appender,
        next_sequence: u64,
        settings: &super::Settings,
        signals: Arc<Signals>,
    ) -> Self {
        Self {
            appended: CachePadded::new(AtomicU64::new(appender.end() as u64)),
            active_number: AtomicU64::new(segment.number),
            tail: CachePadded::new(Mutex::new(Tail {
                segment,
                appender,
                next_sequence,
                has_changes: true,
                base: 0,
            })),
            blocks: AppendBlocks::new(settings),
            is_preallocation_wanted: AtomicBool::new(true),
            written_back: Mutex::default(),
            durability: settings.durability,
            signals,
        }
    }

    /// Returns the log position after the last append.
    pub(super) fn appended(&self) -> LogPosition {
        self.appended.load(Ordering::Acquire)
    }

    /// Returns the number of the active segment.
    pub(super) fn active_number(&self) -> u64 {
        self.active_number.load(Ordering::Acquire)
    }

    /// Locks the tail. Spins first: the tail is mostly held for less time than going to sleep
    /// takes.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Tail> {
        for _ in 0..TAIL_LOOKS {
            if let Some(tail) = self.tail.try_lock() {
                return tail;
            }
            std::hint::spin_loop();
        }
        self.tail.lock()
    }

    /// Closes all append blocks, and keeps them closed until the guard is dropped.
    pub(super) fn close_blocks(&self) -> AllClosed<'_> {
        self.blocks.close_all()
    }

    /// Returns the end of the log. No append block before it is open.
    pub(super) fn closed_end(&self) -> End {
        let _closed = self.close_blocks();
        self.lock().end()
    }

    /// Returns the number of append blocks that were given to threads.
    pub(super) fn blocks_begun(&self) -> u64 {
        self.blocks.begun()
    }

    /// Records the tail's end as the end of the log.
    #[inline(always)]
    fn note_appended(&self, tail: &Tail) {
        self.appended.store(tail.base + tail.appender.end() as u64, Ordering::Release);
    }

    /// Writes a record, for which the caller has allocated space.
    #[inline(always)]
    fn write_record(&self, tail: &mut Tail, parts: &[&[u8]], total: usize) -> Result<Location> {
        let offset = tail.appender.end();
        let is_written = if total < LARGE_CHANGE_BYTES {
            tail.appender.append(parts, total)
        } else {
            write_large(tail, parts, total)
        };
        if !is_written {
            // The caller has allocated space.
            return Err(no_space(tail));
        }
        self.note_appended(tail);
        Ok(Location::new(tail.segment.slot, offset))
    }

    /// Writes a record under the next sequence number. The caller has allocated space.
    #[inline(always)]
    fn append_to(
        &self,
        tail: &mut Tail,
        mut record: Prepared<'_>,
        total: usize,
    ) -> Result<Appended> {
        let sequence = tail.next_sequence;
        tail.has_changes |= !record.is_page();
        let mask = tail.mask();
        let location = self.write_record(tail, &record.seal(sequence, mask), total)?;
        tail.next_sequence += 1;
        Ok(Appended { location, sequence })
    }

    /// Appends a sync mark if it fits into the allocated space. Returns whether it did.
    pub(super) fn append_mark(&self, tail: &mut Tail, (number, offset): SegmentOffset) -> bool {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&number.to_le_bytes());
        value[8..].copy_from_slice(&offset.to_le_bytes());
        let (meta, none) = (crate::Meta::NONE, crate::Compression::None);
        let mut mark =
            Prepared::new(tail.segment.binding.salt(), Kind::Mark, &[], &value, meta, none);
        let total = mark.total();
        let end = tail.appender.end() + total;
        let has_space = end + MARGIN_BYTES <= tail.segment.map.backed() && end < SEGMENT_BYTES_MAX;
        let mask = tail.mask();
        has_space && self.write_record(tail, &mark.seal(1, mask), total).is_ok()
    }
}

/// Writes a large record at the end of the tail. Returns false if it does not fit.
///
/// The record is copied in pieces. If memory is [limited](UsableMemory), each piece is sent to the
/// disk before the next one is copied. Changed pages of files count there, and cannot be reclaimed.
#[cold]
fn write_large(tail: &mut Tail, parts: &[&[u8]], total: usize) -> bool {
    let is_limited = UsableMemory::of_process().is_limited;
    let file = &tail.segment.file;
    tail.appender.append_pieces(parts, total, PIECE_BYTES, &mut |start, end| {
        if is_limited {
            file.write_back(start as u64, (end - start) as u64);
        }
    })
}

#[cold]
fn no_space(tail: &Tail) -> Error {
    Error::NoSpace { path: tail.segment.path.clone() }
}
