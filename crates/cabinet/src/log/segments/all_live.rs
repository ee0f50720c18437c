//! Flag for a segment whose records are all live, so that a scan need not look them up.

use std::sync::atomic::{AtomicU8, Ordering};

/// Knowledge of whether every record of a segment is live.
///
/// A thread that changes the index records the loss of a record before it appends the change that
/// supersedes it. So the loss is recorded before the record's next version or its tombstone is in
/// the log.
#[derive(Debug, Default)]
pub(crate) struct AllLive(AtomicU8);

/// Another process wrote the segment, and no scan has checked all its records since.
const UNKNOWN: u8 = 0;
const ALL: u8 = 1;
const NOT_ALL: u8 = 2;

impl AllLive {
    /// Records that this process begins the segment.
    pub(in crate::log) fn begin(&self) {
        self.0.store(ALL, Ordering::Relaxed);
    }

    /// Returns whether every record is live.
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ALL
    }

    /// Records that a record is, or will soon be, no longer live.
    #[inline]
    pub(crate) fn lose(&self) {
        // Writers share the cache line as long as no thread writes to it.
        if self.0.load(Ordering::Relaxed) != NOT_ALL {
            self.0.store(NOT_ALL, Ordering::Relaxed);
        }
    }

    /// Records that each record of a sealed segment was found to be live, one after the other. The
    /// state stays as it is if one was lost meanwhile.
    pub(crate) fn find_all(&self) {
        let _ = self.0.compare_exchange(UNKNOWN, ALL, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_that_has_lost_a_record_is_never_whole_again() {
        let known = AllLive::default();
        assert!(!known.get());
        known.find_all();
        assert!(known.get());
        known.lose();
        known.find_all();
        assert!(!known.get());
        let begun = AllLive::default();
        begun.begin();
        assert!(begun.get());
    }
}
