//! Replica progress: acknowledges executed operations to the master.
//!
//! Acknowledgements are sent every second, sooner if there is progress, and at once if clients of
//! the master wait. In that case a thread of its own makes the executed operations durable, with
//! one sync for all that arrived meanwhile. Acknowledgements are therefore also sent while a disk
//! is slow.

use super::HEARTBEAT;
use crate::store::view::View;
use client::Acknowledger;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::replication::{Acknowledgement, Position};

/// Interval of acknowledgements with progress, if no client waits.
const PACE: Duration = Duration::from_millis(50);

/// Progress of a replica over one connection to its master.
#[derive(Debug, Default)]
pub(super) struct ReplicaProgress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Whether there is a connection.
    is_connected: bool,
    /// Whether the thread that acknowledges has nothing to send before the next heartbeat.
    rests: bool,
    /// Last position that the master has sent, and its time. Only masters of this project send
    /// positions.
    master: Option<(Position, Instant)>,
    /// Number of operations received, and number executed.
    received: u64,
    executed: u64,
    /// Time stamp of the last executed operation.
    executed_us: u64,
    /// Number and time stamp of the operations that were made durable.
    durable: u64,
    durable_us: u64,
    /// Number of operations in the master's log or received from it, at its last position.
    expected: u64,
    /// Time at which the replica had caught up, by the master's clock.
    caught_up_us: u64,
    /// Time of the first position over this connection, by the master's clock.
    connected_us: u64,
}

/// Lag of the replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lag {
    pub(super) operations: u64,
    pub(super) seconds: f64,
}

impl ReplicaProgress {
    /// Begins a connection after the operations up to `executed_us`.
    pub(super) fn begin(&self, executed_us: u64) {
        let mut state = self.state.lock();
        *state = State {
            is_connected: true,
            executed_us,
            caught_up_us: state.caught_up_us,
            ..State::default()
        };
    }

    /// Resets the time stamps, as an initial sync begins.
    pub(super) fn begin_sync(&self) {
        let mut state = self.state.lock();
        state.executed_us = 0;
        state.durable_us = 0;
        state.caught_up_us = 0;
    }

    /// Ends the connection.
    pub(super) fn end(&self) {
        self.state.lock().is_connected = false;
        self.changed.notify_all();
    }

    /// Notes the position of the master, which it has sent after `uncounted` operations that were
    /// not counted as received so far.
    pub(super) fn note_position(&self, position: Position, uncounted: usize) {
        let mut state = self.state.lock();
        if state.master.is_none() {
            state.connected_us = position.now_us;
        }
        state.master = Some((position, Instant::now()));
        let received = state.received + uncounted as u64;
        state.expected = received.saturating_add(position.remaining);
        if state.lag_operations() == 0 {
            state.caught_up_us = position.now_us;
        }
        if position.is_awaited {
            self.changed.notify_all();
        }
    }

    /// Counts received operations.
    pub(super) fn receive(&self, operations: usize) {
        self.state.lock().received += operations as u64;
    }

    /// Counts executed operations, and notes the time stamp up to which all are executed.
    pub(super) fn execute(&self, operations: u64, executed_us: u64) {
        let mut state = self.state.lock();
        state.executed += operations;
        state.executed_us = executed_us.max(state.executed_us);
        if std::mem::take(&mut state.rests) || state.is_awaited() {
            self.changed.notify_all();
        }
    }

    /// Returns the lag, or `None` if the master sends no positions.
    pub(super) fn lag(&self) -> Option<Lag> {
        self.state.lock().lag(Instant::now())
    }

    /// Sends acknowledgements until the connection ends.
    pub(super) fn send_acknowledgements(&self, mut master: Acknowledger) {
        let mut sent = None;
        let mut sent_at = Instant::now();
        loop {
            let mut state = self.state.lock();
            let acknowledgement = loop {
                if !state.is_connected {
                    return;
                }
                let present = state.acknowledgement();
                let is_awaited = sent.is_none_or(|sent: Acknowledgement| {
                    (sent.durable, sent.durable_us) != (present.durable, present.durable_us)
                });
                let pace = match (sent == Some(present), is_awaited) {
                    (true, _) => HEARTBEAT,
                    (false, true) => Duration::ZERO,
                    (false, false) => PACE,
                };
                let wait = pace.saturating_sub(sent_at.elapsed());
                if wait.is_zero() {
                    break present;
                }
                state.rests = pace == HEARTBEAT;
                self.changed.wait_for(&mut state, wait);
                state.rests = false;
            };
            drop(state);
            // The thread that reads from the connection gets the reason of the failure.
            if master.send(&acknowledgement).is_err() {
                return;
            }
            sent = Some(acknowledgement);
            sent_at = Instant::now();
        }
    }

    /// Makes executed operations durable while the master requests that, until the connection ends.
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
                    tracing::error!("replication: cannot make operations durable: {error}");
                    self.changed.wait_for(&mut state, HEARTBEAT);
                }
            }
        }
    }
}

impl State {
    /// Returns the acknowledgement. Without a request of the master nothing is reported as durable.
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
        // As for the master, one that has executed nothing is behind since it connected.
        let known_us = match self.executed_us.max(self.caught_up_us) {
            0 => self.connected_us,
            known_us => known_us,
        };
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
        let replica_progress = ReplicaProgress::default();
        replica_progress.begin(5);
        assert_eq!(replica_progress.lag(), None);
        replica_progress.note_position(position(1_000_000_000, 0), 0);
        assert_eq!(replica_progress.lag(), Some(Lag { operations: 0, seconds: 0.0 }));
    }

    #[test]
    fn the_lag_goes_by_the_clock_of_the_master() {
        let replica_progress = ReplicaProgress::default();
        replica_progress.begin(5);
        replica_progress.note_position(position(10_000_000, 0), 0);
        replica_progress.note_position(position(12_000_000, 3), 0);
        let lag = replica_progress.lag().expect("a master that says how far it is");
        assert_eq!(lag.operations, 3);
        assert!((2.0..20.0).contains(&lag.seconds), "{lag:?}");
        replica_progress.receive(3);
        assert_eq!(replica_progress.lag().map(|lag| lag.operations), Some(3));
        replica_progress.execute(3, 12_000_000);
        assert_eq!(replica_progress.lag(), Some(Lag { operations: 0, seconds: 0.0 }));
    }

    #[test]
    fn a_replica_that_has_executed_nothing_is_behind_since_it_connected() {
        let replica_progress = ReplicaProgress::default();
        replica_progress.begin(0);
        replica_progress.note_position(position(10_000_000, 3), 0);
        replica_progress.note_position(position(14_000_000, 3), 0);
        let lag = replica_progress.lag().expect("a master that says how far it is");
        assert!((4.0..20.0).contains(&lag.seconds), "{lag:?}");
    }
}
