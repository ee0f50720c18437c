//! Worker pool: threads that execute requests that may wait for the disk.
//!
//! The number of threads and the length of the queue are bounded. If the queue is full, the
//! connection of the request is parked at its event loop, which is woken once the queue has a
//! place. Requests that execute scripts of clients have a queue of their own, of the same length,
//! and may be executed by most of the threads: as long as they may take, the others serve all other
//! requests.

use crate::counters::Counters;
use crate::net::hub::Hub;
use crate::net::mailbox::Message;
use crate::net::pending_reply::FirstAcknowledgement;
use crate::net::pooled_reply::{PooledReply, Stopwatch};
use crate::net::script_pool::{ScriptJob, ScriptWork};
use crate::net::slab::Token;
use crate::ops::budget::Charge;
use crate::protocol::refusal::Refusal;
use crate::protocol::session::Session;
use crate::protocol::{self, Context, Next, Step};
use crate::shared::Scheduler;
use crate::shared::slow_log::SlowRequest;
use cabinet::LogPosition;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Instant;

/// Capacity of the buffer in which a thread makes a reply, in bytes. The allocator maps a buffer
/// above 32 MiB by itself, and memory that was mapped is in use only as far as it was written. Heap
/// memory of a shorter buffer would stay with the thread, beyond the budget of all buffers.
const REPLY_CAPACITY_BYTES: usize = 33 << 20;

/// One of this many threads is left to requests without scripts.
const FOR_OTHERS: usize = 4;

/// A task that may wait, and the number of the event loop that gets its result.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) event_loop: usize,
    pub(crate) task: Task,
    /// Whether the task executes scripts of clients.
    pub(crate) is_script: bool,
}

#[derive(Debug)]
pub(crate) enum Task {
    /// Execute one request of a connection.
    Execute(RequestTask),
    /// Wait until a position is durable or cannot become durable.
    AwaitDurable(LogPosition),
}

/// A request of a connection.
#[derive(Debug)]
pub(crate) struct RequestTask {
    pub(crate) token: Token,
    pub(crate) request: Vec<u8>,
    pub(crate) session: Box<Session>,
    /// File descriptor of the connection, which `stat` shows.
    pub(crate) descriptor: i32,
    /// Charge for the bytes of the request and of the session.
    pub(crate) charge: Charge,
    pub(crate) submitted: Instant,
}

/// Result of a request.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) session: Box<Session>,
    /// Charge for the bytes of the session.
    pub(crate) charge: Charge,
    pub(crate) reply: PooledReply,
}

/// Queue of the pool.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    queue: Mutex<Queue>,
    filled: Condvar,
    /// Most jobs of each queue.
    queue_max: usize,
    /// Most threads that execute scripts at a time.
    scripts_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    /// Jobs with their numbers, by which the first of both queues is known.
    jobs: VecDeque<(u64, Job)>,
    /// The same, of jobs that execute scripts.
    scripts: VecDeque<(u64, Job)>,
    /// Number of the next job.
    next: u64,
    /// Number of threads that execute scripts.
    executing_scripts: usize,
    /// Time at which all records are to be removed.
    clear_at: Option<Instant>,
    stopping: bool,
}

impl Queue {
    fn of(&mut self, is_script: bool) -> &mut VecDeque<(u64, Job)> {
        if is_script { &mut self.scripts } else { &mut self.jobs }
    }

    /// Removes the first job that may be executed.
    fn pop(&mut self, scripts_max: usize) -> Option<Job> {
        let number = |jobs: &VecDeque<(u64, Job)>| jobs.front().map(|(number, _)| *number);
        let script = number(&self.scripts).filter(|_| self.executing_scripts < scripts_max);
        let is_script = match (script, number(&self.jobs)) {
            (Some(script), Some(other)) => script < other,
            (script, _) => script.is_some(),
        };
        self.executing_scripts += usize::from(is_script);
        self.of(is_script).pop_front().map(|(_, job)| job)
    }
}

