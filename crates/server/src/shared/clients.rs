//! Clients: the open connections, which other threads describe and end through their event loops.
//!
//! Thread model: a connection belongs to its loop, and nothing of it is shared. A thread that may
//! wait sends a visit to all loops. Each calls it with a description of each of its connections,
//! and closes those that the visit asks to close. So an idle connection costs nothing for it, and a
//! request takes no store to show what it does. A connection that moves to another loop meanwhile
//! may be left out, or be visited twice.

use crate::access::users::User;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use wire::RequestKind;

/// Longest wait for the event loops, which may be calling functions of an extension.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Interval at which the wait looks whether the server stops: a loop that has ended does not visit.
const TICK: Duration = Duration::from_millis(100);

/// Sends a visit to all event loops. Returns their number.
type Send = Box<dyn Fn(&Arc<Visit>) -> usize + std::marker::Send + Sync>;

/// The open connections of a server.
#[derive(Default)]
pub(crate) struct Clients {
    last_id: AtomicU64,
    /// By number, the connections that wait for replicas, and how another client ends their wait.
    waiting: Mutex<BTreeMap<u64, Option<Unblock>>>,
    send: OnceLock<Send>,
}

/// End of a wait by another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unblock {
    /// As if the time were over.
    Timeout,
    Error,
}

/// Description of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) ends: Ends,
    pub(crate) descriptor: i32,
    /// Time since it began, in seconds.
    pub(crate) age_s: u64,
    /// Time since bytes were last sent or received, in seconds.
    pub(crate) idle_s: u64,
    /// Bytes of requests that are not executed.
    pub(crate) input_bytes: usize,
    /// Bytes of replies that are not sent.
    pub(crate) output_bytes: usize,
    /// Memory that it takes, in bytes.
    pub(crate) total_bytes: usize,
    pub(crate) state: ClientState,
}

/// Part of a description that the session knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientState {
    /// Number that no other connection of this server has had.
    pub(crate) id: u64,
    pub(crate) names: Option<Arc<Names>>,
    /// User, on a server with users.
    pub(crate) user: Option<Arc<User>>,
    /// Last request, and the number of its subcommand, from 1 on.
    pub(crate) last: (RequestKind, u8),
    /// Number of commands that wait for the end of a transaction, if one has begun.
    pub(crate) queued: Option<usize>,
    /// Bytes of these commands, and of watched keys.
    pub(crate) queued_bytes: usize,
    /// Memory that the client makes the session take, in bytes.
    pub(crate) session_bytes: usize,
    /// Number of subscriptions to channels, patterns and channels of shards.
    pub(crate) subscriptions: [usize; 3],
    /// Version of Redis's protocol.
    pub(crate) version: u8,
    /// The present request waits for replicas.
    pub(crate) is_waiting: bool,
}

/// Addresses of both ends of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Those of the client and of the server.
    Tcp(SocketAddr, SocketAddr),
    /// Path of the server's Unix socket.
    Unix(String),
}

impl Ends {
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// Returns the address of the client as text.
    pub(crate) fn client(&self) -> String {
        match self {
            Self::Tcp(client, _) => client.to_string(),
            Self::Unix(path) => format!("{path}:0"),
        }
    }

    /// Returns the address of the server as text.
    pub(crate) fn server(&self) -> String {
        match self {
            Self::Tcp(_, server) => server.to_string(),
            Self::Unix(path) => format!("{path}:0"),
        }
    }
}

/// Names that a client has told of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Name of the connection.
    pub(crate) name: Box<[u8]>,
    /// Name of the client's library.
    pub(crate) lib_name: Box<[u8]>,
    /// Version of the client's library.
    pub(crate) lib_version: Box<[u8]>,
}

/// Visit of all connections.
pub(crate) struct Visit {
    /// Returns whether the connection is to be closed.
    visit: Box<dyn Fn(&Client) -> bool + std::marker::Send + Sync>,
    /// Number of event loops that have made it.
    made: Mutex<usize>,
    ended: Condvar,
}

impl Visit {
    /// Visits a connection. Returns whether it is to be closed.
    pub(crate) fn visit(&self, client: &Client) -> bool {
        (self.visit)(client)
    }

