//! Network layer: sockets, event loops, and the worker pool for requests that may wait.

pub(crate) mod acceptor;
pub(crate) mod balance;
pub(crate) mod connection;
pub(crate) mod event_loop;
pub(crate) mod hub;
pub(crate) mod listener;
pub(crate) mod login_pool;
pub(crate) mod mailbox;
pub(crate) mod pace;
pub(crate) mod pending_reply;
mod pooled_reply;
pub(crate) mod script_pool;
pub(crate) mod slab;
pub(crate) mod transport;
pub(crate) mod worker_pool;

/// Stack of each thread: functions of scripts call the server, which calls them back.
pub(crate) const THREAD_STACK_BYTES: usize = 8 << 20;
