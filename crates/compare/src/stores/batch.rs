//! Batch: records of a transaction that is not yet written.

use super::TRANSACTION_OPERATIONS;

/// Records kept in one buffer, in order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Batch {
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// Returns whether the batch has the size of a transaction.
    pub(super) fn is_full(&self) -> bool {
        self.ends.len() >= TRANSACTION_OPERATIONS
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Returns the keys and values.
    pub(super) fn records(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        starts.zip(&self.ends).map(|(start, (key_end, end))| {
            (&self.bytes[start..*key_end], &self.bytes[*key_end..*end])
        })
    }
}
