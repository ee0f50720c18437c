//! Helpers for targets that read a sequence of messages.

use wire::Parse;

/// Reads messages until one is incomplete. `encode` must write the same bytes for each.
pub fn read<'a, T>(
    bytes: &'a [u8],
    parse: impl Fn(&'a [u8]) -> Parse<T>,
    encode: impl Fn(&T, &mut Vec<u8>),
) {
    let mut rest = bytes;
    let mut encoded = Vec::new();
    loop {
        match parse(rest) {
            Parse::Complete(message, length) => {
                encode(&message, &mut encoded);
                rest = &rest[length..];
            }
            Parse::Incomplete(needed) => {
                assert!(needed > rest.len());
                break;
            }
            Parse::Invalid(_) => break,
        }
    }
    assert_eq!(encoded, bytes[..bytes.len() - rest.len()]);
}
