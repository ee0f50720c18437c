//! Maintenance that keeps a database small: compaction, sweeping, checkpoints and clearing.

use super::alive::Alive;
use super::run::{self, Run, RunFile};
use super::{Found, Index, IndexKey, KeyedEngine, Seen, ShardIndex, Slot};
use crate::log::checkpoint::{self, Block};
use crate::log::record::{Kind, Record};
use crate::log::{Location, Log, Maintained, Relocate, Segment, Segments, Spend, Unsealed};
use crate::{Batch, Error, Options, Result, Wait};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Changes since the last merge may use the index's budget divided by this, if the index is in
/// runs. As much may be added while runs are written.
const CHANGES_SHARE: u64 = 2;

/// Writers start to pause if the index exceeds its budget by the budget divided by `OVER_SHARE`,
/// but at least by `OVER_BYTES_MIN` bytes.
const OVER_SHARE: u64 = 4;
const OVER_BYTES_MIN: u64 = 1 << 20;

/// Most memory of the index if the disk has no space for runs: this multiple of its budget, but at
/// least this many bytes more.
const LIMIT_TIMES: u64 = 2;
const LIMIT_BYTES_MIN: u64 = 1 << 20;

/// Further multiple while compaction moves records, because a merge may need the space that
/// compaction frees.
const MOVES_TIMES: u64 = 2;

/// Shards that are merged between two checks of the memory of changes.
const LOOK_SHARDS: usize = 64;

/// Maximum number of entries of a shard that are passed over in search of a segment's records. The
/// shard is locked meanwhile.
const PASSED_ENTRIES_MAX: usize = 1 << 16;

/// A table with more bytes than this, and than this many for each entry, takes long to pass over:
/// an array of few ids among many.
const SPARSE_BYTES_MIN: usize = 4096;
const SPARSE_BYTES: usize = 24;

/// Maximum number of records of a segment that are found in this way, 4 bytes of memory each.
const LIVE_RECORDS_MAX: usize = 1 << 17;

/// Returns the most bytes of memory that an index with a budget of `bytes_max` may use if the disk
/// has no space for its runs.
pub(super) fn index_bytes_limit(bytes_max: u64) -> u64 {
    bytes_max.saturating_mul(LIMIT_TIMES).max(bytes_max.saturating_add(LIMIT_BYTES_MIN))
}

/// A shard whose table has switched to another run.
struct Merged {
    shard: usize,
    old: Option<Arc<Run>>,
    new: Arc<Run>,
}

impl<I: Index> Relocate for KeyedEngine<I> {
    fn relocate(
        &self,
        segment: &Segment,
        location: Location,
        record: &Record<'_>,
        bytes: &[u8],
        oldest: u64,
    ) -> Result<()> {
        let Some(index_key) = self.index.index_key(record.key) else { return Ok(()) };
        match record.kind {
            Kind::Put => self.relocate_put(segment, index_key, location, record, bytes, oldest),
            Kind::Tombstone => {
                self.relocate_tombstone(segment, index_key, location, record, bytes, oldest)
            }
            Kind::Batch | Kind::Page | Kind::AppendBlock | Kind::Filler | Kind::Mark => Ok(()),
        }
    }

    fn prefetch(&self, record: &Record<'_>) {
        if let Some(index_key) = self.index.index_key(record.key) {
            self.prefetch_entry(index_key);
        }
    }

    /// The record stays in the log. An expired record there masks older records of its key, as a
    /// tombstone would.
    fn forget(&self, segment: &Segment, location: Location, record: &Record<'_>) -> Result<bool> {
        let Some(index_key) = self.index.index_key(record.key) else { return Ok(false) };
        let alive = self.alive_for(segment)?;
        let mut table = self.shards[index_key.shard].write();
        let slot = self.slot_of(&table, index_key, location, alive.as_deref())?;
        let Some(slot) = slot else { return Ok(false) };
        table.remove(slot);
        segment.remove_live(record.total);
        self.note_forgotten(index_key.shard, &self.log.segments(), location);
        let is_expired = record.meta.is_expired(self.now_ms(record.meta));
        match is_expired {
            true => self.expired.count_removed(),
            false => self.clock.report_evicted(record.key),
        }
        Ok(!is_expired)
    }

    fn look_up(&self, segment: &Segment, spend: &mut Spend<'_>) -> Result<bool> {
        let known = self.alive.lock().clone();
        let alive = self.alive_in(segment, known, spend)?;
        self.alive.lock().clone_from(&alive);
        Ok(alive.is_some() || !self.is_over_runs())
    }

