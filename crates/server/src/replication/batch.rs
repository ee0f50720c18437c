//! Batch: operations that a replica has received, on their way to the workers.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use wire::replication::{PARTITIONS as ALL_PARTITIONS, Root};

/// Length from which a batch is submitted, in bytes.
const BATCH_BYTES: usize = 128 << 10;

/// Operations in the order of their arrival.
pub(super) struct Batch {
    bytes: Vec<u8>,
    pub(super) updates: Vec<Update>,
    /// Indices of the updates that each worker executes.
    shares: Vec<Vec<u32>>,
    /// Time at which the master had no entries after these operations, in microseconds since 1970.
    pub(super) caught_up_us: Option<u64>,
    /// Time stamp up to which the master has sent all entries after this batch, 0 if unknown.
    pub(super) passed_us: u64,
    /// False if the receiving thread executes the batch itself.
    pub(super) is_for_workers: bool,
    /// Number of threads that are not done with the batch.
    pub(super) working: AtomicUsize,
}

/// An operation of a batch, in 48 bytes: another core reads what the receiving thread writes.
pub(super) struct Update {
    pub(super) timestamp_us: u64,
    /// Root of the operation, if it is known.
    pub(super) root: Root,
    /// Server on which it was first executed.
    pub(super) origin: u16,
    /// Slot of the root's log in the progress of the partitions.
    slot: u8,
    /// Partition of the operation; `None` if it is skipped.
    partition: Option<u8>,
    /// Bytes of the operation. A batch is shorter than 4 GiB, because only its last operation may
    /// be long.
    body: Range<u32>,
    /// Key in the body, empty if the operation is about no key or several.
    key: Range<u32>,
}

impl Update {
    /// Returns the slot of the root's log in the progress of the partitions.
    pub(super) fn slot(&self) -> usize {
        self.slot.into()
    }

    /// Returns the partition of the operation, or `None` if it is skipped.
    pub(super) fn partition(&self) -> Option<usize> {
        self.partition.map(usize::from)
    }
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
    /// Returns an empty batch that is divided among this number of workers.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            bytes: Vec::new(),
            updates: Vec::new(),
            shares: vec![Vec::new(); workers],
            caught_up_us: None,
            passed_us: 0,
            is_for_workers: false,
            working: AtomicUsize::new(0),
        }
    }

    /// Makes the batch empty. Its memory is used again, unless that would be more than usual.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(2 * BATCH_BYTES);
        self.updates.clear();
        self.shares.iter_mut().for_each(Vec::clear);
        (self.caught_up_us, self.passed_us) = (None, 0);
    }

    /// Adds an operation. The key, if there is one, is a part of the body. Adjacent partitions
    /// have the same worker, because their notes share cache lines.
    #[inline]
    pub(super) fn push(
        &mut self,
        operation: Received,
        partition: Option<usize>,
        body: &[u8],
        key: Option<&[u8]>,
    ) {
        let Received { timestamp_us, root, slot, origin } = operation;
        let start = self.bytes.len();
        let key = key.map_or(0..0, |key| {
            let offset = key.as_ptr().addr().saturating_sub(body.as_ptr().addr());
            (start + offset) as u32..(start + offset + key.len()) as u32
        });
        self.bytes.extend_from_slice(body);
        if let Some(partition) = partition {
            let share = partition * self.shares.len() / ALL_PARTITIONS;
            self.shares[share].push(self.updates.len() as u32);
        }
        self.updates.push(Update {
            timestamp_us,
            root,
            origin,
            slot: slot as u8,
            partition: partition.map(|partition| partition as u8),
            body: start as u32..self.bytes.len() as u32,
            key,
        });
    }

    /// Returns the operations of a worker.
    pub(super) fn share(&self, worker: usize) -> impl Iterator<Item = &Update> {
        self.shares[worker].iter().map(|index| &self.updates[*index as usize])
    }

    pub(super) fn body(&self, update: &Update) -> &[u8] {
        &self.bytes[update.body.start as usize..update.body.end as usize]
    }

    /// Returns the key of an operation, empty if it is about no key or several.
    pub(super) fn key(&self, update: &Update) -> &[u8] {
        &self.bytes[update.key.start as usize..update.key.end as usize]
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

#[cfg(test)]
mod tests {
    use super::*;

    fn received(timestamp_us: u64) -> Received {
        Received { timestamp_us, root: Root { log: 7, timestamp_us }, slot: 31, origin: 1 }
    }

    #[test]
    fn each_worker_has_the_operations_of_its_partitions_in_their_order() {
        let mut batch = Batch::new(3);
        for partition in 0..2 * ALL_PARTITIONS {
            let partition = partition % ALL_PARTITIONS;
            let body = format!("body {partition}").into_bytes();
            batch.push(received(1), Some(partition), &body, Some(&body[5..]));
            batch.push(received(1), None, b"skipped", None);
        }
        let mut workers = [0; ALL_PARTITIONS];
        for worker in 0..3 {
            let share: Vec<_> = batch.share(worker).collect();
            for update in &share {
                let partition = update.partition().expect("an operation that is executed");
                workers[partition] += 1 << (8 * worker);
                assert_eq!(batch.body(update), format!("body {partition}").as_bytes());
                assert_eq!(batch.key(update), partition.to_string().as_bytes());
                assert_eq!(update.slot(), 31);
            }
            assert!(share[..share.len() / 2].is_sorted_by_key(|update| update.partition()));
        }
        assert!(workers.iter().all(|both| [2, 2 << 8, 2 << 16].contains(both)), "{workers:?}");
        batch.clear();
        assert!(batch.is_empty() && (0..3).all(|worker| batch.share(worker).count() == 0));
    }

    #[test]
    fn the_memory_of_a_long_operation_is_not_kept() {
        let mut batch = Batch::new(1);
        batch.push(received(1), Some(0), &vec![0; 64 << 20], None);
        batch.clear();
        assert!(batch.bytes.capacity() <= 2 * BATCH_BYTES);
    }
}
