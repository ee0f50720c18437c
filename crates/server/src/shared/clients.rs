//! Clients: the open connections, as other threads see them and end them.
//!
//! Thread model: only the event loop that owns a connection writes what it does at present, with
//! plain stores into cache lines of this connection alone, once for each event of its socket. The
//! table of all connections has a lock, which is taken when one begins or ends, and for a list. No
//! other lock is taken under it.

use crate::access::users::User;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use wire::RequestKind;

/// Tells the event loop of a connection that it is to be closed: the number of the loop, the token
/// of the connection there, and its id.
type Tell = Box<dyn Fn(usize, u64, u64) + Send + Sync>;

/// The open connections of a server.
#[derive(Default)]
pub(crate) struct Clients {
    last_id: AtomicU64,
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
    tell: OnceLock<Tell>,
}

/// A connection.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Client {
    /// Number that no other connection of this server has had.
    pub(crate) id: u64,
    pub(crate) ends: Ends,
    pub(crate) descriptor: i32,
    pub(crate) since: Instant,
    names: Mutex<Names>,
    /// Place in memory of the user whose name is in `names`.
    user: AtomicUsize,
    is_killed: AtomicBool,
    is_replica: AtomicBool,
    is_waiting: AtomicBool,
    event_loop: AtomicUsize,
    token: AtomicU64,
    kind: AtomicU32,
    moved_at_s: AtomicU64,
    queued: AtomicI32,
    subscriptions: [AtomicU32; 3],
    bytes: [AtomicUsize; 4],
    version: AtomicU8,
}

/// Addresses of both ends of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Those of the client and of the server.
    Tcp(SocketAddr, SocketAddr),
    /// Path of the server's Unix socket.
    Unix(Box<str>),
}

impl Ends {
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// Returns the address of the client as text, or that of the server.
    pub(crate) fn text(&self, is_server: bool) -> String {
        match self {
            Self::Tcp(_, server) if is_server => server.to_string(),
            Self::Tcp(client, _) => client.to_string(),
            Self::Unix(path) => format!("{path}:0"),
        }
    }
}

/// Names that are told of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Name that the client has given itself.
    pub(crate) name: Box<[u8]>,
    /// Name of the client's library.
    pub(crate) library: Box<[u8]>,
    /// Version of the client's library.
    pub(crate) library_version: Box<[u8]>,
    /// Name of the user, on a server with users.
    pub(crate) user: Option<Box<str>>,
}

/// State of a connection at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Last request, and the number of its subcommand, from 1 on.
    pub(crate) last: (RequestKind, u8),
    /// Number of commands that wait for the end of a transaction, if one has begun.
    pub(crate) queued: Option<usize>,
    /// Number of subscriptions to channels, patterns and channels of shards.
    pub(crate) subscriptions: [usize; 3],
    /// Version of Redis's protocol.
    pub(crate) version: u8,
    /// Bytes of the transaction that is queued.
    pub(crate) queued_bytes: usize,
}

/// Buffers of a connection, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BufferBytes {
    /// Bytes of requests that are not executed.
    pub(crate) input: usize,
    /// Bytes of replies that are not sent.
    pub(crate) output: usize,
    /// Memory of all buffers and of the session.
    pub(crate) total: usize,
}

impl Clients {
    /// Sets how an event loop is told to close a connection.
    pub(crate) fn set_tell(&self, tell: impl Fn(usize, u64, u64) + Send + Sync + 'static) {
        let _ = self.tell.set(Box::new(tell));
    }

    /// Adds a connection to the list, until the result is dropped.
    pub(crate) fn add(self: &Arc<Self>, ends: Ends, descriptor: i32) -> Listed {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let client = Arc::new(Client {
            id,
            ends,
            descriptor,
            since: Instant::now(),
            names: Mutex::default(),
            user: AtomicUsize::new(0),
            is_killed: AtomicBool::new(false),
            is_replica: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            event_loop: AtomicUsize::new(usize::MAX),
            token: AtomicU64::new(0),
            kind: AtomicU32::new(0),
            moved_at_s: AtomicU64::new(0),
            queued: AtomicI32::new(-1),
            subscriptions: Default::default(),
            bytes: Default::default(),
            version: AtomicU8::new(0),
        });
        self.by_id.lock().insert(id, Arc::clone(&client));
        Listed { client, clients: Arc::clone(self) }
    }

    /// Returns all connections, by their ids, but for those that are to end.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.by_id.lock().values().filter(|client| !client.is_killed()).cloned().collect()
    }

    /// Returns the connection of an id, unless it is to end.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.by_id.lock().get(&id).filter(|client| !client.is_killed()).cloned()
    }

    /// Returns the number of connections.
    pub(crate) fn len(&self) -> usize {
        self.by_id.lock().len()
    }

    /// Ends a connection soon. Its loop closes it, or the loop that is about to adopt it, or the
    /// thread that serves it as a replica.
    pub(crate) fn kill(&self, client: &Client) {
        client.is_killed.store(true, Ordering::SeqCst);
        let event_loop = client.event_loop.load(Ordering::SeqCst);
        let token = client.token.load(Ordering::SeqCst);
        if let Some(tell) = self.tell.get() {
            tell(event_loop, token, client.id);
        }
    }
}

impl Client {
    /// Notes which loop owns the connection from now on, and under which token. Returns whether it
    /// may: a connection that is to end ends there.
    pub(crate) fn attach(&self, event_loop: usize, token: u64) -> bool {
        self.event_loop.store(event_loop, Ordering::SeqCst);
        self.token.store(token, Ordering::SeqCst);
        !self.is_killed()
    }