    fn live_in(&self, segment: &Segment) -> Option<Vec<u32>> {
        let mut offsets = Vec::new();
        for number in 0..I::SHARDS {
            let table = self.table(number);
            let is_large = table.len() > PASSED_ENTRIES_MAX || offsets.len() > LIVE_RECORDS_MAX;
            let is_sparse = table.memory_bytes() > SPARSE_BYTES_MIN + SPARSE_BYTES * table.len();
            if is_large || is_sparse || table.run().is_some() {
                return None;
            }
            let entries = table.entries().map(|(_, location)| location);
            let own = entries.filter(|location| location.slot() == segment.slot);
            offsets.extend(own.map(|location| location.offset() as u32));
        }
        offsets.sort_unstable();
        Some(offsets)
    }

    fn forget_segment(&self, segment: &Segment) -> Result<u64> {
        segment.all_live.lose();
        let mut forgotten = 0;
        for (number, shard) in self.shards.iter().enumerate() {
            if self.table(number).run().is_some() {
                forgotten += self.forget_in_run(segment, number)?;
                continue;
            }
            let mut table = shard.write();
            let (packed, before) = (table.packed(), table.len());
            table.clear();
            // The words come from this kind of table, so this cannot fail.
            let _ = table.unpack(number, packed, &|location| location.slot() != segment.slot);
            forgotten += before.saturating_sub(table.len()) as u64;
        }
        Ok(forgotten)
    }

    fn checkpoint_bytes(&self) -> u64 {
        let words: usize = self.shards.iter().map(|shard| shard.read().packed_words()).sum();
        let directory =
            if I::ShardIndex::HAS_RUNS { run::directory_words(words, I::SHARDS) } else { 0 };
        // Each shard has a header.
        (words + I::SHARDS + directory) as u64 * 8
    }

    fn relieve(&self) -> Result<()> {
        if !self.wants_merge() || self.delays_merge() {
            return Ok(());
        }
        self.write_index_held()
    }
}

impl<I: Index> KeyedEngine<I> {
    /// Returns whether a record is the current one of its key.
    fn is_indexed(
        &self,
        segment: &Segment,
        location: Location,
        record: &Record<'_>,
    ) -> Result<bool> {
        let Some(index_key) = self.index.index_key(record.key) else { return Ok(false) };
        let alive = self.alive_for(segment)?;
        let table = self.shards[index_key.shard].read();
        Ok(self.slot_of(&table, index_key, location, alive.as_deref())?.is_some())
    }

    /// Returns which records of a segment the runs have, if the index is in runs. The caller holds
    /// no lock of a shard.
    fn alive_for(&self, segment: &Segment) -> Result<Option<Arc<Alive>>> {
        if !self.is_over_runs() {
            return Ok(None);
        }
        let known = self.alive.lock().clone();
        // If the background is stopping, the runs themselves are read.
        let alive = self.alive_in(segment, known, &mut self.log.pacer())?;
        self.alive.lock().clone_from(&alive);
        Ok(alive)
    }

    /// Like `forget_segment`, for a shard whose table is over a run. The caller holds
    /// `maintenance`, so the run is not replaced.
    fn forget_in_run(&self, segment: &Segment, shard: usize) -> Result<u64> {
        let is_in = |location: Location| location.slot() == segment.slot;
        let Some(run) = self.table(shard).run().cloned() else { return Ok(0) };
        let mut in_run = Vec::new();
        // Records of a damaged part of the run are not found again in the log.
        run.for_each_whole(&mut |_| true, &mut |part| in_run.extend_from_slice(part))?;
        let mut table = self.shards[shard].write();
        if !table.run().is_some_and(|now| Arc::ptr_eq(now, &run)) {
            return Ok(0);
        }
        let mut forgotten = 0;
        for (tag, location) in table.entries_over_run(&in_run) {
            if !is_in(location) {
                continue;
            }
            if let Seen::Yes(slot) | Seen::IfInRun(slot) = table.look_in_memory(tag, location) {
                table.remove(slot);
                forgotten += 1;
            }
        }
        Ok(forgotten)
    }

    /// Like `find`, but fails if a damaged record may be the key's.
    fn find_whole(
        &self,
        table: &I::ShardIndex,
        segments: &Segments,
        index_key: IndexKey<I>,
        key: &[u8],
    ) -> Result<Option<Found<Slot<I>>>> {
        let found = self.find(table, segments, index_key, key, Wait::Block)?;
        self.check_found(segments, found.as_ref(), index_key, Wait::Block)?;
        Ok(found)
    }

