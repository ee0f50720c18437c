//! Kills of nodes under load: two servers over three nodes, one node killed and brought back, then
//! another, then all at once; then two of three are down. No acknowledged write may be lost, and
//! no failure may look like an answer.

mod tables;

use super::Nodes;
use crate::memcached::{self, Connection};
use crate::programs::{Profile, Server, build, free_port, run};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Default of the writes that are to be acknowledged in each phase.
pub(crate) const WRITES: usize = 400;

/// Longest time of a phase.
const PHASE_TIMEOUT: Duration = Duration::from_secs(300);

/// Longest time until a request is refused when a majority of the nodes is down.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval of looking at the progress of the load.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Clients of each protocol and server.
const CLIENTS: usize = 3;

/// Counters that all clients of a protocol share.
const COUNTERS: usize = 4;

/// Keys of one request when all records are read.
const KEYS_AT_ONCE: usize = 50;

/// Key of a record that no request reaches without a majority of the nodes. It is an id, too.
const REFUSED: &str = "refused-8";

/// Bytes of Tokyo Tyrant's protocol.
const MAGIC: u8 = 0xc8;
const PUT: u8 = 0x10;
const GET: u8 = 0x30;
const KEYS_WITH_PREFIX: u8 = 0x58;
const ADD_INT: u8 = 0x60;

/// Results of the load.
#[derive(Default)]
struct Told {
    /// Keys whose values were acknowledged.
    stored: Vec<String>,
    /// Keys of all other puts, which may have been made.
    others: Vec<String>,
    /// Each row of a table as it may be.
    rows: tables::Rows,
    /// Acknowledged additions to each counter, and those with an unknown outcome.
    added: BTreeMap<String, (usize, usize)>,
    unavailable: usize,
    unknown: usize,
    acknowledged: usize,
    last: Option<Instant>,
    longest_gap: Duration,
}

/// Outcome of one request.
#[derive(Clone, Copy)]
enum Outcome {
    Done,
    Unavailable,
    Unknown,
}

impl Told {
    fn note(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done => {
                let now = Instant::now();
                let gap = self.last.map_or(Duration::ZERO, |last| now - last);
                self.longest_gap = self.longest_gap.max(gap);
                self.last = Some(now);
                self.acknowledged += 1;
            }
            Outcome::Unavailable => self.unavailable += 1,
            Outcome::Unknown => self.unknown += 1,
        }
    }

    fn put(&mut self, key: String, outcome: Outcome) {
        self.note(outcome);
        match outcome {
            Outcome::Done => self.stored.push(key),
            Outcome::Unavailable | Outcome::Unknown => self.others.push(key),
        }
    }

    fn add(&mut self, counter: &str, outcome: Outcome) {
        self.note(outcome);
        let sums = self.added.entry(counter.to_owned()).or_default();
        match outcome {
            Outcome::Done => sums.0 += 1,
            Outcome::Unknown => sums.1 += 1,
            Outcome::Unavailable => {}
        }
    }
}

/// Client of the load: port, number of the client, what it is told, and whether it stops.
type Client = fn(u16, usize, &Mutex<Told>, &AtomicBool) -> Result<()>;

/// Kind of the database.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Hash.
    Tch,
    /// B+ tree, whose lists must have its records.
    Tcb,
    /// Fixed-length, with the same lists.
    Tcf,
    /// Table, whose indexes must lead to its rows.
    Tct,
}

impl Kind {
    /// Every kind.
    pub(crate) const ALL: [Self; 4] = [Self::Tch, Self::Tcb, Self::Tcf, Self::Tct];
}

