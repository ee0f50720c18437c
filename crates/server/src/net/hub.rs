//! Hub: the mailboxes of the event loops and the pools, which reach each other through it.

use crate::net::login_pool::LoginPool;
use crate::net::mailbox::{Mailbox, Message};
use crate::net::script_pool::ScriptPool;
use crate::net::worker_pool::WorkerPool;
use crate::protocol::announce;
use crate::shared::Shared;
use crate::shared::clients::Visit;
use crate::shared::loop_load::LoopLoad;
use crate::{Config, Error, Evaluator, Result};
use cabinet::Database;
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

/// Mailboxes of the event loops and the pools of a server.
pub(crate) struct Hub {
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) scripts: Arc<ScriptPool>,
    pub(crate) logins: LoginPool,
    /// Interpreter of the scripts that clients send. It owns what `shared` must not own.
    pub(crate) evaluator: OnceLock<Arc<dyn Evaluator>>,
    successors: Mutex<Successors>,
}

/// Threads that have taken over an event loop.
#[derive(Default)]
struct Successors {
    running: Vec<JoinHandle<Result<()>>>,
    /// Results of those that have failed or panicked.
    failed: Vec<thread::Result<Result<()>>>,
}

impl Hub {
    pub(crate) fn new(config: Config, database: Database) -> Result<Arc<Self>> {
        let loads: Arc<[Arc<LoopLoad>]> =
            (0..config.threads.max(1)).map(|_| Arc::default()).collect();
        let mailboxes = loads
            .iter()
            .map(|load| Mailbox::new(Arc::clone(load)).map_err(Error::system("make an eventfd")))
            .collect::<Result<Arc<[Mailbox]>>>()?;
        let pool = Arc::new(WorkerPool::new(config.pool_queue_max, config.pool_threads));
        let shared = Shared::new(config, database, loads, wake_pending(&mailboxes))?;
        let _ = shared.scheduler.set(Arc::clone(&pool) as _);
        let channels = Arc::clone(&shared.channels);
        let database = &shared.served.database;
        database.send_events_by(move |channel, message| announce(&channels, channel, message));
        database.choose_events(shared.config.keyspace_events);
        shared.clients.set_send(send_visit(&mailboxes));
        let (scripts, logins) = (Arc::new(ScriptPool::new(mailboxes.len())), LoginPool::default());
        let (evaluator, successors) = (OnceLock::new(), Mutex::default());
        Ok(Arc::new(Self { shared, mailboxes, pool, scripts, logins, evaluator, successors }))
    }

    /// Adds a thread that takes over an event loop, and joins those that have ended.
    pub(crate) fn add_successor(&self, thread: JoinHandle<Result<()>>) {
        let Successors { running, failed } = &mut *self.successors.lock();
        let ended = running.extract_if(.., |thread| thread.is_finished());
        failed.extend(ended.map(JoinHandle::join).filter(|result| !matches!(result, Ok(Ok(())))));
        running.push(thread);
    }

    /// Returns the result of a thread that has taken over an event loop, when it has ended. Returns
    /// `None` after the last one.
    pub(crate) fn join_successor(&self) -> Option<thread::Result<Result<()>>> {
        let mut successors = self.successors.lock();
        if let Some(result) = successors.failed.pop() {
            return Some(result);
        }
        let thread = successors.running.pop()?;
        drop(successors);
        Some(thread.join())
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

/// Returns a function that sends a visit to all event loops.
fn send_visit(mailboxes: &Arc<[Mailbox]>) -> impl Fn(&Arc<Visit>) -> usize + Send + Sync + 'static {
    let mailboxes = Arc::downgrade(mailboxes);
    move |visit| {
        let mailboxes = mailboxes.upgrade();
        let mailboxes = mailboxes.as_deref().unwrap_or_default();
        mailboxes.iter().for_each(|mailbox| mailbox.post(Message::Visit(Arc::clone(visit))));
        mailboxes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::time::Duration;

    /// Adds a thread, and waits until it has ended.
    fn add_ended(hub: &Hub, life: impl FnOnce() -> Result<()> + Send + 'static) {
        let thread = thread::spawn(life);
        while !thread.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        hub.add_successor(thread);
    }

    #[test]
    fn a_thread_that_has_failed_is_reported_although_others_came_after_it() {
        let database = Database::open("*").expect("a database");
        let hub = Hub::new(Config::default(), database).expect("a server's state");
        add_ended(&hub, || Err(Error::system("serve")(io::Error::other("a failure"))));
        add_ended(&hub, || panic!("a thread panics"));
        for _ in 0..3 {
            add_ended(&hub, || Ok(()));
        }
        assert_eq!(hub.successors.lock().running.len(), 1);
        let results: Vec<_> = std::iter::from_fn(|| hub.join_successor()).collect();
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
        assert_eq!(results.iter().filter(|result| matches!(result, Ok(Err(_)))).count(), 1);
        assert_eq!(results.len(), 3);
    }
}
