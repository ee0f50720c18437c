//! Readers: clients that read the keys of the writers at all times, also across kills.

use super::generation::{KEYS, Keys};
use super::writer::{CLIENTS, until_end};
use crate::memcached::Connection;
use crate::random::Random;
use anyhow::{Context, Result, bail, ensure};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause before connecting again to a server that is down.
const RETRY: Duration = Duration::from_millis(2);

/// Observations of one server, in which each transaction must be whole, and none is undone.
pub(super) struct Seen {
    random: Random,
    /// The latest generation of each client.
    latest: [u64; CLIENTS],
    pub(super) reads: u64,
    /// Reads that have seen a part of a transaction, and those among them that were the first of
    /// the client's keys after a start of the server.
    torn: u64,
    torn_after_start: u64,
    /// Reads of an earlier transaction than the read before.
    undone: u64,
    first: Option<String>,
}

impl Seen {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            latest: [0; CLIENTS],
            reads: 0,
            torn: 0,
            torn_after_start: 0,
            undone: 0,
            first: None,
        }
    }

    /// Reads keys until `stop`, also after the server was killed and started again.
    pub(super) fn watch(&mut self, port: u16, stop: &AtomicBool) -> Result<()> {
        let mut was_down = false;
        while !stop.load(Ordering::Relaxed) {
            let Ok(mut connection) = Connection::open(port) else {
                was_down = true;
                std::thread::sleep(RETRY);
                continue;
            };
            for number in 0.. {
                let is_first = number < CLIENTS;
                let client =
                    if is_first { number } else { self.random.below(CLIENTS as u64) as usize };
                let Some(values) = values(&mut connection, Keys { client })? else {
                    was_down = true;
                    break;
                };
                self.note(client, &values, was_down && is_first);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads the keys of all clients once.
    pub(super) fn look(&mut self, port: u16) -> Result<()> {
        let mut connection = Connection::open(port)?;
        (0..CLIENTS).try_for_each(|client| {
            let values = values(&mut connection, Keys { client })?.context(ENDED)?;
            self.note(client, &values, true);
            Ok(())
        })
    }

    /// Adds what another reader has seen.
    pub(super) fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.torn += other.torn;
        self.torn_after_start += other.torn_after_start;
        self.undone += other.undone;
        self.first = self.first.take().or_else(|| other.first.clone());
    }

    fn note(&mut self, client: usize, values: &[Option<Vec<u8>>], is_after_start: bool) {
        self.reads += 1;
        let latest = &mut self.latest[client];
        let problem = match (Keys { client }).generation(values) {
            Ok(generation) if generation < *latest => {
                self.undone += 1;
                format!("client {client}: transaction {generation} after {latest}")
            }
            Ok(generation) => {
                *latest = generation;
                return;
            }
            Err(error) => {
                self.torn += 1;
                self.torn_after_start += u64::from(is_after_start);
                error.to_string()
            }
        };
        self.first.get_or_insert(problem);
    }

    /// Fails if a read has seen a part of a transaction, or an earlier one after a later one.
    pub(super) fn check(&self) -> Result<()> {
        let Self { reads, torn, torn_after_start, undone, first, .. } = self;
        ensure!(*reads > 0, "nothing was read, so the test proves nothing");
        ensure!(
            first.is_none(),
            "of {reads} reads, {torn} saw a part of a transaction ({torn_after_start} of them just \
             after a start), {undone} an earlier transaction; first: {}",
            first.as_deref().unwrap_or("")
        );
        Ok(())
    }
}

const ENDED: &str = "the server has ended";

/// Reads the generation of a client's keys. Fails if they are of several.
pub(super) fn read(connection: &mut Connection, keys: Keys) -> Result<u64> {
    keys.generation(&values(connection, keys)?.context(ENDED)?)
}

/// Reads the values of a client's keys by one `MGET`. Returns `None` if the connection ends.
fn values(connection: &mut Connection, keys: Keys) -> Result<Option<Vec<Option<Vec<u8>>>>> {
    if until_end(connection.send(&keys.read()))?.is_none() {
        return Ok(None);
    }
    let Some(line) = until_end(connection.line())? else { return Ok(None) };
    let expected = format!("*{KEYS}");
    ensure!(line == expected, "a server responded {line:?}, not {expected:?}");
    let mut values = Vec::with_capacity(KEYS);
    for _ in 0..KEYS {
        let Some(line) = until_end(connection.line())? else { return Ok(None) };
        let bytes = line.strip_prefix('$').and_then(|number| number.parse::<i64>().ok());
        values.push(match bytes.map(usize::try_from) {
            Some(Ok(bytes)) => {
                let Some(mut value) = until_end(connection.read(bytes + 2))? else {
                    return Ok(None);
                };
                value.truncate(bytes);
                Some(value)
            }
            Some(Err(_)) => None,
            None => bail!("a server responded {line:?} in place of a value"),
        });
    }
    Ok(Some(values))
}
