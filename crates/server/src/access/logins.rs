//! Logins: checks names and passwords, at a limited rate per address that guesses.
//!
//! [`super::failures`] has who is made to wait. A token is never: it has 256 random bits.
//!
//! The hash of a password takes long. It is computed on threads that may wait, and for
//! [`VERIFICATIONS_MAX`] passwords at a time. A password that was verified once is recognised at
//! once.
//!
//! Lock order: the turns to verify a password have a lock. No other lock is taken under it.

use crate::access::failures::{Failures, Guess, Source, Standing};
use crate::access::log_limit::LogLimit;
use crate::access::user_file::CREDENTIAL_BYTES_MAX;
use crate::access::users::{CurrentUsers, User, Users};
use crate::counters::{Count, Counters};
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use subtle::ConstantTimeEq;
use wire::http::BasicCredentials;

/// Longest `Authorization` header that a connection remembers, in bytes.
const REMEMBERED_BYTES_MAX: usize = 1024;

/// Most passwords that are verified at the same time. Each takes the memory of its hash.
const VERIFICATIONS_MAX: usize = 2;

/// Result of a login.
#[derive(Clone, Debug, PartialEq)]
pub enum Login {
    /// The name and the password, or the token, are this user's.
    User(Arc<User>),
    /// The name, the password or the token is wrong or missing.
    Denied,
    /// The password was not checked: too many attempts of the address have failed.
    TooSoon {
        /// Seconds until the next attempt is checked.
        wait_s: u64,
    },
}

impl Login {
    /// Counts an attempt by its result. Only the thread that owns the set may call this.
    pub(crate) fn count(&self, counters: &Counters) {
        counters.count(Count::Authentication);
        match self {
            Self::User(_) => {}
            Self::Denied => counters.count(Count::AuthenticationError),
            Self::TooSoon { .. } => counters.count(Count::LoginTooSoon),
        }
    }
}

/// Peer of a connection to a server with users. `Debug` does not show its secrets.
#[derive(Clone, Default)]
pub struct Peer {
    /// Address of the client, or `None` for a Unix socket.
    address: Option<SocketAddr>,
    /// User of the connection, of whom all requests are but those of HTTP.
    user: Option<Arc<User>>,
    /// User whom the client's certificate names.
    certified: Option<Arc<User>>,
    /// Name in the client's certificate that is that of no user.
    unknown: Option<Box<str>>,
    /// `Authorization` header of the last HTTP request that was admitted, and its user.
    admitted: Option<(Box<[u8]>, Arc<User>)>,
    /// Generation of the users of all these.
    generation: u64,
}

impl Peer {
    /// Makes a peer that has not authenticated.
    pub fn new(address: Option<SocketAddr>) -> Self {
        Self { address, ..Self::default() }
    }

    /// Logs in the user of this name, if there is one: a client certificate names him.
    pub(crate) fn certify(&mut self, users: &CurrentUsers, name: &str) {
        self.renew(users);
        self.certified = users.load().find(name.as_bytes()).cloned();
        self.unknown = self.certified.is_none().then(|| name.into());
        self.user.clone_from(&self.certified);
    }

    /// Returns why the client's certificate admits nobody, if it has the name of no user.
    pub fn unknown_certificate(&self) -> Option<String> {
        let name = self.unknown.as_ref()?;
        Some(format!("the name in the client's certificate, {name}, is not in the file of users"))
    }

    /// Returns the user of the connection.
    pub(crate) fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// Sets the user of the connection.
    pub(crate) fn set_user(&mut self, user: Option<Arc<User>>) {
        self.user = user;
    }

    /// Renews the users of the peer if they were read again meanwhile. Those who are removed, or
    /// have another password or token, have to log in again.
    #[inline]
    pub(crate) fn renew(&mut self, users: &CurrentUsers) {
        let generation = users.generation();
        if self.generation != generation {
            self.generation = generation;
            self.renew_users(users);
        }
    }

    #[cold]
    fn renew_users(&mut self, users: &CurrentUsers) {
        let renew = |user: Arc<User>| users.renew(&user);
        self.user = self.user.take().and_then(renew);
        self.certified = self.certified.take().and_then(renew);
        // The file may have it now.
        self.unknown = None;
        let admitted = self.admitted.take();
        self.admitted = admitted.and_then(|(header, user)| Some((header, renew(user)?)));
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, user, .. } = self;
        write!(formatter, "Peer {{ {address:?}, {user:?} }}")
    }
}

