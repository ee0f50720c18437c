//! Opening a log: recovers the files that the last process left.
//!
//! 1. The manifest names the segments that must exist; see [`survey`].
//! 2. Segments are opened, oldest first. Those before the last one that clears are removed. A
//!    missing one gets a placeholder, so that reads of its records are errors and do not find
//!    nothing.
//! 3. If there is an undamaged checkpoint, the engine gets its index as it was at some position,
//!    and the log is replayed from there. Otherwise it is replayed from the beginning.
//! 4. Holes are classified, see [`holes`]. Append blocks that were not filled are filled. A torn
//!    tail is cut. Damage is reported, unreadable bytes are kept aside, and the replay continues
//!    after them. If the disk cannot read some bytes, nothing is written there.

pub(crate) mod check;
mod compressions;
mod finish;
pub(crate) mod holes;
mod identify;
mod kept_aside;
pub(crate) mod remains;
mod repair;
mod segments;
mod survey;

pub(super) use kept_aside::DAMAGED_INFIX;

use super::checkpoint::{self, Checkpoint};
use super::record::Record;
use super::scan::ScanError;
use super::segments::{Faults, Location, Segment, SegmentOffset, Segments, segment_number};
use super::{DatabaseId, EngineParameters, Settings, error_at, manifest};
use crate::base::compress;
use crate::io::{File, Storage, directory_of};
use crate::{Damage, Error, Result};
use holes::{Extent, Fate, Hole, Promise, Walk};
use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes between two messages on the progress of a replay.
const PROGRESS_BYTES: u64 = 4 << 30;

/// A log being opened.
pub(crate) struct Recovery {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    settings: Settings,
    pub(crate) database_id: DatabaseId,
    /// Kind and parameters that the database was created with. Only the parameters may differ from
    /// the requested ones.
    pub(crate) parameters: EngineParameters,
    lock: Box<dyn Any + Send + Sync>,
    manifest: manifest::Found,
    promise: Promise,
    extents: Vec<Extent>,
    pub(crate) segments: Segments,
    pub(crate) checkpoint: Option<Checkpoint>,
    next_sequence: u64,
    replayed: bool,
    replay_from: (u64, u64),
    /// Number of the oldest segment, if the log began with it or was cleared by it. A checkpoint
    /// from before it is void.
    pub(crate) whole_from: Option<u64>,
    /// Whether no segment with changes was removed since then, so that replaying the whole log
    /// gives the whole index.
    pub(crate) is_whole: bool,
    /// Numbers of segments that hold pages of leaves and no change, according to the next segment.
    without_changes: BTreeSet<u64>,
    /// Point after the last record that the checkpoint lists, of those that were noted.
    listed_end: SegmentOffset,
    /// Holes that the replay has met, in the order of the log.
    pub(crate) holes: Vec<Hole>,
    damages: Vec<Damage>,
    /// Damage of an index that is stored in runs on the disk.
    pub(crate) index_faults: Arc<Faults>,
}

