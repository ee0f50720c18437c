//! Snapshots: a copy of the log as it is at one moment, in constant time.
//!
//! Sealed segments do not change, so a second name for each is a copy. The copy gets an active
//! segment of its own: nothing is ever appended to a file that has two names.

use super::room::Sealed;
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_path};
use super::{Log, checkpoint, error_at, manifest};
use crate::io::{Appender, Open};
use crate::{Cut, Error, Result};
use parking_lot::MutexGuard;
use std::path::Path;

impl Log {
    /// Makes a log at `path` that holds all that was appended before `cut` called what it is given,
    /// and nothing that was appended later.
    pub(crate) fn snapshot(&self, path: &Path, cut: &mut Cut<'_>) -> Result<()> {
        let failed = |operation| move |error| error_at(operation, path, error);
        if self.storage.list(path).is_ok_and(|names| !names.is_empty()) {
            return Err(failed("create")(std::io::ErrorKind::AlreadyExists.into()));
        }
        let (_maintenance, sealed) = self.cut(cut)?;
        // Before they have a second name, so that nothing of the copy changes.
        self.cut_sealed()?;
        self.sync()?;
        self.storage.create_dir(path).map_err(failed("create"))?;
        let made = self.fill_snapshot(path, sealed);
        if made.is_err() {
            // Nothing else was there. What cannot be removed makes no database.
            for name in self.storage.list(path).unwrap_or_default() {
                let _ = self.storage.remove(&path.join(name));
            }
        }
        made
    }

    /// Seals the active segment when `cut` says so. No segment goes before the guard does.
    fn cut(&self, cut: &mut Cut<'_>) -> Result<(MutexGuard<'_, ()>, Sealed)> {
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
            // Whoever `cut` waited for may be waiting for this lock.
            MutexGuard::unlock_fair(maintenance);
        }
    }

    fn fill_snapshot(&self, path: &Path, sealed: Sealed) -> Result<()> {
        let segments = self.segments().in_order();
        let segments: Vec<_> = segments.into_iter().filter(|s| s.number < sealed.before).collect();
        for segment in &segments {
            self.storage
                .link(&segment.path, &segment_path(path, segment.number))
                .map_err(|error| error_at("link", &segment.path, error))?;
        }
        let header = SegmentHeader {
            number: segments.last().map_or(0, |last| last.number) + 1,
            clears: false,
            first_sequence: sealed.next_sequence,
            previous_bytes: segments.last().map_or(0, |last| last.bytes()),
            capacity: self.settings.segment_bytes_min as u64,
        };
        let own = segment_path(path, header.number);
        let begin = || -> std::io::Result<bool> {
            let file = self.storage.open(&own, Open::New)?;
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
        // It is never written to again either: the next one takes its name.
        let checkpoint = self.directory.join(checkpoint::NAME);
        match self.storage.link(&checkpoint, &path.join(checkpoint::NAME)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error_at("link", &checkpoint, error));
            }
            _ => {}
        }
        // The manifest comes last: without it the directory is no database yet.
        manifest::write(self.storage.as_ref(), path, &self.identity, &self.nature.lock())?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        self.storage.sync_dir(parent).map_err(|error| error_at("sync", parent, error))
    }
}
