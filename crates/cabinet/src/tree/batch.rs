//! Batches: many keys change together, also across a crash.

use super::TreeEngine;
use super::leaf::{Handle, Leaf, State, StoredPage};
use super::leaf_access::stored_home;
use super::redo::Operation;
use crate::batch::BatchChange;
use crate::log::Purpose;
use crate::log::record::{Kind, Prepared};
use crate::{Batch, Compression, Error, Meta, Result, Version, Wait};
use parking_lot::RwLockWriteGuard;
use std::sync::Arc;

/// How often pages are read before the locks are taken, and may be out of memory again by then.
/// After that they are read under the locks.
const TRIES_MAX: usize = 3;

/// One change as it will be written.
struct Step<'a> {
    /// Which of the locked leaves.
    leaf: usize,
    key: &'a [u8],
    value: &'a [u8],
    meta: Meta,
    operation: Operation,
    /// Value of the change's record in the log.
    redo: Vec<u8>,
}

impl TreeEngine {
    /// Applies a batch. All leaves it touches are locked, in their order, which single changes,
    /// having one lock each, cannot come across.
    pub(super) fn write_batch(&self, batch: &Batch) -> Result<()> {
        batch.check_length()?;
        self.check_batch_cap(batch)?;
        self.pause_if_behind(Wait::Block)?;
        let changes = batch.changes.iter().map(|(key, _)| &key[..]);
        let mut keys: Vec<&[u8]> =
            changes.chain(batch.expected.iter().map(|(key, _)| &key[..])).collect();
        keys.sort_by(|left, right| self.order.compare(left, right));
        keys.dedup_by(|left, right| self.order.compare(left, right).is_eq());
        let mut tries = 0;
        loop {
            let (handles, leaf_of) = self.handles_of(&keys);
            tries += 1;
            if tries <= TRIES_MAX {
                handles.iter().try_for_each(|handle| self.bring(&handle.leaf))?;
            }
            let mut states = Vec::with_capacity(handles.len());
            for handle in &handles {
                let state = handle.leaf.write();
                if state.generation != handle.generation {
                    break;
                }
                states.push(state);
            }
            let is_gone_again = |state: &RwLockWriteGuard<'_, State>| stored_home(state).is_some();
            if states.len() < handles.len()
                || tries <= TRIES_MAX && states.iter().any(is_gone_again)
            {
                continue;
            }
            let leaf_of = |key: &[u8]| {
                let place = keys.binary_search_by(|other| self.order.compare(other, key));
                place.map_or(0, |place| leaf_of[place])
            };
            let result = self.write_locked(batch, &handles, &mut states, &leaf_of);
            let divided =
                states.iter_mut().filter_map(|state| self.complete_change(state).then_some(()));
            let is_divided = divided.count() > 0;
            drop(states);
            self.evict();
            if is_divided {
                self.enforce_capacity(Wait::Block);
            }
            return result;
        }
    }

    /// Brings the page of a leaf into memory, without holding its lock while waiting for the disk.
    fn bring(&self, leaf: &Arc<Leaf>) -> Result<()> {
        let state = leaf.read();
        if let Some(home) = stored_home(&state) {
            let (segments, page) = (self.log.segments(), StoredPage::of(&state, home));
            drop(state);
            let page = self.fetch(&segments, page, Wait::Block)?;
            self.install(leaf, &mut leaf.write(), home, page);
        }
        Ok(())
    }

    /// The leaves of keys that are in order, each once, and which of them each key has.
    fn handles_of(&self, keys: &[&[u8]]) -> (Vec<Handle>, Vec<usize>) {
        let directory = self.directory.read();
        let mut handles: Vec<Handle> = Vec::new();
        let mut leaf_of = Vec::with_capacity(keys.len());
        for key in keys {
            let handle = directory.leaf(directory.find(key));
            if handles.last().is_none_or(|last| !Arc::ptr_eq(&last.leaf, &handle.leaf)) {
                handles.push(handle.clone());
            }
            leaf_of.push(handles.len() - 1);
        }
        (handles, leaf_of)
    }

    fn write_locked(
        &self,
        batch: &Batch,
        handles: &[Handle],
        states: &mut [RwLockWriteGuard<'_, State>],
        leaf_of: &dyn Fn(&[u8]) -> usize,
    ) -> Result<()> {
        for (handle, state) in handles.iter().zip(states.iter_mut()) {
            self.load(&handle.leaf, state)?;
        }
        for (key, expected) in &batch.expected {
            if self.version_of(&mut states[leaf_of(key)], key) != *expected {
                return Err(Error::Conflict);
            }
        }
        // All that can fail comes before the first change.
        let steps = self.steps(batch, states, leaf_of)?;
        if steps.is_empty() {
            return Ok(());
        }
        let mut records: Vec<Prepared<'_>> = steps
            .iter()
            .map(|step| {
                self.log.prepare(Kind::Put, step.key, &step.redo, step.meta, Compression::None)
            })
            .collect();
        let mut sequences = vec![0; steps.len()];
        let only_removes = batch.removes || steps.iter().all(|step| step.operation.removes());
        let purpose = if only_removes { Purpose::Remove } else { Purpose::Store };
        self.log.append_batch(&mut records, purpose, |index, appended| {
            sequences[index] = appended.sequence;
        })?;
        for (step, sequence) in steps.iter().zip(sequences) {
            let Step { leaf, key, value, meta, operation, .. } = step;
            self.apply(&mut states[*leaf], *operation, key, value, *meta, sequence);
        }
        Ok(())
    }

    fn version_of(&self, state: &mut State, key: &[u8]) -> Option<Version> {
        let view = state.loaded()?.page.view();
        let group = view.group(self.order, key);
        self.live(view, group).next().map(|(_, entry)| entry.version)
    }

    /// The last change of each key, less removals of what does not exist.
    fn steps<'a>(
        &self,
        batch: &'a Batch,
        states: &mut [RwLockWriteGuard<'_, State>],
        leaf_of: &dyn Fn(&[u8]) -> usize,
    ) -> Result<Vec<Step<'a>>> {
        let mut changes: Vec<&(Vec<u8>, BatchChange)> = batch.changes.iter().rev().collect();
        changes.sort_by(|(left, _), (right, _)| self.order.compare(left, right));
        changes.dedup_by(|(left, _), (right, _)| self.order.compare(left, right).is_eq());
        let mut steps = Vec::with_capacity(changes.len());
        for (key, change) in changes {
            let leaf = leaf_of(key);
            self.remove_expired_of(&mut states[leaf], key)?;
            let Some(loaded) = states[leaf].loaded() else { continue };
            let records = loaded.page.view().group(self.order, key).len();
            let exists = records > 0;
            let (operation, value, meta) = match change {
                BatchChange::Put(value, meta) if exists => {
                    (Operation::Replace(0), &value[..], *meta)
                }
                BatchChange::Put(value, meta) => (Operation::Insert(0), &value[..], *meta),
                BatchChange::Remove if exists => (Operation::Remove(0), &[][..], Meta::NONE),
                BatchChange::Remove => continue,
            };
            let group = self.group(&mut states[leaf], key);
            self.check_cap(&mut states[leaf], operation, &group, key, value)?;
            let operation = operation.on(records);
            let redo = operation.encode(value, <[u8]>::to_vec);
            steps.push(Step { leaf, key, value, meta, operation, redo });
        }
        // Their order means nothing, but the log wants the longest one last.
        if let Some(longest) = (0..steps.len()).max_by_key(|index| steps[*index].redo.len()) {
            let last = steps.len() - 1;
            steps.swap(longest, last);
        }
        Ok(steps)
    }
}
