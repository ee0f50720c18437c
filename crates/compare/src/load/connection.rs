//! Connection: one nonblocking connection with its requests in flight.

use super::protocol::{Expect as _, Kind, Protocol, Reply, mariadb};
use super::workload::Source;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;
use tls::{ClientSettings, INCOMING_BYTES_MAX, Session};

/// Most bytes per read, and the initial size of the buffer.
const READ_BYTES: usize = 64 * 1024;

/// A request that awaits its reply: `numbers[first..first + count]` of its connection.
#[derive(Debug)]
struct Request {
    kind: Kind,
    first: usize,
    count: usize,
}

/// TLS session of a connection, and the bytes that it receives.
#[derive(Debug)]
struct Tls {
    session: Session,
    records: Vec<u8>,
    plain: Vec<u8>,
}

impl Tls {
    /// Performs the handshake. Accepts any certificate, because the server is our own.
    fn begin(mut stream: &TcpStream) -> io::Result<Self> {
        let settings = ClientSettings { accepts_any_server: true, ..ClientSettings::default() };
        let session = Session::client(&settings.read()?, "localhost")?;
        let records = vec![0; INCOMING_BYTES_MAX + READ_BYTES];
        let mut tls = Self { session, records, plain: Vec::new() };
        loop {
            tls.send(stream)?;
            if !tls.session.is_handshaking() {
                return Ok(tls);
            }
            if tls.receive(&mut stream)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Sends as much as the socket accepts.
    fn send(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        while !self.session.unsent().is_empty() {
            let sent = stream.write(self.session.unsent())?;
            self.session.consume(sent);
        }
        Ok(())
    }

    /// Reads once, and decrypts complete records. Returns the number of bytes read.
    fn receive(&mut self, stream: &mut impl io::Read) -> io::Result<usize> {
        let received = stream.read(&mut self.records[INCOMING_BYTES_MAX..])?;
        let kept = self.session.resume(&mut self.records);
        self.records.copy_within(INCOMING_BYTES_MAX..INCOMING_BYTES_MAX + received, kept);
        self.session.open(&mut self.records[..kept + received], &mut self.plain)?;
        Ok(received)
    }
}

/// A connection. It sends requests in batches of the pipeline's depth, and receives all their
/// replies before it sends the next.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    tls: Option<Box<Tls>>,
    protocol: Protocol,
    output: Vec<u8>,
    output_sent: usize,
    input: Vec<u8>,
    input_start: usize,
    input_end: usize,
    requests: Vec<Request>,
    numbers: Vec<u64>,
    answered: usize,
    /// Time at which the batch was sent.
    pub(super) sent_at: Instant,
}

impl Connection {
    pub(super) fn open(address: SocketAddr, protocol: Protocol, tls: bool) -> io::Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let protocol = match protocol {
            Protocol::MariaDb { .. } => mariadb::begin(&mut stream)?,
            other => other,
        };
        let tls = tls.then(|| Tls::begin(&stream).map(Box::new)).transpose()?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            tls,
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

    /// Returns the number of requests without a reply.
    pub(super) fn outstanding(&self) -> usize {
        self.requests.len() - self.answered
    }

    /// Makes a batch of `count` requests and sends as much as the socket accepts.
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
        if let Some(tls) = &mut self.tls {
            tls.session.seal(&self.output)?;
            self.output_sent = self.output.len();
        }
        self.flush()
    }

    /// Returns whether bytes are still to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.output_sent < self.output.len()
            || self.tls.as_ref().is_some_and(|tls| !tls.session.unsent().is_empty())
    }

    /// Sends as much as the socket accepts.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            return match tls.send(&self.stream) {
                Err(error) if is_temporary(&error) => Ok(()),
                outcome => outcome,
            };
        }
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

    /// Reads once and passes every complete reply to `take`, with its request's kind and number of
    /// records.
    pub(super) fn receive(
        &mut self,
        source: &Source<'_>,
        mut take: impl FnMut(Kind, usize, Reply),
    ) -> io::Result<()> {
        match self.read() {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if is_temporary(&error) => return Ok(()),
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

    /// Reads once. Returns the number of bytes, before decryption with TLS.
    fn read(&mut self) -> io::Result<usize> {
        if self.input_end == self.input.len() {
            self.make_room();
        }
        let Some(tls) = &mut self.tls else {
            let count = self.stream.read(&mut self.input[self.input_end..])?;
            self.input_end += count;
            return Ok(count);
        };
        let count = tls.receive(&mut self.stream)?;
        let end = self.input_end + tls.plain.len();
        if end > self.input.len() {
            self.input.resize(end, 0);
        }
        self.input[self.input_end..end].copy_from_slice(&tls.plain);
        self.input_end = end;
        tls.plain.clear();
        Ok(count)
    }

    fn make_room(&mut self) {
        if self.input_start > 0 {
            self.input.copy_within(self.input_start..self.input_end, 0);
            self.input_end -= self.input_start;
            self.input_start = 0;
        } else {
            // A single reply fills the buffer. Its request bounds its length.
            self.input.resize(self.input.len() * 2, 0);
        }
    }
}

/// Returns whether an error of a socket only means that the operation must be retried later.
fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
