//! Login pool: threads that verify passwords.
//!
//! The hash of a password takes tens of milliseconds, so the event loops leave it to these threads,
//! and the worker pool does not wait for it either. The length of the queue is bounded. The
//! attempts of one network have at most as many places as are free, so other networks have some.

use crate::access::logins::{Attempt, Login, Verdict};
use crate::net::hub::Hub;
use crate::net::mailbox::Message;
use crate::net::slab::Token;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;

/// Number of threads. As many passwords are verified at a time.
pub(crate) const LOGIN_THREADS: usize = 2;

/// Most attempts that wait for a thread. Further ones are refused.
const LOGIN_QUEUE_MAX: usize = 1024;

/// An attempt, and the connection that waits for its verdict.
struct LoginJob {
    event_loop: usize,
    token: Token,
    attempt: Box<Attempt>,
}

/// Queue of the threads.
#[derive(Default)]
pub(crate) struct LoginPool {
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<LoginJob>,
    is_stopping: bool,
}

impl Queue {
    fn has_place(&self, attempt: &Attempt) -> bool {
        let has_network = |job: &&LoginJob| job.attempt.has_network_of(attempt);
        self.jobs.iter().filter(has_network).count() < LOGIN_QUEUE_MAX - self.jobs.len()
    }
}

impl LoginPool {
    /// Adds an attempt to the queue. Its event loop gets a verdict in any case.
    pub(crate) fn submit(&self, hub: &Hub, event_loop: usize, token: Token, attempt: Box<Attempt>) {
        let job = LoginJob { event_loop, token, attempt };
        let mut queue = self.queue.lock();
        if !queue.has_place(&job.attempt) {
            drop(queue);
            return job.conclude(hub, Login::TooSoon { wait_s: 1 });
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.filled.notify_one();
    }

    /// Ends the threads. Attempts that have not begun are dropped.
    pub(crate) fn stop(&self) {
        let mut queue = self.queue.lock();
        queue.is_stopping = true;
        queue.jobs.clear();
        drop(queue);
        self.filled.notify_all();
    }

    fn take(&self) -> Option<LoginJob> {
        let mut queue = self.queue.lock();
        while !queue.is_stopping {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            self.filled.wait(&mut queue);
        }
        None
    }
}

impl LoginJob {
    fn conclude(self, hub: &Hub, login: Login) {
        let verdict = Verdict { attempt: *self.attempt, login };
        hub.mailboxes[self.event_loop].post(Message::LoggedIn(self.token, Box::new(verdict)));
    }
}

/// Verifies passwords until the pool is stopped.
pub(crate) fn work(hub: &Hub) {
    let shared = &hub.shared;
    while let Some(job) = hub.logins.take() {
        let users = shared.users.as_ref().map(|users| users.load()).unwrap_or_default();
        let login = shared.logins.check(&users, &job.attempt);
        job.conclude(hub, login);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::logins::{Logins, Peer};
    use crate::access::users::Users;

    fn attempt(address: &str) -> Attempt {
        let address = address.parse().ok();
        let (users, peer) = (Users::default(), Peer::new(address));
        let checked = Logins::new().check_at_once(&users, &peer, "HTTP", (b"ann", b"x"), None);
        checked.expect_err("an attempt")
    }

    /// Adds attempts of an address until it has no place. Returns their number.
    fn fill(queue: &mut Queue, address: &str) -> usize {
        let mut count = 0;
        loop {
            let attempt = Box::new(attempt(address));
            if !queue.has_place(&attempt) {
                return count;
            }
            queue.jobs.push_back(LoginJob { event_loop: 0, token: Token::default(), attempt });
            count += 1;
        }
    }

    #[test]
    fn a_network_leaves_places_for_others() {
        let mut queue = Queue::default();
        assert_eq!(fill(&mut queue, "[2001:db8:1:2::3]:1"), LOGIN_QUEUE_MAX / 2);
        assert_eq!(fill(&mut queue, "[2001:db8:1:3::3]:1"), 0);
        assert_eq!(fill(&mut queue, "[2001:db8:2::]:1"), LOGIN_QUEUE_MAX / 4);
        assert_eq!(fill(&mut queue, "192.0.2.1:1"), LOGIN_QUEUE_MAX / 8);
        assert_eq!(fill(&mut queue, "a Unix socket"), LOGIN_QUEUE_MAX / 16);
        for number in 0..LOGIN_QUEUE_MAX {
            fill(&mut queue, &format!("198.51.{}.{}:1", number / 256, number % 256));
        }
        assert_eq!(queue.jobs.len(), LOGIN_QUEUE_MAX);
    }
}
