//! Threads for requests that may wait for the disk.
//!
//! The number of threads and the length of the queue are bounded. When the queue is full, the
//! connection whose request finds no room waits at its event loop, which is woken when there is.

use crate::budget::Charge;
use crate::net::mailbox::{Mailbox, Message};
use crate::net::pending_reply::{AcknowledgementPoint, FirstAcknowledgement, Refusal};
use crate::net::slab::Token;
use crate::ops::session::Session;
use crate::protocol::{self, Context, Next, Step};
use crate::shared::Shared;
use cabinet::LogPosition;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Something that may wait, and the number of the loop that wants to know how it ended.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) event_loop: usize,
    pub(crate) task: Task,
}

#[derive(Debug)]
pub(crate) enum Task {
    /// Execute one request of a connection.
    Execute {
        token: Token,
        request: Vec<u8>,
        session: Box<Session>,
        /// File descriptor of the connection, which `stat` shows.
        descriptor: i32,
        /// For the bytes of the request.
        charge: Charge,
    },
    /// See whether a position becomes durable, or can no longer.
    AwaitDurable(LogPosition),
}

/// What became of a request.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) output: Vec<u8>,
    /// For the bytes of a long reply.
    pub(crate) charge: Option<Charge>,
    pub(crate) session: Session,
    pub(crate) next: Next,
    /// What has to be safe before the reply is sent.
    pub(crate) acknowledgement: Option<(AcknowledgementPoint, FirstAcknowledgement)>,
}

/// The queue of the pool.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    queue: Mutex<Queue>,
    filled: Condvar,
    queue_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// When all records are to be removed.
    clear_at: Option<Instant>,
    stopping: bool,
}

impl WorkerPool {
    pub(crate) fn new(queue_max: usize) -> Self {
        Self { queue: Mutex::default(), filled: Condvar::new(), queue_max }
    }

    /// Leaves a job; gives it back if the queue is full.
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

    /// Whether a job would find room.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.lock().jobs.len() < self.queue_max
    }

    /// Has a thread of the pool remove all records then, or never.
    pub(crate) fn clear_at(&self, at: Option<Instant>) {
        self.queue.lock().clear_at = at;
        self.filled.notify_all();
    }

    /// Lets the threads end. Jobs that none of them has begun are dropped.
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

/// What a thread of the pool has to do next.
enum Work {
    Job(Job),
    /// Remove all records, as `flush_all` has asked a while ago.
    Clear,
}

/// The life of a thread of the pool.
pub(crate) fn work(shared: &Shared) {
    let counters = shared.new_counters();
    while let Some(work) = shared.pool.take() {
        let Job { event_loop, task } = match work {
            Work::Job(job) => job,
            Work::Clear => {
                if let Err(error) = shared.database.clear() {
                    tracing::error!("cannot remove the records at the time of flush_all: {error}");
                }
                continue;
            }
        };
        for mailbox in shared.mailboxes.iter() {
            if mailbox.has_parked.swap(false, Ordering::SeqCst) {
                mailbox.wake();
            }
        }
        let mailbox: &Mailbox = &shared.mailboxes[event_loop];
        match task {
            Task::Execute { token, request, mut session, descriptor, charge } => {
                let mut output = Vec::new();
                // The rest of a body may look like anything.
                let is_upload = session.http.is_receiving();
                let mut context = Context {
                    shared,
                    database: &shared.database,
                    may_block: true,
                    counters: &counters,
                    session: &mut session,
                    descriptor,
                    mutated: false,
                    charge: None,
                    is_repeated: false,
                };
                let step = protocol::step(&mut context, &request, &mut output);
                let refusal = if is_upload { Refusal::Http } else { Refusal::of(&request) };
                let acknowledgement = context.mutated.then(|| {
                    (shared.acknowledgement_point(), FirstAcknowledgement { at: 0, refusal })
                });
                let reply_charge = context.charge.take();
                let mutated = context.mutated;
                if reply_charge.is_some() {
                    // What it has grown beyond its length is not counted.
                    output.shrink_to_fit();
                }
                let next = match step {
                    // What is not in the log must not be acknowledged.
                    _ if mutated && !shared.flush_update_log() => {
                        output.clear();
                        refusal.write(shared.log_failure(), &mut output);
                        Next::Refuse
                    }
                    Step::Executed { next, .. } => next,
                    // What the loop parsed as a whole request is one here too, and where
                    // waiting is allowed nothing blocks.
                    Step::Incomplete { .. } | Step::Blocked { .. } => Next::Close,
                };
                drop((request, charge));
                let session = *session;
                let completion =
                    Completion { output, charge: reply_charge, session, next, acknowledgement };
                mailbox.post(Message::Completion(token, completion));
            }
            Task::AwaitDurable(position) => {
                let failed = shared.database.wait_durable(position).is_err();
                mailbox.post(Message::Durable { failed });
            }
        }
    }
}
