//! Applier: executes the operations that a master sends, on all cores.
//!
//! The receiving thread gathers operations in batches. Each worker goes through every batch in
//! order, and executes the operations of its own partitions, see [`super::partition_progress`].
//! Therefore operations on one key keep their order. An operation on more than one key waits for
//! all operations before it, and is executed before any operation after it.
//!
//! A batch is done when all workers have gone through it. Then the update log and the position are
//! written once for all of its operations. If the workers are idle, the receiving thread executes
//! small batches itself.

use super::batch::{Batch, Received, Update};
use super::follower::{End, Progress};
use super::partition_progress::{ALONE, Begun, PARTITIONS, PartitionProgress};
use super::position::Position;
use super::replica_session::{out_of_place, refused};
use crate::ops::replay::{Logged, Replayer};
use crate::ops::served::Served;
use crate::store::view::KEYS_AHEAD_MAX;
use crate::update_log::{KeyPartitioning, Source, now_us};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::replication::{FromMaster, LogProgress, ROOT_LOGS_MAX, Root, progress_in};
use wire::update_log::{Message, Operation};

/// Bytes of operations that wait or are being executed, above which the receiving thread pauses. A
/// longer operation waits alone.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// Largest assumed difference between the clocks of servers, in microseconds. Changes that are
/// closer in time count as concurrent.
const CONFLICT_MARGIN_US: u64 = 2_000_000;

/// Number of operations up to which no worker is woken.
const FEW: usize = 16;

/// Most empty batches whose memory is kept.
const SPARE_MAX: usize = 4;

/// Applier of the operations of one connection.
pub(super) struct Applier<'a> {
    served: &'a Served,
    progress: &'a Progress,
    /// Whether an operation that ends otherwise than on the master stops the replica.
    check: bool,
    master: u16,
    names: Names,
    partitioning: KeyPartitioning,
    /// Name of this server's own log in roots, 0 without a log.
    own_log: u64,
    partitions: Arc<PartitionProgress>,
    /// Operation that each partition had begun when the connection began.
    begun: Vec<Begun>,
    /// Progress in each log when the connection began.
    before: Vec<LogProgress>,
    /// Number of workers, 0 if the receiving thread executes everything.
    workers: usize,
    queue: Mutex<Queue<'a>>,
    /// Signals that there is a batch, or that there will be no more.
    grown: Condvar,
    /// Signals that a batch is done, or that the applier has failed.
    shrunk: Condvar,
    has_failed: AtomicBool,
    /// Whether the replica has caught up with the master at some moment since the connection began.
    has_caught_up: AtomicBool,
    /// Interrupts the receiving thread.
    interrupt: &'a (dyn Fn() + Sync),
}

/// Naming of the log entries of a master.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    /// Name of the master's log.
    pub(super) log: u64,
    /// Whether the master sends the roots of entries that it did not make first.
    pub(super) sends_roots: bool,
}

struct Queue<'a> {
    position: &'a mut Position,
    batches: VecDeque<Arc<Batch>>,
    /// Empty batches, whose memory is used again.
    spare: Vec<Batch>,
    /// Number of the first batch.
    first: u64,
    /// Bytes of all batches.
    bytes: usize,
    is_closed: bool,
    failure: Option<End>,
}

impl<'a> Applier<'a> {
    /// Returns an applier for operations of the server `master` after `position`.
    pub(super) fn new(
        served: &'a Served,
        progress: &'a Progress,
        position: &'a mut Position,
        master: u16,
        names: Names,
        check: bool,
        interrupt: &'a (dyn Fn() + Sync),
    ) -> Self {
        let partitions = Arc::clone(position.partitions());
        let begun = (0..=PARTITIONS).map(|partition| partitions.begun(partition)).collect();
        let before = partitions.logs();
        // With `check` no operation after the failed one may be executed, so one worker executes
        // all.
        let workers = match served.settings.threads.min(PARTITIONS) {
            0 | 1 => 0,
            _ if check => 0,
            threads => threads,
        };
        let queue = Queue {
            position,
            batches: VecDeque::new(),
            spare: Vec::new(),
            first: 0,
            bytes: 0,
            is_closed: false,
            failure: None,
        };
        Self {
            served,
            progress,
            check,
            master,
            names,
            partitioning: served.database.partitioning(),
            own_log: served.update_log.as_ref().and_then(|log| log.name()).unwrap_or(0),
            partitions,
            begun,
            before,
            workers,
            queue: Mutex::new(queue),
            grown: Condvar::new(),
            shrunk: Condvar::new(),
            has_failed: AtomicBool::new(false),
            has_caught_up: AtomicBool::new(false),
            interrupt,
        }
    }

