//! State that all threads of a server share.

pub(crate) mod clients;
pub(crate) mod evaluator;
pub(crate) mod live;
pub(crate) mod loop_load;
pub(crate) mod pause;
pub(crate) mod reload;
pub(crate) mod script_locks;
pub(crate) mod slow_log;
pub(crate) mod upgrade;
pub(crate) mod warnings;

use crate::access::certificates::Certificates;
use crate::access::logins::{Logins, Peer};
use crate::access::users::{CurrentUsers, User};
use crate::counters::AllCounters;
use crate::ops::acknowledgement::{AcknowledgementPoint, RefusalReason};
use crate::ops::budget::Charge;
use crate::ops::cas_numbers::CasNumbers;
use crate::ops::channels::Channels;
use crate::ops::command_mask::Command;
use crate::ops::entity_tag::EntityTags;
use crate::ops::execute::{Executor, ReplyLimit};
use crate::ops::failure::LastFailure;
use crate::ops::hits::Hits;
use crate::ops::iterator::{Cursor, Iterators};
use crate::ops::remote::Remote;
use crate::ops::rights::{Need, Rights};
use crate::ops::scan_places::ScanPlaces;
use crate::ops::scrub::Scrub;
use crate::ops::served::{Served, ServedSettings};
use crate::ops::stop_signal::StopSignal;
use crate::replication::{IsAdmitted, ReplicaRequest, Replication, SemiSync};
use crate::shared::clients::Clients;
use crate::shared::evaluator::Evaluator;
use crate::shared::live::Live;
use crate::shared::loop_load::LoopLoad;
use crate::shared::pause::Pause;
use crate::shared::reload::Reload;
use crate::shared::script_locks::ScriptLocks;
use crate::shared::upgrade::{BudgetedBytes, ConnectionUpgrade, Resume, UpgradedConnection};
use crate::shared::warnings::Warnings;
use crate::store::Store;
use crate::store::gate::WriteCondition;
use crate::store::position_file::compare_with_log;
use crate::update_log::UpdateLog;
use crate::{ColdReads, Config, Error, Result};
use cabinet::{Database, Durability, Kind, Ring};
use parking_lot::{Mutex, RwLock};
use rustix::fd::OwnedFd;
use rustix::io::fcntl_dupfd_cloexec;
use slow_log::SlowLog;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tls::{Session, Stream};

/// State of a server.
///
/// Lock order: no two locks in here are taken at once, and none on the hot path. Requests write
/// only the counters and the budgets.
pub(crate) struct Shared {
    /// Settings as they were at the start; those in `live` may have changed since.
    pub(crate) config: Config,
    pub(crate) live: Live,
    pub(crate) served: Arc<Served>,
    /// Store outside of this process, in place of the database.
    pub(crate) remote: Option<Remote>,
    pub(crate) replication: Arc<Replication>,
    /// Front end for the connections of WebDAV clients, if they are served.
    pub(crate) upgrade: RwLock<Option<Arc<dyn ConnectionUpgrade>>>,
    /// Whether the server listens on a port, beside Unix sockets.
    pub(crate) has_port: AtomicBool,
    /// Whether `upgrade` has been set.
    pub(crate) upgrades: AtomicBool,
    /// Whether writes are acknowledged only once they are durable, here or on replicas.
    pub(crate) delays_replies: bool,
    /// Whether writes are acknowledged only once they are durable here.
    awaits_disk: bool,
    /// Loads of the event loops.
    pub(crate) loads: Arc<[Arc<LoopLoad>]>,
    pub(crate) entity_tags: EntityTags,
    /// Certificates, if clients may use TLS.
    pub(crate) certificates: Option<Certificates>,
    /// Users that may log in; `None` admits every client.
    pub(crate) users: Option<Arc<CurrentUsers>>,
    /// Logins, on a server with users.
    pub(crate) logins: Logins,
    /// Iterator of the connections that have not started one of their own.
    pub(crate) cursor: Mutex<Cursor>,
    pub(crate) last_failure: LastFailure,
    pub(crate) scrub: Scrub,
    pub(crate) hits: Hits,
    pub(crate) cas_numbers: Arc<CasNumbers>,
    pub(crate) started: Instant,
    pub(crate) counters: AllCounters,
    pub(crate) slow_log: SlowLog,
    pub(crate) warnings: Warnings,
    /// Scheduler for removing all records later, set once the server runs.
    pub(crate) scheduler: OnceLock<Arc<dyn Scheduler>>,
    /// Parts of the process that are read again, and the number of this server in it.
    pub(crate) reload: OnceLock<(Weak<dyn Reload>, usize)>,
    /// Stats of the extension, set if there is one.
    pub(crate) scripts: OnceLock<Weak<dyn ScriptStats>>,
    /// Interpreter of the scripts that clients send, set if there is one.
    pub(crate) evaluator: OnceLock<Weak<dyn Evaluator>>,
    pub(crate) script_locks: ScriptLocks,
    pub(crate) scan_places: ScanPlaces,
    pub(crate) channels: Arc<Channels>,
    /// The open connections.
    pub(crate) clients: Arc<Clients>,
    pub(crate) pause: Pause,
    /// Turn of the transactions that other clients have disturbed several times.
    pub(crate) transaction_turn: Mutex<()>,
}

