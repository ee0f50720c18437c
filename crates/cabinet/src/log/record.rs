//! Records of the log: their bytes, encoding and decoding.
//!
//! ```text
//!  0   4  CRC-32C of the bytes from 12 on, then of bytes 4..12, started from the log's salt;
//!         XORed with the mask of the record's place, see [`Binding`]
//!  4   8  sequence number: of the change that made the record; kept when compaction moves it
//! 12   1  flags: bits 0-1 and 6 kind (0 put, 1 tombstone, 2 batch, 3 page; with bit 6:
//!                1 filler, 2 append block, 3 sync mark)
//!                bit 2 an expiry is present, bit 3 client flags are present
//!                bits 4-5 compression of the value (0 none, 1 LZ4, 2 Zstandard)
//! 13 1-3  length of the key, LEB128
//!    1-5  length of the value as stored, LEB128
//!   (8)   expiry, milliseconds since the Unix epoch
//!   (4)   client flags
//!         key
//!         value
//!    0-7  zeros, up to a multiple of 8
//! ```
//!
//! All numbers are little-endian. The checksum covers the sequence number last. So a writer can
//! compute nearly all of it before it holds the lock under which the number is assigned.
//!
//! The value of a tombstone is the number of the segment it was first written to, 8 bytes: the
//! record that it removes is there or before. A page is a part of an index, under a key that the
//! engine chooses.
//!
//! The value of a batch is the records that it joins. Its own checksum covers only its header,
//! because each member has one. The same is true of an append block and of a filler. The records of
//! an append block are independent of each other and need not fill it. The value of a filler means
//! nothing.
//!
//! The value of a sync mark is the number of a segment and a byte offset in it, 8 bytes each:
//! everything in the log before that point was synced when the mark was written.

use super::binding::Binding;
use crate::base::checksum;
use crate::base::varint;
use crate::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::{Compression, Meta};

/// Records begin at multiples of this, in bytes.
pub(crate) const ALIGNMENT: usize = 8;

/// Minimum size of a record, in bytes: prefix, flags, two lengths, padding.
pub(crate) const RECORD_BYTES_MIN: usize = 16;

/// Maximum number of bytes of records in an append block.
pub(crate) const BLOCK_BYTES_MAX: usize = 64 << 10;

/// Size of the checksum, in bytes.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// Size of the checksum and sequence number, in bytes.
pub(crate) const PREFIX_BYTES: usize = 12;

/// Maximum size of a header, in bytes: prefix, flags, two lengths, expiry, client flags.
pub(crate) const HEADER_BYTES_MAX: usize = PREFIX_BYTES + 1 + 3 + 5 + 8 + 4;

/// Highest sequence number: far above that of any real log, and so low that none ever overflows.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 62;

/// Maximum size of a page besides the key and value of the one record that it may hold, in bytes.
pub(crate) const PAGE_OVERHEAD_BYTES_MAX: usize = 512;

/// Maximum size of a record, padding included, in bytes.
pub(crate) const RECORD_BYTES_MAX: usize =
    HEADER_BYTES_MAX + KEY_BYTES_MAX + VALUE_BYTES_MAX + PAGE_OVERHEAD_BYTES_MAX + ALIGNMENT;

/// Values of append blocks and fillers, which are never read.
static ZEROS: [u8; BLOCK_BYTES_MAX] = [0; BLOCK_BYTES_MAX];

const KIND_MASK: u8 = 0b0100_0011;
const KIND_PAGE: u8 = 3;
const KIND_FILLER: u8 = 0b0100_0001;
const KIND_APPEND_BLOCK: u8 = 0b0100_0010;
const KIND_MARK: u8 = 0b0100_0011;
const HAS_EXPIRY: u8 = 1 << 2;
const HAS_CLIENT_FLAGS: u8 = 1 << 3;
const COMPRESSION_SHIFT: u8 = 4;
const KNOWN_FLAGS: u8 = 0b0111_1111;

