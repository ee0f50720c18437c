//! Pipeline: sends many requests in few round trips.

use std::io;

use parking_lot::MutexGuard;
use wire::binary::{Request, encode};

use crate::connection::Connection;
use crate::limits::PIPELINE_CHUNK_BYTES_MAX;
use crate::{Error, Result};

/// The response to one request of a [`Pipeline`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Whether a put, put_keep, put_cat or out succeeded.
    Done(bool),
    /// The value of a get, or the key of an iter_next.
    Value(Option<Vec<u8>>),
    /// The sum of an add_int; `None` if the record is not an integer.
    Sum(Option<i32>),
}

/// Requests that are sent together and answered together.
///
/// They are sent in chunks, and the responses to one chunk are read before the next one is sent.
/// Without chunks, client and server could block each other for ever, each waiting for the other to
/// read.
#[must_use = "nothing is sent before `run`"]
pub struct Pipeline<'c> {
    connection: MutexGuard<'c, Connection>,
    bytes: Vec<u8>,
    /// End of each request, and its kind of response.
    requests: Vec<(usize, ReplyKind)>,
}

#[derive(Clone, Copy)]
enum ReplyKind {
    None,
    Done,
    Value,
    Sum,
}

impl<'c> Pipeline<'c> {
    pub(crate) fn new(connection: MutexGuard<'c, Connection>) -> Self {
        Self { connection, bytes: Vec::new(), requests: Vec::new() }
    }

    fn push(&mut self, request: &Request<'_>, kind: ReplyKind) -> Result<&mut Self> {
        encode(request, &mut self.bytes).map_err(|_| Error::InvalidOperation)?;
        self.requests.push((self.bytes.len(), kind));
        Ok(self)
    }

    /// Stores a record.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<&mut Self> {
        self.push(&Request::Put { key, value }, ReplyKind::Done)
    }

    /// Stores a record if the key is new.
    pub fn put_keep(&mut self, key: &[u8], value: &[u8]) -> Result<&mut Self> {
        self.push(&Request::PutKeep { key, value }, ReplyKind::Done)
    }

    /// Appends to a record.
    pub fn put_cat(&mut self, key: &[u8], value: &[u8]) -> Result<&mut Self> {
        self.push(&Request::PutCat { key, value }, ReplyKind::Done)
    }

    /// Stores a record. It has no [`Reply`].
    pub fn put_no_reply(&mut self, key: &[u8], value: &[u8]) -> Result<&mut Self> {
        self.push(&Request::PutNoReply { key, value }, ReplyKind::None)
    }

    /// Removes a record.
    pub fn out(&mut self, key: &[u8]) -> Result<&mut Self> {
        self.push(&Request::Out { key }, ReplyKind::Done)
    }

    /// Gets a value.
    pub fn get(&mut self, key: &[u8]) -> Result<&mut Self> {
        self.push(&Request::Get { key }, ReplyKind::Value)
    }

    /// Returns the iterator's next key.
    pub fn iter_next(&mut self) -> Result<&mut Self> {
        self.push(&Request::IterNext, ReplyKind::Value)
    }

    /// Adds to an integer.
    pub fn add_int(&mut self, key: &[u8], addend: i32) -> Result<&mut Self> {
        self.push(&Request::AddInt { key, addend }, ReplyKind::Sum)
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Sends the requests and returns their replies in order. If it fails, some requests may have
    /// been executed.
    pub fn run(mut self) -> Result<Vec<Reply>> {
        let mut replies = Vec::with_capacity(self.requests.len());
        self.connection.begin_exchange();
        self.exchange(|kind, connection| {
            replies.extend(kind.read(connection)?);
            Ok(())
        })?;
        Ok(replies)
    }

    /// Like [`run`](Self::run), but calls `each` with every reply as it arrives. So only one reply
    /// is in memory, and each may be as large as the [`Settings`](crate::Settings) allow. An error
    /// of `each` breaks the connection, because the other replies remain unread.
    pub fn run_each<E: From<Error>>(
        mut self,
        mut each: impl FnMut(Reply) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut failed = None;
        let exchanged = self.exchange(|kind, connection| {
            connection.begin_exchange();
            let reply = kind.read(connection)?;
            if let Some(Err(error)) = reply.map(&mut each) {
                failed = Some(error);
                return Err(io::ErrorKind::Other.into());
            }
            Ok(())
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(exchanged?),
        }
    }

    fn exchange(
        &mut self,
        mut read: impl FnMut(ReplyKind, &mut Connection) -> io::Result<()>,
    ) -> Result<()> {
        let mut start = 0;
        let mut rest = &self.requests[..];
        while let Some((first_end, _)) = rest.first() {
            // A request longer than a chunk is sent alone: the server responds only once it has
            // read all of it.
            let limit = (start + PIPELINE_CHUNK_BYTES_MAX).max(*first_end);
            let count = rest.partition_point(|(end, _)| *end <= limit);
            let (chunk, after) = rest.split_at(count);
            let end = chunk.last().map_or(start, |(end, _)| *end);
            self.connection.exchange(&self.bytes[start..end], |connection| {
                chunk.iter().try_for_each(|(_, kind)| read(*kind, connection))
            })?;
            (start, rest) = (end, after);
        }
        Ok(())
    }
}

impl ReplyKind {
    fn read(self, connection: &mut Connection) -> io::Result<Option<Reply>> {
        Ok(match self {
            ReplyKind::None => None,
            ReplyKind::Done => Some(Reply::Done(connection.read_status()?)),
            ReplyKind::Value => Some(Reply::Value(connection.read_if_ok(Connection::read_string)?)),
            ReplyKind::Sum => Some(Reply::Sum(connection.read_if_ok(Connection::read_i32)?)),
        })
    }
}
