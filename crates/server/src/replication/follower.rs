//! Follower: the replica's side of replication.
//!
//! One thread receives the master's update log ([`super::replica_session`]), and [`super::apply`]
//! executes it. A lost connection is opened again after a pause that doubles each time. Replication
//! continues after the last executed operation, see [`super::position`].

use super::position::{self, Owner, Position};
use super::promote::{self, Promoted};
use super::replica_progress::{Lag, ReplicaProgress};
use super::replica_session::ReplicaSession;
use crate::ops::served::Served;
use crate::store::gate::Gate;
use crate::update_log::now_us;
use cabinet::Durability;
use client::{Address, Interrupter};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::replication::LogProgress;

/// First pause before another attempt to connect. It doubles up to the longest pause.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Reason why a server that is not a replica is not promoted.
pub(super) const NO_MASTER: &str = "the server follows no master";

/// A master to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl fmt::Display for Master {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Address::from((&*self.host, self.port)).fmt(formatter)
    }
}

/// Settings of a follower.
#[derive(Clone, Debug)]
pub struct Following {
    /// Master at the start. `setmst` sets another one.
    pub master: Option<Master>,
    /// File with the position.
    pub position: PathBuf,
    /// Whether an operation that ends otherwise than on the master stops replication.
    pub check: bool,
    /// Whether clients may write while a master is followed.
    pub is_writable: bool,
    /// Condition of an initial sync.
    pub seeding: Seeding,
    /// Whether the initial sync is compressed.
    pub compresses: bool,
    /// How masters are connected to with TLS; `None` is without it. The files are read for each
    /// connection.
    pub tls: Option<tls::ClientSettings>,
    /// File with the user and the password for the master, see [`client::Credentials::read`]. It is
    /// read for each connection.
    pub credentials: Option<PathBuf>,
    /// Whether they may be sent without TLS to a master on another machine.
    pub allows_plain_login: bool,
}

/// Condition under which a replica becomes a copy of its master. Requires a master of this project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seeding {
    /// Never: the replica stops if the log does not continue at its position.
    Never,
    /// If the replica has no records, so that none are lost.
    #[default]
    Empty,
    /// Also if the master's log does not continue at the position, although the copy replaces
    /// records.
    Always,
}

impl Default for Following {
    /// Returns settings without a master, with Tokyo Tyrant's file and rules.
    fn default() -> Self {
        Self {
            master: None,
            position: "ttserver.rts".into(),
            check: false,
            is_writable: true,
            seeding: Seeding::default(),
            compresses: false,
            tls: None,
            credentials: None,
            allows_plain_login: false,
        }
    }
}

/// Configuration of the follower.
#[derive(Debug, Default)]
struct Configuration {
    master: Option<Master>,
    check: bool,
    /// Position to continue at, used once.
    set_us: Option<u64>,
    /// Generation of the configuration, which rises with each change.
    generation: u64,
    stopping: bool,
    /// Whether an operation of an earlier master may still be executed.
    is_busy: bool,
}

/// State of the follower that other threads use.
pub(crate) struct Follower {
    configuration: Mutex<Configuration>,
    changed: Condvar,
    connection: Mutex<Option<Interrupter>>,
    position: PathBuf,
    pub(super) seeding: Seeding,
    pub(super) compresses: bool,
    pub(super) tls: Option<tls::ClientSettings>,
    pub(super) credentials: Option<PathBuf>,
    pub(super) allows_plain_login: bool,
    pub(super) state: Mutex<State>,
    /// Why the last connection ended or was not made, under the present configuration.
    last_error: Mutex<Option<String>>,
    pub(super) progress: Progress,
    /// Number of configurations up to which the log has told that the records may differ from the
    /// master's.
    told_inexact: AtomicU64,
    /// Write gate, closed while a master is followed, unless clients may write anyway.
    gate: Arc<Gate>,
}

