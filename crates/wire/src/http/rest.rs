//! Rest of a body: parses a body piece by piece as it arrives.

use super::body::{BodyLength, chunk_line, trailer};
use crate::{Invalid, Parse, Stop};

/// Rest of a body that has not been parsed. It is cheap to copy, so that a piece can be parsed
/// tentatively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestOfBody(State);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Number of bytes.
    Bytes(usize),
    /// Line of a chunk.
    ChunkLine,
    /// Number of bytes of a chunk, before the end of its line.
    Chunk(usize),
    /// Lines after the last chunk.
    Trailer,
    Nothing,
}

impl RestOfBody {
    /// Makes the rest of a body of which no byte has been parsed.
    pub fn of(length: BodyLength) -> Self {
        Self(match length {
            BodyLength::Bytes(0) => State::Nothing,
            BodyLength::Bytes(bytes) => State::Bytes(bytes),
            BodyLength::Chunked => State::ChunkLine,
        })
    }

    /// Returns whether the body is complete.
    pub fn is_empty(&self) -> bool {
        self.0 == State::Nothing
    }

    /// Parses data or framing at the start of `bytes`. Framing is returned as no data. The length
    /// in `Complete` is that of everything parsed.
    pub fn take<'a>(&mut self, bytes: &'a [u8]) -> Parse<&'a [u8]> {
        match self.next(bytes) {
            Ok((data, length)) => Parse::Complete(data, length),
            Err(stop) => stop.into(),
        }
    }

    /// Returns how many of `bytes` can be parsed now, in bytes.
    #[must_use]
    pub fn bytes_in(mut self, bytes: &[u8]) -> usize {
        let mut length = 0;
        while !self.is_empty()
            && let Parse::Complete(_, taken) = self.take(&bytes[length..])
        {
            length += taken;
        }
        length
    }

    fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<(&'a [u8], usize), Stop> {
        match self.0 {
            State::Nothing => Ok((&[], 0)),
            _ if bytes.is_empty() => Err(Stop::Incomplete(1)),
            State::Bytes(left) => {
                let taken = left.min(bytes.len());
                let left = left - taken;
                self.0 = if left == 0 { State::Nothing } else { State::Bytes(left) };
                Ok((&bytes[..taken], taken))
            }
            State::ChunkLine => {
                let (size, length) = chunk_line(bytes, 0)?;
                self.0 = if size == 0 { State::Trailer } else { State::Chunk(size) };
                Ok((&[], length))
            }
            State::Chunk(0) => match bytes {
                [b'\r', b'\n', ..] => {
                    self.0 = State::ChunkLine;
                    Ok((&[], 2))
                }
                [b'\r'] => Err(Stop::Incomplete(2)),
                _ => Err(Stop::Invalid(Invalid::BadParameters)),
            },
            State::Chunk(left) => {
                let taken = left.min(bytes.len());
                self.0 = State::Chunk(left - taken);
                Ok((&bytes[..taken], taken))
            }
            State::Trailer => {
                let length = trailer(bytes, 0)?;
                self.0 = State::Nothing;
                Ok((&[], length))
            }
        }
    }
}
