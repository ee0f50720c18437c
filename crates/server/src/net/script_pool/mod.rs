//! Script pool: threads that call the functions of the extension, for clients and by the clock.
//!
//! No other request waits for these threads, which may be busy for as long as the extension allows.
//! The queue is bounded. If it is full, the connection of a call is parked at its event loop.
//!
//! Thread model: thread 0 begins first and ends last. An event loop collects the calls of a round,
//! and submits them at once. At most one thread is being woken at a time: a thread that takes a job
//! wakes another if there are more jobs, so that short calls wake few threads.
//!
//! An event loop calls functions itself as long as they are short: see [`loop_caller`]. Periodic
//! functions have states of their own: see [`periodic`].

mod locks;
mod loop_caller;
mod periodic;
mod timer;
mod watch;

use crate::counters::Counters;
use crate::net::hub::Hub;
use crate::net::mailbox::Message;
use crate::net::pending_reply::FirstAcknowledgement;
use crate::net::pooled_reply::{PooledReply, Stopwatch};
use crate::net::slab::Token;
use crate::net::worker_pool::{self, RequestTask};
use crate::ops::budget::Charge;
use crate::protocol::extension::{Extension, ExtensionSettings};
use crate::protocol::script_call::{ScriptCall, ScriptLock, ScriptTask};
use crate::shared::script_locks::lock_of;
use crate::shared::slow_log::SlowRequest;
use crate::shared::{ScriptFigures, ScriptStats};
use crate::{ExtensionError, ScriptRecords};
use locks::{Lock, LockQueue};
use loop_caller::LoopCaller;
pub(crate) use loop_caller::ROUND_TIME;
use parking_lot::{Condvar, Mutex};
use periodic::PeriodicCallers;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
pub(crate) use timer::run_timer;
use watch::Watch;

/// Length of a result, in bytes, from which it counts against the memory of all connections.
const COUNTED_RESULT_BYTES: usize = 64 << 10;

/// Reason of a failure without any.
const NO_RESULT: &str = "the function has no result";

/// A job for a client, and the number of the event loop that gets its result.
#[derive(Debug)]
pub(crate) struct ScriptJob {
    pub(crate) event_loop: usize,
    pub(crate) task: ScriptWork,
}

#[derive(Debug)]
pub(crate) enum ScriptWork {
    /// Call a function.
    Call {
        token: Token,
        call: Box<ScriptCall>,
        /// Charge for the bytes of the call.
        charge: Charge,
        submitted: Instant,
    },
    /// Execute a request that had to wait for this script lock.
    Request(Box<RequestTask>, usize),
}

/// Result of a call.
#[derive(Debug)]
pub(crate) struct CallCompletion {
    pub(crate) reply: PooledReply,
    /// Reason why the call has failed.
    pub(crate) failure: Option<Box<str>>,
}

impl ScriptJob {
    /// Returns the lock that the job takes.
    fn lock(&self) -> Lock {
        match &self.task {
            ScriptWork::Request(_, lock) => Lock::Record(*lock),
            ScriptWork::Call { call, .. } => match call.lock {
                ScriptLock::None => Lock::None,
                ScriptLock::Record => Lock::Record(lock_of(call.key())),
                ScriptLock::All => Lock::All,
            },
        }
    }
}

/// Extension of a server, and its settings.
struct Installed {
    extension: Arc<dyn Extension>,
    settings: ExtensionSettings,
}

/// The threads' queue.
pub(crate) struct ScriptPool {
    installed: OnceLock<Installed>,
    state: Mutex<State>,
    filled: Condvar,
    /// Signals that a thread has begun or ended, or that the pool stops.
    changed: Condvar,
    /// Number of calls that the queue has, or that loops are about to submit.
    places: AtomicUsize,
    /// Number of calls that have left their event loop.
    left_loops: AtomicUsize,
    /// Functions to be called periodically that the extension does not have.
    missing: Mutex<Vec<String>>,
    /// Callers of the event loops.
    loops: Box<[Mutex<Option<LoopCaller>>]>,
    periodic: PeriodicCallers,
    pub(crate) watch: Watch,
}

