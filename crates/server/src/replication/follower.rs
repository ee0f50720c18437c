//! A replica's side: following a master.
//!
//! One thread receives the master's update log; [`super::apply`] executes it. It connects again when
//! the connection is lost, each time after a longer pause, and goes on behind what has been
//! executed, see [`super::position`].

use super::apply::Applier;
use super::batch::Batch;
use super::position::Position;
use super::promote::{self, Promoted};
use crate::execute::Repeater;
use crate::gate::Gate;
use crate::shared::Shared;
use crate::update_log::now_us;
use client::{Address, Interrupter, Settings, UpdateStream};
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;

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

impl fmt::Display for Master {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host.contains(':') {
            true => write!(formatter, "[{host}]:{port}"),
            false => write!(formatter, "{host}:{port}"),
        }
    }
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
    /// Clients may write although a master is followed.
    pub is_writable: bool,
}

impl Default for Following {
    /// No master, and the original's file and rules.
    fn default() -> Self {
        let position = "ttserver.rts".into();
        Self { master: None, position, check: false, is_writable: true }
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
    /// Something may still be executed that an earlier master has sent.
    is_busy: bool,
}

/// The follower, as other threads see it.
pub(crate) struct Follower {
    orders: Mutex<Orders>,
    changed: Condvar,
    connection: Mutex<Option<Interrupter>>,
    position: PathBuf,
    progress: Progress,
    /// Closed while a master is followed, unless clients may write all the same.
    gate: Arc<Gate>,
}

/// How far it has come, in microseconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Time stamp of the last operation before which all were executed.
    pub(super) executed_us: AtomicU64,
    /// When the master was last known to have nothing more.
    pub(super) caught_up_us: AtomicU64,
}

/// Why it stops following.
pub(super) enum End {
    /// There are new orders.
    Changed,
    /// The connection was lost.
    Lost(String),
    /// It must not go on before there are new orders.
    Halted(String),
}

impl Follower {
    pub(super) fn new(following: &Following, gate: &Arc<Gate>) -> Self {
        let master = following.master.clone();
        let master = master.filter(|master| !promote::was_promoted(&following.position, master));
        let orders = Orders { master, check: following.check, ..Orders::default() };
        set_gate(gate, orders.master.as_ref());
        Self {
            orders: Mutex::new(orders),
            changed: Condvar::new(),
            connection: Mutex::new(None),
            position: following.position.clone(),
            progress: Progress::default(),
            gate: Arc::clone(gate),
        }
    }

    /// The master, if there is one.
    pub(crate) fn master(&self) -> Option<Master> {
        self.orders.lock().master.clone()
    }

    /// Time stamp of the last operation that was executed, and seconds that it is behind.
    pub(crate) fn progress(&self) -> (u64, f64) {
        let executed_us = self.progress.executed_us.load(Ordering::Relaxed);
        let known_us = executed_us.max(self.progress.caught_up_us.load(Ordering::Relaxed));
        (executed_us, now_us().saturating_sub(known_us) as f64 / 1e6)
    }

    /// Follows another master, or none, from `set_us` on, or from where it was.
    pub(crate) fn follow(&self, master: Option<Master>, set_us: Option<u64>, check: bool) {
        self.order(|orders| {
            set_gate(&self.gate, master.as_ref());
            if master.is_some() {
                promote::forget(&self.position);
            }
            orders.master = master;
            orders.set_us = set_us.or(orders.set_us);
            orders.check = check;
        });
    }

    /// Follows nobody from now on, also after a restart; comes back when everything is executed that
    /// was received. `None` if there is no master.
    pub(super) fn promote(&self) -> Option<Promoted> {
        let mut followed = None;
        self.order(|orders| followed = orders.master.take());
        let master = followed?;
        promote::remember(&self.position, &master);
        let mut orders = self.orders.lock();
        while orders.is_busy && !orders.stopping {
            self.changed.wait(&mut orders);
        }
        if orders.master.is_none() {
            self.gate.open();
        }
        let position_us = self.progress.executed_us.load(Ordering::Relaxed);
        tracing::info!("promoted: no longer a replica of {master}, followed up to {position_us}");
        Some(Promoted { master, position_us })
    }

    pub(super) fn stop(&self) {
        self.order(|orders| orders.stopping = true);
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        let mut orders = self.orders.lock();
        change(&mut orders);
        orders.generation += 1;
        // Under the lock, so that it is not the next connection that is ended.
        self.interrupt();
        self.changed.notify_all();
    }