/// Kills nodes under load. Each phase lasts until `writes` writes more are acknowledged.
pub(crate) fn run_all(profile: Profile, kind: Kind, writes: usize) -> Result<()> {
    let programs = build(profile)?;
    let nodes = Nodes::start_new(3)?;
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let options = match kind {
        Kind::Tch => "",
        Kind::Tcb => "#kind=tcb",
        // Ids up to 16 billion.
        Kind::Tcf => "#kind=tcf#width=64#limsiz=1t",
        Kind::Tct => "#kind=tct",
    };
    let name = format!("cassandra://{}/chaos{options}", nodes.contact_points());
    run(Command::new(programs.join("tyrant")).args(["cluster", "init", &name]))?;
    let start = |log: &str| {
        let log = folder.path().join(log);
        Server::start_logging(&programs, Path::new(&name), &log)
    };
    let servers = [start("log-1")?, start("log-2")?];
    let told = Mutex::new(Told::default());
    let stops = AtomicBool::new(false);
    match kind {
        Kind::Tct => tables::set_indexes(servers[0].port)?,
        Kind::Tch | Kind::Tcb | Kind::Tcf => {
            for counter in 0..COUNTERS {
                let key = counter_of('m', counter);
                let set = Connection::open(servers[0].port)?.set(&key, b"0")?;
                ensure!(set == "STORED", "{set}");
            }
        }
    }
    let (text, binary): (Client, Client) = match kind {
        Kind::Tct => (tables::text_client, tables::binary_client),
        Kind::Tch | Kind::Tcb | Kind::Tcf => (text_client, binary_client),
    };
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for number in 0..CLIENTS * 2 {
            let port = servers[number % 2].port;
            let (told, stops) = (&told, &stops);
            clients.push(scope.spawn(move || text(port, number, told, stops)));
            clients.push(scope.spawn(move || binary(port, number, told, stops)));
        }
        let faults = faults(&nodes, &told, writes);
        stops.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().map_err(|_| anyhow::anyhow!("a client has panicked"))??;
        }
        faults
    })?;
    let told = told.into_inner().context("a client has panicked")?;
    println!(
        "{} writes acknowledged, {} refused, {} with an unknown outcome",
        told.acknowledged, told.unavailable, told.unknown
    );
    match kind {
        Kind::Tch => check_records(servers[1].port, &told)?,
        Kind::Tcb | Kind::Tcf => {
            check_records(servers[1].port, &told)?;
            check_list(servers[0].port, &told, kind == Kind::Tcf)?;
        }
        Kind::Tct => tables::check(servers.each_ref().map(|server| server.port), &told.rows)?,
    }
    check_refusals(&nodes, &servers[0], &servers[1], kind)
}

