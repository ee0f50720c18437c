//! Reading a segment from one end to the other.

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

/// The same, of a scan that goes on later and then reads again what it has not come to.
const SHORT_CHUNK_BYTES: usize = 64 << 10;

/// Bytes that are checked at most while the next record behind damage is looked for.
const FIND_BYTES_MAX: usize = 4 << 30;

/// Said of a record that goes on beyond the end.
pub(super) const CUT: &str = "a record that is cut";

/// Said of a place that holds zeros.
pub(super) const UNWRITTEN: &str = "nothing is written where a record should be";

/// Said of bytes that the disk cannot read.
pub(super) const UNREADABLE: &str = "the disk cannot read it";

/// Callback for each record. It gets the record's offset, the record, and its bytes.
pub(crate) type Visit<'v> = dyn FnMut(u64, &Record<'_>, &[u8]) -> crate::Result<()> + 'v;

/// Offset at which a scan stopped before the end it was given, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    /// Offset of the first byte that is no record.
    pub(crate) offset: u64,
    /// `None` if nothing was written there.
    pub(crate) what: Option<&'static str>,
    /// Offset of the end of the block that it is in. Bytes from there on do not depend on it.
    pub(crate) append_block_end: Option<u64>,
    /// Offset of the end of the batch that is not whole. Its members are records for themselves.
    pub(crate) batch_end: Option<u64>,
}

/// Puts that follow each other. See [`Scanner::puts_at_hand`].
pub(crate) struct Puts<'s> {
    /// Their offsets, and they themselves.
    pub(crate) records: Vec<(u64, Record<'s>)>,
    /// Offset of the end of the last one.
    pub(crate) end: u64,
}

/// Scans records in the order they were appended. A batch is gone through only if it is whole.
pub(crate) struct Scanner {
    file: Arc<dyn File>,
    salt: u32,
    /// File offset of the buffer.
    base: u64,
    buffer: Vec<u8>,
    /// Parts of the buffer that the disk could not read, by offset in the file. They hold zeros.
    unreadable: Vec<Range<u64>>,
    /// There was such a part before.
    has_met_unreadable: bool,
    /// Offset of the next record.
    next: u64,
    /// Offset of the end of the block that it is in.
    append_block_end: Option<u64>,
    end: u64,
    /// The greatest place that a sync mark told of, as the number of a segment and an offset.
    synced: (u64, u64),
    /// Bytes that are read at a time.
    chunk_bytes: usize,
}

/// Position of a scan that goes on later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanPosition {
    /// Offset of the next record.
    pub(crate) offset: u64,
    /// Offset of the end of the block that it is in.
    append_block_end: Option<u64>,
}

