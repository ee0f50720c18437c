//! Gives cabinet and other embedded stores the same work, in processes of their own and in turn,
//! and prints times, ratios, memory and bytes on disk.

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use compare::engines::child::{self, Assignment, Task};
use compare::engines::parent;
use compare::engines::stats::Stats;
use compare::engines::tables::Rounds;
use compare::measurement::{self, Measurement, Round, finite};
use compare::stores;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tempfile::TempDir;

#[derive(Parser)]
#[command(about, max_term_width = 100, subcommand_negates_reqs = true)]
struct Arguments {
    /// Suites to run
    #[arg(long, value_delimiter = ',', default_value = "speed")]
    suite: Vec<Suite>,
    /// Stores; the others are compared with the first
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "cabinet,tc,tc-mapped,lmdb,rocksdb,redb,fjall,none"
    )]
    stores: Vec<String>,
    /// Records
    #[arg(long, default_value_t = 4_000_000)]
    records: u64,
    /// Bytes of a key
    #[arg(long, default_value_t = 16)]
    key_bytes: usize,
    /// Bytes of a value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
    /// Threads, one measurement for each number
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Clients that put at once in the suite `durable`, one measurement for each number
    #[arg(long, value_delimiter = ',', default_value = "1,64")]
    clients: Vec<usize>,
    /// Durability in the suite `durable`
    #[arg(long, value_delimiter = ',', default_value = "none,always")]
    durability: Vec<Durability>,
    /// Longest time of a measurement in the suite `durable`, and of the quiet reading of `churn`
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Records in the suite `churn`
    #[arg(long, default_value_t = 1_000_000)]
    churn_records: u64,
    /// How many times the suite `churn` overwrites them
    #[arg(long, default_value_t = 20)]
    passes: u64,
    /// Limit the overwrites of `churn` to this number per second; 0 has no limit.
    #[arg(long, default_value_t = 0)]
    writes_per_second: u64,
    /// Rounds; each gives every store every measurement
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Folder for the databases; folders of their own are made in it and removed
    #[arg(long)]
    dir: Option<PathBuf>,
    /// File for one JSON record per phase and store of the suites `speed` and `churn`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Longest time of one child
    #[arg(long, default_value_t = 1200)]
    patience_seconds: u64,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// One measurement in this process; the program starts itself with it
    #[command(hide = true)]
    Child(Assignment),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Put, get, scan, mixed, overwrite; memory and bytes on disk; opening after a clean close
    Speed,
    /// Opening after SIGKILL at the end of a load, and whether all records are there
    Restart,
    /// Puts from 1 and from many clients, durable and not
    Durable,
    /// Overwriting everything many times with a concurrent reader
    Churn,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Durability {
    /// The operating system decides
    None,
    /// Each put waits for the disk
    Always,
}

/// Names of the cases of the suite `churn` in the records of `--json`.
const QUIET_CASE: &str = "get, alone";
const CHURN_CASE: &str = "get, beside overwrites";

/// Runs measurements and collects failures.
struct Run<'a> {
    arguments: &'a Arguments,
    failures: Vec<String>,
    measurements: Vec<Measurement>,
}

