//! Places in a log: of a record in the present segments, and in the order of all.

use crate::Error;
use crate::log::record::ALIGNMENT;

/// Records of a segment begin below this, so that 23 bits name their place.
pub(crate) const SEGMENT_BYTES_MAX: usize = (1 << OFFSET_BITS) * ALIGNMENT;

/// Most segments a log can have at a time.
pub(crate) const SEGMENTS_MAX: usize = 1 << SLOT_BITS;

/// Returns the error of a log that needs more segments.
pub(in crate::log) fn too_many_segments() -> Error {
    Error::TooMany { what: "segments", max: SEGMENTS_MAX as u64 }
}

const OFFSET_BITS: u32 = 23;
const SLOT_BITS: u32 = 17;

/// Location of a record: 17 bits that name a segment (its slot in [`Segments`]) and 23 that count
/// its offset in units of [`ALIGNMENT`]. Never 0, since a segment begins with its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Location(u64);

impl Location {
    /// Bits of a location.
    pub(crate) const BITS: u32 = SLOT_BITS + OFFSET_BITS;

    /// `offset` is a multiple of the alignment, below [`SEGMENT_BYTES_MAX`].
    #[inline]
    pub(crate) fn new(slot: usize, offset: usize) -> Self {
        debug_assert!(slot < SEGMENTS_MAX && offset < SEGMENT_BYTES_MAX);
        Self((slot as u64) << OFFSET_BITS | (offset / ALIGNMENT) as u64)
    }

    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn slot(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    #[inline]
    pub(crate) fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize * ALIGNMENT
    }
}

/// Log sequence number: position of a record in the order of the log, regardless of the slots of
/// the segments. Older is less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lsn(u64);

impl Lsn {
    /// Numbers of segments are used up to 2^40 of them, far more than any log comes to.
    #[inline]
    pub(crate) fn new(number: u64, offset: usize) -> Self {
        Self(number << OFFSET_BITS | (offset / ALIGNMENT) as u64)
    }

    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// The LSN of what may begin next.
    #[inline]
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Number of the segment.
    pub(crate) fn number(self) -> u64 {
        self.0 >> OFFSET_BITS
    }

    /// Offset in the segment.
    pub(crate) fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize * ALIGNMENT
    }
}

/// A place of the log: number of a segment and byte offset in it.
pub(crate) type SegmentOffset = (u64, u64);
