//! Slot table: the index of one shard, with 8 bytes per slot, sorted by hash, with gaps.
//!
//! A slot holds 24 bits of the key's hash (the *tag*) and the 40 bits of its record's location. The
//! home of a tag is `tag * homes / 2^24`, so homes rise with tags. Slots are kept sorted by tag:
//! the table is an array sorted by hash with gaps in it. Linear probing becomes this when every
//! insertion keeps the order (Amble and Knuth, "Ordered hash tables", 1974). It follows that:
//!
//! - A search ends at the first greater tag, so a miss is as cheap as a hit.
//! - A table grows by any factor without reading a record, because a slot has all bits of the hash
//!   that determine the home. Growing is one pass from left to right.
//! - A scan in hash order can stop at any hash and continue there, whatever changes in between.
//!
//! After growing 64 percent of the homes are used, before growing 80: 10 to 12.5 bytes per key.
//!
//! A table over a [run](crate::keyed::Run) has two such arrays: the entries added since the run was
//! written, and the entries of the run that are dead.

use crate::keyed::{self, Before, Match, Run, Seen, ShardIndex as _, difference, tag_of};
use crate::log::Location;
use crate::{Result, Wait};
use std::sync::Arc;

/// Bits of a tag.
pub(crate) const TAG_BITS: u32 = 64 - Location::BITS;

/// Percentage of used homes above which a table grows.
const LOAD_PERCENT_MAX: usize = 80;

/// Homes after growing, in percent of those before.
const GROWTH_PERCENT: usize = 125;

/// Slots after the last home, for entries that do not find their home free. More are added as
/// needed.
const OVERFLOW_SLOTS: usize = 32;

const EMPTY: u64 = 0;

/// Index of one shard, see the module.
#[derive(Default)]
pub(crate) struct SlotTable {
    /// The last one is always empty, so that a search needs no bound.
    slots: Vec<u64>,
    homes: usize,
    entries: usize,
    base: Option<Box<Base>>,
}

/// The run below a table, and its dead entries.
struct Base {
    run: Arc<Run>,
    /// Entries of the run that no longer exist. This table has no base.
    dead: SlotTable,
}

/// Reference to an entry for replacing or removing it: its slot number, or the entry itself if the
/// table is over a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u64);