/// An attempt to log in. `Debug` does not show the password.
pub(crate) struct Attempt {
    /// Address of the client, or `None` for a Unix socket.
    address: Option<SocketAddr>,
    protocol: &'static str,
    name: Box<[u8]>,
    password: Box<[u8]>,
}

impl Attempt {
    /// Returns whether both come from one IPv4 address, from one IPv6 network of 48 bits, which a
    /// client may have as a whole, or over Unix sockets.
    pub(crate) fn has_network_of(&self, other: &Self) -> bool {
        let network = |attempt: &Self| match Source::of(attempt.address) {
            Source::V6(network) => Source::V6(network >> 16),
            source => source,
        };
        network(self) == network(other)
    }

    fn is_of(&self, (name, password): (&[u8], &[u8])) -> bool {
        *self.name == *name && self.password.ct_eq(password).into()
    }
}

/// Result of an attempt that was checked on another thread.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) attempt: Attempt,
    pub(crate) login: Login,
}

impl fmt::Debug for Attempt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, protocol, .. } = self;
        write!(formatter, "Attempt {{ {address:?}, {protocol} }}")
    }
}

/// Logins of a server with users.
pub(crate) struct Logins {
    failures: Failures,
    lines: LogLimit,
    turns: Mutex<Turns>,
    /// Notified when a turn begins or ends.
    turned: Condvar,
}

/// Turns to verify a password, in the order in which the threads have asked for them.
#[derive(Debug, Default)]
struct Turns {
    /// Number of passwords that are being verified.
    verifying: usize,
    /// Number of turns that were asked for, and of those that have begun.
    asked: u64,
    begun: u64,
}

/// An attempt to log in, as its limits and the log know it.
struct Claim<'a> {
    address: Option<SocketAddr>,
    protocol: &'static str,
    guess: Guess,
    /// The user of this name, unless there is none.
    user: Option<&'a User>,
}

/// Turn to verify a password, until it is dropped.
struct Turn<'a>(&'a Logins);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.turns.lock().verifying -= 1;
        self.0.turned.notify_all();
    }
}

impl Logins {
    pub(crate) fn new() -> Self {
        Self {
            failures: Failures::new(),
            lines: LogLimit::new(),
            turns: Mutex::default(),
            turned: Condvar::new(),
        }
    }

    /// Checks the name and the password of a client, if that takes no time: there is a verdict on
    /// them, the password was verified before, or the client has to wait. Otherwise returns the
    /// attempt for [`Logins::check`].
    pub(crate) fn check_at_once(
        &self,
        users: &Users,
        peer: &Peer,
        protocol: &'static str,
        (name, password): (&[u8], &[u8]),
        verdict: Option<Box<Verdict>>,
    ) -> Result<Login, Attempt> {
        if let Some(verdict) = verdict.filter(|one| one.attempt.is_of((name, password))) {
            // A reload may have removed or changed the user while the password was verified.
            match verdict.login {
                Login::User(user) => {
                    if let Some(present) = users.renew(&user) {
                        return Ok(Login::User(Arc::clone(present)));
                    }
                }
                refused => return Ok(refused),
            }
        }
        let address = peer.address;
        let claim = self.claim(users, address, protocol, (name, password));
        let standing = self.failures.standing(&claim.guess, Instant::now());
        if let Some(refused) = self.refusal(standing, &claim) {
            return Ok(refused);
        }
        let user = users.recall(name, password);
        if user.is_some() || name.len().max(password.len()) > CREDENTIAL_BYTES_MAX {
            return Ok(self.attempt(&claim, || user.cloned()));
        }
        Err(Attempt { address, protocol, name: name.into(), password: password.into() })
    }