/// Kills a majority of the nodes below a server, and brings them back: no failure may look like an
/// answer, and the server serves again.
pub(super) fn run_refusals(profile: Profile, nodes: &Nodes) -> Result<()> {
    let programs = build(profile)?;
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let name = format!("cassandra://{}/refusals", nodes.contact_points());
    let replication = nodes.numbers().count().to_string();
    let init = ["cluster", "init", "--replication", &replication, &name];
    run(Command::new(programs.join("tyrant")).args(init))?;
    let admin = free_port();
    let address = format!("127.0.0.1:{admin}");
    let (log, options) = (folder.path().join("log"), ["--admin", address.as_str()]);
    let server = Server::start_with(&programs, Path::new(&name), &log, &options)?;
    wait_for_readiness(admin, "200")?;
    check_refusals(nodes, &server, &server, Kind::Tch)?;
    wait_for_readiness(admin, "503")?;
    for node in majority(nodes) {
        nodes.start(node)?;
    }
    wait_for_readiness(admin, "200")?;
    let mut connection = Connection::open(server.port)?;
    let deadline = Instant::now() + PHASE_TIMEOUT;
    while connection.set("again", b"x")? != "STORED" {
        ensure!(Instant::now() < deadline, "the server does not serve again");
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

/// Returns the numbers of enough nodes to leave no majority.
pub(super) fn majority(nodes: &Nodes) -> impl Iterator<Item = u8> + use<> {
    let count = nodes.numbers().count();
    nodes.numbers().skip(count - (count / 2 + 1))
}

/// Waits until `/ready` has this status.
fn wait_for_readiness(port: u16, status: &str) -> Result<()> {
    let deadline = Instant::now() + PHASE_TIMEOUT;
    loop {
        let mut stream = connect(port)?;
        stream.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        if reply.get(9..12) == Some(status) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "/ready does not become {status}: {reply}");
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Kills nodes and brings them back, one after the other.
fn faults(nodes: &Nodes, told: &Mutex<Told>, writes: usize) -> Result<()> {
    phase(told, writes, "all nodes", || Ok(()))?;
    for node in [3, 1] {
        phase(told, writes, &format!("node {node} killed"), || nodes.kill(node))?;
        phase(told, writes, &format!("node {node} back"), || {
            nodes.start(node)?;
            nodes.wait_until_settled()
        })?;
    }
    phase(told, writes, "all nodes killed and restarted", || {
        for node in nodes.numbers() {
            nodes.kill(node)?;
        }
        for node in nodes.numbers() {
            nodes.spawn(node)?;
        }
        for node in nodes.numbers() {
            nodes.wait_until_serving(node)?;
        }
        nodes.wait_until_settled()
    })
}

/// Changes something under load, and waits until so many writes more are acknowledged.
fn phase(
    told: &Mutex<Told>,
    writes: usize,
    what: &str,
    change: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let now = || told.lock().map_err(|_| anyhow::anyhow!("a client has panicked"));
    now()?.longest_gap = Duration::ZERO;
    change()?;
    let first = now()?.acknowledged;
    let deadline = Instant::now() + PHASE_TIMEOUT;
    while now()?.acknowledged < first + writes {
        ensure!(Instant::now() < deadline, "{what}: no further writes are acknowledged");
        std::thread::sleep(LOOK_INTERVAL);
    }
    let gap = now()?.longest_gap.as_secs_f64();
    println!("{what}: longest gap without an acknowledgement {gap:.2} s");
    Ok(())
}

/// Returns the key of a counter that all clients of a protocol share. All keys are different ids in
/// a fixed-length database.
fn counter_of(protocol: char, counter: usize) -> String {
    format!("{protocol}-sum-{}{counter}", u8::from(protocol == 'b') + 1)
}

/// Returns the key of a record that one client puts.
fn key_of(protocol: char, number: usize, round: usize) -> String {
    format!("{protocol}-{}{number:02}-{round:06}", u8::from(protocol == 'b') + 1)
}

/// Puts records and adds to counters through memcached's protocol.
fn text_client(port: u16, number: usize, told: &Mutex<Told>, stops: &AtomicBool) -> Result<()> {
    let mut connection = Connection::open(port)?;
    for round in 0.. {
        if stops.load(Ordering::Relaxed) {
            break;
        }
        let (key, request, expected);
        let is_addition = round % 4 == 0;
        if is_addition {
            key = counter_of('m', (number + round / 4) % COUNTERS);
            request = format!("incr {key} 1\r\n").into_bytes();
            expected = None;
        } else {
            key = key_of('m', number, round);
            request = memcached::set_request(&key, key.as_bytes());
            expected = Some("STORED");
        }
        connection.send(&request)?;
        let line = connection.line()?;
        let is_done = expected.map_or(line.parse::<u64>().is_ok(), |expected| line == expected);
        let outcome = match line.as_str() {
            _ if is_done => Outcome::Done,
            "SERVER_ERROR the store is unavailable: nothing was done" => Outcome::Unavailable,
            "SERVER_ERROR the store has not answered: it is unknown what was done" => {
                Outcome::Unknown
            }
            line => bail!("a failure that is no failure: {line}"),
        };
        let mut told = told.lock().map_err(|_| anyhow::anyhow!("another client has panicked"))?;
        match is_addition {
            true => told.add(&key, outcome),
            false => told.put(key, outcome),
        }
    }
    Ok(())
}

/// Puts records and adds to counters through Tokyo Tyrant's protocol.
fn binary_client(port: u16, number: usize, told: &Mutex<Told>, stops: &AtomicBool) -> Result<()> {
    let mut stream = connect(port)?;
    for round in 0.. {
        if stops.load(Ordering::Relaxed) {
            break;
        }
        let is_addition = round % 4 == 0;
        let key = match is_addition {
            true => counter_of('b', (number + round / 4) % COUNTERS),
            false => key_of('b', number, round),
        };
        let length = (key.len() as u32).to_be_bytes();
        let (request, reply_bytes) = match is_addition {
            true => ([&[MAGIC, ADD_INT][..], &length, &[0, 0, 0, 1], key.as_bytes()].concat(), 5),
            false => {
                let bytes = key.as_bytes();
                ([&[MAGIC, PUT][..], &length, &length, bytes, bytes].concat(), 1)
            }
        };
        stream.write_all(&request).context("cannot send")?;
        let mut reply = vec![0; reply_bytes];
        // A failure closes the connection, and does not say whether anything was done.
        let outcome = match stream.read_exact(&mut reply) {
            Ok(()) if reply[0] == 0 => Outcome::Done,
            Ok(()) => bail!("{key} was refused"),
            Err(_) => {
                stream = connect(port)?;
                Outcome::Unknown
            }
        };
        let mut told = told.lock().map_err(|_| anyhow::anyhow!("another client has panicked"))?;
        match is_addition {
            true => told.add(&key, outcome),
            false => told.put(key, outcome),
        }
    }
    Ok(())
}

fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PHASE_TIMEOUT))?;
    Ok(stream)
}

/// Compares the records with the acknowledged writes.
fn check_records(port: u16, told: &Told) -> Result<()> {
    let mut connection = Connection::open(port)?;
    let mut lost = Vec::new();
    for keys in told.stored.chunks(KEYS_AT_ONCE) {
        connection.send(format!("get {}\r\n", keys.join(" ")).as_bytes())?;
        let reply = String::from_utf8(connection.read_until(b"END\r\n")?)?;
        let has =
            |key: &&String| reply.contains(&format!("VALUE {key} 0 {}\r\n{key}\r\n", key.len()));
        lost.extend(keys.iter().filter(|key| !has(key)));
    }
    ensure!(lost.is_empty(), "{} acknowledged writes are lost: {lost:?}", lost.len());
    println!("{} acknowledged values are there", told.stored.len());
    for (counter, (done, unknown)) in &told.added {
        let value = connection.get(counter)?.with_context(|| format!("{counter} is lost"))?;
        let sum = match counter.starts_with('m') {
            true => String::from_utf8(value)?.trim_end().parse::<usize>()?,
            false => u32::from_le_bytes(value.as_slice().try_into()?) as usize,
        };
        ensure!(
            (*done..=done + unknown).contains(&sum),
            "{counter} is {sum} after {done} acknowledged additions and {unknown} unknown ones"
        );
        println!("{counter}: {done} acknowledged, {unknown} unknown, sum {sum}");
    }
    Ok(())
}

