//! State that all Lua states of a process share: limits, stash, named locks, code of `_eval`.

use crate::clock::CallClock;
use crate::limits::{EVAL_BYTES_MAX, Limits};
use crate::locks::NamedLocks;
use crate::memory::{Charge, TotalMemory};
use crate::sorter::{SortDisk, Sorter};
use crate::stash::Stash;
use parking_lot::Mutex;
use server::{Rights, ScriptRecords};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Parts of Lua that a script has only if its operator allows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Files: `io`, `require`, `dofile`, `os.remove`, `_stat`, `_glob`, `_mkdir`, `_remove`.
    pub files: bool,
    /// Other programs: `os.execute`, `io.popen`, and the environment by `os.getenv`.
    pub programs: bool,
}

/// State that all Lua states share.
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) allowed: Allowed,
    pub(crate) memory: Arc<TotalMemory>,
    pub(crate) stash: Stash,
    pub(crate) locks: NamedLocks,
    pub(crate) evaluations: Evaluations,
    pub(crate) sort_disk: Arc<SortDisk>,
    pub(crate) states: OnceLock<Box<dyn States>>,
}

/// The states of a script, for functions of one of them.
pub(crate) trait States: Send + Sync {
    /// Executes the code of `_eval` that is left in states without a call, in the name of a call
    /// with these records, within what it has left of its limits.
    fn evaluate_in_idle(&self, records: &ScriptRecords, clock: &CallClock);

    /// Makes a mapper of `tyrant.map_reduce`, which has a state of its own, and ends after a time.
    fn make_mapper(
        &self,
        records: &Arc<ScriptRecords>,
        functions: &MapFunctions,
        folder: &Path,
        time: Duration,
    ) -> Result<Box<dyn Mapper>, String>;
}

/// Names of the global functions that a mapper calls.
pub(crate) struct MapFunctions {
    /// Called with each record.
    pub(crate) map: String,
    /// Called after the last record.
    pub(crate) finish: Option<String>,
}

/// A mapper of one thread.
pub(crate) trait Mapper {
    /// Maps a record.
    fn map(&mut self, key: &[u8], value: &[u8]) -> Result<(), String>;

    /// Returns what was emitted.
    fn finish(self: Box<Self>) -> Result<Sorter, String>;
}

impl Shared {
    pub(crate) fn new(limits: Limits, allowed: Allowed) -> Self {
        let memory = Arc::new(TotalMemory::new(limits.total_bytes));
        let stash = Stash::new(limits.stash_bytes, Arc::clone(&memory));
        let evaluations = Evaluations::default();
        let sort_disk = Arc::new(SortDisk::new(limits.sort_disk_bytes));
        let (locks, states) = (NamedLocks::default(), OnceLock::new());
        Self { limits, allowed, memory, stash, locks, evaluations, sort_disk, states }
    }

    /// Returns a sorter with files in a folder.
    pub(crate) fn sorter(&self, folder: PathBuf) -> Sorter {
        let sorter = Sorter::new(folder, self.limits.sort_bytes, Arc::clone(&self.sort_disk));
        sorter.charged(Charge::new(&self.memory))
    }
}

/// Code of `_eval` that states have not yet executed.
#[derive(Default)]
pub(crate) struct Evaluations {
    queues: Mutex<Vec<(usize, Queue)>>,
    is_any: AtomicBool,
}

/// Code of `_eval`.
#[derive(Clone, Debug)]
pub(crate) struct Evaluation {
    pub(crate) code: Arc<[u8]>,
    /// Rights of the call that has left it.
    pub(crate) rights: Option<Arc<Rights>>,
}

#[derive(Default)]
struct Queue {
    codes: VecDeque<Evaluation>,
    bytes: usize,
}

impl Evaluations {
    /// Adds the state of a script thread.
    pub(crate) fn add_state(&self, thread: usize) {
        let mut queues = self.queues.lock();
        queues.retain(|(other, _)| *other != thread);
        queues.push((thread, Queue::default()));
    }

    /// Removes the state of a script thread.
    pub(crate) fn remove_state(&self, thread: usize) {
        self.queues.lock().retain(|(other, _)| *other != thread);
    }

    /// Adds code for all states but that of `thread`, which is executed with these rights. Returns
    /// whether all have space for it; if not, none gets it.
    pub(crate) fn add(&self, thread: usize, code: &[u8], rights: Option<Arc<Rights>>) -> bool {
        let mut queues = self.queues.lock();
        let is_full = |queue: &Queue| queue.bytes.saturating_add(code.len()) > EVAL_BYTES_MAX;
        let mut others = queues.iter_mut().filter(|(other, _)| *other != thread);
        if others.any(|(_, queue)| is_full(queue)) {
            return false;
        }
        let evaluation = Evaluation { code: code.into(), rights };
        for (_, queue) in queues.iter_mut().filter(|(other, _)| *other != thread) {
            queue.bytes += code.len();
            queue.codes.push_back(evaluation.clone());
        }
        self.is_any.store(true, Ordering::Release);
        true
    }

    /// Returns whether there is code that a state has not yet executed.
    fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// Returns whether there is code for the state of a thread.
    pub(crate) fn has(&self, thread: usize) -> bool {
        let is_own = |(other, queue): &(usize, Queue)| *other == thread && !queue.codes.is_empty();
        self.is_any() && self.queues.lock().iter().any(is_own)
    }

    /// Takes the next code for the state of a thread.
    pub(crate) fn next(&self, thread: usize) -> Option<Evaluation> {
        let mut queues = self.queues.lock();
        let (_, queue) = queues.iter_mut().find(|(other, _)| *other == thread)?;
        let evaluation = queue.codes.pop_front()?;
        queue.bytes -= evaluation.code.len();
        if queues.iter().all(|(_, queue)| queue.codes.is_empty()) {
            self.is_any.store(false, Ordering::Release);
        }
        Some(evaluation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_other_state_executes_code_once_and_in_order() {
        let evaluations = Evaluations::default();
        (0..3).for_each(|thread| evaluations.add_state(thread));
        let next = |thread| evaluations.next(thread).map(|next| next.code.to_vec());
        assert!(evaluations.add(0, b"a", None) && evaluations.add(1, b"b", None));
        assert_eq!(next(0).as_deref(), Some(&b"b"[..]));
        assert_eq!(next(1).as_deref(), Some(&b"a"[..]));
        assert!(evaluations.is_any());
        assert_eq!(next(2).as_deref(), Some(&b"a"[..]));
        assert_eq!(next(2).as_deref(), Some(&b"b"[..]));
        assert!(!evaluations.is_any());
        assert_eq!(next(2), None);
    }

    #[test]
    fn code_that_no_state_has_executed_has_a_limit() {
        let evaluations = Evaluations::default();
        (0..2).for_each(|thread| evaluations.add_state(thread));
        assert!(evaluations.add(0, &vec![b' '; EVAL_BYTES_MAX - 1], None));
        assert!(!evaluations.add(0, b"  ", None));
        assert!(evaluations.add(0, b" ", None));
        assert!(!evaluations.add(0, b" ", None));
        assert!(evaluations.add(1, b" ", None), "the queue of the other state has space");
        evaluations.next(1);
        assert!(evaluations.add(0, b" ", None));
    }
}
