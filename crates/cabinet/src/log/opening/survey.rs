//! Survey of a log that is not open: finds the segments that exist, and those that should.
//!
//! The survey changes nothing. Opening acts on it, checking only reports it.
//!
//! - A segment is identified by its header, regardless of its file's name. If the header is
//!   damaged, or is not that of the records after it, the file's name gives the number and the
//!   manifest the rest.
//! - A segment that the manifest names and that was promised counts as missing if it does not
//!   exist; see [`Promise`].
//! - A segment whose file the disk cannot open counts as missing, regardless of the promise.
//! - A file that the manifest does not name was being removed, if its number is below the highest
//!   named one. Otherwise it was just begun, and counts if it holds records.

use super::holes::{Extent, Promise, marked};
use super::kept_aside::DAMAGED_INFIX;
use crate::io::{File, Open, Storage, is_unreadable};
use crate::log::binding::Binding;
use crate::log::manifest::{Contents, State};
use crate::log::scan::Scanner;
use crate::log::segments::{
    HeaderFound, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentOffset, read_header, segment_number,
    segment_path,
};
use crate::log::{DatabaseId, error_at};
use crate::{Damage, Result};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Suffix of files that are being renamed to their right names.
const MOVED_SUFFIX: &str = ".moved";

/// A file that may be a segment.
struct Candidate {
    /// Number in the file's name.
    named: u64,
    path: PathBuf,
    file: Arc<dyn File>,
    length: u64,
    header: Result<SegmentHeader, &'static str>,
    /// Records in it, if the header is damaged.
    headless: Headless,
}

/// A segment that counts.
pub(super) struct Surveyed {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    /// `None` if it is missing.
    pub(super) file: Option<Arc<dyn File>>,
    pub(super) length: u64,
    /// The header, or as much of it as is known without it.
    pub(super) header: SegmentHeader,
    /// Whether the header is damaged.
    pub(super) is_headless: bool,
    /// Offset at which its records end, in bytes, if known.
    pub(super) end: Option<u64>,
}

/// The survey of a log. See the module.
#[derive(Default)]
pub(super) struct Survey {
    /// The segments that count, in their order.
    pub(super) segments: Vec<Surveyed>,
    /// Files whose segments are void, were being removed, or were begun and hold nothing.
    pub(super) removable: Vec<PathBuf>,
    /// Files under the name of another segment, and their own number.
    pub(super) misnamed: Vec<(PathBuf, u64)>,
    /// Files that are not a segment of this log, and the reason.
    pub(super) foreign: Vec<(PathBuf, &'static str)>,
    /// Files of segments whose headers were lost with the power, though records were not.
    pub(super) lost: Vec<PathBuf>,
    /// Reason why the file of a segment cannot be opened, by number.
    unopened: BTreeMap<u64, String>,
    pub(super) damages: Vec<Damage>,
}

impl Survey {
    pub(super) fn of(
        storage: &dyn Storage,
        directory: &Path,
        contents: &Contents,
        promise: &mut Promise,
    ) -> Result<Self> {
        let names = storage.list(directory).map_err(|error| error_at("list", directory, error))?;
        let mut survey = Self::default();
        let candidates =
            candidates(storage, directory, &names, &contents.database_id, &mut survey.unopened)?;
        let found = survey.sort_out(candidates);
        // A segment under another name replaces one that cannot be opened.
        survey.unopened.retain(|number, _| !found.contains_key(number));
        survey.prove(&found, contents, promise)?;
        survey.choose(directory, contents, promise, found)?;
        survey.note_kept_aside(directory, &names);
        Ok(survey)
    }

    /// Assigns the files to segments, by number.
    fn sort_out(&mut self, candidates: Vec<Candidate>) -> BTreeMap<u64, Candidate> {
        let mut found: BTreeMap<u64, Candidate> = BTreeMap::new();
        let (good, bad): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|c| c.header.is_ok());
        let (named, misnamed): (Vec<_>, Vec<_>) = good.into_iter().partition(Candidate::is_named);
        let insert = |found: &mut BTreeMap<_, _>, number, candidate: Candidate| {
            let is_free = !found.contains_key(&number);
            if is_free {
                found.insert(number, candidate);
                return None;
            }
            Some(candidate.path)
        };
        for candidate in named {
            insert(&mut found, candidate.named, candidate);
        }
        for candidate in misnamed {
            let number = candidate.header.map_or(0, |header| header.number);
            let path = candidate.path.clone();
            match insert(&mut found, number, candidate) {
                Some(path) => self.foreign.push((path, "it has the number of another segment")),
                None => {
                    let what = format!("it is segment {number} under another name");
                    self.damages.push(Damage { file: path.clone(), offset: 16, what });
                    self.misnamed.push((path, number));
                }
            }
        }
        for candidate in bad {
            let what = candidate.header.err().unwrap_or_default();
            if let Some(path) = insert(&mut found, candidate.named, candidate) {
                self.foreign.push((path, what));
            }
        }
        for (path, what) in &self.foreign {
            let file = path.clone();
            self.damages.push(Damage { file, offset: 0, what: (*what).into() });
        }
        found
    }

