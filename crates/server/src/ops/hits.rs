//! Access statistics: which keys were read lately, and when, for the flags `h` and `l` of the meta
//! commands.
//!
//! One table of a fixed size covers all keys. A key takes one of the eight cells of its bucket, and
//! evicts the key that was noted longest ago. Cells are plain atomics, written without a lock. If
//! two threads note keys of one bucket at once, one note may be lost; a lock would cost more than
//! the note is worth. Before a client has used a meta command nothing is noted, and no memory is
//! taken.

use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Number of cells, of 8 bytes each.
const CELLS: usize = 1 << 17;

/// Number of cells that a key can be in.
const BUCKET_CELLS: usize = 8;

/// One cache line of the processor.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; BUCKET_CELLS]);

/// Low bits of a cell: the second of the last access. The bit above them is set once the record was
/// read.
const SECOND_BITS: u32 = 32;
const TAG_SHIFT: u32 = SECOND_BITS + 1;

/// The table of accesses.
#[derive(Debug)]
pub(crate) struct Hits {
    buckets: OnceLock<Box<[Bucket]>>,
    seed: u64,
}

impl Default for Hits {
    fn default() -> Self {
        Self { buckets: OnceLock::new(), seed: RandomState::new().hash_one(0) }
    }
}

/// The last access to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// The record was read since it was stored.
    pub(crate) is_read: bool,
    /// Time at which the record was last stored or read, in seconds since the server started.
    pub(crate) second: u64,
}

impl Hits {
    /// Begins to note keys.
    pub(crate) fn activate(&self) {
        self.buckets.get_or_init(|| (0..CELLS / BUCKET_CELLS).map(|_| Bucket::default()).collect());
    }

    /// Returns whether keys are noted.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.buckets.get().is_some()
    }

    /// Prefetches the cells of keys that are about to be noted.
    #[inline]
    pub(crate) fn prefetch(&self, keys: &[&[u8]]) {
        if !self.is_active() {
            return;
        }
        for key in keys {
            if let Some((bucket, _)) = self.bucket(key) {
                // The processor starts the next load without waiting for this one.
                black_box(bucket[0].load(Ordering::Relaxed));
            }
        }
    }

    /// Notes that a record was stored, or read.
    pub(crate) fn note(&self, key: &[u8], hit: Hit) {
        let Some((bucket, tag)) = self.bucket(key) else { return };
        // The value 0 marks a free cell.
        let second = (hit.second + 1).min(u64::from(u32::MAX));
        let noted = tag << TAG_SHIFT | u64::from(hit.is_read) << SECOND_BITS | second;
        let oldest = bucket.iter().min_by_key(|cell| {
            let cell = cell.load(Ordering::Relaxed);
            if cell >> TAG_SHIFT == tag { 0 } else { cell & u64::from(u32::MAX) }
        });
        if let Some(cell) = oldest {
            cell.store(noted, Ordering::Relaxed);
        }
    }

    /// Returns the last access to a key, unless it was never noted or has been evicted.
    pub(crate) fn find(&self, key: &[u8]) -> Option<Hit> {
        let (bucket, tag) = self.bucket(key)?;
        let cells = bucket.iter().map(|cell| cell.load(Ordering::Relaxed));
        let cell = cells.filter(|cell| *cell != 0).find(|cell| cell >> TAG_SHIFT == tag)?;
        Some(Hit {
            is_read: cell >> SECOND_BITS & 1 != 0,
            second: (cell & u64::from(u32::MAX)) - 1,
        })
    }

    #[inline]
    fn bucket(&self, key: &[u8]) -> Option<(&[AtomicU64; BUCKET_CELLS], u64)> {
        let buckets = self.buckets.get()?;
        let hash = xxh3_64_with_seed(key, self.seed);
        Some((&buckets[hash as usize % buckets.len()].0, hash >> TAG_SHIFT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_noted_before_somebody_asks() {
        let hits = Hits::default();
        hits.note(b"k", Hit { is_read: true, second: 5 });
        assert!(!hits.is_active());
        assert_eq!(hits.find(b"k"), None);
    }

    #[test]
    fn the_last_note_of_a_key_counts() {
        let hits = Hits::default();
        hits.activate();
        assert_eq!(hits.find(b"k"), None);
        for hit in [
            Hit { is_read: false, second: 0 },
            Hit { is_read: true, second: 5 },
            Hit { is_read: false, second: 6 },
        ] {
            hits.note(b"k", hit);
            assert_eq!(hits.find(b"k"), Some(hit));
        }
    }

    #[test]
    fn keys_beyond_the_tables_size_push_out_the_oldest_of_their_bucket() {
        let hits = Hits::default();
        hits.activate();
        let keys: Vec<_> = (0..4 * CELLS as u64).map(u64::to_le_bytes).collect();
        for (second, key) in keys.iter().enumerate() {
            hits.note(key, Hit { is_read: true, second: second as u64 });
        }
        let known = |keys: &[[u8; 8]]| keys.iter().filter(|key| hits.find(*key).is_some()).count();
        // The last thousandth of all keys is rarely evicted from the eight cells of a bucket.
        assert!(known(&keys[keys.len() - CELLS / 1000..]) > CELLS / 1000 * 9 / 10);
        assert!(known(&keys[..CELLS]) < CELLS / 10);
        assert!(known(&keys) <= CELLS + CELLS / 10);
    }
}
