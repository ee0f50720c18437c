//! Stash: a map in memory that all states of a process share, with a limit of bytes.

use crate::memory::{TotalExhausted, TotalMemory};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Bytes that a record takes in addition to its key and value.
const RECORD_BYTES: usize = 112;

/// Share of a value by which it grows at least when something is added to it.
const GROWTH_SHARE: usize = 8;

/// The map.
pub(crate) struct Stash {
    bytes_max: usize,
    /// Memory that all scripts share. The contents are charged to it.
    memory: Arc<TotalMemory>,
    contents: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
}

/// The stash has no space left.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StashFull {
    #[error("the stash is full: raise its limit of {bytes_max} bytes, or remove records")]
    Own { bytes_max: usize },
    #[error("the stash cannot grow: {0}")]
    Total(#[from] TotalExhausted),
}

impl Stash {
    pub(crate) fn new(bytes_max: usize, memory: Arc<TotalMemory>) -> Self {
        Self { bytes_max, memory, contents: Mutex::default() }
    }

    /// Calls `copy` with the value under a key, if there is one.
    pub(crate) fn get<T>(&self, key: &[u8], copy: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.contents.lock().records.get(key).map(|value| copy(value))
    }

    /// Stores a record.
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StashFull> {
        let mut contents = self.contents.lock();
        let before = contents.records.get(key).map_or(0, |value| size(key, value));
        let bytes = contents.bytes - before + size(key, value);
        self.resize(&mut contents.bytes, bytes)?;
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
        self.resize(&mut contents.bytes, bytes)?;
        contents.records.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    /// Adds to the end of a value, or stores it.
    pub(crate) fn append(&self, key: &[u8], value: &[u8]) -> Result<(), StashFull> {
        let mut contents = self.contents.lock();
        let Contents { records, bytes } = &mut *contents;
        match records.get_mut(key) {
            Some(present) => {
                self.resize(bytes, *bytes + value.len())?;
                if present.capacity() - present.len() < value.len() {
                    present.reserve_exact(value.len().max(present.len() / GROWTH_SHARE));
                }
                present.extend_from_slice(value);
            }
            None => {
                self.resize(bytes, *bytes + size(key, value))?;
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
                let removed = size(key, &value);
                contents.bytes -= removed;
                self.memory.give_back(removed);
                true
            }
            None => false,
        }
    }

    /// Removes all records.
    pub(crate) fn clear(&self) {
        let mut contents = self.contents.lock();
        self.memory.give_back(contents.bytes);
        *contents = Contents::default();
    }

    /// Calls `copy` with the first record after a key, or the very first.
    pub(crate) fn after<T>(
        &self,
        key: Option<&[u8]>,
        copy: impl FnOnce(&[u8], &[u8]) -> T,
    ) -> Option<T> {
        let contents = self.contents.lock();
        let start = key.map_or(Bound::Unbounded, Bound::Excluded);
        let mut records = contents.records.range::<[u8], _>((start, Bound::Unbounded));
        records.next().map(|(key, value)| copy(key, value))
    }

    /// Changes the bytes of the contents, unless they are more than the limits allow.
    fn resize(&self, bytes: &mut usize, to: usize) -> Result<(), StashFull> {
        if to > self.bytes_max {
            return Err(StashFull::Own { bytes_max: self.bytes_max });
        }
        match to.checked_sub(*bytes) {
            Some(more) => self.memory.take(more)?,
            None => self.memory.give_back(*bytes - to),
        }
        *bytes = to;
        Ok(())
    }
}

impl Drop for Stash {
    fn drop(&mut self) {
        self.clear();
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
        let stash = Stash::new(2 * (RECORD_BYTES + 2), Arc::new(TotalMemory::new(usize::MAX)));
        stash.put(b"a", b"1").unwrap();
        stash.put(b"b", b"2").unwrap();
        stash.put(b"a", b"3").unwrap();
        stash.put(b"a", b"33").unwrap_err();
        stash.put_keep(b"c", b"").unwrap_err();
        stash.append(b"a", b"3").unwrap_err();
        stash.put_keep(b"a", b"4").unwrap();
        assert!(stash.remove(b"b"));
        stash.append(b"a", b"3").unwrap();
        assert_eq!(stash.get(b"a", <[u8]>::to_vec), Some(b"33".to_vec()));
        stash.clear();
        stash.put(b"c", b"").unwrap();
        stash.put(b"d", b"").unwrap();
    }

    #[test]
    fn the_stash_takes_as_much_of_the_total_as_there_is_and_gives_all_back() {
        let memory = Arc::new(TotalMemory::new(2 * RECORD_BYTES + 10));
        let stash = Stash::new(usize::MAX, Arc::clone(&memory));
        stash.put(b"a", b"1").unwrap();
        stash.put_keep(b"b", &[b'2'; 7]).unwrap();
        assert_eq!(memory.used(), memory.max());
        for result in [
            stash.put(b"c", b""),
            stash.put_keep(b"c", b""),
            stash.append(b"c", b""),
            stash.put(b"a", b"12"),
            stash.append(b"a", b"2"),
        ] {
            let error = result.unwrap_err();
            assert!(matches!(error, StashFull::Total(_)));
            assert!(error.to_string().contains("script-memory-total"), "{error}");
        }
        assert_eq!(stash.get(b"a", <[u8]>::to_vec), Some(b"1".to_vec()));
        stash.put(b"b", b"").unwrap();
        assert_eq!(memory.used(), memory.max() - 7);
        assert!(stash.remove(b"b"));
        assert_eq!(memory.used(), RECORD_BYTES + 2);
        stash.clear();
        assert_eq!(memory.used(), 0);
        stash.put(b"a", b"1").unwrap();
        drop(stash);
        assert_eq!(memory.used(), 0);
    }
}
