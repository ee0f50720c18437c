//! Batches: changes that are applied together or not at all.

use crate::limits::BATCH_BYTES_MAX;
use crate::{Error, Meta, Result, Version};

/// Bytes of keys and values that the first change makes room for.
const BYTES_AT_FIRST: usize = 256;

/// One change of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchChange<'b> {
    /// Store this value.
    Put(&'b [u8], Meta),
    /// Remove the record, if it exists.
    Remove,
}

/// Changes that an engine applies together or not at all, and record versions that it must find
/// first.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Keys and values of the changes, one after the other: a batch of many small records makes few
    /// allocations.
    bytes: Vec<u8>,
    changes: Vec<Place>,
    pub(crate) expected: Vec<(Vec<u8>, Option<Version>)>,
    /// Whether the batch removes records and writes little else, so that a full disk has space for
    /// it.
    pub(crate) removes: bool,
}

/// Place of a change in the bytes of its batch: its key, and its value after it.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: usize,
    key_bytes: usize,
    /// Length of the value and its metadata; `None` for a removal.
    value: Option<(usize, Meta)>,
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty batch with room for this number of changes, and for this many bytes of keys
    /// and values.
    pub fn with_capacity(changes: usize, bytes: usize) -> Self {
        let (bytes, changes) = (Vec::with_capacity(bytes), Vec::with_capacity(changes));
        Self { bytes, changes, ..Self::default() }
    }

    /// Stores a record. A later change of the same key in the batch wins.
    pub fn put(&mut self, key: &[u8], value: &[u8], meta: Meta) {
        self.push(key, Some((value, meta)));
    }

    /// Removes a record, if it exists.
    pub fn remove(&mut self, key: &[u8]) {
        self.push(key, None);
    }

    fn push(&mut self, key: &[u8], put: Option<(&[u8], Meta)>) {
        let value = put.map_or(&[][..], |(value, _)| value);
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(BYTES_AT_FIRST.max(key.len() + value.len()));
        }
        let (start, key_bytes) = (self.bytes.len(), key.len());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let value = put.map(|(value, meta)| (value.len(), meta));
        self.changes.push(Place { start, key_bytes, value });
    }

    /// Applies the batch only if the record is at this version (`None`: does not exist).
    pub fn expect(&mut self, key: &[u8], version: Option<Version>) {
        self.expected.push((key.to_vec(), version));
    }

    /// Returns the changes, in the order in which they were added.
    pub fn changes(
        &self,
    ) -> impl DoubleEndedIterator<Item = (&[u8], BatchChange<'_>)> + ExactSizeIterator {
        self.changes.iter().map(|Place { start, key_bytes, value }| {
            let (key, rest) = self.bytes[*start..].split_at(*key_bytes);
            match value {
                Some((bytes, meta)) => (key, BatchChange::Put(&rest[..*bytes], *meta)),
                None => (key, BatchChange::Remove),
            }
        })
    }

    /// Returns the versions that records must have (`None`: must not exist).
    pub fn expected(&self) -> impl Iterator<Item = (&[u8], Option<Version>)> {
        self.expected.iter().map(|(key, version)| (&key[..], *version))
    }

    /// Returns the bytes of keys and values. Fails if there are more than [`BATCH_BYTES_MAX`].
    pub(crate) fn check_length(&self) -> Result<usize> {
        let bytes = self.bytes.len();
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
