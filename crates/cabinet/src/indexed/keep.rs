//! What keeps a database small: compaction, sweeping, checkpoints, clearing.

use super::alive::Alive;
use super::run::{self, Run, RunFile};
use super::{Found, Index, Indexed, Place, Slot, Table};
use crate::log::checkpoint::{self, Block};
use crate::log::record::{Kind, Record};
use crate::log::{Engaged, Location, Log, Rescue, Segment, Segments};
use crate::{Batch, Error, Options, Result, Wait};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Part of the memory of the index that changes since the last merge may take, if the index is in
/// runs. While runs are written, as much may come.
const CHANGES_SHARE: u64 = 2;

/// Memory that the index takes beyond what it may before writers wait: this part of it, but at
/// least so many bytes.
const OVER_SHARE: u64 = 4;
const OVER_BYTES_MIN: u64 = 1 << 20;

/// Shards that are merged between two looks at the memory of changes.
const LOOK_SHARDS: usize = 64;

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
    fn forget(&self, segment: &Segment, location: Location, record: &Record<'_>) -> Result<bool> {
        let Some(place) = self.index.place(record.key) else { return Ok(false) };
        let alive = self.alive_for(segment)?;
        let mut table = self.shards[place.shard].write();
        let slot = self.slot_of(&table, place, location, alive.as_deref())?;
        let Some(slot) = slot else { return Ok(false) };
        table.remove(slot);
        segment.remove_live(record.total);
        self.note_forgotten(place.shard, &self.log.segments(), location);
        Ok(!record.meta.is_expired(self.now_ms(record.meta)))
    }

    fn forget_segment(&self, segment: &Segment) -> Result<u64> {
        let mut forgotten = 0;
        for (number, shard) in self.shards.iter().enumerate() {
            if self.table(number).run().is_some() {
                forgotten += self.forget_in_run(segment, number)?;
                continue;
            }
            let mut table = shard.write();
            let (packed, before) = (table.packed(), table.len());
            table.clear();
            // They are a table's own.
            let _ = table.unpack(number, packed, &|location| location.slot() != segment.slot);
            forgotten += before.saturating_sub(table.len()) as u64;
        }
        Ok(forgotten)
    }

    fn checkpoint_bytes(&self) -> u64 {
        let words: usize = self.shards.iter().map(|shard| shard.read().packed_words()).sum();
        let directory = if I::Table::HAS_RUNS { run::directory_words(words, I::SHARDS) } else { 0 };
        // And a header for each shard.
        (words + I::SHARDS + directory) as u64 * 8
    }

    fn relieve(&self) -> Result<()> {
        if !self.wants_merge() {
            return Ok(());
        }
        self.log.write_checkpoint_held(|block| self.write_shards(block))
    }
}

impl<I: Index> Indexed<I> {
    /// Whether a record is the present one of its key.
    fn is_indexed(
        &self,
        segment: &Segment,
        location: Location,
        record: &Record<'_>,
    ) -> Result<bool> {
        let Some(place) = self.index.place(record.key) else { return Ok(false) };
        let alive = self.alive_for(segment)?;
        let table = self.shards[place.shard].read();
        Ok(self.slot_of(&table, place, location, alive.as_deref())?.is_some())
    }

    /// Which records of a segment the runs have, if the index is in runs. The caller holds no lock
    /// of a shard.
    fn alive_for(&self, segment: &Segment) -> Result<Option<Arc<Alive>>> {
        if !self.is_over_runs() {
            return Ok(None);
        }
        let known = self.alive.lock().clone();
        let alive = self.alive_in(segment, known)?;
        self.alive.lock().clone_from(&alive);
        Ok(alive)
    }

