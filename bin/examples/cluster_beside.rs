//! Measures a server over a cluster beside a plain client of Cassandra that executes the same
//! statements, in turn, with as many requests in flight.
//!
//! ```sh
//! cargo build --profile dist --features cluster
//! cargo run --profile dist --features cluster -p tyrant-kv --example cluster_beside -- \
//!     target/dist/tyrant cassandra://127.0.0.1/beside 20000 32 5
//! ```
//!
//! The arguments are the program, the name of a new hash database, the operations of each kind, the
//! requests in flight and the rounds; then perhaps the kinds of operation, all if none is given.
//! The keyspace gets one replica.
//!
//! `mailings` is the load of `served mailings --kinds hash` (`crates/compare`) with as many
//! addresses as operations, and `lookup` are its look-ups. They need strict mode.

#![expect(clippy::unwrap_used, reason = "a measurement ends with the first failure")]

#[expect(unreachable_pub, reason = "it is the benchmarks'")]
#[path = "../../crates/compare/src/load/mailings/mailing.rs"]
mod mailing;
#[expect(dead_code, unreachable_pub, reason = "it is the benchmarks'")]
#[path = "../../crates/compare/src/random.rs"]
mod random;

use client::Client;
use cluster::{Mode, Name};
use mailing::{Mailing, address, first_date, looked_up};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a value.
const VALUE_BYTES: usize = 100;

/// Bytes of a record before its value: version, expiry, flags.
const HEAD_BYTES: usize = 20;

/// Threads of the plain client: as many as those of the server's driver.
const THREADS: usize = 2;

const OPERATIONS: [(&str, Operation); 5] = [
    ("put", Operation::Put),
    ("get", Operation::Get),
    ("add", Operation::Add),
    ("mailings", Operation::Mail),
    ("lookup", Operation::LookUp),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Put,
    Get,
    Add,
    /// Reads the record of an address, and puts a line there or appends it.
    Mail,
    /// Reads the record of an address.
    LookUp,
}

/// Operations of one run.
#[derive(Clone, Copy)]
struct Load {
    operation: Operation,
    operations: usize,
    in_flight: usize,
    /// First address of the run, so that each one begins without records.
    first_address: u64,
}

/// Numbers of the operations that one client executes.
struct Share<'n> {
    load: Load,
    client: usize,
    /// Next operation of whichever client, unless each has its own.
    next: &'n AtomicUsize,
    own: usize,
}

impl<'n> Share<'n> {
    fn new(load: Load, client: usize, next: &'n AtomicUsize) -> Self {
        Self { load, client, next, own: 0 }
    }
}

impl Iterator for Share<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let Load { operation, operations, in_flight, .. } = self.load;
        if operation != Operation::Mail {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            return (number < operations).then_some(number);
        }
        // One client sends all mailings to an address.
        let addresses = operations as u64;
        let mut numbers = self.own..Mailing::count(addresses) as usize;
        let is_own = |number: &usize| {
            let address = Mailing::of(*number as u64, addresses).address;
            address as usize % in_flight == self.client
        };
        let number = numbers.find(is_own)?;
        self.own = number + 1;
        Some(number)
    }
}

/// Results of one run.
struct Run {
    /// Operations per second.
    rate: f64,
    p50: Duration,
    p99: Duration,
    /// Processor time of the side that is measured, in microseconds per operation.
    processor_us: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, name, operations, in_flight, rounds, wanted @ ..] = &arguments[..] else {
        panic!("arguments: PROGRAM NAME OPERATIONS IN_FLIGHT ROUNDS [KIND...]")
    };
    let parsed = Name::parse(name).unwrap();
    let (operations, in_flight, rounds): (usize, usize, usize) =
        (operations.parse().unwrap(), in_flight.parse().unwrap(), rounds.parse().unwrap());
    cluster::init(&parsed, 1).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .unwrap();
    let plain = Arc::new(runtime.block_on(Plain::connect(&parsed)));
    let served = Served::start(program, name);
    println!("operation\tside\tround\toperations/s\tp50 ms\tp99 ms\tprocessor us");
    for (title, operation) in OPERATIONS {
        let depends = !matches!(operation, Operation::Put | Operation::Get);
        let is_wanted = wanted.is_empty() || wanted.iter().any(|wanted| wanted == title);
        if !is_wanted || depends && parsed.mode == Mode::Plain {
            continue;
        }
        let mut ratios = Vec::new();
        // The first round is not counted.
        for round in 0..=rounds {
            // Both sides are first in every second round.
            let mut runs = [0, 1].map(|side| (round + side) % 2).map(|side| {
                let first_address = match operation {
                    Operation::Mail => ((round * 2 + side) * operations) as u64,
                    _ => 0,
                };
                let load = Load { operation, operations, in_flight, first_address };
                let run = match side {
                    0 => plain_run(&runtime, &plain, load),
                    _ => served.run(load),
                };
                (side, run)
            });
            runs.sort_by_key(|(side, _)| *side);
            for (side, run) in &runs {
                let side = ["plain", "server"][*side];
                println!(
                    "{title}\t{side}\t{round}\t{:.0}\t{:.2}\t{:.2}\t{:.1}",
                    run.rate,
                    run.p50.as_secs_f64() * 1e3,
                    run.p99.as_secs_f64() * 1e3,
                    run.processor_us
                );
            }
            if round > 0 {
                ratios.push(runs[1].1.rate / runs[0].1.rate);
            }
        }
        ratios.sort_by(f64::total_cmp);
        println!("{title}\tserver/plain\tmedian\t{:.3}", ratios[ratios.len() / 2]);
    }
}

