//! Authentication: decides who may use a server that has users.
//!
//! memcached's protocols take a name and a password once per connection: the text protocol in a
//! `set` that must be its first command, the binary protocol by SASL. Tokyo Tyrant's protocol takes
//! them in the function `login` of `misc`. After that the connection speaks all protocols but HTTP.
//! Each HTTP request carries its own credentials, since a proxy may send requests of several users
//! over one connection.
//!
//! The hash of a password takes long. If the event loop needs one, the request is blocked with
//! [`crate::protocol::session::Session::attempt`], and executed again with the verdict.

use super::http::refuse_foreign;
use super::{Context, Halt, Next, Step, dispatch};
use crate::access::logins::{Attempt, Login};
use crate::access::users::CurrentUsers;
use crate::counters::Count;
use crate::protocol::reparse::UNAUTHENTICATED_BYTES_MAX;
use std::sync::Arc;
use wire::binary::{self, Function};
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
        self.shared.users.is_none() || self.has_user()
    }

    /// Returns whether the connection may execute its further requests too, unless one of them
    /// changes that.
    #[inline]
    pub(super) fn stays_authenticated(&mut self) -> bool {
        let Some(users) = &self.shared.users else { return true };
        self.begin(users);
        self.has_user()
    }

    /// Begins a request of the connection's user, whose rights may have changed.
    fn begin(&mut self, users: &CurrentUsers) {
        let peer = self.session.peer.get_or_insert_default();
        peer.renew(users);
        self.session.rights = peer.user().and_then(|user| user.rights().cloned());
    }

    fn has_user(&self) -> bool {
        self.session.peer.as_ref().is_some_and(|peer| peer.user().is_some())
    }

    /// Ends the login of the connection.
    pub(super) fn log_out(&mut self) {
        self.session.peer.get_or_insert_default().set_user(None);
    }

    /// Authenticates the connection as the user of this name and password, if there is one. Ends
    /// the request if that takes long.
    pub(super) fn authenticate(
        &mut self,
        protocol: &'static str,
        credentials: Option<(&[u8], &[u8])>,
    ) -> Result<Login, Halt> {
        let peer = self.session.peer.get_or_insert_default();
        let login = match (&self.shared.users, credentials) {
            (Some(users), Some(credentials)) => {
                let (users, verdict) = (users.load(), self.session.verdict.take());
                let logins = &self.shared.logins;
                match logins.check_at_once(&users, peer, protocol, credentials, verdict) {
                    Ok(login) => login,
                    Err(attempt) => self.verify(attempt)?,
                }
            }
            _ => Login::Denied,
        };
        login.count(self.counters);
        let user = if let Login::User(user) = &login { Some(Arc::clone(user)) } else { None };
        self.session.peer.get_or_insert_default().set_user(user);
        Ok(login)
    }

    /// Leaves the password of an attempt to a thread that may wait. The worker pool is none: its
    /// requests were admitted before, so a reload has changed the user, and the client has to try
    /// again.
    fn verify(&mut self, attempt: Attempt) -> Result<Login, Halt> {
        if self.may_block {
            return Ok(Login::TooSoon { wait_s: 1 });
        }
        self.session.attempt = Some(Box::new(attempt));
        Err(Halt::Blocked)
    }
}

