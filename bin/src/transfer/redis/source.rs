//! Records of a server of Redis's protocol: SCAN, and for each step the strings and their expiries.

use super::is_of_one_record;
use crate::bytes::quoted;
use crate::time::now_ms;
use anyhow::{Context, Result, bail};
use client::{RedisConnection, RedisReply};

/// Keys that a step of the scan visits.
const STEP_KEYS: &[u8] = b"1000";

/// Reply to a request about the expiry of a key that has no record.
const NO_RECORD: i64 = -2;

/// Record of a key.
pub(super) enum Found<'a> {
    /// A string, and the time at which it expires, in milliseconds since 1970, or 0.
    String(&'a [u8], u64),
    /// A string over the limit, with its length.
    Oversized(usize),
    /// A record of another type.
    Other(String),
    /// A record that this client may not read, and the reason.
    Refused(String),
}

/// Reply to GET.
enum Got {
    Nothing,
    String(Vec<u8>),
    Oversized(usize),
    Error(String),
}

/// Form in which the server gives an expiry.
#[derive(Clone, Copy)]
enum ExpiryForm {
    /// The time, which servers since Redis 7.0 can give.
    Time,
    /// The period that is left.
    Period,
}

impl ExpiryForm {
    fn command(self) -> &'static [u8] {
        match self {
            Self::Time => b"PEXPIRETIME",
            Self::Period => b"PTTL",
        }
    }

    /// Returns the time for a reply, or 0.
    fn expires_at_ms(self, number: i64, now_ms: u64) -> u64 {
        match (self, u64::try_from(number)) {
            (_, Err(_)) => 0,
            (Self::Time, Ok(time)) => time,
            (Self::Period, Ok(period)) => now_ms.saturating_add(period),
        }
    }
}

pub(super) struct Source {
    connection: RedisConnection,
    expiry: ExpiryForm,
}

impl Source {
    pub(super) fn new(mut connection: RedisConnection) -> Result<Self> {
        connection.push(&[ExpiryForm::Time.command(), b""]);
        connection.send()?;
        let expiry = match connection.reply()? {
            RedisReply::Integer(_) => ExpiryForm::Time,
            _ => ExpiryForm::Period,
        };
        Ok(Self { connection, expiry })
    }

    /// Returns the number of records, if the server gives it.
    pub(super) fn count(&mut self) -> Result<Option<u64>> {
        self.connection.push(&[b"DBSIZE"]);
        self.connection.send()?;
        match self.connection.reply()? {
            RedisReply::Integer(count) => Ok(u64::try_from(count).ok()),
            _ => Ok(None),
        }
    }

    /// Returns the keys of a step of the scan, and the cursor of the next one.
    pub(super) fn scan(&mut self, cursor: u64) -> Result<(u64, Vec<Vec<u8>>)> {
        self.connection.push(&[b"SCAN", cursor.to_string().as_bytes(), b"COUNT", STEP_KEYS]);
        self.connection.send()?;
        let reply = self.connection.reply()?;
        let (next, keys) = match reply {
            RedisReply::Array(parts) => match parts.exactly() {
                Some([RedisReply::String(next), RedisReply::Array(keys)]) => (next, keys),
                _ => bail!("the reply to SCAN is not a cursor and keys"),
            },
            RedisReply::Error(text) => bail!("SCAN failed: {}", String::from_utf8_lossy(text)),
            _ => bail!("the reply to SCAN is not an array"),
        };
        let next = std::str::from_utf8(next).ok().and_then(|text| text.parse().ok());
        let keys = keys.filter_map(|key| match key {
            RedisReply::String(key) => Some(key.to_vec()),
            _ => None,
        });
        Ok((next.context("the cursor of SCAN is not a number")?, keys.collect()))
    }

    /// Passes what these keys have to `take`. A key whose record has gone is passed over.
    pub(super) fn read(
        &mut self,
        keys: &[Vec<u8>],
        mut take: impl FnMut(&[u8], Found<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut others = Vec::new();
        let mut rest = keys;
        while !rest.is_empty() {
            let (chunk, later) = chunk(rest, |key| {
                // A client may replace the record in between. An expiry of before would remove the
                // new value too early; that of after is right for the key.
                self.connection.push(&[b"GET", key]);
                self.connection.push(&[self.expiry.command(), key])
            });
            // An earlier expiry is safer than one that is later by the time of the reply.
            let now_ms = now_ms();
            self.connection.send()?;
            for key in chunk {
                self.take_one(key, now_ms, &mut others, &mut take)?;
            }
            rest = later;
        }
        self.read_types(&others, take)
    }

    /// Reads the replies about a key. A record of another type is added to `others`.
    fn take_one<'k>(
        &mut self,
        key: &'k [u8],
        now_ms: u64,
        others: &mut Vec<&'k [u8]>,
        take: &mut impl FnMut(&[u8], Found<'_>) -> Result<()>,
    ) -> Result<()> {
        let at = || format!("the copy ended at the key {}", quoted(key));
        let got = match self.connection.reply().with_context(at)? {
            RedisReply::Null => Got::Nothing,
            RedisReply::String(value) => Got::String(value.to_vec()),
            RedisReply::Oversized(length) => Got::Oversized(length),
            RedisReply::Error(text) => Got::Error(String::from_utf8_lossy(text).into_owned()),
            reply => bail!("{}: the reply to GET is {reply:?}", at()),
        };
        let expiry = match self.connection.reply().with_context(at)? {
            RedisReply::Integer(number) => Ok(number),
            RedisReply::Error(text) => Err(String::from_utf8_lossy(text).into_owned()),
            reply => bail!("{}: the reply to its expiry is {reply:?}", at()),
        };
        match (got, expiry) {
            // A record that came after that is as one that came after the scan.
            (Got::Nothing, _) | (_, Ok(NO_RECORD)) => Ok(()),
            (Got::String(value), Ok(number)) => {
                take(key, Found::String(&value, self.expiry.expires_at_ms(number, now_ms)))
            }
            (Got::Oversized(length), _) => take(key, Found::Oversized(length)),
            (Got::Error(text), _) if text.starts_with("WRONGTYPE") => {
                others.push(key);
                Ok(())
            }
            (Got::Error(text), _) | (_, Err(text)) => refused(key, text, take),
        }
    }

    /// Passes the types of these keys to `take`.
    fn read_types(
        &mut self,
        keys: &[&[u8]],
        mut take: impl FnMut(&[u8], Found<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut rest = keys;
        while !rest.is_empty() {
            let (chunk, later) = chunk(rest, |key| self.connection.push(&[b"TYPE", key]));
            self.connection.send()?;
            for key in chunk {
                let name = match self.connection.reply()? {
                    RedisReply::Simple(b"none") => continue,
                    RedisReply::Simple(name) => String::from_utf8_lossy(name).into_owned(),
                    _ => "unknown".to_owned(),
                };
                take(key, Found::Other(name))?;
            }
            rest = later;
        }
        Ok(())
    }
}

/// Splits keys after those whose requests `push` appends, until it returns that they are enough.
fn chunk<K>(keys: &[K], push: impl FnMut(&K) -> bool) -> (&[K], &[K]) {
    let last = keys.iter().position(push);
    keys.split_at(last.map_or(keys.len(), |last| last + 1))
}

/// Passes a refusal to `take`, unless it is one of all records.
fn refused(
    key: &[u8],
    text: String,
    take: &mut impl FnMut(&[u8], Found<'_>) -> Result<()>,
) -> Result<()> {
    if !is_of_one_record(&text) {
        bail!("the copy ended at the key {}: the server replied: {text}", quoted(key));
    }
    take(key, Found::Refused(text))
}
