//! Replication over Tokyo Tyrant's protocol, described in `docs/replication.md`.
//!
//! [`sender`] sends the update log to replicas. [`follower`] follows a master, and [`apply`]
//! executes the received operations. [`restore`] executes an update log in files. Two servers of
//! this project use an extended protocol. Its master's side is [`link`], and
//! [`initial_sync_sender`] sends an initial sync. Its replica's side is [`initial_sync_receiver`]
//! and [`replica_progress`]. [`semi_sync`] makes clients wait for replicas.

mod apply;
mod batch;
mod feed;
mod follower;
mod initial_sync_receiver;
mod initial_sync_sender;
mod link;
mod partition_progress;
mod position;
mod promote;
mod pulse;
mod replica;
mod replica_progress;
mod replica_session;
mod restore;
mod semi_sync;
mod sender;
mod whole;

pub use follower::{Following, Master, Seeding};
pub use semi_sync::{OnTimeout, Settings as SemiSyncSettings};

pub use restore::{ReplayError, Replayed, replay};

pub(crate) use promote::Promoted;
pub(crate) use restore::restore;
pub(crate) use semi_sync::SemiSync;

use crate::ops::served::Served;
use crate::update_log::{Reader, UpdateLog};
use follower::Follower;
use parking_lot::Mutex;
use position::ChangesHere;
pub(crate) use replica::{Lag, LostReplica, ReplicaStatus};
use sender::Senders;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tls::Stream;
use wire::limits::REPLICATION_REASON_BYTES_MAX;
use wire::replication::{FromMaster, LogProgress};

/// Reason for which a server sends no log.
pub(crate) const NO_LOG: &str =
    "the server has no update log: start it with --update-log DIR and --server-id N";

/// Interval of the heartbeats of each end of a link.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Longest silence of the other end of a link between two servers of this project.
const SILENCE_MAX: Duration = Duration::from_secs(4);

/// Time within which both ends notice a cut link, as documented, in seconds.
const NOTICED_WITHIN_S: u64 = 5;
const _: () = assert!(SILENCE_MAX.as_secs() + HEARTBEAT.as_secs() <= NOTICED_WITHIN_S);

/// Option of `setmst` and `restore`: an operation that ends otherwise than it was logged stops the
/// replay.
const CHECK: u32 = 1;

/// Returns whether a replica may go on: a reload may remove its user, or take his rights.
pub(crate) type IsAdmitted = Box<dyn Fn() -> bool + Send + Sync>;

/// Request of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaRequest {
    /// Server id of the replica.
    pub(crate) replica: u32,
    /// Time stamp from which the replica requests entries, in microseconds since 1970.
    pub(crate) from_us: u64,
    /// Extension, sent by replicas of this project.
    pub(crate) extended: Option<Extended>,
}

/// Part of a request that only replicas of this project send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extended {
    /// Options of [`wire::replication`].
    pub(crate) options: u32,
    /// Port at which the replica can be reached, 0 if unknown.
    pub(crate) port: u16,
}

/// Appends the reply to a replica of this project that is refused before it is served. It may ask
/// again, as the reason may be a setting of the master.
pub(crate) fn refuse_for_now(output: &mut Vec<u8>, server_id: u32, reason: &str) {
    output.extend_from_slice(&server_id.to_be_bytes());
    // The length is within the limit.
    let _ = refused(false, reason).encode(output);
}

/// Returns the message that refuses a replica, with as much of the reason as it has room for.
fn refused(is_final: bool, reason: &str) -> FromMaster<'_> {
    let reason = &reason.as_bytes()[..reason.len().min(REPLICATION_REASON_BYTES_MAX)];
    FromMaster::Refused { is_final, reason }
}

/// Replication state of a server.
pub(crate) struct Replication {
    served: Arc<Served>,
    senders: Senders,
    semi_sync: Option<Arc<SemiSync>>,
    /// Follower, unless the server has no id.
    follower: Option<Follower>,
}

impl Replication {
    pub(crate) fn new(
        following: &Following,
        served: Arc<Served>,
        semi_sync: Option<Arc<SemiSync>>,
    ) -> Self {
        let (position, database) = (following.position.clone(), served.database.path());
        let is_logged = served.update_log.is_some();
        let writing = Mutex::default();
        let note = ChangesHere { position, database, is_logged, writing };
        served.gate.note_changes(Box::new(note));
        if following.position.exists() {
            served.gate.open();
        }
        let follower =
            (served.settings.server_id != 0).then(|| Follower::new(following, &served.gate));
        Self { served, senders: Senders::default(), semi_sync, follower }
    }

    /// Returns the master that is followed, and the follower, if there is one.
    pub(crate) fn followed(&self) -> Option<(Master, &Follower)> {
        let follower = self.follower.as_ref()?;
        Some((follower.master()?, follower))
    }

    /// Returns the progress in each log, if it is known.
    fn log_progress(&self) -> Vec<LogProgress> {
        self.follower.as_ref().map_or_else(Vec::new, Follower::log_progress)
    }

    /// Returns the time stamp of the last change in the update log, in microseconds since 1970; 0
    /// without a log.
    pub(crate) fn changed_us(&self) -> u64 {
        self.served.update_log.as_ref().map_or(0, |log| log.last_entry_us())
    }

    /// Returns the number of replicas that have executed the changes up to a time stamp.
    pub(crate) fn count_with(&self, changed_us: u64) -> usize {
        let has = |replica: &ReplicaStatus| {
            replica.is_streaming
                && (replica.executed_us >= changed_us || replica.lag.operations == 0)
        };
        self.statuses().iter().filter(|replica| has(replica)).count()
    }

