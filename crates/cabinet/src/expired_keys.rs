//! Records that have expired and are removed by another than the engine.
//!
//! An engine removes what has expired by itself, and nobody hears of it. A server that tells others
//! what changes has to: it gives the engine a [`Clock`](crate::Clock) that hands over. The engine
//! then leaves such records where they are, unseen, and names their keys here, until
//! [`Database::remove_expired`](crate::Database::remove_expired) is called.

use parking_lot::Mutex;
use std::collections::BTreeSet;

/// Bytes of keys that wait at most; the engine names what it has left out the next time.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Keys of records that have expired and are still there.
#[derive(Debug, Default)]
pub struct ExpiredKeys(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    keys: BTreeSet<Vec<u8>>,
    bytes: usize,
}

impl ExpiredKeys {
    /// Takes the keys that have been named since the last time, each once.
    pub fn take(&self) -> BTreeSet<Vec<u8>> {
        let mut waiting = self.0.lock();
        waiting.bytes = 0;
        std::mem::take(&mut waiting.keys)
    }

    pub(crate) fn name(&self, key: &[u8]) {
        let mut waiting = self.0.lock();
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
        let keys = ExpiredKeys::default();
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
