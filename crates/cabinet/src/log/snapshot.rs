//! Snapshots: a copy of the log as it is at one moment, in constant time.
//!
//! Sealed segments do not change, so a second name for each is a copy. The copy gets an active
//! segment of its own: nothing is ever appended to a file that has two names. On another file
//! system files cannot have one: there they are copied, and may be removed meanwhile, since they
//! are open.

use super::room::Sealed;
use super::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, segment_path};
use super::survey::DAMAGED_INFIX;
use super::{Log, checkpoint, error_at, manifest};
use crate::io::{Appender, File, Open, directory_of};
use crate::{Error, Result, SnapshotBarrier};
use parking_lot::MutexGuard;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are copied at a time.
const COPIED_BYTES: usize = 1 << 20;

/// A file that the copy is to have.
struct Source {
    from: PathBuf,
    file: Arc<dyn File>,
    to: PathBuf,
}

impl Log {
    /// Makes a log at `path` that holds all that was appended before `cut` called what it is given,
    /// and nothing that was appended later.
    pub(crate) fn snapshot(&self, path: &Path, cut: &mut SnapshotBarrier<'_>) -> Result<()> {
        self.check_is_free(path)?;
        let (maintenance, sealed) = self.cut(cut)?;
        // Another copy may have been made there meanwhile.
        self.check_is_free(path)?;
        // Before they have a second name, so that nothing of the copy changes.
        self.cut_sealed()?;
        self.sync()?;
        let is_new = self.storage.list(path).is_err();
        self.storage.create_dir(path).map_err(|error| error_at("create", path, error))?;
        let mut made = Vec::new();
        let filled = self.fill_snapshot(path, sealed, maintenance, &mut made);
        if filled.is_err() {
            // What cannot be removed makes no database.
            for file in made {
                let _ = self.storage.remove(&file);
            }
            if is_new {
                let _ = self.storage.remove_dir(path);
            }
        }
        filled
    }

    /// Fails if there is anything at `path`.
    fn check_is_free(&self, path: &Path) -> Result<()> {
        if self.storage.list(path).is_ok_and(|names| !names.is_empty()) {
            return Err(error_at("create", path, io::ErrorKind::AlreadyExists.into()));
        }
        Ok(())
    }

    /// Seals the active segment when `cut` says so. No segment goes before the guard does.
    fn cut(&self, cut: &mut SnapshotBarrier<'_>) -> Result<(MutexGuard<'_, ()>, Sealed)> {
        loop {
            let maintenance = self.maintenance.lock();
            let mut sealed = None;
            if cut(&mut || {
                sealed = Some(self.seal()?);
                Ok(())
            })? && let Some(sealed) = sealed
            {
                return Ok((maintenance, sealed));
            }
            // The thread for which `cut` waited may be waiting for this lock.
            MutexGuard::unlock_fair(maintenance);
        }
    }

    /// `made` gets the files that are there then, also if it fails.
    fn fill_snapshot(
        &self,
        path: &Path,
        sealed: Sealed,
        maintenance: MutexGuard<'_, ()>,
        made: &mut Vec<PathBuf>,
    ) -> Result<()> {
        let segments = self.segments().in_order();
        let segments: Vec<_> = segments.into_iter().filter(|s| s.number < sealed.before).collect();
        // The first of all files: from now on the place is taken.
        // Before any of them can be removed.
        let contents = self.contents_of_copy(sealed);
        let clears = contents.clears == sealed.before;
        self.begin_own_segment(path, sealed, segments.last().map(|last| &**last), clears, made)?;
        let mut there = segments;
        there.retain(|segment| !segment.is_missing);
        let sources = self.sources(path, &there)?;
        let mut left = &sources[..];
        while let Some((source, rest)) = left.split_first() {
            match self.storage.link(&source.from, &source.to) {
                Ok(()) => made.push(source.to.clone()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(error_at("link", &source.from, error));
                }
                Err(_) => break,
            }
            left = rest;
        }
        // To copy may take its time, for which nobody shall wait.
        drop(maintenance);
        for source in left {
            self.copy(source, made).map_err(|error| error_at("copy", &source.from, error))?;
        }
        // The manifest comes last: without it the directory is no database yet.
        made.extend([manifest::SECOND_NAME, manifest::NAME].map(|name| path.join(name)));
        manifest::write(self.storage.as_ref(), path, contents)?;
        let parent = directory_of(path);
        self.storage.sync_dir(parent).map_err(|error| error_at("sync", parent, error))
    }

