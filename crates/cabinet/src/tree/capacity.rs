//! Record cap: removes the first keys of a tree with too many records.
//!
//! As in Tokyo Cabinet, the cap is enforced when a leaf is divided, so the records of one leaf may
//! exceed it. The removal may read the pages of the first leaves from the disk. A writer that must
//! not wait for the disk leaves it to the next writer. Until it is done, writers that must not wait
//! are refused.

use super::TreeEngine;
use super::redo::Operation;
use crate::{Error, Meta, Result, Wait};
use std::sync::atomic::{AtomicBool, Ordering};

/// A cap on records.
pub(super) struct RecordCap {
    /// Cap on records; `u64::MAX` if there is none.
    pub(super) records_max: u64,
    /// Whether the next writer must remove the records over the cap.
    is_due: AtomicBool,
}

impl RecordCap {
    pub(super) fn new(records_max: u64) -> Self {
        Self { records_max, is_due: AtomicBool::new(false) }
    }

    /// Returns whether a writer has left records over the cap.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }
}

impl TreeEngine {
    /// Removes the first records until there are no more than the cap. An error is logged, and does
    /// not fail the write before it.
    pub(super) fn enforce_capacity(&self, wait: Wait) {
        if !self.is_over_capacity() {
            return;
        }
        if wait == Wait::Never {
            self.record_cap.is_due.store(true, Ordering::Relaxed);
        } else if let Err(error) = self.remove_first_records() {
            tracing::warn!("{} is over its cap: {error}", self.log.directory().display());
        }
    }

    /// Removes the records that a writer has left over the cap. Fails with [`Error::WouldBlock`] if
    /// the caller must not wait.
    pub(super) fn catch_up_with_capacity(&self, wait: Wait) -> Result<()> {
        if !self.record_cap.is_due() {
            return Ok(());
        }
        if wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        if self.record_cap.is_due.swap(false, Ordering::Relaxed) {
            self.enforce_capacity(wait);
        }
        Ok(())
    }

    fn is_over_capacity(&self) -> bool {
        self.records.load(Ordering::Relaxed) > self.record_cap.records_max
    }

    fn remove_first_records(&self) -> Result<()> {
        let mut from: Option<Vec<u8>> = None;
        while self.is_over_capacity() {
            let handle = self.handle_at(from.as_deref());
            let mut state = handle.leaf.write();
            if state.generation != handle.generation {
                continue;
            }
            // No record can be removed from a damaged leaf, so the next leaf is used.
            let is_whole = self.load_undamaged(&handle.leaf, &mut state)?;
            while is_whole && self.is_over_capacity() {
                let Some(loaded) = state.loaded().filter(|loaded| loaded.page.len() > 0) else {
                    break;
                };
                let key = loaded.page.view().key(0).to_vec();
                let group = self.group(&mut state, &key);
                let is_last = group.len() == 1;
                self.make(&mut state, Operation::Remove(0), group, &key, &[], Meta::NONE)?;
                if is_last {
                    self.clock.report_evicted(&key);
                }
            }
            self.complete_change(&mut state);
            // The bounds of a locked leaf do not change.
            from = self.upper_of(from.as_deref());
            drop(state);
            self.evict();
            if from.is_none() {
                return Ok(());
            }
        }
        Ok(())
    }
}
