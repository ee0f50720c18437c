//! Failed logins: who has to wait for the next attempt, and which passwords are known to be wrong.
//!
//! Failures are counted per source: an IPv4 address, an IPv6 network, or all Unix sockets. After
//! [`FREE_FAILURES`] of them, the next attempt has to wait: 1 s at first, and twice as long after
//! each further failure, up to [`WAIT_MAX`]. An earlier attempt is refused before the password is
//! checked. It does not count as a failure, so the wait ends whatever the source sends. Without a
//! failure for [`FORGOTTEN_AFTER`], the count starts again.
//!
//! A name that has logged in from a source has a count of its own there for [`KNOWN_FOR`]. It does
//! not wait for guesses at other names. The passwords of a name are guessed no faster by that.
//!
//! A name and a password that were wrong before are not a new guess: they are refused at once, and
//! are not counted. So a client that repeats one wrong password does not make others wait.
//!
//! All this is kept under keyed hashes of 64 bits, in tables of a fixed size. If one is full, its
//! oldest entries are forgotten. Those of failures are read only if a login has failed lately.
//!
//! Lock order: one lock, under which no other is taken.

use parking_lot::Mutex;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of failures after which the next attempt has to wait.
const FREE_FAILURES: u32 = 5;

/// First wait. Each further failure doubles it.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(16);

/// Time without a failure after which failures are forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Time after its last login for which a name has a count of its own at a source.
const KNOWN_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Time after its last attempt for which a password is known to be wrong.
const WRONG_FOR: Duration = Duration::from_secs(60 * 60);

/// Number of entries in each table.
const ENTRIES_MAX: usize = 4096;

/// Number of slots in which an entry may be stored.
const WAYS: usize = 4;
const SETS: usize = ENTRIES_MAX / WAYS;

/// Place of a client, as far as failures are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    V4(u32),
    /// The first 64 bits of the address.
    V6(u64),
    Unix,
}

impl Source {
    /// Returns the source of a client's address, which is `None` for a Unix socket.
    pub(super) fn of(address: Option<SocketAddr>) -> Self {
        match address.map(|address| address.ip().to_canonical()) {
            None => Self::Unix,
            Some(IpAddr::V4(address)) => Self::V4(address.to_bits()),
            Some(IpAddr::V6(address)) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

/// Keyed hashes of an attempt to log in.
#[derive(Clone, Copy)]
pub(super) struct Guess {
    source: u64,
    /// Hash of the source and the name.
    name: u64,
    /// Hash of the source, the name, the password, and what the password is compared with.
    password: u64,
}

/// Whether an attempt may be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    MayTry,
    /// The same name and password were wrong before.
    IsWrong,
    /// It is too early by this time.
    Waits(Duration),
}

/// Failures under one count.
#[derive(Clone, Copy)]
struct Failed {
    failures: u32,
    /// Time before which no attempt is checked.
    next: Instant,
}

#[derive(Default)]
struct State {
    /// Failures by the hash of the source, or of the source and a known name.
    failed: Recent<Failed>,
    /// Hashes of names that have logged in, with their source.
    known: Recent<()>,
    /// Hashes of passwords that were wrong, with their source and name.
    wrong: Recent<()>,
}

/// Failed logins of a server with users.
pub(super) struct Failures {
    state: Mutex<State>,
    hasher: RandomState,
    started: Instant,
    /// Time until which a failure may matter, in milliseconds since `started`.
    counts_until_ms: AtomicU64,
}

impl Failures {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            hasher: RandomState::new(),
            started: Instant::now(),
            counts_until_ms: AtomicU64::new(0),
        }
    }

    /// Returns the hashes of an attempt. `expected` is what the password is compared with.
    pub(super) fn guess(
        &self,
        source: Source,
        (name, password): (&[u8], &[u8]),
        expected: Option<&str>,
    ) -> Guess {
        Guess {
            source: self.hasher.hash_one(source),
            name: self.hasher.hash_one((source, name)),
            password: self.hasher.hash_one((source, name, password, expected)),
        }
    }

    /// Returns whether an attempt may be checked now.
    pub(super) fn standing(&self, guess: &Guess, now: Instant) -> Standing {
        self.stand(guess, now, |_| {})
    }