/// Meaning of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The key has this value.
    Put,
    /// The key no longer has a value.
    Tombstone,
    /// The records in the value are valid together or not at all.
    Batch,
    /// A part of the engine's index.
    Page,
    /// Independent records, one after the other, and zeros if the block was not filled.
    AppendBlock,
    /// Fills the rest of an append block.
    Filler,
    /// Records how far the log had been synced. Engines ignore it.
    Mark,
}

impl Kind {
    /// Returns whether the checksum leaves out the value.
    fn is_hollow(self) -> bool {
        matches!(self, Self::Batch | Self::AppendBlock | Self::Filler)
    }
}

/// A record, borrowing from the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) kind: Kind,
    pub(crate) sequence: u64,
    pub(crate) meta: Meta,
    pub(crate) compression: Compression,
    pub(crate) key: &'a [u8],
    /// The value as stored.
    pub(crate) value: &'a [u8],
    /// Offset of the value in the record, in bytes.
    pub(crate) value_start: usize,
    /// Size in the log, padding included, in bytes.
    pub(crate) total: usize,
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotARecord {
    /// Nothing was written here.
    Unwritten,
    /// The record extends beyond the given bytes; at least this many are needed.
    Short(usize),
    /// The bytes are damaged, or never were a record.
    Bad(&'static str),
}

/// The lengths at the beginning of a record.
#[derive(Clone, Copy, Debug)]
struct Header {
    kind: Kind,
    sequence: u64,
    meta: Meta,
    compression: Compression,
    key_start: usize,
    value_start: usize,
    end: usize,
    total: usize,
}

impl Header {
    #[inline]
    fn decode(bytes: &[u8]) -> Result<Self, NotARecord> {
        let short = NotARecord::Short(HEADER_BYTES_MAX);
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
            return Err(short);
        };
        let sequence = read_u64(&prefix[4..]);
        if sequence == 0 {
            // The first sequence number is 1.
            let blank = prefix.iter().all(|byte| *byte == 0);
            return Err(if blank {
                NotARecord::Unwritten
            } else {
                NotARecord::Bad("sequence number 0")
            });
        }
        if sequence > SEQUENCE_MAX {
            return Err(NotARecord::Bad("a sequence number over the limit"));
        }
        let (&flags, rest) = rest.split_first().ok_or(short)?;
        let kind = match flags & KIND_MASK {
            0 => Kind::Put,
            1 => Kind::Tombstone,
            2 => Kind::Batch,
            KIND_PAGE => Kind::Page,
            KIND_APPEND_BLOCK => Kind::AppendBlock,
            KIND_FILLER => Kind::Filler,
            KIND_MARK => Kind::Mark,
            _ => return Err(NotARecord::Bad("unknown flags")),
        };
        let compression = match flags >> COMPRESSION_SHIFT & 0b11 {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Zstd,
            _ => return Err(NotARecord::Bad("unknown compression")),
        };
        if flags & !KNOWN_FLAGS != 0 {
            return Err(NotARecord::Bad("unknown flags"));
        }
        let (key_bytes, rest) = split_length(rest)?;
        let (value_bytes, mut rest) = split_length(rest)?;
        if key_bytes > KEY_BYTES_MAX || value_bytes > RECORD_BYTES_MAX {
            return Err(NotARecord::Bad("a length over the limit"));
        }
        let mut meta = Meta::NONE;
        if flags & HAS_EXPIRY != 0 {
            let (expiry, after) = rest.split_first_chunk::<8>().ok_or(short)?;
            meta.expires_at_ms = u64::from_le_bytes(*expiry);
            rest = after;
        }
        if flags & HAS_CLIENT_FLAGS != 0 {
            let (client_flags, after) = rest.split_first_chunk::<4>().ok_or(short)?;
            meta.flags = u32::from_le_bytes(*client_flags);
            rest = after;
        }
        let key_start = bytes.len() - rest.len();
        let value_start = key_start + key_bytes;
        let end = value_start + value_bytes;
        let total = end.next_multiple_of(ALIGNMENT);
        Ok(Self { kind, sequence, meta, compression, key_start, value_start, end, total })
    }
}

