//! `tyrant serve`: runs the server.

use super::replication::ReplicationArguments;
use crate::logging::Verbosity;
use crate::serving::{Import, Service};
use crate::sizes;
use anyhow::Result;
use clap::Parser;
use server::{ClientPaths, CommandMask, Config, Dialect, Endpoint, Users, UsersError};
use std::num::{NonZeroUsize, ParseIntError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Database, with optional tuning: casket.tch#opts=l; * is in memory
    #[arg(value_name = "DB", default_value = "casket.tch")]
    database: String,
    /// Import DB once, if it is a Tokyo Cabinet file, into DB.imported.tch, and serve that
    #[arg(long)]
    import: bool,
    /// Import into this database instead
    #[arg(long, value_name = "NAME", requires = "import")]
    into: Option<String>,
    /// Listen on this address or name, may be repeated; 0.0.0.0 is every interface, :: with IPv6
    /// [default: this machine alone, 127.0.0.1 and ::1]
    #[arg(long, value_name = "ADDRESS")]
    host: Vec<String>,
    /// Listen on this port
    #[arg(long, default_value_t = 1978)]
    port: u16,
    /// Listen on a Unix socket at this path; without --host, on nothing else
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Run at most N event loops [default: one per core]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    threads: Option<usize>,
    /// Limit the time to receive a request, and to send its reply, to S seconds plus their time at
    /// 16 KiB per second [default: no limit]
    #[arg(long, value_name = "S", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Limit the wait for the next request, in seconds [default: no limit]
    #[arg(long, value_name = "S", value_parser = seconds)]
    idle_timeout: Option<Duration>,
    /// Limit the number of simultaneous connections
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    connections_max: Option<usize>,
    /// Limit a request, in bytes
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    request_bytes_max: Option<usize>,
    /// Limit a value put over HTTP, in bytes; from 1 MiB on it goes through a file, not through
    /// memory [default: --request-bytes-max if given, or else the longest possible value]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    upload_bytes_max: Option<usize>,
    /// Limit a reply, in bytes [default: an eighth of the usable memory, up to 1 GiB]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    reply_bytes_max: Option<usize>,
    /// Limit all incomplete requests and unsent replies together, in bytes [default: a quarter of
    /// the usable memory, up to 1.06 GiB]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    buffer_bytes_max: Option<usize>,
    /// Limit all values being put over HTTP together, in bytes on disk [default: 8 GiB]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    spool_bytes_max: Option<usize>,
    /// Append the log to this file, which SIGHUP reopens [default: standard output]
    #[arg(long, value_name = "PATH")]
    log: Option<PathBuf>,
    /// Set the verbosity of the log
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t)]
    log_level: Verbosity,
    /// Write the process id to this file while serving
    #[arg(long, value_name = "PATH")]
    pid: Option<PathBuf>,
    /// Serve the memcached protocol like Tokyo Tyrant rather than like memcached
    #[arg(long)]
    tokyo_tyrant: bool,
    /// Keep or ignore the flags and expiry set by memcached clients [default: keep; with
    /// --tokyo-tyrant: ignore]
    #[arg(long, value_name = "HOW", value_enum)]
    expiry: Option<Expiry>,
    /// Serve the records as files and folders over WebDAV too, on the same port
    #[arg(long)]
    webdav: bool,
    /// Let clients stop the server with memcached's shutdown command
    #[arg(long)]
    shutdown_command: bool,
    /// Let clients copy the database into this folder, and restore update logs from it
    #[arg(long, value_name = "DIR", value_parser = folder)]
    copy_dir: Option<PathBuf>,
    /// Let clients run a command on the server that copies the database: copy @COMMAND
    #[arg(long)]
    copy_command: bool,
    /// Let clients set the master that the server follows: setmst
    #[arg(long)]
    allow_setmst: bool,
    /// Require a user from FILE (lines name:password)
    #[arg(long, value_name = "FILE", value_parser = users)]
    users: Option<Arc<Users>>,
    /// Serve Tokyo Tyrant's protocol without a user all the same, for replicas and tools
    #[arg(long, requires = "users")]
    open_tokyo_tyrant: bool,
    /// Verify all checksums of the database every S seconds; 0 is never [default: every week]
    #[arg(long, value_name = "S")]
    scrub_interval: Option<u64>,
    /// Limit the reads of that verification, in bytes per second [default: 8m]
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    scrub_rate: Option<u64>,
    #[command(flatten)]
    replication: ReplicationArguments,
    /// Refuse these commands, by Tokyo Tyrant's names: allwrite,copy
    #[arg(long, value_name = "NAMES")]
    mask: Vec<CommandMask>,
    /// Allow these commands again, after all of --mask
    #[arg(long, value_name = "NAMES")]
    unmask: Vec<CommandMask>,
}

