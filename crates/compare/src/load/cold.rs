//! Cold reads: a server whose data exceed its memory, the cost of a cold get, and its effect on hot
//! ones.
//!
//! The server runs in a memory cgroup. It is filled with several times the group's limit, its files
//! are synced, and the group's pages are reclaimed. Then, in each round, a few *hot* records are
//! read at a modest rate in three ways. First alone. Then while other connections read hot records
//! too, which shows the cost of sharing the processors. Then while they read *cold* records, any of
//! all, which shows what the disk adds.

use super::driver::{Driver, Limits, Tally};
use super::server::{Recipe, Server};
use super::slice;
use super::workload::{Choice, Source, Space, Workload};
use crate::cgroup::MemoryCgroup;
use crate::disk::{Device, DeviceReads};
use crate::process::{self, Waits};
use crate::records::Records;
use crate::report::{Table, figure, median};
use anyhow::{Context as _, Result, anyhow, ensure};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Beginning of the names of tyrant's event loops.
const LOOP_THREADS: &str = "loop-";

/// Longest time to wait for a server's stats.
const STATS_PATIENCE: Duration = Duration::from_secs(5);

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Memory of the server, in bytes.
    pub limit_bytes: u64,
    /// Records loaded.
    pub keys: u64,
    /// Bytes of their values.
    pub value_bytes: usize,
    /// Records that are hot, scattered over all.
    pub hot_keys: u64,
    /// Connections that read hot records.
    pub hot_connections: usize,
    /// Hot requests per second, of all these connections.
    pub hot_rate: f64,
    /// Connections that read cold records.
    pub cold_connections: usize,
    /// Cold requests per second, of all these connections; `None` is one after the other.
    pub cold_rate: Option<f64>,
    /// Share of the cold requests that read; the others overwrite with the same values.
    pub cold_read_share: f64,
    /// Rounds.
    pub rounds: usize,
    /// Length of each third of a round.
    pub duration: Duration,
    /// Length of a first, unmeasured stretch, in which the hot records become hot.
    pub warm_up: Duration,
}

/// One third of a round.
#[derive(Debug)]
struct Stretch {
    hot: Tally,
    /// Tally of the other connections.
    others: Tally,
    elapsed: Duration,
    device: Option<DeviceReads>,
    /// Waits of the whole server, and of its event loops.
    waits: Waits,
    loop_waits: Waits,
    /// Requests that the server's event loops left to its pool.
    pooled: Option<u64>,
}

/// Result of a run.
#[derive(Debug)]
pub struct Results {
    alone: Vec<Stretch>,
    beside_hot: Vec<Stretch>,
    beside_cold: Vec<Stretch>,
    /// Lines outside the tables.
    pub facts: Vec<String>,
}

/// Starts the server, loads it and measures.
pub fn run(recipe: &Recipe, plan: &Plan, parent: &Path) -> Result<Results> {
    ensure!(plan.hot_keys <= plan.keys, "there are fewer records than hot ones");
    let name = format!("tyrant-cold-{}", std::process::id());
    let cgroup = MemoryCgroup::new(&name, plan.limit_bytes)?;
    let server = Server::start_within(Some(&cgroup), recipe, parent)?;
    let records = Records::new();
    let mut facts = Vec::new();

    let space = Space { first: 0, count: plan.keys, value_bytes: plan.value_bytes };
    let start = Instant::now();
    let filled = slice::fill(&server, space, &records)?;
    ensure!(
        filled.errors == 0 && filled.operations == space.count,
        "loading: {} of {} stored, {} errors: {:?} {}",
        filled.operations,
        space.count,
        filled.errors,
        filled.error_texts,
        server.log_tail()
    );
    sync_files(server.folder())?;
    let loaded = start.elapsed();
    let left = cgroup.reclaim()?;
    facts.push(format!(
        "loaded {} records of {} bytes in {} s, disk included; {} MB are left in memory",
        plan.keys,
        plan.value_bytes,
        figure(loaded.as_secs_f64()),
        figure(left as f64 / 1e6),
    ));

    let bench = Bench {
        server: &server,
        plan,
        hot: workload(space, Choice::Scattered(plan.hot_keys)),
        cold: Workload { read_share: plan.cold_read_share, ..workload(space, Choice::Uniform) },
        records: &records,
        device: Device::of(server.folder()).ok(),
    };
    let warm_up = bench.stretch(plan.warm_up, None, 0)?;
    ensure!(warm_up.hot.errors == 0, "in the warm-up: {:?}", warm_up.hot.error_texts);
    let mut results =
        Results { alone: Vec::new(), beside_hot: Vec::new(), beside_cold: Vec::new(), facts };
    let mut most_used = 0;
    for round in 1..=plan.rounds {
        let stretch = |others| bench.stretch(plan.duration, others, round as u64);
        results.alone.push(stretch(None)?);
        results.beside_hot.push(stretch(Some(&bench.hot))?);
        results.beside_cold.push(stretch(Some(&bench.cold))?);
        most_used = most_used.max(cgroup.usage()?);
        eprintln!("round {round}/{}", plan.rounds);
    }
    let memory = server.memory()?;
    results.facts.push(format!(
        "limit {} MB, used {} MB; resident {} MB, of it anonymous {} MB",
        figure(plan.limit_bytes as f64 / 1e6),
        figure(most_used as f64 / 1e6),
        figure(memory.resident as f64 / 1e6),
        figure(memory.anonymous as f64 / 1e6),
    ));
    Ok(results)
}

