//! A body that is taken piece by piece, as it comes.

use super::body::{BodyLength, Stop, chunk_line, trailer};
use crate::{Invalid, Parse};

/// Rest of a body that is still to come. It is small and copied freely: a piece can be looked at
/// before it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestOfBody(State);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many bytes.
    Bytes(usize),
    /// The line of a chunk.
    ChunkLine,
    /// So many bytes of a chunk, and then the end of its line.
    Chunk(usize),
    /// The lines behind the last chunk.
    Trailer,
    Nothing,
}

impl RestOfBody {
    /// A whole body.
    #[must_use]
    pub fn of(length: BodyLength) -> Self {
        Self(match length {
            BodyLength::Bytes(0) => State::Nothing,
            BodyLength::Bytes(bytes) => State::Bytes(bytes),
            BodyLength::Chunked => State::ChunkLine,
        })
    }

    /// Whether nothing is to come.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.0 == State::Nothing
    }

    /// Takes what stands at the beginning of `bytes`: data, or what is around them, which is
    /// answered as no data. The length in `Complete` is that of all that was taken.
    pub fn take<'a>(&mut self, bytes: &'a [u8]) -> Parse<&'a [u8]> {
        match self.next(bytes) {
            Ok((data, length)) => Parse::Complete(data, length),
            Err(stop) => stop.into(),
        }
    }

    /// How much of `bytes` can be taken now, piece by piece.
    #[must_use]
    pub fn bytes_in(mut self, bytes: &[u8]) -> usize {
        let mut length = 0;
        while !self.is_nothing()
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
