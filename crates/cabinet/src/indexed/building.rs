//! The index while a database is opened: in memory, or in runs if it does not fit.
//!
//! In memory, each change that the log has is made to its table at once. In runs, changes are
//! collected, and then all runs are read, changed and written to another file, one after the other.
//! So replaying takes one pass over the runs for each [`Building::take`]n part of the log that fits
//! into memory, and never reads them at random. That file has no name: it is gone when the process
//! ends, and the next checkpoint replaces it.

use super::recover::{Change, replay};
use super::run::{self, Run, RunFile};
use super::{Index, Indexed, Table as _};
use crate::io::File;
use crate::log::checkpoint::{BLOCK_HEADER_BYTES, Checkpoint, HEADER_BYTES, encode_block};
use crate::log::{Location, Recovery, Segments};
use crate::{Options, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of memory that a record takes in a full table, times two.
const ENTRY_BYTES_TWICE: u64 = 25;

/// Changes that are collected at least.
const CHANGES_MIN: usize = 64;

/// Changes after which memory is looked at, at most.
const LOOK_CHANGES: u64 = 1 << 14;

type MakeFile = Box<dyn Fn() -> Result<(Arc<dyn File>, PathBuf)>>;

/// Makes the entries of a run, sorted, given a table and the number of its shard.
type EntriesOf<'e, I> = dyn FnMut(&<I as Index>::Table, usize) -> Result<Vec<u64>> + 'e;

/// See the module.
pub(super) struct Building<I: Index> {
    tables: Vec<I::Table>,
    is_in_runs: bool,
    /// By shard. Empty unless the index is in runs.
    changes: Vec<Vec<Change>>,
    changed: usize,
    bytes_max: u64,
    taken: u64,
    salt: u32,
    storage: Arc<dyn crate::io::Storage>,
    make_file: MakeFile,
}

impl<I: Index> Building<I> {
    /// An empty index.
    pub(super) fn empty(index: &I, recovery: &Recovery, options: &Options) -> Self {
        Self {
            tables: (0..I::SHARDS).map(|_| index.new_table()).collect(),
            is_in_runs: false,
            changes: Vec::new(),
            changed: 0,
            bytes_max: if I::Table::HAS_RUNS { options.index_bytes_max() } else { u64::MAX },
            taken: 0,
            salt: recovery.identity.salt,
            storage: Arc::clone(recovery.storage()),
            make_file: Box::new(recovery.run_file_maker()),
        }
    }

    /// The index as the checkpoint has it, less entries that point to segments that are gone.
    pub(super) fn load(index: &I, recovery: &mut Recovery, options: &Options) -> Result<Self> {
        let mut building = Self::empty(index, recovery, options);
        let goes_on = recovery.goes_on();
        let Some(checkpoint) = &mut recovery.checkpoint else { return Ok(building) };
        let segments = &recovery.segments;
        let keeps = |location| segments.get(location).is_some();
        let directory = if I::Table::HAS_RUNS { checkpoint.last_block()? } else { None };
        let blocks_bytes = directory
            .as_ref()
            .map_or(checkpoint.blocks_bytes(), |(start, _)| start - HEADER_BYTES as u64);
        let entries = (blocks_bytes / 8).saturating_sub(I::SHARDS as u64);
        if entries.saturating_mul(ENTRY_BYTES_TWICE) / 2 <= building.bytes_max {
            for (shard, table) in building.tables.iter_mut().enumerate() {
                let Some(packed) = checkpoint.next_block()? else { break };
                if !table.unpack(shard, packed, &keeps) {
                    return Err(checkpoint.corrupted("entries that are in no order"));
                }
            }
            return Ok(building);
        }
        building.is_in_runs = true;
        if !goes_on
            && let Some(runs) = directory.and_then(|found| building.runs_of(checkpoint, found))
        {
            for (table, run) in building.tables.iter_mut().zip(runs) {
                table.set_run(run);
            }
            return Ok(building);
        }
        // All of it is read anyway when the log is replayed, and nothing can be mended then.
        building.write_runs(&mut |_, shard| {
            let Some(mut packed) = checkpoint.next_block()? else { return Ok(Vec::new()) };
            packed.retain(|entry| keeps(Location::from_bits(*entry)));
            packed.sort_unstable();
            let mut table = index.new_table();
            if !table.unpack(shard, packed.clone(), &|_| true) {
                return Err(checkpoint.corrupted("entries that are in no order"));
            }
            Ok(packed)
        })?;
        Ok(building)
    }

    /// The runs of a checkpoint, given its last block.
    fn runs_of(
        &self,
        checkpoint: &Checkpoint,
        (start, words): (u64, Vec<u64>),
    ) -> Option<Vec<Arc<Run>>> {
        let (file, path) = checkpoint.file();
        let (storage, file) = (Arc::clone(&self.storage), Arc::clone(file));
        let file = Arc::new(RunFile { storage, file, path: path.to_owned(), salt: self.salt });
        run::runs_of(&file, &words, I::SHARDS, HEADER_BYTES as u64, start)
    }

    /// Takes a change that the log has.
    pub(super) fn take(
        &mut self,
        index: &I,
        segments: &Segments,
        change: Change,
        key: &[u8],
    ) -> Result<()> {
        let shard = index.place_of_name(change.name).shard;
        if !self.is_in_runs {
            let is_key = |other: &[u8]| other == key;
            let table = &mut self.tables[shard];
            replay(index, table, self.salt, segments, &change, &is_key)?;
            self.taken += 1;
            let is_time = self.taken.is_multiple_of((self.bytes_max / 64).clamp(1, LOOK_CHANGES));
            return if is_time { self.spill() } else { Ok(()) };
        }
        if self.changes.is_empty() {
            self.changes.resize_with(I::SHARDS, Vec::new);
        }
        self.changes[shard].push(change);
        self.changed += 1;
        // Vectors that grow have room for twice as many as they hold.
        let most = self.bytes_max / (2 * size_of::<Change>() as u64);
        if self.changed as u64 > most.max(CHANGES_MIN as u64) {
            return self.make_changes(index, segments);
        }
        Ok(())
    }

    /// The tables, when all changes were taken.
    pub(super) fn finish(mut self, index: &I, segments: &Segments) -> Result<Vec<I::Table>> {
        if self.changed > 0 {
            self.make_changes(index, segments)?;
        }
        self.spill()?;
        Ok(self.tables)
    }

    /// Puts the index into runs if it takes too much memory.
    fn spill(&mut self) -> Result<()> {
        if !I::Table::HAS_RUNS || self.is_in_runs {
            return Ok(());
        }
        let bytes: u64 = self.tables.iter().map(|table| table.memory_bytes() as u64).sum();
        if bytes <= self.bytes_max {
            return Ok(());
        }
        self.is_in_runs = true;
        self.write_runs(&mut |table, _| Ok(table.before().added))
    }

    fn make_changes(&mut self, index: &I, segments: &Segments) -> Result<()> {
        let mut changes = std::mem::take(&mut self.changes);
        self.changed = 0;
        let salt = self.salt;
        self.write_runs(&mut |over_run, shard| {
            let changes = std::mem::take(&mut changes[shard]);
            let entries = over_run.before().merged()?;
            if changes.is_empty() {
                return Ok(entries);
            }
            let mut table = index.new_table();
            // They are a table's own.
            let _ = table.unpack(shard, entries, &|_| true);
            for change in &changes {
                let tag = index.place_of_name(change.name).tag;
                for found in table.matches(tag).filter(|found| found.location != change.location) {
                    Indexed::<I>::announce_record(segments, found.location);
                }
            }
            for change in changes {
                let is_key = |other: &[u8]| index.name(other) == Some(change.name);
                replay(index, &mut table, salt, segments, &change, &is_key)?;
            }
            Ok(table.before().added)
        })
    }

    /// Writes what `entries_of` makes of each table, sorted, as runs of a file.
    fn write_runs(&mut self, entries_of: &mut EntriesOf<'_, I>) -> Result<()> {
        let (file, path) = (self.make_file)()?;
        let storage = Arc::clone(&self.storage);
        let file = Arc::new(RunFile { storage, file, path, salt: self.salt });
        let (mut end, mut bytes) = (HEADER_BYTES as u64, Vec::new());
        for (shard, table) in self.tables.iter_mut().enumerate() {
            let entries = entries_of(table, shard)?;
            encode_block(&mut bytes, &entries, self.salt);
            file.write(&bytes, end)?;
            let run = Run::of(Arc::clone(&file), end + BLOCK_HEADER_BYTES as u64, &entries);
            end += bytes.len() as u64;
            table.clear();
            table.set_run(Arc::new(run));
        }
        Ok(())
    }
}
