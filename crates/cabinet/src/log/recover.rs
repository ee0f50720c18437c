//! Opening a log: what the last process left behind becomes a log again.
//!
//! 1. The manifest says whose segments these are, and which must be there; see [`super::survey`].
//! 2. Segments are opened, oldest first; those before the last one that clears are removed. A
//!    missing one gets a placeholder, so that what pointed into it is an error and not nothing.
//! 3. A checkpoint, if there is a good one, gives the engine its index as it was at some
//!    position; the log is replayed from there. Otherwise it is replayed from the beginning.
//! 4. Holes are told apart, see [`super::holes`]. Append blocks that were not filled are filled. A
//!    torn tail is cut. Damage is reported, what cannot be read is kept aside, and the replay goes
//!    on behind it. Where it is the disk that cannot read, nothing is written.

use super::capacity::Capacity;
use super::checkpoint::Checkpoint;
use super::commit::Commit;
use super::faults::Faults;
use super::holes::{Extent, Fate, Hole, Place, Promise, Walk};
use super::read::FirstRead;
use super::record::{BLOCK_BYTES_MAX, Prepared, RECORD_BYTES_MIN, Record, SEQUENCE_MAX};
use super::scan::{ScanError, UNREADABLE};
use super::segment::{
    LiveBytes, Location, MARGIN_BYTES, SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES, Segment,
    SegmentHeader, Segments, segment_path,
};
use super::survey::{self, Survey, Surveyed};
use super::used::Used;
use super::{
    Figures, Identity, Log, Nature, Settings, Tail, background, error_at, lane, manifest,
    new_segment,
};
use crate::io::{Appender, File, Missing, Open, Storage, directory_of, is_unreadable, read_around};
use crate::{Damage, Error, Result};
use arc_swap::ArcSwap;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Bytes between two messages on the progress of a replay.
const PROGRESS_BYTES: u64 = 4 << 30;

/// Files that hold what was lost with the power, the newest ones: as many are kept.
const LOST_FILES_MAX: usize = 8;

/// More sequence numbers than the records of a segment had.
const SEQUENCES_OF_SEGMENT: u64 = (SEGMENT_BYTES_MAX / RECORD_BYTES_MIN) as u64;

/// A log being opened.
pub(crate) struct Recovery {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    settings: Settings,
    pub(crate) identity: Identity,
    /// What the database was created with; differs from what was asked for in the parameters only.
    pub(crate) nature: Nature,
    lock: Box<dyn Any + Send + Sync>,
    manifest: manifest::Found,
    promise: Promise,
    extents: Vec<Extent>,
    pub(crate) segments: Segments,
    pub(crate) checkpoint: Option<Checkpoint>,
    next_sequence: u64,
    replayed: bool,
    replay_from: (u64, u64),
    /// Number of the oldest segment, if the log began with it or was cleared by it: then replaying
    /// all of the log gives the whole index, and a checkpoint from before it is void.
    pub(crate) whole_from: Option<u64>,
    /// Numbers of segments that hold pages of leaves and no change, as the segments after them say.
    without_changes: BTreeSet<u64>,
    /// Behind the last record that the checkpoint lists, of those that were noted.
    listed_end: Place,
    /// What the replay has met where records should be, in the order of the log.
    pub(crate) holes: Vec<Hole>,
    damages: Vec<Damage>,
}