    /// Returns the number of workers to start, which are numbered from 0.
    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    /// Returns an empty batch.
    pub(super) fn batch(&self) -> Batch {
        Batch::new(self.workers.max(1))
    }

    /// Returns whether the applier has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Adds the operations of a message to `batch`, and submits it when due. Fails if the message
    /// is invalid. Earlier operations are executed nevertheless.
    pub(super) fn take(
        &self,
        batch: &mut Batch,
        message: FromMaster<'_>,
        replayer: &mut Replayer<'_>,
    ) -> Result<(), End> {
        let (root, timestamp_us, origin, body) = match message {
            FromMaster::Log(Message::Update { timestamp_us, origin, body }) => {
                (Root { log: self.names.log, timestamp_us }, timestamp_us, origin, body)
            }
            FromMaster::Rooted {
                root,
                message: Message::Update { timestamp_us, origin, body },
            } => (root, timestamp_us, origin, body),
            FromMaster::Progress { pairs } if self.names.sends_roots => {
                self.submit(batch, replayer);
                self.await_idle();
                return self.learn(pairs);
            }
            FromMaster::Log(Message::NoOperation) => {
                batch.caught_up_us = Some(now_us());
                return Ok(());
            }
            FromMaster::Position(at) => {
                self.progress.replica_progress.note_position(at, batch.updates.len());
                batch.passed_us = at.timestamp_us;
                if at.remaining == 0 {
                    self.has_caught_up.store(true, Ordering::Relaxed);
                    batch.caught_up_us = Some(now_us());
                }
                return Ok(());
            }
            FromMaster::Refused { is_final, reason } => return Err(refused(is_final, reason)),
            // The master has only now found that its log does not continue there.
            FromMaster::SeedBegin { .. } => return Err(End::SeedBegins),
            FromMaster::Record { .. }
            | FromMaster::SeedEnd { .. }
            | FromMaster::Block { .. }
            | FromMaster::Rooted { .. }
            | FromMaster::Progress { .. }
            | FromMaster::Switch { .. } => return Err(out_of_place()),
        };
        let Ok(origin) = u16::try_from(origin) else {
            return Err(End::Halted(format!("{origin} is not a server id")));
        };
        // The operation returns by way of another server, and was executed here first.
        let is_own = u32::from(origin) == self.served.settings.server_id
            || root.log == self.own_log && self.names.sends_roots;
        let mut slot = if is_own { Some(0) } else { self.partitions.slot(root.log) };
        if slot.is_none() && self.has_caught_up.load(Ordering::Relaxed) {
            self.submit(batch, replayer);
            self.await_idle();
            if self.has_failed() {
                return Ok(());
            }
            // The position is after all of these operations, so this master does not send them
            // again.
            tracing::warn!(
                "replication: the entries come from more than {ROOT_LOGS_MAX} logs, so the progress in \
                 each of them is no longer known"
            );
            self.partitions.keep_only(self.names.log);
            slot = self.partitions.slot(root.log);
        }
        let Some(slot) = slot else {
            return Err(End::Halted(format!(
                "its entries come from more than {ROOT_LOGS_MAX} logs; to continue, send setmst with a \
                 time stamp"
            )));
        };
        let operation_of = Received { timestamp_us, root, slot, origin };
        if is_own {
            batch.push(operation_of, None, body, None);
            return Ok(());
        }
        let key = self.key_of(body, timestamp_us)?;
        let database = &self.served.database;
        let partition_of = |key| database.partition_of(self.partitioning, key, PARTITIONS);
        match key.and_then(partition_of) {
            None => {
                self.submit(batch, replayer);
                self.await_idle();
                batch.push(operation_of, Some(ALONE), body, None);
                self.submit(batch, replayer);
            }
            partition => batch.push(operation_of, partition, body, key),
        }
        Ok(())
    }

