//! Numbers of variable width, LEB128: base 128, least significant group first. A set high bit means
//! that another byte follows.

/// Maximum size of a number of 64 bits, in bytes.
pub(crate) const BYTES_MAX: usize = 10;

/// Appends a number.
#[inline]
pub(crate) fn push(output: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        output.push(number as u8 | 0x80);
        number >>= 7;
    }
    output.push(number as u8);
}

/// Writes a number from `at` on, where there is space for it. Returns the offset after it.
#[inline]
pub(crate) fn write(output: &mut [u8], mut at: usize, mut number: u64) -> usize {
    while number >= 0x80 {
        output[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    output[at] = number as u8;
    at + 1
}

/// Returns how many bytes a number takes.
#[inline]
pub(crate) fn len(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Returns the number that `bytes` begin with, and the rest. Returns `None` if it has no end, more
/// than `MAX` bytes or more than 64 bits.
#[inline]
pub(crate) fn split<const MAX: usize>(bytes: &[u8]) -> Option<(u64, &[u8])> {
    const { assert!(MAX <= BYTES_MAX) };
    let mut number = 0;
    for (index, &byte) in bytes.iter().enumerate().take(MAX) {
        let group = u64::from(byte & 0x7f);
        // The last byte of the longest numbers has one bit.
        if index == BYTES_MAX - 1 && group > 1 {
            return None;
        }
        number |= group << (7 * index);
        if byte < 0x80 {
            return Some((number, &bytes[index + 1..]));
        }
    }
    None
}

/// Splits a number off the front of `input`. Returns `None` if there is none of 64 bits.
pub(crate) fn take(input: &mut &[u8]) -> Option<u64> {
    let (number, rest) = split::<BYTES_MAX>(input)?;
    *input = rest;
    Some(number)
}

/// Splits off bytes that are preceded by their number.
pub(crate) fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take(input)?).ok()?;
    let (bytes, rest) = input.split_at_checked(len)?;
    *input = rest;
    Some(bytes)
}

/// Appends bytes with their number in front.
pub(crate) fn push_bytes(output: &mut Vec<u8>, bytes: &[u8]) {
    push(output, bytes.len() as u64);
    output.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(number: u64, shift in 0..64, rest: [u8; 2]) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            push(&mut bytes, number);
            prop_assert_eq!(bytes.len(), len(number));
            let mut written = [0; BYTES_MAX];
            let end = write(&mut written, 0, number);
            prop_assert_eq!(&written[..end], &bytes[..]);
            let fits_in_five = bytes.len() <= 5;
            bytes.extend_from_slice(&rest);
            let expected = Some((number, &rest[..]));
            prop_assert_eq!(split::<BYTES_MAX>(&bytes), expected);
            prop_assert_eq!(split::<5>(&bytes), expected.filter(|_| fits_in_five));
        }
    }

    #[test]
    fn incomplete_and_too_long_numbers_are_refused() {
        assert_eq!(take(&mut &[0x80][..]), None);
        assert_eq!(take(&mut &[0xff; 10][..]), None);
        assert_eq!(split::<5>(&[0xff, 0xff, 0xff, 0xff, 0xff, 1]), None);
        let mut largest = vec![0xff; 9];
        largest.push(1);
        assert_eq!(take(&mut &largest[..]), Some(u64::MAX));
        largest[9] = 2;
        assert_eq!(take(&mut &largest[..]), None);
        assert_eq!(take_bytes(&mut &[3, 1, 2][..]), None);
    }
}
