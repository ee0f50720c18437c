//! Replica: the master's state of a replica that it serves.

use super::sender::Failure;
use crate::update_log::{Tail, now_us};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::replication::Acknowledgement;
use wire::update_log::{ENTRY_HEADER_BYTES, Entry};

/// Content that is being sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// The update log.
    #[default]
    Streaming,
    /// A copy of all records.
    Seeding {
        /// Records sent so far.
        done: u64,
        /// Number of records when the copy began.
        total: u64,
    },
}

/// Amount of log entries; differences wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) operations: u64,
    pub(super) bytes: u64,
}

impl Amount {
    /// Returns the amount of one entry.
    pub(super) fn of(entry: &Entry<'_>) -> Self {
        Self { operations: 1, bytes: (ENTRY_HEADER_BYTES + entry.body.len()) as u64 }
    }

    /// Returns the amount written to a log since it was opened.
    pub(super) fn up_to(tail: Tail) -> Self {
        Self { operations: tail.entries, bytes: tail.bytes }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            operations: self.operations.wrapping_add(other.operations),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            operations: self.operations.wrapping_sub(other.operations),
            bytes: self.bytes.wrapping_sub(other.bytes),
        }
    }
}

/// Most reports whose acknowledgement is awaited. Further ones are joined to the last, so the lag
/// in bytes is exact again once the replica has acknowledged that.
const REPORTS_MAX: usize = 256;

/// A replica, and its progress.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) id: u32,
    /// Address at which the replica can be reached, if it has sent one, else that of its
    /// connection.
    pub(super) address: String,
    /// Whether the replica is of this project, and acknowledges operations.
    pub(super) acknowledges: bool,
    known: Mutex<Known>,
    /// Highest time stamp that was sent to it, or with which it began.
    announced_us: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    phase: Phase,
    /// Entries read for it minus entries written to the log.
    read_less_written: Amount,
    /// Operations sent to it.
    sent: Amount,
    /// Values of `sent` in the past that are not acknowledged, in order.
    reports: VecDeque<Amount>,
    /// Value of `sent` in the past that is acknowledged.
    confirmed: Amount,
    /// Time stamp of the last entry read for it.
    sent_us: u64,
    acknowledged: Acknowledgement,
    /// Whether it has acknowledged anything over this connection.
    has_acknowledged: bool,
    /// Time at which it had last caught up.
    caught_up_us: u64,
    /// Time at which it connected.
    connected_us: u64,
    /// Time at which the connection ended, 0 before.
    ended_us: u64,
}

/// Lag of a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lag {
    pub(crate) operations: u64,
    /// Length of their entries in the log.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

/// A connected replica, as clients see it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReplicaStatus {
    /// Address at which it can be reached, if it has sent one, else that of its connection.
    pub(crate) address: String,
    /// It has a complete copy, and gets the changes.
    pub(crate) is_streaming: bool,
    /// Time stamp up to which it has executed all changes, in microseconds since 1970.
    pub(crate) executed_us: u64,
    pub(crate) lag: Lag,
}

/// A replica that was served, and whose connection has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostReplica {
    pub(crate) id: u32,
    /// Address at which it could be reached, if it had sent one, else that of its connection.
    pub(crate) address: String,
    /// Time at which the connection ended, in microseconds since 1970.
    pub(crate) since_us: u64,
}

impl Replica {
    pub(super) fn new(id: u32, address: String, acknowledges: bool) -> Self {
        let known = Mutex::new(Known { connected_us: now_us(), ..Known::default() });
        Self { id, address, acknowledges, known, announced_us: AtomicU64::new(0) }
    }

    /// Notes that a time stamp is about to be sent, which the replica may acknowledge.
    pub(super) fn announce(&self, timestamp_us: u64) {
        self.announced_us.fetch_max(timestamp_us, Ordering::SeqCst);
    }

    /// Sets the content that is being sent.
    pub(super) fn set_phase(&self, phase: Phase) {
        self.known.lock().phase = phase;
    }

