//! Batch: operations that a replica has received, on their way to the workers.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use wire::replication::Root;

/// Length from which a batch is submitted, in bytes.
const BATCH_BYTES: usize = 64 << 10;

/// Operations in the order of their arrival.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    pub(super) updates: Vec<Update>,
    /// Time at which the master had no entries after these operations, in microseconds since 1970.
    pub(super) caught_up_us: Option<u64>,
    /// Time stamp up to which the master has sent all entries after this batch, 0 if unknown.
    pub(super) passed_us: u64,
    /// False if the receiving thread executes the batch itself.
    pub(super) is_for_workers: bool,
    /// Number of threads that are not done with the batch.
    pub(super) working: AtomicUsize,
}

/// An operation of a batch.
pub(super) struct Update {
    pub(super) timestamp_us: u64,
    /// Root of the operation, if it is known.
    pub(super) root: Root,
    /// Slot of the root's log in the progress of the partitions.
    pub(super) slot: usize,
    /// Server on which it was first executed.
    pub(super) origin: u16,
    /// Partition of the operation; `None` if it is skipped.
    pub(super) partition: Option<usize>,
    body: Range<usize>,
}

/// Metadata of a received operation.
#[derive(Clone, Copy)]
pub(super) struct Received {
    pub(super) timestamp_us: u64,
    pub(super) root: Root,
    pub(super) slot: usize,
    pub(super) origin: u16,
}

impl Batch {
    /// Adds an operation.
    pub(super) fn push(&mut self, operation: Received, partition: Option<usize>, body: &[u8]) {
        let Received { timestamp_us, root, slot, origin } = operation;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(body);
        let body = start..self.bytes.len();
        self.updates.push(Update { timestamp_us, root, slot, origin, partition, body });
    }

    pub(super) fn body(&self, update: &Update) -> &[u8] {
        &self.bytes[update.body.clone()]
    }

    /// Returns the length of the operations, in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.updates.is_empty() && self.caught_up_us.is_none() && self.passed_us == 0
    }

    /// Returns whether the batch is long enough to be submitted.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES
    }
}
