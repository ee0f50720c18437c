//! Parse throttle: decides when an incomplete request is parsed again.
//!
//! A line, or the head of an HTTP request, may arrive byte by byte. Parsing the whole input with
//! each byte would take time that grows with the square of its length. Therefore it is parsed again
//! only when a line has ended, when twice as many bytes are there (it may be no request), or when
//! it has become longer than a limit.

use super::protocols;
use super::session::Session;
use wire::Protocol;
use wire::limits::{HTTP_HEAD_BYTES_MAX, LINE_BYTES_MAX};

/// Longest request of a client that has not authenticated, in bytes. Heads of HTTP requests have a
/// limit of their own.
pub(crate) const UNAUTHENTICATED_BYTES_MAX: usize = 64 << 10;

/// State of an incomplete request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reparse {
    /// Bytes at the last parse, or 0 if any input is worth another parse.
    seen: usize,
    /// Bytes that are known to end no line.
    searched: usize,
    /// Length from which the input is parsed in any case, in bytes.
    limit: usize,
}

impl Reparse {
    /// Returns the state after a parse that found `input` incomplete. A request longer than
    /// `bytes_max` is too long.
    pub(crate) fn after(session: &Session, input: &[u8], bytes_max: usize) -> Self {
        let protocol = session.sniff(input).unwrap_or(Protocol::Memcached);
        let awaits_line = protocols::awaits_line(protocol, input);
        let seen = if awaits_line { input.len() } else { 0 };
        let limits =
            [bytes_max, UNAUTHENTICATED_BYTES_MAX, HTTP_HEAD_BYTES_MAX, LINE_BYTES_MAX, 2 * seen];
        let limit = limits.into_iter().filter(|limit| *limit > seen).min().unwrap_or(0);
        Self { seen, searched: seen, limit }
    }

    /// Returns whether `input` should be parsed again.
    #[inline]
    pub(crate) fn is_due(&mut self, input: &[u8]) -> bool {
        if self.seen == 0 || input.len() >= self.limit {
            return true;
        }
        let is_line = input.get(self.searched..).is_none_or(|rest| rest.contains(&b'\n'));
        self.searched = input.len();
        is_line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how often a request is parsed that arrives byte by byte.
    fn parses(request: &[u8]) -> usize {
        let mut reparse = Reparse::default();
        let mut parses = 0;
        for bytes in 1..=request.len() {
            if reparse.is_due(&request[..bytes]) {
                parses += 1;
                reparse = Reparse::after(&Session::default(), &request[..bytes], usize::MAX);
            }
        }
        parses
    }

    #[test]
    fn a_request_that_comes_byte_by_byte_is_parsed_a_few_times() {
        let long = [b'k'; 100_000];
        let first_doublings = 16;
        for request in [
            [b"GET /", &long[..], b" HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat(),
            [b"GET / HTTP/1.1\r\nHost: ", &long[..], b"\r\n\r\n"].concat(),
            [b"get ", &long[..], b"\r\n"].concat(),
        ] {
            let parses = parses(&request);
            assert!(parses < first_doublings + 24, "{parses}");
        }
    }

    #[test]
    fn a_request_that_has_become_too_long_is_parsed() {
        for limit in [1000, UNAUTHENTICATED_BYTES_MAX, HTTP_HEAD_BYTES_MAX, LINE_BYTES_MAX] {
            let line = [&b"get "[..], &vec![b'k'; limit]].concat();
            let mut reparse = Reparse::after(&Session::default(), &line[..limit - 1], 1000);
            assert!(reparse.is_due(&line[..limit]), "{limit}");
        }
    }

    #[test]
    fn a_complete_request_is_parsed() {
        let whole: [&[u8]; 6] = [
            b"get k\r\n",
            b"get k\n",
            b"GET /k HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /k HTTP/1.1\n\n",
            b"PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nvv",
            b"set k 0 0 2\r\nvv\r\n",
        ];
        for request in whole {
            for first in 1..request.len() {
                let mut reparse =
                    Reparse::after(&Session::default(), &request[..first], usize::MAX);
                for bytes in first + 1..request.len() {
                    if reparse.is_due(&request[..bytes]) {
                        reparse =
                            Reparse::after(&Session::default(), &request[..bytes], usize::MAX);
                    }
                }
                assert!(reparse.is_due(request), "{} {first}", request.escape_ascii());
            }
        }
    }
}
