//! Replica link: the connection of a replica to a master, which may be tyrant or Tokyo Tyrant.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use wire::Parse;
use wire::binary::{Function, NOT_LOGGED, Request, Strings, StringsBuffer, encode, reply};
use wire::limits::{LOG_IDENTITY_BYTES_MAX, REPLICATION_BLOCK_BYTES_MAX};
use wire::replication::{Acknowledgement, FromMaster, IDENTITY, ROOTS, Resume, VERSION};
use wire::update_log::Message;

use crate::connection::Stream;
use crate::frames::{Frames, read_server_id};
use crate::updates::Interrupter;
use crate::{Address, Error, Result, Settings};

/// Most bytes of a master's status.
const STATUS_BYTES_MAX: usize = 1 << 20;

/// A replica's request to its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeRequest {
    /// Time stamp of the first log entry that the replica lacks, in microseconds since 1970, at
    /// least 1.
    pub timestamp_us: u64,
    /// Id of the replica.
    pub server_id: u32,
    /// Options of [`wire::replication`], which Tokyo Tyrant ignores.
    pub options: u32,
    /// Port at which the replica can be reached, 0 if unknown.
    pub port: u16,
}

/// The connection of a replica to its master. It receives the messages of an
/// [`UpdateStream`](crate::UpdateStream), and further ones if the master is a tyrant server.
pub struct ReplicaLink {
    stream: Stream,
    is_extended: bool,
    /// Whether `is_extended` is known.
    is_probed: bool,
    /// Id of the master, once it has been received.
    server_id: Option<u32>,
    frames: Frames,
    /// Messages that came compressed.
    block: Frames,
}

/// Sends a replica's progress to its master, from any thread.
pub struct Acknowledger(Stream);

impl Acknowledger {
    /// Sends an acknowledgement.
    pub fn send(&mut self, acknowledgement: &Acknowledgement) -> Result<()> {
        let mut bytes = Vec::with_capacity(Acknowledgement::BYTES);
        acknowledgement.encode(&mut bytes);
        self.0.write_all(&bytes).map_err(Error::Send)
    }
}

impl ReplicaLink {
    /// Connects to the server at `address`. Call [`ReplicaLink::subscribe`] next.
    pub fn open(address: &Address, settings: &Settings) -> Result<Self> {
        Ok(Self {
            stream: Stream::open(address, settings)?,
            is_extended: false,
            is_probed: false,
            server_id: None,
            frames: Frames::default(),
            block: Frames::default(),
        })
    }

    /// Returns the id of the master's update log, to which time stamps belong. Returns `None` for
    /// other servers than tyrant, and for servers without a log. Call it before
    /// [`ReplicaLink::subscribe`].
    pub fn identity(&mut self) -> Result<Option<String>> {
        self.query(IDENTITY)
    }

    /// Returns how a master that knows the roots of its log entries distinguishes keys. Call it
    /// before [`ReplicaLink::subscribe`].
    pub fn spread(&mut self) -> Result<Option<String>> {
        self.query(ROOTS)
    }

