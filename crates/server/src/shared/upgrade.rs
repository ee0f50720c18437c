//! Connection upgrade: hands a connection over to another front end, until a request comes that is
//! not that one's.

use crate::access::logins::Peer;
use crate::ops::budget::{Budget, Charge};
use rustix::fd::OwnedFd;
use std::ops::Deref;
use std::sync::Arc;
use tls::Session as TlsSession;

/// A connection that is handed over.
pub struct UpgradedConnection {
    /// Its socket, in non-blocking mode.
    pub socket: OwnedFd,
    /// Its TLS session, if its bytes travel in one.
    pub session: Option<Box<TlsSession>>,
    /// Its peer, as far as users are concerned.
    pub peer: Peer,
    /// Replies to be sent first, once [`crate::Records::commit`] has returned.
    pub unsent: BudgetedBytes,
    /// Bytes received of the request that it is handed over with, and of later requests.
    pub received: BudgetedBytes,
    /// Takes it back.
    pub resume: Resume,
}

/// A connection that is taken back.
#[derive(Debug)]
pub struct ResumedConnection {
    /// Its socket, in non-blocking mode.
    pub socket: OwnedFd,
    /// Its TLS session, which has nothing to send.
    pub session: Option<Box<TlsSession>>,
    /// Its peer.
    pub peer: Peer,
    /// Bytes received of its next request, which [does not belong](crate::belongs_to_webdav) to the
    /// front end, and of later ones.
    pub received: Vec<u8>,
}

/// Takes a connection back that was handed over.
pub struct Resume(Box<dyn FnOnce(ResumedConnection) + Send>);

impl Resume {
    pub(crate) fn new(resume: impl FnOnce(ResumedConnection) + Send + 'static) -> Self {
        Self(Box::new(resume))
    }

    /// Serves the next requests of a connection as those of one that was not handed over.
    pub fn resume(self, connection: ResumedConnection) {
        (self.0)(connection);
    }
}

/// Bytes that are charged to the budget of all buffers until they are dropped.
#[derive(Debug)]
pub struct BudgetedBytes {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl BudgetedBytes {
    /// Charges `budget` for `bytes`. Returns `None` if it does not allow them.
    pub(crate) fn new(bytes: Vec<u8>, budget: &Arc<Budget>) -> Option<Self> {
        let mut charge = Charge::none(budget);
        charge.set(bytes.capacity()).then_some(Self { bytes, _charge: charge })
    }
}

impl Deref for BudgetedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Front end that serves the connections of WebDAV clients.
pub trait ConnectionUpgrade: Send + Sync {
    /// Takes over a connection and serves it in the background.
    fn serve(&self, connection: UpgradedConnection);

    /// Returns whether a client holds a WebDAV lock on the record under `key`.
    fn is_locked(&self, key: &[u8]) -> bool;

    /// Returns the media type of a file that was stored without one, if its name tells it.
    fn media_type(&self, key: &[u8]) -> Option<&'static str>;

    /// Closes all connections, and returns once they are closed.
    fn stop(&self);
}
