//! Replication on the original's wire, described in `docs/replication.md`.
//!
//! [`sender`] sends the update log to replicas, [`follower`] follows a master, [`apply`] executes what it
//! receives, [`restore`] executes an update log that is there as files.

mod apply;
mod batch;
mod follower;
mod lanes;
mod position;
mod promote;
mod restore;
mod sender;

pub use follower::{Following, Master};

pub use restore::{Replayed, replay};

pub(crate) use promote::Promoted;
pub(crate) use restore::restore;

use crate::gate::Gate;
use crate::shared::Shared;
use follower::Follower;
use rustix::fd::OwnedFd;
use sender::Senders;
use std::sync::Arc;

/// Options of `setmst` and `restore`: an operation that ends otherwise than it was logged ends all.
const CHECK: u32 = 1;

/// What a server has to do with others.
#[derive(Default)]
pub(crate) struct Replication {
    senders: Senders,
    /// A server without an id follows nobody.
    follower: Option<Follower>,
}

impl Replication {
    pub(crate) fn new(following: &Following, server_id: u32, gate: &Arc<Gate>) -> Self {
        let follower = (server_id != 0).then(|| Follower::new(following, gate));
        Self { senders: Senders::default(), follower }
    }

    /// The master that is followed, and the follower, if there is one.
    pub(crate) fn followed(&self) -> Option<(Master, &Follower)> {
        let follower = self.follower.as_ref()?;
        Some((follower.master()?, follower))
    }

    /// Number of replicas that are being served.
    pub(crate) fn replicas(&self) -> usize {
        self.senders.count()
    }

    /// Serves a replica from now on, on a thread of its own.
    pub(crate) fn serve(&self, shared: &Arc<Shared>, socket: OwnedFd, from_us: u64, replica: u32) {
        if let Err(error) = self.senders.serve(shared, socket, from_us, replica) {
            tracing::error!("replica {replica} cannot be served: {error}");
        }
    }

    /// `setmst`: an empty host is no master, a time stamp of 0 is where it was. Says whether it can
    /// be done.
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
    pub(crate) fn run(&self, shared: &Shared) {
        if let Some(follower) = &self.follower {
            follower.run(shared);
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