    fn interrupt(&self) {
        if let Some(connection) = self.connection.lock().as_ref() {
            connection.interrupt();
        }
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
            orders.is_busy = true;
            drop(orders);
            let end = match self.opened(&mut opened, set_us) {
                Ok(position) => {
                    let path = Path { follower: self, shared, generation, check };
                    let from_us = position.timestamp_us();
                    let end = path.follow(&master, position);
                    if position.timestamp_us() != from_us {
                        pause = PAUSE_MIN;
                    }
                    end
                }
                Err(error) => End::Lost(format!("cannot use {}: {error}", self.position.display())),
            };
            *self.connection.lock() = None;
            let mut orders = self.orders.lock();
            orders.is_busy = false;
            self.changed.notify_all();
            if orders.generation != generation {
                pause = PAUSE_MIN;
                continue;
            }
            orders.set_us = None;
            match end {
                End::Changed => {}
                End::Lost(reason) => {
                    tracing::warn!("replicating from {master}: {reason}");
                    self.changed.wait_for(&mut orders, pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                End::Halted(reason) => {
                    tracing::error!("replicating from {master} stopped: {reason}");
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
            position.set(set_us)?;
        }
        self.progress.executed_us.store(position.timestamp_us(), Ordering::Relaxed);
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

    fn follow(&self, master: &Master, position: &mut Position) -> End {
        let Master { host, port } = master;
        let settings = Settings {
            connect_timeout: CONNECT_TIMEOUT,
            read_timeout: Some(SILENCE_MAX),
            ..Settings::default()
        };
        let address = Address::from((&**host, *port));
        let from_us = position.timestamp_us().saturating_add(1);
        let own_id = self.shared.config.server_id;
        let mut stream = match UpdateStream::open(&address, &settings, from_us, own_id) {
            Ok(stream) => stream,
            Err(error) => return lost(&error),
        };
        match stream.interrupter() {
            Ok(interrupter) => *self.follower.connection.lock() = Some(interrupter),
            Err(error) => return lost(&error),
        }
        if self.is_over() {
            return End::Changed;
        }
        let master_id = match stream.server_id().map(u16::try_from) {
            Ok(Ok(master_id)) => master_id,
            Ok(Err(_)) => return End::Halted("the master has no id of a server".into()),
            Err(error) => return lost(&error),
        };
        tracing::info!("replicating from sid={master_id} ({master}) after {}", from_us - 1);
        let Self { follower, shared, check, .. } = *self;
        let interrupt = || follower.interrupt();
        let applier =
            Applier::new(shared, &follower.progress, position, master_id, check, &interrupt);
        let end = std::thread::scope(|scope| {
            let _guard = applier.guard();
            let applier = &applier;
            for number in 0..applier.workers() {
                let thread = Builder::new().name(format!("apply-{number}"));
                if let Err(error) = thread.spawn_scoped(scope, move || applier.work(number)) {
                    applier.close();
                    return End::Lost(format!("cannot start a thread: {error}"));
                }
            }
            let end = self.receive(&mut stream, applier);
            applier.close();
            end
        });
        applier.finish().unwrap_or(end)
    }

    /// Gives to the applier what has arrived, until it ends.
    fn receive(&self, stream: &mut UpdateStream, applier: &Applier<'_>) -> End {
        let mut repeater = Repeater::new(self.shared);
        let mut batch = Batch::default();
        while !self.is_over() && !applier.has_failed() {
            loop {
                let message = match stream.next() {
                    Ok(message) => message,
                    Err(_) if self.is_over() => return End::Changed,
                    Err(error) => return lost(&error),
                };
                let taken = applier.take(&mut batch, message, &mut repeater);
                if taken.is_err() || batch.is_full() || !stream.has_next() {
                    applier.submit(&mut batch, &mut repeater);
                    match taken {
                        Ok(()) => break,
                        Err(end) => return end,
                    }
                }
            }
        }
        End::Changed
    }
}

fn set_gate(gate: &Gate, master: Option<&Master>) {
    match master {
        Some(master) => gate.close(&master.to_string()),
        None => gate.open(),
    }
}

fn lost(error: &client::Error) -> End {
    let source = std::error::Error::source(error);
    End::Lost(source.map_or(error.to_string(), |source| format!("{error}: {source}")))
}
