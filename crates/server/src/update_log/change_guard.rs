//! Guards: a change in progress, and keys that are locked against changes.

use super::key_locks::Locks;
use super::{Source, UpdateLog};
use std::cell::Cell;
use wire::update_log::Operation;

/// Guard of a key or of all keys. No other thread changes their records until it is dropped.
pub(crate) struct KeyLockGuard<'l> {
    log: &'l UpdateLog,
    _locks: Locks<'l>,
}

impl<'l> KeyLockGuard<'l> {
    pub(super) fn new(log: &'l UpdateLog, locks: Locks<'l>) -> Self {
        Self { log, _locks: locks }
    }

    /// Returns the time stamp of the last entry, in microseconds since 1970. Later entries are
    /// about other records, or were made after this guard was dropped.
    pub(crate) fn timestamp_us(&self) -> u64 {
        self.log.last_entry_us()
    }
}

/// Guard of a change in progress. The change ends when it is dropped.
pub(crate) struct ChangeGuard<'l> {
    log: &'l UpdateLog,
    /// Id of the change in the intent log.
    change: Option<u64>,
    /// Ids of further records that change together with the first.
    further: Vec<u64>,
    /// Whether the intent log lacks an entry of the change.
    is_lacking: Cell<bool>,
    _locks: Locks<'l>,
}

impl<'l> ChangeGuard<'l> {
    pub(super) fn new(log: &'l UpdateLog, change: Option<u64>, locks: Locks<'l>) -> Self {
        Self { log, change, further: Vec::new(), is_lacking: Cell::new(false), _locks: locks }
    }

    /// Adds the change of another record, which ends with this one.
    pub(super) fn add(&mut self, change: Option<u64>) {
        self.further.extend(change);
    }

    /// Appends an entry of this change to the buffer.
    pub(crate) fn append(&self, source: Source, operation: &Operation<'_>) {
        if !self.log.append(source, operation) {
            self.is_lacking.set(true);
        }
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        for id in self.change.into_iter().chain(self.further.drain(..)) {
            if !self.is_lacking.get() {
                self.log.resolved(id);
            } else if let Some(intent_log) = &mut self.log.buffer.lock().intent_log {
                intent_log.done_when_written(id);
            }
        }
    }
}
