//! Percent-encoding.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use std::borrow::Cow;

/// Bytes that are encoded: all except letters, digits and `-._~`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Decodes `text`: `+` is a space, `%` and two hexadecimal digits are a byte. A `%` without them is
/// itself.
pub fn decode(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'+', text).is_none() {
        return unescape(text);
    }
    let spaced: Vec<u8> =
        text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Cow::Owned(unescape(&spaced).into_owned())
}

/// Decodes `text`, in which `+` is a plus sign.
pub(super) fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    percent_decode(text).into()
}

/// Appends `bytes`, with everything except letters, digits and `-._~` percent-encoded.
pub fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    percent_encode(bytes, ENCODED).for_each(|part| out.extend_from_slice(part.as_bytes()));
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
