//! Benchmark: latency of a master's clients while an empty replica becomes a copy of it, all on
//! this machine. It also checks that the copy is equal.

use crate::clients::{check_clients, in_parallel, join};
use crate::{MASTER, Servers, connect, replica_of, word};
use anyhow::{Result, bail, ensure};
use client::{Client, Reply};
use compare::load::server::Server;
use compare::random::mix;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for a replica to catch up.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Interval of the checks of its progress.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Requests per pipeline when latency is not measured.
const BATCH: usize = 256;

#[derive(Debug, clap::Args)]
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
    #[command(flatten)]
    servers: Servers,
}

impl Seeding {
    pub(super) fn run(&self) -> Result<()> {
        check_clients(&[self.clients])?;
        ensure!(
            self.records > 0 && self.rate > 0,
            "the number of records and the rate must be at least 1"
        );
        let master = self.servers.start(MASTER)?;
        self.load(&master)?;
        println!("\trequests\tp50 us\tp99 us\tp99.9 us\tlongest us");
        let has_ended = AtomicBool::new(false);
        let (quiet, _) = self.measure(&master, &has_ended, || {
            std::thread::sleep(Duration::from_secs(self.quiet));
            Ok(())
        })?;
        quiet.print("quiet");
        let compressed = if self.compressed { "--seed-compressed" } else { "" };
        let replica = format!("{} {compressed}", replica_of(&master));
        let has_ended = AtomicBool::new(false);
        let (seeding, (replica, took)) = self.measure(&master, &has_ended, || {
            let started = Instant::now();
            let replica = self.servers.start(&replica)?;
            await_state(&replica, started)?;
            Ok((replica, started.elapsed()))
        })?;
        seeding.print("seeding");
        println!(
            "p99 {:.2} of quiet\tseeded in {:.1} s",
            seeding.percentile(99.0).as_secs_f64() / quiet.percentile(99.0).as_secs_f64(),
            took.as_secs_f64()
        );
        self.compare(&master, &replica)
    }

    fn load(&self, master: &Server) -> Result<()> {
        let value = vec![b'x'; self.value_bytes];
        in_parallel(master, self.clients, |client, own| {
            let mut keys = (0..self.records).filter(|number| own(*number)).peekable();
            while keys.peek().is_some() {
                let mut pipeline = client.pipeline();
                for number in keys.by_ref().take(BATCH) {
                    pipeline.put(&key(number), &value)?;
                }
                pipeline.run()?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Runs the clients during `meanwhile`. Returns the durations of their requests.
    fn measure<T>(
        &self,
        master: &Server,
        has_ended: &AtomicBool,
        meanwhile: impl FnOnce() -> Result<T>,
    ) -> Result<(Latencies, T)> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.clients)
                .map(|index| scope.spawn(move || self.work(&connect(master)?, index, has_ended)))
                .collect();
            let done = meanwhile();
            has_ended.store(true, Ordering::SeqCst);
            let mut all = join(threads)?.concat();
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
            number = mix(number);
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
    fn compare(&self, master: &Server, replica: &Server) -> Result<()> {
        let (source, copy) = (connect(master)?, connect(replica)?);
        let started = Instant::now();
        while word(&copy, "replication_lag_operations")?.parse::<f64>()? > 0.0 {
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
        println!("equal in all of {} records", self.records);
        Ok(())
    }
}

/// 16 bytes, in random order.
fn key(number: u64) -> Vec<u8> {
    format!("{:016x}", mix(number)).into_bytes()
}

fn values(client: &Client, numbers: std::ops::Range<u64>) -> Result<Vec<Reply>> {
    let mut pipeline = client.pipeline();
    for number in numbers {
        pipeline.get(&key(number))?;
    }
    Ok(pipeline.run()?)
}

/// Waits until a replica follows the log.
fn await_state(replica: &Server, started: Instant) -> Result<()> {
    let client = connect(replica)?;
    loop {
        match &*word(&client, "replication_state")? {
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
        println!("{name}\t{}\t{p50}\t{p99}\t{p999}\t{longest}", self.0.len());
    }
}
