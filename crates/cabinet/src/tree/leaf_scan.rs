//! Leaf scan: visits all leaves in order, each locked during its visit.

use super::leaf::{GONE, Handle, Leaf, State};
use super::{TreeDatabase, TreeEngine};
use crate::{Error, RecordRef, Result};
use std::sync::Arc;

/// Callback of a scan for each leaf. Gets the leaf, the state that its lock protects, and its lower
/// bound (empty for the first leaf).
pub(super) type Visit<'v> = dyn FnMut(&Arc<Leaf>, &mut State, &[u8]) -> Result<()> + 'v;

impl TreeDatabase {
    /// Calls `visit` with all records in order, including expired ones and duplicates. Fails if a
    /// page is damaged.
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
    /// Visits every leaf. The ranges of the visited leaves cover all keys and do not overlap, even
    /// if leaves are divided meanwhile: the scan continues at the upper bound of the last leaf. The
    /// caller holds `structure`, so no other thread joins or clears leaves.
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

    /// Returns the leaf that a key belongs to, or the first leaf.
    pub(super) fn handle_at(&self, from: Option<&[u8]>) -> Handle {
        let directory = self.directory.read();
        let index = from.map_or(directory.first(), |key| directory.find(key));
        directory.leaf(index).clone()
    }

    /// Returns the upper bound of the leaf that a key belongs to, or of the first leaf; `None` for
    /// the last leaf.
    pub(super) fn upper_of(&self, from: Option<&[u8]>) -> Option<Vec<u8>> {
        let directory = self.directory.read();
        let index = from.map_or(directory.first(), |key| directory.find(key));
        directory.upper(index).map(<[u8]>::to_vec)
    }

    /// Joins the next leaves to a locked leaf while they are small together.
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
            if !self.load_undamaged(leaf, state)? || !self.load_undamaged(&next.leaf, &mut right)? {
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

    /// Brings a page into memory for maintenance. Returns false if the page is damaged, which is
    /// noted: maintenance skips it and continues with the others.
    pub(super) fn load_undamaged(&self, leaf: &Arc<Leaf>, state: &mut State) -> Result<bool> {
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
