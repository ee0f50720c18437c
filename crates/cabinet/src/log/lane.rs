//! Lanes: threads that write at the same time fill stretches of the log beside each other.
//!
//! Processors that take turns at the end of the log take the cache lines there from each other,
//! which costs more than all else that a put of a small record does. So a thread that keeps
//! meeting others at the tail gets a [`Block`] of the active segment to itself, and needs the tail
//! again only for the next one. A thread that meets nobody goes on appending at the tail.
//!
//! # Order
//!
//! The records of a key have to lie in the log in the order of their changes. A block may be
//! filled while younger ones are, so whoever appends to a lane says behind which record it must
//! come; if the block does not begin behind that, the record goes to the tail, which is behind
//! everything. Sequence numbers are dealt to blocks with their room: they rise with the place.
//!
//! Blocks are in the active segment, and all of them are closed, what is left of them being
//! filled, before another one is begun, a sync, a checkpoint or a snapshot: see [`Log::settle`].
//! What a process that was killed left open is filled by recovery.
//!
//! Where durability was asked for, the disk is what writers wait for, and there are no lanes.

use super::long_change::LONG_CHANGE_BYTES;
use super::record::{BLOCK_BYTES_MAX, Prepared, RECORD_BYTES_MIN};
use super::segment::{Age, Location};
use super::{Appended, Log, Purpose, Tail};
use crate::io::Block;
use crate::{Durability, Result};
use crossbeam_utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads beyond this number share lanes.
const LANES: usize = 16;

/// Room of a first block. Each one that is filled is followed by one of twice the size.
const BLOCK_BYTES_FIRST: usize = 4 << 10;

/// Longest record that goes into a block: what the last one leaves free is little.
const RECORD_BYTES_LIMIT: usize = BLOCK_BYTES_MAX / 16;

/// A thread takes a block after it has met others at the tail so many times more often than it
/// has met nobody three times.
const MEETINGS: u32 = 4;

/// Number of the thread, for spreading threads over things.
#[inline]
pub(super) fn of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// The lanes of a log.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: [CachePadded<Mutex<Lane>>; LANES],
    /// Where writes are spread over all: how many were.
    spread: AtomicUsize,
}

/// That all lanes are closed, and stay so as long as this is there.
pub(super) struct Settled<'l>(Vec<MutexGuard<'l, Lane>>);

impl Settled<'_> {
    /// Whether it is this log whose lanes are closed.
    pub(super) fn is_of(&self, log: &Log) -> bool {
        match self.0.first() {
            Some(lane) => std::ptr::eq(MutexGuard::mutex(lane), &*log.lanes.lanes[0]),
            None => log.settings.durability != Durability::None,
        }
    }
}

#[derive(Default)]
struct Lane {
    open: Option<OpenBlock>,
    /// Bytes of the block to come, if the last one was filled.
    next_bytes: usize,
    /// Three for each time that the tail was taken, less one for each that it was free.
    meetings: u32,
    /// Bytes that could not go into the open block for their order.
    passed_by: usize,
}

struct OpenBlock {
    block: Block,
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

impl Lane {
    #[inline]
    fn append(&mut self, record: &mut Prepared<'_>, total: usize, behind: Age) -> Option<Appended> {
        let open = self.open.as_mut()?;
        if Age::new(open.number, open.block.end()) <= behind {
            self.passed_by += total;
            return None;
        }
        open.append(record, total)
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

impl Log {
    /// As [`Log::append`], anywhere behind a record: behind all older ones of the key.
    pub(crate) fn append_behind(
        &self,
        mut record: Prepared<'_>,
        purpose: Purpose,
        behind: Age,
    ) -> Result<Appended> {
        if self.settings.durability != Durability::None || record.total() >= LONG_CHANGE_BYTES {
            return self.append(record, purpose);
        }
        let eager = self.settings.eager_lanes;
        let number =
            if eager { self.lanes.spread.fetch_add(1, Ordering::Relaxed) } else { of_thread() };
        let Some(mut lane) = self.lanes.lanes[number % LANES].try_lock() else {
            return self.append(record, purpose);
        };
        self.commit.check()?;
        let total = record.total();
        if let Some(appended) = lane.append(&mut record, total, behind) {
            return Ok(appended);
        }
        let mut tail = match self.tail.try_lock() {
            Some(tail) => {
                lane.meetings = lane.meetings.saturating_sub(1);
                tail
            }
            None => {
                lane.meetings = (lane.meetings + 3).min(6 * MEETINGS);
                self.lock_tail()
            }
        };
        let may_open = total <= RECORD_BYTES_LIMIT && purpose == Purpose::Store;
        if may_open && (lane.wants_block(total) || eager && lane.open.is_none()) {
            let is_full = lane.open.as_ref().is_some_and(|open| total > open.block.left());
            lane.next_bytes = if is_full { 2 * lane.next_bytes } else { 0 };
            lane.close(self.identity.salt);
            let wanted = lane.next_bytes.max(BLOCK_BYTES_FIRST).max(16 * total.next_power_of_two());
            lane.next_bytes = wanted.min(BLOCK_BYTES_MAX);
            lane.open = self.open_block(&mut tail, lane.next_bytes)?;
            if let Some(open) = &mut lane.open
                && let Some(appended) = open.append(&mut record, total)
            {
                return Ok(appended);
            }
        }
        if self.make_room(&mut tail, total, 0, purpose, None)? {
            return self.append_to(&mut tail, record, total);
        }
        // The next segment is begun when all lanes are closed.
        drop(tail);
        drop(lane);
        self.append(record, purpose)
    }

    /// A block at the tail, if the active segment has room for it.
    fn open_block(&self, tail: &mut Tail, bytes: usize) -> Result<Option<OpenBlock>> {
        let mut header = Prepared::block(self.identity.salt, bytes);
        let total = header.total();
        if !self.make_room(tail, total, total, Purpose::Store, None)? {
            return Ok(None);
        }
        let first = tail.next_sequence;
        let header = header.seal_hollow(first);
        let header_bytes = total - bytes;
        let slot = tail.segment.slot;
        if !tail.appender.append(&header, header_bytes) {
            return Ok(None);
        }
        let Some(block) = tail.appender.give_block(bytes) else { return Ok(None) };
        self.figures.blocks.fetch_add(1, Ordering::Relaxed);
        tail.next_sequence += (bytes / RECORD_BYTES_MIN) as u64;
        tail.has_changes = true;
        self.appended.store(tail.base + tail.appender.end() as u64, Ordering::Release);
        Ok(Some(OpenBlock { block, slot, number: tail.segment.number, next_sequence: first }))
    }

    /// Closes all lanes.
    pub(super) fn settle(&self) -> Settled<'_> {
        if self.settings.durability != Durability::None {
            return Settled(Vec::new());
        }
        let lanes = self.lanes.lanes.iter().map(|lane| {
            let mut lane = lane.lock();
            lane.close(self.identity.salt);
            lane
        });
        Settled(lanes.collect())
    }
}
