//! Benchmark: latency of a master's clients while an empty replica becomes a copy of it, all on
//! this machine. It also checks that the copy is equal.

use super::clients::{check_clients, in_parallel};
use super::own_server::OwnServer;
use super::scatter::scatter;
use crate::errors::require;
use crate::plural::counted;
use crate::say::say;
use anyhow::{Context, Result, bail, ensure};
use client::{Client, Reply};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for a replica to catch up.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Interval of the checks of its progress.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Name of the databases.
const DATABASE: &str = "casket.tch";

/// Requests per pipeline when latency is not measured.
const BATCH: usize = 256;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # Seed a replica with 100,000 records
  tyrant bench seeding --records 100000")]
pub(super) struct Seeding {
    /// Store N records on the master
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    records: u64,
    /// Store values of N bytes
    #[arg(long, value_name = "N", default_value_t = 100)]
    value_bytes: usize,
    /// Run N clients of the master, which read and write in turn
    #[arg(long, value_name = "N", default_value_t = 8)]
    clients: usize,
    /// Send N requests per second, over all clients
    #[arg(long, value_name = "N", default_value_t = 4000)]
    rate: u64,
    /// Measure S seconds before the replica is started
    #[arg(long, value_name = "S", default_value_t = 15)]
    quiet: u64,
    /// Send the copy compressed
    #[arg(long)]
    compressed: bool,
    /// Create the databases in temporary folders below this one
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
}

impl Seeding {
    pub(super) fn run(&self) -> Result<()> {
        check_clients(&[self.clients])?;
        require(
            self.records > 0 && self.rate > 0,
            "the number of records and the rate must be at least 1",
        )?;
        let parent = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port().to_string();
        let listening = ["--host", "127.0.0.1", "--port", &port];
        let logging = ["--update-log", "ulog", "--server-id", "1"];
        let master = OwnServer::start(&parent, DATABASE, &[&logging[..], &listening].concat())?;
        self.load(&master)?;
        say!("\trequests\tp50 us\tp99 us\tp99.9 us\tlongest us");
        let has_ended = AtomicBool::new(false);
        let (quiet, _) = self.measure(&master, &has_ended, || {
            std::thread::sleep(Duration::from_secs(self.quiet));
            Ok(())
        })?;
        quiet.print("quiet");
        let address = format!("127.0.0.1:{port}");
        let mut options = vec!["--server-id", "2", "--master", &address];
        options.extend(self.compressed.then_some("--seed-compressed"));
        let has_ended = AtomicBool::new(false);
        let (seeding, (replica, took)) = self.measure(&master, &has_ended, || {
            let started = Instant::now();
            let replica = OwnServer::start(&parent, DATABASE, &options)?;
            await_state(&replica, started)?;
            Ok((replica, started.elapsed()))
        })?;
        seeding.print("seeding");
        say!(
            "p99 {:.2} of quiet\tseeded in {:.1} s",
            seeding.percentile(99.0).as_secs_f64() / quiet.percentile(99.0).as_secs_f64(),
            took.as_secs_f64()
        );
        self.compare(&master, &replica)
    }

    fn load(&self, master: &OwnServer) -> Result<()> {
        let value = vec![b'x'; self.value_bytes];
        in_parallel(master, self.clients, "load", self.records, &|client, own, done| {
            let mut keys = (0..self.records).filter(|number| own(*number)).peekable();
            while keys.peek().is_some() {
                let mut pipeline = client.pipeline();
                let mut count = 0;
                for number in keys.by_ref().take(BATCH) {
                    pipeline.put(&key(number), &value)?;
                    count += 1;
                }
                pipeline.run()?;
                (0..count).for_each(|_| done());
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Runs the clients during `meanwhile`. Returns the durations of their requests.
    fn measure<T>(
        &self,
        master: &OwnServer,
        has_ended: &AtomicBool,
        meanwhile: impl FnOnce() -> Result<T>,
    ) -> Result<(Latencies, T)> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.clients)
                .map(|index| scope.spawn(move || self.work(&master.connect()?, index, has_ended)))
                .collect();
            let done = meanwhile();
            has_ended.store(true, Ordering::SeqCst);
            let mut all = Vec::new();
            for thread in threads {
                match thread.join() {
                    Ok(latencies) => all.extend(latencies?),
                    Err(_) => bail!("a client panicked"),
                }
            }
            all.sort_unstable();
            ensure!(!all.is_empty(), "no request was made");
            Ok((Latencies(all), done?))
        })
    }

