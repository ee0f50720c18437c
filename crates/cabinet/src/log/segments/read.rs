//! Record reads, by location.
//!
//! A segment that was in memory at the last check is read through its mapping, the fastest way. Any
//! other is read through its file, which reports when it would have to wait; see [`crate::Wait`].
//!
//! A record on the disk should cost one read of the device, of only the pages that it is on. Its
//! length is not known before its first bytes are read, so it is guessed from earlier records; see
//! [`FirstRead`].

use super::{Location, Segment, Segments};
use crate::io::{is_unreadable, read_around, was_missed};
use crate::log::error_at;
use crate::log::record::{self, HEADER_BYTES_MAX, NotARecord, RECORD_BYTES_MIN, Record};
use crate::log::scan::UNREADABLE;
use crate::{Error, Result, Wait};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const PAGE_BYTES: usize = 4096;

/// Bytes to read of a record whose length is not known yet: a length that three of four records do
/// not exceed, according to earlier reads. The fourth costs a second read. Shorter records cost the
/// pages after them, which is why it is not the longest.
pub(crate) struct FirstRead {
    bytes: AtomicUsize,
    reads: AtomicU64,
}

impl Default for FirstRead {
    fn default() -> Self {
        Self { bytes: AtomicUsize::new(Self::BYTES_AT_FIRST), reads: AtomicU64::new(0) }
    }
}

impl FirstRead {
    /// Returns the number of records that were read from the disk.
    pub(super) fn count(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    const BYTES_AT_FIRST: usize = 2048;
    const BYTES_MIN: usize = 64;
    /// From this length on, a second read is a small part of the cost of a record.
    const BYTES_MAX: usize = 64 << 10;

    /// Returns the number of bytes to read at `offset`: to the end of a page, because whole pages
    /// are read anyway.
    fn bytes_from(&self, offset: usize) -> usize {
        let bytes = self.bytes.load(Ordering::Relaxed);
        (offset + bytes).next_multiple_of(PAGE_BYTES) - offset
    }

    /// Counts a record that was read.
    fn count_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Adjusts the guess to the length of a record. It rises by three steps or falls by one, so it
    /// settles where three of four records are below. Two concurrent threads may lose a step.
    fn learn(&self, length: usize) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let step = bytes / 64;
        let next = if length > bytes { bytes + 3 * step } else { bytes - step };
        self.bytes.store(next.clamp(Self::BYTES_MIN, Self::BYTES_MAX), Ordering::Relaxed);
    }
}

/// Records of this many bytes or more are not read whole to compare their key, nor copied by
/// callers that must not wait.
const LARGE_RECORD_BYTES: usize = 1 << 20;

/// Extent of the check of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// The checksum: the value will be used.
    Whole,
    /// The lengths: only the key will be compared.
    Lengths,
}

impl Check {
    #[inline]
    fn decode<'a>(
        self,
        bytes: &'a [u8],
        segment: &Segment,
        offset: usize,
    ) -> std::result::Result<Record<'a>, NotARecord> {
        match self {
            Self::Whole => Record::decode(bytes, segment.binding, offset),
            Self::Lengths => Record::decode_unchecked(bytes),
        }
    }
}

/// Offset of a record in its segment, and its length if that is known; both in bytes.
#[derive(Clone, Copy)]
struct At {
    offset: usize,
    bytes: Option<usize>,
}

