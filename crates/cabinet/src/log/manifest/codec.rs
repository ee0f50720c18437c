//! The bytes of a copy of the manifest.
//!
//! ```text
//!   0   8  magic "tyrantdb"
//!   8   4  version of the format, 2
//!  12   4  kind of database: 1 hash, 2 tree, 3 fixed, 4 table
//!  16   8  database ID, random
//!  24   8  seed of key hashes, random
//!  32   4  salt of checksums, random
//!  36  24  parameters that the engine was created with; zeros for hash
//!  60   4  CRC-32C of the bytes before
//!  64   8  generation: rises with each write
//!  72   4  bit 0: closed cleanly; bit 1: there is another copy; bit 2: the file of the last
//!          segment has 64 zeros or more after its last record
//!  76   4  number of segments in the list
//!  80  16  identity of the page cache when the database was last opened
//!  96   8  number of the last segment before which everything is void; 0 if there is none
//! 104   8  segments up to this number were synced, with their names and the next one's header
//! 112   8  if closed cleanly: number of the segment that the log ends in; else of the one up to
//!          which the log was synced, whether or not the segments after it had names by then
//! 120   8  and the byte offset of that end
//! 128   8  a sequence number that no later record is below
//! 136   4  CRC-32C of the list
//! 140   4  CRC-32C of bytes 0 to 140
//! 144      zeros
//! 512      the list, one line per segment, in the order of their numbers:
//!          number (8), length in bytes once it is sealed, else 0 (8)
//! ```
//!
//! All but the list is in one sector, which a disk writes whole or not at all. The first format
//! ended at byte 64, and had no second copy.

use super::{EngineParameters, StoredKind};
use crate::log::DatabaseId;
use crate::log::record::{SEQUENCE_MAX, read_u32, read_u64};
use crate::log::segments::{SEGMENTS_MAX, SegmentOffset};
use std::collections::BTreeMap;

const MAGIC: &[u8; 8] = b"tyrantdb";
const VERSION: u32 = 2;

/// Size of the part that the first format had, too, in bytes.
const HEAD_BYTES: usize = 64;

/// Offset of the list, in bytes.
pub(super) const SECTOR_BYTES: usize = 512;

/// Offset of the checksum of the sector, in bytes.
const SUM_AT: usize = 140;

pub(super) const LINE_BYTES: usize = 16;

/// Minimum size of a file, in bytes.
pub(super) const FILE_BYTES_MIN: usize = 4096;

const CLOSED: u32 = 1;
const PAIRED: u32 = 2;
const MARGIN: u32 = 4;

/// State in which the last process left the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::log) enum State {
    /// Unknown: the first format does not store it.
    Unknown,
    /// The database is open, or was not closed.
    Open,
    /// The database was closed, and the log ended here.
    Closed { number: u64, offset: u64 },
}

/// Contents of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::log) struct Contents {
    pub(in crate::log) database_id: DatabaseId,
    pub(in crate::log) parameters: EngineParameters,
    pub(super) generation: u64,
    /// Whether there is another copy.
    pub(super) is_paired: bool,
    /// Whether the file of the last segment has [`crate::log::segments::MARGIN_BYTES`] zeros after
    /// its last record.
    pub(in crate::log) has_margin: bool,
    pub(in crate::log) state: State,
    pub(in crate::log) page_cache: [u8; 16],
    /// Number of the last segment before which everything is void; 0 if there is none.
    pub(in crate::log) clears: u64,
    /// Segments up to this number were synced, with their names and the next one's header.
    pub(in crate::log) synced_through: u64,
    /// Place up to which the log was synced, whether or not the segment after it was. If the
    /// database is closed, `state` has the end.
    pub(in crate::log) synced_to: SegmentOffset,
    /// Sequence number that no later record is below.
    pub(in crate::log) next_sequence: u64,
    /// The segments that must be there, and the lengths of those that are sealed; else 0.
    pub(in crate::log) segments: BTreeMap<u64, u64>,
}

impl Contents {
    /// Returns the segments that must be there, and the lengths of those that are sealed, if the
    /// manifest is whole and of a format that lists them.
    pub(in crate::log) fn named(&self) -> Option<&BTreeMap<u64, u64>> {
        (self.state != State::Unknown).then_some(&self.segments)
    }
}

/// A copy of the manifest as it was read.
pub(super) enum Copy {
    Missing,
    /// Has a version or kind that this program does not know.
    Unknown(&'static str),
    Bad(&'static str),
    /// Only the part up to its kind and parameters can be read.
    Headed(Contents),
    /// The list of segments is damaged.
    Torn(Contents),
    Good(Contents),
}

impl Copy {
    pub(super) fn what(&self) -> Option<&'static str> {
        match self {
            Self::Missing => Some("it is missing"),
            Self::Unknown(what) | Self::Bad(what) => Some(what),
            Self::Headed(_) => Some("the checksum does not match"),
            Self::Torn(_) => Some("the checksum of its list of segments does not match"),
            Self::Good(_) => None,
        }
    }
}

impl Contents {
    /// Returns the contents of a new database's manifest.
    pub(in crate::log) fn new(database_id: DatabaseId, parameters: EngineParameters) -> Self {
        Self {
            database_id,
            parameters,
            generation: 0,
            is_paired: false,
            has_margin: false,
            state: State::Open,
            page_cache: [0; 16],
            clears: 0,
            synced_through: 0,
            synced_to: (0, 0),
            next_sequence: 1,
            segments: BTreeMap::new(),
        }
    }