fn key(number: usize) -> Vec<u8> {
    format!("key-{:08}", number.wrapping_mul(0x9e37_79b9) % 1_000_000).into_bytes()
}

/// Returns a record without expiry and flags, as the server writes it.
fn cell(version: i64, value: &[u8]) -> Vec<u8> {
    let mut cell = version.to_le_bytes().to_vec();
    cell.resize(HEAD_BYTES, 0);
    cell.extend(value);
    cell
}

/// Key of a counter: many, so that additions seldom meet.
fn counter(number: usize) -> Vec<u8> {
    format!("counter-{}", number % 4096).into_bytes()
}

fn result(mut times: Vec<Duration>, taken: Duration, processor: Duration) -> Run {
    times.sort_unstable();
    let at = |share: usize| times[(times.len() * share / 1000).min(times.len() - 1)];
    Run {
        rate: times.len() as f64 / taken.as_secs_f64(),
        p50: at(500),
        p99: at(990),
        processor_us: processor.as_secs_f64() * 1e6 / times.len() as f64,
    }
}

/// Returns the processor time of a process so far.
fn processor_time(process: &str) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    // The kernel counts 100 per second.
    Duration::from_millis(ticks * 10)
}

/// A plain client of the driver.
struct Plain {
    session: Session,
    is_strict: bool,
    get: PreparedStatement,
    put: PreparedStatement,
    put_if: PreparedStatement,
}

impl Plain {
    async fn connect(name: &Name) -> Self {
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::Quorum)
            .serial_consistency(Some(SerialConsistency::Serial))
            .build();
        let session = SessionBuilder::new()
            .known_nodes(&name.contact_points)
            .default_execution_profile_handle(profile.into_handle())
            .build()
            .await
            .unwrap();
        let table = format!("{}.records", name.keyspace);
        let get = format!("SELECT v, c FROM {table} WHERE k = ?");
        let put =
            format!("UPDATE {table} USING TTL ? SET v = ?, ver = ?, e = ?, c = ? WHERE k = ?");
        let is_strict = name.mode == Mode::Strict;
        let put_any = if is_strict { format!("{put} IF g = null") } else { put.clone() };
        let (get, put_any, put_if) = tokio::try_join!(
            session.prepare(get),
            session.prepare(put_any),
            session.prepare(format!("{put} IF ver = ?")),
        )
        .unwrap();
        Self { session, is_strict, get, put: put_any, put_if }
    }

    async fn execute(&self, load: Load, number: usize) {
        let own = |key: Vec<u8>| [&[0][..], &key].concat();
        let version = (number as i64) << 20 | i64::from(std::process::id());
        let no_entry = None::<i64>;
        match load.operation {
            Operation::Put => {
                let cell = cell(version, &[b'v'; VALUE_BYTES]);
                let values = (0, cell, version, 0_i64, no_entry, own(key(number)));
                let result = self.session.execute_unpaged(&self.put, values).await.unwrap();
                assert_eq!(result.is_rows(), self.is_strict);
            }
            Operation::Get => {
                let key = (own(key(number)),);
                let result = self.session.execute_unpaged(&self.get, key).await.unwrap();
                let rows = result.into_rows_result().unwrap();
                let row = rows.single_row::<(Vec<u8>, Option<i64>)>().unwrap();
                assert_eq!(row.0.len(), HEAD_BYTES + VALUE_BYTES);
            }
            Operation::Add => {
                let add = |old: Option<&[u8]>| {
                    let sum = old.map_or(0, |old| i32::from_le_bytes(old.try_into().unwrap()));
                    (sum + 1).to_le_bytes().to_vec()
                };
                self.change(&own(counter(number)), version, add).await;
            }
            Operation::Mail => {
                let mailing = Mailing::of(number as u64, load.operations as u64);
                let key = own(address(load.first_address + mailing.address));
                let line = mailing.line();
                if self.read(&key).await.is_some() {
                    let append = |old: Option<&[u8]>| [old.unwrap(), line.as_bytes()].concat();
                    return self.change(&key, version, append).await;
                }
                let cell = cell(version, line.as_bytes());
                let values = (0, cell, version, 0_i64, no_entry, key);
                let result = self.session.execute_unpaged(&self.put, values).await.unwrap();
                assert!(result.is_rows());
            }
            Operation::LookUp => {
                let number = looked_up(number as u64, load.operations as u64);
                let cell = self.read(&own(address(number))).await.unwrap();
                assert!(has_first_date(&cell[HEAD_BYTES..], number));
            }
        }
    }

    async fn read(&self, key: &[u8]) -> Option<Vec<u8>> {
        let read = self.session.execute_unpaged(&self.get, (key,)).await.unwrap();
        let rows = read.into_rows_result().unwrap();
        let row = rows.maybe_first_row::<(Vec<u8>, Option<i64>)>().unwrap();
        row.map(|(cell, _)| cell)
    }

    /// Reads a record and replaces it in a transaction, until no other change comes between.
    async fn change(&self, key: &[u8], version: i64, new: impl Fn(Option<&[u8]>) -> Vec<u8>) {
        loop {
            let old = self.read(key).await;
            let last = old.as_ref().map(|cell| i64::from_le_bytes(cell[..8].try_into().unwrap()));
            let next = last.unwrap_or(0).max(version) + 1;
            let cell = cell(next, &new(old.as_ref().map(|cell| &cell[HEAD_BYTES..])));
            let values = (0, cell, next, 0_i64, None::<i64>, key, last);
            let put = self.session.execute_unpaged(&self.put_if, values).await.unwrap();
            let rows = put.into_rows_result().unwrap();
            let row = rows.first_row::<scylla::value::Row>().unwrap();
            if row.columns[0] == Some(scylla::value::CqlValue::Boolean(true)) {
                return;
            }
        }
    }
}