    /// Sets the operations and the time stamp sent, and the entries read beyond those written.
    pub(super) fn sent(&self, sent: Amount, sent_us: u64, read_less_written: Amount) {
        let mut known = self.known.lock();
        if sent != known.sent {
            if known.reports.len() >= REPORTS_MAX {
                known.reports.pop_back();
            }
            known.reports.push_back(sent);
        }
        known.sent = sent;
        known.sent_us = sent_us;
        known.read_less_written = read_less_written;
    }

    /// Notes an acknowledgement. Fails if the replica cannot have come so far.
    pub(super) fn acknowledge(
        &self,
        acknowledged: Acknowledgement,
        tail: Tail,
    ) -> Result<(), Failure> {
        let at_us = acknowledged.executed_us.max(acknowledged.durable_us);
        let announced_us = self.announced_us.load(Ordering::SeqCst);
        if at_us > announced_us {
            return Err(Failure::NotSent { at_us, announced_us });
        }
        let mut known = self.known.lock();
        known.acknowledged = acknowledged;
        known.has_acknowledged = true;
        while let Some(report) = known.reports.front().copied()
            && report.operations <= acknowledged.executed
        {
            known.reports.pop_front();
            known.confirmed = report;
        }
        if known.lag_operations(tail) == 0 {
            known.caught_up_us = now_us();
        }
        Ok(())
    }

    /// Returns the time stamp up to which the replica is known to be durable, 0 during an initial
    /// sync.
    pub(super) fn durable_us(&self) -> u64 {
        let known = self.known.lock();
        if known.phase == Phase::Streaming { known.acknowledged.durable_us } else { 0 }
    }

    /// Notes that the connection has ended. Returns whether the replica was served: one that was
    /// refused at once is not known.
    pub(super) fn end(&self) -> bool {
        let mut known = self.known.lock();
        known.ended_us = now_us();
        known.has_acknowledged
    }

    /// Returns the time at which the connection ended, in microseconds since 1970; 0 before.
    pub(super) fn ended_us(&self) -> u64 {
        self.known.lock().ended_us
    }

    /// Returns the lag, or `None` if the replica does not acknowledge.
    pub(super) fn lag(&self, tail: Tail) -> Option<Lag> {
        self.acknowledges.then(|| self.known.lock().lag(tail, now_us()))
    }

    /// Returns the status, or `None` if the replica does not acknowledge.
    pub(super) fn status(&self, tail: Tail) -> Option<ReplicaStatus> {
        let lag = self.lag(tail)?;
        let known = self.known.lock();
        Some(ReplicaStatus {
            address: self.address.clone(),
            is_streaming: known.phase == Phase::Streaming,
            executed_us: known.acknowledged.executed_us,
            lag,
        })
    }

    /// Returns a line for `stat`.
    pub(super) fn describe(&self, tail: Tail) -> String {
        let known = self.known.lock();
        let Self { address, .. } = self;
        let state = match known.phase {
            _ if known.ended_us > 0 => format!("state=disconnected since_us={}", known.ended_us),
            Phase::Streaming => "state=streaming".to_owned(),
            Phase::Seeding { done, total } => {
                format!("state=seeding seeded={done} seeding={total}")
            }
        };
        if !self.acknowledges {
            let sent_us = known.sent_us;
            return format!("address={address} {state} sent_us={sent_us}");
        }
        let Lag { operations, seconds, .. } = known.lag(tail, now_us());
        let Acknowledgement { executed_us, durable_us, .. } = known.acknowledged;
        format!(
            "address={address} {state} lag_operations={operations} lag_seconds={seconds:.6} \
             executed_us={executed_us} durable_us={durable_us}"
        )
    }
}

impl Known {
    fn lag_operations(&self, tail: Tail) -> u64 {
        let unread = Amount::up_to(tail).minus(self.read_less_written).operations;
        unread.saturating_add(self.sent.operations).saturating_sub(self.acknowledged.executed)
    }

    fn lag_bytes(&self, tail: Tail) -> u64 {
        let unread = Amount::up_to(tail).minus(self.read_less_written).bytes;
        unread.saturating_add(self.sent.minus(self.confirmed).bytes)
    }

