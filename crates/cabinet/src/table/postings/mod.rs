//! Postings: the contents of all indices, in blocks, with the latest changes in memory.
//!
//! A row has dozens of postings of a few bytes each, scattered over its indices. So they are not
//! written one by one. Changes are gathered in memory, and a [flusher](flusher) thread merges them
//! into [`block`]s in the order of their keys. A [`View`] reads both together. After a crash,
//! changes that were lost are restored from the [pending-change log](pending_changes).
//!
//! # Locks
//!
//! In the order in which they are taken: `flushing` (one flush at a time); `write_gate`; `state`. A
//! thread that takes them may hold the table's `structure` and a stripe. A thread that changes a
//! row holds `write_gate` for reading until its changes are in memory. A flush holds it briefly for
//! writing, so that all changes that the pending-change log has by then are in memory.

mod block;
mod changes;
mod flush;
mod flusher;
mod pending_changes;
mod physical;
mod view;

#[cfg(test)]
mod tests;

pub(super) use changes::Changes;
pub(super) use flusher::Flusher;
pub(super) use view::View;

use super::evict::BUDGET_OF_CAP;
use crate::limits::BATCH_BYTES_MAX;
use crate::{Batch, Engine, Error, Options, Ordered, Result, Wait};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Divisor of the page cache's size: the budget of changes in memory, which are not part of the
/// cache.
const CACHE_SHARE: u64 = 8;
/// Maximum budget of changes in memory, in bytes.
const BUDGET_BYTES_MAX: u64 = 32 << 20;

/// Factor of the budget up to which removals are accepted on a full disk, on which changes cannot
/// be merged into blocks.
const FULL_DISK_BUDGETS: usize = 4;

/// Bytes of new changes after which they are sorted into a run.
const RUN_BYTES: usize = 4 << 20;

/// Postings of a table.
pub(super) struct PostingStore {
    engine: Arc<dyn Engine>,
    /// Bytes of changes in memory above which they are merged into blocks. If the table has a cap,
    /// the bytes of notes count, too.
    budget_bytes: AtomicUsize,
    /// Budget of a table without a cap, in bytes.
    budget_bytes_max: usize,
    is_capped: AtomicBool,
    flushing: Mutex<()>,
    write_gate: RwLock<()>,
    state: Mutex<State>,
    /// Bytes of memory of the changes.
    bytes: AtomicUsize,
    /// Bytes of the pending-change log.
    noted_bytes: AtomicUsize,
    /// Number of the next record of the pending-change log.
    next_sequence: AtomicU64,
    pace: flusher::Pace,
}

/// Changes that are not merged into blocks yet.
#[derive(Default)]
struct State {
    /// Latest changes, in the order in which they came.
    tail: Changes,
    /// Earlier changes in sorted runs, oldest run first.
    runs: Vec<Arc<Changes>>,
    /// Number of runs that the current flush merges.
    in_flush: usize,
}

impl State {
    /// Sorts the latest changes into a run.
    fn seal(&mut self) {
        if self.tail.is_empty() {
            return;
        }
        let mut run = std::mem::take(&mut self.tail);
        run.sort();
        // Short runs are merged, so that there are few even if queries seal often.
        while self.runs.len() > self.in_flush
            && let Some(before) = self.runs.last()
            && before.memory_bytes() <= 2 * run.memory_bytes()
            && before.memory_bytes() + run.memory_bytes() <= RUN_BYTES
        {
            run = Changes::merge(before, &run);
            self.runs.pop();
        }
        self.runs.push(Arc::new(run));
    }

    fn memory_bytes(&self) -> usize {
        let runs: usize = self.runs.iter().map(|run| run.memory_bytes()).sum();
        self.tail.memory_bytes() + runs
    }
}

/// Changes of the postings of one row.
pub(super) struct RowPostings<'r> {
    pub(super) primary: &'r [u8],
    /// The encoded row before the change.
    pub(super) before: Option<&'r [u8]>,
    pub(super) changes: Changes,
}

