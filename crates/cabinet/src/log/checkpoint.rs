//! Checkpoints: save the index, so that opening need not read the whole log.
//!
//! ```text
//! checkpoint
//!  0   8  magic "tyrantck"
//!  8   4  version of the format, 1
//! 12   4  zeros
//! 16   8  database ID
//! 24   8  the next sequence number
//! 32   8  number of the segment from which the log must be replayed
//! 40   8  byte offset in it
//! 48      blocks: count of entries (4), CRC-32C of them (4), entries of 8 bytes: the engine's
//!         then one line of 40 bytes per segment: slot (8), number (8), live bytes (8),
//!         tombstone bytes (8), next expiry in milliseconds since the Unix epoch (8)
//!         then the trailer: offset of the first line (8), number of lines (4),
//!         CRC-32C of header, lines and these 12 bytes (4)
//! ```
//!
//! The index is written block by block, while other threads continue to write. So entries may be
//! newer than the position stored at the beginning. Replaying from there corrects them, because it
//! ends with the same last change of each key. Before a checkpoint gets its name, all records that
//! its entries point to are made durable. An entry whose segment is gone at opening was moved or
//! removed after the position, and is left out.

use super::error_at;
use super::record::{ALIGNMENT, SEQUENCE_MAX, read_u32, read_u64};
use super::scan::UNREADABLE;
use super::segments::SEGMENTS_MAX;
use crate::io::{File, Open, Storage, is_unreadable};
use crate::{Error, Result};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) const NAME: &str = "checkpoint";

/// Temporary name of a file of blocks, which is removed at once.
const NAMELESS: &str = "index.new";

pub(super) const MAGIC: &[u8; 8] = b"tyrantck";
pub(super) const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 48;
pub(crate) const BLOCK_HEADER_BYTES: usize = 8;
pub(super) const LINE_BYTES: usize = 40;
const TRAILER_BYTES: usize = 16;

/// Maximum number of entries of a block.
pub(crate) const BLOCK_ENTRIES_MAX: usize = 1 << 27;

/// Bytes of blocks that are read at a time, unless a block is longer.
const READ_AHEAD_BYTES: usize = 256 << 10;

/// A block that was written.
pub(crate) struct Block {
    pub(crate) file: Arc<dyn File>,
    /// Offset of its first entry in the file.
    pub(crate) offset: u64,
}

