//! Operations that a replica has received, on their way to those who execute them.

use super::lanes::{ALONE, LANES};
use crate::ops::replay::Logged;
use crate::store::view::View;
use crate::update_log::Scope;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use wire::replication::Root;

/// Bytes from which a batch is given to be executed.
const BATCH_BYTES: usize = 64 << 10;

/// Operations in the order in which they came.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    pub(super) updates: Vec<Update>,
    /// When the master was known to have nothing beyond them, in microseconds since 1970.
    pub(super) caught_up_us: Option<u64>,
    /// Time stamp up to which the master has sent everything with them, 0 if it does not say.
    pub(super) passed_us: u64,
    /// Not if whoever received it executes it.
    pub(super) is_for_workers: bool,
    /// Threads that are not done with it.
    pub(super) working: AtomicUsize,
}

/// An operation of a batch.
pub(super) struct Update {
    pub(super) timestamp_us: u64,
    /// Where it was made first, as far as that is known.
    pub(super) root: Root,
    /// Where the lanes have what was executed of that log.
    pub(super) slot: usize,
    /// Server on which it was first executed.
    pub(super) origin: u16,
    /// `None` if there is nothing to do.
    pub(super) lane: Option<usize>,
    body: Range<usize>,
}

/// What is known of an operation.
#[derive(Clone, Copy)]
pub(super) struct Received {
    pub(super) timestamp_us: u64,
    pub(super) root: Root,
    pub(super) slot: usize,
    pub(super) origin: u16,
}

impl Batch {
    /// Takes an operation.
    pub(super) fn push(&mut self, operation: Received, lane: Option<usize>, body: &[u8]) {
        let Received { timestamp_us, root, slot, origin } = operation;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(body);
        let body = start..self.bytes.len();
        self.updates.push(Update { timestamp_us, root, slot, origin, lane, body });
    }

    pub(super) fn body(&self, update: &Update) -> &[u8] {
        &self.bytes[update.body.clone()]
    }

    /// Bytes of its operations.
    pub(super) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.updates.is_empty() && self.caught_up_us.is_none() && self.passed_us == 0
    }

    /// Whether it is long enough to be executed.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES
    }
}

/// Returns the lane of an operation.
pub(super) fn lane_of(database: &View, logged: &Logged<'_>) -> usize {
    match logged.scope() {
        Scope::Key(key) => database.partition_of(key, LANES).unwrap_or(ALONE),
        Scope::All | Scope::Nothing => ALONE,
    }
}
