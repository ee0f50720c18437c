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
        // A reload may have removed the user of a request that waits.
        context.session.redis.wait = None;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::access::password::PasswordCost;
    use crate::access::user_file::{UserEntry, UserFile};
    use crate::access::users::Users;
    use crate::counters::{Count, Counters};
    use crate::protocol::session::Session;
    use crate::shared::Shared;
    use cabinet::Database;
    use std::sync::Arc;

    /// Executes a request. Returns the step, and the reply.
    fn execute(
        shared: &Shared,
        may_block: bool,
        counters: &Counters,
        session: &mut Session,
        request: &[u8],
    ) -> (Step, String) {
        let mut output = Vec::new();
        let mut context = Context::new(shared, may_block, counters, session, 0);
        let step = crate::protocol::step(&mut context, request, &mut output);
        (step, String::from_utf8_lossy(&output).into_owned())
    }

    #[test]
    fn a_wait_ends_when_its_user_is_removed() {
        let users = |users| Arc::new(Users::of(UserFile { users }));
        let entry = UserEntry::with_password("ann", b"secret", PasswordCost::MIN);
        let before = users(vec![entry.expect("a user")]);
        let config = Config { users: Some(Arc::clone(&before)), ..Config::default() };
        let shared = Shared::for_test(config, Database::open("*").expect("a database"));
        let (counters, mut session) = (Counters::default(), Session::default());
        let user = before.find(b"ann").map(Arc::clone);
        session.peer.get_or_insert_default().set_user(user);
        let wait = b"*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n";
        let mut execute = || {
            let (step, reply) = execute(&shared, false, &counters, &mut session, wait);
            let waiting = (session.redis.is_waiting(), shared.clients.waiting());
            (step == Step::Postponed, reply, waiting)
        };
        assert_eq!(execute(), (true, String::new(), (true, 1)));
        shared.users.as_ref().expect("users").replace(users(Vec::new()));
        let refused = "-NOAUTH Authentication required.\r\n".to_owned();
        assert_eq!(execute(), (false, refused, (false, 0)));
    }

    #[test]
    fn a_request_that_is_executed_again_is_counted_once() {
        let shared = Shared::for_test(Config::default(), Database::open("*").expect("a database"));
        let (counters, mut session) = (Counters::default(), Session::default());
        let mset = b"*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n";
        let guard = shared.served.database.keep_commits_out();
        let (step, _) = execute(&shared, false, &counters, &mut session, mset);
        assert_eq!(step, Step::Blocked { bytes: mset.len() });
        assert_eq!(counters.value(Count::Put), 0);
        drop(guard);
        let (step, reply) = execute(&shared, true, &counters, &mut session, mset);
        assert_eq!(
            (step, &*reply),
            (Step::Executed { bytes: mset.len(), next: Next::GoOn }, "+OK\r\n")
        );
        assert_eq!(counters.value(Count::Put), 2);
    }
}
