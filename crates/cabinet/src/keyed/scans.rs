//! Scans in progress, and the records that move while they run.
//!
//! A scan reads the log from its beginning to the end that the log had when the scan began. It
//! visits a record where the index points to it. The part still to visit lies between the scan's
//! frontier and its end. A record that leaves this part, because it is overwritten or compacted,
//! would be missed. The thread that moves it therefore names it to the scan, under the lock of its
//! shard. The scan passes a record under the same lock, so both agree whether a record is before
//! the frontier.
//!
//! A segment whose records are all live need not be compared with the index. The frontier passes
//! many of its records at once, without the locks of their shards. It does so under the lock of the
//! names, after checking that the segment has lost no record. A thread that moves a record first
//! notes the loss and then takes that lock. So either the scan sees the loss, or the record is
//! before the frontier.
//!
//! A record that moves goes to the end of the log, beyond the end of the scan. It is therefore
//! named at most once. Later changes of it do not matter, because the scan looks it up. So a scan
//! uses at most [`NAME_BYTES`] of memory per record of the database, less than the index.
//!
//! # Iterations
//!
//! An iteration ([`super::iteration`]) is a scan that a client may abandon. Two limits bound its
//! cost: [`ITERATIONS_MAX`] iterations at a time, and [`ITERATION_NAMES_MAX`] names for each. An
//! iteration over a limit is *given up*. Its names are dropped, no more records are named to it,
//! and it continues through the index. There it visits the records that are not before its
//! frontier.
//!
//! Only the iteration moves its frontier, perhaps while another thread gives it up. That thread
//! need not know the frontier. It marks the iteration before removing it from the set, and the
//! iteration checks the mark after each step. A record that was not named because of the mark has
//! moved beyond the end, so it is not before the frontier. The same holds for records whose names
//! were dropped.

use super::alive::Alive;
use crate::base::sync::{Mutex, interrupt};
use crate::log::Lsn;
use arc_swap::ArcSwap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Bytes of memory for the name of a record.
const NAME_BYTES: usize = size_of::<u64>();

/// Names in a piece of memory of 64 KiB. A single vector would hold all names twice while it grows.
const PIECE_NAMES: usize = (64 << 10) / NAME_BYTES;

/// Most iterations of a database to which moved records are named. One more gives up the least
/// recently used one.
pub(super) const ITERATIONS_MAX: usize = 8;

/// Most names kept for an iteration: 512 KiB.
pub(super) const ITERATION_NAMES_MAX: usize = 64 << 10;

/// Scans in progress.
#[derive(Default)]
pub(super) struct Scans {
    /// Whether there is any scan. If there is none, writers read nothing else.
    is_any: AtomicBool,
    all: ArcSwap<Vec<Arc<Progress>>>,
    /// Held while the set changes. Writers take it under the lock of a shard.
    changing: Mutex<()>,
    /// Number of uses of iterations so far.
    uses: AtomicU64,
}

impl Scans {
    /// Adds a scan. `set_end` calls its argument with the end of the log while nothing is appended,
    /// so every later append is beyond the end.
    pub(super) fn begin(self: &Arc<Self>, set_end: impl FnOnce(&dyn Fn(Lsn))) -> Registered {
        self.add(Progress::default(), set_end)
    }

    /// Adds an iteration from an LSN on. If there are too many, gives up another.
    pub(super) fn begin_iteration(
        self: &Arc<Self>,
        from: Lsn,
        set_end: impl FnOnce(&dyn Fn(Lsn)),
    ) -> Registered {
        let progress = Progress {
            frontier: AtomicU64::new(from.bits()),
            from,
            names_max: ITERATION_NAMES_MAX,
            ..Progress::default()
        };
        self.note_use(&progress);
        self.add(progress, set_end)
    }

    fn add(self: &Arc<Self>, progress: Progress, set_end: impl FnOnce(&dyn Fn(Lsn))) -> Registered {
        let progress = Arc::new(progress);
        self.change(|all| {
            let iterations = all.iter().filter(|one| one.is_iteration());
            if progress.is_iteration() && iterations.clone().count() >= ITERATIONS_MAX {
                let oldest = iterations.min_by_key(|one| one.last_use.load(Ordering::Relaxed));
                let oldest = oldest.cloned();
                oldest.iter().for_each(|one| one.give_up());
                all.retain(|one| !oldest.as_ref().is_some_and(|oldest| Arc::ptr_eq(one, oldest)));
            }
            all.push(Arc::clone(&progress));
        });
        set_end(&|lsn| progress.end.store(lsn.bits(), Ordering::Release));
        Registered { scans: Arc::clone(self), progress }
    }

