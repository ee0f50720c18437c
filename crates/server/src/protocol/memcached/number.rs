//! incr, decr and `ma`: arithmetic on decimal text, as memcached does it.

/// A sum, and the text that takes the place of the old one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) number: u64,
    pub(super) text: Vec<u8>,
    /// The text has the old one's length, which memcached changes in its place: everything else
    /// about the record stays.
    pub(super) is_in_place: bool,
}

/// What to do with the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Beyond 2^64 - 1 it begins again at 0.
    Add(u64),
    /// It stops at 0.
    Subtract(u64),
}

impl Operation {
    /// `None` if the value is no number of 64 bits.
    pub(super) fn apply(self, value: &[u8]) -> Option<Sum> {
        let number = parse(value)?;
        let number = match self {
            Self::Add(amount) => number.wrapping_add(amount),
            Self::Subtract(amount) => number.saturating_sub(amount),
        };
        let mut text = number.to_string().into_bytes();
        let is_in_place = text.len() <= value.len();
        if is_in_place {
            // A number that has become shorter is filled up with blanks.
            text.resize(value.len(), b' ');
        }
        Some(Sum { number, text, is_in_place })
    }
}

/// A number between white space, behind which anything may stand.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(operation: Operation, value: &str) -> Option<(u64, String)> {
        let sum = operation.apply(value.as_bytes())?;
        assert_eq!(sum.is_in_place, sum.text.len() == value.len());
        Some((sum.number, String::from_utf8_lossy(&sum.text).into_owned()))
    }

    #[test]
    fn numbers_keep_the_length_of_their_text_unless_they_need_more() {
        let of = |number, text: &str| Some((number, text.to_owned()));
        assert_eq!(apply(Operation::Add(5), "10"), of(15, "15"));
        assert_eq!(apply(Operation::Add(90), "10"), of(100, "100"));
        assert_eq!(apply(Operation::Subtract(1), "10"), of(9, "9 "));
        assert_eq!(apply(Operation::Subtract(11), "10"), of(0, "0 "));
        assert_eq!(apply(Operation::Add(1), " 0012"), of(13, "13   "));
        assert_eq!(apply(Operation::Add(1), "+12 x"), of(13, "13   "));
    }

    #[test]
    fn sums_wrap_at_64_bits() {
        let max = u64::MAX.to_string();
        assert_eq!(apply(Operation::Add(1), &max).map(|(sum, _)| sum), Some(0));
        assert_eq!(apply(Operation::Add(0), &max).map(|(sum, _)| sum), Some(u64::MAX));
        assert_eq!(apply(Operation::Add(u64::MAX), "1").map(|(sum, _)| sum), Some(0));
    }

    #[test]
    fn what_is_no_number_of_64_bits_is_refused() {
        for text in ["", " ", "x", "12x", "-1", "+", "18446744073709551616", "1.0"] {
            assert_eq!(apply(Operation::Add(0), text), None, "{text}");
        }
    }
}
