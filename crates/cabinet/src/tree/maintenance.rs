//! Maintenance: sweeps expired records, reclaims space and closes the tree.

use super::leaf::State;
use super::redo::Operation;
use super::{NEVER_MS, SWEEPING_MS, TreeEngine};
use crate::log::record::Record;
use crate::log::{Location, Log, Maintained, Relocate, SHORT_SEGMENTS_MAX, Segment};
use crate::{Meta, Result};
use std::sync::atomic::Ordering;

/// Minimum time between two sweeps for expired records, in milliseconds.
const SWEEP_INTERVAL_MS: u64 = 30_000;

/// Factor by which the redo may exceed the bytes after which a checkpoint is due, before writers
/// are slowed down.
const BEHIND_FACTOR: u64 = 3;

/// Like [`BEHIND_FACTOR`], for a tree with a cap on bytes, which bounds the files, too. A writer
/// then waits for the checkpoint.
const BEHIND_FACTOR_CAPPED: u64 = 2;

impl TreeEngine {
    /// Removes the expired duplicates of a key, so that duplicates are numbered without them.
    #[inline]
    pub(super) fn remove_expired_of(&self, state: &mut State, key: &[u8]) -> Result<()> {
        if state.expires_at_ms == NEVER_MS { Ok(()) } else { self.look_for_expired(state, key) }
    }

    fn look_for_expired(&self, state: &mut State, key: &[u8]) -> Result<()> {
        let now_ms = self.clock.now_ms();
        if state.expires_at_ms > now_ms {
            return Ok(());
        }
        let Some(loaded) = state.loaded() else { return Ok(()) };
        let view = loaded.page.view();
        let group = view.group(self.order, key);
        let start = group.start;
        let expired: Vec<usize> = group
            .rev()
            .filter(|index| view.record(*index).meta.is_expired(now_ms))
            .map(|index| index - start)
            .collect();
        for number in expired {
            let group = self.group(state, key);
            self.make(state, Operation::Remove(number), group, key, &[], Meta::NONE)?;
            self.expired.count_removed();
        }
        Ok(())
    }

    /// Removes all expired records of a leaf, or hands their keys over if others remove them. Notes
    /// when the leaf's next record expires.
    fn remove_expired(&self, state: &mut State, now_ms: u64) -> Result<()> {
        let Some(loaded) = state.loaded() else { return Ok(()) };
        let view = loaded.page.view();
        let expired: Vec<(Vec<u8>, usize)> = (0..view.len())
            .rev()
            .filter(|index| view.record(*index).meta.is_expired(now_ms))
            .map(|index| {
                let key = view.key(index);
                (key.to_vec(), index - view.lower_bound(self.order, key))
            })
            .collect();
        for (key, number) in expired {
            if self.clock.hand_over(&key) {
                continue;
            }
            let group = self.group(state, &key);
            self.make(state, Operation::Remove(number), group, &key, &[], Meta::NONE)?;
            self.expired.count_removed();
        }
        let Some(loaded) = state.loaded() else { return Ok(()) };
        let view = loaded.page.view();
        let times = (0..view.len()).map(|index| view.record(index).meta.expires_at_ms);
        state.expires_at_ms = times.filter(|time| *time != 0).min().unwrap_or(NEVER_MS);
        Ok(())
    }

    /// Reclaims all dead space.
    pub(super) fn optimize(&self) -> Result<()> {
        self.sweep(&|| true)?;
        self.log.seal()?;
        self.checkpoint(true)
    }

    /// Returns the bytes of redo after which a checkpoint is due. Also sets the bytes above which
    /// writers are slowed down.
    pub(super) fn note_due_bytes(&self) -> u64 {
        let due_bytes = self.due_bytes();
        if self.is_maintained.load(Ordering::Relaxed) {
            let is_capped = self.cap.is_capped();
            let factor = if is_capped { BEHIND_FACTOR_CAPPED } else { BEHIND_FACTOR };
            self.behind_bytes.store(factor * due_bytes, Ordering::Relaxed);
        }
        due_bytes
    }

    /// Writes a last checkpoint, so that the next opening is fast, and closes the log. No data is
    /// lost without it.
    pub(super) fn close(&self) -> Result<()> {
        self.log.commit().check()?;
        if !self.log.is_checkpointed() {
            // After this, the checkpoint appends no pages after its replay position.
            self.flush()?;
            self.checkpoint(false)?;
        }
        self.log.trim()?;
        self.log.sync()?;
        self.log.note_closed()
    }
}

/// The log neither moves nor evicts records of a tree: checkpoints move pages.
impl Relocate for TreeEngine {
    fn relocate(
        &self,
        _segment: &Segment,
        _location: Location,
        _record: &Record<'_>,
        _bytes: &[u8],
        _oldest: u64,
    ) -> Result<()> {
        Ok(())
    }

    fn forget(
        &self,
        _segment: &Segment,
        _location: Location,
        _record: &Record<'_>,
    ) -> Result<bool> {
        Ok(false)
    }

    fn forget_segment(&self, _segment: &Segment) -> Result<u64> {
        Ok(0)
    }

    fn checkpoint_bytes(&self) -> u64 {
        self.list_bytes.load(Ordering::Relaxed)
    }
}

impl Maintained for TreeEngine {
    fn log(&self) -> &Log {
        &self.log
    }

    fn sweep(&self, _go_on: &dyn Fn() -> bool) -> Result<()> {
        let now_ms = self.clock.now_ms();
        if self.next_expiry_ms.load(Ordering::Relaxed) > now_ms {
            return Ok(());
        }
        let _structure = self.structure.lock();
        self.next_expiry_ms.store(SWEEPING_MS, Ordering::Relaxed);
        self.scan_leaves(&mut |leaf, state, _| {
            if state.expires_at_ms <= now_ms && self.load_undamaged(leaf, state)? {
                self.remove_expired(state, now_ms)?;
            }
            if state.expires_at_ms != NEVER_MS {
                let again = state.expires_at_ms.max(now_ms.saturating_add(SWEEP_INTERVAL_MS));
                self.next_expiry_ms.fetch_min(again, Ordering::Relaxed);
            }
            Ok(())
        })?;
        let (swept, order) = (NEVER_MS, Ordering::Relaxed);
        // Keeps the earlier time if a record that expires was found or stored meanwhile.
        let _ = self.next_expiry_ms.compare_exchange(SWEEPING_MS, swept, order, order);
        Ok(())
    }

    fn is_capped(&self) -> bool {
        self.cap.is_capped()
    }

    fn enforce_cap(&self) -> Result<()> {
        self.enforce_byte_cap()
    }

    /// Does nothing: checkpoints reclaim space.
    fn compact(&self, _go_on: &dyn Fn() -> bool) -> Result<()> {
        Ok(())
    }

    fn checkpoint(&self) -> Result<()> {
        TreeEngine::checkpoint(self, false)
    }

    fn is_checkpoint_due(&self) -> bool {
        let due_bytes = self.note_due_bytes();
        self.is_worth_reclaiming() && self.log.is_disk_short()
            || self.replay_bytes() > due_bytes
            || self.log.segments_since_checkpoint() > SHORT_SEGMENTS_MAX
    }
}

/// Does one round of the background threads' work.
#[cfg(feature = "testing")]
pub(super) fn run_maintenance(engine: &TreeEngine) -> Result<()> {
    engine.log.maintain_segments()?;
    engine.sweep(&|| true)?;
    engine.enforce_byte_cap()?;
    if engine.is_checkpoint_due() { TreeEngine::checkpoint(engine, false) } else { Ok(()) }
}
