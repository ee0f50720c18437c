//! Databases in a cluster: their names, and the store that the server gets.

use server::RemoteStore;
use std::sync::Arc;
use std::time::Duration;

/// A store that is connected to.
pub(crate) struct Connected {
    pub(crate) store: Arc<dyn RemoteStore>,
    /// Name of the empty database of the server, of a kind with the same functions.
    pub(crate) local: &'static str,
    /// Longest wait for an answer.
    pub(crate) timeout: Duration,
    /// Guarantees that the cluster does not give and should.
    pub(crate) warnings: Vec<String>,
}

/// Options of a copy between a local database and one in a cluster.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "no copy is made without it"))]
pub(crate) struct Migration {
    /// The target may have records.
    pub(crate) into_existing: bool,
    /// All records are compared after the copy.
    pub(crate) verify: bool,
    /// Longest time without an answer of the cluster.
    pub(crate) wait: Duration,
}

#[cfg(feature = "cluster")]
mod migrate;

#[cfg(feature = "cluster")]
mod connected {
    use super::Connected;
    use crate::errors::wrong_command_line;
    use ::cluster::{ClusterStore, Error, Kind, Name};
    use anyhow::{Context, Result};
    use std::sync::Arc;
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    /// First and longest pause between attempts of a server that starts. Each is twice as long as
    /// the one before.
    const START_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));

    pub(crate) use super::migrate::migrate;
    pub(crate) use ::cluster::is_cluster_name;

    /// Checks the name of a database.
    pub(crate) fn check(name: &str) -> Result<()> {
        parse(name).map(drop)
    }

    /// Connects to a database.
    pub(crate) fn connect(name: &str) -> Result<Connected> {
        connect_named(&Name { start_wait: Duration::ZERO, ..parse(name)? })
    }

    /// Parses a name of the command line.
    pub(super) fn parse(name: &str) -> Result<Name> {
        Name::parse(name).map_err(wrong_command_line)
    }

    /// Connects to a database for a server that starts, perhaps before the nodes do. Logs what the
    /// cluster does not guarantee.
    pub(crate) fn connect_at_start(name: &str) -> Result<Connected> {
        let connected = connect_named(&parse(name)?)?;
        for warning in &connected.warnings {
            tracing::warn!("{warning}");
        }
        Ok(connected)
    }

    fn connect_named(name: &Name) -> Result<Connected> {
        let store = connect_store(name).context("cannot use the cluster")?;
        let warnings = store.warnings().context("cannot use the cluster")?;
        // The store itself answers in time; the server's wait is the last resort.
        let local = match name.kind {
            Kind::Hash => "*",
            Kind::Tree | Kind::Fixed | Kind::Table => "+",
        };
        Ok(Connected { store, local, timeout: name.timeout * 2, warnings })
    }

    fn connect_store(name: &Name) -> ::cluster::Result<Arc<ClusterStore>> {
        let until = Instant::now() + name.start_wait;
        let (mut pause, longest) = START_PAUSES;
        loop {
            match ClusterStore::connect(name) {
                Err(error @ Error::Connect { is_away: true, .. }) if Instant::now() < until => {
                    if pause == START_PAUSES.0 {
                        let seconds = name.start_wait.as_secs();
                        tracing::warn!("{error}; trying again for {seconds} s");
                    }
                    sleep(pause);
                    pause = (2 * pause).min(longest);
                }
                result => return result,
            }
        }
    }

    /// Makes the keyspace and the tables of a database.
    pub(crate) fn init(name: &str, replication: u8) -> Result<()> {
        Ok(::cluster::init(&parse(name)?, replication)?)
    }

    /// Returns the statements that make the keyspace and the tables.
    pub(crate) fn statements(name: &str, replication: u8) -> Result<Vec<String>> {
        Ok(::cluster::statements(&parse(name)?, replication))
    }
}

#[cfg(not(feature = "cluster"))]
mod connected {
    use super::{Connected, Migration};
    use anyhow::{Result, bail};

    const WITHOUT: &str = "this program was built without databases in a cluster: build it with \
        `cargo build --release --features cluster`, or install a package, which has them";

    const SCHEME: &str = "cassandra://";

    /// Returns whether a database is in a cluster.
    pub(crate) fn is_cluster_name(name: &str) -> bool {
        name.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
    }

    pub(crate) fn check(_: &str) -> Result<()> {
        bail!(WITHOUT)
    }

    pub(crate) fn connect(_: &str) -> Result<Connected> {
        bail!(WITHOUT)
    }

    pub(crate) fn connect_at_start(_: &str) -> Result<Connected> {
        bail!(WITHOUT)
    }

    pub(crate) fn init(_: &str, _: u8) -> Result<()> {
        bail!(WITHOUT)
    }

    pub(crate) fn statements(_: &str, _: u8) -> Result<Vec<String>> {
        bail!(WITHOUT)
    }

    pub(crate) fn migrate(_: &str, _: &str, _: Migration) -> Result<()> {
        bail!(WITHOUT)
    }
}

pub(crate) use connected::{
    check, connect, connect_at_start, init, is_cluster_name, migrate, statements,
};
