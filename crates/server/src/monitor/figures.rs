//! Figures: what the dashboard of the console shows, and their last hour.
//!
//! Thread model: one thread takes the metrics of each database every [`TICK`]. It keeps the last
//! [`READINGS`] of them, to which a request compares the present ones, and of each figure that is
//! drawn one number per tick: [`HISTORY_BYTES`] for a database, however many pages are open.

use super::State;
use crate::admin::attention::{Matter, matters};
use crate::admin::metrics::{Metric, Samples, collect, collect_process};
use crate::admin::server_stats::{VERSION, seconds_since_1970};
use crate::shared::Shared;
use crate::shared::slow_log::SlowRequest;
use serde_json::{Value as Json, json};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time between two numbers of the history.
pub(super) const TICK: Duration = Duration::from_secs(5);

/// Numbers of each figure that are kept: those of an hour.
const TICKS_MAX: usize = 720;

/// Readings that are kept, for rates and for quantiles.
const READINGS: usize = 3;

/// Shortest time over which a rate is taken.
const RATE_MIN: Duration = Duration::from_secs(1);

/// Shortest time over which a quantile or a ratio is taken, if the server is as old.
const WIDE_MIN: Duration = Duration::from_secs(9);

/// Figures that are drawn.
const DRAWN: [&str; 21] = [
    "reads",
    "writes",
    "others",
    "received",
    "sent",
    "syncs",
    "calls",
    "read50",
    "read99",
    "read999",
    "write50",
    "write99",
    "write999",
    "hits",
    "records",
    "connections",
    "resident",
    "size",
    "dead",
    "replicaLag",
    "masterLag",
];

/// Bytes of the history of a database.
const HISTORY_BYTES: usize = DRAWN.len() * TICKS_MAX * size_of::<f32>();

const _: () = assert!(HISTORY_BYTES <= 64 << 10);

/// Most commands and slow requests of a response.
const ROWS_MAX: usize = 20;

/// The metrics of a database at a moment.
struct Reading {
    at: Instant,
    samples: Samples,
}

impl Reading {
    fn now(shared: &Shared) -> Self {
        let mut samples = Samples::new();
        collect_process(&mut samples);
        collect(shared, "", &mut samples);
        Self { at: Instant::now(), samples }
    }
}

/// The past of a database.
#[derive(Default)]
pub(super) struct Past {
    /// The newest one first.
    readings: VecDeque<Reading>,
    /// Numbers of the figures, of which those that are missing are not a number.
    ticks: VecDeque<[f32; DRAWN.len()]>,
    /// Number of the ticks since the start.
    ticks_made: u64,
}

impl Past {
    /// Adds the present metrics.
    fn add(&mut self, now: Reading) {
        if let Some(figures) = self.figures(&now) {
            let number = |name: &str| figures.get(name).and_then(Json::as_f64);
            if self.ticks.len() == TICKS_MAX {
                self.ticks.pop_front();
            }
            let tick = DRAWN.map(|name| number(name).map_or(f32::NAN, |value| value as f32));
            self.ticks.push_back(tick);
            self.ticks_made += 1;
        }
        self.readings.truncate(READINGS - 1);
        self.readings.push_front(now);
    }

    /// Returns the reading to which rates are taken, and that for quantiles.
    fn earlier(&self, now: &Reading) -> Option<(&Reading, &Reading)> {
        let older = |least| {
            let is_older = |one: &&Reading| now.at.saturating_duration_since(one.at) >= least;
            self.readings.iter().find(is_older)
        };
        let last = older(RATE_MIN)?;
        Some((last, older(WIDE_MIN).or(self.readings.back())?))
    }

    /// Returns the figures of the present metrics, if there are earlier ones.
    fn figures(&self, now: &Reading) -> Option<serde_json::Map<String, Json>> {
        let (last, wide) = self.earlier(now)?;
        Some(figures(now, last, wide))
    }

    /// Returns the numbers of each drawn figure from tick `from` on.
    fn drawn(&self, from: u64) -> Json {
        let first = self.ticks_made - self.ticks.len() as u64;
        let skipped = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let of = |(place, name): (usize, &&str)| {
            let numbers = self.ticks.iter().skip(skipped).map(|tick| rounded(tick[place].into()));
            ((*name).to_owned(), Json::from(numbers.collect::<Vec<Json>>()))
        };
        Json::Object(DRAWN.iter().enumerate().map(of).collect())
    }
}

