//! Request heads: checked by the server's own rules before the protocol library reads them.
//!
//! A connection taken over by WebDAV must refuse what a new one refuses, and a target must mean the
//! same on both. So the head of each request is parsed here too. Before a request that is not one
//! of WebDAV, or that the server would refuse (a body with two lengths, a target that is not a
//! path), the library meets the end of the stream, and the server takes the connection back. Each
//! target is replaced by its canonical form, which every parser understands the same way. Bodies
//! are followed to their end and passed on unchanged.

use server::belongs_to_webdav;
use std::io;
use wire::Parse;
use wire::http::path::{path_key, path_target};
use wire::http::{RestOfBody, head};

/// Parser of the requests of a connection.
#[derive(Debug)]
pub(crate) struct Heads {
    state: State,
    /// Incomplete bytes: the first part of a head, or of a line between chunks. Then, bytes of
    /// requests that are those of the server.
    part: Vec<u8>,
    /// Length of `part` at which parsing is tried again.
    needed: usize,
    /// Whether a head that was passed on says that the connection ends after its request.
    closes: bool,
}

#[derive(Debug)]
enum State {
    Head,
    Body(RestOfBody),
    /// The next request, and all after it, are those of the server.
    Other,
}

impl Heads {
    pub(crate) fn new() -> Self {
        Self { state: State::Head, part: Vec::new(), needed: 0, closes: false }
    }

    /// Returns whether nothing more is passed on: the next request is one of the server.
    pub(crate) fn are_over(&self) -> bool {
        matches!(self.state, State::Other)
    }

    /// Returns whether a request that was passed on is the last one of the connection.
    pub(crate) fn close(&self) -> bool {
        self.closes
    }

    /// Returns the bytes that were not passed on.
    pub(crate) fn into_rest(self) -> Vec<u8> {
        self.part
    }

    /// Appends to `passed` the bytes that the library may read of those received.
    ///
    /// # Errors
    ///
    /// If a body does not match its head.
    pub(crate) fn pass(&mut self, bytes: &[u8], passed: &mut Vec<u8>) -> io::Result<()> {
        if self.part.is_empty() {
            let taken = self.take(bytes, passed)?;
            self.part.extend_from_slice(&bytes[taken..]);
            return Ok(());
        }
        self.part.extend_from_slice(bytes);
        if self.part.len() >= self.needed && !self.are_over() {
            let mut part = std::mem::take(&mut self.part);
            let taken = self.take(&part, passed)?;
            part.drain(..taken);
            self.part = part;
        }
        Ok(())
    }

    /// Returns the number of bytes taken.
    fn take(&mut self, bytes: &[u8], passed: &mut Vec<u8>) -> io::Result<usize> {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            match &mut self.state {
                State::Other => return Ok(taken),
                State::Head => match head(rest) {
                    Parse::Complete(head, length) if belongs_to_webdav(&head) => {
                        match path_key(head.target) {
                            Ok(key) => rewrite(&rest[..length], head.target, &key, passed),
                            Err(_) => passed.extend(&rest[..length]),
                        }
                        taken += length;
                        self.closes |= !head.keep_alive;
                        let body = RestOfBody::of(head.body);
                        if !body.is_empty() {
                            self.state = State::Body(body);
                        }
                    }
                    Parse::Incomplete(needed) => {
                        self.needed = needed;
                        return Ok(taken);
                    }
                    Parse::Complete(..) | Parse::Invalid(_) => self.state = State::Other,
                },
                State::Body(body) => match body.take(rest) {
                    Parse::Complete(_, length) => {
                        passed.extend_from_slice(&rest[..length]);
                        taken += length;
                        if body.is_empty() {
                            self.state = State::Head;
                        }
                    }
                    Parse::Incomplete(needed) => {
                        self.needed = needed;
                        return Ok(taken);
                    }
                    Parse::Invalid(_) => return Err(io::ErrorKind::InvalidData.into()),
                },
            }
        }
        Ok(taken)
    }
}

/// Appends a head, with its target replaced by the canonical target of `key`.
fn rewrite(head: &[u8], target: &[u8], key: &[u8], passed: &mut Vec<u8>) {
    // In the first line, the target follows the method and a space.
    let blank = head.iter().position(|byte| *byte == b' ').unwrap_or_default();
    passed.extend_from_slice(&head[..=blank]);
    passed.extend_from_slice(path_target(key).as_bytes());
    passed.extend_from_slice(&head[blank + 1 + target.len()..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes passed on when `bytes` arrive in pieces of this length.
    fn passed(bytes: &[u8], piece: usize) -> io::Result<Vec<u8>> {
        let (mut heads, mut passed) = (Heads::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            heads.pass(piece, &mut passed)?;
        }
        Ok(passed)
    }

    #[test]
    fn requests_are_passed_on_with_a_canonical_target() {
        let chunks = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n";
        let lines = [
            ("DELETE //a+b?x=1", "DELETE /a%2Bb", "A: b\r\n\r\n"),
            ("PUT /./c/../d", "PUT /d", "Content-Length: 3\r\n\r\nGET"),
            ("PUT http://h/e%2e", "PUT /e.", chunks),
            ("OPTIONS *", "OPTIONS *", "\r\n"),
            ("MKCOL /f//", "MKCOL /f/", "\r\n"),
        ];
        let with = |place: fn(&(&'static str, &'static str, &'static str)) -> &'static str| {
            let requests = lines
                .iter()
                .map(|line| format!("{} HTTP/1.1\r\nHost: localhost\r\n{}", place(line), line.2));
            requests.collect::<String>()
        };
        let (sent, expected) = (with(|line| line.0), with(|line| line.1));
        for piece in [1, 2, 7, 64, sent.len()] {
            let passed = passed(sent.as_bytes(), piece).expect("good requests");
            assert_eq!(String::from_utf8_lossy(&passed), expected, "{piece}");
        }
    }

    #[test]
    fn a_request_that_is_none_of_webdav_ends_the_stream_and_is_kept_as_it_came() {
        let good = "DELETE /a HTTP/1.1\r\nHost: localhost\r\n\r\n";
        for other in [
            "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "BREW /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
            "PUT /a HTTP/1.1\r\nHost: localhost\r\nX-TT-PDMODE: 2\r\nContent-Length: 3\r\n\r\nabc",
            "version\r\n",
            "PUT /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "PUT /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
            "PUT /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
            "GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "GET /.. HTTP/1.1\r\nHost: localhost\r\n\r\n",
            "GET /a%2Fb HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ] {
            for piece in [1, 1000] {
                let sent = [good, other, good].concat();
                let (mut heads, mut passed) = (Heads::new(), Vec::new());
                for piece in sent.as_bytes().chunks(piece) {
                    heads.pass(piece, &mut passed).expect("good requests");
                }
                assert!(heads.are_over(), "{other}");
                assert_eq!(passed, good.as_bytes(), "{other}");
                assert_eq!(heads.into_rest(), [other, good].concat().as_bytes());
            }
        }
        let bad = "PUT /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n";
        passed(bad.as_bytes(), 1000).expect_err("no chunk");
    }
}
