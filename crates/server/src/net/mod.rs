//! Sockets, event loops and the pool of threads that may wait.

pub(crate) mod acceptor;
pub(crate) mod balance;
pub(crate) mod connection;
pub(crate) mod descriptors;
pub(crate) mod event_loop;
pub(crate) mod held;
pub(crate) mod listener;
pub(crate) mod look;
pub(crate) mod pace;
pub(crate) mod pool;
pub(crate) mod port;
pub(crate) mod slab;
pub(crate) mod takeover;