/// Executes the request at the beginning of `input`, if its client is authorized.
pub(super) fn step(
    context: &mut Context<'_>,
    users: &CurrentUsers,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Step {
    let protocol = wire::sniff(input);
    context.begin(users);
    let may_go_on = match protocol {
        Some(Protocol::Http) => match head(input) {
            Parse::Complete(head, _) => {
                // No password is checked for such a request.
                let refused = refuse_foreign(context, &head, input, output);
                return refused.unwrap_or_else(|| step_http(context, users, &head, input, output));
            }
            // A request without a valid head has no user.
            _ => true,
        },
        Some(Protocol::Binary) if context.shared.config.opens_tokyo_tyrant => true,
        _ => context.has_user(),
    };
    if may_go_on {
        return dispatch(context, protocol, input, output);
    }
    let known = &input[..input.len().min(UNAUTHENTICATED_BYTES_MAX)];
    let step = match protocol {
        Some(Protocol::Binary) => introduce_binary(context, known, output),
        Some(Protocol::Memcached) => introduce(context, known, output),
        _ => Some(dispatch(context, protocol, known, output)),
    };
    match step {
        Some(Step::Incomplete { needed }) if needed > UNAUTHENTICATED_BYTES_MAX => {}
        Some(step) => return step,
        None => {}
    }
    context.counters.count(Count::Refused);
    if let Some(Protocol::Binary) = protocol
        && let Parse::Complete(binary::Request::Misc { function: Function::Replication, .. }, _) =
            binary::parse(known)
    {
        context.shared.logins.log_replica_without_login(context.session.peer.as_deref());
    }
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

/// Executes an HTTP request, which has credentials of its own.
fn step_http(
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
            dispatch(context, Some(Protocol::Http), input, output)
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

/// Executes a request of Tokyo Tyrant's protocol if it is a login. Returns `None` if it is not.
fn introduce_binary(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Option<Step> {
    match binary::parse(input) {
        Parse::Complete(binary::Request::Misc { function: Function::Login, .. }, _) => {
            Some(dispatch(context, Some(Protocol::Binary), input, output))
        }
        Parse::Incomplete(needed) if binary::may_be_misc(input) => {
            Some(Step::Incomplete { needed })
        }
        _ => None,
    }
}

/// Executes the first command of memcached's text protocol. Returns `None` if it will never end.
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
                    match context.authenticate("memcached", Some((name, password))) {
                        Ok(Login::User(_)) => memcached::reply::STORED,
                        Ok(Login::Denied) => memcached::reply::AUTHENTICATION_FAILED,
                        Err(_) => return Some(Step::Blocked { bytes }),
                        Ok(Login::TooSoon { .. }) => {
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
    login: &Login,
    input: &[u8],
    output: &mut Vec<u8>,
) -> Step {
    context.counters.count(Count::Refused);
    let is_head = head.method == Method::Head;
    match login {
        Login::TooSoon { wait_s } => http::reply::retry_after(output, *wait_s, is_head),
        _ => http::reply::challenge(output, is_head),
    }
    Step::Executed { bytes: input.len(), next: Next::Refuse }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::access::password::PasswordCost;
    use crate::access::user_file::{UserEntry, UserFile};
    use crate::access::users::Users;
    use crate::counters::Counters;
    use crate::protocol::session::Session;
    use crate::shared::Shared;
    use cabinet::Database;

    #[test]
    fn the_worker_pool_verifies_no_password_of_a_user_whom_a_reload_has_changed() {
        let users = |password: &[u8]| {
            let entry = UserEntry::with_password("ann", password, PasswordCost::MIN);
            Arc::new(Users::of(UserFile { users: vec![entry.expect("a user")] }))
        };
        let before = users(b"secret");
        assert!(before.verify(b"ann", b"secret").is_some());
        let config = Config { users: Some(before), ..Config::default() };
        let shared = Shared::for_test(config, Database::open("*").expect("a database"));
        let (counters, mut session) = (Counters::default(), Session::default());
        let mut execute = |may_block| {
            let mut context = Context::new(&shared, may_block, &counters, &mut session, 0);
            let (mut output, users) = (Vec::new(), shared.users.as_ref().expect("users"));
            let get = b"GET /k HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YW5uOnNlY3JldA==\r\n\r\n";
            let step = step(&mut context, users, get, &mut output);
            let reply = String::from_utf8_lossy(&output).lines().next().map(str::to_owned);
            (matches!(step, Step::Blocked { .. }), reply, session.attempt.take().is_some())
        };
        let reply = |text: &str| Some(format!("HTTP/1.1 {text}"));
        assert_eq!(execute(false), (false, reply("404 Not Found"), false));
        assert_eq!(execute(true), (false, reply("404 Not Found"), false));
        // The same password has another hash.
        shared.users.as_ref().expect("users").replace(users(b"secret"));
        assert_eq!(execute(true), (false, reply("429 Too Many Requests"), false));
        assert_eq!(execute(false), (true, None, true));
    }
}
