//! Copies of records that were read one after the other, so that the index can be asked for many of
//! them together: it is looked up at random, and the cache misses overlap.

use super::record::Record;

/// Bytes of the records of a batch.
pub(crate) const RECORD_BATCH_BYTES: usize = 64 << 10;

/// Copies of records. See the module.
pub(crate) struct RecordBatch {
    records_max: usize,
    /// Offset of each in its segment, and its end in `bytes`.
    records: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

impl RecordBatch {
    /// An empty batch that holds at most so many records.
    pub(crate) fn new(records_max: usize) -> Self {
        Self { records_max, records: Vec::new(), bytes: Vec::new() }
    }

    /// Returns whether there is room for a record of so many bytes. An empty batch has room for
    /// all up to [`RECORD_BATCH_BYTES`].
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        self.records.len() < self.records_max && self.bytes.len() + bytes <= RECORD_BATCH_BYTES
    }

    /// Adds a record that was decoded from these bytes.
    pub(crate) fn push(&mut self, offset: u64, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.records.push((offset, self.bytes.len()));
    }

    /// Offset of the last record.
    pub(crate) fn last(&self) -> Option<u64> {
        self.records.last().map(|(offset, _)| *offset)
    }

    /// The records in the order in which they were added, each with its offset and its bytes.
    pub(crate) fn records(&self) -> impl Iterator<Item = (u64, Record<'_>, &[u8])> {
        let mut start = 0;
        self.records.iter().filter_map(move |(offset, end)| {
            let bytes = &self.bytes[std::mem::replace(&mut start, *end)..*end];
            // It was checked when it was read.
            Some((*offset, Record::decode_unchecked(bytes).ok()?, bytes))
        })
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.bytes.clear();
    }
}
