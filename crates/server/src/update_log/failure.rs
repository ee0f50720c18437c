//! Write failures: changes are refused until the log can be written again.

use super::{Error, UpdateLog};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Reason why the log cannot be written.
#[derive(Debug)]
pub(super) struct Failure {
    path: PathBuf,
    kind: std::io::ErrorKind,
    text: String,
    /// Whether an entry is lost, which no later write can repair.
    is_final: bool,
}

impl Failure {
    /// Returns the error of a change that cannot be logged.
    pub(super) fn refusal(&self) -> cabinet::Error {
        match self.kind {
            kind if is_full(kind) => cabinet::Error::NoLogSpace { path: self.path.clone() },
            _ => cabinet::Error::Poisoned(format!("update log: {}", self.text)),
        }
    }
}

/// Returns whether an error means that the disk is full.
pub(super) fn is_full(kind: std::io::ErrorKind) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(kind, StorageFull | QuotaExceeded)
}

impl UpdateLog {
    /// Returns whether the log cannot be written because the disk is full.
    pub(crate) fn is_full(&self) -> bool {
        self.failure.lock().as_ref().is_some_and(|failed| is_full(failed.kind))
    }

    /// Returns why the log refuses changes at present, if it does.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.failure.lock().as_ref().map(|failure| failure.refusal().to_string())
    }

    /// Refuses changes because of an error. Returns their refusal.
    pub(super) fn fail(&self, error: &Error) -> cabinet::Error {
        let mut failure = self.failure.lock();
        if failure.is_none() {
            tracing::error!("update log: {error}; changes are refused until it can be written");
        }
        let (path, kind) = match error {
            Error::Io { path, source, .. } => (path.clone(), source.kind()),
            _ => (self.settings.folder.clone(), std::io::ErrorKind::Other),
        };
        let is_final = !matches!(error, Error::Io { .. });
        let failed = Failure { path, kind, text: error.to_string(), is_final };
        let refusal = failed.refusal();
        *failure = Some(failed);
        self.has_failed.store(true, Ordering::SeqCst);
        refusal
    }

    pub(super) fn clear_failure(&self) {
        if self.has_failed.load(Ordering::Relaxed) {
            let mut failure = self.failure.lock();
            if failure.as_ref().is_some_and(|failed| failed.is_final) {
                return;
            }
            *failure = None;
            self.has_failed.store(false, Ordering::SeqCst);
            tracing::warn!("update log: writing works again, changes are accepted");
        }
    }
}
