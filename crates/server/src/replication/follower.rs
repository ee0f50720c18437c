//! A replica's side: following a master.
//!
//! One thread receives the master's update log and executes it. It connects again when the
//! connection is lost, each time after a longer pause, and goes on behind the last operation that it
//! has executed, see [`super::position`].

use super::position::{Doubt, Position};
use crate::execute::{Repeater, Trouble};
use crate::shared::Shared;
use crate::update_log::{Source, now_us};
use client::{Address, Interrupter, Settings, UpdateStream};
use parking_lot::{Condvar, Mutex};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::update_log::{Message, Operation};

/// Pause before the first new attempt to connect; each time twice as long, up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest silence of a master, which says every second that it is there.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A server that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Whom a server follows, and how.
#[derive(Clone, Debug)]
pub struct Following {
    /// The master at the start; `setmst` names another one.
    pub master: Option<Master>,
    /// File that remembers how far it has come.
    pub position: PathBuf,
    /// An operation that ends otherwise than on the master stops it.
    pub check: bool,
}

impl Default for Following {
    /// No master, and the original's file.
    fn default() -> Self {
        Self { master: None, position: "ttserver.rts".into(), check: false }
    }
}

/// What it has been told to do.
#[derive(Debug, Default)]
struct Orders {
    master: Option<Master>,
    check: bool,
    /// Where to go on, once.
    set_us: Option<u64>,
    /// Rises with each change.
    generation: u64,
    stopping: bool,
}

/// The follower, as other threads see it.
pub(crate) struct Follower {
    orders: Mutex<Orders>,
    changed: Condvar,
    connection: Mutex<Option<Interrupter>>,
    position: PathBuf,
    /// Time stamp of the last operation that was executed.
    executed_us: AtomicU64,
    /// When the master was last known to have nothing more.
    caught_up_us: AtomicU64,
}

/// Why it stops following.
enum End {
    /// There are new orders.
    Changed,
    /// The connection was lost.
    Lost(String),
    /// It must not go on before there are new orders.
    Halted(String),
}

impl Follower {
    pub(super) fn new(following: &Following) -> Self {
        let orders = Orders {
            master: following.master.clone(),
            check: following.check,
            ..Orders::default()
        };
        Self {
            orders: Mutex::new(orders),
            changed: Condvar::new(),
            connection: Mutex::new(None),
            position: following.position.clone(),
            executed_us: AtomicU64::new(0),
            caught_up_us: AtomicU64::new(0),
        }
    }

    /// The master, if there is one.
    pub(crate) fn master(&self) -> Option<Master> {
        self.orders.lock().master.clone()
    }

    /// Time stamp of the last operation that was executed, and seconds that it is behind.
    pub(crate) fn progress(&self) -> (u64, f64) {
        let executed_us = self.executed_us.load(Ordering::Relaxed);
        let known_us = executed_us.max(self.caught_up_us.load(Ordering::Relaxed));
        (executed_us, now_us().saturating_sub(known_us) as f64 / 1e6)
    }

    /// Follows another master, or none, from `set_us` on, or from where it was.
    pub(crate) fn follow(&self, master: Option<Master>, set_us: Option<u64>, check: bool) {
        self.order(|orders| {
            orders.master = master;
            orders.set_us = set_us.or(orders.set_us);
            orders.check = check;
        });
    }

    pub(super) fn stop(&self) {
        self.order(|orders| orders.stopping = true);
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        let mut orders = self.orders.lock();
        change(&mut orders);
        orders.generation += 1;
        // Under the lock, so that it is not the next connection that is ended.
        if let Some(connection) = self.connection.lock().as_ref() {
            connection.interrupt();
        }
        self.changed.notify_all();
    }

    /// The life of the follower's thread.
    pub(super) fn run(&self, shared: &Shared) {
        let mut pause = PAUSE_MIN;
        let mut opened = None;
        loop {
            let mut orders = self.orders.lock();
            while orders.master.is_none() && !orders.stopping {
                self.changed.wait(&mut orders);
            }
            if orders.stopping {
                return;
            }
            let (Some(master), generation) = (orders.master.clone(), orders.generation) else {
                continue;
            };
            let (set_us, check) = (orders.set_us, orders.check);
            drop(orders);
            let end = match self.opened(&mut opened, set_us) {
                Ok(position) => {
                    let mut path = Path { follower: self, shared, generation, check };
                    path.follow(&master, position, &mut pause)
                }
                Err(error) => End::Lost(format!("cannot use {}: {error}", self.position.display())),
            };
            *self.connection.lock() = None;
            let mut orders = self.orders.lock();
            if orders.generation != generation {
                pause = PAUSE_MIN;
                continue;
            }
            orders.set_us = None;
            match end {
                End::Changed => {}
                End::Lost(reason) => {
                    tracing::warn!("replicating from {}:{}: {reason}", master.host, master.port);
                    self.changed.wait_for(&mut orders, pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                End::Halted(reason) => {
                    tracing::error!(
                        "replicating from {}:{} stopped: {reason}",
                        master.host,
                        master.port
                    );
                    while orders.generation == generation {
                        self.changed.wait(&mut orders);
                    }
                }
            }
        }
    }

    fn opened<'p>(
        &self,
        opened: &'p mut Option<Position>,
        set_us: Option<u64>,
    ) -> std::io::Result<&'p mut Position> {
        let position = match opened {
            Some(position) => position,
            None => opened.insert(Position::open(&self.position)?),
        };
        if let Some(set_us) = set_us {
            position.advance(set_us)?;
        }
        self.executed_us.store(position.timestamp_us(), Ordering::Relaxed);
        Ok(position)
    }
}