    fn claim<'a>(
        &self,
        users: &'a Users,
        address: Option<SocketAddr>,
        protocol: &'static str,
        (name, password): (&[u8], &[u8]),
    ) -> Claim<'a> {
        let expected = users.password_hash(name);
        let guess = self.failures.guess(Source::of(address), (name, password), expected);
        Claim { address, protocol, guess, user: users.find(name).map(|user| &**user) }
    }

    /// Checks the name and the password of an attempt. It waits for other attempts, and takes as
    /// long as the hash of a password costs.
    pub(crate) fn check(&self, users: &Users, attempt: &Attempt) -> Login {
        let Attempt { address, protocol, name, password } = attempt;
        let claim = self.claim(users, *address, protocol, (name, password));
        let _turn = self.await_turn();
        self.attempt(&claim, || users.verify(name, password).cloned())
    }

    /// Checks the `Authorization` header of a request. The header of this connection's last
    /// admitted request never waits: behind a proxy, many clients have the same address. A request
    /// without a header is that of the user whom the client's certificate names.
    pub(crate) fn check_header(
        &self,
        users: &CurrentUsers,
        peer: &mut Peer,
        header: Option<&[u8]>,
        verdict: Option<Box<Verdict>>,
    ) -> Result<Login, Attempt> {
        peer.renew(users);
        let Some(header) = header else {
            let denied = || {
                self.log_unknown(peer);
                Login::Denied
            };
            return Ok(peer.certified.clone().map_or_else(denied, Login::User));
        };
        if let Some((admitted, user)) = &peer.admitted
            && admitted.ct_eq(header).into()
        {
            return Ok(Login::User(Arc::clone(user)));
        }
        let login = if let Some(credentials) = BasicCredentials::decode(header) {
            self.check_at_once(&users.load(), peer, "HTTP", credentials.parts(), verdict)?
        } else if let Some(token) = bearer_token(header) {
            match users.load().of_token(token) {
                Some(user) => Login::User(Arc::clone(user)),
                None => {
                    self.log(peer.address, |from| {
                        format!("login failed: {from} over HTTP: no user has this token")
                    });
                    Login::Denied
                }
            }
        } else {
            return Ok(Login::Denied);
        };
        if let Login::User(user) = &login
            && header.len() <= REMEMBERED_BYTES_MAX
        {
            peer.admitted = Some((header.into(), Arc::clone(user)));
        }
        Ok(login)
    }

    /// Waits until fewer than [`VERIFICATIONS_MAX`] passwords are being verified, and the threads
    /// that asked before have had their turn.
    fn await_turn(&self) -> Turn<'_> {
        let mut turns = self.turns.lock();
        let number = turns.asked;
        turns.asked += 1;
        while turns.begun != number || turns.verifying >= VERIFICATIONS_MAX {
            self.turned.wait(&mut turns);
        }
        turns.begun += 1;
        turns.verifying += 1;
        drop(turns);
        self.turned.notify_all();
        Turn(self)
    }

    fn attempt(&self, claim: &Claim<'_>, check: impl FnOnce() -> Option<Arc<User>>) -> Login {
        let standing = self.failures.claim(&claim.guess, Instant::now());
        if let Some(refused) = self.refusal(standing, claim) {
            return refused;
        }
        if let Some(user) = check() {
            self.failures.succeed(&claim.guess, Instant::now());
            return Login::User(user);
        }
        self.failures.fail(&claim.guess, Instant::now());
        self.deny(claim)
    }

    fn refusal(&self, standing: Standing, claim: &Claim<'_>) -> Option<Login> {
        match standing {
            Standing::MayTry => None,
            Standing::IsWrong => Some(self.deny(claim)),
            Standing::Waits(wait) => {
                let wait_s = wait.as_secs() + 1;
                self.log(claim.address, |from| {
                    format!(
                        "login refused: {from} over {}: too many wrong passwords; the next attempt \
                         may come in {wait_s} s",
                        claim.protocol
                    )
                });
                Some(Login::TooSoon { wait_s })
            }
        }
    }

    /// Denies a login, with a line of the log unless there are too many. Other names than those of
    /// users are not logged: people type passwords in their place.
    fn deny(&self, claim: &Claim<'_>) -> Login {
        self.log(claim.address, |from| {
            let reason = match claim.user {
                Some(user) if user.has_password() => {
                    format!("the password of user {} is wrong", user.name())
                }
                Some(user) => format!("user {} has no password", user.name()),
                None => "no user has this name".to_owned(),
            };
            format!("login failed: {from} over {}: {reason}", claim.protocol)
        });
        Login::Denied
    }

    /// Logs why a replica is refused, unless there are too many lines.
    pub(crate) fn log_replica(&self, peer: Option<&Peer>, reason: &str) {
        self.log(peer.and_then(|peer| peer.address), |from| {
            format!("a replica at {from} is refused: {reason}")
        });
    }

    /// Logs that a client is refused whose certificate has the name of no user, unless there are
    /// too many lines.
    pub(crate) fn log_unknown(&self, peer: &Peer) {
        if let Some(reason) = peer.unknown_certificate() {
            self.log(peer.address, |from| format!("login failed: {from}: {reason}"));
        }
    }

    fn log(&self, address: Option<SocketAddr>, text: impl FnOnce(&str) -> String) {
        if let Some(unlogged) = self.lines.admit(Instant::now()) {
            let from = address.map_or("a Unix socket".to_owned(), |address| address.to_string());
            tracing::warn!("{}{unlogged}", text(&from));
        }
    }
}

