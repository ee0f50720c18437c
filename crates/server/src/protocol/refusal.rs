//! Refusals: the replies to requests whose changes were made here but are not acknowledged.

use super::protocols;
use super::session::Session;
use crate::ops::acknowledgement::RefusalReason;
use wire::Protocol;

/// Most bytes of a request that its refusal depends on: a header of memcached's binary protocol.
const HEAD_BYTES_MAX: usize = wire::memcached_binary::HEADER_BYTES;

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
}

/// Error reply, in the protocol of a request, for a change that was made here but is not
/// acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    protocol: Protocol,
    /// Beginning of the request.
    head: [u8; HEAD_BYTES_MAX],
    bytes: usize,
}

impl Refusal {
    /// Returns the refusal of the request of a session that begins with `request`.
    pub(crate) fn within(session: &Session, request: &[u8]) -> Self {
        Self::of_protocol(session.sniff(request).unwrap_or(Protocol::Memcached), request)
    }

    /// Returns the refusal of the request that begins with `request`, the first of a session.
    pub(crate) fn of(request: &[u8]) -> Self {
        Self::within(&Session::default(), request)
    }

    /// Returns the refusal of a request of this protocol that begins with `request`.
    pub(crate) fn of_protocol(protocol: Protocol, request: &[u8]) -> Self {
        let bytes = request.len().min(HEAD_BYTES_MAX);
        let mut head = [0; HEAD_BYTES_MAX];
        head[..bytes].copy_from_slice(&request[..bytes]);
        Self { protocol, head, bytes }
    }

    /// Appends the refusal to `output`.
    pub(crate) fn write(&self, reason: RefusalReason, output: &mut Vec<u8>) {
        protocols::refuse(self.protocol, &self.head[..self.bytes], reason, output);
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
