//! Frames between a process and the server of a shared database: their lengths, limits and bytes.
//!
//! A frame is the length of its body (u32, little-endian) and the body. A process sends one, and
//! waits for one. The first of each side begins with [`VERSION`] and a byte 0, so that another
//! version is noticed before anything else is read. The rest of all bodies is `postcard`'s encoding
//! of an [`Operation`](crate::operation::Operation), or of its outcome.

use crate::errors::Fault;
use cabinet::limits::BATCH_BYTES_MAX;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Deref;
use std::os::unix::net::UnixStream;

/// Version of the package and of the protocol. Both sides have the same.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-1");

/// Maximum bytes of a body: the longest batch, with the lengths of its parts.
pub(crate) const BODY_BYTES_MAX: usize = BATCH_BYTES_MAX + (256 << 20);

/// Maximum bytes of the first body that a process sends.
pub(crate) const HELLO_BYTES_MAX: usize = 64 << 10;

/// Maximum number of connections of a server.
pub(crate) const CONNECTIONS_MAX: usize = 1000;

/// Bytes that are read at a time. More memory is taken only for bytes that have come.
const READ_BYTES: usize = 8 << 10;
const READ_BYTES_MAX: usize = 1 << 20;

/// Buffers of more bytes are given back after a frame.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// Bytes of a frame before its body.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Bytes of the caller's, or owned ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bytes<'a>(pub(crate) Cow<'a, [u8]>);

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<'a> From<&'a [u8]> for Bytes<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self(Cow::Borrowed(bytes))
    }
}

impl From<Vec<u8>> for Bytes<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Cow::Owned(bytes))
    }
}

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Bytes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'a [u8]>::deserialize(deserializer).map(Self::from)
    }
}

/// A frame that is received or sent, in memory that is used again.
#[derive(Default)]
pub(crate) struct Frame {
    bytes: Vec<u8>,
    end: usize,
}

impl Frame {
    /// Replaces the frame by one with a body of `prefix` and a value. Fails if it is too long.
    pub(crate) fn write<T: Serialize>(&mut self, prefix: &[u8], value: &T) -> Result<(), Fault> {
        let mut bytes = std::mem::take(self).bytes;
        bytes.clear();
        bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        bytes.extend_from_slice(prefix);
        let mut bytes = postcard::to_extend(value, bytes).map_err(|error| Fault::wire(&error))?;
        let length = bytes.len() - LENGTH_BYTES;
        if length > BODY_BYTES_MAX {
            return Err(Fault::too_long(length));
        }
        bytes[..LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
        *self = Self { end: bytes.len(), bytes };
        Ok(())
    }

    /// Returns the body.
    pub(crate) fn body(&self) -> &[u8] {
        self.bytes[..self.end].get(LENGTH_BYTES..).unwrap_or_default()
    }

    /// Gives back the memory of a long frame that was sent or read.
    pub(crate) fn shrink(&mut self) {
        if self.bytes.capacity() > BUFFER_BYTES_KEPT {
            *self = Self::default();
        }
    }

    /// Sends the frame. Calls `go_on` after a signal, and fails if it returns false.
    pub(crate) fn send(
        &self,
        mut stream: &UnixStream,
        go_on: &mut dyn FnMut() -> bool,
    ) -> io::Result<()> {
        let mut rest = &self.bytes[..self.end];
        while !rest.is_empty() {
            match stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => rest = &rest[bytes..],
                Err(error) if error.kind() == ErrorKind::Interrupted && go_on() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives a frame, with a body of at most `bytes_max`. Calls `go_on` after a signal, and
    /// fails if it returns false.
    pub(crate) fn receive(
        &mut self,
        mut stream: &UnixStream,
        bytes_max: usize,
        go_on: &mut dyn FnMut() -> bool,
    ) -> io::Result<()> {
        self.end = 0;
        self.shrink();
        let (mut end, mut frame_bytes) = (0, READ_BYTES);
        loop {
            let room = frame_bytes.clamp(READ_BYTES, end + READ_BYTES_MAX);
            if self.bytes.len() < room {
                self.bytes.resize(room, 0);
            }
            match stream.read(&mut self.bytes[end..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => end += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted && go_on() => {}
                Err(error) => return Err(error),
            }
            let Some((length, _)) = self.bytes[..end].split_first_chunk() else { continue };
            let body_bytes = u32::from_le_bytes(*length) as usize;
            frame_bytes = LENGTH_BYTES + body_bytes;
            if body_bytes > bytes_max || end > frame_bytes {
                return Err(ErrorKind::InvalidData.into());
            }
            if end == frame_bytes {
                self.end = end;
                return Ok(());
            }
        }
    }
}

/// Reads the value of a body. Fails on bytes that no process of this version sends.
pub(crate) fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Fault> {
    postcard::from_bytes(body).map_err(|error| Fault::wire(&error))
}