#[derive(Debug, Default)]
struct State {
    jobs: LockQueue<ScriptJob>,
    /// Numbers of the periodic functions that are due.
    due: VecDeque<usize>,
    /// Whether the functions are to be loaded again.
    reloads: bool,
    /// Whether thread 0 is to change to functions that another thread has loaded.
    first_follows: bool,
    /// Number of threads that wait for a job.
    idle: usize,
    /// Whether a thread was woken that does not run yet.
    is_waking: bool,
    has_begun: bool,
    /// Number of threads that have not ended.
    live: usize,
    /// Whether each periodic function is due or being called.
    is_running: Vec<bool>,
    stopping: bool,
}

/// Next work of a thread.
enum Work {
    Job(ScriptJob, Lock),
    Periodic(usize),
    Reload,
    FollowReload,
}

impl State {
    fn has_work(&self) -> bool {
        self.jobs.is_ready() || !self.due.is_empty() || self.reloads
    }

    fn next(&mut self) -> Option<Work> {
        if std::mem::take(&mut self.reloads) {
            return Some(Work::Reload);
        }
        if let Some(number) = self.due.pop_front() {
            return Some(Work::Periodic(number));
        }
        let (lock, job) = self.jobs.pop()?;
        Some(Work::Job(job, lock))
    }
}

impl ScriptPool {
    pub(crate) fn new(loops: usize) -> Self {
        Self {
            loops: (0..loops).map(|_| Mutex::default()).collect(),
            installed: OnceLock::new(),
            state: Mutex::default(),
            filled: Condvar::new(),
            changed: Condvar::new(),
            places: AtomicUsize::new(0),
            left_loops: AtomicUsize::new(0),
            missing: Mutex::default(),
            periodic: PeriodicCallers::default(),
            watch: Watch::default(),
        }
    }

    /// Sets the extension. Returns whether there was none before.
    pub(crate) fn install(
        &self,
        extension: Arc<dyn Extension>,
        settings: ExtensionSettings,
    ) -> bool {
        let functions = settings.periodic.len();
        let is_new = self.installed.set(Installed { extension, settings }).is_ok();
        if is_new {
            self.periodic.install(functions);
        }
        is_new
    }

    /// Returns the number of threads, 0 without an extension.
    pub(crate) fn threads(&self) -> usize {
        self.installed.get().map_or(0, |installed| installed.settings.threads.max(1))
    }

    /// Returns whether functions are called periodically.
    pub(crate) fn has_timer(&self) -> bool {
        self.installed.get().is_some_and(|installed| !installed.settings.periodic.is_empty())
    }

