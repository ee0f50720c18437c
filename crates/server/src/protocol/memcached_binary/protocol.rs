//! memcached's binary protocol as the rest of the server sees it.

use super::{perform_request, step};
use crate::access::users::CurrentUsers;
use crate::ops::acknowledgement::RefusalReason;
use crate::protocol::authentication::introduced;
use crate::protocol::protocols::{Pipelined, Protocol};
use crate::protocol::{Context, Next, Step};
use wire::Parse;
use wire::memcached::Dialect;
use wire::memcached_binary::reply::{self, Status};
use wire::memcached_binary::{Echo, Request, parse};

/// memcached's binary protocol.
pub(in crate::protocol) struct MemcachedBinary;

impl Protocol for MemcachedBinary {
    #[inline(always)]
    fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
        step(context, input, output)
    }

    fn step_as_user(
        context: &mut Context<'_>,
        _: &CurrentUsers,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Step {
        if context.has_user() {
            return step(context, input, output);
        }
        // Each command knows whether it needs a user.
        let introduce = |context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>| {
            Some(step(context, input, output))
        };
        introduced(context, input, output, introduce, |_, input, output| match Echo::of(input) {
            Some(echo) => reply::failure(output, echo, Status::NotAuthenticated),
            None => output.extend_from_slice(wire::memcached::reply::UNAUTHENTICATED),
        })
    }

    fn refuse(head: &[u8], reason: RefusalReason, output: &mut Vec<u8>) {
        if let Some(echo) = Echo::of(head) {
            refuse(echo, reason, output);
        }
    }

    fn refuse_or_close(head: &[u8], reason: RefusalReason, output: &mut Vec<u8>) -> Next {
        match Echo::of(head) {
            Some(echo) => {
                refuse(echo, reason, output);
                Next::GoOn
            }
            None => Next::Close,
        }
    }

    fn require_tls(text: &str, output: &mut Vec<u8>) {
        // The client has not begun a request that a reply could repeat.
        wire::memcached::reply::server_error(output, text);
    }
}

/// Appends the refusal of a request with these fields.
pub(super) fn refuse(echo: Echo, reason: RefusalReason, output: &mut Vec<u8>) {
    let status = match reason {
        RefusalReason::LogFull => Status::OutOfMemory,
        _ => Status::InternalError,
    };
    reply::failure_with(output, echo, status, reason.text());
}

impl Pipelined for MemcachedBinary {
    type Request<'i> = Request<'i>;

    #[inline]
    fn decode(_: Dialect, input: &[u8]) -> Parse<Request<'_>> {
        parse(input)
    }

    #[inline]
    fn perform(
        context: &mut Context<'_>,
        request: Request<'_>,
        bytes: usize,
        output: &mut Vec<u8>,
    ) -> Step {
        perform_request(context, &request, bytes, output)
    }
}
