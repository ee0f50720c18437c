//! Addresses of records: in the current segments, and in the order of the log.

use crate::Error;
use crate::log::record::ALIGNMENT;

/// Records of a segment begin below this offset, so that 23 bits suffice for it.
pub(crate) const SEGMENT_BYTES_MAX: usize = (1 << OFFSET_BITS) * ALIGNMENT;

/// Maximum number of segments of a log at a time.
pub(crate) const SEGMENTS_MAX: usize = 1 << SLOT_BITS;

/// Returns the error of a log that needs more segments.
pub(in crate::log) fn too_many_segments() -> Error {
    Error::TooMany { what: "segments", max: SEGMENTS_MAX as u64 }
}

const OFFSET_BITS: u32 = 23;
const SLOT_BITS: u32 = 17;

/// Location of a record: 17 bits for its segment (the slot in [`Segments`]) and 23 bits for its
/// offset in units of [`ALIGNMENT`]. Never 0, because a segment begins with its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Location(u64);

impl Location {
    /// Bits of a location.
    pub(crate) const BITS: u32 = SLOT_BITS + OFFSET_BITS;

    /// Creates a location. `offset` is a multiple of the alignment, below [`SEGMENT_BYTES_MAX`].
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
    /// Creates an LSN. Segment numbers may go up to 2^40, far more than any log reaches.
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

    /// Returns the next LSN at which a record may begin.
    #[inline]
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the number of the segment.
    pub(crate) fn number(self) -> u64 {
        self.0 >> OFFSET_BITS
    }

    /// Returns the offset in the segment.
    pub(crate) fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize * ALIGNMENT
    }
}

/// A point in the log: number of a segment and byte offset in it.
pub(crate) type SegmentOffset = (u64, u64);
