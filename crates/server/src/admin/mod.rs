//! Administration: snapshots, the stats and metrics of the server, what needs attention, and the
//! list of its sockets.

pub(crate) mod attention;
pub(crate) mod metrics;
pub(crate) mod server_stats;
pub(crate) mod snapshot;
pub(crate) mod tcp_sockets;
