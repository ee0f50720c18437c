//! Connections that another front end takes over, for good.

use crate::budget::{Budget, Charge};
use rustix::fd::OwnedFd;
use std::ops::Deref;
use std::sync::Arc;

/// A connection as it is handed over.
#[derive(Debug)]
pub struct UpgradedConnection {
    /// Its socket, which does not block.
    pub socket: OwnedFd,
    /// Replies that are to be sent first, once [`crate::Records::commit`] has returned.
    pub unsent: BudgetedBytes,
    /// What has come of the request that it is handed over with, and what came behind.
    pub received: BudgetedBytes,
}

/// Bytes that count against the memory of all buffers until they are dropped.
#[derive(Debug)]
pub struct BudgetedBytes {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl BudgetedBytes {
    /// `None` if there is no room for them.
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

/// What serves the connections of WebDAV clients.
pub trait ConnectionUpgrade: Send + Sync {
    /// Serves a connection from now on.
    fn serve(&self, connection: UpgradedConnection);

    /// Whether somebody has locked the record under this key.
    fn is_locked(&self, key: &[u8]) -> bool;

    /// Ends all connections, and returns when they have ended.
    fn stop(&self);
}
