//! Replica link: the connection of a replica to a master, which may be tyrant or Tokyo Tyrant.

use std::io::{Read, Write};
use std::time::Duration;

use wire::binary::{Function, Request, Strings, StringsBuffer, encode, reply};
use wire::limits::{LOG_IDENTITY_BYTES_MAX, REPLICATION_BLOCK_BYTES_MAX};
use wire::replication::{Acknowledgement, FromMaster, IDENTITY, ROOTS, Resume, VERSION};
use wire::update_log::Message;

use crate::connection::Stream;
use crate::frames::{Frames, parsed, read_server_id};
use crate::updates::Interrupter;
use crate::{Address, Error, Result, Settings};

/// Option of `misc` that keeps a call out of the update log.
const NOT_LOGGED: u32 = 1;

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
    /// Decompressed messages, and how many of their bytes have been returned.
    block: Vec<u8>,
    taken: usize,
    /// Start in `block` of the message returned last, if it came from there.
    last_start: Option<usize>,
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
            block: Vec::new(),
            taken: 0,
            last_start: None,
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
    #[must_use]
    pub fn is_extended(&self) -> bool {
        self.is_extended
    }

    /// Sets the longest wait for a message. It replaces [`Settings::read_timeout`].
    pub fn set_read_timeout(&self, timeout: Duration) -> Result<()> {
        self.stream.set_read_timeout(timeout).map_err(Error::Receive)
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
        self.server_id()?;
        let is_extended = self.is_extended;
        while self.taken == self.block.len() {
            let bytes = self.frames.next(&mut self.stream, |bytes| {
                if is_extended {
                    FromMaster::parse(bytes).map(|_| ())
                } else {
                    Message::parse(bytes).map(|_| ())
                }
            })?;
            if let FromMaster::Block { bytes, compressed } = parsed(FromMaster::parse(bytes))? {
                let bytes = bytes.min(REPLICATION_BLOCK_BYTES_MAX);
                self.block = zstd::bulk::decompress(compressed, bytes).map_err(Error::Receive)?;
                self.taken = 0;
                continue;
            }
            self.last_start = None;
            // Parsed again, because the borrow checker does not see that the block is unchanged.
            return parsed(FromMaster::parse(self.frames.last()));
        }
        let rest = &self.block[self.taken..];
        let message = FromMaster::parse(rest);
        let wire::Parse::Complete(message, length) = message else {
            return parsed(message);
        };
        self.last_start = Some(self.taken);
        self.taken += length;
        Ok(message)
    }

    /// Makes `next` return the last message again.
    pub fn put_back(&mut self) {
        match self.last_start {
            Some(start) => self.taken = start,
            None => self.frames.put_back(),
        }
    }

    /// Returns whether the next message has been received, so that `next` does not block.
    #[must_use]
    pub fn has_next(&self) -> bool {
        let parsed = FromMaster::parse(self.frames.rest());
        self.taken < self.block.len() || matches!(parsed, wire::Parse::Complete(..))
    }
}

/// Asks whether the server is a tyrant server.
fn is_extended(stream: &mut Stream) -> Result<bool> {
    let arguments = Strings::EMPTY;
    send(
        stream,
        &Request::Misc { function: Function::Replication, options: NOT_LOGGED, arguments },
    )?;
    let mut response = [0; 5];
    stream.read_exact(&mut response).map_err(Error::Receive)?;
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

fn send(stream: &mut Stream, request: &Request<'_>) -> Result<()> {
    let mut bytes = Vec::new();
    encode(request, &mut bytes).map_err(|_| Error::InvalidOperation)?;
    stream.write_all(&bytes).map_err(Error::Send)
}