impl Recovery {
    /// Opens what is in the directory, or makes a new log of it, of this nature. A log of another
    /// kind is refused.
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        directory: &Path,
        settings: Settings,
        options: &crate::Options,
        nature: Nature,
    ) -> Result<Self> {
        let at = |operation| move |error| error_at(operation, directory, error);
        if !options.create {
            storage.list(directory).map_err(at("open"))?;
        }
        storage.create_dir(directory).map_err(at("create"))?;
        let lock = storage.lock(&directory.join("lock")).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::InUse { path: directory.to_owned() },
            _ => error_at("lock", directory, error),
        })?;
        let found = match manifest::read(storage.as_ref(), directory)? {
            Some(found) if found.contents.nature.kind != nature.kind => {
                return Err(Error::NotSupported(format!(
                    "{} holds a database of kind {:?}, not {:?}",
                    directory.display(),
                    found.contents.nature.kind,
                    nature.kind
                )));
            }
            Some(found) => {
                found.sync(storage.as_ref(), directory)?;
                found
            }
            None => create(storage.as_ref(), directory, options, &nature)?,
        };
        let identity = found.contents.identity;
        let checkpoint = Checkpoint::open(storage.as_ref(), directory, &identity)?;
        let place = survey::place_of(checkpoint.as_ref());
        let promise = Promise::new(&found.contents, storage.boot_id(), place);
        let mut recovery = Self {
            directory: directory.to_owned(),
            settings,
            identity,
            nature: found.contents.nature,
            lock,
            damages: found.damages.clone(),
            next_sequence: found.contents.next_sequence,
            manifest: found,
            promise,
            extents: Vec::new(),
            segments: Segments::default(),
            checkpoint,
            replayed: false,
            replay_from: (0, 0),
            whole_from: Some(1),
            without_changes: BTreeSet::new(),
            listed_end: (0, 0),
            holes: Vec::new(),
            storage,
        };
        recovery.open_segments()?;
        if let Some(checkpoint) = &recovery.checkpoint
            && !recovery.reaches(checkpoint.replay_segment, checkpoint.replay_offset)
        {
            // What it ends with was made durable before it.
            let error = checkpoint.corrupted("the log that it ends with is missing");
            recovery.distrust_checkpoint(&error);
        }
        if let Some(checkpoint) = &recovery.checkpoint {
            recovery.next_sequence = recovery.next_sequence.max(checkpoint.next_sequence);
            recovery.replay_from = (checkpoint.replay_segment, checkpoint.replay_offset);
        }
        Ok(recovery)
    }

    /// Whether the log goes on behind the checkpoint, or segments are gone that it lists.
    pub(crate) fn goes_on(&self) -> bool {
        let Some(checkpoint) = &self.checkpoint else { return true };
        let is_there = |number| self.segments.iter().any(|segment| segment.number == number);
        let place = self.replay_from;
        let goes_on = |extent: &Extent| (extent.number, extent.length) > place;
        checkpoint.segments.iter().any(|line| !is_there(line.number))
            || self.extents.iter().any(goes_on)
    }

    /// Makes a file without a name for an index that does not fit into memory.
    pub(crate) fn run_file_maker(&self) -> impl Fn() -> Result<(Arc<dyn File>, PathBuf)> + use<> {
        let (storage, directory) = (Arc::clone(&self.storage), self.directory.clone());
        move || super::checkpoint::nameless_file(storage.as_ref(), &directory)
    }

    /// Removes the checkpoint from its storage when it is found to be damaged.
    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Whether the log has come to this place, be it that the segment has gone since.
    fn reaches(&self, number: u64, offset: u64) -> bool {
        let mut newer = self.segments.iter().filter(|segment| segment.number >= number).peekable();
        newer.peek().is_some()
            && newer.all(|segment| {
                segment.number > number || segment.is_missing || segment.bytes() >= offset
            })
    }

    fn open_segments(&mut self) -> Result<()> {
        let (storage, directory) = (Arc::clone(&self.storage), self.directory.clone());
        let contents = &self.manifest.contents;
        let mut survey = Survey::of(storage.as_ref(), &directory, contents, &mut self.promise)?;
        self.whole_from = survey.whole_from(contents);
        for damage in self.damages.iter().chain(&survey.damages) {
            report_damage(damage);
        }
        self.damages.append(&mut survey.damages);
        if !survey.removable.is_empty()
            && let Some(Surveyed { path, file: Some(file), .. }) = survey.segments.first()
        {
            // If it clears, it may be in the page cache only.
            file.sync().map_err(|error| error_at("sync", path, error))?;
            storage.sync_dir(&directory).map_err(|error| error_at("sync", &directory, error))?;
        }
        for path in &survey.removable {
            storage.remove(path).map_err(|error| error_at("remove", path, error))?;
        }
        for (path, _) in &survey.foreign {
            self.set_aside(path, "log.damaged")?;
        }
        for path in &survey.lost {
            let name = path.display();
            tracing::warn!("{name} was not synced when the power went: it is no part of the log");
            if self.settings.capacity_bytes == 0 {
                self.set_aside(path, "log.lost")?;
            } else {
                self.storage.remove(path).map_err(|error| error_at("remove", path, error))?;
            }
        }
        if !survey.lost.is_empty() {
            self.remove_old_losses()?;
        }
        if !survey.misnamed.is_empty() {
            survey::give_right_names(storage.as_ref(), &directory, &survey.misnamed)
                .map_err(|error| error_at("rename segments of", &directory, error))?;
            for one in &mut survey.segments {
                one.path = segment_path(&directory, one.number);
            }
        }
        self.extents = survey.extents();
        let lines = self.checkpoint.as_ref().map_or(&[][..], |checkpoint| &checkpoint.segments);
        let lines = lines.to_vec();
        // Segments that the checkpoint knows keep their slots; the others come after all those.
        let mut free = lines.iter().map(|line| line.slot + 1).max().unwrap_or(0);
        let last = survey.segments.len().saturating_sub(1);
        for (index, one) in survey.segments.into_iter().enumerate() {
            let line = lines.iter().find(|line| line.number == one.number);
            let slot = line.map_or(free, |line| line.slot);
            free = free.max(slot + 1);
            if slot >= super::segment::SEGMENTS_MAX {
                return Err(Error::NotSupported("that many segments".into()));
            }
            let is_last = index == last;
            if is_last && one.file.is_none() {
                // Its records had numbers that no other record shall have.
                self.skip_sequences();
            }
            self.next_sequence = self.next_sequence.max(one.header.first_sequence);
            if one.header.is_behind_pages {
                self.without_changes.insert(one.number.saturating_sub(1));
            }
            let segment = open_segment(&one, slot)?;
            segment.sealed.store(!is_last, Ordering::Relaxed);
            if let Some(line) = line {
                let end = if one.file.is_some() { segment.bytes() } else { u64::MAX };
                segment.live_bytes.set(line.live_bytes.min(end));
                segment.tombstone_bytes.store(line.tombstone_bytes.min(end), Ordering::Relaxed);
                segment.next_expiry_ms.store(line.next_expiry_ms, Ordering::Relaxed);
            }
            self.segments.insert(Arc::new(segment));
        }
        Ok(())
    }

    fn skip_sequences(&mut self) {
        self.next_sequence = (self.next_sequence + SEQUENCES_OF_SEGMENT).min(SEQUENCE_MAX);
    }

    /// Keeps a file out of the way of those to come.
    fn set_aside(&self, path: &Path, extension: &str) -> Result<()> {
        let failed = |error| error_at("rename", path, error);
        let aside = path.with_extension("").with_extension(extension);
        let aside = self.free_name(&aside).map_err(failed)?;
        self.storage.rename(path, &aside).map_err(failed)
    }

    /// A name that no file has: this one, or one that begins with it.
    fn free_name(&self, path: &Path) -> io::Result<PathBuf> {
        let names = self.storage.list(&self.directory)?;
        let is_free = |path: &Path| {
            !names.iter().any(|name| path.file_name().is_some_and(|own| own == name.as_str()))
        };
        let mut free = path.to_owned();
        let mut count = 1;
        while !is_free(&free) {
            count += 1;
            let mut name = path.as_os_str().to_owned();
            name.push(format!("-{count}"));
            free = name.into();
        }
        Ok(free)
    }

    /// Reports damage that an engine has found.
    pub(crate) fn report(&mut self, damage: Damage) {
        report_damage(&damage);
        self.damages.push(damage);
    }

    /// Notes that the checkpoint lists a record at this place: it was on the disk before the list
    /// was.
    pub(crate) fn note_listed(&mut self, place: Place) {
        let end = (place.0, place.1 + 1);
        self.promise.prove(end);
        self.listed_end = self.listed_end.max(end);
    }

    /// Forgets the checkpoint, so that the log is replayed from the beginning.
    pub(crate) fn distrust_checkpoint(&mut self, error: &Error) {
        tracing::warn!("the checkpoint is ignored: {error}");
        self.forget_checkpoint();
    }

    /// As `distrust_checkpoint`, of one that is merely too old.
    pub(crate) fn forget_checkpoint(&mut self) {
        self.checkpoint = None;
        self.replay_from = (0, 0);
        for segment in self.segments.iter() {
            segment.live_bytes.set(0);
            segment.tombstone_bytes.store(0, Ordering::Relaxed);
            segment.next_expiry_ms.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Shows the engine every record from where its index stands, in order.
    pub(crate) fn replay(
        &mut self,
        visit: &mut dyn FnMut(&Segments, &Segment, Location, &Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let (first, first_offset) = self.replay_from;
        let extents = std::mem::take(&mut self.extents);
        let mut walk = Walk::new(self.identity.salt, extents, self.promise);
        let to_go = walk.extents().iter().filter(|extent| extent.number >= first);
        let total: u64 = to_go.map(Extent::scanned_end).sum();
        let (mut done, mut told) = (0, 0);
        for index in 0..walk.extents().len() {
            let extent = walk.extents()[index].clone();
            let Some(segment) =
                self.segments.iter().find(|one| one.number == extent.number).cloned()
            else {
                continue;
            };
            if segment.number < first {
                continue;
            }
            let start = if segment.number == first { first_offset } else { 0 };
            let mut holes: Vec<Hole> = Vec::new();
            let (mut next_sequence, mut replayed) = (self.next_sequence, self.replayed);
            let end = walk.segment(
                index,
                start,
                &mut |offset, record, _| {
                    next_sequence = next_sequence.max(record.sequence.saturating_add(1));
                    replayed = true;
                    visit(&self.segments, &segment, segment.at(offset), record)
                },
                &mut |hole| {
                    holes.push(hole.clone());
                    Ok(())
                },
            );
            let end = end.map_err(|error| match error {
                ScanError::Read(error) => error_at("read", &segment.path, error),
                ScanError::Visit(error) => error,
            })?;
            (self.next_sequence, self.replayed) = (next_sequence, replayed);
            self.mend(&segment, &extent, end, &holes)?;
            self.holes.append(&mut holes);
            done += segment.bytes();
            if done - told >= PROGRESS_BYTES {
                told = done;
                tracing::info!("replayed {} of {} MiB of the log", done >> 20, total >> 20);
            }
        }
        Ok(())
    }

    /// Makes of a segment what can be appended to, or read again and again, without its holes.
    fn mend(
        &mut self,
        segment: &Arc<Segment>,
        extent: &Extent,
        end: u64,
        holes: &[Hole],
    ) -> Result<()> {
        let is_last = extent.is_last;
        let mut cut_at = end;
        // Behind zeros, too, there may be some.
        let mut is_stale = end < extent.scanned_end();
        for hole in holes {
            let reaches_end = hole.offset + hole.bytes >= extent.scanned_end() && !hole.is_followed;
            match hole.fate {
                Fate::Unfilled => {
                    if hole.what != super::holes::UNWRITTEN {
                        tell(hole, "are dropped");
                    }
                    self.fill(segment, hole)?;
                }
                Fate::Torn => {
                    tell(hole, "are cut off");
                    is_stale = true;
                }
                Fate::Lost => {
                    tell(hole, "were not synced when the power went, and are dropped");
                    if hole.is_followed {
                        self.keep_lost(segment, hole, is_last)?;
                    }
                    if hole.what == UNREADABLE {
                        // No part of a page that cannot be read can be written either.
                        let cut = segment.file.truncate(hole.offset);
                        cut.map_err(|error| error_at("cut", &segment.path, error))?;
                    }
                    // What is appended next begins behind the place that the file kept aside
                    // names, so that a later opening does not take it for a part of the loss.
                    let bytes = if is_last { RECORD_BYTES_MIN as u64 } else { hole.bytes };
                    if !is_last || hole.is_followed {
                        if self.fill_or_keep(segment, &Hole { bytes, ..hole.clone() })? {
                            cut_at = cut_at.max(hole.offset + bytes);
                        } else if !is_last {
                            // It stays as long as it is mapped.
                            let end = hole.offset + hole.bytes;
                            let grown = segment.file.truncate(end);
                            grown.map_err(|error| error_at("write", &segment.path, error))?;
                        }
                    }
                    is_stale = true;
                }
                Fate::Damaged => {
                    let damage = hole.damage();
                    report_damage(&damage);
                    self.damages.push(damage);
                    if !is_last {
                        segment.damaged.store(true, Ordering::Relaxed);
                    } else if hole.what == UNREADABLE
                        || reaches_end && (hole.number, hole.offset) < self.listed_end
                    {
                        // It may not be possible to write there, nor to cut the file, and another
                        // time the disk may read it; and what comes to a listed place would be
                        // taken for what was there. So it stays, and the log goes on in a new
                        // segment.
                        segment.damaged.store(true, Ordering::Relaxed);
                        if reaches_end {
                            self.skip_sequences();
                            cut_at = cut_at.max(extent.length);
                        }
                    } else if reaches_end {
                        self.keep_aside(segment, hole, "damaged")?;
                        self.skip_sequences();
                        is_stale = true;
                    } else {
                        self.keep_aside(segment, hole, "damaged")?;
                        self.fill_or_keep(segment, hole)?;
                        if hole.bytes < RECORD_BYTES_MIN as u64 {
                            segment.damaged.store(true, Ordering::Relaxed);
                        }
                    }
                }
            }
        }
        // A segment that was shorter than it should be has been filled up, and is that long now.
        let is_longer = cut_at > segment.bytes() && !segment.is_damaged();
        let has_rest = extent.end.is_none() && end < extent.length && !segment.is_damaged();
        if is_last || is_longer || has_rest {
            self.cut(segment, cut_at, is_stale, if is_last { MARGIN_BYTES } else { 0 })?;
        }
        Ok(())
    }

    /// Places behind the checkpoint's position of which an earlier opening has kept aside what was
    /// there, and did not come to its end: what they held may be missed by what follows.
    pub(crate) fn kept_aside(&self) -> Result<Vec<(Place, Fate)>> {
        let failed = |error| error_at("list", &self.directory, error);
        let names = self.storage.list(&self.directory).map_err(failed)?;
        // Segments that were removed or cleared since are none of the log's any more.
        let oldest = self.segments.iter().map(|segment| segment.number).min().unwrap_or(u64::MAX);
        let from = self.replay_from.max((oldest, 0));
        let place_in = |name: &String| {
            let (number, rest) = name.split_once(".log.")?;
            let (infix, rest) = rest.split_once('-')?;
            let fate = match infix {
                "damaged" => Fate::Damaged,
                "lost" => Fate::Lost,
                _ => return None,
            };
            let place = (number.parse().ok()?, rest.split('-').next()?.parse().ok()?);
            (place >= from).then_some((place, fate))
        };
        Ok(names.iter().filter_map(place_in).collect())
    }

    /// Whether no change is lost with this segment.
    pub(crate) fn is_without_changes(&self, number: u64) -> bool {
        self.without_changes.contains(&number)
    }

    /// Returns where segments with changes are missing from the checkpoint's position on, and what
    /// became of what they held from there on.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (Place, Fate)> {
        let (first, first_offset) = self.replay_from;
        let missing = self
            .segments
            .iter()
            .filter(move |segment| segment.is_missing && !self.is_without_changes(segment.number));
        missing.filter(move |segment| segment.number >= first).map(move |segment| {
            let offset = if segment.number == first { first_offset } else { 0 };
            let place = (segment.number, offset);
            let is_damage = self.promise.covers(place, true, false);
            (place, if is_damage { Fate::Damaged } else { Fate::Lost })
        })
    }

    /// Keeps aside what was lost with the power, as far as that is reasonable: it was never
    /// promised, so that it must not take the space of a capped log, nor keep a database on a full
    /// disk shut.
    fn keep_lost(&self, segment: &Segment, hole: &Hole, is_last: bool) -> Result<()> {
        if self.settings.capacity_bytes != 0 {
            return Ok(());
        }
        match self.keep_aside(segment, hole, "lost") {
            // What follows it in later segments could rest on it.
            Err(Error::NoSpace { path }) if is_last => {
                tracing::warn!("there is no space to keep {} aside", path.display());
            }
            result => result?,
        }
        self.remove_old_losses()
    }

    /// Removes what was lost with the power before the newest [`LOST_FILES_MAX`] times.
    fn remove_old_losses(&self) -> Result<()> {
        let failed = |error| error_at("list", &self.directory, error);
        let mut lost = self.storage.list(&self.directory).map_err(failed)?;
        lost.retain(|name| name.contains(".log.lost"));
        lost.sort_unstable();
        let surplus = lost.len().saturating_sub(LOST_FILES_MAX);
        for name in &lost[..surplus] {
            let path = self.directory.join(name);
            self.storage.remove(&path).map_err(|error| error_at("remove", &path, error))?;
        }
        Ok(())
    }

    /// Copies the bytes of a hole, as far as they are there, into a file of their own.
    fn keep_aside(&self, segment: &Segment, hole: &Hole, infix: &str) -> Result<()> {
        let failed = |error| error_at("keep a part aside of", &segment.path, error);
        let name = format!("log.{infix}-{}", hole.offset);
        let aside = segment_path(&self.directory, segment.number).with_extension("");
        let aside = self.free_name(&aside.with_extension(name)).map_err(failed)?;
        let copy = self.storage.open(&aside, Open::New).map_err(failed)?;
        let mut buffer = vec![0; BLOCK_BYTES_MAX];
        let mut at = 0;
        while at < hole.bytes {
            let want = usize::try_from(hole.bytes - at).unwrap_or(usize::MAX).min(buffer.len());
            let (piece, offset) = (&mut buffer[..want], hole.offset + at);
            match read_around(&*segment.file, piece, offset, &mut Vec::new()).map_err(failed)? {
                0 => break,
                count => {
                    copy.write_at(&buffer[..count], at).map_err(failed)?;
                    at += count as u64;
                }
            }
        }
        copy.sync().map_err(failed)?;
        self.storage.sync_dir(&self.directory).map_err(failed)
    }

    /// As `fill`; returns whether that was done. Where the disk cannot read a page, and so write no
    /// part of it, the segment is kept as it is.
    fn fill_or_keep(&self, segment: &Segment, hole: &Hole) -> Result<bool> {
        match self.fill(segment, hole) {
            Err(Error::Io { source, .. }) if is_unreadable(&source) => {
                segment.damaged.store(true, Ordering::Relaxed);
                Ok(false)
            }
            filled => filled.map(|()| true),
        }
    }

    /// Makes a hole mean nothing, for good.
    fn fill(&self, segment: &Segment, hole: &Hole) -> Result<()> {
        let failed = |error| error_at("write", &segment.path, error);
        let mut at = hole.offset;
        let end = hole.offset + hole.bytes;
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(usize::MAX);
            let mut bytes = left.min(BLOCK_BYTES_MAX);
            if left > bytes && left - bytes < RECORD_BYTES_MIN {
                bytes -= RECORD_BYTES_MIN;
            }
            let mut filling = Vec::with_capacity(bytes);
            if bytes >= RECORD_BYTES_MIN {
                let mut filler = Prepared::filler(self.identity.salt, bytes);
                for part in filler.seal_hollow(1) {
                    filling.extend_from_slice(part);
                }
            }
            filling.resize(bytes, 0);
            segment.file.write_at(&filling, at).map_err(failed)?;
            at += bytes as u64;
        }
        segment.file.sync().map_err(failed)
    }

    /// Makes a segment end there, and its file so many zeros behind that, if it is that long.
    fn cut(
        &mut self,
        segment: &Arc<Segment>,
        end: u64,
        is_stale: bool,
        margin: usize,
    ) -> Result<()> {
        let failed = |error| error_at("cut", &segment.path, error);
        let length = segment.file.length().map_err(failed)?.clamp(end, end + margin as u64);
        // Zeros beyond the end are what is appended over, but stale bytes must not be.
        let zeros = &[0; MARGIN_BYTES][..(length - end) as usize];
        if is_stale && segment.file.write_at(zeros, end).is_err() {
            segment.file.truncate(end).map_err(failed)?;
            if segment.file.write_at(zeros, end).is_err_and(|error| is_unreadable(&error)) {
                // The page that the end is in: the log goes on in a new segment.
                segment.damaged.store(true, Ordering::Relaxed);
            }
        } else {
            segment.file.truncate(length).map_err(failed)?;
        }
        if is_stale {
            // Nor may they come back behind what is appended now, if the power goes before a sync.
            segment.file.sync().map_err(failed)?;
        }
        let written = usize::try_from(end).unwrap_or(usize::MAX);
        let map = segment.file.map(segment.capacity.max(written), written).map_err(failed)?;
        self.segments.insert(Arc::new(rebuilt(segment, map)));
        Ok(())
    }

    /// The log, ready for appending.
    pub(crate) fn finish(self) -> Result<Log> {
        let mut segments = self.segments;
        let last = segments.in_order().last().cloned();
        let segment = match last {
            // A log whose last segment was not replayed still has to be cut to its end.
            Some(segment) if !segment.is_damaged() => segment,
            last => {
                let number = last.as_ref().map_or(0, |last| last.number) + 1;
                let previous_bytes = last.filter(|last| !last.is_missing);
                let previous_bytes = previous_bytes.map_or(0, |last| {
                    last.sealed.store(true, Ordering::Relaxed);
                    last.bytes()
                });
                let capacity = self.settings.segment_bytes_min as u64;
                let header = SegmentHeader {
                    number,
                    clears: false,
                    is_behind_pages: false,
                    first_sequence: self.next_sequence,
                    previous_bytes,
                    capacity,
                };
                let path = segment_path(&self.directory, number);
                let failed = |error| error_at("create", &path, error);
                let slot = segments
                    .free_slot()
                    .ok_or_else(|| Error::NotSupported("that many segments".into()))?;
                let file = self.storage.open(&path, Open::New).map_err(failed)?;
                let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
                let map = file.map(capacity, 0).map_err(failed)?;
                file.allocate(&map, capacity.min(super::room::ALLOCATION_BYTES_FIRST) as u64)
                    .map_err(failed)?;
                let segment = Arc::new(new_segment(&header, slot, path.clone(), file, map));
                let appender = Appender::of(&segment.map);
                let header = header.encode(&self.identity);
                let begun = appender
                    .is_some_and(|mut appender| appender.append(&[&header], SEGMENT_HEADER_BYTES));
                if !begun {
                    return Err(Error::NoSpace { path });
                }
                // The appender of the tail is taken again below, from a map of the same bytes.
                let map = segment
                    .file
                    .map(capacity, SEGMENT_HEADER_BYTES)
                    .map_err(|error| error_at("map", &segment.path, error))?;
                let segment = Arc::new(rebuilt(&segment, map));
                segments.insert(Arc::clone(&segment));
                segment
            }
        };
        segment.sealed.store(false, Ordering::Relaxed);
        let Some(appender) = Appender::of(&segment.map) else {
            return Err(Error::NoSpace { path: segment.path.clone() });
        };
        for segment in segments.iter() {
            segment.resident.store(segment.map.is_resident(), Ordering::Relaxed);
        }
        let mut contents = self.manifest.contents.clone();
        contents.state = manifest::State::Open;
        contents.has_margin = has_margin(&segment, appender.end() as u64 + MARGIN_BYTES as u64);
        contents.boot = self.storage.boot_id().unwrap_or_default();
        contents.next_sequence = self.next_sequence;
        let listed = std::mem::take(&mut contents.segments);
        if contents.clears >= segment.number && self.whole_from != Some(contents.clears) {
            // The segment that cleared went with the power: a later one of its number does not.
            contents.clears = 0;
        }
        for one in segments.iter() {
            let known = listed.get(&one.number).copied().unwrap_or(0);
            // The length that one is short of is what makes it short.
            let length = if one.number == segment.number { 0 } else { one.bytes().max(known) };
            contents.segments.insert(one.number, length);
            if self.whole_from == Some(one.number) && one.number > 1 {
                contents.clears = contents.clears.max(one.number);
            }
        }
        let manifest = manifest::Manifest::open(
            self.storage.as_ref(),
            &self.directory,
            &self.manifest,
            contents,
        )?;
        let end = appender.end() as u64;
        let is_checkpointed = self.checkpoint.is_some() && !self.replayed;
        let older: Vec<_> =
            segments.in_order().into_iter().filter(|one| !Arc::ptr_eq(one, &segment)).collect();
        let capacity_bytes = self.settings.capacity_bytes;
        let log = Log {
            reserved: AtomicBool::new(false),
            storage: self.storage,
            directory: self.directory,
            identity: self.identity,
            nature: Mutex::new(self.nature),
            manifest,
            settings: self.settings,
            segments: ArcSwap::from_pointee(segments),
            active_number: AtomicU64::new(segment.number),
            checkpointed_number: AtomicU64::new(segment.number),
            tail: CachePadded::new(Mutex::new(Tail {
                segment,
                appender,
                next_sequence: self.next_sequence,
                has_changes: true,
                base: 0,
            })),
            lanes: lane::Lanes::default(),
            appended: CachePadded::new(AtomicU64::new(end)),
            commit: Commit::default(),
            sync: Mutex::default(),
            structure: Mutex::default(),
            maintenance: Mutex::default(),
            checkpointed: AtomicU64::new(if is_checkpointed { end } else { 0 }),
            // Whether the last process synced them is not known.
            unsynced: Mutex::new(older),
            retired: Mutex::default(),
            directory_changed: AtomicBool::new(true),
            ahead_wanted: AtomicBool::new(true),
            space_wanted: AtomicBool::new(false),
            pressure: AtomicU8::new(0),
            long_changes: Mutex::new(0),
            capacity: Capacity::new(capacity_bytes),
            figures: Figures::default(),
            damages: self.damages,
            background: background::Signals::default(),
            _lock: self.lock,
        };
        if log.capacity.is_capped() {
            log.set_capacity(capacity_bytes)?;
        }
        log.keep_reserve();
        Ok(log)
    }
}

