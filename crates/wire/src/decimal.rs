//! Decimal numbers, without `str` and `fmt`.

/// Appends a number in decimal.
#[inline]
pub(crate) fn write(out: &mut Vec<u8>, mut number: u64) {
    if number < 10 {
        return out.push(b'0' + number as u8);
    }
    let mut digits = [0; 20]; // u64::MAX has as many.
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Parses all of `text` as a number. Returns `None` if it is not a number or out of range.
#[inline]
pub(crate) fn unsigned(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut number = 0u64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(number)
}

/// Parses a number with an optional plus sign.
#[inline]
pub(crate) fn unsigned_with_plus(text: &[u8]) -> Option<u64> {
    unsigned(text.strip_prefix(b"+").unwrap_or(text))
}

/// Parses a number with an optional plus sign and returns its low 32 bits.
#[inline]
pub(crate) fn low_32_bits(text: &[u8]) -> Option<u32> {
    unsigned_with_plus(text).map(|number| number as u32)
}

/// Parses a number with an optional sign.
#[inline]
pub(crate) fn signed(text: &[u8]) -> Option<i64> {
    match text {
        [b'-', digits @ ..] => 0i64.checked_sub_unsigned(unsigned(digits)?),
        [b'+', digits @ ..] | digits => i64::try_from(unsigned(digits)?).ok(),
    }
}

/// Parses a number with an optional sign and returns its low 32 bits, as a signed number.
#[inline]
pub(crate) fn low_32_bits_signed(text: &[u8]) -> Option<i64> {
    signed(text).map(|number| i64::from(number as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_standard_library_does() {
        for number in [0, 9, 10, 99, 100, 12_345_678_901, u64::MAX - 1, u64::MAX] {
            let mut out = b"x".to_vec();
            write(&mut out, number);
            assert_eq!(out, format!("x{number}").into_bytes());
        }
    }

    #[test]
    fn the_whole_range_is_read_and_nothing_beyond_it() {
        assert_eq!(unsigned(b"18446744073709551614"), Some(u64::MAX - 1));
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!(signed(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(signed(b"9223372036854775808"), None);
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"-9223372036854775809"), None);
        assert_eq!(signed(b"+7"), Some(7));
        assert_eq!(unsigned_with_plus(b"+7"), Some(7));
        assert_eq!(low_32_bits(b"4294967295"), Some(u32::MAX));
        assert_eq!(low_32_bits(b"4294967297"), Some(1));
        assert_eq!(low_32_bits_signed(b"2147483647"), Some(i64::from(i32::MAX)));
        assert_eq!(low_32_bits_signed(b"2147483648"), Some(i64::from(i32::MIN)));
        assert_eq!(low_32_bits_signed(b"4294967295"), Some(-1));
        assert_eq!(low_32_bits_signed(b"4294967296"), Some(0));
        assert_eq!(low_32_bits_signed(b"9223372036854775808"), None);
    }

    #[test]
    fn what_is_not_a_number_is_none() {
        for text in [&b""[..], b"-", b"+", b"1x", b" 1", b"--1", b"0x1", b"1.0"] {
            assert_eq!(signed(text), None, "{text:?}");
        }
        assert_eq!(unsigned(b"-1"), None);
        assert_eq!(unsigned(b"+1"), None);
        assert_eq!(unsigned_with_plus(b"++1"), None);
    }
}
