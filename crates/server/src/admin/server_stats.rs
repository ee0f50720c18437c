//! Server stats: names and values that each protocol shows in its own form.

use super::attention;
use super::metrics::{Format, Samples, collect, collect_process};
use crate::Dialect;
use crate::counters::Count;
use crate::shared::{ScriptFigures, Shared};
use cabinet::name::Kind;
use std::fmt::Write;
use std::sync::Weak;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Version of the server.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Version for memcached clients. memcached's version comes first, because some clients infer the
/// supported commands from its first numbers.
const MEMCACHED_VERSION: &str = concat!("1.6.45-tyrant-", env!("CARGO_PKG_VERSION"));

/// Version of Tokyo Tyrant's library whose behaviour clients find here.
const LIBRARY_VERSION: &str = "324";

/// Version of the binary protocol.
const PROTOCOL_VERSION: &str = "0.91";

/// Index of the first count that Tokyo Tyrant does not have.
const FURTHER_COUNTS: usize = Count::Touch as usize;

/// Returns the version for clients of the memcached protocols.
pub(crate) fn memcached_version(shared: &Shared) -> &'static str {
    match shared.config.dialect {
        Dialect::Memcached => MEMCACHED_VERSION,
        Dialect::TokyoTyrant => VERSION,
    }
}

/// Returns the stats that Tokyo Tyrant has too, in its order, without the counts.
pub(crate) fn tokyo_tyrant_stats(shared: &Shared, descriptor: i32) -> Vec<(&'static str, String)> {
    let database = &shared.served.database;
    let path = database.path();
    let kind = shared.served.kind;
    let mut stats = vec![
        ("version", VERSION.to_owned()),
        ("libver", LIBRARY_VERSION.to_owned()),
        ("protver", PROTOCOL_VERSION.to_owned()),
        ("os", "Linux".to_owned()),
        ("time", format!("{:.6}", seconds_since_1970())),
        ("pid", std::process::id().to_string()),
        ("sid", shared.config.server_id.to_string()),
    ];
    match &shared.remote {
        // The number of its records is known to those who count them, and the size to none.
        Some(remote) => stats.push(("path", remote.store.name())),
        None => {
            stats.push(("type", kind.map_or("void", Kind::title).to_owned()));
            if !kind.is_some_and(Kind::is_on_memory) {
                stats.push(("path", path.display().to_string()));
            }
            stats.extend([
                ("rnum", database.len().to_string()),
                ("size", database.size_bytes().to_string()),
            ]);
        }
    }
    let process = Process::now();
    stats.push(("bigend", u8::from(cfg!(target_endian = "big")).to_string()));
    if let Some((master, follower)) = shared.replication.followed() {
        // Tokyo Tyrant's delay without an operation is the time since 1970.
        let delay_seconds = follower.lag_seconds().unwrap_or_else(seconds_since_1970);
        stats.extend([
            ("mhost", master.host),
            ("mport", master.port.to_string()),
            ("rts", follower.executed_us().to_string()),
            ("delay", format!("{delay_seconds:.6}")),
        ]);
    }
    stats.extend([
        ("fd", descriptor.to_string()),
        ("loadavg", format!("{:.6}", process.load_average)),
        ("memsize", process.virtual_bytes.to_string()),
        ("memrss", process.resident_bytes.to_string()),
        ("ru_user", format!("{:.6}", process.user_seconds)),
        ("ru_sys", format!("{:.6}", process.system_seconds)),
        ("ru_real", format!("{:.6}", uptime_seconds(shared))),
    ]);
    stats
}

/// Returns the metrics of the process and of this server, in Prometheus' text format.
pub(crate) fn metrics_text(shared: &Shared) -> String {
    let mut samples = Samples::new();
    collect_process(&mut samples);
    collect(shared, &database_name(shared), &mut samples);
    samples.text(Format::Prometheus)
}

/// Returns the name of the database in texts about it.
fn database_name(shared: &Shared) -> String {
    match &shared.remote {
        Some(remote) => remote.store.name(),
        None => shared.served.database.path().display().to_string(),
    }
}

/// Returns the last slow requests, the last one first, each as an object of JSON.
pub(crate) fn slow_requests(shared: &Shared) -> Vec<String> {
    let database = database_name(shared);
    shared.slow_log.last().iter().map(|slow| slow.json(&database)).collect()
}

/// Returns the name of the HTTP header for a stat.
pub(crate) fn header_name(stat: &str) -> String {
    format!("X-TT-{}", stat.to_ascii_uppercase())
}

/// Returns the text of the binary protocol's `stat`: Tokyo Tyrant's lines, then the further ones.
pub(crate) fn text(shared: &Shared, descriptor: i32) -> String {
    let mut text = String::new();
    for (name, value) in tokyo_tyrant_stats(shared, descriptor) {
        append_line(&mut text, name, &value);
    }
    text.push_str(&count_lines(shared));
    for (name, value) in further_stats(shared, |count| shared.counters.total(count)) {
        append_line(&mut text, &name, &value);
    }
    text
}

/// Returns the lines of the counts that Tokyo Tyrant has too.
pub(crate) fn count_lines(shared: &Shared) -> String {
    let mut text = String::new();
    for count in &Count::ALL[..FURTHER_COUNTS] {
        append_line(&mut text, count.label(), &shared.counters.total(*count).to_string());
    }
    text
}

