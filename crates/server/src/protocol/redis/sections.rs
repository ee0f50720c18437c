//! `INFO` and `ROLE`: the state of the server, as far as it is known.

use super::connection::{REDIS_VERSION, role as role_name};
use super::keys::records;
use super::{Failed, reply, saturated};
use crate::admin::server_stats::{Process, seconds_since_1970, uptime_seconds};
use crate::counters::Count;
use crate::ops::channels::Topic;
use crate::protocol::Context;
use crate::replication::ReplicaStatus;
use crate::shared::Shared;
use std::fmt::Write;
use std::net::SocketAddr;
use wire::RequestKind;
use wire::redis::{Arguments, Command};

/// A section of `INFO`.
struct Section {
    title: &'static str,
    /// It is shown if none is asked for.
    is_default: bool,
    /// Appends its lines.
    describe: fn(&mut Lines<'_>),
}

const SECTIONS: [Section; 13] = [
    section("Server", true, server),
    section("Clients", true, clients),
    section("Memory", true, memory),
    section("Persistence", true, persistence),
    section("Stats", true, stats),
    section("Replication", true, replication),
    section("CPU", true, processor),
    section("Modules", true, |_| ()),
    section("Commandstats", false, commands),
    section("Errorstats", true, |_| ()),
    section("Latencystats", false, |_| ()),
    section("Cluster", true, |lines| lines.add("cluster_enabled", 0)),
    section("Keyspace", true, keyspace),
];

const fn section(title: &'static str, is_default: bool, describe: fn(&mut Lines<'_>)) -> Section {
    Section { title, is_default, describe }
}

/// Lines of a reply to `INFO`, and what they are about.
struct Lines<'a> {
    shared: &'a Shared,
    process: Process,
    records: u64,
    role: &'static str,
    database_stats: Vec<(&'static str, String)>,
    text: String,
}

impl Lines<'_> {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{name}:{value}\r\n");
    }

    /// Adds a number of bytes, and the same for people.
    fn add_bytes(&mut self, name: &str, bytes: u64) {
        self.add(name, bytes);
        self.add(&format!("{name}_human"), human(bytes));
    }

    /// Adds the sum of stats of the database, unless there is none of them.
    fn add_of_database(&mut self, name: &str, stats: &[&str]) {
        let found = self.database_stats.iter().filter(|(known, _)| stats.contains(known));
        let values: Vec<u64> = found.filter_map(|(_, value)| value.parse().ok()).collect();
        if !values.is_empty() {
            self.add(name, values.iter().sum::<u64>());
        }
    }

    fn total(&self, what: Count) -> u64 {
        self.shared.counters.total_since_reset(what)
    }
}

/// Returns bytes as Redis shows them to people.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    let (mut value, mut unit) = (bytes as f64, "B");
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    if unit == "B" { format!("{bytes}B") } else { format!("{value:.2}{unit}") }
}

/// Executes `INFO`.
pub(super) fn describe(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    context.tally.count(Count::Stat);
    let asks = |name: &str| arguments.iter().any(|one| one.eq_ignore_ascii_case(name.as_bytes()));
    let asks_all = asks("all") || asks("everything");
    let asks_default = arguments.is_empty() || asks("default");
    let records = records(context)?;
    let shared = context.shared;
    let mut lines = Lines {
        shared,
        process: Process::now(),
        records,
        role: role_name(context),
        database_stats: match shared.remote {
            Some(_) => Vec::new(),
            None => shared.served.database.stats(),
        },
        text: String::new(),
    };
    for Section { title, is_default, describe } in &SECTIONS {
        if asks_all || asks(title) || asks_default && *is_default {
            let separator = if lines.text.is_empty() { "" } else { "\r\n" };
            let _ = write!(lines.text, "{separator}# {title}\r\n");
            describe(&mut lines);
        }
    }
    reply::verbatim(output, context.session.redis.version, &lines.text);
    Ok(())
}

fn server(lines: &mut Lines<'_>) {
    let uptime_s = uptime_seconds(lines.shared) as u64;
    lines.add("redis_version", REDIS_VERSION);
    lines.add("redis_mode", "standalone");
    lines.add("arch_bits", usize::BITS);
    lines.add("process_id", std::process::id());
    lines.add("tcp_port", lines.shared.served.settings.port);
    lines.add("server_time_usec", (seconds_since_1970() * 1e6) as u64);
    lines.add("uptime_in_seconds", uptime_s);
    lines.add("uptime_in_days", uptime_s / 86_400);
}

fn clients(lines: &mut Lines<'_>) {
    lines.add("connected_clients", lines.shared.connections());
    lines.add("maxclients", lines.shared.live.connections_max());
    lines.add("blocked_clients", lines.shared.clients.waiting());
    lines.add("tracking_clients", 0);
}

fn memory(lines: &mut Lines<'_>) {
    let bytes = lines.process.resident_bytes;
    lines.add_bytes("used_memory", bytes);
    lines.add_bytes("used_memory_rss", bytes);
    lines.add_bytes("maxmemory", 0);
    lines.add("maxmemory_policy", "noeviction");
}

