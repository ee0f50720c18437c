//! Reader: reads a segment from its first record to its last while it is in use. It reads large
//! pieces, announces them to the operating system, and drops them from the page cache unless they
//! were there before.

use super::cold::Cold;
use super::paused::{PausedReader, Trail};
use super::segment::Segment;
use crate::Result;
use crate::log::error_at;
use crate::log::scan::{Puts, ScanError, ScanPosition, Scanner, Visit};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of bytes that are announced before they are read.
const AHEAD_BYTES: u64 = 8 << 20;

/// Bytes that are announced at a time.
const ANNOUNCED_BYTES: u64 = 1 << 20;

/// Bytes that stay in the page cache after the reader has passed them, for callers that read
/// records again.
const KEPT_BYTES: u64 = 2 << 20;

/// Outcome of [`Reader::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// A record, or a batch of them.
    Record,
    /// The end.
    End,
    /// No record at this offset.
    NoRecord(u64),
}

/// Reader of a segment. See the module.
pub(crate) struct Reader {
    segment: Arc<Segment>,
    scanner: Scanner,
    /// `None` if the pages that are read stay in memory.
    cold: Option<Cold>,
    /// Pages that were announced, if the reader may be paused.
    trail: Option<Trail>,
    /// Offset up to which reads were announced.
    announced: u64,
    /// Whether the last offset without a record was in the zeros that follow all records.
    is_at_zeros: bool,
}

impl Reader {
    /// Creates a reader up to `end`, where a record ends.
    pub(crate) fn new(segment: Arc<Segment>, end: u64) -> Self {
        let cold = Cold::of(&segment);
        Self { cold: Some(cold), ..Self::of_kept(segment, end) }
    }

    /// Creates a reader of a segment that is read again soon: it stays in the page cache.
    pub(crate) fn of_kept(segment: Arc<Segment>, end: u64) -> Self {
        let scanner = segment.scanner(0, end);
        // Reads from memory need no announcement.
        let is_resident = segment.resident.load(Ordering::Relaxed);
        let announced = if is_resident { u64::MAX } else { 0 };
        Self { segment, scanner, cold: None, trail: None, announced, is_at_zeros: false }
    }

    /// Resumes a paused reader. It reads less ahead than others, because it may be paused again,
    /// and for long.
    pub(crate) fn resumed(segment: Arc<Segment>, paused: PausedReader, end: u64) -> Self {
        let PausedReader { scan_position, trail } = paused;
        let scanner =
            Scanner::resumed(Arc::clone(&segment.file), segment.binding, scan_position, end);
        let trail = Some(trail);
        Self { segment, scanner, cold: None, trail, announced: u64::MAX, is_at_zeros: false }
    }

    /// Pauses the reader. The result holds no file. Records that were passed do not stay in the
    /// page cache unless they were there before.
    pub(crate) fn pause(self) -> PausedReader {
        let scan_position = self.scanner.scan_position();
        let mut trail = self.trail.unwrap_or_default();
        trail.forget(&self.segment, scan_position.offset);
        PausedReader { scan_position, trail }
    }

    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Returns the offset of the next record.
    pub(crate) fn offset(&self) -> u64 {
        self.scanner.offset()
    }

    /// Returns the position of the scan.
    pub(crate) fn scan_position(&self) -> ScanPosition {
        self.scanner.scan_position()
    }

    /// Moves back to the position before the last record, or batch.
    pub(crate) fn go_back(&mut self, scan_position: ScanPosition) {
        self.scanner.go_back_to(scan_position);
    }

    /// Continues at the next record after an offset without one. Returns whether there is one.
    pub(crate) fn find_next(&mut self) -> Result<bool> {
        self.scanner.find_next().map_err(|error| error_at("read", &self.segment.path, error))
    }

    /// Returns whether the bytes were never written at the last offset without a record, if no
    /// record follows it. A process that is killed before it has cut a sealed segment leaves such
    /// bytes.
    pub(crate) fn has_stopped_at_zeros(&self) -> bool {
        self.is_at_zeros && !self.scanner.has_met_unreadable()
    }

    /// Like [`Scanner::puts_at_hand`].
    pub(crate) fn puts_at_hand(&self, max: usize) -> Puts<'_> {
        self.scanner.puts_at_hand(max)
    }

    /// Like [`Scanner::pass`].
    pub(crate) fn pass(&mut self, end: u64) {
        self.scanner.pass(end);
    }

    /// Calls `visit` with the next record, or with each record of a batch.
    pub(crate) fn next(&mut self, visit: &mut Visit<'_>) -> Result<ReadOutcome> {
        let offset = self.scanner.offset();
        if self.announced < offset + AHEAD_BYTES - ANNOUNCED_BYTES {
            let from = self.announced.max(offset);
            self.announced = offset + AHEAD_BYTES;
            self.segment.file.will_read(from, self.announced - from);
        }
        if let Some(trail) = &mut self.trail {
            trail.announce(&self.segment, offset);
        }
        let next = match self.scanner.next(visit) {
            Ok(Ok(true)) => ReadOutcome::Record,
            Ok(Ok(false)) => ReadOutcome::End,
            Ok(Err(stop)) => {
                self.is_at_zeros = stop.what.is_none() && stop.append_block_end.is_none();
                ReadOutcome::NoRecord(stop.offset)
            }
            Err(ScanError::Read(error)) => {
                return Err(error_at("read", &self.segment.path, error));
            }
            Err(ScanError::Visit(error)) => return Err(error),
        };
        if let Some(trail) = self.trail.as_mut().filter(|_| next != ReadOutcome::Record) {
            trail.forget(&self.segment, u64::MAX);
        }
        if let Some(cold) = &mut self.cold {
            cold.forget(self.scanner.offset().saturating_sub(KEPT_BYTES));
        }
        Ok(next)
    }
}