    /// Notes that an event loop has visited its connections.
    pub(crate) fn end_loop(&self) {
        *self.made.lock() += 1;
        self.ended.notify_one();
    }
}

impl Clients {
    /// Sets how event loops are reached.
    pub(crate) fn set_send(
        &self,
        send: impl Fn(&Arc<Visit>) -> usize + std::marker::Send + Sync + 'static,
    ) {
        let _ = self.send.set(Box::new(send));
    }

    /// Returns the number of a new connection.
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Calls `visit` with each connection, on the threads of the event loops, and closes those for
    /// which it returns true. Blocks until all loops have done so, or the server stops. Returns
    /// whether they have.
    pub(crate) fn visit(
        &self,
        is_stopping: impl Fn() -> bool,
        visit: impl Fn(&Client) -> bool + std::marker::Send + Sync + 'static,
    ) -> bool {
        let (made, ended) = (Mutex::new(0), Condvar::new());
        let visit = Arc::new(Visit { visit: Box::new(visit), made, ended });
        let loops = self.send.get().map_or(0, |send| send(&visit));
        let (mut made, begun) = (visit.made.lock(), Instant::now());
        while *made < loops && begun.elapsed() < WAIT_MAX && !is_stopping() {
            visit.ended.wait_for(&mut made, TICK);
        }
        *made >= loops
    }

    /// Returns the number of connections that wait for replicas.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Counts the connection of a number as one that waits for replicas, until the result is
    /// dropped.
    pub(crate) fn begin_wait(self: &Arc<Self>, id: u64) -> Waiting {
        self.waiting.lock().insert(id, None);
        Waiting { clients: Arc::clone(self), id }
    }

    /// Ends the wait of a connection. Returns whether it waits, and was not told so before.
    pub(crate) fn unblock(&self, id: u64, unblock: Unblock) -> bool {
        match self.waiting.lock().get_mut(&id) {
            Some(slot @ None) => {
                *slot = Some(unblock);
                true
            }
            _ => false,
        }
    }
}

/// A connection that waits for replicas, until this is dropped.
pub(crate) struct Waiting {
    clients: Arc<Clients>,
    id: u64,
}

impl Waiting {
    /// Returns how another client has ended the wait, if one has.
    pub(crate) fn unblocked(&self) -> Option<Unblock> {
        self.clients.waiting.lock().get(&self.id).copied().flatten()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.clients.waiting.lock().remove(&self.id);
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Waiting")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_visit_ends_when_all_loops_have_made_it() {
        let clients = Arc::new(Clients::default());
        assert!(clients.visit(|| false, |_| false), "there are no loops");
        clients.set_send(|visit| {
            for _ in 0..2 {
                let visit = Arc::clone(visit);
                std::thread::spawn(move || {
                    let client = Client {
                        ends: Ends::Unix("/run/socket".into()),
                        descriptor: 5,
                        age_s: 1,
                        idle_s: 0,
                        input_bytes: 0,
                        output_bytes: 0,
                        total_bytes: 0,
                        state: ClientState::default(),
                    };
                    assert!(visit.visit(&client));
                    visit.end_loop();
                });
            }
            2
        });
        let visited = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&visited);
        assert!(clients.visit(|| false, move |_| counted.fetch_add(1, Ordering::SeqCst) < 2));
        assert_eq!(visited.load(Ordering::SeqCst), 2);
        // Loops that have ended are not waited for.
        let clients = Clients::default();
        clients.set_send(|_| 1);
        assert!(!clients.visit(|| true, |_| false));
    }

    #[test]
    fn connections_that_wait_are_counted() {
        let clients = Arc::new(Clients::default());
        let (one, other) = (clients.begin_wait(1), clients.begin_wait(2));
        assert_eq!((clients.waiting(), clients.next_id(), clients.next_id()), (2, 1, 2));
        assert!(!clients.unblock(3, Unblock::Error) && clients.unblock(2, Unblock::Error));
        assert!(!clients.unblock(2, Unblock::Timeout));
        assert_eq!((one.unblocked(), other.unblocked()), (None, Some(Unblock::Error)));
        drop((one, other));
        assert!(clients.waiting() == 0 && !clients.unblock(1, Unblock::Timeout));
    }
}
