//! Eviction: giving back the space of records that nobody has read lately, for new ones.
//!
//! The oldest segment goes. Its records that were read since they came there are moved
//! to the end of the log, where they count as not read; the others leave the index with it. That is
//! CLOCK, with the log for the clock's face: what was written or read goes once more around.
//!
//! Why nothing old comes back: an older record of a key than one in the oldest segment could only
//! lie in the same one. So a record that leaves needs no tombstone, and tombstones in the oldest
//! segment hold nothing down. The file goes first, and only then do its records leave the index:
//! whoever was told that a record is not there finds it so after a crash, too.
//!
//! If a cap was lowered, a segment may be much longer than those of the cap, and more may be in
//! it than has to go. Then the newest of its records move too, as many as there is room for.
//!
//! Dead bytes are better taken than live records: where a segment is mostly dead it is compacted
//! instead, and above the share of dead bytes that the log is held to so is any. Thus expired
//! records go first, and a few that are written all the time do not push out all others.

use super::Relocate;
use crate::log::record::{Kind, Record};
use crate::log::scan::{ScanError, Scanner, UNWRITTEN, Visit};
use crate::log::segments::Segment;
use crate::log::{Log, error_at};
use crate::{Durability, Error, Result};
use std::sync::Arc;

/// Share of a segment's bytes, in percent, that is moved at most, however many of its records
/// were read: what is left is gained. It bounds the bytes that are written for each byte stored.
const MOVED_PERCENT_MAX: u64 = 75;

/// Bytes of a segment that are evicted between two looks at the memory of the index.
const RELIEVED_BYTES: usize = 256 << 10;

/// How a walk through a segment ended.
#[derive(PartialEq, Eq)]
enum Walk {
    /// All that was written was seen.
    Whole,
    /// Something could not be read.
    Broken,
}

/// Lets the engine make its index smaller. If that fails, eviction goes on: it makes the space that
/// may be missing.
fn relieve_if_possible(engine: &dyn Relocate) {
    if let Err(error) = super::compact::relieve(engine) {
        tracing::error!("the index cannot be made smaller: {error}");
    }
}

impl Log {
    /// Evicts for as long as `wants` says.
    pub(in crate::log) fn evict_while(
        &self,
        engine: &dyn Relocate,
        wants: &dyn Fn() -> bool,
    ) -> Result<()> {
        while wants() {
            let _maintenance = self.maintenance.pause();
            // The last holder of the lock may have done it.
            if wants() && !self.gain(engine)? {
                break;
            }
        }
        self.segments.drop_retired();
        // Pressure that was seen during a removal may have been noted after it.
        self.space.note_pressure(&self.segments);
        Ok(())
    }

    /// As [`Log::evict_while`], for writers that find no room for another segment.
    pub(crate) fn evict_for_writer(&self, engine: &dyn Relocate) -> Result<()> {
        self.evict_while(engine, &|| self.space.is_full(&self.segments))
    }

    /// Makes space; says whether there was anything to take it from. The caller holds
    /// `maintenance`.
    fn gain(&self, engine: &dyn Relocate) -> Result<bool> {
        self.cut_sealed()?;
        let is_full_disk = self.space.is_wanted();
        let mut first = self.segments().oldest().cloned();
        if let Some(segment) = self.due_for_compaction()
            && !is_full_disk
            && segment.dead_percent(first.as_ref().is_some_and(|one| Arc::ptr_eq(one, &segment)))
                >= 100 - MOVED_PERCENT_MAX
        {
            match self.compact_held(&segment, false, engine, &|| true) {
                // Eviction needs no room.
                Err(Error::NoSpace { .. }) => {}
                result => {
                    result?;
                    // Damage was found in it, or is in its way: then it stays for its turn.
                    if !segment.is_kept() {
                        return Ok(true);
                    }
                }
            }
        }
        if first.as_ref().is_some_and(|first| !first.is_sealed()) {
            self.seal()?;
            first = self.segments().oldest().cloned();
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
            // If the power goes, the segments before this one shall have gone before it.
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
                // A part of the index that is made again from the log will not have it.
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
            tracing::error!("{} is damaged: what it held is evicted", segment.path.display());
            evicted += engine.forget_segment(segment)?;
            relieve_if_possible(engine);
        }
        self.space.quota.count_evicted(evicted);
        // It holds less now, and so there may be room enough.
        self.space.quota.note_checkpoint_bytes(engine.checkpoint_bytes());
        self.take_out(segment);
        Ok(())
    }

    /// Moves what was read of a segment to the end of the log, and the newest of what there is room
    /// for besides.
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
                // There is nothing older.
                match engine.relocate(segment, segment.at(offset), record, bytes, u64::MAX) {
                    // If the index is damaged it is not known whether the record is alive: it
                    // is evicted.
                    Ok(()) | Err(Error::Corrupted { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        });
        match walk {
            // If the disk is full there is room for nothing more.
            Err(Error::NoSpace { .. }) => Ok(()),
            walk => walk.map(|_| ()),
        }
    }

    /// Shows the records of a sealed segment to `visit`, up to damage if there is any.
    fn walk(&self, segment: &Segment, visit: &mut Visit<'_>) -> Result<Walk> {
        let file = Arc::clone(&segment.file);
        let mut scanner = Scanner::new(file, self.database_id.salt, 0, segment.bytes());
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

    /// Takes a segment out of the set, after its file was removed.
    pub(super) fn take_out(&self, segment: &Arc<Segment>) {
        self.segments.take_out(segment);
        self.commit.drop_unsynced(std::slice::from_ref(segment));
        self.space.note_gained(&self.segments);
    }
}
