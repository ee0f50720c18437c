//! Refusals: the replies to requests whose changes were made here but are not acknowledged.

use crate::ops::acknowledgement::RefusalReason;
use crate::protocol::Next;
use wire::binary::{MAGIC, reply};
use wire::{Protocol, http, memcached_binary};

impl RefusalReason {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Unconfirmed => "not confirmed by replicas",
            Self::LogFull => "no space left for the update log",
            Self::LogFailed => "the update log cannot be written",
            Self::Unavailable => "the store is unavailable: nothing was done",
            Self::Unknown => "the store has not answered: it is unknown what was done",
            Self::TooMany => "too many requests wait for the store: nothing was done",
        }
    }

    fn http_status(self) -> http::Status {
        match self {
            Self::LogFull => http::Status::InsufficientStorage,
            Self::Unknown => http::Status::GatewayTimeout,
            _ => http::Status::ServiceUnavailable,
        }
    }

    fn memcached_status(self) -> memcached_binary::Status {
        match self {
            Self::LogFull => memcached_binary::Status::OutOfMemory,
            _ => memcached_binary::Status::InternalError,
        }
    }
}

/// Error reply, in the protocol of a request, for a change that was made here but is not
/// acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// These bytes, which give no reason.
    Bytes(&'static [u8]),
    Memcached,
    MemcachedBinary(memcached_binary::Echo),
    Http,
}

/// Command byte of `misc`, whose error reply has 5 bytes.
const MISC: u8 = 0x90;

/// Command byte of `putnr`, which has no reply.
const PUT_NO_REPLY: u8 = 0x18;

impl Refusal {
    /// Returns the refusal of the request that begins with `request`.
    pub(crate) fn of(request: &[u8]) -> Self {
        match wire::sniff(request) {
            Some(Protocol::Binary) => Self::Bytes(match request {
                [MAGIC, MISC, ..] => &[reply::FAILURE, 0, 0, 0, 0],
                // The client would take a byte for the reply to the next request.
                [MAGIC, PUT_NO_REPLY, ..] => b"",
                _ => &[reply::FAILURE],
            }),
            Some(Protocol::MemcachedBinary) => match memcached_binary::Echo::of(request) {
                Some(echo) => Self::MemcachedBinary(echo),
                None => Self::Bytes(b""),
            },
            Some(Protocol::Http) => Self::Http,
            Some(Protocol::Redis) => Self::Bytes(b""),
            Some(Protocol::Memcached) | None => Self::Memcached,
        }
    }

    /// Appends the refusal of a request that has no answer. Tokyo Tyrant's failure would look like
    /// the absence of a record, so that its connection is closed instead.
    pub(super) fn write_or_close(self, reason: RefusalReason, output: &mut Vec<u8>) -> Next {
        match self {
            Self::Bytes(_) => Next::Close,
            Self::Http => {
                self.write(reason, output);
                Next::Close
            }
            Self::Memcached | Self::MemcachedBinary(_) => {
                self.write(reason, output);
                Next::GoOn
            }
        }
    }

    /// Appends the refusal to `output`.
    pub(crate) fn write(self, reason: RefusalReason, output: &mut Vec<u8>) {
        let text = reason.text();
        match self {
            Self::Bytes(bytes) => output.extend_from_slice(bytes),
            Self::Memcached => {
                output.extend_from_slice(format!("SERVER_ERROR {text}\r\n").as_bytes());
            }
            Self::MemcachedBinary(echo) => {
                let status = reason.memcached_status();
                memcached_binary::reply::failure_with(output, echo, status, text);
            }
            Self::Http => {
                http::reply::last_text(output, reason.http_status(), text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::binary::{Function, Request, encode};

    #[test]
    fn a_refusal_has_the_form_of_its_request() {
        let refusal = |request: Request<'_>| {
            let (mut bytes, mut output) = (Vec::new(), Vec::new());
            encode(&request, &mut bytes).expect("a request within the limits");
            Refusal::of(&bytes).write(RefusalReason::Unconfirmed, &mut output);
            output
        };
        assert_eq!(refusal(Request::Put { key: b"k", value: b"v" }), b"\x01");
        assert_eq!(refusal(Request::PutNoReply { key: b"k", value: b"v" }), b"");
        let arguments = wire::binary::Strings::EMPTY;
        let misc = Request::Misc { function: Function::Put, options: 0, arguments };
        assert_eq!(refusal(misc), b"\x01\0\0\0\0");
    }

    #[test]
    fn a_refusal_gives_the_reason_if_the_protocol_has_a_text() {
        let refusal = |request: &[u8], reason| {
            let mut output = Vec::new();
            Refusal::of(request).write(reason, &mut output);
            String::from_utf8(output).expect("a text")
        };
        let put = b"PUT /k HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let full = refusal(put, RefusalReason::LogFull);
        assert!(full.starts_with("HTTP/1.1 507 ") && full.contains("\r\nContent-Length: 33\r\n"));
        assert!(full.ends_with("\r\n\r\nno space left for the update log\n"), "{full}");
        assert!(refusal(put, RefusalReason::LogFailed).starts_with("HTTP/1.1 503 "));
        assert!(
            refusal(put, RefusalReason::Unconfirmed).ends_with("\n\r\nnot confirmed by replicas\n")
        );
        let set = refusal(b"set k 0 0 1\r\nv\r\n", RefusalReason::LogFull);
        assert_eq!(set, "SERVER_ERROR no space left for the update log\r\n");
    }
}
