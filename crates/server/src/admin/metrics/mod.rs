//! Metrics: collects the state of a server as samples of [`families`].
//!
//! Thread model: a thread that is no event loop collects. It adds up the counters of all threads,
//! which none of them waits for.

mod exposition;
mod families;

pub(crate) use exposition::{Format, Samples};
pub(crate) use families::Metric;

use super::server_stats::{Process, VERSION};
use crate::counters::{Count, SLOTS, Shown, labels_of};
use crate::ops::remote::StoreStatus;
use crate::shared::{ScriptFigures, Shared};
use std::sync::Weak;
use std::time::{Instant, UNIX_EPOCH};
use wire::RequestKind;

/// Metrics of single counts, with the values of the labels after the database.
const COUNTS: &[(Metric, Count, &[&str])] = &[
    (Metric::Lookups, Count::GetMiss, &["miss"]),
    (Metric::RequestsRefused, Count::Refused, &[]),
    (Metric::RequestsDenied, Count::DeniedByMask, &["mask"]),
    (Metric::RequestsDenied, Count::DeniedByRight, &["right"]),
    (Metric::RequestsDenied, Count::DeniedReadOnly, &["read_only"]),
    (Metric::RequestsDenied, Count::DeniedUnavailable, &["unavailable"]),
    (Metric::RequestsDenied, Count::DeniedNoSpace, &["no_space"]),
    (Metric::RequestsPooled, Count::Pooled, &[]),
    (Metric::RequestsAwaitingReads, Count::AwaitedReads, &[]),
    (Metric::ReceivedBytes, Count::BytesRead, &[]),
    (Metric::SentBytes, Count::BytesWritten, &[]),
    (Metric::ConnectionsAccepted, Count::Accepted, &[]),
    (Metric::ConnectionsRejected, Count::Rejected, &[]),
    (Metric::ConnectionsTimedOut, Count::TimedOut, &[]),
    (Metric::TlsHandshakes, Count::TlsHandshake, &["success"]),
    (Metric::TlsHandshakes, Count::TlsFailure, &["failure"]),
    (Metric::Logins, Count::AuthenticationError, &["failure"]),
    (Metric::Logins, Count::LoginTooSoon, &["refused"]),
];

/// Metrics of figures of the database, by their names, with the values of the labels after the
/// database and the factor from the unit of the figure.
const FIGURES: &[(&str, Metric, &[&str], f64)] = &[
    ("limit_bytes", Metric::DatabaseBytesMax, &[], 1.0),
    ("evicted", Metric::Evictions, &[], 1.0),
    ("expired_reads", Metric::Expirations, &["read"], 1.0),
    ("expired_removed", Metric::Expirations, &["search"], 1.0),
    ("cold_reads", Metric::ColdReads, &[], 1.0),
    ("index_bytes", Metric::MemoryBytes, &["index"], 1.0),
    ("index_budget_bytes", Metric::MemoryBytesMax, &["index"], 1.0),
    ("directory_bytes", Metric::MemoryBytes, &["directory"], 1.0),
    ("cache_bytes", Metric::MemoryBytes, &["cache"], 1.0),
    ("cache_budget_bytes", Metric::MemoryBytesMax, &["cache"], 1.0),
    ("log_bytes", Metric::LogBytes, &[], 1.0),
    ("dead_bytes", Metric::LogDeadBytes, &[], 1.0),
    ("segments", Metric::LogSegments, &[], 1.0),
    ("syncs", Metric::Syncs, &[], 1.0),
    ("sync_us", Metric::SyncSeconds, &[], 1e-6),
    ("checkpoints", Metric::Checkpoints, &[], 1.0),
    ("checkpoint_us", Metric::CheckpointSeconds, &[], 1e-6),
    ("compactions", Metric::Compactions, &[], 1.0),
    ("compaction_us", Metric::CompactionSeconds, &[], 1e-6),
    ("compacted_bytes", Metric::CompactedBytes, &[], 1.0),
    ("moved_bytes", Metric::MovedBytes, &[], 1.0),
    ("damages", Metric::Damages, &[], 1.0),
    ("damaged_segments", Metric::DamagedSegments, &[], 1.0),
    ("damaged_records", Metric::DamagedReads, &[], 1.0),
    ("index_damaged_pages", Metric::IndexDamagedPages, &[], 1.0),
    ("index_mended_pages", Metric::IndexMendedPages, &[], 1.0),
    ("index_lost_records", Metric::IndexLostRecords, &[], 1.0),
];