/// Progress of the follower, in microseconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Time stamp up to which all operations were executed.
    pub(super) executed_us: AtomicU64,
    /// Time at which the replica had last caught up with the master.
    pub(super) caught_up_us: AtomicU64,
    /// Progress that is acknowledged to the master.
    pub(super) replica_progress: ReplicaProgress,
}

/// State of the follower.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum State {
    #[default]
    Connecting,
    Following,
    /// Records so far, and the master's number of records when the copy began.
    Seeding {
        done: u64,
        total: u64,
    },
    Stopped,
}

/// Reason why the follower stops following.
pub(super) enum End {
    /// The configuration was changed.
    Changed,
    /// The connection was lost.
    Lost(String),
    /// The follower must not continue before the configuration is changed.
    Halted(String),
    /// The master begins an initial sync on the same connection.
    SeedBegins,
}

impl End {
    /// Returns the end of a connection that has failed with an error.
    pub(super) fn lost(error: impl fmt::Display) -> Self {
        Self::Lost(error.to_string())
    }
}

impl From<client::Error> for End {
    fn from(error: client::Error) -> Self {
        use client::Error as E;
        let text = match (&error, std::error::Error::source(&error)) {
            (E::ConnectionRefused(_), Some(source)) => format!("cannot connect: {source}"),
            (E::HostNotFound(_), Some(source)) => format!("cannot find the host: {source}"),
            (_, Some(source)) => format!("{error}: {source}"),
            (_, None) => error.to_string(),
        };
        Self::Lost(text)
    }
}

impl Follower {
    pub(super) fn new(following: &Following, gate: &Arc<Gate>) -> Self {
        let master = following.master.clone();
        let master = master.filter(|master| !promote::was_promoted(&following.position, master));
        let configuration =
            Configuration { master, check: following.check, ..Configuration::default() };
        if let Some(master) = &configuration.master {
            gate.close(&master.to_string());
        }
        Self {
            configuration: Mutex::new(configuration),
            changed: Condvar::new(),
            connection: Mutex::new(None),
            position: following.position.clone(),
            seeding: following.seeding,
            compresses: following.compresses,
            tls: following.tls.clone(),
            credentials: following.credentials.clone(),
            allows_plain_login: following.allows_plain_login,
            state: Mutex::default(),
            last_error: Mutex::default(),
            progress: Progress::default(),
            told_inexact: AtomicU64::new(0),
            gate: Arc::clone(gate),
        }
    }

    /// Returns the master, if there is one.
    pub(crate) fn master(&self) -> Option<Master> {
        self.configuration.lock().master.clone()
    }

    /// Returns the progress in each log, if it is known.
    pub(super) fn log_progress(&self) -> Vec<LogProgress> {
        position::log_progress(&self.position)
    }

    /// Returns the time stamp of the last executed operation.
    pub(crate) fn executed_us(&self) -> u64 {
        self.progress.executed_us.load(Ordering::Relaxed)
    }

    /// Returns the lag in seconds, or `None` before anything was received.
    pub(crate) fn lag_seconds(&self) -> Option<f64> {
        // The lag is by the master's clock, if the master has sent it.
        if let Some(lag) = self.progress.replica_progress.lag() {
            return Some(lag.seconds);
        }
        let known_us = self.executed_us().max(self.progress.caught_up_us.load(Ordering::Relaxed));
        (known_us > 0).then(|| now_us().saturating_sub(known_us) as f64 / 1e6)
    }

    /// Returns the number of operations that are not executed yet, if the master sends it.
    pub(crate) fn lag_operations(&self) -> Option<u64> {
        self.progress.replica_progress.lag().map(|lag| lag.operations)
    }