    /// Notes that an iteration was used.
    pub(super) fn note_use(&self, progress: &Progress) {
        progress.last_use.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Removes a scan.
    fn finish(&self, progress: &Progress) {
        self.change(|all| all.retain(|one| !std::ptr::eq(&raw const **one, progress)));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Progress>>)) {
        let _changing = self.changing.lock();
        let mut all = Vec::clone(&self.all.load());
        change(&mut all);
        let is_any = !all.is_empty();
        self.all.store(Arc::new(all));
        self.is_any.store(is_any, Ordering::Release);
    }

    /// Returns whether a scan is in progress. A scan that began before this thread's last append is
    /// seen, because both took the lock of the log's tail.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Names a moved record to the scans that would miss it. The caller holds the lock of its
    /// shard.
    #[cold]
    pub(super) fn note_moved(&self, name: u64, from: Lsn, to: Lsn) {
        for progress in self.all.load().iter() {
            if !progress.note_moved(name, from, to) {
                self.finish(progress);
            }
        }
    }
}

/// A scan to which moved records are named, until this is dropped.
pub(super) struct Registered {
    scans: Arc<Scans>,
    progress: Arc<Progress>,
}

impl Deref for Registered {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        &self.progress
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.scans.finish(&self.progress);
    }
}

/// Progress of a scan.
pub(super) struct Progress {
    /// LSN up to which the log was visited.
    frontier: AtomicU64,
    /// LSN of the first record to visit.
    from: Lsn,
    /// LSN of the end of the log when the scan began.
    end: AtomicU64,
    moved: Mutex<Moved>,
    moved_count: AtomicUsize,
    /// Most names kept; `usize::MAX` for a scan that is no iteration.
    names_max: usize,
    /// Number of the latest use of an iteration.
    last_use: AtomicU64,
    /// Records of the current segment that the runs have, if the index is in runs.
    alive: Mutex<Option<Arc<Alive>>>,
}

/// Records that have moved and are not visited yet.
#[derive(Default)]
struct Moved {
    pieces: Vec<Vec<u64>>,
    /// No more records are named.
    is_given_up: bool,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            frontier: AtomicU64::new(0),
            from: Lsn::default(),
            end: AtomicU64::new(u64::MAX),
            moved: Mutex::default(),
            moved_count: AtomicUsize::new(0),
            names_max: usize::MAX,
            last_use: AtomicU64::new(0),
            alive: Mutex::default(),
        }
    }
}

impl Progress {
    /// Returns the LSN of the first record to visit.
    pub(super) fn from(&self) -> Lsn {
        self.from
    }

    pub(super) fn end(&self) -> Lsn {
        Lsn::from_bits(self.end.load(Ordering::Acquire))
    }

    /// Returns the LSN up to which the log was visited. Only the scan moves it.
    pub(super) fn frontier(&self) -> Lsn {
        Lsn::from_bits(self.frontier.load(Ordering::Relaxed))
    }

    pub(super) fn is_iteration(&self) -> bool {
        self.names_max < usize::MAX
    }

    pub(super) fn alive(&self) -> &Mutex<Option<Arc<Alive>>> {
        &self.alive
    }

    /// Moves the frontier. The caller holds the lock of the shard of a record that is passed.
    #[inline]
    pub(super) fn pass_to(&self, frontier: Lsn) {
        self.frontier.store(frontier.bits(), Ordering::Relaxed);
    }

    /// Moves the frontier past records of a segment if `is_all_live` finds that the index points to
    /// all its records. Returns whether it does.
    pub(super) fn pass_all_to(&self, frontier: Lsn, is_all_live: impl FnOnce() -> bool) -> bool {
        let _names = self.moved.lock();
        let is_all_live = is_all_live();
        interrupt();
        if is_all_live {
            self.pass_to(frontier);
        }
        is_all_live
    }

