//! Page index: pages of ids in order.
//!
//! A page has 256 consecutive ids, and 8 bytes per record. A page with many records has an entry
//! for each id, so an id is found without a search. A page with fewer records has their entries in
//! the order of ids, and a bit per id that is set if the record exists. So a full page uses 8 bytes
//! per record, and a single record on its page about 200. Pages are assigned to the shards round
//! robin. A shard finds its pages in a [`PageMap`]. The [`Directory`] lists all pages, for walks
//! from id to id.
//!
//! The 8 bytes are 40 bits of location and 24 bits of the record's length in the log, in units of
//! its alignment. So a record need not be read to be overwritten or removed.

use super::page_map::PageMap;
use crate::keyed::{Match, ShardIndex};
use crate::limits::{FIXED_ID_MAX, FIXED_WIDTH_BYTES_MAX};
use crate::log::Location;
use crate::log::record::{ALIGNMENT, HEADER_BYTES_MAX};
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Ids of a page.
const PAGE_IDS: u64 = 256;

/// Words of a page's bits.
const WORDS: usize = (PAGE_IDS / 64) as usize;

/// Words of a page in a checkpoint, before its entries: its number and its bits.
const PACKED_WORDS: usize = 1 + WORDS;

/// Bytes of memory that the [`Directory`] uses per page: half full nodes, as in a page map.
const DIRECTORY_BYTES_PER_PAGE: usize = 21;

/// Records from which on a page has an entry for each id, once its capacity allows it. Pages grow
/// by doubling.
const SPREAD_MIN: usize = PAGE_IDS as usize / 2 + 1;

/// Like `SPREAD_MIN`, for a page that is made as small as possible.
const SPREAD_MIN_WHEN_TIGHT: usize = PAGE_IDS as usize / 32 * 31;

/// Entry of an id without a record. A record has a length, so no entry is 0.
const NONE: u64 = 0;

const SHARD_BITS: u32 = 10;

/// Shards to which pages are assigned.
pub(super) const SHARDS: usize = 1 << SHARD_BITS;

/// The length of every record fits into an entry.
const _: () = assert!(
    (FIXED_WIDTH_BYTES_MAX as usize + 20 + HEADER_BYTES_MAX) / ALIGNMENT + 1
        < 1 << (u64::BITS - Location::BITS)
);

/// Returns the page of an id.
#[inline]
pub(super) fn page_of(id: u64) -> u64 {
    id / PAGE_IDS
}

/// Returns the shard of a page.
#[inline]
pub(super) fn shard_of(page: u64) -> usize {
    (page % SHARDS as u64) as usize
}

/// Returns the least id of a page.
#[inline]
pub(super) fn first_of(page: u64) -> u64 {
    page * PAGE_IDS
}

/// Pages that exist, and perhaps pages that have just lost their last record.
#[derive(Debug, Default)]
pub(super) struct Directory(RwLock<BTreeSet<u64>>);

impl Directory {
    /// Returns the first page at or after `page`.
    pub(super) fn at_or_after(&self, page: u64) -> Option<u64> {
        self.0.read().range(page..).next().copied()
    }

    /// Returns the last page at or before `page`.
    pub(super) fn at_or_before(&self, page: u64) -> Option<u64> {
        self.0.read().range(..=page).next_back().copied()
    }
}

/// The pages of one shard.
#[derive(Debug)]
pub(crate) struct PageIndex {
    directory: Arc<Directory>,
    pages: PageMap,
    entries: usize,
}

/// Entries of the ids of one page, on a cache line of its own.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub(super) struct Page {
    /// Entries of the ids with a record, in order; or one entry for each id of the page.
    entries: Vec<u64>,
    /// One bit per id, set if the record exists.
    taken: [u64; WORDS],
    /// Ids with a record.
    count: u16,
}

