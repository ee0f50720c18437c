//! Ids as keys: text whose digits form the id.

use crate::limits::FIXED_ID_MAX;
use crate::{Error, Result};

/// Bytes of a key that are shown in an error.
const SHOWN_BYTES_MAX: usize = 32;

/// Record that a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The record with this id.
    Id(u64),
    /// `min`: the first record.
    Min,
    /// `max`: the last record.
    Max,
    /// `prev`: a new record before the first.
    Prev,
    /// `next`: a new record after the last.
    Next,
}

impl Key {
    /// Parses a key. Bytes that are no digits are skipped: `a5b0` is 50, and `abc` is 0, which is
    /// no id. The limits of a database are not checked.
    #[inline]
    pub fn parse(text: &[u8]) -> Self {
        match text {
            b"min" => Self::Min,
            b"max" => Self::Max,
            b"prev" => Self::Prev,
            b"next" => Self::Next,
            _ => Self::Id(number(text)),
        }
    }
}

/// Returns the number that all digits form, or a number that is no id if it is too great.
#[inline]
fn number(text: &[u8]) -> u64 {
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u64, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    })
}

/// Returns whether an id is written as in the log: decimal, without leading zeros.
#[inline]
pub(super) fn is_canonical(text: &[u8]) -> bool {
    !text.starts_with(b"0") && text.iter().all(u8::is_ascii_digit)
}

/// Returns the id of a key as the log has it.
#[inline]
pub(super) fn parse_canonical(text: &[u8]) -> Option<u64> {
    let id = number(text);
    (is_canonical(text) && (1..=FIXED_ID_MAX).contains(&id)).then_some(id)
}

/// Text of an id in the log.
pub(super) struct Text {
    digits: [u8; 20],
    start: u8,
}

impl Text {
    #[inline]
    pub(super) fn of(mut id: u64) -> Self {
        let mut digits = [b'0'; 20];
        let mut start = digits.len();
        while id > 0 || start == digits.len() {
            start -= 1;
            digits[start] = b'0' + (id % 10) as u8;
            id /= 10;
        }
        Self { digits, start: start as u8 }
    }

    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.digits[usize::from(self.start)..]
    }
}

/// Returns the id, or an error if it is out of range.
#[inline]
pub(super) fn check(id: u64, max: u64, key: &[u8]) -> Result<u64> {
    if (1..=max).contains(&id) { Ok(id) } else { Err(no_id(key, max)) }
}

/// Returns the error of a key that names no possible record.
#[cold]
pub(super) fn no_id(key: &[u8], max: u64) -> Error {
    let shown = &key[..key.len().min(SHOWN_BYTES_MAX)];
    Error::NoId { key: String::from_utf8_lossy(shown).into_owned(), max }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_of_a_key_counts_and_nothing_else() {
        for (text, key) in [
            ("5", Key::Id(5)),
            ("a5b0", Key::Id(50)),
            ("-1", Key::Id(1)),
            ("007", Key::Id(7)),
            ("", Key::Id(0)),
            ("abc", Key::Id(0)),
            ("min", Key::Min),
            ("max", Key::Max),
            ("prev", Key::Prev),
            ("next", Key::Next),
            ("MIN", Key::Id(0)),
            ("minx1", Key::Id(1)),
            ("9223372036854775807", Key::Id(FIXED_ID_MAX)),
            ("18446744073709551617", Key::Id(u64::MAX)),
        ] {
            assert_eq!(Key::parse(text.as_bytes()), key, "{text}");
        }
    }

    #[test]
    fn an_id_is_written_in_one_way_only() {
        for id in [1, 9, 10, 1234, FIXED_ID_MAX - 1, FIXED_ID_MAX] {
            let text = Text::of(id);
            assert_eq!(text.as_bytes(), id.to_string().as_bytes());
            assert_eq!(parse_canonical(text.as_bytes()), Some(id));
        }
        assert_eq!(Text::of(0).as_bytes(), b"0");
        assert_eq!(Text::of(u64::MAX).as_bytes(), u64::MAX.to_string().as_bytes());
        for text in ["", "0", "05", "a5", "5a", "+5", "9223372036854775808", "99999999999999999999"]
        {
            assert_eq!(parse_canonical(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn ids_have_a_limit() {
        for (id, is_one) in [(0, false), (1, true), (9, true), (10, true), (11, false)] {
            assert_eq!(check(id, 10, b"").is_ok(), is_one, "{id}");
        }
    }
}
