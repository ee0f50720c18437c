//! Remains of a damaged log, read without opening it: visits every whole record, wherever it is.
//! Nothing is written to the log's directory, which may be on a read-only file system.
//!
//! [`super::check`] reports what opening would find; this reader continues after any damage.

use super::check::{Lock, lock_to_look};
use super::holes::Promise;
use super::identify::identify;
use super::survey::{Headless, cannot_be_opened, lacks_changes, own_header};
use crate::io::{File, Open, Storage, is_unreadable};
use crate::log::binding::Binding;
use crate::log::checkpoint::{self, Checkpoint};
use crate::log::manifest::{self, EngineParameters};
use crate::log::record::{ALIGNMENT, Record};
use crate::log::scan::{ScanError, Scanner, Stop};
use crate::log::segments::{
    HeaderFound, SEGMENT_HEADER_BYTES, SegmentHeader, read_header, segment_number, segment_path,
};
use crate::log::{DatabaseId, error_at};
use crate::{Damage, Error, Result};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Callback for a record; also gets the number of holes in the log before it.
pub(crate) type VisitWhole<'v> = dyn FnMut(&Record<'_>, u64) -> Result<()> + 'v;

/// A damaged log that is only read. Meanwhile no process can open it.
pub(crate) struct Remains<'s> {
    storage: &'s dyn Storage,
    directory: &'s Path,
    database_id: DatabaseId,
    /// `None` if no manifest can be read.
    pub(crate) parameters: Option<EngineParameters>,
    /// In the order of the log.
    segments: Vec<Remnant>,
    /// Segments that the manifest names, if one can be read.
    named: Option<BTreeMap<u64, u64>>,
    /// Numbers of those that do not exist.
    missing: Vec<u64>,
    /// Promise of the last process, if a manifest can be read.
    promise: Option<Promise>,
    /// Number of the segment and byte offset in it at which the log ended when it was closed;
    /// `None` if it was not closed.
    closed_at: Option<(u64, u64)>,
    /// Damage found before any record is read.
    damages: Vec<Damage>,
    _lock: Option<Lock>,
}

struct Remnant {
    path: PathBuf,
    file: Arc<dyn File>,
    number: u64,
    header: Option<SegmentHeader>,
    binding: Binding,
    length: u64,
}

impl<'s> Remains<'s> {
    pub(crate) fn open(storage: &'s dyn Storage, directory: &'s Path) -> Result<Self> {
        let names = storage.list(directory).map_err(|error| error_at("list", directory, error))?;
        let lock = lock_to_look(storage, directory, &names)?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
        numbers.sort_unstable();
        let mut files = Vec::with_capacity(numbers.len());
        let mut damages = Vec::new();
        let mut opened = Vec::with_capacity(numbers.len());
        for number in numbers {
            let path = segment_path(directory, number);
            match storage.open(&path, Open::Existing) {
                Ok(file) => {
                    files.push(file);
                    opened.push(number);
                }
                Err(error) if is_unreadable(&error) => {
                    damages.push(Damage { file: path, offset: 0, what: cannot_be_opened(&error) });
                }
                Err(error) => return Err(error_at("open", &path, error)),
            }
        }
        let stored = match manifest::read(storage, directory) {
            Ok(None) if files.is_empty() => {
                let error = std::io::ErrorKind::NotFound.into();
                return Err(error_at("open", directory, error));
            }
            Ok(None) => {
                let file = directory.join(manifest::NAME);
                damages.push(Damage { file, offset: 0, what: "it is missing".into() });
                None
            }
            Err(Error::Corrupted { file, offset, what }) => {
                damages.push(Damage { file, offset, what });
                manifest::read_remains(storage, directory)?
            }
            found => found?.map(|found| {
                damages.extend(found.damages);
                found.contents
            }),
        };
        let closed_at = stored.as_ref().and_then(|contents| match contents.state {
            manifest::State::Closed { number, offset } => Some((number, offset)),
            _ => None,
        });
        let page_cache = storage.page_cache_id(directory);
        let promise = stored.as_ref().map(|contents| Promise::new(contents, page_cache, (0, 0)));
        let named = stored.as_ref().and_then(|contents| contents.named().cloned());
        let (database_id, parameters) = match stored {
            Some(contents) => (contents.database_id, Some(contents.parameters)),
            None => {
                let numbered: Vec<_> = opened.iter().copied().zip(&files).collect();
                let found =
                    identify(&numbered).map_err(|error| error_at("read", directory, error))?;
                let corrupted = || Error::Corrupted {
                    file: directory.join(manifest::NAME),
                    offset: 0,
                    what: "neither it nor any segment tells which log this is".into(),
                };
                (found.ok_or_else(corrupted)?, None)
            }
        };
        let mut remains = Self {
            storage,
            directory,
            database_id,
            parameters,
            segments: Vec::with_capacity(files.len()),
            missing: Vec::new(),
            named,
            promise,
            closed_at,
            damages,
            _lock: lock,
        };
        for (number, file) in opened.into_iter().zip(files) {
            remains.add(number, file)?;
        }
        remains.put_in_order();
        let is_there = |number| remains.segments.iter().any(|segment| segment.number == number);
        let named = remains.named.iter().flatten().map(|(number, _)| *number);
        remains.missing = named.filter(|number| !is_there(*number)).collect();
        Ok(remains)
    }