impl SlotTable {
    /// Returns all entries with this tag.
    #[inline]
    pub(crate) fn find(&self, tag: u32) -> Matches<'_> {
        Matches { slots: &self.slots, next: self.home(tag), tag }
    }

    /// Adds an entry, even if others have its tag.
    fn add(&mut self, tag: u32, location: Location) {
        if (self.entries + 1) * 100 > self.homes * LOAD_PERCENT_MAX {
            self.grow();
        }
        self.put_in_order(pack(tag, location));
        self.entries += 1;
    }

    fn put_in_order(&mut self, entry: u64) {
        let mut place = self.home(tag_of(entry));
        while self.slots[place] != EMPTY && tag_of(self.slots[place]) <= tag_of(entry) {
            place += 1;
        }
        let mut gap = place;
        while self.slots[gap] != EMPTY {
            gap += 1;
        }
        if gap + 1 >= self.slots.len() {
            self.add_overflow();
        }
        self.slots.copy_within(place..gap, place + 1);
        self.slots[place] = entry;
    }

    fn add_overflow(&mut self) {
        self.slots.reserve_exact(OVERFLOW_SLOTS);
        self.slots.resize(self.slots.len() + OVERFLOW_SLOTS, EMPTY);
    }

    /// Returns the entries with tags of at least `tag`, in the order of their tags.
    pub(crate) fn entries_from(&self, tag: u32) -> impl Iterator<Item = (u32, Location)> {
        let start = self.home(tag).min(self.slots.len());
        self.slots[start..]
            .iter()
            .filter(move |slot| **slot != EMPTY && tag_of(**slot) >= tag)
            .map(|slot| (tag_of(*slot), location_of(*slot)))
    }

    /// Builds a table from the result of `packed`.
    fn from_packed(entries: &[u64]) -> Self {
        debug_assert!(are_packed(entries));
        let mut table = Self { entries: entries.len(), ..Self::default() };
        if entries.is_empty() {
            return table;
        }
        table.rebuild(entries, entries.len() * 100 / LOAD_PERCENT_MAX + 1);
        table
    }

    /// Removes an entry.
    fn take(&mut self, entry: u64) {
        match self.slot_in_memory(entry) {
            Some(slot) => self.empty(slot),
            None => {
                if let Some(base) = &mut self.base {
                    base.dead.add(tag_of(entry), location_of(entry));
                }
            }
        }
    }

    /// Returns the number of the slot of an entry.
    fn slot_in_memory(&self, entry: u64) -> Option<usize> {
        let location = location_of(entry);
        let mut with_tag = self.find(tag_of(entry));
        with_tag.find(|(_, other)| *other == location).map(|(slot, _)| slot.0 as usize)
    }

    fn empty(&mut self, slot: usize) {
        let mut gap = slot;
        // Entries that are not at their home move one slot towards it.
        let mut next = gap + 1;
        while self.slots[next] != EMPTY && self.home(tag_of(self.slots[next])) < next {
            self.slots[gap] = self.slots[next];
            gap = next;
            next += 1;
        }
        self.slots[gap] = EMPTY;
        self.entries -= 1;
    }

    /// Returns the entries from a tag on, and before another, given those of the run, in the order
    /// of their tags.
    pub(crate) fn entries_between(
        &self,
        tag: u32,
        before: Option<u32>,
        in_run: &[u64],
    ) -> Vec<(u32, Location)> {
        let is_before = |tag: u32| before.is_none_or(|before| tag < before);
        let added = self.entries_from(tag).take_while(|(tag, _)| is_before(*tag));
        let mut entries: Vec<_> = added.collect();
        entries.extend(self.alive(in_run));
        entries.sort_unstable();
        entries
    }

    /// Returns those of the given entries of the run that still exist.
    fn alive(&self, in_run: &[u64]) -> impl Iterator<Item = (u32, Location)> {
        let dead = self.base.as_ref().map(|base| &base.dead);
        let is_alive =
            move |entry: &&u64| dead.is_none_or(|dead| dead.slot_in_memory(**entry).is_none());
        in_run.iter().filter(is_alive).map(|entry| (tag_of(*entry), location_of(*entry)))
    }

    /// Returns the entries in memory in full order.
    fn sorted(&self) -> Vec<u64> {
        let mut entries = self.packed();
        entries.sort_unstable();
        entries
    }

    fn grow(&mut self) {
        let entries = self.packed();
        let homes = (self.homes * GROWTH_PERCENT / 100).max(self.homes + 8);
        self.rebuild(&entries, homes);
    }

    /// Lays out sorted entries over at least `homes` homes.
    fn rebuild(&mut self, entries: &[u64], homes: usize) {
        self.homes = homes;
        self.slots = vec![EMPTY; homes + OVERFLOW_SLOTS.min(8 + homes / 8)];
        let mut free = 0;
        for entry in entries {
            let place = self.home(tag_of(*entry)).max(free);
            if place + 1 >= self.slots.len() {
                self.add_overflow();
            }
            self.slots[place] = *entry;
            free = place + 1;
        }
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        home(tag, self.homes)
    }
}

/// Returns the number of the slot at which a search for a tag begins.
#[inline]
fn home(tag: u32, homes: usize) -> usize {
    (tag as usize).wrapping_mul(homes) >> TAG_BITS
}

impl keyed::ShardIndex for SlotTable {
    type Tag = u32;
    type Slot = Slot;

    const HAS_RUNS: bool = true;

    #[inline]
    fn run(&self) -> Option<&Arc<Run>> {
        self.base.as_ref().map(|base| &base.run)
    }

    fn matches_over_run(&self, tag: u32, wait: Wait) -> Result<Vec<Match<Slot>>> {
        let Some(base) = &self.base else { return Ok(self.matches(tag).collect()) };
        let in_run = base.run.find(tag, wait)?;
        let all = self.find(tag).map(|(_, location)| location);
        let all = all.chain(self.alive(&in_run).map(|(_, location)| location));
        let matching = |location| Match { slot: Slot(pack(tag, location)), location, total: None };
        Ok(all.map(matching).collect())
    }

    fn tag_in_run(tag: u32) -> u32 {
        tag
    }

    fn is_in_doubt(&self, tag: u32) -> bool {
        self.base.as_ref().is_some_and(|base| base.run.is_in_doubt(tag))
    }

    fn read_ahead(run: &Run, tag: u32) -> Result<()> {
        run.find(tag, Wait::Block).map(drop)
    }

    fn look_in_memory(&self, tag: u32, location: Location) -> Seen<Slot> {
        let entry = pack(tag, location);
        match (self.slot_in_memory(entry), &self.base) {
            (Some(_), Some(_)) => Seen::Yes(Slot(entry)),
            (Some(slot), None) => Seen::Yes(Slot(slot as u64)),
            (None, Some(base)) if base.dead.slot_in_memory(entry).is_none() => {
                Seen::IfInRun(Slot(entry))
            }
            (None, _) => Seen::No,
        }
    }

