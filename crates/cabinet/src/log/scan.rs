//! Scanner: reads a segment from one end to the other.

use super::binding::Binding;
use super::record::{
    ALIGNMENT, BLOCK_BYTES_MAX, HEADER_BYTES_MAX, Kind, NotARecord, RECORD_BYTES_MIN, Record,
};
use super::segments::{SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES};
use crate::io::{File, read_around};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes read at a time by a scan that is paused and later resumed, which then reads the rest
/// again.
const SHORT_CHUNK_BYTES: usize = 64 << 10;

/// Maximum number of bytes that are checked while the next record after damage is searched.
const FIND_BYTES_MAX: usize = 4 << 30;

/// Description of a record that extends beyond the end.
pub(super) const CUT: &str = "a record that is cut";

/// Description of zeros where a record should be.
pub(super) const UNWRITTEN: &str = "nothing is written where a record should be";

/// Description of bytes that the disk cannot read.
pub(super) const UNREADABLE: &str = "the disk cannot read it";

/// Callback for each record. It gets the record's offset, the record, and its bytes.
pub(crate) type Visit<'v> = dyn FnMut(u64, &Record<'_>, &[u8]) -> crate::Result<()> + 'v;

/// Offset at which a scan stopped before the end it was given, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    /// Offset of the first byte that is not part of a record.
    pub(crate) offset: u64,
    /// `None` if nothing was written there.
    pub(crate) what: Option<&'static str>,
    /// Offset of the end of the append block that contains the stop. Bytes from there on do not
    /// depend on it.
    pub(crate) append_block_end: Option<u64>,
    /// Offset of the end of the batch that is not whole. Its members are records of their own.
    pub(crate) batch_end: Option<u64>,
}

/// Consecutive puts. See [`Scanner::puts_at_hand`].
pub(crate) struct Puts<'s> {
    /// The puts and their offsets.
    pub(crate) records: Vec<(u64, Record<'s>)>,
    /// Offset of the end of the last put.
    pub(crate) end: u64,
}

/// Scans records in the order in which they were appended. The members of a batch are visited only
/// if all are whole.
pub(crate) struct Scanner {
    file: Arc<dyn File>,
    binding: Binding,
    /// File offset of the buffer.
    base: u64,
    buffer: Vec<u8>,
    /// Ranges of the file in the buffer that the disk could not read. The buffer holds zeros there.
    unreadable: Vec<Range<u64>>,
    /// Whether there was such a range so far.
    has_met_unreadable: bool,
    /// Offset of the next record.
    next: u64,
    /// Offset of the end of the append block that contains the next record.
    append_block_end: Option<u64>,
    end: u64,
    /// The greatest point that a sync mark recorded, as the number of a segment and an offset.
    synced: (u64, u64),
    /// Bytes that are read at a time.
    chunk_bytes: usize,
}

/// Position of a scan that is resumed later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanPosition {
    /// Offset of the next record.
    pub(crate) offset: u64,
    /// Offset of the end of the append block that contains the next record.
    append_block_end: Option<u64>,
}

impl Scanner {
    /// Creates a scan from `start`, or from the segment's first record if that is later, up to
    /// `end`.
    pub(crate) fn new(file: Arc<dyn File>, binding: Binding, start: u64, end: u64) -> Self {
        let next = start.max(SEGMENT_HEADER_BYTES as u64);
        Self {
            file,
            binding,
            base: next,
            buffer: Vec::new(),
            unreadable: Vec::new(),
            has_met_unreadable: false,
            next,
            append_block_end: None,
            end,
            synced: (0, 0),
            chunk_bytes: CHUNK_BYTES,
        }
    }

    /// Resumes a scan of the same file, and reads little at a time.
    pub(crate) fn resumed(
        file: Arc<dyn File>,
        binding: Binding,
        scan_position: ScanPosition,
        end: u64,
    ) -> Self {
        let (append_block_end, chunk_bytes) = (scan_position.append_block_end, SHORT_CHUNK_BYTES);
        Self {
            append_block_end,
            chunk_bytes,
            ..Self::new(file, binding, scan_position.offset, end)
        }
    }

    /// Returns the position of the scan. It can be resumed there unless it has stopped at damage.
    pub(crate) fn scan_position(&self) -> ScanPosition {
        ScanPosition { offset: self.next, append_block_end: self.append_block_end }
    }

    /// Returns whether the disk could not read a part of the scanned bytes.
    pub(crate) fn has_met_unreadable(&self) -> bool {
        self.has_met_unreadable
    }