impl Page {
    /// Builds a page from entries in the order of ids. `taken` has as many bits set as there are
    /// entries.
    fn of(taken: [u64; WORDS], entries: Vec<u64>) -> Self {
        let count = entries.len() as u16;
        let mut page = Self { entries, taken, count };
        if usize::from(count) >= SPREAD_MIN_WHEN_TIGHT {
            page.spread();
        }
        page
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether there is an entry for each id, with or without a record.
    #[inline]
    fn is_spread(&self) -> bool {
        self.entries.len() == PAGE_IDS as usize
    }

    /// Returns the entry of an id.
    #[inline]
    fn get(&self, id: u64) -> Option<u64> {
        if self.is_spread() {
            let entry = self.entries[place_on_page(id)];
            return (entry != NONE).then_some(entry);
        }
        let (is_taken, rank) = self.rank(id);
        if is_taken { self.entries.get(rank).copied() } else { None }
    }

    /// Sets the entry of an id. Returns whether there was none.
    #[inline]
    pub(super) fn set(&mut self, id: u64, entry: u64) -> bool {
        let place = place_on_page(id);
        if self.is_spread() {
            let before = std::mem::replace(&mut self.entries[place], entry);
            if before == NONE {
                self.flip(place);
                self.count += 1;
            }
            return before == NONE;
        }
        let (is_taken, rank) = self.rank(id);
        if is_taken {
            self.entries[rank] = entry;
            return false;
        }
        self.entries.insert(rank, entry);
        self.flip(place);
        self.count += 1;
        if usize::from(self.count) >= SPREAD_MIN && self.entries.capacity() >= PAGE_IDS as usize {
            self.spread();
        }
        true
    }

    /// Removes the entry of an id. Returns whether there was one.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let place = place_on_page(id);
        if self.is_spread() {
            if std::mem::replace(&mut self.entries[place], NONE) == NONE {
                return false;
            }
        } else {
            let (is_taken, rank) = self.rank(id);
            if !is_taken {
                return false;
            }
            self.entries.remove(rank);
        }
        self.flip(place);
        self.count -= 1;
        // Half the threshold for spreading, so that a page does not switch back and forth.
        if self.is_spread() && usize::from(self.count) < SPREAD_MIN / 2 {
            self.close_up();
        }
        if self.count == 0 {
            // An empty page may stay as a gap between others.
            self.entries = Vec::new();
        }
        true
    }

    /// Returns the number of entries that fit into its memory.
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Returns whether an id has an entry, and the number of entries before it.
    #[inline]
    fn rank(&self, id: u64) -> (bool, usize) {
        let place = place_on_page(id);
        let (word, bit) = (place / 64, place % 64);
        // Dense ids fill whole words, which need no counting.
        let count = |word: &u64| if *word == u64::MAX { 64 } else { word.count_ones() };
        let before: u32 = self.taken[..word].iter().map(count).sum();
        let within = self.taken[word] & ((1 << bit) - 1);
        let is_taken = self.taken[word] >> bit & 1 == 1;
        (is_taken, (before + within.count_ones()) as usize)
    }

    /// Switches to an entry for each id.
    #[cold]
    fn spread(&mut self) {
        if self.is_spread() {
            return;
        }
        let mut entries = Vec::with_capacity(PAGE_IDS as usize);
        entries.resize(PAGE_IDS as usize, NONE);
        for (place, entry) in places_of(&self.taken).zip(&self.entries) {
            entries[place] = *entry;
        }
        self.entries = entries;
    }

    /// Switches to entries of existing records only.
    #[cold]
    fn close_up(&mut self) {
        self.entries.retain(|entry| *entry != NONE);
        self.entries.shrink_to_fit();
    }

    /// Frees memory that is not needed now.
    fn shrink(&mut self) {
        if self.is_spread() && usize::from(self.count) < SPREAD_MIN_WHEN_TIGHT {
            self.close_up();
        }
        self.entries.shrink_to_fit();
    }

    /// Returns the entries in the order of ids.
    fn entries(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().copied().filter(|entry| *entry != NONE)
    }