    /// As `forget_segment`, of one shard whose table is over a run.
    fn forget_in_run(&self, segment: &Segment, shard: usize) -> Result<u64> {
        let is_in = |location: Location| location.slot() == segment.slot;
        let entries: Vec<_> = self.with_entries(shard, |entries| {
            entries.filter(|(_, location)| is_in(*location)).collect()
        })?;
        let mut table = self.shards[shard].write();
        let mut forgotten = 0;
        for (tag, location) in entries {
            let place = Place { shard, tag };
            if let Some(slot) = self.slot_of(&table, place, location, None)? {
                table.remove(slot);
                forgotten += 1;
            }
        }
        Ok(forgotten)
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
        let alive = self.alive_for(segment)?;
        let mut table = self.shards[place.shard].write();
        let slot = self.slot_of(&table, place, location, alive.as_deref())?;
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
    fn compact_all(&self) -> Result<()> {
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

    /// As [`crate::Maintenance::optimize`].
    pub(crate) fn optimize(&self, options: Option<&Options>) -> Result<()> {
        match options {
            Some(options) if options.capacity_bytes != 0 => {
                self.log.set_capacity(options.capacity_bytes)
            }
            _ => self.compact_all(),
        }
    }

    /// Removes all records, then stores those of a batch.
    pub(crate) fn replace_all(&self, batch: &Batch) -> Result<()> {
        self.clear()?;
        if batch.is_empty() { Ok(()) } else { self.write_batch(batch) }
    }

    /// Removes all records.
    pub(crate) fn clear(&self) -> Result<()> {
        let first = {
            // A merge that goes on would take what is removed for entries of its run.
            let _maintenance = self.log.pause_maintenance();
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
        self.log.write_checkpoint(|block| self.write_shards(block))
    }

    /// Writes the blocks of a checkpoint. If the index is larger than the memory that it may use,
    /// the tables go over to the new file, one after the other.
    fn write_shards(&self, block: &mut dyn FnMut(&[u64]) -> Result<Block>) -> Result<()> {
        let is_in_runs = self.is_over_runs() || self.wants_merge();
        if is_in_runs {
            self.over_runs.store(true, Ordering::Relaxed);
        }
        let mut runs: Vec<Arc<Run>> = Vec::new();
        for (number, shard) in self.shards.iter().enumerate() {
            if is_in_runs && number.is_multiple_of(LOOK_SHARDS) {
                self.note_index_pressure();
            }
            let before = shard.read().before();
            let entries = before.merged()?;
            let Block { file, offset } = block(&entries)?;
            if I::Table::HAS_RUNS {
                let known = runs.first().map(|run| Arc::clone(run.file()));
                let file = known.unwrap_or_else(|| {
                    let path = self.log.directory().join(checkpoint::NAME);
                    let storage = Arc::clone(self.log.storage());
                    Arc::new(RunFile { storage, file, path, salt: self.log.identity().salt })
                });
                let run = Arc::new(Run::of(file, offset, &entries));
                if is_in_runs {
                    shard.write().rebase(&before, Arc::clone(&run));
                }
                runs.push(run);
            }
        }
        if I::Table::HAS_RUNS {
            block(&run::directory_of(&runs))?;
        }
        if is_in_runs {
            self.note_index_pressure();
        }
        Ok(())
    }

    /// Has writers wait a little while the index takes much more memory than it may: merging does
    /// not keep up with them.
    #[cold]
    pub(super) fn note_index_pressure(&self) {
        self.log.note_index_pressure(self.is_index_high());
    }

    /// Whether the index takes much more memory than it may.
    #[inline]
    pub(super) fn is_index_high(&self) -> bool {
        let over = (self.index_bytes_max / OVER_SHARE).max(OVER_BYTES_MIN);
        self.growth.bytes() > self.index_bytes_max.saturating_add(over)
    }

    /// Whether tables have runs.
    pub(super) fn is_over_runs(&self) -> bool {
        self.over_runs.load(Ordering::Relaxed)
    }

    /// Bytes of memory that the tables take, except those held for a long change.
    pub(super) fn index_bytes(&self) -> u64 {
        let tables = (0..I::SHARDS).filter_map(|shard| self.table_for(shard, Wait::Never).ok());
        tables.map(|table| table.memory_bytes() as u64).sum()
    }

    /// Whether what is in memory of the index has to go into runs.
    pub(super) fn wants_merge(&self) -> bool {
        if !I::Table::HAS_RUNS {
            return false;
        }
        self.note_index_pressure();
        let share = if self.is_over_runs() { CHANGES_SHARE } else { 1 };
        self.growth.bytes() > self.index_bytes_max / share
    }

    /// Writes a checkpoint if there is none of everything, so that the next opening is quick. The
    /// records are readable without it.
    pub(crate) fn close(&self) -> Result<()> {
        self.log.commit().check()?;
        // On a full disk the checkpoint may need the space that was allocated ahead.
        self.log.trim()?;
        if !self.log.is_checkpointed() {
            match self.write_index() {
                // It is made from the log at the next opening.
                Err(error @ Error::Corrupted { .. }) => tracing::error!("no checkpoint: {error}"),
                result => result?,
            }
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
                    let done = if is_left {
                        self.is_indexed(&segment, location, record)
                            .map(|is_indexed| !is_indexed || !self.clock.hand_over(record.key))
                    } else {
                        self.forget(&segment, location, record).map(|_| true)
                    };
                    // Where the index cannot be read, it is looked at again later.
                    !done.unwrap_or(false)
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

    fn wants_checkpoint(&self) -> bool {
        self.wants_merge()
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
    if shared.wants_merge() {
        match shared.write_index() {
            // Space may come, and changes stay in memory until then.
            Ok(()) | Err(Error::NoSpace { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
