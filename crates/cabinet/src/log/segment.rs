//! Segments: the files a log consists of.
//!
//! ```text
//! NNNNNNNNNN.log
//!  0   8  magic "cabinet\n"
//!  8   4  version of the format, 1
//! 12   4  flags: bit 0: everything in segments before this one is void
//! 16   8  number of the segment
//! 24   8  identity of the log
//! 32   8  the next sequence number when the segment was begun
//! 40   8  length of the segment before, in bytes, 0 if there is none
//! 48   8  capacity: bytes it may grow to
//! 56   4  zeros
//! 60   4  CRC-32C of the bytes before, started from the log's salt
//! 64      records, to the end of the file
//! ```
//!
//! A file that is being appended to is longer than its records: the rest is zeros, at least
//! [`MARGIN_BYTES`] of them.

use super::Identity;
use super::compact::percent;
use super::faults::Faults;
use super::read::FirstRead;
use super::record::{ALIGNMENT, SEQUENCE_MAX, read_u32, read_u64};
use super::scan::UNREADABLE;
use super::used::Used;
use crate::io::{File, Map, read_around};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"cabinet\n";
const VERSION: u32 = 1;
const FLAG_CLEAR: u32 = 1;
const FLAG_BEHIND_PAGES: u32 = 2;

/// Records of a segment begin below this, so that 23 bits name their place.
pub(crate) const SEGMENT_BYTES_MAX: usize = (1 << OFFSET_BITS) * ALIGNMENT;

/// Most segments a log can have at a time.
pub(crate) const SEGMENTS_MAX: usize = 1 << SLOT_BITS;

/// Zeros that the file of the segment that is appended to has behind the last record at least,
/// until the log is closed: after a kill, a file with fewer of them was cut by something else.
pub(crate) const MARGIN_BYTES: usize = 64;

/// Highest number of a segment: far above what any log comes to.
const SEGMENT_NUMBER_MAX: u64 = 1 << 62;

/// More than the longest record takes, in a segment of its own.
const SEGMENT_CAPACITY_MAX: u64 = 2 << 30;

/// What file systems give to files at a time, in bytes.
pub(super) const DISK_BLOCK_BYTES: u64 = 4096;

const OFFSET_BITS: u32 = 23;
const SLOT_BITS: u32 = 17;

/// Where a record is: 17 bits that name a segment (its slot in [`Segments`]) and 23 that count
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

/// Where in the order of the log a record is, whatever slots the segments have: older is less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Age(u64);

impl Age {
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

    /// The age of what may begin next.
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

/// Count of bytes that many threads change: each has a cache line of it, more or less.
#[derive(Default)]
pub(crate) struct LiveBytes([CachePadded<AtomicI64>; 4]);

impl LiveBytes {
    #[inline]
    fn add(&self, bytes: i64) {
        self.0[super::lane::of_thread() % self.0.len()].fetch_add(bytes, Ordering::Relaxed);
    }

    /// The sum. Counts come from a checkpoint that writers ran beside, so they may be off by the
    /// changes of that moment after a crash, but never below zero.
    pub(crate) fn get(&self) -> u64 {
        let sum: i64 = self.0.iter().map(|part| part.load(Ordering::Relaxed)).sum();
        sum.max(0) as u64
    }

    /// So many bytes to begin with.
    pub(crate) fn of(bytes: u64) -> Self {
        let live = Self::default();
        live.set(bytes);
        live
    }

