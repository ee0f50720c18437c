//! Append blocks: threads that write at the same time fill stretches of the log beside each other.
//!
//! Processors that take turns at the end of the log take the cache lines there from each other,
//! which costs more than all else that a put of a small record does. So a thread that keeps
//! meeting others at the tail gets a [`AppendBlock`] of the active segment for itself, and needs
//! the tail again only for the next one. A thread that meets nobody goes on appending at the tail.
//!
//! # Order
//!
//! The records of a key have to lie in the log in the order of their changes. A block may be
//! filled while younger ones are, so an append says behind which record it must come; if the block
//! does not begin behind that, the record goes to the tail, which is behind everything. Sequence
//! numbers are dealt to blocks with their room: they rise with the place.
//!
//! Blocks are in the active segment, and all of them are closed, what is left of them being
//! filled, before another one is begun, a sync, a checkpoint or a snapshot: see
//! [`AppendBlocks::close_all`]. Blocks that a killed process left open are filled by recovery.
//!
//! With a durability, the disk is what writers wait for, and there are no append blocks.

use super::{Appended, Purpose, Tail, Writer};
use crate::io::AppendBlock;
use crate::log::record::{BLOCK_BYTES_MAX, Prepared, RECORD_BYTES_MIN};
use crate::log::segments::{Location, Lsn};
use crate::log::space::LARGE_CHANGE_BYTES;
use crate::log::thread::number_of_thread;
use crate::log::{Log, Settings};
use crate::sync::{Mutex, MutexGuard};
use crate::{Durability, Result};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Least and greatest number of slots: two for each processor, so that few threads share one.
const SLOTS_MIN: usize = 16;
const SLOTS_MAX: usize = 256;

/// Number of slots in unit tests. They have few threads, which are to share slots too.
const SLOTS_IN_TESTS: usize = 2;

/// Room of a first block. Each one that is filled is followed by one of twice the size.
const BLOCK_BYTES_FIRST: usize = 4 << 10;

/// Longest record that goes into a block: what the last one leaves free is little.
const RECORD_BYTES_LIMIT: usize = BLOCK_BYTES_MAX / 16;

/// A thread takes a block after it has met others at the tail so many times more often than it
/// has met nobody three times.
const MEETINGS: u32 = 4;

/// The append blocks of a log: a slot for each thread that may have one, with a lock of its own.
pub(super) struct AppendBlocks {
    /// As many as a power of two.
    slots: Box<[CachePadded<Mutex<Slot>>]>,
    /// Threads may have blocks.
    is_used: bool,
    /// Writes are spread over all slots.
    is_eager: bool,
    salt: u32,
    /// If they are spread: how many were.
    spread: AtomicUsize,
    /// Blocks that were given to threads.
    begun: CachePadded<AtomicU64>,
}

/// That all append blocks are closed, and stay so as long as this is there.
pub(in crate::log) struct AllClosed<'b>(Vec<MutexGuard<'b, Slot>>);

impl AllClosed<'_> {
    /// Whether it is these append blocks that are closed.
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
    /// Bytes of the block to come, if the last one was filled.
    next_bytes: usize,
    /// Three for each time that the tail was taken, less one for each that it was free.
    meetings: u32,
    /// Bytes that could not go into the open block for their order.
    passed_by: usize,
}

struct OpenBlock {
    block: AppendBlock,
    /// The segment that it is in.
    slot: usize,
    number: u64,
    next_sequence: u64,
}

impl OpenBlock {
    /// Appends a record if there is room for it.
    #[inline]
    fn append(&mut self, record: &mut Prepared<'_>, total: usize) -> Option<Appended> {
        let (offset, sequence) = (self.block.end(), self.next_sequence);
        if total > self.block.left() || !self.block.append(&record.seal(sequence), total) {
            return None;
        }
        self.next_sequence += 1;
        Some(Appended { location: Location::new(self.slot, offset), sequence })
    }
}

impl Slot {
    /// Appends a record to the open block, if that has room and is after this LSN.
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

