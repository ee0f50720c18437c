//! Expiry search: when an on-memory engine must look for expired records.
//!
//! Each write checks a few records in turn. Until the earliest expiry there is nothing to find, so
//! writes check none.

use crate::Meta;

/// Records that a write checks while some may have expired.
pub(super) const LOOKS_PER_WRITE: usize = 2;

/// Multiple of [`LOOKS_PER_WRITE`] that is checked in each part of a database without writes.
pub(super) const SEARCHES: usize = 64;

/// Lower bound of the expiries in a set of records.
#[derive(Debug)]
pub(super) struct Expiries {
    /// Time before which no record expires.
    earliest_ms: u64,
    /// Time before which no record expires that this round has checked, or that was stored since it
    /// began.
    round_earliest_ms: u64,
}

impl Default for Expiries {
    fn default() -> Self {
        Self { earliest_ms: u64::MAX, round_earliest_ms: u64::MAX }
    }
}

impl Expiries {
    /// Notes a record that was stored, or that the round checked and left.
    pub(super) fn note(&mut self, meta: Meta) {
        if meta.expires_at_ms != 0 {
            self.earliest_ms = self.earliest_ms.min(meta.expires_at_ms);
            self.round_earliest_ms = self.round_earliest_ms.min(meta.expires_at_ms);
        }
    }

    /// Returns whether any record can expire.
    pub(super) fn any(&self) -> bool {
        self.earliest_ms != u64::MAX
    }

    /// Returns whether some record may have expired by now.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        self.earliest_ms <= now_ms
    }

    /// Ends a round that has checked every record.
    pub(super) fn finish_round(&mut self) {
        self.earliest_ms = self.round_earliest_ms;
        self.round_earliest_ms = u64::MAX;
    }
}
