//! Redis's protocol as the rest of the server sees it.

use super::{perform, step};
use crate::access::users::CurrentUsers;
use crate::ops::acknowledgement::RefusalReason;
use crate::protocol::authentication::introduced;
use crate::protocol::protocols::{Pipelined, Protocol};
use crate::protocol::{Context, Next, Step};
use crate::shared::slow_log::SlowRequest;
use wire::memcached::Dialect;
use wire::redis::reply::error;
use wire::redis::{Command, Content, Request, parse, unquote};
use wire::{Described, Parse};

/// Redis's protocol.
pub(in crate::protocol) struct Redis;

impl Protocol for Redis {
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
        introduced(context, input, output, introduce, |_, _, output| {
            error(output, "NOAUTH Authentication required, and requests before it are short.");
        })
    }

    fn awaits_line(input: &[u8]) -> bool {
        !input.contains(&b'\n')
    }

    fn refuse(_: &[u8], reason: RefusalReason, output: &mut Vec<u8>) {
        error(output, &format!("ERR {}", reason.text()));
    }

    fn refuse_or_close(head: &[u8], reason: RefusalReason, output: &mut Vec<u8>) -> Next {
        Self::refuse(head, reason, output);
        Next::GoOn
    }

    fn require_tls(text: &str, output: &mut Vec<u8>) {
        error(output, &format!("ERR {text}"));
    }
}

impl Pipelined for Redis {
    type Request<'i> = Request<'i>;

    #[inline]
    fn decode(_: Dialect, input: &[u8]) -> Parse<Request<'_>> {
        parse(input)
    }

    fn describe(_: Dialect, input: &[u8]) -> Option<SlowRequest> {
        let Parse::Complete(mut request, _) = parse(input) else { return None };
        let mut array = Vec::new();
        if request.content == Content::Quoted && unquote(request.name, &mut array) {
            let Parse::Complete(unquoted, _) = parse(&array) else { return None };
            request = unquoted;
        }
        Some(SlowRequest::new(request.kind(), request.name().unwrap_or_default()))
    }

    #[inline]
    fn perform(
        context: &mut Context<'_>,
        request: Request<'_>,
        bytes: usize,
        output: &mut Vec<u8>,
    ) -> Step {
        perform(context, &request, bytes, output)
    }
}

/// Returns the content of a whole request.
fn content_of(request: &[u8]) -> Content {
    match parse(request) {
        Parse::Complete(request, _) => request.content,
        Parse::Incomplete(_) | Parse::Invalid(_) => Content::Unknown,
    }
}

/// Executes a request of a connection without a user, if it may be executed.
fn introduce(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Option<Step> {
    let (request, bytes) = match parse(input) {
        Parse::Complete(request, bytes) => (request, bytes),
        Parse::Incomplete(needed) => return Some(Step::Incomplete { needed }),
        Parse::Invalid(_) => return None,
    };
    let mut array = Vec::new();
    let content = match request.content {
        Content::Quoted if unquote(request.name, &mut array) => content_of(&array),
        content => content,
    };
    match content {
        Content::Command(Command::Auth | Command::Hello | Command::Quit | Command::Reset)
        | Content::Nothing
        // Its quotes are not closed.
        | Content::Quoted
        | Content::Malformed(_) => Some(perform(context, &request, bytes, output)),
        Content::Command(_) | Content::Unknown => {
            context.session.redis.has_sent_array |= !request.is_line();
            error(output, "NOAUTH Authentication required.");
            Some(Step::Executed { bytes, next: Next::GoOn })
        }
    }
}
