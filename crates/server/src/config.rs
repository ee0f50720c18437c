//! Configuration: the settings of a server, and its limits with their defaults.

use crate::ops::remote::RemoteStore;
use crate::ops::scrub::{SCRUB_BYTES_PER_SECOND, SCRUB_INTERVAL};
use crate::processors;
use crate::update_log;
use crate::{
    ChosenEvents, ClientPaths, CommandMask, Dialect, Following, Master, SemiSyncSettings, Users,
};
use cabinet::UsableMemory;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wire::http::HostNames;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// TCP on 127.0.0.1, and on `::1` if the system has IPv6.
    Loopback {
        /// Port, the same for both addresses; 0 lets the system choose it.
        port: u16,
    },
    /// TCP.
    Tcp {
        /// Name or address of the interface, IPv4 or IPv6; `None` means every interface.
        host: Option<String>,
        /// Port; 0 lets the system choose, see [`crate::Server::local_addresses`].
        port: u16,
    },
    /// Unix socket at this path.
    Unix(PathBuf),
}

impl Endpoint {
    /// Returns the port of TCP.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Loopback { port } | Self::Tcp { port, .. } => Some(*port),
            Self::Unix(_) => None,
        }
    }

    /// Returns whether a connection to `host` and `port` certainly reaches this endpoint. No name
    /// but `localhost` is looked up, and the addresses of the machine are not: they may move to
    /// another one.
    pub fn is_reached_at(&self, host: &str, port: u16) -> bool {
        let own = match self {
            _ if port == 0 || self.port() != Some(port) => return false,
            Self::Loopback { .. } => addresses("localhost"),
            Self::Tcp { host: None, .. } => UNSPECIFIED.to_vec(),
            Self::Tcp { host: Some(own), .. } if own == host => return true,
            Self::Tcp { host: Some(own), .. } => addresses(own),
            Self::Unix(_) => return false,
        };
        let asked = addresses(host);
        let is_own = |asked: &IpAddr| {
            own.iter().any(|own| {
                let is_local = asked.is_loopback() && own.is_ipv6() == asked.is_ipv6();
                own == asked || own.is_unspecified() && is_local
            })
        };
        !asked.is_empty() && asked.iter().all(is_own)
    }
}

/// Addresses that stand for all of the machine.
const UNSPECIFIED: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

/// Returns the addresses of a host that are known without a lookup.
fn addresses(host: &str) -> Vec<IpAddr> {
    match host {
        "localhost" => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        _ => host.parse().into_iter().collect(),
    }
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

/// Settings of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// Files of the certificates and of the key.
    pub files: tls::ServerFiles,
    /// Addresses to listen on for TLS alone.
    pub listen: Vec<Endpoint>,
    /// Whether TCP connections to [`Config::listen`] may begin with TLS as well as without.
    pub is_optional: bool,
    /// Longest time from the first byte of a handshake to its last, or from the connection on if it
    /// has to begin with TLS.
    pub handshake_timeout: Duration,
}

