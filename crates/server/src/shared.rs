//! State that all threads of a server share.

use crate::admin::logins::Logins;
use crate::admin::scrub::Scrub;
use crate::budget::Budget;
use crate::counters::{Count, Counters};
use crate::net::mailbox::{Mailbox, wake};
use crate::net::pending_reply::{AcknowledgementPoint, RefusalReason};
use crate::net::upgrade::{BudgetedBytes, ConnectionUpgrade, UpgradedConnection};
use crate::net::worker_pool::WorkerPool;
use crate::ops::cas_numbers::CasNumbers;
use crate::ops::entity_tag::EntityTags;
use crate::ops::failure::LastFailure;
use crate::ops::hits::Hits;
use crate::ops::iterator::Cursor;
use crate::ops::operation::Model;
use crate::replication::{Ask, Replication, SemiSync};
use crate::store::Store;
use crate::store::gate::{Gate, WriteCondition};
use crate::store::settle::settle;
use crate::update_log::{Unfinished, UpdateLog};
use crate::{Config, Error, Result};
use cabinet::name::Kind;
use cabinet::{Database, Durability};
use parking_lot::{Mutex, RwLock};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::fcntl_dupfd_cloexec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use wire::limits::BINARY_ARGUMENT_BYTES_MAX;

/// Number of ticks of the update log's thread between two searches of an on-memory database for
/// expired records.
const TICKS_OF_SEARCH: u32 = 10;

/// State of a server.
///
/// Lock order: no two locks in here are taken at once, and none on the hot path. Requests write
/// only the counters and the budgets.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Handle for threads that may wait. Neither handle waits for durability.
    pub(crate) database: Store,
    /// Handle for event loops.
    pub(crate) nonblocking: Store,
    /// Both handles without the update log, for requests that ask for that.
    unlogged: [Store; 2],
    pub(crate) update_log: Option<Arc<UpdateLog>>,
    pub(crate) replication: Replication,
    /// Open unless this is a read-only replica.
    pub(crate) gate: Arc<Gate>,
    /// Front end for the connections of WebDAV clients, if they are served.
    pub(crate) upgrade: RwLock<Option<Arc<dyn ConnectionUpgrade>>>,
    /// Whether `upgrade` has been set.
    pub(crate) upgrades: AtomicBool,
    /// Whether writes are acknowledged only once they are durable, here or on replicas.
    pub(crate) delays_replies: bool,
    /// Whether writes are acknowledged only once they are durable here.
    awaits_disk: bool,
    /// Kind of the database, or `None` for an engine from outside of `cabinet`.
    pub(crate) kind: Option<Kind>,
    /// How the database keeps records.
    pub(crate) model: Model,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    pub(crate) pool: WorkerPool,
    pub(crate) budget: Arc<Budget>,
    /// Budget of the files into which large values are received, in bytes.
    pub(crate) spool_budget: Arc<Budget>,
    pub(crate) entity_tags: EntityTags,
    /// Logins, on a server with users.
    pub(crate) logins: Logins,
    /// Iterator of the connections that have not started one of their own.
    pub(crate) cursor: Mutex<Cursor>,
    pub(crate) last_failure: LastFailure,
    pub(crate) scrub: Scrub,
    pub(crate) hits: Hits,
    pub(crate) cas_numbers: CasNumbers,
    pub(crate) started: Instant,
    pub(crate) stopping: AtomicBool,
    /// Signalled when the server is to stop.
    pub(crate) waker: OwnedFd,
    counters: Mutex<Vec<Arc<Counters>>>,
    /// All counts at the last reset.
    totals_at_reset: Mutex<Vec<u64>>,
}

