//! Versatile functions of every kind of database, and of those with ordered keys.

use crate::client::Pair;
use crate::{Client, Error, Result};
use wire::binary::NOT_LOGGED;

/// Returns a maximum as the functions take it, with 0 for no limit.
fn max_text(max: Option<usize>) -> String {
    max.unwrap_or(0).to_string()
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Groups elements that alternate between keys and values.
pub(crate) fn pairs(elements: Vec<Vec<u8>>) -> Vec<Pair> {
    let mut elements = elements.into_iter();
    let pair = || Some((elements.next()?, elements.next()?));
    std::iter::from_fn(pair).collect()
}

/// Returns `None` if a function failed, which it does for a missing record or for any other reason.
pub(crate) fn none_if_failed<T>(response: Result<T>) -> Result<Option<T>> {
    match response {
        Ok(found) => Ok(Some(found)),
        Err(Error::Miscellaneous) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A key, and when its record expires, in milliseconds since 1970; 0 is never.
pub type Expiry = (Vec<u8>, u64);

/// State of a verification of a server's checksums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckState {
    /// Number of the verification.
    pub run: u64,
    /// `running`, `finished`, `stopped` or `failed`; `idle` if there was none.
    pub state: Vec<u8>,
    /// Reason of a failure.
    pub error: Vec<u8>,
    /// Segments of the log verified so far.
    pub segments: u64,
    /// Records verified so far, dead ones included.
    pub records: u64,
    /// Bytes of those records.
    pub bytes: u64,
    /// Damaged ranges found so far.
    pub damages: u64,
    /// The requested damaged ranges, each with file, byte offset and description. The server keeps
    /// the first 1000.
    pub damage: Vec<Vec<u8>>,
}

impl Client {
    /// Starts a verification of every checksum of the server's database and returns its number. See
    /// [`Client::check_state`]. `bytes_per_second` limits the rate. A running verification
    /// continues at the new rate.
    pub fn check(&self, bytes_per_second: Option<u64>) -> Result<u64> {
        let rate = bytes_per_second.map(|rate| rate.to_string());
        let mut arguments = vec!["start"];
        arguments.extend(rate.as_deref());
        let response = self.misc(b"check", NOT_LOGGED, &arguments)?;
        response.first().and_then(|run| number(run)).ok_or(Error::Miscellaneous)
    }

    /// Returns the state of the last verification, with the damaged ranges from number `from` on.
    pub fn check_state(&self, from: usize) -> Result<CheckState> {
        let response = self.misc(b"check", NOT_LOGGED, &["state", &from.to_string()])?;
        let mut state = CheckState::default();
        for (name, value) in pairs(response) {
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
                // From a later version.
                _ => {}
            }
        }
        Ok(state)
    }

    /// Stops the running verification.
    pub fn check_stop(&self) -> Result<()> {
        self.misc(b"check", NOT_LOGGED, &["stop"]).map(drop)
    }

    /// Stores a value that expires after a number of seconds. As in memcached, more than 30 days
    /// are a time since 1970, 0 is never, and below 0 the record has expired at once. A table has
    /// no such records.
    pub fn put_expiring(&self, key: &[u8], value: &[u8], seconds: i64) -> Result<()> {
        self.misc(b"putexp", 0, &[key, value, seconds.to_string().as_bytes()]).map(drop)
    }

    /// Sets when a record expires, see [`Client::put_expiring`]. Returns whether there is a record.
    pub fn touch(&self, key: &[u8], seconds: i64) -> Result<bool> {
        let response = self.misc(b"touch", 0, &[key, seconds.to_string().as_bytes()]);
        Ok(none_if_failed(response)?.is_some())
    }

    /// Returns when the records under these keys expire, in milliseconds since 1970, 0 for never.
    /// Keys without a record are left out. `None` if the server cannot tell, as Tokyo Tyrant.
    pub fn expiries<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Option<Vec<Expiry>>> {
        let Some(response) = none_if_failed(self.misc(b"expiry", NOT_LOGGED, keys))? else {
            return Ok(None);
        };
        let expiry = |(key, text): Pair| Some((key, number(&text)?));
        let expiries: Option<Vec<_>> = pairs(response).into_iter().map(expiry).collect();
        expiries.ok_or(Error::Miscellaneous).map(Some)
    }

    /// Adds to a number in decimal text and returns the sum. A sum below 0 is 0, one above the
    /// largest [`u64`] begins again at 0. A missing record is made from `initial`, the number and
    /// the seconds until it expires, to which nothing is added. `None` if there is no record and no
    /// `initial`, or if the record is no number.
    pub fn increment(
        &self,
        key: &[u8],
        addend: i64,
        initial: Option<(u64, i64)>,
    ) -> Result<Option<u64>> {
        let addend = addend.to_string();
        let initial = initial.map(|(number, seconds)| (number.to_string(), seconds.to_string()));
        let mut arguments = vec![key, addend.as_bytes()];
        if let Some((number, seconds)) = &initial {
            arguments.extend([number.as_bytes(), seconds.as_bytes()]);
        }
        let Some(response) = none_if_failed(self.misc(b"incr", 0, &arguments))? else {
            return Ok(None);
        };
        response.first().and_then(|sum| number(sum)).ok_or(Error::Miscellaneous).map(Some)
    }

    /// Stores a value after the existing values of a key. Only a tree has such duplicates.
    pub fn put_duplicate(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.misc(b"putdup", 0, &[key, value]).map(drop)
    }

    /// Stores a value before the existing values of a key.
    pub fn put_duplicate_front(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.misc(b"putdupback", 0, &[key, value]).map(drop)
    }

    /// Returns all values of a key of a tree, none if the key does not exist.
    pub fn get_all(&self, key: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(none_if_failed(self.misc(b"get", NOT_LOGGED, &[key]))?.unwrap_or_default())
    }

    /// Removes all values of these keys of a tree. Missing keys are ignored.
    pub fn out_all<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<()> {
        self.misc(b"outlist", 0, keys).map(drop)
    }

    /// Returns at most `max` records from `begin` on and before `end`, if keys are ordered. An
    /// empty `begin` is the first key; without `end` the range is unbounded.
    pub fn range(&self, begin: &[u8], end: Option<&[u8]>, max: Option<usize>) -> Result<Vec<Pair>> {
        if max == Some(0) {
            return Ok(Vec::new());
        }
        let most = max_text(max);
        let mut arguments = vec![begin, most.as_bytes()];
        arguments.extend(end);
        Ok(pairs(self.misc(b"range", NOT_LOGGED, &arguments)?))
    }

    /// Returns at most `max` records whose key matches a POSIX extended regular expression. A
    /// leading `*` ignores case.
    pub fn find(&self, pattern: &[u8], max: Option<usize>) -> Result<Vec<Pair>> {
        if max == Some(0) {
            return Ok(Vec::new());
        }
        Ok(pairs(self.misc(b"regex", NOT_LOGGED, &[pattern, max_text(max).as_bytes()])?))
    }
}
