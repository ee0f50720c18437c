//! Worker pool: threads that execute requests that may wait for the disk.
//!
//! The number of threads and the length of the queue are bounded. If the queue is full, the
//! connection of the request is parked at its event loop, which is woken once the queue has a
//! place.

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

/// A task that may wait, and the number of the event loop that gets its result.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) event_loop: usize,
    pub(crate) task: Task,
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
    /// Charge for the bytes of the request.
    pub(crate) charge: Charge,
    pub(crate) submitted: Instant,
}

/// Result of a request.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) session: Box<Session>,
    pub(crate) reply: PooledReply,
}

/// Queue of the pool.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    queue: Mutex<Queue>,
    filled: Condvar,
    queue_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Time at which all records are to be removed.
    clear_at: Option<Instant>,
    stopping: bool,
}

impl WorkerPool {
    pub(crate) fn new(queue_max: usize) -> Self {
        Self { queue: Mutex::default(), filled: Condvar::new(), queue_max }
    }

    /// Adds a job to the queue, or returns it if the queue is full.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Job> {
        let mut queue = self.queue.lock();
        if queue.jobs.len() >= self.queue_max {
            return Err(job);
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.filled.notify_one();
        Ok(())
    }

    /// Returns whether the queue has a place.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.lock().jobs.len() < self.queue_max
    }

    /// Ends the threads. Jobs that have not begun are dropped.
    pub(crate) fn stop(&self) {
        let mut queue = self.queue.lock();
        queue.stopping = true;
        queue.jobs.clear();
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
            if let Some(job) = queue.jobs.pop_front() {
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
        let Job { event_loop, task } = match work {
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
    let RequestTask { token, request, mut session, descriptor, charge, submitted } = task;
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
    drop((request, charge));
    let reply = PooledReply { output, charge: reply_charge, next, slow, acknowledgement };
    let completion = Completion { session, reply };
    hub.mailboxes[event_loop].post(Message::Completion(token, completion));
}