    /// Sends one request after another, each at its scheduled time. The duration of a late request
    /// counts from that time.
    fn work(&self, client: &Client, index: usize, has_ended: &AtomicBool) -> Result<Vec<Duration>> {
        let interval = Duration::from_secs(1) * self.clients as u32 / self.rate as u32;
        let mut due = Instant::now() + interval * index as u32 / self.clients as u32;
        let mut latencies = Vec::new();
        let mut number = index as u64;
        while !has_ended.load(Ordering::SeqCst) {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            number = scatter(number);
            let key = key(number % self.records);
            match number % 4 {
                0 => drop(client.put_cat(&key, b"y")?),
                1 => drop(client.put(&key, b"new")?),
                _ => drop(client.get(&key)?),
            }
            latencies.push(due.elapsed());
            due += interval;
        }
        Ok(latencies)
    }

    /// Compares all records.
    fn compare(&self, master: &OwnServer, replica: &OwnServer) -> Result<()> {
        let (source, copy) = (master.connect()?, replica.connect()?);
        let started = Instant::now();
        while replica.number("replication_lag_operations")? > 0.0 {
            ensure!(started.elapsed() < PATIENCE, "the replica did not catch up in time");
            std::thread::sleep(POLL_INTERVAL);
        }
        // The replica may not have received the last log entries yet.
        std::thread::sleep(Duration::from_secs(2));
        ensure!(source.count()? == copy.count()?, "the numbers of records differ");
        let mut first = 0;
        while first < self.records {
            let numbers = first..(first + BATCH as u64).min(self.records);
            ensure!(
                values(&source, numbers.clone())? == values(&copy, numbers.clone())?,
                "records of {numbers:?} differ"
            );
            first = numbers.end;
        }
        say!("equal in all of {}", counted(self.records, "record", "records"));
        Ok(())
    }
}

/// 16 bytes, in random order.
fn key(number: u64) -> Vec<u8> {
    format!("{:016x}", scatter(number)).into_bytes()
}

fn values(client: &Client, numbers: std::ops::Range<u64>) -> Result<Vec<Reply>> {
    let mut pipeline = client.pipeline();
    for number in numbers {
        pipeline.get(&key(number))?;
    }
    Ok(pipeline.run()?)
}

/// Waits until a replica follows the log.
fn await_state(replica: &OwnServer, started: Instant) -> Result<()> {
    let client = replica.connect()?;
    loop {
        let text = String::from_utf8(client.stat()?)?;
        let mut lines = text.lines();
        let state = lines.find_map(|line| line.strip_prefix("replication_state\t"));
        match state.context("the replica has no state")? {
            "following" => return Ok(()),
            "stopped" => bail!("the replica has stopped"),
            _ => ensure!(started.elapsed() < PATIENCE, "the replica did not catch up in time"),
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Durations of requests, in ascending order.
struct Latencies(Vec<Duration>);

impl Latencies {
    fn percentile(&self, percent: f64) -> Duration {
        let index = (self.0.len() as f64 * percent / 100.0) as usize;
        self.0[index.min(self.0.len() - 1)]
    }

    fn print(&self, name: &str) {
        let [p50, p99, p999, longest] =
            [50.0, 99.0, 99.9, 100.0].map(|percent| self.percentile(percent).as_micros());
        say!("{name}\t{}\t{p50}\t{p99}\t{p999}\t{longest}", self.0.len());
    }
}
