//! HTTP as the rest of the server sees it. Each request carries its own credentials, since a proxy
//! may send requests of several users over one connection.

use super::{refuse_foreign, step};
use crate::access::logins::Login;
use crate::access::users::CurrentUsers;
use crate::counters::Count;
use crate::ops::acknowledgement::RefusalReason;
use crate::protocol::protocols::Protocol;
use crate::protocol::{Context, Next, Step};
use crate::shared::slow_log::SlowRequest;
use wire::Parse;
use wire::http::{Head, Method, Status, head, reply};
use wire::memcached::Dialect;

/// HTTP.
pub(in crate::protocol) struct Http;

impl Http {
    /// Describes the request at the beginning of `input`, if its head is complete.
    pub(in crate::protocol) fn describe(_: Dialect, input: &[u8]) -> Option<SlowRequest> {
        match head(input) {
            Parse::Complete(head, _) => Some(SlowRequest::new(head.method.kind(), head.target)),
            Parse::Incomplete(_) | Parse::Invalid(_) => None,
        }
    }
}

impl Protocol for Http {
    #[inline(always)]
    fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
        step(context, input, output)
    }

    fn step_as_user(
        context: &mut Context<'_>,
        users: &CurrentUsers,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Step {
        match head(input) {
            Parse::Complete(head, _) => {
                // No password is checked for such a request.
                let refused = refuse_foreign(context, &head, input, output);
                refused
                    .unwrap_or_else(|| step_with_credentials(context, users, &head, input, output))
            }
            // A request without a valid head has no user.
            Parse::Incomplete(_) | Parse::Invalid(_) => step(context, input, output),
        }
    }

    fn awaits_line(input: &[u8]) -> bool {
        !has_blank_line(input)
    }

    fn refuse(_: &[u8], reason: RefusalReason, output: &mut Vec<u8>) {
        let status = match reason {
            RefusalReason::LogFull => Status::InsufficientStorage,
            RefusalReason::Unknown => Status::GatewayTimeout,
            _ => Status::ServiceUnavailable,
        };
        reply::last_text(output, status, reason.text());
    }

    fn refuse_or_close(head: &[u8], reason: RefusalReason, output: &mut Vec<u8>) -> Next {
        Self::refuse(head, reason, output);
        Next::Close
    }

    fn require_tls(text: &str, output: &mut Vec<u8>) {
        reply::last_text(output, Status::BadRequest, &format!("{text}: use https://"));
    }
}

/// Returns whether `input` contains the line that ends the head of an HTTP request.
fn has_blank_line(input: &[u8]) -> bool {
    let mut lines = input.split(|byte| *byte == b'\n');
    // Bytes after the last line feed are not a line yet.
    let _ = lines.next_back();
    lines.any(|line| matches!(line, [] | [b'\r']))
}

/// Executes a request as the user of its credentials.
fn step_with_credentials(
    context: &mut Context<'_>,
    users: &CurrentUsers,
    head: &Head<'_>,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Step {
    let (header, verdict) = (head.header("Authorization"), context.session.verdict.take());
    let peer = context.session.peer.get_or_insert_default();
    let checked = context.shared.logins.check_header(users, peer, header, verdict);
    let login = match checked.or_else(|attempt| context.verify(attempt)) {
        Ok(login) => login,
        Err(_) => return Step::Blocked { bytes: input.len() },
    };
    let step = match &login {
        Login::User(user) => {
            context.session.rights = user.rights().cloned();
            step(context, input, output)
        }
        refused => challenge(context, head, refused, input, output),
    };
    match (&step, &mut context.session.call) {
        (Step::Executed { .. }, _) => login.count(context.counters),
        (Step::Called { .. }, Some(call)) => call.has_logged_in = true,
        // Other requests are parsed again.
        _ => {}
    }
    step
}

/// Requests a name and a password, or a later retry. The connection ends, as the body that may
/// follow is not read.
fn challenge(
    context: &Context<'_>,
    head: &Head<'_>,
    login: &Login,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Step {
    context.counters.count(Count::Refused);
    let is_head = head.method == Method::Head;
    match login {
        Login::TooSoon { wait_s } => reply::retry_after(output, *wait_s, is_head),
        _ => {
            let peer = context.session.peer.as_ref();
            let reason = peer.filter(|_| head.header("Authorization").is_none());
            let reason = reason.and_then(|peer| peer.unknown_certificate());
            reply::challenge(output, reason.as_deref(), is_head);
        }
    }
    Step::Executed { bytes: input.len(), next: Next::Refuse }
}
