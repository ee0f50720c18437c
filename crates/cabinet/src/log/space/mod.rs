//! The space of a log: how much of the disk it may use and has left, and why writers must wait for
//! more.
//!
//! [`compact`] reclaims the space of dead records, [`evict`] that of records that were not read
//! lately. [`quota`] holds the log to a cap, and [`free`] keeps free the disk space that reclaiming
//! needs.

mod compact;
mod evict;
mod free;
mod large_change;
mod pace;
mod pressure;
mod quota;
mod reserve;
mod usage;

pub(crate) use compact::{Relocate, Spend, Unsealed};
pub(crate) use large_change::LARGE_CHANGE_BYTES;
pub(crate) use pressure::Pressure;
pub(crate) use quota::Quota;
pub(crate) use usage::{SHORT_SEGMENTS_MAX, Usage, is_short};

use super::Settings;
use super::maintenance::Signals;
use super::stats::Timed;
use crate::base::sync::Mutex;
use reserve::Reserve;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// The space of a log. See the module.
pub(crate) struct Space {
    quota: Quota,
    /// Bits of [`Pressure`].
    pressure: AtomicU8,
    /// Whether a writer was refused because space was missing.
    is_wanted: AtomicBool,
    /// Whether removals have used half of the reserve that is kept for them.
    is_dire: AtomicBool,
    reserve: Reserve,
    /// Number of changes of large values under way.
    large_changes: Mutex<usize>,
    /// Capacities of the segments of a small log and of a large one, in bytes.
    segment_bytes_min: usize,
    segment_bytes_max: usize,
    /// Share of dead bytes above which compaction works, in percent.
    dead_percent_max: u64,
    /// Dead bytes that may stay whatever their share, if there is no cap.
    spare_bytes: u64,
    /// Maximum number of bytes per second that compaction reads while there is no hurry.
    bytes_per_second: u64,
    /// Number that the active segment had when compaction last emptied a segment.
    emptied_at: AtomicU64,
    compactions: Timed,
    compacted_bytes: AtomicU64,
    moved_bytes: AtomicU64,
    signals: Arc<Signals>,
}

impl Space {
    pub(super) fn new(settings: &Settings, signals: Arc<Signals>) -> Self {
        Self {
            quota: Quota::new(settings.capacity_bytes),
            pressure: AtomicU8::new(0),
            is_wanted: AtomicBool::new(false),
            is_dire: AtomicBool::new(false),
            reserve: Reserve::default(),
            large_changes: Mutex::new(0),
            segment_bytes_min: settings.segment_bytes_min,
            segment_bytes_max: settings.segment_bytes_max,
            dead_percent_max: u64::from(settings.dead_percent_max),
            spare_bytes: settings.spare_bytes,
            bytes_per_second: settings.compaction_bytes_per_second,
            emptied_at: AtomicU64::new(0),
            compactions: Timed::default(),
            compacted_bytes: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            signals,
        }
    }

    #[inline]
    pub(crate) fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Counts bytes of records that were moved to reclaim the space around them.
    pub(crate) fn count_moved(&self, bytes: usize) {
        self.moved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the stats as names and values.
    pub(super) fn report(&self) -> [(&'static str, String); 4] {
        [
            ("compactions", self.compactions.count().to_string()),
            ("compaction_us", self.compactions.total_us().to_string()),
            ("compacted_bytes", self.compacted_bytes.load(Ordering::Relaxed).to_string()),
            ("moved_bytes", self.moved_bytes.load(Ordering::Relaxed).to_string()),
        ]
    }
}
