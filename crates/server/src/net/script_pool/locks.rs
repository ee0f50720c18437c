//! Locks of script calls: calls that lock the same record, or all records, run one after the other.
//!
//! As in Tokyo Tyrant, the locks hold between calls that ask for them. A call that has to wait for
//! a lock waits in the queue, so that it takes no thread. Every call gets its turn: calls that come
//! after one for all records wait behind it, if they lock anything.

use crate::shared::script_locks::LOCKS;
use std::collections::VecDeque;

/// Lock that a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    None,
    /// One of [`LOCKS`].
    Record(usize),
    All,
}

/// Queue of jobs with locks. A job has its lock from when it is taken off the queue until the lock
/// is released.
#[derive(Debug)]
pub(super) struct LockQueue<J> {
    /// Jobs that have their locks.
    ready: VecDeque<(Lock, J)>,
    /// Jobs that wait for a record lock, by its number. The lock is held then.
    waiting: Box<[VecDeque<J>]>,
    /// Jobs that came after one that waits for all locks or holds them, and that one itself.
    behind_all: VecDeque<(Lock, J)>,
    is_held: Box<[bool]>,
    /// Number of record locks that are held.
    held: usize,
    is_all_held: bool,
    /// Number of jobs.
    len: usize,
}

impl<J> Default for LockQueue<J> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            waiting: (0..LOCKS).map(|_| VecDeque::new()).collect(),
            behind_all: VecDeque::new(),
            is_held: vec![false; LOCKS].into(),
            held: 0,
            is_all_held: false,
            len: 0,
        }
    }
}

impl<J> LockQueue<J> {
    /// Returns the number of jobs in the queue.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether a job can be taken.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Removes all jobs.
    pub(super) fn clear(&mut self) {
        self.ready.clear();
        self.behind_all.clear();
        self.waiting.iter_mut().for_each(VecDeque::clear);
        self.len = 0;
    }

    /// Adds a job.
    pub(super) fn push(&mut self, lock: Lock, job: J) {
        self.len += 1;
        if lock != Lock::None && (self.is_all_held || !self.behind_all.is_empty()) {
            self.behind_all.push_back((lock, job));
        } else {
            self.admit(lock, job);
        }
    }

    /// Removes and returns the next job that has its lock.
    pub(super) fn pop(&mut self) -> Option<(Lock, J)> {
        let job = self.ready.pop_front()?;
        self.len -= 1;
        Some(job)
    }

    /// Releases the lock of a job that was taken.
    pub(super) fn release(&mut self, lock: Lock) {
        match lock {
            Lock::None => return,
            Lock::Record(index) => {
                if let Some(job) = self.waiting[index].pop_front() {
                    self.ready.push_back((lock, job));
                    return;
                }
                self.is_held[index] = false;
                self.held -= 1;
            }
            Lock::All => self.is_all_held = false,
        }
        while !self.is_all_held
            && let Some((lock, _)) = self.behind_all.front()
            && (*lock != Lock::All || self.held == 0)
            && let Some((lock, job)) = self.behind_all.pop_front()
        {
            self.admit(lock, job);
        }
    }

    fn admit(&mut self, lock: Lock, job: J) {
        match lock {
            Lock::None => {}
            Lock::Record(index) if self.is_held[index] => {
                self.waiting[index].push_back(job);
                return;
            }
            Lock::Record(index) => {
                self.is_held[index] = true;
                self.held += 1;
            }
            Lock::All if self.held > 0 => {
                self.behind_all.push_back((lock, job));
                return;
            }
            Lock::All => self.is_all_held = true,
        }
        self.ready.push_back((lock, job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of the jobs that can be taken.
    fn ready(queue: &mut LockQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).map(|(_, job)| job).collect()
    }

    #[test]
    fn jobs_without_a_lock_never_wait() {
        let mut queue = LockQueue::default();
        queue.push(Lock::All, 1);
        queue.push(Lock::None, 2);
        queue.push(Lock::All, 3);
        queue.push(Lock::None, 4);
        assert_eq!(ready(&mut queue), [1, 2, 4]);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn jobs_on_one_record_run_one_after_the_other_and_those_on_others_do_not_wait() {
        let mut queue = LockQueue::default();
        for (lock, job) in [(7, 1), (7, 2), (8, 3), (7, 4)] {
            queue.push(Lock::Record(lock), job);
        }
        assert_eq!(ready(&mut queue), [1, 3]);
        queue.release(Lock::Record(8));
        assert_eq!(ready(&mut queue), [0; 0]);
        queue.release(Lock::Record(7));
        assert_eq!(ready(&mut queue), [2]);
        queue.release(Lock::Record(7));
        assert_eq!(ready(&mut queue), [4]);
        queue.release(Lock::Record(7));
        queue.push(Lock::Record(7), 5);
        assert_eq!(ready(&mut queue), [5]);
    }

    #[test]
    fn a_job_on_all_records_runs_alone_and_gets_its_turn() {
        let mut queue = LockQueue::default();
        queue.push(Lock::Record(1), 1);
        queue.push(Lock::Record(1), 2);
        queue.push(Lock::All, 3);
        queue.push(Lock::Record(1), 4);
        queue.push(Lock::Record(2), 5);
        queue.push(Lock::All, 6);
        queue.push(Lock::Record(2), 7);
        assert_eq!(ready(&mut queue), [1]);
        queue.release(Lock::Record(1));
        assert_eq!(ready(&mut queue), [2]);
        queue.release(Lock::Record(1));
        assert_eq!(ready(&mut queue), [3]);
        queue.release(Lock::All);
        assert_eq!(ready(&mut queue), [4, 5]);
        queue.release(Lock::Record(1));
        assert_eq!(ready(&mut queue), [0; 0]);
        queue.release(Lock::Record(2));
        assert_eq!(ready(&mut queue), [6]);
        queue.release(Lock::All);
        assert_eq!(ready(&mut queue), [7]);
        queue.release(Lock::Record(2));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn removed_jobs_leave_the_locks_of_those_that_run() {
        let mut queue = LockQueue::default();
        queue.push(Lock::Record(1), 1);
        queue.push(Lock::Record(1), 2);
        queue.push(Lock::All, 3);
        assert_eq!(ready(&mut queue), [1]);
        queue.clear();
        assert_eq!(queue.len(), 0);
        queue.push(Lock::Record(1), 4);
        assert!(!queue.is_ready());
        queue.release(Lock::Record(1));
        assert_eq!(ready(&mut queue), [4]);
    }
}
