//! Signals: their handlers run within operations that take long, and may end them.

use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Time between two checks for signals in a scan or query.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

thread_local! {
    /// Number of operations of this thread that are interrupted to run code of Python.
    static INTERRUPTED: Cell<u32> = const { Cell::new(0) };
    /// Time of the next check for signals in a scan or query, and what one has raised.
    static NEXT_CHECK: Cell<Option<Instant>> = const { Cell::new(None) };
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Returns what a handler has raised within the operation that has ended, see [`is_interrupted`].
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.take()
}

/// Runs the handlers of signals, now and then, and returns whether one has raised an exception.
pub(crate) fn is_interrupted() -> bool {
    let now = Instant::now();
    if NEXT_CHECK.get().is_some_and(|next| now < next) {
        return false;
    }
    NEXT_CHECK.set(Some(now + CHECK_INTERVAL));
    let mut raised = None;
    if go_on(&mut raised) {
        return false;
    }
    RAISED.set(raised);
    true
}

/// Runs the handlers of signals, within an operation that was begun without the GIL. Returns
/// whether the operation may go on, and keeps the exception if not.
pub(crate) fn go_on(raised: &mut Option<PyErr>) -> bool {
    let checked = Python::attach(|py| within_operation(|| py.check_signals()));
    *raised = checked.err();
    raised.is_none()
}

/// Runs code of Python within an operation.
pub(crate) fn within_operation<T>(run: impl FnOnce() -> T) -> T {
    INTERRUPTED.set(INTERRUPTED.get() + 1);
    let done = run();
    INTERRUPTED.set(INTERRUPTED.get() - 1);
    done
}

/// Returns whether this thread runs code of Python within an operation.
pub(crate) fn is_within_operation() -> bool {
    INTERRUPTED.get() > 0
}