    /// Returns the kind of the master's database as its status has it, if the status may be read.
    /// Call it before [`ReplicaLink::subscribe`].
    pub fn kind(&mut self) -> Result<Option<String>> {
        self.probe()?;
        send(&mut self.stream, &Request::Stat)?;
        let mut status = [0];
        self.stream.read_exact(&mut status).map_err(Error::Receive)?;
        if status != [reply::OK] {
            return Ok(None);
        }
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).map_err(Error::Receive)?;
        let size = u32::from_be_bytes(size) as usize;
        if size > STATUS_BYTES_MAX {
            return Err(Error::InvalidOperation);
        }
        let mut lines = vec![0; size];
        self.stream.read_exact(&mut lines).map_err(Error::Receive)?;
        let lines = String::from_utf8_lossy(&lines);
        let kind = lines.lines().find_map(|line| line.strip_prefix("type\t"));
        Ok(kind.map(str::to_owned))
    }

    fn query(&mut self, argument: &[u8]) -> Result<Option<String>> {
        self.probe()?;
        if !self.is_extended {
            return Ok(None);
        }
        let mut strings = StringsBuffer::default();
        strings.push(argument).map_err(|_| Error::InvalidOperation)?;
        let arguments = strings.strings();
        send(
            &mut self.stream,
            &Request::Misc { function: Function::Replication, options: NOT_LOGGED, arguments },
        )?;
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).map_err(Error::Receive)?;
        if head[1..] == [0; 4] {
            return Ok(None);
        }
        let mut size = [0; 4];
        self.stream.read_exact(&mut size).map_err(Error::Receive)?;
        let size = u32::from_be_bytes(size) as usize;
        if head != [reply::OK, 0, 0, 0, 1] || size > LOG_IDENTITY_BYTES_MAX {
            return Err(Error::InvalidOperation);
        }
        let mut response = vec![0; size];
        self.stream.read_exact(&mut response).map_err(Error::Receive)?;
        String::from_utf8(response).map(Some).map_err(|_| Error::InvalidOperation)
    }

    fn probe(&mut self) -> Result<()> {
        if !self.is_probed {
            self.is_extended = is_extended(&mut self.stream)?;
            self.is_probed = true;
        }
        Ok(())
    }

    /// Becomes a replica, see [`UpdateStream::open`](crate::UpdateStream::open). Blocks until it is
    /// known whether the master is a tyrant server.
    pub fn subscribe(&mut self, request: SubscribeRequest) -> Result<()> {
        self.probe()?;
        let SubscribeRequest { timestamp_us, server_id, options, port } = request;
        let request = if self.is_extended {
            Request::Follow { timestamp_us, server_id, options, port: port.into() }
        } else {
            Request::Replicate { timestamp_us, server_id }
        };
        send(&mut self.stream, &request)
    }

    /// Returns whether the master is a tyrant server, which may send all of [`FromMaster`] and
    /// takes acknowledgements.
    pub fn is_extended(&self) -> bool {
        self.is_extended
    }

    /// Sets the longest wait for a message. It replaces [`Settings::read_timeout`].
    pub fn set_read_timeout(&self, timeout: Duration) -> Result<()> {
        self.stream.set_read_timeout(Some(timeout)).map_err(Error::Receive)
    }

    /// Returns the id of the server, which it sends first.
    pub fn server_id(&mut self) -> Result<u32> {
        read_server_id(&mut self.stream, &mut self.server_id)
    }

    /// Sends the update log's entries that this replica has executed, after a request with the
    /// option [`RESUME`](wire::replication::RESUME). Call it after [`ReplicaLink::server_id`].
    pub fn resume(&mut self, resume: &Resume) -> Result<()> {
        let mut bytes = Vec::new();
        resume.encode(&mut bytes).map_err(|_| Error::InvalidOperation)?;
        self.stream.write_all(&bytes).map_err(Error::Send)
    }

    /// Returns a handle that ends the wait of this link.
    pub fn interrupter(&self) -> Result<Interrupter> {
        self.stream.try_clone().map(Interrupter).map_err(Error::Receive)
    }

    /// Returns a handle that sends acknowledgements; `None` if the master takes none.
    pub fn acknowledger(&self) -> Result<Option<Acknowledger>> {
        if !self.is_extended {
            return Ok(None);
        }
        self.stream.try_clone().map(|stream| Some(Acknowledger(stream))).map_err(Error::Receive)
    }

    /// Blocks until the next message. Compressed messages are returned one by one, like others.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend what it gives out")]
    pub fn next(&mut self) -> Result<FromMaster<'_>> {
        self.wait()?;
        self.next_received()?.ok_or(Error::InvalidOperation)
    }

    /// Blocks until [`ReplicaLink::next_received`] returns a message.
    pub fn wait(&mut self) -> Result<()> {
        self.server_id()?;
        if !self.block.rest().is_empty() {
            return Ok(());
        }
        let is_extended = self.is_extended;
        self.frames.wait(&mut self.stream, |bytes| parse(bytes, is_extended).map(|_| ()))
    }

    /// Returns the next message, or `None` before it has been received.
    #[inline]
    pub fn next_received(&mut self) -> Result<Option<FromMaster<'_>>> {
        if self.block.rest().is_empty() {
            match self.frames.next(|bytes| parse(bytes, self.is_extended))? {
                Some(FromMaster::Block { bytes, compressed }) => {
                    let bytes = bytes.min(REPLICATION_BLOCK_BYTES_MAX);
                    let block = zstd::bulk::decompress(compressed, bytes);
                    self.block.set(block.map_err(Error::Receive)?);
                }
                message => {
                    if self.block.has_returned() {
                        self.block.set(Vec::new());
                    }
                    return Ok(message);
                }
            }
        }
        // A block has whole messages only.
        self.block.next(FromMaster::parse)?.ok_or(Error::InvalidOperation).map(Some)
    }

    /// Makes `next` return the last message again.
    pub fn put_back(&mut self) {
        if self.block.has_returned() {
            self.block.put_back();
        } else {
            self.frames.put_back();
        }
    }
}

/// Parses a message. Those that Tokyo Tyrant does not send are accepted from a tyrant server only.
#[inline]
fn parse(bytes: &[u8], is_extended: bool) -> Parse<FromMaster<'_>> {
    if is_extended { FromMaster::parse(bytes) } else { Message::parse(bytes).map(FromMaster::Log) }
}

/// Asks whether the server is a tyrant server.
fn is_extended(stream: &mut Stream) -> Result<bool> {
    let arguments = Strings::EMPTY;
    send(
        stream,
        &Request::Misc { function: Function::Replication, options: NOT_LOGGED, arguments },
    )?;
    let mut response = [0; 5];
    let has_tls = matches!(stream, Stream::Tls(_));
    let unanswered = |error| Error::Receive(unanswered(error, has_tls));
    stream.read_exact(&mut response).map_err(unanswered)?;
    if response != [reply::OK, 0, 0, 0, 1] {
        // Tokyo Tyrant has no such function, and a masked one returns no elements.
        return if response[1..] == [0; 4] { Ok(false) } else { Err(Error::InvalidOperation) };
    }
    let mut version = [0; 4 + VERSION.len()];
    stream.read_exact(&mut version).map_err(Error::Receive)?;
    let expected = [&(VERSION.len() as u32).to_be_bytes(), VERSION].concat();
    // Bytes after the version would be taken for the next message.
    if version[..] == expected[..] { Ok(true) } else { Err(Error::InvalidOperation) }
}

/// Adds to the error of a first request what its usual reason is.
fn unanswered(error: io::Error, has_tls: bool) -> io::Error {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            let tls = if has_tls { "" } else { "TLS, or " };
            let hint = format!(
                "the master closed the connection before its first reply; it may require {tls}a login \
                 as a user with the rights admin and read; its log may tell"
            );
            io::Error::new(error.kind(), hint)
        }
        _ => error,
    }
}

fn send(stream: &mut Stream, request: &Request<'_>) -> Result<()> {
    let mut bytes = Vec::new();
    encode(request, &mut bytes).map_err(|_| Error::InvalidOperation)?;
    stream.write_all(&bytes).map_err(Error::Send)
}