impl PostingStore {
    pub(super) fn new(engine: Arc<dyn Engine>, options: &Options) -> Self {
        let share = options.cache_bytes_max() as u64 / CACHE_SHARE;
        let budget_bytes_max = share.min(BUDGET_BYTES_MAX) as usize;
        let cap = engine.as_ordered().and_then(Ordered::owned_cap);
        let postings = Self {
            engine,
            budget_bytes: AtomicUsize::new(budget_bytes_max),
            budget_bytes_max,
            is_capped: AtomicBool::new(false),
            flushing: Mutex::new(()),
            write_gate: RwLock::new(()),
            state: Mutex::default(),
            bytes: AtomicUsize::new(0),
            noted_bytes: AtomicUsize::new(0),
            next_sequence: AtomicU64::new(0),
            pace: flusher::Pace::default(),
        };
        if let Some((_, max)) = cap {
            postings.set_cap(max);
        }
        postings
    }

    /// Reduces the budget to its share of the table's cap.
    pub(super) fn set_cap(&self, bytes_max: u64) {
        let share = usize::try_from(bytes_max / BUDGET_OF_CAP).unwrap_or(usize::MAX);
        self.budget_bytes.store(self.budget_bytes_max.min(share), Ordering::Relaxed);
        self.is_capped.store(true, Ordering::Relaxed);
    }

