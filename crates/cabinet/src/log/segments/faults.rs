//! Faults: damage that is met while a log is in use is counted, logged at a bounded rate, and kept.
//!
//! Every reader that meets a damaged record, or bytes that cannot be read, reports it here. The
//! segment is marked, so that compaction leaves its file alone: its whole records can be salvaged,
//! and the evidence stays.
//!
//! # Verification of reads
//!
//! Records of hash and fixed-length databases: the checksum of a record is verified on each read of
//! its value. If only the key is needed (a put, a list of keys), the key is compared with the hash
//! or the id in the index.
//!
//! Pages of trees: a page is verified whenever it is brought into memory. A page that is searched
//! in the mapping is verified once per period, because that costs several times the search. A
//! period ends when the segment was not wholly in memory, since its bytes may have come from the
//! disk meanwhile, and after [`TRUST_INTERVAL`]. In a damaged segment each read is verified.

use super::segment::Segment;
use crate::Error;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Minimum time between two log lines about the damage of one segment.
pub(crate) const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum time for which a matching checksum is trusted without another check, see the module.
pub(crate) const TRUST_INTERVAL: Duration = Duration::from_secs(60);

/// Origin of all times in this module.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Damage that readers have met in one segment.
#[derive(Default)]
pub(crate) struct Faults {
    /// Number of reads that failed since the log was opened.
    count: AtomicU64,
    /// Milliseconds from [`START`] to the last log line, plus 1; 0 if there was none.
    logged_ms: AtomicU64,
    /// Number of reads that failed since then.
    unlogged: AtomicU64,
    /// Whether the segment may hold a record that is still needed, which damage elsewhere hides.
    is_spared: AtomicBool,
    /// Number of the period for which a matching checksum is trusted; the lowest bit is unused.
    period: AtomicU32,
    /// Milliseconds from [`START`] to the beginning of the period.
    period_began_ms: AtomicU64,
}

impl Faults {
    /// Returns the number of reads that failed.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts a failed read at this time after the start. Returns how many reads before it were not
    /// logged, if this one must be logged.
    fn note(&self, now: Duration) -> Option<u64> {
        self.count.fetch_add(1, Ordering::Relaxed);
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX - 1) + 1;
        let logged_ms = self.logged_ms.load(Ordering::Relaxed);
        let is_due =
            logged_ms == 0 || now_ms.saturating_sub(logged_ms) >= LINE_INTERVAL.as_millis() as u64;
        // Only one of several threads writes the line.
        let is_own = is_due
            && self
                .logged_ms
                .compare_exchange(logged_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_own {
            return Some(self.unlogged.swap(0, Ordering::Relaxed));
        }
        self.unlogged.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Counts a read of a file that failed at this offset, and logs it at the bounded rate.
    #[cold]
    pub(crate) fn report(&self, path: &Path, offset: u64, what: &str) {
        if let Some(unlogged) = self.note(START.elapsed()) {
            let path = path.display();
            if unlogged == 0 {
                tracing::error!("{path} is damaged at byte {offset}: {what}");
            } else {
                tracing::error!(
                    "{path} is damaged at byte {offset}: {what} ({unlogged} more failed reads of \
                     this file were not logged)"
                );
            }
        }
    }

    /// Counts records that are lost by damage in a file.
    pub(crate) fn count_lost(&self, records: u64) {
        self.count.fetch_add(records, Ordering::Relaxed);
    }
}

impl Segment {
    /// Returns whether the file must be kept, even if its records are dead.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_damaged() || self.faults.is_spared.load(Ordering::Relaxed)
    }

    /// Keeps the file, because damage elsewhere hides whether a record is needed.
    pub(crate) fn spare(&self) {
        self.faults.is_spared.store(true, Ordering::Relaxed);
    }

    /// Lets compaction work on the segment again, because the damage elsewhere was repaired.
    pub(in crate::log) fn unspare(&self) {
        self.faults.is_spared.store(false, Ordering::Relaxed);
    }

    /// Returns the number of the current period, in which a matching checksum is trusted. It is
    /// never 0, except that it is 0 for a damaged segment, where no checksum is trusted.
    #[inline]
    pub(crate) fn period(&self) -> u32 {
        if self.is_damaged() { 0 } else { self.faults.period.load(Ordering::Relaxed) | 1 }
    }

    /// Begins a period if the segment was not wholly in memory, or the last period was long enough.
    pub(in crate::log) fn renew_period(&self, is_resident: bool) {
        let now_ms = START.elapsed().as_millis() as u64;
        let began_ms = self.faults.period_began_ms.load(Ordering::Relaxed);
        if !is_resident || now_ms.saturating_sub(began_ms) >= TRUST_INTERVAL.as_millis() as u64 {
            self.faults.period_began_ms.store(now_ms, Ordering::Relaxed);
            self.faults.period.fetch_add(2, Ordering::Relaxed);
        }
    }

    /// Marks the segment as damaged, and counts and logs a read that failed at this offset.
    #[cold]
    pub(crate) fn note_fault(&self, offset: u64, what: &str) {
        self.damaged.store(true, Ordering::Relaxed);
        self.faults.report(&self.path, offset, what);
    }

    /// Records a read that failed at this offset, and returns its error.
    #[cold]
    pub(crate) fn corrupted(&self, offset: u64, what: impl Into<String>) -> Error {
        let what = what.into();
        self.note_fault(offset, &what);
        Error::Corrupted { file: self.path.clone(), offset, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_counted_and_one_is_logged_per_interval() {
        let faults = Faults::default();
        let second = Duration::from_secs(1);
        assert_eq!(faults.note(5 * second), Some(0));
        for _ in 0..100 {
            assert_eq!(faults.note(6 * second), None);
        }
        assert_eq!(faults.note(5 * second + LINE_INTERVAL - Duration::from_millis(1)), None);
        assert_eq!(faults.note(5 * second + LINE_INTERVAL), Some(101));
        assert_eq!(faults.note(6 * second + LINE_INTERVAL), None);
        assert_eq!(faults.note(5 * second + 2 * LINE_INTERVAL), Some(1));
        assert_eq!(faults.count(), 105);
    }
}