/// Handling of the flags and expiry of memcached clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Expiry {
    /// Store flags, and expire records
    Keep,
    /// Ignore both, like Tokyo Tyrant
    Ignore,
}

impl Default for Arguments {
    /// Returns the arguments of an empty command line.
    fn default() -> Self {
        #[derive(Parser)]
        struct DefaultArguments {
            #[command(flatten)]
            arguments: Arguments,
        }
        DefaultArguments::parse_from(["serve"]).arguments
    }
}

impl Arguments {
    pub(super) fn run(self) -> Result<()> {
        self.service().run()
    }

    fn service(self) -> Service {
        let mut config = Config { listen: self.endpoints(), ..Config::default() };
        config.timeout = self.timeout;
        config.idle_timeout = self.idle_timeout;
        config.threads = self.threads.unwrap_or(config.threads);
        config.connections_max = self.connections_max.unwrap_or(config.connections_max);
        config.request_bytes_max = self.request_bytes_max.unwrap_or(config.request_bytes_max);
        let upload_bytes_max = self.upload_bytes_max.or(self.request_bytes_max);
        config.upload_bytes_max = upload_bytes_max.unwrap_or(config.upload_bytes_max);
        config.reply_bytes_max = self.reply_bytes_max.unwrap_or(config.reply_bytes_max);
        config.buffer_bytes_max = self.buffer_bytes_max.unwrap_or(config.buffer_bytes_max);
        config.spool_bytes_max = self.spool_bytes_max.unwrap_or(config.spool_bytes_max);
        config.shutdown_command = self.shutdown_command;
        config.client_paths = self.copy_dir.clone().map_or(ClientPaths::None, ClientPaths::Within);
        config.copy_command = self.copy_command;
        config.set_master_command = self.allow_setmst;
        config.users = self.users;
        if let Some(seconds) = self.scrub_interval {
            config.scrub_interval = (seconds > 0).then(|| Duration::from_secs(seconds));
        }
        config.scrub_bytes_per_second = self.scrub_rate.unwrap_or(config.scrub_bytes_per_second);
        config.opens_tokyo_tyrant = self.open_tokyo_tyrant;
        if self.tokyo_tyrant {
            config.dialect = Dialect::TokyoTyrant;
        }
        let default = if self.tokyo_tyrant { Expiry::Ignore } else { Expiry::Keep };
        config.ignores_expiry = self.expiry.unwrap_or(default) == Expiry::Ignore;
        self.replication.configure(&mut config);
        for mask in &self.mask {
            config.mask.mask(*mask);
        }
        for mask in &self.unmask {
            config.mask.unmask(*mask);
        }
        Service {
            database: self.database,
            import: self.import.then_some(Import { into: self.into }),
            config,
            webdav: self.webdav,
            log: self.log,
            verbosity: self.log_level,
            pid: self.pid,
            notices: Vec::new(),
        }
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        let tcp = |host| Endpoint::Tcp { host, port: self.port };
        let mut endpoints: Vec<_> = self.host.iter().cloned().map(Some).map(tcp).collect();
        endpoints.extend(self.unix.clone().map(Endpoint::Unix));
        if endpoints.is_empty() {
            endpoints.push(Endpoint::Loopback { port: self.port });
        }
        endpoints
    }
}

