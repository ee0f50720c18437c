//! Counts of a log's activities since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Count and total duration of an activity.
#[derive(Default)]
pub(super) struct Timed {
    count: AtomicU64,
    total_us: AtomicU64,
}

impl Timed {
    /// Counts one that began at `began` and ends now.
    pub(super) fn count_since(&self, began: Instant) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.total_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the total duration in microseconds.
    pub(super) fn total_us(&self) -> u64 {
        self.total_us.load(Ordering::Relaxed)
    }
}

/// Returns a part as a share of the whole, in percent.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
    (part * 100).checked_div(whole).unwrap_or(0)
}
