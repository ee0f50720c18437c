//! Misses: the reads of the disk for which operations of this thread would have waited.
//!
//! Only a thread that has a [`super::Ring`] notes them: it has the bytes read, and repeats the
//! operation.

use std::cell::{Cell, RefCell};
use std::fs;
use std::sync::{Arc, Weak};

/// Most bytes of one read.
pub(super) const READ_BYTES_MAX: usize = 128 << 10;

/// Most reads that are noted. A repeated operation notes those that it still misses.
const READS_MAX: usize = 64;

/// Bytes that are not in memory.
pub(super) struct Miss {
    /// Not kept open by a miss: the file may be removed before it is read.
    pub(super) file: Weak<fs::File>,
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

struct Misses {
    /// The thread has a ring.
    are_noted: Cell<bool>,
    /// Records that the present operation finds in memory because they were read for it.
    repeated: Cell<usize>,
    reads: RefCell<Vec<Miss>>,
}

thread_local! {
    static MISSES: Misses = const {
        Misses {
            are_noted: Cell::new(false),
            repeated: Cell::new(0),
            reads: RefCell::new(Vec::new()),
        }
    };
}

/// Begins or ends to note misses of this thread.
pub(super) fn set_noted(are_noted: bool) {
    MISSES.with(|misses| {
        misses.are_noted.set(are_noted);
        misses.reads.borrow_mut().clear();
    });
}

/// Notes that bytes of a file are not in memory.
#[cold]
pub(super) fn note(file: &Arc<fs::File>, offset: u64, bytes: usize) {
    MISSES.with(|misses| {
        if !misses.are_noted.get() {
            return;
        }
        let mut reads = misses.reads.borrow_mut();
        for at in (0..bytes).step_by(READ_BYTES_MAX).take(READS_MAX - reads.len()) {
            let (file, offset) = (Arc::downgrade(file), offset + at as u64);
            let is_same = |other: &Miss| other.offset == offset && other.file.ptr_eq(&file);
            if !reads.iter().any(is_same) {
                reads.push(Miss { file, offset, bytes: READ_BYTES_MAX.min(bytes - at) });
            }
        }
    });
}

/// Returns the number of misses that are noted.
pub(super) fn count() -> usize {
    MISSES.with(|misses| misses.reads.borrow().len())
}

/// Removes the misses that are noted, calling `take` with them.
pub(super) fn take<T>(take: impl FnOnce(std::vec::Drain<'_, Miss>) -> T) -> T {
    MISSES.with(|misses| take(misses.reads.borrow_mut().drain(..)))
}

/// Calls `operation` as one that is repeated, after `count` reads that it had missed.
pub(super) fn repeat<T>(count: usize, operation: impl FnOnce() -> T) -> T {
    MISSES.with(|misses| misses.repeated.set(count));
    let result = operation();
    MISSES.with(|misses| misses.repeated.set(0));
    result
}

/// Returns whether a record that is found in memory was read for the present operation: it is one
/// of the first, as many as were missed.
#[cold]
pub(crate) fn was_missed() -> bool {
    MISSES.with(|misses| {
        let left = misses.repeated.get();
        misses.repeated.set(left.saturating_sub(1));
        left > 0
    })
}
