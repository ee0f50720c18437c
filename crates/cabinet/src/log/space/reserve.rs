//! The reserve: blocks set aside for compaction, for when the disk is full.

use super::Space;
use crate::io::Open;
use crate::log::segments::{Directory, SegmentSet};
use std::io;
use std::sync::atomic::Ordering;

/// Name of the file whose blocks are the reserve.
const NAME: &str = "reserve";

impl Space {
    /// Sets blocks aside that compaction may have when the disk is full: a segment, so that one of
    /// which little is dead can be moved. Better none than a refusal to open. With a cap there
    /// is none: eviction makes space without moving anything.
    pub(in crate::log) fn keep_reserve(&self, segments: &SegmentSet) {
        let (storage, path) =
            (segments.directory().storage(), segments.directory().path().join(NAME));
        if self.quota.is_capped() {
            self.is_reserved.store(false, Ordering::Release);
            // Mostly there was none.
            let _ = storage.remove(&path);
            return;
        }
        if self.is_reserved.load(Ordering::Acquire) {
            return;
        }
        let bytes = self.next_capacity(segments);
        let make = || -> io::Result<()> {
            let file = match storage.open(&path, Open::New) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    storage.open(&path, Open::Existing)?
                }
                file => file?,
            };
            file.allocate(&file.map(bytes, 0)?, bytes as u64)
        };
        match make() {
            Ok(()) => self.is_reserved.store(true, Ordering::Release),
            Err(error) => {
                tracing::debug!("no reserve: {error}");
                let _ = storage.remove(&path);
            }
        }
    }

    /// Gives the reserve up. Returns whether there was one.
    pub(in crate::log) fn release_reserve(&self, directory: &Directory) -> bool {
        self.is_reserved.swap(false, Ordering::AcqRel)
            && directory.storage().remove(&directory.path().join(NAME)).is_ok()
    }
}