    /// Searches for sync marks that prove that missing segments or headers had been synced.
    fn prove(
        &self,
        found: &BTreeMap<u64, Candidate>,
        contents: &Contents,
        promise: &mut Promise,
    ) -> Result<()> {
        let is_missing = contents.segments.keys().any(|number| !found.contains_key(number));
        let is_headless = found.values().any(|candidate| candidate.header.is_err());
        if !promise.can_be_proven() || !is_missing && !is_headless {
            return Ok(());
        }
        for (_, candidate) in found.range(contents.synced_through.saturating_add(1)..) {
            let binding = candidate.binding(&contents.database_id);
            let scanner = Scanner::new(Arc::clone(&candidate.file), binding, 0, candidate.length);
            let synced =
                marked(scanner).map_err(|error| error_at("read", &candidate.path, error))?;
            promise.prove(synced);
        }
        Ok(())
    }

    /// Decides which segments count, and which are missing.
    fn choose(
        &mut self,
        directory: &Path,
        contents: &Contents,
        promise: &Promise,
        found: BTreeMap<u64, Candidate>,
    ) -> Result<()> {
        let is_listed = contents.state != State::Unknown;
        let highest = contents.segments.keys().next_back().copied().unwrap_or(0);
        let last = |numbers: Option<&u64>| numbers.copied().unwrap_or(0);
        let last_unopened = last(self.unopened.keys().next_back());
        let last_found = last(found.keys().next_back()).max(last_unopened);
        let is_named = |number: u64| !is_listed || contents.segments.contains_key(&number);
        let mut counting = BTreeMap::new();
        for (number, candidate) in found {
            // A segment that was just being begun at a loss of power was not promised.
            let may_be_begun = number == last_found
                && (!is_named(number) || !is_listed || !promise.covers_segment(number));
            let is_void =
                candidate.header.is_err() && may_be_begun && !candidate.headless.holds_records;
            if is_void || !is_named(number) && number < highest {
                self.removable.push(candidate.path);
            } else if candidate.header.is_err() && is_listed && !promise.covers_segment(number) {
                self.lost.push(candidate.path);
            } else {
                counting.insert(number, candidate);
            }
        }
        let clears = |number: &u64, candidate: &Candidate| {
            candidate.header.is_ok_and(|header| header.clears)
                || candidate.header.is_err() && contents.clears == *number
        };
        let by_header = counting.iter().rev().find(|(number, one)| clears(number, one));
        let mut first = by_header.map_or(0, |(number, _)| *number);
        // An undamaged header shows itself whether its segment clears. The manifest is used for a
        // missing one.
        if contents.clears > first
            && !counting.contains_key(&contents.clears)
            && contents.segments.contains_key(&contents.clears)
            && promise.covers_segment(contents.clears)
        {
            first = contents.clears;
        }
        let kept = counting.split_off(&first);
        self.removable.extend(counting.into_values().map(|candidate| candidate.path));
        let numbers: Vec<u64> = if is_listed {
            // Segments are numbered one by one: the numbers between were begun before the last one.
            let last = last(kept.keys().next_back()).max(last_unopened).max(highest);
            let begun = last.min(highest + 4096);
            let named = contents.segments.keys().copied().filter(|number| *number >= first);
            let begun = (highest + 1).max(first)..=begun;
            let mut numbers: Vec<u64> = named.chain(begun).collect();
            numbers.extend(kept.keys().copied());
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        } else {
            kept.keys().copied().collect()
        };
        let previous_ends: BTreeMap<u64, u64> = kept
            .values()
            .filter_map(|candidate| candidate.header.ok())
            .filter(|header| header.previous_bytes != 0 && header.number > 0)
            .map(|header| (header.number - 1, header.previous_bytes))
            .collect();
        let mut kept = kept;
        for number in numbers {
            let listed = contents.segments.get(&number).copied().filter(|length| *length != 0);
            let end = listed.or_else(|| previous_ends.get(&number).copied());
            match kept.remove(&number) {
                Some(candidate) => self.take(candidate, number, end, contents),
                None => self.miss(directory, number, end, contents, promise),
            }
        }
        Ok(())
    }

    fn take(&mut self, candidate: Candidate, number: u64, end: Option<u64>, contents: &Contents) {
        let Candidate { path, file, length, header, headless, .. } = candidate;
        let is_headless = header.is_err();
        if let Err(what) = header {
            self.damages.push(Damage { file: path.clone(), offset: 0, what: what.into() });
        }
        let header = header.unwrap_or_else(|_| SegmentHeader {
            is_bound: headless.is_bound,
            ..supposed(number, length, contents)
        });
        let file = Some(file);
        self.segments.push(Surveyed { number, path, file, length, header, is_headless, end });
    }