/// Returns a number with four digits, which is enough for a line, or null.
fn rounded(value: f64) -> Json {
    format!("{value:.3e}").parse::<f64>().ok().filter(|value| value.is_finite()).into()
}

/// Takes the metrics of all databases.
pub(super) fn tick(state: &State) {
    for (name, handle) in state.servers.read().iter() {
        if let Some(now) = handle.with_shared(Reading::now) {
            state.past.lock().entry(name.clone()).or_default().add(now);
        }
    }
}

/// Returns the figures of the chosen database or else of the first one, its history from tick
/// `from` on, and what is to be known of all.
pub(super) fn response(state: &State, chosen: impl Fn(&str) -> bool, from: u64) -> Json {
    // It takes the lock, too.
    let reasons = state.unready();
    let servers = state.servers.read();
    let names: Vec<&str> = servers.iter().map(|(name, _)| name.as_str()).collect();
    let mut attention = Vec::new();
    for (name, handle) in servers.iter() {
        let found = handle.with_shared(matters).unwrap_or_default();
        attention.extend(found.into_iter().map(|Matter { is_urgent, text }| {
            json!([is_urgent, if names.len() > 1 { format!("{name}: {text}") } else { text }])
        }));
    }
    let mut found = json!({
        "version": VERSION, "started": state.started_s, "time": seconds_since_1970(),
        "tick": TICK.as_secs(), "databases": names, "reasons": reasons,
        "attention": attention,
    });
    let one = servers.iter().find(|(name, _)| chosen(name)).or_else(|| servers.first());
    let Some((name, handle)) = one else { return found };
    let read = |shared: &Shared| {
        let slow = shared.slow_log.last();
        let slow: Vec<Json> = slow.iter().take(ROWS_MAX).map(SlowRequest::row).collect();
        (Reading::now(shared), slow)
    };
    let Some((now, slow)) = handle.with_shared(read) else { return found };
    let mut all = state.past.lock();
    let past = all.entry(name.clone()).or_default();
    let more = [
        ("database", json!(name)),
        ("slow", slow.into()),
        ("figures", past.figures(&now).into()),
        ("commands", commands(&now, past.earlier(&now).map(|(last, _)| last))),
        ("ticks", past.ticks_made.into()),
        ("history", past.drawn(from)),
        ("disks", disks(&now.samples)),
        ("replicas", rows(&now.samples, Metric::ReplicaLagSeconds, "replica")),
        ("masters", rows(&now.samples, Metric::LagSeconds, "master")),
        ("nodes", rows(&now.samples, Metric::StoreNodes, "state")),
    ];
    for (name, value) in more {
        found[name] = value;
    }
    if past.readings.is_empty() {
        past.add(now);
    }
    found
}

