//! Loop caller: calls short functions on an event loop.
//!
//! To wake a script thread, and the event loop again, takes longer than most functions. So an event
//! loop calls a function itself, in a state of its own. A call that would wait, or takes longer
//! than some microseconds, leaves the loop: another thread takes over the loop and all connections,
//! and this one goes on with the call. If it does not leave the loop itself, the [`super::watch`]
//! has it left. Functions that have left the loop are called on script
//! threads for a while. So no request waits for a function, and few calls take two wake-ups.
//!
//! The script threads begin and end the states of the loops, each those of some loops.

use super::{ScriptJob, ScriptPool, ScriptWork, Worker};
use crate::SCRIPT_LOOPS_MAX;
use crate::net::hub::Hub;
use crate::net::script_pool::CallCompletion;
use crate::net::script_pool::locks::Lock;
use crate::net::slab::Token;
use crate::protocol::script_call::ScriptTask;
use crate::protocol::script_records::{LOOP_TIME, Leave};
use crate::store::view::KEYS_AHEAD_MAX;
use parking_lot::{MappedMutexGuard, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time after which a loop handles events before it calls the next function.
pub(crate) const ROUND_TIME: Duration = Duration::from_micros(500);

/// Calls of a function on script threads after one that has left a loop: at first, and at most. The
/// number doubles each time, since every call may leave its loop, and falls with the calls that do
/// not.
const CALLS_ON_THREADS_MIN: u32 = 8;
const CALLS_ON_THREADS_MAX: u32 = 4096;

/// Calls of a function one after the other that take long without leaving the loop, after which the
/// function is taken for a long one. A single one tells nothing: a thread that loses its processor
/// for a moment is late too.
const LATE_CALLS_MAX: u32 = 3;

/// Functions at most that are known to have left a loop.
const FUNCTIONS_MAX: usize = 1000;

/// Calls functions on an event loop.
pub(crate) struct LoopCaller {
    worker: Worker,
    /// Functions that have left the loop.
    long: HashMap<Vec<u8>, Long>,
}

/// A function that has left the loop, or was late on it.
#[derive(Debug, Default)]
struct Long {
    /// Number of calls that are left for the script threads.
    left: u32,
    /// Number of calls that were for them after it had left the loop.
    penalty: u32,
    /// Number of the last calls that were late on the loop, one after the other.
    late: u32,
}

/// How a call on a loop went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// It took little time.
    Short,
    /// It took long, and was on the loop all the time.
    Late,
    /// It left the loop.
    Left,
}

impl ScriptPool {
    /// Returns the number of event loops that call functions.
    pub(crate) fn loops_that_call(&self) -> usize {
        let does = self.installed.get().is_some_and(|found| found.extension.runs_on_loops());
        if does { self.loops.len().min(SCRIPT_LOOPS_MAX) } else { 0 }
    }

    /// Returns the numbers of the loops that a script thread begins and ends.
    fn loops_of(&self, thread: usize) -> impl Iterator<Item = usize> + use<> {
        (thread..self.loops_that_call()).step_by(self.threads().max(1))
    }

    /// Makes the callers of some event loops.
    pub(super) fn begin_loops(&self, hub: &Hub, thread: usize) {
        let Some(installed) = self.installed.get() else { return };
        for number in self.loops_of(thread) {
            let worker = Worker::new(hub, installed, self.threads() + number);
            worker.begin(hub);
            self.watch.add(Arc::clone(&worker.records));
            *self.loops[number].lock() = Some(LoopCaller { worker, long: HashMap::new() });
        }
    }

    /// Ends the callers of some event loops, which have ended.
    pub(super) fn end_loops(&self, hub: &Hub, thread: usize) {
        for number in self.loops_of(thread) {
            if let Some(caller) = self.loops[number].lock().take() {
                caller.worker.end(hub);
            }
        }
    }

    /// Returns the caller of an event loop, unless there is none or a call that has left the loop
    /// has it.
    pub(crate) fn caller(&self, event_loop: usize) -> Option<MappedMutexGuard<'_, LoopCaller>> {
        let guard = self.loops.get(event_loop)?.try_lock()?;
        MutexGuard::try_map(guard, Option::as_mut).ok()
    }
}

impl LoopCaller {
    /// Returns whether the loop itself does a job, as far as is known.
    fn takes(&mut self, job: &ScriptJob) -> bool {
        let ScriptWork::Call { call, .. } = &job.task else { return false };
        if call.task != ScriptTask::Function || job.lock() != Lock::None {
            return false;
        }
        let long = if self.long.is_empty() { None } else { self.long.get_mut(call.name()) };
        match long {
            Some(Long { left, .. }) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        }
    }

    /// Notes how a call of a function went.
    fn note(&mut self, name: &[u8], course: Course) {
        if course == Course::Short {
            if !self.long.is_empty()
                && let Some(long) = self.long.get_mut(name)
            {
                long.late = 0;
                long.penalty = long.penalty.saturating_sub(1);
                if long.penalty == 0 {
                    self.long.remove(name);
                }
            }
            return;
        }
        if self.long.len() == FUNCTIONS_MAX {
            self.long.clear();
        }
        let long = self.long.entry(name.to_vec()).or_default();
        long.late += 1;
        if course == Course::Late && long.late < LATE_CALLS_MAX {
            return;
        }
        long.late = 0;
        long.penalty = (long.penalty * 2).clamp(CALLS_ON_THREADS_MIN, CALLS_ON_THREADS_MAX);
        long.left = long.penalty;
    }

