//! Eviction: reclaims the space of records that were not read lately, for new ones.
//!
//! The oldest segment is removed. Those of its records that were read since they were appended are
//! moved to the end of the log, where they count as not read. The others are removed from the
//! index. This is CLOCK, with the log as the clock's face: a record that was written or read stays
//! for one more round.
//!
//! Old records never come back: an older version of a record in the oldest segment can only be in
//! the same segment. So an evicted record needs no tombstone, and tombstones in the oldest segment
//! are dead. The file is removed first, and only then are its records removed from the index. So a
//! caller that has found a record evicted finds it so after a crash, too.
//!
//! After a cap was lowered, a segment may be much longer than the cap's segments, and may hold more
//! than must be evicted. Then its newest records are moved too, as many as there is space for.
//!
//! Dead bytes are reclaimed before live records. A segment that is half dead is compacted instead
//! of evicted. While the log exceeds its share of dead bytes, a quarter is enough. Thus expired
//! records are removed first, and a few records that are rewritten constantly do not evict all
//! others.

use super::{Relocate, Unsealed};
use crate::log::record::{Kind, Record};
use crate::log::scan::{ScanError, UNWRITTEN, Visit};
use crate::log::segments::Segment;
use crate::log::{Log, error_at};
use crate::{Durability, Error, Result};
use std::sync::Arc;

/// Maximum share of a segment's bytes, in percent, that is moved however many of its records were
/// read. The rest is reclaimed. This bounds the bytes written per byte stored.
const MOVED_PERCENT_MAX: u64 = 75;

/// Bytes of a segment that are evicted between two checks of the index's memory.
const RELIEVED_BYTES: usize = 256 << 10;

/// Outcome of a walk through a segment.
#[derive(PartialEq, Eq)]
enum Walk {
    /// All records were visited.
    Whole,
    /// Some bytes could not be read.
    Broken,
}

/// Lets the engine make its index smaller. If that fails, eviction continues: it makes the space
/// that may be missing.
fn relieve_if_possible(engine: &dyn Relocate) {
    if let Err(error) = super::compact::relieve(engine) {
        tracing::error!("the index cannot be made smaller: {error}");
    }
}

impl Log {
    /// Evicts until `wants` returns false.
    pub(in crate::log) fn evict_while(
        &self,
        engine: &dyn Relocate,
        wants: &dyn Fn() -> bool,
    ) -> Result<()> {
        while wants() {
            let _maintenance = self.maintenance.pause();
            // The last holder of the lock may already have made space.
            if wants() && !self.gain(engine)? {
                break;
            }
        }
        self.segments.drop_retired();
        // Pressure that was computed during a removal may have been stored after it.
        self.space.note_pressure(&self.segments);
        Ok(())
    }

    /// Like [`Log::evict_while`], for writers that find no space for another segment.
    pub(crate) fn evict_for_writer(&self, engine: &dyn Relocate) -> Result<()> {
        self.evict_while(engine, &|| self.space.is_full(&self.segments))
    }

    /// Makes space by compacting or evicting one segment. Returns whether there was one. The caller
    /// holds `maintenance`.
    fn gain(&self, engine: &dyn Relocate) -> Result<bool> {
        // Records that were moved from an emptied segment must not go with it.
        self.try_to_remove_emptied_held(Unsealed::Sync);
        self.cut_sealed()?;
        let is_full_disk = self.space.is_wanted();
        let oldest = || self.segments().oldest().cloned();
        let mut first = oldest();
        if let Some(segment) = self.due_for_compaction()
            && !is_full_disk
            && segment.dead_percent(first.as_ref().is_some_and(|one| Arc::ptr_eq(one, &segment)))
                >= 100 - MOVED_PERCENT_MAX
        {
            match self.compact_held(&segment, false, engine, &|| true) {
                // Eviction needs no space.
                Err(Error::NoSpace { .. }) => {}
                result => {
                    result?;
                    // If damage was found in the segment, or prevents compaction, the segment is
                    // evicted in its turn.
                    if !segment.is_kept() {
                        return Ok(true);
                    }
                }
            }
        }
        // Compaction may have removed it.
        first = oldest();
        if first.as_ref().is_some_and(|first| !first.is_sealed()) {
            self.seal()?;
            first = oldest();
        }
        match first.filter(|first| first.is_sealed()) {
            Some(segment) => self.evict(&segment, engine).map(|()| true),
            None => Ok(false),
        }
    }

