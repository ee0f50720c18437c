//! Whole messages: sends each message completely, even if the process is killed.
//!
//! A replica of Tokyo Tyrant aborts on a stream that ends inside a message. Bytes that the system
//! has accepted are sent even after the process has ended. Therefore each call passes whole
//! messages only, and only when there is space for all of them. A writable socket has a third of
//! its buffer free. The limit of a quarter leaves space for the system's own overhead.
//!
//! Over TLS the records add less than one part in 500, for which there is space, too.
//!
//! A longer message is the exception. It is sent in parts, after the buffer was enlarged as far as
//! the system allows (`net.core.wmem_max`).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_socket_send_buffer_size, socket_send_buffer_size};
use std::io::{Error, ErrorKind, Result, Write};
use std::time::Duration;
use tls::Stream;

/// A writable socket has at least one part in this many of its send buffer free.
const FREE_PART: usize = 4;

/// Longest message that a send buffer is enlarged for, in bytes.
const ENLARGED_FOR_BYTES_MAX: usize = 16 << 20;

/// Output buffer of whole messages for a socket.
pub(super) struct WholeMessages<'s> {
    stream: &'s Stream,
    /// Timeout of the wait for space.
    timeout: Duration,
    bytes: Vec<u8>,
    /// Ends of the messages in the buffer.
    ends: Vec<usize>,
}

impl<'s> WholeMessages<'s> {
    pub(super) fn new(stream: &'s Stream, timeout: Duration) -> Self {
        Self { stream, timeout, bytes: Vec::new(), ends: Vec::new() }
    }

    /// Returns the number of unsent bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds the message that `encode` appends.
    pub(super) fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Sends all messages.
    pub(super) fn flush(&mut self) -> Result<()> {
        let mut start = 0;
        let mut rest = &self.ends[..];
        while let Some(&first) = rest.first() {
            let space = self.await_space(first - start)?;
            let fitting = rest.partition_point(|end| end - start <= space).max(1);
            let end = rest[fitting - 1];
            let mut stream = self.stream;
            stream.write_all(&self.bytes[start..end])?;
            start = end;
            rest = &rest[fitting..];
        }
        self.bytes.clear();
        self.ends.clear();
        Ok(())
    }

    /// Blocks until there is space. Returns how many bytes the socket takes at once, after its
    /// buffer was enlarged for a message of `wanted` bytes, as far as possible.
    fn await_space(&self, wanted: usize) -> Result<usize> {
        let mut buffer = socket_send_buffer_size(self.stream.socket())?;
        if wanted > buffer / FREE_PART && wanted <= ENLARGED_FOR_BYTES_MAX {
            let enlarged = (wanted * FREE_PART).min(buffer_bytes_max());
            if enlarged > buffer {
                // The system doubles the requested size, and returns the doubled size.
                set_socket_send_buffer_size(self.stream.socket(), enlarged.div_ceil(2))?;
                buffer = socket_send_buffer_size(self.stream.socket())?;
            }
        }
        let mut polled = [PollFd::new(self.stream.socket(), PollFlags::OUT)];
        let timeout = Timespec {
            tv_sec: self.timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: self.timeout.subsec_nanos().into(),
        };
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) => Err(Error::from(ErrorKind::TimedOut)),
            // Other states of the socket are reported by the send.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(buffer / FREE_PART),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the largest send buffer that a process may request, as the system shows it, or 0 if it
/// is unknown.
fn buffer_bytes_max() -> usize {
    let text = std::fs::read_to_string("/proc/sys/net/core/wmem_max").unwrap_or_default();
    text.trim().parse::<usize>().map_or(0, |bytes| bytes.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let stream = TcpStream::connect(address).expect("a connection");
        (stream.into(), listener.accept().expect("a connection").0)
    }

    /// Bytes that a socket accepts in one call without blocking are not split by a kill either.
    #[test]
    fn a_socket_takes_all_that_there_is_said_to_be_room_for_in_one_call() {
        for buffer in [None, Some(8 << 10), Some(64 << 10)] {
            for bytes in [30, 1000, 20_000, usize::MAX] {
                let (stream, _deaf) = pair();
                if let Some(buffer) = buffer {
                    set_socket_send_buffer_size(stream.socket(), buffer).expect("a buffer");
                }
                stream.socket().set_nonblocking(true).expect("a socket");
                let timeout = Duration::from_millis(50);
                let mut calls = 0;
                while let Ok(space) = WholeMessages::new(&stream, timeout).await_space(1) {
                    let bytes = vec![7; bytes.min(space)];
                    let taken = (&stream).write(&bytes).expect("room");
                    assert_eq!(taken, bytes.len(), "call {calls}, buffer {buffer:?}");
                    calls += 1;
                }
                assert!(calls > 1, "{buffer:?}");
            }
        }
    }

    #[test]
    fn a_buffer_is_enlarged_for_a_long_message_and_never_made_smaller() {
        let (stream, _deaf) = pair();
        set_socket_send_buffer_size(stream.socket(), 4 << 10).expect("a buffer");
        let messages = WholeMessages::new(&stream, Duration::from_secs(5));
        let small = socket_send_buffer_size(stream.socket()).expect("a size");
        assert!(messages.await_space(1).expect("room") <= small / FREE_PART);
        let wanted = buffer_bytes_max() / FREE_PART;
        if wanted > small {
            assert!(messages.await_space(wanted).expect("room") >= wanted);
        }
        let large = socket_send_buffer_size(stream.socket()).expect("a size");
        messages.await_space(usize::MAX).expect("room");
        assert_eq!(socket_send_buffer_size(stream.socket()).expect("a size"), large);
    }

    #[test]
    fn messages_that_do_not_fit_at_once_come_in_their_order() {
        let (stream, mut other) = pair();
        set_socket_send_buffer_size(stream.socket(), 4 << 10).expect("a buffer");
        let sent: Vec<Vec<u8>> =
            (0..300_u32).map(|number| vec![number as u8; (number * 37 % 5000) as usize]).collect();
        let expected = sent.concat();
        let reading = std::thread::spawn(move || {
            let mut received = Vec::new();
            std::io::Read::read_to_end(&mut other, &mut received).expect("a connection");
            received
        });
        let mut messages = WholeMessages::new(&stream, Duration::from_secs(60));
        for message in &sent {
            messages.push(|output| output.extend_from_slice(message));
        }
        messages.flush().expect("a reader");
        assert_eq!(messages.len(), 0);
        stream.shut_down().expect("a connection");
        assert_eq!(reading.join().expect("a reader"), expected);
    }
}