/// Returns the size in the log, in bytes, of the record that `bytes` begin with, if they do. The
/// first [`RECORD_BYTES_MIN`] bytes suffice unless the record is longer than [`HEADER_BYTES_MAX`].
#[inline]
pub(crate) fn total(bytes: &[u8]) -> Result<usize, NotARecord> {
    let lengths = bytes.get(PREFIX_BYTES + 1..).ok_or(NotARecord::Short(HEADER_BYTES_MAX))?;
    let flags = bytes[PREFIX_BYTES];
    let (key_bytes, rest) = split_length(lengths)?;
    let (value_bytes, rest) = split_length(rest)?;
    let mut total = bytes.len() - rest.len() + key_bytes + value_bytes;
    if flags & HAS_EXPIRY != 0 {
        total += 8;
    }
    if flags & HAS_CLIENT_FLAGS != 0 {
        total += 4;
    }
    Ok(total.next_multiple_of(ALIGNMENT))
}

impl<'a> Record<'a> {
    /// Decodes the record that `bytes` begin with, and verifies its checksum. The bytes are at
    /// `offset` of the segment with this binding.
    #[inline]
    pub(crate) fn decode(
        bytes: &'a [u8],
        binding: Binding,
        offset: usize,
    ) -> Result<Self, NotARecord> {
        let (record, checked_end) = Self::split(bytes)?;
        let stored = read_u32(bytes) ^ binding.mask(offset);
        let body = &bytes[PREFIX_BYTES..checked_end];
        if stored != record_checksum(binding.salt(), body, &bytes[4..12]) {
            return Err(NotARecord::Bad("the checksum does not match"));
        }
        Ok(record)
    }

    /// Like `decode`, without the checksum: enough to compare a key.
    #[inline]
    pub(crate) fn decode_unchecked(bytes: &'a [u8]) -> Result<Self, NotARecord> {
        Self::split(bytes).map(|(record, _)| record)
    }

    #[inline]
    fn split(bytes: &'a [u8]) -> Result<(Self, usize), NotARecord> {
        let header = Header::decode(bytes)?;
        if bytes.len() < header.total {
            return Err(NotARecord::Short(header.total));
        }
        let record = Self {
            kind: header.kind,
            sequence: header.sequence,
            meta: header.meta,
            compression: header.compression,
            key: &bytes[header.key_start..header.value_start],
            value: &bytes[header.value_start..header.end],
            value_start: header.value_start,
            total: header.total,
        };
        let checked_end = record.checked_end();
        Ok((record, checked_end))
    }

    /// Returns the point that a sync mark records: the number of a segment and a byte offset in it.
    /// `None` if the value is not 16 bytes long.
    pub(crate) fn synced(&self) -> Option<(u64, u64)> {
        let (number, offset) = self.value.split_first_chunk::<8>()?;
        Some((u64::from_le_bytes(*number), u64::from_le_bytes(offset.try_into().ok()?)))
    }

    /// Returns the offset in the record at which the bytes end that its checksum covers.
    #[inline]
    pub(super) fn checked_end(&self) -> usize {
        self.value_start + if self.kind.is_hollow() { 0 } else { self.value.len() }
    }

    /// Returns whether the value is other records.
    pub(super) fn is_joint(&self) -> bool {
        matches!(self.kind, Kind::Batch | Kind::AppendBlock)
    }

    /// Returns the number of the segment that a tombstone was first written to.
    pub(crate) fn birth_segment(&self) -> Option<u64> {
        Some(u64::from_le_bytes(self.value.try_into().ok()?))
    }
}

/// Returns the bytes that a record takes in the log, padding included, if it is not compressed.
pub(crate) fn stored_bytes(key: &[u8], value: &[u8], meta: Meta) -> usize {
    let lengths = varint::len(key.len() as u64) + varint::len(value.len() as u64);
    let expiry = if meta.expires_at_ms == 0 { 0 } else { size_of::<u64>() };
    let flags = if meta.flags == 0 { 0 } else { size_of::<u32>() };
    let header = PREFIX_BYTES + 1 + lengths + expiry + flags;
    (header + key.len() + value.len()).next_multiple_of(ALIGNMENT)
}