    /// Sets the count. The caller keeps others from counting meanwhile.
    pub(crate) fn set(&self, bytes: u64) {
        for (index, part) in self.0.iter().enumerate() {
            let bytes = if index == 0 { i64::try_from(bytes).unwrap_or(i64::MAX) } else { 0 };
            part.store(bytes, Ordering::Relaxed);
        }
    }
}

/// One file of a log.
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) slot: usize,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) map: Map,
    pub(crate) capacity: usize,
    /// Bytes of records that the engine's index points to.
    pub(crate) live_bytes: LiveBytes,
    /// Bytes of tombstones.
    pub(crate) tombstone_bytes: AtomicU64,
    /// Earliest expiry among its records, milliseconds since the Unix epoch; `u64::MAX` if none.
    pub(crate) next_expiry_ms: AtomicU64,
    /// Nothing is appended any more.
    pub(crate) sealed: AtomicBool,
    /// Its pages were all in memory when last looked at.
    pub(crate) resident: AtomicBool,
    /// How much of a record to read at first where they are not.
    pub(crate) first_read: FirstRead,
    /// Something in it could not be read: it is kept as it is.
    pub(crate) damaged: AtomicBool,
    /// Compaction has moved what was alive in it; its file is removed with those of the next ones.
    pub(super) emptied: AtomicBool,
    /// It is no longer in the set, and another segment may have its slot.
    pub(super) taken_out: AtomicBool,
    /// Its file is missing. It keeps the place of records that can be read no more.
    pub(crate) is_missing: bool,
    /// Held while its file is made longer ahead of appends, or cut after the last.
    pub(super) growing: Mutex<()>,
    /// Reads of it that failed, and what follows for its file.
    pub(crate) faults: Faults,
    /// Which of its records were read, if there is a cap.
    pub(crate) used: Used,
}

impl Segment {
    /// The location of the record that begins at an offset, of those that a scan has shown.
    pub(crate) fn at(&self, offset: u64) -> Location {
        Location::new(self.slot, usize::try_from(offset).unwrap_or(usize::MAX))
    }

    /// Bytes of header and records.
    pub(crate) fn bytes(&self) -> u64 {
        self.map.written() as u64
    }

