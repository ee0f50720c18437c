//! One nonblocking connection with its requests under way.

use super::protocol::{Expect as _, Kind, Protocol, Reply};
use super::workload::Source;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// Most bytes read at once; also what the buffer starts with.
const READ_BYTES: usize = 64 * 1024;

/// A request that awaits its reply: `numbers[first..first + count]` of its connection.
#[derive(Debug)]
struct Request {
    kind: Kind,
    first: usize,
    count: usize,
}

/// A connection. It sends requests in batches of the pipeline's depth and takes all their
/// replies before it sends the next.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    protocol: Protocol,
    output: Vec<u8>,
    output_sent: usize,
    input: Vec<u8>,
    input_start: usize,
    input_end: usize,
    requests: Vec<Request>,
    numbers: Vec<u64>,
    answered: usize,
    /// When the batch was sent.
    pub(super) sent_at: Instant,
}

impl Connection {
    pub(super) fn open(address: SocketAddr, protocol: Protocol) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            protocol,
            output: Vec::new(),
            output_sent: 0,
            input: vec![0; READ_BYTES],
            input_start: 0,
            input_end: 0,
            requests: Vec::new(),
            numbers: Vec::new(),
            answered: 0,
            sent_at: Instant::now(),
        })
    }

    /// Requests that await their replies.
    pub(super) fn outstanding(&self) -> usize {
        self.requests.len() - self.answered
    }

    /// Makes a batch of `count` requests and sends as much as the socket takes.
    pub(super) fn send_batch(
        &mut self,
        source: &mut Source<'_>,
        count: usize,
        now: Instant,
    ) -> io::Result<()> {
        self.requests.clear();
        self.numbers.clear();
        self.answered = 0;
        self.output.clear();
        self.output_sent = 0;
        for _ in 0..count {
            let first = self.numbers.len();
            let kind = source.next(&mut self.numbers);
            let numbers = &self.numbers[first..];
            match kind {
                Kind::Set => {
                    self.protocol.encode_set(
                        numbers[0],
                        source.value(numbers[0]),
                        &mut self.output,
                    );
                }
                Kind::Get => self.protocol.encode_get(numbers[0], &mut self.output),
                Kind::MultiGet => self.protocol.encode_multi_get(numbers, &mut self.output),
                Kind::Call(script) => {
                    self.protocol.encode_call(script, numbers[0], &mut self.output);
                }
            }
            self.requests.push(Request { kind, first, count: numbers.len() });
        }
        self.sent_at = now;
        self.flush()
    }

    /// Whether bytes wait for the socket to take them.
    pub(super) fn has_unsent(&self) -> bool {
        self.output_sent < self.output.len()
    }

    /// Sends what the socket takes now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.has_unsent() {
            match self.stream.write(&self.output[self.output_sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.output_sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads once what has arrived and hands every whole reply to `take`, with its request's
    /// kind and number of records.
    pub(super) fn receive(
        &mut self,
        source: &Source<'_>,
        mut take: impl FnMut(Kind, usize, Reply),
    ) -> io::Result<()> {
        if self.input_end == self.input.len() {
            self.make_room();
        }
        match self.stream.read(&mut self.input[self.input_end..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.input_end += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        while self.input_start < self.input_end {
            let Some(request) = self.requests.get(self.answered) else {
                return Err(io::Error::other("a reply to no request"));
            };
            let numbers = &self.numbers[request.first..request.first + request.count];
            let bytes = &self.input[self.input_start..self.input_end];
            match self.protocol.parse(request.kind, numbers, bytes, source) {
                Ok(None) => break,
                Ok(Some((length, reply))) => {
                    take(request.kind, request.count, reply);
                    self.input_start += length;
                    self.answered += 1;
                }
                Err(garbled) => return Err(io::Error::other(garbled.0)),
            }
        }
        if self.input_start == self.input_end {
            (self.input_start, self.input_end) = (0, 0);
        }
        Ok(())
    }

    fn make_room(&mut self) {
        if self.input_start > 0 {
            self.input.copy_within(self.input_start..self.input_end, 0);
            self.input_end -= self.input_start;
            self.input_start = 0;
        } else {
            // One reply fills the buffer. Its request bounds its length.
            self.input.resize(self.input.len() * 2, 0);
        }
    }
}
