//! What all threads of a server share.

use crate::budget::Budget;
use crate::counters::{Count, Counters};
use crate::failure::LastFailure;
use crate::pool::Pool;
use crate::port::Port;
use crate::session::Cursor;
use crate::{Config, Error, Result};
use cabinet::name::Kind;
use cabinet::{Database, Durability};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// State of a server. Counters and the budget are written on the way of a request; locks in here
/// are not taken on the hot path, and never two of them at once.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// For threads that may wait. Neither handle waits for durability.
    pub(crate) database: Database,
    /// For event loops.
    pub(crate) nonblocking: Database,
    /// Writes are acknowledged only once they are durable.
    pub(crate) holds_replies: bool,
    /// Kind of the database, unless it is an engine from elsewhere.
    pub(crate) kind: Option<Kind>,
    pub(crate) ports: Arc<[Port]>,
    pub(crate) pool: Pool,
    pub(crate) budget: Arc<Budget>,
    /// The iterator of connections that have started none of their own.
    pub(crate) cursor: Mutex<Cursor>,
    pub(crate) last_failure: LastFailure,
    pub(crate) started: Instant,
    pub(crate) stopping: AtomicBool,
    counters: Mutex<Vec<Arc<Counters>>>,
}

impl Shared {
    pub(crate) fn new(config: Config, database: Database) -> Result<Arc<Self>> {
        let ports = (0..config.threads.max(1))
            .map(|_| Port::new().map_err(Error::system("make an eventfd")))
            .collect::<Result<Arc<[Port]>>>()?;
        let database = database.deferred();
        let holds_replies = database.durability() == Durability::Always;
        if holds_replies {
            // The engine's thread must not be the one that drops the database, so the listener
            // reaches no further than the ports.
            let ports = Arc::downgrade(&ports);
            database.on_durable(Arc::new(move |_| {
                for port in ports.upgrade().iter().flat_map(|ports| ports.iter()) {
                    if port.holding.load(Ordering::SeqCst) {
                        port.wake();
                    }
                }
            }));
        }
        Ok(Arc::new(Self {
            pool: Pool::new(config.pool_queue_max),
            budget: Budget::new(config.buffer_bytes_max),
            config,
            kind: Kind::of_path(&database.path()),
            nonblocking: database.nonblocking(),
            database,
            holds_replies,
            ports,
            cursor: Mutex::default(),
            last_failure: LastFailure::default(),
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            counters: Mutex::default(),
        }))
    }

    /// A set of counters for one thread.
    pub(crate) fn new_counters(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        self.counters.lock().push(Arc::clone(&counters));
        counters
    }

    /// Sum of a count over all threads.
    pub(crate) fn total(&self, what: Count) -> u64 {
        self.counters.lock().iter().map(|counters| counters.value(what)).sum()
    }

    /// Connections at present.
    pub(crate) fn connections(&self) -> usize {
        self.ports.iter().map(|port| port.connections.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Milliseconds since the server started.
    pub(crate) fn milliseconds_at(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX)
    }
}