/// A record about to be written, complete but for its sequence number and place.
pub(crate) struct Prepared<'a> {
    header: [u8; HEADER_BYTES_MAX],
    header_bytes: usize,
    key: &'a [u8],
    value: &'a [u8],
    /// Checksum of everything but the sequence number.
    partial: u32,
}

impl<'a> Prepared<'a> {
    /// Prepares a record. The caller has checked the limits.
    #[inline]
    pub(crate) fn new(
        salt: u32,
        kind: Kind,
        key: &'a [u8],
        value: &'a [u8],
        meta: Meta,
        compression: Compression,
    ) -> Self {
        let mut header = [0; HEADER_BYTES_MAX];
        let mut end = PREFIX_BYTES + 1;
        let mut flags = match kind {
            Kind::Put => 0,
            Kind::Tombstone => 1,
            Kind::Batch => 2,
            Kind::Page => KIND_PAGE,
            Kind::AppendBlock => KIND_APPEND_BLOCK,
            Kind::Filler => KIND_FILLER,
            Kind::Mark => KIND_MARK,
        };
        flags |= match compression {
            Compression::None => 0,
            Compression::Lz4 => 1 << COMPRESSION_SHIFT,
            Compression::Zstd => 2 << COMPRESSION_SHIFT,
        };
        end = varint::write(&mut header, end, key.len() as u64);
        end = varint::write(&mut header, end, value.len() as u64);
        if meta.expires_at_ms != 0 {
            flags |= HAS_EXPIRY;
            header[end..end + 8].copy_from_slice(&meta.expires_at_ms.to_le_bytes());
            end += 8;
        }
        if meta.flags != 0 {
            flags |= HAS_CLIENT_FLAGS;
            header[end..end + 4].copy_from_slice(&meta.flags.to_le_bytes());
            end += 4;
        }
        header[PREFIX_BYTES] = flags;
        let head = &header[PREFIX_BYTES..end];
        let body = if kind.is_hollow() { &[][..] } else { value };
        let partial = body_checksum(salt, [head, key, body]);
        Self { header, header_bytes: end, key, value, partial }
    }

    /// Prepares the beginning of an append block for `bytes` bytes of records, a multiple of
    /// [`ALIGNMENT`] up to [`BLOCK_BYTES_MAX`]. Records may begin right after it.
    pub(crate) fn append_block(salt: u32, bytes: usize) -> Self {
        let (meta, compression) = (Meta::NONE, Compression::None);
        let block = Self::new(salt, Kind::AppendBlock, &[], &ZEROS[..bytes], meta, compression);
        let padding = &ZEROS[..block.padding_to_align_value()];
        Self::new(salt, Kind::AppendBlock, padding, &ZEROS[..bytes], meta, compression)
    }

    /// Prepares a record that fills `bytes` bytes at the end of an append block: a multiple of
    /// [`ALIGNMENT`] from [`RECORD_BYTES_MIN`] up to [`BLOCK_BYTES_MAX`].
    pub(crate) fn filler(salt: u32, bytes: usize) -> Self {
        // A length takes up to three bytes. Bytes that the header does not need become padding.
        let value = bytes.saturating_sub(PREFIX_BYTES + 1 + 1 + 3);
        Self::new(salt, Kind::Filler, &[], &ZEROS[..value], Meta::NONE, Compression::None)
    }

    /// Like [`Prepared::seal`], without the value.
    pub(crate) fn seal_hollow(&mut self, sequence: u64, mask: u32) -> [&[u8]; 2] {
        let [header, key, _] = self.seal(sequence, mask);
        [header, key]
    }

    /// Returns whether this is a page of a leaf.
    pub(crate) fn is_page(&self) -> bool {
        self.header[PREFIX_BYTES] & KIND_MASK == KIND_PAGE
    }

    /// Returns the size in the log, padding included, in bytes.
    pub(crate) fn total(&self) -> usize {
        (self.header_bytes + self.key.len() + self.value.len()).next_multiple_of(ALIGNMENT)
    }