    fn add(&mut self, number: u64, file: Arc<dyn File>) -> Result<()> {
        let path = segment_path(self.directory, number);
        let failed = |error| error_at("read", &path, error);
        let HeaderFound { header, is_blank } =
            read_header(&*file, &self.database_id).map_err(failed)?;
        let length = file.length().map_err(failed)?;
        let header = own_header(header, &file, &self.database_id, number, length);
        let (header, is_bound) = match header.map_err(failed)? {
            Ok(header) => (Some(header), header.is_bound),
            Err(what) => {
                let headless = Headless::search(&file, &self.database_id, number, length);
                let headless = headless.map_err(failed)?;
                if is_blank && !headless.holds_records {
                    // The segment was just being begun.
                    return Ok(());
                }
                self.damages.push(Damage { file: path.clone(), offset: 0, what: what.into() });
                (None, headless.is_bound)
            }
        };
        let number = match &header {
            Some(header) if header.number != number => {
                let what = format!("it is segment {}", header.number);
                self.damages.push(Damage { file: path.clone(), offset: 0, what });
                header.number
            }
            _ => number,
        };
        let binding = self.database_id.binding(number, is_bound);
        self.segments.push(Remnant { path, file, number, header, binding, length });
        Ok(())
    }

    /// Sorts the segments by the numbers in their headers, and drops those before the last one that
    /// clears.
    fn put_in_order(&mut self) {
        self.segments.sort_by_key(|segment| segment.number);
        // A second copy of the same segment adds nothing.
        self.segments.dedup_by(|later, first| {
            later.number == first.number && later.header.is_some() && later.header == first.header
        });
        let clears =
            |segment: &Remnant| segment.header.as_ref().is_some_and(|header| header.clears);
        let first = self.segments.iter().rposition(clears).unwrap_or(0);
        self.segments.drain(..first);
    }

    /// Returns whether the log has all changes that were made since it began or was cleared, but
    /// for those in its holes.
    pub(crate) fn is_whole(&self) -> bool {
        let behind = |header: &SegmentHeader| header.is_behind_pages;
        let headers =
            self.segments.iter().map(|one| (one.number, one.header.as_ref().is_some_and(behind)));
        self.whole_from().is_some() && !lacks_changes(headers, self.named.as_ref())
    }

    /// Returns the number of the oldest segment, if the log began with it or was cleared by it.
    pub(crate) fn whole_from(&self) -> Option<u64> {
        let first = self.segments.first()?;
        let clears = first.header.as_ref().is_some_and(|header| header.clears);
        (clears || first.number == 1).then_some(first.number)
    }