    /// Returns the entries with their ids. The page's first id is `first`.
    fn entries_from(&self, first: u64) -> impl Iterator<Item = (u64, Location)> {
        let ids = places_of(&self.taken).map(move |place| first + place as u64);
        ids.zip(self.entries().map(location_of))
    }

    fn flip(&mut self, place: usize) {
        self.taken[place / 64] ^= 1 << (place % 64);
    }
}

/// Returns the offset of an id on its page.
#[inline]
fn place_on_page(id: u64) -> usize {
    (id % PAGE_IDS) as usize
}

/// Returns the offsets on a page whose bits are set, in order.
fn places_of(taken: &[u64; WORDS]) -> impl DoubleEndedIterator<Item = usize> {
    (0..PAGE_IDS as usize).filter(|place| taken[place / 64] >> (place % 64) & 1 == 1)
}

impl PageIndex {
    pub(super) fn new(directory: Arc<Directory>) -> Self {
        Self { directory, pages: PageMap::default(), entries: 0 }
    }

    /// Returns the ids of a page with the locations of their records, in order.
    pub(super) fn entries_of(&self, page: u64) -> Vec<(u64, Location)> {
        let Some(found) = self.pages.get(page) else { return Vec::new() };
        found.entries_from(first_of(page)).collect()
    }

    /// Returns the least id of a page at or after `from`.
    pub(super) fn next_of(&self, page: u64, from: u64) -> Option<u64> {
        let found = self.pages.get(page)?;
        let mut ids = places_of(&found.taken).map(|place| first_of(page) + place as u64);
        ids.find(|id| *id >= from)
    }

    /// Returns the entry of an id.
    #[inline]
    pub(super) fn get(&self, id: u64) -> Option<u64> {
        self.pages.get(page_of(id))?.get(id)
    }
}

impl ShardIndex for PageIndex {
    type Tag = u64;
    type Slot = u64;

    #[inline]
    fn matches(&self, id: u64) -> impl Iterator<Item = Match<u64>> {
        self.get(id).into_iter().map(move |entry| Match {
            slot: id,
            location: location_of(entry),
            total: Some((entry >> Location::BITS) as usize * ALIGNMENT),
        })
    }

    fn entries(&self) -> impl Iterator<Item = (u64, Location)> {
        self.pages.iter().flat_map(|(number, page)| page.entries_from(first_of(number)))
    }

    #[inline]
    fn prefetch(&self, id: u64) {
        if let Some(page) = self.pages.get(page_of(id)) {
            let place = if page.is_spread() { place_on_page(id) } else { page.rank(id).1 };
            crate::io::prefetch(page.entries.as_ptr().wrapping_add(place));
        }
    }

    #[inline]
    fn insert(&mut self, id: u64, location: Location, total: usize) {
        let number = page_of(id);
        let set = |page: &mut Page| page.set(id, pack(location, total));
        let (is_new, had_entries, _) = self.pages.change(number, set);
        if is_new {
            self.entries += 1;
            if !had_entries {
                self.directory.0.write().insert(number);
            }
        }
    }

    #[inline]
    fn replace(&mut self, id: u64, location: Location, total: usize) {
        self.insert(id, location, total);
    }

    fn remove(&mut self, id: u64) {
        let number = page_of(id);
        let (was_there, _, has_entries) = self.pages.change(number, |page| page.remove(id));
        if was_there {
            self.entries -= 1;
            if !has_entries {
                self.directory.0.write().remove(&number);
            }
        }
    }

    fn clear(&mut self) {
        let mut directory = self.directory.0.write();
        for (number, _) in self.pages.iter() {
            directory.remove(&number);
        }
        drop(directory);
        self.pages = PageMap::default();
        self.entries = 0;
    }

    fn len(&self) -> usize {
        self.entries
    }

    fn memory_bytes(&self) -> usize {
        let entries: usize = self.pages.iter().map(|(_, page)| page.capacity()).sum();
        entries * size_of::<u64>()
            + self.pages.memory_bytes()
            + self.pages.len() * DIRECTORY_BYTES_PER_PAGE
    }