    /// Returns whether the connection is to end.
    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::SeqCst)
    }

    /// Notes that the connection is a replica's from now on.
    pub(crate) fn note_replica(&self) {
        self.is_replica.store(true, Ordering::Relaxed);
    }

    /// Notes whether the connection waits for replicas.
    pub(crate) fn note_waiting(&self, is_waiting: bool) {
        self.is_waiting.store(is_waiting, Ordering::Relaxed);
    }

    /// Returns whether the connection waits for replicas.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Returns whether the connection is a replica's.
    pub(crate) fn is_replica(&self) -> bool {
        self.is_replica.load(Ordering::Relaxed)
    }

    /// Notes what the connection does. Only the thread that executes its requests may call this.
    #[inline]
    pub(crate) fn note(&self, activity: Activity) {
        let Activity { last: (kind, part), queued, subscriptions, version, queued_bytes } =
            activity;
        if kind != RequestKind::NONE {
            let number = kind.number() as u32 | u32::from(part) << 16;
            self.kind.store(number, Ordering::Relaxed);
        }
        let queued = queued.map_or(-1, |count| i32::try_from(count).unwrap_or(i32::MAX));
        self.queued.store(queued, Ordering::Relaxed);
        for (cell, count) in self.subscriptions.iter().zip(subscriptions) {
            cell.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
        self.version.store(version, Ordering::Relaxed);
        self.bytes[3].store(queued_bytes, Ordering::Relaxed);
    }

    /// Notes the buffers of the connection, and when bytes were last sent or received, in seconds
    /// since the server started. Only the loop of the connection may call this.
    #[inline]
    pub(crate) fn note_buffers(&self, bytes: BufferBytes, moved_at_s: u64) {
        let BufferBytes { input, output, total } = bytes;
        for (cell, bytes) in self.bytes.iter().zip([input, output, total]) {
            cell.store(bytes, Ordering::Relaxed);
        }
        self.moved_at_s.store(moved_at_s, Ordering::Relaxed);
    }

    /// Returns what the connection did last.
    pub(crate) fn activity(&self) -> Activity {
        let number = self.kind.load(Ordering::Relaxed);
        let (kind, part) = ((number & 0xffff) as usize, (number >> 16) as u8);
        let kind = kind.checked_sub(1).and_then(|place| RequestKind::all().nth(place));
        Activity {
            last: (kind.unwrap_or_default(), part),
            queued: usize::try_from(self.queued.load(Ordering::Relaxed)).ok(),
            subscriptions: [0, 1, 2]
                .map(|topic: usize| self.subscriptions[topic].load(Ordering::Relaxed) as usize),
            version: self.version.load(Ordering::Relaxed),
            queued_bytes: self.bytes[3].load(Ordering::Relaxed),
        }
    }

    /// Returns the buffers of the connection as they were last.
    pub(crate) fn buffers(&self) -> BufferBytes {
        let [input, output, total] =
            [0, 1, 2].map(|at: usize| self.bytes[at].load(Ordering::Relaxed));
        BufferBytes { input, output, total }
    }

    /// Returns when bytes were last sent or received, in seconds since the server started.
    pub(crate) fn moved_at_s(&self) -> u64 {
        self.moved_at_s.load(Ordering::Relaxed)
    }

    /// Notes the user of the connection. Only the thread that executes its requests may call this.
    #[inline]
    pub(crate) fn note_user(&self, user: Option<&Arc<User>>) {
        let place = user.map_or(0, |user| Arc::as_ptr(user) as usize);
        if self.user.load(Ordering::Relaxed) != place {
            self.user.store(place, Ordering::Relaxed);
            self.rename(|names| names.user = user.map(|user| user.name().into()));
        }
    }

    /// Returns the names.
    pub(crate) fn names(&self) -> Names {
        self.names.lock().clone()
    }

    /// Changes the names.
    pub(crate) fn rename(&self, change: impl FnOnce(&mut Names)) {
        change(&mut self.names.lock());
    }
}

/// A connection in the list, until this is dropped.
pub(crate) struct Listed {
    client: Arc<Client>,
    clients: Arc<Clients>,
}

impl Listed {
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.clients.by_id.lock().remove(&self.client.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix() -> Ends {
        Ends::Unix("/run/socket".into())
    }

    #[test]
    fn a_connection_is_listed_until_it_ends() {
        let clients = Arc::new(Clients::default());
        let (one, other) = (clients.add(unix(), 5), clients.add(unix(), 6));
        let ids = |clients: &Clients| clients.all().iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(ids(&clients), [1, 2]);
        let activity = Activity {
            last: (wire::redis::Command::Client.into(), 3),
            queued: Some(2),
            subscriptions: [1, 0, 7],
            version: 3,
            queued_bytes: 9,
        };
        assert_eq!(other.client().activity(), Activity::default());
        other.client().note(activity);
        assert_eq!(other.client().activity(), activity);
        let bytes = BufferBytes { input: 1, output: 2, total: 3 };
        other.client().note_buffers(bytes, 4);
        assert_eq!((other.client().buffers(), other.client().moved_at_s()), (bytes, 4));
        drop(one);
        assert_eq!((ids(&clients), clients.len()), (vec![2], 1));
        assert!(clients.get(1).is_none() && clients.get(2).is_some());
    }

    #[test]
    fn a_connection_that_is_to_end_does_so_where_it_is_or_is_about_to_be() {
        let clients = Arc::new(Clients::default());
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        clients.set_tell(move |event_loop, token, id| telling.lock().push((event_loop, token, id)));
        let listed = clients.add(unix(), 5);
        assert!(listed.client().attach(1, 77));
        clients.kill(listed.client());
        assert_eq!(*told.lock(), [(1, 77, 1)]);
        // It is in no list from then on, also while its loop is busy.
        assert!(clients.all().is_empty() && clients.get(1).is_none());
        assert!(!listed.client().attach(0, 78));
    }
}