    /// Returns the length of a key with which the value begins where records may begin.
    pub(crate) fn padding_to_align_value(&self) -> usize {
        self.header_bytes.next_multiple_of(ALIGNMENT) - self.header_bytes
    }

    /// Returns the parts of the record under this sequence number, at the place with this mask.
    #[inline]
    pub(crate) fn seal(&mut self, sequence: u64, mask: u32) -> [&[u8]; 3] {
        let sequence = sequence.to_le_bytes();
        let sum = checksum::append(self.partial, &sequence) ^ mask;
        self.header[..4].copy_from_slice(&sum.to_le_bytes());
        self.header[4..12].copy_from_slice(&sequence);
        [&self.header[..self.header_bytes], self.key, self.value]
    }

    /// Appends the record under this sequence number, padding included, to `bytes`. It is not bound
    /// to a place yet, see [`bind`].
    pub(crate) fn write_to(&mut self, sequence: u64, bytes: &mut Vec<u8>) {
        let end = bytes.len() + self.total();
        for part in self.seal(sequence, 0) {
            bytes.extend_from_slice(part);
        }
        bytes.resize(end, 0);
    }
}

/// Returns the checksum of the record that `bytes` begin with, bound to a place with this mask. The
/// mask of the place to which it is bound now, if any, is a part of `mask`: both are XORed.
#[inline]
pub(crate) fn bound_checksum(bytes: &[u8], mask: u32) -> [u8; CHECKSUM_BYTES] {
    (read_u32(bytes) ^ mask).to_le_bytes()
}

/// Binds a record that is bound to no place to the one with this mask.
pub(crate) fn bind(bytes: &mut [u8], mask: u32) {
    let sum = bound_checksum(bytes, mask);
    bytes[..CHECKSUM_BYTES].copy_from_slice(&sum);
}

#[inline]
fn body_checksum(salt: u32, parts: [&[u8]; 3]) -> u32 {
    parts.iter().fold(salt, |sum, part| checksum::append(sum, part))
}

/// Returns the checksum `sum` of earlier bytes, continued with `bytes`.
#[inline]
pub(crate) fn continue_checksum(sum: u32, bytes: &[u8]) -> u32 {
    checksum::append(sum, bytes)
}

#[inline]
fn record_checksum(salt: u32, body: &[u8], sequence: &[u8]) -> u32 {
    checksum::append(checksum::append(salt, body), sequence)
}

#[inline]
pub(crate) fn read_u64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[inline]
pub(crate) fn read_u32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Maximum size of an encoded length, in bytes.
const LENGTH_BYTES_MAX: usize = 5;