    /// Takes a place for a call in the queue. Returns whether there was one.
    pub(crate) fn take_place(&self) -> bool {
        let max = self.installed.get().map_or(0, |installed| installed.settings.queue_max);
        self.places
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |places| {
                (places < max).then_some(places + 1)
            })
            .is_ok()
    }

    /// Gives back the place of a call that is not submitted.
    pub(crate) fn give_back_place(&self) {
        self.places.fetch_sub(1, Ordering::SeqCst);
    }

    /// Takes a place for a call that cannot be parked.
    pub(crate) fn force_place(&self) {
        self.places.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether the queue has a place.
    pub(crate) fn has_place(&self) -> bool {
        let max = self.installed.get().map_or(0, |installed| installed.settings.queue_max);
        self.places.load(Ordering::SeqCst) < max
    }

    /// Counts a call that leaves its event loop, until it ends.
    pub(crate) fn begin_left_call(&self) {
        self.left_loops.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of such a call.
    pub(crate) fn end_left_call(&self) {
        self.left_loops.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds calls, each of which has a place.
    pub(crate) fn submit(&self, jobs: &mut Vec<ScriptJob>) {
        if jobs.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        for job in jobs.drain(..) {
            state.jobs.push(job.lock(), job);
        }
        self.wake_one(&mut state);
    }

    /// Loads the functions again on one of the threads.
    pub(crate) fn reload(&self) {
        let mut state = self.state.lock();
        state.reloads = true;
        self.wake_one(&mut state);
    }

    /// Lets thread 0 change to the functions that another thread has loaded.
    fn follow_reload(&self) {
        self.state.lock().first_follows = true;
        self.filled.notify_all();
    }

    /// Ends the threads. Jobs that have not begun are dropped.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        state.jobs.clear();
        state.due.clear();
        drop(state);
        self.filled.notify_all();
        self.changed.notify_all();
        self.watch.stop();
    }

    /// Wakes a thread if there is work for it, unless one is being woken.
    fn wake_one(&self, state: &mut State) {
        if state.has_work() && state.idle > 0 && !state.is_waking {
            state.is_waking = true;
            self.filled.notify_one();
        }
    }

    /// Releases the lock of the last job of a thread, and returns its next work; `None` when the
    /// pool stops.
    fn take(&self, thread: usize, released: Lock) -> Option<Work> {
        let mut state = self.state.lock();
        state.jobs.release(released);
        loop {
            if state.stopping {
                return None;
            }
            if thread == 0 && std::mem::take(&mut state.first_follows) {
                self.wake_one(&mut state);
                return Some(Work::FollowReload);
            }
            if let Some(work) = state.next() {
                self.wake_one(&mut state);
                return Some(work);
            }
            state.idle += 1;
            self.filled.wait(&mut state);
            state.idle -= 1;
            state.is_waking = false;
        }
    }

    /// Calls `begin`, on thread 0 first. Returns whether it was called: the pool may have stopped
    /// before.
    fn begin(&self, thread: usize, begin: impl FnOnce()) -> bool {
        let mut state = self.state.lock();
        while thread > 0 && !state.has_begun && !state.stopping {
            self.changed.wait(&mut state);
        }
        if state.stopping {
            return false;
        }
        drop(state);
        begin();
        self.state.lock().has_begun = true;
        self.changed.notify_all();
        true
    }

    /// Calls `end`, on thread 0 last.
    fn end(&self, thread: usize, end: impl FnOnce()) {
        let mut state = self.state.lock();
        while thread == 0 && state.live > 1 {
            self.changed.wait(&mut state);
        }
        drop(state);
        end();
    }
}

impl std::fmt::Debug for ScriptPool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ScriptPool")
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}

impl ScriptStats for ScriptPool {
    fn figures(&self) -> ScriptFigures {
        let Some(Installed { extension, .. }) = self.installed.get() else {
            return ScriptFigures::default();
        };
        let (idle, queued) = {
            let state = self.state.lock();
            (state.idle, state.jobs.len())
        };
        let threads = self.threads();
        let busy = threads.saturating_sub(idle) + self.left_loops.load(Ordering::Relaxed);
        ScriptFigures {
            threads,
            busy,
            queued,
            functions: extension.statistics(),
            memory: extension.memory(),
        }
    }

    fn missing_functions(&self) -> Vec<String> {
        self.missing.lock().clone()
    }
}

/// Guard of a thread: counts it as live, even if it panics.
pub(crate) struct Live(Arc<ScriptPool>);

impl Live {
    /// Counts a thread that is about to start.
    pub(crate) fn new(pool: &Arc<ScriptPool>) -> Self {
        pool.state.lock().live += 1;
        Self(Arc::clone(pool))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.state.lock().live -= 1;
        self.0.changed.notify_all();
    }
}

/// Calls functions until the pool is stopped.
pub(crate) fn work(hub: &Hub, thread: usize, _live: Live) {
    let pool = &*hub.scripts;
    let Some(installed) = pool.installed.get() else { return };
    let mut worker = Worker::new(hub, installed, thread);
    if !pool.begin(thread, || worker.begin(hub)) {
        return;
    }
    pool.begin_loops(hub, thread);
    pool.begin_periodic(hub, thread);
    let mut released = Lock::None;
    while let Some(work) = pool.take(thread, released) {
        released = worker.run(hub, work);
    }
    pool.end(thread, || {
        pool.end_periodic(hub, thread);
        pool.end_loops(hub, thread);
        worker.end(hub);
    });
}

