//! Base64 with padding, as in keys of the meta commands.

use ::base64::Engine;
use ::base64::alphabet::STANDARD;
use ::base64::engine::{GeneralPurpose, GeneralPurposeConfig};

/// As memcached, it ignores surplus bits at the end.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Appends `bytes` as base64.
pub fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(BASE64.encode(bytes).as_bytes());
}

/// Decodes `text` into `buffer`, which must have three quarters of its length. Returns `None` if
/// `text` is not base64.
pub fn decode<'b>(text: &[u8], buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let length = BASE64.decode_slice(text, buffer).ok()?;
    Some(&buffer[..length])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_texts_are_written_and_read() {
        for (plain, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            let mut out = Vec::new();
            encode(&mut out, plain.as_bytes());
            assert_eq!(out, text.as_bytes());
            assert_eq!(decode(text.as_bytes(), &mut [0; 6]), Some(plain.as_bytes()));
        }
    }

    #[test]
    fn malformed_base64_is_refused() {
        for text in ["Z", "Zg", "Zg=", "Zg===", "Z===", "====", "Zg==Zg==", "Zm9\n", "Zm-v"] {
            assert_eq!(decode(text.as_bytes(), &mut [0; 12]), None, "{text}");
        }
        assert_eq!(decode(b"Zm9v", &mut [0; 2]), None, "the buffer is too short");
    }

    proptest! {
        #[test]
        fn all_bytes_survive_encoding_and_decoding(bytes: Vec<u8>) {
            let mut text = Vec::new();
            encode(&mut text, &bytes);
            let mut buffer = vec![0; bytes.len()];
            prop_assert_eq!(decode(&text, &mut buffer), Some(&bytes[..]));
        }
    }
}
