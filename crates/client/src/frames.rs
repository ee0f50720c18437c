//! Messages one after the other, out of a stream of bytes.

use std::io::{self, ErrorKind, Read};

use wire::{Invalid, Parse};

use crate::connection::Stream;
use crate::{Error, Result};

/// Bytes read at once, unless a message is longer.
const CHUNK_BYTES: usize = 64 << 10;

/// What was read of a stream, and how much of it was given out.
#[derive(Default)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    taken: usize,
    /// Where the message begins that was given out last.
    given: usize,
}

impl Frames {
    /// What was read and not given out.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    /// The message that was given out last.
    pub(crate) fn given(&self) -> &[u8] {
        &self.buffer[self.given..self.taken]
    }

    /// Has it come again.
    pub(crate) fn put_back(&mut self) {
        self.taken = self.given;
    }

    /// The bytes of the next message, which `parse` recognises; waits for them.
    pub(crate) fn next(
        &mut self,
        stream: &mut Stream,
        parse: impl Fn(&[u8]) -> Parse<()>,
    ) -> Result<&[u8]> {
        loop {
            match parse(self.rest()) {
                Parse::Complete((), length) => {
                    self.given = self.taken;
                    self.taken += length;
                    return Ok(self.given());
                }
                Parse::Incomplete(needed) => self.fill(stream, needed).map_err(Error::Receive)?,
                Parse::Invalid(invalid) => return Err(refusal(invalid)),
            }
        }
    }

    /// Reads once, at least a byte.
    fn fill(&mut self, stream: &mut Stream, needed: usize) -> io::Result<()> {
        self.buffer.drain(..self.taken);
        (self.given, self.taken) = (0, 0);
        let have = self.buffer.len();
        // Grows by what comes, whatever a message announces.
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

/// A message of which it is known that it is whole.
pub(crate) fn parsed<T>(parse: Parse<T>) -> Result<T> {
    match parse {
        Parse::Complete(message, _) => Ok(message),
        Parse::Incomplete(_) => Err(Error::InvalidOperation),
        Parse::Invalid(invalid) => Err(refusal(invalid)),
    }
}

pub(crate) fn refusal(invalid: Invalid) -> Error {
    let what = match invalid {
        Invalid::TooLarge => "an update over the limit",
        Invalid::UnknownCommand | Invalid::BadParameters => "no update",
    };
    Error::Receive(io::Error::new(ErrorKind::InvalidData, what))
}

/// The id of a master, which is the first thing that it says; `known` once it has come.
pub(crate) fn read_server_id(stream: &mut Stream, known: &mut Option<u32>) -> Result<u32> {
    if let Some(server_id) = *known {
        return Ok(server_id);
    }
    let mut server_id = [0; 4];
    stream.read_exact(&mut server_id).map_err(Error::Receive)?;
    Ok(*known.insert(u32::from_be_bytes(server_id)))
}