    /// Moves the jobs that the loop itself does from `jobs` to `own`, the first one last. They
    /// follow those that are in `own`.
    pub(crate) fn choose(&mut self, jobs: &mut Vec<ScriptJob>, own: &mut Vec<ScriptJob>) {
        own.reverse();
        own.extend(jobs.extract_if(.., |job| self.takes(job)));
        own.reverse();
    }

    /// Prefetches the records of the next calls, if the last ones have used records. Their keys are
    /// mostly those of records.
    pub(crate) fn prefetch(&self, hub: &Hub, own: &[ScriptJob]) {
        if own.len() < 2 || !self.worker.records.take_has_used_records() {
            return;
        }
        let calls = own.iter().rev().filter_map(|job| match &job.task {
            ScriptWork::Call { call, .. } => Some(call.key()),
            ScriptWork::Request(..) => None,
        });
        let mut keys: [&[u8]; KEYS_AHEAD_MAX] = [b""; KEYS_AHEAD_MAX];
        let mut count = 0;
        for (slot, key) in keys.iter_mut().zip(calls) {
            *slot = key;
            count += 1;
        }
        hub.shared.served.nonblocking.prefetch(&keys[..count]);
    }

    /// Calls a function at `now`, which may leave the loop by `leave`. Returns the reply, and
    /// the time afterwards; `None` if the job is no call.
    pub(crate) fn call(
        &mut self,
        hub: &Hub,
        job: ScriptJob,
        now: Instant,
        leave: &Leave,
    ) -> Option<(Token, CallCompletion, Instant)> {
        let ScriptWork::Call { token, call, charge, submitted } = job.task else { return None };
        hub.scripts.give_back_place();
        hub.wake_parked();
        let records = Arc::clone(&self.worker.records);
        records.begin_on_loop(now, leave);
        hub.scripts.watch.note_call();
        let turn = records.turn();
        let completion = self.worker.call_timed(hub, &call, submitted);
        drop(turn);
        let has_stayed = records.end_on_loop();
        if !has_stayed {
            hub.scripts.end_left_call();
        }
        let ended = Instant::now();
        let course = match has_stayed {
            false => Course::Left,
            true if ended.duration_since(now) >= LOOP_TIME => Course::Late,
            true => Course::Short,
        };
        self.note(call.name(), course);
        drop((call, charge));
        Some((token, completion, ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::hub::Hub;
    use crate::{Config, Extension, ExtensionError, FunctionStatistics, ScriptRecords};
    use cabinet::Database;
    use std::sync::Arc;

    struct Nothing;

    impl Extension for Nothing {
        fn begin(&self, _: &Arc<ScriptRecords>) {}

        fn end(&self, _: &Arc<ScriptRecords>) {}

        fn has(&self, _: &[u8]) -> bool {
            true
        }

        fn call(
            &self,
            _: &Arc<ScriptRecords>,
            _: &[u8],
            _: &[u8],
            _: &[u8],
        ) -> Result<Option<Vec<u8>>, ExtensionError> {
            Ok(None)
        }

        fn reload(&self, _: &Arc<ScriptRecords>) -> Result<(), ExtensionError> {
            Ok(())
        }

        fn statistics(&self) -> Vec<FunctionStatistics> {
            Vec::new()
        }
    }

    #[test]
    fn a_function_that_leaves_the_loop_is_called_on_threads_the_longer_the_more_often_it_does() {
        let database = Database::open("*").expect("a database");
        let hub = Hub::new(Config::default(), database).expect("a server's state");
        hub.scripts.install(Arc::new(Nothing), crate::ExtensionSettings::default());
        let installed = hub.scripts.installed.get().expect("an extension");
        let worker = Worker::new(&hub, installed, 0);
        let mut caller = LoopCaller { worker, long: HashMap::new() };
        let mut left = Vec::new();
        for _ in 0..12 {
            caller.note(b"long", Course::Left);
            left.push(caller.long[&b"long"[..]].left);
        }
        assert_eq!(left[..4], [8, 16, 32, 64]);
        assert_eq!(left[9..], [4096; 3]);
        for _ in 0..4096 {
            assert!(!caller.long.is_empty());
            caller.note(b"long", Course::Short);
        }
        assert!(caller.long.is_empty());
        for course in [Course::Late, Course::Late, Course::Short, Course::Late, Course::Late] {
            caller.note(b"late", course);
            assert_eq!(caller.long.get(&b"late"[..]).map_or(0, |long| long.left), 0);
        }
        caller.note(b"late", Course::Late);
        assert_eq!(caller.long[&b"late"[..]].left, 8);
        caller.long.clear();
        for name in 0..=FUNCTIONS_MAX {
            caller.note(name.to_string().as_bytes(), Course::Left);
        }
        assert_eq!(caller.long.len(), 1);
    }
}
