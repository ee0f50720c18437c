//! Going through all leaves in order, each locked while it is visited.

use super::leaf::{GONE, Handle, Leaf, State};
use super::{TreeDatabase, TreeEngine};
use crate::{Error, RecordRef, Result};
use std::sync::Arc;

/// Callback of a walk for each leaf. It gets the leaf, the state that its lock protects, and its
/// lower bound (empty for the first).
pub(super) type Visit<'v> = dyn FnMut(&Arc<Leaf>, &mut State, &[u8]) -> Result<()> + 'v;

impl TreeDatabase {
    /// Shows all records in order, expired ones and duplicates among them. No page may be
    /// damaged.
    pub(crate) fn each_record(
        &self,
        visit: &mut dyn FnMut(RecordRef<'_>) -> Result<()>,
    ) -> Result<()> {
        let _structure = self.engine.structure.lock();
        self.engine.scan_leaves(&mut |leaf, state, _| {
            self.engine.load(leaf, state)?;
            let Some(loaded) = state.loaded() else { return Ok(()) };
            let view = loaded.page.view();
            (0..view.len()).try_for_each(|number| visit(view.record(number)))
        })
    }
}

impl TreeEngine {
    /// Visits every leaf. The ranges of those visited cover all keys and do not overlap, whatever
    /// happens meanwhile: where one ends, the walk goes on. The caller holds `structure`, so
    /// nothing is joined or cleared beside it.
    pub(super) fn scan_leaves(&self, visit: &mut Visit<'_>) -> Result<()> {
        let mut from: Option<Vec<u8>> = None;
        loop {
            let handle = self.handle_at(from.as_deref());
            let mut state = handle.leaf.write();
            if state.generation != handle.generation {
                continue;
            }
            visit(&handle.leaf, &mut state, from.as_deref().unwrap_or_default())?;
            if let Some(loaded) = state.loaded() {
                self.charge(loaded);
            }
            self.count(&mut state);
            // The bounds of a locked leaf do not change.
            from = self.upper_of(from.as_deref());
            drop(state);
            self.evict();
            if from.is_none() {
                return Ok(());
            }
        }
    }

    /// The leaf that begins at a bound, or the first.
    pub(super) fn handle_at(&self, from: Option<&[u8]>) -> Handle {
        let directory = self.directory.read();
        let index = from.map_or(directory.first(), |key| directory.find(key));
        directory.leaf(index).clone()
    }

    /// The upper bound of that leaf.
    pub(super) fn upper_of(&self, from: Option<&[u8]>) -> Option<Vec<u8>> {
        let directory = self.directory.read();
        let index = from.map_or(directory.first(), |key| directory.find(key));
        directory.upper(index).map(<[u8]>::to_vec)
    }

    /// Joins a locked leaf with those behind it for as long as they are small together.
    pub(super) fn join(&self, leaf: &Arc<Leaf>, state: &mut State, lower: &[u8]) -> Result<()> {
        let is_first = self.is_first(leaf);
        while state.bytes() <= self.leaf_bytes / 4 {
            let next = {
                let directory = self.directory.read();
                let own = if is_first { directory.first() } else { directory.find(lower) };
                directory.next(own).map(|index| directory.leaf(index).clone())
            };
            let Some(next) = next else { return Ok(()) };
            let mut right = next.leaf.write();
            if right.generation != next.generation {
                continue;
            }
            if state.bytes() + right.bytes() > self.leaf_bytes / 2 {
                return Ok(());
            }
            if !self.load_for_care(leaf, state)? || !self.load_for_care(&next.leaf, &mut right)? {
                return Ok(());
            }
            let expires_at_ms = right.expires_at_ms;
            let (Some(left), Some(moved)) = (state.loaded(), right.loaded()) else {
                return Ok(());
            };
            self.forget_home(left);
            self.forget_home(moved);
            let page = std::mem::take(&mut moved.page);
            self.discharge(moved);
            left.page.extend(self.order, page.view(), 0..page.len());
            left.page.applied = left.page.applied.max(page.applied);
            state.expires_at_ms = state.expires_at_ms.min(expires_at_ms);
            state.oldest = state.oldest.min(right.oldest);
            right.generation = GONE;
            self.count(&mut right);
            let mut directory = self.directory.write();
            let own = if is_first { directory.first() } else { directory.find(lower) };
            if let Some(next) = directory.next(own) {
                directory.remove(next);
            }
            self.cache.note_directory(&directory);
            let handle = directory.leaf_mut(own);
            handle.generation = (handle.generation + 1) % GONE;
            state.generation = handle.generation;
            drop((directory, right));
            self.cache.note_gone();
        }
        Ok(())
    }

    /// Brings a page into memory; says whether that could be done. One that is damaged was noted
    /// and is left alone: the care of the others goes on.
    pub(super) fn load_for_care(&self, leaf: &Arc<Leaf>, state: &mut State) -> Result<bool> {
        match self.load(leaf, state) {
            Err(Error::Corrupted { .. }) => Ok(false),
            result => result.map(|()| true),
        }
    }

    fn is_first(&self, leaf: &Arc<Leaf>) -> bool {
        let directory = self.directory.read();
        Arc::ptr_eq(&directory.leaf(directory.first()).leaf, leaf)
    }
}
