//! When it is worth looking again at the beginning of a request.
//!
//! A line, or the head of an HTTP request, may come byte by byte. To parse all that is there with
//! each byte would take a client that drips one a time that grows with the square of its length. So
//! it is looked at again when a line has ended, when there is twice as much as before (it may be no
//! request), and when it has become longer than a limit.

use wire::Protocol;
use wire::limits::{HTTP_HEAD_BYTES_MAX, LINE_BYTES_MAX};

/// Longest request that is taken of a client that has not said who it is, in bytes. Heads of HTTP
/// have a limit of their own.
pub(crate) const UNAUTHENTICATED_BYTES_MAX: usize = 64 << 10;

/// What is known of a request that is not all there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reparse {
    /// Bytes that were there when it was looked at; 0 if it is worth it in any case.
    seen: usize,
    /// Bytes in which no line has ended since then.
    searched: usize,
    /// Bytes from which it is looked at whatever they are.
    limit: usize,
}

impl Reparse {
    /// What has been looked at, and was not a whole request. One of `bytes_max` is too long.
    pub(crate) fn after(input: &[u8], bytes_max: usize) -> Self {
        let awaits_line = match wire::sniff(input) {
            // Text, of which the first line is not there.
            Some(Protocol::Memcached) | None => !input.contains(&b'\n'),
            Some(Protocol::Http) => !has_blank_line(input),
            Some(Protocol::Binary | Protocol::MemcachedBinary) => false,
        };
        let seen = if awaits_line { input.len() } else { 0 };
        let limits =
            [bytes_max, UNAUTHENTICATED_BYTES_MAX, HTTP_HEAD_BYTES_MAX, LINE_BYTES_MAX, 2 * seen];
        let limit = limits.into_iter().filter(|limit| *limit > seen).min().unwrap_or(0);
        Self { seen, searched: seen, limit }
    }

    /// Whether something may be made of what there is by now.
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

/// Whether there is the line that ends the head of an HTTP request.
fn has_blank_line(input: &[u8]) -> bool {
    let mut lines = input.split(|byte| *byte == b'\n');
    // What follows the last line feed is no line yet.
    let _ = lines.next_back();
    lines.any(|line| matches!(line, [] | [b'\r']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a request is looked at that comes byte by byte.
    fn looks(request: &[u8]) -> usize {
        let mut reparse = Reparse::default();
        let mut looks = 0;
        for bytes in 1..=request.len() {
            if reparse.is_due(&request[..bytes]) {
                looks += 1;
                reparse = Reparse::after(&request[..bytes], usize::MAX);
            }
        }
        looks
    }

    #[test]
    fn what_comes_byte_by_byte_is_looked_at_a_few_times() {
        let long = [b'k'; 100_000];
        let beginning = 16;
        for request in [
            [b"GET /", &long[..], b" HTTP/1.1\r\nHost: x\r\n\r\n"].concat(),
            [b"GET / HTTP/1.1\r\nHost: ", &long[..], b"\r\n\r\n"].concat(),
            [b"get ", &long[..], b"\r\n"].concat(),
        ] {
            let looks = looks(&request);
            assert!(looks < beginning + 24, "{looks}");
        }
    }

    #[test]
    fn what_has_become_too_long_is_looked_at() {
        for limit in [1000, UNAUTHENTICATED_BYTES_MAX, HTTP_HEAD_BYTES_MAX, LINE_BYTES_MAX] {
            let line = [&b"get "[..], &vec![b'k'; limit]].concat();
            let mut reparse = Reparse::after(&line[..limit - 1], 1000);
            assert!(reparse.is_due(&line[..limit]), "{limit}");
        }
    }

    #[test]
    fn what_could_be_a_whole_request_is_looked_at() {
        let whole: [&[u8]; 6] = [
            b"get k\r\n",
            b"get k\n",
            b"GET /k HTTP/1.1\r\n\r\n",
            b"GET /k HTTP/1.1\n\n",
            b"PUT /k HTTP/1.1\r\nContent-Length: 2\r\n\r\nvv",
            b"set k 0 0 2\r\nvv\r\n",
        ];
        for request in whole {
            for first in 1..request.len() {
                let mut reparse = Reparse::after(&request[..first], usize::MAX);
                for bytes in first + 1..request.len() {
                    if reparse.is_due(&request[..bytes]) {
                        reparse = Reparse::after(&request[..bytes], usize::MAX);
                    }
                }
                assert!(reparse.is_due(request), "{} {first}", request.escape_ascii());
            }
        }
    }
}