fn persistence(lines: &mut Lines<'_>) {
    lines.add("loading", 0);
    lines.add("rdb_bgsave_in_progress", 0);
    lines.add("rdb_last_save_time", started(lines.shared));
    lines.add("aof_enabled", u8::from(!lines.shared.served.is_on_memory()));
    lines.add("aof_rewrite_in_progress", 0);
}

fn stats(lines: &mut Lines<'_>) {
    let counters = &lines.shared.counters;
    let requests: u64 = RequestKind::all().map(|kind| counters.requests_since_reset(kind)).sum();
    lines.add("total_connections_received", lines.total(Count::Accepted));
    lines.add("total_commands_processed", requests);
    lines.add("total_net_input_bytes", lines.total(Count::BytesRead));
    lines.add("total_net_output_bytes", lines.total(Count::BytesWritten));
    lines.add("rejected_connections", lines.total(Count::Rejected));
    lines.add_of_database("expired_keys", &["expired_reads", "expired_removed"]);
    lines.add_of_database("evicted_keys", &["evicted"]);
    let misses = lines.total(Count::GetMiss);
    lines.add("keyspace_hits", lines.total(Count::Get).saturating_sub(misses));
    lines.add("keyspace_misses", misses);
    let channels = &lines.shared.channels;
    lines.add("pubsub_channels", channels.number_of_names(Topic::Channel));
    lines.add("pubsub_patterns", channels.number_of_names(Topic::Pattern));
    lines.add("pubsubshard_channels", channels.number_of_names(Topic::Shard));
}

/// Returns the host and the port of a replica, which are empty for one without an address.
fn host_and_port(replica: &ReplicaStatus) -> (String, u16) {
    let address = replica.address.parse::<SocketAddr>();
    address.map_or_else(|_| (String::new(), 0), |at| (at.ip().to_string(), at.port()))
}

fn replication(lines: &mut Lines<'_>) {
    let replication = &lines.shared.replication;
    lines.add("role", lines.role);
    if let Some((master, follower)) = replication.followed() {
        let state = follower.state();
        lines.add("master_host", &master.host);
        lines.add("master_port", master.port);
        lines.add("master_link_status", if state == "following" { "up" } else { "down" });
        lines.add("master_sync_in_progress", u8::from(state == "seeding"));
        lines.add("slave_repl_offset", follower.executed_us());
        let is_writable = lines.shared.served.settings.is_writable;
        lines.add("slave_read_only", u8::from(!is_writable));
    }
    lines.add("connected_slaves", replication.replicas());
    for (number, replica) in replication.statuses().iter().enumerate() {
        let (host, port) = host_and_port(replica);
        let state = if replica.is_streaming { "online" } else { "send_bulk" };
        let lag_s = replica.lag.seconds as u64;
        lines.add(
            &format!("slave{number}"),
            format!(
                "ip={host},port={port},state={state},offset={},lag={lag_s}",
                replica.executed_us
            ),
        );
    }
    lines.add("master_repl_offset", replication.changed_us());
}

fn processor(lines: &mut Lines<'_>) {
    lines.add("used_cpu_sys", format!("{:.6}", lines.process.system_seconds));
    lines.add("used_cpu_user", format!("{:.6}", lines.process.user_seconds));
}

fn commands(lines: &mut Lines<'_>) {
    for command in Command::ALL {
        let calls = lines.shared.counters.requests_since_reset((*command).into());
        if calls > 0 {
            lines.add(&format!("cmdstat_{}", command.name()), format!("calls={calls}"));
        }
    }
}

fn keyspace(lines: &mut Lines<'_>) {
    if lines.records > 0 {
        lines.add("db0", format!("keys={},expires=0,avg_ttl=0", lines.records));
    }
}

/// Returns the time at which the server started, in seconds since 1970.
fn started(shared: &Shared) -> i64 {
    (seconds_since_1970() - uptime_seconds(shared)).round() as i64
}

/// Returns the time of the last save: all records that there were at the start were saved.
pub(super) fn started_s(context: &Context<'_>) -> i64 {
    started(context.shared)
}

/// Executes `ROLE`. Offsets are time stamps of the update log, in microseconds since 1970.
pub(super) fn role(context: &Context<'_>, output: &mut Vec<u8>) {
    let replication = &context.shared.replication;
    if let Some((master, follower)) = replication.followed() {
        reply::array(output, 5);
        reply::string(output, b"slave");
        reply::string(output, master.host.as_bytes());
        reply::integer(output, master.port.into());
        reply::string(
            output,
            match follower.state() {
                "following" => b"connected",
                "seeding" => b"sync",
                "connecting" => b"connecting",
                _ => b"connect",
            },
        );
        reply::integer(output, saturated(follower.executed_us()));
        return;
    }
    let replicas = replication.statuses();
    reply::array(output, 3);
    reply::string(output, b"master");
    reply::integer(output, saturated(replication.changed_us()));
    reply::array(output, replicas.len());
    for replica in &replicas {
        let (host, port) = host_and_port(replica);
        reply::array(output, 3);
        reply::string(output, host.as_bytes());
        reply::string(output, port.to_string().as_bytes());
        reply::string(output, replica.executed_us.to_string().as_bytes());
    }
}