impl Run<'_> {
    fn assignment(&self, store: &str, task: Task, folder: &TempDir) -> Assignment {
        Assignment {
            store: store.into(),
            task,
            folder: folder.path().into(),
            records: self.arguments.records,
            key_bytes: self.arguments.key_bytes,
            value_bytes: self.arguments.value_bytes,
            threads: 1,
            durable: false,
            passes: self.arguments.passes,
            writes_per_second: self.arguments.writes_per_second,
            seconds: self.arguments.seconds,
        }
    }

    fn folder(&self, store: &str) -> Result<TempDir> {
        let parent = self.arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
        Ok(tempfile::Builder::new().prefix(&format!("engines-{store}-")).tempdir_in(parent)?)
    }

    /// Runs a child. Returns whether it succeeded.
    fn measure(
        &mut self,
        assignment: &Assignment,
        name: &str,
        round: usize,
        rounds: &mut Rounds,
    ) -> bool {
        let start = std::time::Instant::now();
        let patience = Duration::from_secs(self.arguments.patience_seconds);
        let outcome = parent::run(assignment, patience);
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("round {} {name} {:?}: {seconds:.1} s", round + 1, assignment.task);
        match outcome {
            Ok(stats) => {
                rounds.add(name, round, stats);
                true
            }
            Err(error) => {
                let failure = format!("{name}, {:?}: {error:#}", assignment.task);
                eprintln!("FAILED {failure}");
                self.failures.push(failure);
                false
            }
        }
    }

    fn speed(&mut self) -> Result<()> {
        let threads = &self.arguments.threads;
        let mut by_threads: Vec<Rounds> = threads.iter().map(|_| Rounds::default()).collect();
        let per_round = self.arguments.stores.len() * threads.len();
        let steps = usize::from(self.arguments.rounds) * per_round;
        let mut done = 0;
        for round in 0..usize::from(self.arguments.rounds) {
            for store in &self.arguments.stores {
                for (&threads, rounds) in threads.iter().zip(&mut by_threads) {
                    let what = format!("{store}, {threads} threads");
                    measurement::print_progress(done, steps, &what);
                    done += 1;
                    let folder = self.folder(store)?;
                    let load =
                        Assignment { threads, ..self.assignment(store, Task::Load, &folder) };
                    let change = Assignment { task: Task::Change, ..load.clone() };
                    if self.measure(&load, store, round, rounds) {
                        self.measure(&change, store, round, rounds);
                    }
                }
            }
        }
        for (threads, rounds) in threads.iter().zip(&by_threads) {
            self.print_speed(*threads, rounds);
            self.measurements.extend(self.speed_measurements(*threads, rounds));
        }
        self.print_speed_ups(&by_threads);
        Ok(())
    }

    /// Returns the records for `--json`: one per phase and store. Memory is the peak of the load.
    /// Disk is that of the closed database, after the overwrites if there were any before.
    fn speed_measurements(&self, threads: usize, rounds: &Rounds) -> Vec<Measurement> {
        let Arguments { records, key_bytes, value_bytes, .. } = self.arguments;
        let parameters = [
            ("records", *records as f64),
            ("key_bytes", *key_bytes as f64),
            ("value_bytes", *value_bytes as f64),
            ("threads", threads as f64),
        ];
        let phases = [
            ("put", "load"),
            ("get", "load"),
            ("scan", "load"),
            ("mixed", "change"),
            ("overwrite", "change"),
        ];
        let mut measurements = Vec::new();
        for (phase, task) in phases {
            for store in rounds.names().iter().filter(|store| *store != "none") {
                let one = |round| {
                    let get = |name: &str| finite(rounds.get(store, round, name));
                    let us = get(&format!("{phase}.us"));
                    Round {
                        operations_per_second: us.and_then(|us| finite(1e6 / us)),
                        cpu_us_per_operation: get(&format!("{phase}.cpu_us")),
                        memory_bytes: get("load.anonymous_peak"),
                        disk_bytes: get(&format!("{task}.disk_allocated")),
                        ..Round::default()
                    }
                };
                let count = usize::from(self.arguments.rounds);
                measurements.push(Measurement {
                    case: format!("{phase}, {threads} threads").replace("1 threads", "1 thread"),
                    server: store.clone(),
                    parameters: parameters.map(|(name, value)| (name.to_owned(), value)).into(),
                    rounds: (0..count).map(one).collect(),
                    ..Measurement::default()
                });
            }
        }
        measurements
    }

    /// Prints the throughput relative to that with the first number of threads.
    fn print_speed_ups(&self, by_threads: &[Rounds]) {
        let Some((one, others)) = by_threads.split_first() else { return };
        let phases = ["put", "get", "mixed", "overwrite"];
        let columns = phases.map(|phase| (phase, phase, 1.0));
        for (threads, rounds) in self.arguments.threads[1..].iter().zip(others) {
            let mut speed_ups = Rounds::default();
            for store in one.names() {
                for round in 0..usize::from(self.arguments.rounds) {
                    let mut stats = Stats::default();
                    for phase in phases {
                        let time = format!("{phase}.us");
                        let times = (one.get(store, round, &time), rounds.get(store, round, &time));
                        stats.set(phase, times.0 / times.1);
                    }
                    speed_ups.add(store, round, stats);
                }
            }
            let head = format!("{threads} threads, times {}", self.arguments.threads[0]);
            println!("{}", speed_ups.table(&head, &columns));
        }
    }

    fn print_speed(&self, threads: usize, rounds: &Rounds) {
        let Arguments { records, key_bytes, value_bytes, stores, .. } = self.arguments;
        println!("\n{records} records of {key_bytes} + {value_bytes} bytes, {threads} threads\n");
        let times = [
            ("put", "put.us", 1.0),
            ("get", "get.us", 1.0),
            ("mixed 90:10", "mixed.us", 1.0),
            ("overwrite", "overwrite.us", 1.0),
            ("scan", "scan.us", 1.0),
        ];
        println!("{}", rounds.table("wall us/op", &times));
        let cpu = [
            ("put", "put.cpu_us", 1.0),
            ("get", "get.cpu_us", 1.0),
            ("mixed 90:10", "mixed.cpu_us", 1.0),
            ("overwrite", "overwrite.cpu_us", 1.0),
            ("scan", "scan.cpu_us", 1.0),
            ("load to close, s", "load.cpu_s", 1.0),
        ];
        println!("{}", rounds.table("CPU us/op", &cpu));
        println!("{}", rounds.ratios(&format!("wall, times {}", stores[0]), &stores[0], &times));
        println!("{}", rounds.ratios(&format!("CPU, times {}", stores[0]), &stores[0], &cpu));
        let live = (*records as usize * (key_bytes + value_bytes)) as f64;
        let space = [
            ("anonymous B/key after put", "put.anonymous_per_key", 1.0),
            ("anonymous peak MB", "load.anonymous_peak", 1e6),
            ("peak RSS MB", "peak_resident", 1e6),
            ("disk/live after put", "put.disk_allocated", live),
            ("closed", "load.disk_allocated", live),
            ("closed, apparent", "load.disk_apparent", live),
            ("closed after overwrite", "change.disk_allocated", live),
            ("close ms", "close.ms", 1.0),
            ("open ms", "open_clean.ms", 1.0),
        ];
        println!("{}", rounds.table("memory and disk", &space));
    }

    fn restart(&mut self) -> Result<()> {
        let mut rounds = Rounds::default();
        for round in 0..usize::from(self.arguments.rounds) {
            for store in self.arguments.stores.iter().filter(|store| *store != "none") {
                let folder = self.folder(store)?;
                let load = self.assignment(store, Task::LoadAndDie, &folder);
                let reopen = Assignment { task: Task::Reopen, ..load.clone() };
                if self.measure(&load, store, round, &mut rounds) {
                    self.measure(&reopen, store, round, &mut rounds);
                }
            }
        }
        println!("\n{} records, process killed after the last put\n", self.arguments.records);
        let columns = [("open ms", "open_killed.ms", 1.0), ("records lost", "lost", 1.0)];
        println!("{}", rounds.table("after SIGKILL", &columns));
        Ok(())
    }

    fn durable(&mut self) -> Result<()> {
        let mut rounds = Rounds::default();
        for round in 0..usize::from(self.arguments.rounds) {
            for &durability in &self.arguments.durability {
                for &threads in &self.arguments.clients {
                    for store in self.arguments.stores.iter().filter(|store| *store != "none") {
                        let folder = self.folder(store)?;
                        let durable = durability == Durability::Always;
                        let assignment = Assignment {
                            threads,
                            durable,
                            ..self.assignment(store, Task::Clients, &folder)
                        };
                        let level = if durable { "always" } else { "none" };
                        let name = format!("{store}, {level}, {threads} clients");
                        self.measure(&assignment, &name, round, &mut rounds);
                    }
                }
            }
        }
        println!("\nputs of {} + {} bytes\n", self.arguments.key_bytes, self.arguments.value_bytes);
        let columns = [
            ("puts/s", "puts_per_second", 1.0),
            ("CPU us/op", "cpu_us", 1.0),
            ("p50 us", "p50_us", 1.0),
            ("p99 us", "p99_us", 1.0),
        ];
        println!("{}", rounds.table("store", &columns));
        Ok(())
    }

    fn churn(&mut self) -> Result<()> {
        let mut rounds = Rounds::default();
        let stores = self.arguments.stores.iter().filter(|store| *store != "none");
        let steps = usize::from(self.arguments.rounds) * stores.clone().count();
        let mut done = 0;
        for round in 0..usize::from(self.arguments.rounds) {
            for store in stores.clone() {
                measurement::print_progress(done, steps, store);
                done += 1;
                let folder = self.folder(store)?;
                let assignment = Assignment {
                    records: self.arguments.churn_records,
                    ..self.assignment(store, Task::Churn, &folder)
                };
                self.measure(&assignment, store, round, &mut rounds);
            }
        }
        let Arguments { churn_records, passes, .. } = self.arguments;
        println!("\n{churn_records} records overwritten {passes} times; reads in us\n");
        let columns = [
            ("quiet p50", "quiet.p50_us", 1.0),
            ("churn p50", "churn.p50_us", 1.0),
            ("quiet p99.9", "quiet.p999_us", 1.0),
            ("churn p99.9", "churn.p999_us", 1.0),
            ("quiet p99.99", "quiet.p9999_us", 1.0),
            ("churn p99.99", "churn.p9999_us", 1.0),
            ("churn max", "churn.max_us", 1.0),
            ("writes/s", "writes_per_second", 1.0),
            ("disk/live peak", "disk_peak", 1.0),
            ("end", "disk_end", 1.0),
            ("closed", "disk_closed", 1.0),
        ];
        println!("{}", rounds.table("store", &columns));
        self.measurements.extend(self.churn_measurements(&rounds));
        Ok(())
    }

    /// Returns the records of `--json` for `churn`: the latencies of the reader, alone and beside
    /// the writer. Disk is that of the database once the writer has ended.
    fn churn_measurements(&self, rounds: &Rounds) -> Vec<Measurement> {
        let Arguments { churn_records, key_bytes, value_bytes, passes, .. } = self.arguments;
        let parameters = [
            ("records", *churn_records as f64),
            ("key_bytes", *key_bytes as f64),
            ("value_bytes", *value_bytes as f64),
            ("passes", *passes as f64),
            ("writes_per_second", self.arguments.writes_per_second as f64),
        ];
        let data_bytes = (*churn_records as usize * (key_bytes + value_bytes)) as f64;
        let mut measurements = Vec::new();
        for (case, phase) in [(QUIET_CASE, "quiet"), (CHURN_CASE, "churn")] {
            for store in rounds.names() {
                let one = |round| {
                    let get = |name: &str| finite(rounds.get(store, round, name));
                    let latency = |share: &str| get(&format!("{phase}.{share}_us"));
                    let disk = get("disk_end").filter(|_| phase == "churn");
                    Round {
                        p50_us: latency("p50"),
                        p99_us: latency("p99"),
                        p999_us: latency("p999"),
                        disk_bytes: disk.map(|times| times * data_bytes),
                        ..Round::default()
                    }
                };
                measurements.push(Measurement {
                    case: case.into(),
                    server: store.clone(),
                    parameters: parameters.map(|(name, value)| (name.into(), value)).into(),
                    rounds: (0..usize::from(self.arguments.rounds)).map(one).collect(),
                    ..Measurement::default()
                });
            }
        }
        measurements
    }
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(Command::Child(assignment)) = &arguments.command {
        child::run(assignment)?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(!arguments.stores.is_empty(), "no stores");
    for store in &arguments.stores {
        ensure!(
            stores::NAMES.contains(&store.as_str()),
            "no store is called {store}; there are {}",
            stores::NAMES.join(", ")
        );
    }
    let mut run = Run { arguments: &arguments, failures: Vec::new(), measurements: Vec::new() };
    for suite in &arguments.suite {
        match suite {
            Suite::Speed => run.speed()?,
            Suite::Restart => run.restart()?,
            Suite::Durable => run.durable()?,
            Suite::Churn => run.churn()?,
        }
    }
    if let Some(file) = &arguments.json {
        measurement::write(file, &run.measurements)?;
    }
    for failure in &run.failures {
        println!("FAILED {failure}");
    }
    Ok(if run.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
