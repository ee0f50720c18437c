//! Which records of a segment were read since they came there.
//!
//! A bit for each [`GRANULE_BYTES`] of a segment, so 2 bytes for each KiB: they stay in the
//! processor's caches where the records do not. Records that begin on one granule share a bit.
//! Nothing is kept of them when the database is closed: then all count as not read.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a segment that share a bit.
const GRANULE_BYTES: usize = 64;

/// See the module. It takes no memory before somebody wants to know.
#[derive(Default)]
pub(crate) struct AccessBits(OnceLock<Box<[AtomicU64]>>);

impl AccessBits {
    /// From now on marks are kept, of records in the first `bytes` bytes.
    pub(crate) fn watch(&self, bytes: usize) {
        let words = bytes.div_ceil(GRANULE_BYTES * u64::BITS as usize);
        self.0.get_or_init(|| (0..words).map(|_| AtomicU64::new(0)).collect());
    }

    /// Notes that the record at `offset` was read.
    #[inline]
    pub(crate) fn mark(&self, offset: usize) {
        if let Some((word, bit)) = self.place(offset)
            // A line that all read should not be written to all the time.
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
    fn marks_are_of_one_granule_and_kept_once_somebody_watches() {
        let bits = AccessBits::default();
        bits.mark(64);
        assert!(!bits.is_marked(64), "nobody watches");
        bits.watch(64 << 10);
        bits.mark(4096);
        bits.watch(64 << 10);
        for offset in (0..64 << 10).step_by(8) {
            assert_eq!(bits.is_marked(offset), (4096..4160).contains(&offset), "{offset}");
        }
        bits.mark(64 << 10);
        assert!(!bits.is_marked(64 << 10), "it lies behind the end");
    }
}