    fn relocate_put(
        &self,
        segment: &Segment,
        index_key: IndexKey<I>,
        location: Location,
        record: &Record<'_>,
        bytes: &[u8],
        oldest: u64,
    ) -> Result<()> {
        let alive = self.alive_for(segment)?;
        let mut table = self.shards[index_key.shard].write();
        let slot = self.slot_of(&table, index_key, location, alive.as_deref())?;
        // Until it is removed by another component, an expired record is moved like any other.
        let is_left = slot.is_some() && self.clock.expired_keys().is_some();
        if !is_left && record.meta.is_expired(self.now_ms(record.meta)) {
            if let Some(slot) = slot {
                table.remove(slot);
                segment.remove_live(record.total);
                self.expired.count_removed();
                self.note_forgotten(index_key.shard, &self.log.segments(), location);
            }
            // Until now the record itself has masked older records of its key.
            let segments = self.log.segments();
            if oldest <= segment.number
                && self.find_whole(&table, &segments, index_key, record.key)?.is_none()
            {
                let min_lsn = segments.lsn(location);
                let number = segment.number;
                let appended = self.log.append_tombstone_born_in(record.key, number, min_lsn)?;
                self.note_forgotten(index_key.shard, &self.log.segments(), appended.location);
            }
            return Ok(());
        }
        let Some(slot) = slot else { return Ok(()) };
        // Eviction must make space, whatever memory it uses.
        if table.run().is_some() && oldest != u64::MAX {
            self.check_index_memory_to_move()?;
        }
        let _change = self.log.space().begin_large_change(bytes.len());
        segment.all_live.lose();
        let moved = self.log.append_copy(segment, location.offset(), bytes)?;
        let segments = self.log.segments();
        if let Some(target) = segments.get(moved) {
            target.add_live(record.total);
            target.note_expiry(record.meta.expires_at_ms);
        }
        table.replace(slot, moved, record.total);
        self.note_moved(&segments, record.key, location, moved);
        // Compaction does not follow log order, so a record that was read keeps its mark.
        if oldest < segment.number && segment.access_bits.is_marked(location.offset()) {
            self.note_access(&segments, moved);
        }
        segment.remove_live(record.total);
        self.log.space().count_moved(bytes.len());
        Ok(())
    }

    fn relocate_tombstone(
        &self,
        segment: &Segment,
        index_key: IndexKey<I>,
        location: Location,
        record: &Record<'_>,
        bytes: &[u8],
        oldest: u64,
    ) -> Result<()> {
        // Whatever its birth segment, a tombstone masks nothing that was written after it.
        let birth = record.birth_segment().unwrap_or(u64::MAX).min(segment.number);
        if oldest > birth {
            return Ok(());
        }
        let table = self.shards[index_key.shard].write();
        // A newer record of the key masks the older ones. Moving the tombstone after it would
        // remove the newer record.
        let segments = self.log.segments();
        if self.find_whole(&table, &segments, index_key, record.key)?.is_none() {
            let moved = self.log.append_copy(segment, location.offset(), bytes)?;
            let segments = self.log.segments();
            if let Some(target) = segments.get(moved) {
                target.add_tombstone(bytes.len());
            }
            self.note_forgotten(index_key.shard, &segments, moved);
        }
        Ok(())
    }

