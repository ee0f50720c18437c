//! Replication on Tokyo Tyrant's wire, described in `docs/replication.md`.
//!
//! [`sender`] sends the update log to replicas, [`follower`] follows a master, [`apply`] executes
//! what it receives, [`restore`] executes an update log that is there as files. Between two servers
//! of this project there is more: [`link`] is the master's side of it, [`seeder`] copies all
//! records, [`copying`] and [`tally`] are the replica's side, and [`semi_sync`] has clients wait
//! for replicas.

mod apply;
mod batch;
mod copying;
mod feed;
mod follower;
mod lanes;
mod link;
mod path;
mod position;
mod promote;
mod pulse;
mod replica;
mod restore;
mod seeder;
mod semi_sync;
mod sender;
mod tally;
mod whole;

pub use follower::{Following, Master, Seeding};
pub use semi_sync::{OnTimeout, Settings as SemiSyncSettings};

pub use restore::{ReplayError, Replayed, replay};

pub(crate) use promote::Promoted;
pub(crate) use restore::restore;
pub(crate) use semi_sync::SemiSync;

use crate::ops::served::Served;
use crate::update_log::UpdateLog;
use follower::Follower;
use rustix::fd::OwnedFd;
use sender::Senders;
use std::sync::Arc;
use std::time::Duration;
use wire::replication::LogProgress;

/// Each end of a link says this often that it is there, also when there is nothing to tell.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Longest silence of the other end of a link between two servers of this project.
const SILENCE_MAX: Duration = Duration::from_secs(4);

/// Options of `setmst` and `restore`: an operation that ends otherwise than it was logged ends all.
const CHECK: u32 = 1;

/// What a replica asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Its server id.
    pub(crate) replica: u32,
    /// Since when it wants to know what changed, in microseconds since 1970.
    pub(crate) from_us: u64,
    /// It is one of this project.
    pub(crate) extended: Option<Extended>,
}

/// What only a replica of this project says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extended {
    /// Those of [`wire::replication`].
    pub(crate) options: u32,
    /// Port at which it can be reached, 0 if that is not known.
    pub(crate) port: u16,
}

/// What a server has to do with others.
pub(crate) struct Replication {
    served: Arc<Served>,
    senders: Senders,
    semi_sync: Option<Arc<SemiSync>>,
    /// A server without an id follows nobody.
    follower: Option<Follower>,
}

impl Replication {
    pub(crate) fn new(
        following: &Following,
        served: Arc<Served>,
        semi_sync: Option<Arc<SemiSync>>,
    ) -> Self {
        let follower =
            (served.settings.server_id != 0).then(|| Follower::new(following, &served.gate));
        Self { served, senders: Senders::default(), semi_sync, follower }
    }

    /// The master that is followed, and the follower, if there is one.
    pub(crate) fn followed(&self) -> Option<(Master, &Follower)> {
        let follower = self.follower.as_ref()?;
        Some((follower.master()?, follower))
    }

    /// What was executed here of each log, if that is known.
    fn had(&self) -> Vec<LogProgress> {
        self.follower.as_ref().map_or_else(Vec::new, Follower::had)
    }

    /// Number of replicas that are being served.
    pub(crate) fn replicas(&self) -> usize {
        self.senders.count()
    }

    /// Serves a replica from now on, on a thread of its own.
    pub(crate) fn serve(self: &Arc<Self>, socket: OwnedFd, ask: Ask) {
        if let Err(error) = self.senders.serve(self, socket, ask) {
            tracing::error!("replica {} cannot be served: {error}", ask.replica);
        }
    }

    /// Clients wait for what replicas acknowledge, if so.
    pub(crate) fn semi_sync(&self) -> Option<&SemiSync> {
        self.semi_sync.as_deref()
    }

    /// Whether replicas are to acknowledge at once what they have on disk.
    fn awaits(&self) -> bool {
        self.semi_sync.is_some()
    }

    /// Looks at how far replicas have come, for clients that wait for that.
    pub(crate) fn confirm(&self, log: &UpdateLog) {
        if let Some(semi_sync) = &self.semi_sync {
            semi_sync.confirm(&self.senders.durable_us(), log.last_entry_us());
        }
    }

    /// The life of a thread that finds out when replicas stay away for too long.
    pub(crate) fn await_replicas(&self, is_stopping: impl Fn() -> bool) {
        if let Some(semi_sync) = &self.semi_sync {
            semi_sync.look_after(|| self.senders.durable_us().len(), is_stopping);
        }
    }

    /// What `stat` shows of others, by names.
    pub(crate) fn figures(&self, log: Option<&UpdateLog>) -> Vec<(String, String)> {
        let mut figures = Vec::new();
        if let Some(log) = log {
            figures.extend(self.senders.describe(log.tail()));
        }
        figures.extend(self.semi_sync.iter().flat_map(|semi_sync| semi_sync.figures()));
        if let Some((_, follower)) = self.followed() {
            figures.extend(follower.figures());
        }
        figures
    }

    /// `setmst`: an empty host is no master, a time stamp of 0 is where it was. Returns whether it
    /// can be done; without a master, when everything is executed that was received.
    pub(crate) fn set_master(&self, host: &[u8], port: u32, from_us: u64, options: u32) -> bool {
        let Some(follower) = &self.follower else {
            if host.is_empty() {
                return true;
            }
            tracing::error!("a server without an id cannot follow a master");
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
        let set_us = (from_us > 0).then_some(from_us);
        follower.follow(master, set_us, checks(options));
        true
    }

    /// Follows nobody from now on, also after a restart. `None` if there is no master.
    pub(crate) fn promote(&self) -> Option<Promoted> {
        self.follower.as_ref()?.promote()
    }

    /// Whether this server can follow another.
    pub(crate) fn can_follow(&self) -> bool {
        self.follower.is_some()
    }

    /// The life of the follower's thread, until the server stops.
    pub(crate) fn run(&self) {
        if let Some(follower) = &self.follower {
            follower.run(&self.served);
        }
    }

    /// Has the follower stop.
    pub(crate) fn stop_following(&self) {
        if let Some(follower) = &self.follower {
            follower.stop();
        }
    }

    /// Ends the serving of replicas.
    pub(crate) fn stop_serving(&self) {
        self.senders.stop();
    }
}

/// Whether options of `setmst` or `restore` ask for the check.
pub(crate) fn checks(options: u32) -> bool {
    options & CHECK != 0
}
