//! Which keys were asked for lately, and when: for the flags `h` and `l` of the meta commands.
//!
//! One table of a fixed size for all keys. A key has one of the eight cells of its bucket, and
//! loses it to one that was noted later, so that what is forgotten is what was not asked for in a
//! long time. Cells are plain atomics, written without a lock: two threads that note keys of one
//! bucket at once may lose one of the notes, which is worth less than a lock would cost. Nothing is
//! noted, and no memory taken, before a client has used a meta command.

use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Keys that are remembered; 8 bytes each.
const CELLS: usize = 1 << 17;

/// Cells that a key can be in.
const BUCKET_CELLS: usize = 8;

/// A line of the processor's cache.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; BUCKET_CELLS]);

/// Bits of a cell below the key's: the second of the last access, and whether it was one.
const SECOND_BITS: u32 = 32;
const TAG_SHIFT: u32 = SECOND_BITS + 1;

/// The table.
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

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// It was read since it was stored.
    pub(crate) is_read: bool,
    /// When it was last stored or read, in seconds since the server started.
    pub(crate) second: u64,
}

impl Hits {
    /// Has it note keys from now on.
    pub(crate) fn activate(&self) {
        self.buckets.get_or_init(|| (0..CELLS / BUCKET_CELLS).map(|_| Bucket::default()).collect());
    }

    /// Whether keys are noted.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.buckets.get().is_some()
    }

    /// Has the cells of keys on their way to the processor before they are noted.
    #[inline]
    pub(crate) fn prefetch(&self, keys: &[&[u8]]) {
        if !self.is_active() {
            return;
        }
        for key in keys {
            if let Some((bucket, _)) = self.bucket(key) {
                // The processor does not wait for it and goes on with the next.
                black_box(bucket[0].load(Ordering::Relaxed));
            }
        }
    }

    /// Notes that a record was stored, or read.
    pub(crate) fn note(&self, key: &[u8], hit: Hit) {
        let Some((bucket, tag)) = self.bucket(key) else { return };
        // 0 is a cell that nobody has.
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

    /// What is known of a key, unless it was never noted or is forgotten.
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
        // The last thousandth of all keys hardly lost one of the eight places of a bucket.
        assert!(known(&keys[keys.len() - CELLS / 1000..]) > CELLS / 1000 * 9 / 10);
        assert!(known(&keys[..CELLS]) < CELLS / 10);
        assert!(known(&keys) <= CELLS + CELLS / 10);
    }
}
