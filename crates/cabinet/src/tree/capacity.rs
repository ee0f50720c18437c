//! The cap on records: over it the smallest keys go.
//!
//! As in the original it is looked at when a leaf is divided, so there may be as many records more as
//! a leaf has.

use super::Shared;
use super::redo::Operation;
use crate::{Meta, Result};
use std::sync::atomic::Ordering;

impl Shared {
    /// Removes the first records until there are no more than the cap. What prevents that is no
    /// failure of the write that it follows.
    pub(super) fn keep_to_capacity(&self) {
        if self.is_over_capacity()
            && let Err(error) = self.remove_first_records()
        {
            tracing::warn!("{} is over its cap: {error}", self.log.directory().display());
        }
    }

    fn is_over_capacity(&self) -> bool {
        self.records.load(Ordering::Relaxed) > self.capacity_records
    }

    fn remove_first_records(&self) -> Result<()> {
        let mut from: Option<Vec<u8>> = None;
        while self.is_over_capacity() {
            let handle = self.handle_at(from.as_deref());
            let mut state = handle.leaf.write();
            if state.generation != handle.generation {
                continue;
            }
            // Of a leaf that is damaged nothing can be removed, but of the next.
            let is_whole = self.load_for_care(&handle.leaf, &mut state)?;
            while is_whole && self.is_over_capacity() {
                let Some(loaded) = state.loaded().filter(|loaded| loaded.page.len() > 0) else {
                    break;
                };
                let key = loaded.page.view().key(0).to_vec();
                let group = self.group(&mut state, &key);
                self.make(&mut state, Operation::Remove(0), group, &key, &[], Meta::NONE)?;
            }
            self.settle(&mut state);
            // Nobody changes the bounds of a locked leaf.
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
