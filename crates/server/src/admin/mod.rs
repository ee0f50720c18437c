//! Administration: users, the command mask, snapshots, verification and the stats of the server.

pub(crate) mod server_stats;
pub(crate) mod snapshot;
pub(crate) mod tcp_sockets;
