//! Header: the first 256 bytes of a file.
//!
//! The header does not state the byte order of its numbers. They are read in both orders. The right
//! one makes the sizes consistent with each other and with the file.

use super::codec::Codec;
use super::number::ByteOrder;
use crate::{KeyOrder, Kind};

/// Length of the header, in bytes.
pub(super) const HEADER_BYTES: usize = 256;

/// First bytes of every file.
const MAGIC: &[u8] = b"ToKyO CaBiNeT";

/// Largest power of two for the alignment of records.
const ALIGNMENT_POWER_MAX: u8 = 16;

/// Fewest bytes between the buckets and the first record of a hash file.
const POOL_BYTES_MIN: u64 = 64;

const IS_OPEN: u8 = 1;
const IS_FATAL: u8 = 2;

const LARGE: u8 = 1;

/// Contents of a file's header. Sizes and offsets are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// Kind of the database.
    pub kind: Kind,
    /// Byte order of numbers.
    pub byte_order: ByteOrder,
    /// Version of the format and revision of the library: `1.0:911`.
    pub version: String,
    /// Whether the last writer did not close the file.
    pub is_open: bool,
    /// Whether the library met a fatal error.
    pub is_fatal: bool,
    /// Whether offsets of records have 64 bits rather than 32.
    pub is_large: bool,
    /// Encoding of values, or of pages in a B+ tree.
    pub codec: Codec,
    /// Binary logarithm of the alignment of records.
    pub alignment_power: u8,
    /// Binary logarithm of the size of the pool of free blocks.
    pub free_pool_power: u8,
    /// Buckets of the hash table; 0 in a fixed-length file.
    pub buckets: u64,
    /// Records, counting each value of a key. Unreliable in a file that was not closed.
    pub records: u64,
    /// Records of the underlying hash table: pages of a B+ tree, otherwise equal to `records`.
    pub hash_records: u64,
    /// Bytes of the file in use.
    pub used_bytes: u64,
    /// Offset of the first record.
    pub first_record: u64,
    /// Fields of this kind only.
    pub shape: Shape,
}

/// Fields of the header that only one kind of database has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// Hash, without such fields.
    Hash,
    /// B+ tree.
    Tree {
        /// Order of keys. `None` is a function of the application, which is not in the file.
        order: Option<KeyOrder>,
        /// Most records of a leaf.
        leaf_members: u32,
        /// Most entries of an inner node.
        node_members: u32,
        /// Identity of the root page.
        root: u64,
        /// Identity of the first leaf.
        first_leaf: u64,
        /// Identity of the last leaf.
        last_leaf: u64,
    },
    /// Fixed-length.
    Fixed {
        /// Longest value.
        width: u64,
        /// Most bytes of a file.
        limit_bytes: u64,
        /// Least number of a record.
        least: u64,
        /// Greatest number of a record.
        greatest: u64,
    },
    /// Table.
    Table {
        /// Last number that was assigned to a primary key.
        last_unique_id: u64,
    },
}

/// Returns whether the bytes begin one of Tokyo Cabinet's files.
pub(super) fn is_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