    /// Names a record that has moved. Returns false if the limit of names is reached, which gives
    /// the scan up.
    fn note_moved(&self, name: u64, from: Lsn, to: Lsn) -> bool {
        let end = self.end();
        let is_passed = || from.bits() < self.frontier.load(Ordering::Relaxed);
        // A record that was moved before the scan began is visited at its new location.
        if from < end && to >= end && !is_passed() {
            interrupt();
            let mut moved = self.moved.lock();
            if is_passed() || moved.is_given_up {
                return true;
            }
            if self.moved() >= self.names_max {
                self.give_up_locked(&mut moved);
                return false;
            }
            match moved.pieces.last_mut() {
                Some(last) if last.len() < PIECE_NAMES => last.push(name),
                _ => {
                    let mut piece = Vec::with_capacity(PIECE_NAMES);
                    piece.push(name);
                    moved.pieces.push(piece);
                }
            }
            self.moved_count.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Drops all names, and keeps no more.
    fn give_up(&self) {
        self.give_up_locked(&mut self.moved.lock());
    }

    fn give_up_locked(&self, moved: &mut Moved) {
        *moved = Moved { pieces: Vec::new(), is_given_up: true };
        self.moved_count.store(0, Ordering::Relaxed);
        *self.alive.lock() = None;
    }

    /// Returns whether moved records are named no more, so that names may have been dropped.
    pub(super) fn is_given_up(&self) -> bool {
        self.moved.lock().is_given_up
    }

    /// Returns the number of records that have moved and are not visited yet.
    pub(super) fn moved(&self) -> usize {
        self.moved_count.load(Ordering::Relaxed)
    }

    /// Removes and returns up to `count` names of records that have moved.
    pub(super) fn take_moved(&self, count: usize) -> Vec<u64> {
        let mut moved = self.moved.lock();
        let Some(last) = moved.pieces.last_mut() else { return Vec::new() };
        let names = last.split_off(last.len().saturating_sub(count));
        if last.is_empty() {
            moved.pieces.pop();
        }
        self.moved_count.fetch_sub(names.len(), Ordering::Relaxed);
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sync::model;
    use crate::log::AllLive;

    fn lsn(number: u64) -> Lsn {
        Lsn::new(number, 64)
    }

    #[test]
    fn only_records_that_a_scan_would_miss_are_named_to_it() {
        let scans = Arc::new(Scans::default());
        assert!(!scans.is_any());
        let progress = scans.begin(|set_end| set_end(lsn(10)));
        assert!(scans.is_any());
        progress.pass_to(lsn(4));
        for (name, from, to) in [
            // It was visited.
            (1, lsn(3), lsn(11)),
            // It will be met.
            (2, lsn(4), lsn(9)),
            // It is newer than the scan.
            (3, lsn(10), lsn(11)),
            (4, lsn(4), lsn(10)),
            (5, lsn(9), lsn(12)),
        ] {
            scans.note_moved(name, from, to);
        }
        assert_eq!((progress.moved(), progress.take_moved(9)), (2, vec![4, 5]));
        assert_eq!((progress.moved(), progress.take_moved(9)), (0, vec![]));
        drop(progress);
        assert!(!scans.is_any());
    }

    #[test]
    fn names_take_the_memory_of_whole_pieces() {
        let scans = Arc::new(Scans::default());
        let progress = scans.begin(|set_end| set_end(lsn(10)));
        let count = 3 * PIECE_NAMES as u64 + 1;
        (0..count).for_each(|name| scans.note_moved(name, lsn(5), lsn(11)));
        let capacity: usize = progress.moved.lock().pieces.iter().map(Vec::capacity).sum();
        assert_eq!(capacity, 4 * PIECE_NAMES);
        let mut taken = Vec::new();
        while progress.moved() > 0 {
            taken.extend(progress.take_moved(1000));
        }
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..count));
        assert!(progress.moved.lock().pieces.is_empty());
    }

    /// A writer moves records of a segment that has lost none so far, while a scan passes two at a
    /// time. One lock stands in for the locks of the shards.
    #[test]
    fn a_record_that_moves_while_many_are_passed_is_met_once() {
        const RECORDS: u64 = 6;
        const FIRST: u64 = 4;
        const END: u64 = 100;
        model::run(7, 3000, || {
            let progress = Arc::new(Progress::default());
            progress.end.store(lsn(END).bits(), Ordering::Release);
            let all_live = Arc::new(AllLive::default());
            all_live.find_all();
            let index: Arc<Mutex<Vec<u64>>> =
                Arc::new(Mutex::new((FIRST..FIRST + RECORDS).collect()));
            let writer = {
                let (progress, all_live) = (Arc::clone(&progress), Arc::clone(&all_live));
                let index = Arc::clone(&index);
                shuttle::thread::spawn(move || {
                    for name in [3, 0, 4] {
                        let mut index = index.lock();
                        all_live.lose();
                        interrupt();
                        let from = std::mem::replace(&mut index[name], END + name as u64);
                        progress.note_moved(name as u64, lsn(from), lsn(END + name as u64));
                    }
                })
            };
            let mut met = Vec::new();
            for first in (0..RECORDS).step_by(2) {
                let names = first..first + 2;
                if progress.pass_all_to(lsn(FIRST + names.end), || all_live.get()) {
                    met.extend(names);
                    continue;
                }
                for name in names {
                    let index = index.lock();
                    progress.pass_to(lsn(FIRST + name + 1));
                    if index[name as usize] == FIRST + name {
                        met.push(name);
                    }
                }
            }
            writer.join().unwrap();
            met.extend(progress.take_moved(usize::MAX));
            met.sort_unstable();
            assert!(met.iter().copied().eq(0..RECORDS), "{met:?}");
        });
    }

    #[test]
    fn one_iteration_too_many_gives_up_the_one_that_was_used_least_recently() {
        let scans = Arc::new(Scans::default());
        let begin = || scans.begin_iteration(Lsn::default(), |set_end| set_end(lsn(10)));
        let scan = scans.begin(|set_end| set_end(lsn(10)));
        let iterations: Vec<_> = (0..ITERATIONS_MAX).map(|_| begin()).collect();
        scans.note_use(&iterations[0]);
        scans.note_moved(1, lsn(5), lsn(11));
        let more = begin();
        scans.note_moved(2, lsn(5), lsn(11));
        for (index, iteration) in iterations.iter().enumerate() {
            assert_eq!(iteration.is_given_up(), index == 1);
            assert_eq!(iteration.moved(), if index == 1 { 0 } else { 2 });
        }
        assert_eq!((more.moved(), scan.moved()), (1, 2));
        // Dropping an iteration makes room for another.
        drop(more);
        let last = begin();
        assert_eq!(iterations.iter().filter(|one| one.is_given_up()).count(), 1);
        drop((iterations, last));
        assert!(scans.is_any());
        drop(scan);
        assert!(!scans.is_any());
    }

    #[test]
    fn an_iteration_is_given_up_at_one_name_too_many_and_a_scan_never() {
        let scans = Arc::new(Scans::default());
        let iteration = scans.begin_iteration(lsn(2), |set_end| set_end(lsn(10)));
        let scan = scans.begin(|set_end| set_end(lsn(10)));
        let most = ITERATION_NAMES_MAX as u64;
        // Records from before its beginning do not matter to it.
        scans.note_moved(0, lsn(1), lsn(11));
        (0..most).for_each(|name| scans.note_moved(name, lsn(5), lsn(11)));
        assert_eq!((iteration.moved(), iteration.is_given_up()), (ITERATION_NAMES_MAX, false));
        scans.note_moved(most, lsn(5), lsn(11));
        assert_eq!((iteration.moved(), iteration.is_given_up()), (0, true));
        assert!(iteration.moved.lock().pieces.is_empty());
        assert_eq!(scans.all.load().len(), 1);
        assert_eq!(scan.moved(), ITERATION_NAMES_MAX + 2);
    }

    /// A writer moves records while an iteration passes them, and another thread gives it up. The
    /// records not visited by then are not before its frontier. One lock stands in for the locks of
    /// the shards.
    #[test]
    fn a_record_that_moves_while_an_iteration_is_given_up_is_met() {
        const RECORDS: u64 = 5;
        const FIRST: u64 = 4;
        const END: u64 = 100;
        model::run(7, 3000, || {
            let scans = Arc::new(Scans::default());
            let begin = |scans: &Arc<Scans>| {
                scans.begin_iteration(Lsn::default(), |set_end| set_end(lsn(END)))
            };
            let iteration = begin(&scans);
            let index: Arc<Mutex<Vec<u64>>> =
                Arc::new(Mutex::new((FIRST..FIRST + RECORDS).collect()));
            let writer = {
                let (scans, index) = (Arc::clone(&scans), Arc::clone(&index));
                shuttle::thread::spawn(move || {
                    for name in [3, 0, 4, 1] {
                        let mut index = index.lock();
                        let (from, to) = (index[name], END + name as u64);
                        index[name] = to;
                        interrupt();
                        if scans.is_any() {
                            scans.note_moved(name as u64, lsn(from), lsn(to));
                        }
                    }
                })
            };
            let others = {
                let scans = Arc::clone(&scans);
                shuttle::thread::spawn(move || {
                    drop((0..ITERATIONS_MAX).map(|_| begin(&scans)).collect::<Vec<_>>());
                })
            };
            let (mut met, mut moved) = (Vec::new(), Vec::new());
            let mut next = 0;
            while next < RECORDS && !iteration.is_given_up() {
                {
                    let index = index.lock();
                    iteration.pass_to(lsn(FIRST + next + 1));
                    if index[next as usize] == FIRST + next {
                        met.push(next);
                    }
                }
                next += 1;
                interrupt();
            }
            if next == RECORDS {
                iteration.pass_to(iteration.end());
                moved.extend(iteration.take_moved(usize::MAX));
            }
            if iteration.is_given_up() {
                for name in 0..RECORDS {
                    let index = index.lock();
                    if lsn(index[name as usize]) >= iteration.frontier() {
                        moved.push(name);
                    }
                }
            }
            writer.join().unwrap();
            others.join().unwrap();
            for name in 0..RECORDS {
                let has_moved = index.lock()[name as usize] >= END;
                let times =
                    [&met, &moved].map(|all| all.iter().filter(|one| **one == name).count());
                let [first, second] = times;
                assert!(first + second >= 1, "{name} of {met:?}, {moved:?}");
                assert!(first + second == 1 || has_moved, "{name} of {met:?}, {moved:?}");
            }
        });
    }
}
