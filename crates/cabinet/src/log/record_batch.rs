//! Record batch: copies of consecutive records, so that the index is looked up for many at a time.
//! The look-ups are random, and this way their cache misses overlap.

use super::record::Record;

/// Maximum number of bytes of a batch's records.
pub(crate) const RECORD_BATCH_BYTES: usize = 64 << 10;

/// Copies of consecutive records. See the module.
pub(crate) struct RecordBatch {
    records_max: usize,
    /// Offset of each record in its segment, and its end in `bytes`.
    records: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

impl RecordBatch {
    /// Creates an empty batch for up to `records_max` records.
    pub(crate) fn new(records_max: usize) -> Self {
        Self { records_max, records: Vec::new(), bytes: Vec::new() }
    }

    /// Returns whether a record of `bytes` bytes fits. Any record of up to [`RECORD_BATCH_BYTES`]
    /// fits into an empty batch.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        self.records.len() < self.records_max && self.bytes.len() + bytes <= RECORD_BATCH_BYTES
    }

    /// Adds the record that was decoded from `bytes`.
    pub(crate) fn push(&mut self, offset: u64, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.records.push((offset, self.bytes.len()));
    }

    /// Returns the offset of the last record.
    pub(crate) fn last(&self) -> Option<u64> {
        self.records.last().map(|(offset, _)| *offset)
    }

    /// Returns the records in the order in which they were added, each with its offset and its
    /// bytes.
    pub(crate) fn records(&self) -> impl Iterator<Item = (u64, Record<'_>, &[u8])> {
        let mut start = 0;
        self.records.iter().filter_map(move |(offset, end)| {
            let bytes = &self.bytes[std::mem::replace(&mut start, *end)..*end];
            // The record was checked when it was read.
            Some((*offset, Record::decode_unchecked(bytes).ok()?, bytes))
        })
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.bytes.clear();
    }
}
