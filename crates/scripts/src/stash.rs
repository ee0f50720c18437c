//! Stash: a map in memory that all states of a process share, with a limit of bytes.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Bytes that a record takes in addition to its key and value.
const RECORD_BYTES: usize = 64;

/// The map.
pub(crate) struct Stash {
    bytes_max: usize,
    contents: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
}

/// The stash has no space left.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stash is full: raise its limit of {bytes_max} bytes, or remove records")]
pub(crate) struct StashFull {
    bytes_max: usize,
}

impl Stash {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, contents: Mutex::default() }
    }

    /// Returns a copy of the value under a key, if there is one.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.contents.lock().records.get(key).cloned()
    }

    /// Stores a record.
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StashFull> {
        let mut contents = self.contents.lock();
        let before = contents.records.get(key).map_or(0, |value| size(key, value));
        let bytes = contents.bytes - before + size(key, value);
        self.check(bytes)?;
        contents.bytes = bytes;
        contents.records.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    /// Stores a record if there is none.
    pub(crate) fn put_keep(&self, key: &[u8], value: &[u8]) -> Result<(), StashFull> {
        let mut contents = self.contents.lock();
        if contents.records.contains_key(key) {
            return Ok(());
        }
        let bytes = contents.bytes + size(key, value);
        self.check(bytes)?;
        contents.bytes = bytes;
        contents.records.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    /// Adds to the end of a value, or stores it.
    pub(crate) fn append(&self, key: &[u8], value: &[u8]) -> Result<(), StashFull> {
        let mut contents = self.contents.lock();
        let Contents { records, bytes } = &mut *contents;
        match records.get_mut(key) {
            Some(present) => {
                self.check(*bytes + value.len())?;
                *bytes += value.len();
                present.extend_from_slice(value);
            }
            None => {
                self.check(*bytes + size(key, value))?;
                *bytes += size(key, value);
                records.insert(key.to_vec(), value.to_vec());
            }
        }
        Ok(())
    }

    /// Removes a record. Returns whether there was one.
    pub(crate) fn remove(&self, key: &[u8]) -> bool {
        let mut contents = self.contents.lock();
        match contents.records.remove(key) {
            Some(value) => {
                contents.bytes -= size(key, &value);
                true
            }
            None => false,
        }
    }

    /// Removes all records.
    pub(crate) fn clear(&self) {
        *self.contents.lock() = Contents::default();
    }

    /// Returns the first record after a key, or the very first.
    pub(crate) fn after(&self, key: Option<&[u8]>) -> Option<(Vec<u8>, Vec<u8>)> {
        let contents = self.contents.lock();
        let start = key.map_or(Bound::Unbounded, Bound::Excluded);
        let mut records = contents.records.range::<[u8], _>((start, Bound::Unbounded));
        records.next().map(|(key, value)| (key.clone(), value.clone()))
    }

    fn check(&self, bytes: usize) -> Result<(), StashFull> {
        if bytes > self.bytes_max { Err(StashFull { bytes_max: self.bytes_max }) } else { Ok(()) }
    }
}

fn size(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + RECORD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stash_holds_as_many_bytes_as_allowed_and_no_more() {
        let stash = Stash::new(2 * (RECORD_BYTES + 2));
        stash.put(b"a", b"1").unwrap();
        stash.put(b"b", b"2").unwrap();
        stash.put(b"a", b"3").unwrap();
        stash.put(b"a", b"33").unwrap_err();
        stash.put_keep(b"c", b"").unwrap_err();
        stash.append(b"a", b"3").unwrap_err();
        stash.put_keep(b"a", b"4").unwrap();
        assert!(stash.remove(b"b"));
        stash.append(b"a", b"3").unwrap();
        assert_eq!(stash.get(b"a"), Some(b"33".to_vec()));
        stash.clear();
        stash.put(b"c", b"").unwrap();
        stash.put(b"d", b"").unwrap();
    }
}
