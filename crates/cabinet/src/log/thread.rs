//! Thread numbers, which spread threads over slots and counters.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the number of the calling thread.
#[inline]
pub(super) fn number_of_thread() -> usize {
    #[cfg(test)]
    if let Some(number) = crate::base::sync::model::thread() {
        return number;
    }
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
