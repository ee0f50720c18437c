//! Numbers in the files: of fixed width in either byte order, and of variable width.

/// Byte order of fixed-width numbers. It is not stored in a file; see [`super::Header`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first: the library's default on any machine.
    Little,
    /// Most significant byte first: written by Debian's and Ubuntu's packages.
    Big,
}

impl ByteOrder {
    /// Returns the number in at most eight bytes.
    pub(super) fn number(self, bytes: &[u8]) -> u64 {
        let append = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self {
            Self::Little => bytes.iter().rev().fold(0, append),
            Self::Big => bytes.iter().fold(0, append),
        }
    }
}

/// Longest number of variable width, in bytes.
pub(super) const VARINT_BYTES_MAX: usize = 10;

/// Bits of a number in each of its bytes.
const GROUP_BITS: usize = 7;

/// Returns the number of variable width at the start of the bytes, and its length in bytes.
///
/// It has seven bits per byte, low ones first. All bytes but the last are complemented, which sets
/// their high bit.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (index, &byte) in bytes.iter().enumerate().take(VARINT_BYTES_MAX) {
        let is_last = byte < 0x80;
        let group = u64::from(if is_last { byte } else { !byte });
        let shifted = group << (GROUP_BITS * index);
        if shifted >> (GROUP_BITS * index) != group {
            return None;
        }
        number |= shifted;
        if is_last {
            return Some((number, index + 1));
        }
    }
    None
}

/// Bytes that are read from the front. A read that does not fit returns `None`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest<'a>(pub(super) &'a [u8]);

impl<'a> Rest<'a> {
    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let (number, bytes) = varint(self.0)?;
        self.0 = &self.0[bytes..];
        Some(number)
    }

    pub(super) fn bytes(&mut self, count: u64) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Returns the bytes after a number that gives their count.
    pub(super) fn counted(&mut self) -> Option<&'a [u8]> {
        let count = self.number()?;
        self.bytes(count)
    }
}

#[cfg(test)]
pub(super) fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(!(number as u8 & 0x7f));
        number >>= GROUP_BITS;
    }
    bytes.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_of_fixed_width_are_read_in_either_order() {
        assert_eq!(ByteOrder::Little.number(&[1, 2, 3]), 0x03_02_01);
        assert_eq!(ByteOrder::Big.number(&[1, 2, 3]), 0x01_02_03);
        assert_eq!(ByteOrder::Big.number(&[0xff; 8]), u64::MAX);
    }

    #[test]
    fn all_groups_but_the_last_are_complemented() {
        assert_eq!(varint(&[0]), Some((0, 1)));
        assert_eq!(varint(&[0xb7, 0x01, 9]), Some((200, 2)));
        assert_eq!(varint(&[0xb7]), None, "it goes on");
        assert_eq!(varint(&[]), None);
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_none() {
        // Nine groups of ones and a tenth of one bit are 64.
        let mut bytes = [0x80; VARINT_BYTES_MAX];
        bytes[9] = 1;
        assert_eq!(varint(&bytes), Some((u64::MAX, 10)));
        bytes[9] = 2;
        assert_eq!(varint(&bytes), None);
        assert_eq!(varint(&[0xff; 11]), None, "without an end");
    }

    proptest! {
        #[test]
        fn numbers_of_variable_width_are_read_as_written(number: u64, behind: Vec<u8>) {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, number);
            let length = bytes.len();
            bytes.extend(behind);
            prop_assert_eq!(varint(&bytes), Some((number, length)));
        }
    }
}
