//! What an index asks of the table of a shard.

use crate::log::Location;

/// Entries of one shard: tags, and where the records of their keys are.
pub(crate) trait Table: Send + Sync {
    /// What tells an entry from the others. Several may have the same.
    type Tag: Copy + Eq;
    /// An entry, for replacing or removing it before anything else is changed.
    type Slot: Copy;

    /// All entries with a tag.
    fn matches(&self, tag: Self::Tag) -> impl Iterator<Item = Match<Self::Slot>>;

    /// All entries.
    fn entries(&self) -> impl Iterator<Item = (Self::Tag, Location)>;

    /// Fetches what a search for a tag begins with into the processor's cache.
    fn prefetch(&self, _tag: Self::Tag) {}

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
pub(crate) fn find_location<T: Table>(
    table: &T,
    tag: T::Tag,
    location: Location,
) -> Option<T::Slot> {
    table.matches(tag).find(|found| found.location == location).map(|found| found.slot)
}
