//! Log walk: visits the records of a log that is in use, in their order.

use super::{Location, Lsn, ReadOutcome, Reader, SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES, Segment};
use crate::log::Log;
use crate::log::record::{ALIGNMENT, Record};
use crate::{Damage, Result};
use std::sync::Arc;

/// Bytes between two calls of `go_on`.
const STEP_BYTES: u64 = 256 << 10;

/// Callback for a record; gets its segment, its location and the record.
pub(crate) type VisitChange<'v> = dyn FnMut(&Arc<Segment>, Location, &Record<'_>) + 'v;

/// Part of the log whose records cannot be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    /// LSN of its beginning. A record that is older may have been changed in the gap.
    pub(crate) lsn: Lsn,
    /// Location of its beginning, if a read there fails.
    pub(crate) location: Option<Location>,
}

impl Log {
    /// Returns the LSN at which the next record will be appended. Everything older has been
    /// appended.
    pub(crate) fn end_lsn(&self) -> Lsn {
        let mut end = Lsn::from_bits(0);
        self.at_end(|lsn| end = lsn);
        end
    }

    /// Calls `visit` with each record before `upto` that the log has at present, in order, and
    /// `skip` with each gap between them. Gaps are counted and logged as damage. Records that are
    /// removed before they are read are left out. Stops when `go_on` returns false; returns whether
    /// the walk is complete.
    pub(crate) fn for_each_record(
        &self,
        upto: Lsn,
        go_on: &dyn Fn() -> bool,
        visit: &mut VisitChange<'_>,
        skip: &mut dyn FnMut(Gap),
    ) -> Result<bool> {
        self.gaps_at_opening().into_iter().for_each(&mut *skip);
        let contents = self.manifest.contents();
        // Segments before the last one that clears are void, even while they still exist.
        let mut number = contents.clears;
        loop {
            let is_before = |one: &Segment| {
                one.number < upto.number() || one.number == upto.number() && upto.offset() > 0
            };
            let segments = self.segments();
            let rest = segments.iter().filter(|one| one.number >= number && is_before(one));
            let Some(segment) = rest.min_by_key(|one| one.number).cloned() else {
                return Ok(true);
            };
            drop(segments);
            number = segment.number + 1;
            let mut skip_from = |offset: u64, what: &str| {
                // Damage in a segment that was removed meanwhile no longer matters.
                if !segment.is_taken_out() {
                    segment.note_fault(offset, what);
                    skip(segment.gap_at(offset));
                }
            };
            if segment.is_missing {
                skip_from(SEGMENT_HEADER_BYTES as u64, "the segment is missing");
                continue;
            }
            let is_last = segment.number == upto.number();
            let end = if is_last { upto.offset() as u64 } else { segment.bytes() };
            let mut reader = Reader::new(Arc::clone(&segment), end);
            let mut asked_at = 0;
            loop {
                let next = reader.next(&mut |offset, record, _| {
                    visit(&segment, segment.at(offset), record);
                    Ok(())
                })?;
                match next {
                    ReadOutcome::Record => {}
                    ReadOutcome::End => {
                        let length = contents.segments.get(&segment.number).copied();
                        if !is_last && length.is_some_and(|length| length > end) {
                            skip_from(end, "the file was cut");
                        }
                        break;
                    }
                    ReadOutcome::NoRecord(offset) => {
                        let is_followed = reader.find_next()?;
                        if is_followed || !reader.has_stopped_at_zeros() {
                            skip_from(offset, "records cannot be read");
                        }
                        if !is_followed {
                            break;
                        }
                    }
                }
                if reader.offset() > asked_at + STEP_BYTES {
                    asked_at = reader.offset();
                    if !go_on() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Returns the gaps that the opening found, including those whose bytes it has kept aside.
    fn gaps_at_opening(&self) -> Vec<Gap> {
        let segments = self.segments().in_order();
        let gap_of = |damage: &Damage| {
            let name = damage.file.file_name()?.to_str()?;
            let (number, rest) = name.split_once(".log")?;
            let number: u64 = number.parse().ok()?;
            let aside = rest.strip_prefix(".damaged-").and_then(|rest| rest.split('-').next());
            let offset = aside.map_or(Ok(damage.offset), str::parse).ok()?;
            let segment = segments.iter().find(|segment| segment.number == number);
            match segment.filter(|segment| segment.is_damaged() && rest.is_empty()) {
                Some(segment) => Some(segment.gap_at(offset)),
                None => Some(Gap { lsn: Lsn::new(number, offset as usize), location: None }),
            }
        };
        self.damages.iter().filter_map(gap_of).collect()
    }
}

impl Segment {
    /// Returns the gap that begins at an offset.
    fn gap_at(&self, offset: u64) -> Gap {
        let offset = offset.max(SEGMENT_HEADER_BYTES as u64).next_multiple_of(ALIGNMENT as u64);
        let is_in_reach = offset < SEGMENT_BYTES_MAX as u64;
        let lsn = Lsn::new(self.number, offset.min(SEGMENT_BYTES_MAX as u64 - 1) as usize);
        Gap { lsn, location: is_in_reach.then(|| self.at(offset)) }
    }
}
