//! Index under construction while a database opens: in memory, or over runs if it does not fit.
//!
//! In memory, each change in the log is applied to its table at once. Over runs, as many changes
//! are collected as fit into memory. Then all runs are read sequentially, and each table keeps its
//! differences from its run. If these use too much memory, everything is merged into an unnamed
//! file. The file vanishes when the process ends, and the next checkpoint replaces it.
//!
//! If the disk has no space for that file, or the database is read-only, the index uses more
//! memory, up to [`index_bytes_limit`]. Beyond that the opening fails, and nothing has changed.

use super::maintenance::index_bytes_limit;
use super::recover::{Change, replay};
use super::run::{self, Run, RunFile};
use super::{Index, KeyedEngine, ShardIndex as _};
use crate::io::File;
use crate::log::checkpoint::{BLOCK_HEADER_BYTES, Checkpoint, HEADER_BYTES, encode_block};
use crate::log::{Faults, Location, Recovery, Segments};
use crate::{Error, Options, Result};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of memory of a record in a full table, times two.
const ENTRY_BYTES_TWICE: u64 = 25;

/// Fewest changes that are collected.
const CHANGES_MIN: usize = 64;

/// Most changes between two checks of the memory.
const LOOK_CHANGES: u64 = 1 << 14;

type MakeFile = Box<dyn Fn() -> Result<(Arc<dyn File>, PathBuf)>>;

/// Returns the sorted entries of a run, given a table and the number of its shard.
type EntriesOf<'e, I> = dyn FnMut(&<I as Index>::ShardIndex, usize) -> Result<Vec<u64>> + 'e;

/// Differences from runs may use the budget of the index divided by this before they are merged.
const CHANGES_SHARE: u64 = 2;

/// Index under construction, see the module.
pub(super) struct Building<I: Index> {
    tables: Vec<I::ShardIndex>,
    is_in_runs: bool,
    /// By shard. Empty unless the index is in runs.
    changes: Vec<Vec<Change>>,
    changed: usize,
    bytes_max: u64,
    taken: u64,
    salt: u32,
    faults: Arc<Faults>,
    make_file: MakeFile,
    free_bytes: Box<dyn Fn() -> u64>,
    directory: PathBuf,
    /// Whether no file may be made, because the database is only read.
    is_read_only: bool,
    /// Whether the disk had no space for a file.
    lacks_space: bool,
    needs_checkpoint: bool,
}

impl<I: Index> Building<I> {
    /// Returns an empty index.
    pub(super) fn empty(index: &I, recovery: &Recovery, options: &Options) -> Self {
        Self {
            tables: (0..I::SHARDS).map(|_| index.new_shard_index()).collect(),
            is_in_runs: false,
            changes: Vec::new(),
            changed: 0,
            bytes_max: if I::ShardIndex::HAS_RUNS { options.index_bytes_max() } else { u64::MAX },
            taken: 0,
            salt: recovery.database_id.salt,
            faults: Arc::clone(&recovery.index_faults),
            make_file: Box::new(recovery.run_file_maker()),
            free_bytes: Box::new(recovery.free_space()),
            directory: recovery.directory().to_owned(),
            is_read_only: options.read_only,
            lacks_space: false,
            needs_checkpoint: false,
        }
    }

    /// Returns whether a checkpoint must be written although nothing was appended to the log.
    pub(super) fn needs_checkpoint(&self) -> bool {
        self.needs_checkpoint
    }