/// Parses a rate, in bytes per second.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    match sizes::bytes(text)? {
        0 => Err("the rate must be at least 1 byte per second".to_owned()),
        bytes => Ok(bytes),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(Duration::ZERO) => Err("the time must be greater than 0".to_owned()),
        duration => duration.map_err(|error| error.to_string()),
    }
}

fn users(path: &str) -> Result<Arc<Users>, UsersError> {
    Users::read(Path::new(path)).map(Arc::new)
}

/// Returns an absolute path, which remains valid if the process changes its folder.
fn folder(path: &str) -> Result<PathBuf, String> {
    let path = std::fs::canonicalize(path).map_err(|error| error.to_string())?;
    if path.is_dir() { Ok(path) } else { Err("not a folder".into()) }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number: NonZeroUsize = text.parse().map_err(|error: ParseIntError| error.to_string())?;
    Ok(number.get())
}

#[cfg(test)]
mod tests {
    use super::{Arguments, Expiry, at_least_one, rate, seconds};
    use server::{ClientPaths, Dialect, Endpoint};
    use std::time::Duration;

    #[test]
    fn without_arguments_casket_tch_is_served_on_port_1978_of_this_machine_alone() {
        let service = Arguments::default().service();
        assert_eq!(service.database, "casket.tch");
        assert_eq!(service.config.listen, [Endpoint::Loopback { port: 1978 }]);
        assert_eq!(service.config.client_paths, ClientPaths::None);
        assert!(!service.config.copy_command && !service.config.set_master_command);
    }

    #[test]
    fn a_unix_socket_alone_disables_the_network() {
        let arguments = Arguments { unix: Some("/tmp/s".into()), ..Arguments::default() };
        assert_eq!(arguments.endpoints(), [Endpoint::Unix("/tmp/s".into())]);
        let both = Arguments { host: vec!["::1".into()], ..arguments };
        assert_eq!(both.endpoints().len(), 2);
    }

    #[test]
    fn memcached_rules_apply_unless_tokyo_tyrant_is_requested() {
        let config = Arguments::default().service().config;
        assert_eq!(config.dialect, Dialect::Memcached);
        assert!(!config.shutdown_command);
        let arguments =
            Arguments { tokyo_tyrant: true, shutdown_command: true, ..Arguments::default() };
        let config = arguments.service().config;
        assert_eq!(config.dialect, Dialect::TokyoTyrant);
        assert!(config.shutdown_command);
    }

    #[test]
    fn expiry_defaults_to_keep_and_with_tokyo_tyrant_to_ignore() {
        for (tokyo_tyrant, expiry, ignores) in [
            (false, None, false),
            (true, None, true),
            (false, Some(Expiry::Ignore), true),
            (true, Some(Expiry::Keep), false),
        ] {
            let arguments = Arguments { tokyo_tyrant, expiry, ..Arguments::default() };
            assert_eq!(arguments.service().config.ignores_expiry, ignores);
        }
    }

    #[test]
    fn checksums_are_verified_every_week_by_default() {
        let interval = |seconds| {
            let arguments = Arguments { scrub_interval: seconds, ..Arguments::default() };
            arguments.service().config.scrub_interval
        };
        assert_eq!(interval(None), Some(Duration::from_secs(7 * 24 * 3600)));
        assert_eq!(interval(Some(60)), Some(Duration::from_secs(60)));
        assert_eq!(interval(Some(0)), None);
        assert_eq!(rate("8m"), Ok(8 << 20));
        rate("0").unwrap_err();
    }

    #[test]
    fn invalid_numbers_are_refused() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "x", "NaN", "inf"] {
            seconds(text).unwrap_err();
        }
        assert_eq!(at_least_one("1"), Ok(1));
        for text in ["0", "-1", "x"] {
            at_least_one(text).unwrap_err();
        }
    }
}
