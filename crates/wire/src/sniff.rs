//! Which protocol a request speaks.

use crate::limits::LINE_BYTES_MAX;
use crate::memcached::{is_verb, tokens};
use crate::{binary, http, memcached_binary};

/// A protocol of the shared port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// [`binary`].
    Binary,
    /// [`memcached`](crate::memcached), and whatever else comes as a line of text.
    Memcached,
    /// [`memcached_binary`].
    MemcachedBinary,
    /// [`http`].
    Http,
}

/// Protocol of the request at the start of `bytes`; `None` if that takes more bytes.
///
/// As in the original the question is open anew with each request of a connection. The first byte
/// tells a binary protocol; else the first token tells memcached, and the third HTTP.
#[inline]
#[must_use]
pub fn sniff(bytes: &[u8]) -> Option<Protocol> {
    match bytes {
        [] => None,
        [binary::MAGIC, ..] => Some(Protocol::Binary),
        [memcached_binary::MAGIC, ..] => Some(Protocol::MemcachedBinary),
        // Most requests by far.
        [b'g' | b's', b'e', b't', b' ', ..] | [b'm', b'g' | b's', b' ', ..] => {
            Some(Protocol::Memcached)
        }
        _ => text(bytes),
    }
}

fn text(bytes: &[u8]) -> Option<Protocol> {
    let line_feed = memchr::memchr(b'\n', bytes);
    let line = &bytes[..line_feed.unwrap_or(bytes.len())];
    let mut rest = line;
    let verb = tokens::next(&mut rest).unwrap_or_default();
    // A token is whole once something follows it.
    if is_verb(verb) && !rest.is_empty() {
        return Some(Protocol::Memcached);
    }
    tokens::next(&mut rest);
    let third = tokens::next(&mut rest).unwrap_or_default();
    if third.starts_with(b"HTTP/1.") {
        return Some(Protocol::Http);
    }
    if line_feed.is_some() {
        return Some(Protocol::Memcached);
    }
    if line.len() >= LINE_BYTES_MAX {
        // Either parser will refuse this, each in its own words.
        return Some(if http::Method::from_name(verb).is_some() {
            Protocol::Http
        } else {
            Protocol::Memcached
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_tells_a_binary_protocol() {
        assert_eq!(sniff(b"\xc8"), Some(Protocol::Binary));
        assert_eq!(sniff(b"\x80"), Some(Protocol::MemcachedBinary));
        assert_eq!(sniff(b""), None);
    }

    #[test]
    fn a_verb_of_memcached_needs_no_whole_line() {
        assert_eq!(sniff(b"get "), Some(Protocol::Memcached));
        assert_eq!(sniff(b"touch key"), Some(Protocol::Memcached));
        assert_eq!(sniff(b"get"), None);
        assert_eq!(sniff(b"version\r\n"), Some(Protocol::Memcached));
        assert_eq!(sniff(b"set k HTTP/1.1 0 1"), Some(Protocol::Memcached));
    }

    #[test]
    fn the_third_token_tells_http() {
        assert_eq!(sniff(b"GET / HTTP/1."), Some(Protocol::Http));
        assert_eq!(sniff(b"BREW\t/pot  HTTP/1.0\r\n"), Some(Protocol::Http));
        assert_eq!(sniff(b"GET / HTTP/1"), None);
        assert_eq!(sniff(b"GET / HTTP/2.0\r\n"), Some(Protocol::Memcached));
        assert_eq!(sniff(b"GET\n/ HTTP/1.1\n"), Some(Protocol::Memcached));
    }

    #[test]
    fn other_lines_are_left_for_memcached_to_refuse() {
        assert_eq!(sniff(b"foo\r\n"), Some(Protocol::Memcached));
        assert_eq!(sniff(b"\r\n"), Some(Protocol::Memcached));
        assert_eq!(sniff(b"foo"), None);
    }

    #[test]
    fn a_line_without_end_is_decided_at_the_limit() {
        let mut line = b"GET /".to_vec();
        line.resize(LINE_BYTES_MAX - 1, b'x');
        assert_eq!(sniff(&line), None);
        line.push(b'x');
        assert_eq!(sniff(&line), Some(Protocol::Http));
        line.push(b'x');
        assert_eq!(sniff(&line), Some(Protocol::Http));
        line[0] = b'g';
        assert_eq!(sniff(&line), Some(Protocol::Memcached));
    }
}
