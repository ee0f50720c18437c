//! The text protocol as the rest of the server sees it.

use super::{perform, step};
use crate::access::logins::Login;
use crate::access::users::CurrentUsers;
use crate::ops::acknowledgement::RefusalReason;
use crate::protocol::authentication::introduced;
use crate::protocol::protocols::{Pipelined, Protocol};
use crate::protocol::{Context, Next, Step};
use wire::Parse;
use wire::memcached::reply::{self, server_error};
use wire::memcached::{Dialect, Error, Mode, Request, parse};

/// Reply to a login that is refused without a check.
const TOO_MANY_FAILURES: &[u8] = b"CLIENT_ERROR too many failed logins, retry later\r\n";

/// memcached's text protocol.
pub(in crate::protocol) struct Memcached;

impl Protocol for Memcached {
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
            output.extend_from_slice(reply::UNAUTHENTICATED);
        })
    }

    fn awaits_line(input: &[u8]) -> bool {
        !input.contains(&b'\n')
    }

    fn refuse(_: &[u8], reason: RefusalReason, output: &mut Vec<u8>) {
        server_error(output, reason.text());
    }

    fn require_tls(text: &str, output: &mut Vec<u8>) {
        server_error(output, text);
    }
}

impl Pipelined for Memcached {
    type Request<'i> = Request<'i>;

    #[inline]
    fn decode(dialect: Dialect, input: &[u8]) -> Parse<Request<'_>> {
        parse(dialect, input)
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

/// Executes the first command of a connection, a `set` that logs in. Returns `None` if it will
/// never end.
fn introduce(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Option<Step> {
    let (request, bytes) = match parse(context.shared.config.dialect, input) {
        Parse::Complete(request, bytes) => (request, bytes),
        Parse::Incomplete(needed) => return Some(Step::Incomplete { needed }),
        Parse::Invalid(_) => return None,
    };
    let mut next = Next::GoOn;
    output.extend_from_slice(match request {
        Request::Store(store) if store.mode == Mode::Set => {
            // memcached ignores further words, too.
            let words: Vec<&[u8]> = store
                .value
                .split(|byte| *byte == b' ')
                .filter(|word| !word.is_empty())
                .take(2)
                .collect();
            match *words {
                [name, password] => {
                    match context.authenticate("memcached's protocol", Some((name, password))) {
                        Ok(Login::User(_)) => reply::STORED,
                        Ok(Login::Denied) => reply::AUTHENTICATION_FAILED,
                        Err(_) => return Some(Step::Blocked { bytes }),
                        Ok(Login::TooSoon { .. }) => {
                            next = Next::Refuse;
                            TOO_MANY_FAILURES
                        }
                    }
                }
                _ => reply::BAD_AUTHENTICATION,
            }
        }
        Request::Bad { error: Error::BadDataChunk, .. } => reply::BAD_TERMINATION,
        _ => reply::UNAUTHENTICATED,
    });
    Some(Step::Executed { bytes, next })
}