impl Recovery {
    /// Opens the log in the directory, or creates a new one with these parameters. A log of another
    /// kind is refused.
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        directory: &Path,
        settings: Settings,
        options: &crate::Options,
        parameters: EngineParameters,
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
            Some(found) if found.contents.parameters.kind != parameters.kind => {
                return Err(Error::WrongKind {
                    path: directory.to_owned(),
                    found: found.contents.parameters.kind.described().to_owned(),
                    wanted: parameters.kind.described().to_owned(),
                });
            }
            Some(found) => {
                found.sync(storage.as_ref(), directory)?;
                found
            }
            None => create(storage.as_ref(), directory, options, &parameters)?,
        };
        let database_id = found.contents.database_id;
        let checkpoint = Checkpoint::open(storage.as_ref(), directory, &database_id)?;
        let place = survey::checkpoint_offset(checkpoint.as_ref());
        let promise = Promise::new(&found.contents, storage.page_cache_id(directory), place);
        let mut recovery = Self {
            directory: directory.to_owned(),
            settings,
            database_id,
            parameters: found.contents.parameters,
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
            is_whole: true,
            without_changes: BTreeSet::new(),
            listed_end: (0, 0),
            holes: Vec::new(),
            index_faults: Arc::default(),
            storage,
        };
        recovery.open_segments()?;
        recovery.require_compressions()?;
        if let Some(checkpoint) = &recovery.checkpoint
            && !recovery.reaches(checkpoint.replay_segment, checkpoint.replay_offset)
        {
            // That part of the log was made durable before the checkpoint.
            let error = checkpoint.corrupted("the log that it ends with is missing");
            recovery.distrust_checkpoint(&error);
        }
        if let Some(checkpoint) = &recovery.checkpoint {
            recovery.next_sequence = recovery.next_sequence.max(checkpoint.next_sequence);
            recovery.replay_from = (checkpoint.replay_segment, checkpoint.replay_offset);
        }
        Ok(recovery)
    }

    /// Returns whether the log continues after the checkpoint, or the checkpoint lists segments
    /// that are gone.
    pub(crate) fn goes_on(&self) -> bool {
        let place = self.replay_from;
        let goes_on = |extent: &Extent| (extent.number, extent.length) > place;
        self.checkpoint.is_none() || self.lists_what_is_gone() || self.extents.iter().any(goes_on)
    }

    /// Returns whether the checkpoint lists segments that are gone.
    pub(crate) fn lists_what_is_gone(&self) -> bool {
        let is_there = |number| self.segments.iter().any(|segment| segment.number == number);
        let lines = self.checkpoint.as_ref().map_or(&[][..], |checkpoint| &checkpoint.segments);
        lines.iter().any(|line| !is_there(line.number))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns a function that returns the number of free bytes of the disk.
    pub(crate) fn free_space(&self) -> impl Fn() -> u64 + use<> {
        let (storage, directory) = (Arc::clone(&self.storage), self.directory.clone());
        move || storage.free_bytes(&directory).unwrap_or(u64::MAX)
    }

    /// Returns a function that creates a file without a name, for an index that does not fit into
    /// memory.
    pub(crate) fn run_file_maker(&self) -> impl Fn() -> Result<(Arc<dyn File>, PathBuf)> + use<> {
        let (storage, directory) = (Arc::clone(&self.storage), self.directory.clone());
        move || checkpoint::nameless_file(storage.as_ref(), &directory)
    }

    /// Returns whether the log has reached this point, even if the segment is gone since.
    fn reaches(&self, number: u64, offset: u64) -> bool {
        let mut newer = self.segments.iter().filter(|segment| segment.number >= number).peekable();
        newer.peek().is_some()
            && newer.all(|segment| {
                segment.number > number || segment.is_missing || segment.bytes() >= offset
            })
    }

    /// Records damage that an engine has found.
    pub(crate) fn report(&mut self, damage: Damage) {
        report_damage(&damage);
        self.damages.push(damage);
    }

    /// Records that the checkpoint lists a record at this point: it was on the disk before the
    /// checkpoint was.
    pub(crate) fn note_listed(&mut self, place: SegmentOffset) {
        let end = (place.0, place.1 + 1);
        self.promise.prove(end);
        self.listed_end = self.listed_end.max(end);
    }

    /// Drops a damaged checkpoint, so that the log is replayed from the beginning.
    pub(crate) fn distrust_checkpoint(&mut self, error: &Error) {
        tracing::warn!("the checkpoint is ignored: {error}");
        self.forget_checkpoint();
    }

    /// Drops a checkpoint that is merely too old.
    pub(crate) fn forget_checkpoint(&mut self) {
        self.checkpoint = None;
        self.replay_from = (0, 0);
        for segment in self.segments.iter() {
            segment.live_bytes.set(0);
            segment.tombstone_bytes.store(0, Ordering::Relaxed);
            segment.next_expiry_ms.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Calls `visit` with every record after the checkpoint's position, in order.
    pub(crate) fn replay(
        &mut self,
        visit: &mut dyn FnMut(&Segments, &Segment, Location, &Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let (first, first_offset) = self.replay_from;
        let extents = std::mem::take(&mut self.extents);
        let mut walk = Walk::new(extents, self.promise);
        let to_go = walk.extents().iter().filter(|extent| extent.number >= first);
        let total: u64 = to_go.map(Extent::scanned_end).sum();
        let (mut done, mut reported) = (0, 0);
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
                    compress::require(record.compression)?;
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
            self.repair(&segment, &extent, end, &holes)?;
            self.holes.append(&mut holes);
            done += segment.bytes();
            if done - reported >= PROGRESS_BYTES {
                reported = done;
                tracing::info!("replayed {} of {} MiB of the log", done >> 20, total >> 20);
            }
        }
        Ok(())
    }

    /// Returns the points after the checkpoint's position whose bytes an earlier, unfinished
    /// opening has kept aside. Later records may depend on the lost ones.
    pub(crate) fn kept_aside(&self) -> Result<Vec<(SegmentOffset, Fate)>> {
        let failed = |error| error_at("list", &self.directory, error);
        let names = self.storage.list(&self.directory).map_err(failed)?;
        // Segments that were removed or cleared since are no longer part of the log.
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

    /// Returns whether the database was closed, and no change came after the checkpoint.
    fn has_all_changes(&self) -> bool {
        let contents = &self.manifest.contents;
        let is_closed = matches!(contents.state, manifest::State::Closed { .. });
        let checkpoint = self.checkpoint.as_ref();
        is_closed && checkpoint.is_some_and(|one| one.next_sequence >= contents.next_sequence)
    }

    /// Returns whether no change is lost with this segment.
    pub(crate) fn is_without_changes(&self, number: u64) -> bool {
        self.without_changes.contains(&number)
    }

    /// Returns the points from the checkpoint's position on at which segments with changes are
    /// missing, and the fate of their records from there on.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (SegmentOffset, Fate)> {
        let (first, first_offset) = self.replay_from;
        let has_all = self.has_all_changes();
        let missing = self.segments.iter().filter(move |segment| {
            segment.is_missing && !has_all && !self.is_without_changes(segment.number)
        });
        missing.filter(move |segment| segment.number >= first).map(move |segment| {
            let offset = if segment.number == first { first_offset } else { 0 };
            let place = (segment.number, offset);
            let is_damage = self.promise.covers(place, true, false);
            (place, if is_damage { Fate::Damaged } else { Fate::Lost })
        })
    }
}

/// Fails if a directory without a manifest has segments: it is a database that has lost it.
fn check_has_no_segments(directory: &Path, names: &[String]) -> Result<()> {
    match names.iter().any(|name| segment_number(name).is_some()) {
        false => Ok(()),
        true => Err(Error::Corrupted {
            file: directory.join(manifest::NAME),
            offset: 0,
            what:
                "it is missing, and so is its copy, but there are segments: the database cannot be \
                   opened; `tyrant salvage` copies what can be read into another"
                    .into(),
        }),
    }
}

/// Creates a new database in a directory without a manifest, unless it holds segments.
fn create(
    storage: &dyn Storage,
    directory: &Path,
    options: &crate::Options,
    parameters: &EngineParameters,
) -> Result<manifest::Found> {
    let names = storage.list(directory).map_err(|error| error_at("list", directory, error))?;
    check_has_no_segments(directory, &names)?;
    if !options.create && !options.truncate {
        return Err(error_at("open", directory, io::ErrorKind::NotFound.into()));
    }
    let found = manifest::create(storage, directory, parameters)?;
    // The directory itself may be new.
    let parent = directory_of(directory);
    storage.sync_dir(parent).map_err(|error| error_at("sync", parent, error))?;
    Ok(found)
}

fn report_damage(damage: &Damage) {
    tracing::error!("damage: {damage}");
}