    /// Bytes that its file takes on the disk, or may come to take.
    pub(super) fn disk_bytes(&self) -> u64 {
        let bytes = if self.is_sealed() { self.map.backed() } else { self.capacity };
        (bytes as u64).max(self.bytes()).next_multiple_of(DISK_BLOCK_BYTES)
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Whether compaction has moved what was alive in it.
    pub(super) fn is_emptied(&self) -> bool {
        self.emptied.load(Ordering::Relaxed)
    }

    /// Whether it is no longer in the set. A thread that meets an entry of an index, under the lock
    /// of its shard, that points to a later segment in the same slot sees that.
    pub(crate) fn is_taken_out(&self) -> bool {
        self.taken_out.load(Ordering::Acquire)
    }

    /// Bytes that compaction would free. Tombstones count if nothing older is left for them to
    /// hold down.
    pub(crate) fn dead_bytes(&self, is_oldest: bool) -> u64 {
        let mut kept = self.live_bytes.get() + SEGMENT_HEADER_BYTES as u64;
        if !is_oldest {
            kept += self.tombstone_bytes.load(Ordering::Relaxed);
        }
        self.bytes().saturating_sub(kept)
    }

    /// As `dead_bytes`, as a share of all, in percent.
    pub(super) fn dead_percent(&self, is_oldest: bool) -> u64 {
        percent(self.dead_bytes(is_oldest), self.bytes())
    }

    pub(crate) fn add_live(&self, bytes: usize) {
        self.live_bytes.add(bytes as i64);
    }

    pub(crate) fn remove_live(&self, bytes: usize) {
        self.live_bytes.add(-(bytes as i64));
    }

    pub(crate) fn add_tombstone(&self, bytes: usize) {
        self.tombstone_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn note_expiry(&self, expires_at_ms: u64) {
        if expires_at_ms != 0 {
            self.next_expiry_ms.fetch_min(expires_at_ms, Ordering::Relaxed);
        }
    }
}

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    /// Everything in segments before this one is void.
    pub(crate) clears: bool,
    /// The segment before holds pages of leaves and no change.
    pub(crate) is_behind_pages: bool,
    pub(crate) first_sequence: u64,
    pub(crate) previous_bytes: u64,
    pub(crate) capacity: u64,
}

impl SegmentHeader {
    pub(crate) fn encode(&self, identity: &Identity) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let mut flags = if self.clears { FLAG_CLEAR } else { 0 };
        flags |= if self.is_behind_pages { FLAG_BEHIND_PAGES } else { 0 };
        bytes[12..16].copy_from_slice(&flags.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&identity.id.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first_sequence.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.previous_bytes.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.capacity.to_le_bytes());
        let sum = crc32c::crc32c_append(identity.salt, &bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], identity: &Identity) -> Result<Self, &'static str> {
        if bytes.len() < SEGMENT_HEADER_BYTES {
            return Err("it is shorter than a segment's header");
        }
        if &bytes[..8] != MAGIC {
            return Err("it is not a segment");
        }
        if read_u32(&bytes[8..]) != VERSION {
            return Err("it is a segment of another version");
        }
        if read_u32(&bytes[60..]) != crc32c::crc32c_append(identity.salt, &bytes[..60])
            || read_u64(&bytes[24..]) != identity.id
        {
            return Err("its header is damaged, or of another database");
        }
        let header = Self {
            number: read_u64(&bytes[16..]),
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

/// What there is where a segment's header should be.
pub(crate) struct HeaderFound {
    pub(crate) header: Result<SegmentHeader, &'static str>,
    /// Nothing was ever written there.
    pub(crate) is_blank: bool,
}

/// Reads the header of a segment.
pub(crate) fn read_header(file: &dyn File, identity: &Identity) -> io::Result<HeaderFound> {
    let (bytes, is_whole) = read_beginning(file, SEGMENT_HEADER_BYTES)?;
    if !is_whole {
        return Ok(HeaderFound { header: Err(UNREADABLE), is_blank: false });
    }
    let is_blank = bytes.iter().all(|byte| *byte == 0);
    Ok(HeaderFound { header: SegmentHeader::decode(&bytes, identity), is_blank })
}

/// Returns the first bytes of a file, or as many as there are, and whether the disk could read all
/// of them: the others are zeros.
pub(super) fn read_beginning(file: &dyn File, bytes: usize) -> io::Result<(Vec<u8>, bool)> {
    let mut buffer = vec![0; bytes];
    let mut unreadable = Vec::new();
    let filled = read_around(file, &mut buffer, 0, &mut unreadable)?;
    buffer.truncate(filled);
    Ok((buffer, unreadable.is_empty()))
}

/// File name of a segment.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:010}.log")
}

/// Its path.
pub(crate) fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(segment_name(number))
}

/// Number in a segment's file name.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".log")?;
    let number = digits.parse().ok()?;
    // The same number written otherwise is another file.
    (segment_name(number) == name).then_some(number)
}

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

    /// Where in the order of the log a location is.
    #[inline]
    pub(crate) fn age(&self, location: Location) -> Age {
        let number = self.get(location).map_or(0, |segment| segment.number);
        Age::new(number, location.offset())
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.slots.iter().flatten()
    }

    /// All of them, oldest first.
    pub(crate) fn in_order(&self) -> Vec<Arc<Segment>> {
        let mut all: Vec<_> = self.iter().cloned().collect();
        all.sort_by_key(|segment| segment.number);
        all
    }

    /// A slot that is not taken, or `None` if the log is as large as it can be.
    pub(crate) fn free_slot(&self) -> Option<usize> {
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        (free < SEGMENTS_MAX).then_some(free)
    }

    pub(crate) fn insert(&mut self, segment: Arc<Segment>) {
        if self.slots.len() <= segment.slot {
            self.slots.resize(segment.slot + 1, None);
        }
        let slot = segment.slot;
        self.slots[slot] = Some(segment);
    }

    pub(crate) fn remove(&mut self, slot: usize) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = None;
        }
    }
}
