//! Snapshots: copies of a log as it is at one moment, made in constant time.
//!
//! Sealed segments do not change, so a hard link to each is a copy. The copy gets an active segment
//! of its own: a file with two names is never appended to. Files cannot be linked across file
//! systems: there they are copied. They may be removed meanwhile, because they are open.

use crate::base::sync::MutexGuard;
use crate::io::{Appender, File, Open, Storage, directory_of};
use crate::log::opening::DAMAGED_INFIX;
use crate::log::segments::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, segment_path};
use crate::log::writer::Sealed;
use crate::log::{Log, checkpoint, error_at, manifest};
use crate::{Error, Result, SnapshotBarrier};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are copied at a time.
const COPIED_BYTES: usize = 1 << 20;

/// A snapshot that is being made.
struct Snapshot<'l> {
    log: &'l Log,
    storage: &'l dyn Storage,
    path: &'l Path,
    sealed: Sealed,
    /// Files that were created so far.
    made: Vec<PathBuf>,
}

/// A file that the copy must have.
struct Source {
    from: PathBuf,
    file: Arc<dyn File>,
    to: PathBuf,
}

impl Log {
    /// Makes a log at `path` that holds everything appended before `barrier` called its argument,
    /// and nothing that was appended later.
    pub(in crate::log) fn snapshot(
        &self,
        path: &Path,
        barrier: &mut SnapshotBarrier<'_>,
    ) -> Result<()> {
        let storage = self.segments.directory().storage();
        check_is_free(storage, path)?;
        let (maintenance, sealed) = self.seal_at_barrier(barrier)?;
        // Another snapshot may have been made there meanwhile.
        check_is_free(storage, path)?;
        // Segments are cut and synced before they have a second name, so that no file of the copy
        // changes.
        self.cut_sealed()?;
        self.sync()?;
        let is_new = storage.list(path).is_err();
        let created = storage.create_dir(path).map_err(|error| error_at("create", path, error));
        created.map_err(of_copy)?;
        let mut snapshot = Snapshot { log: self, storage, path, sealed, made: Vec::new() };
        let filled = snapshot.fill(maintenance);
        if filled.is_err() {
            // Files that cannot be removed do not form a database.
            for file in snapshot.made {
                let _ = storage.remove(&file);
            }
            if is_new {
                let _ = storage.remove_dir(path);
            }
        }
        filled.map_err(of_copy)
    }

    /// Seals the active segment when `barrier` calls its argument. No segment is removed until the
    /// guard is dropped.
    fn seal_at_barrier(
        &self,
        barrier: &mut SnapshotBarrier<'_>,
    ) -> Result<(MutexGuard<'_, ()>, Sealed)> {
        loop {
            let maintenance = self.maintenance.pause();
            let mut sealed = None;
            if barrier(&mut || {
                sealed = Some(self.seal()?);
                Ok(())
            })? && let Some(sealed) = sealed
            {
                return Ok((maintenance, sealed));
            }
            // The thread for which `barrier` waited may be waiting for this lock.
            MutexGuard::unlock_fair(maintenance);
        }
    }
}

/// Returns the error of a file of a copy. If its file system is full, that of the database may not
/// be, and no cap of the database is the cause.
fn of_copy(error: Error) -> Error {
    match error {
        Error::NoSpace { path } => {
            Error::Io { operation: "write", path, source: io::ErrorKind::StorageFull.into() }
        }
        other => other,
    }
}

/// Fails if `path` exists and is not empty.
fn check_is_free(storage: &dyn Storage, path: &Path) -> Result<()> {
    if storage.list(path).is_ok_and(|names| !names.is_empty()) {
        let exists = io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is something already; choose another path",
        );
        return Err(error_at("create", path, exists));
    }
    Ok(())
}

