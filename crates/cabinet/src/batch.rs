//! Batches: changes that are applied together or not at all.

use crate::limits::BATCH_BYTES_MAX;
use crate::{Error, Meta, Result, Version};

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchChange {
    /// Store this value.
    Put(Vec<u8>, Meta),
    /// Remove the record, if it exists.
    Remove,
}

/// Changes that an engine applies together or not at all, and record versions that it must find
/// first.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) changes: Vec<(Vec<u8>, BatchChange)>,
    pub(crate) expected: Vec<(Vec<u8>, Option<Version>)>,
    /// Whether the batch removes records and writes little else, so that a full disk has space for
    /// it.
    pub(crate) removes: bool,
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores a record. A later change of the same key in the batch wins.
    pub fn put(&mut self, key: &[u8], value: &[u8], meta: Meta) {
        self.changes.push((key.to_vec(), BatchChange::Put(value.to_vec(), meta)));
    }

    /// Removes a record, if it exists.
    pub fn remove(&mut self, key: &[u8]) {
        self.changes.push((key.to_vec(), BatchChange::Remove));
    }

    /// Applies the batch only if the record is at this version (`None`: does not exist).
    pub fn expect(&mut self, key: &[u8], version: Option<Version>) {
        self.expected.push((key.to_vec(), version));
    }

    /// Returns the changes, in the order in which they were added.
    pub fn changes(&self) -> impl Iterator<Item = (&[u8], &BatchChange)> {
        self.changes.iter().map(|(key, change)| (&key[..], change))
    }

    /// Returns the versions that records must have (`None`: must not exist).
    pub fn expected(&self) -> impl Iterator<Item = (&[u8], Option<Version>)> {
        self.expected.iter().map(|(key, version)| (&key[..], *version))
    }

    /// Returns the bytes of keys and values. Fails if there are more than [`BATCH_BYTES_MAX`].
    pub(crate) fn check_length(&self) -> Result<usize> {
        let change_bytes = |(key, change): &(Vec<u8>, BatchChange)| match change {
            BatchChange::Put(value, _) => key.len() + value.len(),
            BatchChange::Remove => key.len(),
        };
        let bytes = self.changes.iter().map(change_bytes).sum();
        if bytes > BATCH_BYTES_MAX {
            return Err(Error::BatchTooLong { bytes, max: BATCH_BYTES_MAX });
        }
        Ok(bytes)
    }

    /// Returns whether the batch has no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}
