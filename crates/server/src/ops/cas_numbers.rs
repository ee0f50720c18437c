//! Numbers for compare-and-swap that differ from a record's version.
//!
//! To clients of memcached the number of a record is the database's version of it. But a touch
//! changes the version and not what the client calls the record's number, and with flag `E` of the
//! meta commands a client says itself what the number shall be. The versions for which this is so
//! are in a table of a fixed size. What is pushed out of it makes the next compare-and-swap fail,
//! after which its client reads the number again: no swap succeeds that should not.

use cabinet::Version;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

/// Parts of the table, each with a lock.
const SHARDS: usize = 16;

/// Most versions in one part.
const SHARD_VERSIONS_MAX: usize = 4096;

/// The table.
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
    /// The number of the record that has this version.
    #[inline]
    pub(crate) fn number(&self, version: Version) -> u64 {
        if self.is_used() { self.find(version) } else { version }
    }

    /// Whether a client that means the record of this version would name this number.
    #[inline]
    pub(crate) fn matches(&self, version: Version, number: u64) -> bool {
        number == version || self.is_used() && self.find(version) == number
    }

    /// Whether there are numbers that differ.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// Gives the record of a version a number.
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
