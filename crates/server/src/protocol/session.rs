//! Session: state of a client between its requests.

use super::script_call::ScriptCall;
use super::{HttpExchange, RedisSession};
use crate::access::logins::{Attempt, Peer, Verdict};
use crate::ops::channels::{Subscriptions, Topic};
use crate::ops::failure::{Failure, is_read_failure};
use crate::ops::iterator::Cursor;
use crate::ops::remote::{Answers, KeyCursor};
use crate::ops::rights::Rights;
use crate::shared::clients::{ClientState, Names};
use cabinet::Error;
use std::sync::{Arc, Weak};
use wire::{Protocol, RequestKind};

/// State of a connection in addition to its bytes.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Number that no other connection of this server has had.
    pub(crate) id: u64,
    /// Names that the client has told.
    pub(crate) names: Option<Arc<Names>>,
    /// Kind of the present request, until it is counted.
    pub(crate) kind: RequestKind,
    /// Kind of the last request, and the number of its subcommand, from 1 on.
    pub(crate) last: (RequestKind, u8),
    /// Kind of the last failure, for `misc error`.
    pub(crate) last_failure: Option<Failure>,
    /// Text of the last failure, if there is more to it than its kind.
    pub(crate) last_reason: Option<Box<str>>,
    /// Whether the database could not read a record for the present request, see [`Session::note`].
    pub(crate) has_read_failure: bool,
    /// Answers for the present request, on a server over a store outside of this process.
    pub(crate) answers: Option<Box<Answers>>,
    /// Has an owner while the client of a request on a thread that may wait is there, on such a
    /// server.
    pub(crate) client: Option<Weak<()>>,
    /// The iterator, once this client has started one.
    pub(crate) cursor: Option<Box<Cursor>>,
    /// The iterator over a store outside of this process.
    pub(crate) key_cursor: Option<Box<KeyCursor>>,
    /// State of HTTP requests and replies.
    pub(crate) http: HttpExchange,
    /// Whether the target of an HTTP request is a key also if WebDAV is served, which makes it a
    /// path otherwise.
    pub(crate) names_keys: bool,
    /// State of an incomplete request of the binary protocol.
    pub(crate) binary: wire::binary::Progress,
    /// State of Redis's protocol.
    pub(crate) redis: RedisSession,
    /// Channels that the client subscribes to.
    pub(crate) subscriptions: Option<Box<Subscriptions>>,
    /// Peer of the connection, on a server with users.
    pub(crate) peer: Option<Box<Peer>>,
    /// Rights of the user of the present request, unless he has all.
    pub(crate) rights: Option<Arc<Rights>>,
    /// Attempt to log in that has to be checked on a thread that may wait.
    pub(crate) attempt: Option<Box<Attempt>>,
    /// Verdict on the attempt of the present request.
    pub(crate) verdict: Option<Box<Verdict>>,
    /// Call that the present request has left to a script thread.
    pub(crate) call: Option<Box<ScriptCall>>,
    /// Script lock that the present request has to wait for.
    pub(crate) awaited_lock: Option<usize>,
    /// SASL has begun, and expects name and password with its next step.
    pub(crate) expects_credentials: bool,
}

impl Session {
    /// Notes a failure of an operation, if its reason is damage or a read error of the disk.
    #[cold]
    pub(crate) fn note(&mut self, error: &Error) {
        self.has_read_failure |= is_read_failure(error);
    }

    /// Returns the protocol of the request at the beginning of `input`, or `None` if that takes
    /// more bytes.
    #[inline]
    pub(crate) fn sniff(&self, input: &[u8]) -> Option<Protocol> {
        match self.redis.has_sent_array() {
            true => wire::sniff_after_array(input),
            false => wire::sniff(input),
        }
    }

    /// Returns what the list of clients shows of the session.
    pub(crate) fn state(&self) -> ClientState {
        let count = |topic| self.subscriptions.as_ref().map_or(0, |all| all.names(topic).len());
        ClientState {
            id: self.id,
            names: self.names.clone(),
            user: self.peer.as_ref().and_then(|peer| peer.user().cloned()),
            last: self.last,
            queued: self.redis.queued(),
            queued_bytes: self.redis.bytes(),
            session_bytes: self.bytes(),
            subscriptions: [Topic::Channel, Topic::Pattern, Topic::Shard].map(count),
            version: self.redis.version_number(),
            is_waiting: self.redis.is_waiting(),
        }
    }

    /// Returns the memory that a client can make the session take, in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.cursor.as_ref().map_or(0, |cursor| cursor.bytes())
            + self.key_cursor.as_ref().map_or(0, |cursor| cursor.bytes())
            + self.redis.bytes()
            + self.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.bytes())
    }
}