impl Snapshot<'_> {
    fn fill(&mut self, maintenance: MutexGuard<'_, ()>) -> Result<()> {
        let mut segments = self.log.segments().in_order();
        segments.retain(|segment| segment.number < self.sealed.before);
        // The contents are read before any segment can be removed. The copy's own segment is its
        // first file: from then on `path` is occupied.
        let contents = self.contents();
        let clears = contents.clears == self.sealed.before;
        self.begin_own_segment(segments.last().map(|last| &**last), clears)?;
        segments.retain(|segment| !segment.is_missing);
        let sources = self.sources(&segments)?;
        let mut left = &sources[..];
        while let Some((source, rest)) = left.split_first() {
            match self.storage.link(&source.from, &source.to) {
                Ok(()) => self.made.push(source.to.clone()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(error_at("create", &source.to, error));
                }
                Err(_) => break,
            }
            left = rest;
        }
        // Copying may take long, so the guard is dropped first.
        drop(maintenance);
        for source in left {
            self.copy(source)?;
        }
        // The manifest comes last: without it the directory is not a database yet.
        let names = [manifest::SECOND_NAME, manifest::NAME];
        self.made.extend(names.map(|name| self.path.join(name)));
        manifest::write(self.storage, self.path, contents)?;
        let parent = directory_of(self.path);
        self.storage.sync_dir(parent).map_err(|error| error_at("sync", parent, error))
    }

    /// Returns the contents of the copy's manifest, as if the copy had been closed at the beginning
    /// of its own segment. A missing segment is missing in the copy, too.
    fn contents(&self) -> manifest::Contents {
        let own = self.sealed.before;
        let mut contents = self.log.manifest.contents();
        contents.segments.retain(|number, _| *number < own);
        if contents.clears > own {
            // The database was cleared after the moment of the snapshot.
            contents.clears = 0;
        }
        contents.segments.insert(own, 0);
        let offset = SEGMENT_HEADER_BYTES as u64;
        contents.state = manifest::State::Closed { number: own, offset };
        // The copy's own segment is synced up to its header only.
        contents.synced_through = own.saturating_sub(1);
        contents.next_sequence = self.sealed.next_sequence;
        contents.page_cache = [0; 16];
        contents
    }

    /// Returns the segments, the checkpoint if there is one, and the files kept aside, all of them
    /// open.
    fn sources(&self, segments: &[Arc<Segment>]) -> Result<Vec<Source>> {
        let source = |segment: &Arc<Segment>| Source {
            from: segment.path.clone(),
            file: Arc::clone(&segment.file),
            to: segment_path(self.path, segment.number),
        };
        let mut sources: Vec<Source> = segments.iter().map(source).collect();
        // The checkpoint is never written to again either: the next one replaces it by name.
        let from = self.log.directory().join(checkpoint::NAME);
        match self.storage.open(&from, Open::Existing) {
            Ok(file) => sources.push(Source { from, file, to: self.path.join(checkpoint::NAME) }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error_at("open", &from, error)),
        }
        self.add_kept_aside(&mut sources)?;
        Ok(sources)
    }

    /// Adds the files in which openings have kept damage aside: the copy lacks the same records,
    /// and must not be taken for whole.
    fn add_kept_aside(&self, sources: &mut Vec<Source>) -> Result<()> {
        let listed = self.storage.list(self.log.directory());
        let names = listed.map_err(|error| error_at("list", self.log.directory(), error))?;
        for name in names.iter().filter(|name| name.contains(DAMAGED_INFIX)) {
            let from = self.log.directory().join(name);
            match self.storage.open(&from, Open::Existing) {
                Ok(file) => sources.push(Source { from, file, to: self.path.join(name) }),
                // The loss was accepted just now: the file was removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error_at("open", &from, error)),
            }
        }
        Ok(())
    }

    fn begin_own_segment(&mut self, last: Option<&Segment>, clears: bool) -> Result<()> {
        // The number is not that of a removed segment, because a checkpoint may still list that
        // one.
        let number = self.sealed.before;
        let previous = last.filter(|last| last.number + 1 == number);
        let header = SegmentHeader {
            number,
            is_bound: true,
            clears,
            is_behind_pages: false,
            first_sequence: self.sealed.next_sequence,
            previous_bytes: previous.map_or(0, Segment::bytes),
            capacity: self.log.settings.segment_bytes_min as u64,
        };
        let own = segment_path(self.path, header.number);
        let mut begin = || -> io::Result<bool> {
            let file = self.storage.open(&own, Open::New)?;
            self.made.push(own.clone());
            let map = file.map(SEGMENT_HEADER_BYTES, 0)?;
            file.allocate(&map, SEGMENT_HEADER_BYTES as u64)?;
            let begun = Appender::of(&map).is_some_and(|mut appender| {
                appender.append(&[&header.encode(&self.log.database_id)], SEGMENT_HEADER_BYTES)
            });
            file.sync()?;
            Ok(begun)
        };
        if !begin().map_err(|error| error_at("create", &own, error))? {
            return Err(Error::NoSpace { path: own });
        }
        Ok(())
    }

    /// Copies a file. An error names the one of the two files that has failed.
    fn copy(&mut self, source: &Source) -> Result<()> {
        let to = &source.to;
        let failed = |operation: &'static str| move |error| error_at(operation, to, error);
        let copy = self.storage.open(&source.to, Open::New).map_err(failed("create"))?;
        self.made.push(source.to.clone());
        let mut buffer = vec![0; COPIED_BYTES];
        let mut at = 0;
        loop {
            // Readahead is off by default, because files of a log are read at random.
            source.file.will_read(at, 2 * COPIED_BYTES as u64);
            let read = source.file.read_at(&mut buffer, at);
            let bytes = read.map_err(|error| error_at("read", &source.from, error))?;
            if bytes == 0 {
                return copy.sync().map_err(failed("sync"));
            }
            copy.write_at(&buffer[..bytes], at).map_err(failed("write"))?;
            at += bytes as u64;
        }
    }
}