    /// What the manifest of the copy says: it is as if it had been closed at the beginning of its
    /// own segment. A segment that is missing is so in the copy, too.
    fn contents_of_copy(&self, sealed: Sealed) -> manifest::Contents {
        let own = sealed.before;
        let mut contents = self.manifest.contents();
        contents.segments.retain(|number, _| *number < own);
        if contents.clears > own {
            // The database was cleared after the moment that the copy is of.
            contents.clears = 0;
        }
        contents.segments.insert(own, 0);
        let offset = SEGMENT_HEADER_BYTES as u64;
        contents.state = manifest::State::Closed { number: own, offset };
        // The copy's own segment is synced as far as it goes, not what will be appended to it.
        contents.synced_through = own.saturating_sub(1);
        contents.next_sequence = sealed.next_sequence;
        contents.boot = [0; 16];
        contents
    }

    /// The segments, the checkpoint if there is one, and what was kept aside, all of them open.
    fn sources(&self, path: &Path, segments: &[Arc<Segment>]) -> Result<Vec<Source>> {
        let source = |segment: &Arc<Segment>| Source {
            from: segment.path.clone(),
            file: Arc::clone(&segment.file),
            to: segment_path(path, segment.number),
        };
        let mut sources: Vec<Source> = segments.iter().map(source).collect();
        // It is never written to again either: the next one takes its name.
        let from = self.directory.join(checkpoint::NAME);
        match self.storage.open(&from, Open::Existing) {
            Ok(file) => sources.push(Source { from, file, to: path.join(checkpoint::NAME) }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error_at("open", &from, error)),
        }
        self.add_kept_aside(path, &mut sources)?;
        Ok(sources)
    }

    /// Adds the files in which openings have kept damage aside: the copy lacks what they held, too,
    /// and must not be taken for whole.
    fn add_kept_aside(&self, path: &Path, sources: &mut Vec<Source>) -> Result<()> {
        let listed = self.storage.list(&self.directory);
        let names = listed.map_err(|error| error_at("list", &self.directory, error))?;
        for name in names.iter().filter(|name| name.contains(DAMAGED_INFIX)) {
            let from = self.directory.join(name);
            match self.storage.open(&from, Open::Existing) {
                Ok(file) => sources.push(Source { from, file, to: path.join(name) }),
                // Somebody has just accepted the loss.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error_at("open", &from, error)),
            }
        }
        Ok(())
    }

    fn begin_own_segment(
        &self,
        path: &Path,
        sealed: Sealed,
        last: Option<&Segment>,
        clears: bool,
        made: &mut Vec<PathBuf>,
    ) -> Result<()> {
        // Not the number of a segment that was removed: a checkpoint may still know that one.
        let number = sealed.before;
        let previous = last.filter(|last| last.number + 1 == number);
        let header = SegmentHeader {
            number,
            clears,
            is_behind_pages: false,
            first_sequence: sealed.next_sequence,
            previous_bytes: previous.map_or(0, Segment::bytes),
            capacity: self.settings.segment_bytes_min as u64,
        };
        let own = segment_path(path, header.number);
        let mut begin = || -> io::Result<bool> {
            let file = self.storage.open(&own, Open::New)?;
            made.push(own.clone());
            let map = file.map(SEGMENT_HEADER_BYTES, 0)?;
            file.allocate(&map, SEGMENT_HEADER_BYTES as u64)?;
            let begun = Appender::of(&map).is_some_and(|mut appender| {
                appender.append(&[&header.encode(&self.identity)], SEGMENT_HEADER_BYTES)
            });
            file.sync()?;
            Ok(begun)
        };
        if !begin().map_err(|error| error_at("create", &own, error))? {
            return Err(Error::NoSpace { path: own });
        }
        Ok(())
    }

    fn copy(&self, source: &Source, made: &mut Vec<PathBuf>) -> io::Result<()> {
        let copy = self.storage.open(&source.to, Open::New)?;
        made.push(source.to.clone());
        let mut buffer = vec![0; COPIED_BYTES];
        let mut at = 0;
        loop {
            // Files of a log are read at random otherwise.
            source.file.will_read(at, 2 * COPIED_BYTES as u64);
            let bytes = source.file.read_at(&mut buffer, at)?;
            if bytes == 0 {
                return copy.sync();
            }
            copy.write_at(&buffer[..bytes], at)?;
            at += bytes as u64;
        }
    }
}