/// Compares the list of the keys with the records: those that may have been put are listed if they
/// are there.
fn check_list(port: u16, told: &Told, has_ids: bool) -> Result<()> {
    let listed_as = |key: &String| match has_ids {
        true => key.chars().filter(char::is_ascii_digit).collect(),
        false => key.clone(),
    };
    let mut expected: BTreeSet<String> =
        told.stored.iter().chain(told.added.keys()).map(listed_as).collect();
    let mut connection = Connection::open(port)?;
    for key in &told.others {
        if connection.get(key)?.is_some() {
            expected.insert(listed_as(key));
        }
    }
    let mut stream = connect(port)?;
    let prefix = if has_ids { &b"[min,max]"[..] } else { b"" };
    let (length, all) = ((prefix.len() as u32).to_be_bytes(), u32::MAX.to_be_bytes());
    stream.write_all(&[&[MAGIC, KEYS_WITH_PREFIX][..], &length, &all, prefix].concat())?;
    let mut head = [0; 5];
    stream.read_exact(&mut head).context("no list")?;
    ensure!(head[0] == 0, "the list was refused");
    let mut listed = BTreeSet::new();
    let mut last = None;
    for _ in 0..u32::from_be_bytes([head[1], head[2], head[3], head[4]]) {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut key = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut key)?;
        // Shorter numbers are smaller.
        let place = Some((if has_ids { key.len() } else { 0 }, key.clone()));
        ensure!(last < place, "the list is not in order");
        last = place;
        listed.insert(String::from_utf8(key)?);
    }
    let differing: Vec<_> = expected.symmetric_difference(&listed).collect();
    ensure!(
        differing.is_empty(),
        "{} keys are only listed or only there: {differing:?}",
        differing.len()
    );
    println!("{} keys are listed, which are those of the records", listed.len());
    Ok(())
}

/// Kills a majority of the nodes, and checks that each protocol is told of a failure.
fn check_refusals(nodes: &Nodes, first: &Server, last: &Server, kind: Kind) -> Result<()> {
    let mut connection = Connection::open(first.port)?;
    // The value of a row has a name and a value.
    let value = if kind == Kind::Tct { "c\0x" } else { "x" };
    let of = |verb: &str, key: &str| format!("{verb} {key} 0 0 {}\r\n{value}\r\n", value.len());
    ensure!(connection.set(REFUSED, value.as_bytes())? == "STORED", "cannot store a record");
    for node in majority(nodes) {
        nodes.kill(node)?;
    }
    let mut slowest = Duration::ZERO;
    let mut took = |since: Instant| -> Result<()> {
        let taken = since.elapsed();
        slowest = slowest.max(taken);
        ensure!(taken < REFUSAL_TIMEOUT, "a refusal took {taken:?}");
        Ok(())
    };
    for _ in 0..3 {
        for request in [
            of("set", REFUSED),
            format!("get {REFUSED}\r\n"),
            of("add", "new-9"),
            format!("delete {REFUSED}\r\n"),
        ] {
            let since = Instant::now();
            connection.send(request.as_bytes())?;
            let line = connection.line()?;
            ensure!(line.starts_with("SERVER_ERROR the store "), "{request:?}: {line}");
            took(since)?;
        }
        let key = REFUSED.as_bytes();
        let [length, value_length] =
            [key.len(), value.len()].map(|length| (length as u32).to_be_bytes());
        for request in [
            [&[MAGIC, GET][..], &length, key].concat(),
            [&[MAGIC, PUT][..], &length, &value_length, key, value.as_bytes()].concat(),
        ] {
            let since = Instant::now();
            let mut stream = connect(last.port)?;
            stream.write_all(&request)?;
            let mut reply = Vec::new();
            stream.read_to_end(&mut reply).context("the connection is not closed")?;
            ensure!(reply.is_empty(), "an answer of Tokyo Tyrant's protocol: {reply:?}");
            took(since)?;
        }
        for method in ["GET", "DELETE"] {
            let since = Instant::now();
            let mut stream = connect(last.port)?;
            let head = format!(
                "{method} /{REFUSED} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(head.as_bytes())?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply)?;
            let status = reply.get(9..12).unwrap_or_default();
            ensure!(matches!(status, "503" | "504"), "{method}: {reply}");
            took(since)?;
        }
    }
    println!(
        "no majority of the nodes: each request is refused, the slowest after {:.2} s",
        slowest.as_secs_f64()
    );
    Ok(())
}
