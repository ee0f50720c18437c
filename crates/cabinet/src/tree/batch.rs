//! Batches: change many keys atomically, also across a crash.

use super::TreeEngine;
use super::leaf::{Handle, Leaf, State, StoredPage};
use super::leaf_access::stored_home;
use super::redo::Operation;
use crate::base::locks;
use crate::batch::BatchChange;
use crate::log::Purpose;
use crate::log::record::{Kind, Prepared};
use crate::{Batch, Compression, Error, Meta, Result, Version, Wait, engine::batch_plan};
use parking_lot::RwLockWriteGuard;
use std::sync::Arc;

/// A planned change of a batch.
struct LeafChange<'a> {
    /// Index of the key's leaf among the locked leaves.
    leaf: usize,
    key: &'a [u8],
    value: &'a [u8],
    meta: Meta,
    operation: Operation,
    /// Value of the change's record in the log.
    redo: Vec<u8>,
}

impl TreeEngine {
    /// Applies a batch. Locks all its leaves in their order. Single changes hold one lock each, so
    /// they cannot deadlock with that.
    pub(super) fn write_batch(&self, batch: &Batch, wait: Wait) -> Result<()> {
        self.log.check_space_at_once(batch.check_length()?, wait)?;
        self.check_batch_cap(batch)?;
        self.pause_if_behind(wait)?;
        let compare = |left: &&[u8], right: &&[u8]| self.order.compare(left, right);
        let keys = batch_plan::lock_order(batch_plan::keys(batch).collect(), compare);
        let read = || {
            let (handles, _) = self.handles_of(&keys);
            handles.iter().try_for_each(|handle| self.bring(&handle.leaf))
        };
        batch_plan::read_then_write(wait, read, |reads| self.write_once(batch, &keys, reads, wait))
    }

    /// Applies a batch whose keys are `keys`, in order. Reads pages under the locks only if `reads`
    /// allows it, and waits for the locks only if `wait` does.
    fn write_once(&self, batch: &Batch, keys: &[&[u8]], reads: Wait, wait: Wait) -> Result<()> {
        loop {
            let (handles, leaf_of) = self.handles_of(keys);
            let mut states = Vec::with_capacity(handles.len());
            for handle in &handles {
                let state = locks::write(&handle.leaf, wait)?;
                if state.generation != handle.generation {
                    break;
                }
                states.push(state);
            }
            if states.len() < handles.len() {
                continue;
            }
            let is_stored = |state: &RwLockWriteGuard<'_, State>| stored_home(state).is_some();
            if reads == Wait::Never && states.iter().any(is_stored) {
                return Err(Error::WouldBlock);
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
                self.enforce_capacity(wait);
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

    /// Returns the leaves of sorted keys, each once, and for each key the index of its leaf among
    /// them.
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
        batch_plan::check_expected(&batch.expected, |key| {
            Ok(self.version_of(&mut states[leaf_of(key)], key))
        })?;
        // All steps that can fail come before the first change.
        let planned = self.planned(batch, states, leaf_of)?;
        if planned.is_empty() {
            return Ok(());
        }
        let mut records: Vec<Prepared<'_>> = planned
            .iter()
            .map(|change| {
                self.log.prepare(
                    Kind::Put,
                    change.key,
                    &change.redo,
                    change.meta,
                    Compression::None,
                )
            })
            .collect();
        let only_removes = batch.removes || planned.iter().all(|change| change.operation.removes());
        let purpose = if only_removes { Purpose::Remove } else { Purpose::Store };
        let appended = self.log.append_batch(&mut records, purpose)?;
        for (change, (appended, _)) in planned.iter().zip(appended) {
            let LeafChange { leaf, key, value, meta, operation, .. } = change;
            self.apply(&mut states[*leaf], *operation, key, value, *meta, appended.sequence);
        }
        Ok(())
    }

    fn version_of(&self, state: &mut State, key: &[u8]) -> Option<Version> {
        let view = state.loaded()?.page.view();
        let group = view.group(self.order, key);
        self.live(view, group).next().map(|(_, entry)| entry.version)
    }

    /// Returns the last change of each key, without removals of keys that do not exist.
    fn planned<'a>(
        &self,
        batch: &'a Batch,
        states: &mut [RwLockWriteGuard<'_, State>],
        leaf_of: &dyn Fn(&[u8]) -> usize,
    ) -> Result<Vec<LeafChange<'a>>> {
        let changes = batch_plan::last_changes(batch, self.order);
        let mut planned = Vec::with_capacity(changes.len());
        for (key, change) in changes {
            let leaf = leaf_of(key);
            self.remove_expired_of(&mut states[leaf], key)?;
            let Some(loaded) = states[leaf].loaded() else { continue };
            let records = loaded.page.view().group(self.order, key).len();
            let exists = records > 0;
            let (operation, value, meta) = match change {
                BatchChange::Put(value, meta) if exists => (Operation::Replace(0), value, meta),
                BatchChange::Put(value, meta) => (Operation::Insert(0), value, meta),
                BatchChange::Remove if exists => (Operation::Remove(0), &[][..], Meta::NONE),
                BatchChange::Remove => continue,
            };
            let group = self.group(&mut states[leaf], key);
            self.check_cap(&mut states[leaf], operation, &group, key, value)?;
            let operation = operation.on(records);
            let redo = operation.encode(value, <[u8]>::to_vec);
            planned.push(LeafChange { leaf, key, value, meta, operation, redo });
        }
        batch_plan::longest_last(&mut planned, |change| change.redo.len());
        Ok(planned)
    }
}
