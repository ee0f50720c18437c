//! Large values, read in pieces.

use super::segment::Segment;
use crate::io::is_unreadable;
use crate::log::error_at;
use crate::log::record::{CHECKSUM_BYTES, PREFIX_BYTES, Record, continue_checksum};
use crate::log::scan::UNREADABLE;
use crate::{Error, Meta, Result, Version};
use std::sync::Arc;

/// Bytes that are read at once to verify a checksum.
const PIECE_BYTES: usize = 256 << 10;

/// A value in the log, open to be read in pieces. It does not change when its record is replaced or
/// removed, and takes no memory. Reading may wait for the disk.
#[derive(Clone)]
pub struct LargeValue {
    segment: Arc<Segment>,
    /// Offset of the record in the file, in bytes.
    record: u64,
    /// Offset of the value in the file, in bytes.
    start: u64,
    bytes: u64,
    meta: Meta,
    version: Version,
}

impl LargeValue {
    /// Opens the value of a record that begins at `offset` of a segment, as it is stored.
    pub(crate) fn of(segment: &Arc<Segment>, offset: usize, record: &Record<'_>) -> Self {
        Self {
            segment: Arc::clone(segment),
            record: offset as u64,
            start: (offset + record.value_start) as u64,
            bytes: record.value.len() as u64,
            meta: record.meta,
            version: record.sequence,
        }
    }

    /// Returns the length of the value, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the flags and the expiry of the record.
    pub fn meta(&self) -> Meta {
        self.meta
    }

    /// Returns the number of the record's last change.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Fills `piece` with the bytes of the value from `offset` on, without verifying the checksum.
    pub fn read(&self, offset: u64, piece: &mut [u8]) -> Result<()> {
        let within = offset.checked_add(piece.len() as u64).is_some_and(|end| end <= self.bytes);
        if !within {
            return Err(self.corrupted("a piece beyond the value"));
        }
        self.fill(self.start + offset, piece)
    }

    /// Returns whether damage was found in the value's segment. Then the value should be passed to
    /// [`LargeValue::verify`] before it is used.
    pub fn is_doubtful(&self) -> bool {
        self.segment.is_damaged()
    }

    /// Reads the whole value and verifies its checksum.
    pub fn verify(&self) -> Result<()> {
        let mut prefix = [0; PREFIX_BYTES];
        self.fill(self.record, &mut prefix)?;
        let mut buffer = vec![0; PIECE_BYTES];
        let mut position = self.record + PREFIX_BYTES as u64;
        let end = self.start + self.bytes;
        let binding = self.segment.binding;
        let mut sum = binding.salt();
        while position < end {
            let bytes = usize::try_from(end - position).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let piece = &mut buffer[..bytes];
            self.fill(position, piece)?;
            sum = continue_checksum(sum, piece);
            position += bytes as u64;
        }
        let (stored, sequence) = prefix.split_at(CHECKSUM_BYTES);
        let mask = binding.mask(self.record as usize);
        if (continue_checksum(sum, sequence) ^ mask).to_le_bytes() != stored {
            return Err(self.corrupted("the checksum does not match"));
        }
        Ok(())
    }

    fn fill(&self, position: u64, piece: &mut [u8]) -> Result<()> {
        match self.segment.file.read_at(piece, position) {
            Ok(bytes) if bytes == piece.len() => Ok(()),
            Ok(_) => Err(self.corrupted("a record that extends beyond the file")),
            Err(error) if is_unreadable(&error) => Err(self.corrupted(UNREADABLE)),
            Err(error) => Err(error_at("read", &self.segment.path, error)),
        }
    }

    fn corrupted(&self, what: &str) -> Error {
        self.segment.corrupted(self.record, what)
    }
}
