//! Benchmark: cost of a replica for its master, and the replica's lag. It runs the same inserts
//! into a server without a replica and with one, on this machine.

use crate::clients::{check_clients, in_parallel};
use crate::processors::Processors;
use crate::{MASTER, Servers, connect, replica_of, word};
use anyhow::{Result, ensure};
use client::Client;
use compare::load::server::Server;
use compare::random::mix;
use std::time::{Duration, Instant};

/// Longest wait for a replica to catch up.
const PATIENCE: Duration = Duration::from_secs(600);

/// Interval of the checks of its progress.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug, clap::Args)]
pub(super) struct Replication {
    /// Insert N records
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    records: u64,
    /// Store values of N bytes
    #[arg(long, value_name = "N", default_value_t = 100)]
    value_bytes: usize,
    /// Run N simultaneous clients
    #[arg(long, value_name = "N", default_value_t = 16)]
    clients: usize,
    /// Measure with each of these numbers of requests per pipeline
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,64")]
    depths: Vec<usize>,
    /// Repeat each measurement N times, without and with a replica in turn
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// Keep an update log on the replica too
    #[arg(long)]
    replica_logs: bool,
    /// Reserve the last processor for the replica, as if it ran on another machine
    #[arg(long)]
    apart: bool,
    #[command(flatten)]
    servers: Servers,
}

/// Starts a replica of a master.
type StartReplica<'s> = dyn Fn(&Server) -> Result<Server> + 's;

/// A measurement.
struct Measurement {
    records_per_second: f64,
    /// Processor time per record, in microseconds.
    master_us: f64,
    replica: Option<ReplicaMeasurement>,
}

struct ReplicaMeasurement {
    processor_us: f64,
    /// Time from the end of the inserts until the replica has all of them.
    catch_up: Duration,
}

impl Replication {
    pub(super) fn run(&self) -> Result<()> {
        check_clients(&[self.clients])?;
        ensure!(
            self.records > 0 && self.rounds > 0,
            "the number of records and of rounds must be at least 1"
        );
        ensure!(
            self.depths.iter().all(|depth| *depth > 0),
            "the number of requests must be at least 1"
        );
        let processors = self.apart.then(Processors::of_this_thread).transpose()?;
        if let Some(processors) = &processors {
            processors.use_others()?;
        }
        println!(
            "requests at once\treplicas\trecords/s\tof without\tmaster CPU us/record\t\
             replica CPU us/record\treplica behind s"
        );
        let start_replica = |master: &Server| match &processors {
            Some(processors) => processors.on_last(|| self.start_replica(master)),
            None => self.start_replica(master),
        };
        for &depth in &self.depths {
            for _ in 0..self.rounds {
                let without = self.measure(depth, None)?;
                without.print(depth, 1.0);
                let with = self.measure(depth, Some(&start_replica))?;
                with.print(depth, with.records_per_second / without.records_per_second);
            }
        }
        Ok(())
    }

    fn measure(
        &self,
        depth: usize,
        start_replica: Option<&StartReplica<'_>>,
    ) -> Result<Measurement> {
        let master = self.servers.start(MASTER)?;
        let replica = start_replica.map(|start| start(&master)).transpose()?;
        let before = master.cpu_time()?;
        let value = vec![b'x'; self.value_bytes];
        let took = in_parallel(&master, self.clients, |client, own| {
            let mut keys = (0..self.records).filter(|number| own(*number)).peekable();
            while keys.peek().is_some() {
                insert(client, keys.by_ref().take(depth), &value)?;
            }
            Ok(())
        })?;
        let replica = match replica {
            None => None,
            Some(replica) => {
                let catch_up = self.await_all(&replica)?;
                let processor_us = self.each_us(replica.cpu_time()?);
                Some(ReplicaMeasurement { processor_us, catch_up })
            }
        };
        let master_us = self.each_us(master.cpu_time()?.saturating_sub(before));
        let records_per_second = self.records as f64 / took.as_secs_f64();
        Ok(Measurement { records_per_second, master_us, replica })
    }

    fn start_replica(&self, master: &Server) -> Result<Server> {
        let mut arguments = replica_of(master);
        if self.replica_logs {
            arguments += " --update-log {dir}/ulog";
        }
        let replica = self.servers.start(&arguments)?;
        let client = connect(&replica)?;
        let started = Instant::now();
        while word(&client, "replication_state")? != "following" {
            ensure!(started.elapsed() < PATIENCE, "the replica did not connect in time");
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(replica)
    }

    /// Waits until the replica has caught up. Returns the duration.
    fn await_all(&self, replica: &Server) -> Result<Duration> {
        let client = connect(replica)?;
        let started = Instant::now();
        while client.count()? < self.records {
            ensure!(started.elapsed() < PATIENCE, "the replica did not catch up in time");
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(started.elapsed())
    }

    fn each_us(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.records as f64
    }
}

fn insert(client: &Client, numbers: impl Iterator<Item = u64>, value: &[u8]) -> Result<()> {
    let mut pipeline = client.pipeline();
    for number in numbers {
        // 16 bytes, in random order.
        pipeline.put(format!("{:016x}", mix(number)).as_bytes(), value)?;
    }
    pipeline.run()?;
    Ok(())
}

impl Measurement {
    fn print(&self, depth: usize, share: f64) {
        let replica = self.replica.as_ref();
        println!(
            "{depth}\t{}\t{:.0}\t{share:.2}\t{:.2}\t{}\t{}",
            usize::from(replica.is_some()),
            self.records_per_second,
            self.master_us,
            replica.map_or("-".into(), |figures| format!("{:.2}", figures.processor_us)),
            replica
                .map_or("-".into(), |measured| format!("{:.3}", measured.catch_up.as_secs_f64())),
        );
    }
}