/// Default of [`TlsSettings::handshake_timeout`].
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of a server. A request beyond a limit is refused in the form of its protocol.
///
/// [`crate::Handle::reload`] changes some of them while the server runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses to listen on; at least one, unless there are some for TLS.
    pub listen: Vec<Endpoint>,
    /// Permission bits of the files of Unix sockets; `None` leaves those of the process.
    pub socket_mode: Option<u32>,
    /// Settings of TLS, if clients may use it.
    pub tls: Option<TlsSettings>,
    /// Most event loops, a thread each. Loops after the first work only under load.
    pub threads: usize,
    /// Most connections at the same time.
    pub connections_max: usize,
    /// Longest request, in bytes.
    pub request_bytes_max: usize,
    /// Longest body of a PUT that is received into a file, in bytes. Bodies below 1 MiB, and those
    /// for a database in memory, are received into memory. In a tree or table `reply_bytes_max`
    /// limits values too: a changed value is in memory together with its neighbours.
    pub upload_bytes_max: usize,
    /// Most bytes of all these files together.
    pub spool_bytes_max: usize,
    /// Longest reply to one request, in bytes.
    pub reply_bytes_max: usize,
    /// Size of a client's unsent replies above which none of its requests are read, in bytes.
    pub output_bytes_max: usize,
    /// Most bytes of the buffers of all connections together: incomplete requests, replies that
    /// are being made or sent, and long changes of transactions.
    pub buffer_bytes_max: usize,
    /// Longest time in which a client sends a request, from its first byte to its last, and in
    /// which it takes its replies. A transfer at [`crate::BYTES_PER_SECOND_MIN`] may take longer.
    pub timeout: Option<Duration>,
    /// Longest wait for the next request.
    pub idle_timeout: Option<Duration>,
    /// How requests wait for records that are not in memory.
    pub cold_reads: ColdReads,
    /// Number of threads for requests that wait for the disk.
    pub pool_threads: usize,
    /// Most requests that wait for one of those threads.
    pub pool_queue_max: usize,
    /// Longest time in which connections finish their requests and take the replies when the server
    /// stops.
    pub stop_wait: Duration,
    /// Time from which a request is noted in the slow log, if any is.
    pub slow_log_threshold: Option<Duration>,
    /// Commands that are refused.
    pub mask: CommandMask,
    /// Events that are sent to channels when records change.
    pub keyspace_events: ChosenEvents,
    /// Rules that the memcached protocol follows.
    pub dialect: Dialect,
    /// Whether the flags and the expiry of memcached requests are ignored, as in Tokyo Tyrant.
    pub ignores_expiry: bool,
    /// Whether a client may stop the server with memcached's `shutdown`.
    pub shutdown_command: bool,
    /// Paths that clients may name for copies of the database and for update logs.
    pub client_paths: ClientPaths,
    /// Whether a client may run a command that copies the database, by `copy` with a leading `@`.
    pub copy_command: bool,
    /// Whether a client may change the master of the server with `setmst`.
    pub set_master_command: bool,
    /// Names by which HTTP clients may address the server, besides addresses and `localhost`.
    pub http_hosts: HostNames,
    /// Users that may log in at the start; `None` admits every client.
    pub users: Option<Arc<Users>>,
    /// Whether every client may use Tokyo Tyrant's protocol, which has no passwords, even if there
    /// are users.
    pub opens_tokyo_tyrant: bool,
    /// Id of this server among its replication peers, 1 to 65535; 0 is none.
    pub server_id: u32,
    /// Settings of the update log, if changes are to be logged; requires `server_id`.
    pub update_log: Option<update_log::Settings>,
    /// The master to follow; requires `server_id`.
    pub following: Following,
    /// Part of a disk with the database or the update log below which its free space is a warning,
    /// in percent; 0 is never.
    pub disk_free_warning_percent: u8,
    /// Warnings about how the server was started, which are shown with its own.
    pub notices: Vec<String>,
    /// Interval between two scheduled verifications of all checksums of the database, if any.
    pub scrub_interval: Option<Duration>,
    /// Rate of these verifications, in bytes per second.
    pub scrub_bytes_per_second: u64,
    /// Number of replicas that must confirm a change before its reply is sent; requires an update
    /// log.
    pub semi_sync: Option<SemiSyncSettings>,
    /// Store outside of this process, to which operations on records go in place of the database.
    /// Front ends, extensions and statistics see the database.
    pub remote: Option<Arc<dyn RemoteStore>>,
    /// Longest wait for an answer of that store; lists, the count and the removal of all records
    /// have [`LONG_REQUEST_FACTOR`](crate::LONG_REQUEST_FACTOR) of it. After it a read fails as
    /// unavailable, and the outcome of a change is unknown. The event loops look for such waits
    /// once per second.
    pub remote_timeout: Duration,
    /// Most operations that wait for that store. A client whose operation exceeds it gets an error.
    pub remote_requests_max: usize,
    /// Returns for how long all processors of the machine have been idle since some time, added up,
    /// or `None` if that is unknown. A busy event loop hands connections over only if a processor
    /// is idle, or if it is unknown.
    pub processors_idle: fn() -> Option<Duration>,
}

impl Config {
    /// Returns the first TCP port to listen on, 0 if there is none or the system chooses it.
    pub(crate) fn tcp_port(&self) -> u16 {
        let port = |endpoint: &Endpoint| match endpoint {
            Endpoint::Loopback { port } | Endpoint::Tcp { port, .. } => Some(*port),
            Endpoint::Unix(_) => None,
        };
        let tls = self.tls.iter().flat_map(|tls| &tls.listen);
        self.listen.iter().chain(tls).find_map(port).unwrap_or(0)
    }

    /// Returns the master to follow if its address is one of this server.
    pub(crate) fn own_master(&self) -> Option<&Master> {
        let tls = self.tls.iter().flat_map(|tls| &tls.listen);
        let mut own = self.listen.iter().chain(tls);
        let master = self.following.master.as_ref()?;
        own.any(|endpoint| endpoint.is_reached_at(&master.host, master.port)).then_some(master)
    }
}

/// Default of [`Config::request_bytes_max`]: the longest value of the binary protocol, and its key.
pub const REQUEST_BYTES_MAX: usize = wire::limits::BINARY_ARGUMENT_BYTES_MAX + (1 << 20);

/// Default of [`Config::reply_bytes_max`] if there is enough memory: the longest value and its
/// frame, in bytes.
pub const REPLY_BYTES_MAX: usize = cabinet::limits::VALUE_BYTES_MAX + (1 << 20);

