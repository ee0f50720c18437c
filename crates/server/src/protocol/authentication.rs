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

use super::{Context, Halt, Next, Step, protocols};
use crate::access::logins::{Attempt, Login};
use crate::access::users::CurrentUsers;
use crate::counters::Count;
use crate::protocol::reparse::UNAUTHENTICATED_BYTES_MAX;
use std::sync::Arc;
use wire::Protocol;

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

    pub(super) fn has_user(&self) -> bool {
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
    pub(super) fn verify(&mut self, attempt: Attempt) -> Result<Login, Halt> {
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
    context.begin(users);
    let known = match context.session.sniff(input) {
        None if context.has_user() || input.len() < UNAUTHENTICATED_BYTES_MAX => {
            return Step::Incomplete { needed: input.len() + 1 };
        }
        known => known,
    };
    protocols::step_as_user(known.unwrap_or(Protocol::Memcached), context, users, input, output)
}

/// Executes the request at the beginning of `input`, of a connection without a user, by
/// `introduce`. That returns `None` for a request that needs a user, which `refuse` replies to.
pub(super) fn introduced(
    context: &mut Context<'_>,
    input: &[u8],
    output: &mut Vec<u8>,
    introduce: impl FnOnce(&mut Context<'_>, &[u8], &mut Vec<u8>) -> Option<Step>,
    refuse: impl FnOnce(&Context<'_>, &[u8], &mut Vec<u8>),
) -> Step {
    let known = &input[..input.len().min(UNAUTHENTICATED_BYTES_MAX)];
    match introduce(context, known, output) {
        Some(Step::Incomplete { needed }) if needed > UNAUTHENTICATED_BYTES_MAX => {}
        Some(step) => return step,
        None => {}
    }
    context.counters.count(Count::Refused);
    if let Some(peer) = &context.session.peer {
        context.shared.logins.log_unknown(peer);
    }
    refuse(context, input, output);
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