    fn entries_over_run(&self, in_run: &[u64]) -> Vec<(u32, Location)> {
        self.entries_between(0, None, in_run)
    }

    fn alive_in_run(&self, in_run: &[u64]) -> Vec<Location> {
        self.alive(in_run).map(|(_, location)| location).collect()
    }

    fn before(&self) -> Before {
        let base = self.base.as_ref();
        Before {
            run: base.map(|base| Arc::clone(&base.run)),
            added: self.sorted(),
            dead: base.map(|base| base.dead.sorted()).unwrap_or_default(),
        }
    }

    fn rebase(&mut self, before: &Before, run: Arc<Run>) {
        let (added, dead) = (self.sorted(), self.base.as_ref().map(|base| base.dead.sorted()));
        let mut gone = difference(&dead.unwrap_or_default(), &before.dead);
        gone.extend(difference(&before.added, &added));
        gone.sort_unstable();
        *self = Self::from_packed(&difference(&added, &before.added));
        self.base = Some(Box::new(Base { run, dead: Self::from_packed(&gone) }));
    }

    fn set_run(&mut self, run: Arc<Run>) {
        self.base = Some(Box::new(Base { run, dead: Self::default() }));
    }

    fn set_over(&mut self, run: Option<Arc<Run>>, in_run: &[u64], entries: &[u64]) {
        *self = Self::from_packed(&difference(entries, in_run));
        let dead = Self::from_packed(&difference(in_run, entries));
        self.base = run.map(|run| Box::new(Base { run, dead }));
    }

    fn replace_lost(&mut self, run: Arc<Run>, found: &[u64], is_lost: &dyn Fn(u64) -> bool) {
        let Some(base) = self.base.take() else { return };
        let mut dead = base.dead.sorted();
        let mut added = self.sorted();
        added.extend(found.iter().filter(|entry| dead.binary_search(entry).is_err()));
        added.sort_unstable();
        added.dedup();
        dead.retain(|entry| !is_lost(*entry));
        *self = Self::from_packed(&added);
        self.base = Some(Box::new(Base { run, dead: Self::from_packed(&dead) }));
    }

    #[inline]
    fn matches(&self, tag: u32) -> impl Iterator<Item = Match<Slot>> {
        self.find(tag).map(|(slot, location)| Match { slot, location, total: None })
    }

    fn entries(&self) -> impl Iterator<Item = (u32, Location)> {
        self.entries_from(0)
    }

    #[inline]
    fn prefetch(&self, tag: u32) {
        Self::prefetch_in(self.outline(), tag);
    }

    /// Returns the address of the slots, and the number of homes.
    #[inline]
    fn outline(&self) -> [usize; 2] {
        [self.slots.as_ptr().addr(), self.homes]
    }

    #[inline]
    fn prefetch_in([slots, homes]: [usize; 2], tag: u32) {
        let slot = slots.wrapping_add(home(tag, homes) * size_of::<u64>());
        crate::io::prefetch(std::ptr::without_provenance::<u64>(slot));
    }

    #[inline]
    fn insert(&mut self, tag: u32, location: Location, _total: usize) {
        self.add(tag, location);
    }

    #[inline]
    fn replace(&mut self, slot: Slot, location: Location, _total: usize) {
        if self.base.is_some() {
            self.take(slot.0);
            self.add(tag_of(slot.0), location);
            return;
        }
        let entry = &mut self.slots[slot.0 as usize];
        *entry = pack(tag_of(*entry), location);
    }