/// Returns the length that `bytes` begin with, and the rest.
#[inline]
fn split_length(bytes: &[u8]) -> Result<(usize, &[u8]), NotARecord> {
    let Some((length, rest)) = varint::split::<LENGTH_BYTES_MAX>(bytes) else {
        return Err(match bytes.len() < LENGTH_BYTES_MAX {
            true => NotARecord::Short(HEADER_BYTES_MAX),
            false => NotARecord::Bad("a length over the limit"),
        });
    };
    let length = usize::try_from(length).map_err(|_| NotARecord::Bad("a length over the limit"))?;
    Ok((length, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(kind: Kind, key: &[u8], value: &[u8], meta: Meta, salt: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        Prepared::new(salt, kind, key, value, meta, Compression::None).write_to(7, &mut bytes);
        bytes
    }

    fn decode(bytes: &[u8], salt: u32) -> Result<Record<'_>, NotARecord> {
        Record::decode(bytes, Binding::unmasked(salt), 0)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            key: Vec<u8>, value: Vec<u8>, expires_at_ms: u64, flags: u32, salt: u32,
        ) {
            let meta = Meta { flags, expires_at_ms };
            let bytes = written(Kind::Put, &key, &value, meta, salt);
            prop_assert!(bytes.len().is_multiple_of(ALIGNMENT));
            let record = decode(&bytes, salt).unwrap();
            prop_assert_eq!((record.key, record.value), (&key[..], &value[..]));
            prop_assert_eq!((record.meta, record.sequence), (meta, 7));
            prop_assert_eq!(record.total, bytes.len());
            // The first bytes suffice for the size, unless the header is longer.
            let computed = total(&bytes[..RECORD_BYTES_MIN]);
            let enough = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
            prop_assert_eq!(computed.or_else(|_| total(enough)), Ok(bytes.len()));
        }

        #[test]
        fn every_flipped_bit_is_noticed(
            key: Vec<u8>, value: Vec<u8>, salt: u32, place: prop::sample::Index, bit in 0u8..8,
        ) {
            let mut bytes = written(Kind::Put, &key, &value, Meta::NONE, salt);
            let record_bytes = PREFIX_BYTES + 1
                + varint::len(key.len() as u64)
                + varint::len(value.len() as u64)
                + key.len() + value.len();
            bytes[place.index(record_bytes)] ^= 1 << bit;
            prop_assert!(decode(&bytes, salt).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_refused_without_a_panic(bytes: Vec<u8>, salt: u32) {
            let _ = Record::decode_unchecked(&bytes);
            if let Ok(record) = decode(&bytes, salt) {
                prop_assert!(record.total <= bytes.len());
            }
        }
    }

    #[test]
    fn a_filler_fills_exactly_the_given_bytes() {
        for bytes in (RECORD_BYTES_MIN..=BLOCK_BYTES_MAX).step_by(ALIGNMENT) {
            let mut filler = Prepared::filler(5, bytes);
            assert_eq!(filler.total(), bytes);
            let mut written = filler.seal_hollow(1, 0).concat();
            written.resize(bytes, 0xee);
            let record = decode(&written, 5).unwrap();
            assert_eq!((record.kind, record.total), (Kind::Filler, bytes));
        }
    }

    #[test]
    fn the_records_of_a_block_begin_right_after_its_header() {
        for bytes in [RECORD_BYTES_MIN, 4096, BLOCK_BYTES_MAX] {
            let mut block = Prepared::append_block(5, bytes);
            let header = block.seal_hollow(1, 0).concat();
            assert_eq!(header.len() + bytes, block.total());
            assert!(header.len().is_multiple_of(ALIGNMENT));
        }
    }

    #[test]
    fn the_shortest_record_has_the_minimum_size() {
        let bytes = written(Kind::Put, b"", b"", Meta::NONE, 0);
        assert_eq!((bytes.len(), total(&bytes)), (RECORD_BYTES_MIN, Ok(RECORD_BYTES_MIN)));
    }

    #[test]
    fn a_record_of_another_log_is_refused() {
        let bytes = written(Kind::Put, b"key", b"value", Meta::NONE, 1);
        assert!(matches!(decode(&bytes, 2), Err(NotARecord::Bad(_))));
    }

    #[test]
    fn a_record_of_another_place_is_refused() {
        let (salt, place) = (1, (3, 4096));
        let mut bytes = Vec::new();
        Prepared::new(salt, Kind::Put, b"key", b"value", Meta::NONE, Compression::None)
            .write_to(1, &mut bytes);
        bind(&mut bytes, Binding::of_segment(salt, place.0).mask(place.1));
        for (number, offset) in [place, (3, 4104), (3, 8192), (4, 4096), (515, 4096)] {
            let read = Record::decode(&bytes, Binding::of_segment(salt, number), offset);
            assert_eq!(read.is_ok(), (number, offset) == place, "{number} {offset}");
        }
        assert!(decode(&bytes, salt).is_err());
    }

    #[test]
    fn a_cut_record_says_how_much_it_needs() {
        let bytes = written(Kind::Put, &[1; 300], &[2; 5000], Meta::NONE, 0);
        for cut in 0..bytes.len() {
            match decode(&bytes[..cut], 0) {
                Err(NotARecord::Short(needed)) => assert!(needed > cut && needed <= bytes.len()),
                other => panic!("cut at {cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn zeros_are_unwritten() {
        assert_eq!(decode(&[0; 64], 5).unwrap_err(), NotARecord::Unwritten);
    }
}