    fn budget_bytes(&self) -> usize {
        self.budget_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the pending-change log.
    pub(super) fn noted_bytes(&self) -> usize {
        self.noted_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes that count towards the budget.
    fn used_bytes(&self) -> usize {
        let bytes = self.bytes.load(Ordering::Relaxed);
        if self.is_capped.load(Ordering::Relaxed) { bytes.max(self.noted_bytes()) } else { bytes }
    }

    /// Restores the postings that a crash has lost. `make` gets the key of a row and the row before
    /// its change. It returns the postings of that row, which are removed, and those of the current
    /// row, which are added.
    pub(super) fn recover(
        &self,
        make: impl Fn(&[u8], Option<&[u8]>) -> Result<(Vec<Changes>, Vec<Changes>)>,
    ) -> Result<()> {
        pending_changes::for_each(&*self.engine, |record| {
            let (before, now) = make(&record.primary, record.before.as_deref())?;
            before.into_iter().for_each(|postings| self.add(&postings.into_removals()));
            now.iter().for_each(|postings| self.add(postings));
            self.next_sequence.store(record.sequence.saturating_add(1), Ordering::Release);
            self.note(&record.primary, record.before.as_deref());
            Ok(())
        })
    }

    /// Applies a batch that changes rows, and the changes of their postings. Fails with
    /// [`Error::BatchTooLong`] if the postings exceed [`BATCH_BYTES_MAX`].
    pub(super) fn write(&self, mut batch: Batch, rows: &[RowPostings<'_>]) -> Result<()> {
        let bytes: usize = rows.iter().map(|row| row.changes.content_bytes()).sum();
        if bytes > BATCH_BYTES_MAX {
            return Err(Error::BatchTooLong { bytes, max: BATCH_BYTES_MAX });
        }
        let _gate = self.write_gate.read();
        for row in rows.iter().filter(|row| !row.changes.is_empty()) {
            let sequence = self.next_sequence.fetch_add(1, Ordering::AcqRel);
            pending_changes::note(&*self.engine, &mut batch, sequence, row.primary, row.before)?;
        }
        self.engine.write(&batch, Wait::Block)?;
        for row in rows.iter().filter(|row| !row.changes.is_empty()) {
            self.note(row.primary, row.before);
            self.add(&row.changes);
        }
        Ok(())
    }

    /// Counts a record of the pending-change log.
    fn note(&self, primary: &[u8], before: Option<&[u8]>) {
        let bytes = primary.len() + before.map_or(0, <[u8]>::len);
        self.noted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds changes of postings, in memory only.
    pub(super) fn add(&self, changes: &Changes) {
        if changes.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        state.tail.append(changes);
        self.bytes.fetch_add(changes.memory_bytes(), Ordering::Relaxed);
        if state.tail.memory_bytes() > RUN_BYTES {
            state.seal();
        }
    }

    /// Returns all changes so far that are not in blocks, for a [`View`].
    pub(super) fn changes(&self) -> Vec<Arc<Changes>> {
        let mut state = self.state.lock();
        state.seal();
        state.runs.clone()
    }

    /// Flushes if the changes in memory exceed their budget. Leaves that to a [`Flusher`], or to
    /// another thread that is flushing, unless these cannot keep up. The caller holds no stripe.
    pub(super) fn flush_over_budget(&self) -> Result<()> {
        let (bytes, budget_bytes) = (self.used_bytes(), self.budget_bytes());
        if bytes <= budget_bytes {
            return Ok(());
        }
        if bytes <= 2 * budget_bytes && self.request_flush() {
            return Ok(());
        }
        if bytes > 2 * budget_bytes {
            let flushing = self.flushing.lock();
            if self.used_bytes() <= self.budget_bytes() {
                return Ok(());
            }
            return self.flush_locked(flushing);
        }
        match self.flushing.try_lock() {
            Some(flushing) => self.flush_locked(flushing),
            None => Ok(()),
        }
    }

    /// Like `flush_over_budget`. Returns whether the disk is too full to flush.
    pub(super) fn flush_over_budget_if_possible(&self) -> Result<bool> {
        match self.flush_over_budget() {
            Err(Error::NoSpace { .. }) => Ok(true),
            made => made.map(|()| false),
        }
    }

    /// Fails if the disk is too full to flush. Removals may take some more memory first.
    pub(super) fn check_full(&self, is_full: bool, removes: bool) -> Result<()> {
        let is_within = || self.used_bytes() <= FULL_DISK_BUDGETS * self.budget_bytes();
        if is_full && !(removes && is_within()) {
            return Err(Error::NoSpace { path: self.engine.medium().path() });
        }
        Ok(())
    }

    /// Merges all changes into blocks.
    pub(super) fn flush(&self) -> Result<()> {
        self.flush_locked(self.flushing.lock())
    }

    fn flush_locked(&self, _flushing: parking_lot::MutexGuard<'_, ()>) -> Result<()> {
        let (runs, before, bytes, noted_bytes) = {
            let _gate = self.write_gate.write();
            let mut state = self.state.lock();
            state.seal();
            state.in_flush = state.runs.len();
            let before = self.next_sequence.load(Ordering::Acquire);
            (state.runs.clone(), before, self.used_bytes(), self.noted_bytes())
        };
        let result = if runs.is_empty() {
            Ok(())
        } else {
            let changes: usize = runs.iter().map(|run| run.len()).sum();
            // The rest of the progress is for truncating the pending-change log.
            self.pace.begin(changes + changes / 7, bytes);
            let advance = |left| self.pace.advance(changes - left);
            let mut flushed = flush::flush(&*self.engine, &runs, false, advance);
            if matches!(flushed, Err(Error::NoSpace { .. })) {
                // Until this is done, the notes of removed rows take as much space as the rows did.
                flushed = flush::flush(&*self.engine, &runs, true, advance);
            }
            flushed.and_then(|()| pending_changes::forget(&*self.engine, before))
        };
        let mut state = self.state.lock();
        if result.is_ok() {
            state.runs.drain(..runs.len());
            self.bytes.store(state.memory_bytes(), Ordering::Relaxed);
            self.noted_bytes.fetch_sub(noted_bytes, Ordering::Relaxed);
        }
        state.in_flush = 0;
        result
    }

    /// Forgets all changes. `clear` removes the blocks and the pending-change log.
    pub(super) fn clear(&self, clear: impl FnOnce() -> Result<()>) -> Result<()> {
        let _flushing = self.flushing.lock();
        let _gate = self.write_gate.write();
        clear()?;
        *self.state.lock() = State::default();
        self.bytes.store(0, Ordering::Relaxed);
        self.noted_bytes.store(0, Ordering::Relaxed);
        Ok(())
    }
}
