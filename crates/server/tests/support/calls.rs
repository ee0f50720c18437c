//! Encoded requests of the binary protocol, and calls of versatile functions.

use wire::binary::{Request, encode};

/// Reply to a call that failed.
pub(crate) const MISC_FAILURE: &[u8] = b"\x01\0\0\0\0";

/// Returns the bytes of a call.
pub(crate) fn misc(name: &str, arguments: &[&str]) -> Vec<u8> {
    let mut request = b"\xc8\x90".to_vec();
    request.extend_from_slice(&size(name.len()));
    request.extend_from_slice(&size(0));
    request.extend_from_slice(&size(arguments.len()));
    request.extend_from_slice(name.as_bytes());
    push(&mut request, arguments);
    request
}

/// Returns the reply to a call that succeeded.
pub(crate) fn list(elements: &[&str]) -> Vec<u8> {
    let mut reply = vec![0];
    reply.extend_from_slice(&size(elements.len()));
    push(&mut reply, elements);
    reply
}

fn push(bytes: &mut Vec<u8>, strings: &[&str]) {
    for string in strings {
        bytes.extend_from_slice(&size(string.len()));
        bytes.extend_from_slice(string.as_bytes());
    }
}

fn size(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("a short string").to_be_bytes()
}

/// Returns the bytes of a request of Redis's protocol, in words that are separated by blanks.
pub(crate) fn redis(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    bytes.into_bytes()
}

/// Returns the bytes of a request of Tokyo Tyrant's protocol.
pub(crate) fn request(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(request, &mut bytes).unwrap();
    bytes
}
