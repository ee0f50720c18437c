//! Byte cap of a table: evicts rows that were neither read nor written lately.
//!
//! The tree chooses the rows ([`crate::Ordered::evict`]). Each is removed like by any other change,
//! together with its postings. So a crash leaves a row with all its postings, or neither.
//!
//! Rows, blocks of postings and the table's notes count towards the cap. A share of the cap is
//! reserved for the notes of rows whose changed postings are in memory, and for these changes. The
//! lower the cap is, the earlier the changes are merged into blocks.
//!
//! A writer evicts before it takes a lock. The lock of eviction is taken before all other locks of
//! the table, except `building`.

use super::write::RowChange;
use super::{Table, keys};
use crate::engine::ordered::Eviction;
use crate::tree::{bytes_kept, records_bytes_max};
use crate::{Error, Ordered, Result, Version, Wait};

/// Divisor of the cap: the share that is reserved for changes of postings and their notes.
const UNFLUSHED_OF_CAP: u64 = 8;

/// Divisor of the cap: the share of changed postings in memory, and of their notes, above which
/// they are merged into blocks.
pub(super) const BUDGET_OF_CAP: u64 = 32;

impl Table {
    /// Evicts for a writer if the table is over its cap. Fails with [`Error::WouldBlock`] if the
    /// writer must not wait.
    pub(super) fn evict_for_writer(&self, wait: Wait) -> Result<()> {
        let Some(ordered) = self.engine.as_ordered() else { return Ok(()) };
        if self.excess_bytes(ordered, |max| max) == 0 || self.is_read_only {
            return Ok(());
        }
        if wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        match self.evict_rows(ordered) {
            // If the write needs space, it fails itself.
            Err(Error::NoSpace { .. }) => Ok(()),
            result => result,
        }
    }

    /// Returns the maximum bytes of a row, or of the rows of a batch.
    pub(super) fn rows_bytes_max(&self) -> usize {
        let cap = self.engine.as_ordered().and_then(Ordered::owned_cap);
        cap.map_or(usize::MAX, |(_, max)| records_bytes_max(max))
    }

    /// Returns the bytes of rows and blocks above the limit that `kept` computes from their share
    /// of the cap.
    fn excess_bytes(&self, ordered: &dyn Ordered, kept: impl Fn(u64) -> u64) -> u64 {
        let Some((bytes, max)) = ordered.owned_cap() else { return 0 };
        let notes = self.postings.noted_bytes() as u64;
        bytes.saturating_sub(notes).saturating_sub(kept(max - max / UNFLUSHED_OF_CAP))
    }

    fn evict_rows(&self, ordered: &dyn Ordered) -> Result<()> {
        let excess_bytes = || self.excess_bytes(ordered, bytes_kept);
        let end = [keys::ROWS + 1];
        let is_tried = ordered.evict(Eviction {
            keys: &[keys::ROWS]..&end,
            excess_bytes: &excess_bytes,
            remove: &mut |key, version| self.evict_row(&key[1..], version),
        })?;
        if is_tried && excess_bytes() > 0 {
            // Few rows are left, and blocks still have postings of removed rows.
            self.postings.flush()?;
        }
        Ok(())
    }

    /// Removes a row if it still has this version. Keeps it if it is damaged or has too many
    /// postings for a batch. Returns whether it was removed.
    fn evict_row(&self, primary: &[u8], version: Version) -> Result<bool> {
        let removed = self.change_within_cap(primary, Wait::Block, &mut |old| {
            let is_old = old.is_some_and(|(_, of_row)| of_row == version);
            Ok(if is_old { (RowChange::Remove, true) } else { (RowChange::Keep, false) })
        });
        match removed {
            Err(Error::Corrupted { .. } | Error::BatchTooLong { .. }) => Ok(false),
            Ok((true, _)) => {
                if let Some(reports) = self.engine.reports() {
                    reports.evicted.report(primary);
                }
                Ok(true)
            }
            removed => removed.map(|(is_removed, _)| is_removed),
        }
    }
}