/// Returns whether the record of an address has its first mailing.
fn has_first_date(value: &[u8], number: u64) -> bool {
    let date = first_date(number);
    value.windows(date.len()).any(|part| part == date.as_bytes())
}

fn plain_run(runtime: &tokio::runtime::Runtime, plain: &Arc<Plain>, load: Load) -> Run {
    let next = Arc::new(AtomicUsize::new(0));
    let (since, processor) = (Instant::now(), processor_time("self"));
    let times = runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for client in 0..load.in_flight {
            let (plain, next) = (Arc::clone(plain), Arc::clone(&next));
            tasks.spawn(async move {
                let mut times = Vec::new();
                for number in Share::new(load, client, &next) {
                    let since = Instant::now();
                    plain.execute(load, number).await;
                    times.push(since.elapsed());
                }
                times
            });
        }
        tasks.join_all().await.concat()
    });
    result(times, since.elapsed(), processor_time("self") - processor)
}

/// A server over the same database, and its clients.
struct Served {
    child: Child,
    socket: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start(program: &str, name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let child = Command::new(program)
            .args(["serve", name, "--log"])
            .arg(folder.path().join("log"))
            .arg("--unix")
            .arg(&socket)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let since = Instant::now();
        while Client::connect_unix(&socket).is_err() {
            assert!(since.elapsed() < Duration::from_secs(60), "the server does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, socket, _folder: folder }
    }

    fn run(&self, load: Load) -> Run {
        let next = AtomicUsize::new(0);
        let process = self.child.id().to_string();
        let (since, processor) = (Instant::now(), processor_time(&process));
        let times = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..load.in_flight)
                .map(|own| {
                    let next = &next;
                    scope.spawn(move || {
                        let client = Client::connect_unix(&self.socket).unwrap();
                        let value = vec![b'v'; VALUE_BYTES];
                        let mut times = Vec::new();
                        for number in Share::new(load, own, next) {
                            let since = Instant::now();
                            match load.operation {
                                Operation::Put => client.put(&key(number), &value).unwrap(),
                                Operation::Get => {
                                    let found = client.get(&key(number)).unwrap().unwrap();
                                    assert_eq!(found.len(), VALUE_BYTES);
                                }
                                Operation::Add => {
                                    client.add_int(&counter(number), 1).unwrap();
                                }
                                Operation::Mail => mail(&client, load, number as u64),
                                Operation::LookUp => {
                                    let number = looked_up(number as u64, load.operations as u64);
                                    let found = client.get(&address(number)).unwrap().unwrap();
                                    assert!(has_first_date(&found, number));
                                }
                            }
                            times.push(since.elapsed());
                        }
                        times
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        result(times, since.elapsed(), processor_time(&process) - processor)
    }
}

/// Sends a mailing as `served mailings` does.
fn mail(client: &Client, load: Load, number: u64) {
    let mailing = Mailing::of(number, load.operations as u64);
    let (key, line) = (address(load.first_address + mailing.address), mailing.line());
    match client.get(&key).unwrap() {
        None => client.put(&key, line.as_bytes()).unwrap(),
        Some(_) => client.put_cat(&key, line.as_bytes()).unwrap(),
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
