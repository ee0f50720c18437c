//! Interface between a shard's table and the index.

use super::run::{Before, Run};
use crate::log::Location;
use crate::{Result, Wait};
use std::sync::Arc;

/// Entries of one shard: tags and the locations of the records of their keys.
pub(crate) trait ShardIndex: Send + Sync {
    /// Tag of an entry. Several entries may have the same.
    type Tag: Copy + Eq;
    /// Reference to an entry, valid until the table changes, for replacing or removing it.
    type Slot: Copy;

    /// Whether the table can be over a run.
    const HAS_RUNS: bool = false;

    /// Returns the run that has the entries that are not in memory. With a run, `matches` and
    /// `entries` return only entries in memory, and only `matches_over_run` returns valid slots.
    fn run(&self) -> Option<&Arc<Run>> {
        None
    }

    /// Returns all entries with a tag, including those of the run.
    fn matches_over_run(&self, tag: Self::Tag, _wait: Wait) -> Result<Vec<Match<Self::Slot>>> {
        Ok(self.matches(tag).collect())
    }

    /// Returns a tag as runs store it.
    fn tag_in_run(_tag: Self::Tag) -> u32 {
        0
    }

    /// Returns whether entries with a tag may be missing because a part of the run is damaged.
    fn is_in_doubt(&self, _tag: Self::Tag) -> bool {
        false
    }

    /// Reads the part of a run that a search for a tag needs into memory.
    fn read_ahead(_run: &Run, _tag: Self::Tag) -> Result<()> {
        Ok(())
    }

    /// Looks for an entry without reading the run. Returns its slot, also where only the run can
    /// decide whether it exists.
    fn look_in_memory(&self, tag: Self::Tag, location: Location) -> Seen<Self::Slot> {
        find_location(self, tag, location).map_or(Seen::No, Seen::Yes)
    }

    /// Returns all entries, given those of the run.
    fn entries_over_run(&self, _in_run: &[u64]) -> Vec<(Self::Tag, Location)> {
        self.entries().collect()
    }

    /// Returns the locations of those entries of `in_run` that still exist.
    fn alive_in_run(&self, _in_run: &[u64]) -> Vec<Location> {
        Vec::new()
    }

    /// Returns a snapshot of the table.
    fn before(&self) -> Before {
        Before { run: None, added: self.packed(), dead: Vec::new() }
    }

    /// Switches to a run written from the snapshot `before`, and keeps the changes made since.
    fn rebase(&mut self, _before: &Before, _run: Arc<Run>) {}

    /// Puts an empty table over a run.
    fn set_run(&mut self, _run: Arc<Run>) {}

    /// Sets the entries of the table, over a run with the entries `in_run` or over none. Both lists
    /// are sorted.
    fn set_over(&mut self, _run: Option<Arc<Run>>, _in_run: &[u64], _entries: &[u64]) {}

    /// Switches to the run without its lost pieces, and adds the sorted entries `found`, which they
    /// had. `is_lost` returns whether a dead entry was in these pieces.
    fn replace_lost(&mut self, _run: Arc<Run>, _found: &[u64], _is_lost: &dyn Fn(u64) -> bool) {}

    /// Returns all entries with a tag.
    fn matches(&self, tag: Self::Tag) -> impl Iterator<Item = Match<Self::Slot>>;

    /// Returns all entries.
    fn entries(&self) -> impl Iterator<Item = (Self::Tag, Location)>;

    /// Fetches the start of a search for a tag into the processor's cache.
    fn prefetch(&self, _tag: Self::Tag) {}

    /// Returns the part of the table that `prefetch_in` needs.
    fn outline(&self) -> [usize; 2] {
        [0; 2]
    }

    /// Like `prefetch`, for a table that had this outline and may have changed since.
    fn prefetch_in(_outline: [usize; 2], _tag: Self::Tag) {}

    /// Adds an entry for a record that takes `total` bytes of the log.
    fn insert(&mut self, tag: Self::Tag, location: Location, total: usize);

    /// Points an entry to another record.
    fn replace(&mut self, slot: Self::Slot, location: Location, total: usize);

    /// Removes an entry.
    fn remove(&mut self, slot: Self::Slot);

    /// Removes all entries.
    fn clear(&mut self);

    /// Returns the number of entries.
    fn len(&self) -> usize;

    /// Returns the bytes of memory that the table uses.
    fn memory_bytes(&self) -> usize;

    /// Returns the bytes of memory without those of its run.
    fn changed_bytes(&self) -> usize {
        self.memory_bytes() - self.run().map_or(0, |run| run.memory_bytes())
    }

    /// Frees memory that is not needed now.
    fn shrink(&mut self);

    /// Returns the entries as a checkpoint stores them.
    fn packed(&self) -> Vec<u64>;

    /// Returns the length of `packed` in words.
    fn packed_words(&self) -> usize;

    /// Fills the empty table of a shard with the result of `packed`, without the entries that
    /// `keeps` refuses. Returns false if no table packs to such words.
    fn unpack(&mut self, shard: usize, packed: Vec<u64>, keeps: &dyn Fn(Location) -> bool) -> bool;
}

/// Knowledge of an entry without reading the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen<S> {
    Yes(S),
    No,
    /// The entry exists if the run has it.
    IfInRun(S),
}

/// Entry with the tag that was searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match<S> {
    pub(crate) slot: S,
    pub(crate) location: Location,
    /// Bytes of the record in the log, if the table knows them. The tag then belongs to one key,
    /// and the record need not be read to compare keys.
    pub(crate) total: Option<usize>,
}

/// Returns the entry with this tag and location.
#[inline]
pub(crate) fn find_location<T: ShardIndex + ?Sized>(
    table: &T,
    tag: T::Tag,
    location: Location,
) -> Option<T::Slot> {
    table.matches(tag).find(|found| found.location == location).map(|found| found.slot)
}