    /// Allows an attempt to be checked, if it may be now. Others under its count have to wait
    /// until [`Failures::succeed`] or [`Failures::fail`], as after a further failure.
    pub(super) fn claim(&self, guess: &Guess, now: Instant) -> Standing {
        self.stand(guess, now, |failed| failed.next = now + wait_after(failed.failures))
    }

    fn stand(&self, guess: &Guess, now: Instant, claim: impl FnOnce(&mut Failed)) -> Standing {
        if self.milliseconds(now) >= self.counts_until_ms.load(Ordering::Relaxed) {
            return Standing::MayTry;
        }
        let mut state = self.state.lock();
        if state.wrong.find(guess.password, now, WRONG_FOR).is_some() {
            self.note_wrong(&mut state, guess, now);
            return Standing::IsWrong;
        }
        let count = state.count_of(guess, now);
        let Some(failed) = state.failed.find(count, now, FORGOTTEN_AFTER) else {
            return Standing::MayTry;
        };
        let left = failed.next.saturating_duration_since(now);
        if !left.is_zero() {
            return Standing::Waits(left);
        }
        claim(failed);
        Standing::MayTry
    }

    /// Notes that an attempt has succeeded. The next one under its count does not wait.
    pub(super) fn succeed(&self, guess: &Guess, now: Instant) {
        let mut state = self.state.lock();
        let count = state.count_of(guess, now);
        if let Some(failed) = state.failed.find(count, now, FORGOTTEN_AFTER) {
            failed.next = now;
        }
        state.known.insert(guess.name, now, ());
    }

    /// Notes that an attempt has failed.
    pub(super) fn fail(&self, guess: &Guess, now: Instant) {
        let mut state = self.state.lock();
        let count = state.count_of(guess, now);
        let before = state.failed.find(count, now, FORGOTTEN_AFTER).map_or(0, |one| one.failures);
        let failures = before.saturating_add(1);
        let failed = Failed { failures, next: now + wait_after(failures) };
        state.failed.insert(count, now, failed);
        self.note_wrong(&mut state, guess, now);
    }

    /// Notes that a password is wrong, which matters for longer than a failure counts.
    fn note_wrong(&self, state: &mut State, guess: &Guess, now: Instant) {
        state.wrong.insert(guess.password, now, ());
        let until_ms = self.milliseconds(now + WRONG_FOR);
        self.counts_until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    fn milliseconds(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.started).as_millis() as u64
    }
}

impl State {
    /// Returns the hash under which the failures of an attempt are counted.
    fn count_of(&mut self, guess: &Guess, now: Instant) -> u64 {
        let is_known = self.known.find(guess.name, now, KNOWN_FOR).is_some();
        if is_known { guess.name } else { guess.source }
    }
}

/// Values by hash. The oldest are forgotten. It takes no memory before the first one.
struct Recent<T> {
    sets: Vec<[Option<Entry<T>>; WAYS]>,
}

#[derive(Clone, Copy)]
struct Entry<T> {
    hash: u64,
    last: Instant,
    value: T,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { sets: Vec::new() }
    }
}

impl<T: Copy> Recent<T> {
    /// Returns the value of a hash that was inserted less than `kept_for` ago.
    fn find(&mut self, hash: u64, now: Instant, kept_for: Duration) -> Option<&mut T> {
        let set = self.sets.get_mut(set_of(hash))?;
        let mut entries = set.iter_mut().flatten();
        let found = entries.find(|entry| {
            entry.hash == hash && now.saturating_duration_since(entry.last) < kept_for
        });
        Some(&mut found?.value)
    }

    /// Sets the value of a hash, in place of its former one, or of the oldest where it may be.
    fn insert(&mut self, hash: u64, now: Instant, value: T) {
        if self.sets.is_empty() {
            self.sets = vec![[None; WAYS]; SETS];
        }
        let set = &mut self.sets[set_of(hash)];
        let order = |slot: &&mut Option<Entry<T>>| match slot {
            Some(entry) if entry.hash == hash => (0, None),
            None => (1, None),
            Some(entry) => (2, Some(entry.last)),
        };
        if let Some(slot) = set.iter_mut().min_by_key(order) {
            *slot = Some(Entry { hash, last: now, value });
        }
    }
}

