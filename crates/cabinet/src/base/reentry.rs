//! Reentry check: rejects operations that callbacks of callers must not call.
//!
//! A callback borrows a record in place: under the lock of its shard, leaf or row, or while its
//! file is kept. An operation of the same database in a callback could wait for that lock for ever.
//! That would depend on the kind of database, the key and the other threads. So there is one rule
//! for all kinds that depends on none of these:
//!
//! - A callback must not call an operation of its database that can fail. This includes other
//!   handles: a clone, cursor, transaction or table of it. The operation returns
//!   [`Error::Reentrant`] and does nothing.
//! - A visitor of the results of a query gets copies. It may read and change rows, but not set
//!   indices.
//! - Other databases may be called. Two threads that nest two databases in opposite orders may wait
//!   for each other.
//!
//! A mark per thread records which database's callback is running. It is set only around callbacks,
//! and an operation outside of one costs a load and a branch.

use crate::{Error, Result};
use std::cell::{Cell, RefCell};

/// Mark of the callback that is running; 0 if none is.
type Mark = usize;

thread_local! {
    /// The innermost callback that is running on this thread.
    static INNERMOST: Cell<Mark> = const { Cell::new(0) };
    /// The callbacks around it, of other databases.
    static AROUND: RefCell<Vec<Mark>> = const { RefCell::new(Vec::new()) };
}

/// Returns the ID of an engine: its address.
#[inline]
pub(crate) fn engine_id_of<T: ?Sized>(engine: &T) -> usize {
    std::ptr::from_ref(engine).cast::<()>().addr()
}

/// Returns the mark of callbacks that borrow a record in place.
fn of_record(engine_id: usize) -> Mark {
    engine_id << 1
}

/// Returns the mark of visitors of the results of queries.
fn of_result(engine_id: usize) -> Mark {
    engine_id << 1 | 1
}

/// Fails if this thread is in a callback that borrows a record of this database.
#[inline]
pub(crate) fn check(engine_id: usize) -> Result<()> {
    if INNERMOST.get() == 0 { Ok(()) } else { check_marks(&[of_record(engine_id)]) }
}

/// Fails if this thread is in any callback of this database.
pub(crate) fn check_all(engine_id: usize) -> Result<()> {
    check_marks(&[of_record(engine_id), of_result(engine_id)])
}

/// Returns whether this thread is in a callback that borrows a record of this database.
pub(crate) fn is_within(engine_id: usize) -> bool {
    check(engine_id).is_err()
}

#[cold]
fn check_marks(marks: &[Mark]) -> Result<()> {
    let is_innermost = marks.contains(&INNERMOST.get());
    // A thread that is ending runs no callback.
    let is_around = || {
        let any =
            |around: &RefCell<Vec<Mark>>| around.borrow().iter().any(|mark| marks.contains(mark));
        AROUND.try_with(any).unwrap_or(false)
    };
    if is_innermost || is_around() { Err(Error::Reentrant) } else { Ok(()) }
}

/// Runs a callback that borrows a record of this database.
#[inline]
pub(crate) fn in_record_callback<T>(engine_id: usize, callback: impl FnOnce() -> T) -> T {
    let _running = Running::start(of_record(engine_id));
    callback()
}

/// Runs a visitor of the results of a query of this database.
#[inline]
pub(crate) fn in_result_callback<T>(engine_id: usize, callback: impl FnOnce() -> T) -> T {
    let _running = Running::start(of_result(engine_id));
    callback()
}

/// Guard of a running callback, which also ends when the callback panics.
struct Running {
    around: Mark,
}

impl Running {
    #[inline]
    fn start(mark: Mark) -> Self {
        let around = INNERMOST.replace(mark);
        if around != 0 {
            nest(around);
        }
        Self { around }
    }
}

impl Drop for Running {
    #[inline]
    fn drop(&mut self) {
        INNERMOST.set(self.around);
        if self.around != 0 {
            leave();
        }
    }
}

#[cold]
fn nest(around: Mark) {
    let _ = AROUND.try_with(|marks| marks.borrow_mut().push(around));
}

#[cold]
fn leave() {
    let _ = AROUND.try_with(|marks| marks.borrow_mut().pop());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_is_known_through_callbacks_of_others_and_until_it_ends() {
        assert!(!is_within(1));
        in_record_callback(1, || {
            assert!(is_within(1) && !is_within(2));
            in_result_callback(2, || {
                assert!(is_within(1) && !is_within(2));
                assert!(check_all(2).is_err());
                in_record_callback(3, || {
                    assert!(is_within(1) && is_within(3) && check_all(2).is_err())
                });
                assert!(is_within(1) && !is_within(3));
            });
            assert!(check_all(2).is_ok());
        });
        assert!(check_all(1).is_ok());
    }

    #[test]
    fn a_callback_that_panics_leaves_no_mark() {
        let panicked = std::panic::catch_unwind(|| in_record_callback(1, || panic!("on purpose")));
        assert!(panicked.is_err());
        assert!(!is_within(1));
    }
}