    /// Returns the state as `stat` shows it.
    pub(crate) fn state(&self) -> &'static str {
        let state = *self.state.lock();
        match state {
            // An interrupted copy is incomplete, so the state is shown before the copy continues,
            // too.
            State::Connecting if position::is_seeding(&self.position) => "seeding",
            State::Connecting => "connecting",
            State::Following => "following",
            State::Seeding { .. } => "seeding",
            State::Stopped => "stopped",
        }
    }

    /// Returns names and values for `stat`.
    pub(super) fn stats(&self) -> Vec<(String, String)> {
        let mut stats = Vec::new();
        let mut stat = |name: &str, value: String| stats.push((name.to_owned(), value));
        stat("replication_state", self.state().to_owned());
        let state = *self.state.lock();
        if matches!(state, State::Connecting | State::Stopped)
            && let Some(reason) = &*self.last_error.lock()
        {
            stat("replication_error", reason.clone());
        }
        if !self.gate.stays_open() {
            stat("replication_read_only", "1".to_owned());
        }
        if let Some(inexact) = self.inexact() {
            stat("replication_inexact", inexact);
        }
        if let State::Seeding { done, total } = state {
            stat("replication_seeded", done.to_string());
            stat("replication_seeding", total.to_string());
        }
        if let Some(Lag { operations, seconds }) = self.progress.replica_progress.lag() {
            stat("replication_lag_operations", operations.to_string());
            stat("replication_lag_seconds", format!("{seconds:.6}"));
        }
        stats
    }

    /// Returns why the records may differ from those of the master, if it is known that they may.
    /// Two servers that follow each other differ as long as there is anything to send.
    pub(crate) fn inexact(&self) -> Option<String> {
        let inexact = (!self.gate.stays_open()).then(|| position::inexact(&self.position));
        inexact.flatten().map(|inexact| inexact.to_string())
    }

    /// Follows another master from `set_us` on, or from the present position. Without a master,
    /// blocks until all received operations are executed; then clients may write.
    pub(crate) fn follow(&self, master: Option<Master>, set_us: Option<u64>, check: bool) {
        let follows = master.is_some();
        let generation = self.reconfigure(|configuration| {
            if let Some(master) = &master {
                self.gate.close(&master.to_string());
                promote::forget(&self.position);
            }
            configuration.master = master;
            configuration.set_us = set_us.or(configuration.set_us);
            configuration.check = check;
        });
        if !follows {
            let configuration = self.idle();
            if configuration.generation == generation && !configuration.is_busy {
                self.gate.open();
            }
        }
    }

    /// Blocks until no operation of a master is being executed, or the server stops.
    fn idle(&self) -> MutexGuard<'_, Configuration> {
        let mut configuration = self.configuration.lock();
        while configuration.is_busy && !configuration.stopping {
            self.changed.wait(&mut configuration);
        }
        configuration
    }

    /// Stops following, also after a restart, and blocks until all received operations are
    /// executed. The error is the reason why this server cannot become a master.
    pub(super) fn promote(&self) -> Result<Promoted, String> {
        let promoted = self.try_promote();
        if let Err(reason) = &promoted
            && reason != NO_MASTER
        {
            tracing::error!("not promoted: {reason}");
        }
        promoted
    }

    fn try_promote(&self) -> Result<Promoted, String> {
        self.expect_complete()?;
        let mut followed = None;
        let generation = self.reconfigure(|configuration| followed = configuration.master.take());
        let master = followed.ok_or(NO_MASTER)?;
        let mut configuration = self.idle();
        if configuration.master.is_some() {
            return Err("the configuration was changed meanwhile".into());
        }
        // An initial sync may have begun before the connection was closed.
        let remembered = self.expect_complete().and_then(|()| {
            let remembered = promote::remember(&self.position, &master);
            remembered.map_err(|error| format!("the promotion cannot be stored: {error}"))
        });
        if let Err(reason) = remembered {
            promote::forget(&self.position);
            if configuration.generation == generation {
                configuration.master = Some(master);
                configuration.generation += 1;
                self.changed.notify_all();
            }
            return Err(reason);
        }
        self.gate.open();
        let position_us = self.progress.executed_us.load(Ordering::Relaxed);
        tracing::info!(
            "promoted: no longer a replica of {master}, whose log was executed up to time stamp {position_us}"
        );
        Ok(Promoted { master, position_us })
    }

    fn expect_complete(&self) -> Result<(), String> {
        if position::is_seeding(&self.position) {
            return Err("the initial sync of this server is incomplete".into());
        }
        Ok(())
    }

    pub(super) fn stop(&self) {
        self.reconfigure(|configuration| configuration.stopping = true);
    }

    /// Changes the configuration. Returns its generation.
    fn reconfigure(&self, change: impl FnOnce(&mut Configuration)) -> u64 {
        let mut configuration = self.configuration.lock();
        change(&mut configuration);
        configuration.generation += 1;
        *self.last_error.lock() = None;
        *self.state.lock() = State::Connecting;
        // The lock is held, so that the next connection is not interrupted.
        self.interrupt();
        self.changed.notify_all();
        configuration.generation
    }

    /// Returns whether the configuration is still of this generation.
    pub(super) fn is_under(&self, generation: u64) -> bool {
        self.configuration.lock().generation == generation
    }

    /// Returns whether the log has not told yet, under this configuration, that the records may
    /// differ from the master's. From now on it has.
    pub(super) fn tells_inexact(&self, generation: u64) -> bool {
        self.told_inexact.swap(generation + 1, Ordering::Relaxed) <= generation
    }

    /// Notes the connection that a change of the configuration interrupts.
    pub(super) fn connected(&self, connection: Interrupter) {
        *self.connection.lock() = Some(connection);
    }

    pub(super) fn interrupt(&self) {
        if let Some(connection) = self.connection.lock().as_ref() {
            connection.interrupt();
        }
    }

    /// Runs the follower's thread.
    pub(super) fn run(&self, served: &Served) {
        let mut pause = PAUSE_MIN;
        let mut opened = None;
        loop {
            let mut configuration = self.configuration.lock();
            while configuration.master.is_none() && !configuration.stopping {
                self.changed.wait(&mut configuration);
            }
            if configuration.stopping {
                drop(configuration);
                if let Some(position) = &opened {
                    close(position, served);
                }
                return;
            }
            let (Some(master), generation) =
                (configuration.master.clone(), configuration.generation)
            else {
                continue;
            };
            let (set_us, check) = (configuration.set_us.take(), configuration.check);
            configuration.is_busy = true;
            drop(configuration);
            let end = match self.opened(&mut opened, set_us, served) {
                Ok(position) => {
                    let was_empty = served.database.is_empty();
                    let session =
                        ReplicaSession { follower: self, served, generation, check, was_empty };
                    let from_us = position.timestamp_us();
                    let end = session.follow(&master, position);
                    if position.timestamp_us() != from_us {
                        pause = PAUSE_MIN;
                    }
                    end
                }
                Err(error) => {
                    let mut configuration = self.configuration.lock();
                    configuration.set_us = configuration.set_us.or(set_us);
                    End::Lost(format!("cannot use {}: {error}", self.position.display()))
                }
            };
            *self.connection.lock() = None;
            *self.state.lock() = match end {
                End::Halted(_) => State::Stopped,
                End::Changed | End::Lost(_) | End::SeedBegins => State::Connecting,
            };
            let mut configuration = self.configuration.lock();
            configuration.is_busy = false;
            self.changed.notify_all();
            if configuration.generation != generation {
                pause = PAUSE_MIN;
                continue;
            }
            match end {
                End::Changed | End::SeedBegins => {}
                End::Lost(reason) => {
                    tracing::warn!(
                        "replicating from {master}: {reason}; next attempt in {pause:?}"
                    );
                    *self.last_error.lock() = Some(reason);
                    self.changed.wait_for(&mut configuration, pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                End::Halted(reason) => {
                    tracing::error!("replicating from {master} stopped: {reason}");
                    *self.last_error.lock() = Some(reason);
                    while configuration.generation == generation {
                        self.changed.wait(&mut configuration);
                    }
                }
            }
        }
    }

    fn opened<'p>(
        &self,
        opened: &'p mut Option<Position>,
        set_us: Option<u64>,
        served: &Served,
    ) -> std::io::Result<&'p mut Position> {
        let position = match opened {
            Some(position) => position,
            None => {
                let mut position = Position::open(&self.position)?;
                let is_own = own(&mut position, &served.database.path())?;
                let durability = served.database.durability();
                let may_begin_again = served.is_on_memory() || self.seeding != Seeding::Never;
                if may_begin_again && position.timestamp_us() > 0 && served.database.is_empty() {
                    // The position is that of records that ended with a process, or were removed
                    // or replaced with their files.
                    tracing::info!(
                        "the database is empty: replication begins again, not at time stamp {}",
                        position.timestamp_us()
                    );
                    position.begin_again()?;
                }
                if position.has_crashed() && durability != Durability::Always {
                    tracing::warn!(
                        "the system has stopped while this replica ran, and its database is not \
                         durable at once (durability): operations around the position {} may be \
                         missed or executed twice, so the records may differ from the master's",
                        position.timestamp_us()
                    );
                    position.note_inexact()?;
                }
                if !is_own || !position.is_noted() {
                    invalidate_roots(served)?;
                }
                opened.insert(position)
            }
        };
        if let Some(set_us) = set_us {
            invalidate_roots(served)?;
            position.set(set_us)?;
        }
        self.progress.executed_us.store(position.timestamp_us(), Ordering::Relaxed);
        Ok(position)
    }
}

