//! The index: pages of ids in their order.
//!
//! A page has 256 consecutive ids: a bit for each that says whether there is a record, and 8 bytes
//! for each record that there is, in the order of ids. So a page that is full takes 8 bytes a
//! record, and a record all alone on its page less than 200. Pages are dealt to the shards in
//! turn; which pages there are is known to the [`Directory`], for walks from id to id.
//!
//! The 8 bytes are 40 of location and 24 that count the record's bytes in the log, in units of
//! its alignment: so a record need not be read to be overwritten or removed.

use crate::indexed::{Match, Table};
use crate::limits::{FIXED_ID_MAX, FIXED_WIDTH_BYTES_MAX};
use crate::log::Location;
use crate::log::record::{ALIGNMENT, HEADER_BYTES_MAX};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Ids of a page.
const PAGE_IDS: u64 = 256;

/// Words of a page's bits.
const WORDS: usize = (PAGE_IDS / 64) as usize;

/// Words of a page in a checkpoint, before its entries: its number and its bits.
const PACKED_WORDS: usize = 1 + WORDS;

/// What a map of pages takes beside the page itself, in bytes; roughly.
const MAP_BYTES_PER_PAGE: usize = 32;

const SHARD_BITS: u32 = 10;

/// Shards that pages are dealt to.
pub(super) const SHARDS: usize = 1 << SHARD_BITS;

/// Every record's length can be told in an entry.
const _: () = assert!(
    (FIXED_WIDTH_BYTES_MAX as usize + 20 + HEADER_BYTES_MAX) / ALIGNMENT + 1
        < 1 << (u64::BITS - Location::BITS)
);

/// The page that an id is on.
#[inline]
pub(super) fn page_of(id: u64) -> u64 {
    id / PAGE_IDS
}

/// The shard that has a page.
#[inline]
pub(super) fn shard_of(page: u64) -> usize {
    (page % SHARDS as u64) as usize
}

/// The least id of a page.
#[inline]
pub(super) fn first_of(page: u64) -> u64 {
    page * PAGE_IDS
}

/// Which pages there are. A page may be named that has just lost its last record.
#[derive(Debug, Default)]
pub(super) struct Directory(RwLock<BTreeSet<u64>>);

impl Directory {
    /// The first page at or after `page`.
    pub(super) fn at_or_after(&self, page: u64) -> Option<u64> {
        self.0.read().range(page..).next().copied()
    }

    /// The last page at or before `page`.
    pub(super) fn at_or_before(&self, page: u64) -> Option<u64> {
        self.0.read().range(..=page).next_back().copied()
    }
}

/// The pages of one shard.
#[derive(Debug)]
pub(super) struct Pages {
    directory: Arc<Directory>,
    pages: BTreeMap<u64, Page>,
    entries: usize,
}

#[derive(Clone, Debug, Default)]
struct Page {
    taken: [u64; WORDS],
    entries: Vec<u64>,
}

impl Page {
    /// Whether there is an entry for an id, and how many entries there are before it.
    #[inline]
    fn rank(&self, id: u64) -> (bool, usize) {
        let place = id % PAGE_IDS;
        let (word, bit) = ((place / 64) as usize, place % 64);
        // Where ids are dense there is nothing to count.
        let count = |word: &u64| if *word == u64::MAX { 64 } else { word.count_ones() };
        let before: u32 = self.taken[..word].iter().map(count).sum();
        let within = self.taken[word] & ((1 << bit) - 1);
        let is_taken = self.taken[word] >> bit & 1 == 1;
        (is_taken, (before + within.count_ones()) as usize)
    }

    /// Its entries, of ids from `first` on.
    fn entries_from(&self, first: u64) -> impl Iterator<Item = (u64, Location)> {
        let ids = self.places().map(move |place| first + place);
        ids.zip(self.entries.iter().map(|entry| location_of(*entry)))
    }

    fn flip(&mut self, id: u64) {
        let place = id % PAGE_IDS;
        self.taken[(place / 64) as usize] ^= 1 << (place % 64);
    }

    /// Places on the page that are taken, in their order.
    fn places(&self) -> impl DoubleEndedIterator<Item = u64> {
        (0..PAGE_IDS).filter(|place| self.taken[(place / 64) as usize] >> (place % 64) & 1 == 1)
    }
}

impl Pages {
    pub(super) fn new(directory: Arc<Directory>) -> Self {
        Self { directory, pages: BTreeMap::new(), entries: 0 }
    }

    /// Ids of a page with the locations of their records, in order.
    pub(super) fn entries_of(&self, page: u64) -> Vec<(u64, Location)> {
        let Some(found) = self.pages.get(&page) else { return Vec::new() };
        found.entries_from(first_of(page)).collect()
    }

    /// The least id of a page at or after `from`.
    pub(super) fn next_of(&self, page: u64, from: u64) -> Option<u64> {
        let mut ids = self.pages.get(&page)?.places().map(|place| first_of(page) + place);
        ids.find(|id| *id >= from)
    }

