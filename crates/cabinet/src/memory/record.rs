//! One record in one allocation.
//!
//! ```text
//! 0   key length in the low 24 bits, control byte above, little-endian
//! 4   version, 8 bytes
//! 12  flags, 4 bytes, and expiry, 8 bytes: only if set in the control byte
//!     key
//!     value, compressed if set in the control byte
//! ```

use crate::base::compress::{compress, decompress};
use crate::{Compression, Error, Meta, RecordRef, Result, Version};
use std::borrow::Cow;
use std::path::PathBuf;

const HEADER_BYTES: usize = 12;
const META_BYTES: usize = 12;

const KEY_LENGTH_MASK: u32 = 0x00ff_ffff;
const HAS_META: u32 = 1 << 24;
const IS_LZ4: u32 = 1 << 25;
const IS_ZSTD: u32 = 1 << 26;

/// Bytes that an allocator adds to a block, and the unit to which it rounds up.
const ALLOCATION_HEADER_BYTES: usize = 8;
const ALLOCATION_UNIT_BYTES: usize = 16;

/// Returns the bytes of a record with its header.
pub(super) fn bytes_of(key: &[u8], value: &[u8], meta: Meta) -> usize {
    let meta_bytes = if meta == Meta::NONE { 0 } else { META_BYTES };
    HEADER_BYTES + meta_bytes + key.len() + value.len()
}

/// Returns the bytes of memory of a record with its header, including the allocator's.
pub(super) fn size_bytes(bytes: usize) -> usize {
    (bytes + ALLOCATION_HEADER_BYTES)
        .next_multiple_of(ALLOCATION_UNIT_BYTES)
        .max(2 * ALLOCATION_UNIT_BYTES)
}

/// A key with its value and metadata.
#[derive(Debug)]
pub(super) struct Record {
    bytes: Box<[u8]>,
}

impl Record {
    /// Builds a record without a version. The key is at most [`crate::limits::KEY_BYTES_MAX`]
    /// bytes.
    pub(super) fn new(key: &[u8], value: &[u8], meta: Meta, compression: Compression) -> Self {
        let compressed = compress(value, compression);
        let mut head = key.len() as u32 & KEY_LENGTH_MASK;
        if meta != Meta::NONE {
            head |= HAS_META;
        }
        if compressed.is_some() {
            head |= if compression == Compression::Lz4 { IS_LZ4 } else { IS_ZSTD };
        }
        let value = compressed.as_deref().unwrap_or(value);
        let mut bytes = Vec::with_capacity(bytes_of(key, value, meta));
        bytes.extend_from_slice(&head.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        if meta != Meta::NONE {
            bytes.extend_from_slice(&meta.flags.to_le_bytes());
            bytes.extend_from_slice(&meta.expires_at_ms.to_le_bytes());
        }
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        Self { bytes: bytes.into_boxed_slice() }
    }

    /// Overwrites the value with one of the same length, if neither it nor the metadata changes the
    /// layout. Returns whether it did. Saves an allocation.
    pub(super) fn overwrite(&mut self, value: &[u8], meta: Meta) -> bool {
        let start = self.key_start() + self.key_length();
        let is_plain = self.head() & (HAS_META | IS_LZ4 | IS_ZSTD) == 0 && meta == Meta::NONE;
        if !is_plain || self.bytes.len() - start != value.len() {
            return false;
        }
        self.bytes[start..].copy_from_slice(value);
        true
    }

    pub(super) fn set_version(&mut self, version: Version) {
        self.bytes[4..12].copy_from_slice(&version.to_le_bytes());
    }

    pub(super) fn version(&self) -> Version {
        self.u64_at(4)
    }

    pub(super) fn meta(&self) -> Meta {
        if self.head() & HAS_META == 0 {
            return Meta::NONE;
        }
        Meta { flags: self.u32_at(12), expires_at_ms: self.u64_at(16) }
    }

    pub(super) fn key(&self) -> &[u8] {
        let start = self.key_start();
        &self.bytes[start..start + self.key_length()]
    }

    /// Returns the value, decompressed.
    pub(super) fn value(&self) -> Result<Cow<'_, [u8]>> {
        let start = self.key_start() + self.key_length();
        let stored = &self.bytes[start..];
        let compression = match self.head() & (IS_LZ4 | IS_ZSTD) {
            0 => return Ok(Cow::Borrowed(stored)),
            IS_LZ4 => Compression::Lz4,
            _ => Compression::Zstd,
        };
        // Only damaged memory can make decompression fail.
        decompress(stored, compression).map(Cow::Owned).map_err(|error| Error::Corrupted {
            file: PathBuf::from("memory"),
            offset: start as u64,
            what: error.to_string(),
        })
    }

    /// Calls `visit` with the record.
    pub(super) fn visit<T>(&self, visit: impl FnOnce(RecordRef<'_>) -> T) -> Result<T> {
        let value = self.value()?;
        Ok(visit(RecordRef {
            key: self.key(),
            value: &value,
            meta: self.meta(),
            version: self.version(),
        }))
    }

    /// Returns the bytes of memory of the record, including the allocator's.
    pub(super) fn size_bytes(&self) -> usize {
        size_bytes(self.bytes.len())
    }

    fn head(&self) -> u32 {
        self.u32_at(0)
    }

    fn key_length(&self) -> usize {
        (self.head() & KEY_LENGTH_MASK) as usize
    }

    fn key_start(&self) -> usize {
        if self.head() & HAS_META == 0 { HEADER_BYTES } else { HEADER_BYTES + META_BYTES }
    }

    fn u32_at(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.bytes[at..at + 4]);
        u32::from_le_bytes(bytes)
    }

    fn u64_at(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.bytes[at..at + 8]);
        u64::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::KEY_BYTES_MAX;

    #[test]
    fn a_record_returns_its_key_value_and_metadata() {
        let long_key = vec![7; KEY_BYTES_MAX];
        let large_value = vec![9; 5000];
        let metas =
            [Meta::NONE, Meta { flags: 5, expires_at_ms: 0 }, Meta { flags: 0, expires_at_ms: 1 }];
        for key in [&b""[..], b"key", &long_key] {
            for value in [&b""[..], b"value", &large_value] {
                for meta in metas {
                    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
                        let mut record = Record::new(key, value, meta, compression);
                        record.set_version(u64::MAX - 1);
                        record
                            .visit(|entry| {
                                assert_eq!((entry.key, entry.value), (key, value));
                                assert_eq!((entry.meta, entry.version), (meta, u64::MAX - 1));
                            })
                            .unwrap();
                    }
                }
            }
        }
        let plain = Record::new(b"key", &large_value, Meta::NONE, Compression::None);
        let packed = Record::new(b"key", &large_value, Meta::NONE, Compression::Lz4);
        assert!(packed.size_bytes() < plain.size_bytes() / 10);
    }
}