/// Finds out how reads of the disk can be made for a database. Fails if that is to be a ring, and
/// the kernel does not allow one.
fn possible_reads(wanted: ColdReads, database: &Database) -> Result<ColdReads> {
    let is_in_memory = matches!(database.kind(), Some(Kind::MemoryHash | Kind::MemoryTree));
    if wanted == ColdReads::Pool || is_in_memory {
        return Ok(ColdReads::Pool);
    }
    match Ring::new() {
        Ok(_) => Ok(ColdReads::Ring),
        Err(error) if wanted == ColdReads::Ring => Err(Error::Ring(error)),
        Err(error) => {
            tracing::info!(
                "threads read what is not in memory: io_uring, which costs less, is not \
                 available: {error}"
            );
            Ok(ColdReads::Pool)
        }
    }
}

/// Stats of the functions that clients call.
pub(crate) trait ScriptStats: Send + Sync {
    /// Returns the present figures.
    fn figures(&self) -> ScriptFigures;

    /// Returns the names of functions to be called periodically that the extension does not have.
    fn missing_functions(&self) -> Vec<String>;
}

/// Figures of the functions that clients call, and of the threads that call them.
#[derive(Debug, Default)]
pub(crate) struct ScriptFigures {
    pub(crate) threads: usize,
    pub(crate) busy: usize,
    /// Number of calls that wait for a thread.
    pub(crate) queued: usize,
    pub(crate) functions: Vec<FunctionStatistics>,
    pub(crate) memory: ScriptMemory,
}

/// Memory that all states of an extension share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptMemory {
    /// Bytes that are in use or reserved.
    pub used_bytes: usize,
    /// Bytes that may be.
    pub max_bytes: usize,
}

/// Statistics of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionStatistics {
    /// Name of the function.
    pub name: String,
    /// Number of calls that have ended.
    pub calls: u64,
    /// Number of these calls that failed.
    pub failures: u64,
    /// Time of all these calls together.
    pub time: Duration,
}

/// Scheduler for removing all records at a later time.
pub(crate) trait Scheduler: Send + Sync {
    /// Schedules the removal of all records at `at`, or cancels it.
    fn clear_at(&self, at: Option<Instant>);
}

