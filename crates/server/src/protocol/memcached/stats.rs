//! Statistics: the commands `stats` and `stat`.

use super::{Context, Halt, expiry, failure};
use crate::admin::server_stats::{self, Process};
use crate::config::Endpoint;
use crate::counters::Count;
use crate::ops::execute::Reply;
use crate::ops::operation::Operation;
use crate::shared::Shared;
use cabinet::RecordRef;
use wire::memcached::reply;

/// Longest list of `stats cachedump`, in bytes, as in memcached.
const CACHE_DUMP_BYTES_MAX: usize = 2 << 20;

/// Statistics of a database, which a server over a store outside of this process leaves out.
const OF_DATABASE: [&str; 7] = [
    "curr_items",
    "total_items",
    "bytes",
    "get_expired",
    "reclaimed",
    "evictions",
    "limit_maxbytes",
];

/// Executes `stats`. Without an argument, `argument` is empty.
pub(in crate::protocol) fn execute(
    context: &mut Context<'_>,
    argument: &[u8],
    rest: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    if matches!(argument, b"conns" | b"cachedump") {
        // These statistics read all sockets of the system, or records of any age.
        context.wait()?;
    }
    context.counters.count(Count::Stat);
    let shared = context.shared;
    match argument {
        b"reset" => {
            shared.counters.reset_totals();
            output.extend_from_slice(b"RESET\r\n");
            return Ok(());
        }
        b"detail" => {
            detail(rest, output);
            return Ok(());
        }
        b"cachedump" => return cache_dump(context, rest, output),
        _ => {}
    }
    let Some(figures) = figures(shared, argument) else {
        output.extend_from_slice(reply::ERROR);
        return Ok(());
    };
    for (name, value) in figures {
        // Clients split a line at blanks, and expect three words.
        reply::stat(output, &name, &value.replace(' ', "_"));
    }
    output.extend_from_slice(reply::END);
    Ok(())
}

/// Returns the names and values for an argument, or `None` if it is unknown.
pub(in crate::protocol) fn figures(shared: &Shared, argument: &[u8]) -> Option<Figures> {
    Some(match argument {
        b"" => general(shared),
        b"settings" => settings(shared),
        b"items" => items(shared),
        b"slabs" => pairs(&[("active_slabs", "0"), ("total_malloced", "0")]),
        b"sizes" => pairs(&[("sizes_status", "disabled")]),
        b"conns" => connections(shared),
        _ => return None,
    })
}

pub(in crate::protocol) type Figures = Vec<(String, String)>;

