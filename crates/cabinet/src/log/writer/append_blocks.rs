//! Append blocks: stretches of the log that threads fill at the same time.
//!
//! Processors that take turns at the end of the log pass its cache lines between them. That costs
//! more than the rest of a put of a small record. So a thread that often finds the tail locked gets
//! an [`AppendBlock`] of the active segment for itself. It then needs the tail only for its next
//! block. A thread that finds the tail free continues to append there.
//!
//! # Order
//!
//! The records of a key must be in the log in the order of their changes. A block may still be
//! filled while newer blocks are, so each append gives a minimum LSN. If the open block's end is
//! not after that, the record goes to the tail, which is after everything. Sequence numbers are
//! assigned to blocks together with their space, so they rise with the LSN.
//!
//! Blocks are in the active segment. All of them are closed, their rest filled, before the next
//! segment is begun and before a sync, a checkpoint or a snapshot: see [`AppendBlocks::close_all`].
//! Recovery fills blocks that a killed process left open.
//!
//! With a durability other than none there are no append blocks: writers wait for the disk, not for
//! each other.

use super::{Appended, Purpose, Tail, Writer};
use crate::base::sync::{Mutex, MutexGuard};
use crate::io::{AppendBlock, OPEN_BLOCKS_MAX};
use crate::log::binding::Binding;
use crate::log::record::{BLOCK_BYTES_MAX, Prepared, RECORD_BYTES_MIN};
use crate::log::segments::{Location, Lsn, Segment};
use crate::log::space::LARGE_CHANGE_BYTES;
use crate::log::thread::number_of_thread;
use crate::log::{Log, Settings};
use crate::{Durability, Result};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Minimum and maximum number of slots: two per processor, so that few threads share one.
const SLOTS_MIN: usize = 16;
const SLOTS_MAX: usize = OPEN_BLOCKS_MAX;

/// Number of slots in unit tests. They have few threads, which must share slots too.
const SLOTS_IN_TESTS: usize = 2;

/// Size of a first block, in bytes. After each block that is filled, the size doubles.
const BLOCK_BYTES_FIRST: usize = 4 << 10;

/// Longest record that goes into a block, in bytes: short records leave little unused at the end.
const RECORD_BYTES_LIMIT: usize = BLOCK_BYTES_MAX / 16;

/// A thread begins a block after it has found the tail locked this many times more often than it
/// has found it free three times.
const MEETINGS: u32 = 4;

/// The append blocks of a log: a slot for each thread that may have one, with a lock of its own.
pub(super) struct AppendBlocks {
    /// The number of slots is a power of two.
    slots: Box<[CachePadded<Mutex<Slot>>]>,
    /// Whether threads may have blocks.
    is_used: bool,
    /// Whether writes are spread over all slots.
    is_eager: bool,
    /// Number of writes that were spread over the slots.
    spread: AtomicUsize,
    /// Number of blocks that were given to threads.
    begun: CachePadded<AtomicU64>,
}

/// Guard that keeps all append blocks closed.
pub(in crate::log) struct AllClosed<'b>(Vec<MutexGuard<'b, Slot>>);

impl AllClosed<'_> {
    /// Returns whether the guard keeps these append blocks closed.
    pub(super) fn is_of(&self, blocks: &AppendBlocks) -> bool {
        match self.0.first() {
            Some(slot) => blocks.slots[0].is_of(slot),
            None => !blocks.is_used,
        }
    }
}

/// A thread's append block, if it has one.
#[derive(Default)]
struct Slot {
    open: Option<OpenBlock>,
    /// Size of the next block, in bytes, or 0 if none was begun yet.
    next_bytes: usize,
    /// Rises by three each time the tail is found locked, and falls by one each time it is found
    /// free.
    meetings: u32,
    /// Bytes of records that had to pass by the open block because of their minimum LSN.
    passed_by: usize,
}

struct OpenBlock {
    block: AppendBlock,
    /// Slot of the segment that the block is in.
    slot: usize,
    number: u64,
    binding: Binding,
    next_sequence: u64,
}

impl OpenBlock {
    /// Appends a record if it fits.
    #[inline]
    fn append(&mut self, record: &mut Prepared<'_>, total: usize) -> Option<Appended> {
        let (offset, sequence) = (self.block.end(), self.next_sequence);
        let mask = self.binding.mask(offset);
        if total > self.block.left() || !self.block.append(&record.seal(sequence, mask), total) {
            return None;
        }
        self.next_sequence += 1;
        Some(Appended { location: Location::new(self.slot, offset), sequence })
    }
}

impl Slot {
    /// Appends a record to the open block, if it fits and the block's end is after `min_lsn`.
    #[inline]
    fn append(
        &mut self,
        record: &mut Prepared<'_>,
        total: usize,
        min_lsn: Lsn,
    ) -> Option<Appended> {
        let open = self.open.as_mut()?;
        if Lsn::new(open.number, open.block.end()) <= min_lsn {
            self.passed_by += total;
            return None;
        }
        open.append(record, total)
    }

    /// Records whether the thread found the tail locked.
    #[inline]
    fn note_tail(&mut self, is_met: bool) {
        self.meetings = if is_met {
            (self.meetings + 3).min(6 * MEETINGS)
        } else {
            self.meetings.saturating_sub(1)
        };
    }

