//! Group commit: many writers share one sync.
//!
//! A writer appends, then waits until the durable position has come past its record. One
//! thread syncs back to back for as long as something is not durable; each sync covers all that
//! was appended before it began, and releases every writer of those. The others, which appended
//! while it went on, are left asleep: they wait for the next one.
//!
//! [`sync`] has the sync itself, which connects this with the writer and the segments.

mod sync;

use super::segments::{Segment, SegmentOffset};
use super::stats::Timed;
use crate::DurableListener;
use crate::sync::Mutex;
use crate::{Error, LogPosition, Result};
use parking_lot::{Condvar, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The durable position of a log, and the writers that wait for it to advance.
#[derive(Default)]
pub(crate) struct Commit {
    durable: AtomicU64,
    /// Why writing has stopped, if it has.
    poison: RwLock<Option<String>>,
    poisoned: AtomicBool,
    waiters: Mutex<Waiters>,
    /// Writers that the present sync covers sleep on one, those of the next sync on the other.
    moved: [Condvar; 2],
    /// The syncing thread sleeps and wants to be told of the next append.
    idle: AtomicBool,
    work: Mutex<()>,
    wake: Condvar,
    listeners: Mutex<Vec<DurableListener>>,
    /// Held while files are being synced. Holds the place up to which everything was synced last,
    /// and which no mark tells of yet.
    syncing: Mutex<Option<SegmentOffset>>,
    /// Sealed segments that were not synced yet, oldest first.
    unsynced: Mutex<Vec<Arc<Segment>>>,
    syncs: Timed,
}

#[derive(Default)]
struct Waiters {
    /// How many syncs were begun.
    syncs: usize,
    /// Position up to which the last of them covers the log.
    covered: LogPosition,
}

impl Commit {
    /// A log begins with these sealed segments. It is not known whether they were synced.
    pub(super) fn new(sealed: Vec<Arc<Segment>>) -> Self {
        Self { unsynced: Mutex::new(sealed), ..Self::default() }
    }

    pub(crate) fn durable(&self) -> LogPosition {
        self.durable.load(Ordering::Acquire)
    }

    /// Syncs of the active segment, and the time in which the disk made files durable for them.
    pub(super) fn syncs(&self) -> &Timed {
        &self.syncs
    }

    /// A sync begins, which covers everything before `position`. There is one at a time.
    fn begin(&self, position: LogPosition) {
        let mut waiters = self.waiters.lock();
        waiters.syncs += 1;
        waiters.covered = position;
    }

    /// Everything before `position` is durable now: what the sync that was begun covers.
    fn advance(&self, position: LogPosition) {
        self.durable.fetch_max(position, Ordering::AcqRel);
        // Taken so that nobody misses this between looking and sleeping.
        let syncs = self.waiters.lock().syncs;
        self.moved[syncs % 2].notify_all();
        self.tell();
    }

    /// No further write will be accepted, and none that waits be acknowledged.
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
        self.tell();
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

    fn tell(&self) {
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

    /// Tells the syncing thread that there is something to do.
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

    /// The segments that were sealed and not synced since.
    pub(super) fn unsynced(&self) -> Vec<Arc<Segment>> {
        self.unsynced.lock().clone()
    }

    /// Takes segments off the list of those to sync: they were, or are gone.
    pub(super) fn drop_unsynced(&self, segments: &[Arc<Segment>]) {
        self.unsynced.lock().retain(|one| !segments.iter().any(|done| Arc::ptr_eq(one, done)));
    }

    /// The syncing thread sleeps until nudged, unless `has_work` says otherwise.
    pub(crate) fn sleep(&self, has_work: impl Fn() -> bool) {
        let mut work = self.work.lock();
        self.idle.store(true, Ordering::SeqCst);
        if !has_work() {
            // The bound is for the case of a stop that nobody nudges for.
            self.wake.wait_for(&mut work, Duration::from_millis(100));
        }
        self.idle.store(false, Ordering::SeqCst);
    }
}
