//! A thread that takes changes into blocks, so that no writer has to.
//!
//! A flush goes through blocks all over the indices and takes seconds. Meanwhile changes come, so
//! their writers are paced: what has come beside a flush may be as much of the budget as the
//! flush has done of its work. So all wait a little, and nobody to the end of it.

use super::PostingStore;
use crate::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Share of the budget by which writers may be ahead of a flush.
const AHEAD_SHARE: f64 = 1.0 / 16.0;

/// How the thread and writers meet.
#[derive(Default)]
pub(super) struct Pace {
    has_flusher: AtomicBool,
    /// Bytes of memory that the flush under way is to free.
    bytes: AtomicUsize,
    /// How many changes it is of, and how many are done.
    changes: AtomicUsize,
    done: AtomicUsize,
    orders: Mutex<Orders>,
    /// There are orders.
    wake: Condvar,
    /// A flush has come further, or has ended.
    progress: Condvar,
}

#[derive(Default)]
struct Orders {
    flush: bool,
    stop: bool,
    is_flushing: bool,
}

impl Pace {
    /// A flush of so many changes begins, which take so many bytes.
    pub(super) fn begin(&self, changes: usize, bytes: usize) {
        self.done.store(0, Ordering::Relaxed);
        self.changes.store(changes.max(1), Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// It has done so many.
    pub(super) fn advance(&self, done: usize) {
        self.done.store(done, Ordering::Relaxed);
        let _orders = self.orders.lock();
        self.progress.notify_all();
    }

    /// Whether writers are to wait, when so many bytes are in memory.
    fn is_ahead(&self, bytes: usize, budget_bytes: usize) -> bool {
        let done = self.done.load(Ordering::Relaxed) as f64;
        let share = done / self.changes.load(Ordering::Relaxed) as f64;
        let beside = bytes.saturating_sub(self.bytes.load(Ordering::Relaxed));
        beside as f64 > budget_bytes as f64 * (share + AHEAD_SHARE)
    }
}

impl PostingStore {
    /// As [`PostingStore::flush_over_budget`], where a thread sees to it. Says whether it does.
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

    /// The life of the thread.
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
            // A writer that finds no room gets the error when it tries itself.
            if let Err(error) = self.flush() {
                tracing::debug!("changes of indices stay in memory: {error}");
            }
            drop(flushing);
            orders = pace.orders.lock();
        }
    }
}

/// For as long as a flush of the thread goes on, however it ends.
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
            // The thread is no more: writers see to it themselves.
            self.0.has_flusher.store(false, Ordering::Release);
        }
        self.0.orders.lock().is_flushing = false;
        self.0.progress.notify_all();
    }
}

/// The thread. It ends when dropped.
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
            // A panic has been printed where it happened.
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
    fn a_flush_that_panics_lets_its_writers_go_on() {
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
                panic!("as a flush may");
            });
            assert!(flush.join().is_err());
            let started = Instant::now();
            while !writer.is_finished() {
                assert!(started.elapsed() < Duration::from_secs(120), "the writer waits");
                std::thread::yield_now();
            }
        });
        assert!(!postings.request_flush(), "there is no flusher any more");
    }
}