fn workload(space: Space, choice: Choice) -> Workload {
    Workload { space, choice, read_share: 1.0, keys_per_get: 1, script: None, pipeline: 1 }
}

/// Writes all files in a folder to the disk, because changed pages cannot be reclaimed.
pub(super) fn sync_files(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_files(&path)?;
        } else if let Ok(file) = File::open(&path) {
            // The server has removed the file.
            file.sync_all().with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

struct Bench<'a> {
    server: &'a Server,
    plan: &'a Plan,
    hot: Workload,
    cold: Workload,
    records: &'a Records,
    device: Option<Device>,
}

impl Bench<'_> {
    /// Reads hot records for `duration`, while other connections run another workload.
    fn stretch(&self, duration: Duration, others: Option<&Workload>, seed: u64) -> Result<Stretch> {
        let plan = self.plan;
        let process_id = self.server.process_id();
        let reads = || self.device.as_ref().map(Device::reads).transpose();
        let (device, pooled) = (reads()?, self.pooled()?);
        let waits = process::waits(process_id, "")?;
        let loop_waits = process::waits(process_id, LOOP_THREADS)?;

        let start = Instant::now();
        let (hot, others) = std::thread::scope(|scope| {
            let others = others.map(|workload| {
                let (connections, rate) = (plan.cold_connections, plan.cold_rate);
                scope.spawn(move || self.ask(workload, connections, rate, duration, !seed))
            });
            let rate = Some(plan.hot_rate);
            let hot = self.ask(&self.hot, plan.hot_connections, rate, duration, seed);
            let others = others.map(ScopedJoinHandle::join).transpose();
            let others = others.map_err(|_| anyhow!("a client thread panicked"))?.transpose()?;
            Ok::<_, anyhow::Error>((hot?, others.unwrap_or_default()))
        })?;
        let elapsed = start.elapsed();

        let (device, pooled) = (reads()?.zip(device), self.pooled()?.zip(pooled));
        Ok(Stretch {
            hot,
            others,
            elapsed,
            device: device.map(|(after, before)| after - before),
            waits: process::waits(process_id, "")? - waits,
            loop_waits: process::waits(process_id, LOOP_THREADS)? - loop_waits,
            pooled: pooled.map(|(after, before)| after.saturating_sub(before)),
        })
    }

    /// Without a rate, every connection sends its next request after each reply. With a rate, all
    /// connections send one request at every tick. A tick waits while replies are missing.
    fn ask(
        &self,
        workload: &Workload,
        connections: usize,
        rate: Option<f64>,
        duration: Duration,
        seed: u64,
    ) -> Result<Tally> {
        let mut tally = Tally::new();
        let mut driver = Driver::connect(self.server, connections)?;
        let mut source = Source::new(workload, self.records, &self.server.created, seed);
        let Some(rate) = rate else {
            let limits = Limits { duration, operations: &AtomicU64::new(u64::MAX) };
            driver.drive(&mut source, &limits, &mut tally)?;
            return Ok(tally);
        };
        let period = Duration::from_secs_f64(connections as f64 / rate);
        let end = Instant::now() + duration;
        loop {
            let tick = Instant::now();
            if tick >= end {
                return Ok(tally);
            }
            let operations = AtomicU64::new(connections as u64);
            let limits = Limits { duration: period, operations: &operations };
            driver.drive(&mut source, &limits, &mut tally)?;
            std::thread::sleep(period.saturating_sub(tick.elapsed()));
        }
    }

    /// Returns the requests that have waited for the disk so far, in the pool of the server or for
    /// reads of its event loops, if it counts them.
    fn pooled(&self) -> Result<Option<u64>> {
        let mut stream = TcpStream::connect(self.server.address)?;
        stream.set_read_timeout(Some(STATS_PATIENCE))?;
        stream.write_all(b"stats\r\n")?;
        let mut waited: Option<u64> = None;
        for line in BufReader::new(stream).lines() {
            let line = line?;
            let count = line.strip_prefix("STAT requests_pooled ");
            let count = count.or_else(|| line.strip_prefix("STAT requests_awaiting_reads "));
            if let Some(count) = count.and_then(|count| count.trim().parse::<u64>().ok()) {
                waited = Some(waited.unwrap_or(0) + count);
            }
            if line == "END" || line == "ERROR" {
                break;
            }
        }
        Ok(waited)
    }
}

