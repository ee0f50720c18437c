//! Bytes and what is made of them.

use wire::Parse;

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|char| !char.is_whitespace()).collect();
    let digit = |char: char| char.to_digit(16).expect("a hexadecimal digit") as u8;
    digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Checks that `bytes` is one whole request, that no part of it is taken for one, and that none
/// is asked to be longer than the whole. The bytes after it do not matter.
pub(crate) fn assert_is_one_request(bytes: &[u8], parse: impl Fn(&[u8]) -> Parse<()>) {
    for end in 0..bytes.len() {
        match parse(&bytes[..end]) {
            Parse::Incomplete(needed) => {
                assert!(needed > end, "{needed} bytes needed of {end} present");
                assert!(needed <= bytes.len(), "{needed} bytes needed of {}", bytes.len());
            }
            other => panic!("{end} bytes of {}: {other:?}", bytes.len()),
        }
    }
    let mut followed = bytes.to_vec();
    for _ in 0..2 {
        match parse(&followed) {
            Parse::Complete(_, length) => assert_eq!(length, bytes.len()),
            other => panic!("{other:?}"),
        }
        followed.push(b'\n');
    }
}
