//! Slice: one stretch of one workload on one server.

use super::driver::{Driver, Limits, Tally};
use super::server::Server;
use super::workload::{Choice, Source, Space, Workload};
use crate::folder;
use crate::measurement::{Round, finite};
use crate::process;
use crate::random::mix;
use crate::records::Records;
use anyhow::{Result, ensure};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A workload and its number of connections.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name in the tables.
    pub name: String,
    /// The requests.
    pub workload: Workload,
    /// Connections.
    pub connections: usize,
}

/// Length of a slice and number of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Longest time measured.
    pub duration: Duration,
    /// Most operations measured.
    pub operations: u64,
    /// Unmeasured time before.
    pub warm_up: Duration,
    /// Client threads.
    pub threads: usize,
}

/// Result of a slice.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Replies, errors and latencies.
    pub tally: Tally,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// CPU time of the server.
    pub server_cpu: Duration,
    /// CPU time of this load generator.
    pub client_cpu: Duration,
    /// Anonymous memory of the server afterwards, in bytes.
    pub memory_bytes: u64,
    /// Blocks allocated to the server's files afterwards, in bytes.
    pub disk_bytes: u64,
}

impl Measured {
    /// Returns the operations per second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.tally.operations as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the server's CPU microseconds per operation.
    #[must_use]
    pub fn server_us(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / self.tally.operations as f64
    }

    /// Returns the client's CPU microseconds per operation.
    #[must_use]
    pub fn client_us(&self) -> f64 {
        self.client_cpu.as_secs_f64() * 1e6 / self.tally.operations as f64
    }

    /// Returns the numbers as one round of a record.
    #[must_use]
    pub fn round(&self) -> Round {
        Round {
            operations_per_second: finite(self.throughput()),
            p50_us: finite(self.latency_us(0.5)),
            p99_us: finite(self.latency_us(0.99)),
            p999_us: finite(self.latency_us(0.999)),
            cpu_us_per_operation: finite(self.server_us()),
            memory_bytes: Some(self.memory_bytes as f64),
            disk_bytes: Some(self.disk_bytes as f64),
        }
    }

    /// Returns the latency in microseconds that this share (0..=1) of the operations did not
    /// exceed.
    #[must_use]
    pub fn latency_us(&self, share: f64) -> f64 {
        self.tally.latencies.value_at_quantile(share) as f64 / 1e3
    }
}

/// Runs a case on a server.
pub fn run(server: &Server, case: &Case, effort: &Effort, records: &Records) -> Result<Measured> {
    ensure!(case.connections > 0 && case.workload.pipeline > 0, "nothing to do");
    let threads = effort.threads.clamp(1, case.connections);
    let mut drivers = Vec::new();
    for thread in 0..threads {
        let share = case.connections / threads + usize::from(thread < case.connections % threads);
        drivers.push(Driver::connect(server, share)?);
    }
    // Each slice draws other records than the previous one, and each thread others than its
    // neighbour.
    let seed =
        mix(server.created.load(Ordering::Relaxed) ^ mix(server.cpu_time()?.as_nanos() as u64));
    let mut sources: Vec<_> = (0..threads)
        .map(|thread| {
            let seed = seed.wrapping_add(thread as u64);
            Source::new(&case.workload, records, &server.created, seed)
        })
        .collect();
    let warm_up = stretch(&mut drivers, &mut sources, effort.warm_up, u64::MAX)?;
    let (server_before, client_before) = (server.cpu_time()?, process::own_cpu_time());
    let start = Instant::now();
    let mut tally = stretch(&mut drivers, &mut sources, effort.duration, effort.operations)?;
    let elapsed = start.elapsed();
    let server_cpu = server.cpu_time()?.saturating_sub(server_before);
    let client_cpu = process::own_cpu_time().saturating_sub(client_before);
    tally.errors += warm_up.errors;
    tally.error_texts.extend(warm_up.error_texts);
    let memory_bytes = server.memory()?.anonymous;
    let disk_bytes = folder::usage(server.folder())?.allocated;
    Ok(Measured { tally, elapsed, server_cpu, client_cpu, memory_bytes, disk_bytes })
}

fn stretch(
    drivers: &mut [Driver],
    sources: &mut [Source<'_>],
    duration: Duration,
    operations: u64,
) -> Result<Tally> {
    let operations = AtomicU64::new(if duration.is_zero() { 0 } else { operations });
    let limits = Limits { duration, operations: &operations };
    let mut tally = Tally::new();
    let mut pairs: Vec<_> = drivers.iter_mut().zip(sources).collect();
    if let [(driver, source)] = &mut pairs[..] {
        driver.drive(source, &limits, &mut tally)?;
        return Ok(tally);
    }
    std::thread::scope(|scope| {
        let limits = &limits;
        let threads: Vec<_> = pairs
            .into_iter()
            .map(|(driver, source)| {
                scope.spawn(move || {
                    let mut tally = Tally::new();
                    driver.drive(source, limits, &mut tally).map(|()| tally)
                })
            })
            .collect();
        for thread in threads {
            let outcome = thread.join().map_err(|_| anyhow::anyhow!("a client thread panicked"))?;
            tally.add(&outcome?);
        }
        Ok(tally)
    })
}

/// Stores every record of a space once, in a pipeline.
pub fn fill(server: &Server, space: Space, records: &Records) -> Result<Tally> {
    let workload = Workload {
        space,
        choice: Choice::Each,
        read_share: 0.0,
        keys_per_get: 1,
        script: None,
        pipeline: 64,
    };
    let done = AtomicU64::new(0);
    let mut sources = [Source::new(&workload, records, &done, 0)];
    let mut drivers = [Driver::connect(server, 4)?];
    stretch(&mut drivers, &mut sources, Duration::from_secs(600), space.count)
}