impl Stretch {
    fn hot_us(&self, share: f64) -> f64 {
        self.hot.latencies.value_at_quantile(share) as f64 / 1e3
    }

    fn others_us(&self, share: f64) -> f64 {
        self.others.latencies.value_at_quantile(share) as f64 / 1e3
    }

    fn per_cold(&self, of: f64) -> f64 {
        of / self.others.operations as f64
    }

    fn per_pooled(&self, of: f64) -> f64 {
        of / self.pooled.unwrap_or(0) as f64
    }
}

impl Results {
    /// Returns the latencies of the hot requests: medians over the rounds.
    #[must_use]
    pub fn hot(&self) -> Table {
        let mut table = Table::new([
            "hot gets",
            "op/s",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "worst us",
            "others' op/s",
            "major faults of event loops",
            "errors",
        ]);
        let mut row = |name: &str, rounds: &[Stretch]| {
            let middle = |of: &dyn Fn(&Stretch) -> f64| figure(median_of(rounds, of));
            table.row([
                name.to_owned(),
                middle(&|one| one.hot.operations as f64 / one.elapsed.as_secs_f64()),
                middle(&|one| one.hot_us(0.5)),
                middle(&|one| one.hot_us(0.99)),
                middle(&|one| one.hot_us(0.999)),
                middle(&|one| one.hot_us(1.0)),
                middle(&|one| one.others.operations as f64 / one.elapsed.as_secs_f64()),
                middle(&|one| one.loop_waits.major_faults as f64),
                sum(rounds, |one| one.hot.errors + one.hot.missing),
            ]);
        };
        row("alone", &self.alone);
        row("beside hot ones", &self.beside_hot);
        row("beside cold ones", &self.beside_cold);
        for (name, to) in [("cold / alone", &self.alone), ("cold / hot", &self.beside_hot)] {
            let ratio = |share: f64| {
                let pairs = self.beside_cold.iter().zip(to);
                let ratios = pairs.map(|(cold, other)| cold.hot_us(share) / other.hot_us(share));
                figure(median(&ratios.collect::<Vec<_>>()))
            };
            let [p50, p99, p999, worst] = [0.5, 0.99, 0.999, 1.0].map(ratio);
            table.row([name, "", &p50, &p99, &p999, &worst, "", "", ""]);
        }
        table
    }

    /// Returns the cost of the cold requests: medians over the rounds.
    #[must_use]
    pub fn cold(&self) -> Table {
        let mut table = Table::new(["cold requests", "value"]);
        let rounds = &self.beside_cold;
        let mut row = |name: &str, of: &dyn Fn(&Stretch) -> f64| {
            table.row([name.to_owned(), figure(median_of(rounds, of))]);
        };
        row("op/s", &|one| one.others.operations as f64 / one.elapsed.as_secs_f64());
        row("p50 us", &|one| one.others_us(0.5));
        row("p99 us", &|one| one.others_us(0.99));
        row("p99.9 us", &|one| one.others_us(0.999));
        let pooled = |one: &Stretch| one.pooled.map_or(f64::NAN, |pooled| pooled as f64);
        row("share that waited", &|one| one.per_cold(pooled(one)));
        let bytes = |one: &Stretch| one.waits.read_bytes as f64;
        row("bytes read by the server, each", &|one| one.per_cold(bytes(one)));
        row("bytes read by the server, each that waited", &|one| one.per_pooled(bytes(one)));
        let bytes = |one: &Stretch| one.device.map_or(f64::NAN, |reads| reads.bytes as f64);
        row("bytes read from the device, each", &|one| one.per_cold(bytes(one)));
        let reads = |one: &Stretch| one.device.map_or(f64::NAN, |reads| reads.completed as f64);
        row("reads of the device, each", &|one| one.per_cold(reads(one)));
        row("reads of the device, each that waited", &|one| one.per_pooled(reads(one)));
        row("major faults of the server", &|one| one.waits.major_faults as f64);
        let errors = sum(rounds, |one| one.others.errors + one.others.missing);
        table.row(["errors".to_owned(), errors]);
        table
    }

    /// Returns the number of refusals, wrong values, missing records and broken connections.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.tallies().map(|tally| tally.errors + tally.missing).sum()
    }

    /// Returns the texts of the errors.
    #[must_use]
    pub fn error_texts(&self) -> Vec<&str> {
        self.tallies().flat_map(|tally| tally.error_texts.iter().map(String::as_str)).collect()
    }

    fn tallies(&self) -> impl Iterator<Item = &Tally> {
        let all = self.alone.iter().chain(&self.beside_hot).chain(&self.beside_cold);
        all.flat_map(|one| [&one.hot, &one.others])
    }
}

fn median_of(rounds: &[Stretch], of: &dyn Fn(&Stretch) -> f64) -> f64 {
    median(&rounds.iter().map(of).collect::<Vec<_>>())
}

fn sum(rounds: &[Stretch], of: impl Fn(&Stretch) -> u64) -> String {
    rounds.iter().map(of).sum::<u64>().to_string()
}
