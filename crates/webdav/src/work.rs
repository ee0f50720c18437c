//! What is done for a connection by threads that may wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the operations of a connection's requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

/// An operation, until it is dropped.
#[derive(Debug)]
pub(crate) struct Operation(Work);

impl Work {
    pub(crate) fn begin(&self) -> Operation {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        Operation(self.clone())
    }

    /// Whether something is being done, or was since `seen`, which is brought up to date.
    pub(crate) fn goes_on(&self, seen: &mut usize) -> bool {
        let ended = self.0.ended.load(Ordering::Acquire);
        let is_under_way = self.0.begun.load(Ordering::Relaxed) != ended;
        std::mem::replace(seen, ended) != ended || is_under_way
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.0.0.ended.fetch_add(1, Ordering::Release);
    }
}
