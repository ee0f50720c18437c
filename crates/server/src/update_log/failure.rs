//! A log that cannot be written: changes are refused until it can.

use super::{Error, UpdateLog};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Why a log cannot be written.
#[derive(Debug)]
pub(super) struct Failure {
    path: PathBuf,
    kind: std::io::ErrorKind,
    text: String,
    /// An entry is missing, which no later write can make good.
    is_final: bool,
}

impl Failure {
    /// What a change hears that cannot be logged.
    pub(super) fn refusal(&self) -> cabinet::Error {
        match self.kind {
            kind if is_full(kind) => cabinet::Error::NoSpace { path: self.path.clone() },
            _ => cabinet::Error::Poisoned(format!("update log: {}", self.text)),
        }
    }
}

/// Whether this is what a full disk answers.
pub(super) fn is_full(kind: std::io::ErrorKind) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(kind, StorageFull | QuotaExceeded)
}

impl UpdateLog {
    /// Whether it cannot be written because the disk is full.
    pub(crate) fn is_full(&self) -> bool {
        self.failure.lock().as_ref().is_some_and(|failed| is_full(failed.kind))
    }

    pub(super) fn fail(&self, error: &Error) {
        let mut failure = self.failure.lock();
        if failure.is_none() {
            tracing::error!("update log: {error}: changes are refused until it can be written");
        }
        let (path, kind) = match error {
            Error::Io { path, source, .. } => (path.clone(), source.kind()),
            _ => (self.settings.folder.clone(), std::io::ErrorKind::Other),
        };
        let is_final = !matches!(error, Error::Io { .. });
        *failure = Some(Failure { path, kind, text: error.to_string(), is_final });
        self.has_failed.store(true, Ordering::SeqCst);
    }

    pub(super) fn clear_failure(&self) {
        if self.has_failed.load(Ordering::Relaxed) {
            let mut failure = self.failure.lock();
            if failure.as_ref().is_some_and(|failed| failed.is_final) {
                return;
            }
            *failure = None;
            self.has_failed.store(false, Ordering::SeqCst);
            tracing::warn!("update log: it can be written again");
        }
    }
}
