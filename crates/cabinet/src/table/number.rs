//! Numbers as they stand in columns: decimal text, read leniently, compared exactly.
//!
//! A number is kept as the decimal that was written, 38 digits before the point and 16 behind it,
//! and not as a binary fraction: so any two texts that mean the same number are equal, and
//! identifiers of 64 bits do not run together.

use std::cmp::Ordering;

/// Digits behind the point that count.
const FRACTION_DIGITS: u32 = 16;

/// Most bytes that [`Number::encode`] appends.
#[cfg(test)]
const ENCODED_BYTES_MAX: usize = 1 + 16 + 1 + 7;

/// First bytes of the encoding of what is not finite, and of zero; finite numbers lie around zero,
/// as far away as their whole part has bytes.
const NOT_A_NUMBER: u8 = 0;
const NEGATIVE_INFINITY: u8 = 1;
const ZERO: u8 = 0x80;
const POSITIVE_INFINITY: u8 = 0xff;

/// Number that the text of a column means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// `nan`: neither equal to anything, nor less, nor greater.
    Undefined,
    NegativeInfinity,
    PositiveInfinity,
    Finite {
        /// Never set for zero.
        negative: bool,
        /// Digits before the point; beyond 128 bits, the greatest such number.
        whole: u128,
        /// Digits behind the point, in units of 10^-16.
        fraction: u64,
    },
}

impl Number {
    /// Whether a text begins with a number.
    pub(super) fn is_number(text: &[u8]) -> bool {
        let start = text.iter().position(|&byte| byte > b' ').unwrap_or(text.len());
        let text = &text[start..];
        let text = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
        let word = text.get(..3).map(<[u8]>::to_ascii_lowercase);
        let digits = text.strip_prefix(b".").unwrap_or(text);
        digits.first().is_some_and(u8::is_ascii_digit)
            || matches!(word.as_deref(), Some(b"inf" | b"nan"))
    }

    /// Reads the number that a text begins with, after white space. Other text is 0.
    pub(super) fn parse(text: &[u8]) -> Self {
        let start = text.iter().position(|&byte| byte > b' ').unwrap_or(text.len());
        let (negative, rest) = match &text[start..] {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        match rest.get(..3).map(<[u8]>::to_ascii_lowercase).as_deref() {
            Some(b"inf") if negative => return Self::NegativeInfinity,
            Some(b"inf") => return Self::PositiveInfinity,
            Some(b"nan") => return Self::Undefined,
            _ => {}
        }
        let (whole, rest) = digits(rest);
        let whole = whole.iter().fold(0u128, |number, digit| {
            number.saturating_mul(10).saturating_add(u128::from(digit - b'0'))
        });
        let behind = match rest {
            [b'.', rest @ ..] => digits(rest).0,
            _ => &[],
        };
        let fraction = (0..FRACTION_DIGITS as usize).fold(0u64, |number, index| {
            number * 10 + behind.get(index).map_or(0, |digit| u64::from(digit - b'0'))
        });
        Self::Finite { negative: negative && (whole, fraction) != (0, 0), whole, fraction }
    }

    /// How it compares, unless one of the two is not a number.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        if matches!(self, Self::Undefined) || matches!(other, Self::Undefined) {
            return None;
        }
        Some(self.rank().cmp(&other.rank()))
    }

    /// Whether it is a number, and the same one.
    pub(super) fn equals(&self, other: &Self) -> bool {
        self.compare(other) == Some(Ordering::Equal)
    }

    /// Infinities and signs first; then the digits, those of negative numbers turned around.
    fn rank(&self) -> (i8, u128, u64) {
        match *self {
            Self::Undefined => (-3, 0, 0),
            Self::NegativeInfinity => (-2, 0, 0),
            Self::Finite { negative: true, whole, fraction } => (-1, !whole, !fraction),
            Self::Finite { negative: false, whole, fraction } => (0, whole, fraction),
            Self::PositiveInfinity => (1, 0, 0),
        }
    }

    /// Appends bytes that are in the order of numbers, and of which none are the beginning of
    /// another's.
    ///
    /// A finite one: how many bytes the whole part has, as the distance from 0x80; these bytes; 0
    /// for no fraction, or 1 and 7 bytes of it. In a negative number all bytes are complemented.
    pub(super) fn encode(&self, output: &mut Vec<u8>) {
        match *self {
            Self::Undefined => output.push(NOT_A_NUMBER),
            Self::NegativeInfinity => output.push(NEGATIVE_INFINITY),
            Self::PositiveInfinity => output.push(POSITIVE_INFINITY),
            Self::Finite { negative, whole, fraction } => {
                let start = output.len();
                let bytes = whole.to_be_bytes();
                let leading = (whole.leading_zeros() / 8) as usize;
                output.push(ZERO + (bytes.len() - leading) as u8);
                output.extend_from_slice(&bytes[leading..]);
                output.push(u8::from(fraction != 0));
                if fraction != 0 {
                    // 10^16 takes 54 bits.
                    output.extend_from_slice(&fraction.to_be_bytes()[1..]);
                }
                if negative {
                    output[start..].iter_mut().for_each(|byte| *byte = !*byte);
                }
            }
        }
    }

    /// How many bytes of `encoded`, which begins with an encoding, that one takes; `None` where it
    /// does not begin with one.
    pub(super) fn encoded_len(encoded: &[u8]) -> Option<usize> {
        let first = *encoded.first()?;
        if matches!(first, NOT_A_NUMBER | NEGATIVE_INFINITY | POSITIVE_INFINITY) {
            return Some(1);
        }
        let complement = if first < ZERO { 0xff } else { 0 };
        let whole = usize::from((first ^ complement).checked_sub(ZERO)?);
        let len = match encoded.get(1 + whole)? ^ complement {
            0 => whole + 2,
            1 => whole + 2 + 7,
            _ => return None,
        };
        (whole <= 16 && len <= encoded.len()).then_some(len)
    }

    /// The nearest double.
    pub(super) fn to_double(self) -> f64 {
        match self {
            Self::Undefined => f64::NAN,
            Self::NegativeInfinity => f64::NEG_INFINITY,
            Self::PositiveInfinity => f64::INFINITY,
            Self::Finite { negative, whole, fraction } => {
                let magnitude = whole as f64 + fraction as f64 / 10f64.powi(FRACTION_DIGITS as i32);
                if negative { -magnitude } else { magnitude }
            }
        }
    }
}