/// Makes a new database of a directory without a manifest, unless there is or was one.
fn create(
    storage: &dyn Storage,
    directory: &Path,
    options: &crate::Options,
    nature: &Nature,
) -> Result<manifest::Found> {
    let names = storage.list(directory).map_err(|error| error_at("list", directory, error))?;
    if names.iter().any(|name| super::segment::segment_number(name).is_some()) {
        return Err(Error::Corrupted {
            file: directory.join(manifest::NAME),
            offset: 0,
            what:
                "it is missing, and so is its copy, but there are segments: the database does not \
                   open; `tyrant salvage` copies what can be read into another"
                    .into(),
        });
    }
    if !options.create && !options.truncate {
        return Err(error_at("open", directory, io::ErrorKind::NotFound.into()));
    }
    let found = manifest::create(storage, directory, nature)?;
    // The directory itself may be new.
    let parent = directory_of(directory);
    storage.sync_dir(parent).map_err(|error| error_at("sync", parent, error))?;
    Ok(found)
}

fn open_segment(one: &Surveyed, slot: usize) -> Result<Segment> {
    let path = one.path.clone();
    let Some(file) = &one.file else {
        let failed = |error| error_at("stand in for", &path, error);
        let file: Arc<dyn crate::io::File> = Arc::new(Missing);
        let map = file.map(0, 0).map_err(failed)?;
        let mut segment = new_segment(&one.header, slot, path, file, map);
        segment.is_missing = true;
        segment.damaged.store(true, Ordering::Relaxed);
        return Ok(segment);
    };
    let end = one.end.map_or(one.length, |end| end.min(one.length));
    let written = usize::try_from(end).unwrap_or(usize::MAX);
    let map = file.map(written, written).map_err(|error| error_at("map", &path, error))?;
    let segment = new_segment(&one.header, slot, path, Arc::clone(file), map);
    segment.damaged.store(one.is_headless, Ordering::Relaxed);
    Ok(segment)
}

