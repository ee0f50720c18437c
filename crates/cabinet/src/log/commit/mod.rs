//! Group commit: many writers share one sync.
//!
//! A writer appends, then waits until the durable position has passed its record. While some record
//! is not durable, one thread syncs back to back. Each sync covers all records appended before it
//! began, and wakes the writers of those. Writers that appended during the sync stay asleep until
//! the next one.
//!
//! [`sync`] holds the sync itself, which connects commits with the writer and the segments.

mod sync;

use super::segments::{Segment, SegmentOffset};
use super::stats::Timed;
use crate::base::sync::Mutex;
use crate::{DurableListener, Error, LogPosition, Result};
use parking_lot::{Condvar, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The durable position of a log, and the writers that wait for it to advance.
#[derive(Default)]
pub(crate) struct Commit {
    durable: AtomicU64,
    /// Reason why writing has stopped, if it has.
    poison: RwLock<Option<String>>,
    poisoned: AtomicBool,
    waiters: Mutex<Waiters>,
    /// Writers covered by the current sync wait on one of these, those of the next sync on the
    /// other.
    moved: [Condvar; 2],
    /// Whether the syncing thread sleeps and must be woken by the next append.
    idle: AtomicBool,
    work: Mutex<()>,
    wake: Condvar,
    listeners: Mutex<Vec<DurableListener>>,
    /// Held while files are synced. Contains the offset up to which the last sync reached, if no
    /// sync mark records it yet.
    syncing: Mutex<Option<SegmentOffset>>,
    /// Sealed segments that were not synced yet, oldest first.
    unsynced: Mutex<Vec<Arc<Segment>>>,
    syncs: Timed,
}

#[derive(Default)]
struct Waiters {
    /// Number of syncs that were begun.
    syncs: usize,
    /// Position up to which the last sync covers the log.
    covered: LogPosition,
}

impl Commit {
    /// Creates the state of a log with these sealed segments, which may not have been synced.
    pub(super) fn new(sealed: Vec<Arc<Segment>>) -> Self {
        Self { unsynced: Mutex::new(sealed), ..Self::default() }
    }

    pub(crate) fn durable(&self) -> LogPosition {
        self.durable.load(Ordering::Acquire)
    }

    /// Returns the count of syncs of the active segment, and the time that the disk took for them.
    pub(super) fn syncs(&self) -> &Timed {
        &self.syncs
    }

    /// Records the beginning of a sync that covers everything before `position`. There is one at a
    /// time.
    fn begin(&self, position: LogPosition) {
        let mut waiters = self.waiters.lock();
        waiters.syncs += 1;
        waiters.covered = position;
    }

    /// Records that the current sync has made everything before `position` durable, and wakes the
    /// writers that it covers.
    fn advance(&self, position: LogPosition) {
        self.durable.fetch_max(position, Ordering::AcqRel);
        // Locked so that no waiter misses this between its check and its sleep.
        let syncs = self.waiters.lock().syncs;
        self.moved[syncs % 2].notify_all();
        self.notify_listeners();
    }

    /// Stops all writing: later writes are refused, and waiting ones fail.
    fn poison(&self, why: &Error) {
        let mut poison = self.poison.write();
        if poison.is_none() {
            tracing::error!("writing stops: {why}");
            *poison = Some(why.to_string());
        }
        drop(poison);
        self.poisoned.store(true, Ordering::Release);
        drop(self.waiters.lock());
        for moved in &self.moved {
            moved.notify_all();
        }
        self.notify_listeners();
    }

    /// Fails if writing has stopped.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Acquire) { Err(self.poison_error()) } else { Ok(()) }
    }

    #[cold]
    fn poison_error(&self) -> Error {
        Error::Poisoned(self.poison.read().clone().unwrap_or_default())
    }

    fn notify_listeners(&self) {
        for listener in self.listeners.lock().iter() {
            listener(self.durable());
        }
    }

    pub(crate) fn listen(&self, listener: DurableListener) {
        self.listeners.lock().push(listener);
    }

    /// Sleeps until `position` is durable.
    pub(crate) fn wait(&self, position: LogPosition) -> Result<()> {
        if self.durable() >= position {
            return Ok(());
        }
        let mut waiters = self.waiters.lock();
        while self.durable() < position {
            self.check()?;
            let next = usize::from(position > waiters.covered);
            let moved = &self.moved[(waiters.syncs + next) % 2];
            moved.wait(&mut waiters);
        }
        Ok(())
    }

    /// Wakes the syncing thread if it is idle.
    #[inline]
    pub(crate) fn nudge(&self) {
        if self.idle.load(Ordering::SeqCst) {
            drop(self.work.lock());
            self.wake.notify_one();
        }
    }

    /// Adds a segment that was sealed.
    pub(super) fn add_sealed(&self, segment: Arc<Segment>) {
        self.unsynced.lock().push(segment);
    }

    /// Returns the segments that were sealed and not synced since.
    pub(super) fn unsynced(&self) -> Vec<Arc<Segment>> {
        self.unsynced.lock().clone()
    }

    /// Removes segments from the list of those to sync: they were synced, or removed.
    pub(super) fn drop_unsynced(&self, segments: &[Arc<Segment>]) {
        self.unsynced.lock().retain(|one| !segments.iter().any(|done| Arc::ptr_eq(one, done)));
    }

    /// Sleeps until nudged, unless `has_work` returns true. Called by the syncing thread.
    pub(crate) fn sleep(&self, has_work: impl Fn() -> bool) {
        let mut work = self.work.lock();
        self.idle.store(true, Ordering::SeqCst);
        if !has_work() {
            // The time limit covers a stop without a nudge.
            self.wake.wait_for(&mut work, Duration::from_millis(100));
        }
        self.idle.store(false, Ordering::SeqCst);
    }
}
