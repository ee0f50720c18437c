//! Blocks of a hash file: records and free space, back to back.
//!
//! ```text
//! record                                   free space
//! 0  1  magic C8                           0  1  magic B0
//! 1  1  hash of the key                    1  4  bytes of the block
//! 2  w  places of two other records,             anything
//!    w  which are not needed here
//!    2  bytes of padding
//!    v  bytes of the key
//!    v  bytes of the value as stored
//!       key, value, padding
//! ```
//!
//! `w` is 4, or 8 in a large file; `v` is a number of variable width. Blocks begin at multiples of
//! the file's alignment.

use super::header::Header;
use super::number::{ByteOrder, Rest, VARINT_BYTES_MAX};
use super::source::Window;
use std::io;

pub(super) const RECORD_MAGIC: u8 = 0xc8;
pub(super) const FREE_MAGIC: u8 = 0xb0;

/// Most bytes before a key.
const HEAD_BYTES_MAX: usize = 2 + 2 * 8 + 2 + 2 * VARINT_BYTES_MAX;

/// Bytes of magic and size of a free block.
const FREE_HEAD_BYTES: u64 = 5;

/// Offsets of the blocks of a file, and how blocks are encoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Offset of the first block.
    pub(super) first: u64,
    /// Offset after the last block.
    pub(super) end: u64,
    /// Alignment of blocks, in bytes.
    pub(super) alignment: u64,
    link_bytes: usize,
    order: ByteOrder,
}

/// A block, by its location in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    Record(Record),
    Free { end: u64 },
}

/// A record, by its location. It is wholly within the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) offset: u64,
    pub(super) hash: u8,
    pub(super) key_offset: u64,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
    pub(super) end: u64,
}

impl Layout {
    /// Returns the layout of a file of `length` bytes.
    pub(super) fn of(header: &Header, length: u64) -> Self {
        Self {
            first: header.first_record,
            end: header.used_bytes.min(length),
            alignment: 1 << header.alignment_power,
            link_bytes: header.link_bytes(),
            order: header.byte_order,
        }
    }

    /// Returns the block at an offset, or the reason why there is none.
    pub(super) fn block(
        &self,
        window: &mut Window<'_>,
        offset: u64,
    ) -> io::Result<Result<Block, &'static str>> {
        let left = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let head = window.bytes(offset, HEAD_BYTES_MAX.min(left))?;
        Ok(self.parse(head, offset))
    }

    fn parse(&self, head: &[u8], offset: u64) -> Result<Block, &'static str> {
        match head.first() {
            None => Err("the file ends"),
            Some(&RECORD_MAGIC) => self.record(head, offset).map(Block::Record),
            Some(&FREE_MAGIC) => {
                let size = head.get(1..5).ok_or("a truncated free block")?;
                let size = self.order.number(size);
                let end = offset.saturating_add(size);
                if size < FREE_HEAD_BYTES || !self.may_end(end) {
                    return Err("a free block of an impossible size");
                }
                Ok(Block::Free { end })
            }
            Some(_) => Err("neither a record nor a free block"),
        }
    }

    fn record(&self, head: &[u8], offset: u64) -> Result<Record, &'static str> {
        let cut = "a truncated record";
        let mut rest = Rest(head);
        let hash = rest.bytes(2).ok_or(cut)?[1];
        rest.bytes(2 * self.link_bytes as u64).ok_or(cut)?;
        let padding = self.order.number(rest.bytes(2).ok_or(cut)?);
        let key_bytes = rest.number().ok_or(cut)?;
        let value_bytes = rest.number().ok_or(cut)?;
        let key_offset = offset + (head.len() - rest.0.len()) as u64;
        let end = [key_bytes, value_bytes, padding]
            .into_iter()
            .try_fold(key_offset, u64::checked_add)
            .filter(|end| self.may_end(*end))
            .ok_or("a record of an impossible size")?;
        let as_usize = |bytes| usize::try_from(bytes).map_err(|_| "a record over the limit");
        let (key_bytes, value_bytes) = (as_usize(key_bytes)?, as_usize(value_bytes)?);
        Ok(Record { offset, hash, key_offset, key_bytes, value_bytes, end })
    }

    fn may_end(&self, end: u64) -> bool {
        end <= self.end && end.is_multiple_of(self.alignment)
    }
}

impl Block {
    pub(super) fn end(&self) -> u64 {
        match self {
            Self::Record(record) => record.end,
            Self::Free { end } => *end,
        }
    }
}

/// Returns the byte of a key's second hash that is stored with its record.
pub(super) fn key_hash(key: &[u8]) -> u8 {
    key.iter().rev().fold(751u32, |hash, byte| hash.wrapping_mul(31) ^ u32::from(*byte)) as u8
}