/// Following one master, under one set of orders.
struct Path<'f> {
    follower: &'f Follower,
    shared: &'f Shared,
    generation: u64,
    check: bool,
}

impl Path<'_> {
    fn is_over(&self) -> bool {
        self.follower.orders.lock().generation != self.generation
    }

    fn follow(&mut self, master: &Master, position: &mut Position, pause: &mut Duration) -> End {
        let Master { host, port } = master;
        let settings = Settings {
            connect_timeout: CONNECT_TIMEOUT,
            read_timeout: Some(SILENCE_MAX),
            ..Settings::default()
        };
        let address = Address::from((&**host, *port));
        let from_us = position.timestamp_us().saturating_add(1);
        let own_id = self.shared.config.server_id;
        let lost = |error: client::Error| {
            let source = std::error::Error::source(&error);
            End::Lost(source.map_or(error.to_string(), |source| format!("{error}: {source}")))
        };
        let mut stream = match UpdateStream::open(&address, &settings, from_us, own_id) {
            Ok(stream) => stream,
            Err(error) => return lost(error),
        };
        match stream.interrupter() {
            Ok(interrupter) => *self.follower.connection.lock() = Some(interrupter),
            Err(error) => return lost(error),
        }
        if self.is_over() {
            return End::Changed;
        }
        let master_id = match stream.server_id().map(u16::try_from) {
            Ok(Ok(master_id)) => master_id,
            Ok(Err(_)) => return End::Halted("the master has no id of a server".into()),
            Err(error) => return lost(error),
        };
        tracing::info!("replicating from sid={master_id} ({host}:{port}) after {}", from_us - 1);
        let mut repeater = Repeater::new(self.shared);
        let mut is_first = true;
        loop {
            if self.is_over() {
                return End::Changed;
            }
            let message = match stream.next() {
                Ok(message) => message,
                Err(_) if self.is_over() => return End::Changed,
                Err(error) => return lost(error),
            };
            match message {
                Message::NoOperation => {
                    self.follower.caught_up_us.store(now_us(), Ordering::Relaxed);
                }
                Message::Update { timestamp_us, origin, body } => {
                    let update = Update { timestamp_us, origin, body, master_id, is_first };
                    if let Err(end) = self.execute(&mut repeater, position, &update) {
                        return end;
                    }
                    is_first = false;
                    *pause = PAUSE_MIN;
                }
            }
        }
    }

    fn execute(
        &self,
        repeater: &mut Repeater<'_>,
        position: &mut Position,
        update: &Update<'_>,
    ) -> Result<(), End> {
        let &Update { timestamp_us, origin, body, master_id, is_first } = update;
        let Ok(operation) = Operation::parse(body) else {
            return Err(End::Halted(format!("the update of {timestamp_us} is no operation")));
        };
        let source = Source {
            origin: u16::try_from(origin)
                .map_err(|_| End::Halted(format!("{origin} is no server id")))?,
            master: master_id,
        };
        let lost = |error: std::io::Error| {
            End::Lost(format!("cannot write {}: {error}", self.follower.position.display()))
        };
        let state = repeater.state(&operation.request);
        let is_done = is_first && is_already_executed(position.doubt(), timestamp_us, state);
        // What comes back by way of others was executed here first.
        let is_own = origin == self.shared.config.server_id;
        if !is_done && !is_own {
            if let Some(state) = state {
                let known = position.doubt() == Some(Doubt { timestamp_us, state });
                if !known {
                    position.doubt_next(Doubt { timestamp_us, state }).map_err(lost)?;
                }
            }
            let succeeded = repeater
                .repeat(source, &operation)
                .map_err(|trouble: Trouble| End::Lost(trouble.to_string()))?;
            if succeeded != operation.succeeded {
                let what =
                    format!("the update of {timestamp_us} ended otherwise than on the master");
                // The first one may have been executed before, and fail because of that.
                if self.check && !is_first {
                    return Err(End::Halted(what));
                }
                tracing::warn!("replication: {what}");
            }
            if self.shared.update_log.as_ref().is_some_and(|log| !log.flush()) {
                return Err(End::Lost("the update log cannot be written".into()));
            }
        }
        position.advance(timestamp_us).map_err(lost)?;
        self.follower.executed_us.store(timestamp_us, Ordering::Relaxed);
        Ok(())
    }
}

/// An update, and the circumstances.
struct Update<'u> {
    timestamp_us: u64,
    origin: u32,
    body: &'u [u8],
    master_id: u16,
    /// It is the first one of a connection: it may have been executed by an earlier life.
    is_first: bool,
}

/// Whether the operation that was in doubt when this process began has been executed: its records
/// are no longer what they were before it.
fn is_already_executed(doubt: Option<Doubt>, timestamp_us: u64, state: Option<u64>) -> bool {
    match (doubt, state) {
        (Some(doubt), Some(state)) => doubt.timestamp_us == timestamp_us && doubt.state != state,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_in_doubt_is_executed_again_only_if_its_records_are_as_before() {
        let doubt = Some(Doubt { timestamp_us: 7, state: 1 });
        assert!(!is_already_executed(doubt, 7, Some(1)));
        assert!(is_already_executed(doubt, 7, Some(2)));
        assert!(!is_already_executed(doubt, 8, Some(2)));
        assert!(!is_already_executed(doubt, 7, None));
        assert!(!is_already_executed(None, 7, Some(2)));
    }
}
