//! Reading one record by its place.
//!
//! Through the mapping where the segment was last seen to be in memory: nothing is faster. Else
//! through the file, which says when it would have to wait; see [`crate::Wait`].

use super::error_at;
use super::record::{NotARecord, Record};
use super::segment::{Location, Segment, Segments};
use crate::{Error, Result, Wait};
use std::io;
use std::sync::atomic::Ordering;

/// Bytes that are read of a record whose length is not known yet, up to the end of the page
/// that the last of them is on: a small record costs one read of the device.
const FIRST_READ_BYTES: usize = 2048;
const PAGE_BYTES: usize = 4096;

/// How much of a record is to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Its checksum: it is going to be believed.
    Whole,
    /// Its lengths: it is going to be compared.
    Lengths,
}

impl Check {
    #[inline]
    fn decode(self, bytes: &[u8], salt: u32) -> std::result::Result<Record<'_>, NotARecord> {
        match self {
            Self::Whole => Record::decode(bytes, salt),
            Self::Lengths => Record::decode_unchecked(bytes),
        }
    }
}

/// Lends the record at `location` to `visit`.
#[inline]
pub(crate) fn with_record<T>(
    segments: &Segments,
    salt: u32,
    location: Location,
    wait: Wait,
    check: Check,
    visit: impl FnOnce(&Record<'_>) -> T,
) -> Result<T> {
    let Some(segment) = segments.get(location) else {
        return Err(Error::Corrupted {
            file: "index".into(),
            offset: location.bits(),
            what: "a record in a segment that does not exist".into(),
        });
    };
    let offset = location.offset();
    if segment.resident.load(Ordering::Relaxed) {
        // A small record spans two or three cache lines: their misses overlap this way.
        segment.map.prefetch(offset + 64);
        segment.map.prefetch(offset + 128);
        let bytes = segment.map.get(offset, segment.map.written()).unwrap_or_default();
        return match check.decode(bytes, salt) {
            Ok(record) => Ok(visit(&record)),
            Err(error) => Err(corrupted(segment, offset, error)),
        };
    }
    with_file_record(segment, salt, offset, wait, check, visit)
}

fn with_file_record<T>(
    segment: &Segment,
    salt: u32,
    offset: usize,
    wait: Wait,
    check: Check,
    visit: impl FnOnce(&Record<'_>) -> T,
) -> Result<T> {
    let left = segment.map.written().saturating_sub(offset);
    let first = (offset + FIRST_READ_BYTES).next_multiple_of(PAGE_BYTES) - offset;
    let mut buffer = vec![0; first.min(left)];
    let mut filled = 0;
    loop {
        let more = &mut buffer[filled..];
        let at = (offset + filled) as u64;
        let read = match wait {
            Wait::Block => segment.file.read_at(more, at),
            Wait::Never => segment.file.read_cached_at(more, at),
        };
        match read {
            Ok(0) => {}
            Ok(bytes) => {
                filled += bytes;
                if filled < buffer.len() && wait == Wait::Block {
                    continue;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(Error::WouldBlock);
            }
            Err(error) => return Err(error_at("read", &segment.path, error)),
        }
        match check.decode(&buffer[..filled], salt) {
            Ok(record) => return Ok(visit(&record)),
            // The part that is in memory does not suffice.
            Err(NotARecord::Short(_)) if filled < buffer.len() && wait == Wait::Never => {
                return Err(Error::WouldBlock);
            }
            Err(NotARecord::Short(needed)) if needed > buffer.len() && needed <= left => {
                buffer.resize(needed, 0);
            }
            Err(error) => return Err(corrupted(segment, offset, error)),
        }
    }
}

fn corrupted(segment: &Segment, offset: usize, error: NotARecord) -> Error {
    let what = match error {
        NotARecord::Unwritten => "no record was written here",
        NotARecord::Short(_) => "a record that goes on beyond the file",
        NotARecord::Bad(what) => what,
    };
    Error::Corrupted { file: segment.path.clone(), offset: offset as u64, what: what.into() }
}
