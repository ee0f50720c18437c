//! Replace all: removes all records, and may store others in their place.
//!
//! To clear the tree, the log begins a segment that says that all before it is void. If other
//! records replaced the old ones in this way, a crash could leave the tree empty. So a replacement
//! writes a checkpoint that lists one leaf with the new records. Before the checkpoint gets its
//! name, all records are the old ones, and after that all are the new ones. The leaf's sequence
//! number is after all changes logged so far, so replay skips them.

use super::checkpoint::{Line, pack};
use super::directory::Directory;
use super::leaf::{Content, GONE, Handle, State};
use super::page::Page;
use super::redo::Operation;
use super::{NEVER_MS, TreeEngine};
use crate::log::Purpose;
use crate::log::record::{Kind, RECORD_BYTES_MAX};
use crate::{Batch, BatchChange, Compression, Error, Meta, Result, Version, Wait};
use parking_lot::RawRwLock;
use parking_lot::lock_api::ArcRwLockWriteGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

type LockedLeaf = ArcRwLockWriteGuard<RawRwLock, State>;

impl TreeEngine {
    /// Removes all records.
    pub(super) fn clear(&self) -> Result<()> {
        let _structure = self.structure.lock();
        let first = {
            let leaves = self.lock_all();
            let first = self.log.clear()?;
            // No change is appended while all leaves are locked.
            self.replayed_bytes.store(0, Ordering::Relaxed);
            self.passed_bytes.store(self.replay_bytes(), Ordering::Relaxed);
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            self.reset(leaves, State::fresh(id, Page::default(), NEVER_MS));
            first
        };
        self.cache.forget_gone();
        self.log.remove_before(first)
    }

    /// Removes all records, and stores those that a batch puts, atomically. If the disk has no
    /// space for that, the tree is cleared first, and the batch is written after that.
    pub(super) fn replace_all(&self, batch: &Batch) -> Result<()> {
        match self.replace_at_once(batch) {
            Err(Error::NoSpace { .. }) => {
                self.clear()?;
                self.write_batch(batch, Wait::Block)
            }
            result => result,
        }
    }

    fn replace_at_once(&self, batch: &Batch) -> Result<()> {
        self.check_batch_cap(batch)?;
        let _structure = self.structure.lock();
        // The removed records are then in segments that will be removed.
        self.log.seal()?;
        let first = self.log.active_number();
        let mut replacement = None;
        let mut passed_bytes = 0;
        let written = self.log.write_checkpoint(|block| {
            passed_bytes = self.passed_bytes.load(Ordering::Relaxed);
            let (leaves, state) = replacement.insert((self.lock_all(), self.page_of(batch)?));
            debug_assert!(!leaves.is_empty());
            let line = Line {
                lower: Box::default(),
                id: state.id,
                home: self.write_out(state)?,
                records: state.records() as u32,
                bytes: state.bytes() as u32,
                applied: state.applied(),
                expires_at_ms: state.expires_at_ms,
            };
            let mut lines = Vec::new();
            line.encode(&mut lines);
            block(&pack(&mut lines)).map(drop)
        });
        let Some((leaves, state)) = replacement else { return written };
        let segments = self.log.segments();
        let forget = |state: &State| {
            if let Some(home) = state.home() {
                segments.remove_live(home.location, home.total as usize);
            }
        };
        if let Err(error) = written {
            forget(&state);
            return Err(error);
        }
        leaves.iter().for_each(|leaf| forget(leaf));
        drop(segments);
        self.reset(leaves, state);
        self.cache.forget_gone();
        self.note_checkpoint(passed_bytes);
        self.log.remove_segments(&|segment| segment.number < first)
    }

    /// Returns a leaf with the records that a batch puts, all of one version. It counts as having
    /// all changes so far.
    fn page_of(&self, batch: &Batch) -> Result<State> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let version = self.next_version(id)?;
        let mut page = Page::default();
        page.applied = version;
        let mut expires_at_ms = NEVER_MS;
        for (key, change) in batch.changes() {
            let group = page.view().group(self.order, key);
            let (operation, value, meta) = match change {
                BatchChange::Remove => (Operation::RemoveAll, &[][..], Meta::NONE),
                BatchChange::Put(value, meta) if group.is_empty() => {
                    (Operation::Insert(0), value, meta)
                }
                BatchChange::Put(value, meta) => (Operation::Replace(0), value, meta),
            };
            if meta.expires_at_ms != 0 {
                expires_at_ms = expires_at_ms.min(meta.expires_at_ms);
            }
            operation.apply(&mut page, self.order, group, key, value, meta, version);
        }
        if page.bytes() > RECORD_BYTES_MAX {
            return Err(Error::BatchTooLong { bytes: page.bytes(), max: RECORD_BYTES_MAX });
        }
        Ok(State::fresh(id, page, expires_at_ms))
    }

    /// Returns a sequence number after all changes so far: that of an empty page that no checkpoint
    /// lists.
    fn next_version(&self, id: u64) -> Result<Version> {
        let (key, empty) = (id.to_le_bytes(), Page::default().encode());
        let record = self.log.prepare(Kind::Page, &key, &empty, Meta::NONE, Compression::None);
        Ok(self.log.append(record, Purpose::Move)?.sequence)
    }

    /// Locks all leaves, in their order. The caller holds `structure`.
    fn lock_all(&self) -> Vec<LockedLeaf> {
        let mut leaves = Vec::new();
        let mut from: Option<Vec<u8>> = None;
        loop {
            let handle = self.handle_at(from.as_deref());
            let state = handle.leaf.write_arc();
            if state.generation != handle.generation {
                continue;
            }
            from = self.upper_of(from.as_deref());
            leaves.push(state);
            if from.is_none() {
                return leaves;
            }
        }
    }

    /// Replaces all leaves, which are locked, by one.
    fn reset(&self, mut leaves: Vec<LockedLeaf>, mut state: State) {
        for state in &mut leaves {
            if let Some(loaded) = state.loaded() {
                self.discharge(loaded);
            }
            state.content = Content::Loaded(Box::default());
            state.generation = GONE;
            self.count(state);
        }
        self.records.store(state.records() as u64, Ordering::Relaxed);
        self.next_expiry_ms.store(state.expires_at_ms, Ordering::Relaxed);
        if let Some(loaded) = state.loaded() {
            self.charge(loaded);
        }
        self.count(&mut state);
        let handle = Handle::new(state);
        self.cache.enter(Arc::clone(&handle.leaf));
        let all = Directory::new(self.order, handle);
        // The old directory is freed after its lock is released.
        let mut directory = self.directory.write();
        let gone = std::mem::replace(&mut *directory, all);
        self.cache.note_directory(&directory);
        drop(directory);
        drop(gone);
    }
}