/// A script thread, an event loop that calls functions itself, or a periodic function.
struct Worker {
    extension: Arc<dyn Extension>,
    counters: Arc<Counters>,
    records: Arc<ScriptRecords>,
    /// Buffer in which replies to requests are made.
    scratch: Vec<u8>,
}

impl Worker {
    /// Makes the worker with this number.
    fn new(hub: &Hub, installed: &Installed, number: usize) -> Self {
        let counters = hub.shared.counters.add_thread();
        let threads = hub.scripts.threads();
        let shared = Arc::clone(&hub.shared);
        let records = ScriptRecords::new(shared, Arc::clone(&counters), number, threads);
        let extension = Arc::clone(&installed.extension);
        Self { extension, counters, records: Arc::new(records), scratch: Vec::new() }
    }

    fn begin(&self, hub: &Hub) {
        let _ = caught(|| {
            self.extension.begin(&self.records);
            if self.records.thread() == 0 {
                self.look_for_periodic(hub);
            }
            Ok(())
        });
        self.end_call(hub);
    }

    /// Looks for the functions that are called periodically.
    fn look_for_periodic(&self, hub: &Hub) {
        let installed = hub.scripts.installed.get();
        let periodic = installed.iter().flat_map(|found| &found.settings.periodic);
        let names = periodic.map(|periodic| &periodic.function);
        let is_missing = |name: &&String| !self.extension.defines(&self.records, name.as_bytes());
        *hub.scripts.missing.lock() = names.filter(is_missing).cloned().collect();
        hub.shared.warnings.wake();
    }

    fn end(&self, hub: &Hub) {
        let _ = caught(|| {
            self.extension.end(&self.records);
            Ok(())
        });
        self.end_call(hub);
    }

    /// Returns the lock to release.
    fn run(&mut self, hub: &Hub, work: Work) -> Lock {
        let records = Arc::clone(&self.records);
        let turn = records.turn();
        let extension = &self.extension;
        match work {
            Work::Job(ScriptJob { event_loop, task }, lock) => {
                hub.scripts.give_back_place();
                hub.wake_parked();
                match task {
                    ScriptWork::Call { token, call, charge, submitted } => {
                        let locks = &hub.shared.script_locks;
                        let held = match lock {
                            Lock::None => None,
                            Lock::Record(lock) => Some(locks.hold(Some(lock))),
                            Lock::All => Some(locks.hold(None)),
                        };
                        let completion = self.call_timed(hub, &call, submitted);
                        drop((held, call, charge));
                        let message = Message::Called(token, completion);
                        hub.mailboxes[event_loop].post(message);
                    }
                    ScriptWork::Request(task, _) => {
                        let (counters, scratch) = (&self.counters, &mut self.scratch);
                        worker_pool::execute(hub, counters, event_loop, *task, scratch);
                    }
                }
                return lock;
            }
            Work::Periodic(number) => {
                // The state of this thread is idle meanwhile.
                drop(turn);
                hub.scripts.call_periodic(hub, number);
            }
            Work::Reload => {
                // A failure has been logged.
                let _ = caught(|| self.reload(hub));
                self.end_call(hub);
            }
            Work::FollowReload => {
                let _ = caught(|| {
                    extension.follow_reload(&self.records);
                    Ok(())
                });
                self.end_call(hub);
            }
        }
        Lock::None
    }

    fn reload(&self, hub: &Hub) -> Result<(), ExtensionError> {
        self.extension.reload(&self.records).inspect_err(|error| {
            tracing::error!("reload failed, the script stays as it was: {error}");
        })?;
        tracing::info!("reload: script loaded");
        self.look_for_periodic(hub);
        if self.records.thread() != 0 {
            hub.scripts.follow_reload();
        }
        Ok(())
    }

