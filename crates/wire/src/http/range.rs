//! Parts of a value, by `Range`.

use crate::decimal;

/// Bytes that a `Range` header asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it. Several ranges at once, other units, and what is no range are answered so too, as
    /// they may be.
    Whole,
    /// Bytes from the first one up to, but without, the second.
    Bytes(u64, u64),
    /// Nothing that is there.
    Beyond,
}

/// The part of a value of `length` bytes that the header asks for.
#[must_use]
pub fn part(header: &[u8], length: u64) -> Part {
    parse(header, length).unwrap_or(Part::Whole)
}

fn parse(header: &[u8], length: u64) -> Option<Part> {
    let (unit, range) = header.split_at_checked(b"bytes=".len())?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let range = range.trim_ascii();
    let dash = memchr::memchr(b'-', range)?;
    let (first, last) = (&range[..dash], &range[dash + 1..]);
    let number = |text: &[u8]| {
        // More than there can be is as good as the most there can be.
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
    Some(if start < end { Part::Bytes(start, end) } else { Part::Beyond })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_a_part_of_what_is_there() {
        for (range, expected) in [
            ("bytes=0-0", Part::Bytes(0, 1)),
            ("bytes=2-5", Part::Bytes(2, 6)),
            ("BYTES=2-", Part::Bytes(2, 10)),
            ("bytes= 2-5 ", Part::Bytes(2, 6)),
            ("bytes=-3", Part::Bytes(7, 10)),
            ("bytes=-30", Part::Bytes(0, 10)),
            ("bytes=9-99999999999999999999999", Part::Bytes(9, 10)),
            ("bytes=10-", Part::Beyond),
            ("bytes=10-11", Part::Beyond),
            ("bytes=-0", Part::Beyond),
            ("bytes=99999999999999999999999-", Part::Beyond),
        ] {
            assert_eq!(part(range.as_bytes(), 10), expected, "{range}");
        }
        assert_eq!(part(b"bytes=0-", 0), Part::Beyond);
    }

    #[test]
    fn what_is_no_single_range_of_bytes_is_passed_over() {
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
            assert_eq!(part(range.as_bytes(), 10), Part::Whole, "{range}");
        }
    }
}
