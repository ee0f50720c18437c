//! Pressure: what writers have to wait for.

use super::Space;
use crate::log::segments::SegmentSet;
use std::sync::atomic::Ordering;

/// Why writers have to wait: bits that may be set together.
pub(crate) struct Pressure;

impl Pressure {
    /// They are faster than compaction, and are to wait a little.
    pub(crate) const BEHIND: u8 = 1;
    /// The log has come to its cap, and something has to be evicted first.
    pub(crate) const FULL: u8 = 2;
    /// A change of a large value holds locks: nothing for those to wait for that may wait anyway.
    pub(crate) const LARGE_CHANGE: u8 = 4;
    /// The disk is full, and removals take what is kept for them: dead space is to be given back
    /// first.
    pub(crate) const SCARCE: u8 = 8;
    /// The active segment is nearly full, and to begin the next one takes a while: nothing for
    /// those to wait for that may wait anyway.
    pub(crate) const ENDING: u8 = 16;
    /// The index takes too much memory until it is merged: they are to wait a little.
    pub(crate) const INDEX: u8 = 32;
}

impl Space {
    /// Returns the reasons for which writers have to wait: 0 for none, or bits of [`Pressure`].
    #[inline]
    pub(crate) fn pressure(&self) -> u8 {
        self.pressure.load(Ordering::Relaxed)
    }

    pub(in crate::log) fn raise(&self, pressure: u8) {
        self.pressure.fetch_or(pressure, Ordering::Relaxed);
    }

    pub(in crate::log) fn lower(&self, pressure: u8) {
        self.pressure.fetch_and(!pressure, Ordering::Relaxed);
    }

    /// Looks what writers have to wait for.
    pub(in crate::log) fn note_pressure(&self, segments: &SegmentSet) {
        let mut pressure = 0;
        if self.is_behind(segments) {
            pressure |= Pressure::BEHIND;
        }
        if self.is_full(segments) {
            pressure |= Pressure::FULL;
        } else if self.is_wanted() {
            pressure |= Pressure::SCARCE;
        }
        // Large changes say themselves when they begin and end, and so do segments.
        let kept = Pressure::LARGE_CHANGE | Pressure::ENDING | Pressure::INDEX | pressure;
        self.lower(!kept);
        self.raise(pressure);
    }

    /// Has writers wait for the index, or no longer.
    pub(crate) fn note_index_pressure(&self, is_high: bool) {
        if is_high && self.signals.is_running() {
            if self.pressure.fetch_or(Pressure::INDEX, Ordering::Relaxed) & Pressure::INDEX == 0 {
                self.signals.wake();
            }
        } else {
            self.lower(Pressure::INDEX);
        }
    }

    /// Nothing more can be given back for now: writers need not wait for it.
    pub(crate) fn give_up_reclaiming(&self) {
        self.lower(Pressure::SCARCE);
    }
}