    /// Submits the operations of a batch, and leaves it empty.
    pub(super) fn submit(&self, batch: &mut Batch, replayer: &mut Replayer<'_>) {
        if batch.is_empty() || self.has_failed() {
            batch.clear();
            return;
        }
        self.progress.replica_progress.receive(batch.updates.len());
        let bytes = batch.size_bytes();
        let mut queue = self.queue.lock();
        while !queue.batches.is_empty() && queue.bytes + bytes > WAITING_BYTES_MAX {
            if self.has_failed() {
                return;
            }
            self.shrunk.wait(&mut queue);
        }
        let empty = queue.spare.pop().unwrap_or_else(|| self.batch());
        let mut batch = std::mem::replace(batch, empty);
        let is_here = self.workers == 0
            || queue.batches.is_empty()
                && (batch.updates.len() <= FEW || batch.updates[0].partition() == Some(ALONE));
        batch.is_for_workers = !is_here;
        *batch.working.get_mut() = if is_here { 1 } else { self.workers };
        let batch = Arc::new(batch);
        queue.bytes += bytes;
        queue.batches.push_back(Arc::clone(&batch));
        if !is_here {
            self.grown.notify_all();
            return;
        }
        // Workers skip the batch, as it is done before the next one is submitted.
        drop(queue);
        let mut shares = 0..self.workers.max(1);
        match shares.try_for_each(|worker| self.go_through(&batch, worker, replayer)) {
            Ok(()) => self.done(batch),
            Err(end) => self.fail(end),
        }
    }

    /// Blocks until all submitted operations are done.
    fn await_idle(&self) {
        let mut queue = self.queue.lock();
        while !queue.batches.is_empty() && !self.has_failed() {
            self.shrunk.wait(&mut queue);
        }
    }

    /// Returns a guard that fails the applier if its thread panics, so that no thread waits for it
    /// for ever.
    pub(super) fn guard(&self) -> FailOnPanic<'_, 'a> {
        FailOnPanic(self)
    }

    /// Runs a worker until the queue is closed and empty.
    pub(super) fn work(&self, number: usize) {
        let _guard = self.guard();
        let mut replayer = Replayer::new(&self.served.database, &self.served.budget);
        let mut next = 0;
        while let Some(batch) = self.next_batch(&mut next) {
            match self.go_through(&batch, number, &mut replayer) {
                Ok(()) => self.done(batch),
                Err(end) => self.fail(end),
            }
        }
    }

    fn next_batch(&self, next: &mut u64) -> Option<Arc<Batch>> {
        let mut queue = self.queue.lock();
        loop {
            if self.has_failed() {
                return None;
            }
            // Batches that were removed were executed without this worker.
            *next = queue.first.max(*next);
            let index = usize::try_from(*next - queue.first).unwrap_or(usize::MAX);
            match queue.batches.get(index) {
                Some(batch) if batch.is_for_workers => {
                    *next += 1;
                    return Some(Arc::clone(batch));
                }
                None if queue.is_closed => return None,
                _ => self.grown.wait(&mut queue),
            }
        }
    }

    /// Executes the operations of a batch that are the worker's.
    fn go_through(
        &self,
        batch: &Batch,
        worker: usize,
        replayer: &mut Replayer<'_>,
    ) -> Result<(), End> {
        let mut mine = batch.share(worker);
        let mut group = Vec::with_capacity(KEYS_AHEAD_MAX);
        loop {
            group.clear();
            group.extend(mine.by_ref().take(KEYS_AHEAD_MAX));
            if group.is_empty() {
                return Ok(());
            }
            self.prefetch(batch, &group);
            for update in &group {
                if self.has_failed() {
                    return Ok(());
                }
                self.execute(update, batch.body(update), replayer)?;
            }
        }
    }