    fn miss(
        &mut self,
        directory: &Path,
        number: u64,
        end: Option<u64>,
        contents: &Contents,
        promise: &Promise,
    ) {
        let path = segment_path(directory, number);
        let unopened = self.unopened.get(&number).cloned();
        if unopened.is_none() && !promise.covers_segment(number) {
            tracing::warn!("{} is not there: it was not synced", path.display());
            return;
        }
        let what = unopened.unwrap_or_else(|| "the segment is missing".into());
        // A file that has its name, but is not it, is reported already.
        if !self.foreign.iter().any(|(file, _)| *file == path) {
            self.damages.push(Damage { file: path.clone(), offset: 0, what });
        }
        let header = supposed(number, 0, contents);
        let (file, length, is_headless) = (None, 0, true);
        self.segments.push(Surveyed { number, path, file, length, header, is_headless, end });
    }

    /// Records as damage each file that an earlier opening has kept aside. Its contents count as
    /// lost until the file is removed.
    fn note_kept_aside(&mut self, directory: &Path, names: &[String]) {
        let mut aside: Vec<_> = names.iter().filter(|name| name.contains(DAMAGED_INFIX)).collect();
        aside.sort();
        for name in aside {
            let what = "an opening has kept this aside because it could not be read: its records \
                        are missing since; remove the file to accept that";
            let file = directory.join(name);
            self.damages.push(Damage { file, offset: 0, what: what.into() });
        }
    }

    /// Returns the segments that exist, for a walk.
    pub(super) fn extents(&self, database_id: &DatabaseId) -> Vec<Extent> {
        let last = self.segments.last().map_or(0, |last| last.number);
        let extent = |one: &Surveyed| {
            Some(Extent {
                number: one.number,
                path: one.path.clone(),
                file: Arc::clone(one.file.as_ref()?),
                binding: one.header.binding(database_id),
                length: one.length,
                end: one.end,
                is_last: one.number == last,
            })
        };
        self.segments.iter().filter_map(extent).collect()
    }

    /// Returns the number of the first segment, if the log began with it or was cleared by it.
    pub(super) fn whole_from(&self, contents: &Contents) -> Option<u64> {
        let Some(first) = self.segments.first() else { return Some(1) };
        let is_first = first.number == 1 || first.header.clears || first.number == contents.clears;
        is_first.then_some(first.number)
    }

    /// Returns whether the log still has every change that was made since it began, or since it was
    /// cleared, but for those that a loss of power or damage has taken.
    pub(super) fn is_whole(&self, contents: &Contents) -> bool {
        let headers = self.segments.iter().map(|one| (one.number, one.header.is_behind_pages));
        self.whole_from(contents).is_some() && !lacks_changes(headers, contents.named())
    }
}

/// Returns whether a segment with changes was removed between others. A checkpoint lists the pages
/// that have them. `segments` are the numbers of those that are there, in their order, and whether
/// the segment before had no changes; `named` are those that must be there, if that is known.
pub(super) fn lacks_changes(
    segments: impl IntoIterator<Item = (u64, bool)>,
    named: Option<&BTreeMap<u64, u64>>,
) -> bool {
    // Later ones were begun and lost with the power, and so were those that are named.
    let highest = named.and_then(|named| named.keys().next_back().copied()).unwrap_or(u64::MAX);
    let is_removed = |number| number < highest && named.is_none_or(|n| !n.contains_key(&number));
    let mut next = None;
    segments.into_iter().any(|(number, is_behind_pages)| {
        let from = next.replace(number + 1).unwrap_or(number);
        let gap = from..number.min(highest).max(from);
        let expected = named.map_or(0, |named| named.range(gap.clone()).count() as u64);
        let without_changes = number > from && is_behind_pages && is_removed(number - 1);
        gap.end - gap.start > expected + u64::from(without_changes)
    })
}

/// Returns the header of a segment, as far as it is known without reading it.
fn supposed(number: u64, length: u64, contents: &Contents) -> SegmentHeader {
    SegmentHeader {
        number,
        is_bound: true,
        clears: contents.clears == number,
        is_behind_pages: false,
        first_sequence: 1,
        previous_bytes: 0,
        capacity: length.max(SEGMENT_HEADER_BYTES as u64),
    }
}