fn pairs(figures: &[(&str, &str)]) -> Figures {
    figures.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Returns Tokyo Tyrant's statistics in its order, then those of memcached, then those of this
/// server.
fn general(shared: &Shared) -> Figures {
    let process = Process::now();
    let total = |count| shared.counters.total_since_reset(count);
    let sum = |counts: &[Count]| counts.iter().map(|count| total(*count)).sum::<u64>();
    let sets = sum(&[
        Count::Put,
        Count::PutKeep,
        Count::PutCat,
        Count::PutShift,
        Count::PutNoReply,
        Count::CompareAndSwap,
    ]);
    let hits = |all, missed| total(all).saturating_sub(total(missed)).to_string();
    let records = shared.served.database.len().to_string();
    let figures = [
        ("pid", std::process::id().to_string()),
        ("uptime", format!("{:.0}", server_stats::uptime_seconds(shared).floor())),
        ("time", format!("{:.0}", server_stats::seconds_since_1970().floor())),
        ("version", server_stats::memcached_version(shared).to_owned()),
        ("pointer_size", usize::BITS.to_string()),
        ("rusage_user", format!("{:.6}", process.user_seconds)),
        ("rusage_system", format!("{:.6}", process.system_seconds)),
        ("cmd_set", sets.to_string()),
        ("cmd_set_hits", sets.saturating_sub(total(Count::PutMiss)).to_string()),
        ("cmd_set_misses", total(Count::PutMiss).to_string()),
        ("cmd_delete", total(Count::Out).to_string()),
        ("cmd_delete_hits", hits(Count::Out, Count::OutMiss)),
        ("cmd_delete_misses", total(Count::OutMiss).to_string()),
        ("cmd_get", total(Count::Get).to_string()),
        ("cmd_get_hits", hits(Count::Get, Count::GetMiss)),
        ("cmd_get_misses", total(Count::GetMiss).to_string()),
        ("cmd_flush", total(Count::Vanish).to_string()),
        ("curr_items", records),
        ("total_items", sets.saturating_sub(total(Count::PutMiss)).to_string()),
        ("bytes", shared.served.database.size_bytes().to_string()),
        ("threads", shared.loads.len().to_string()),
        ("cold_reads_by", shared.config.cold_reads.name().to_owned()),
        ("max_connections", shared.live.connections_max().to_string()),
        ("total_connections", total(Count::Accepted).to_string()),
        ("get_hits", hits(Count::Get, Count::GetMiss)),
        ("get_misses", total(Count::GetMiss).to_string()),
        ("delete_hits", hits(Count::Out, Count::OutMiss)),
        ("delete_misses", total(Count::OutMiss).to_string()),
        ("cmd_touch", total(Count::Touch).to_string()),
        ("touch_hits", hits(Count::Touch, Count::TouchMiss)),
        ("cmd_meta", total(Count::Meta).to_string()),
        ("accepting_conns", "1".to_owned()),
        // A flush removes records at once, so no read finds a flushed record.
        ("get_flushed", "0".to_owned()),
        ("get_expired", database_figure(shared, "expired_reads")),
        ("reclaimed", database_figure(shared, "expired_removed")),
        ("evictions", database_figure(shared, "evicted")),
        ("limit_maxbytes", database_figure(shared, "limit_bytes")),
    ];
    let mut all: Figures =
        figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    if shared.remote.is_some() {
        all.retain(|(name, _)| !OF_DATABASE.contains(&&name[..]));
    }
    all.extend(server_stats::further_stats(shared, total));
    all
}

/// Returns a statistic of the database, or 0 if it has none of this name.
fn database_figure(shared: &Shared, name: &str) -> String {
    let figures = shared.served.database.stats();
    let figure = figures.into_iter().find(|(of, _)| *of == name);
    figure.map_or_else(|| "0".to_owned(), |(_, value)| value)
}

fn settings(shared: &Shared) -> Figures {
    let config = &shared.config;
    let tcp = config.listen.iter().find_map(|endpoint| match endpoint {
        Endpoint::Loopback { port } => Some((Some("127.0.0.1,::1".to_owned()), *port)),
        Endpoint::Tcp { host, port } => Some((host.clone(), *port)),
        Endpoint::Unix(_) => None,
    });
    let unix = config.listen.iter().find_map(|endpoint| match endpoint {
        Endpoint::Unix(path) => Some(path.display().to_string()),
        Endpoint::Loopback { .. } | Endpoint::Tcp { .. } => None,
    });
    let on_off = |is_on| if is_on { "yes" } else { "no" }.to_owned();
    let null = || "NULL".to_owned();
    let (host, port) = tcp.map_or((None, 0), |(host, port)| (host, port));
    [
        ("maxbytes", database_figure(shared, "limit_bytes")),
        ("maxconns", shared.live.connections_max().to_string()),
        ("tcpport", port.to_string()),
        ("udpport", "0".to_owned()),
        ("inter", host.unwrap_or_else(null)),
        ("verbosity", "0".to_owned()),
        ("domain_socket", unix.unwrap_or_else(null)),
        ("shutdown_command", on_off(config.shutdown_command)),
        ("num_threads", shared.loads.len().to_string()),
        ("detail_enabled", on_off(false)),
        ("cas_enabled", on_off(true)),
        ("auth_enabled_sasl", on_off(shared.users.is_some())),
        ("item_size_max", config.request_bytes_max.to_string()),
        ("dump_enabled", on_off(true)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// Returns the statistics of size classes. All records are of one class.
fn items(shared: &Shared) -> Figures {
    let records = shared.served.database.len();
    if records == 0 {
        return Figures::new();
    }
    pairs(&[
        ("items:1:number", &records.to_string()),
        ("items:1:mem_requested", &shared.served.database.size_bytes().to_string()),
        ("items:1:evicted", &database_figure(shared, "evicted")),
    ])
}

/// Returns the process's TCP connections and listeners, as listed by the system.
fn connections(shared: &Shared) -> Figures {
    let mut figures = Figures::new();
    for socket in crate::admin::tcp_sockets::list() {
        let number = socket.descriptor;
        let (local, remote) = (socket.local, socket.remote);
        match remote {
            None => {
                figures.push((format!("{number}:addr"), format!("tcp:{local}")));
                figures.push((format!("{number}:state"), "conn_listening".to_owned()));
            }
            Some(remote) => {
                figures.push((format!("{number}:addr"), format!("tcp:{remote}")));
                figures.push((format!("{number}:listen_addr"), format!("tcp:{local}")));
                figures.push((format!("{number}:state"), "conn_read".to_owned()));
            }
        }
    }
    figures.truncate(3 * shared.live.connections_max());
    figures
}

/// Executes `stats detail`. Prefixes of keys have no statistics, so the list is empty.
fn detail(rest: &[u8], output: &mut Vec<u8>) {
    match rest.trim_ascii() {
        b"on" | b"off" => output.extend_from_slice(reply::OK),
        b"dump" => output.extend_from_slice(reply::END),
        _ => reply::client_error(output, "usage: stats detail on|off|dump"),
    }
}

/// Executes `stats cachedump`. Its arguments are a class, which is 1 for all records, and the most
/// records, where 0 is any number.
fn cache_dump(context: &mut Context<'_>, rest: &[u8], output: &mut Vec<u8>) -> Result<(), Halt> {
    let text = String::from_utf8_lossy(rest);
    let numbers: Vec<Option<u64>> =
        text.split_ascii_whitespace().map(|token| token.parse().ok()).collect();
    let (class, most) = match numbers[..] {
        [Some(class), Some(most), ..] => (class, most),
        [_, _, ..] => {
            reply::client_error(output, "bad command line format");
            return Ok(());
        }
        _ => {
            reply::client_error(output, "bad command line");
            return Ok(());
        }
    };
    if class == 1 {
        let start = output.len();
        let left = if most == 0 { u64::MAX } else { most };
        let mut dump = CacheDump { output: &mut *output, start, left };
        if let Err(error) = context.execute(&Operation::Records, &mut dump)? {
            output.truncate(start);
            failure(output, &error);
            return Ok(());
        }
    }
    output.extend_from_slice(reply::END);
    Ok(())
}

/// Encoder of a list of records without their values.
struct CacheDump<'r> {
    output: &'r mut Vec<u8>,
    start: usize,
    /// Number of further records.
    left: u64,
}

impl Reply for CacheDump<'_> {
    fn shows_values(&self) -> bool {
        false
    }

    fn is_full(&self) -> bool {
        self.left == 0 || self.output.len() - self.start > CACHE_DUMP_BYTES_MAX
    }

    fn record(&mut self, key: &[u8], entry: &RecordRef<'_>) {
        let exp = expiry::unix_seconds(entry.meta.expires_at_ms).unwrap_or(0);
        self.output.extend_from_slice(b"ITEM ");
        self.output.extend_from_slice(key);
        let text = format!(" [{} b; {exp} s]\r\n", entry.value.len());
        self.output.extend_from_slice(text.as_bytes());
        self.left -= 1;
    }
}