fn set_of(hash: u64) -> usize {
    hash as usize % SETS
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

    const A: Source = Source::V4(1);
    const B: Source = Source::V4(2);
    const C: Source = Source::V4(3);

    /// Result of an attempt.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Tried {
        Right,
        Wrong,
        KnownAsWrong,
        TooSoon,
    }
    use Tried::{KnownAsWrong, Right, TooSoon, Wrong};

    /// Passwords of the users ann and bob.
    const RIGHT: &str = "right";

    /// Tries a password `at_s` seconds after the start.
    fn attempt(failures: &Failures, from: Source, at_s: f64, name: &str, password: &str) -> Tried {
        let at = failures.started + Duration::from_secs_f64(at_s);
        let credentials = (name.as_bytes(), password.as_bytes());
        let guess = failures.guess(from, credentials, Some("hash"));
        match failures.claim(&guess, at) {
            Standing::Waits(_) => TooSoon,
            Standing::IsWrong => KnownAsWrong,
            Standing::MayTry if password == RIGHT => {
                failures.succeed(&guess, at);
                Right
            }
            Standing::MayTry => {
                failures.fail(&guess, at);
                Wrong
            }
        }
    }

    /// Tries wrong passwords of a name until it has to wait.
    fn fail_until_wait(failures: &Failures, from: Source, at_s: f64, name: &str) {
        for number in 0..FREE_FAILURES {
            let password = format!("{at_s} {number}");
            assert_eq!(attempt(failures, from, at_s, name, &password), Wrong);
        }
        assert_eq!(attempt(failures, from, at_s, name, "another"), TooSoon);
    }

    #[test]
    fn waits_begin_after_some_failures_and_double_up_to_a_limit() {
        for is_known in [false, true] {
            let failures = Failures::new();
            let ann = |at_s, password: &str| attempt(&failures, A, at_s, "ann", password);
            if is_known {
                assert_eq!(ann(0.0, RIGHT), Right);
            }
            fail_until_wait(&failures, A, 0.0, "ann");
            let mut at_s = 0.0;
            for wait_s in [1, 2, 4, 8, 16, 16, 16].map(f64::from) {
                for early in [at_s, at_s + wait_s - 0.5] {
                    // The reply does not reveal whether the password is right.
                    assert_eq!(ann(early, RIGHT), TooSoon);
                    assert_eq!(ann(early, "another"), TooSoon);
                }
                at_s += wait_s;
                assert_eq!(ann(at_s, &format!("{at_s}")), Wrong, "{wait_s}");
            }
            assert_eq!(ann(at_s + 16.0, RIGHT), Right);
        }
    }

    #[test]
    fn other_sources_do_not_wait() {
        let source = |address: &str| {
            Source::of(Some(SocketAddr::new(address.parse().expect("an address"), 1)))
        };
        let failures = Failures::new();
        for from in [source("192.0.2.1"), source("2001:db8:1:2::3"), Source::of(None)] {
            fail_until_wait(&failures, from, 0.0, "ann");
        }
        let try_right = |from| attempt(&failures, from, 0.1, "ann", RIGHT);
        for from in [source("::ffff:192.0.2.1"), source("2001:db8:1:2:9::"), Source::Unix] {
            assert_eq!(try_right(from), TooSoon, "{from:?}");
        }
        for from in [source("192.0.2.2"), source("2001:db8:1:3::3")] {
            assert_eq!(try_right(from), Right, "{from:?}");
        }
    }

    #[test]
    fn a_repeated_wrong_password_is_no_guess() {
        let failures = Failures::new();
        assert_eq!(attempt(&failures, A, 0.0, "ann", "old"), Wrong);
        for second in 0..2 * 60 * 60 {
            let at_s = f64::from(second);
            assert_eq!(attempt(&failures, A, at_s, "ann", "old"), KnownAsWrong);
            assert_eq!(attempt(&failures, A, at_s, "ann", RIGHT), Right);
        }
        // It is one at another source, once the user has another password, and after a while.
        assert_eq!(attempt(&failures, B, 7200.0, "ann", "old"), Wrong);
        let guess = |expected| failures.guess(A, (b"ann", b"old"), Some(expected));
        let now = failures.started + Duration::from_secs(7200);
        assert_eq!(failures.standing(&guess("hash"), now), Standing::IsWrong);
        assert_eq!(failures.standing(&guess("another"), now), Standing::MayTry);
        // It is refused as such while new guesses have to wait.
        assert_eq!(attempt(&failures, C, 7200.0, "ann", "old"), Wrong);
        fail_until_wait(&failures, C, 7200.0 + FORGOTTEN_AFTER.as_secs_f64(), "bob");
        assert_eq!(attempt(&failures, C, 7260.0, "ann", "old"), KnownAsWrong);
        assert_eq!(attempt(&failures, A, 7200.0 + WRONG_FOR.as_secs_f64(), "ann", "old"), Wrong);
    }

    #[test]
    fn a_name_that_has_logged_in_waits_for_guesses_at_itself_only() {
        let failures = Failures::new();
        assert_eq!(attempt(&failures, A, 0.0, "ann", RIGHT), Right);
        fail_until_wait(&failures, A, 1.0, "eve");
        assert_eq!(attempt(&failures, A, 1.0, "ann", RIGHT), Right);
        assert_eq!(attempt(&failures, A, 1.0, "bob", RIGHT), TooSoon);
        // Guesses at it do not make others wait.
        fail_until_wait(&failures, A, 10.0, "ann");
        assert_eq!(attempt(&failures, A, 10.0, "ann", RIGHT), TooSoon);
        assert_eq!(attempt(&failures, A, 10.0, "bob", RIGHT), Right);
        // It is known there only, and for a time.
        fail_until_wait(&failures, B, 10.0, "eve");
        assert_eq!(attempt(&failures, B, 10.0, "ann", RIGHT), TooSoon);
        let later = 10.0 + KNOWN_FOR.as_secs_f64();
        fail_until_wait(&failures, A, later, "eve");
        assert_eq!(attempt(&failures, A, later, "ann", RIGHT), TooSoon);
    }

    #[test]
    fn however_many_names_are_tried_a_source_has_few_guesses() {
        let failures = Failures::new();
        assert_eq!(attempt(&failures, A, 0.0, "ann", RIGHT), Right);
        let mut guesses = [0; 2];
        for number in 0..60_000 {
            let (at_s, password) = (f64::from(number) / 1000.0, number.to_string());
            for (guesses, name) in guesses.iter_mut().zip(["ann", &format!("user {number}")]) {
                let tried = attempt(&failures, A, at_s, name, &password);
                *guesses += u32::from(tried == Wrong);
            }
        }
        // After five, in the seconds 1, 3, 7, 15, 31 and 47.
        assert_eq!(guesses, [FREE_FAILURES + 6; 2]);
    }

    #[test]
    fn failures_are_forgotten_after_a_while_and_not_after_a_right_password() {
        let failures = Failures::new();
        fail_until_wait(&failures, A, 0.0, "eve");
        let bob = |at_s, password| attempt(&failures, A, at_s, "bob", password);
        // Two right passwords do not wait for each other.
        assert_eq!([bob(1.0, RIGHT), bob(1.0, RIGHT)], [Right, Right]);
        let eve = |at_s, password| attempt(&failures, A, at_s, "eve", password);
        assert_eq!(eve(1.0, "x"), Wrong);
        assert_eq!(eve(2.9, "y"), TooSoon);
        fail_until_wait(&failures, A, 1.0 + FORGOTTEN_AFTER.as_secs_f64(), "eve");
    }

    #[test]
    fn one_of_several_attempts_at_the_same_time_is_checked() {
        let failures = Failures::new();
        fail_until_wait(&failures, A, 0.0, "ann");
        let at = failures.started + WAIT_MIN;
        let guess = |password: &str| failures.guess(A, (b"ann", password.as_bytes()), None);
        assert_eq!(failures.claim(&guess("x"), at), Standing::MayTry);
        assert_eq!(failures.claim(&guess("y"), at), Standing::Waits(WAIT_MIN));
        failures.succeed(&guess("x"), at);
        assert_eq!(failures.claim(&guess("y"), at), Standing::MayTry);
    }

    #[test]
    fn the_tables_keep_what_was_last() {
        let failures = Failures::new();
        for number in 0..10 * ENTRIES_MAX as u32 {
            let from = Source::V6(number.into());
            attempt(&failures, from, f64::from(number) / 1e6, "ann", "wrong");
            attempt(&failures, from, f64::from(number) / 1e6, "ann", RIGHT);
        }
        fail_until_wait(&failures, A, 1.0, "ann");
        let state = failures.state.lock();
        let lengths = [
            state.failed.sets.iter().flatten().flatten().count(),
            state.known.sets.iter().flatten().flatten().count(),
            state.wrong.sets.iter().flatten().flatten().count(),
        ];
        assert_eq!(lengths, [ENTRIES_MAX; 3]);
    }
}
