//! The reserve: blocks set aside for compaction, for when the disk is full.
//!
//! Compaction gives the reserve up when it finds no other room for what it moves. The space of the
//! segment that it removes then goes into the reserve again, before anything else may have it: all
//! of it, if it is too little for a whole reserve. Until the reserve is whole, writers allocate
//! nothing. Otherwise tombstones could take its place, and the next segment could not be moved.

use super::Space;
use crate::io::Open;
use crate::log::is_full;
use crate::log::segments::{Directory, SegmentSet};
use crate::sync::Mutex;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the file whose blocks are the reserve.
const NAME: &str = "reserve";

/// The state of the reserve.
#[derive(Default)]
pub(super) struct Reserve {
    /// Bytes that its file has. Held while the file changes.
    bytes: Mutex<u64>,
    /// It was given up, and is not whole yet.
    is_lacking: AtomicBool,
}

/// Reserves that are made where there is no room for a whole one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Least {
    Whole,
    /// Whatever the disk has left.
    Part,
}

impl Space {
    /// Sets blocks aside that compaction may have when the disk is full: a segment, so that one of
    /// which little is dead can be moved. Better none than a refusal to open. With a cap there
    /// is none: eviction makes space without moving anything.
    pub(in crate::log) fn keep_reserve(&self, segments: &SegmentSet) {
        self.make_reserve(segments, Least::Whole);
    }

    /// As `keep_reserve`, after space was given back. If the reserve was given up for that, it has
    /// all of the space until it is whole.
    pub(in crate::log) fn restore_reserve(&self, segments: &SegmentSet) {
        let is_lacking = self.reserve.is_lacking.load(Ordering::Acquire);
        self.make_reserve(segments, if is_lacking { Least::Part } else { Least::Whole });
    }

    /// Whether compaction has given the reserve up, and there is no room for another one yet: then
    /// nothing but compaction may allocate.
    pub(in crate::log) fn lacks_reserve(&self, segments: &SegmentSet) -> bool {
        let is_lacking = || self.reserve.is_lacking.load(Ordering::Acquire);
        if is_lacking() {
            self.keep_reserve(segments);
        }
        is_lacking()
    }

    fn make_reserve(&self, segments: &SegmentSet, least: Least) {
        let directory = segments.directory();
        let path = directory.path().join(NAME);
        let mut present = self.reserve.bytes.lock();
        if self.quota.is_capped() {
            *present = 0;
            self.reserve.is_lacking.store(false, Ordering::Release);
            // Mostly there was none.
            let _ = directory.storage().remove(&path);
            return;
        }
        let bytes = self.next_capacity(segments);
        if *present >= bytes as u64 {
            return;
        }
        match extend(directory, &path, bytes, least) {
            Ok(0) => *present = 0,
            Ok(extended) => {
                *present = extended;
                self.reserve.is_lacking.store(extended < bytes as u64, Ordering::Release);
            }
            Err(error) => {
                tracing::debug!("no reserve: {error}");
                let _ = directory.storage().remove(&path);
                *present = 0;
                self.reserve.is_lacking.store(false, Ordering::Release);
            }
        }
    }

    /// Gives the reserve up. Returns whether there was one.
    pub(in crate::log) fn release_reserve(&self, directory: &Directory) -> bool {
        let mut present = self.reserve.bytes.lock();
        if *present == 0 || directory.storage().remove(&directory.path().join(NAME)).is_err() {
            return false;
        }
        *present = 0;
        self.reserve.is_lacking.store(true, Ordering::Release);
        true
    }
}

/// Gives the file of the reserve as many bytes as there are, but no more than `bytes`. Returns how
/// many it has; none if it has no file.
fn extend(directory: &Directory, path: &Path, bytes: usize, least: Least) -> io::Result<u64> {
    let storage = directory.storage();
    let file = match storage.open(path, Open::New) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            storage.open(path, Open::Existing)?
        }
        file => file?,
    };
    let map = file.map(bytes, 0)?;
    let present = file.length()?;
    let allocate = |bytes: u64| match file.allocate(&map, bytes) {
        Err(error) if is_full(&error) => Ok(false),
        allocated => allocated.map(|()| true),
    };
    if !allocate(bytes as u64)? && least == Least::Part {
        let all = present.saturating_add(directory.free_bytes());
        allocate(all.min(bytes as u64))?;
    }
    let present = file.length()?;
    if present == 0 {
        storage.remove(path)?;
    }
    Ok(present)
}