/// Default with less memory: the [usable memory](UsableMemory) divided by this number, but at least
/// this many bytes.
const REPLY_SHARE: u64 = 8;
const REPLY_BYTES_LEAST: u64 = 4 << 20;

/// Default of [`Config::buffer_bytes_max`] if there is enough memory: one longest reply and some
/// work beside it, in bytes.
pub const BUFFER_BYTES_MAX: usize = REPLY_BYTES_MAX + (64 << 20);
const BUFFER_SHARE: u64 = 4;
const BUFFER_BYTES_LEAST: u64 = 8 << 20;

/// Default of [`Config::spool_bytes_max`]: 8 of the longest values, in bytes.
pub const SPOOL_BYTES_MAX: usize = 8 * cabinet::limits::VALUE_BYTES_MAX;

/// Default of [`Config::disk_free_warning_percent`].
pub const DISK_FREE_WARNING_PERCENT: u8 = 5;

/// Default of [`Config::remote_timeout`].
pub const REMOTE_TIMEOUT: Duration = Duration::from_secs(10);

impl Default for Config {
    fn default() -> Self {
        Self::for_memory(UsableMemory::of_process())
    }
}

impl Config {
    /// Returns the defaults of each of `servers` servers in one process, which share its memory.
    pub fn for_one_of(servers: u64) -> Self {
        let memory = UsableMemory::of_process();
        Self::for_memory(UsableMemory { bytes: memory.bytes / servers.max(1), ..memory })
    }

    /// Returns the defaults of a server that may use `memory`.
    fn for_memory(memory: UsableMemory) -> Self {
        let share = |share, least, most: usize| {
            usize::try_from(memory.share(share, least, most as u64)).unwrap_or(most)
        };
        Self {
            listen: vec![Endpoint::Loopback { port: 1978 }],
            socket_mode: None,
            tls: None,
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
            cold_reads: ColdReads::default(),
            pool_threads: 16,
            pool_queue_max: 1024,
            stop_wait: Duration::from_secs(1),
            slow_log_threshold: None,
            mask: CommandMask::NONE,
            keyspace_events: ChosenEvents::default(),
            dialect: Dialect::Memcached,
            ignores_expiry: false,
            shutdown_command: false,
            client_paths: ClientPaths::None,
            copy_command: false,
            set_master_command: false,
            http_hosts: HostNames::default(),
            users: None,
            opens_tokyo_tyrant: false,
            server_id: 0,
            update_log: None,
            following: Following::default(),
            disk_free_warning_percent: DISK_FREE_WARNING_PERCENT,
            notices: Vec::new(),
            scrub_interval: Some(SCRUB_INTERVAL),
            scrub_bytes_per_second: SCRUB_BYTES_PER_SECOND,
            semi_sync: None,
            remote: None,
            remote_timeout: REMOTE_TIMEOUT,
            remote_requests_max: 16_384,
            processors_idle: processors::idle,
        }
    }
}

/// How requests wait for records that are not in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColdReads {
    /// As [`Self::Ring`] if the kernel allows it, otherwise as [`Self::Pool`].
    #[default]
    Auto,
    /// Each event loop has reads under way itself, by `io_uring`.
    Ring,
    /// A thread of the pool waits for each.
    Pool,
}

impl ColdReads {
    /// Returns the name in the statistics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Ring => "ring",
            Self::Pool => "pool",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_reached_where_the_address_certainly_is_its_own() {
        let tcp = |host: Option<&str>| Endpoint::Tcp { host: host.map(str::to_owned), port: 7 };
        for (endpoint, host, is_reached) in [
            (Endpoint::Loopback { port: 7 }, "127.0.0.1", true),
            (Endpoint::Loopback { port: 7 }, "::1", true),
            (Endpoint::Loopback { port: 7 }, "localhost", true),
            (Endpoint::Loopback { port: 7 }, "127.0.0.2", false),
            (tcp(None), "127.0.0.2", true),
            (tcp(None), "localhost", true),
            (tcp(Some("0.0.0.0")), "127.0.0.1", true),
            // Another server may listen with the other version of IP.
            (tcp(Some("0.0.0.0")), "::1", false),
            (tcp(Some("0.0.0.0")), "localhost", false),
            (tcp(Some("::")), "::1", true),
            (tcp(Some("::")), "127.0.0.1", false),
            // An address of this machine may be that of another one tomorrow.
            (tcp(Some("0.0.0.0")), "192.0.2.1", false),
            (tcp(Some("192.0.2.1")), "192.0.2.1", true),
            (tcp(Some("db.example.com")), "db.example.com", true),
            (tcp(Some("db.example.com")), "192.0.2.1", false),
            (Endpoint::Unix("s".into()), "localhost", false),
        ] {
            assert_eq!(endpoint.is_reached_at(host, 7), is_reached, "{endpoint} {host}");
            assert!(!endpoint.is_reached_at(host, 8));
        }
    }

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
