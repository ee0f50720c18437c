//! What keeps a database small: compaction, sweeping, checkpoints, clearing.

use super::{Found, Index, Indexed, Place, Slot, Table, find_location};
use crate::log::record::{Kind, Record};
use crate::log::{Engaged, Location, Log, Rescue, Segment, Segments};
use crate::{Error, Options, Result, Wait};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl<I: Index> Rescue for Indexed<I> {
    fn rescue(
        &self,
        segment: &Segment,
        location: Location,
        record: &Record<'_>,
        bytes: &[u8],
        oldest: u64,
    ) -> Result<()> {
        let Some(place) = self.index.place(record.key) else { return Ok(()) };
        match record.kind {
            Kind::Put => self.rescue_put(segment, place, location, record, bytes, oldest),
            Kind::Tombstone => self.rescue_tombstone(segment, place, record, bytes, oldest),
            Kind::Batch | Kind::Page | Kind::Block | Kind::Filler | Kind::Mark => Ok(()),
        }
    }

    /// It stays in the log, where an expired record holds down the older ones of its key as a
    /// tombstone would.
    fn forget(&self, segment: &Segment, location: Location, record: &Record<'_>) -> bool {
        let Some(place) = self.index.place(record.key) else { return false };
        let mut table = self.shards[place.shard].write();
        let Some(slot) = find_location(&*table, place.tag, location) else { return false };
        table.remove(slot);
        segment.remove_live(record.total);
        self.note_forgotten(place.shard, &self.log.segments(), location);
        !record.meta.is_expired(self.now_ms(record.meta))
    }

    fn forget_segment(&self, segment: &Segment) -> u64 {
        let mut forgotten = 0;
        for (number, shard) in self.shards.iter().enumerate() {
            let mut table = shard.write();
            let (packed, before) = (table.packed(), table.len());
            table.clear();
            // They are a table's own.
            let _ = table.unpack(number, packed, &|location| location.slot() != segment.slot);
            forgotten += before.saturating_sub(table.len()) as u64;
        }
        forgotten
    }

    fn checkpoint_bytes(&self) -> u64 {
        let words: usize = self.shards.iter().map(|shard| shard.read().packed_words()).sum();
        // And a header for each shard.
        (words + I::SHARDS) as u64 * 8
    }
}

impl<I: Index> Indexed<I> {
    /// Whether a record is the present one of its key.
    fn is_indexed(&self, location: Location, record: &Record<'_>) -> bool {
        let Some(place) = self.index.place(record.key) else { return false };
        let table = self.shards[place.shard].read();
        find_location(&*table, place.tag, location).is_some()
    }

    /// As `find`, but fails where a damaged record may be the key's.
    fn find_whole(
        &self,
        table: &I::Table,
        segments: &Segments,
        place: Place<I>,
        key: &[u8],
    ) -> Result<Option<Found<Slot<I>>>> {
        let found = self.find(table, segments, place, key, Wait::Block)?;
        self.check_found(segments, found.as_ref(), Wait::Block)?;
        Ok(found)
    }

