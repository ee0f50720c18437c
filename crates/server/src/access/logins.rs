//! Logins: checks names and passwords, at a limited rate per address that guesses.
//!
//! After [`FREE_FAILURES`] failures, the next attempt of an address has to wait: 1 s at first, and
//! twice as long after each further failure, up to [`WAIT_MAX`]. An earlier attempt is refused
//! before the password is checked. It does not count as a failure, so the wait ends whatever the
//! address sends. An address without a failure for [`FORGOTTEN_AFTER`] starts again.
//!
//! Failures are kept in a table of a fixed size. If it is full, the oldest failures are forgotten.
//! The table is not read while no address has failed lately.
//!
//! The hash of a password takes long. It is computed on threads that may wait, and for
//! [`VERIFICATIONS_MAX`] passwords at a time. A password that was verified once is recognised at
//! once.
//!
//! Lock order: the table and the turns to verify a password have a lock each. No other lock is
//! taken under them.

use crate::access::log_limit::LogLimit;
use crate::access::user_file::CREDENTIAL_BYTES_MAX;
use crate::access::users::{CurrentUsers, User, Users};
use crate::counters::{Count, Counters};
use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;
use wire::http::BasicCredentials;

/// Number of failures after which an address has to wait.
const FREE_FAILURES: u32 = 5;

/// First wait. Each further failure doubles it.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(16);

/// Time without a failure after which the failures of an address are forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Number of addresses in the table.
const ADDRESSES_MAX: usize = 4096;

/// Number of slots in which an address may be stored.
const WAYS: usize = 4;
const SETS: usize = ADDRESSES_MAX / WAYS;

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
        self.user.clone_from(&self.certified);
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

/// Address under which failures are counted: an IPv4 address, an IPv6 network, or all Unix sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    V4(u32),
    V6(u64),
    Unix,
}

