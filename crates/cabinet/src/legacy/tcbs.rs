//! Tokyo Cabinet's own block-sorting compression.
//!
//! Decoding has three stages. Bits become numbers (Elias gamma), numbers become bytes
//! (move-to-front, over the whole stream), and bytes become text in blocks of 8192 (the inverse of
//! the Burrows-Wheeler transform). A block is a number of two bytes and the last column of its
//! sorted rotations. The number is the row of the text.
//!
//! Bits are read from the low end of each byte. The first three give the number of used bits of the
//! last byte, less 8 if that is 8.

use super::number::ByteOrder;

/// Bytes of text in a block.
const BLOCK_BYTES: usize = 8192;

/// Bytes before each block that give the row of the text.
const INDEX_BYTES: usize = 2;

/// Longest code of a byte, which has up to 17 bits, in whole bytes.
const CODE_BYTES_MAX: usize = 3;

/// Error of a decoding that its caller has ended.
const STOPPED: &str = "the decompression was stopped";

/// Longest run of zeros before a number. A longer one would exceed a byte.
const ZEROS_MAX: u32 = 8;

/// Decodes a stored value of at most `max` bytes.
pub fn decode(stored: &[u8], order: ByteOrder, max: usize) -> Result<Vec<u8>, &'static str> {
    decode_while(stored, order, max, |_| true)
}

/// Decodes as [`decode`], as long as `goes_on` returns true. It is called before each block of each
/// of two stages, with the bytes that the block can take.
pub fn decode_while(
    stored: &[u8],
    order: ByteOrder,
    max: usize,
    mut goes_on: impl FnMut(usize) -> bool,
) -> Result<Vec<u8>, &'static str> {
    let bits = Bits::of(stored).ok_or("no bytes")?;
    let bytes = move_from_front(bits, max, &mut goes_on)?;
    let mut value = Vec::new();
    let mut sorted = Vec::new();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let (index, behind) = rest.split_at_checked(INDEX_BYTES).ok_or("half a block")?;
        let (column, behind) = behind.split_at(behind.len().min(BLOCK_BYTES));
        if !goes_on(column.len()) {
            return Err(STOPPED);
        }
        // At most 65535.
        let row = order.number(index) as usize;
        invert(column, row, &mut sorted, &mut value);
        rest = behind;
    }
    if value.len() > max {
        return Err("the decompressed value is over the limit");
    }
    Ok(value)
}

/// Encodes a value.
pub fn encode(value: &[u8], order: ByteOrder) -> Vec<u8> {
    encode_while(value, order, |_| true).unwrap_or_default()
}

/// Encodes a value, as long as `goes_on` returns true. It is called before each block, which can
/// take milliseconds, with the bytes that the block can take. Returns `None` if it returned false.
pub fn encode_while(
    value: &[u8],
    order: ByteOrder,
    mut goes_on: impl FnMut(usize) -> bool,
) -> Option<Vec<u8>> {
    let mut list: [u8; 256] = std::array::from_fn(|byte| byte as u8);
    let mut bits = BitWriter::default();
    (0..3).for_each(|_| bits.push(false));
    let mut bytes = Vec::with_capacity(value.len().min(BLOCK_BYTES) + INDEX_BYTES);
    for block in value.chunks(BLOCK_BYTES) {
        if !goes_on((block.len() + INDEX_BYTES) * CODE_BYTES_MAX) {
            return None;
        }
        bytes.clear();
        let starts = sorted_rotations(block);
        let row = starts.iter().position(|start| *start == 0).unwrap_or(0) as u16;
        bytes.extend(match order {
            ByteOrder::Little => row.to_le_bytes(),
            ByteOrder::Big => row.to_be_bytes(),
        });
        let last = |start: &usize| block[(start + block.len() - 1) % block.len()];
        bytes.extend(starts.iter().map(last));
        for &byte in &bytes {
            // The list has every byte.
            let place = list.iter().position(|other| *other == byte).unwrap_or(0);
            list.copy_within(..place, 1);
            list[0] = byte;
            let number = place + 1;
            let behind = number.ilog2();
            (0..behind).for_each(|_| bits.push(false));
            (0..=behind).rev().for_each(|bit| bits.push(number >> bit & 1 == 1));
        }
    }
    Some(bits.finish())
}

