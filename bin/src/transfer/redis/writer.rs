//! Writer of records to a server of Redis's protocol: SET in pipelines, each with its reply.

use super::is_of_one_record;
use crate::bytes::quoted;
use anyhow::{Context, Result, bail, ensure};
use client::{RedisConnection, RedisReply};
use std::collections::VecDeque;

/// Calls for records that the server refused, with the key and the reason.
pub(super) type Refuse<'a> = dyn FnMut(&[u8], &str) + 'a;

pub(super) struct Writer {
    connection: RedisConnection,
    /// Keys whose replies have not come.
    awaited: VecDeque<Vec<u8>>,
    stored: u64,
    /// Whether a flush has failed. The connection is then not used any more.
    has_failed: bool,
}

impl Writer {
    pub(super) fn new(connection: RedisConnection) -> Self {
        Self { connection, awaited: VecDeque::new(), stored: 0, has_failed: false }
    }

    /// Returns the number of records that the server has stored.
    pub(super) fn stored(&self) -> u64 {
        self.stored
    }

    /// Stores a record, which expires at a time in milliseconds since 1970 unless that is 0.
    pub(super) fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        expires_at_ms: u64,
        refuse: &mut Refuse<'_>,
    ) -> Result<()> {
        let time = expires_at_ms.to_string();
        let words = [b"SET", key, value, b"PXAT", time.as_bytes()];
        let words = if expires_at_ms == 0 { &words[..3] } else { &words[..] };
        let is_full = self.connection.push(words);
        self.awaited.push_back(key.to_vec());
        if is_full { self.flush(refuse) } else { Ok(()) }
    }

    /// Returns whether the server has replied to all records.
    pub(super) fn is_flushed(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Sends the records, and reads the replies to all of them. Fails again after a failure.
    pub(super) fn flush(&mut self, refuse: &mut Refuse<'_>) -> Result<()> {
        ensure!(!self.has_failed, "a record before could not be stored");
        self.read_replies(refuse).inspect_err(|_| self.has_failed = true)
    }

    fn read_replies(&mut self, refuse: &mut Refuse<'_>) -> Result<()> {
        let at = |key: &[u8]| format!("the copy ended at the key {}", quoted(key));
        if let Some(key) = self.awaited.front() {
            self.connection.send().with_context(|| at(key))?;
        }
        while let Some(key) = self.awaited.front() {
            match self.connection.reply().with_context(|| at(key))? {
                RedisReply::Simple(b"OK") => self.stored += 1,
                RedisReply::Error(text) => {
                    let text = String::from_utf8_lossy(text);
                    if !is_of_one_record(&text) {
                        bail!("{}: the server replied: {text}", at(key));
                    }
                    refuse(key, &text);
                }
                reply => bail!("{}: the server replied {reply:?} to SET", at(key)),
            }
            self.awaited.pop_front();
        }
        Ok(())
    }
}
