//! Records that nobody else changes for a while, and changes under way.

use super::key_locks::Locks;
use super::{Source, UpdateLog};
use std::cell::Cell;
use wire::update_log::Operation;

/// A record that nobody changes, or all of them, until this is dropped.
pub(crate) struct KeyLockGuard<'l> {
    log: &'l UpdateLog,
    _locks: Locks<'l>,
}

impl<'l> KeyLockGuard<'l> {
    pub(super) fn new(log: &'l UpdateLog, locks: Locks<'l>) -> Self {
        Self { log, _locks: locks }
    }

    /// Time stamp of the last entry, in microseconds since 1970: what comes behind it is about
    /// other records, or about what they will be.
    pub(crate) fn timestamp_us(&self) -> u64 {
        self.log.last_entry_us()
    }
}

/// A change under way. It is done when this is dropped.
pub(crate) struct ChangeGuard<'l> {
    log: &'l UpdateLog,
    change: Option<u64>,
    /// The journal lacks an entry of it.
    is_lacking: Cell<bool>,
    _locks: Locks<'l>,
}

impl<'l> ChangeGuard<'l> {
    pub(super) fn new(log: &'l UpdateLog, change: Option<u64>, locks: Locks<'l>) -> Self {
        Self { log, change, is_lacking: Cell::new(false), _locks: locks }
    }

    /// Puts an entry of this change into the buffer.
    pub(crate) fn append(&self, source: Source, operation: &Operation<'_>) {
        if !self.log.append(source, operation) {
            self.is_lacking.set(true);
        }
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        match self.change {
            Some(id) if self.is_lacking.get() => {
                if let Some(intent_log) = &mut self.log.buffer.lock().intent_log {
                    intent_log.done_when_written(id);
                }
            }
            Some(id) => self.log.resolved(id),
            None => {}
        }
    }
}