    /// Returns whether a record of `total` bytes must begin another block. The open block is then
    /// too full, or so many bytes had to pass it by that its rest is better given up.
    fn wants_block(&self, total: usize) -> bool {
        match &self.open {
            Some(open) => total > open.block.left() || self.passed_by > 4 * open.block.left(),
            None => self.next_bytes != 0 || self.meetings > 3 * MEETINGS,
        }
    }

    /// Closes the open block, filling its rest.
    fn close(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        let left = open.block.left();
        if left >= RECORD_BYTES_MIN {
            let mut filler = Prepared::filler(open.binding.salt(), left);
            let (sequence, mask) = (open.next_sequence.max(1), open.binding.mask(open.block.end()));
            // The filler has exactly the length that is left.
            let _ = open.block.append(&filler.seal_hollow(sequence, mask), left);
        }
        self.passed_by = 0;
        self.meetings = 0;
    }
}

fn slot_count() -> usize {
    if cfg!(test) {
        return SLOTS_IN_TESTS;
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * processors).next_power_of_two().clamp(SLOTS_MIN, SLOTS_MAX)
}

impl AppendBlocks {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            slots: (0..slot_count()).map(|_| CachePadded::default()).collect(),
            is_used: settings.durability == Durability::None,
            is_eager: settings.eager_append_blocks,
            spread: AtomicUsize::new(0),
            begun: CachePadded::default(),
        }
    }

    /// Locks and returns the slot of the calling thread, unless another thread is using it.
    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, Slot>> {
        let number = if self.is_eager {
            self.spread.fetch_add(1, Ordering::Relaxed)
        } else {
            number_of_thread()
        };
        self.slots[number & (self.slots.len() - 1)].try_lock()
    }

    /// Closes the open block and returns the size of the next one, if a record of `total` bytes
    /// must begin another block.
    fn next_bytes(&self, slot: &mut Slot, total: usize) -> Option<usize> {
        if !slot.wants_block(total) && (!self.is_eager || slot.open.is_some()) {
            return None;
        }
        let is_full = slot.open.as_ref().is_some_and(|open| total > open.block.left());
        slot.next_bytes = if is_full { 2 * slot.next_bytes } else { 0 };
        slot.close();
        let wanted = slot.next_bytes.max(BLOCK_BYTES_FIRST).max(16 * total.next_power_of_two());
        slot.next_bytes = wanted.min(BLOCK_BYTES_MAX);
        Some(slot.next_bytes)
    }

    /// Closes all blocks, and keeps them closed until the guard is dropped.
    pub(super) fn close_all(&self) -> AllClosed<'_> {
        if !self.is_used {
            return AllClosed(Vec::new());
        }
        let slots = self.slots.iter().map(|slot| {
            let mut slot = slot.lock();
            slot.close();
            slot
        });
        AllClosed(slots.collect())
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }
}

impl Writer {
    /// Begins a block of `bytes` bytes at the tail. The caller has allocated space for it.
    fn begin_block(
        &self,
        tail: &mut Tail,
        mut header: Prepared<'_>,
        bytes: usize,
    ) -> Option<OpenBlock> {
        let first = tail.next_sequence;
        let header_bytes = header.total() - bytes;
        let mask = tail.mask();
        if !tail.appender.append(&header.seal_hollow(first, mask), header_bytes) {
            return None;
        }
        let block = tail.appender.give_append_block(bytes)?;
        self.blocks.begun.fetch_add(1, Ordering::Relaxed);
        tail.next_sequence += (bytes / RECORD_BYTES_MIN) as u64;
        tail.has_changes = true;
        self.note_appended(tail);
        let Segment { slot, number, binding, .. } = *tail.segment;
        Some(OpenBlock { block, slot, number, binding, next_sequence: first })
    }
}

impl Log {
    /// Like [`Log::append`], but anywhere after `min_lsn`, the LSN of the key's previous record.
    pub(crate) fn append_after(
        &self,
        mut record: Prepared<'_>,
        purpose: Purpose,
        min_lsn: Lsn,
    ) -> Result<Appended> {
        let blocks = &self.writer.blocks;
        if !blocks.is_used || record.total() >= LARGE_CHANGE_BYTES {
            return self.append(record, purpose);
        }
        let Some(mut slot) = blocks.try_lock() else {
            return self.append(record, purpose);
        };
        self.commit.check()?;
        let total = record.total();
        if let Some(appended) = slot.append(&mut record, total, min_lsn) {
            return Ok(appended);
        }
        let free = self.writer.tail.try_lock();
        slot.note_tail(free.is_none());
        let mut tail = free.unwrap_or_else(|| self.writer.lock());
        let may_begin = total <= RECORD_BYTES_LIMIT && purpose == Purpose::Store;
        if may_begin && let Some(bytes) = blocks.next_bytes(&mut slot, total) {
            let header = Prepared::append_block(self.database_id.salt, bytes);
            let needed = header.total();
            if self.allocate_for(&mut tail, needed, needed, Purpose::Store, None)? {
                slot.open = self.writer.begin_block(&mut tail, header, bytes);
            }
            if let Some(open) = &mut slot.open
                && let Some(appended) = open.append(&mut record, total)
            {
                return Ok(appended);
            }
        }
        if self.allocate_for(&mut tail, total, 0, purpose, None)? {
            return self.writer.append_to(&mut tail, record, total);
        }
        // The next segment can be begun only when all append blocks are closed.
        drop(tail);
        drop(slot);
        self.append(record, purpose)
    }
}
