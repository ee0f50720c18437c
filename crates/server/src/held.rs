//! Replies that are held back until what they acknowledge is safe.

use cabinet::LogPosition;
use std::time::Instant;
use wire::binary::{MAGIC, reply};
use wire::{Protocol, memcached_binary};

/// What a reply waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Awaited {
    /// The database must be durable up to here; 0 where clients do not wait for that.
    pub(crate) durable: LogPosition,
    /// Replicas must have everything up to this time stamp; 0 where clients do not wait for that.
    pub(crate) confirmed_us: u64,
}

/// A connection whose replies are held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) awaited: Awaited,
    /// Since when.
    pub(crate) since: Instant,
    pub(crate) unconfirmed: Unconfirmed,
}

/// The first reply of those held that acknowledges something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unconfirmed {
    /// Where it begins, in bytes.
    pub(crate) at: usize,
    /// What takes its place, and that of all behind it, if it is not confirmed.
    pub(crate) refusal: Refusal,
}

/// What a client is told whose request was carried out here, but is not confirmed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    Text(&'static [u8]),
    Memcached(memcached_binary::Echo),
}

/// What it is told where there are words for it.
const UNCONFIRMED: &str = "not confirmed by replicas";

/// The command byte of `misc`, whose failure is longer than others.
const MISC: u8 = 0x90;

/// That of `putnr`, which is never answered.
const PUT_NO_REPLY: u8 = 0x18;

impl Refusal {
    /// Of a request that begins with these bytes.
    pub(crate) fn of(request: &[u8]) -> Self {
        let text: &[u8] = match wire::sniff(request) {
            Some(Protocol::Binary) => match request {
                [MAGIC, MISC, ..] => &[reply::FAILURE, 0, 0, 0, 0],
                // Its client would take a byte for the answer to what comes behind it.
                [MAGIC, PUT_NO_REPLY, ..] => b"",
                _ => &[reply::FAILURE],
            },
            Some(Protocol::MemcachedBinary) => match memcached_binary::Echo::of(request) {
                Some(echo) => return Self::Memcached(echo),
                None => b"",
            },
            Some(Protocol::Http) => return Self::http(),
            Some(Protocol::Memcached) | None => b"SERVER_ERROR not confirmed by replicas\r\n",
        };
        Self::Text(text)
    }

    /// Of a request of HTTP of which the beginning was taken before.
    pub(crate) fn http() -> Self {
        Self::Text(
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\
              Content-Length: 26\r\nConnection: close\r\n\r\nnot confirmed by replicas\n",
        )
    }

    /// Appends it to a reply.
    pub(crate) fn write(self, output: &mut Vec<u8>) {
        match self {
            Self::Text(text) => output.extend_from_slice(text),
            Self::Memcached(echo) => {
                let status = memcached_binary::Status::InternalError;
                memcached_binary::reply::failure_with(output, echo, status, UNCONFIRMED);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::binary::{Request, encode};

    #[test]
    fn a_client_is_refused_in_the_words_of_its_request() {
        let refusal = |request: Request<'_>| {
            let (mut bytes, mut output) = (Vec::new(), Vec::new());
            encode(&request, &mut bytes).expect("a request within the limits");
            Refusal::of(&bytes).write(&mut output);
            output
        };
        assert_eq!(refusal(Request::Put { key: b"k", value: b"v" }), b"\x01");
        assert_eq!(refusal(Request::PutNoReply { key: b"k", value: b"v" }), b"");
        let arguments = wire::binary::Strings::EMPTY;
        let misc = Request::Misc { name: b"put", options: 0, arguments };
        assert_eq!(refusal(misc), b"\x01\0\0\0\0");
    }
}
