//! `Range` header: selects bytes of a value.

use crate::decimal;

/// Bytes of a value that a `Range` header selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// The whole value, also for several ranges, other units and malformed headers, as the standard
    /// allows.
    Whole,
    /// The bytes from the first offset up to the second, exclusive.
    Bytes(u64, u64),
    /// No byte of the value.
    Beyond,
}

/// Returns the bytes that a header selects from a value of `length` bytes.
pub fn select_range(header: &[u8], length: u64) -> ByteRange {
    parse(header, length).unwrap_or(ByteRange::Whole)
}

fn parse(header: &[u8], length: u64) -> Option<ByteRange> {
    let (unit, range) = header.split_at_checked(b"bytes=".len())?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let range = range.trim_ascii();
    let dash = memchr::memchr(b'-', range)?;
    let (first, last) = (&range[..dash], &range[dash + 1..]);
    let number = |text: &[u8]| {
        // A number beyond `u64` selects as much as the largest one.
        let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        digits.then(|| decimal::unsigned(text).unwrap_or(u64::MAX))
    };
    let (start, end) = match (first, last) {
        (b"", suffix) => (length.saturating_sub(number(suffix)?), length),
        (first, b"") => (number(first)?, length),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return None;
            }
            (first, last.saturating_add(1).min(length))
        }
    };
    Some(if start < end { ByteRange::Bytes(start, end) } else { ByteRange::Beyond })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_selects_present_bytes() {
        for (range, expected) in [
            ("bytes=0-0", ByteRange::Bytes(0, 1)),
            ("bytes=2-5", ByteRange::Bytes(2, 6)),
            ("BYTES=2-", ByteRange::Bytes(2, 10)),
            ("bytes= 2-5 ", ByteRange::Bytes(2, 6)),
            ("bytes=-3", ByteRange::Bytes(7, 10)),
            ("bytes=-30", ByteRange::Bytes(0, 10)),
            ("bytes=9-99999999999999999999999", ByteRange::Bytes(9, 10)),
            ("bytes=10-", ByteRange::Beyond),
            ("bytes=10-11", ByteRange::Beyond),
            ("bytes=-0", ByteRange::Beyond),
            ("bytes=99999999999999999999999-", ByteRange::Beyond),
        ] {
            assert_eq!(select_range(range.as_bytes(), 10), expected, "{range}");
        }
        assert_eq!(select_range(b"bytes=0-", 0), ByteRange::Beyond);
    }

    #[test]
    fn headers_without_a_single_byte_range_select_the_whole_value() {
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-2",
            "bytes=a-b",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=+1-2",
            "bytes=0 - 1",
        ] {
            assert_eq!(select_range(range.as_bytes(), 10), ByteRange::Whole, "{range}");
        }
    }
}
