//! Reading a large value piece by piece.

use super::segment::Segment;
use crate::io::is_unreadable;
use crate::log::error_at;
use crate::log::record::{PREFIX_BYTES, Record, checksum_goes_on};
use crate::log::scan::UNREADABLE;
use crate::{Error, Meta, Result, Version};
use std::sync::Arc;

/// Bytes that are read at once to verify a checksum.
const PIECE_BYTES: usize = 256 << 10;

/// A value in the log, open to be read in pieces. It stays as it is, whatever becomes of its
/// record, and takes no memory. Reading may wait for the disk.
#[derive(Clone)]
pub struct LargeValue {
    segment: Arc<Segment>,
    salt: u32,
    /// Offset of the record in the file, in bytes.
    record: u64,
    /// Offset of the value in the file, in bytes.
    start: u64,
    bytes: u64,
    meta: Meta,
    version: Version,
}

impl LargeValue {
    /// The value of a record that begins at `offset` of a segment, as it is stored.
    pub(crate) fn of(
        segment: &Arc<Segment>,
        salt: u32,
        offset: usize,
        record: &Record<'_>,
    ) -> Self {
        Self {
            segment: Arc::clone(segment),
            salt,
            record: offset as u64,
            start: (offset + record.value_start) as u64,
            bytes: record.value.len() as u64,
            meta: record.meta,
            version: record.sequence,
        }
    }

    /// Its length, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Flags and expiry of its record.
    pub fn meta(&self) -> Meta {
        self.meta
    }

    /// Number of its record's last change.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Fills `piece` with what stands from `offset` of the value on, without a look at the
    /// checksum.
    pub fn read(&self, offset: u64, piece: &mut [u8]) -> Result<()> {
        let within = offset.checked_add(piece.len() as u64).is_some_and(|end| end <= self.bytes);
        if !within {
            return Err(self.corrupted("a piece beyond the value"));
        }
        self.fill(self.start + offset, piece)
    }

    /// Whether damage was found near it, so that no part of it is to be believed before
    /// [`LargeValue::verify`].
    pub fn is_doubtful(&self) -> bool {
        self.segment.is_damaged()
    }

    /// Reads all of it to see whether its checksum matches.
    pub fn verify(&self) -> Result<()> {
        let mut prefix = [0; PREFIX_BYTES];
        self.fill(self.record, &mut prefix)?;
        let mut buffer = vec![0; PIECE_BYTES];
        let mut position = self.record + PREFIX_BYTES as u64;
        let end = self.start + self.bytes;
        let mut sum = self.salt;
        while position < end {
            let bytes = usize::try_from(end - position).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let piece = &mut buffer[..bytes];
            self.fill(position, piece)?;
            sum = checksum_goes_on(sum, piece);
            position += bytes as u64;
        }
        let (stored, sequence) = prefix.split_at(4);
        if checksum_goes_on(sum, sequence).to_le_bytes() != stored {
            return Err(self.corrupted("the checksum does not match"));
        }
        Ok(())
    }

    fn fill(&self, position: u64, piece: &mut [u8]) -> Result<()> {
        match self.segment.file.read_at(piece, position) {
            Ok(bytes) if bytes == piece.len() => Ok(()),
            Ok(_) => Err(self.corrupted("a record that goes on beyond the file")),
            Err(error) if is_unreadable(&error) => Err(self.corrupted(UNREADABLE)),
            Err(error) => Err(error_at("read", &self.segment.path, error)),
        }
    }

    fn corrupted(&self, what: &str) -> Error {
        self.segment.corrupted(self.record, what)
    }
}
