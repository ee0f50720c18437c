//! Known history: a load that records every write, and the comparison of a server's replies with
//! it.

use crate::memcached::{Connection, delete_request, set_request};
use crate::random::Random;
use anyhow::{Context, Result, ensure};

/// Number of keys, which are decimal numbers from 1, as every kind of database accepts.
pub(crate) const KEYS: usize = 2000;

/// Number of writes per key on average, enough for several segments of the log.
const WRITES_PER_KEY: usize = 6;

/// Number of writes per removal.
const REMOVALS: u64 = 8;

/// Longest value, in bytes.
const VALUE_BYTES_MAX: u64 = 1000;

/// Shortest value, in bytes: the number of a write and a column.
const VALUE_BYTES_MIN: u64 = 20;

/// Lengths of values with which records take a power of two in a hash or fixed-length database, so
/// that they begin where pages begin.
const ALIGNED_VALUE_BYTES: [u64; 5] = [36, 100, 228, 484, 996];

const PIPELINE_DEPTH: usize = 100;

/// All writes of each key, oldest first; `None` is a removal. All were acknowledged.
pub(crate) struct History {
    writes: Vec<Vec<Option<u64>>>,
    is_table: bool,
    /// Length of all values, in bytes. `None`: each has a length of its own.
    value_bytes: Option<u64>,
}

/// Reply of a server for a key, compared with its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The last write.
    Right,
    /// An error.
    Error,
    /// No record, although the last write stored one.
    Absent,
    /// An older value, or a removed one.
    Older,
}

impl History {
    /// Writes to a server and returns the history.
    pub(crate) fn make(port: u16, random: &mut Random, is_table: bool) -> Result<Self> {
        let value_bytes = match random.below(10) {
            0..4 => Some(VALUE_BYTES_MAX),
            4..6 => None,
            _ => {
                let index = random.below(ALIGNED_VALUE_BYTES.len() as u64);
                ALIGNED_VALUE_BYTES.get(index as usize).copied()
            }
        };
        let mut history = Self { writes: vec![Vec::new(); KEYS], is_table, value_bytes };
        let mut connection = Connection::open(port)?;
        let mut next = 0;
        for _ in 0..KEYS * WRITES_PER_KEY / PIPELINE_DEPTH {
            let mut requests = Vec::new();
            for _ in 0..PIPELINE_DEPTH {
                let key = random.below(KEYS as u64) as usize;
                next += 1;
                let write = (random.below(REMOVALS) != 0).then_some(next);
                requests.extend(match write {
                    Some(number) => set_request(&name(key), &history.value(number)),
                    None => delete_request(&name(key)),
                });
                history.writes[key].push(write);
            }
            connection.send(&requests)?;
            for _ in 0..PIPELINE_DEPTH {
                let answer = connection.line()?;
                ensure!(
                    ["STORED", "DELETED", "NOT_FOUND"].contains(&answer.as_str()),
                    "a write was answered with {answer:?}"
                );
            }
        }
        Ok(history)
    }

    /// Returns the value of a write: its number and filling.
    fn value(&self, write: u64) -> Vec<u8> {
        let mut value = if self.is_table { b"v\0".to_vec() } else { Vec::new() };
        value.extend_from_slice(format!("{write}:").as_bytes());
        let any = VALUE_BYTES_MIN + Random(write).below(VALUE_BYTES_MAX - VALUE_BYTES_MIN);
        value.resize(self.value_bytes.unwrap_or(any) as usize, b'a' + (write % 26) as u8);
        value
    }

    /// Returns the length of the shortest value, in bytes.
    pub(crate) fn value_bytes_min(&self) -> u64 {
        self.value_bytes.unwrap_or(VALUE_BYTES_MIN)
    }

    /// Reads every key and judges the replies. Fails on a value that was never written to its key.
    pub(crate) fn judge(&self, port: u16) -> Result<Vec<Verdict>> {
        let mut connection = Connection::open(port)?;
        let answer = |key| self.judge_key(&mut connection, key);
        (0..KEYS).map(answer).collect()
    }

    fn judge_key(&self, connection: &mut Connection, key: usize) -> Result<Verdict> {
        let name = name(key);
        connection.send(format!("get {name}\r\n").as_bytes())?;
        let line = connection.line()?;
        if line.starts_with("SERVER_ERROR ") {
            return Ok(Verdict::Error);
        }
        let last = self.writes[key].last().copied().flatten();
        if line == "END" {
            return Ok(if last.is_none() { Verdict::Right } else { Verdict::Absent });
        }
        let size = line.rsplit(' ').next().and_then(|size| size.parse().ok());
        let size: usize = size.with_context(|| format!("{name} was answered with {line:?}"))?;
        let value = connection.read(size + b"\r\nEND\r\n".len())?;
        let value = &value[..size];
        if last.is_some_and(|write| self.value(write) == value) {
            return Ok(Verdict::Right);
        }
        let was_written =
            self.writes[key].iter().flatten().any(|write| self.value(*write) == value);
        ensure!(was_written, "{name} has a value that was never written to it: {:?}", {
            value.escape_ascii().to_string()
        });
        Ok(Verdict::Older)
    }
}

fn name(key: usize) -> String {
    (key + 1).to_string()
}
