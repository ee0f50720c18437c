//! Connection upgrade: hands a connection over to another front end, for good.

use crate::access::logins::Peer;
use crate::ops::budget::{Budget, Charge};
use rustix::fd::OwnedFd;
use std::ops::Deref;
use std::sync::Arc;
use tls::Session as TlsSession;

/// A connection that is handed over.
#[derive(Debug)]
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

    /// Closes all connections, and returns once they are closed.
    fn stop(&self);
}