    /// Evicts the oldest segment, which is sealed.
    fn evict(&self, segment: &Arc<Segment>, engine: &dyn Relocate) -> Result<()> {
        if !segment.is_damaged() {
            self.move_accessed(segment, engine)?;
        }
        if self.settings.durability == Durability::None {
            // After a loss of power, the segments before this one must be gone if this one is.
            self.commit.lock().sync_names(&self.segments)?;
        } else {
            // Syncs the moved records, too.
            self.sync()?;
        }
        self.manifest.forget_names(std::slice::from_ref(segment))?;
        self.segments.directory().unlink(segment)?;
        if self.settings.durability != Durability::None {
            self.commit.lock().sync_names(&self.segments)?;
        }
        let mut evicted = 0;
        let (mut walked, mut relieved_at) = (0, 0);
        let mut forget = |offset, record: &Record<'_>| {
            match engine.forget(segment, segment.at(offset), record) {
                Ok(was_alive) => evicted += u64::from(was_alive),
                // A part of the index that is rebuilt from the log will not contain the record.
                Err(Error::Corrupted { .. }) => {}
                Err(error) => return Err(error),
            }
            Ok(())
        };
        let walk = self.walk(segment, &mut |offset, record, bytes| {
            if record.kind == Kind::Put {
                forget(offset, record)?;
            }
            walked += bytes.len();
            if walked >= relieved_at + RELIEVED_BYTES {
                relieved_at = walked;
                relieve_if_possible(engine);
            }
            Ok(())
        });
        if segment.is_damaged() || !matches!(walk, Ok(Walk::Whole)) {
            tracing::error!("{} is damaged: all its records are evicted", segment.path.display());
            evicted += engine.forget_segment(segment)?;
            relieve_if_possible(engine);
        }
        self.space.quota.count_evicted(evicted);
        // The index holds fewer records now, so the checkpoint may need less space.
        self.space.quota.note_checkpoint_bytes(engine.checkpoint_bytes());
        self.take_out(segment);
        Ok(())
    }

    /// Moves the records of a segment that were read to the end of the log, and the newest other
    /// records for which there is space.
    fn move_accessed(&self, segment: &Arc<Segment>, engine: &dyn Relocate) -> Result<()> {
        let is_accessed = |offset| segment.access_bits.is_marked(segment.at(offset).offset());
        let most = segment.bytes() * MOVED_PERCENT_MAX / 100;
        let space = self.space.space_for_part_of(&self.segments, segment);
        let mut left = most;
        let mut newest_from = u64::MAX;
        if space > 0 {
            left = most.min(space);
            let mut accessed = 0;
            self.walk(segment, &mut |offset, record, bytes| {
                accessed += if record.kind == Kind::Put && is_accessed(offset) {
                    bytes.len() as u64
                } else {
                    0
                };
                Ok(())
            })?;
            newest_from = segment.bytes().saturating_sub(space.saturating_sub(accessed.min(left)));
        }
        let walk = self.walk(segment, &mut |offset, record, bytes| {
            let size = bytes.len() as u64;
            let is_newest = offset >= newest_from;
            let is_accessed = !is_newest && is_accessed(offset) && size <= left;
            if record.kind == Kind::Put && (is_accessed || is_newest) {
                left -= if is_accessed { size } else { 0 };
                // This is the oldest segment, so no tombstone is needed.
                match engine.relocate(segment, segment.at(offset), record, bytes, u64::MAX) {
                    // If the index is damaged, it is not known whether the record is live: it is
                    // evicted.
                    Ok(()) | Err(Error::Corrupted { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        });
        match walk {
            // On a full disk no further record can be moved.
            Err(Error::NoSpace { .. }) => Ok(()),
            walk => walk.map(|_| ()),
        }
    }

    /// Calls `visit` with each record of a sealed segment, up to damage if there is any.
    fn walk(&self, segment: &Segment, visit: &mut Visit<'_>) -> Result<Walk> {
        let mut scanner = segment.scanner(0, segment.bytes());
        loop {
            match scanner.next(visit) {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Ok(Walk::Whole),
                Ok(Err(stop))
                    if scanner
                        .is_at_unused_end(&stop)
                        .map_err(|error| error_at("read", &segment.path, error))? =>
                {
                    return Ok(Walk::Whole);
                }
                Ok(Err(stop)) => {
                    segment.note_fault(stop.offset, stop.what.unwrap_or(UNWRITTEN));
                    return Ok(Walk::Broken);
                }
                Err(ScanError::Read(error)) => {
                    segment.note_fault(scanner.offset(), &format!("it cannot be read: {error}"));
                    return Ok(Walk::Broken);
                }
                Err(ScanError::Visit(error)) => return Err(error),
            }
        }
    }

    /// Removes a segment from the set, after its file was removed.
    pub(super) fn take_out(&self, segment: &Arc<Segment>) {
        self.segments.take_out(segment);
        self.commit.drop_unsynced(std::slice::from_ref(segment));
        self.space.note_gained(&self.segments);
    }
}