    fn remove(&mut self, slot: Slot) {
        if self.base.is_some() {
            self.take(slot.0);
        } else {
            self.empty(slot.0 as usize);
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }

    #[inline]
    fn len(&self) -> usize {
        match &self.base {
            None => self.entries,
            Some(base) => (self.entries + base.run.len()).saturating_sub(base.dead.entries),
        }
    }

    fn memory_bytes(&self) -> usize {
        let base = self.base.as_ref();
        let base = base.map_or(0, |base| base.dead.memory_bytes() + base.run.memory_bytes());
        self.slots.capacity() * size_of::<u64>() + base
    }

    #[inline]
    fn changed_bytes(&self) -> usize {
        let dead = self.base.as_ref().map_or(0, |base| base.dead.slots.capacity());
        (self.slots.capacity() + dead) * size_of::<u64>()
    }

    fn shrink(&mut self) {
        let base = self.base.take();
        *self = Self { base, ..Self::from_packed(&self.packed()) };
    }

    /// Returns the entries in the order of their tags.
    fn packed(&self) -> Vec<u64> {
        self.slots.iter().copied().filter(|slot| *slot != EMPTY).collect()
    }

    fn packed_words(&self) -> usize {
        keyed::ShardIndex::len(self)
    }

    fn unpack(
        &mut self,
        _shard: usize,
        mut packed: Vec<u64>,
        keeps: &dyn Fn(Location) -> bool,
    ) -> bool {
        packed.retain(|entry| keeps(Location::from_bits(*entry)));
        let fits = are_packed(&packed);
        if fits {
            *self = Self::from_packed(&packed);
        }
        fits
    }
}

/// Returns whether untrusted entries have the form of [`SlotTable::packed`].
fn are_packed(entries: &[u64]) -> bool {
    entries.is_sorted_by_key(|entry| tag_of(*entry)) && !entries.contains(&EMPTY)
}

/// Entries with one tag.
pub(crate) struct Matches<'a> {
    slots: &'a [u64],
    next: usize,
    tag: u32,
}

impl Iterator for Matches<'_> {
    type Item = (Slot, Location);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while let Some(&slot) = self.slots.get(self.next) {
            if slot == EMPTY || tag_of(slot) > self.tag {
                return None;
            }
            self.next += 1;
            if tag_of(slot) == self.tag {
                return Some((Slot(self.next as u64 - 1), location_of(slot)));
            }
        }
        None
    }
}

#[inline]
fn pack(tag: u32, location: Location) -> u64 {
    u64::from(tag) << Location::BITS | location.bits()
}

#[inline]
fn location_of(slot: u64) -> Location {
    Location::from_bits(slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed::find_location;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Few tags, so that they collide, both far apart and close together.
    fn tags() -> impl Strategy<Value = u32> {
        prop_oneof![0u32..40, (0u32..1 << TAG_BITS), Just((1 << TAG_BITS) - 1)]
    }

    proptest! {
        #[test]
        fn a_table_is_a_set_of_tags_and_locations(
            steps in prop::collection::vec((tags(), 1u64..50, any::<bool>()), 1..400),
        ) {
            let mut table = SlotTable::default();
            let mut model = BTreeSet::new();
            for (tag, bits, insert) in steps {
                let location = Location::from_bits(bits);
                match find_location(&table, tag, location) {
                    Some(slot) if !insert => {
                        table.remove(slot);
                        model.remove(&(tag, location));
                    }
                    None if insert => {
                        table.insert(tag, location, 0);
                        model.insert((tag, location));
                    }
                    found => prop_assert_eq!(found.is_some(), model.contains(&(tag, location))),
                }
                let found: BTreeSet<_> = table.find(tag).map(|(_, found)| (tag, found)).collect();
                let expected: BTreeSet<_> =
                    model.iter().copied().filter(|(other, _)| *other == tag).collect();
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(table.len(), model.len());
            let entries: Vec<_> = table.entries_from(0).collect();
            prop_assert!(entries.is_sorted_by_key(|(tag, _)| *tag));
            prop_assert_eq!(entries.into_iter().collect::<BTreeSet<_>>(), model.clone());
            let again = SlotTable::from_packed(&table.packed());
            prop_assert_eq!(again.packed(), table.packed());
            for (tag, location) in model {
                prop_assert!(find_location(&again, tag, location).is_some());
            }
        }
    }

    #[test]
    fn any_number_of_keys_may_have_the_same_hash() {
        for tag in [0, (1 << TAG_BITS) - 1] {
            let mut table = SlotTable::default();
            for number in 1..=1000 {
                table.insert(tag, Location::from_bits(number), 0);
            }
            assert_eq!(SlotTable::from_packed(&table.packed()).find(tag).count(), 1000);
            assert_eq!(table.find(tag).count(), 1000);
            assert!(table.memory_bytes() <= 1000 * 8 * 4);
        }
    }

    #[test]
    fn a_key_takes_at_most_sixteen_bytes() {
        let mut table = SlotTable::default();
        for number in 0..20_000u64 {
            let tag = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> Location::BITS) as u32;
            table.insert(tag, Location::from_bits(number + 8), 0);
            if number > 1000 {
                assert!(table.memory_bytes() <= table.len() * 16, "{number}");
            }
        }
    }
}