/// Returns the token of a header of the scheme Bearer.
fn bearer_token(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::password::PasswordCost;
    use crate::access::user_file::{UserEntry, UserFile};

    fn address() -> Option<SocketAddr> {
        Some(SocketAddr::from(([192, 0, 2, 1], 1)))
    }

    #[test]
    fn a_verdict_from_before_a_reload_logs_in_no_user_who_was_removed_or_changed() {
        let entry = |name: &str, password: &str| {
            UserEntry::with_password(name, password.as_bytes(), PasswordCost::MIN).expect("a user")
        };
        let of = |users: &[UserEntry]| Arc::new(Users::of(UserFile { users: users.to_vec() }));
        let (ann, bob, eve) = (entry("ann", "a"), entry("bob", "b"), entry("eve", "e"));
        let current = CurrentUsers::new(of(&[ann.clone(), bob, eve]));
        let logins = Logins::new();
        // (Name and password in the form of Basic, whether the login is valid after the reload.)
        let clients = [("YW5uOmE=", true), ("Ym9iOmI=", false), ("ZXZlOmU=", false)];
        let attempted = clients.map(|(credentials, stays)| {
            let (mut peer, header) = (Peer::new(address()), format!("Basic {credentials}"));
            let check = logins.check_header(&current, &mut peer, Some(header.as_bytes()), None);
            let attempt = check.expect_err("an attempt");
            let login = logins.check(&current.load(), &attempt);
            assert!(matches!(login, Login::User(_)), "{credentials}");
            (peer, header, Box::new(Verdict { attempt, login }), stays)
        });
        current.replace(of(&[ann, entry("bob", "another")]));
        for (mut peer, header, verdict, stays) in attempted {
            let header = Some(header.as_bytes());
            match logins.check_header(&current, &mut peer, header, Some(verdict)) {
                Ok(Login::User(user)) => {
                    assert!(stays && user.name() == "ann");
                    assert!(current.load().find(b"ann").is_some_and(|ann| Arc::ptr_eq(ann, &user)));
                }
                Err(attempt) => {
                    assert!(!stays && peer.admitted.is_none());
                    assert_eq!(logins.check(&current.load(), &attempt), Login::Denied);
                }
                Ok(refused) => panic!("{refused:?}"),
            }
        }
    }

    #[test]
    fn passwords_are_verified_in_the_order_of_their_attempts() {
        let logins = &Logins::new();
        let mut turns: Vec<_> = (0..VERIFICATIONS_MAX).map(|_| logins.await_turn()).collect();
        let order = &Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..8 {
                let asked = logins.turns.lock().asked;
                scope.spawn(move || {
                    let _turn = logins.await_turn();
                    order.lock().push(number);
                });
                // It has asked once it waits or has its turn.
                while logins.turns.lock().asked == asked {
                    std::thread::yield_now();
                }
            }
            // A thread that asks again at once comes last.
            turns.truncate(1);
            drop(logins.await_turn());
            order.lock().push(8);
        });
        assert_eq!(*order.lock(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        drop(turns);
        assert_eq!(logins.turns.lock().verifying, 0);
    }
}