/// Encodes a block of these entries into `bytes`.
pub(crate) fn encode_block(bytes: &mut Vec<u8>, entries: &[u64], salt: u32) {
    bytes.clear();
    bytes.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend(entries.iter().flat_map(|entry| entry.to_le_bytes()));
    let sum = crc32c::crc32c_append(salt, &bytes[BLOCK_HEADER_BYTES..]);
    bytes[4..BLOCK_HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Creates a file for blocks in the directory, without a name. Returns the name that it had, too.
pub(crate) fn nameless_file(
    storage: &dyn Storage,
    directory: &Path,
) -> Result<(Arc<dyn File>, PathBuf)> {
    let path = directory.join(NAMELESS);
    let failed = |error| error_at("write", &path, error);
    match storage.remove(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let file = storage.open(&path, Open::New).map_err(failed)?;
    storage.remove(&path).map_err(failed)?;
    Ok((file, path))
}

/// A segment as a checkpoint describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentLine {
    pub(crate) slot: usize,
    pub(crate) number: u64,
    pub(crate) live_bytes: u64,
    pub(crate) tombstone_bytes: u64,
    pub(crate) next_expiry_ms: u64,
}

/// A checkpoint being read.
pub(crate) struct Checkpoint {
    file: Arc<dyn File>,
    path: PathBuf,
    salt: u32,
    pub(crate) next_sequence: u64,
    pub(crate) replay_segment: u64,
    pub(crate) replay_offset: u64,
    pub(crate) segments: Vec<SegmentLine>,
    next: u64,
    blocks_end: u64,
    /// Bytes of the blocks that were read last, and the offset of the first byte.
    read_ahead: Vec<u8>,
    read_from: u64,
}

impl Checkpoint {
    /// Opens the checkpoint of a log, if there is an undamaged one.
    pub(super) fn open(
        storage: &dyn Storage,
        directory: &Path,
        database_id: &super::DatabaseId,
    ) -> Result<Option<Self>> {
        match Self::read(storage, directory, database_id) {
            Err(Error::Corrupted { file, offset, what }) => {
                // A checkpoint only saves time: the log has everything.
                tracing::warn!("{} is ignored: {what} at byte {offset}", file.display());
                Ok(None)
            }
            result => result,
        }
    }

    /// Like `open`, but a damaged checkpoint is an error.
    pub(super) fn read(
        storage: &dyn Storage,
        directory: &Path,
        database_id: &super::DatabaseId,
    ) -> Result<Option<Self>> {
        let path = directory.join(NAME);
        match storage.open(&path, Open::Existing) {
            Ok(file) => Self::decode(file, path, database_id).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if is_unreadable(&error) => {
                Err(Error::Corrupted { file: path, offset: 0, what: UNREADABLE.into() })
            }
            Err(error) => Err(error_at("open", &path, error)),
        }
    }

    fn decode(file: Arc<dyn File>, path: PathBuf, database_id: &super::DatabaseId) -> Result<Self> {
        let corrupted = |offset: u64, what: &str| Error::Corrupted {
            file: path.clone(),
            offset,
            what: what.into(),
        };
        let length = file.length().map_err(|error| error_at("read", &path, error))?;
        if length < (HEADER_BYTES + TRAILER_BYTES) as u64 {
            return Err(corrupted(length, "it is too short"));
        }
        let header = read_exactly(&*file, &path, 0, HEADER_BYTES)?;
        let trailer_at = length - TRAILER_BYTES as u64;
        let trailer = read_exactly(&*file, &path, trailer_at, TRAILER_BYTES)?;
        if &header[..8] != MAGIC
            || read_u32(&header[8..]) != VERSION
            || read_u64(&header[16..]) != database_id.id
        {
            return Err(corrupted(0, "it is not a checkpoint of this log"));
        }
        let blocks_end = read_u64(&trailer);
        let lines_bytes = u64::from(read_u32(&trailer[8..])) * LINE_BYTES as u64;
        if blocks_end < HEADER_BYTES as u64
            || blocks_end.checked_add(lines_bytes) != Some(trailer_at)
        {
            return Err(corrupted(trailer_at, "the trailer does not fit"));
        }
        let lines_bytes = usize::try_from(lines_bytes).unwrap_or(usize::MAX);
        let lines = read_exactly(&*file, &path, blocks_end, lines_bytes)?;
        let sum = [&header[..], &lines, &trailer[..12]]
            .iter()
            .fold(0, |sum, part| crc32c::crc32c_append(sum, part));
        if sum != read_u32(&trailer[12..]) {
            return Err(corrupted(trailer_at, "the checksum does not match"));
        }
        let segments: Vec<_> = lines
            .chunks_exact(LINE_BYTES)
            .map(|line| SegmentLine {
                slot: usize::try_from(read_u64(line)).unwrap_or(usize::MAX),
                number: read_u64(&line[8..]),
                live_bytes: read_u64(&line[16..]),
                tombstone_bytes: read_u64(&line[24..]),
                next_expiry_ms: read_u64(&line[32..]),
            })
            .collect();
        check_lines(&segments).map_err(|what| corrupted(blocks_end, what))?;
        let (next_sequence, replay_offset) = (read_u64(&header[24..]), read_u64(&header[40..]));
        if next_sequence > SEQUENCE_MAX || !replay_offset.is_multiple_of(ALIGNMENT as u64) {
            return Err(corrupted(24, "a position that no log has"));
        }
        Ok(Self {
            salt: database_id.salt,
            next_sequence,
            replay_segment: read_u64(&header[32..]),
            replay_offset,
            segments,
            next: HEADER_BYTES as u64,
            blocks_end,
            read_ahead: Vec::new(),
            read_from: 0,
            file,
            path,
        })
    }

    /// Returns the error of damage in the next block.
    pub(crate) fn corrupted(&self, what: &str) -> Error {
        Error::Corrupted { file: self.path.clone(), offset: self.next, what: what.into() }
    }

    /// Returns the last block and its offset, if its last word is the number of its words.
    pub(crate) fn last_block(&mut self) -> Result<Option<(u64, Vec<u64>)>> {
        let Some(last) = self.blocks_end.checked_sub(8).filter(|last| *last >= self.next) else {
            return Ok(None);
        };
        let words = read_u64(self.bytes_at(last, 8)?);
        let bytes = words.checked_mul(8).and_then(|bytes| bytes.checked_add(8));
        let start = bytes.and_then(|bytes| self.blocks_end.checked_sub(bytes));
        let Some(start) = start.filter(|start| words > 0 && *start >= self.next) else {
            return Ok(None);
        };
        let next = std::mem::replace(&mut self.next, start);
        let block = self.next_block();
        let is_last = self.next == self.blocks_end;
        self.next = next;
        match block {
            Ok(Some(block)) if is_last => Ok(Some((start, block))),
            // The blocks end with some other number.
            Ok(_) | Err(Error::Corrupted { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the file and its path.
    pub(crate) fn file(&self) -> (&Arc<dyn File>, &Path) {
        (&self.file, &self.path)
    }

    /// Returns the size of the blocks, in bytes.
    pub(crate) fn blocks_bytes(&self) -> u64 {
        self.blocks_end - HEADER_BYTES as u64
    }

    /// Returns the entries of the next block, or `None` after the last.
    pub(crate) fn next_block(&mut self) -> Result<Option<Vec<u64>>> {
        if self.next >= self.blocks_end {
            return Ok(None);
        }
        let next = self.next;
        let head = self.bytes_at(next, 8)?;
        let (count, sum) = (read_u32(head) as usize, read_u32(&head[4..]));
        let end = next + 8 + count as u64 * 8;
        if count > BLOCK_ENTRIES_MAX || end > self.blocks_end {
            return Err(self.corrupted("a block extends beyond the end of the blocks"));
        }
        let salt = self.salt;
        let bytes = self.bytes_at(next + 8, count * 8)?;
        if crc32c::crc32c_append(salt, bytes) != sum {
            return Err(self.corrupted("the checksum of a block does not match"));
        }
        let entries = bytes.chunks_exact(8).map(read_u64).collect();
        self.next = end;
        Ok(Some(entries))
    }

    /// Returns `count` bytes of the blocks. Reads ahead: a hash database has 1,024 small blocks.
    fn bytes_at(&mut self, offset: u64, count: usize) -> Result<&[u8]> {
        let read_until = self.read_from + self.read_ahead.len() as u64;
        if offset < self.read_from || offset + count as u64 > read_until {
            let left = self.blocks_end.saturating_sub(offset);
            let ahead = usize::try_from(left).unwrap_or(usize::MAX).min(READ_AHEAD_BYTES);
            self.read_ahead = read_exactly(&*self.file, &self.path, offset, ahead.max(count))?;
            self.read_from = offset;
        }
        let start = (offset - self.read_from) as usize;
        Ok(&self.read_ahead[start..start + count])
    }
}

/// Returns the sequence number at which a checkpoint began, even if the rest of it is damaged.
pub(super) fn began(storage: &dyn Storage, directory: &Path) -> Result<Option<u64>> {
    let path = directory.join(NAME);
    match storage.open(&path, Open::Existing) {
        Ok(file) => match read_exactly(&*file, &path, 0, HEADER_BYTES) {
            Ok(header) => Ok((&header[..8] == MAGIC).then(|| read_u64(&header[24..]))),
            Err(Error::Corrupted { .. }) => Ok(None),
            Err(error) => Err(error),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound || is_unreadable(&error) => Ok(None),
        Err(error) => Err(error_at("open", &path, error)),
    }
}

/// Fails unless each slot and each number names one segment.
fn check_lines(lines: &[SegmentLine]) -> std::result::Result<(), &'static str> {
    if lines.iter().any(|line| line.slot >= SEGMENTS_MAX) {
        return Err("a slot number over the limit");
    }
    let slots: BTreeSet<_> = lines.iter().map(|line| line.slot).collect();
    let numbers: BTreeSet<_> = lines.iter().map(|line| line.number).collect();
    if slots.len() < lines.len() || numbers.len() < lines.len() {
        return Err("two lines for one slot or segment");
    }
    Ok(())
}

fn read_exactly(file: &dyn File, path: &Path, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    let mut filled = 0;
    while filled < bytes {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => {
                let what = "it ends too early".to_owned();
                return Err(Error::Corrupted { file: path.to_owned(), offset, what });
            }
            Ok(count) => filled += count,
            Err(error) if is_unreadable(&error) => {
                let (file, what) = (path.to_owned(), UNREADABLE.to_owned());
                return Err(Error::Corrupted { file, offset, what });
            }
            Err(error) => return Err(error_at("read", path, error)),
        }
    }
    Ok(buffer)
}