/// Returns the files that may be segments. Those that the disk cannot open are added to `unopened`.
fn candidates(
    storage: &dyn Storage,
    directory: &Path,
    names: &[String],
    database_id: &DatabaseId,
    unopened: &mut BTreeMap<u64, String>,
) -> Result<Vec<Candidate>> {
    let mut candidates = Vec::new();
    for name in names {
        let number = segment_number(name.strip_suffix(MOVED_SUFFIX).unwrap_or(name));
        let Some(named) = number else { continue };
        let path = directory.join(name);
        let failed = |error| error_at("read", &path, error);
        let file = match storage.open(&path, Open::Existing) {
            Ok(file) => file,
            Err(error) if is_unreadable(&error) => {
                unopened.insert(named, cannot_be_opened(&error));
                continue;
            }
            Err(error) => return Err(error_at("open", &path, error)),
        };
        let length = file.length().map_err(failed)?;
        let HeaderFound { header, is_blank } = read_header(&*file, database_id).map_err(failed)?;
        let header = own_header(header, &file, database_id, named, length).map_err(failed)?;
        let headless = match header {
            Err(_) if !is_blank || length > SEGMENT_HEADER_BYTES as u64 => {
                Headless::search(&file, database_id, named, length).map_err(failed)?
            }
            _ => Headless::default(),
        };
        candidates.push(Candidate { named, path, file, length, header, headless });
    }
    candidates.sort_by_key(|candidate| candidate.named);
    Ok(candidates)
}

/// Returns the header that was read from the file of segment `named`, or why it is not that of the
/// records after it: if they are bound to the file's name, a page of another segment was written to
/// a wrong place.
pub(super) fn own_header(
    header: Result<SegmentHeader, &'static str>,
    file: &Arc<dyn File>,
    database_id: &DatabaseId,
    named: u64,
    length: u64,
) -> io::Result<Result<SegmentHeader, &'static str>> {
    if header.is_ok_and(|header| header.number != named) {
        let (binding, start) = (database_id.binding(named, true), SEGMENT_HEADER_BYTES as u64);
        if Scanner::new(Arc::clone(file), binding, start, length).find_from(start)? {
            return Ok(Err("its header is that of another segment"));
        }
    }
    Ok(header)
}

/// Returns the description of a segment whose file the disk cannot open.
pub(super) fn cannot_be_opened(error: &io::Error) -> String {
    format!("the segment cannot be opened: {error}")
}

impl Candidate {
    fn is_named(&self) -> bool {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        self.header.is_ok_and(|header| header.number == self.named) && !name.ends_with(MOVED_SUFFIX)
    }

    /// Returns the binding of its records.
    fn binding(&self, database_id: &DatabaseId) -> Binding {
        match &self.header {
            Ok(header) => header.binding(database_id),
            Err(_) => database_id.binding(self.named, self.headless.is_bound),
        }
    }
}

/// Records of a segment whose header is damaged.
#[derive(Clone, Copy, Default)]
pub(super) struct Headless {
    /// Whether the file holds a record of this log, or may where the disk cannot read it.
    pub(super) holds_records: bool,
    /// Whether the checksums of the records are masked with their places.
    pub(super) is_bound: bool,
}

impl Headless {
    /// Searches for the first record of the segment with this number, under both formats.
    pub(super) fn search(
        file: &Arc<dyn File>,
        database_id: &DatabaseId,
        number: u64,
        length: u64,
    ) -> io::Result<Self> {
        let start = SEGMENT_HEADER_BYTES as u64;
        let mut is_unreadable = false;
        for is_bound in [true, false] {
            let binding = database_id.binding(number, is_bound);
            let mut scanner = Scanner::new(Arc::clone(file), binding, start, length);
            if scanner.find_from(start)? {
                return Ok(Self { holds_records: true, is_bound });
            }
            is_unreadable |= scanner.has_met_unreadable();
        }
        Ok(Self { holds_records: is_unreadable, is_bound: true })
    }
}

/// Renames files to the names in their headers. Uses temporary names, because two files may have
/// each other's.
pub(super) fn give_right_names(
    storage: &dyn Storage,
    directory: &Path,
    misnamed: &[(PathBuf, u64)],
) -> io::Result<()> {
    let passing = |number: u64| {
        let mut name = segment_path(directory, number).into_os_string();
        name.push(MOVED_SUFFIX);
        PathBuf::from(name)
    };
    for (path, number) in misnamed {
        if *path != passing(*number) {
            storage.rename(path, &passing(*number))?;
        }
    }
    storage.sync_dir(directory)?;
    for (_, number) in misnamed {
        storage.rename(&passing(*number), &segment_path(directory, *number))?;
    }
    storage.sync_dir(directory)
}

/// Returns the replay position of a checkpoint, for a promise.
pub(super) fn checkpoint_offset(
    checkpoint: Option<&crate::log::checkpoint::Checkpoint>,
) -> SegmentOffset {
    checkpoint.map_or((0, 0), |one| (one.replay_segment, one.replay_offset))
}
