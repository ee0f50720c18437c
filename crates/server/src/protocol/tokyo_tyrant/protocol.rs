//! Tokyo Tyrant's binary protocol as the rest of the server sees it.

use super::{perform, step};
use crate::access::users::CurrentUsers;
use crate::ops::acknowledgement::RefusalReason;
use crate::protocol::authentication::introduced;
use crate::protocol::protocols::{Pipelined, Protocol};
use crate::protocol::{Context, Next, Step};
use wire::Parse;
use wire::binary::{Function, Request, may_be_misc, parse, reply};
use wire::memcached::Dialect;

/// Tokyo Tyrant's binary protocol.
pub(in crate::protocol) struct TokyoTyrant;

impl Protocol for TokyoTyrant {
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
        if context.has_user() || context.shared.config.opens_tokyo_tyrant {
            return step(context, input, output);
        }
        introduced(context, input, output, introduce, |context, input, output| {
            if let Parse::Complete(Request::Misc { function: Function::Replication, .. }, _) =
                parse(input)
            {
                let reason = "it has not logged in, set its master-credentials";
                context.shared.logins.log_replica(context.session.peer.as_deref(), reason);
            }
            reply::status(output, false);
        })
    }

    fn refuse(head: &[u8], _: RefusalReason, output: &mut Vec<u8>) {
        reply::failure_of(head, output);
    }

    fn refuse_or_close(_: &[u8], _: RefusalReason, _: &mut Vec<u8>) -> Next {
        // A failure would look like the absence of a record.
        Next::Close
    }

    fn require_tls(text: &str, output: &mut Vec<u8>) {
        // The protocol has no texts.
        wire::memcached::reply::server_error(output, text);
    }
}

impl Pipelined for TokyoTyrant {
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
        perform(context, request, bytes, output)
    }
}

/// Executes a request if it is a login. Returns `None` if it is not.
fn introduce(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Option<Step> {
    match parse(input) {
        Parse::Complete(Request::Misc { function: Function::Login, .. }, _) => {
            Some(step(context, input, output))
        }
        Parse::Incomplete(needed) if may_be_misc(input) => Some(Step::Incomplete { needed }),
        _ => None,
    }
}