    /// Loads the index from the checkpoint, without entries that point to removed segments.
    pub(super) fn load(index: &I, recovery: &mut Recovery, options: &Options) -> Result<Self> {
        let mut building = Self::empty(index, recovery, options);
        let goes_on = recovery.goes_on();
        let lists_what_is_gone = recovery.lists_what_is_gone();
        let Some(checkpoint) = &mut recovery.checkpoint else { return Ok(building) };
        let segments = &recovery.segments;
        let keeps = |location: Location| segments.get(location).is_some();
        let directory = if I::ShardIndex::HAS_RUNS { checkpoint.last_block()? } else { None };
        let blocks_bytes = directory
            .as_ref()
            .map_or(checkpoint.blocks_bytes(), |(start, _)| start - HEADER_BYTES as u64);
        let entries = (blocks_bytes / 8).saturating_sub(I::SHARDS as u64);
        let entry_bytes = entries.saturating_mul(ENTRY_BYTES_TWICE) / 2;
        let runs = match directory {
            Some(found) if entry_bytes > building.bytes_max => building.runs_of(checkpoint, found),
            _ => None,
        };
        if let Some(runs) = runs {
            building.is_in_runs = true;
            // Otherwise each opening would look for them again.
            building.needs_checkpoint = lists_what_is_gone;
            return building
                .over_runs(runs, goes_on.then_some(&keeps as &dyn Fn(Location) -> bool))
                .map(|()| building);
        }
        let fits = entry_bytes <= building.bytes_max;
        let has_space = fits || building.has_space(blocks_bytes);
        if !has_space && entry_bytes > index_bytes_limit(building.bytes_max) {
            return Err(building.too_large(entry_bytes, blocks_bytes));
        }
        if fits || !has_space {
            for (shard, table) in building.tables.iter_mut().enumerate() {
                let Some(packed) = checkpoint.next_block()? else { break };
                if !table.unpack(shard, packed, &keeps) {
                    return Err(checkpoint.corrupted("entries that are not in order"));
                }
            }
            return Ok(building);
        }
        // A checkpoint of an older version. The next one will have runs.
        building.is_in_runs = true;
        building.needs_checkpoint = true;
        building.write_runs(&mut |_, shard| {
            let Some(mut packed) = checkpoint.next_block()? else { return Ok(Vec::new()) };
            packed.retain(|entry| keeps(Location::from_bits(*entry)));
            packed.sort_unstable();
            let mut table = index.new_shard_index();
            if !table.unpack(shard, packed.clone(), &|_| true) {
                return Err(checkpoint.corrupted("entries that are not in order"));
            }
            Ok(packed)
        })?;
        Ok(building)
    }

    /// Puts the tables over runs. If the log continues after them, or segments are gone, all runs
    /// are read, because damage cannot be repaired during the replay. Drops entries that `keeps`
    /// refuses.
    fn over_runs(
        &mut self,
        runs: Vec<Arc<Run>>,
        keeps: Option<&dyn Fn(Location) -> bool>,
    ) -> Result<()> {
        for (table, run) in self.tables.iter_mut().zip(runs) {
            let Some(keeps) = keeps else {
                table.set_run(run);
                continue;
            };
            let in_run = run.read_all()?;
            let mut kept = in_run.clone();
            kept.retain(|entry| keeps(Location::from_bits(*entry)));
            table.set_over(Some(run), &in_run, &kept);
        }
        Ok(())
    }

    /// Returns the runs of a checkpoint, given its last block.
    fn runs_of(
        &self,
        checkpoint: &Checkpoint,
        (start, words): (u64, Vec<u64>),
    ) -> Option<Vec<Arc<Run>>> {
        let (file, path) = checkpoint.file();
        let (file, faults) = (Arc::clone(file), Arc::clone(&self.faults));
        let file = Arc::new(RunFile { file, path: path.to_owned(), salt: self.salt, faults });
        run::runs_of(&file, &words, I::SHARDS, HEADER_BYTES as u64, start)
    }

    /// Applies a change from the log, or collects it.
    pub(super) fn take(
        &mut self,
        index: &I,
        segments: &Segments,
        change: Change,
        key: &[u8],
    ) -> Result<()> {
        let shard = index.index_key_of_name(change.name).shard;
        if !self.is_in_runs {
            let is_key = |other: &[u8]| other == key;
            let table = &mut self.tables[shard];
            replay(index, table, segments, &change, &is_key)?;
            self.taken += 1;
            let is_time = self.taken.is_multiple_of((self.bytes_max / 64).clamp(1, LOOK_CHANGES));
            return if is_time { self.spill() } else { Ok(()) };
        }
        if self.changes.is_empty() {
            self.changes.resize_with(I::SHARDS, Vec::new);
        }
        self.changes[shard].push(change);
        self.changed += 1;
        // A growing vector has room for twice as many changes as it holds.
        let most = self.bytes_max / (2 * size_of::<Change>() as u64);
        if self.changed as u64 > most.max(CHANGES_MIN as u64) {
            return self.make_changes(index, segments);
        }
        Ok(())
    }

    /// Returns the tables, after all changes were applied.
    pub(super) fn finish(&mut self, index: &I, segments: &Segments) -> Result<Vec<I::ShardIndex>> {
        if self.changed > 0 {
            self.make_changes(index, segments)?;
        }
        self.spill()?;
        Ok(std::mem::take(&mut self.tables))
    }