impl Shared {
    pub(crate) fn new(config: Config, database: Database) -> Result<Arc<Self>> {
        let mailboxes = (0..config.threads.max(1))
            .map(|_| Mailbox::new().map_err(Error::system("make an eventfd")))
            .collect::<Result<Arc<[Mailbox]>>>()?;
        let waker = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(Error::system("make an eventfd"))?;
        let database = database.deferred();
        let server_id = config.server_id;
        let takes_id = config.update_log.is_some() || config.following.master.is_some();
        let id = u16::try_from(server_id).map_err(|_| Error::ServerId(server_id))?;
        if takes_id && id == 0 {
            return Err(Error::ServerId(server_id));
        }
        let log = config.update_log.clone();
        let opened = log.map(|settings| UpdateLog::open(settings, &database)).transpose()?;
        let (update_log, unfinished) = opened.unzip();
        let update_log = update_log.map(|mut log| {
            if config.following.check {
                log.remember_own_changes();
            }
            Arc::new(log)
        });
        let wake = waker_of_pending_replies(&mailboxes);
        let awaits_disk = database.durability() == Durability::Always;
        let semi_sync = match config.semi_sync {
            None => None,
            Some(settings) if settings.replicas == 0 || update_log.is_none() => {
                return Err(Error::SemiSync);
            }
            Some(settings) => Some(Arc::new(SemiSync::new(settings, wake.clone()))),
        };
        let delays_replies = awaits_disk || semi_sync.is_some();
        if awaits_disk {
            let listener = Arc::new(move |_| wake());
            database.on_durable(listener).map_err(Error::Database)?;
        }
        let kind = Kind::of_path(&database.path());
        let model = Model::of(&database);
        let database = Store::new(database, update_log.clone(), id);
        if let (Some(log), Some(unfinished)) = (&update_log, unfinished) {
            settle(&database, log, &unfinished).map_err(Error::Unfinished)?;
        }
        let condition = semi_sync.clone().map(|semi_sync| semi_sync as Arc<dyn WriteCondition>);
        let gate = Arc::new(Gate::new(config.following.is_writable, condition));
        let database = database.gated(&gate);
        let nonblocking = database.nonblocking();
        Ok(Arc::new(Self {
            replication: Replication::new(&config.following, server_id, &gate, semi_sync),
            gate,
            upgrade: RwLock::default(),
            upgrades: AtomicBool::new(false),
            update_log,
            unlogged: [nonblocking.unlogged(), database.unlogged()],
            pool: WorkerPool::new(config.pool_queue_max),
            budget: Budget::new(config.buffer_bytes_max),
            spool_budget: Budget::new(config.spool_bytes_max),
            entity_tags: EntityTags::new(kind),
            logins: Logins::new(),
            config,
            kind,
            model,
            nonblocking,
            database,
            delays_replies,
            awaits_disk,
            mailboxes,
            cursor: Mutex::default(),
            last_failure: LastFailure::default(),
            scrub: Scrub::new(),
            hits: Hits::default(),
            cas_numbers: CasNumbers::default(),
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            waker,
            counters: Mutex::default(),
            totals_at_reset: Mutex::default(),
        }))
    }

    /// Returns the database without its update log.
    pub(crate) fn unlogged(&self, may_block: bool) -> &Store {
        &self.unlogged[usize::from(may_block)]
    }

    /// Serves the client of this socket as a replica from now on.
    pub(crate) fn hand_to_replica(self: &Arc<Self>, socket: &OwnedFd, ask: Ask) {
        match fcntl_dupfd_cloexec(socket, 0) {
            Ok(socket) => self.replication.serve(self, socket, ask),
            Err(error) => tracing::error!("cannot serve replica {}: {error}", ask.replica),
        }
    }

    /// Returns the longest value that is received into a file, in bytes. An update log takes at
    /// most Tokyo Tyrant's longest values. A tree holds the values in memory that it changes.
    pub(crate) fn upload_bytes_max(&self) -> usize {
        let mut max = self.config.upload_bytes_max;
        if matches!(self.kind, Some(Kind::Tree | Kind::Table)) {
            max = max.min(self.config.reply_bytes_max);
        }
        if self.update_log.is_some() { max.min(BINARY_ARGUMENT_BYTES_MAX) } else { max }
    }

    /// Returns whether HTTP targets are paths, as in WebDAV.
    pub(crate) fn serves_paths(&self) -> bool {
        self.upgrades.load(Ordering::Relaxed)
    }

    /// Returns the front end for the connections of WebDAV clients, if they are served.
    pub(crate) fn upgrade(&self) -> Option<Arc<dyn ConnectionUpgrade>> {
        self.serves_paths().then(|| self.upgrade.read().clone()).flatten()
    }

    /// Hands a connection over to the WebDAV front end. Returns whether the budget allows the bytes
    /// that go with it.
    pub(crate) fn upgrade_connection(
        &self,
        socket: &OwnedFd,
        unsent: Vec<u8>,
        received: Vec<u8>,
    ) -> bool {
        let Some(upgrade) = self.upgrade() else { return true };
        let counted = |bytes| BudgetedBytes::new(bytes, &self.budget);
        let (Some(unsent), Some(received)) = (counted(unsent), counted(received)) else {
            return false;
        };
        match fcntl_dupfd_cloexec(socket, 0) {
            Ok(socket) => upgrade.serve(UpgradedConnection { socket, unsent, received }),
            Err(error) => {
                tracing::error!("cannot hand over a WebDAV connection, which is closed: {error}")
            }
        }
        true
    }

