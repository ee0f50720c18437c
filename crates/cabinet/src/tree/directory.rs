//! Directory: the inner levels of the tree, in memory. It finds the leaf of a key.
//!
//! The directory is a sorted list of lower bounds in chunks. Each bound has a head, a number that
//! orders like the bound. A search first compares heads, on a few cache lines in each of two
//! levels, and compares keys only if their heads are equal. With 8 KiB leaves, two levels are
//! enough for a terabyte. A bound takes about 60 bytes, and its leaf 112.

use crate::KeyOrder;
use crate::base::heap;
use std::cmp::Ordering;
use std::ops::Range;

/// Maximum number of bounds in a chunk.
const CHUNK_BOUNDS_MAX: usize = 512;

/// A list of places. Each has the keys from its lower bound on and before the next place's. The
/// first place has no lower bound, and the one that is stored for it is ignored.
#[derive(Debug)]
pub(super) struct Directory<T> {
    order: KeyOrder,
    /// Head of the first bound of each chunk.
    heads: Vec<u64>,
    chunks: Vec<Chunk<T>>,
    /// Number of places.
    places: usize,
    /// Bytes of all lower bounds.
    bounds_bytes: usize,
    /// Bytes of memory of chunks and lower bounds.
    chunks_bytes: usize,
}

#[derive(Debug)]
struct Chunk<T> {
    heads: Vec<u64>,
    places: Vec<Place<T>>,
}

#[derive(Debug)]
struct Place<T> {
    lower: Box<[u8]>,
    leaf: T,
}

impl<T> Chunk<T> {
    /// Returns the bytes of memory of the lists, without those of lower bounds and leaves.
    fn memory_bytes(&self) -> usize {
        heap::list_bytes::<u64>(self.heads.capacity())
            + heap::list_bytes::<Place<T>>(self.places.capacity())
    }

    /// Allocates space for another place. Doubling would leave chunks too much spare capacity.
    fn reserve_one(&mut self) {
        if self.places.len() == self.places.capacity() {
            self.places.reserve_exact(spare(self.places.len()));
        }
        if self.heads.len() == self.heads.capacity() {
            self.heads.reserve_exact(spare(self.heads.len()));
        }
    }

    /// Frees most of the spare capacity.
    fn shrink(&mut self) {
        let places = self.places.len();
        self.places.shrink_to(places + spare(places));
        self.heads.shrink_to(places + spare(places));
    }
}

/// Returns the spare capacity of a chunk with `places` places.
fn spare(places: usize) -> usize {
    places / 8 + 1
}

/// Index of a place, valid until the directory changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Index {
    chunk: usize,
    place: usize,
}

impl<T> Directory<T> {
    /// Creates a directory with one place for all keys.
    pub(super) fn new(order: KeyOrder, leaf: T) -> Self {
        Self::from_sorted(order, vec![(Box::default(), leaf)])
    }

    /// Creates a directory from places in the order of their lower bounds. There must be at least
    /// one.
    pub(super) fn from_sorted(order: KeyOrder, places: Vec<(Box<[u8]>, T)>) -> Self {
        debug_assert!(!places.is_empty());
        let mut directory = Self {
            order,
            heads: Vec::new(),
            chunks: Vec::new(),
            places: places.len(),
            bounds_bytes: places.iter().map(|(lower, _)| lower.len()).sum(),
            chunks_bytes: places.iter().map(|(lower, _)| heap::block_bytes(lower.len())).sum(),
        };
        let mut places = places.into_iter().peekable();
        while places.peek().is_some() {
            let part = places.by_ref().take(CHUNK_BOUNDS_MAX * 3 / 4);
            let places: Vec<_> = part.map(|(lower, leaf)| Place { lower, leaf }).collect();
            let heads: Vec<u64> = places.iter().map(|place| order.head(&place.lower)).collect();
            directory.heads.push(heads[0]);
            let chunk = Chunk { heads, places };
            directory.chunks_bytes += chunk.memory_bytes();
            directory.chunks.push(chunk);
        }
        directory
    }

    /// Returns the number of places.
    pub(super) fn len(&self) -> usize {
        self.places
    }

    /// Returns the bytes of all lower bounds.
    pub(super) fn bounds_bytes(&self) -> usize {
        self.bounds_bytes
    }

    /// Returns the bytes of memory of the directory, without those of the leaves.
    pub(super) fn memory_bytes(&self) -> usize {
        heap::list_bytes::<u64>(self.heads.capacity())
            + heap::list_bytes::<Chunk<T>>(self.chunks.capacity())
            + self.chunks_bytes
    }