/// A sum as it is written into a column: six digits behind the point, less zeros at the end.
pub(super) fn format_double(number: f64) -> String {
    if !number.is_finite() {
        return number.to_string().to_lowercase();
    }
    let text = format!("{number:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

/// The decimal digits that a text begins with, and the rest.
fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(text: &str) -> Vec<u8> {
        let mut output = Vec::new();
        Number::parse(text.as_bytes()).encode(&mut output);
        output
    }

    #[test]
    fn texts_that_mean_the_same_number_are_equal() {
        let same: &[&[&str]] = &[
            &["0", "", "abc", "-0", "+0", "0.0", ".", "-", "e5", " \t"],
            &["1", "01", " 1", "+1", "1.0", "1e3", "1abc", "1.00000000000000001", "1,5"],
            &["-0.5", "-.5", "-0.50"],
            &["inf", "INFINITY", "+Inf"],
            &["9007199254740993"],
            &["9007199254740992"],
            &["0.1", "0.10"],
        ];
        for (at, group) in same.iter().enumerate() {
            for text in *group {
                let number = Number::parse(text.as_bytes());
                for (other_at, other_group) in same.iter().enumerate() {
                    for other in *other_group {
                        let equal = number.equals(&Number::parse(other.as_bytes()));
                        assert_eq!(equal, at == other_at, "{text:?} and {other:?}");
                    }
                }
            }
        }
        assert!(!Number::parse(b"nan").equals(&Number::parse(b"nan")));
    }

    #[test]
    fn encodings_are_in_the_order_of_numbers() {
        let ascending = [
            "-inf",
            "-99999999999999999999999999999999999999999999",
            "-256",
            "-255.5",
            "-255",
            "-1",
            "-0.5",
            "-0.25",
            "0",
            "0.0000000000000001",
            "0.25",
            "1",
            "1.5",
            "255",
            "256",
            "65536",
            "18446744073709551616",
            "99999999999999999999999999999999999999999999",
            "inf",
        ];
        for pair in ascending.windows(2) {
            assert!(encoded(pair[0]) < encoded(pair[1]), "{} < {}", pair[0], pair[1]);
            let compared =
                Number::parse(pair[0].as_bytes()).compare(&Number::parse(pair[1].as_bytes()));
            assert_eq!(compared, Some(Ordering::Less), "{} < {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn sums_are_written_without_needless_zeros() {
        for (number, text) in [
            (5.0, "5"),
            (-1.5, "-1.5"),
            (0.1 + 0.2, "0.3"),
            (100.0, "100"),
            (-0.0, "0"),
            (1e-9, "0"),
        ] {
            assert_eq!(format_double(number), text);
        }
    }

    proptest! {
        #[test]
        fn encodings_compare_as_numbers_do_and_say_where_they_end(
            one in "[-+]?[0-9]{0,20}(\\.[0-9]{0,18})?",
            other in "[-+]?[0-9]{0,20}(\\.[0-9]{0,18})?",
            rest in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let (first, second) = (Number::parse(one.as_bytes()), Number::parse(other.as_bytes()));
            prop_assert_eq!(first.compare(&second), Some(encoded(&one).cmp(&encoded(&other))));
            let len = encoded(&one).len();
            prop_assert!(len <= ENCODED_BYTES_MAX);
            let with_rest = [encoded(&one), rest].concat();
            prop_assert_eq!(Number::encoded_len(&with_rest), Some(len));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            Number::parse(&bytes).to_double();
            Number::encoded_len(&bytes);
        }
    }
}
