//! CAS overrides: numbers for compare-and-swap that differ from a record's version.
//!
//! memcached's clients see the database's version of a record as its CAS number. A touch changes
//! the version but not the CAS number, and with flag `E` of the meta commands a client sets the
//! number itself. Versions with a CAS number of their own are in a table of a fixed size. After an
//! override is evicted, the next compare-and-swap fails, and its client reads the number again. No
//! swap succeeds that should fail.

use cabinet::Version;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

/// Shards of the table, each with a lock.
const SHARDS: usize = 16;

/// Most versions in a shard.
const SHARD_VERSIONS_MAX: usize = 4096;

/// The table of overrides.
#[derive(Debug, Default)]
pub(crate) struct CasNumbers {
    is_used: AtomicBool,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    numbers: HashMap<Version, u64>,
    /// The versions, oldest first.
    versions: VecDeque<Version>,
}

impl CasNumbers {
    /// Returns the CAS number of the record that has this version.
    #[inline]
    pub(crate) fn number(&self, version: Version) -> u64 {
        if self.is_used() { self.find(version) } else { version }
    }

    /// Returns whether `number` is the CAS number of the record that has this version.
    #[inline]
    pub(crate) fn matches(&self, version: Version, number: u64) -> bool {
        number == version || self.is_used() && self.find(version) == number
    }

    /// Returns whether there are overrides.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Sets the CAS number of the record that has this version.
    pub(crate) fn set(&self, version: Version, number: u64) {
        if version == number {
            return;
        }
        self.is_used.store(true, Ordering::Relaxed);
        let mut shard = self.shards[shard_of(version)].lock();
        if shard.numbers.insert(version, number).is_none() {
            shard.versions.push_back(version);
        }
        if shard.versions.len() > SHARD_VERSIONS_MAX
            && let Some(oldest) = shard.versions.pop_front()
        {
            shard.numbers.remove(&oldest);
        }
    }

    fn find(&self, version: Version) -> u64 {
        let shard = self.shards[shard_of(version)].lock();
        shard.numbers.get(&version).copied().unwrap_or(version)
    }
}

fn shard_of(version: Version) -> usize {
    version as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_its_own_number_unless_it_was_given_one() {
        let numbers = CasNumbers::default();
        assert_eq!(numbers.number(7), 7);
        assert!(numbers.matches(7, 7) && !numbers.matches(7, 8));
        numbers.set(7, 5);
        assert_eq!(numbers.number(7), 5);
        assert!(numbers.matches(7, 5) && numbers.matches(7, 7) && !numbers.matches(7, 8));
        assert_eq!(numbers.number(8), 8);
    }

    #[test]
    fn the_table_keeps_the_newest_and_no_more_than_its_size() {
        let numbers = CasNumbers::default();
        let last = 2 * (SHARDS * SHARD_VERSIONS_MAX) as u64;
        for version in 1..=last {
            numbers.set(version, version + 1);
        }
        let kept = (1..=last).filter(|version| numbers.number(*version) != *version);
        assert!(kept.eq(last / 2 + 1..=last));
    }
}