/// Returns the stats that Tokyo Tyrant does not have. `total` returns the value of a count.
pub(crate) fn further_stats(
    shared: &Shared,
    total: impl Fn(Count) -> u64,
) -> Vec<(String, String)> {
    let now_ms = shared.milliseconds_at(Instant::now());
    let mut stats = vec![
        ("curr_connections".to_owned(), shared.connections().to_string()),
        ("limit_connections".to_owned(), shared.live.connections_max().to_string()),
        ("buffer_bytes".to_owned(), shared.served.budget.used_bytes().to_string()),
        ("spool_bytes".to_owned(), shared.served.spool_budget.used_bytes().to_string()),
        ("slow_requests".to_owned(), shared.slow_log.totals().0.to_string()),
        ("replicas".to_owned(), shared.replication.replicas().to_string()),
    ];
    let found = shared.warnings.found();
    let warnings: Vec<&str> = found.warnings.iter().map(|warning| &*warning.text).collect();
    let warnings = if warnings.is_empty() { "none".to_owned() } else { warnings.join("; ") };
    stats.push(("warnings".to_owned(), warnings));
    stats.push(("attention".to_owned(), attention::line(shared)));
    stats.extend(shared.replication.stats(shared.served.update_log.as_deref()));
    stats.extend(shared.scrub.stats());
    if let Some(scripts) = shared.scripts.get().and_then(Weak::upgrade) {
        stats.extend(script_stats(scripts.figures()));
    }
    for count in &Count::ALL[FURTHER_COUNTS..] {
        stats.push((count.label().to_owned(), total(*count).to_string()));
    }
    for (number, load) in shared.loads.iter().enumerate() {
        let busy = load.busy_percent(now_ms).to_string();
        stats.push((format!("loop_{number}_busy_percent"), busy));
    }
    if shared.remote.is_none() {
        let database = shared.served.database.stats();
        stats.extend(database.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    stats
}

fn script_stats(scripts: ScriptFigures) -> Vec<(String, String)> {
    let mut stats = vec![
        ("script_threads".to_owned(), scripts.threads.to_string()),
        ("script_threads_busy".to_owned(), scripts.busy.to_string()),
        ("script_queue".to_owned(), scripts.queued.to_string()),
        ("script_memory_bytes".to_owned(), scripts.memory.used_bytes.to_string()),
        ("script_memory_total".to_owned(), scripts.memory.max_bytes.to_string()),
    ];
    for function in scripts.functions {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name: String =
            function.name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        stats.push((format!("script_{name}_calls"), function.calls.to_string()));
        stats.push((format!("script_{name}_failures"), function.failures.to_string()));
        stats.push((format!("script_{name}_us"), function.time.as_micros().to_string()));
    }
    stats
}

fn append_line(text: &mut String, name: &str, value: &str) {
    // A line end in a value, such as a strange path, would begin another line.
    let value = value.replace(char::is_control, " ");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{name}\t{value}");
}

pub(crate) fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

pub(crate) fn uptime_seconds(shared: &Shared) -> f64 {
    shared.started.elapsed().as_secs_f64()
}

/// Usage of system resources by this process. Values that the system does not give are 0.
#[derive(Default)]
pub(crate) struct Process {
    /// Average number of runnable processes over 5 minutes.
    load_average: f64,
    pub(crate) virtual_bytes: u64,
    pub(crate) resident_bytes: u64,
    /// Time at which the process started, in seconds since 1970.
    pub(crate) started_s: f64,
    pub(crate) user_seconds: f64,
    pub(crate) system_seconds: f64,
}

impl Process {
    pub(crate) fn now() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let load = read("/proc/loadavg");
        let load_average = load.split(' ').nth(1).and_then(|field| field.parse().ok());
        // Fields are counted after the name of the program, which may contain spaces.
        let stat = read("/proc/self/stat");
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map(|(_, fields)| fields.split_ascii_whitespace().collect())
            .unwrap_or_default();
        let field = |number: usize| -> u64 {
            fields.get(number - 3).and_then(|field| field.parse().ok()).unwrap_or(0)
        };
        let boot = read("/proc/stat");
        let boot = boot.lines().find_map(|line| line.strip_prefix("btime "));
        let booted_s: f64 = boot.and_then(|seconds| seconds.trim().parse().ok()).unwrap_or(0.0);
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        Self {
            load_average: load_average.unwrap_or(0.0),
            virtual_bytes: field(23),
            resident_bytes: field(24) * rustix::param::page_size() as u64,
            started_s: booted_s + field(22) as f64 / ticks_per_second,
            user_seconds: field(14) as f64 / ticks_per_second,
            system_seconds: field(15) as f64 / ticks_per_second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_this_process_is_read() {
        let process = Process::now();
        assert!(process.resident_bytes > 100 << 10);
        assert!(process.virtual_bytes > process.resident_bytes);
        let age_s = seconds_since_1970() - process.started_s;
        // The time of the boot is in whole seconds, and the clock may have been set since.
        assert!((-10.0..86_400.0).contains(&age_s), "{age_s}");
    }

    #[test]
    fn tokyo_tyrants_counts_are_the_first_29() {
        assert_eq!(Count::ALL[FURTHER_COUNTS - 1], Count::GetMiss);
        assert_eq!(Count::ALL.len() - Count::ALL[FURTHER_COUNTS..].len(), 29);
    }
}