    fn shrink(&mut self) {
        self.pages.pages_mut().for_each(Page::shrink);
        self.pages.shrink();
    }

    /// Returns each page as its number, its bits and its entries.
    fn packed(&self) -> Vec<u64> {
        let mut packed = Vec::with_capacity(self.packed_words());
        for (number, page) in self.pages.iter() {
            packed.push(number);
            packed.extend_from_slice(&page.taken);
            packed.extend(page.entries());
        }
        packed
    }

    fn packed_words(&self) -> usize {
        self.entries + self.pages.len() * PACKED_WORDS
    }

    fn unpack(&mut self, shard: usize, packed: Vec<u64>, keeps: &dyn Fn(Location) -> bool) -> bool {
        let mut rest = &packed[..];
        let mut least = 0;
        while let Some((&number, after)) = rest.split_first() {
            let Some((&taken, after)) = after.split_first_chunk::<WORDS>() else { return false };
            let count = places_of(&taken).count();
            let is_here = shard_of(number) == shard && number >= least;
            if !is_here || number > page_of(FIXED_ID_MAX) || count == 0 || count > after.len() {
                return false;
            }
            // Id 0 does not exist.
            if number == 0 && taken[0] & 1 == 1 {
                return false;
            }
            let (packed, after) = after.split_at(count);
            let (mut kept, mut entries) = (taken, Vec::with_capacity(count));
            for (place, entry) in places_of(&taken).zip(packed) {
                // A record has a length of at least 1.
                if *entry >> Location::BITS == 0 {
                    return false;
                }
                if keeps(location_of(*entry)) {
                    entries.push(*entry);
                } else {
                    kept[place / 64] ^= 1 << (place % 64);
                }
            }
            if !entries.is_empty() {
                self.entries += entries.len();
                self.directory.0.write().insert(number);
                self.pages.add(number, Page::of(kept, entries));
            }
            least = number + 1;
            rest = after;
        }
        true
    }
}

#[inline]
fn pack(location: Location, total: usize) -> u64 {
    ((total / ALIGNMENT) as u64) << Location::BITS | location.bits()
}

