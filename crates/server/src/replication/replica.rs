//! What a master knows of a replica that it serves.

use super::sender::Failure;
use crate::update_log::{Tail, now_us};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::replication::Acknowledgement;

/// What it is being sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// The update log.
    #[default]
    Streaming,
    /// A copy of all records.
    Seeding {
        /// Records so far.
        done: u64,
        /// Records there were when it began.
        total: u64,
    },
}

/// A replica, and how far it has come.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) id: u32,
    /// Where it can be reached if it has said so, else where its connection comes from.
    pub(super) address: String,
    /// It is one of this project, and says how far it has come.
    pub(super) acknowledges: bool,
    known: Mutex<Known>,
    /// Highest time stamp that it has been told of, or has begun with.
    told_us: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    phase: Phase,
    /// Entries that were read for it, less those written to the log; wraps.
    read_less_written: u64,
    /// Operations sent to it.
    sent: u64,
    /// Time stamp of the last entry that was read for it.
    sent_us: u64,
    acknowledged: Acknowledgement,
    /// When it was last known to have everything.
    caught_up_us: u64,
}

/// How far it is behind.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lag {
    operations: u64,
    seconds: f64,
}

impl Replica {
    pub(super) fn new(id: u32, address: String, acknowledges: bool) -> Self {
        Self { id, address, acknowledges, known: Mutex::default(), told_us: AtomicU64::new(0) }
    }

    /// It is about to be told of a time stamp, and may acknowledge it from now on.
    pub(super) fn tell(&self, timestamp_us: u64) {
        self.told_us.fetch_max(timestamp_us, Ordering::SeqCst);
    }

    /// It is being sent something else from now on.
    pub(super) fn set_phase(&self, phase: Phase) {
        self.known.lock().phase = phase;
    }

    /// It has been sent so many operations, up to a time stamp, and so many entries of the log have
    /// been read for it beyond those written.
    pub(super) fn sent(&self, sent: u64, sent_us: u64, read_less_written: u64) {
        let mut known = self.known.lock();
        known.sent = sent;
        known.sent_us = sent_us;
        known.read_less_written = read_less_written;
    }

    /// It says how far it has come. Fails if it cannot have come so far.
    pub(super) fn acknowledge(
        &self,
        acknowledged: Acknowledgement,
        tail: Tail,
    ) -> Result<(), Failure> {
        let at_us = acknowledged.executed_us.max(acknowledged.durable_us);
        let told_us = self.told_us.load(Ordering::SeqCst);
        if at_us > told_us {
            return Err(Failure::NotSent { at_us, told_us });
        }
        let mut known = self.known.lock();
        known.acknowledged = acknowledged;
        if known.lag_operations(tail) == 0 {
            known.caught_up_us = now_us();
        }
        Ok(())
    }

    /// Everything up to here is on its disk, as far as is known: a time stamp, 0 while it is being
    /// seeded.
    pub(super) fn durable_us(&self) -> u64 {
        let known = self.known.lock();
        if known.phase == Phase::Streaming { known.acknowledged.durable_us } else { 0 }
    }

    /// What `stat` shows: words, and names with values.
    pub(super) fn describe(&self, tail: Tail) -> String {
        let known = *self.known.lock();
        let Self { address, .. } = self;
        let state = match known.phase {
            Phase::Streaming => "state=streaming".to_owned(),
            Phase::Seeding { done, total } => {
                format!("state=seeding seeded={done} seeding={total}")
            }
        };
        if !self.acknowledges {
            let sent_us = known.sent_us;
            return format!("address={address} {state} sent_us={sent_us}");
        }
        let Lag { operations, seconds } = known.lag(tail, now_us());
        let Acknowledgement { executed_us, durable_us, .. } = known.acknowledged;
        format!(
            "address={address} {state} lag_operations={operations} lag_seconds={seconds:.6} \
             executed_us={executed_us} durable_us={durable_us}"
        )
    }
}

impl Known {
    fn lag_operations(&self, tail: Tail) -> u64 {
        let unread = tail.entries.wrapping_sub(self.read_less_written);
        unread.saturating_add(self.sent).saturating_sub(self.acknowledged.executed)
    }

    fn lag(&self, tail: Tail, now_us: u64) -> Lag {
        let operations = self.lag_operations(tail);
        let known_us = self.acknowledged.executed_us.max(self.caught_up_us);
        let behind_us = if operations == 0 { 0 } else { now_us.saturating_sub(known_us) };
        Lag { operations, seconds: behind_us as f64 / 1e6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(entries: u64) -> Tail {
        Tail { entries, ..Tail::default() }
    }

    #[test]
    fn the_lag_is_what_was_not_read_and_what_was_sent_and_not_executed() {
        // Five entries were there before the log was opened.
        let mut known = Known { read_less_written: 0u64.wrapping_sub(5), ..Known::default() };
        assert_eq!(known.lag_operations(tail(10)), 15);
        // All are read, and three of them were not for this replica.
        known.read_less_written = 10;
        known.sent = 12;
        assert_eq!(known.lag_operations(tail(10)), 12);
        known.acknowledged =
            Acknowledgement { executed: 12, executed_us: 50, ..known.acknowledged };
        assert_eq!(known.lag(tail(10), 1_000_050), Lag { operations: 0, seconds: 0.0 });
        assert_eq!(known.lag(tail(11), 1_000_050), Lag { operations: 1, seconds: 1.0 });
        known.caught_up_us = 500_050;
        assert_eq!(known.lag(tail(11), 1_000_050), Lag { operations: 1, seconds: 0.5 });
    }

    #[test]
    fn what_was_not_sent_is_not_acknowledged() {
        let replica = Replica::new(2, "host:1".into(), true);
        replica.tell(7);
        replica.tell(5);
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
        replica.tell(7);
        replica.acknowledge(durable, tail(0)).expect("it was told of that");
        assert_eq!(replica.durable_us(), 7);
        replica.set_phase(Phase::Seeding { done: 1, total: 2 });
        assert_eq!(replica.durable_us(), 0);
        assert!(replica.describe(tail(0)).contains("state=seeding seeded=1 seeding=2"));
    }
}
