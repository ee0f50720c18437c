//! Settings of a server, and every limit of it with its default.

use crate::admin::scrub::{SCRUB_BYTES_PER_SECOND, SCRUB_INTERVAL};
use crate::update_log;
use crate::{ClientPaths, CommandMask, Dialect, Following, SemiSyncSettings, Users};
use cabinet::UsableMemory;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A place to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// TCP of this machine alone: 127.0.0.1, and `::1` where the system has it.
    Loopback {
        /// Port; 0 lets the system choose one for both.
        port: u16,
    },
    /// TCP.
    Tcp {
        /// Name or address of the interface, v4 or v6; `None` is every one of both.
        host: Option<String>,
        /// Port; 0 lets the system choose, see [`crate::Server::local_addresses`].
        port: u16,
    },
    /// A Unix socket at this path.
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback { port } => write!(formatter, "localhost:{port}"),
            Self::Tcp { host: None, port } => write!(formatter, "*:{port}"),
            Self::Tcp { host: Some(host), port } if host.contains(':') => {
                write!(formatter, "[{host}]:{port}")
            }
            Self::Tcp { host: Some(host), port } => write!(formatter, "{host}:{port}"),
            Self::Unix(path) => write!(formatter, "{}", path.display()),
        }
    }
}

/// Settings of a server. Over a limit comes a refusal in the protocol's own words.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen; at least one endpoint.
    pub listen: Vec<Endpoint>,
    /// Most event loops, each a thread. Loops beyond the first work only under load.
    pub threads: usize,
    /// Most connections at a time.
    pub connections_max: usize,
    /// Longest request, in bytes.
    pub request_bytes_max: usize,
    /// Longest body of a PUT that goes to a file on its way, in bytes; shorter than 1 MiB it does
    /// not, nor does any where the database is in memory. In a tree or table no value may be longer
    /// than `reply_bytes_max` either: it is in memory with others around it when it is changed.
    pub upload_bytes_max: usize,
    /// Most bytes of all such files together.
    pub spool_bytes_max: usize,
    /// Longest reply to one request, in bytes.
    pub reply_bytes_max: usize,
    /// Replies not yet taken by a client, in bytes, above which no more of its requests are read.
    pub output_bytes_max: usize,
    /// Most bytes of half requests, and of replies that are made or not sent yet, of all
    /// connections together.
    pub buffer_bytes_max: usize,
    /// Longest time that a client takes for a request, from its first byte to its last, and for
    /// taking its replies; what moves at [`crate::BYTES_PER_SECOND_MIN`] may take longer.
    pub timeout: Option<Duration>,
    /// Longest wait for the next request.
    pub idle_timeout: Option<Duration>,
    /// Threads for requests that wait for the disk.
    pub pool_threads: usize,
    /// Most requests that wait for one of those threads.
    pub pool_queue_max: usize,
    /// Longest time that replies under way may take when the server stops.
    pub stop_wait: Duration,
    /// Commands refused.
    pub mask: CommandMask,
    /// Rules of the memcached protocol that are followed.
    pub dialect: Dialect,
    /// Whether flags and expiry that memcached's clients give are left out of account, as Tokyo
    /// Tyrant does.
    pub ignores_expiry: bool,
    /// Whether a client may stop the server with memcached's `shutdown`.
    pub shutdown_command: bool,
    /// Where clients may have copies of the database made, and update logs restored from.
    pub client_paths: ClientPaths,
    /// Whether a client may have the server run a command that makes a copy of the database, with
    /// `copy` and an `@` in front of it.
    pub copy_command: bool,
    /// Whether a client may have the server follow another one, or none, with `setmst`.
    pub set_master_command: bool,
    /// Users who may use the server; everybody may if there are none.
    pub users: Option<Arc<Users>>,
    /// Whether everybody may use Tokyo Tyrant's protocol, which has no passwords, all the same.
    pub opens_tokyo_tyrant: bool,
    /// Number of this server among those that replicate each other, up to 65535; 0 is none.
    pub server_id: u32,
    /// Where to log what changes, if anywhere; takes an id.
    pub update_log: Option<update_log::Settings>,
    /// Whom to follow; takes an id.
    pub following: Following,
    /// How often all checksums of the database are verified, if that is to be done by itself.
    pub scrub_interval: Option<Duration>,
    /// Most bytes per second that this reads.
    pub scrub_bytes_per_second: u64,
    /// Clients wait until so many replicas have their changes; takes an update log.
    pub semi_sync: Option<SemiSyncSettings>,
}

