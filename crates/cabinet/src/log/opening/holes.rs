//! Holes: bytes that are not a record where one should be, and their meaning.
//!
//! Opening and checking use this same walk through the segments, so they agree. At a hole the walk
//! determines whether a valid record follows, and whether the bytes there had been promised. See
//! [`Promise`].
//!
//! | | promised | not promised |
//! |---|---|---|
//! | in an append block of the last segment | damage | the block was not filled: nothing is lost |
//! | at the end of the last segment | damage | a torn tail: it was never acknowledged; or nothing
//! was written |
//! | elsewhere | damage | lost with the power: it was not synced |
//!
//! After damage the walk continues with the next record. After bytes lost with the power, the rest
//! of the segment is left out, so that no batch comes back in part.

use crate::Damage;
use crate::io::{File, can_write_part, read_around};
use crate::log::binding::Binding;
use crate::log::manifest::{Contents, State};
use crate::log::record::Record;
use crate::log::scan::{CUT, ScanError, Scanner, Stop, UNREADABLE, UNWRITTEN, Visit};
use crate::log::segments::{MARGIN_BYTES, SEGMENT_HEADER_BYTES, SegmentOffset};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Description of the end of a file that was longer.
const CUT_OFF: &str = "the file was cut";

/// Reason why the bytes of a hole hold no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The rest of an append block that was not filled.
    Unfilled,
    /// The end of the log, which was being appended to.
    Torn,
    /// The bytes were not synced when the power was lost.
    Lost,
    /// The bytes had been promised.
    Damaged,
}

/// Bytes of a segment that hold no record where one should or might be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) fate: Fate,
    pub(crate) what: &'static str,
    /// Whether records follow it in its segment, or in a later one.
    pub(crate) is_followed: bool,
}

impl Hole {
    /// Returns the hole as damage. Used if the log had promised that there is none.
    pub(crate) fn damage(&self) -> Damage {
        Damage { file: self.path.clone(), offset: self.offset, what: self.what.into() }
    }
}

/// Description of a segment, for a walk through it.
#[derive(Clone)]
pub(crate) struct Extent {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    /// Start and masks of the checksums of its records.
    pub(crate) binding: Binding,
    /// Size of the file, in bytes.
    pub(crate) length: u64,
    /// Offset at which its records end, in bytes, if known. Then the segment is sealed.
    pub(crate) end: Option<u64>,
    pub(crate) is_last: bool,
}

impl Extent {
    /// Returns a scanner of the records from `start` on, an offset in bytes.
    pub(crate) fn scanner(&self, start: u64) -> Scanner {
        Scanner::new(Arc::clone(&self.file), self.binding, start, self.scanned_end())
    }

    /// Returns the offset at which a scan ends, in bytes.
    pub(crate) fn scanned_end(&self) -> u64 {
        self.end.map_or(self.length, |end| end.min(self.length))
    }

    /// Returns the offset at which the segment ends, in bytes, even if its file is shorter.
    fn whole_end(&self) -> u64 {
        self.end.unwrap_or(self.length)
    }
}

/// Records that the last process to open the database promised to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Promise {
    /// It closed the database: everything up to `end` is promised. Records after that were appended
    /// after a later opening, whose manifest was lost with the power.
    Closed { end: SegmentOffset, proven: SegmentOffset },
    /// It was killed: everything is promised, because the operating system has it. Only appends
    /// under way may be torn.
    Killed { proven: SegmentOffset, has_margin: bool },
    /// The power was lost, or the disk was removed: everything that was synced is promised.
    /// Segments up to `through` were synced whole.
    PowerLost { through: u64, proven: SegmentOffset },
    /// Its manifest was of the first format: like `PowerLost`, but sealed segments count as whole.
    Unknown { proven: SegmentOffset },
}

impl Promise {
    pub(super) fn new(
        contents: &Contents,
        page_cache: Option<[u8; 16]>,
        checkpoint: SegmentOffset,
    ) -> Self {
        let proven = checkpoint.max(contents.synced_to);
        match contents.state {
            State::Closed { number, offset } => Self::Closed { end: (number, offset), proven },
            State::Open if page_cache == Some(contents.page_cache) => {
                Self::Killed { proven, has_margin: contents.has_margin }
            }
            State::Open => Self::PowerLost { through: contents.synced_through, proven },
            State::Unknown => Self::Unknown { proven },
        }
    }

    /// Records that the log had been synced up to this point.
    pub(super) fn prove(&mut self, place: SegmentOffset) {
        match self {
            Self::Closed { proven, .. }
            | Self::Killed { proven, .. }
            | Self::PowerLost { proven, .. }
            | Self::Unknown { proven } => *proven = (*proven).max(place),
        }
    }

    /// Returns whether later sync marks may prove more.
    pub(super) fn can_be_proven(&self) -> bool {
        !matches!(self, Self::Killed { .. })
    }

