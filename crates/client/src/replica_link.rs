//! A replica's connection to its master, which may be one of this project or the original.

use std::io::{Read, Write};
use std::time::Duration;

use wire::binary::{Request, Strings, StringsBuffer, encode, reply};
use wire::limits::{LOG_IDENTITY_BYTES_MAX, REPLICATION_BLOCK_BYTES_MAX};
use wire::replication::{Acknowledgement, FUNCTION, FromMaster, IDENTITY, ROOTS, Resume, VERSION};
use wire::update_log::Message;

use crate::connection::Stream;
use crate::frames::{Frames, parsed, read_server_id};
use crate::updates::Interrupter;
use crate::{Address, Error, Result, Settings};

/// Option of `misc` that keeps a call out of the update log.
const NOT_LOGGED: u32 = 1;

/// What a replica asks of its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Time stamp of the first entry that it lacks, in microseconds since 1970 and at least 1.
    pub timestamp_us: u64,
    /// Its id.
    pub server_id: u32,
    /// Those of [`wire::replication`], to which the original is deaf.
    pub options: u32,
    /// Port at which it can be reached, 0 if that is not known.
    pub port: u16,
}

/// The connection of a replica to its master: what [`UpdateStream`](crate::UpdateStream) brings,
/// and more if the master is one of this project.
pub struct ReplicaLink {
    stream: Stream,
    is_extended: bool,
    /// Whether that is known by now.
    is_probed: bool,
    /// Once it has come.
    server_id: Option<u32>,
    frames: Frames,
    /// Messages that came compressed, and how many bytes of them were given out.
    block: Vec<u8>,
    taken: usize,
    /// Where in it the message begins that was given out last, if it was one of those.
    given: Option<usize>,
}

/// Tells the master how far its replica has come, from any thread.
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
    /// Connects to the server at `address`; [`ReplicaLink::ask`] is next.
    pub fn open(address: &Address, settings: &Settings) -> Result<Self> {
        Ok(Self {
            stream: Stream::open(address, settings)?,
            is_extended: false,
            is_probed: false,
            server_id: None,
            frames: Frames::default(),
            block: Vec::new(),
            taken: 0,
            given: None,
        })
    }

    /// Asks for the identity of the update log of a master of this project, which time stamps
    /// belong to; `None` of any other, and where there is none. It is for before
    /// [`ReplicaLink::ask`].
    pub fn identity(&mut self) -> Result<Option<String>> {
        self.ask_for(IDENTITY)
    }

    /// Asks how a master that knows the roots of its entries tells keys apart. It is for before
    /// [`ReplicaLink::ask`].
    pub fn spread(&mut self) -> Result<Option<String>> {
        self.ask_for(ROOTS)
    }

    fn ask_for(&mut self, what: &[u8]) -> Result<Option<String>> {
        self.probe()?;
        if !self.is_extended {
            return Ok(None);
        }
        let mut strings = StringsBuffer::default();
        strings.push(what).map_err(|_| Error::InvalidOperation)?;
        let arguments = strings.strings();
        send(&mut self.stream, &Request::Misc { name: FUNCTION, options: NOT_LOGGED, arguments })?;
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
        let mut answer = vec![0; size];
        self.stream.read_exact(&mut answer).map_err(Error::Receive)?;
        String::from_utf8(answer).map(Some).map_err(|_| Error::InvalidOperation)
    }

    fn probe(&mut self) -> Result<()> {
        if !self.is_probed {
            self.is_extended = is_extended(&mut self.stream)?;
            self.is_probed = true;
        }
        Ok(())
    }

    /// Becomes a replica, see [`UpdateStream::open`](crate::UpdateStream::open). Waits until it is
    /// known whether the server is one of this project.
    pub fn ask(&mut self, ask: Ask) -> Result<()> {
        self.probe()?;
        let Ask { timestamp_us, server_id, options, port } = ask;
        let request = if self.is_extended {
            Request::Follow { timestamp_us, server_id, options, port: port.into() }
        } else {
            Request::Replicate { timestamp_us, server_id }
        };
        send(&mut self.stream, &request)
    }

    /// Whether the master is one of this project, which knows all of
    /// [`FromMaster`] and takes acknowledgements.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        self.is_extended
    }

    /// Sets the longest wait for a message, which was [`Settings::read_timeout`] before.
    pub fn set_read_timeout(&self, timeout: Duration) -> Result<()> {
        self.stream.set_read_timeout(timeout).map_err(Error::Receive)
    }

    /// The id of the server, which is the first thing that it says.
    pub fn server_id(&mut self) -> Result<u32> {
        read_server_id(&mut self.stream, &mut self.server_id)
    }

    /// Says what was executed, after it was asked with the option
    /// [`RESUME`](wire::replication::RESUME). It is for after [`ReplicaLink::server_id`].
    pub fn resume(&mut self, resume: &Resume) -> Result<()> {
        let mut bytes = Vec::new();
        resume.encode(&mut bytes).map_err(|_| Error::InvalidOperation)?;
        self.stream.write_all(&bytes).map_err(Error::Send)
    }

    /// Something to end its wait with.
    pub fn interrupter(&self) -> Result<Interrupter> {
        self.stream.try_clone().map(Interrupter).map_err(Error::Receive)
    }

    /// Something to tell the master with; `None` if it does not listen.
    pub fn acknowledger(&self) -> Result<Option<Acknowledger>> {
        if !self.is_extended {
            return Ok(None);
        }
        self.stream.try_clone().map(|stream| Some(Acknowledger(stream))).map_err(Error::Receive)
    }

    /// Waits for the next message. Compressed ones come one by one, as if they were not.
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
            self.given = None;
            // Once more, as the borrow checker does not see that the block is untouched.
            return parsed(FromMaster::parse(self.frames.given()));
        }
        let rest = &self.block[self.taken..];
        let message = FromMaster::parse(rest);
        let wire::Parse::Complete(message, length) = message else {
            return parsed(message);
        };
        self.given = Some(self.taken);
        self.taken += length;
        Ok(message)
    }

    /// Has the message come again that was given out last.
    pub fn put_back(&mut self) {
        match self.given {
            Some(given) => self.taken = given,
            None => self.frames.put_back(),
        }
    }

    /// Whether the next message is there, so that it need not be waited for.
    #[must_use]
    pub fn has_next(&self) -> bool {
        let parsed = FromMaster::parse(self.frames.rest());
        self.taken < self.block.len() || matches!(parsed, wire::Parse::Complete(..))
    }
}

/// Asks whether the server at the other end is one of this project.
fn is_extended(stream: &mut Stream) -> Result<bool> {
    let arguments = Strings::EMPTY;
    send(stream, &Request::Misc { name: FUNCTION, options: NOT_LOGGED, arguments })?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).map_err(Error::Receive)?;
    if answer != [reply::OK, 0, 0, 0, 1] {
        // The original has no such function, and one that is masked answers nothing.
        return if answer[1..] == [0; 4] { Ok(false) } else { Err(Error::InvalidOperation) };
    }
    let mut version = [0; 4 + VERSION.len()];
    stream.read_exact(&mut version).map_err(Error::Receive)?;
    let expected = [&(VERSION.len() as u32).to_be_bytes(), VERSION].concat();
    // What comes behind it would be in the way.
    if version[..] == expected[..] { Ok(true) } else { Err(Error::InvalidOperation) }
}

fn send(stream: &mut Stream, request: &Request<'_>) -> Result<()> {
    let mut bytes = Vec::new();
    encode(request, &mut bytes).map_err(|_| Error::InvalidOperation)?;
    stream.write_all(&bytes).map_err(Error::Send)
}
