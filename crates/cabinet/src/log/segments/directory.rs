//! Directory of a log, in which files are created and removed.

use super::segment::Segment;
use crate::Result;
use crate::io::Storage;
use crate::log::error_at;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The directory of a log. See the module.
pub(in crate::log) struct Directory {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    /// Whether a file was created or removed since the names were synced.
    is_changed: AtomicBool,
}

impl Directory {
    /// Creates the state of a directory whose names may not be on the disk yet.
    pub(in crate::log) fn new(storage: Arc<dyn Storage>, path: PathBuf) -> Self {
        Self { storage, path, is_changed: AtomicBool::new(true) }
    }

    pub(in crate::log) fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    pub(in crate::log) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of free bytes on the disk; `u64::MAX` if the disk does not report it.
    pub(in crate::log) fn free_bytes(&self) -> u64 {
        self.storage.free_bytes(&self.path).unwrap_or(u64::MAX)
    }

    /// Records that a file was created or removed.
    pub(super) fn note_change(&self) {
        self.is_changed.store(true, Ordering::Release);
    }

    /// Makes the names of files durable, if they have changed.
    pub(in crate::log) fn sync_names(&self) -> Result<()> {
        if self.is_changed.swap(false, Ordering::AcqRel) {
            let synced = self.storage.sync_dir(&self.path);
            synced.map_err(|error| error_at("sync", &self.path, error))?;
        }
        Ok(())
    }

    /// Removes the file of a segment.
    pub(in crate::log) fn unlink(&self, segment: &Segment) -> Result<()> {
        let removed = self.storage.remove(&segment.path);
        self.note_change();
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error_at("remove", &segment.path, error))
            }
            _ => Ok(()),
        }
    }
}