#[inline]
fn location_of(entry: u64) -> Location {
    Location::from_bits(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn location(number: u64) -> Location {
        Location::from_bits(number)
    }

    /// Ids of the first shard: on few pages, at the ends of pages, and far away.
    fn ids() -> impl Strategy<Value = u64> {
        let stride = PAGE_IDS * SHARDS as u64;
        let far = first_of(page_of(FIXED_ID_MAX) / SHARDS as u64 * SHARDS as u64);
        prop_oneof![
            4 => 1..PAGE_IDS,
            2 => stride..stride + PAGE_IDS,
            1 => Just(PAGE_IDS - 1),
            1 => far..far + PAGE_IDS,
        ]
    }

    proptest! {
        #[test]
        fn pages_are_a_map_from_ids(
            steps in prop::collection::vec((ids(), 1u64..1000, 1usize..100, any::<bool>()), 1..300),
        ) {
            let directory = Arc::new(Directory::default());
            let mut pages = PageIndex::new(Arc::clone(&directory));
            let mut model = BTreeMap::new();
            for (id, bits, units, insert) in steps {
                let total = units * ALIGNMENT;
                if insert {
                    pages.insert(id, location(bits), total);
                    model.insert(id, (location(bits), total));
                } else {
                    pages.remove(id);
                    model.remove(&id);
                }
                let found = pages.matches(id).next();
                let found = found.map(|found| (found.location, found.total.unwrap()));
                prop_assert_eq!(found, model.get(&id).copied());
            }
            prop_assert_eq!(pages.len(), model.len());
            let mut walked = Vec::new();
            let mut from = Some(0);
            while let Some(page) = from.and_then(|page| directory.at_or_after(page)) {
                walked.extend(pages.entries_of(page));
                from = Some(page + 1);
            }
            let all: Vec<_> = model.iter().map(|(id, (location, _))| (*id, *location)).collect();
            prop_assert_eq!(walked, all);
            let last = directory.at_or_before(u64::MAX);
            prop_assert_eq!(last, model.keys().next_back().map(|id| page_of(*id)));
            prop_assert_eq!(pages.packed_words(), pages.packed().len());

            let mut again = PageIndex::new(Arc::default());
            prop_assert!(again.unpack(0, pages.packed(), &|_| true));
            prop_assert_eq!(again.packed(), pages.packed());
            let mut half = PageIndex::new(Arc::default());
            let keeps = |location: Location| location.bits().is_multiple_of(2);
            prop_assert!(half.unpack(0, pages.packed(), &keeps));
            for (id, (location, _)) in model {
                prop_assert_eq!(half.get(id).is_some(), keeps(location));
            }
        }

        #[test]
        fn arbitrary_words_are_refused_or_make_pages(
            words in prop::collection::vec(prop_oneof![0u64..4, any::<u64>()], 0..40),
        ) {
            let mut pages = PageIndex::new(Arc::default());
            if pages.unpack(0, words, &|_| true) {
                let mut again = PageIndex::new(Arc::default());
                prop_assert!(again.unpack(0, pages.packed(), &|_| true));
                prop_assert_eq!(again.len(), pages.len());
            }
        }
    }

    #[test]
    fn a_page_with_many_records_has_an_entry_for_each_id() {
        let ids = PAGE_IDS as usize;
        let (mut page, mut model) = (Page::default(), BTreeMap::new());
        let same = |page: &Page, model: &BTreeMap<u64, u64>| {
            let first = |place| (place, location(model[&place]));
            let entries: Vec<_> = page.entries_from(0).collect();
            assert_eq!(entries, model.keys().copied().map(first).collect::<Vec<_>>());
            assert_eq!(usize::from(page.count), model.len());
            for place in 0..PAGE_IDS {
                assert_eq!(page.get(place), model.get(&place).copied());
            }
            // Neither form uses more memory than a page that grows by doubling.
            assert!(page.entries.capacity() <= ids.min(2 * model.len().next_power_of_two().max(2)));
        };
        let scattered = |number: u64| number * 101 % PAGE_IDS;
        for number in 0..PAGE_IDS {
            assert!(page.set(scattered(number), number + 1));
            assert!(!page.set(scattered(number), number + 1));
            model.insert(scattered(number), number + 1);
            same(&page, &model);
            assert_eq!(page.is_spread(), model.len() >= SPREAD_MIN);
        }
        for number in 0..PAGE_IDS {
            let mut small = page.clone();
            small.shrink();
            same(&small, &model);
            assert_eq!(small.is_spread(), model.len() >= SPREAD_MIN_WHEN_TIGHT);
            let mut entries: Vec<_> = page.entries().collect();
            entries.shrink_to_fit();
            let again = Page::of(page.taken, entries);
            same(&again, &model);
            assert!(again.entries.capacity() * 31 <= model.len().max(1) * 32);
            assert!(page.remove(scattered(number)));
            assert!(!page.remove(scattered(number)));
            model.remove(&scattered(number));
            assert_eq!(usize::from(page.count), model.len());
            assert_eq!(page.is_spread(), model.len() >= SPREAD_MIN / 2);
        }
        assert!(page.is_empty());
    }

    #[test]
    fn memory_is_bounded_by_the_number_of_records_however_far_apart_they_are() {
        let mut dense = PageIndex::new(Arc::default());
        for id in 1..PAGE_IDS {
            dense.insert(id, location(id), 8);
        }
        dense.shrink();
        assert!(dense.memory_bytes() <= 255 * 9);
        let mut sparse = PageIndex::new(Arc::default());
        for number in 1..1000 {
            let page = number * 977 * SHARDS as u64;
            sparse.insert(first_of(page) + number % PAGE_IDS, location(number), 8);
        }
        assert!(sparse.memory_bytes() <= 1000 * 210);
        sparse.clear();
        assert_eq!(sparse.memory_bytes(), 0);
        assert_eq!(sparse.directory.at_or_after(0), None);
    }
}