/// Calls `visit` with the record at `location`. Damage is counted and logged, see
/// [`super::faults`].
#[inline]
pub(crate) fn with_record<T>(
    segments: &Segments,
    location: Location,
    wait: Wait,
    check: Check,
    visit: impl FnOnce(&Record<'_>) -> T,
) -> Result<T> {
    let at = At { offset: location.offset(), bytes: None };
    read_record::<T, true>(segment_of(segments, location)?, at, wait, check, visit)
}

/// Like [`with_record`], for a record that takes `bytes` of the log, which are read at once.
pub(crate) fn with_record_of<T>(
    segments: &Segments,
    (location, bytes): (Location, usize),
    wait: Wait,
    check: Check,
    visit: impl FnOnce(&Record<'_>) -> T,
) -> Result<T> {
    let at = At { offset: location.offset(), bytes: Some(bytes) };
    read_record::<T, true>(segment_of(segments, location)?, at, wait, check, visit)
}

#[inline]
fn segment_of(segments: &Segments, location: Location) -> Result<&Segment> {
    segments.get(location).map(|segment| &**segment).ok_or_else(|| Error::Corrupted {
        file: "index".into(),
        offset: location.bits(),
        what: "a record in a segment that does not exist".into(),
    })
}

/// Like [`with_record`], but damage is not counted or logged: for callers that check whether there
/// is a record at all. Returns `None` if there is none.
pub(crate) fn peek_record<T>(
    segments: &Segments,
    location: Location,
    wait: Wait,
    check: Check,
    visit: impl FnOnce(&Record<'_>) -> T,
) -> Result<Option<T>> {
    let Some(segment) = segments.get(location) else { return Ok(None) };
    let at = At { offset: location.offset(), bytes: None };
    match read_record::<T, false>(segment, at, wait, check, visit) {
        Err(Error::Corrupted { .. }) => Ok(None),
        visited => visited.map(Some),
    }
}

/// Reads a record. A failure is counted and logged as damage if `IS_NOTED`.
#[inline]
fn read_record<T, const IS_NOTED: bool>(
    segment: &Segment,
    at: At,
    wait: Wait,
    check: Check,
    visit: impl FnOnce(&Record<'_>) -> T,
) -> Result<T> {
    let offset = at.offset;
    if segment.resident.load(Ordering::Relaxed) {
        // A small record spans two or three cache lines. Prefetching makes their misses overlap.
        segment.map.prefetch(offset + 64);
        segment.map.prefetch(offset + 128);
        // The header is read first, because bytes after the record may still be written to.
        let bytes = |count| segment.map.get(offset, offset + count).unwrap_or_default();
        let total = record::total(bytes(RECORD_BYTES_MIN))
            .or_else(|_| record::total(bytes(HEADER_BYTES_MAX)));
        return match total.and_then(|total| check.decode(bytes(total), segment, offset)) {
            Ok(record) => Ok(visit(&record)),
            Err(error) => Err(corrupted::<IS_NOTED>(segment, offset, error)),
        };
    }
    with_file_record::<T, IS_NOTED>(segment, at, wait, check, visit)
}

fn with_file_record<T, const IS_NOTED: bool>(
    segment: &Segment,
    At { offset, bytes }: At,
    wait: Wait,
    check: Check,
    visit: impl FnOnce(&Record<'_>) -> T,
) -> Result<T> {
    let left = segment.map.written().saturating_sub(offset);
    let first = bytes.unwrap_or_else(|| segment.first_read.bytes_from(offset));
    let mut buffer = vec![0; first.clamp(RECORD_BYTES_MIN, left.max(RECORD_BYTES_MIN)).min(left)];
    let mut filled = 0;
    // Whether the disk cannot read the bytes after that.
    let mut is_cut_off = false;
    let mut is_at_end = false;
    loop {
        let more = &mut buffer[filled..];
        let at = (offset + filled) as u64;
        let read = match wait {
            Wait::Block => segment.file.read_at(more, at),
            Wait::Never => segment.file.read_cached_at(more, at),
        };
        match read {
            Ok(0) => is_at_end = true,
            Ok(bytes) => {
                filled += bytes;
                if filled < buffer.len() && wait == Wait::Block {
                    continue;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(Error::WouldBlock);
            }
            Err(error) if is_unreadable(&error) => {
                if wait == Wait::Never {
                    return Err(Error::WouldBlock);
                }
                let mut unreadable = Vec::new();
                let around = read_around(&*segment.file, more, at, &mut unreadable);
                let bytes = around.map_err(|error| error_at("read", &segment.path, error))?;
                let readable = unreadable.first().map(|part| (part.start - at) as usize);
                filled += readable.unwrap_or(bytes);
                is_cut_off = readable.is_some();
            }
            Err(error) => return Err(error_at("read", &segment.path, error)),
        }
        match check.decode(&buffer[..filled], segment, offset) {
            Ok(record) => {
                // A record in memory costs no read, so its length is no evidence.
                if wait == Wait::Block || was_missed() {
                    segment.first_read.count_read();
                    if bytes.is_none() {
                        segment.first_read.learn(record.total);
                    }
                }
                return Ok(visit(&record));
            }
            // More bytes were read than the record has, or fewer.
            Err(NotARecord::Short(_)) if is_cut_off => {
                return Err(corrupted::<IS_NOTED>(segment, offset, NotARecord::Bad(UNREADABLE)));
            }
            // The beginning has been read, and the rest is not used.
            Err(NotARecord::Short(needed))
                if check == Check::Lengths && needed >= LARGE_RECORD_BYTES && needed <= left =>
            {
                let bytes = segment.map.get(offset, offset + needed).unwrap_or_default();
                return match check.decode(bytes, segment, offset) {
                    Ok(record) => Ok(visit(&record)),
                    Err(error) => Err(corrupted::<IS_NOTED>(segment, offset, error)),
                };
            }
            // The part in memory does not suffice. The next read misses the rest.
            Err(NotARecord::Short(_)) if filled < buffer.len() && wait == Wait::Never => {
                if is_at_end {
                    return Err(Error::WouldBlock);
                }
            }
            // Reading it takes long, also from memory.
            Err(NotARecord::Short(needed))
                if wait == Wait::Never && needed >= LARGE_RECORD_BYTES && needed <= left =>
            {
                return Err(Error::WouldBlock);
            }
            Err(NotARecord::Short(needed)) if needed > buffer.len() && needed <= left => {
                buffer.resize(needed, 0);
            }
            Err(error) => return Err(corrupted::<IS_NOTED>(segment, offset, error)),
        }
    }
}

#[cold]
fn corrupted<const IS_NOTED: bool>(segment: &Segment, offset: usize, error: NotARecord) -> Error {
    let what = match error {
        _ if segment.is_missing => "the segment is missing",
        NotARecord::Unwritten => "no record was written here",
        NotARecord::Short(_) => "a record that extends beyond the file",
        NotARecord::Bad(what) => what,
    };
    let offset = offset as u64;
    if IS_NOTED {
        return segment.corrupted(offset, what);
    }
    Error::Corrupted { file: segment.path.clone(), offset, what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{FaultyStorage, File, Map, Open, Storage};
    use crate::log::DatabaseId;
    use crate::log::record::{Kind, Prepared, bind};
    use crate::log::segments::{SEGMENT_HEADER_BYTES, SegmentHeader};
    use crate::{Compression, Meta};
    use std::path::Path;
    use std::sync::Arc;

    const ID: DatabaseId = DatabaseId { id: 1, hash_seed: 2, salt: 7 };

    /// A file that counts its reads and has only its first page in memory.
    struct ColdFile {
        file: Arc<dyn File>,
        reads: AtomicUsize,
        bytes: AtomicUsize,
    }

    impl File for ColdFile {
        fn length(&self) -> io::Result<u64> {
            self.file.length()
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let bytes = self.file.read_at(buffer, offset)?;
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            Ok(bytes)
        }

        fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let cached = PAGE_BYTES.saturating_sub(offset as usize).min(buffer.len());
            if cached == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.file.read_at(&mut buffer[..cached], offset)
        }

        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            self.file.write_at(bytes, offset)
        }

        fn allocate(&self, map: &Map, length: u64) -> io::Result<()> {
            self.file.allocate(map, length)
        }

        fn truncate(&self, length: u64) -> io::Result<()> {
            self.file.truncate(length)
        }

        fn sync(&self) -> io::Result<()> {
            self.file.sync()
        }

        fn will_read(&self, offset: u64, bytes: u64) {
            self.file.will_read(offset, bytes);
        }

        fn map(&self, capacity: usize, written: usize) -> io::Result<Map> {
            self.file.map(capacity, written)
        }
    }

    /// Returns a segment that is not in memory, with one record per length of a value, and the
    /// offsets of the records.
    fn segment(values: &[usize]) -> (Segment, Arc<ColdFile>, Vec<usize>) {
        let mut contents = vec![0; SEGMENT_HEADER_BYTES];
        let mut offsets = Vec::new();
        for bytes in values {
            offsets.push(contents.len());
            let value = vec![1; *bytes];
            let (meta, compression) = (Meta::NONE, Compression::None);
            let start = contents.len();
            Prepared::new(ID.salt, Kind::Put, b"key", &value, meta, compression)
                .write_to(1, &mut contents);
            bind(&mut contents[start..], ID.binding(1, true).mask(start));
        }
        let path = Path::new("a.log");
        let file = FaultyStorage::new().open(path, Open::New).unwrap();
        file.write_at(&contents, 0).unwrap();
        let map = file.map(contents.len(), contents.len()).unwrap();
        let file =
            Arc::new(ColdFile { file, reads: AtomicUsize::new(0), bytes: AtomicUsize::new(0) });
        let header = SegmentHeader {
            number: 1,
            is_bound: true,
            clears: false,
            is_behind_pages: false,
            first_sequence: 1,
            previous_bytes: 0,
            capacity: contents.len() as u64,
        };
        let segment = Segment::new(&header, &ID, 0, path.to_owned(), Arc::clone(&file) as _, map);
        segment.resident.store(false, Ordering::Relaxed);
        (segment, file, offsets)
    }

    fn value_bytes(segment: &Segment, offset: usize, wait: Wait) -> Result<usize> {
        value_bytes_at(segment, At { offset, bytes: None }, wait)
    }

    fn value_bytes_at(segment: &Segment, at: At, wait: Wait) -> Result<usize> {
        with_file_record::<_, true>(segment, at, wait, Check::Whole, |record| record.value.len())
    }

    #[test]
    fn a_record_costs_one_read_of_its_own_pages_once_others_of_its_length_were_read() {
        for bytes in [10, 1000, 8000, 50_000] {
            let (segment, file, offsets) = segment(&vec![bytes; 600]);
            let (first, second) = offsets.split_at(300);
            for offset in first {
                assert_eq!(value_bytes(&segment, *offset, Wait::Block).unwrap(), bytes);
            }
            file.reads.store(0, Ordering::Relaxed);
            file.bytes.store(0, Ordering::Relaxed);
            for offset in second {
                assert_eq!(value_bytes(&segment, *offset, Wait::Block).unwrap(), bytes);
            }
            let reads = file.reads.load(Ordering::Relaxed);
            assert!(reads <= 300 + 300 / 20, "{reads} reads of 300 records of {bytes} bytes");
            let read = file.bytes.load(Ordering::Relaxed);
            let needed: usize = second
                .iter()
                .map(|offset| (offset + bytes + 24).next_multiple_of(PAGE_BYTES) - offset)
                .sum();
            assert!(read <= needed + needed / 10, "{read} bytes read where {needed} are needed");
        }
    }

    #[test]
    fn a_record_of_known_length_costs_one_read_of_its_own_bytes() {
        let values = [10, 8000, 50, 100_000, 300, 2000];
        let (segment, file, offsets) = segment(&values);
        let ends = offsets[1..].iter().copied().chain([segment.map.written()]);
        for ((bytes, offset), end) in values.iter().zip(&offsets).zip(ends) {
            let (reads, read) = (file.reads.swap(0, Ordering::Relaxed), &file.bytes);
            assert!(reads <= 1, "{reads}");
            read.store(0, Ordering::Relaxed);
            let at = At { offset: *offset, bytes: Some(end - offset) };
            assert_eq!(value_bytes_at(&segment, at, Wait::Block).unwrap(), *bytes);
            assert_eq!(read.load(Ordering::Relaxed), end - offset);
        }
        assert_eq!(file.reads.load(Ordering::Relaxed), 1);
        // A wrong length costs another read, or reads too much, and has the same result.
        for wrong in [0, 1, 100, 1 << 20, usize::MAX] {
            let at = At { offset: offsets[1], bytes: Some(wrong) };
            assert_eq!(value_bytes_at(&segment, at, Wait::Block).unwrap(), 8000);
        }
        assert_eq!(segment.first_read.count(), values.len() as u64 + 5);
    }

    #[test]
    fn few_large_records_do_not_make_all_reads_large() {
        let values: Vec<usize> = (0..800).map(|n| if n % 8 == 0 { 20_000 } else { 100 }).collect();
        let (segment, _, offsets) = segment(&values);
        for offset in &offsets {
            value_bytes(&segment, *offset, Wait::Block).unwrap();
        }
        assert_eq!(segment.first_read.bytes_from(0), PAGE_BYTES);
        assert_eq!(segment.first_read.count(), 800);
    }

    #[test]
    fn a_first_read_has_limits() {
        let guess = FirstRead::default();
        let limit = FirstRead::BYTES_MAX;
        for length in [limit - 1, limit, limit + 1, usize::MAX] {
            (0..1000).for_each(|_| guess.learn(length));
            assert!((limit * 62 / 64..=limit).contains(&guess.bytes.load(Ordering::Relaxed)));
        }
        (0..1000).for_each(|_| guess.learn(1));
        assert_eq!(guess.bytes.load(Ordering::Relaxed), FirstRead::BYTES_MIN);
    }

    #[test]
    fn a_record_not_wholly_in_memory_is_read_only_by_callers_that_may_wait() {
        let (segment, _, offsets) = segment(&[2000, 2500, 2000]);
        assert_eq!(value_bytes(&segment, offsets[0], Wait::Never).unwrap(), 2000);
        for offset in &offsets[1..] {
            let error = value_bytes(&segment, *offset, Wait::Never).unwrap_err();
            assert!(matches!(error, Error::WouldBlock), "{error}");
        }
        assert_eq!(value_bytes(&segment, offsets[1], Wait::Block).unwrap(), 2500);
    }
}
