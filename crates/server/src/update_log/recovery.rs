//! Recovery: writes the entries that a killed process left in its intent log, before anything is
//! logged.
//!
//! The server also starts on a full disk: it serves reads then, and refuses changes. The recovered
//! entries stay in memory until there is space, and the old intent log stays in the folder.

use super::failure::is_full;
use super::intent_log::{IntentLog, Recovered, Unfinished};
use super::{Error, Files, Result, UpdateLog};
use std::path::{Path, PathBuf};

/// Recovery that has to finish before anything may be logged.
pub(super) struct Recovery {
    folder: PathBuf,
    recovered: Recovered,
}

impl Recovery {
    /// Reads the intent log in the folder of a log whose last entry has `last_timestamp_us`.
    pub(super) fn of(folder: &Path, last_timestamp_us: u64) -> Result<Self> {
        let folder = folder.to_owned();
        let recovered = Recovered::of(&folder, last_timestamp_us).map_err(|source| Error::Io {
            operation: "read the intent log in",
            path: folder.clone(),
            source,
        })?;
        if !recovered.entries.is_empty() {
            tracing::info!("update log: {} bytes of entries recovered", recovered.entries.len());
        }
        Ok(Self { folder, recovered })
    }

    /// Returns the time stamp of the last entry, in microseconds since 1970, 0 without any.
    pub(super) fn last_timestamp_us(&self) -> u64 {
        self.recovered.last_timestamp_us
    }

    /// Returns the results of [`Recovered::roots`], and whether the log may have lost its end.
    pub(super) fn roots(&self) -> (bool, u64, bool) {
        let (is_broken, own_us) = self.recovered.roots();
        (is_broken, own_us, self.recovered.is_of_other_life())
    }

    /// Writes the recovered entries to the files, and begins a new intent log. Returns it and the
    /// pending changes. May be repeated after an error.
    pub(super) fn attempt(&mut self, files: &mut Files) -> Result<(IntentLog, Vec<Unfinished>)> {
        files.write(&mut self.recovered.entries)?;
        let path = self.folder.clone();
        IntentLog::begin(&path, &self.recovered).map_err(|source| Error::Io {
            operation: "write an intent log in",
            path,
            source,
        })
    }
}

/// Returns whether an error means that the disk is full.
pub(super) fn is_of_full_disk(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if is_full(source.kind()))
}

impl UpdateLog {
    /// Repeats a recovery that the full disk has prevented. `resolve` is called with the pending
    /// changes once it succeeds.
    pub(super) fn resume(&self, resolve: impl Fn(&[Unfinished])) {
        let unfinished = {
            let mut start = self.start.lock();
            let Some(waiting) = &mut *start else { return };
            let mut files = self.files.lock();
            let Ok((intent_log, unfinished)) = waiting.attempt(&mut files) else { return };
            self.buffer.lock().intent_log = Some(intent_log);
            self.tail.lock().end = files.end();
            *start = None;
            unfinished
        };
        self.clear_failure();
        resolve(&unfinished);
        self.wake();
    }
}