    /// The entry of an id.
    #[inline]
    pub(super) fn get(&self, id: u64) -> Option<u64> {
        let page = self.pages.get(&page_of(id))?;
        let (is_taken, rank) = page.rank(id);
        if is_taken { page.entries.get(rank).copied() } else { None }
    }
}

impl Table for Pages {
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
        self.pages.iter().flat_map(|(number, page)| page.entries_from(first_of(*number)))
    }

    #[inline]
    fn prefetch(&self, id: u64) {
        if let Some(page) = self.pages.get(&page_of(id)) {
            let (_, rank) = page.rank(id);
            crate::io::prefetch(page.entries.as_ptr().wrapping_add(rank));
        }
    }

    #[inline]
    fn insert(&mut self, id: u64, location: Location, total: usize) {
        let page = self.pages.entry(page_of(id)).or_insert_with(|| {
            self.directory.0.write().insert(page_of(id));
            Page::default()
        });
        let (is_taken, rank) = page.rank(id);
        if is_taken {
            page.entries[rank] = pack(location, total);
            return;
        }
        page.entries.insert(rank, pack(location, total));
        page.flip(id);
        self.entries += 1;
    }

    #[inline]
    fn replace(&mut self, id: u64, location: Location, total: usize) {
        self.insert(id, location, total);
    }

    fn remove(&mut self, id: u64) {
        let number = page_of(id);
        let Some(page) = self.pages.get_mut(&number) else { return };
        let (is_taken, rank) = page.rank(id);
        if !is_taken {
            return;
        }
        page.entries.remove(rank);
        page.flip(id);
        self.entries -= 1;
        if page.entries.is_empty() {
            self.pages.remove(&number);
            self.directory.0.write().remove(&number);
        }
    }

    fn clear(&mut self) {
        let mut directory = self.directory.0.write();
        for number in self.pages.keys() {
            directory.remove(number);
        }
        drop(directory);
        self.pages.clear();
        self.entries = 0;
    }

    fn len(&self) -> usize {
        self.entries
    }

    fn memory_bytes(&self) -> usize {
        let entries: usize = self.pages.values().map(|page| page.entries.capacity()).sum();
        entries * size_of::<u64>() + self.pages.len() * (size_of::<Page>() + MAP_BYTES_PER_PAGE)
    }

    fn shrink(&mut self) {
        self.pages.values_mut().for_each(|page| page.entries.shrink_to_fit());
    }

    /// Page after page: its number, its bits, its entries.
    fn packed(&self) -> Vec<u64> {
        let mut packed = Vec::with_capacity(self.packed_words());
        for (number, page) in &self.pages {
            packed.push(*number);
            packed.extend_from_slice(&page.taken);
            packed.extend_from_slice(&page.entries);
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
            let mut page = Page { taken, entries: Vec::new() };
            let count = page.places().count();
            let is_here = shard_of(number) == shard && number >= least;
            if !is_here || number > page_of(FIXED_ID_MAX) || count == 0 || count > after.len() {
                return false;
            }
            // There is no id 0.
            if number == 0 && taken[0] & 1 == 1 {
                return false;
            }
            let (entries, after) = after.split_at(count);
            let places: Vec<u64> = page.places().collect();
            page.entries.reserve_exact(count);
            for (place, entry) in places.into_iter().zip(entries) {
                if keeps(location_of(*entry)) {
                    page.entries.push(*entry);
                } else {
                    page.flip(place);
                }
            }
            if !page.entries.is_empty() {
                self.entries += page.entries.len();
                self.directory.0.write().insert(number);
                self.pages.insert(number, page);
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

    fn location(number: u64) -> Location {
        Location::from_bits(number)
    }

    /// Ids of the first shard, on few pages, at the ends of pages and far away.
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
            let mut pages = Pages::new(Arc::clone(&directory));
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

            let mut again = Pages::new(Arc::default());
            prop_assert!(again.unpack(0, pages.packed(), &|_| true));
            prop_assert_eq!(again.packed(), pages.packed());
            let mut half = Pages::new(Arc::default());
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
            let mut pages = Pages::new(Arc::default());
            if pages.unpack(0, words, &|_| true) {
                let mut again = Pages::new(Arc::default());
                prop_assert!(again.unpack(0, pages.packed(), &|_| true));
                prop_assert_eq!(again.len(), pages.len());
            }
        }
    }

    #[test]
    fn memory_is_bounded_by_the_number_of_records_however_far_apart_they_are() {
        let mut dense = Pages::new(Arc::default());
        for id in 1..PAGE_IDS {
            dense.insert(id, location(id), 8);
        }
        dense.shrink();
        assert!(dense.memory_bytes() <= 255 * 9);
        let mut sparse = Pages::new(Arc::default());
        for number in 1..1000 {
            let page = number * 977 * SHARDS as u64;
            sparse.insert(first_of(page) + number % PAGE_IDS, location(number), 8);
        }
        assert!(sparse.memory_bytes() <= 1000 * 200);
        sparse.clear();
        assert_eq!(sparse.memory_bytes(), 0);
        assert_eq!(sparse.directory.at_or_after(0), None);
    }
}