impl Config {
    /// The first port that it listens on, 0 for none or one of the system's choice.
    pub(crate) fn tcp_port(&self) -> u16 {
        let port = |endpoint: &Endpoint| match endpoint {
            Endpoint::Loopback { port } | Endpoint::Tcp { port, .. } => Some(*port),
            Endpoint::Unix(_) => None,
        };
        self.listen.iter().find_map(port).unwrap_or(0)
    }
}

/// Default of [`Config::request_bytes_max`]: the longest value of the binary protocol, and its key.
pub const REQUEST_BYTES_MAX: usize = wire::limits::BINARY_ARGUMENT_BYTES_MAX + (1 << 20);

/// Default of [`Config::reply_bytes_max`] where there is memory enough: the longest value and what
/// is around it.
pub const REPLY_BYTES_MAX: usize = cabinet::limits::VALUE_BYTES_MAX + (1 << 20);

/// Share of the [usable memory](UsableMemory) that it is where there is less, as a divisor, and the
/// least that it is, in bytes.
const REPLY_SHARE: u64 = 8;
const REPLY_BYTES_LEAST: u64 = 4 << 20;

/// The same of [`Config::buffer_bytes_max`]: one longest reply, and some work beside it.
pub const BUFFER_BYTES_MAX: usize = REPLY_BYTES_MAX + (64 << 20);
const BUFFER_SHARE: u64 = 4;
const BUFFER_BYTES_LEAST: u64 = 8 << 20;

/// Default of [`Config::spool_bytes_max`]: some of the longest values at a time.
pub const SPOOL_BYTES_MAX: usize = 8 * cabinet::limits::VALUE_BYTES_MAX;

impl Default for Config {
    fn default() -> Self {
        Self::for_memory(UsableMemory::of_process())
    }
}

impl Config {
    /// The defaults of a server that may use so much memory.
    fn for_memory(memory: UsableMemory) -> Self {
        let share = |share, least, most: usize| {
            usize::try_from(memory.share(share, least, most as u64)).unwrap_or(most)
        };
        Self {
            listen: vec![Endpoint::Loopback { port: 1978 }],
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            connections_max: 65_536,
            request_bytes_max: REQUEST_BYTES_MAX,
            upload_bytes_max: cabinet::limits::VALUE_BYTES_MAX,
            spool_bytes_max: SPOOL_BYTES_MAX,
            reply_bytes_max: share(REPLY_SHARE, REPLY_BYTES_LEAST, REPLY_BYTES_MAX),
            output_bytes_max: 8 << 20,
            buffer_bytes_max: share(BUFFER_SHARE, BUFFER_BYTES_LEAST, BUFFER_BYTES_MAX),
            timeout: None,
            idle_timeout: None,
            pool_threads: 16,
            pool_queue_max: 1024,
            stop_wait: Duration::from_secs(1),
            mask: CommandMask::NONE,
            dialect: Dialect::Memcached,
            ignores_expiry: false,
            shutdown_command: false,
            client_paths: ClientPaths::None,
            copy_command: false,
            set_master_command: false,
            users: None,
            opens_tokyo_tyrant: false,
            server_id: 0,
            update_log: None,
            following: Following::default(),
            scrub_interval: Some(SCRUB_INTERVAL),
            scrub_bytes_per_second: SCRUB_BYTES_PER_SECOND,
            semi_sync: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_the_memory_within_their_bounds() {
        let of = |bytes| {
            let config = Config::for_memory(UsableMemory { bytes, is_limited: true });
            (config.reply_bytes_max, config.buffer_bytes_max)
        };
        assert_eq!(of(64 << 20), (8 << 20, 16 << 20));
        assert_eq!(of(1 << 30), (128 << 20, 256 << 20));
        assert_eq!(of(0), (REPLY_BYTES_LEAST as usize, BUFFER_BYTES_LEAST as usize));
        assert_eq!(of(u64::MAX), (REPLY_BYTES_MAX, BUFFER_BYTES_MAX));
    }
}