    /// Notes whether the thread met another one at the tail.
    #[inline]
    fn note_tail(&mut self, is_met: bool) {
        self.meetings = if is_met {
            (self.meetings + 3).min(6 * MEETINGS)
        } else {
            self.meetings.saturating_sub(1)
        };
    }

    /// Whether a record of this length is to begin another block. Then the open one is full, or
    /// so much had to pass it by that what is left of it is better given up.
    fn wants_block(&self, total: usize) -> bool {
        match &self.open {
            Some(open) => total > open.block.left() || self.passed_by > 4 * open.block.left(),
            None => self.next_bytes != 0 || self.meetings > 3 * MEETINGS,
        }
    }

    /// Fills what is left of the block.
    fn close(&mut self, salt: u32) {
        let Some(mut open) = self.open.take() else { return };
        let left = open.block.left();
        if left >= RECORD_BYTES_MIN {
            let mut filler = Prepared::filler(salt, left);
            // It has the length that is left.
            let _ = open.block.append(&filler.seal_hollow(open.next_sequence.max(1)), left);
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
    pub(super) fn new(settings: &Settings, salt: u32) -> Self {
        Self {
            slots: (0..slot_count()).map(|_| CachePadded::default()).collect(),
            is_used: settings.durability == Durability::None,
            is_eager: settings.eager_append_blocks,
            salt,
            spread: AtomicUsize::new(0),
            begun: CachePadded::default(),
        }
    }

    /// Returns the slot of the calling thread, unless another thread is using it.
    #[inline]
    fn try_lock(&self) -> Option<MutexGuard<'_, Slot>> {
        let number = if self.is_eager {
            self.spread.fetch_add(1, Ordering::Relaxed)
        } else {
            number_of_thread()
        };
        self.slots[number & (self.slots.len() - 1)].try_lock()
    }

    /// If a record of this length is to begin another block: closes the open one, and returns how
    /// many bytes the next one is to have.
    fn next_bytes(&self, slot: &mut Slot, total: usize) -> Option<usize> {
        if !slot.wants_block(total) && (!self.is_eager || slot.open.is_some()) {
            return None;
        }
        let is_full = slot.open.as_ref().is_some_and(|open| total > open.block.left());
        slot.next_bytes = if is_full { 2 * slot.next_bytes } else { 0 };
        slot.close(self.salt);
        let wanted = slot.next_bytes.max(BLOCK_BYTES_FIRST).max(16 * total.next_power_of_two());
        slot.next_bytes = wanted.min(BLOCK_BYTES_MAX);
        Some(slot.next_bytes)
    }

    /// Closes all blocks, and keeps them closed as long as the guard is there.
    pub(super) fn close_all(&self) -> AllClosed<'_> {
        if !self.is_used {
            return AllClosed(Vec::new());
        }
        let slots = self.slots.iter().map(|slot| {
            let mut slot = slot.lock();
            slot.close(self.salt);
            slot
        });
        AllClosed(slots.collect())
    }

    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }
}

impl Writer {
    /// Begins a block of so many bytes at the tail, which has room for it.
    fn begin_block(
        &self,
        tail: &mut Tail,
        mut header: Prepared<'_>,
        bytes: usize,
    ) -> Option<OpenBlock> {
        let first = tail.next_sequence;
        let header_bytes = header.total() - bytes;
        if !tail.appender.append(&header.seal_hollow(first), header_bytes) {
            return None;
        }
        let block = tail.appender.give_append_block(bytes)?;
        self.blocks.begun.fetch_add(1, Ordering::Relaxed);
        tail.next_sequence += (bytes / RECORD_BYTES_MIN) as u64;
        tail.has_changes = true;
        self.note_appended(tail);
        let (slot, number) = (tail.segment.slot, tail.segment.number);
        Some(OpenBlock { block, slot, number, next_sequence: first })
    }
}

impl Log {
    /// As [`Log::append`], anywhere after a record: after all older ones of the key.
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
            let header = Prepared::append_block(self.writer.salt, bytes);
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
        // The next segment is begun when all append blocks are closed.
        drop(tail);
        drop(slot);
        self.append(record, purpose)
    }
}
