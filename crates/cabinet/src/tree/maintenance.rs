//! Maintenance, which keeps a tree in order beside its callers: sweeping, reclaiming, closing.

use super::leaf::State;
use super::redo::Operation;
use super::{NEVER_MS, SWEEPING_MS, TreeEngine};
use crate::log::record::Record;
use crate::log::{Location, Log, Maintained, Relocate, SHORT_SEGMENTS_MAX, Segment, Unsealed};
use crate::{Meta, Result};
use std::sync::atomic::Ordering;

/// The leaves are not gone through for expired records more often than this, in milliseconds.
const SWEEP_INTERVAL_MS: u64 = 30_000;

/// Writers are slowed down once so many times the bytes of redo are there after which a
/// checkpoint is due.
const BEHIND_FACTOR: u64 = 3;

/// As above, where a cap on bytes bounds the files, too. A writer waits for the checkpoint then.
const BEHIND_FACTOR_CAPPED: u64 = 2;

impl TreeEngine {
    /// Removes the expired duplicates of a key, so that their numbers count live ones only.
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

    /// Removes all expired records of a leaf, or names them to the one who removes them, and notes
    /// when to look again.
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

    /// Returns the bytes of redo after which a checkpoint is due, and notes from how many on
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

    /// Makes the next opening quick. All that is written stays readable without it.
    pub(super) fn close(&self) -> Result<()> {
        self.log.commit().check()?;
        self.log.remove_emptied(Unsealed::Sync)?;
        if !self.log.is_checkpointed() {
            // So that nothing follows the position from which redo is replayed.
            self.flush()?;
            self.checkpoint(false)?;
        }
        self.log.trim()?;
        self.log.sync()?;
        self.log.note_closed()
    }
}

/// Pages are moved by checkpoints.
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
            if state.expires_at_ms <= now_ms && self.load_for_care(leaf, state)? {
                self.remove_expired(state, now_ms)?;
            }
            if state.expires_at_ms != NEVER_MS {
                let again = state.expires_at_ms.max(now_ms.saturating_add(SWEEP_INTERVAL_MS));
                self.next_expiry_ms.fetch_min(again, Ordering::Relaxed);
            }
            Ok(())
        })?;
        let (swept, order) = (NEVER_MS, Ordering::Relaxed);
        // Unless something that expires was found or stored meanwhile.
        let _ = self.next_expiry_ms.compare_exchange(SWEEPING_MS, swept, order, order);
        Ok(())
    }

    fn is_capped(&self) -> bool {
        self.cap.is_capped()
    }

    fn enforce_cap(&self) -> Result<()> {
        self.enforce_byte_cap()
    }

    /// A checkpoint does that.
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

/// One round of what the background does.
#[cfg(feature = "testing")]
pub(super) fn run_maintenance(engine: &TreeEngine) -> Result<()> {
    engine.log.maintain_segments()?;
    engine.sweep(&|| true)?;
    engine.enforce_byte_cap()?;
    if engine.is_checkpoint_due() { TreeEngine::checkpoint(engine, false) } else { Ok(()) }
}