/// Gives the file of the segment that is appended to this length. Returns whether it has it.
fn has_margin(segment: &Segment, length: u64) -> bool {
    let has = |file: &dyn crate::io::File| file.length().is_ok_and(|present| present >= length);
    has(&*segment.file)
        || segment.file.allocate(&segment.map, length).is_ok() && has(&*segment.file)
}

fn report_damage(damage: &Damage) {
    tracing::error!("damage: {damage}");
}

fn tell(hole: &Hole, what_became: &str) {
    let (path, Hole { offset, bytes, what, .. }) = (hole.path.display(), hole);
    tracing::warn!("{path}: {bytes} bytes at byte {offset} {what_became}: {what}");
}

/// The same segment with another map.
fn rebuilt(segment: &Segment, map: crate::io::Map) -> Segment {
    let copy = |number: &AtomicU64| AtomicU64::new(number.load(Ordering::Relaxed));
    Segment {
        number: segment.number,
        slot: segment.slot,
        path: segment.path.clone(),
        file: Arc::clone(&segment.file),
        map,
        capacity: segment.capacity,
        live_bytes: LiveBytes::of(segment.live_bytes.get()),
        tombstone_bytes: copy(&segment.tombstone_bytes),
        next_expiry_ms: copy(&segment.next_expiry_ms),
        sealed: AtomicBool::new(segment.is_sealed()),
        resident: AtomicBool::new(true),
        first_read: FirstRead::default(),
        used: Used::default(),
        damaged: AtomicBool::new(segment.is_damaged()),
        emptied: AtomicBool::new(false),
        taken_out: AtomicBool::new(false),
        is_missing: segment.is_missing,
        growing: Mutex::default(),
        faults: Faults::default(),
    }
}