    /// Returns the place that a key belongs to.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> Index {
        self.search(key, |ordering| ordering != Ordering::Greater)
    }

    /// Returns the place of the keys right before this one.
    pub(super) fn find_before(&self, key: &[u8]) -> Index {
        self.search(key, |ordering| ordering == Ordering::Less)
    }

    pub(super) fn first(&self) -> Index {
        Index { chunk: 0, place: 0 }
    }

    pub(super) fn last(&self) -> Index {
        let chunk = self.chunks.len() - 1;
        Index { chunk, place: self.chunks[chunk].places.len() - 1 }
    }

    #[inline]
    pub(super) fn leaf(&self, index: Index) -> &T {
        &self.chunks[index.chunk].places[index.place].leaf
    }

    pub(super) fn leaf_mut(&mut self, index: Index) -> &mut T {
        &mut self.chunks[index.chunk].places[index.place].leaf
    }

    /// Returns the lower bound of a place; `None` for the first place.
    pub(super) fn lower(&self, index: Index) -> Option<&[u8]> {
        (index != self.first()).then(|| &*self.chunks[index.chunk].places[index.place].lower)
    }

    /// Returns the place after this one; `None` for the last place.
    pub(super) fn next(&self, index: Index) -> Option<Index> {
        if index.place + 1 < self.chunks[index.chunk].places.len() {
            return Some(Index { place: index.place + 1, ..index });
        }
        (index.chunk + 1 < self.chunks.len()).then_some(Index { chunk: index.chunk + 1, place: 0 })
    }

    /// Returns the upper bound of a place, which is not included; `None` for the last place.
    pub(super) fn upper(&self, index: Index) -> Option<&[u8]> {
        self.next(index).and_then(|next| self.lower(next))
    }

    /// Divides the place that `lower` belongs to: its keys from `lower` on belong to `leaf`.
    pub(super) fn insert(&mut self, lower: Box<[u8]>, leaf: T) {
        let index = self.find(&lower);
        let head = self.order.head(&lower);
        self.places += 1;
        self.bounds_bytes += lower.len();
        self.chunks_bytes += heap::block_bytes(lower.len());
        let chunk = &mut self.chunks[index.chunk];
        self.chunks_bytes -= chunk.memory_bytes();
        chunk.reserve_one();
        chunk.heads.insert(index.place + 1, head);
        chunk.places.insert(index.place + 1, Place { lower, leaf });
        self.chunks_bytes += chunk.memory_bytes();
        if chunk.places.len() > CHUNK_BOUNDS_MAX {
            let is_last = index.chunk + 1 == self.chunks.len();
            self.divide(index, is_last);
        }
    }

    fn divide(&mut self, index: Index, is_last: bool) {
        let chunk = &mut self.chunks[index.chunk];
        // Bounds that are inserted in order fill their chunks.
        let at = if is_last && index.place + 2 == chunk.places.len() {
            index.place + 1
        } else {
            chunk.places.len() / 2
        };
        self.chunks_bytes -= chunk.memory_bytes();
        let right = Chunk { heads: chunk.heads.split_off(at), places: chunk.places.split_off(at) };
        chunk.shrink();
        self.chunks_bytes += chunk.memory_bytes() + right.memory_bytes();
        self.heads.insert(index.chunk + 1, right.heads[0]);
        self.chunks.insert(index.chunk + 1, right);
    }

    /// Removes a place. Its keys belong to the place before it then. The first place is not
    /// removed.
    pub(super) fn remove(&mut self, index: Index) {
        if index == self.first() {
            return;
        }
        let chunk = &mut self.chunks[index.chunk];
        self.chunks_bytes -= chunk.memory_bytes();
        chunk.heads.remove(index.place);
        let lower = chunk.places.remove(index.place).lower;
        self.places -= 1;
        self.bounds_bytes -= lower.len();
        self.chunks_bytes -= heap::block_bytes(lower.len());
        if 2 * chunk.places.len() < chunk.places.capacity() {
            chunk.shrink();
        }
        self.chunks_bytes += chunk.memory_bytes();
        match chunk.heads.first() {
            Some(head) => self.heads[index.chunk] = *head,
            None => {
                self.chunks_bytes -= chunk.memory_bytes();
                self.heads.remove(index.chunk);
                self.chunks.remove(index.chunk);
            }
        }
    }

    /// Returns up to `count` leaves, evenly spread over all places or over those of a range of
    /// keys.
    pub(super) fn sample(&self, count: usize, keys: Option<Range<&[u8]>>) -> Vec<T>
    where
        T: Clone,
    {
        let first = keys.as_ref().map_or(self.first(), |keys| self.find(keys.start));
        let last = keys.as_ref().map_or(self.last(), |keys| self.find_before(keys.end));
        let first = self.number(first);
        let places = self.number(last).saturating_sub(first) + 1;
        let mut numbers = (0..count).map(|sample| first + places * sample / count.max(1));
        let mut number = numbers.next();
        let mut leaves = Vec::with_capacity(count);
        let mut before = 0;
        for chunk in &self.chunks {
            while let Some(place) = number.and_then(|number| chunk.places.get(number - before)) {
                leaves.push(place.leaf.clone());
                number = numbers.next();
            }
            before += chunk.places.len();
        }
        leaves
    }

    /// Returns the number of places before a place.
    fn number(&self, index: Index) -> usize {
        let before = &self.chunks[..index.chunk];
        before.iter().map(|chunk| chunk.places.len()).sum::<usize>() + index.place
    }

    /// Returns all leaves, in order.
    #[cfg(test)]
    fn leaves(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| &chunk.places).map(|place| &place.leaf)
    }

    /// Returns the last place whose lower bound is before the key, or else the first place.
    /// `is_before` decides from the comparison of the bound with the key.
    #[inline]
    fn search(&self, key: &[u8], is_before: impl Fn(Ordering) -> bool) -> Index {
        let sought = self.order.head(key);
        let is_place_before = |head: u64, place: &Place<T>| {
            head < sought || head == sought && is_before(self.order.compare(&place.lower, key))
        };
        // The first place counts as before everything.
        let (mut low, mut high) = (1, self.heads.len());
        while low < high {
            let middle = (low + high) / 2;
            if is_place_before(self.heads[middle], &self.chunks[middle].places[0]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let chunk = low - 1;
        let Chunk { heads, places } = &self.chunks[chunk];
        let (mut low, mut high) = (1, heads.len());
        while low < high {
            let middle = (low + high) / 2;
            if is_place_before(heads[middle], &places[middle]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Index { chunk, place: low - 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(directory: &Directory<u32>, model: &[(Vec<u8>, u32)], keys: &[Vec<u8>]) {
        let order = directory.order;
        assert_eq!(directory.len(), model.len());
        let places = directory.chunks.iter().flat_map(|chunk| &chunk.places);
        let bounds_bytes: usize = places.clone().map(|place| place.lower.len()).sum();
        assert_eq!(directory.bounds_bytes, bounds_bytes);
        let blocks: usize = places.map(|place| heap::block_bytes(place.lower.len())).sum();
        let chunks: usize = directory.chunks.iter().map(Chunk::memory_bytes).sum();
        assert_eq!(directory.chunks_bytes, blocks + chunks);
        for chunk in &directory.chunks {
            let places = chunk.places.len();
            assert!(chunk.places.capacity() <= (2 * places).max(4), "of {places}");
            assert!(chunk.heads.capacity() <= (2 * places).max(4), "of {places}");
        }
        assert!(directory.leaves().eq(model.iter().map(|(_, leaf)| leaf)));
        for key in keys {
            let found = model[1..].partition_point(|(lower, _)| order.compare(lower, key).is_le());
            let index = directory.find(key);
            assert_eq!(*directory.leaf(index), model[found].1);
            assert_eq!(directory.lower(index), (found > 0).then(|| &model[found].0[..]));
            assert_eq!(directory.upper(index), model.get(found + 1).map(|(lower, _)| &lower[..]));
            let before = model[1..].partition_point(|(lower, _)| order.compare(lower, key).is_lt());
            assert_eq!(*directory.leaf(directory.find_before(key)), model[before].1);
        }
        assert_eq!(*directory.leaf(directory.last()), model.last().unwrap().1);
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(b'a'..=b'c', 0..12),
            proptest::collection::vec(any::<u8>(), 0..3),
        ]
    }

    proptest! {
        #[test]
        fn a_directory_is_a_sorted_list_of_bounds(
            order in proptest::sample::select(&KeyOrder::NAMES).prop_map(|(_, order)| order),
            steps in proptest::collection::vec((key(), 0u8..4), 1..300),
        ) {
            let mut directory = Directory::new(order, 0);
            let mut model = vec![(vec![], 0)];
            let keys: Vec<_> = steps.iter().map(|(key, _)| key.clone()).collect();
            for (number, (key, step)) in steps.into_iter().enumerate() {
                let at = model[1..].partition_point(|(l, _)| order.compare(l, &key).is_le());
                let is_bound = at > 0 && order.compare(&model[at].0, &key).is_eq();
                if step == 0 {
                    directory.remove(directory.find(&key));
                    if at > 0 {
                        model.remove(at);
                    }
                } else if !is_bound {
                    directory.insert(key.clone().into(), number as u32 + 1);
                    model.insert(at + 1, (key, number as u32 + 1));
                }
            }
            check(&directory, &model, &keys);
            let sorted = model.iter().map(|(key, leaf)| (key.clone().into(), *leaf)).collect();
            check(&Directory::from_sorted(order, sorted), &model, &keys);
        }
    }

    #[test]
    fn chunks_are_divided_and_removed_in_every_order_of_bounds() {
        const BOUNDS: u32 = 5000;
        let rising: Vec<u32> = (1..BOUNDS).collect();
        let falling: Vec<u32> = (1..BOUNDS).rev().collect();
        let mixed: Vec<u32> = (1..BOUNDS).map(|number| number * 3001 % BOUNDS).collect();
        for numbers in [rising, falling, mixed] {
            let mut directory = Directory::new(KeyOrder::Lexical, 0);
            for number in &numbers {
                directory.insert(number.to_be_bytes().into(), *number);
            }
            let keys: Vec<_> = (0..BOUNDS).map(|number| number.to_be_bytes().to_vec()).collect();
            let mut model: Vec<_> = (0..BOUNDS).map(|n| (n.to_be_bytes().to_vec(), n)).collect();
            check(&directory, &model, &keys);
            for number in numbers.iter().filter(|number| **number % 7 != 0) {
                directory.remove(directory.find(&number.to_be_bytes()));
            }
            model.retain(|(_, number)| number % 7 == 0);
            check(&directory, &model, &keys);
        }
    }
}
