//! Beginning to log: what a killed process has left in its journal comes first.
//!
//! A full disk is no reason not to start: a server serves reads then, and refuses changes. What has
//! to be written first is kept until there is space, and the old journal stays where it is until
//! then.

use super::failure::is_full;
use super::intent_log::{IntentLog, Recovered, Unfinished};
use super::{Error, Files, Result, UpdateLog};
use std::path::{Path, PathBuf};

/// What is to be done before anything may be logged.
pub(super) struct Recovery {
    folder: PathBuf,
    recovered: Recovered,
}

impl Recovery {
    /// Reads what a killed process has left in the folder of a log that ends with
    /// `last_timestamp_us`.
    pub(super) fn of(folder: &Path, last_timestamp_us: u64) -> Result<Self> {
        let folder = folder.to_owned();
        let recovered = Recovered::of(&folder, last_timestamp_us).map_err(|source| Error::Io {
            operation: "read the intent log in",
            path: folder.clone(),
            source,
        })?;
        if !recovered.entries.is_empty() {
            tracing::info!("update log: {} bytes recovered", recovered.entries.len());
        }
        Ok(Self { folder, recovered })
    }

    /// Time stamp of the last entry, in microseconds since 1970; 0 without any.
    pub(super) fn last_timestamp_us(&self) -> u64 {
        self.recovered.last_timestamp_us
    }

    /// See [`Recovered::roots`]; and whether the log may have lost its end.
    pub(super) fn roots(&self) -> (bool, u64, bool) {
        let (is_broken, own_us) = self.recovered.roots();
        (is_broken, own_us, self.recovered.is_of_other_life())
    }

    /// Adds the entries to the files that these lack, and begins a journal. Returns it and the
    /// changes that were under way. May be tried again after an error.
    pub(super) fn attempt(&mut self, files: &mut Files) -> Result<(IntentLog, Vec<Unfinished>)> {
        files.write(&mut self.recovered.entries)?;
        let path = self.folder.clone();
        IntentLog::begin(&path, &self.recovered).map_err(|source| Error::Io {
            operation: "keep an intent log in",
            path,
            source,
        })
    }
}

/// Whether an error is that of a full disk.
pub(super) fn is_of_full_disk(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if is_full(source.kind()))
}

impl UpdateLog {
    /// Tries again to begin, if the disk was full. Once it has, `resolve` is to log what became of
    /// the changes that were under way.
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
