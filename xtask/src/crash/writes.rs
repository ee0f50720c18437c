//! Single writes: kills the server under load many times; no acknowledged write may be lost.
//!
//! A few connections write in pipelines, each to its own keys, and record the sent and the
//! acknowledged writes. Then the server gets SIGKILL, starts again on the same files, and every key
//! is read back. It must hold the last acknowledged write, or one sent after it. A kill is not
//! damage, so the server's log must have no errors either.

use crate::memcached::{Connection, delete_request, set_request};
use crate::programs::Server;
use crate::random::Random;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 4;
const KEYS_PER_CONNECTION: usize = 2000;
const PIPELINE_DEPTH: usize = 16;

/// Longest value, in bytes.
const VALUE_BYTES_MAX: u64 = 2048;

/// One of this many operations is a removal.
const REMOVALS: u64 = 8;

/// Longest time of load before the kill; the shortest is a fifth of it.
const LOAD_MAX: Duration = Duration::from_millis(500);

/// Starts, loads and kills the server `rounds` times.
pub(super) fn run(programs: &Path, folder: &Path, rounds: u32) -> Result<()> {
    let database = folder.join("casket.tch");
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(Client::new).collect();
    let mut random = Random(1);
    let mut acknowledged = 0;
    let mut slowest_start = Duration::ZERO;
    for round in 1..=rounds {
        let started = Instant::now();
        let mut server = Server::start(programs, &database)
            .with_context(|| format!("round {round}: the database does not open"))?;
        slowest_start = slowest_start.max(started.elapsed());
        for client in &mut clients {
            client.check(server.port).with_context(|| format!("round {round}"))?;
        }
        let load = LOAD_MAX / 5 + LOAD_MAX * 4 / 5 * random.below(100) as u32 / 100;
        acknowledged += std::thread::scope(|scope| {
            let port = server.port;
            let loads: Vec<_> =
                clients.iter_mut().map(|client| scope.spawn(move || client.load(port))).collect();
            std::thread::sleep(load);
            server.kill()?;
            loads.into_iter().try_fold(0, |sum, load| match load.join() {
                Ok(count) => Ok(sum + count?),
                Err(_) => bail!("a client panicked"),
            })
        })
        .with_context(|| format!("round {round}"))?;
    }
    ensure!(acknowledged > 0, "no write was acknowledged, so the test proves nothing");
    let server = Server::start(programs, &database).context("the database does not open")?;
    for client in &mut clients {
        client.check(server.port).context("after the last round")?;
    }
    let log = std::fs::read_to_string(database.with_extension("log")).context("no log")?;
    if let Some(error) = log.lines().find(|line| line.contains("\tERROR\t")) {
        bail!("no write was lost, but the server logged an error: {error}");
    }
    println!(
        "crash: killed {rounds} times, {acknowledged} writes acknowledged, none lost, \
         slowest start {slowest_start:?}"
    );
    Ok(())
}

/// The keys of one connection and their expected values.
struct Client {
    number: usize,
    random: Random,
    last_write: u64,
    keys: Vec<Expected>,
}

/// Expected contents of a key: the number of a write, or `None` if it was removed.
#[derive(Default)]
struct Expected {
    acknowledged: Option<u64>,
    /// Writes sent after the acknowledged one, in order, without a response.
    sent: Vec<Option<u64>>,
}

impl Client {
    fn new(number: usize) -> Self {
        let keys = (0..KEYS_PER_CONNECTION).map(|_| Expected::default()).collect();
        Self { number, random: Random(number as u64 + 2), last_write: 0, keys }
    }

    fn key(&self, index: usize) -> String {
        format!("client-{}-key-{index}", self.number)
    }

    /// Writes until the connection breaks. Returns the number of acknowledged writes.
    fn load(&mut self, port: u16) -> Result<u64> {
        let mut count = 0;
        let Ok(mut connection) = Connection::open(port) else { return Ok(count) };
        loop {
            let mut requests = Vec::new();
            let mut indexes = Vec::new();
            for _ in 0..PIPELINE_DEPTH {
                let index = self.random.below(KEYS_PER_CONNECTION as u64) as usize;
                let write = if self.random.below(REMOVALS) == 0 {
                    requests.extend(delete_request(&self.key(index)));
                    None
                } else {
                    self.last_write += 1;
                    requests.extend(set_request(&self.key(index), &value(self.last_write)));
                    Some(self.last_write)
                };
                self.keys[index].sent.push(write);
                indexes.push(index);
            }
            if connection.send(&requests).is_err() {
                return Ok(count);
            }
            for index in indexes {
                let Ok(answer) = connection.line() else { return Ok(count) };
                ensure!(
                    ["STORED", "DELETED", "NOT_FOUND"].contains(&answer.as_str()),
                    "the server responded {answer:?}"
                );
                let fate = &mut self.keys[index];
                fate.acknowledged = fate.sent.remove(0);
                count += 1;
            }
        }
    }

    /// Reads every key back. The value found becomes the acknowledged one.
    fn check(&mut self, port: u16) -> Result<()> {
        let mut connection = Connection::open(port)?;
        for index in 0..self.keys.len() {
            let key = self.key(index);
            let found = connection.get(&key)?;
            let fate = &mut self.keys[index];
            fate.sent.push(fate.acknowledged);
            let held = fate.sent.drain(..).find(|write| write.map(value) == found);
            let Some(held) = held else {
                bail!(
                    "{key}: expected write {:?}, found {:?}",
                    fate.acknowledged,
                    found.as_deref().map(String::from_utf8_lossy)
                );
            };
            fate.acknowledged = held;
        }
        Ok(())
    }
}

/// Returns the value of a write: its number, and a length derived from it.
fn value(write: u64) -> Vec<u8> {
    let mut value = format!("{write}:").into_bytes();
    let length = value.len() + (Random(write).below(VALUE_BYTES_MAX)) as usize;
    value.resize(length, b'a' + (write % 26) as u8);
    value
}
