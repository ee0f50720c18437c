//! Administration: users, the command mask, snapshots, verification and the stats of the server.

pub(crate) mod client_paths;
pub(crate) mod logins;
pub(crate) mod scrub;
pub(crate) mod server_stats;
pub(crate) mod snapshot;
pub(crate) mod tcp_sockets;
pub(crate) mod users;