    /// Returns the point that the reply to the latest write has to wait for.
    #[inline]
    pub(crate) fn acknowledgement_point(&self) -> AcknowledgementPoint {
        let durable = if self.awaits_disk { self.database.appended() } else { 0 };
        let is_semi_sync = self.replication.semi_sync().is_some();
        let log = self.update_log.as_ref().filter(|_| is_semi_sync);
        AcknowledgementPoint { durable, confirmed_us: log.map_or(0, |log| log.last_entry_us()) }
    }

    /// Blocks until `point` is reached. Returns whether the replicas have confirmed it, if they
    /// have to.
    pub(crate) fn wait_for(&self, point: AcknowledgementPoint) -> cabinet::Result<bool> {
        if point.durable > 0 {
            self.database.wait_durable(point.durable)?;
        }
        let semi_sync = self.replication.semi_sync();
        Ok(semi_sync.is_none_or(|semi_sync| semi_sync.wait_for(point.confirmed_us)))
    }

    /// Returns whether `point` is reached.
    #[inline]
    pub(crate) fn is_reached(&self, point: AcknowledgementPoint) -> bool {
        (point.durable == 0 || self.database.durable() >= point.durable)
            && self
                .replication
                .semi_sync()
                .is_none_or(|semi_sync| semi_sync.is_confirmed(point.confirmed_us))
    }

    /// Flushes the update log. Returns whether it contains every change so far.
    #[inline]
    pub(crate) fn flush_update_log(&self) -> bool {
        self.update_log.as_ref().is_none_or(|log| log.flush())
    }

    /// Returns the reason why a change is not in the update log.
    pub(crate) fn log_failure(&self) -> RefusalReason {
        let is_full = self.update_log.as_ref().is_some_and(|log| log.is_full());
        if is_full { RefusalReason::LogFull } else { RefusalReason::LogFailed }
    }

    /// Logs the results of the changes that were pending when the process was killed, now that the
    /// update log can be written.
    pub(crate) fn resolve(&self, unfinished: &[Unfinished]) {
        if let Some(log) = &self.update_log
            && let Err(error) = settle(&self.database.ungated(), log, unfinished)
        {
            tracing::error!(
                "update log: cannot log the changes that a killed process left pending: {error}"
            );
        }
    }

    /// Removes expired records, and logs that. A read-only replica leaves it to its master. Called
    /// about ten times per second, with the number of the call.
    pub(crate) fn remove_expired(&self, tick: u32) {
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

    /// Returns a new set of counters for one thread.
    pub(crate) fn new_counters(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.counters.lock().push(Arc::clone(&counters));
        counters
    }

    /// Returns the sum of a count over all threads.
    pub(crate) fn total(&self, what: Count) -> u64 {
        self.counters.lock().iter().map(|counters| counters.value(what)).sum()
    }

    /// Returns the sum of a count over all threads since the last reset.
    pub(crate) fn total_since_reset(&self, what: Count) -> u64 {
        let before = self.totals_at_reset.lock().get(what as usize).copied().unwrap_or(0);
        self.total(what).saturating_sub(before)
    }

    /// Resets the counts of memcached's `stats`.
    pub(crate) fn reset_totals(&self) {
        let totals = Count::ALL.iter().map(|what| self.total(*what)).collect();
        *self.totals_at_reset.lock() = totals;
    }

    /// Stops the server. Takes no lock and allocates nothing.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        wake(&self.waker);
    }

    /// Returns the number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.mailboxes.iter().map(|mailbox| mailbox.connections.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Returns the milliseconds between the start of the server and `now`.
    pub(crate) fn milliseconds_at(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX)
    }
}

/// Returns what wakes the event loops whose replies wait. It owns no more than the mailboxes: the
/// thread of an engine that calls it must not drop the database.
fn waker_of_pending_replies(
    mailboxes: &Arc<[Mailbox]>,
) -> impl Fn() + Clone + Send + Sync + 'static {
    let mailboxes = Arc::downgrade(mailboxes);
    move || {
        for mailbox in mailboxes.upgrade().iter().flat_map(|mailboxes| mailboxes.iter()) {
            if mailbox.has_pending_replies.load(Ordering::SeqCst) {
                mailbox.wake();
            }
        }
    }
}
