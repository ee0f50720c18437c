//! Usage of a log's space, and which segment is worth compacting.

use super::Space;
use crate::log::segments::{SEGMENT_HEADER_BYTES, Segment, SegmentSet, Segments};
use crate::log::stats::percent;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Points of dead share above the limit from which compaction runs at full speed.
const HURRY_PERCENT: u64 = 2;

/// Points of dead share above the limit from which writers are held back.
const BEHIND_PERCENT: u64 = 5;

/// Logs of fewer bytes do not hold writers back.
const BEHIND_BYTES_MIN: u64 = 128 << 20;

/// Dead bytes for which a segment is compacted on a full disk, however small their share.
const SCARCE_DEAD_BYTES: u64 = 64 << 10;

/// Dead bytes for which a segment is compacted when removals are about to be refused: more than
/// beginning another segment takes.
const DIRE_DEAD_BYTES: u64 = 2 * SEGMENT_HEADER_BYTES as u64;

/// Share of tombstones above which the oldest segment is compacted, in percent.
const TOMBSTONE_PERCENT_MAX: u64 = 25;

/// Maximum number of short segments. Snapshots seal segments early, and each segment takes a file,
/// a mapping and a slot.
pub(crate) const SHORT_SEGMENTS_MAX: u64 = 128;

/// A segment of fewer bytes than this is short, or of less than this share of the log. Its capacity
/// must be at least four times its bytes.
const SHORT_BYTES: u64 = 1 << 20;
const SHORT_SHARE: u64 = 8192;

/// Usage of a log's space, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) total_bytes: u64,
    pub(crate) live_bytes: u64,
    pub(crate) tombstone_bytes: u64,
}

impl Usage {
    /// Sums up the usage of all segments except emptied ones, which are about to be removed.
    pub(crate) fn of(segments: &Segments) -> Self {
        let mut usage = Self::default();
        for segment in segments.iter().filter(|segment| !segment.is_emptied()) {
            usage.total_bytes += segment.bytes();
            usage.live_bytes += segment.live_bytes.get();
            usage.tombstone_bytes += segment.tombstone_bytes.load(Ordering::Relaxed);
        }
        usage
    }

    fn dead_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.live_bytes + self.tombstone_bytes)
    }

    /// Returns the share of dead bytes, in percent.
    pub(crate) fn dead_percent(&self) -> u64 {
        percent(self.dead_bytes(), self.total_bytes)
    }
}

/// Returns whether a sealed segment is short, in a log of `total_bytes` bytes.
pub(crate) fn is_short(segment: &Segment, total_bytes: u64) -> bool {
    let short_bytes = SHORT_BYTES.max(total_bytes / SHORT_SHARE);
    segment.bytes() < short_bytes.min(segment.capacity as u64 / 4)
}

impl Space {
    /// Returns whether the share of dead bytes is more than `points` above the limit.
    fn is_over(&self, usage: &Usage, points: u64) -> bool {
        usage.dead_percent() > self.dead_percent_max + points
            && (self.quota.is_capped() || usage.dead_bytes() > self.spare_bytes)
    }

    /// Returns the segment whose compaction is due, if any.
    pub(super) fn due_for_compaction(&self, segments: &SegmentSet) -> Option<Arc<Segment>> {
        let guard = segments.load();
        let usage = Usage::of(&guard);
        let mut in_order = guard.in_order();
        in_order.retain(|segment| !segment.is_emptied());
        let oldest = in_order.first().map_or(0, |segment| segment.number);
        let sealed = in_order.iter().filter(|segment| segment.is_sealed() && !segment.is_kept());
        // Tombstones after a damaged segment, which stays, must stay as well.
        if percent(usage.tombstone_bytes, usage.total_bytes) > TOMBSTONE_PERCENT_MAX
            && let Some(segment) = sealed.clone().next()
            && segment.number == oldest
        {
            return Some(Arc::clone(segment));
        }
        if self.is_dire()
            && let Some(most) =
                sealed.clone().max_by_key(|segment| segment.dead_bytes(segment.number == oldest))
            && most.dead_bytes(most.number == oldest) >= DIRE_DEAD_BYTES
        {
            return Some(Arc::clone(most));
        }
        let share = |segment: &Segment| segment.dead_percent(segment.number == oldest);
        // The oldest one of several costs the least.
        let best = sealed.clone().rev().max_by_key(|segment| share(segment))?;
        let worth = if self.is_wanted() {
            1
        } else if self.is_over(&usage, 0) {
            // Moving a segment without dead bytes frees nothing, and the log stays over the limit.
            (self.dead_percent_max / 2).max(1)
        } else if self.is_short(segments) {
            // Dead bytes are reclaimed before live records are evicted.
            50
        } else {
            // So few live bytes are left that removing the segment is nearly free.
            97
        };
        let is_scarce = self.is_wanted();
        let dead = best.dead_bytes(best.number == oldest);
        if share(best) >= worth || is_scarce && dead >= SCARCE_DEAD_BYTES {
            return Some(Arc::clone(best));
        }
        // Live records of a short segment are moved to the active segment, which continues to grow.
        let mut short = sealed.filter(|segment| is_short(segment, usage.total_bytes));
        let first = short.next()?;
        (short.count() as u64 >= SHORT_SEGMENTS_MAX).then(|| Arc::clone(first))
    }

    /// Returns whether compaction does not keep up with the writers.
    pub(super) fn is_behind(&self, segments: &SegmentSet) -> bool {
        let usage = Usage::of(&segments.load());
        self.is_over(&usage, BEHIND_PERCENT)
            && usage.total_bytes >= BEHIND_BYTES_MIN
            && self.signals.is_running()
    }

    /// Returns whether compaction should run at full speed.
    pub(super) fn is_in_hurry(&self, segments: &SegmentSet) -> bool {
        self.is_wanted()
            || self.is_short(segments)
            || self.is_over(&Usage::of(&segments.load()), HURRY_PERCENT)
    }
}