    /// Returns the key of an operation on one record. Only an operation whose key is not at a place
    /// of its own is parsed for it.
    fn key_of<'b>(&self, body: &'b [u8], timestamp_us: u64) -> Result<Option<&'b [u8]>, End> {
        if let Some(key) = Operation::peek_key(body) {
            return Ok(Some(key));
        }
        let logged = Logged::parse(body, self.served.model);
        logged.map(|logged| logged.scope().key()).map_err(|_| no_operation(timestamp_us))
    }

    /// Prefetches the keys of operations, so that the cache misses of their lookups overlap.
    fn prefetch(&self, batch: &Batch, group: &[&Update]) {
        let mut keys = [&[][..]; KEYS_AHEAD_MAX];
        for (key, update) in keys.iter_mut().zip(group) {
            *key = batch.key(update);
        }
        if group.len() > 1 {
            self.served.nonblocking.prefetch(&keys[..group.len()]);
        }
    }

    fn execute(
        &self,
        update: &Update,
        body: &[u8],
        replayer: &mut Replayer<'_>,
    ) -> Result<(), End> {
        let Some(partition) = update.partition() else { return Ok(()) };
        let Update { timestamp_us, root, .. } = *update;
        let before = self.before.iter().find(|progress| progress.log == root.log);
        if before.is_some_and(|progress| root.timestamp_us <= progress.partitions_us[partition]) {
            return Ok(());
        }
        // The operation is used in place, because a copy would take longer than parsing it.
        let parsed = Logged::parse(body, self.served.model);
        let Ok(logged) = &parsed else { return Err(no_operation(timestamp_us)) };
        let state = replayer.state(logged);
        // An earlier connection or process may have executed the operation.
        let begun = self.begun[partition];
        let is_in_doubt = begun.root == root;
        if !is_in_doubt {
            self.partitions.begin(partition, root, state);
        } else if state.is_some_and(|state| state != begun.state) {
            // The log may contain the operation.
            self.invalidate_roots()?;
            self.partitions.executed(update.slot(), partition, root.timestamp_us);
            return Ok(());
        }
        let root = self.names.sends_roots.then_some(root);
        let source = Source { origin: update.origin, master: self.master, root };
        let succeeded = replayer.replay(source, logged).map_err(End::lost)?;
        if replayer.differs(logged, succeeded) {
            let what = format!(
                "the log entry at time stamp {timestamp_us} ended differently than on the master"
            );
            // A second execution may fail because of the first.
            if self.check && !is_in_doubt {
                return Err(End::Halted(what));
            }
            tracing::warn!("replication: {what}");
        }
        self.partitions.executed(update.slot(), partition, update.root.timestamp_us);
        if self.check && !is_in_doubt {
            logged.keys().for_each(|key| self.report_conflict(update, key));
        }
        Ok(())
    }

    /// Notes that all received operations are executed, and so all operations of each log up to a
    /// time stamp.
    fn learn(&self, pairs: &[u8]) -> Result<(), End> {
        if self.has_failed() {
            return Ok(());
        }
        let bases: Vec<_> = progress_in(pairs).filter(|(log, _)| *log != self.own_log).collect();
        self.partitions.learn(&bases);
        self.note_roots()
    }

    /// Makes the update log note the roots of entries, if it does not. No operation may be pending.
    pub(super) fn note_roots(&self) -> Result<(), End> {
        if let Some(log) = &self.served.update_log
            && self.names.sends_roots
            && !log.is_recording()
            && self.partitions.is_complete()
        {
            let highest_us = |progress: &LogProgress| {
                progress.partitions_us.iter().copied().max().unwrap_or_default()
            };
            let logs = self.partitions.logs();
            let logs = logs.iter().map(|progress| (progress.log, highest_us(progress))).collect();
            log.record_roots(logs).map_err(End::lost)?;
        }
        Ok(())
    }

    fn invalidate_roots(&self) -> Result<(), End> {
        let Some(log) = &self.served.update_log else { return Ok(()) };
        log.invalidate_roots().map_err(End::lost)
    }

    /// Logs a conflict, if the record was changed here later than the update, by the clocks of both
    /// servers, and without it. If the change here was earlier, the other server logs the conflict.
    fn report_conflict(&self, update: &Update, key: &[u8]) {
        let from_us = update.timestamp_us.saturating_sub(CONFLICT_MARGIN_US);
        if let Some(log) = &self.served.update_log
            && log.was_changed_here(key, from_us)
        {
            tracing::warn!(
                "replication: {:?} was changed here and on server {} at the same time: the servers may differ",
                String::from_utf8_lossy(key),
                update.origin
            );
        }
    }

    /// Notes that a worker has gone through a batch.
    fn done(&self, batch: Arc<Batch>) {
        if batch.working.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        drop(batch);
        let mut queue = self.queue.lock();
        let is_done = |batch: &Arc<Batch>| batch.working.load(Ordering::Acquire) == 0;
        while !self.has_failed() && queue.batches.front().is_some_and(is_done) {
            let Some(batch) = queue.batches.pop_front() else { break };
            queue.first += 1;
            queue.bytes -= batch.size_bytes();
            let last_us = batch.updates.last().map_or(0, |last| last.timestamp_us);
            // The master has skipped entries that other servers have sent.
            let passed_us = batch.passed_us.max(last_us);
            if passed_us > queue.position.timestamp_us() {
                self.advance(&mut queue, passed_us, batch.updates.len());
            }
            if let Some(at_us) = batch.caught_up_us {
                self.progress.caught_up_us.store(at_us, Ordering::Relaxed);
            }
            if let Some(mut batch) = Arc::into_inner(batch)
                && queue.spare.len() < SPARE_MAX
            {
                batch.clear();
                queue.spare.push(batch);
            }
        }
        drop(queue);
        self.shrunk.notify_all();
    }

    /// Advances the position to `timestamp_us`, after this many more operations.
    fn advance(&self, queue: &mut MutexGuard<'_, Queue<'_>>, timestamp_us: u64, operations: usize) {
        let done = if self.served.flush_update_log() {
            queue.position.advance(timestamp_us).map_err(|error| position_error(&error))
        } else {
            Err(End::Lost("the update log cannot be written".into()))
        };
        match done {
            Ok(()) => {
                self.progress.executed_us.store(timestamp_us, Ordering::Relaxed);
                self.progress.replica_progress.execute(operations as u64, timestamp_us);
            }
            Err(end) => self.fail_with(queue, end),
        }
    }

    fn fail(&self, end: End) {
        let mut queue = self.queue.lock();
        self.fail_with(&mut queue, end);
    }

    fn fail_with(&self, queue: &mut MutexGuard<'_, Queue<'_>>, end: End) {
        self.has_failed.store(true, Ordering::Relaxed);
        queue.failure.get_or_insert(end);
        self.grown.notify_all();
        self.shrunk.notify_all();
        (self.interrupt)();
    }

    /// Closes the queue: there are no more batches.
    pub(super) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.grown.notify_all();
    }

    /// Sets the position to the first operation that was not executed. Returns the failure, if
    /// there is one.
    pub(super) fn finish(self) -> Option<End> {
        let mut queue = self.queue.lock();
        let batches = std::mem::take(&mut queue.batches);
        let is_done = |update: &&Update| {
            let executed_us = update.partition().map(|partition| {
                let before = self.before.iter().find(|progress| progress.log == update.root.log);
                let before_us = before.map_or(0, |progress| progress.partitions_us[partition]);
                before_us.max(self.partitions.executed_us(update.slot(), partition))
            });
            executed_us.is_none_or(|executed_us| update.root.timestamp_us <= executed_us)
        };
        let updates = batches.iter().flat_map(|batch| &batch.updates);
        if let Some(last) = updates.take_while(is_done).last() {
            self.advance(&mut queue, last.timestamp_us, 0);
        }
        queue.failure.take()
    }
}

fn no_operation(timestamp_us: u64) -> End {
    End::Halted(format!("the log entry at time stamp {timestamp_us} is not a valid operation"))
}

fn position_error(error: &std::io::Error) -> End {
    End::Lost(format!("cannot write the position: {error}"))
}

/// Guard of a thread, see [`Applier::guard`].
pub(super) struct FailOnPanic<'w, 'a>(&'w Applier<'a>);

impl Drop for FailOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(End::Lost("a thread has panicked".into()));
        }
    }
}