    /// Returns whether a file of `bytes` bytes can be made.
    fn has_space(&self, bytes: u64) -> bool {
        !self.is_read_only && (self.free_bytes)() >= bytes
    }

    /// Moves the entries in memory to runs if they use too much of it.
    fn spill(&mut self) -> Result<()> {
        if !I::ShardIndex::HAS_RUNS {
            return Ok(());
        }
        let bytes: u64 = self.tables.iter().map(|table| table.changed_bytes() as u64).sum();
        let most = if self.is_in_runs { self.bytes_max / CHANGES_SHARE } else { self.bytes_max };
        if bytes <= most || self.lacks_space && bytes <= index_bytes_limit(self.bytes_max) {
            return Ok(());
        }
        let merged = if self.is_read_only {
            Err(Error::NoSpace { path: self.directory.clone() })
        } else {
            self.write_runs(&mut |table, _| table.before().merged())
        };
        match merged {
            Ok(()) => {
                (self.is_in_runs, self.lacks_space) = (true, false);
                self.needs_checkpoint = true;
                Ok(())
            }
            Err(Error::NoSpace { .. }) if bytes <= index_bytes_limit(self.bytes_max) => {
                self.lacks_space = true;
                Ok(())
            }
            Err(Error::NoSpace { .. }) => {
                let entries: u64 = self.tables.iter().map(|table| table.len() as u64).sum();
                Err(self.too_large(bytes, entries * size_of::<u64>() as u64))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the error for an index that fits neither into memory nor on the disk.
    fn too_large(&self, bytes: u64, needed: u64) -> Error {
        let max = self.bytes_max;
        let way_out = if self.is_read_only {
            "open the database for writing, which puts the index into a file, or set a larger \
             `#index=`"
        } else {
            "free space on the disk, or set a larger `#index=`"
        };
        let what = format!(
            "the index needs at least {bytes} bytes of memory, more than its limit of {max}, or \
             {needed} bytes of disk: {way_out}"
        );
        Error::Io {
            operation: "open",
            path: self.directory.clone(),
            source: io::Error::new(io::ErrorKind::StorageFull, what),
        }
    }

    /// Applies the collected changes: each table keeps its differences from its run.
    fn make_changes(&mut self, index: &I, segments: &Segments) -> Result<()> {
        let mut changes = std::mem::take(&mut self.changes);
        self.changed = 0;
        for (shard, own) in self.tables.iter_mut().enumerate() {
            let changes = std::mem::take(&mut changes[shard]);
            if changes.is_empty() {
                continue;
            }
            let run = own.run().cloned();
            let in_run = run.as_ref().map_or_else(|| Ok(Vec::new()), |run| run.read_all())?;
            let mut table = index.new_shard_index();
            // The words come from this kind of table, so this cannot fail.
            let _ = table.unpack(shard, own.before().merged_with(&in_run), &|_| true);
            for change in &changes {
                let tag = index.index_key_of_name(change.name).tag;
                for found in table.matches(tag).filter(|found| found.location != change.location) {
                    KeyedEngine::<I>::announce_record(segments, found.location);
                }
            }
            for change in changes {
                let is_key = |other: &[u8]| index.name(other) == Some(change.name);
                replay(index, &mut table, segments, &change, &is_key)?;
            }
            own.set_over(run, &in_run, &table.before().added);
        }
        self.spill()
    }

    /// Writes the result of `entries_of` for each table as a file of runs. If that fails, the
    /// tables are unchanged.
    fn write_runs(&mut self, entries_of: &mut EntriesOf<'_, I>) -> Result<()> {
        let (file, path) = (self.make_file)()?;
        let faults = Arc::clone(&self.faults);
        let file = Arc::new(RunFile { file, path, salt: self.salt, faults });
        let (mut end, mut bytes) = (HEADER_BYTES as u64, Vec::new());
        let mut runs = Vec::with_capacity(self.tables.len());
        for (shard, table) in self.tables.iter().enumerate() {
            let entries = entries_of(table, shard)?;
            encode_block(&mut bytes, &entries, self.salt);
            file.write(&bytes, end)?;
            runs.push(Run::of(Arc::clone(&file), end + BLOCK_HEADER_BYTES as u64, &entries));
            end += bytes.len() as u64;
        }
        for (table, run) in self.tables.iter_mut().zip(runs) {
            table.clear();
            table.set_run(Arc::new(run));
        }
        Ok(())
    }
}