    /// Returns the checkpoint, if there is one.
    pub(crate) fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        Checkpoint::read(self.storage, self.directory, &self.database_id)
    }

    /// Returns the sequence number at which the checkpoint began, even if the rest of it is
    /// damaged.
    pub(crate) fn checkpoint_began(&self) -> Result<Option<u64>> {
        checkpoint::began(self.storage, self.directory)
    }

    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Visits every whole record, in the order of the log, and reports all other bytes as damage.
    /// Returns the number of holes among them.
    pub(crate) fn walk(
        &self,
        visit: &mut VisitWhole<'_>,
        report: &mut dyn FnMut(Damage),
    ) -> Result<u64> {
        let holes = Cell::new(0);
        self.damages.iter().cloned().for_each(&mut *report);
        let mut report = |damage| {
            holes.set(holes.get() + 1);
            report(damage);
        };
        let mut missing = self.missing.iter().peekable();
        let mut report_missing = |up_to: u64, report: &mut dyn FnMut(Damage)| {
            while let Some(number) = missing.next_if(|number| **number < up_to) {
                let file = segment_path(self.directory, *number);
                report(Damage { file, offset: 0, what: "the segment is missing".into() });
            }
        };
        for (index, segment) in self.segments.iter().enumerate() {
            report_missing(segment.number, &mut report);
            let next = self.segments.get(index + 1);
            let known_end = next
                .filter(|next| next.number == segment.number + 1)
                .and_then(|next| next.header.as_ref())
                .map(|header| header.previous_bytes)
                .filter(|bytes| *bytes != 0);
            let closed_at = self.closed_at.filter(|(number, _)| *number == segment.number);
            let known_end = known_end.or(closed_at.map(|(_, offset)| offset));
            let part = Part { segment, known_end, is_last: next.is_none() };
            self.walk_part(&part, &holes, visit, &mut report)?;
        }
        report_missing(u64::MAX, &mut report);
        Ok(holes.get())
    }

    fn walk_part(
        &self,
        part: &Part<'_>,
        holes: &Cell<u64>,
        visit: &mut VisitWhole<'_>,
        report: &mut dyn FnMut(Damage),
    ) -> Result<()> {
        let Remnant { path, file, binding, length, .. } = part.segment;
        let mut report = |offset, what: String| report(Damage { file: path.clone(), offset, what });
        let end = part.known_end.unwrap_or(*length).min(*length);
        let start = SEGMENT_HEADER_BYTES as u64;
        let mut scanner = Scanner::new(Arc::clone(file), *binding, start, end);
        let failed = |error| match error {
            ScanError::Read(error) => error_at("read", path, error),
            ScanError::Visit(error) => error,
        };
        let last = loop {
            let next = scanner.next(&mut |_, record, _| visit(record, holes.get()));
            let stop = match next.map_err(failed)? {
                Ok(true) => continue,
                Ok(false) => {
                    let offset = scanner.offset();
                    break Stop { offset, what: None, append_block_end: None, batch_end: None };
                }
                Err(stop) => stop,
            };
            // The whole records of a batch that is not whole are better than nothing.
            let found = match stop.batch_end {
                Some(_) => scanner.find_from(stop.offset + ALIGNMENT as u64),
                None => scanner.find_next(),
            };
            let goes_on = found.map_err(|error| failed(error.into()))?;
            if part.is_damage(&stop, goes_on.then(|| scanner.offset())) {
                let what = stop.what.unwrap_or("nothing is written where a record should be");
                report(stop.offset, what.into());
            }
            if !goes_on {
                break stop;
            }
        };
        if part.is_last
            && part.known_end.is_none()
            && let Some(promise) = self.promise
            && let Some(what) = promise
                .beyond_a_kill(&last, &*part.segment.file, *length)
                .map_err(|error| failed(error.into()))?
        {
            report(last.offset, what.into());
        }
        if let Some(known_end) = part.known_end.filter(|known_end| known_end > length) {
            report(*length, format!("{known_end} bytes were written, {length} exist"));
        }
        Ok(())
    }
}

/// A segment, and the known end of its records.
struct Part<'r> {
    segment: &'r Remnant,
    /// Offset at which its records ended, in bytes, according to the next segment; for the last
    /// one, according to the manifest of a closed log. `None` if neither is known.
    known_end: Option<u64>,
    is_last: bool,
}

impl Part<'_> {
    /// Returns whether a stop is damage. A process that is killed while it appends leaves append
    /// blocks that are not filled, and a torn record or zeros at the end: these are none.
    fn is_damage(&self, stop: &Stop, goes_on_at: Option<u64>) -> bool {
        let is_end = match (stop.append_block_end, goes_on_at) {
            (_, None) => true,
            (Some(append_block_end), Some(next)) => next >= append_block_end,
            (None, Some(_)) => false,
        };
        // A segment whose end is known was complete.
        let is_unfinished = self.known_end.is_none() && (self.is_last || stop.what.is_none());
        !(is_end && is_unfinished)
    }
}
