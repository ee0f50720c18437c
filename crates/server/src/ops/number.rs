//! Arithmetic on decimal text, as in memcached and Tokyo Tyrant.

/// A sum, and the text that replaces the old one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) number: u64,
    pub(crate) text: Vec<u8>,
    /// The text overwrites the old one, and everything else about the record stays. memcached does
    /// so if the length stays, Tokyo Tyrant always.
    pub(crate) is_in_place: bool,
}

/// Arithmetic operation on the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    /// Adds as memcached does: above 2^64 - 1 the sum begins again at 0.
    Add(u64),
    /// Subtracts as memcached does: the sum stops at 0.
    Subtract(u64),
    /// Adds as Redis does: to a signed number without further bytes, which stays one of 64 bits.
    /// The sum has the bits of that.
    AddSigned(i64),
    /// Adds as Tokyo Tyrant does: text that is no number counts as 0, and a sum below 0 is 0.
    AddToLeading(i64),
}

impl Arithmetic {
    /// Returns the sum; `None` if the value is no number of 64 bits.
    pub(crate) fn apply(self, value: &[u8]) -> Option<Sum> {
        let number = match self {
            Self::Add(amount) => parse(value)?.wrapping_add(amount),
            Self::Subtract(amount) => parse(value)?.saturating_sub(amount),
            Self::AddSigned(amount) => {
                let number = signed(value)?.checked_add(amount)?;
                let text = number.to_string().into_bytes();
                return Some(Sum { number: number as u64, text, is_in_place: true });
            }
            Self::AddToLeading(amount) => {
                let number = leading_number(value).wrapping_add(amount).max(0).unsigned_abs();
                return Some(Sum { number, text: number.to_string().into(), is_in_place: true });
            }
        };
        let mut text = number.to_string().into_bytes();
        let is_in_place = text.len() <= value.len();
        if is_in_place {
            // A shorter number is padded with blanks.
            text.resize(value.len(), b' ');
        }
        Some(Sum { number, text, is_in_place })
    }
}

/// Returns the number that all of a text is, as Redis reads one: digits without leading zeros,
/// after a minus sign if it is negative.
pub(crate) fn signed(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_written_so = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_written_so {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns the number between white space; anything may follow.
fn parse(value: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = value.iter().position(|byte| !is_space(byte))?;
    let text = value[start..].strip_prefix(b"+").unwrap_or(&value[start..]);
    let end = text.iter().position(|byte| is_space(byte) || *byte == 0).unwrap_or(text.len());
    let digits = &text[..end];
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Returns the number at the beginning of `text`, as Tokyo Tyrant reads one: blanks, a sign,
/// digits. The rest is ignored, and text without digits is 0. Wraps.
pub(crate) fn leading_number(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let number = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .fold(0i64, |number, digit| number.wrapping_mul(10).wrapping_add(i64::from(digit - b'0')));
    if negative { number.wrapping_neg() } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(arithmetic: Arithmetic, value: &str) -> Option<(u64, String)> {
        let sum = arithmetic.apply(value.as_bytes())?;
        assert_eq!(sum.is_in_place, sum.text.len() == value.len());
        Some((sum.number, String::from_utf8_lossy(&sum.text).into_owned()))
    }

    #[test]
    fn numbers_keep_the_length_of_their_text_unless_they_need_more() {
        let of = |number, text: &str| Some((number, text.to_owned()));
        assert_eq!(apply(Arithmetic::Add(5), "10"), of(15, "15"));
        assert_eq!(apply(Arithmetic::Add(90), "10"), of(100, "100"));
        assert_eq!(apply(Arithmetic::Subtract(1), "10"), of(9, "9 "));
        assert_eq!(apply(Arithmetic::Subtract(11), "10"), of(0, "0 "));
        assert_eq!(apply(Arithmetic::Add(1), " 0012"), of(13, "13   "));
        assert_eq!(apply(Arithmetic::Add(1), "+12 x"), of(13, "13   "));
    }

    #[test]
    fn sums_wrap_at_64_bits() {
        let max = u64::MAX.to_string();
        assert_eq!(apply(Arithmetic::Add(1), &max).map(|(sum, _)| sum), Some(0));
        assert_eq!(apply(Arithmetic::Add(0), &max).map(|(sum, _)| sum), Some(u64::MAX));
        assert_eq!(apply(Arithmetic::Add(u64::MAX), "1").map(|(sum, _)| sum), Some(0));
    }

    #[test]
    fn values_that_are_no_number_of_64_bits_are_refused() {
        for text in ["", " ", "x", "12x", "-1", "+", "18446744073709551616", "1.0"] {
            assert_eq!(apply(Arithmetic::Add(0), text), None, "{text}");
        }
    }

    #[test]
    fn signed_numbers_are_read_as_redis_reads_them() {
        let sum = |value: &str, amount| {
            let sum = Arithmetic::AddSigned(amount).apply(value.as_bytes())?;
            assert!(sum.is_in_place);
            assert_eq!(sum.text, (sum.number as i64).to_string().into_bytes());
            Some(sum.number as i64)
        };
        assert_eq!(sum("10", -11), Some(-1));
        assert_eq!(sum("-1", 1), Some(0));
        assert_eq!(sum(&i64::MAX.to_string(), 0), Some(i64::MAX));
        assert_eq!(sum(&i64::MIN.to_string(), 0), Some(i64::MIN));
        assert_eq!(sum(&i64::MAX.to_string(), 1), None);
        for text in ["", "-", "-0", "+1", "01", " 1", "1 ", "1.0", "9223372036854775808"] {
            assert_eq!(sum(text, 0), None, "{text}");
        }
    }

    #[test]
    fn leading_numbers_are_read_as_tokyo_tyrant_reads_them() {
        for (text, number) in [
            ("12", 12),
            (" -7x", -7),
            ("+5", 5),
            ("abc", 0),
            ("", 0),
            ("9223372036854775807", i64::MAX),
            ("9223372036854775808", i64::MIN),
        ] {
            assert_eq!(leading_number(text.as_bytes()), number, "{text}");
        }
    }
}