    fn rescue_put(
        &self,
        segment: &Segment,
        place: Place<I>,
        location: Location,
        record: &Record<'_>,
        bytes: &[u8],
        oldest: u64,
    ) -> Result<()> {
        let mut table = self.shards[place.shard].write();
        let slot = find_location(&*table, place.tag, location);
        // Until another has removed it, it is moved like any other.
        let is_left = slot.is_some() && self.clock.expired_keys().is_some();
        if !is_left && record.meta.is_expired(self.now_ms(record.meta)) {
            if let Some(slot) = slot {
                table.remove(slot);
                segment.remove_live(record.total);
                self.expired.count_removed();
                self.note_forgotten(place.shard, &self.log.segments(), location);
            }
            // Until now it has held down the older records of its key itself.
            let segments = self.log.segments();
            if oldest <= segment.number
                && self.find_whole(&table, &segments, place, record.key)?.is_none()
            {
                let behind = segments.age(location);
                let number = segment.number;
                let appended = self.log.append_tombstone_born_in(record.key, number, behind)?;
                self.note_forgotten(place.shard, &self.log.segments(), appended.location);
            }
            return Ok(());
        }
        let Some(slot) = slot else { return Ok(()) };
        let _long = self.log.begin_long(bytes.len());
        let moved = self.log.append_copy(bytes)?;
        let segments = self.log.segments();
        if let Some(target) = segments.get(moved) {
            target.add_live(record.total);
            target.note_expiry(record.meta.expires_at_ms);
        }
        table.replace(slot, moved, record.total);
        self.note_moved(&segments, record.key, location, moved);
        // Compaction does not come by in turn: what was read keeps its mark.
        if oldest < segment.number && segment.used.is_marked(location.offset()) {
            self.note_use(&segments, moved);
        }
        segment.remove_live(record.total);
        self.log.figures().moved_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn rescue_tombstone(
        &self,
        segment: &Segment,
        place: Place<I>,
        record: &Record<'_>,
        bytes: &[u8],
        oldest: u64,
    ) -> Result<()> {
        // Whatever it says, it holds down nothing that was written after it.
        let birth = record.birth_segment().unwrap_or(u64::MAX).min(segment.number);
        if oldest > birth {
            return Ok(());
        }
        let table = self.shards[place.shard].write();
        // A newer record of the key holds the older ones down. To move the tombstone behind it
        // would remove it.
        let segments = self.log.segments();
        if self.find_whole(&table, &segments, place, record.key)?.is_none() {
            let moved = self.log.append_copy(bytes)?;
            let segments = self.log.segments();
            if let Some(target) = segments.get(moved) {
                target.add_tombstone(bytes.len());
            }
            self.note_forgotten(place.shard, &segments, moved);
        }
        Ok(())
    }

    /// Compacts until next to nothing dead is left, and gives back the index's spare slots.
    pub(crate) fn optimize(&self) -> Result<()> {
        self.log.seal()?;
        let before = self.log.active_number();
        loop {
            let segments = self.log.segments().in_order();
            let oldest = segments.first().map_or(0, |segment| segment.number);
            let wasteful = segments.into_iter().find(|segment| {
                segment.number < before
                    && !segment.is_kept()
                    && segment.dead_bytes(segment.number == oldest) > 0
            });
            match wasteful {
                Some(segment) => self.log.compact(&segment, false, self, &|| true)?,
                None => break,
            }
        }
        for shard in &self.shards {
            shard.write().shrink();
        }
        Ok(())
    }

    /// Sets the cap if there is one among the options; else as `optimize`.
    pub(crate) fn retune(&self, options: &Options) -> Result<()> {
        if options.capacity_bytes == 0 {
            return self.optimize();
        }
        self.log.set_capacity(options.capacity_bytes)
    }

    /// Removes all records.
    pub(crate) fn clear(&self) -> Result<()> {
        let first = {
            let mut tables: Vec<_> = self.shards.iter().map(|shard| shard.write()).collect();
            let first = self.log.clear()?;
            for table in &mut tables {
                table.clear();
            }
            first
        };
        self.log.remove_before(first)
    }

    /// Writes the index into a checkpoint.
    pub(crate) fn write_index(&self) -> Result<()> {
        self.log.write_checkpoint(|block| {
            for shard in &self.shards {
                let entries = shard.read().packed();
                block(&entries)?;
            }
            Ok(())
        })
    }

    /// Writes a checkpoint if there is none of everything, so that the next opening is quick. The
    /// records are readable without it.
    pub(crate) fn close(&self) -> Result<()> {
        self.log.commit().check()?;
        // On a full disk the checkpoint may need the space that was allocated ahead.
        self.log.trim()?;
        if !self.log.is_checkpointed() {
            self.write_index()?;
            // The checkpoint may have begun a segment.
            self.log.trim()?;
        }
        self.log.sync()?;
        self.log.note_closed()
    }
}

impl<I: Index> Engaged for Indexed<I> {
    fn log(&self) -> &Log {
        &self.log
    }

    /// Goes through the segments in which something has expired since they were last gone
    /// through, and takes it out of the index.
    fn sweep(&self, go_on: &dyn Fn() -> bool) -> Result<()> {
        let now_ms = self.clock.now_ms();
        for segment in self.log.segments().in_order() {
            if segment.next_expiry_ms.load(Ordering::Relaxed) <= now_ms {
                self.log.sweep_segment(&segment, now_ms, &|location, record| {
                    let is_left = self.clock.expired_keys().is_some();
                    if !is_left {
                        self.forget(&segment, location, record);
                    } else if self.is_indexed(location, record) {
                        return self.clock.hand_over(record.key);
                    }
                    false
                })?;
                if !go_on() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn checkpoint(&self) -> Result<()> {
        self.write_index()
    }
}

/// One round of what the background does.
pub(super) fn tend<I: Index>(shared: &Arc<Indexed<I>>) -> Result<()> {
    debug_assert_eq!(shared.shards.len(), I::SHARDS);
    let log = shared.log();
    log.finish_sealed()?;
    log.look_what_is_resident();
    shared.sweep(&|| true)?;
    shared.keep_to_cap()?;
    while let Some(segment) = log.due_for_compaction() {
        match log.compact(&segment, false, &**shared, &|| true) {
            Err(Error::NoSpace { .. }) => break,
            result => result?,
        }
    }
    Ok(())
}
