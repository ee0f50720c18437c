//! Percent-encoding.

use std::borrow::Cow;

/// Decodes `text`: `+` is a space, `%` and two hexadecimal digits are a byte. A `%` without them is
/// itself.
#[must_use]
pub fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    decode_with(text, b' ')
}

/// Decodes `text`, in which `+` is a plus sign.
pub(super) fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    decode_with(text, b'+')
}

fn decode_with(text: &[u8], plus: u8) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'+', after) => (plus, after),
            (b'%', [high, low, after_digits @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after_digits),
                _ => (b'%', after),
            },
            (byte, after) => (*byte, after),
        };
        decoded.push(byte);
        rest = after;
    }
    Cow::Owned(decoded)
}

/// Appends `bytes`, with everything except letters, digits and `-._~` percent-encoded.
pub(super) fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(*byte),
            _ => out.extend_from_slice(&[
                b'%',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]),
        }
    }
}

/// Returns the value of a hexadecimal digit.
pub(super) fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_borrowed() {
        assert!(matches!(decode(b"plain/text?x=1"), Cow::Borrowed(b"plain/text?x=1")));
    }

    #[test]
    fn escapes_and_plus_are_decoded() {
        assert_eq!(*decode(b"a+b%20c%2Bd%00%fF"), *b"a b c+d\0\xff");
    }

    #[test]
    fn a_percent_sign_without_digits_is_itself() {
        assert_eq!(*decode(b"%"), *b"%");
        assert_eq!(*decode(b"%4"), *b"%4");
        assert_eq!(*decode(b"%g1%%41"), *b"%g1%A");
    }

    #[test]
    fn every_byte_survives_encoding() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut encoded = Vec::new();
        encode(&mut encoded, &bytes);
        assert!(encoded.iter().all(|byte| byte.is_ascii_graphic() && !b"+&=;#".contains(byte)));
        assert_eq!(*decode(&encoded), *bytes);
    }
}