/// Writer of the bits of a stream, from the front.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    /// Number of bits in the last byte; 0 if it is full.
    used: usize,
}

impl BitWriter {
    fn push(&mut self, bit: bool) {
        if self.used == 0 {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut() {
            *last |= u8::from(bit) << self.used;
        }
        self.used = (self.used + 1) % 8;
    }

    /// Returns the stream, with the number of used bits of its last byte in the first.
    fn finish(mut self) -> Vec<u8> {
        if self.used == 0 {
            self.bytes.push(0);
        }
        if let Some(first) = self.bytes.first_mut() {
            *first |= self.used as u8;
        }
        self.bytes
    }
}

/// Returns the starts of a block's rotations in their order.
///
/// The order by the first 1, 2, 4, ... bytes gives each rotation a rank. The rank of a rotation and
/// that of the rotation after its ordered bytes give its rank by twice as many bytes. So a block of
/// equal bytes takes no longer than others.
fn sorted_rotations(block: &[u8]) -> Vec<usize> {
    let length = block.len();
    let mut starts: Vec<usize> = (0..length).collect();
    let mut ranks: Vec<usize> = block.iter().map(|byte| usize::from(*byte)).collect();
    let mut ordered = 1;
    starts.sort_by_key(|start| ranks[*start]);
    while ordered < length {
        let rank = |start: usize| (ranks[start], ranks[(start + ordered) % length]);
        starts.sort_by_key(|start| rank(*start));
        let mut next = vec![0; length];
        for pair in starts.windows(2) {
            next[pair[1]] = next[pair[0]] + usize::from(rank(pair[0]) != rank(pair[1]));
        }
        if next[starts[length - 1]] == length - 1 {
            break;
        }
        ranks = next;
        ordered *= 2;
    }
    starts
}

/// Reader of the bits of a stream, from the front.
struct Bits<'a> {
    bytes: &'a [u8],
    next: usize,
    end: usize,
}

impl<'a> Bits<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let used = usize::from(bytes.first()? & 7);
        // If the last byte is full, an unused one follows.
        Some(Self { bytes, next: 3, end: (bytes.len() - 1) * 8 + used })
    }

    fn next(&mut self) -> Option<bool> {
        if self.next >= self.end {
            return None;
        }
        let bit = self.bytes.get(self.next / 8)? >> (self.next % 8) & 1;
        self.next += 1;
        Some(bit == 1)
    }

    fn is_at_end(&self) -> bool {
        self.next >= self.end
    }

    /// Reads a number: one zero for each bit after its highest, then all its bits.
    fn number(&mut self) -> Result<usize, &'static str> {
        let cut = "a truncated number";
        let mut zeros = 0;
        while !self.next().ok_or(cut)? {
            zeros += 1;
            if zeros > ZEROS_MAX {
                return Err("a number that is no byte");
            }
        }
        let mut number = 1;
        for _ in 0..zeros {
            number = number << 1 | usize::from(self.next().ok_or(cut)?);
        }
        Ok(number)
    }
}

/// Decodes move-to-front: each number is the place of a byte in a list with the most recent byte
/// first.
fn move_from_front(
    mut bits: Bits<'_>,
    max: usize,
    goes_on: &mut impl FnMut(usize) -> bool,
) -> Result<Vec<u8>, &'static str> {
    let mut list: [u8; 256] = std::array::from_fn(|byte| byte as u8);
    // The index bytes of each block add to the text.
    let max = max.saturating_add(max.div_ceil(BLOCK_BYTES) * INDEX_BYTES);
    let mut bytes = Vec::new();
    while !bits.is_at_end() {
        let place = bits.number()? - 1;
        let byte = *list.get(place).ok_or("a number that is no byte")?;
        list.copy_within(..place, 1);
        list[0] = byte;
        if bytes.len() == max {
            return Err("the decompressed value is over the limit");
        }
        if bytes.len() % BLOCK_BYTES == 0 && !goes_on(BLOCK_BYTES) {
            return Err(STOPPED);
        }
        bytes.push(byte);
    }
    Ok(bytes)
}