    /// Returns whether a record at this point had been promised. Records that follow prove that it
    /// had been written, unless the power was lost.
    pub(super) fn covers(&self, place: SegmentOffset, is_followed: bool, is_last: bool) -> bool {
        match *self {
            Self::Closed { end, proven } => place < end.max(proven),
            Self::Killed { proven, .. } => is_followed || place < proven,
            Self::PowerLost { through, proven } => place.0 <= through || place < proven,
            Self::Unknown { proven } => is_followed && !is_last || place < proven,
        }
    }

    /// Returns whether unreadable bytes had been promised: a killed process leaves no such bytes.
    fn covers_unreadable(&self, what: Option<&str>) -> bool {
        matches!(self, Self::Killed { .. }) && what == Some(UNREADABLE)
    }

    /// Describes the end of the log, in a file of `length` bytes, if the last process was killed
    /// and a kill does not leave such an end. Otherwise returns `None`. A process appends only
    /// within its file, so it leaves no record that is cut. Even after a torn last record, there is
    /// a margin.
    pub(super) fn beyond_a_kill(
        &self,
        stop: &Stop,
        file: &dyn File,
        length: u64,
    ) -> io::Result<Option<&'static str>> {
        let Self::Killed { has_margin, .. } = *self else { return Ok(None) };
        Ok(match stop.what {
            Some(CUT | UNREADABLE) => stop.what,
            _ if !has_margin => None,
            None if length < stop.offset + MARGIN_BYTES as u64 => Some(CUT_OFF),
            Some(_) if !ends_with_margin(file, length)? => Some(CUT_OFF),
            _ => None,
        })
    }

    /// Returns whether this segment had been promised.
    pub(super) fn covers_segment(&self, number: u64) -> bool {
        match *self {
            Self::Closed { end, proven } => number <= end.0.max(proven.0),
            Self::Killed { .. } => true,
            Self::PowerLost { through, proven } => number <= through || number <= proven.0,
            Self::Unknown { .. } => false,
        }
    }
}

/// A walk through the segments of a log, in their order.
pub(crate) struct Walk {
    extents: Vec<Extent>,
    promise: Promise,
    /// Whether all sync marks were searched.
    is_proven: bool,
}

impl Walk {
    pub(crate) fn new(extents: Vec<Extent>, promise: Promise) -> Self {
        Self { extents, promise, is_proven: false }
    }

    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Calls `visit` with each record of a segment from `start` on, and `each` with each hole, in
    /// their order. Returns the offset at which the records end.
    pub(crate) fn segment(
        &mut self,
        index: usize,
        start: u64,
        visit: &mut Visit<'_>,
        each: &mut dyn FnMut(&Hole) -> crate::Result<()>,
    ) -> Result<u64, ScanError> {
        let extent = self.extents[index].clone();
        let end = extent.scanned_end();
        let mut scanner = extent.scanner(start);
        loop {
            let mut stop = match scanner.next(visit)? {
                Ok(true) => continue,
                Ok(false) => {
                    self.promise.prove(scanner.synced());
                    let offset = end.max(SEGMENT_HEADER_BYTES as u64);
                    if extent.is_last || extent.end.is_some_and(|known| known > offset) {
                        let stop =
                            Stop { offset, what: None, append_block_end: None, batch_end: None };
                        self.end_of_segment(index, &extent, &stop, each)?;
                    }
                    return Ok(end);
                }
                Err(stop) => stop,
            };
            self.promise.prove(scanner.synced());
            let followed_at = next_record(&mut scanner, &stop)?;
            if let Some(append_block_end) = stop.append_block_end {
                let within = followed_at.filter(|next| *next < append_block_end);
                let place = (extent.number, stop.offset);
                self.prove_all(index, stop.offset)?;
                let is_known = within.is_some() || !extent.is_last;
                // An unreadable block can neither be filled nor cut.
                if !can_write_part(&*extent.file, stop.offset..append_block_end)? {
                    stop.what = Some(UNREADABLE);
                }
                let is_damage = stop.what == Some(UNREADABLE)
                    || self.promise.covers(place, is_known, extent.is_last);
                let fate = if is_damage { Fate::Damaged } else { Fate::Unfilled };
                let hole_end = within.filter(|_| is_damage).unwrap_or(append_block_end);
                each(&extent.hole(&stop, hole_end, fate, true))?;
                if is_damage && within.is_some() {
                    resume(&mut scanner, &stop)?;
                } else {
                    scanner.go_back(stop.offset, stop.append_block_end);
                    scanner.leave_append_block();
                }
                continue;
            }
            let Some(next) = followed_at else {
                self.prove_all(index, stop.offset)?;
                let place = (extent.number, stop.offset);
                // The whole records of a promised batch are better than nothing.
                if stop.batch_end.is_some()
                    && (self.promise.covers(place, !extent.is_last, extent.is_last)
                        || self.promise.covers_unreadable(stop.what))
                    && resume(&mut scanner, &stop)?
                {
                    each(&extent.hole(&stop, scanner.offset(), Fate::Damaged, true))?;
                    continue;
                }
                self.end_of_segment(index, &extent, &stop, each)?;
                return Ok(stop.offset);
            };
            self.prove_all(index, stop.offset)?;
            if !self.promise.covers((extent.number, stop.offset), true, extent.is_last) {
                each(&extent.hole(&stop, extent.whole_end(), Fate::Lost, true))?;
                return Ok(stop.offset);
            }
            scanner.go_back(stop.offset, None);
            resume(&mut scanner, &stop)?;
            // Members of a batch come before the next record after it.
            let next = next.min(scanner.offset());
            each(&extent.hole(&stop, next, Fate::Damaged, true))?;
        }
    }

