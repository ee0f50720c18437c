//! Replies that are held back until what they acknowledge is safe.

use cabinet::LogPosition;
use std::time::Instant;
use wire::binary::{MAGIC, reply};
use wire::{Protocol, http, memcached_binary};

/// What a reply waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AcknowledgementPoint {
    /// The database must be durable up to here; 0 where clients do not wait for that.
    pub(crate) durable: LogPosition,
    /// Replicas must have everything up to this time stamp; 0 where clients do not wait for that.
    pub(crate) confirmed_us: u64,
}

/// A connection whose replies are held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingReply {
    pub(crate) point: AcknowledgementPoint,
    /// Since when.
    pub(crate) since: Instant,
    pub(crate) acknowledgement: FirstAcknowledgement,
}

/// The first reply of those held that acknowledges something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstAcknowledgement {
    /// Where it begins, in bytes.
    pub(crate) at: usize,
    /// What takes its place, and that of all behind it, if it is not confirmed.
    pub(crate) refusal: Refusal,
}

/// Why a change is not acknowledged that was made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalReason {
    /// Not enough replicas have it.
    Unconfirmed,
    /// The disk of the update log is full.
    LogFull,
    /// The update log cannot be written for another reason, which the log of the server says.
    LogFailed,
}

impl RefusalReason {
    fn text(self) -> &'static str {
        match self {
            Self::Unconfirmed => "not confirmed by replicas",
            Self::LogFull => "no space left for the update log",
            Self::LogFailed => "the update log cannot be written",
        }
    }

    fn http_status(self) -> http::Status {
        match self {
            Self::LogFull => http::Status::InsufficientStorage,
            Self::Unconfirmed | Self::LogFailed => http::Status::ServiceUnavailable,
        }
    }

    fn memcached_status(self) -> memcached_binary::Status {
        match self {
            Self::LogFull => memcached_binary::Status::OutOfMemory,
            Self::Unconfirmed | Self::LogFailed => memcached_binary::Status::InternalError,
        }
    }
}

/// How a client is told that its request was carried out here, but is not acknowledged: as the
/// protocol of the request has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// These bytes, which say no more than that it failed.
    Bytes(&'static [u8]),
    Memcached,
    MemcachedBinary(memcached_binary::Echo),
    Http,
}

/// The command byte of `misc`, whose failure is longer than others.
const MISC: u8 = 0x90;

/// That of `putnr`, which is never answered.
const PUT_NO_REPLY: u8 = 0x18;

impl Refusal {
    /// Returns the refusal of a request that begins with these bytes.
    pub(crate) fn of(request: &[u8]) -> Self {
        match wire::sniff(request) {
            Some(Protocol::Binary) => Self::Bytes(match request {
                [MAGIC, MISC, ..] => &[reply::FAILURE, 0, 0, 0, 0],
                // Its client would take a byte for the answer to what comes behind it.
                [MAGIC, PUT_NO_REPLY, ..] => b"",
                _ => &[reply::FAILURE],
            }),
            Some(Protocol::MemcachedBinary) => match memcached_binary::Echo::of(request) {
                Some(echo) => Self::MemcachedBinary(echo),
                None => Self::Bytes(b""),
            },
            Some(Protocol::Http) => Self::Http,
            Some(Protocol::Memcached) | None => Self::Memcached,
        }
    }

    /// Appends it to a reply.
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
                http::reply::status_line(output, reason.http_status());
                http::reply::header(output, "Content-Type", "text/plain");
                http::reply::header(output, "Content-Length", &(text.len() + 1).to_string());
                http::reply::header(output, "Connection", "close");
                http::reply::end_of_headers(output);
                output.extend_from_slice(text.as_bytes());
                output.push(b'\n');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::binary::{Function, Request, encode};

    #[test]
    fn a_client_is_refused_in_the_words_of_its_request() {
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
    fn a_client_is_told_the_reason_where_its_protocol_has_words_for_it() {
        let refusal = |request: &[u8], reason| {
            let mut output = Vec::new();
            Refusal::of(request).write(reason, &mut output);
            String::from_utf8(output).expect("a text")
        };
        let put = b"PUT /k HTTP/1.1\r\n\r\n";
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