/// Returns the figures: rates since `last`, quantiles and ratios since `wide`. One that the server
/// does not have is left out.
fn figures(now: &Reading, last: &Reading, wide: &Reading) -> serde_json::Map<String, Json> {
    let seconds = now.at.saturating_duration_since(last.at).as_secs_f64();
    let value = |metric, label: &str| now.samples.sum(metric, label);
    let growth = |since: &Reading, metric, label: &str| {
        let before = since.samples.sum(metric, label).unwrap_or(0.0);
        value(metric, label).map(|now| (now - before).max(0.0))
    };
    let rate = |metric, label: &str| growth(last, metric, label).map(|growth| growth / seconds);
    let ratio = |part: (Metric, &str), whole: (Metric, &str)| {
        let whole = growth(wide, whole.0, whole.1).filter(|whole| *whole > 0.0);
        Some(growth(wide, part.0, part.1)? / whole?)
    };
    let part = |part, whole| Some(value(part, "")? / value(whole, "").filter(|all| *all > 0.0)?);
    let times = |metric, label: &str| {
        let before = wide.samples.histogram(metric, label);
        now.samples.histogram(metric, label).without(&before)
    };
    let requests = |label: &str| {
        let before = last.samples.histogram(Metric::RequestDuration, label).count();
        let now = now.samples.histogram(Metric::RequestDuration, label).count();
        now.saturating_sub(before) as f64 / seconds
    };
    let (reads, writes) = (requests("class=\"read\""), requests("class=\"write\""));
    let read = times(Metric::RequestDuration, "class=\"read\"");
    let write = times(Metric::RequestDuration, "class=\"write\"");
    let wait = times(Metric::AcknowledgementWait, "");
    let most = |metric| now.samples.rows(metric, "").map(|(_, value)| value).reduce(f64::max);
    let least = |metric| now.samples.rows(metric, "").map(|(_, value)| value).reduce(f64::min);
    let all = [
        ("reads", Some(reads)),
        ("writes", Some(writes)),
        ("others", Some((requests("") - reads - writes).max(0.0))),
        ("refused", rate(Metric::RequestsRefused, "")),
        ("read50", read.quantile(0.5)),
        ("read99", read.quantile(0.99)),
        ("read999", read.quantile(0.999)),
        ("write50", write.quantile(0.5)),
        ("write99", write.quantile(0.99)),
        ("write999", write.quantile(0.999)),
        ("hits", ratio((Metric::Lookups, "result=\"hit\""), (Metric::Lookups, ""))),
        ("connections", value(Metric::Connections, "")),
        ("connectionsMax", value(Metric::ConnectionsMax, "")),
        ("accepted", rate(Metric::ConnectionsAccepted, "")),
        ("rejected", value(Metric::ConnectionsRejected, "")),
        ("busy", most(Metric::LoopBusy)),
        ("received", rate(Metric::ReceivedBytes, "")),
        ("sent", rate(Metric::SentBytes, "")),
        ("cpu", rate(Metric::ProcessCpu, "")),
        ("resident", value(Metric::ProcessResident, "")),
        ("index", value(Metric::MemoryBytes, "owner=\"index\"")),
        ("indexMax", value(Metric::MemoryBytesMax, "owner=\"index\"")),
        ("cache", value(Metric::MemoryBytes, "owner=\"cache\"")),
        ("cacheMax", value(Metric::MemoryBytesMax, "owner=\"cache\"")),
        ("buffers", value(Metric::MemoryBytes, "owner=\"buffers\"")),
        ("buffersMax", value(Metric::MemoryBytesMax, "owner=\"buffers\"")),
        ("records", value(Metric::Records, "")),
        ("evicted", rate(Metric::Evictions, "")),
        ("expired", rate(Metric::Expirations, "")),
        ("size", value(Metric::DatabaseBytes, "")),
        ("sizeMax", value(Metric::DatabaseBytesMax, "")),
        ("dead", part(Metric::LogDeadBytes, Metric::LogBytes)),
        ("segments", value(Metric::LogSegments, "")),
        ("compacted", rate(Metric::CompactedBytes, "")),
        ("cold", rate(Metric::ColdReads, "")),
        ("syncs", rate(Metric::Syncs, "")),
        ("sync", ratio((Metric::SyncSeconds, ""), (Metric::Syncs, ""))),
        ("wait99", wait.quantile(0.99)),
        ("replicaLag", most(Metric::ReplicaLagSeconds)),
        ("masterLag", most(Metric::LagSeconds)),
        ("certificateEnd", least(Metric::CertificateEnd)),
        ("handshakes", rate(Metric::TlsHandshakes, "result=\"success\"")),
        ("loginsFailed", value(Metric::Logins, "result=\"failure\"")),
        ("loginsRefused", value(Metric::Logins, "result=\"refused\"")),
        ("calls", rate(Metric::ScriptCalls, "")),
        ("callFailures", value(Metric::ScriptFailures, "")),
        ("call", ratio((Metric::ScriptSeconds, ""), (Metric::ScriptCalls, ""))),
        ("scriptMemory", value(Metric::ScriptMemory, "")),
        ("scriptMemoryMax", value(Metric::ScriptMemoryTotal, "")),
    ];
    let known = all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
    known.collect()
}

/// Returns the commands in use, the most frequent first: name, protocol, rate and total.
fn commands(now: &Reading, last: Option<&Reading>) -> Json {
    let of = |samples: &Samples| -> Vec<(String, f64)> {
        samples
            .rows(Metric::Requests, "")
            .map(|(labels, value)| (labels.to_owned(), value))
            .collect()
    };
    // Both have the same kinds in the same order.
    let before = last.map(|last| of(&last.samples)).unwrap_or_default();
    let seconds = last.map_or(1.0, |last| now.at.saturating_duration_since(last.at).as_secs_f64());
    let rows = of(&now.samples).into_iter().enumerate().filter(|(_, (_, total))| *total > 0.0);
    let mut rows: Vec<(f64, f64, String)> = rows
        .map(|(place, (labels, total))| {
            let grown = before.get(place).map_or(0.0, |(_, before)| (total - before).max(0.0));
            (grown / seconds, total, labels)
        })
        .collect();
    rows.sort_by(|one, other| {
        (other.0, other.1).partial_cmp(&(one.0, one.1)).unwrap_or(Ordering::Equal)
    });
    let rows = rows.into_iter().take(ROWS_MAX).map(|(rate, total, labels)| {
        json!([label(&labels, "command"), label(&labels, "protocol"), rate, total])
    });
    rows.collect::<Vec<_>>().into()
}

