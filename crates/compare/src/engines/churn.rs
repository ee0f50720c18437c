//! Overwriting everything many times while a reader measures its latencies.

use super::stats::Stats;
use super::work::{Bench, FIRST_EDITION, Worker};
use crate::folder;
use crate::random::Permutation;
use crate::records::Records;
use crate::stores::{self, Purpose};
use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest latency recorded, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Measurements of the files per pass over the records.
const LOOKS_A_PASS: u64 = 8;

/// Amount and rate of overwriting.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Times that all records are overwritten.
    pub passes: u64,
    /// Most overwrites per second; 0 has no limit.
    pub per_second: u64,
}

/// Child: a new database with all records; a reader alone for `quiet`, then with a writer that
/// overwrites all records at `pace`, each time in another random order.
pub fn churn(
    name: &str,
    folder: &Path,
    purpose: &Purpose,
    pace: Pace,
    quiet: Duration,
) -> Result<Stats> {
    // The handle is shared by a writer and a reader.
    let purpose = Purpose { threads: 2, ..*purpose };
    let records = Records::new();
    let store = stores::open(name, folder, &purpose)?;
    let bench = Bench { store: &*store, records: &records, purpose };
    let mut stats = Stats::default();
    bench.put_all(&mut Stats::default())?;

    let mut reader = Worker::new(&*store, &records, &purpose, 1)?;
    let end = Instant::now() + quiet;
    set_latencies(&mut stats, "quiet", &read(&mut reader, &purpose, || Instant::now() >= end)?);
    drop(reader);

    let done = AtomicBool::new(false);
    let start = Instant::now();
    let (latencies, peak) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut reader = Worker::new(&*store, &records, &purpose, 2)?;
            read(&mut reader, &purpose, || done.load(Ordering::Relaxed))
        });
        let peak = Worker::new(&*store, &records, &purpose, 3)
            .and_then(|mut writer| overwrite(&mut writer, &purpose, pace, folder));
        done.store(true, Ordering::Relaxed);
        let latencies = reading.join().map_err(|_| anyhow!("the reader panicked"))??;
        anyhow::Ok((latencies, peak?))
    })?;
    let elapsed = start.elapsed().as_secs_f64();
    stats.set("writes_per_second", (pace.passes * purpose.records) as f64 / elapsed);
    set_latencies(&mut stats, "churn", &latencies);

    let live = purpose.live_bytes() as f64;
    let at_end = folder::usage(folder)?;
    stats.set("disk_peak", peak as f64 / live);
    stats.set("disk_end", at_end.allocated as f64 / live);
    store.close()?;
    stats.set("disk_closed", folder::usage(folder)?.allocated as f64 / live);
    Ok(stats)
}

/// Reads random records and times each, until stopped.
fn read(
    reader: &mut Worker<'_>,
    purpose: &Purpose,
    stop: impl Fn() -> bool,
) -> Result<Histogram<u64>> {
    const READS_BETWEEN_LOOKS: usize = 64;
    let mut latencies = Histogram::new_with_max(LATENCY_NS_MAX, 3)?;
    while !stop() {
        for _ in 0..READS_BETWEEN_LOOKS {
            let number = reader.random.below(purpose.records);
            let start = Instant::now();
            reader.get(number, None)?;
            latencies.saturating_record(start.elapsed().as_nanos() as u64);
        }
    }
    Ok(latencies)
}

/// Overwrites everything. Returns the most bytes of the files meanwhile.
fn overwrite(writer: &mut Worker<'_>, purpose: &Purpose, pace: Pace, folder: &Path) -> Result<u64> {
    const WRITES_BETWEEN_SLEEPS: u64 = 64;
    let (start, mut written, mut peak) = (Instant::now(), 0, 0);
    let between_looks = (purpose.records / LOOKS_A_PASS).max(1);
    for pass in 1..=pace.passes {
        let order = Permutation::new(purpose.records, pass);
        for place in 0..purpose.records {
            writer.put(order.at(place), FIRST_EDITION + pass)?;
            written += 1;
            if pace.per_second > 0 && written % WRITES_BETWEEN_SLEEPS == 0 {
                let due = Duration::from_secs_f64(written as f64 / pace.per_second as f64);
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
            if place % between_looks == 0 {
                peak = peak.max(folder::usage(folder)?.allocated);
            }
        }
    }
    writer.session.finish()?;
    Ok(peak)
}

fn set_latencies(stats: &mut Stats, name: &str, latencies: &Histogram<u64>) {
    for (share_name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999)] {
        let latency = latencies.value_at_quantile(share) as f64 / 1e3;
        stats.set(format!("{name}.{share_name}_us"), latency);
    }
    stats.set(format!("{name}.max_us"), latencies.max() as f64 / 1e3);
}
