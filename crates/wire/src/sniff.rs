//! Sniffer: recognises the protocol of a request by its first bytes.

use crate::limits::LINE_BYTES_MAX;
use crate::memcached::{is_verb, tokens};
use crate::{binary, http, memcached_binary, redis};

/// A protocol of the shared port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// [`binary`].
    Binary,
    /// [`memcached`](crate::memcached), and any other line of text.
    Memcached,
    /// [`memcached_binary`].
    MemcachedBinary,
    /// [`http`].
    Http,
    /// [`redis`].
    Redis,
}

/// Returns the protocol of the request at the start of `bytes`, or `None` if that takes more bytes.
///
/// As in Tokyo Tyrant, each request of a connection may have another protocol, until the client has
/// sent an array of Redis's protocol: see [`sniff_after_array`]. The first byte
/// identifies a binary protocol. Otherwise the first token identifies memcached, and the third
/// HTTP. A line that ends in a version of HTTP is a malformed HTTP request: a body may follow,
/// which a browser can be made to send, and must not be taken for commands.
#[inline]
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

/// Returns the protocol of the request at the start of `bytes`, on a connection whose client has
/// sent an array of Redis's protocol: from then on every line is a command of Redis.
#[inline]
pub fn sniff_after_array(bytes: &[u8]) -> Option<Protocol> {
    match bytes {
        [] => None,
        [binary::MAGIC, ..] => Some(Protocol::Binary),
        [memcached_binary::MAGIC, ..] => Some(Protocol::MemcachedBinary),
        _ => Some(Protocol::Redis),
    }
}

fn text(bytes: &[u8]) -> Option<Protocol> {
    let line_feed = memchr::memchr(b'\n', bytes);
    let line = &bytes[..line_feed.unwrap_or(bytes.len())];
    let mut rest = line;
    let verb = tokens::next(&mut rest).unwrap_or_default();
    // A token is complete once another byte follows it.
    if is_verb(verb) && !rest.is_empty() {
        return Some(Protocol::Memcached);
    }
    tokens::next(&mut rest);
    let third = tokens::next(&mut rest).unwrap_or_default();
    if third.starts_with(b"HTTP/1.") {
        return Some(Protocol::Http);
    }
    if line_feed.is_some() {
        // A client that sends many requests at once ends them by an empty line, before the next.
        let is_before_next = matches!(bytes, [b'\r', b'\n', b'*', ..]);
        if redis::is_request(line) || is_before_next {
            return Some(Protocol::Redis);
        }
        let ends_in_version = ends_in_http_version(line);
        return Some(if ends_in_version { Protocol::Http } else { Protocol::Memcached });
    }
    if line.len() >= LINE_BYTES_MAX {
        // Both parsers refuse this, each in its own form.
        return Some(if http::Method::from_name(verb).is_some() {
            Protocol::Http
        } else {
            Protocol::Memcached
        });
    }
    None
}

fn ends_in_http_version(line: &[u8]) -> bool {
    const NAME: &[u8] = b"HTTP/";
    let line = line.trim_ascii_end();
    let start = line.iter().rposition(|byte| byte.is_ascii_whitespace()).map_or(0, |at| at + 1);
    let last = &line[start..];
    last.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_identifies_a_binary_protocol() {
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
    fn the_third_token_identifies_http() {
        assert_eq!(sniff(b"GET / HTTP/1."), Some(Protocol::Http));
        assert_eq!(sniff(b"BREW\t/pot  HTTP/1.0\r\n"), Some(Protocol::Http));
        assert_eq!(sniff(b"GET / HTTP/1"), None);
        assert_eq!(sniff(b"GET\n/ HTTP/1.1\n"), Some(Protocol::Memcached));
    }

    #[test]
    fn a_line_that_ends_in_a_version_of_http_is_never_for_memcached() {
        for line in [
            "POST /a b HTTP/1.1\r\n",
            "POST /a\tb c HTTP/1.0\n",
            "POST /a b http/1.1 \r\n",
            "GET / HTTP/2.0\r\n",
            "GET  /a  b  HTTP/1.1\r\n",
            "PRI * HTTP/2\r\n",
            "HTTP/1.1\r\n",
        ] {
            assert_eq!(sniff(line.as_bytes()), Some(Protocol::Http), "{line}");
            // Undecided before the end of the line is known, unless the third token is the version.
            let part = line.trim_end();
            assert!(matches!(sniff(part.as_bytes()), None | Some(Protocol::Http)), "{line}");
        }
        for line in ["GET /a b\r\n", "POST /HTTP/1.1 b\r\n", "get a HTTP/1.1\r\n"] {
            assert_eq!(sniff(line.as_bytes()), Some(Protocol::Memcached), "{line}");
        }
    }

    #[test]
    fn the_first_line_identifies_redis() {
        for line in [
            "*1\r\n$4\r\nPING\r\n",
            "*999\r\n",
            "*-1\r\n",
            "*12345678901\r\n",
            "\r\n*1\r\n",
            "PING\r\n",
            "ping\n",
            "PING a\r\n",
            "HELLO 3\n",
        ] {
            assert_eq!(sniff(line.as_bytes()), Some(Protocol::Redis), "{line}");
        }
        for line in
            ["*\r\n", "*1 2\r\n", "*1x\r\n", "*-\r\n", "\r\nget a\r\n", "PINGS\r\n", "ping a\r\n"]
        {
            assert_eq!(sniff(line.as_bytes()), Some(Protocol::Memcached), "{line}");
        }
        assert_eq!(sniff(b"*1"), None);
        assert_eq!(sniff(b"*1 a HTTP/1.1\r\n"), Some(Protocol::Http));
    }

    #[test]
    fn after_an_array_every_line_is_for_redis() {
        for line in ["*1\r\n", "get a\r\n", "GET / HTTP/1.1\r\n", "\r\n", "s"] {
            assert_eq!(sniff_after_array(line.as_bytes()), Some(Protocol::Redis), "{line}");
        }
        assert_eq!(sniff_after_array(b""), None);
        assert_eq!(sniff_after_array(b"\xc8"), Some(Protocol::Binary));
        assert_eq!(sniff_after_array(b"\x80"), Some(Protocol::MemcachedBinary));
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
