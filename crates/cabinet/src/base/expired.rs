//! Expiry statistics of an engine.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of expired records since the engine was opened.
#[derive(Debug, Default)]
pub(crate) struct ExpiryStats {
    reads: AtomicU64,
    removed: AtomicU64,
}

impl ExpiryStats {
    /// Counts a read of a key whose record has expired.
    #[cold]
    pub(crate) fn count_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an expired record whose space is reclaimed.
    pub(crate) fn count_removed(&self) {
        self.removed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts by their names in [`crate::Database::stats`].
    pub(crate) fn report(&self) -> [(&'static str, String); 2] {
        let text = |count: &AtomicU64| count.load(Ordering::Relaxed).to_string();
        [("expired_reads", text(&self.reads)), ("expired_removed", text(&self.removed))]
    }
}