impl Source {
    fn of(address: Option<SocketAddr>) -> Self {
        match address.map(|address| address.ip().to_canonical()) {
            None => Self::Unix,
            Some(IpAddr::V4(address)) => Self::V4(address.to_bits()),
            Some(IpAddr::V6(address)) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

/// Failures of an address.
#[derive(Clone, Copy, Debug)]
struct Failed {
    source: Source,
    failures: u32,
    last: Instant,
    /// Time before which no attempt is checked.
    next: Instant,
}

#[derive(Debug)]
struct State {
    table: Box<[[Option<Failed>; WAYS]]>,
}

/// Failed logins of a server with users.
#[derive(Debug)]
pub(crate) struct Logins {
    state: Mutex<State>,
    lines: LogLimit,
    hasher: RandomState,
    started: Instant,
    /// Time until which any failure counts, in milliseconds since `started`.
    counts_until_ms: AtomicU64,
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
        let table = vec![[None; WAYS]; SETS].into();
        Self {
            state: Mutex::new(State { table }),
            lines: LogLimit::new(),
            hasher: RandomState::new(),
            started: Instant::now(),
            counts_until_ms: AtomicU64::new(0),
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
        let now = Instant::now();
        let address = peer.address;
        if let Some(wait) = self.wait_of(Source::of(address), now) {
            return Ok(too_soon(wait));
        }
        let user = users.recall(name, password);
        if user.is_some() || name.len().max(password.len()) > CREDENTIAL_BYTES_MAX {
            return Ok(self.attempt(address, protocol, now, || user.cloned()));
        }
        Err(Attempt { address, protocol, name: name.into(), password: password.into() })
    }

    /// Checks the name and the password of an attempt. It waits for other attempts, and takes as
    /// long as the hash of a password costs.
    pub(crate) fn check(&self, users: &Users, attempt: &Attempt) -> Login {
        let Attempt { address, protocol, name, password } = attempt;
        let _turn = self.await_turn();
        self.attempt(*address, protocol, Instant::now(), || users.verify(name, password).cloned())
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
            return Ok(peer.certified.clone().map_or(Login::Denied, Login::User));
        };
        if let Some((admitted, user)) = &peer.admitted
            && admitted.ct_eq(header).into()
        {
            return Ok(Login::User(Arc::clone(user)));
        }
        let login = if let Some(credentials) = BasicCredentials::decode(header) {
            self.check_at_once(&users.load(), peer, "HTTP", credentials.parts(), verdict)?
        } else if let Some(token) = bearer_token(header) {
            self.check_token(&users.load(), peer, token)
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

    fn check_token(&self, users: &Users, peer: &Peer, token: &[u8]) -> Login {
        self.attempt(peer.address, "HTTP", Instant::now(), || users.of_token(token).cloned())
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

    fn attempt(
        &self,
        address: Option<SocketAddr>,
        protocol: &str,
        now: Instant,
        check: impl FnOnce() -> Option<Arc<User>>,
    ) -> Login {
        let source = Source::of(address);
        let counts = self.may_count(now);
        if counts && let Err(wait) = self.claim_attempt(source, now) {
            return too_soon(wait);
        }
        if let Some(user) = check() {
            if counts {
                self.state.lock().release(self.set_of(source), source, now);
            }
            return Login::User(user);
        }
        self.count_failure(source, now);
        self.log_failure(address, protocol, now);
        Login::Denied
    }

    /// Returns whether any failure may count.
    fn may_count(&self, now: Instant) -> bool {
        self.milliseconds(now) < self.counts_until_ms.load(Ordering::Relaxed)
    }

    /// Returns the time for which an address has to wait, if it has to.
    fn wait_of(&self, source: Source, now: Instant) -> Option<Duration> {
        if !self.may_count(now) {
            return None;
        }
        let mut state = self.state.lock();
        let failed = state.find(self.set_of(source), source, now)?;
        let left = failed.next.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Allows one attempt to be checked, or returns the time left to wait.
    fn claim_attempt(&self, source: Source, now: Instant) -> Result<(), Duration> {
        let mut state = self.state.lock();
        let Some(failed) = state.find(self.set_of(source), source, now) else { return Ok(()) };
        let left = failed.next.saturating_duration_since(now);
        if !left.is_zero() {
            return Err(left);
        }
        failed.next = now + wait_after(failed.failures);
        Ok(())
    }

    fn count_failure(&self, source: Source, now: Instant) {
        let until_ms = self.milliseconds(now + FORGOTTEN_AFTER);
        self.counts_until_ms.fetch_max(until_ms, Ordering::Relaxed);
        let mut state = self.state.lock();
        let set = self.set_of(source);
        if state.find(set, source, now).is_none() {
            // An empty slot is less than any other.
            let slot = state.table[set].iter_mut().min_by_key(|slot| slot.map(|one| one.last));
            if let Some(slot) = slot {
                *slot = Some(Failed { source, failures: 0, last: now, next: now });
            }
        }
        if let Some(failed) = state.find(set, source, now) {
            failed.failures = failed.failures.saturating_add(1);
            failed.last = now;
            failed.next = now + wait_after(failed.failures);
        }
    }

    /// Logs that a login has failed, unless there are too many such lines.
    fn log_failure(&self, address: Option<SocketAddr>, protocol: &str, now: Instant) {
        if let Some(unlogged) = self.lines.admit(now) {
            let from = address.map_or("a Unix socket".to_owned(), |address| address.to_string());
            tracing::warn!("login failed: {from}, {protocol}{unlogged}");
        }
    }

    fn set_of(&self, source: Source) -> usize {
        self.hasher.hash_one(source) as usize % SETS
    }

    fn milliseconds(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_millis() as u64
    }
}

impl State {
    /// Returns the failures of an address that still count.
    fn find(&mut self, set: usize, source: Source, now: Instant) -> Option<&mut Failed> {
        self.table[set].iter_mut().flatten().find(|failed| {
            failed.source == source && now.saturating_duration_since(failed.last) < FORGOTTEN_AFTER
        })
    }

    /// Allows the next attempt of an address whose last one succeeded.
    fn release(&mut self, set: usize, source: Source, now: Instant) {
        if let Some(failed) = self.find(set, source, now) {
            failed.next = now;
        }
    }
}

fn too_soon(wait: Duration) -> Login {
    Login::TooSoon { wait_s: wait.as_secs() + 1 }
}

/// Returns the token of a header of the scheme Bearer.
fn bearer_token(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn wait_after(failures: u32) -> Duration {
    match failures.checked_sub(FREE_FAILURES) {
        None => Duration::ZERO,
        Some(further) => (WAIT_MIN * 2_u32.saturating_pow(further.min(16))).min(WAIT_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::password::PasswordCost;
    use crate::access::user_file::{UserEntry, UserFile};

    fn address(text: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(text.parse().expect("an address"), 1))
    }

    /// Tries a password `at_s` seconds after the start.
    fn attempt(logins: &Logins, from: &str, at_s: f64, is_right: bool) -> Login {
        let from = (from != "unix").then(|| address(from)).flatten();
        let at = logins.started + Duration::from_secs_f64(at_s);
        logins.attempt(from, "HTTP", at, || is_right.then(user))
    }

    fn user() -> Arc<User> {
        let entry = UserEntry { name: "ann".into(), ..UserEntry::default() };
        let users = Users::of(UserFile { users: vec![entry] });
        Arc::clone(users.find(b"ann").expect("a user"))
    }

    const A: &str = "192.0.2.1";
    const B: &str = "192.0.2.2";

    #[test]
    fn waits_begin_after_some_failures_and_double_up_to_a_limit() {
        let logins = Logins::new();
        for _ in 0..FREE_FAILURES {
            assert_eq!(attempt(&logins, A, 0.0, false), Login::Denied);
        }
        let mut at_s = 0.0;
        for wait_s in [1, 2, 4, 8, 16, 16, 16] {
            let early = at_s + f64::from(wait_s) - 0.5;
            for is_right in [false, true] {
                // The reply does not reveal whether the password is right.
                assert_eq!(attempt(&logins, A, early, is_right), Login::TooSoon { wait_s: 1 });
            }
            assert!(matches!(attempt(&logins, A, at_s, true), Login::TooSoon { .. }));
            at_s += f64::from(wait_s);
            assert_eq!(attempt(&logins, A, at_s, false), Login::Denied, "{wait_s}");
        }
        assert_eq!(attempt(&logins, A, at_s + 16.0, true), Login::User(user()));
    }

    #[test]
    fn other_addresses_do_not_wait() {
        let logins = Logins::new();
        for _ in 0..=FREE_FAILURES {
            attempt(&logins, A, 0.0, false);
            attempt(&logins, "unix", 0.0, false);
            attempt(&logins, "2001:db8:1:2::3", 0.0, false);
        }
        for from in [A, "unix", "::ffff:192.0.2.1", "2001:db8:1:2:9::"] {
            let login = attempt(&logins, from, 0.1, true);
            assert!(matches!(login, Login::TooSoon { .. }), "{from}");
        }
        for from in [B, "2001:db8:1:3::3"] {
            assert_eq!(attempt(&logins, from, 0.1, true), Login::User(user()), "{from}");
        }
    }

    #[test]
    fn failures_are_forgotten_after_a_while_and_not_after_a_right_password() {
        let logins = Logins::new();
        for _ in 0..FREE_FAILURES {
            attempt(&logins, A, 0.0, false);
        }
        // Two right passwords do not wait for each other.
        assert_eq!(attempt(&logins, A, 1.0, true), Login::User(user()));
        assert_eq!(attempt(&logins, A, 1.0, true), Login::User(user()));
        assert_eq!(attempt(&logins, A, 1.0, false), Login::Denied);
        assert!(matches!(attempt(&logins, A, 2.9, false), Login::TooSoon { .. }));
        let later = 1.0 + FORGOTTEN_AFTER.as_secs_f64();
        for _ in 0..FREE_FAILURES {
            assert_eq!(attempt(&logins, A, later, false), Login::Denied);
        }
        assert!(matches!(attempt(&logins, A, later, false), Login::TooSoon { .. }));
    }

    #[test]
    fn one_of_several_attempts_at_the_same_time_is_checked() {
        let logins = Logins::new();
        for _ in 0..FREE_FAILURES {
            attempt(&logins, A, 0.0, false);
        }
        let at = logins.started + WAIT_MIN;
        let login = logins.attempt(address(A), "HTTP", at, || {
            assert!(matches!(attempt(&logins, A, 1.0, true), Login::TooSoon { .. }));
            Some(user())
        });
        assert_eq!(login, Login::User(user()));
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
            let (mut peer, header) = (Peer::new(address(A)), format!("Basic {credentials}"));
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

    #[test]
    fn the_table_keeps_the_addresses_that_failed_last() {
        let logins = Logins::new();
        for number in 0..10 * ADDRESSES_MAX as u32 {
            let from = std::net::Ipv4Addr::from_bits(number).to_string();
            attempt(&logins, &from, f64::from(number) / 1e6, false);
        }
        for _ in 0..FREE_FAILURES {
            attempt(&logins, A, 1.0, false);
        }
        assert!(matches!(attempt(&logins, A, 1.0, true), Login::TooSoon { .. }));
        let table = &logins.state.lock().table;
        assert_eq!(table.iter().flatten().flatten().count(), ADDRESSES_MAX);
    }
}