    /// Returns the greatest point up to which the log had been synced, according to the sync marks
    /// scanned so far.
    pub(crate) fn synced(&self) -> (u64, u64) {
        self.synced
    }

    /// Returns the offset of the next record.
    pub(crate) fn offset(&self) -> u64 {
        self.next
    }

    /// Calls `visit` with the next record, its offset and its bytes, or with those of each member
    /// of a batch. Returns false at the end, and a [`Stop`] where there is no record.
    pub(crate) fn next(&mut self, visit: &mut Visit<'_>) -> Result<Result<bool, Stop>, ScanError> {
        if self.next >= self.end {
            return Ok(Ok(false));
        }
        if self.next >= SEGMENT_BYTES_MAX as u64 {
            return Ok(Err(self.stop_at(Some("a record beyond the maximum offset"))));
        }
        let mut needed = HEADER_BYTES_MAX;
        loop {
            if let Some(append_block_end) = self.append_block_end
                && append_block_end < self.next + RECORD_BYTES_MIN as u64
            {
                // No record fits into the rest of the append block.
                self.next = append_block_end;
                self.append_block_end = None;
                if self.next >= self.end {
                    return Ok(Ok(false));
                }
            }
            self.fill(needed)?;
            let bytes = self.ahead()?;
            let end = self.append_block_end.unwrap_or(self.end);
            let record = match Record::decode(bytes, self.binding, self.next as usize) {
                Ok(record) if self.next + record.total as u64 > end => {
                    return Ok(Err(
                        self.stop_at(Some("a record that extends beyond its append block"))
                    ));
                }
                Ok(record) => record,
                Err(NotARecord::Short(more))
                    if more > HEADER_BYTES_MAX && self.next + more as u64 > end =>
                {
                    return Ok(Err(self.stop_at(Some(CUT))));
                }
                Err(NotARecord::Short(more)) if self.next + more as u64 <= self.end => {
                    if more <= bytes.len() {
                        // Near the end, a header may be shorter than the longest one.
                        return Ok(Err(self.stop_at(Some(CUT))));
                    }
                    needed = more;
                    continue;
                }
                Err(NotARecord::Short(_)) => {
                    return Ok(Err(self.stop_at(Some(CUT))));
                }
                Err(NotARecord::Unwritten) => return Ok(Err(self.stop_at(None))),
                Err(NotARecord::Bad(what)) => return Ok(Err(self.stop_at(Some(what)))),
            };
            let total = record.total;
            let inner = total - record.value.len();
            match record.kind {
                Kind::Batch => {}
                Kind::Filler | Kind::Mark => {
                    if let (Kind::Mark, Some(synced)) = (record.kind, record.synced()) {
                        self.synced = self.synced.max(synced);
                    }
                    self.next += total as u64;
                    if self.next >= self.end {
                        return Ok(Ok(false));
                    }
                    needed = HEADER_BYTES_MAX;
                    continue;
                }
                Kind::AppendBlock
                    if self.append_block_end.is_some()
                        || record.value.len() > BLOCK_BYTES_MAX
                        || !inner.is_multiple_of(ALIGNMENT) =>
                {
                    return Ok(Err(self.stop_at(Some("an invalid append block"))));
                }
                Kind::AppendBlock => {
                    self.append_block_end = Some(self.next + total as u64);
                    self.next += inner as u64;
                    needed = HEADER_BYTES_MAX;
                    continue;
                }
                Kind::Put | Kind::Tombstone | Kind::Page => {
                    visit(self.next, &record, &bytes[..total])?;
                    self.next += total as u64;
                    return Ok(Ok(true));
                }
            }
            let mut offset = self.next + inner as u64;
            // The value begins here, unless it does not begin where records may begin.
            let mut rest = &bytes[inner..record.total];
            if !is_whole_batch(rest, self.binding, offset) {
                let batch_end = Some(self.next + total as u64);
                let stop = self.stop_at(Some("a batch that is not whole"));
                return Ok(Err(Stop { batch_end, ..stop }));
            }
            // The members follow one by one and are known to be good.
            while let Ok(member) = Record::decode(rest, self.binding, offset as usize) {
                visit(offset, &member, &rest[..member.total])?;
                offset += member.total as u64;
                rest = &rest[member.total..];
            }
            self.next += record.total as u64;
            return Ok(Ok(true));
        }
    }