/// Adds the samples of the process.
pub(crate) fn collect_process(samples: &mut Samples) {
    let process = Process::now();
    samples.add(Metric::BuildInfo, &[VERSION], 1.0);
    samples.add(Metric::ProcessStart, &[], process.started_s);
    samples.add(Metric::ProcessCpu, &[], process.user_seconds + process.system_seconds);
    samples.add(Metric::ProcessResident, &[], process.resident_bytes as f64);
    samples.add(Metric::ProcessVirtual, &[], process.virtual_bytes as f64);
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        // The folder itself is one of them while it is read.
        samples.add(Metric::ProcessFiles, &[], files.count().saturating_sub(1) as f64);
    }
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    samples.add(Metric::ProcessFilesMax, &[], files.map_or(f64::INFINITY, |files| files as f64));
}

/// Adds the samples of a server. `name` is that of its database.
pub(crate) fn collect(shared: &Shared, name: &str, samples: &mut Samples) {
    let total = |count| shared.counters.total(count);
    let with = |more: &[&'static str]| -> Vec<&str> { [&[name], more].concat() };
    let mut add = |metric, more: &[&'static str], value: f64| {
        samples.add(metric, &with(more), value);
    };
    let hits = total(Count::Get).saturating_sub(total(Count::GetMiss));
    add(Metric::Lookups, &["hit"], Shown::risen(&shared.counters.shown.hits, hits) as f64);
    for (metric, count, more) in COUNTS {
        add(*metric, more, total(*count) as f64);
    }
    let failed = total(Count::AuthenticationError) + total(Count::LoginTooSoon);
    let logins = total(Count::Authentication).saturating_sub(failed);
    add(Metric::Logins, &["success"], Shown::risen(&shared.counters.shown.logins, logins) as f64);
    add(Metric::Connections, &[], shared.connections() as f64);
    add(Metric::ConnectionsMax, &[], shared.live.connections_max() as f64);

    let served = &shared.served;
    if shared.remote.is_none() {
        add(Metric::Records, &[], served.database.len() as f64);
        add(Metric::DatabaseBytes, &[], served.database.size_bytes() as f64);
    }
    add(Metric::MemoryBytes, &["buffers"], served.budget.used_bytes() as f64);
    add(Metric::MemoryBytesMax, &["buffers"], shared.config.buffer_bytes_max as f64);
    add(Metric::SpoolBytes, &[], served.spool_budget.used_bytes() as f64);
    let figures = served.database.stats();
    for (figure, text) in &figures {
        if let Some((_, metric, more, factor)) = FIGURES.iter().find(|(name, ..)| name == figure)
            && let Ok(value) = text.parse::<f64>()
        {
            add(*metric, more, value * factor);
        }
    }
    let is_writable = served.gate.pass().is_ok() && write_refusal(shared).is_none();
    add(Metric::Writable, &[], f64::from(u8::from(is_writable)));
    let (scrubs, damages) = shared.scrub.totals();
    add(Metric::Scrubs, &[], scrubs as f64);
    add(Metric::ScrubDamages, &[], damages as f64);

    let now_ms = shared.milliseconds_at(Instant::now());
    for (number, load) in shared.loads.iter().enumerate() {
        let busy = f64::from(load.busy_percent(now_ms)) / 100.0;
        samples.add(Metric::LoopBusy, &[name, &number.to_string()], busy);
    }
    for kind in RequestKind::all() {
        let labels = [name, kind.protocol(), kind.command()];
        samples.add(Metric::Requests, &labels, shared.counters.requests(kind) as f64);
    }
    for slot in 0..SLOTS {
        let times = shared.counters.histogram(|own| &own.durations[slot]);
        // Most servers serve one or two protocols.
        if times.count() > 0 {
            let (protocol, class) = labels_of(slot);
            samples.add_histogram(Metric::RequestDuration, &[name, protocol, class], times);
        }
    }
    let (slow, lost) = shared.slow_log.totals();
    samples.add(Metric::SlowRequests, &[name], slow as f64);
    samples.add(Metric::SlowRequestsLost, &[name], lost as f64);
    let waits = shared.counters.histogram(|own| &own.acknowledgement);
    samples.add_histogram(Metric::AcknowledgementWait, &[name], waits);
    collect_warnings(shared, name, samples);
    collect_replication(shared, name, samples);
    if let Some(remote) = &shared.remote {
        samples.add(Metric::StoreRequests, &[name], remote.in_flight() as f64);
        collect_store(&remote.store.status(), name, samples);
    }
    if let Some(scripts) = shared.scripts.get().and_then(Weak::upgrade) {
        collect_scripts(&scripts.figures(), name, samples);
    }
}

fn collect_warnings(shared: &Shared, name: &str, samples: &mut Samples) {
    let found = shared.warnings.found();
    samples.add(Metric::Warnings, &[name], found.warnings.len() as f64);
    for disk in &found.disks {
        samples.add(Metric::DiskFreeBytes, &[name, disk.files], disk.free_bytes as f64);
        samples.add(Metric::DiskBytes, &[name, disk.files], disk.bytes as f64);
    }
    let end = found.certificate_end.and_then(|end| end.duration_since(UNIX_EPOCH).ok());
    if let Some(end) = end {
        samples.add(Metric::CertificateEnd, &[name], end.as_secs_f64());
    }
}

fn collect_replication(shared: &Shared, name: &str, samples: &mut Samples) {
    let replication = &shared.replication;
    samples.add(Metric::Replicas, &[name], replication.replicas() as f64);
    samples.add(Metric::ReplicasDisconnected, &[name], replication.lost().len() as f64);
    for (id, lag) in replication.lags() {
        let labels = [name, &id.to_string()];
        samples.add(Metric::ReplicaLagOperations, &labels, lag.operations as f64);
        samples.add(Metric::ReplicaLagBytes, &labels, lag.bytes as f64);
        samples.add(Metric::ReplicaLagSeconds, &labels, lag.seconds);
    }
    if let Some((master, follower)) = replication.followed() {
        let labels = [name, &master.to_string()];
        let is_following = follower.state() == "following";
        samples.add(Metric::Following, &labels, f64::from(u8::from(is_following)));
        if let Some(seconds) = follower.lag_seconds() {
            samples.add(Metric::LagSeconds, &labels, seconds);
        }
        if let Some(operations) = follower.lag_operations() {
            samples.add(Metric::LagOperations, &labels, operations as f64);
        }
    }
}

fn collect_store(status: &StoreStatus, name: &str, samples: &mut Samples) {
    let unconnected = status.nodes.saturating_sub(status.nodes_connected);
    samples.add(Metric::StoreNodes, &[name, "connected"], status.nodes_connected as f64);
    samples.add(Metric::StoreNodes, &[name, "unconnected"], unconnected as f64);
    for (result, count) in
        [("executed", status.statements), ("refused", status.refused), ("unknown", status.unknown)]
    {
        samples.add(Metric::StoreStatements, &[name, result], count as f64);
    }
    samples.add(Metric::StoreConflicts, &[name], status.conflicts as f64);
    samples.add(Metric::StoreFolded, &[name], status.folded as f64);
}

fn collect_scripts(scripts: &ScriptFigures, name: &str, samples: &mut Samples) {
    samples.add(Metric::ScriptThreads, &[name], scripts.threads as f64);
    samples.add(Metric::ScriptThreadsBusy, &[name], scripts.busy as f64);
    samples.add(Metric::ScriptQueue, &[name], scripts.queued as f64);
    samples.add(Metric::ScriptMemory, &[name], scripts.memory.used_bytes as f64);
    samples.add(Metric::ScriptMemoryTotal, &[name], scripts.memory.max_bytes as f64);
    for function in &scripts.functions {
        let labels = [name, &function.name];
        samples.add(Metric::ScriptCalls, &labels, function.calls as f64);
        samples.add(Metric::ScriptFailures, &labels, function.failures as f64);
        samples.add(Metric::ScriptSeconds, &labels, function.time.as_secs_f64());
    }
}

/// Returns why the disk refuses changes at present, if it does.
pub(crate) fn write_refusal(shared: &Shared) -> Option<String> {
    let log = shared.served.update_log.as_ref();
    log.and_then(|log| log.refusal()).or_else(|| {
        let figures = shared.served.database.stats();
        figures.into_iter().find(|(name, _)| *name == "write_refusal").map(|(_, why)| why)
    })
}

/// Returns names, types, labels and meanings of all families.
pub(crate) fn families() -> impl Iterator<Item = [String; 4]> {
    Metric::ALL.iter().map(|family| {
        let labels = family.labels.join(", ");
        [family.name.into(), family.kind.name().into(), labels, family.help().into()]
    })
}
