//! The served database: its handles, its update log, its write gate, and the memory of requests.

use super::operation::Model;
use crate::ops::budget::Budget;
use crate::ops::stop_signal::StopSignal;
use crate::store::Store;
use crate::store::events::ChosenEvents;
use crate::store::gate::{Gate, WriteCondition};
use crate::store::resolve::resolve;
use crate::update_log::{Unfinished, UpdateLog};
use cabinet::Database;
use cabinet::name::Kind;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;
use wire::limits::BINARY_ARGUMENT_BYTES_MAX;

/// Number of ticks between two searches of an on-memory database for expired records.
const TICKS_OF_SEARCH: u32 = 10;

/// Time between two removals of expired records.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Time between two looks at whether there are listeners.
const IDLE_TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Settings of a served database.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServedSettings {
    /// Id of the server, 0 if it neither logs nor follows.
    pub(crate) server_id: u32,
    /// Port at which replicas reach the server, 0 if there is none.
    pub(crate) port: u16,
    /// Number of threads that may execute operations of a log.
    pub(crate) threads: usize,
    /// Whether clients may write even if the gate is closed.
    pub(crate) is_writable: bool,
    /// Memory of all requests and replies, in bytes.
    pub(crate) buffer_bytes_max: usize,
    /// Size of the files into which all large values are received, in bytes.
    pub(crate) spool_bytes_max: usize,
    pub(crate) request_bytes_max: usize,
    pub(crate) reply_bytes_max: usize,
    /// Longest value that is received into a file, in bytes.
    pub(crate) upload_bytes_max: usize,
}

/// A served database.
pub(crate) struct Served {
    pub(crate) settings: ServedSettings,
    /// Handle for threads that may wait. Neither handle waits for durability.
    pub(crate) database: Store,
    /// Handle for event loops.
    pub(crate) nonblocking: Store,
    /// Both handles without the update log, for requests that bypass it.
    unlogged: [Store; 2],
    pub(crate) update_log: Option<Arc<UpdateLog>>,
    /// Open unless this is a read-only replica.
    pub(crate) gate: Arc<Gate>,
    /// Kind of the database, or `None` for an engine from outside of `cabinet`.
    pub(crate) kind: Option<Kind>,
    /// Properties of the database that change the meaning of requests.
    pub(crate) model: Model,
    pub(crate) budget: Arc<Budget>,
    /// Budget of the files into which large values are received, in bytes.
    pub(crate) spool_budget: Arc<Budget>,
    pub(crate) stop: Arc<StopSignal>,
}

impl Served {
    /// Returns whether the records are in memory alone.
    pub(crate) fn is_on_memory(&self) -> bool {
        self.kind.is_some_and(Kind::is_on_memory)
    }

    /// Serves `database`, with its log and the changes that a killed process left pending.
    pub(crate) fn new(
        database: Database,
        settings: ServedSettings,
        log: Option<(Arc<UpdateLog>, Vec<Unfinished>)>,
        condition: Option<Arc<dyn WriteCondition>>,
        stop: Arc<StopSignal>,
    ) -> cabinet::Result<Self> {
        let database = database.deferred();
        let kind = Kind::of_path(&database.path());
        let model = Model::of(&database);
        let (update_log, unfinished) = log.unzip();
        let database = Store::new(database, update_log.clone(), settings.server_id as u16);
        if let (Some(log), Some(unfinished)) = (&update_log, unfinished) {
            resolve(&database, log, &unfinished)?;
        }
        let gate = Arc::new(Gate::new(settings.is_writable, condition));
        let database = database.gated(&gate);
        let nonblocking = database.nonblocking();
        Ok(Self {
            unlogged: [nonblocking.unlogged(), database.unlogged()],
            budget: Budget::new(settings.buffer_bytes_max),
            spool_budget: Budget::new(settings.spool_bytes_max),
            settings,
            database,
            nonblocking,
            update_log,
            gate,
            kind,
            model,
            stop,
        })
    }

    /// Returns the database without its update log.
    pub(crate) fn unlogged(&self, may_block: bool) -> &Store {
        &self.unlogged[usize::from(may_block)]
    }

    /// Returns the longest value that is received into a file, in bytes. An update log limits it to
    /// Tokyo Tyrant's longest value, and a tree holds changed values in memory.
    pub(crate) fn upload_bytes_max(&self) -> usize {
        let mut max = self.settings.upload_bytes_max;
        if matches!(self.kind, Some(Kind::Tree | Kind::Table)) {
            max = max.min(self.settings.reply_bytes_max);
        }
        if self.update_log.is_some() { max.min(BINARY_ARGUMENT_BYTES_MAX) } else { max }
    }

    /// Flushes the update log. Returns whether it contains every change so far.
    #[inline]
    pub(crate) fn flush_update_log(&self) -> bool {
        self.update_log.as_ref().is_none_or(|log| log.flush())
    }

    /// Logs the results of the changes that were pending when the process was killed, once the
    /// update log can be written.
    pub(crate) fn resolve(&self, unfinished: &[Unfinished]) {
        if let Some(log) = &self.update_log
            && let Err(error) = resolve(&self.database.ungated(), log, unfinished)
        {
            tracing::error!(
                "update log: cannot log the changes that a killed process left pending: {error}"
            );
        }
    }

    /// Removes expired records, and logs that. A read-only replica leaves it to its master. Raises
    /// the events of evicted records, too. Called about ten times per second, with the number of
    /// the call.
    pub(crate) fn remove_expired(&self, tick: u32) {
        self.database.raise_evicted();
        let is_over = || self.gate.reason().is_some();
        if self.database.expired_keys().is_none() || is_over() {
            return;
        }
        if tick.is_multiple_of(TICKS_OF_SEARCH) {
            self.database.find_expired();
        }
        if let Err(error) = self.database.collect_expired(is_over) {
            // The database returns the remaining keys again.
            tracing::debug!("expired records are not removed yet: {error}");
        }
    }

    /// Removes expired records while the server runs, in a server without an update log, whose
    /// thread does so otherwise. Engines do it themselves until there are listeners.
    pub(crate) fn expire(&self) {
        let mut tick = 0_u32;
        while !self.is_stopping() {
            let reports = [self.database.expired_keys(), self.database.evicted_keys()];
            let pause = if reports.iter().any(Option::is_some) { TICK } else { IDLE_TICK };
            let mut stop = [PollFd::new(&*self.stop, PollFlags::IN)];
            // An error ends the pause, as the signal does.
            let _ = poll(&mut stop, Some(&pause));
            self.remove_expired(tick);
            tick = tick.wrapping_add(1);
        }
    }

    /// Returns which events are sent.
    pub(crate) fn events(&self) -> ChosenEvents {
        self.database.chosen_events()
    }

    /// Sends these events from now on.
    pub(crate) fn choose_events(&self, chosen: ChosenEvents) {
        self.database.choose_events(chosen);
    }

    /// Returns whether the server stops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_set()
    }
}
