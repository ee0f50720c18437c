//! Keys of expired and of evicted records, for a server that reports changes.
//!
//! An engine removes and evicts records silently. A server that reports changes to replicas or to
//! listeners gives it a [`Clock`](crate::Clock) with a list of each. The engine then keeps expired
//! records, invisibly, and adds their keys to their list until
//! [`Database::remove_expired`](crate::Database::remove_expired) is called. Records that it evicts
//! are gone when their keys are listed.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of bytes of listed keys. The engine adds further keys of expired records the next
/// time; those of evicted ones are left out.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// The lists of a database.
#[derive(Debug, Default)]
pub struct KeyReports {
    /// Keys of records that have expired and still exist.
    pub(crate) expired: ReportedKeys,
    /// Keys of records that were evicted.
    pub(crate) evicted: ReportedKeys,
}

/// A list of keys that an engine reports.
#[derive(Debug, Default)]
pub struct ReportedKeys {
    /// Whether engines add keys.
    has_begun: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    keys: BTreeSet<Vec<u8>>,
    bytes: usize,
}

impl ReportedKeys {
    /// Makes the engine add keys from now on.
    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Returns and clears the keys that were added since the last call, each once.
    pub fn take(&self) -> BTreeSet<Vec<u8>> {
        let mut waiting = self.waiting.lock();
        waiting.bytes = 0;
        std::mem::take(&mut waiting.keys)
    }

    /// Adds a key, if the engine adds keys at all.
    pub(crate) fn report(&self, key: &[u8]) {
        if self.has_begun() {
            self.name(key);
        }
    }

    pub(crate) fn name(&self, key: &[u8]) {
        let mut waiting = self.waiting.lock();
        if waiting.bytes + key.len() < WAITING_BYTES_MAX && waiting.keys.insert(key.to_vec()) {
            // One byte more, so that empty keys count too.
            waiting.bytes += key.len() + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_wait_once_each_and_within_a_limit() {
        let keys = ReportedKeys::default();
        for _ in 0..2 {
            keys.name(b"a");
            keys.name(b"b");
        }
        assert_eq!(keys.take(), BTreeSet::from([b"a".to_vec(), b"b".to_vec()]));
        assert!(keys.take().is_empty());
        keys.name(&[0; WAITING_BYTES_MAX]);
        assert!(keys.take().is_empty());
        keys.name(&[0; WAITING_BYTES_MAX - 1]);
        keys.name(b"a");
        assert_eq!(keys.take().len(), 1);
    }
}
