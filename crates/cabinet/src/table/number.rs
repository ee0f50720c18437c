//! Numbers of columns: decimal text, parsed leniently and compared exactly.
//!
//! A number is kept as a decimal with 38 digits before the point and 16 after it, not as a binary
//! fraction. So any two texts of the same number are equal, and different identifiers of 64 bits
//! stay different.

use std::cmp::Ordering;

/// Number of digits after the point that count.
const FRACTION_DIGITS: u32 = 16;

/// Maximum bytes that [`Number::encode`] appends.
#[cfg(test)]
const ENCODED_BYTES_MAX: usize = 1 + 16 + 1 + 7;

/// First bytes of the encodings of special values. A finite number begins with [`ZERO`] plus the
/// number of bytes of its whole part, complemented if the number is negative.
const NOT_A_NUMBER: u8 = 0;
const NEGATIVE_INFINITY: u8 = 1;
const ZERO: u8 = 0x80;
const POSITIVE_INFINITY: u8 = 0xff;

/// Number that the text of a column represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// `nan`: not comparable with any number.
    Undefined,
    NegativeInfinity,
    PositiveInfinity,
    Finite {
        /// Never set for zero.
        negative: bool,
        /// Digits before the point, saturated at 128 bits.
        whole: u128,
        /// Digits after the point, in units of 10^-16.
        fraction: u64,
    },
}

impl Number {
    /// Returns whether a text begins with a number, after white space.
    pub(super) fn is_number(text: &[u8]) -> bool {
        let start = text.iter().position(|&byte| byte > b' ').unwrap_or(text.len());
        let text = &text[start..];
        let text = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
        let word = text.get(..3).map(<[u8]>::to_ascii_lowercase);
        let digits = text.strip_prefix(b".").unwrap_or(text);
        digits.first().is_some_and(u8::is_ascii_digit)
            || matches!(word.as_deref(), Some(b"inf" | b"nan"))
    }

    /// Parses the number that a text begins with, after white space. Other text is 0.
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
        let fraction = match rest {
            [b'.', rest @ ..] => digits(rest).0,
            _ => &[],
        };
        let fraction = (0..FRACTION_DIGITS as usize).fold(0u64, |number, index| {
            number * 10 + fraction.get(index).map_or(0, |digit| u64::from(digit - b'0'))
        });
        Self::Finite { negative: negative && (whole, fraction) != (0, 0), whole, fraction }
    }

    /// Compares two numbers; `None` if one of them is undefined.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        if matches!(self, Self::Undefined) || matches!(other, Self::Undefined) {
            return None;
        }
        Some(self.rank().cmp(&other.rank()))
    }

    /// Returns whether both are the same number. An undefined number equals nothing.
    pub(super) fn equals(&self, other: &Self) -> bool {
        self.compare(other) == Some(Ordering::Equal)
    }

    /// Returns a tuple that orders like the numbers: the kind and the sign, then the digits, which
    /// are complemented in negative numbers.
    fn rank(&self) -> (i8, u128, u64) {
        match *self {
            Self::Undefined => (-3, 0, 0),
            Self::NegativeInfinity => (-2, 0, 0),
            Self::Finite { negative: true, whole, fraction } => (-1, !whole, !fraction),
            Self::Finite { negative: false, whole, fraction } => (0, whole, fraction),
            Self::PositiveInfinity => (1, 0, 0),
        }
    }

    /// Appends an encoding that orders like the numbers. No encoding is a prefix of another.
    ///
    /// A finite number has 0x80 plus the number of bytes of the whole part, these bytes, and then 0
    /// without a fraction, or 1 and 7 bytes of the fraction. In a negative number all bytes are
    /// complemented.
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

    /// Returns the bytes of the encoding that `encoded` begins with; `None` if there is none.
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

    /// Returns the nearest double.
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

/// Formats a sum for a column: up to six digits after the point, without trailing zeros.
pub(super) fn format_double(number: f64) -> String {
    if !number.is_finite() {
        return number.to_string().to_lowercase();
    }
    let text = format!("{number:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

/// Returns the decimal digits that a text begins with, and the rest.
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
    fn texts_of_the_same_number_are_equal() {
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
    fn sums_are_written_without_trailing_zeros() {
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
        fn encodings_compare_like_numbers_and_mark_their_end(
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
