//! The cap on the bytes of a table: over it go the rows that were neither read nor written lately.
//!
//! The tree beneath knows which rows these are ([`crate::Ordered::evict`]). Each is removed as by
//! any other change, so its postings go with it, and a crash leaves a row with its postings or
//! neither.
//!
//! Rows, blocks of postings and the table's notes count. A part of the cap is left for what a
//! change does not free, or does not take, at once: the notes of rows whose postings are in memory,
//! and the changes of these postings. Both are taken into blocks the earlier the lower the cap is.
//!
//! A writer evicts before it takes a lock. The lock of the eviction comes before all others of the
//! table but `building`.

use super::write::RowChange;
use super::{Table, keys};
use crate::engine::ordered::Eviction;
use crate::tree::{bytes_kept, records_bytes_max};
use crate::{Error, Ordered, Result, Version, Wait};

/// Part of the cap that is left for changes of postings and their notes.
const UNFLUSHED_OF_CAP: u64 = 8;

/// The changes of postings in memory, and their notes, are taken into blocks from this part of the
/// cap on.
pub(super) const BUDGET_OF_CAP: u64 = 32;

impl Table {
    /// Has a writer evict first, if the table is over its cap.
    pub(super) fn evict_for_writer(&self, wait: Wait) -> Result<()> {
        let Some(ordered) = self.engine.as_ordered() else { return Ok(()) };
        if self.excess_bytes(ordered, |max| max) == 0 || self.is_read_only {
            return Ok(());
        }
        if wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        match self.evict_rows(ordered) {
            // Then the write itself fails, if it needs space.
            Err(Error::NoSpace { .. }) => Ok(()),
            result => result,
        }
    }

    /// Most bytes of a row, or of the rows of a batch.
    pub(super) fn rows_bytes_max(&self) -> usize {
        let cap = self.engine.as_ordered().and_then(Ordered::owned_cap);
        cap.map_or(usize::MAX, |(_, max)| records_bytes_max(max))
    }

    /// Bytes by which there are more than `kept` makes of those that rows and blocks may take.
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
            // There are few rows left, and blocks of those that were.
            self.postings.flush()?;
        }
        Ok(())
    }

    /// Removes a row that still has this version. One that cannot be read, or whose postings cannot
    /// be removed, stays.
    fn evict_row(&self, primary: &[u8], version: Version) -> Result<bool> {
        let removed = self.change_within_cap(primary, Wait::Block, &mut |old| {
            let is_old = old.is_some_and(|(_, of_row)| of_row == version);
            Ok(if is_old { (RowChange::Remove, true) } else { (RowChange::Keep, false) })
        });
        match removed {
            Err(Error::Corrupted { .. } | Error::BatchTooLong { .. }) => Ok(false),
            removed => removed.map(|(is_removed, _)| is_removed),
        }
    }
}
