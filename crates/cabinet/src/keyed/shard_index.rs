//! Interface of a shard's table to the index.

use super::run::{Before, Run};
use crate::log::Location;
use crate::{Result, Wait};
use std::sync::Arc;

/// Entries of one shard: tags, and where the records of their keys are.
pub(crate) trait ShardIndex: Send + Sync {
    /// Tag that tells an entry from the others. Several entries may have the same.
    type Tag: Copy + Eq;
    /// An entry, for replacing or removing it before anything else is changed.
    type Slot: Copy;

    /// Whether it can be over a run.
    const HAS_RUNS: bool = false;

    /// The run that has what is not in memory. If there is one, `matches` and `entries` give what
    /// is in memory, and only slots of `matches_over_run` name entries.
    fn run(&self) -> Option<&Arc<Run>> {
        None
    }

    /// All entries with a tag, those of the run too.
    fn matches_over_run(&self, tag: Self::Tag, _wait: Wait) -> Result<Vec<Match<Self::Slot>>> {
        Ok(self.matches(tag).collect())
    }

    /// A tag as runs have it.
    fn tag_in_run(_tag: Self::Tag) -> u32 {
        0
    }

    /// Whether entries with a tag are not known, because a part of the run is damaged.
    fn is_in_doubt(&self, _tag: Self::Tag) -> bool {
        false
    }

    /// Has the part of a run in memory that a search for a tag reads.
    fn read_ahead(_run: &Run, _tag: Self::Tag) -> Result<()> {
        Ok(())
    }

    /// Whether an entry is there, as far as that can be told from memory; the slot of one that the
    /// run has, if it has it.
    fn look_in_memory(&self, tag: Self::Tag, location: Location) -> Seen<Self::Slot> {
        find_location(self, tag, location).map_or(Seen::No, Seen::Yes)
    }

    /// All entries, given those of the run.
    fn entries_over_run(&self, _in_run: &[u64]) -> Vec<(Self::Tag, Location)> {
        self.entries().collect()
    }

    /// Returns the locations that those entries of the run point to that are still there.
    fn alive_in_run(&self, _in_run: &[u64]) -> Vec<Location> {
        Vec::new()
    }

    /// It as it is.
    fn before(&self) -> Before {
        Before { run: None, added: self.packed(), dead: Vec::new() }
    }

    /// Goes over to a run of what it was before, and keeps what has changed since.
    fn rebase(&mut self, _before: &Before, _run: Arc<Run>) {}

    /// Makes an empty table one over a run.
    fn set_run(&mut self, _run: Arc<Run>) {}

    /// Makes it one of these entries over a run that has those of `in_run`, or over none. Both are
    /// sorted.
    fn set_over(&mut self, _run: Option<Arc<Run>>, _in_run: &[u64], _entries: &[u64]) {}

    /// Goes over to the run without pieces that are lost, and takes what they had into memory:
    /// sorted entries. `is_lost` tells whether an entry that is dead was in these pieces.
    fn replace_lost(&mut self, _run: Arc<Run>, _found: &[u64], _is_lost: &dyn Fn(u64) -> bool) {}

    /// All entries with a tag.
    fn matches(&self, tag: Self::Tag) -> impl Iterator<Item = Match<Self::Slot>>;

    /// All entries.
    fn entries(&self) -> impl Iterator<Item = (Self::Tag, Location)>;

    /// Fetches what a search for a tag begins with into the processor's cache.
    fn prefetch(&self, _tag: Self::Tag) {}

    /// The part of the table that `prefetch_in` needs.
    fn outline(&self) -> [usize; 2] {
        [0; 2]
    }

    /// As `prefetch`, for a table that had this outline and may have changed since.
    fn prefetch_in(_outline: [usize; 2], _tag: Self::Tag) {}

    /// Adds an entry for a record that takes `total` bytes of the log.
    fn insert(&mut self, tag: Self::Tag, location: Location, total: usize);

    /// Makes an entry point to another record.
    fn replace(&mut self, slot: Self::Slot, location: Location, total: usize);

    /// Takes an entry out.
    fn remove(&mut self, slot: Self::Slot);

    /// Takes all entries out.
    fn clear(&mut self);

    /// Number of entries.
    fn len(&self) -> usize;

    /// Bytes of memory it takes.
    fn memory_bytes(&self) -> usize;

    /// The same without that of its run.
    fn changed_bytes(&self) -> usize {
        self.memory_bytes() - self.run().map_or(0, |run| run.memory_bytes())
    }

    /// Gives back memory that is not needed now.
    fn shrink(&mut self);

    /// The entries, as a checkpoint keeps them.
    fn packed(&self) -> Vec<u64>;

    /// How many words these are.
    fn packed_words(&self) -> usize;

    /// Fills an empty table, that of this shard, with what `packed` gave, less the entries that
    /// `keeps` refuses; says whether any table gives such.
    fn unpack(&mut self, shard: usize, packed: Vec<u64>, keeps: &dyn Fn(Location) -> bool) -> bool;
}

/// Knowledge of an entry without a look at the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen<S> {
    Yes(S),
    No,
    /// It is there if the run has it.
    IfInRun(S),
}

/// An entry that has the tag asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match<S> {
    pub(crate) slot: S,
    pub(crate) location: Location,
    /// Bytes of the record in the log, if the table knows them. Then a tag belongs to one key,
    /// and the record need not be read to compare it.
    pub(crate) total: Option<usize>,
}

/// The entry with this tag and location.
#[inline]
pub(crate) fn find_location<T: ShardIndex + ?Sized>(
    table: &T,
    tag: T::Tag,
    location: Location,
) -> Option<T::Slot> {
    table.matches(tag).find(|found| found.location == location).map(|found| found.slot)
}
