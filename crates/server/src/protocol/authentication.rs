//! Authentication: decides who may use a server that has users.
//!
//! memcached's protocols take a name and a password once per connection: the text protocol in a
//! `set` that must be its first command, the binary protocol by SASL. After that the connection
//! speaks all protocols but HTTP. Each HTTP request carries its own credentials, since a proxy may
//! send requests of several users over one connection. Tokyo Tyrant's protocol has no passwords.

use super::{Context, Next, Step, dispatch};
use crate::access::logins::Login;
use crate::access::users::Users;
use crate::counters::Count;
use crate::protocol::reparse::UNAUTHENTICATED_BYTES_MAX;
use wire::http::{Head, Method, head};
use wire::memcached::{Error, Mode, Request, parse};
use wire::memcached_binary::{self, Echo};
use wire::{Parse, Protocol, http, memcached};

/// Reply to a login over memcached's text protocol that is refused without a check.
const TOO_MANY_FAILURES: &[u8] = b"CLIENT_ERROR too many failed logins, retry later\r\n";

impl Context<'_> {
    /// Returns whether the connection may execute its requests.
    #[inline]
    pub(super) fn is_authenticated(&self) -> bool {
        self.session.is_authenticated || self.shared.config.users.is_none()
    }

    /// Authenticates the connection as the user of this name and password, if there is one.
    pub(super) fn authenticate(
        &mut self,
        users: &Users,
        protocol: &str,
        credentials: Option<(&[u8], &[u8])>,
    ) -> Login {
        let peer = self.session.peer.get_or_insert_default();
        let login = credentials.map_or(Login::Denied, |credentials| {
            self.shared.logins.check(users, peer, protocol, credentials)
        });
        login.count(self.counters);
        self.session.is_authenticated = login == Login::User;
        login
    }
}

/// Executes the request at the beginning of `input`, if its client is authorized.
pub(super) fn step(
    context: &mut Context<'_>,
    users: &Users,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Step {
    let protocol = wire::sniff(input);
    let may_go_on = match protocol {
        Some(Protocol::Http) => match head(input) {
            Parse::Complete(head, _) => {
                let header = head.header("Authorization");
                let peer = context.session.peer.get_or_insert_default();
                let login = context.shared.logins.check_header(users, peer, header);
                let step = if login == Login::User {
                    dispatch(context, protocol, input, output)
                } else {
                    challenge(context, &head, login, input, output)
                };
                // Other requests are parsed again.
                if matches!(step, Step::Executed { .. }) {
                    login.count(context.counters);
                }
                return step;
            }
            // A request without a valid head has no user.
            _ => true,
        },
        Some(Protocol::Binary) if context.shared.config.opens_tokyo_tyrant => true,
        _ => context.session.is_authenticated,
    };
    if may_go_on {
        return dispatch(context, protocol, input, output);
    }
    let known = &input[..input.len().min(UNAUTHENTICATED_BYTES_MAX)];
    let step = match protocol {
        Some(Protocol::Binary) => None,
        Some(Protocol::Memcached) => introduce(context, users, known, output),
        _ => Some(dispatch(context, protocol, known, output)),
    };
    match step {
        Some(Step::Incomplete { needed }) if needed > UNAUTHENTICATED_BYTES_MAX => {}
        Some(step) => return step,
        None => {}
    }
    context.counters.count(Count::Refused);
    match (protocol, Echo::of(input)) {
        (Some(Protocol::Binary), _) => wire::binary::reply::status(output, false),
        (Some(Protocol::MemcachedBinary), Some(echo)) => {
            let status = memcached_binary::Status::NotAuthenticated;
            memcached_binary::reply::failure(output, echo, status);
        }
        _ => output.extend_from_slice(memcached::reply::UNAUTHENTICATED),
    }
    Step::Executed { bytes: input.len(), next: Next::Refuse }
}

/// Executes the first command of memcached's text protocol. Returns `None` if it will never end.
fn introduce(
    context: &mut Context<'_>,
    users: &Users,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Option<Step> {
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
                    match context.authenticate(users, "memcached", Some((name, password))) {
                        Login::User => memcached::reply::STORED,
                        Login::Denied => memcached::reply::AUTHENTICATION_FAILED,
                        Login::TooSoon { .. } => {
                            next = Next::Refuse;
                            TOO_MANY_FAILURES
                        }
                    }
                }
                _ => memcached::reply::BAD_AUTHENTICATION,
            }
        }
        Request::Bad { error: Error::BadDataChunk, .. } => memcached::reply::BAD_TERMINATION,
        _ => memcached::reply::UNAUTHENTICATED,
    });
    Some(Step::Executed { bytes, next })
}

/// Requests a name and a password, or a later retry. The connection ends, as the body that may
/// follow is not read.
fn challenge(
    context: &Context<'_>,
    head: &Head<'_>,
    login: Login,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Step {
    context.counters.count(Count::Refused);
    let is_head = head.method == Method::Head;
    match login {
        Login::TooSoon { wait_s } => http::reply::retry_after(output, wait_s, is_head),
        _ => http::reply::challenge(output, is_head),
    }
    Step::Executed { bytes: input.len(), next: Next::Refuse }
}
