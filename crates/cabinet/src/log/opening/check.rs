//! Check: reads a log's files without opening it, verifies every checksum and visits every readable
//! record.

use super::check_has_no_segments;
use super::holes::{Fate, Promise, Walk};
use super::survey::{self, Survey};
use crate::io::{Open, Storage};
use crate::log::checkpoint::{self, Checkpoint};
use crate::log::manifest::{self, EngineParameters};
use crate::log::record::Record;
use crate::log::scan::{ScanError, UNWRITTEN};
use crate::log::segments::{SEGMENT_HEADER_BYTES, SegmentOffset};
use crate::log::{DatabaseId, error_at};
use crate::{Damage, Error, Result};
use std::io;
use std::path::Path;

const LOCK: &str = "lock";

/// Callback for each readable record, in the order of the log; gets its segment and offset.
pub(crate) type VisitRecord<'v> = dyn FnMut(SegmentOffset, &Record<'_>) -> Result<()> + 'v;

/// Counts of a walk through a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    pub(crate) segments: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Bytes of records that were being appended at the end. The next opening drops them.
    pub(crate) torn_bytes: u64,
}

impl Walked {
    /// Returns the sums of two walks through other segments.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            segments: self.segments + other.segments,
            records: self.records + other.records,
            bytes: self.bytes + other.bytes,
            torn_bytes: self.torn_bytes + other.torn_bytes,
        }
    }
}

/// A log that is only read. Meanwhile no process can open it.
pub(crate) struct Files<'s> {
    storage: &'s dyn Storage,
    directory: &'s Path,
    database_id: DatabaseId,
    pub(crate) parameters: EngineParameters,
    /// Numbers of the segments that exist.
    numbers: Vec<u64>,
    survey: Survey,
    /// Whether the log has every change that was made since it began or was cleared.
    pub(crate) is_whole: bool,
    promise: Promise,
    /// Damage of the manifest.
    damages: Vec<Damage>,
    _lock: Option<Lock>,
}

/// Lock that keeps other processes from opening a database.
pub(super) type Lock = Box<dyn std::any::Any + Send + Sync>;

/// Locks a database with these files, to read it only. If there is no lock file, none is created:
/// then only the directory is locked.
pub(super) fn lock_to_look(
    storage: &dyn Storage,
    directory: &Path,
    names: &[String],
) -> Result<Option<Lock>> {
    if !names.iter().any(|name| name == LOCK) {
        return storage.lock_directory(directory).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::InUse { path: directory.to_owned() },
            _ => error_at("lock", directory, error),
        });
    }
    storage.lock(&directory.join(LOCK)).map(Some).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::InUse { path: directory.to_owned() },
        _ => error_at("lock", directory, error),
    })
}

impl<'s> Files<'s> {
    pub(crate) fn open(storage: &'s dyn Storage, directory: &'s Path) -> Result<Self> {
        let names = storage.list(directory).map_err(|error| error_at("list", directory, error))?;
        let lock = lock_to_look(storage, directory, &names)?;
        let Some(manifest::Found { contents, damages, .. }) = manifest::read(storage, directory)?
        else {
            check_has_no_segments(directory, &names)?;
            return Err(error_at("open", directory, io::ErrorKind::NotFound.into()));
        };
        let (database_id, parameters) = (contents.database_id, contents.parameters);
        // A damaged checkpoint proves nothing, and is reported elsewhere.
        let checkpoint = Checkpoint::read(storage, directory, &database_id).ok().flatten();
        let place = survey::checkpoint_offset(checkpoint.as_ref());
        let mut promise = Promise::new(&contents, storage.page_cache_id(directory), place);
        let survey = Survey::of(storage, directory, &contents, &mut promise)?;
        let is_whole = survey.is_whole(&contents);
        let numbers = survey.extents(&database_id).iter().map(|extent| extent.number).collect();
        let _lock = lock;
        Ok(Self {
            storage,
            directory,
            database_id,
            parameters,
            numbers,
            survey,
            is_whole,
            promise,
            damages,
            _lock,
        })
    }

    pub(crate) fn database_id(&self) -> &DatabaseId {
        &self.database_id
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory
    }

    /// Returns whether there is a file for a checkpoint, even a damaged one.
    pub(crate) fn has_checkpoint(&self) -> bool {
        self.storage.open(&self.directory.join(checkpoint::NAME), Open::Existing).is_ok()
    }

    /// Returns the numbers of the segments, in their order.
    pub(crate) fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Returns the checkpoint, if there is one.
    pub(crate) fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        Checkpoint::read(self.storage, self.directory, &self.database_id)
    }

    /// Checks the checkpoint, if there is one.
    pub(crate) fn check_checkpoint(&self, report: &mut dyn FnMut(Damage)) -> Result<()> {
        let check = || {
            if let Some(mut checkpoint) =
                Checkpoint::read(self.storage, self.directory, &self.database_id)?
            {
                while checkpoint.next_block()?.is_some() {}
            }
            Ok(())
        };
        match check() {
            Err(Error::Corrupted { file, offset, what }) => {
                report(Damage { file, offset, what });
                Ok(())
            }
            result => result,
        }
    }

    /// Records that the log had been synced past a record at this point, because the checkpoint
    /// lists it.
    pub(crate) fn note_listed(&mut self, place: SegmentOffset) {
        self.promise.prove((place.0, place.1 + 1));
    }

    /// Calls `visit` with every readable record of the segments for which `wanted` returns true,
    /// and `report` with all damage in them. Headers are checked in all segments.
    pub(crate) fn walk_those(
        &self,
        wanted: &dyn Fn(u64) -> bool,
        visit: &mut VisitRecord<'_>,
        report: &mut dyn FnMut(Damage),
    ) -> Result<Walked> {
        let mut walked = Walked::default();
        for damage in self.damages.iter().chain(&self.survey.damages) {
            report(damage.clone());
        }
        let mut walk = Walk::new(self.survey.extents(&self.database_id), self.promise);
        for index in 0..walk.extents().len() {
            let extent = walk.extents()[index].clone();
            if !wanted(extent.number) {
                continue;
            }
            walked.segments += 1;
            let Walked { records, bytes, torn_bytes, .. } = &mut walked;
            let walked = walk.segment(
                index,
                SEGMENT_HEADER_BYTES as u64,
                &mut |offset, record, own| {
                    *records += 1;
                    *bytes += own.len() as u64;
                    visit((extent.number, offset), record)
                },
                &mut |hole| {
                    match hole.fate {
                        Fate::Damaged => report(hole.damage()),
                        Fate::Unfilled if hole.what == UNWRITTEN => {}
                        Fate::Unfilled | Fate::Torn | Fate::Lost => *torn_bytes += hole.bytes,
                    }
                    Ok(())
                },
            );
            walked.map_err(|error| match error {
                ScanError::Read(error) => error_at("read", &extent.path, error),
                ScanError::Visit(error) => error,
            })?;
        }
        Ok(walked)
    }
}
