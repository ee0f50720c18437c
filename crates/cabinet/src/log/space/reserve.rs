//! The reserve: disk space set aside for compaction, for when the disk is full.
//!
//! Compaction gives the reserve up when it finds no other space for the records it moves. The space
//! of the segment that it removes then returns to the reserve, before any other use. If that is too
//! little for a whole reserve, all of it returns. Until the reserve is whole, writers allocate
//! nothing. Otherwise tombstones could use its space, and the next segment could not be moved.

use super::Space;
use crate::base::sync::Mutex;
use crate::io::Open;
use crate::log::is_full;
use crate::log::segments::{Directory, SegmentSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the file whose extents are the reserve.
const NAME: &str = "reserve";

/// Free bytes below which no partial reserve is made: less than a block of most file systems.
const PART_BYTES_MIN: u64 = 4096;

/// State of the reserve.
#[derive(Default)]
pub(super) struct Reserve {
    /// Size of the reserve's file, in bytes. Held while the file changes.
    bytes: Mutex<u64>,
    /// Whether the reserve was given up and is not whole yet.
    is_lacking: AtomicBool,
}

/// Least reserve to make where there is no space for a whole one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Least {
    Whole,
    /// All the space that the disk has left.
    Part,
}

impl Space {
    /// Sets space aside that compaction may use when the disk is full. Its size is one segment, so
    /// that a segment with few dead bytes can be moved.
    ///
    /// A log without a reserve is better than a refusal to open. With a cap there is no reserve:
    /// eviction makes space without moving anything. A reserve that was given up gets all of the
    /// free space until it is whole.
    pub(in crate::log) fn keep_reserve(&self, segments: &SegmentSet) {
        let directory = segments.directory();
        let path = directory.path().join(NAME);
        let mut present = self.reserve.bytes.lock();
        if self.quota.is_capped() {
            *present = 0;
            self.reserve.is_lacking.store(false, Ordering::Release);
            // Usually there is no such file.
            let _ = directory.storage().remove(&path);
            return;
        }
        let least = if self.has_given_reserve_up() { Least::Part } else { Least::Whole };
        let bytes = self.next_capacity(segments) as u64;
        if *present < bytes {
            // Writers ask often while the disk is full.
            if least == Least::Part && directory.free_bytes() < PART_BYTES_MIN {
                return;
            }
            match extend(directory, &path, bytes, least) {
                Ok(extended) => *present = extended,
                Err(error) => {
                    tracing::debug!("no reserve: {error}");
                    let _ = directory.storage().remove(&path);
                    *present = 0;
                    self.reserve.is_lacking.store(false, Ordering::Release);
                }
            }
        }
        // A reserve that has not grown with the segments was not given up, so it is not lacking
        // either.
        if *present >= bytes {
            self.reserve.is_lacking.store(false, Ordering::Release);
        }
    }

    /// Returns whether compaction has given the reserve up and it is not whole again. Until it is,
    /// only compaction may allocate.
    #[inline]
    pub(in crate::log) fn has_given_reserve_up(&self) -> bool {
        self.reserve.is_lacking.load(Ordering::Acquire)
    }

    /// Like `has_given_reserve_up`, but first tries to make the reserve whole.
    pub(in crate::log) fn lacks_reserve(&self, segments: &SegmentSet) -> bool {
        if self.has_given_reserve_up() {
            self.keep_reserve(segments);
        }
        self.has_given_reserve_up()
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

/// Extends the file of the reserve to `bytes` bytes. If the disk has less, the file gets all of it
/// or keeps its size, depending on `least`. Returns the file's size; 0 if there is no file.
fn extend(directory: &Directory, path: &Path, bytes: u64, least: Least) -> io::Result<u64> {
    let storage = directory.storage();
    let file = match storage.open(path, Open::New) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            storage.open(path, Open::Existing)?
        }
        file => file?,
    };
    let before = file.length()?;
    let missing = bytes.saturating_sub(before);
    let free = directory.free_bytes();
    let wanted = match least {
        _ if free >= missing => bytes,
        Least::Whole => before,
        Least::Part => before + free,
    };
    if wanted > before {
        let map = file.map(usize::try_from(wanted).unwrap_or(usize::MAX), 0)?;
        match file.allocate(&map, wanted) {
            // Some file systems keep a part of a failed allocation.
            Err(error) if is_full(&error) && least == Least::Whole => file.truncate(before)?,
            Err(error) if !is_full(&error) => return Err(error),
            _ => {}
        }
    }
    let present = file.length()?;
    if present == 0 {
        storage.remove(path)?;
    }
    Ok(present)
}
