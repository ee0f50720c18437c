//! Own changes: the times at which this server changed records for its clients, to find conflicts
//! with changes of another server.
//!
//! The table has a fixed size. A change is forgotten when another key takes its slot. So a conflict
//! may be missed if more records than slots change while the servers are apart.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use xxhash_rust::xxh3::xxh3_64;

/// Number of slots; they take 8 MiB.
const SLOTS: usize = 1 << 20;

/// Slots: the upper half is from the hash of the key, the lower half is the time in seconds since
/// 1970.
pub(super) struct OwnChanges(Box<[AtomicU64]>);

impl OwnChanges {
    pub(super) fn new() -> Self {
        Self((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Records a change of the record under `key`.
    pub(super) fn record(&self, key: &[u8], now_us: u64) {
        let (slot, mark) = self.slot(key);
        slot.store(mark | seconds(now_us), Relaxed);
    }

    /// Returns whether the record was changed at `from_us` or later, to the second.
    pub(super) fn has_since(&self, key: &[u8], from_us: u64) -> bool {
        let (slot, mark) = self.slot(key);
        let recorded = slot.load(Relaxed);
        recorded & !u64::from(u32::MAX) == mark
            && recorded & u64::from(u32::MAX) >= seconds(from_us)
    }

    /// Returns the slot of a key, and the upper half of its value, which is never 0.
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
    fn a_change_is_found_by_key_and_time() {
        let own = OwnChanges::new();
        own.record(b"a", 5_000_000);
        assert!(own.has_since(b"a", 4_999_999) && own.has_since(b"a", 5_000_000));
        assert!(!own.has_since(b"a", 6_000_000));
        assert!(!own.has_since(b"b", 0));
    }
}