impl WorkerPool {
    /// Makes the queues of this many threads.
    pub(crate) fn new(queue_max: usize, threads: usize) -> Self {
        let scripts_max = (threads - threads.div_ceil(FOR_OTHERS)).max(1);
        Self { queue: Mutex::default(), filled: Condvar::new(), queue_max, scripts_max }
    }

    /// Adds a job to its queue, or returns it if the queue is full.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Job> {
        let mut queue = self.queue.lock();
        let number = queue.next;
        let jobs = queue.of(job.is_script);
        if jobs.len() >= self.queue_max {
            return Err(job);
        }
        jobs.push_back((number, job));
        queue.next += 1;
        drop(queue);
        self.filled.notify_one();
        Ok(())
    }

    /// Returns whether the queue of such jobs has a place.
    pub(crate) fn has_room(&self, is_script: bool) -> bool {
        self.queue.lock().of(is_script).len() < self.queue_max
    }

    /// Notes that a thread has executed a script. It takes the next job itself, so that no other
    /// thread needs to be woken.
    fn end_script(&self) {
        self.queue.lock().executing_scripts -= 1;
    }

    /// Ends the threads. Jobs that have not begun are dropped.
    pub(crate) fn stop(&self) {
        let mut queue = self.queue.lock();
        queue.stopping = true;
        queue.jobs.clear();
        queue.scripts.clear();
        drop(queue);
        self.filled.notify_all();
    }

    fn take(&self) -> Option<Work> {
        let mut queue = self.queue.lock();
        while !queue.stopping {
            if let Some(at) = queue.clear_at
                && at <= Instant::now()
            {
                queue.clear_at = None;
                return Some(Work::Clear);
            }
            if let Some(job) = queue.pop(self.scripts_max) {
                return Some(Work::Job(job));
            }
            match queue.clear_at {
                Some(at) => drop(self.filled.wait_until(&mut queue, at)),
                None => self.filled.wait(&mut queue),
            }
        }
        None
    }
}

impl Scheduler for WorkerPool {
    fn clear_at(&self, at: Option<Instant>) {
        self.queue.lock().clear_at = at;
        self.filled.notify_all();
    }
}

/// Next work of a thread.
enum Work {
    Job(Job),
    /// Remove all records: the delay of a `flush_all` is over.
    Clear,
}

/// Executes jobs until the pool is stopped.
pub(crate) fn work(hub: &Hub) {
    let shared = &*hub.shared;
    let counters = shared.counters.add_thread();
    let mut scratch = Vec::new();
    while let Some(work) = hub.pool.take() {
        let Job { event_loop, task, is_script } = match work {
            Work::Job(job) => job,
            Work::Clear => {
                if let Err(error) = shared.served.database.clear() {
                    tracing::error!("cannot remove all records for flush_all, repeat it: {error}");
                }
                continue;
            }
        };
        hub.wake_parked();
        match task {
            Task::Execute(task) => execute(hub, &counters, event_loop, task, &mut scratch),
            Task::AwaitDurable(position) => {
                let failed = shared.served.database.wait_durable(position).is_err();
                hub.mailboxes[event_loop].post(Message::Durable { failed });
            }
        }
        if is_script {
            hub.pool.end_script();
        }
    }
}

