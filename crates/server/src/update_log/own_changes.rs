//! When this server last changed which records of its own accord: for finding those that another
//! server changed at the same time.
//!
//! A table of fixed size: it forgets a change when another record takes its slot, so a conflict
//! may be missed where more records than there are places are changed while the servers are apart.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use xxhash_rust::xxh3::xxh3_64;

/// Roots; 8 MiB.
const SLOTS: usize = 1 << 20;

/// In each slot the upper half is of the hash of a key, the lower one seconds since 1970.
pub(super) struct OwnChanges(Box<[AtomicU64]>);

impl OwnChanges {
    pub(super) fn new() -> Self {
        Self((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    /// The record is being changed.
    pub(super) fn record(&self, key: &[u8], now_us: u64) {
        let (slot, mark) = self.slot(key);
        slot.store(mark | seconds(now_us), Relaxed);
    }

    /// Whether the record was changed at a time or later, to the second.
    pub(super) fn has_since(&self, key: &[u8], from_us: u64) -> bool {
        let (slot, mark) = self.slot(key);
        let recorded = slot.load(Relaxed);
        recorded & !u64::from(u32::MAX) == mark
            && recorded & u64::from(u32::MAX) >= seconds(from_us)
    }

    /// Where a key belongs, and what is recorded with it, which is never 0.
    fn slot(&self, key: &[u8]) -> (&AtomicU64, u64) {
        let hash = xxh3_64(key);
        let mark = (hash | 1 << 63) & !u64::from(u32::MAX);
        (&self.0[hash as usize % self.0.len()], mark)
    }
}

fn seconds(at_us: u64) -> u64 {
    (at_us / 1_000_000).min(u32::MAX.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_known_with_its_time() {
        let own = OwnChanges::new();
        own.record(b"a", 5_000_000);
        assert!(own.has_since(b"a", 4_999_999) && own.has_since(b"a", 5_000_000));
        assert!(!own.has_since(b"a", 6_000_000));
        assert!(!own.has_since(b"b", 0));
    }
}
