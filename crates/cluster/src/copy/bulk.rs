//! Puts of a copy into an empty database in strict mode: plain writes in place of transactions,
//! which cost several times as much. They need no condition, since no other client writes then.
//!
//! A write has a time stamp a day before the present time of a node. So a transaction that changes
//! the record later wins, unless the clocks of the nodes differ by a day. An earlier removal would
//! win, too, so the tables are truncated when the copy begins.

use super::repeat;
use crate::entry_name;
use crate::error::{Error, Result};
use crate::name::Mode;
use crate::records::{BulkPut, new_record, now_ms};
use crate::shared::Shared;
use crate::store::ClusterStore;
use cabinet::Meta;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Time by which the time stamps are behind, in microseconds.
const BEHIND_US: i64 = 24 * 60 * 60 * 1_000_000;

/// Clock of the time stamps. Each is greater than the one before.
#[derive(Debug)]
pub(super) struct BulkClock {
    /// Time stamp of `since`, in microseconds since 1970.
    base_us: i64,
    since: Instant,
    last_us: AtomicI64,
}

impl BulkClock {
    fn at(node_us: i64) -> Self {
        let base_us = node_us - BEHIND_US;
        Self { base_us, since: Instant::now(), last_us: AtomicI64::new(base_us) }
    }

    fn next_us(&self) -> i64 {
        let elapsed = i64::try_from(self.since.elapsed().as_micros()).unwrap_or(0);
        let now = self.base_us + elapsed;
        let after = |last: i64| (last + 1).max(now);
        let last = self
            .last_us
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)));
        last.map_or(now, after)
    }

    /// Returns the put of a record.
    pub(super) fn put(&self, shared: &Shared, value: Vec<u8>, meta: Meta) -> BulkPut {
        BulkPut {
            record: new_record(Arc::new(value), meta, 0),
            entry: shared.records.order().map(|_| entry_name::new(now_ms(), meta.expires_at_ms)),
            timestamp_us: self.next_us(),
        }
    }
}

impl ClusterStore {
    /// Prepares an empty database for a copy: removes all that it has had, which needs all nodes.
    /// Does nothing if the copy is made without plain writes, or the mode is plain anyway.
    pub fn empty(&self, patience: Duration) -> Result<()> {
        let shared = self.shared();
        if !is_bulk(shared) {
            return Ok(());
        }
        self.runtime()?.block_on(async { repeat!(patience, shared.clear()) })
    }

    /// Returns the clock of a copy, if it can be made with plain writes.
    pub(super) fn bulk_clock(&self) -> Result<Option<Arc<BulkClock>>> {
        let shared = self.shared();
        if !is_bulk(shared) {
            return Ok(None);
        }
        let statement = "SELECT toUnixTimestamp(now()) FROM system.local";
        let read = shared.cluster.find::<(i64,)>(statement);
        let (node_ms,) = self.runtime()?.block_on(read)?.ok_or_else(|| Error::Statement {
            statement: statement.to_owned(),
            reason: "there is no row".to_owned(),
        })?;
        Ok(Some(Arc::new(BulkClock::at(node_ms.saturating_mul(1000)))))
    }
}

/// Returns whether a copy into an empty database is made with plain writes.
fn is_bulk(shared: &Shared) -> bool {
    shared.name.mode == Mode::Strict && shared.rows.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stamps_grow_and_are_a_day_behind() {
        const NODE_US: i64 = 1_790_000_000_000_000;
        let clock = BulkClock::at(NODE_US);
        let stamps: Vec<i64> = (0..10_000).map(|_| clock.next_us()).collect();
        assert!(stamps.is_sorted_by(|a, b| a < b));
        assert!(stamps[0] > NODE_US - BEHIND_US);
        let elapsed = i64::try_from(clock.since.elapsed().as_micros()).unwrap();
        assert!(stamps[9999] <= NODE_US - BEHIND_US + elapsed + 10_000);
    }
}