    fn lag(&self, tail: Tail, now_us: u64) -> Lag {
        let operations = self.lag_operations(tail);
        // One that has executed nothing yet may lack all of the log, whose age is unknown.
        let known_us = match self.acknowledged.executed_us.max(self.caught_up_us) {
            0 => self.connected_us,
            known_us => known_us,
        };
        let behind_us = if operations == 0 { 0 } else { now_us.saturating_sub(known_us) };
        let bytes = if operations == 0 { 0 } else { self.lag_bytes(tail) };
        Lag { operations, bytes, seconds: behind_us as f64 / 1e6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of an entry in these tests.
    const BYTES: u64 = 100;

    fn amount(operations: u64) -> Amount {
        Amount { operations, bytes: operations.wrapping_mul(BYTES) }
    }

    fn tail(entries: u64) -> Tail {
        Tail { entries, bytes: entries * BYTES, ..Tail::default() }
    }

    fn lag(operations: u64, seconds: f64) -> Lag {
        Lag { operations, bytes: operations * BYTES, seconds }
    }

    #[test]
    fn the_lag_counts_unread_entries_and_sent_operations_that_were_not_executed() {
        // Five entries were present before the log was opened.
        let replica = Replica::new(2, "host:1".into(), true);
        let behind = || replica.known.lock().lag_operations(tail(10));
        replica.sent(amount(0), 0, amount(0).minus(amount(5)));
        assert_eq!(behind(), 15);
        // All entries are read, and three of them were not for this replica.
        replica.announce(50);
        replica.sent(amount(7), 40, amount(5));
        replica.sent(amount(12), 50, amount(10));
        assert_eq!(behind(), 12);
        let mut acknowledged =
            Acknowledgement { executed: 8, executed_us: 50, ..Acknowledgement::default() };
        replica.acknowledge(acknowledged, tail(10)).expect("it was sent");
        // The last report has five operations, and one of them is executed.
        assert_eq!(replica.known.lock().lag(tail(10), 50).bytes, 5 * BYTES);
        acknowledged.executed = 12;
        replica.acknowledge(acknowledged, tail(11)).expect("it was sent");
        let mut known = replica.known.lock();
        assert_eq!(known.lag(tail(10), 1_000_050), lag(0, 0.0));
        assert_eq!(known.lag(tail(11), 1_000_050), lag(1, 1.0));
        known.caught_up_us = 500_050;
        assert_eq!(known.lag(tail(11), 1_000_050), lag(1, 0.5));
    }

    #[test]
    fn reports_over_the_limit_are_joined() {
        for reports in [REPORTS_MAX, REPORTS_MAX + 1] {
            let replica = Replica::new(2, "host:1".into(), true);
            (1..=reports as u64).for_each(|sent| replica.sent(amount(sent), sent, amount(sent)));
            let mut known = replica.known.lock();
            assert_eq!(known.reports.len(), REPORTS_MAX);
            assert_eq!(known.reports.pop_back(), Some(amount(reports as u64)));
        }
    }

    #[test]
    fn operations_that_were_not_sent_cannot_be_acknowledged() {
        let replica = Replica::new(2, "host:1".into(), true);
        replica.announce(7);
        replica.announce(5);
        for (executed_us, durable_us) in [(8, 0), (7, 8), (u64::MAX, 7), (0, u64::MAX)] {
            let said = Acknowledgement { executed_us, durable_us, ..Acknowledgement::default() };
            assert!(replica.acknowledge(said, tail(0)).is_err(), "{executed_us} {durable_us}");
            assert_eq!(replica.durable_us(), 0);
        }
        let said = Acknowledgement { executed_us: 7, durable_us: 7, ..Acknowledgement::default() };
        replica.acknowledge(said, tail(0)).expect("it was told of that");
        assert_eq!(replica.durable_us(), 7);
    }

    #[test]
    fn a_replica_that_is_being_seeded_has_nothing_on_its_disk() {
        let replica = Replica::new(2, "host:1".into(), true);
        let durable = Acknowledgement { durable_us: 7, ..Acknowledgement::default() };
        replica.announce(7);
        replica.acknowledge(durable, tail(0)).expect("it was told of that");
        assert_eq!(replica.durable_us(), 7);
        replica.set_phase(Phase::Seeding { done: 1, total: 2 });
        assert_eq!(replica.durable_us(), 0);
        assert!(replica.describe(tail(0)).contains("state=seeding seeded=1 seeding=2"));
    }
}
