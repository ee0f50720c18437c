//! Binding of records to their place: what the checksums of a segment's records start from, and are
//! masked with.
//!
//! A disk may write a page to a wrong place, or a file may get the contents of another one of the
//! same log. The records in them are whole. They are told apart by a mask of the number of the
//! segment and of the offset in it, with which each checksum is XORed: at any other place the
//! checksum does not match. A copy at another place needs another mask, but not the bytes again.
//!
//! Segments of format 1 have no masks. Segments that are begun now have format 2.

use super::record::ALIGNMENT;

/// Odd factors: different numbers of segments have different masks, and so have different offsets.
const SEGMENT_FACTOR: u32 = 0x9e37_79b1;
const OFFSET_FACTOR: u32 = 0x85eb_ca6b;

/// Salt of a log, and the masks of the places of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    salt: u32,
    segment: u32,
    /// Zero in segments without masks.
    offset_factor: u32,
}

impl Binding {
    /// Returns the binding of the records of a segment with masks.
    pub(crate) const fn of_segment(salt: u32, number: u64) -> Self {
        let folded = number as u32 ^ (number >> 32) as u32;
        let segment = folded.wrapping_mul(SEGMENT_FACTOR);
        Self { salt, segment, offset_factor: OFFSET_FACTOR }
    }

    /// Returns the binding of the records of a segment without masks.
    pub(crate) const fn unmasked(salt: u32) -> Self {
        Self { salt, segment: 0, offset_factor: 0 }
    }

    #[inline]
    pub(crate) fn salt(self) -> u32 {
        self.salt
    }

    /// Returns the mask of the checksum of a record that begins at this offset, in bytes.
    #[inline]
    pub(crate) fn mask(self, offset: usize) -> u32 {
        let unit = (offset / ALIGNMENT) as u32;
        self.segment ^ unit.wrapping_mul(self.offset_factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn pages_of_one_segment_and_of_others_at_the_same_offset_have_other_masks() {
        let masks = |places: &mut dyn Iterator<Item = (u64, usize)>| {
            let masks = places.map(|(number, at)| Binding::of_segment(7, number).mask(at));
            masks.collect::<HashSet<_>>().len()
        };
        let offsets = 0..8 << 20;
        assert_eq!(masks(&mut offsets.clone().map(|unit| (3, unit * ALIGNMENT))), offsets.len());
        let numbers = 1..=100_000;
        assert_eq!(masks(&mut numbers.map(|number| (number, 4096))), 100_000);
    }

    #[test]
    fn segments_of_the_first_format_have_no_masks() {
        let binding = Binding::unmasked(7);
        assert_eq!((binding.salt(), binding.mask(64), binding.mask(1 << 20)), (7, 0, 0));
    }
}
