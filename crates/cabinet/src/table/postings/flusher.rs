//! Flusher: a thread that merges changes of postings into blocks for the writers.
//!
//! A flush rewrites blocks of all indices, and takes seconds. Meanwhile writers add changes, and
//! are paced: the share of the budget that new changes take may not exceed the share of the work
//! that the flush has done. So all writers wait a little, and none waits for the end of the flush.

use super::PostingStore;
use crate::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Share of the budget by which writers may be ahead of the flush.
const AHEAD_SHARE: f64 = 1.0 / 16.0;

/// State shared by the flusher and the writers: orders, and progress of the current flush.
#[derive(Default)]
pub(super) struct Pace {
    has_flusher: AtomicBool,
    /// Bytes of memory that the current flush will free.
    bytes: AtomicUsize,
    /// Number of changes of the current flush, and how many of them are merged.
    changes: AtomicUsize,
    done: AtomicUsize,
    orders: Mutex<Orders>,
    /// Signals that there are orders.
    wake: Condvar,
    /// Signals that a flush has advanced or ended.
    progress: Condvar,
}

#[derive(Default)]
struct Orders {
    flush: bool,
    stop: bool,
    is_flushing: bool,
}

impl Pace {
    /// Begins a flush of `changes` changes, which take `bytes` bytes of memory.
    pub(super) fn begin(&self, changes: usize, bytes: usize) {
        self.done.store(0, Ordering::Relaxed);
        self.changes.store(changes.max(1), Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Records that the flush has merged `done` changes, and wakes waiting writers.
    pub(super) fn advance(&self, done: usize) {
        self.done.store(done, Ordering::Relaxed);
        let _orders = self.orders.lock();
        self.progress.notify_all();
    }

    /// Returns whether writers must wait when `bytes` bytes of changes are in memory.
    fn is_ahead(&self, bytes: usize, budget_bytes: usize) -> bool {
        let done = self.done.load(Ordering::Relaxed) as f64;
        let share = done / self.changes.load(Ordering::Relaxed) as f64;
        let added = bytes.saturating_sub(self.bytes.load(Ordering::Relaxed));
        added as f64 > budget_bytes as f64 * (share + AHEAD_SHARE)
    }
}

impl PostingStore {
    /// Asks the flusher to flush. If it already does, waits until writers are not ahead of it.
    /// Returns false if there is no flusher.
    pub(super) fn request_flush(&self) -> bool {
        let pace = &self.pace;
        if !pace.has_flusher.load(Ordering::Acquire) {
            return false;
        }
        let mut orders = pace.orders.lock();
        if !orders.is_flushing {
            orders.flush = true;
            pace.wake.notify_one();
            return true;
        }
        while orders.is_flushing && pace.is_ahead(self.used_bytes(), self.budget_bytes()) {
            pace.progress.wait(&mut orders);
        }
        true
    }

    /// Runs the thread: flushes on order, until it is stopped.
    fn run_flusher(&self) {
        let pace = &self.pace;
        let mut orders = pace.orders.lock();
        loop {
            while !orders.flush && !orders.stop {
                pace.wake.wait(&mut orders);
            }
            if orders.stop {
                return;
            }
            orders.flush = false;
            let flushing = Flushing::begin(pace, &mut orders);
            drop(orders);
            // A writer that exceeds the budget flushes itself, and gets the error.
            if let Err(error) = self.flush() {
                tracing::debug!("changes of indices stay in memory: {error}");
            }
            drop(flushing);
            orders = pace.orders.lock();
        }
    }
}

/// Guard of a flush by the thread. Its drop marks the end of the flush, even after a panic.
struct Flushing<'p>(&'p Pace);

impl<'p> Flushing<'p> {
    fn begin(pace: &'p Pace, orders: &mut Orders) -> Self {
        orders.is_flushing = true;
        Self(pace)
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The thread ends, so writers must flush themselves.
            self.0.has_flusher.store(false, Ordering::Release);
        }
        self.0.orders.lock().is_flushing = false;
        self.0.progress.notify_all();
    }
}

/// Handle of the thread. Dropping it stops the thread.
pub(in crate::table) struct Flusher {
    postings: Arc<PostingStore>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    pub(in crate::table) fn start(postings: &Arc<PostingStore>) -> Result<Self> {
        let flushed = Arc::clone(postings);
        let thread = std::thread::Builder::new()
            .name("cabinet-entries".into())
            .spawn(move || flushed.run_flusher())
            .map_err(|source| Error::Io {
                operation: "start a thread for",
                path: postings.engine.medium().path(),
                source,
            })?;
        postings.pace.has_flusher.store(true, Ordering::Release);
        Ok(Self { postings: Arc::clone(postings), thread: Some(thread) })
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        let pace = &self.postings.pace;
        pace.has_flusher.store(false, Ordering::Release);
        pace.orders.lock().stop = true;
        pace.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // The panic hook has printed a panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryTree, Options};
    use std::time::{Duration, Instant};

    #[test]
    fn a_flush_that_panics_releases_waiting_writers() {
        let options = Options::default();
        let postings = PostingStore::new(Arc::new(MemoryTree::new(&options)), &options);
        postings.pace.has_flusher.store(true, Ordering::Release);
        postings.pace.begin(1, 0);
        postings.bytes.store(2 * postings.budget_bytes(), Ordering::Relaxed);
        let flushing = Flushing::begin(&postings.pace, &mut postings.pace.orders.lock());
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| postings.request_flush());
            let flush = scope.spawn(move || {
                let _flushing = flushing;
                panic!("a flush panics");
            });
            assert!(flush.join().is_err());
            let started = Instant::now();
            while !writer.is_finished() {
                assert!(started.elapsed() < Duration::from_secs(120), "the writer waits");
                std::thread::yield_now();
            }
        });
        assert!(!postings.request_flush(), "the flusher has ended");
    }
}