    /// Returns the number of bytes that `encode` returns.
    pub(super) fn encoded_bytes(&self) -> usize {
        SECTOR_BYTES + self.segments.len() * LINE_BYTES
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &(self.parameters.kind as u32).to_le_bytes());
        put(16, &self.database_id.id.to_le_bytes());
        put(24, &self.database_id.hash_seed.to_le_bytes());
        put(32, &self.database_id.salt.to_le_bytes());
        put(36, &self.parameters.encoded);
        put(64, &self.generation.to_le_bytes());
        let mut flags = if self.is_paired { PAIRED } else { 0 };
        flags |= if self.has_margin { MARGIN } else { 0 };
        let mut end = self.synced_to;
        if let State::Closed { number, offset } = self.state {
            flags |= CLOSED;
            end = (number, offset);
        }
        put(112, &end.0.to_le_bytes());
        put(120, &end.1.to_le_bytes());
        put(72, &flags.to_le_bytes());
        put(76, &(self.segments.len() as u32).to_le_bytes());
        put(80, &self.page_cache);
        put(96, &self.clears.to_le_bytes());
        put(104, &self.synced_through.to_le_bytes());
        put(128, &self.next_sequence.to_le_bytes());
        let line = |(number, length): (&u64, &u64)| [number.to_le_bytes(), length.to_le_bytes()];
        let list: Vec<u8> = self.segments.iter().flat_map(line).flatten().collect();
        put(136, &crc32c::crc32c(&list).to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..HEAD_BYTES - 4]);
        bytes[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..SUM_AT]);
        bytes[SUM_AT..SUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&list);
        bytes
    }
}

/// Returns the size of the list in bytes, as the first sector has it.
pub(super) fn list_bytes(sector: &[u8]) -> usize {
    let count = sector.get(76..80).map_or(0, read_u32) as usize;
    if read_u32(sector.get(8..).unwrap_or_default()) == VERSION {
        count.min(SEGMENTS_MAX) * LINE_BYTES
    } else {
        0
    }
}

/// Decodes a copy: a sector, and the list if there is one.
pub(super) fn decode(bytes: &[u8]) -> Copy {
    let Some((sector, list)) = bytes.split_at_checked(SECTOR_BYTES) else {
        return Copy::Bad("it is too short");
    };
    if &sector[..8] != MAGIC {
        return Copy::Bad("it is not a manifest");
    }
    if read_u32(&sector[HEAD_BYTES - 4..]) != crc32c::crc32c(&sector[..HEAD_BYTES - 4]) {
        return Copy::Bad("the checksum does not match");
    }
    let version = read_u32(&sector[8..]);
    if version == 0 || version > VERSION {
        return Copy::Unknown("it is of a version this program does not know");
    }
    let kind = match read_u32(&sector[12..]) {
        1 => StoredKind::Hash,
        2 => StoredKind::Tree,
        3 => StoredKind::Fixed,
        4 => StoredKind::Table,
        _ => return Copy::Unknown("it is of a kind of database this program does not know"),
    };
    let database_id = DatabaseId {
        id: read_u64(&sector[16..]),
        hash_seed: read_u64(&sector[24..]),
        salt: read_u32(&sector[32..]),
    };
    let mut encoded = [0; 24];
    encoded.copy_from_slice(&sector[36..60]);
    let mut contents = Contents::new(database_id, EngineParameters { kind, encoded });
    contents.state = State::Unknown;
    if version < VERSION {
        return Copy::Good(contents);
    }
    if read_u32(&sector[SUM_AT..]) != crc32c::crc32c(&sector[..SUM_AT]) {
        return Copy::Headed(contents);
    }
    contents.generation = read_u64(&sector[64..]);
    let flags = read_u32(&sector[72..]);
    contents.is_paired = flags & PAIRED != 0;
    contents.has_margin = flags & MARGIN != 0;
    contents.page_cache.copy_from_slice(&sector[80..96]);
    contents.clears = read_u64(&sector[96..]);
    contents.synced_through = read_u64(&sector[104..]);
    contents.next_sequence = read_u64(&sector[128..]).clamp(1, SEQUENCE_MAX);
    let end = (read_u64(&sector[112..]), read_u64(&sector[120..]));
    if flags & CLOSED == 0 {
        contents.state = State::Open;
        contents.synced_to = end;
    } else {
        contents.state = State::Closed { number: end.0, offset: end.1 };
    }
    let count = read_u32(&sector[76..]) as usize;
    if count * LINE_BYTES != list.len() || read_u32(&sector[136..]) != crc32c::crc32c(list) {
        return Copy::Torn(contents);
    }
    contents.segments =
        list.chunks_exact(LINE_BYTES).map(|line| (read_u64(line), read_u64(&line[8..]))).collect();
    Copy::Good(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents() -> Contents {
        let database_id = DatabaseId { id: 1, hash_seed: 2, salt: 3 };
        let mut contents = Contents::new(database_id, EngineParameters::of(StoredKind::Fixed));
        contents.generation = 9;
        contents.is_paired = true;
        contents.has_margin = true;
        contents.page_cache = [7; 16];
        contents.clears = 4;
        contents.synced_through = 5;
        contents.next_sequence = 600;
        contents.segments = (4..60).map(|number| (number, number * 100)).collect();
        contents
    }

    #[test]
    fn written_contents_are_read_again() {
        let ends = [(State::Open, (58, 96)), (State::Closed { number: 59, offset: 64 }, (0, 0))];
        for (state, synced_to) in ends {
            let contents = Contents { state, synced_to, ..contents() };
            let Copy::Good(read) = decode(&contents.encode()) else { panic!("it is good") };
            assert_eq!(read, contents);
        }
    }

    #[test]
    fn every_flipped_bit_that_matters_is_noticed() {
        let bytes = contents().encode();
        for at in (0..SUM_AT + 4).chain(SECTOR_BYTES..bytes.len()) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(!matches!(decode(&damaged), Copy::Good(_)), "byte {at}");
        }
    }
}