    /// Reports the hole after the last record of a segment, if there is one.
    fn end_of_segment(
        &mut self,
        index: usize,
        extent: &Extent,
        stop: &Stop,
        each: &mut dyn FnMut(&Hole) -> crate::Result<()>,
    ) -> Result<(), ScanError> {
        let place = (extent.number, stop.offset);
        let length = extent.length.max(stop.offset);
        if extent.is_last {
            let (mut fate, mut end) = (Fate::Torn, length);
            let mut stop = stop.clone();
            let beyond = self.promise.beyond_a_kill(&stop, &*extent.file, extent.length)?;
            if let Some(what) = beyond {
                fate = Fate::Damaged;
                stop.what = Some(what);
            } else if self.promise.covers(place, false, true) {
                fate = Fate::Damaged;
                if let Promise::Closed { end: (number, offset), .. } = self.promise
                    && number == extent.number
                {
                    end = end.max(offset);
                }
            } else if stop.what.is_none() {
                // The rest was allocated but not used.
                return Ok(());
            }
            return Ok(each(&extent.hole(&stop, end, fate, false))?);
        }
        // A process that is killed before it has cut a sealed segment leaves zeros at its end.
        if stop.what.is_none() && extent.end.is_none_or(|end| end <= stop.offset) {
            return Ok(());
        }
        let is_followed = index + 1 < self.extents.len();
        let is_damage = self.promise.covers(place, true, false);
        let fate = if is_damage { Fate::Damaged } else { Fate::Lost };
        Ok(each(&extent.hole(stop, extent.whole_end(), fate, is_followed))?)
    }

    /// Searches for sync marks after this point, once.
    fn prove_all(&mut self, index: usize, offset: u64) -> io::Result<()> {
        if self.is_proven || !self.promise.can_be_proven() {
            return Ok(());
        }
        self.is_proven = true;
        let mut start = offset;
        for extent in &self.extents[index..] {
            let synced = marked(extent.scanner(start))?;
            self.promise.prove(synced);
            start = 0;
        }
        Ok(())
    }
}

/// Returns whether the last bytes of a file of `length` bytes are a margin.
fn ends_with_margin(file: &dyn File, length: u64) -> io::Result<bool> {
    let Some(start) = length.checked_sub(MARGIN_BYTES as u64) else { return Ok(false) };
    let mut margin = [0; MARGIN_BYTES];
    read_around(file, &mut margin, start, &mut Vec::new())?;
    Ok(margin == [0; MARGIN_BYTES])
}

/// Returns the greatest point that the sync marks of a scan record.
pub(super) fn marked(mut scanner: Scanner) -> io::Result<SegmentOffset> {
    loop {
        match scanner.next(&mut |_, _: &Record<'_>, _| Ok(())) {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => break,
            Ok(Err(stop)) => {
                if next_record(&mut scanner, &stop)?.is_none() {
                    break;
                }
            }
            Err(ScanError::Read(error)) => return Err(error),
            // The visitor never fails.
            Err(ScanError::Visit(_)) => break,
        }
    }
    Ok(scanner.synced())
}

/// Returns the offset of the next record after a hole, in bytes. Members of a batch with which the
/// hole began do not count. `None` if there is no such record.
fn next_record(scanner: &mut Scanner, stop: &Stop) -> io::Result<Option<u64>> {
    let found = match stop.batch_end {
        Some(batch_end) => scanner.find_from(batch_end)?,
        None => scanner.find_next()?,
    };
    Ok(found.then(|| scanner.offset()))
}

/// Resumes the scan at the first whole record after the beginning of a hole, which may be a member
/// of a batch.
fn resume(scanner: &mut Scanner, stop: &Stop) -> io::Result<bool> {
    scanner.go_back(stop.offset, stop.append_block_end);
    scanner.find_next()
}

impl Extent {
    fn hole(&self, stop: &Stop, end: u64, fate: Fate, is_followed: bool) -> Hole {
        Hole {
            number: self.number,
            path: self.path.clone(),
            offset: stop.offset,
            bytes: end.saturating_sub(stop.offset),
            fate,
            what: stop.what.unwrap_or(UNWRITTEN),
            is_followed,
        }
    }
}
