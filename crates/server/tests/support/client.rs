//! Client that sends and expects raw bytes.

use super::WAIT_MAX;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// A client of any protocol.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
        stream.set_write_timeout(Some(WAIT_MAX)).unwrap();
        Self { stream }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a request and asserts that exactly this reply follows.
    pub(crate) fn exchange(&mut self, request: impl AsRef<[u8]>, reply: impl AsRef<[u8]>) {
        self.send(request.as_ref());
        self.expect(reply);
    }

    /// Asserts that exactly these bytes follow.
    pub(crate) fn expect(&mut self, reply: impl AsRef<[u8]>) {
        let reply = reply.as_ref();
        let received = self.read(reply.len());
        assert_eq!(received.escape_ascii().to_string(), reply.escape_ascii().to_string());
    }

    pub(crate) fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut received = vec![0; bytes];
        self.stream.read_exact(&mut received).unwrap();
        received
    }

    pub(crate) fn read_until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut received = Vec::new();
        while !received.ends_with(end) {
            received.extend(self.read(1));
        }
        received
    }

    /// Returns all bytes until the server closes the connection.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        let mut received = Vec::new();
        match self.stream.read_to_end(&mut received) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{error} after {}", received.escape_ascii()),
        }
        received
    }

    /// Asserts that the server closes the connection without another byte.
    pub(crate) fn expect_close(&mut self) {
        assert_eq!(self.read_to_end().escape_ascii().to_string(), "");
    }
}
