//! Guards: a change in progress, and keys that are locked against changes.

use super::key_locks::Locks;
use super::{Source, UpdateLog};
use std::cell::{Cell, RefCell};
use wire::binary::StringsBuffer;
use wire::update_log::Operation;

/// Most bytes of the operations that are logged together. Those of a transaction are fewer, but for
/// keys with long values beside those that it changes.
const TOGETHER_BYTES_MAX: usize = 256 << 20;

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
    /// The changes of several records that are made together, if this is one.
    together: Option<Together>,
    /// Whether the intent log lacks an entry of the change.
    is_lacking: Cell<bool>,
    _locks: Locks<'l>,
}

/// Changes of several records, whose operations are one entry of the log.
struct Together {
    source: Source,
    /// Ids of the changes in the intent log.
    changes: Vec<u64>,
    /// Bodies of the operations so far.
    bodies: RefCell<StringsBuffer>,
}

impl<'l> ChangeGuard<'l> {
    pub(super) fn new(log: &'l UpdateLog, change: Option<u64>, locks: Locks<'l>) -> Self {
        Self { log, change, together: None, is_lacking: Cell::new(false), _locks: locks }
    }

    /// Returns the guard of changes that are made and logged together.
    pub(super) fn of_several(log: &'l UpdateLog, source: Source, locks: Locks<'l>) -> Self {
        let together = Together { source, changes: Vec::new(), bodies: RefCell::default() };
        let mut guard = Self::new(log, None, locks);
        guard.together = Some(together);
        guard
    }

    /// Adds the change of another record, which ends with the guard.
    pub(super) fn add(&mut self, change: Option<u64>) {
        if let Some(together) = &mut self.together {
            together.changes.extend(change);
        }
    }

    /// Appends an entry of this change to the buffer, at the end of the guard if it is one of
    /// several that are logged together.
    pub(crate) fn append(&self, source: Source, operation: &Operation<'_>) {
        if let Some(together) = &self.together {
            let mut body = Vec::new();
            let bodies = &mut *together.bodies.borrow_mut();
            let is_encoded = operation.encode(&mut body).is_ok();
            let has_room = bodies.bytes() + body.len() <= TOGETHER_BYTES_MAX;
            if is_encoded && has_room && bodies.push(&body).is_ok() {
                return;
            }
            // Those before it come before it.
            self.append_together(together.source, &std::mem::take(bodies));
            if is_encoded && bodies.push(&body).is_ok() {
                return;
            }
        }
        self.append_now(source, operation);
    }

    fn append_now(&self, source: Source, operation: &Operation<'_>) {
        if !self.log.append(source, operation) {
            self.is_lacking.set(true);
        }
    }

    fn append_together(&self, source: Source, bodies: &StringsBuffer) {
        let mut parts = bodies.strings().iter();
        let only = parts.next().filter(|_| parts.len() == 0);
        match only.and_then(|body| Operation::parse(body).ok()) {
            Some(operation) => self.append_now(source, &operation),
            None if bodies.strings().is_empty() => {}
            None => self.append_now(source, &Operation::transaction(bodies.strings())),
        }
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        let together = self.together.take();
        if let Some(together) = &together {
            self.append_together(together.source, &together.bodies.borrow());
        }
        let changes = together.map_or(Vec::new(), |together| together.changes);
        for id in self.change.into_iter().chain(changes) {
            if !self.is_lacking.get() {
                self.log.resolved(id);
            } else if let Some(intent_log) = &mut self.log.buffer.lock().intent_log {
                intent_log.done_when_written(id);
            }
        }
    }
}
