//! The protocol of Redis, whose clients are refused in a form that they show.

use super::protocols::Protocol;
use super::{Context, Next, Step};
use crate::access::users::CurrentUsers;
use crate::counters::Count;
use crate::ops::acknowledgement::RefusalReason;
use crate::shared::slow_log::SlowRequest;
use wire::memcached::Dialect;
use wire::redis::error;

/// Reply to every request.
const NOT_REDIS: &str = "this server does not speak Redis's protocol; connect with a client of \
                         memcached, HTTP or Tokyo Tyrant";

/// The protocol.
pub(super) struct Redis;

impl Protocol for Redis {
    #[cold]
    fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
        context.counters.count(Count::Refused);
        error(output, NOT_REDIS);
        Step::Executed { bytes: input.len(), next: Next::Refuse }
    }

    fn step_as_user(
        context: &mut Context<'_>,
        _: &CurrentUsers,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Step {
        Self::step(context, input, output)
    }

    fn awaits_line(_: &[u8]) -> bool {
        false
    }

    fn describe(_: Dialect, _: &[u8]) -> Option<SlowRequest> {
        None
    }

    fn refuse(_: &[u8], reason: RefusalReason, output: &mut Vec<u8>) {
        error(output, reason.text());
    }

    fn refuse_or_close(head: &[u8], reason: RefusalReason, output: &mut Vec<u8>) -> Next {
        Self::refuse(head, reason, output);
        Next::Close
    }

    fn require_tls(text: &str, output: &mut Vec<u8>) {
        error(output, text);
    }
}