impl Shared {
    /// Opens the update log of `database` and makes the state of a server for it. `wake` wakes the
    /// event loops whose replies wait. It must not own the database: an engine's thread calls it.
    pub(crate) fn new(
        mut config: Config,
        database: Database,
        loads: Arc<[Arc<LoopLoad>]>,
        wake: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        let has_log = config.update_log.is_some() || config.following.master.is_some();
        let remote = match config.remote.clone() {
            Some(_) if has_log => return Err(Error::RemoteLog),
            remote => remote.map(|store| {
                Remote::new(
                    store,
                    config.remote_requests_max,
                    config.pool_threads,
                    config.remote_timeout,
                )
            }),
        };
        config.cold_reads = match remote {
            Some(_) => ColdReads::Pool,
            None => possible_reads(config.cold_reads, &database)?,
        };
        let stop = StopSignal::new().map_err(Error::system("make an eventfd"))?;
        let server_id = config.server_id;
        let certificates =
            config.tls.clone().map(|tls| Certificates::read(tls.files, tls.handshake_timeout));
        let certificates = certificates.transpose().map_err(Error::Tls)?;
        let takes_id = config.update_log.is_some() || config.following.master.is_some();
        let id = u16::try_from(server_id).map_err(|_| Error::ServerId(server_id))?;
        if takes_id && id == 0 {
            return Err(Error::ServerId(server_id));
        }
        let log = match config.update_log.clone() {
            None => None,
            Some(settings) => {
                let (mut log, unfinished) = UpdateLog::open(settings, &database)?;
                config.notices.extend(compare_with_log(&database.path(), &log));
                if config.following.check {
                    log.remember_own_changes();
                }
                Some((Arc::new(log), unfinished))
            }
        };
        let semi_sync = match config.semi_sync {
            None => None,
            Some(settings) if settings.replicas == 0 || log.is_none() => {
                return Err(Error::SemiSync);
            }
            Some(settings) => Some(Arc::new(SemiSync::new(settings, wake.clone()))),
        };
        let awaits_disk = database.durability() == Durability::Always;
        let delays_replies = awaits_disk || semi_sync.is_some();
        if awaits_disk {
            database.on_durable(Arc::new(move |_| wake())).map_err(Error::Database)?;
        }
        let settings = ServedSettings {
            server_id,
            port: config.tcp_port(),
            threads: config.threads,
            is_writable: config.following.is_writable,
            buffer_bytes_max: config.buffer_bytes_max,
            spool_bytes_max: config.spool_bytes_max,
            request_bytes_max: config.request_bytes_max,
            reply_bytes_max: config.reply_bytes_max,
            upload_bytes_max: config.upload_bytes_max,
        };
        let condition = semi_sync.clone().map(|semi_sync| semi_sync as Arc<dyn WriteCondition>);
        let served = Served::new(database, settings, log, condition, Arc::new(stop));
        let mut served = served.map_err(Error::Unfinished)?;
        if let Some(model) = remote.as_ref().and_then(Remote::model) {
            served.model = model;
        }
        let served = Arc::new(served);
        let replication = Replication::new(&config.following, Arc::clone(&served), semi_sync);
        Ok(Arc::new(Self {
            replication: Arc::new(replication),
            remote,
            upgrade: RwLock::default(),
            has_port: AtomicBool::new(false),
            upgrades: AtomicBool::new(false),
            delays_replies,
            awaits_disk,
            loads,
            scheduler: OnceLock::new(),
            reload: OnceLock::new(),
            scripts: OnceLock::new(),
            certificates,
            evaluator: OnceLock::new(),
            script_locks: ScriptLocks::default(),
            scan_places: ScanPlaces::default(),
            channels: Arc::default(),
            clients: Arc::default(),
            pause: Pause::default(),
            transaction_turn: Mutex::new(()),
            // Versions of a store outside of this process are the same for each server over it.
            entity_tags: EntityTags::new(served.kind.filter(|_| config.remote.is_none())),
            users: config.users.clone().map(|users| Arc::new(CurrentUsers::new(users))),
            logins: Logins::new(),
            cursor: Mutex::default(),
            last_failure: LastFailure::default(),
            scrub: Scrub::new(),
            hits: Hits::default(),
            cas_numbers: Arc::default(),
            started: Instant::now(),
            counters: AllCounters::default(),
            slow_log: SlowLog::new(config.slow_log_threshold),
            warnings: Warnings::default(),
            live: Live::new(&config),
            config,
            served,
        }))
    }

    /// Makes the state of a server that does not run, for tests.
    #[cfg(test)]
    pub(crate) fn for_test(config: Config, database: Database) -> Arc<Self> {
        Self::new(config, database, Arc::new([]), || ()).expect("a server's state")
    }

    /// Returns whether clients may call functions of an extension.
    #[inline]
    pub(crate) fn has_extension(&self) -> bool {
        self.scripts.get().is_some() && self.remote.is_none()
    }

    /// Schedules the removal of all records at `at`, or cancels it.
    pub(crate) fn clear_at(&self, at: Option<Instant>) {
        if let Some(scheduler) = self.scheduler.get() {
            scheduler.clear_at(at);
        }
    }

    /// Returns the limits of a reply.
    #[inline(always)]
    pub(crate) fn limit<'a>(&'a self, charge: &'a mut Option<Charge>) -> ReplyLimit<'a> {
        let (bytes_max, budget) = (self.config.reply_bytes_max, &self.served.budget);
        ReplyLimit { bytes_max, earlier_bytes: 0, budget, charge }
    }

