//! A replica's side: telling the master how far it has come.
//!
//! It is told every second, sooner when there is something new, and at once where clients of the
//! master wait for it. Then what was executed is made durable by a thread of its own, all that has
//! come meanwhile with one sync, so that the master hears of its replica also while a disk is slow.

use super::HEARTBEAT;
use crate::store::view::View;
use client::Acknowledger;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::replication::{Acknowledgement, Position};

/// The master hears this often of what is new, if nobody waits for it.
const PACE: Duration = Duration::from_millis(50);

/// How far a replica has come with what one connection to its master has brought.
#[derive(Debug, Default)]
pub(super) struct Tally {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// There is a connection.
    is_connected: bool,
    /// The master is of this project, and has said how far it is.
    master: Option<(Position, Instant)>,
    /// Operations received, and those executed of them.
    received: u64,
    executed: u64,
    /// Time stamp of the last that was executed.
    executed_us: u64,
    /// The same two of what was made durable.
    durable: u64,
    durable_us: u64,
    /// Operations there were in the master's log or received from it when it said so last.
    expected: u64,
    /// By the master's clock, when everything was here that it had.
    caught_up_us: u64,
}

/// How far it is behind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lag {
    pub(super) operations: u64,
    pub(super) seconds: f64,
}

impl Tally {
    /// A connection begins, behind what was executed up to here.
    pub(super) fn begin(&self, executed_us: u64) {
        let mut state = self.state.lock();
        *state = State {
            is_connected: true,
            executed_us,
            caught_up_us: state.caught_up_us,
            ..State::default()
        };
    }

    /// What was there goes, as a copy of everything begins.
    pub(super) fn begin_anew(&self) {
        let mut state = self.state.lock();
        state.executed_us = 0;
        state.durable_us = 0;
        state.caught_up_us = 0;
    }

    /// The connection is over.
    pub(super) fn end(&self) {
        self.state.lock().is_connected = false;
        self.changed.notify_all();
    }

    /// The master says how far it is.
    pub(super) fn hear(&self, position: Position) {
        let mut state = self.state.lock();
        state.master = Some((position, Instant::now()));
        state.expected = state.received.saturating_add(position.remaining);
        if state.lag_operations() == 0 {
            state.caught_up_us = position.now_us;
        }
        if position.is_awaited {
            self.changed.notify_all();
        }
    }

    /// An operation has come.
    pub(super) fn receive(&self) {
        self.state.lock().received += 1;
    }

    /// So many operations were executed, and everything up to a time stamp.
    pub(super) fn execute(&self, operations: u64, executed_us: u64) {
        let mut state = self.state.lock();
        state.executed += operations;
        state.executed_us = executed_us.max(state.executed_us);
        if state.is_awaited() {
            self.changed.notify_all();
        }
    }

    /// How far it is behind; `None` if its master does not say.
    pub(super) fn lag(&self) -> Option<Lag> {
        self.state.lock().lag(Instant::now())
    }

    /// Tells the master until the connection is over.
    pub(super) fn tell(&self, mut master: Acknowledger) {
        let mut told = None;
        let mut told_at = Instant::now();
        loop {
            let mut state = self.state.lock();
            let acknowledgement = loop {
                if !state.is_connected {
                    return;
                }
                let present = state.acknowledgement();
                let is_awaited = told.is_none_or(|told: Acknowledgement| {
                    (told.durable, told.durable_us) != (present.durable, present.durable_us)
                });
                let pace = match (told == Some(present), is_awaited) {
                    (true, _) => HEARTBEAT,
                    (false, true) => Duration::ZERO,
                    (false, false) => PACE,
                };
                let patience = pace.saturating_sub(told_at.elapsed());
                if patience.is_zero() {
                    break present;
                }
                self.changed.wait_for(&mut state, patience);
            };
            drop(state);
            // If it fails, whoever reads from the connection hears why.
            if master.send(&acknowledgement).is_err() {
                return;
            }
            told = Some(acknowledgement);
            told_at = Instant::now();
        }
    }

    /// Makes durable what was executed, while the master asks for that, until the connection is
    /// over.
    pub(super) fn make_durable(&self, database: &View) {
        let mut state = self.state.lock();
        while state.is_connected {
            let State { executed, executed_us, durable, durable_us, .. } = *state;
            if !state.is_awaited() || (executed, executed_us) == (durable, durable_us) {
                self.changed.wait(&mut state);
                continue;
            }
            match MutexGuard::unlocked(&mut state, || database.make_durable()) {
                Ok(()) => {
                    state.durable = executed;
                    state.durable_us = executed_us;
                    self.changed.notify_all();
                }
                Err(error) => {
                    tracing::error!("what was replicated is not durable: {error}");
                    self.changed.wait_for(&mut state, HEARTBEAT);
                }
            }
        }
    }
}

impl State {
    /// What the master is told; nothing is durable as long as it has not asked for that.
    fn acknowledgement(&self) -> Acknowledgement {
        let Self { executed, executed_us, .. } = *self;
        let (durable, durable_us) =
            if self.is_awaited() { (self.durable, self.durable_us) } else { (0, 0) };
        Acknowledgement { executed_us, executed, durable_us, durable }
    }

    fn is_awaited(&self) -> bool {
        self.master.is_some_and(|(position, _)| position.is_awaited)
    }

    fn lag_operations(&self) -> u64 {
        self.expected.max(self.received).saturating_sub(self.executed)
    }

    fn lag(&self, now: Instant) -> Option<Lag> {
        let (position, heard_at) = self.master?;
        let operations = self.lag_operations();
        if operations == 0 && self.is_connected {
            return Some(Lag { operations, seconds: 0.0 });
        }
        let since = now.saturating_duration_since(heard_at).as_micros();
        let master_now_us =
            position.now_us.saturating_add(u64::try_from(since).unwrap_or(u64::MAX));
        let known_us = self.executed_us.max(self.caught_up_us);
        Some(Lag { operations, seconds: master_now_us.saturating_sub(known_us) as f64 / 1e6 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(now_us: u64, remaining: u64) -> Position {
        Position { now_us, remaining, ..Position::default() }
    }

    #[test]
    fn a_replica_that_has_everything_is_not_behind_however_long_nothing_comes() {
        let tally = Tally::default();
        tally.begin(5);
        assert_eq!(tally.lag(), None);
        tally.hear(position(1_000_000_000, 0));
        assert_eq!(tally.lag(), Some(Lag { operations: 0, seconds: 0.0 }));
    }

    #[test]
    fn the_lag_goes_by_the_clock_of_the_master() {
        let tally = Tally::default();
        tally.begin(5);
        tally.hear(position(10_000_000, 0));
        tally.hear(position(12_000_000, 3));
        let lag = tally.lag().expect("a master that says how far it is");
        assert_eq!(lag.operations, 3);
        assert!((2.0..20.0).contains(&lag.seconds), "{lag:?}");
        for _ in 0..3 {
            tally.receive();
        }
        assert_eq!(tally.lag().map(|lag| lag.operations), Some(3));
        tally.execute(3, 12_000_000);
        assert_eq!(tally.lag(), Some(Lag { operations: 0, seconds: 0.0 }));
    }
}