impl Header {
    /// Parses the header of a file of `length` bytes.
    ///
    /// Sizes that are consistent with each other but not with the file occur after a crash or in a
    /// truncated file. They are accepted if no byte order makes them fit.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES], length: u64) -> Result<Self, &'static str> {
        if !is_magic(bytes) {
            return Err("it does not begin like Tokyo Cabinet's files");
        }
        let both = [ByteOrder::Little, ByteOrder::Big].map(|order| Self::read(bytes, order));
        let [little, big] = both;
        let (little, big) = (little?, big?);
        let fits = |header: &Self| header.fits_itself(length) && header.fits_file(length);
        let candidates = [little, big];
        candidates
            .iter()
            .find(|header| fits(header))
            .or_else(|| candidates.iter().find(|header| header.fits_itself(length)))
            .cloned()
            .ok_or("the sizes in the header make no sense in either byte order")
    }

    /// Parses the header in one byte order.
    pub(super) fn read(bytes: &[u8; HEADER_BYTES], order: ByteOrder) -> Result<Self, &'static str> {
        let number = |offset: usize, count: usize| order.number(&bytes[offset..offset + count]);
        let word = |offset| number(offset, 8);
        let options = bytes[36];
        let hash_records = word(48);
        let mut records = hash_records;
        let (kind, shape) = match bytes[32] {
            0 => (Kind::Hash, Shape::Hash),
            1 => {
                records = word(184);
                let order = match bytes[128] {
                    0 => Some(KeyOrder::Lexical),
                    1 => Some(KeyOrder::Decimal),
                    2 => Some(KeyOrder::Int32),
                    3 => Some(KeyOrder::Int64),
                    255 => None,
                    _ => return Err("an unknown order of keys"),
                };
                let shape = Shape::Tree {
                    order,
                    leaf_members: number(136, 4) as u32,
                    node_members: number(140, 4) as u32,
                    root: word(144),
                    first_leaf: word(152),
                    last_leaf: word(160),
                };
                (Kind::Tree, shape)
            }
            2 => {
                let shape = Shape::Fixed {
                    width: word(64),
                    limit_bytes: word(72),
                    least: word(80),
                    greatest: word(88),
                };
                (Kind::Fixed, shape)
            }
            3 => (Kind::Table, Shape::Table { last_unique_id: word(128) }),
            _ => return Err("an unknown kind of database"),
        };
        let is_fixed = kind == Kind::Fixed;
        if !is_fixed && bytes[34] > ALIGNMENT_POWER_MAX {
            return Err("an alignment over the limit");
        }
        Ok(Self {
            kind,
            byte_order: order,
            version: version(bytes),
            is_open: bytes[33] & IS_OPEN != 0,
            is_fatal: bytes[33] & IS_FATAL != 0,
            is_large: options & LARGE != 0,
            // Values of a fixed-length file are plain, whatever the options say.
            codec: if is_fixed { Codec::Plain } else { Codec::of_options(options) },
            alignment_power: if is_fixed { 0 } else { bytes[34] },
            free_pool_power: bytes[35],
            buckets: if is_fixed { 0 } else { word(40) },
            records,
            hash_records,
            used_bytes: word(56),
            first_record: if is_fixed { HEADER_BYTES as u64 } else { word(64) },
            shape,
        })
    }

    /// Returns the bytes of the offset of a record.
    pub(super) fn link_bytes(&self) -> usize {
        if self.is_large { 8 } else { 4 }
    }

    /// Returns whether the fields that cannot grow are consistent, in a file of `length` bytes.
    fn fits_itself(&self, length: u64) -> bool {
        match self.shape {
            Shape::Fixed { width, limit_bytes, least, greatest } => {
                (1..1 << 32).contains(&width)
                    && limit_bytes >= HEADER_BYTES as u64
                    && least <= greatest
            }
            _ => {
                let records = self
                    .buckets
                    .checked_mul(self.link_bytes() as u64)
                    .and_then(|bytes| bytes.checked_add(HEADER_BYTES as u64 + POOL_BYTES_MIN));
                self.buckets > 0
                    && records.is_some_and(|least| least <= self.first_record)
                    && self.first_record <= length
            }
        }
    }

    /// Returns whether the fields that grow are consistent with a file of `length` bytes.
    fn fits_file(&self, length: u64) -> bool {
        (self.first_record..=length).contains(&self.used_bytes)
    }
}

/// Returns the text after the magic, up to the end of its line.
fn version(bytes: &[u8; HEADER_BYTES]) -> String {
    let text = &bytes[MAGIC.len()..32];
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_header(order: ByteOrder) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..13].copy_from_slice(MAGIC);
        bytes[13..22].copy_from_slice(b"\n1.0:911\n");
        bytes[34] = 4;
        bytes[35] = 10;
        for (offset, number) in [(40, 103u64), (48, 7), (56, 8192), (64, 4864)] {
            put(&mut bytes, order, offset, number);
        }
        bytes
    }

    fn put(bytes: &mut [u8; HEADER_BYTES], order: ByteOrder, offset: usize, number: u64) {
        let number = match order {
            ByteOrder::Little => number.to_le_bytes(),
            ByteOrder::Big => number.to_be_bytes(),
        };
        bytes[offset..offset + 8].copy_from_slice(&number);
    }

    #[test]
    fn the_byte_order_is_the_one_in_which_the_sizes_fit() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let header = Header::parse(&hash_header(order), 8192).unwrap();
            assert_eq!(header.byte_order, order);
            assert_eq!((header.buckets, header.records), (103, 7));
            assert_eq!((header.used_bytes, header.first_record), (8192, 4864));
            assert_eq!(header.version, "1.0:911");
        }
    }

    #[test]
    fn a_truncated_file_is_still_read_in_its_byte_order() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let header = Header::parse(&hash_header(order), 5000).unwrap();
            assert_eq!((header.byte_order, header.used_bytes), (order, 8192));
            Header::parse(&hash_header(order), 4000).unwrap_err();
        }
    }

    #[test]
    fn unknown_values_are_refused() {
        let good = hash_header(ByteOrder::Little);
        for (offset, byte) in [(0, b'x'), (32, 4), (34, ALIGNMENT_POWER_MAX + 1), (47, 0xff)] {
            let mut bytes = good;
            bytes[offset] = byte;
            Header::parse(&bytes, 8192).unwrap_err();
        }
        let mut tree = good;
        tree[32] = 1;
        Header::parse(&tree, 8192).unwrap();
        tree[128] = 4;
        Header::parse(&tree, 8192).unwrap_err();
        let mut aligned = good;
        aligned[34] = ALIGNMENT_POWER_MAX;
        Header::parse(&aligned, 8192).unwrap();
    }
}
