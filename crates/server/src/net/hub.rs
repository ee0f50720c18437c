//! Hub: the mailboxes of the event loops and the worker pool, which reach each other through it.

use crate::loop_load::LoopLoad;
use crate::net::mailbox::Mailbox;
use crate::net::worker_pool::WorkerPool;
use crate::shared::Shared;
use crate::{Config, Error, Result};
use cabinet::Database;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Mailboxes of the event loops and the worker pool of a server.
pub(crate) struct Hub {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    pub(crate) pool: Arc<WorkerPool>,
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
        Ok(Arc::new(Self { shared, mailboxes, pool }))
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