/// Executes a request, and posts its reply. `scratch` is empty before and afterwards.
pub(crate) fn execute(
    hub: &Hub,
    counters: &Counters,
    event_loop: usize,
    task: RequestTask,
    scratch: &mut Vec<u8>,
) {
    let shared = &*hub.shared;
    let RequestTask { token, request, mut session, descriptor, mut charge, submitted } = task;
    let stopwatch = Stopwatch::begin(&shared.slow_log, submitted);
    scratch.reserve(REPLY_CAPACITY_BYTES);
    // Bytes of a body do not tell the protocol.
    let is_upload = session.http.is_receiving();
    let mut context = Context::new(shared, true, counters, &mut session, descriptor);
    let step = protocol::step(&mut context, &request, scratch);
    if let Some(lock) = context.session.awaited_lock.take() {
        // A script thread continues. This one must not wait for scripts.
        let task = RequestTask { token, request, session, descriptor, charge, submitted };
        let task = ScriptWork::Request(Box::new(task), lock);
        hub.scripts.force_place();
        hub.scripts.submit(&mut vec![ScriptJob { event_loop, task }]);
        scratch.clear();
        return;
    }
    let refusal = match is_upload {
        true => Refusal::of_protocol(wire::Protocol::Http, b""),
        false => Refusal::within(context.session, &request),
    };
    let acknowledgement = context
        .mutated
        .then(|| (shared.acknowledgement_point(), FirstAcknowledgement { at: 0, refusal }));
    let reply_charge = context.charge.take();
    let mutated = context.mutated;
    let mut output = if reply_charge.is_some() {
        // The charge covers the length, not the capacity.
        scratch.shrink_to_fit();
        std::mem::take(scratch)
    } else {
        scratch.clone()
    };
    scratch.clear();
    let next = match step {
        // A change that is not in the log must not be acknowledged.
        _ if mutated && !shared.served.flush_update_log() => {
            output.clear();
            refusal.write(shared.log_failure(), &mut output);
            Next::Refuse
        }
        Step::Executed { next, .. } => next,
        // The call is in the session.
        Step::Called { .. } => Next::GoOn,
        // The loop has parsed a complete request, and nothing blocks if waiting is
        // allowed.
        Step::Incomplete { .. } | Step::Blocked { .. } | Step::Postponed => Next::Close,
    };
    let slow = stopwatch.end(output.len(), || {
        let input = if is_upload { &[][..] } else { &request[..] };
        let slow = protocol::describe(&session, shared.config.dialect, session.kind, input);
        SlowRequest { request_bytes: request.len(), ..slow }
    });
    drop(request);
    // A session that has grown beyond the budget is found when the connection has it again.
    charge.set(session.bytes());
    let reply = PooledReply { output, charge: reply_charge, next, slow, acknowledgement };
    let completion = Completion { session, charge, reply };
    hub.mailboxes[event_loop].post(Message::Completion(token, completion));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds jobs with the numbers of event loops from 0 on, that execute scripts or not. Returns
    /// whether each has a place.
    fn submit<const N: usize>(pool: &WorkerPool, are_scripts: [bool; N]) -> [bool; N] {
        let mut number = 0;
        are_scripts.map(|is_script| {
            let task = Task::AwaitDurable(LogPosition::default());
            number += 1;
            pool.submit(Job { event_loop: number - 1, task, is_script }).is_ok()
        })
    }

    /// Returns the next job's event loop, and whether it executes a script.
    fn taken(pool: &WorkerPool) -> Option<(usize, bool)> {
        let job = pool.queue.lock().pop(pool.scripts_max)?;
        Some((job.event_loop, job.is_script))
    }

    #[test]
    fn scripts_leave_threads_and_places_to_others() {
        let pool = WorkerPool::new(4, 4);
        // Other jobs have places when the scripts have none.
        let are_scripts = [true, true, true, true, true, false, false, true];
        let expected = [true, true, true, true, false, true, true, false];
        assert_eq!(submit(&pool, are_scripts), expected);
        assert!(!pool.has_room(true) && pool.has_room(false));
        let three = [0, 1, 2].map(|number| Some((number, true)));
        assert_eq!([(); 3].map(|()| taken(&pool)), three);
        // The fourth thread is not for scripts.
        assert_eq!([(); 3].map(|()| taken(&pool)), [Some((5, false)), Some((6, false)), None]);
        pool.end_script();
        assert_eq!([(); 2].map(|()| taken(&pool)), [Some((3, true)), None]);
    }

    #[test]
    fn jobs_of_both_queues_are_taken_in_their_order() {
        for (threads, most) in [(0, 1), (1, 1), (2, 1), (3, 2), (5, 3), (16, 12)] {
            assert_eq!(WorkerPool::new(1, threads).scripts_max, most, "{threads}");
        }
        let pool = WorkerPool::new(10, 16);
        let are_scripts = [false, true, true, false, true];
        assert_eq!(submit(&pool, are_scripts), [true; 5]);
        let order = are_scripts.iter().enumerate().map(|(number, is_script)| (number, *is_script));
        assert!(order.eq(std::iter::from_fn(|| taken(&pool))));
    }
}