    /// Compacts until almost no dead bytes are left, and frees the index's spare slots.
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
        self.log.remove_emptied(Unsealed::Sync)?;
        for shard in &self.shards {
            shard.write().shrink();
        }
        Ok(())
    }

    /// Implements [`crate::Maintenance::optimize`].
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
        if batch.is_empty() { Ok(()) } else { self.write_batch(batch, Wait::Block) }
    }

    /// Removes all records.
    pub(crate) fn clear(&self) -> Result<()> {
        let first = {
            // A merge in progress would take removed entries for entries of its run.
            let _maintenance = self.log.maintenance().pause();
            let mut tables: Vec<_> = self.shards.iter().map(|shard| shard.write()).collect();
            self.log.segments().iter().for_each(|segment| segment.all_live.lose());
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
        let _maintenance = self.log.maintenance().pause();
        self.write_index_held()
    }

    /// Like `write_index`. The caller holds `maintenance`.
    fn write_index_held(&self) -> Result<()> {
        let is_needed = self.needs_checkpoint.swap(false, Ordering::Relaxed);
        let was_over_runs = self.is_over_runs();
        let mut merged = Vec::new();
        let space = self.check_disk_space();
        let is_cheap = matches!(space, Err(Error::NoSpace { .. }));
        let written = space.and_then(|()| {
            self.log.write_checkpoint_held(|block| self.write_shards(block, &mut merged))
        });
        self.cannot_merge.store(written.is_err(), Ordering::Relaxed);
        // A check for space costs nothing, so its failure delays nothing.
        if !is_cheap {
            self.merge_backoff.lock().note(written.is_err(), Instant::now());
        }
        if written.is_err() {
            self.needs_checkpoint.fetch_or(is_needed, Ordering::Relaxed);
            let is_undone = self.undo_merge(merged);
            self.over_runs.store(was_over_runs || !is_undone, Ordering::Relaxed);
            self.note_index_pressure();
        }
        written
    }

    /// Fails if the disk has no space for the runs to write, or if the current runs are damaged. A
    /// merge would read and write much of the index before it noticed.
    fn check_disk_space(&self) -> Result<()> {
        if !self.is_over_runs() && !self.wants_merge() {
            return Ok(());
        }
        if self.damaged_pieces() > 0 {
            return Err(self.damaged_index());
        }
        let (needed, free) = (self.checkpoint_bytes(), self.log.free_bytes());
        if free >= needed {
            return Ok(());
        }
        if !self.cannot_merge.load(Ordering::Relaxed) {
            tracing::error!(
                "the index of {} is merged on the disk, which takes {needed} bytes, and {free} are \
                 free: until there are more it takes more memory",
                self.log.directory().display()
            );
        }
        Err(Error::NoSpace { path: self.log.directory().join(checkpoint::NAME) })
    }

    /// Fails if the index exceeds its memory limit and cannot be merged.
    #[inline]
    pub(super) fn check_index_memory(&self) -> Result<()> {
        if self.cannot_merge.load(Ordering::Relaxed)
            && self.growth.bytes() > index_bytes_limit(self.index_bytes_max)
        {
            return Err(self.no_index_space());
        }
        Ok(())
    }

    /// Like `check_index_memory`, for compaction. The limit is higher, because moving records
    /// changes the index in memory, and frees space.
    fn check_index_memory_to_move(&self) -> Result<()> {
        let most = index_bytes_limit(self.index_bytes_max).saturating_mul(MOVES_TIMES);
        if self.cannot_merge.load(Ordering::Relaxed) && self.growth.bytes() > most {
            return Err(self.no_index_space());
        }
        Ok(())
    }

    /// Returns whether a merge has failed recently and must wait before it is tried again.
    fn delays_merge(&self) -> bool {
        self.merge_backoff.lock().is_waiting(Instant::now())
    }

    #[cold]
    fn no_index_space(&self) -> Error {
        match self.damaged_pieces() {
            0 => Error::NoSpace { path: self.log.directory().join(checkpoint::NAME) },
            _ => self.damaged_index(),
        }
    }

    fn damaged_index(&self) -> Error {
        let what = "pages of the index are damaged and are being rebuilt from the log";
        let file = self.log.directory().join(checkpoint::NAME);
        Error::Corrupted { file, offset: 0, what: what.into() }
    }

    /// Switches tables back to the runs that they had before a failed merge, so that the space of
    /// its file is freed. Returns whether all were switched.
    fn undo_merge(&self, merged: Vec<Merged>) -> bool {
        let mut is_undone = true;
        for Merged { shard, old, new } in merged {
            let in_old = old.as_ref().map_or_else(|| Ok(Vec::new()), |old| old.read_all());
            let (in_old, in_new) = match (in_old, new.read_all()) {
                (Ok(in_old), Ok(in_new)) => (in_old, in_new),
                (Err(error), _) | (_, Err(error)) => {
                    tracing::error!("a part of the index stays in an unnamed file: {error}");
                    is_undone = false;
                    continue;
                }
            };
            let mut table = self.shards[shard].write();
            if table.run().is_some_and(|run| Arc::ptr_eq(run, &new)) {
                let entries = table.before().merged_with(&in_new);
                table.set_over(old, &in_old, &entries);
            }
        }
        is_undone
    }

    /// Writes the blocks of a checkpoint. If the index exceeds its memory budget, the tables switch
    /// to the new file one by one, and `merged` lists them.
    fn write_shards(
        &self,
        block: &mut dyn FnMut(&[u64]) -> Result<Block>,
        merged: &mut Vec<Merged>,
    ) -> Result<()> {
        let is_in_runs = self.is_over_runs() || self.wants_merge();
        if is_in_runs {
            self.over_runs.store(true, Ordering::Relaxed);
        }
        let mut runs: Vec<Arc<Run>> = Vec::new();
        for (shard, own) in self.shards.iter().enumerate() {
            if is_in_runs && shard.is_multiple_of(LOOK_SHARDS) {
                self.note_index_pressure();
            }
            let before = own.read().before();
            let entries = before.merged()?;
            let Block { file, offset } = block(&entries)?;
            if I::ShardIndex::HAS_RUNS {
                let known = runs.first().map(|run| Arc::clone(run.file()));
                let file = known.unwrap_or_else(|| {
                    let path = self.log.directory().join(checkpoint::NAME);
                    let faults = Arc::clone(self.log.maintenance().index_faults());
                    Arc::new(RunFile { file, path, salt: self.log.database_id().salt, faults })
                });
                let new = Arc::new(Run::of(file, offset, &entries));
                if is_in_runs {
                    own.write().rebase(&before, Arc::clone(&new));
                    merged.push(Merged { shard, old: before.run, new: Arc::clone(&new) });
                }
                runs.push(new);
            }
        }
        if I::ShardIndex::HAS_RUNS {
            block(&run::directory_of(&runs))?;
        }
        if is_in_runs {
            self.note_index_pressure();
        }
        Ok(())
    }

    /// Makes writers pause while the index far exceeds its memory budget, because merging cannot
    /// keep up.
    #[cold]
    pub(super) fn note_index_pressure(&self) {
        self.log.space().note_index_pressure(self.is_index_high());
    }

    /// Returns whether the index far exceeds its memory budget.
    #[inline]
    pub(super) fn is_index_high(&self) -> bool {
        let over = (self.index_bytes_max / OVER_SHARE).max(OVER_BYTES_MIN);
        self.growth.bytes() > self.index_bytes_max.saturating_add(over)
    }

    /// Merges, unless the last merge failed: maintenance retries it. Returns whether it merged. The
    /// caller holds no lock.
    fn merges_at_once(&self) -> bool {
        if self.cannot_merge.load(Ordering::Relaxed) {
            return false;
        }
        let written = self.write_index();
        if let Err(error) = &written {
            tracing::error!("the index cannot be merged: {error}");
        }
        written.is_ok()
    }

    /// Returns whether tables have runs.
    pub(crate) fn is_over_runs(&self) -> bool {
        self.over_runs.load(Ordering::Relaxed)
    }

    /// Returns the bytes of memory of the tables, except those locked for a large change.
    pub(super) fn index_bytes(&self) -> u64 {
        let tables = (0..I::SHARDS).filter_map(|shard| self.table_for(shard, Wait::Never).ok());
        tables.map(|table| table.memory_bytes() as u64).sum()
    }

    /// Returns whether the entries in memory must move to runs.
    pub(super) fn wants_merge(&self) -> bool {
        if !I::ShardIndex::HAS_RUNS {
            return false;
        }
        self.note_index_pressure();
        let share = if self.is_over_runs() { CHANGES_SHARE } else { 1 };
        self.growth.bytes() > self.index_bytes_max / share
    }

    /// Writes a checkpoint if the last one is not complete, so that the next opening is quick. The
    /// records are readable without it.
    pub(crate) fn close(&self) -> Result<()> {
        self.log.commit().check()?;
        // On a full disk the checkpoint may need the space.
        self.log.try_to_remove_emptied(Unsealed::Sync);
        self.log.trim()?;
        let is_needed = self.needs_checkpoint.load(Ordering::Relaxed);
        if is_needed || !self.log.is_checkpointed() {
            match self.write_index() {
                // The next opening rebuilds the index from the log.
                Err(error @ Error::Corrupted { .. }) => tracing::error!("no checkpoint: {error}"),
                Err(error @ Error::NoSpace { .. }) => tracing::warn!("no checkpoint: {error}"),
                result => result?,
            }
            // The checkpoint may have begun a segment.
            self.log.trim()?;
        }
        self.log.sync()?;
        self.log.note_closed()
    }
}