    /// Ends a call without a client. Its changes are in the update log afterwards.
    fn end_call(&self, hub: &Hub) {
        if self.records.end_call() {
            // A failure is logged there, and reported to later changes.
            hub.shared.served.flush_update_log();
        }
    }

    /// Calls the function for a client, and notes whether it took long since it was submitted.
    fn call_timed(&self, hub: &Hub, call: &ScriptCall, submitted: Instant) -> CallCompletion {
        let stopwatch = Stopwatch::begin(&hub.shared.slow_log, submitted);
        let mut completion = self.call(hub, call);
        let reply = &mut completion.reply;
        reply.slow = stopwatch.end(reply.output.len(), || {
            let request_bytes = call.bytes();
            let slow = SlowRequest::new(call.kind(), call.key());
            SlowRequest { request_bytes, ..slow }
        });
        completion
    }

    /// Calls the function for a client. Returns the reply.
    fn call(&self, hub: &Hub, call: &ScriptCall) -> CallCompletion {
        let shared = &*hub.shared;
        let extension = &self.extension;
        self.records.begin_call(call.rights.clone());
        let result = caught(|| match call.task {
            ScriptTask::Function => {
                extension.call(&self.records, call.name(), call.key(), call.value())
            }
            ScriptTask::Reload => self.reload(hub).map(|()| Some(call.value().to_vec())),
        });
        let has_changed = self.records.end_call();
        if has_changed && !shared.served.flush_update_log() {
            // A change that is not in the log must not be acknowledged.
            let mut output = Vec::new();
            let next = call.refuse(shared.log_failure(), &mut output);
            let reply =
                PooledReply { output, charge: None, next, slow: None, acknowledgement: None };
            CallCompletion { reply, failure: None }
        } else {
            let mut completion = encode(hub, call, result);
            completion.reply.acknowledgement = has_changed.then(|| {
                let refusal = call.refusal();
                (shared.acknowledgement_point(), FirstAcknowledgement { at: 0, refusal })
            });
            completion
        }
    }
}

/// Calls the extension. A panic in it is a failure of the call, since the thread serves others too.
fn caught<T>(call: impl FnOnce() -> Result<T, ExtensionError>) -> Result<T, ExtensionError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        // The panic itself has been printed already.
        Err(ExtensionError("the function has panicked, see the log of the server".into()))
    })
}

/// Returns the reply to a call.
fn encode(
    hub: &Hub,
    call: &ScriptCall,
    result: Result<Option<Vec<u8>>, ExtensionError>,
) -> CallCompletion {
    let mut output = Vec::new();
    let charged = match result {
        Ok(Some(result)) => {
            charge_result(hub, &result).map(|charge| (result, charge)).map_err(Some)
        }
        Ok(None) => Err(None),
        Err(ExtensionError(reason)) => Err(Some(reason)),
    };
    let (next, charge, failure) = match charged {
        Ok((result, charge)) => (call.succeed(&result, &mut output), charge, None),
        Err(reason) => {
            let next = call.fail(reason.as_deref(), &mut output);
            (next, None, Some(reason.as_deref().unwrap_or(NO_RESULT).into()))
        }
    };
    let reply = PooledReply { output, charge, next, slow: None, acknowledgement: None };
    CallCompletion { reply, failure }
}

/// Charges the budget for a long result.
fn charge_result(hub: &Hub, result: &[u8]) -> Result<Option<Charge>, String> {
    let max = hub.shared.config.reply_bytes_max;
    if result.len() > max {
        return Err(format!("the result has {} bytes, a reply at most {max}", result.len()));
    }
    if result.len() < COUNTED_RESULT_BYTES {
        return Ok(None);
    }
    let mut charge = Charge::none(&hub.shared.served.budget);
    if charge.set(result.len()) { Ok(Some(charge)) } else { Err("no memory for the result".into()) }
}
