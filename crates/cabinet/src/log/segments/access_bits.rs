//! Access bits: which records of a segment were read since they were appended.
//!
//! There is one bit per [`GRANULE_BYTES`] of a segment, so 2 bytes per KiB: the bits stay in the
//! processor's caches where the records do not. Records that begin in one granule share a bit. The
//! bits are lost when the database is closed: then all records count as not read.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a segment that share a bit.
const GRANULE_BYTES: usize = 64;

/// Access bits of a segment. They take no memory before they are watched. See the module.
#[derive(Default)]
pub(crate) struct AccessBits(OnceLock<Box<[AtomicU64]>>);

impl AccessBits {
    /// Begins to keep marks of records in the first `bytes` bytes.
    pub(crate) fn watch(&self, bytes: usize) {
        let words = bytes.div_ceil(GRANULE_BYTES * u64::BITS as usize);
        self.0.get_or_init(|| (0..words).map(|_| AtomicU64::new(0)).collect());
    }

    /// Marks the record at `offset` as read.
    #[inline]
    pub(crate) fn mark(&self, offset: usize) {
        if let Some((word, bit)) = self.place(offset)
            // A cache line that all threads read should not be written to all the time.
            && word.load(Ordering::Relaxed) & bit == 0
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_marked(&self, offset: usize) -> bool {
        self.place(offset).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    #[inline]
    fn place(&self, offset: usize) -> Option<(&AtomicU64, u64)> {
        let number = offset / GRANULE_BYTES;
        let word = self.0.get()?.get(number / u64::BITS as usize)?;
        Some((word, 1 << (number % u64::BITS as usize)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_covers_one_granule_and_is_kept_once_bits_are_watched() {
        let bits = AccessBits::default();
        bits.mark(64);
        assert!(!bits.is_marked(64), "the bits are not watched yet");
        bits.watch(64 << 10);
        bits.mark(4096);
        bits.watch(64 << 10);
        for offset in (0..64 << 10).step_by(8) {
            assert_eq!(bits.is_marked(offset), (4096..4160).contains(&offset), "{offset}");
        }
        bits.mark(64 << 10);
        assert!(!bits.is_marked(64 << 10), "the offset is after the end");
    }
}
