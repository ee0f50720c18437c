//! Connections that another front end takes over, for good.

use rustix::fd::OwnedFd;

/// A connection as it is handed over.
#[derive(Debug)]
pub struct Handed {
    /// Its socket, which does not block.
    pub socket: OwnedFd,
    /// Replies that are to be sent first, once [`crate::Records::commit`] has returned.
    pub unsent: Vec<u8>,
    /// What has come of the request that it is handed over with, and what came behind.
    pub received: Vec<u8>,
}

/// What serves the connections of WebDAV clients.
pub trait Takeover: Send + Sync {
    /// Serves a connection from now on.
    fn serve(&self, connection: Handed);

    /// Whether somebody has locked the record under this key.
    fn is_locked(&self, key: &[u8]) -> bool;

    /// Ends all connections, and returns when they have ended.
    fn stop(&self);
}
