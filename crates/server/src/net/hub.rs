//! Hub: the mailboxes of the event loops and the pools, which reach each other through it.

use crate::net::login_pool::LoginPool;
use crate::net::mailbox::Mailbox;
use crate::net::script_pool::ScriptPool;
use crate::net::worker_pool::WorkerPool;
use crate::shared::Shared;
use crate::shared::loop_load::LoopLoad;
use crate::{Config, Error, Result};
use cabinet::Database;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// Mailboxes of the event loops and the pools of a server.
pub(crate) struct Hub {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) scripts: Arc<ScriptPool>,
    pub(crate) logins: LoginPool,
    /// Threads that have taken over an event loop.
    pub(crate) successors: Mutex<Vec<JoinHandle<Result<()>>>>,
}

impl Hub {
    pub(crate) fn new(config: Config, database: Database) -> Result<Arc<Self>> {
        let loads: Arc<[Arc<LoopLoad>]> =
            (0..config.threads.max(1)).map(|_| Arc::default()).collect();
        let mailboxes = loads
            .iter()
            .map(|load| Mailbox::new(Arc::clone(load)).map_err(Error::system("make an eventfd")))
            .collect::<Result<Arc<[Mailbox]>>>()?;
        let pool = Arc::new(WorkerPool::new(config.pool_queue_max));
        let shared = Shared::new(config, database, loads, wake_pending(&mailboxes))?;
        let _ = shared.scheduler.set(Arc::clone(&pool) as _);
        let (scripts, logins) = (Arc::new(ScriptPool::new(mailboxes.len())), LoginPool::default());
        let successors = Mutex::default();
        Ok(Arc::new(Self { shared, mailboxes, pool, scripts, logins, successors }))
    }

    /// Wakes the event loops with parked connections: a queue has a place.
    pub(crate) fn wake_parked(&self) {
        for mailbox in self.mailboxes.iter() {
            // Mostly there are none, and a cache line that is only read is shared at no cost.
            if mailbox.has_parked.load(Ordering::SeqCst)
                && mailbox.has_parked.swap(false, Ordering::SeqCst)
            {
                mailbox.wake();
            }
        }
    }
}

/// Returns a function that wakes the event loops whose replies wait. It owns no more than the
/// mailboxes: the thread of an engine that calls it must not drop the database.
fn wake_pending(mailboxes: &Arc<[Mailbox]>) -> impl Fn() + Clone + Send + Sync + 'static {
    let mailboxes = Arc::downgrade(mailboxes);
    move || {
        for mailbox in mailboxes.upgrade().iter().flat_map(|mailboxes| mailboxes.iter()) {
            if mailbox.has_pending_replies.load(Ordering::SeqCst) {
                mailbox.wake();
            }
        }
    }
}
