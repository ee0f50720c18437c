//! When it is worth looking for expired records.
//!
//! Writers look at a few records each, going around. As long as the earliest expiry lies ahead
//! there is nothing to find, and they need not look.

use crate::Meta;

/// Records that a write looks at while there may be expired ones.
pub(super) const LOOKS_PER_WRITE: usize = 2;

/// How often as many are looked at, of each part of a database, where nobody writes.
pub(super) const SEARCHES: usize = 64;

/// Lower bound of the expiries in a set of records.
#[derive(Debug)]
pub(super) struct Expiries {
    /// No record expires before this.
    earliest_ms: u64,
    /// No record that this round has seen, or that came since it began, expires before this.
    round_earliest_ms: u64,
}

impl Default for Expiries {
    fn default() -> Self {
        Self { earliest_ms: u64::MAX, round_earliest_ms: u64::MAX }
    }
}

impl Expiries {
    /// A record was stored, or was met on the round and left.
    pub(super) fn note(&mut self, meta: Meta) {
        if meta.expires_at_ms != 0 {
            self.earliest_ms = self.earliest_ms.min(meta.expires_at_ms);
            self.round_earliest_ms = self.round_earliest_ms.min(meta.expires_at_ms);
        }
    }

    /// Whether any record can expire at all.
    pub(super) fn any(&self) -> bool {
        self.earliest_ms != u64::MAX
    }

    /// Whether some record may have expired by now.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        self.earliest_ms <= now_ms
    }

    /// The round has met every record.
    pub(super) fn finish_round(&mut self) {
        self.earliest_ms = self.round_earliest_ms;
        self.round_earliest_ms = u64::MAX;
    }
}