/// Appends the text of a block. `sorted` is scratch memory.
fn invert(column: &[u8], row: usize, sorted: &mut Vec<u16>, value: &mut Vec<u8>) {
    // Sorts the rows by the column's bytes, stably: row `sorted[i]` is row `i` rotated by one.
    let mut starts = [0usize; 257];
    for &byte in column {
        starts[usize::from(byte) + 1] += 1;
    }
    for byte in 0..256 {
        starts[byte + 1] += starts[byte];
    }
    sorted.clear();
    sorted.resize(column.len(), 0);
    for (row, &byte) in column.iter().enumerate() {
        let place = &mut starts[usize::from(byte)];
        // A block has at most 8192 rows.
        sorted[*place] = row as u16;
        *place += 1;
    }
    let mut row = if row < column.len() { row } else { 0 };
    for _ in 0..column.len() {
        row = usize::from(sorted[row]);
        value.push(column[row]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns random letters.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1u64;
        let letter = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b'a' + (state >> 60) as u8
        };
        std::iter::repeat_with(letter).take(length).collect()
    }

    #[test]
    fn an_empty_value_is_stored_as_one_byte() {
        assert_eq!(encode(b"", ByteOrder::Little), [3]);
        assert_eq!(decode(&[3], ByteOrder::Little, 0), Ok(Vec::new()));
        decode(&[], ByteOrder::Little, 0).unwrap_err();
    }

    #[test]
    fn values_longer_than_a_block_come_back() {
        for length in [BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 7] {
            let value = noise(length);
            for order in [ByteOrder::Little, ByteOrder::Big] {
                assert!(decode(&encode(&value, order), order, length).unwrap() == value);
            }
        }
    }

    #[test]
    fn repetitive_values_come_back() {
        for period in [1, 2, 3, 8191] {
            let value: Vec<u8> = noise(period).into_iter().cycle().take(BLOCK_BYTES + 5).collect();
            let stored = encode(&value, ByteOrder::Little);
            assert!(decode(&stored, ByteOrder::Little, value.len()).unwrap() == value);
        }
    }

    #[test]
    fn a_value_is_as_long_as_allowed_and_no_longer() {
        for length in [1, 100, BLOCK_BYTES, BLOCK_BYTES + 1] {
            let stored = encode(&noise(length), ByteOrder::Little);
            decode(&stored, ByteOrder::Little, length + 1).unwrap();
            decode(&stored, ByteOrder::Little, length).unwrap();
            decode(&stored, ByteOrder::Little, length - 1).unwrap_err();
        }
    }

    #[test]
    fn a_caller_ends_the_work_before_any_block() {
        let value = noise(3 * BLOCK_BYTES);
        let stored = encode(&value, ByteOrder::Little);
        let goes_on_for = |blocks: usize| {
            let mut left = blocks;
            move |_| {
                let goes_on = left > 0;
                left = left.saturating_sub(1);
                goes_on
            }
        };
        let encode = |blocks| encode_while(&value, ByteOrder::Little, goes_on_for(blocks));
        assert_eq!((encode(2), encode(3)), (None, Some(stored.clone())));
        let decode =
            |blocks| decode_while(&stored, ByteOrder::Little, value.len(), goes_on_for(blocks));
        // The second stage has as many blocks; the rows' numbers are a block more of the first.
        assert_eq!(decode(6), Err(STOPPED));
        assert_eq!(decode(0), Err(STOPPED));
        assert!(decode(7).unwrap() == value);
    }

    #[test]
    fn a_row_beyond_the_block_counts_as_the_first() {
        let mut original = Vec::new();
        invert(b"abc", 7, &mut Vec::new(), &mut original);
        let mut first = Vec::new();
        invert(b"abc", 0, &mut Vec::new(), &mut first);
        assert_eq!(original, first);
    }

    proptest! {
        #[test]
        fn values_come_back(value in proptest::collection::vec(0u8..6, 0..300), other: Vec<u8>) {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                for value in [&value, &other] {
                    let read = decode(&encode(value, order), order, value.len()).unwrap();
                    prop_assert_eq!(&read, value);
                }
            }
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_read_within_the_limit(bytes: Vec<u8>, max in 0usize..99) {
            if let Ok(value) = decode(&bytes, ByteOrder::Little, max) {
                prop_assert!(value.len() <= max);
            }
        }
    }
}
