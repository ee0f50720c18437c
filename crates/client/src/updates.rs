//! Update stream: the update log of a server, as its replicas receive it.

use std::io::Write;

use wire::Parse;
use wire::binary::{Request, encode};
use wire::update_log::Message;

use crate::connection::Stream;
use crate::frames::{Frames, read_server_id};
use crate::{Address, Error, Result, Settings};

/// A server's update log entries, as they are written.
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
    /// Id of the server, once it has been received.
    server_id: Option<u32>,
    frames: Frames,
}

/// Ends the wait of an [`UpdateStream`] from another thread.
pub struct Interrupter(pub(crate) Stream);

impl Interrupter {
    /// Ends the connection, so that reads from it fail.
    pub fn interrupt(&self) {
        self.0.shut_down();
    }
}

impl UpdateStream {
    /// Becomes a replica with the id `server_id` of the server at `address`, starting at
    /// `timestamp_us`, in microseconds since 1970, at least 1. A server sends no log entries back
    /// to the replica that they came from. A server that refuses this replica closes the
    /// connection, so that the next read returns [`Error::Receive`].
    ///
    /// The server sends a heartbeat about once per second. [`Settings::read_timeout`] is the
    /// longest wait for one.
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
        Ok(Self { stream, server_id: None, frames: Frames::default() })
    }

    /// Returns the id of the server, which it sends first.
    pub fn server_id(&mut self) -> Result<u32> {
        read_server_id(&mut self.stream, &mut self.server_id)
    }

    /// Returns a handle that ends the wait of this stream.
    pub fn interrupter(&self) -> Result<Interrupter> {
        self.stream.try_clone().map(Interrupter).map_err(Error::Receive)
    }

    /// Returns whether the next message has been received, so that `next` does not block.
    pub fn has_next(&self) -> bool {
        matches!(Message::parse(self.frames.rest()), Parse::Complete(..))
    }

    /// Blocks until the next message.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend what it gives out")]
    pub fn next(&mut self) -> Result<Message<'_>> {
        self.server_id()?;
        self.frames.wait(&mut self.stream, |bytes| Message::parse(bytes).map(|_| ()))?;
        self.frames.next(Message::parse)?.ok_or(Error::InvalidOperation)
    }
}
