//! Header of a segment, and the bytes of its file.
//!
//! ```text
//! NNNNNNNNNN.log
//!  0   8  magic "cabinet\n"
//!  8   4  version of the format: 2; 1 if its records are not bound to their places
//! 12   4  flags: bit 0: everything in segments before this one is void
//!         bit 1: the segment before holds pages of leaves and no change
//! 16   8  number of the segment
//! 24   8  database ID
//! 32   8  the next sequence number when the segment was begun
//! 40   8  length of the segment before, in bytes, 0 if there is none
//! 48   8  capacity: bytes it may grow to
//! 56   4  zeros
//! 60   4  CRC-32C of the bytes before, started from the log's salt
//! 64      records, to the end of the file
//! ```
//!
//! The file of the active segment is longer than its records: the rest is zeros, at least
//! [`MARGIN_BYTES`] of them.

use crate::io::{File, read_around};
use crate::log::DatabaseId;
use crate::log::binding::Binding;
use crate::log::record::{SEQUENCE_MAX, read_u32, read_u64};
use crate::log::scan::UNREADABLE;
use std::io;

pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"cabinet\n";
const VERSION_UNBOUND: u32 = 1;
const VERSION: u32 = 2;
const FLAG_CLEAR: u32 = 1;
const FLAG_BEHIND_PAGES: u32 = 2;

/// Minimum number of zeros after the last record of the active segment's file, until the log is
/// closed. After a kill, a file with fewer zeros was cut by something else.
pub(crate) const MARGIN_BYTES: usize = 64;

/// Highest number of a segment: far above that of any real log.
const SEGMENT_NUMBER_MAX: u64 = 1 << 62;

/// Maximum capacity of a segment, in bytes: enough for the longest record in a segment of its own.
const SEGMENT_CAPACITY_MAX: u64 = 2 << 30;

/// Contents of a segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    /// Whether the checksums of its records are masked with their places.
    pub(crate) is_bound: bool,
    /// Whether everything in segments before this one is void.
    pub(crate) clears: bool,
    /// Whether the segment before holds pages of leaves and no change.
    pub(crate) is_behind_pages: bool,
    pub(crate) first_sequence: u64,
    pub(crate) previous_bytes: u64,
    pub(crate) capacity: u64,
}

impl SegmentHeader {
    /// Returns the binding of the segment's records.
    pub(crate) fn binding(&self, database_id: &DatabaseId) -> Binding {
        database_id.binding(self.number, self.is_bound)
    }

    pub(crate) fn encode(&self, database_id: &DatabaseId) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        let version = if self.is_bound { VERSION } else { VERSION_UNBOUND };
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        let mut flags = if self.clears { FLAG_CLEAR } else { 0 };
        flags |= if self.is_behind_pages { FLAG_BEHIND_PAGES } else { 0 };
        bytes[12..16].copy_from_slice(&flags.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&database_id.id.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first_sequence.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.previous_bytes.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.capacity.to_le_bytes());
        let sum = crc32c::crc32c_append(database_id.salt, &bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], database_id: &DatabaseId) -> Result<Self, &'static str> {
        if bytes.len() < SEGMENT_HEADER_BYTES {
            return Err("it is shorter than a segment's header");
        }
        if &bytes[..8] != MAGIC {
            return Err("it is not a segment");
        }
        let version = read_u32(&bytes[8..]);
        if version != VERSION && version != VERSION_UNBOUND {
            return Err("it is a segment of another version");
        }
        if read_u32(&bytes[60..]) != crc32c::crc32c_append(database_id.salt, &bytes[..60])
            || read_u64(&bytes[24..]) != database_id.id
        {
            return Err("its header is damaged, or of another database");
        }
        let header = Self {
            number: read_u64(&bytes[16..]),
            is_bound: version == VERSION,
            clears: read_u32(&bytes[12..]) & FLAG_CLEAR != 0,
            is_behind_pages: read_u32(&bytes[12..]) & FLAG_BEHIND_PAGES != 0,
            first_sequence: read_u64(&bytes[32..]),
            previous_bytes: read_u64(&bytes[40..]),
            capacity: read_u64(&bytes[48..]),
        };
        if header.number > SEGMENT_NUMBER_MAX
            || header.first_sequence > SEQUENCE_MAX
            || header.capacity > SEGMENT_CAPACITY_MAX
        {
            return Err("its header has a number over the limit");
        }
        Ok(header)
    }
}

/// Result of reading a segment's header.
pub(crate) struct HeaderFound {
    pub(crate) header: Result<SegmentHeader, &'static str>,
    /// Whether no byte was ever written there.
    pub(crate) is_blank: bool,
}

/// Reads the header of a segment.
pub(crate) fn read_header(file: &dyn File, database_id: &DatabaseId) -> io::Result<HeaderFound> {
    let (bytes, is_whole) = read_beginning(file, SEGMENT_HEADER_BYTES)?;
    if !is_whole {
        return Ok(HeaderFound { header: Err(UNREADABLE), is_blank: false });
    }
    let is_blank = bytes.iter().all(|byte| *byte == 0);
    Ok(HeaderFound { header: SegmentHeader::decode(&bytes, database_id), is_blank })
}

/// Returns the first `bytes` bytes of a file, or all if it has fewer, and whether the disk could
/// read them. Unreadable bytes are zeros.
pub(in crate::log) fn read_beginning(file: &dyn File, bytes: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut buffer = vec![0; bytes];
    let mut unreadable = Vec::new();
    let filled = read_around(file, &mut buffer, 0, &mut unreadable)?;
    buffer.truncate(filled);
    Ok((buffer, unreadable.is_empty()))
}
