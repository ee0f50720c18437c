//! Pressure: the reasons for which writers must wait.

use super::Space;
use crate::log::segments::SegmentSet;
use std::sync::atomic::Ordering;

/// Reasons for which writers must wait: bits that may be set together.
pub(crate) struct Pressure;

impl Pressure {
    /// Writers are faster than compaction and must wait a little.
    pub(crate) const BEHIND: u8 = 1;
    /// The log has reached its cap, and a segment must be evicted first.
    pub(crate) const FULL: u8 = 2;
    /// A change of a large value holds locks. Threads that may block ignore this bit.
    pub(crate) const LARGE_CHANGE: u8 = 4;
    /// The disk is full, and removals use the reserve: dead space must be reclaimed first.
    pub(crate) const SCARCE: u8 = 8;
    /// The active segment is nearly full, and beginning the next one takes a while. Threads that
    /// may block ignore this bit.
    pub(crate) const ENDING: u8 = 16;
    /// The index uses too much memory until it is merged: writers must wait a little.
    pub(crate) const INDEX: u8 = 32;
}

impl Space {
    /// Returns the reasons for which writers must wait: 0 for none, or bits of [`Pressure`].
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

    /// Updates the reasons for which writers must wait.
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
        // Large changes and ending segments set and clear their own bits.
        let kept = Pressure::LARGE_CHANGE | Pressure::ENDING | Pressure::INDEX | pressure;
        self.lower(!kept);
        self.raise(pressure);
    }

    /// Sets or clears the pressure of the index.
    pub(crate) fn note_index_pressure(&self, is_high: bool) {
        if is_high && self.signals.is_running() {
            if self.pressure.fetch_or(Pressure::INDEX, Ordering::Relaxed) & Pressure::INDEX == 0 {
                self.signals.wake();
            }
        } else {
            self.lower(Pressure::INDEX);
        }
    }

    /// Stops writers from waiting for space, because nothing more can be reclaimed for now.
    pub(crate) fn give_up_reclaiming(&self) {
        self.lower(Pressure::SCARCE);
    }
}
