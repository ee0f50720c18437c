//! `tyrant follow` and `tyrant unfollow`: make a server a replica, or end that.

use super::Run;
use crate::bytes::escaped;
use crate::remote::{self, Server, line_of};
use crate::time::parse_time;
use anyhow::Result;
use client::Address;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Option of the request: stop if an operation's outcome differs from that on the master.
const CHECK: u32 = 1;

/// Longest wait for the replica's connection to its master.
const CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// Pause between two looks at it.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Make the server on this machine a replica
  tyrant follow 10.0.0.1:1978")]
pub(super) struct Follow {
    /// Master to follow: HOST:PORT
    #[arg(value_name = "MASTER")]
    master: String,
    /// Begin at this time of the master's update log: as in 2026-11-21T12:30:08Z, or the seconds or
    /// microseconds since 1970 [default: after the last operation received]
    #[arg(
        long,
        value_name = "TIME",
        default_value = "0",
        hide_default_value = true,
        value_parser = parse_time
    )]
    from: u64,
    /// Stop following if an operation's outcome differs from that on the master
    #[arg(long)]
    check_consistency: bool,
}

impl Run for Follow {
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let (host, port) = remote::parse_master(&self.master)?;
        if is_same(&Address::Tcp { host: host.clone(), port }, &remote::parse(server.address())?) {
            return Err(
                server.failure("it cannot follow itself: name another server as its master")
            );
        }
        if server.stat_value("sid")?.is_none_or(|id| id == "0") {
            return Err(server.failure(
                "a replica needs an id of its own: start the server with --server-id N --allow-setmst",
            ));
        }
        let options = if self.check_consistency { CHECK } else { 0 };
        server.set_master(host.as_bytes(), port, self.from, options)?;
        if let Err(reason) = wait_for_connection(server)? {
            let master = &self.master;
            return Err(server.failure(format_args!(
                "it follows {master} from now on, but is not connected to it: {reason}"
            )));
        }
        writeln!(output, "{} follows {}", server.address(), self.master)?;
        let stat = server.stat()?;
        let stat = String::from_utf8_lossy(&stat);
        let follows_back = |line: &str| {
            line.strip_prefix("replica_")
                .is_some_and(|line| line.contains(&format!("\taddress={} ", self.master)))
        };
        if line_of(&stat, "replication_read_only").is_some() && stat.lines().any(follows_back) {
            eprintln!(
                "tyrant: warning: {} follows this server too, so that neither takes changes: make one \
                 of them independent (tyrant unfollow)",
                self.master
            );
        }
        if let Some(reason) = line_of(&stat, "replication_inexact") {
            // The command has done what it is for, and its output is that.
            eprintln!("tyrant: warning: its records may differ from the master's: {reason}");
        }
        Ok(())
    }
}

/// Waits until the replica has reached its master. Returns why it has not.
fn wait_for_connection(server: &Server) -> Result<Result<(), String>> {
    let end = Instant::now() + CONNECTION_WAIT;
    loop {
        match server.stat_value("replication_state")?.as_deref() {
            Some("connecting") if Instant::now() < end => {}
            Some("connecting" | "stopped") => {
                let reason = server.stat_value("replication_error")?;
                return Ok(Err(reason.unwrap_or_else(|| "its log may tell why".to_owned())));
            }
            // Tokyo Tyrant shows no state.
            _ => return Ok(Ok(())),
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns whether two addresses lead to one server, as far as their names tell.
fn is_same(one: &Address, other: &Address) -> bool {
    let sockets = |address: &Address| -> Vec<SocketAddr> {
        match address {
            Address::Tcp { host, port } => {
                (host.as_str(), *port).to_socket_addrs().map_or(vec![], Iterator::collect)
            }
            Address::Unix(_) => Vec::new(),
        }
    };
    let others = sockets(other);
    sockets(one).iter().any(|socket| others.contains(socket))
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Make a replica independent, until its next start
  tyrant unfollow --server 10.0.0.2:1978")]
pub(super) struct Unfollow {}

impl Run for Unfollow {
    fn run(&self, server: &Server, output: &mut dyn Write) -> Result<()> {
        let Some(master) = server.stat_value("mhost")? else {
            return Err(server.failure("it follows no master"));
        };
        let port = server.stat_value("mport")?.unwrap_or_default();
        server.set_master(b"", 0, 0, 0)?;
        let master = escaped(format!("{master}:{port}").as_bytes());
        Ok(writeln!(output, "{} no longer follows {master}", server.address())?)
    }
}