    /// Returns up to `max` consecutive puts that were already read from the disk, beginning with
    /// the next record. The scan does not advance, see [`Scanner::pass`].
    pub(crate) fn puts_at_hand(&self, max: usize) -> Puts<'_> {
        let mut puts = Puts { records: Vec::new(), end: self.next };
        let limit = self.append_block_end.unwrap_or(self.end).min(SEGMENT_BYTES_MAX as u64);
        let Ok(mut bytes) = self.ahead() else { return puts };
        while puts.records.len() < max
            && let Ok(record) = Record::decode(bytes, self.binding, puts.end as usize)
            && record.kind == Kind::Put
            && puts.end + record.total as u64 <= limit
        {
            if puts.records.is_empty() {
                puts.records.reserve_exact(max);
            }
            bytes = &bytes[record.total..];
            let offset = puts.end;
            puts.end += record.total as u64;
            puts.records.push((offset, record));
        }
        puts
    }

    /// Continues the scan after puts that were at hand.
    pub(crate) fn pass(&mut self, end: u64) {
        debug_assert!((self.next..=self.end).contains(&end));
        self.next = end;
    }

    /// Returns whether nothing was written from a stop to the end. A process that is killed before
    /// it has cut a sealed segment leaves zeros there.
    pub(crate) fn is_at_unused_end(&mut self, stop: &Stop) -> io::Result<bool> {
        let is_unwritten = stop.what.is_none() && stop.append_block_end.is_none();
        Ok(is_unwritten && !self.find_next()? && !self.has_met_unreadable)
    }

    /// Continues after the append block in which the scan has stopped.
    pub(crate) fn leave_append_block(&mut self) {
        if let Some(append_block_end) = self.append_block_end.take() {
            self.next = append_block_end;
        }
    }

    /// Continues after a stop. If the lengths of the damaged record are plausible, the scan
    /// continues at its end, because bytes in it may look like a record. Otherwise it continues at
    /// the next record. Returns whether there is one.
    pub(crate) fn find_next(&mut self) -> io::Result<bool> {
        let (stopped_at, append_block_end) = (self.next, self.append_block_end);
        if let Some(end) = self.supposed_end()? {
            if append_block_end.is_some_and(|append_block_end| end >= append_block_end) {
                self.append_block_end = None;
            }
            self.next = end;
            self.fill(HEADER_BYTES_MAX)?;
            if self.is_at_record()? {
                return Ok(true);
            }
            self.go_back(stopped_at, append_block_end);
        }
        self.next += ALIGNMENT as u64;
        self.find()
    }

    /// Returns the offset of the end of the damaged record, if its lengths are plausible; `None` if
    /// it may hold other records.
    fn supposed_end(&mut self) -> io::Result<Option<u64>> {
        self.fill(HEADER_BYTES_MAX)?;
        if let Err(NotARecord::Short(total)) = Record::decode_unchecked(self.ahead()?)
            && self.next + (total as u64) < self.end
        {
            self.fill(total)?;
        }
        let Ok(record) = Record::decode_unchecked(self.ahead()?) else { return Ok(None) };
        let end = self.next + record.total as u64;
        let holds_others = matches!(record.kind, Kind::Batch | Kind::AppendBlock | Kind::Filler);
        let is_within = end < self.end && end < SEGMENT_BYTES_MAX as u64;
        Ok((!holds_others && is_within).then_some(end))
    }

    /// Returns whether a whole record begins at the next offset.
    fn is_at_record(&mut self) -> io::Result<bool> {
        let needed = match Record::decode_unchecked(self.ahead()?) {
            Ok(record) => record.total,
            Err(NotARecord::Short(needed)) if self.next + needed as u64 <= self.end => needed,
            Err(_) => return Ok(false),
        };
        self.fill(needed)?;
        Ok(Record::decode(self.ahead()?, self.binding, self.next as usize).is_ok())
    }

    /// Continues after a stop at the first record at or after `place`. Returns whether there is
    /// one.
    pub(crate) fn find_from(&mut self, place: u64) -> io::Result<bool> {
        self.next = place.max(self.next);
        self.find()
    }

    /// Moves the scan back to where it stopped.
    pub(crate) fn go_back(&mut self, place: u64, append_block_end: Option<u64>) {
        self.next = place;
        self.append_block_end = append_block_end;
        if place < self.base {
            self.base = place;
            self.buffer.clear();
            self.unreadable.clear();
        }
    }

    /// Moves the scan back to an earlier position.
    pub(crate) fn go_back_to(&mut self, scan_position: ScanPosition) {
        self.go_back(scan_position.offset, scan_position.append_block_end);
    }

    /// Moves to the next record from here on. Returns whether there is one. The search is bounded:
    /// it ends if the bytes often look like the lengths of long records.
    fn find(&mut self) -> io::Result<bool> {
        let mut checked = 0;
        loop {
            if self.append_block_end.is_some_and(|append_block_end| self.next >= append_block_end) {
                self.append_block_end = None;
            }
            if self.next >= self.end || self.next >= SEGMENT_BYTES_MAX as u64 {
                return Ok(false);
            }
            self.fill(HEADER_BYTES_MAX)?;
            let needed = match Record::decode_unchecked(self.ahead()?) {
                Ok(record) => record.total,
                Err(NotARecord::Short(needed)) if self.next + needed as u64 <= self.end => needed,
                Err(_) => {
                    self.next += ALIGNMENT as u64;
                    continue;
                }
            };
            checked += needed;
            if checked > FIND_BYTES_MAX {
                return Ok(false);
            }
            self.fill(needed)?;
            if Record::decode(self.ahead()?, self.binding, self.next as usize).is_ok() {
                return Ok(true);
            }
            self.next += ALIGNMENT as u64;
        }
    }

    /// Returns the bytes of the buffer from the next record on.
    fn ahead(&self) -> io::Result<&[u8]> {
        let at = usize::try_from(self.next - self.base).map_err(io::Error::other)?;
        Ok(&self.buffer[at.min(self.buffer.len())..])
    }

    fn stop_at(&self, what: Option<&'static str>) -> Stop {
        let what = if self.is_unreadable_ahead() { Some(UNREADABLE) } else { what };
        Stop { offset: self.next, what, append_block_end: self.append_block_end, batch_end: None }
    }

    /// Returns whether the disk could not read a part of the record at the next offset.
    fn is_unreadable_ahead(&self) -> bool {
        if self.unreadable.is_empty() {
            return false;
        }
        let record = self.ahead().ok().and_then(|bytes| Record::decode_unchecked(bytes).ok());
        let end = self.next + record.map_or(HEADER_BYTES_MAX, |record| record.total) as u64;
        self.unreadable.iter().any(|part| part.start < end && self.next < part.end)
    }

    /// Fills the buffer with at least `needed` bytes from `next` on, or all up to the end.
    fn fill(&mut self, needed: usize) -> io::Result<()> {
        let have = (self.base + self.buffer.len() as u64).saturating_sub(self.next);
        let left = self.end - self.next;
        if have >= (needed as u64).min(left) {
            return Ok(());
        }
        let keep = usize::try_from(self.next - self.base).map_err(io::Error::other)?;
        self.buffer.drain(..keep.min(self.buffer.len()));
        self.base = self.next;
        let target = (needed.max(self.chunk_bytes) as u64).min(left);
        let target = usize::try_from(target).map_err(io::Error::other)?;
        let filled = self.buffer.len();
        self.buffer.resize(target.max(filled), 0);
        self.unreadable.retain(|part| part.end > self.base);
        let (buffer, offset) = (&mut self.buffer[filled..], self.base + filled as u64);
        // If the file is shorter than expected, the missing part reads as unwritten.
        read_around(&*self.file, buffer, offset, &mut self.unreadable)?;
        self.has_met_unreadable |= !self.unreadable.is_empty();
        Ok(())
    }
}

/// Returns whether `bytes` consist of whole records, all within reach of a location.
fn is_whole_batch(mut bytes: &[u8], binding: Binding, mut offset: u64) -> bool {
    while !bytes.is_empty() {
        match Record::decode(bytes, binding, offset as usize) {
            Ok(record) if is_member(record.kind) && offset < SEGMENT_BYTES_MAX as u64 => {
                bytes = &bytes[record.total..];
                offset += record.total as u64;
            }
            _ => return false,
        }
    }
    true
}

/// Returns whether a batch may hold such a record.
fn is_member(kind: Kind) -> bool {
    matches!(kind, Kind::Put | Kind::Tombstone | Kind::Page)
}

/// Reason why a scan failed.
#[derive(Debug)]
pub(crate) enum ScanError {
    /// The file could not be read.
    Read(io::Error),
    /// The visitor returned an error.
    Visit(crate::Error),
}

impl From<io::Error> for ScanError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl From<crate::Error> for ScanError {
    fn from(error: crate::Error) -> Self {
        Self::Visit(error)
    }
}
