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
//! Lock order: the table has the only lock, and no other lock is taken under it.

use crate::access::log_limit::LogLimit;
use crate::access::users::Users;
use crate::counters::{Count, Counters};
use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
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

/// Result of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    /// The name and the password are a user's.
    User,
    /// The name or the password is wrong or missing.
    Denied,
    /// The password was not checked: too many attempts of the address have failed.
    TooSoon {
        /// Seconds until the next attempt is checked.
        wait_s: u64,
    },
}

impl Login {
    /// Counts an attempt by its result. Only the thread that owns the set may call this.
    pub(crate) fn count(self, counters: &Counters) {
        counters.count(Count::Authentication);
        match self {
            Self::User => {}
            Self::Denied => counters.count(Count::AuthenticationError),
            Self::TooSoon { .. } => counters.count(Count::LoginTooSoon),
        }
    }
}

/// Peer of a connection to a server with users.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Address of the client, or `None` for a Unix socket.
    address: Option<SocketAddr>,
    /// `Authorization` header of the last HTTP request that was admitted.
    admitted: Option<Box<[u8]>>,
    /// Whether the client's certificate names a user.
    is_certified: bool,
}

impl Peer {
    /// Returns a peer whose certificate names a user.
    pub(crate) fn certified(self) -> Self {
        Self { is_certified: true, ..self }
    }

    /// Makes a peer that has not authenticated.
    pub fn new(address: Option<SocketAddr>) -> Self {
        Self { address, admitted: None, is_certified: false }
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
        }
    }

    /// Checks the name and the password of a client.
    pub(crate) fn check(
        &self,
        users: &Users,
        peer: &Peer,
        protocol: &str,
        (name, password): (&[u8], &[u8]),
    ) -> Login {
        let check = || users.authenticate(name, password);
        self.attempt(peer.address, protocol, Instant::now(), check)
    }

    /// Checks the `Authorization` header of a request. The header of this connection's last
    /// admitted request never waits: behind a proxy, many clients have the same address. A request
    /// without a header is that of the user whom the client's certificate names.
    pub(crate) fn check_header(
        &self,
        users: &Users,
        peer: &mut Peer,
        header: Option<&[u8]>,
    ) -> Login {
        let Some(header) = header else {
            return if peer.is_certified { Login::User } else { Login::Denied };
        };
        if peer.admitted.as_ref().is_some_and(|admitted| admitted.ct_eq(header).into()) {
            return Login::User;
        }
        let Some(credentials) = BasicCredentials::decode(header) else { return Login::Denied };
        let login = self.check(users, peer, "HTTP", credentials.parts());
        if login == Login::User && header.len() <= REMEMBERED_BYTES_MAX {
            peer.admitted = Some(header.into());
        }
        login
    }

    fn attempt(
        &self,
        address: Option<SocketAddr>,
        protocol: &str,
        now: Instant,
        check: impl FnOnce() -> bool,
    ) -> Login {
        let source = Source::of(address);
        let counts = self.milliseconds(now) < self.counts_until_ms.load(Ordering::Relaxed);
        if counts && let Err(wait) = self.claim_attempt(source, now) {
            return Login::TooSoon { wait_s: wait.as_secs() + 1 };
        }
        if check() {
            if counts {
                self.state.lock().release(self.set_of(source), source, now);
            }
            return Login::User;
        }
        self.count_failure(source, now);
        self.log_failure(address, protocol, now);
        Login::Denied
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

fn wait_after(failures: u32) -> Duration {
    match failures.checked_sub(FREE_FAILURES) {
        None => Duration::ZERO,
        Some(further) => (WAIT_MIN * 2_u32.saturating_pow(further.min(16))).min(WAIT_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(text.parse().expect("an address"), 1))
    }

    /// Tries a password `at_s` seconds after the start.
    fn attempt(logins: &Logins, from: &str, at_s: f64, is_right: bool) -> Login {
        let from = (from != "unix").then(|| address(from)).flatten();
        let at = logins.started + Duration::from_secs_f64(at_s);
        logins.attempt(from, "HTTP", at, || is_right)
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
        assert_eq!(attempt(&logins, A, at_s + 16.0, true), Login::User);
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
            assert_eq!(attempt(&logins, from, 0.1, true), Login::User, "{from}");
        }
    }

    #[test]
    fn failures_are_forgotten_after_a_while_and_not_after_a_right_password() {
        let logins = Logins::new();
        for _ in 0..FREE_FAILURES {
            attempt(&logins, A, 0.0, false);
        }
        // Two right passwords do not wait for each other.
        assert_eq!(attempt(&logins, A, 1.0, true), Login::User);
        assert_eq!(attempt(&logins, A, 1.0, true), Login::User);
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
            true
        });
        assert_eq!(login, Login::User);
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