    /// Returns the context of operations of a client with these rights in `store`, which is a
    /// handle on this server's database. Without rights the client has all.
    #[inline(always)]
    pub(crate) fn executor<'a>(
        &'a self,
        store: &'a Store,
        may_wait: bool,
        charge: &'a mut Option<Charge>,
        iterators: Option<Iterators<'a>>,
        rights: Option<&'a Rights>,
    ) -> Executor<'a> {
        let limit = self.limit(charge);
        let (cas_numbers, entity_tags) = (&self.cas_numbers, self.entity_tags);
        let has_changed = false;
        Executor {
            store,
            may_wait,
            limit,
            cas_numbers,
            entity_tags,
            scan_places: Some(&self.scan_places),
            iterators,
            rights,
            has_changed,
            cause: None,
        }
    }

    /// Serves the client of this socket as a replica from now on, as long as its user may.
    pub(crate) fn hand_to_replica(
        &self,
        socket: &OwnedFd,
        session: Option<Box<Session>>,
        user: Option<&Arc<User>>,
        request: ReplicaRequest,
    ) {
        let is_admitted: IsAdmitted = match (&self.users, user) {
            (Some(users), Some(user)) => {
                let (users, user) = (Arc::clone(users), Arc::clone(user));
                Box::new(move || {
                    let has = |user: &User, right| {
                        let need = Need::of_all(right);
                        user.rights().is_none_or(|rights| rights.lacks(need).is_none())
                    };
                    users.renew(&user).is_some_and(|user| {
                        Command::Replicate.rights().iter().all(|right| has(&user, *right))
                    })
                })
            }
            // Tokyo Tyrant's protocol is open to all.
            _ => Box::new(|| true),
        };
        match fcntl_dupfd_cloexec(socket, 0) {
            Ok(socket) => {
                let stream = Stream::new(socket.into(), session);
                self.replication.serve(stream, request, is_admitted)
            }
            Err(error) => tracing::error!("cannot serve replica {}: {error}", request.replica),
        }
    }

    /// Returns whether HTTP targets are paths, as in WebDAV.
    pub(crate) fn serves_paths(&self) -> bool {
        self.upgrades.load(Ordering::Relaxed) && self.remote.is_none()
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
        session: Option<Box<Session>>,
        peer: Option<Peer>,
        unsent: Vec<u8>,
        received: Vec<u8>,
        resume: Resume,
    ) -> bool {
        let Some(upgrade) = self.upgrade() else { return true };
        let counted = |bytes| BudgetedBytes::new(bytes, &self.served.budget);
        let (Some(unsent), Some(received)) = (counted(unsent), counted(received)) else {
            return false;
        };
        match fcntl_dupfd_cloexec(socket, 0) {
            Ok(socket) => {
                let peer = peer.unwrap_or_default();
                upgrade.serve(UpgradedConnection {
                    socket,
                    session,
                    peer,
                    unsent,
                    received,
                    resume,
                })
            }
            Err(error) => {
                tracing::error!("cannot hand over a WebDAV connection, which is closed: {error}")
            }
        }
        true
    }

    /// Returns the point that the reply to the latest write has to wait for.
    #[inline]
    pub(crate) fn acknowledgement_point(&self) -> AcknowledgementPoint {
        let durable = if self.awaits_disk { self.served.database.appended() } else { 0 };
        let is_semi_sync = self.replication.semi_sync().is_some();
        let log = self.served.update_log.as_ref().filter(|_| is_semi_sync);
        AcknowledgementPoint { durable, confirmed_us: log.map_or(0, |log| log.last_entry_us()) }
    }

    /// Blocks until `point` is reached. Returns whether the replicas have confirmed it, if they
    /// have to.
    pub(crate) fn wait_for(&self, point: AcknowledgementPoint) -> cabinet::Result<bool> {
        if point.durable > 0 {
            self.served.database.wait_durable(point.durable)?;
        }
        let semi_sync = self.replication.semi_sync();
        Ok(semi_sync.is_none_or(|semi_sync| semi_sync.wait_for(point.confirmed_us)))
    }

    /// Returns whether `point` is reached.
    #[inline]
    pub(crate) fn is_reached(&self, point: AcknowledgementPoint) -> bool {
        (point.durable == 0 || self.served.database.durable() >= point.durable)
            && self
                .replication
                .semi_sync()
                .is_none_or(|semi_sync| semi_sync.is_confirmed(point.confirmed_us))
    }

    /// Returns the reason why a change is not in the update log.
    pub(crate) fn log_failure(&self) -> RefusalReason {
        let is_full = self.served.update_log.as_ref().is_some_and(|log| log.is_full());
        if is_full { RefusalReason::LogFull } else { RefusalReason::LogFailed }
    }

    /// Returns the number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.loads.iter().map(|load| load.connections.load(Ordering::Relaxed)).sum()
    }

    /// Returns the milliseconds between the start of the server and `now`.
    pub(crate) fn milliseconds_at(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX)
    }
}