    /// Returns the connected replicas that acknowledge, by their ids.
    pub(crate) fn statuses(&self) -> Vec<ReplicaStatus> {
        let log = self.served.update_log.as_ref();
        log.map_or_else(Vec::new, |log| self.senders.statuses(log.tail()))
    }

    /// Returns the number of connected replicas.
    pub(crate) fn replicas(&self) -> usize {
        self.senders.count()
    }

    /// Returns the replicas that were served since the start and are not connected, by their ids.
    pub(crate) fn lost(&self) -> Vec<LostReplica> {
        self.senders.lost()
    }

    /// Forgets a replica that is not connected. Returns its address, or `None` if there is none
    /// with this id.
    pub(crate) fn forget(&self, id: u32) -> Option<String> {
        self.senders.forget(id)
    }

    /// Returns why a client would not get the log from a time stamp on, as a text for its user.
    pub(crate) fn refusal(&self, from_us: u64) -> Option<String> {
        let log = match self.log_to_send(self.replicas()) {
            Ok(log) => log,
            Err(reason) => return Some(reason),
        };
        let error = Reader::open(log.folder(), from_us).err()?;
        Some(format!("{error}; begin at a later time"))
    }

    /// Returns the log for one more replica than there are, or why there is none for it.
    fn log_to_send(&self, replicas: usize) -> Result<&Arc<UpdateLog>, String> {
        if self.served.is_stopping() {
            return Err("the server is stopping".into());
        }
        if replicas >= sender::REPLICAS_MAX {
            return Err(format!("{} replicas are connected: end one", sender::REPLICAS_MAX));
        }
        self.served.update_log.as_ref().ok_or_else(|| NO_LOG.into())
    }

    /// Serves a replica on a thread of its own.
    pub(crate) fn serve(
        self: &Arc<Self>,
        stream: Stream,
        request: ReplicaRequest,
        is_admitted: IsAdmitted,
    ) {
        if let Err(error) = self.senders.serve(self, stream, request, is_admitted) {
            tracing::error!("cannot serve replica {}: {error}", request.replica);
        }
    }

    /// Returns the semi-sync state, if clients wait for replicas.
    pub(crate) fn semi_sync(&self) -> Option<&SemiSync> {
        self.semi_sync.as_deref()
    }

    /// Returns whether replicas should acknowledge durable changes at once.
    fn awaits(&self) -> bool {
        self.semi_sync.is_some()
    }

    /// Checks the acknowledgements of replicas for waiting clients.
    pub(crate) fn confirm(&self, log: &UpdateLog) {
        if let Some(semi_sync) = &self.semi_sync {
            semi_sync.confirm(&self.senders.durable_us(), log.last_entry_us());
        }
    }

    /// Runs the thread that detects the timeout of replicas.
    pub(crate) fn await_replicas(&self, is_stopping: impl Fn() -> bool) {
        if let Some(semi_sync) = &self.semi_sync {
            semi_sync.watch(|| self.senders.durable_us().len(), is_stopping);
        }
    }

    /// Returns the lags of the connected replicas that acknowledge, by their ids.
    pub(crate) fn lags(&self) -> BTreeMap<u32, Lag> {
        let log = self.served.update_log.as_ref();
        log.map_or_else(BTreeMap::new, |log| self.senders.lags(log.tail()))
    }

    /// Returns names and values for `stat`.
    pub(crate) fn stats(&self, log: Option<&UpdateLog>) -> Vec<(String, String)> {
        let mut stats = Vec::new();
        if let Some(log) = log {
            stats.extend(self.senders.describe(log.tail()));
        }
        stats.extend(self.semi_sync.iter().flat_map(|semi_sync| semi_sync.stats()));
        if let Some((_, follower)) = self.followed() {
            stats.extend(follower.stats());
        }
        stats
    }

    /// Executes `setmst`: an empty host is no master, and a time stamp of 0 is the present
    /// position. Returns whether it can be done. Without a master, blocks until all received
    /// operations are executed.
    pub(crate) fn set_master(&self, host: &[u8], port: u32, from_us: u64, options: u32) -> bool {
        let Some(follower) = &self.follower else {
            if host.is_empty() {
                return true;
            }
            tracing::error!("a server without an id cannot follow a master, set --server-id");
            return false;
        };
        let master = if host.is_empty() {
            None
        } else {
            let (Ok(host), Ok(port)) = (std::str::from_utf8(host), u16::try_from(port)) else {
                return false;
            };
            Some(Master { host: host.to_owned(), port })
        };
        if master.is_some() {
            // The servers change their places: a replica of before may be the master, or its.
            self.senders.forget_all();
        }
        let set_us = (from_us > 0).then_some(from_us);
        follower.follow(master, set_us, checks(options));
        true
    }

    /// Stops following, also after a restart. The error is the reason why that cannot be done.
    pub(crate) fn promote(&self) -> Result<Promoted, String> {
        self.follower.as_ref().ok_or(follower::NO_MASTER)?.promote()
    }

    /// Returns whether this server can follow a master.
    pub(crate) fn can_follow(&self) -> bool {
        self.follower.is_some()
    }

    /// Runs the follower's thread until the server stops.
    pub(crate) fn run(&self) {
        if let Some(follower) = &self.follower {
            follower.run(&self.served);
        }
    }

    /// Stops the follower.
    pub(crate) fn stop_following(&self) {
        if let Some(follower) = &self.follower {
            follower.stop();
        }
    }

    /// Disconnects all replicas.
    pub(crate) fn stop_serving(&self) {
        self.senders.stop();
    }
}

/// Returns whether options of `setmst` or `restore` request the check.
pub(crate) fn checks(options: u32) -> bool {
    options & CHECK != 0
}
