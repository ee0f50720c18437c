//! Frames: splits a stream of bytes into messages.

use std::io::{self, ErrorKind, Read};

use wire::{Invalid, Parse};

use crate::connection::Stream;
use crate::{Error, Result};

/// Bytes per read, unless a message is longer.
const CHUNK_BYTES: usize = 128 << 10;

/// Received bytes, and how many of them have been returned.
#[derive(Default)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    taken: usize,
    /// Start of the message returned last.
    last_start: usize,
}

impl Frames {
    /// Returns the received bytes after the message returned last.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    /// Returns whether a message of the present bytes has been returned.
    pub(crate) fn has_returned(&self) -> bool {
        self.taken > 0
    }

    /// Replaces the bytes.
    pub(crate) fn set(&mut self, bytes: Vec<u8>) {
        *self = Self { buffer: bytes, ..Self::default() };
    }

    /// Makes `next` return the last message again.
    pub(crate) fn put_back(&mut self) {
        self.taken = self.last_start;
    }

    /// Returns the next message, as `parse` finds it, or `None` before it has been received.
    #[inline]
    pub(crate) fn next<'s, T>(
        &'s mut self,
        parse: impl FnOnce(&'s [u8]) -> Parse<T>,
    ) -> Result<Option<T>> {
        match parse(&self.buffer[self.taken..]) {
            Parse::Complete(message, length) => {
                self.last_start = self.taken;
                self.taken += length;
                Ok(Some(message))
            }
            Parse::Incomplete(_) => Ok(None),
            Parse::Invalid(invalid) => Err(refusal(invalid)),
        }
    }

    /// Blocks until `next` returns a message.
    pub(crate) fn wait(
        &mut self,
        stream: &mut Stream,
        parse: impl Fn(&[u8]) -> Parse<()>,
    ) -> Result<()> {
        loop {
            match parse(self.rest()) {
                Parse::Complete(..) => return Ok(()),
                Parse::Incomplete(needed) => self.fill(stream, needed).map_err(Error::Receive)?,
                Parse::Invalid(invalid) => return Err(refusal(invalid)),
            }
        }
    }

    /// Blocks until so many bytes after the message returned last have been received, and drops
    /// them.
    pub(crate) fn skip(&mut self, stream: &mut Stream, mut bytes: usize) -> Result<()> {
        loop {
            let dropped = bytes.min(self.rest().len());
            self.taken += dropped;
            bytes -= dropped;
            if bytes == 0 {
                return Ok(());
            }
            self.fill(stream, bytes.min(CHUNK_BYTES)).map_err(Error::Receive)?;
        }
    }

    /// Reads once, at least one byte.
    fn fill(&mut self, stream: &mut Stream, needed: usize) -> io::Result<()> {
        self.buffer.drain(..self.taken);
        (self.last_start, self.taken) = (0, 0);
        let have = self.buffer.len();
        // Grows with the bytes received, whatever length a message announces.
        let room = needed.saturating_sub(have).clamp(CHUNK_BYTES, 16 * CHUNK_BYTES);
        self.buffer.resize(have + room, 0);
        let read = stream.read(&mut self.buffer[have..]);
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

fn refusal(invalid: Invalid) -> Error {
    let what = match invalid {
        Invalid::TooLarge => "the message is over the limit",
        Invalid::UnknownCommand | Invalid::BadParameters => "the message is not of this protocol",
    };
    Error::Receive(io::Error::new(ErrorKind::InvalidData, what))
}

/// Reads the id of a master, the first bytes that it sends, unless it is `known` already.
pub(crate) fn read_server_id(stream: &mut Stream, known: &mut Option<u32>) -> Result<u32> {
    if let Some(server_id) = *known {
        return Ok(server_id);
    }
    let mut server_id = [0; 4];
    stream.read_exact(&mut server_id).map_err(Error::Receive)?;
    Ok(*known.insert(u32::from_be_bytes(server_id)))
}
