//! Versatile functions that every kind of database has, or those whose keys are in order.

use crate::client::Pair;
use crate::{Client, Error, Result};

/// Option of functions that only read: they stay out of the update log.
pub(crate) const UNLOGGED: u32 = 1;

/// A number of records as the functions take it, where 0 is all of them.
fn most(max: Option<usize>) -> String {
    max.unwrap_or(0).to_string()
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Elements that are keys and values in turn.
pub(crate) fn pairs(elements: Vec<Vec<u8>>) -> Vec<Pair> {
    let mut elements = elements.into_iter();
    let pair = || Some((elements.next()?, elements.next()?));
    std::iter::from_fn(pair).collect()
}

/// What a function found that fails where there is nothing, or for any other reason.
pub(crate) fn found<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(Error::Miscellaneous) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a verification of a server's checksums has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckState {
    /// Its number.
    pub run: u64,
    /// `running`, `finished`, `stopped`, `failed`; `idle` where there was none.
    pub state: Vec<u8>,
    /// Why it has failed.
    pub error: Vec<u8>,
    /// Segments of the log so far.
    pub segments: u64,
    /// Records in them, dead ones included.
    pub records: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Damaged places so far.
    pub damages: u64,
    /// The damaged places that were asked for, each with file, byte offset and what was found; the
    /// server keeps the first 1000.
    pub damage: Vec<Vec<u8>>,
}

impl Client {
    /// Has the server verify every checksum of its database, at this most bytes per second if they
    /// are given, and returns the number of that verification: see [`Client::check_state`]. One
    /// that is under way goes on, at the new rate.
    pub fn check(&self, bytes_per_second: Option<u64>) -> Result<u64> {
        let rate = bytes_per_second.map(|rate| rate.to_string());
        let mut arguments = vec!["start"];
        arguments.extend(rate.as_deref());
        let answer = self.misc(b"check", UNLOGGED, &arguments)?;
        answer.first().and_then(|run| number(run)).ok_or(Error::Miscellaneous)
    }

    /// What the last verification has come to, with the damaged places from number `from` on.
    pub fn check_state(&self, from: usize) -> Result<CheckState> {
        let answer = self.misc(b"check", UNLOGGED, &["state", &from.to_string()])?;
        let mut state = CheckState::default();
        for (name, value) in pairs(answer) {
            let count = || number(&value).ok_or(Error::Miscellaneous);
            match &name[..] {
                b"run" => state.run = count()?,
                b"segments" => state.segments = count()?,
                b"records" => state.records = count()?,
                b"bytes" => state.bytes = count()?,
                b"damages" => state.damages = count()?,
                b"state" => state.state = value,
                b"error" => state.error = value,
                b"damage" => state.damage.push(value),
                // Of a later version.
                _ => {}
            }
        }
        Ok(state)
    }

    /// Has the server stop the verification that is under way.
    pub fn check_stop(&self) -> Result<()> {
        self.misc(b"check", UNLOGGED, &["stop"]).map(drop)
    }

    /// Stores a value behind those that a key has. Only a tree has such duplicates.
    pub fn put_duplicate(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.misc(b"putdup", 0, &[key, value]).map(drop)
    }

    /// Stores a value in front of those that a key has.
    pub fn put_duplicate_front(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.misc(b"putdupback", 0, &[key, value]).map(drop)
    }

    /// All values of a key of a tree, none if there is no such key.
    pub fn get_all(&self, key: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(found(self.misc(b"get", UNLOGGED, &[key]))?.unwrap_or_default())
    }

    /// Removes all values of these keys of a tree. Keys that are not there do not count.
    pub fn out_all<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<()> {
        self.misc(b"outlist", 0, keys).map(drop)
    }

    /// Records from `begin` on and before `end`, at most `max`, where keys are in order. An empty
    /// `begin` is the first key, no `end` is behind the last.
    pub fn range(&self, begin: &[u8], end: Option<&[u8]>, max: Option<usize>) -> Result<Vec<Pair>> {
        if max == Some(0) {
            return Ok(Vec::new());
        }
        let most = most(max);
        let mut arguments = vec![begin, most.as_bytes()];
        arguments.extend(end);
        Ok(pairs(self.misc(b"range", UNLOGGED, &arguments)?))
    }

    /// Records whose key matches a POSIX extended regular expression, at most `max`. With a `*` in
    /// front case does not count.
    pub fn find(&self, pattern: &[u8], max: Option<usize>) -> Result<Vec<Pair>> {
        if max == Some(0) {
            return Ok(Vec::new());
        }
        Ok(pairs(self.misc(b"regex", UNLOGGED, &[pattern, most(max).as_bytes()])?))
    }
}