impl<I: Index> Maintained for KeyedEngine<I> {
    fn log(&self) -> &Log {
        &self.log
    }

    /// Reads the segments in which records have expired since they were last swept, and removes
    /// these records from the index.
    fn sweep(&self, go_on: &dyn Fn() -> bool) -> Result<()> {
        let now_ms = self.clock.now_ms();
        for segment in self.log.segments().in_order() {
            if segment.next_expiry_ms.load(Ordering::Relaxed) <= now_ms {
                self.log.sweep_segment(&segment, now_ms, &|location, record| {
                    // Entries removed from runs use memory until they are merged.
                    if self.is_over_runs() && self.is_index_high() && !self.merges_at_once() {
                        return true;
                    }
                    let is_left = self.clock.expired_keys().is_some();
                    let done = if is_left {
                        self.is_indexed(&segment, location, record)
                            .map(|is_indexed| !is_indexed || !self.clock.hand_over(record.key))
                    } else {
                        self.forget(&segment, location, record).map(|_| true)
                    };
                    // If the index cannot be read, the record is checked again later.
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
        if self.delays_merge() { Ok(()) } else { self.write_index() }
    }

    fn mend(&self, go_on: &dyn Fn() -> bool) -> Result<()> {
        self.repair_runs(go_on)
    }

    fn wants_checkpoint(&self) -> bool {
        self.wants_merge() || self.needs_checkpoint.load(Ordering::Relaxed)
    }
}

/// Does one round of the background's work.
#[cfg(feature = "testing")]
pub(super) fn run_maintenance<I: Index>(engine: &Arc<KeyedEngine<I>>) -> Result<()> {
    debug_assert_eq!(engine.shards.len(), I::SHARDS);
    let log = engine.log();
    log.maintain_segments()?;
    engine.mend(&|| true)?;
    engine.sweep(&|| true)?;
    engine.enforce_cap()?;
    match Maintained::compact(&**engine, &|| true) {
        Ok(()) | Err(Error::NoSpace { .. }) => {}
        Err(error) => return Err(error),
    }
    if engine.wants_checkpoint() {
        match engine.write_index() {
            // Space may be freed later, and changes stay in memory until then.
            Ok(()) | Err(Error::NoSpace { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{FaultyStorage, Open, Storage};
    use crate::log::Usage;
    use crate::{Change, Clock, Engine, HashDatabase, Maintenance, Meta, RecordRef};
    use std::path::Path;

    const RECORDS: u32 = 300_000;

    fn open(storage: &FaultyStorage, index_bytes: u64) -> HashDatabase {
        let options = Options { index_bytes: Some(index_bytes), ..Options::default() };
        let path = Path::new("casket.tch");
        HashDatabase::open_on(Arc::new(storage.clone()), path, &options, false).unwrap()
    }

    /// Length of a segment of [`open_segmented`], in bytes.
    const SEGMENT_BYTES: u32 = 256 << 10;

    /// Opens a database of short segments.
    fn open_segmented(storage: &FaultyStorage) -> HashDatabase {
        let options = Options { segment_bytes: Some(SEGMENT_BYTES), ..Options::default() };
        let path = Path::new("casket.tch");
        HashDatabase::open_on(Arc::new(storage.clone()), path, &options, false).unwrap()
    }

    /// Returns the storage of a database that was closed.
    fn filled(records: u32) -> FaultyStorage {
        let storage = FaultyStorage::new();
        let database = open(&storage, u64::MAX);
        for number in 0..records {
            database.put(&number.to_be_bytes(), &[], Meta::NONE, Wait::Block).unwrap();
        }
        drop(database);
        storage
    }

    #[test]
    fn records_that_a_sweep_removes_are_counted_once() {
        let (clock, time) = Clock::manual(1000);
        let options = Options { clock, segment_bytes: Some(64 << 10), ..Options::default() };
        let storage = Arc::new(FaultyStorage::new());
        let path = Path::new("casket.tch");
        let database = HashDatabase::open_on(storage, path, &options, false).unwrap();
        for number in 0..1000u32 {
            let meta = Meta { flags: 0, expires_at_ms: 2000 * u64::from(number % 2) };
            database.put(&number.to_be_bytes(), &[7; 100], meta, Wait::Block).unwrap();
        }
        // Segments that are half dead are compacted, too.
        for now_ms in [3000, 300_000, 600_000] {
            time.set(now_ms);
            database.run_maintenance().unwrap();
            let stats = database.stats();
            let removed = stats.into_iter().find(|(name, _)| *name == "expired_removed").unwrap();
            assert_eq!((removed.1.as_str(), database.len()), ("500", 500));
        }
    }

    #[test]
    fn the_background_does_not_merge_again_at_once_after_a_failure() {
        let storage = filled(20_000);
        let database = open(&storage, 0);
        database.put(b"key", b"value", Meta::NONE, Wait::Block).unwrap();
        let engine = database.engine();
        engine.needs_checkpoint.store(true, Ordering::Relaxed);
        let faults = storage.faults();
        let before = Instant::now();
        let is_delayed = || engine.merge_backoff.lock().is_waiting(before);
        faults.space_bytes.store(10_000, Ordering::Relaxed);
        assert!(matches!(engine.write_index(), Err(Error::NoSpace { .. })));
        assert!(!is_delayed(), "nothing was tried");
        faults.hide_shortage.store(true, Ordering::Relaxed);
        assert!(matches!(engine.write_index(), Err(Error::NoSpace { .. })));
        assert!(is_delayed());
        // The delay of one minute is longer than the rest of the test.
        (0..20).for_each(|_| engine.merge_backoff.lock().note(true, Instant::now()));
        faults.space_bytes.store(u64::MAX, Ordering::Relaxed);
        let written = || {
            let stats = database.stats();
            stats.into_iter().find(|(name, _)| *name == "checkpoints").unwrap().1
        };
        assert!(engine.wants_checkpoint());
        Maintained::checkpoint(engine).unwrap();
        engine.relieve().unwrap();
        assert_eq!(written(), "0");
        // An explicit request writes it.
        engine.write_index().unwrap();
        assert_eq!(written(), "1");
        assert!(!is_delayed());
    }

    /// The dead bytes of a kept segment stay, so the log is over the limit for good.
    #[test]
    fn compaction_ends_and_moves_no_segment_without_dead_bytes_whatever_the_limit() {
        for dead_percent_max in [0, 1, 2, 10, 11, 89, 90, 100] {
            let segment_bytes = Some(64 << 10);
            let options = Options { segment_bytes, dead_percent_max, ..Options::default() };
            let (storage, path) = (Arc::new(FaultyStorage::new()), Path::new("casket.tch"));
            let database = HashDatabase::open_on(storage, path, &options, false).unwrap();
            let put = |number: u32| {
                database.put(&number.to_be_bytes(), &[1; 100], Meta::NONE, Wait::Block).unwrap();
            };
            (0..3000).for_each(put);
            (0..600).for_each(put);
            let engine = database.engine();
            engine.log.segments().in_order()[0].spare();
            assert!(Usage::of(&engine.log.segments()).dead_percent() > 10);
            engine.log.maintain_segments().unwrap();
            let mut moved = 0;
            while let Some(segment) = engine.log.due_for_compaction() {
                assert!(segment.dead_bytes(false) > 0, "{dead_percent_max} percent");
                moved += 1;
                assert!(moved < 10, "{dead_percent_max} percent");
                engine.log.compact(&segment, false, engine, &|| true).unwrap();
            }
            database.run_maintenance().unwrap();
            assert_eq!(database.len(), 3000);
        }
    }

    #[test]
    fn compaction_stops_when_what_it_moves_takes_too_much_memory_of_an_index_that_cannot_be_merged()
    {
        let database = open(&filled(RECORDS), 0);
        let engine = database.engine();
        engine.cannot_merge.store(true, Ordering::Relaxed);
        (0..20).for_each(|_| engine.merge_backoff.lock().note(true, Instant::now()));
        let segments = engine.log.segments().in_order();
        let compacted: Vec<_> = segments
            .iter()
            .filter(|segment| segment.is_sealed())
            .map(|segment| engine.log.compact(segment, false, engine, &|| true))
            .collect();
        let refused = compacted.iter().filter(|one| matches!(one, Err(Error::NoSpace { .. })));
        assert!(refused.count() > 0, "{compacted:?}");
        let bytes = engine.growth.bytes();
        let most = index_bytes_limit(0) * MOVES_TIMES;
        assert!((most..most + (64 << 10)).contains(&bytes), "{bytes}");
        // Once it can be merged, writes continue.
        engine.write_index().unwrap();
        database.run_maintenance().unwrap();
        assert_eq!(database.len(), u64::from(RECORDS));
    }

    /// Seed with which [`FaultyStorage::lose_power`] keeps only synced data.
    const ONLY_SYNCED: u64 = 3;

    #[test]
    fn compaction_syncs_all_that_it_moved_and_not_the_active_segment() {
        let storage = FaultyStorage::new();
        let database = open_segmented(&storage);
        let records = 5 * SEGMENT_BYTES / 100;
        for number in 0..records {
            database.put(&number.to_be_bytes(), &[1; 100], Meta::NONE, Wait::Block).unwrap();
        }
        let engine = database.engine();
        let first = Arc::clone(&engine.log.segments().in_order()[0]);
        engine.log.compact(&first, false, engine, &|| true).unwrap();
        let segments = engine.log.segments().in_order();
        let active = segments.into_iter().find(|segment| !segment.is_sealed()).unwrap();

        let left = storage.lose_power(|| ONLY_SYNCED);
        let synced =
            left.open(&active.path, Open::Existing).map_or(0, |file| file.length().unwrap());
        assert_eq!(synced, 0, "the active segment was synced");
        assert!(storage.open(&first.path, Open::Existing).is_err(), "the segment was not removed");
        let database = open_segmented(&left);
        for number in 0..records {
            let mut value = Vec::new();
            let mut visit = |record: RecordRef<'_>| value.extend_from_slice(record.value);
            database.read(&number.to_be_bytes(), Wait::Block, &mut visit).unwrap();
            assert_eq!(value, [1; 100], "record {number}");
        }
    }

    #[test]
    fn the_index_names_the_live_records_of_a_segment_in_order() {
        let database = open_segmented(&FaultyStorage::new());
        let put = |number: u32| {
            database.put(&number.to_be_bytes(), &[1; 100], Meta::NONE, Wait::Block).unwrap();
        };
        (0..5 * SEGMENT_BYTES / 100).for_each(put);
        (0..5 * SEGMENT_BYTES / 100).filter(|number| number % 3 > 0).for_each(put);
        let engine = database.engine();
        let segments = engine.log.segments().in_order();
        for segment in segments.iter().filter(|segment| segment.is_sealed()) {
            let mut live = Vec::new();
            let mut note = |offset, record: &Record<'_>, _: &[u8]| {
                if engine.is_indexed(segment, segment.at(offset), record)? {
                    live.push(offset as u32);
                }
                Ok(())
            };
            let mut scanner = segment.scanner(0, segment.bytes());
            while matches!(scanner.next(&mut note), Ok(Ok(true))) {}
            assert!(!live.is_empty());
            assert_eq!(engine.live_in(segment), Some(live));
        }
    }

    #[test]
    fn removed_and_expired_records_stay_away_whichever_segment_is_compacted_first() {
        const KEYS: [&[u8]; 2] = [b"removed", b"expired"];
        let filling = || (0..SEGMENT_BYTES / 100).map(u32::to_be_bytes);
        for is_oldest_first in [true, false] {
            let storage = FaultyStorage::new();
            let (clock, time) = Clock::manual(1000);
            let open = |storage: &FaultyStorage| {
                let segment_bytes = Some(SEGMENT_BYTES);
                let options = Options { clock: clock.clone(), segment_bytes, ..Options::default() };
                let storage = Arc::new(storage.clone());
                HashDatabase::open_on(storage, Path::new("casket.tch"), &options, false).unwrap()
            };
            let database = open(&storage);
            let put = |key: &[u8], meta| {
                database.put(key, &[1; 100], meta, Wait::Block).unwrap();
            };
            KEYS.iter().for_each(|key| put(key, Meta::NONE));
            filling().for_each(|key| put(&key, Meta::NONE));
            put(b"expired", Meta { expires_at_ms: 2000, ..Meta::NONE });
            let mut remove = |_: Option<RecordRef<'_>>| Change::Remove;
            database.update(b"removed", Wait::Block, &mut remove).unwrap();
            time.set(3000);
            filling().for_each(|key| put(&[&key[..], b"more"].concat(), Meta::NONE));
            database.run_maintenance().unwrap();
            let log = &database.engine().log;
            let mut sealed = log.segments().in_order();
            sealed.retain(|segment| segment.is_sealed());
            assert!(sealed.len() >= 2);
            if !is_oldest_first {
                sealed.reverse();
            }
            for segment in sealed {
                log.compact(&segment, false, database.engine(), &|| true).unwrap();
                let left = open(&storage.kill());
                for key in KEYS {
                    assert!(!left.read(key, Wait::Block, &mut |_| ()).unwrap());
                }
                assert_eq!(left.len(), u64::from(2 * (SEGMENT_BYTES / 100)));
            }
        }
    }

    #[test]
    fn segments_that_are_removed_together_need_none_of_their_tombstones() {
        for is_first_kept in [false, true] {
            let storage = FaultyStorage::new();
            let database = open_segmented(&storage);
            let log = &database.engine().log;
            let sealed = || log.segments().in_order().iter().filter(|one| one.is_sealed()).count();
            let put = |key: &[u8]| database.put(key, &[1; 100], Meta::NONE, Wait::Block).unwrap();
            put(b"removed");
            while sealed() < 1 {
                put(b"key");
            }
            let mut remove = |_: Option<RecordRef<'_>>| Change::Remove;
            database.update(b"removed", Wait::Block, &mut remove).unwrap();
            while sealed() < 2 {
                put(b"key");
            }
            let [first, second] = [0, 1].map(|place| Arc::clone(&log.segments().in_order()[place]));
            database.run_maintenance().unwrap();
            assert!(first.is_emptied() && second.is_emptied());
            assert_eq!(Usage::of(&log.segments()).tombstone_bytes, 0, "a tombstone was moved");
            if is_first_kept {
                first.note_fault(0, "a test");
            }
            let unfinished = storage.kill();
            while sealed() < 3 {
                put(b"key");
            }
            database.run_maintenance().unwrap();
            database.run_maintenance().unwrap();
            let is_there = |one: &Segment| storage.open(&one.path, Open::Existing).is_ok();
            assert_eq!([&first, &second].map(|one| is_there(one)), [is_first_kept, false]);
            for storage in [unfinished, storage.kill()] {
                let left = open_segmented(&storage);
                assert!(!left.read(b"removed", Wait::Block, &mut |_| ()).unwrap());
                assert!(left.read(b"key", Wait::Block, &mut |_| ()).unwrap());
            }
        }
    }

    #[test]
    fn an_emptied_segment_stays_until_what_was_moved_from_it_is_sealed() {
        let storage = FaultyStorage::new();
        let database = open_segmented(&storage);
        let log = &database.engine().log;
        let sealed = || log.segments().in_order().iter().filter(|one| one.is_sealed()).count();
        let mut number = 0u32;
        let mut put_until = |is_enough: &dyn Fn() -> bool| {
            while !is_enough() {
                let key = number.to_be_bytes();
                database.put(&key, &[1; 100], Meta::NONE, Wait::Block).unwrap();
                // The records that are left fill less than a quarter of a segment.
                for _ in 0..39 {
                    database.put(b"key", &[2; 100], Meta::NONE, Wait::Block).unwrap();
                }
                number += 1;
            }
            number
        };
        put_until(&|| sealed() == 1);
        let first = log.segments().in_order().remove(0);
        let is_there = |storage: &FaultyStorage| storage.open(&first.path, Open::Existing).is_ok();
        database.run_maintenance().unwrap();
        assert!(is_there(&storage), "moved records may be lost");
        let killed = storage.kill();
        let records = put_until(&|| sealed() == 2);
        database.run_maintenance().unwrap();
        assert!(!is_there(&storage), "the segment was not removed");

        // The records that were moved, and those that were sealed with them, are durable.
        let left = open_segmented(&storage.lose_power(|| ONLY_SYNCED));
        let is_found =
            |number: &u32| left.read(&number.to_be_bytes(), Wait::Block, &mut |_| ()).unwrap();
        let durable = (0..records).take_while(is_found).count();
        assert!(durable as u32 * 6000 > SEGMENT_BYTES, "{durable} of {records}");

        // A round without a segment to compact does not leave one for the next.
        let reopened = open_segmented(&killed);
        (0..2).for_each(|_| reopened.run_maintenance().unwrap());
        assert!(!is_there(&killed), "the segment was not removed");
    }
}
