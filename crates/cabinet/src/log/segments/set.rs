//! Segment set: the segments that a log has at one moment.

use super::location::{Location, Lsn, SEGMENTS_MAX};
use super::segment::Segment;
use std::sync::Arc;

/// The segments of a log at one moment.
#[derive(Clone, Default)]
pub(crate) struct Segments {
    slots: Vec<Option<Arc<Segment>>>,
}

impl Segments {
    #[inline]
    pub(crate) fn get(&self, location: Location) -> Option<&Arc<Segment>> {
        self.slots.get(location.slot())?.as_ref()
    }

    /// Returns the LSN of a location: its position in the order of the log.
    #[inline]
    pub(crate) fn lsn(&self, location: Location) -> Lsn {
        let number = self.get(location).map_or(0, |segment| segment.number);
        Lsn::new(number, location.offset())
    }

    /// Returns whether the record at a location is lost: the location is in no segment, or beyond
    /// the records of its segment and not before an LSN.
    pub(crate) fn is_lost(&self, location: Location, from: Lsn) -> bool {
        self.get(location).is_none_or(|segment| {
            location.offset() as u64 >= segment.bytes() && self.lsn(location) >= from
        })
    }

    /// Returns all segments, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.slots.iter().flatten()
    }

    /// Returns all segments, oldest first.
    pub(crate) fn in_order(&self) -> Vec<Arc<Segment>> {
        let mut all: Vec<_> = self.iter().cloned().collect();
        all.sort_by_key(|segment| segment.number);
        all
    }

    /// Returns a free slot, or `None` if the log has the maximum number of segments.
    pub(crate) fn free_slot(&self) -> Option<usize> {
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        (free < SEGMENTS_MAX).then_some(free)
    }

    /// Returns the oldest segment.
    pub(in crate::log) fn oldest(&self) -> Option<&Arc<Segment>> {
        self.iter().min_by_key(|segment| segment.number)
    }

    /// Returns whether this very segment is in the set.
    pub(in crate::log) fn has(&self, segment: &Arc<Segment>) -> bool {
        self.iter().any(|one| Arc::ptr_eq(one, segment))
    }

    /// Returns the number of bytes of headers and records.
    pub(in crate::log) fn bytes(&self) -> u64 {
        self.iter().map(|segment| segment.bytes()).sum()
    }

    /// Returns the number of bytes that the files take on the disk, or may come to take.
    pub(in crate::log) fn disk_bytes(&self) -> u64 {
        self.iter().map(|segment| segment.disk_bytes()).sum()
    }

    /// Returns the number of bytes of records that the engine's index points to.
    pub(in crate::log) fn live_bytes(&self) -> u64 {
        self.iter().map(|segment| segment.live_bytes.get()).sum()
    }

    /// Records that the index will no longer point to a record. Called before the change that
    /// supersedes the record is appended.
    #[inline]
    pub(crate) fn note_loss(&self, location: Location) {
        if let Some(segment) = self.get(location) {
            segment.all_live.lose();
        }
    }

    /// Counts a record that the index no longer points to.
    #[inline]
    pub(crate) fn remove_live(&self, location: Location, bytes: usize) {
        if let Some(segment) = self.get(location) {
            segment.remove_live(bytes);
        }
    }

    /// Lets compaction work again on all segments that were kept because of damage elsewhere.
    pub(crate) fn unspare(&self) {
        self.iter().for_each(|segment| segment.unspare());
    }

    pub(crate) fn insert(&mut self, segment: Arc<Segment>) {
        if self.slots.len() <= segment.slot {
            self.slots.resize(segment.slot + 1, None);
        }
        let slot = segment.slot;
        self.slots[slot] = Some(segment);
    }

    /// Removes a segment. Returns false if it was removed before: then another segment may have its
    /// slot.
    pub(crate) fn remove(&mut self, segment: &Arc<Segment>) -> bool {
        let is_present = self.has(segment);
        if is_present {
            self.slots[segment.slot] = None;
        }
        is_present
    }
}
