//! Base64 with padding, as in keys of the meta commands.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes` as base64.
pub fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for place in 0..4 {
            let sextet = (bits >> (18 - 6 * place)) & 63;
            out.push(if place <= group.len() { ALPHABET[sextet as usize] } else { b'=' });
        }
    }
}

/// Decodes `text` into `buffer`, which must have three quarters of its length. Returns `None` if
/// `text` is not base64. Surplus bits at the end may be anything.
pub fn decode<'b>(text: &[u8], buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let (groups, []) = text.as_chunks::<4>() else { return None };
    let mut length = 0;
    for (index, group) in groups.iter().enumerate() {
        let padding = match group {
            [_, _, b'=', b'='] => 2,
            [_, _, _, b'='] => 1,
            _ => 0,
        };
        if padding > 0 && index + 1 < groups.len() {
            return None;
        }
        let mut bits = 0;
        for (place, character) in group.iter().enumerate() {
            let sextet = if place < 4 - padding { sextet(*character)? } else { 0 };
            bits = bits << 6 | sextet;
        }
        let bytes = &bits.to_be_bytes()[1..4 - padding];
        buffer.get_mut(length..length + bytes.len())?.copy_from_slice(bytes);
        length += bytes.len();
    }
    Some(&buffer[..length])
}

fn sextet(character: u8) -> Option<u32> {
    let value = match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
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
