//! Durable puts from many clients at once, each waiting for its own.

use super::stats::Stats;
use super::work::{FIRST_EDITION, Worker};
use crate::process;
use crate::records::Records;
use crate::stores::{self, Purpose};
use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest latency recorded, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Child: a new database; `purpose.threads` clients put new records for `duration`, at most
/// `purpose.records` together.
pub fn put(name: &str, folder: &Path, purpose: &Purpose, duration: Duration) -> Result<Stats> {
    let records = Records::new();
    let store = stores::open(name, folder, purpose)?;
    let next = AtomicU64::new(0);
    let (cpu_before, start) = (process::own_cpu_time(), Instant::now());
    let end = start + duration;
    let client = |seed: u64| -> Result<(u64, Histogram<u64>)> {
        let mut worker = Worker::new(&*store, &records, purpose, seed)?;
        let mut latencies = Histogram::new_with_max(LATENCY_NS_MAX, 3)?;
        let mut before = Instant::now();
        let mut done = 0;
        while before < end {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= purpose.records {
                break;
            }
            worker.put(number, FIRST_EDITION)?;
            let now = Instant::now();
            latencies.saturating_record((now - before).as_nanos() as u64);
            before = now;
            done += 1;
        }
        worker.session.finish()?;
        Ok((done, latencies))
    };
    let mut latencies = Histogram::new_with_max(LATENCY_NS_MAX, 3)?;
    let mut operations = 0;
    std::thread::scope(|scope| -> Result<()> {
        let client = &client;
        let clients: Vec<_> =
            (0..purpose.threads as u64).map(|seed| scope.spawn(move || client(seed))).collect();
        for client in clients {
            let (done, own) = client.join().map_err(|_| anyhow!("a client panicked"))??;
            operations += done;
            latencies.add(&own)?;
        }
        Ok(())
    })?;
    let (elapsed, cpu) = (start.elapsed(), process::own_cpu_time() - cpu_before);
    let mut stats = Stats::default();
    stats.set("puts_per_second", operations as f64 / elapsed.as_secs_f64());
    stats.set("cpu_us", cpu.as_secs_f64() * 1e6 / operations as f64);
    for (name, share) in [("p50_us", 0.5), ("p99_us", 0.99)] {
        stats.set(name, latencies.value_at_quantile(share) as f64 / 1e3);
    }
    store.close()?;
    Ok(stats)
}
