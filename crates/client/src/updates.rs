//! The update log of a server, as its replicas receive it.

use std::io::{self, ErrorKind, Read, Write};

use wire::binary::{Request, encode};
use wire::update_log::Message;
use wire::{Invalid, Parse};

use crate::connection::Stream;
use crate::{Address, Error, Result, Settings};

/// Bytes read at once, unless a message is longer.
const CHUNK_BYTES: usize = 64 << 10;

/// The entries of a server's update log, as they are written.
///
/// ```no_run
/// use client::{Settings, UpdateStream};
/// use wire::update_log::Message;
///
/// let server = "127.0.0.1:1978".parse()?;
/// let mut updates = UpdateStream::open(&server, &Settings::default(), 1, 99)?;
/// while let Message::Update { timestamp_us, body, .. } = updates.next()? {
///     println!("{timestamp_us}: {} bytes", body.len());
/// }
/// # Ok::<(), client::Error>(())
/// ```
pub struct UpdateStream {
    stream: Stream,
    /// Once it has come.
    server_id: Option<u32>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were given out.
    taken: usize,
}

/// Ends the wait of an [`UpdateStream`] from another thread.
pub struct Interrupter(Stream);

impl Interrupter {
    /// Ends the connection: whoever reads from it fails.
    pub fn interrupt(&self) {
        self.0.shut_down();
    }
}

impl UpdateStream {
    /// Becomes a replica with the id `server_id` of the server at `address`, from the entries with
    /// `timestamp_us` on, in microseconds since 1970 and at least 1. A server sends no entries back
    /// to where they came from. One that does not want this replica closes the connection, which is
    /// [`Error::Receive`] of what comes next.
    ///
    /// The server says about once a second that it is there; [`Settings::read_timeout`] is the
    /// longest wait for that.
    pub fn open(
        address: &Address,
        settings: &Settings,
        timestamp_us: u64,
        server_id: u32,
    ) -> Result<Self> {
        let mut stream = Stream::open(address, settings)?;
        let mut request = Vec::new();
        encode(&Request::Replicate { timestamp_us, server_id }, &mut request)
            .map_err(|_| Error::InvalidOperation)?;
        stream.write_all(&request).map_err(Error::Send)?;
        Ok(Self { stream, server_id: None, buffer: Vec::new(), taken: 0 })
    }

    /// The id of the server, which is the first thing that it says.
    pub fn server_id(&mut self) -> Result<u32> {
        if let Some(server_id) = self.server_id {
            return Ok(server_id);
        }
        let mut server_id = [0; 4];
        self.stream.read_exact(&mut server_id).map_err(Error::Receive)?;
        Ok(*self.server_id.insert(u32::from_be_bytes(server_id)))
    }

    /// Something to end its wait with.
    pub fn interrupter(&self) -> Result<Interrupter> {
        self.stream.try_clone().map(Interrupter).map_err(Error::Receive)
    }

    /// Whether the next message is there, so that it need not be waited for.
    #[must_use]
    pub fn has_next(&self) -> bool {
        matches!(Message::parse(&self.buffer[self.taken..]), Parse::Complete(..))
    }

    /// Waits for the next message.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend what it gives out")]
    pub fn next(&mut self) -> Result<Message<'_>> {
        self.server_id()?;
        loop {
            match Message::parse(&self.buffer[self.taken..]) {
                Parse::Complete(_, length) => {
                    let start = self.taken;
                    self.taken += length;
                    return match Message::parse(&self.buffer[start..]) {
                        Parse::Complete(message, _) => Ok(message),
                        // It was whole a moment ago.
                        _ => Err(Error::InvalidOperation),
                    };
                }
                Parse::Incomplete(needed) => self.fill(needed).map_err(Error::Receive)?,
                Parse::Invalid(invalid) => {
                    let what = match invalid {
                        Invalid::TooLarge => "an update over the limit",
                        Invalid::UnknownCommand | Invalid::BadParameters => "no update",
                    };
                    return Err(Error::Receive(io::Error::new(ErrorKind::InvalidData, what)));
                }
            }
        }
    }

    /// Reads once, at least a byte.
    fn fill(&mut self, needed: usize) -> io::Result<()> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let have = self.buffer.len();
        // Grows by what comes, whatever a message announces.
        let room = needed.saturating_sub(have).clamp(CHUNK_BYTES, 16 * CHUNK_BYTES);
        self.buffer.resize(have + room, 0);
        let read = self.stream.read(&mut self.buffer[have..]);
        self.buffer.truncate(have + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
            Err(error) => Err(error),
        }
    }
}
