//! Damage that is met while a log is in use: counted, logged at a bounded rate, kept.
//!
//! Every reader that meets a record that does not check, or whose bytes cannot be read, comes here,
//! whatever it reads for. The segment is marked, so that compaction leaves its file alone: what is
//! still whole in it can be salvaged, and the evidence stays.
//!
//! # Verification of reads
//!
//! Records of hash and fixed-length databases: the checksum of each record whose value is read,
//! each time. If only the key is wanted (a put, a list of keys) it is compared with the hash or
//! the id that the index has for it.
//!
//! Pages of trees: whenever one is brought into memory. A page that is searched where it lies in
//! the mapping is verified once in a period, as that costs several times what the search does. A
//! period ends when the segment was not wholly in memory, so that its bytes may have come from the
//! disk since, and after [`TRUST_INTERVAL`]. In a segment with damage each read is verified.

use super::segment::Segment;
use crate::Error;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Shortest time between two lines in the log on the damage of one segment.
pub(crate) const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Longest time for which a checksum that matched is trusted without another look, see the module.
pub(crate) const TRUST_INTERVAL: Duration = Duration::from_secs(60);

/// The beginning of time, for faults.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Damage that readers have met in one segment.
#[derive(Default)]
pub(crate) struct Faults {
    /// Reads that failed since the log was opened.
    count: AtomicU64,
    /// Milliseconds from [`START`] to the last line in the log, and 1; 0 if there was none.
    logged_ms: AtomicU64,
    /// Reads that failed since then.
    unlogged: AtomicU64,
    /// The segment holds a record of which damage elsewhere keeps from telling whether it is
    /// needed.
    is_spared: AtomicBool,
    /// Number of the period for which a checksum that matched is trusted, but for the lowest bit.
    period: AtomicU32,
    /// Milliseconds from [`START`] to its beginning.
    period_began_ms: AtomicU64,
}

impl Faults {
    /// Reads that failed.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts a failed read at this time after the start. Returns how many were not logged before
    /// it, if it is to be logged.
    fn note(&self, now: Duration) -> Option<u64> {
        self.count.fetch_add(1, Ordering::Relaxed);
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX - 1) + 1;
        let logged_ms = self.logged_ms.load(Ordering::Relaxed);
        let is_due =
            logged_ms == 0 || now_ms.saturating_sub(logged_ms) >= LINE_INTERVAL.as_millis() as u64;
        // One of several threads writes the line.
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
    /// Whether its file is not to be given back, whatever is dead in it.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_damaged() || self.faults.is_spared.load(Ordering::Relaxed)
    }

    /// Keeps its file, because damage elsewhere keeps from telling whether a record is needed.
    pub(crate) fn spare(&self) {
        self.faults.is_spared.store(true, Ordering::Relaxed);
    }

    /// Has compaction look at it again: the damage elsewhere was mended.
    pub(in crate::log) fn unspare(&self) {
        self.faults.is_spared.store(false, Ordering::Relaxed);
    }

    /// Number of the present period, never 0: for so long a checksum that matched is trusted. 0
    /// where none is, because something in the segment did not match.
    #[inline]
    pub(crate) fn period(&self) -> u32 {
        if self.is_damaged() { 0 } else { self.faults.period.load(Ordering::Relaxed) | 1 }
    }

    /// Begins a period if the segment was not all in memory, or the last one has lasted long
    /// enough.
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

    /// The error of a read that failed at this offset, after it was noted.
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
    fn faults_are_logged_once_an_interval_and_counted_all() {
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