/// Returns the disks with files of the server: their kind, what is free, and which share is used.
fn disks(samples: &Samples) -> Json {
    let disk = |(labels, free): (&str, f64)| {
        let files = label(labels, "files").replace('_', " ");
        let bytes = samples.sum(Metric::DiskBytes, labels).filter(|bytes| *bytes > 0.0);
        json!([files, free, bytes.map_or(0.0, |bytes| 1.0 - free / bytes)])
    };
    samples.rows(Metric::DiskFreeBytes, "").map(disk).collect::<Vec<_>>().into()
}

/// Returns the samples of a family: the value of a label, and the number.
fn rows(samples: &Samples, metric: Metric, name: &str) -> Json {
    let row = |(labels, value): (&str, f64)| json!([label(labels, name), value]);
    samples.rows(metric, "").map(row).collect::<Vec<_>>().into()
}

/// Returns the value of a label, whose characters need no escapes.
fn label<'l>(labels: &'l str, name: &str) -> &'l str {
    let value = labels.split(',').find_map(|one| one.strip_prefix(name)?.strip_prefix("=\""));
    value.map_or("", |value| value.trim_end_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a reading some seconds after `start`.
    fn reading(start: Instant, seconds: u64, requests: f64) -> Reading {
        let mut samples = Samples::new();
        samples.add(Metric::Records, &["a\"b"], 7.0);
        samples.add(Metric::ReceivedBytes, &["a\"b"], 100.0 * requests);
        for (result, part) in [("hit", 0.75), ("miss", 0.25)] {
            samples.add(Metric::Lookups, &["a\"b", result], requests * part);
        }
        samples.add(Metric::Requests, &["a\"b", "redis", "get"], requests);
        samples.add(Metric::DiskFreeBytes, &["a\"b", "update_log"], 25.0);
        samples.add(Metric::DiskBytes, &["a\"b", "update_log"], 100.0);
        Reading { at: start + Duration::from_secs(seconds), samples }
    }

    #[test]
    fn rates_are_of_a_second_at_least_and_ratios_of_ten() {
        let (start, mut past) = (Instant::now(), Past::default());
        assert!(past.figures(&reading(start, 0, 0.0)).is_none());
        past.add(reading(start, 0, 0.0));
        past.add(reading(start, 5, 100.0));
        past.add(reading(start, 10, 200.0));
        let now = reading(start, 11, 300.0);
        let figures = past.figures(&now).expect("figures");
        assert_eq!(figures["received"], 10_000.0);
        assert_eq!((&figures["hits"], &figures["records"]), (&json!(0.75), &json!(7.0)));
        assert!(!figures.contains_key("size"), "{figures:?}");
        let last = past.earlier(&now).map(|(last, _)| last);
        assert_eq!(commands(&now, last), json!([["get", "redis", 100.0, 300.0]]));
        assert_eq!(disks(&now.samples), json!([["update log", 25.0, 0.75]]));
    }

    #[test]
    fn an_hour_is_kept_and_only_what_is_new_is_sent() {
        let (start, mut past) = (Instant::now(), Past::default());
        for tick in 0..TICKS_MAX as u64 + 11 {
            past.add(reading(start, 5 * tick, tick as f64));
        }
        assert_eq!(past.ticks_made, TICKS_MAX as u64 + 10);
        assert_eq!((past.ticks.len(), past.readings.len()), (TICKS_MAX, READINGS));
        let lengths = |from| {
            let drawn = past.drawn(from);
            (drawn["received"].as_array().map(Vec::len), drawn["size"].as_array().map(Vec::len))
        };
        assert_eq!(lengths(0), (Some(TICKS_MAX), Some(TICKS_MAX)));
        assert_eq!(lengths(past.ticks_made - 2), (Some(2), Some(2)));
        assert_eq!(lengths(past.ticks_made + 2), (Some(0), Some(0)));
        let drawn = past.drawn(past.ticks_made - 1);
        assert_eq!((&drawn["received"], &drawn["size"]), (&json!([20.0]), &json!([null])));
    }
}
