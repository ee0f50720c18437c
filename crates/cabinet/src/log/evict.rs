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
//! Where a cap was lowered, a segment may be much longer than those of the cap, and more may be in
//! it than has to go. Then the newest of its records move too, as many as there is room for.
//!
//! Dead bytes are better taken than live records: where a segment is mostly dead it is compacted
//! instead, and above the share of dead bytes that the log is held to so is any. Thus expired
//! records go first, and a few that are written all the time do not push out all others.

use super::compact::{NOTHING_WRITTEN, Rescue};
use super::record::Kind;
use super::scan::{ScanError, Scanner, Visit};
use super::segment::{Segment, Segments};
use super::{Log, error_at};
use crate::{Durability, Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Share of a segment's bytes, in percent, that is moved at most, however many of its records
/// were read: what is left is gained. It bounds the bytes that are written for each byte stored.
const MOVED_PERCENT_MAX: u64 = 75;

/// How a walk through a segment ended.
#[derive(PartialEq, Eq)]
enum Walk {
    /// All that was written was seen.
    Whole,
    /// Something could not be read.
    Broken,
}

impl Log {
    /// Evicts for as long as `wants` says.
    pub(crate) fn evict_while(
        &self,
        rescue: &dyn Rescue,
        wants: &dyn Fn(&Self) -> bool,
    ) -> Result<()> {
        while wants(self) {
            let _maintenance = self.maintenance.lock();
            // The last holder of the lock may have done it.
            if wants(self) && !self.gain(rescue)? {
                break;
            }
        }
        self.drop_retired();
        // What was looked at while something went may have been noted after it had gone.
        self.note_pressure();
        Ok(())
    }

    /// As [`Log::evict_while`], for writers that find no room for another segment.
    pub(crate) fn make_way(&self, rescue: &dyn Rescue) -> Result<()> {
        self.evict_while(rescue, &Self::is_full)
    }

    /// Makes space; says whether there was anything to take it from. The caller holds
    /// `maintenance`.
    fn gain(&self, rescue: &dyn Rescue) -> Result<bool> {
        self.cut_sealed()?;
        let is_full_disk = self.space_wanted.load(Ordering::Relaxed);
        let mut first = self.oldest();
        if let Some(segment) = self.due_for_compaction()
            && !is_full_disk
            && segment.dead_percent(first.as_ref().is_some_and(|one| Arc::ptr_eq(one, &segment)))
                >= 100 - MOVED_PERCENT_MAX
        {
            match self.compact_held(&segment, false, rescue, &|| true) {
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
            first = self.oldest();
        }
        match first.filter(|first| first.is_sealed()) {
            Some(segment) => self.evict(&segment, rescue).map(|()| true),
            None => Ok(false),
        }
    }

    fn oldest(&self) -> Option<Arc<Segment>> {
        self.segments().iter().min_by_key(|segment| segment.number).cloned()
    }

    /// Evicts the oldest segment, which is sealed.
    fn evict(&self, segment: &Arc<Segment>, rescue: &dyn Rescue) -> Result<()> {
        if !segment.is_damaged() {
            self.move_used(segment, rescue)?;
        }
        if self.settings.durability == Durability::None {
            // If the power goes, the segments before this one shall have gone before it.
            self.sync_directory(&self.sync.lock())?;
        } else {
            // What was moved, too.
            self.sync()?;
        }
        self.forget_names(std::slice::from_ref(segment))?;
        self.unlink(segment)?;
        if self.settings.durability != Durability::None {
            self.sync_directory(&self.sync.lock())?;
        }
        let mut evicted = 0;
        let walk = self.walk(segment, &mut |offset, record, _| {
            if record.kind == Kind::Put && rescue.forget(segment, segment.at(offset), record)? {
                evicted += 1;
            }
            Ok(())
        });
        if segment.is_damaged() || !matches!(walk, Ok(Walk::Whole)) {
            tracing::error!("{} is damaged: what it held is evicted", segment.path.display());
            evicted += rescue.forget_segment(segment)?;
            super::compact::relieve(rescue)?;
        }
        self.capacity.count_evicted(evicted);
        // It holds less now, and so there may be room enough.
        self.capacity.note_checkpoint_bytes(rescue.checkpoint_bytes());
        self.take_out(segment);
        Ok(())
    }

    /// Moves what was read of a segment to the end of the log, and the newest of what there is room
    /// for besides.
    fn move_used(&self, segment: &Arc<Segment>, rescue: &dyn Rescue) -> Result<()> {
        let is_used = |offset| segment.used.is_marked(segment.at(offset).offset());
        let most = segment.bytes() * MOVED_PERCENT_MAX / 100;
        let room = self.room_for_part_of(segment);
        let mut left = most;
        let mut newest_from = u64::MAX;
        if room > 0 {
            left = most.min(room);
            let mut used = 0;
            self.walk(segment, &mut |offset, record, bytes| {
                used += if record.kind == Kind::Put && is_used(offset) {
                    bytes.len() as u64
                } else {
                    0
                };
                Ok(())
            })?;
            newest_from = segment.bytes().saturating_sub(room.saturating_sub(used.min(left)));
        }
        let walk = self.walk(segment, &mut |offset, record, bytes| {
            let size = bytes.len() as u64;
            let is_newest = offset >= newest_from;
            let is_used = !is_newest && is_used(offset) && size <= left;
            if record.kind == Kind::Put && (is_used || is_newest) {
                left -= if is_used { size } else { 0 };
                // There is nothing older.
                rescue.rescue(segment, segment.at(offset), record, bytes, u64::MAX)?;
            }
            Ok(())
        });
        match walk {
            // Where the disk is full there is room for nothing more.
            Err(Error::NoSpace { .. }) => Ok(()),
            walk => walk.map(|_| ()),
        }
    }

    /// Shows the records of a sealed segment to `visit`, up to damage if there is any.
    fn walk(&self, segment: &Segment, visit: &mut Visit<'_>) -> Result<Walk> {
        let file = Arc::clone(&segment.file);
        let mut scanner = Scanner::new(file, self.identity.salt, 0, segment.bytes());
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
                    segment.note_fault(stop.offset, stop.what.unwrap_or(NOTHING_WRITTEN));
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

    /// Removes the file of a segment.
    pub(super) fn unlink(&self, segment: &Segment) -> Result<()> {
        let removed = self.storage.remove(&segment.path);
        self.directory_changed.store(true, Ordering::Release);
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error_at("remove", &segment.path, error))
            }
            _ => Ok(()),
        }
    }

    /// Takes a segment out of the set.
    pub(super) fn take_out(&self, segment: &Arc<Segment>) {
        {
            let _structure = self.structure.lock();
            let mut segments = Segments::clone(&self.segments.load());
            segments.remove(segment.slot);
            segment.taken_out.store(true, Ordering::Release);
            self.segments.store(Arc::new(segments));
            // A report, which takes this lock, counts the segment here or there.
            self.figures.damaged_reads.fetch_add(segment.faults.count(), Ordering::Relaxed);
            self.figures.cold_reads.fetch_add(segment.first_read.count(), Ordering::Relaxed);
        }
        self.retired.lock().push(Arc::clone(segment));
        self.unsynced.lock().retain(|one| !Arc::ptr_eq(one, segment));
        self.space_wanted.store(false, Ordering::Relaxed);
        self.capacity.note_refused(false);
        self.note_pressure();
    }

    /// Returns the number of reads that had to wait for the disk, since the log was opened.
    pub(super) fn cold_reads(&self) -> u64 {
        let _structure = self.structure.lock();
        let gone = self.figures.cold_reads.load(Ordering::Relaxed);
        let segments = self.segments();
        gone + segments.iter().map(|segment| segment.first_read.count()).sum::<u64>()
    }

    /// Lets go of segments that were taken out and are no longer read.
    pub(super) fn drop_retired(&self) {
        self.retired.lock().retain(|segment| Arc::strong_count(segment) > 1);
    }
}