impl Scanner {
    /// Scans from `start` (at least the segment's first record) up to `end`.
    pub(crate) fn new(file: Arc<dyn File>, salt: u32, start: u64, end: u64) -> Self {
        let next = start.max(SEGMENT_HEADER_BYTES as u64);
        Self {
            file,
            salt,
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

    /// Goes on from where a scan of the same file stood, and reads little at a time.
    pub(crate) fn resumed(
        file: Arc<dyn File>,
        salt: u32,
        scan_position: ScanPosition,
        end: u64,
    ) -> Self {
        let (append_block_end, chunk_bytes) = (scan_position.append_block_end, SHORT_CHUNK_BYTES);
        Self { append_block_end, chunk_bytes, ..Self::new(file, salt, scan_position.offset, end) }
    }

    /// Returns where it stands. It can go on from there unless it has stopped at damage.
    pub(crate) fn scan_position(&self) -> ScanPosition {
        ScanPosition { offset: self.next, append_block_end: self.append_block_end }
    }

    /// Whether the disk could not read a part of what was scanned.
    pub(crate) fn has_met_unreadable(&self) -> bool {
        self.has_met_unreadable
    }

    /// The greatest place up to which the log had been synced, as sync marks have it that were met
    /// so far.
    pub(crate) fn synced(&self) -> (u64, u64) {
        self.synced
    }

    /// Offset of the next record.
    pub(crate) fn offset(&self) -> u64 {
        self.next
    }

    /// Shows the next record, its offset and its bytes to `visit`. Answers false at the end,
    /// and then [`Scanner::stop`] says why it is there.
    pub(crate) fn next(&mut self, visit: &mut Visit<'_>) -> Result<Result<bool, Stop>, ScanError> {
        if self.next >= self.end {
            return Ok(Ok(false));
        }
        if self.next >= SEGMENT_BYTES_MAX as u64 {
            return Ok(Err(self.stop_at(Some("a record out of reach"))));
        }
        let mut needed = HEADER_BYTES_MAX;
        loop {
            if let Some(append_block_end) = self.append_block_end
                && append_block_end < self.next + RECORD_BYTES_MIN as u64
            {
                // The rest of the block has room for no record.
                self.next = append_block_end;
                self.append_block_end = None;
                if self.next >= self.end {
                    return Ok(Ok(false));
                }
            }
            self.fill(needed)?;
            let bytes = self.ahead()?;
            let end = self.append_block_end.unwrap_or(self.end);
            let record = match Record::decode(bytes, self.salt) {
                Ok(record) if self.next + record.total as u64 > end => {
                    return Ok(Err(self.stop_at(Some("a record that goes on beyond its block"))));
                }
                Ok(record) => record,
                Err(NotARecord::Short(more))
                    if more > HEADER_BYTES_MAX && self.next + more as u64 > end =>
                {
                    return Ok(Err(self.stop_at(Some(CUT))));
                }
                Err(NotARecord::Short(more)) if self.next + more as u64 <= self.end => {
                    if more <= bytes.len() {
                        // A header close to the end may be shorter than the longest one.
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
                    return Ok(Err(self.stop_at(Some("a block that cannot be"))));
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
            // The value is here, too, unless it does not begin where records may begin.
            let mut rest = &bytes[inner..record.total];
            if !is_whole_batch(rest, self.salt, offset) {
                let batch_end = Some(self.next + total as u64);
                let stop = self.stop_at(Some("a batch that is not whole"));
                return Ok(Err(Stop { batch_end, ..stop }));
            }
            // Its records follow one by one; they are known to be good.
            while let Ok(member) = Record::decode(rest, self.salt) {
                visit(offset, &member, &rest[..member.total])?;
                offset += member.total as u64;
                rest = &rest[member.total..];
            }
            self.next += record.total as u64;
            return Ok(Ok(true));
        }
    }

    /// Returns puts that follow each other and were read from the disk already, beginning with the
    /// next record, `max` at most. The scan stays where it is, see [`Scanner::pass`].
    pub(crate) fn puts_at_hand(&self, max: usize) -> Puts<'_> {
        let mut puts = Puts { records: Vec::new(), end: self.next };
        let limit = self.append_block_end.unwrap_or(self.end).min(SEGMENT_BYTES_MAX as u64);
        let Ok(mut bytes) = self.ahead() else { return puts };
        while puts.records.len() < max
            && let Ok(record) = Record::decode(bytes, self.salt)
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

    /// Goes on behind puts that were at hand.
    pub(crate) fn pass(&mut self, end: u64) {
        debug_assert!((self.next..=self.end).contains(&end));
        self.next = end;
    }

    /// Returns whether nothing was written from a stop to the end: a process that is killed before
    /// it has cut a sealed segment leaves zeros there.
    pub(crate) fn is_at_unused_end(&mut self, stop: &Stop) -> io::Result<bool> {
        let is_unwritten = stop.what.is_none() && stop.append_block_end.is_none();
        Ok(is_unwritten && !self.find_next()? && !self.has_met_unreadable)
    }

    /// After a stop within a block: goes on behind the block.
    pub(crate) fn leave_append_block(&mut self) {
        if let Some(append_block_end) = self.append_block_end.take() {
            self.next = append_block_end;
        }
    }

    /// After a stop: goes on to where the damaged record ends if its lengths are good, since bytes
    /// in it may look like a record; else to the next place where a record begins, if there is one.
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

    /// Returns the offset of the end of the record at hand, if its lengths are as they were; `None`
    /// if it may hold others.
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

    /// Whether a whole record begins here.
    fn is_at_record(&mut self) -> io::Result<bool> {
        let needed = match Record::decode_unchecked(self.ahead()?) {
            Ok(record) => record.total,
            Err(NotARecord::Short(needed)) if self.next + needed as u64 <= self.end => needed,
            Err(_) => return Ok(false),
        };
        self.fill(needed)?;
        Ok(Record::decode(self.ahead()?, self.salt).is_ok())
    }

    /// After a stop: goes on to the next place at or behind this one where a record begins.
    pub(crate) fn find_from(&mut self, place: u64) -> io::Result<bool> {
        self.next = place.max(self.next);
        self.find()
    }

    /// Goes back to where it stopped.
    pub(crate) fn go_back(&mut self, place: u64, append_block_end: Option<u64>) {
        self.next = place;
        self.append_block_end = append_block_end;
        if place < self.base {
            self.base = place;
            self.buffer.clear();
            self.unreadable.clear();
        }
    }

    /// Goes back to where it stood before.
    pub(crate) fn go_back_to(&mut self, scan_position: ScanPosition) {
        self.go_back(scan_position.offset, scan_position.append_block_end);
    }

    /// From here on: the next place where a record begins, if there is one. Reading there is
    /// bounded: bytes that look like the lengths of long records many times over end it.
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
            if Record::decode(self.ahead()?, self.salt).is_ok() {
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

    /// Whether the disk could not read a part of the record at hand.
    fn is_unreadable_ahead(&self) -> bool {
        if self.unreadable.is_empty() {
            return false;
        }
        let record = self.ahead().ok().and_then(|bytes| Record::decode_unchecked(bytes).ok());
        let end = self.next + record.map_or(HEADER_BYTES_MAX, |record| record.total) as u64;
        self.unreadable.iter().any(|part| part.start < end && self.next < part.end)
    }

    /// Makes the buffer hold at least `needed` bytes from `next` on, or all up to the end.
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
        // If the file is shorter than it was said to be, the missing part reads as unwritten.
        read_around(&*self.file, buffer, offset, &mut self.unreadable)?;
        self.has_met_unreadable |= !self.unreadable.is_empty();
        Ok(())
    }
}

/// Whether these bytes are records from beginning to end, all within reach.
fn is_whole_batch(mut bytes: &[u8], salt: u32, mut offset: u64) -> bool {
    while !bytes.is_empty() {
        match Record::decode(bytes, salt) {
            Ok(record) if is_member(record.kind) && offset < SEGMENT_BYTES_MAX as u64 => {
                bytes = &bytes[record.total..];
                offset += record.total as u64;
            }
            _ => return false,
        }
    }
    true
}

/// Whether a batch may hold such a record.
fn is_member(kind: Kind) -> bool {
    matches!(kind, Kind::Put | Kind::Tombstone | Kind::Page)
}

/// Why a scan could not go on.
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