/// Notes that a replica has stopped, after its database is durable.
fn close(position: &Position, served: &Served) {
    let closed = served.database.make_durable().map_err(std::io::Error::other);
    if let Err(error) = closed.and_then(|()| position.close()) {
        tracing::warn!("the position in {} is not durable: {error}", position.path().display());
    }
}

/// Makes a position that of the database at `path`, if that is on a disk. Returns whether it was
/// before. The position of a database which this one has replaced is given up.
fn own(position: &mut Position, path: &Path) -> std::io::Result<bool> {
    if !path.is_dir() {
        return Ok(true);
    }
    let owner = match position.timestamp_us() {
        0 => Owner::This,
        _ => position.owner(path)?,
    };
    match &owner {
        Owner::This => {}
        Owner::Replaced => {
            tracing::warn!(
                "the database was replaced, and the position {} is that of the one before: replication \
                 begins again",
                position.timestamp_us()
            );
            position.begin_again()?;
        }
        Owner::Other(other) => {
            return Err(std::io::Error::other(format!(
                "it is the position of {}: give this database another file (--position-file), or remove \
                 this one and those beside it",
                other.display()
            )));
        }
    }
    position.bind(path)?;
    Ok(owner == Owner::This)
}

/// Invalidates the noted roots: replication continues elsewhere in the master's log, which leaves a
/// gap.
fn invalidate_roots(served: &Served) -> std::io::Result<()> {
    let Some(log) = &served.update_log else { return Ok(()) };
    log.invalidate_roots().map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_may_write_when_all_is_executed_that_was_received() {
        let folder = tempfile::tempdir().expect("a folder");
        let master = Some(Master { host: "host".to_owned(), port: 1 });
        let position = folder.path().join("rts");
        let gate = Arc::new(Gate::new(false, None));
        let following = Following { master, position, ..Following::default() };
        let follower = Follower::new(&following, &gate);
        follower.configuration.lock().is_busy = true;
        std::thread::scope(|scope| {
            let reconfigured = scope.spawn(|| follower.follow(None, None, false));
            while follower.master().is_some() {
                std::thread::yield_now();
            }
            // The thread waits at once; one that is late is not finished either.
            std::thread::sleep(PAUSE_MIN);
            let is_waiting = gate.reason().is_some() && !reconfigured.is_finished();
            follower.configuration.lock().is_busy = false;
            follower.changed.notify_all();
            assert!(is_waiting);
        });
        assert_eq!(gate.reason(), None);
    }
}
