//! Snapshots: a copy of the log as it is at one moment, in constant time.
//!
//! Sealed segments do not change, so a second name for each is a copy. The copy gets an active
//! segment of its own: nothing is ever appended to a file that has two names.

use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, segment_path};
use super::{Log, checkpoint, error_at, manifest};
use crate::io::{Appender, Open};
use crate::{Error, Result};
use std::path::Path;

impl Log {
    /// Makes a log at `path` that holds all that was appended before some moment of the call.
    pub(crate) fn snapshot(&self, path: &Path) -> Result<()> {
        let _maintenance = self.maintenance.lock();
        let failed = |operation| move |error| error_at(operation, path, error);
        if self.storage.list(path).is_ok_and(|names| !names.is_empty()) {
            return Err(failed("create")(std::io::ErrorKind::AlreadyExists.into()));
        }
        self.seal()?;
        let next_sequence = self.lock_tail().next_sequence;
        let active = self.active_number.load(std::sync::atomic::Ordering::Acquire);
        let segments: Vec<_> =
            self.segments().in_order().into_iter().filter(|s| s.number < active).collect();
        self.sync()?;
        self.storage.create_dir(path).map_err(failed("create"))?;
        for segment in &segments {
            self.storage
                .link(&segment.path, &segment_path(path, segment.number))
                .map_err(|error| error_at("link", &segment.path, error))?;
        }
        let header = SegmentHeader {
            number: segments.last().map_or(0, |last| last.number) + 1,
            clears: false,
            first_sequence: next_sequence,
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
        manifest::write(self.storage.as_ref(), path, &self.identity, &self.nature.lock())
    }
}
