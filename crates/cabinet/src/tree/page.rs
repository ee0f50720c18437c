//! Page: the records of a leaf, in memory and in the log.
//!
//! ```text
//!  0   8  the sequence number of the last redo record that was applied
//!  8   4  number of records, n
//! 12   4  length of the common prefix, p; at most 255
//! 16   p  the common prefix of all keys
//!     4n  heads: first bytes of each key after the prefix, as a number that orders like the keys
//!     4n  slots: offset of each record from the beginning of the cells, in bytes
//!         cells: the records, see [`super::cell`]
//! ```
//!
//! All numbers are little-endian. Heads and slots are in the order of keys, and those of a key's
//! duplicates in the order of the duplicates. A search reads the heads, which are on a few
//! neighbouring cache lines, and compares keys only if their heads are equal. So a page is searched
//! in place, in the log's mapping as in memory. In orders other than the lexical one there is no
//! prefix, and a head is the upper half of the key's head in that order.

use super::cell;
use crate::base::heap;
use crate::io::prefetch;
use crate::{KeyOrder, RecordRef};
use std::cmp::Ordering;
use std::ops::Range;

const HEADER_BYTES: usize = 16;

/// Maximum length of the prefix. Keys that share more bytes than this may have equal heads.
const PREFIX_BYTES_MAX: usize = 255;

/// Bytes of a record beside its cell: head and slot.
pub(super) const PLACE_BYTES: usize = 8;

/// Maximum bytes of a page beside its cells, heads and slots.
pub(super) const OVERHEAD_BYTES_MAX: usize = HEADER_BYTES + PREFIX_BYTES_MAX;

/// Bytes of heads up to which a search prefetches all of them, so that their cache misses overlap.
const PREFETCHED_BYTES_MAX: usize = 8 * CACHE_LINE_BYTES;

const CACHE_LINE_BYTES: usize = 64;

/// Dead bytes of the cells up to which they are not reclaimed.
const DEAD_BYTES_MIN: usize = 1024;

/// A page to read, in memory or in the log's mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) applied: u64,
    prefix: &'a [u8],
    heads: &'a [u8],
    slots: &'a [u8],
    cells: &'a [u8],
}

impl<'a> View<'a> {
    /// Returns the page that the bytes encode; `None` if its parts do not fit in. Nothing else is
    /// checked, see [`View::is_sound`].
    #[inline]
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let applied = u64::from_le_bytes(*header.first_chunk()?);
        let count = read_u32(&header[8..]) as usize;
        let (prefix, rest) = rest.split_at_checked(read_u32(&header[12..]) as usize)?;
        let (heads, rest) = rest.split_at_checked(count.checked_mul(4)?)?;
        let (slots, cells) = rest.split_at_checked(count * 4)?;
        Some(Self { applied, prefix, heads, slots, cells })
    }

    /// Returns the bytes of the page, including dead ones.
    pub(super) fn bytes(&self) -> usize {
        HEADER_BYTES + self.prefix.len() + self.heads.len() + self.slots.len() + self.cells.len()
    }

    /// Returns whether the bytes are a valid page of a tree in this order. If they are not, the
    /// other methods may return wrong results, but do not panic.
    pub(super) fn is_sound(&self, order: KeyOrder) -> bool {
        let mut previous: Option<&[u8]> = None;
        self.prefix.len() <= PREFIX_BYTES_MAX
            && (0..self.len()).all(|index| {
                let Some((entry, _)) = self.cells.get(self.slot(index)..).and_then(cell::decode)
                else {
                    return false;
                };
                let in_order =
                    previous.is_none_or(|p| order.compare(p, entry.key) != Ordering::Greater);
                previous = Some(entry.key);
                in_order
                    && entry.key.starts_with(self.prefix)
                    && self.head(index) == head(order, self.prefix.len(), entry.key)
            })
    }

    /// Returns the number of records.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots.len() / 4
    }

    #[inline]
    fn head(&self, index: usize) -> u32 {
        read_u32(&self.heads[index * 4..])
    }

    #[inline]
    fn slot(&self, index: usize) -> usize {
        read_u32(&self.slots[index * 4..]) as usize
    }

    /// Returns the record at an index, or an empty one if the page is unsound there.
    #[inline]
    pub(super) fn record(&self, index: usize) -> RecordRef<'a> {
        self.cell(index).0
    }

    #[inline]
    fn cell(&self, index: usize) -> (RecordRef<'a>, usize) {
        let none = RecordRef { key: &[], value: &[], meta: crate::Meta::NONE, version: 0 };
        self.cells.get(self.slot(index)..).and_then(cell::decode).unwrap_or((none, 0))
    }

    #[inline]
    pub(super) fn key(&self, index: usize) -> &'a [u8] {
        self.record(index).key
    }

    /// Returns the index of the first record whose key is at or after this one.
    #[inline]
    pub(super) fn lower_bound(&self, order: KeyOrder, key: &[u8]) -> usize {
        match self.find(order, key) {
            Ok((index, _)) | Err(index) => index,
        }
    }

    /// Returns the first record with a key and its index, or the index at which it would be.
    #[inline]
    pub(super) fn find(
        &self,
        order: KeyOrder,
        key: &[u8],
    ) -> Result<(usize, RecordRef<'a>), usize> {
        if !self.prefix.is_empty() {
            let length = self.prefix.len().min(key.len());
            match self.prefix[..length].cmp(&key[..length]) {
                Ordering::Less => return Err(self.len()),
                Ordering::Greater => return Err(0),
                Ordering::Equal if length < self.prefix.len() => return Err(0),
                Ordering::Equal => {}
            }
        }
        let sought = head(order, self.prefix.len(), key);
        if self.heads.len() <= PREFETCHED_BYTES_MAX {
            for line in self.heads.chunks(CACHE_LINE_BYTES) {
                prefetch(line.as_ptr());
            }
        }
        let start = partition_point(0..self.len(), |index| self.head(index) < sought);
        if !self.has_head(start, sought) {
            return Err(start);
        }
        let first = self.record(start);
        match order.compare(first.key, key) {
            Ordering::Equal => Ok((start, first)),
            Ordering::Greater => Err(start),
            Ordering::Less => self.find_among_many(order, key, sought, start + 1),
        }
    }

    /// Like `find`, from an index on, after a record with the same head and a smaller key.
    fn find_among_many(
        &self,
        order: KeyOrder,
        key: &[u8],
        sought: u32,
        from: usize,
    ) -> Result<(usize, RecordRef<'a>), usize> {
        let index = partition_point(from..self.len(), |index| {
            self.has_head(index, sought) && order.compare(self.key(index), key).is_lt()
        });
        if self.has_head(index, sought) {
            let record = self.record(index);
            if order.compare(record.key, key).is_eq() {
                return Ok((index, record));
            }
        }
        Err(index)
    }

    /// Returns whether there is a record with this head at an index. Equal keys have equal heads,
    /// so if these differ, no record need be read.
    #[inline]
    fn has_head(&self, index: usize, head: u32) -> bool {
        index < self.len() && self.head(index) == head
    }

    /// Returns the indices of the duplicates of a key. If it has none, the range is empty, at the
    /// index at which they would be.
    #[inline]
    pub(super) fn group(&self, order: KeyOrder, key: &[u8]) -> Range<usize> {
        let start = match self.find(order, key) {
            Ok((start, _)) => start,
            Err(place) => return place..place,
        };
        let sought = self.head(start);
        let is_at =
            |index| self.has_head(index, sought) && order.compare(self.key(index), key).is_eq();
        if !is_at(start + 1) {
            return start..start + 1;
        }
        start..partition_point(start + 2..self.len(), is_at)
    }

    /// Returns whether the records on both sides of an index have different keys.
    fn is_boundary(&self, order: KeyOrder, index: usize) -> bool {
        order.compare(self.key(index - 1), self.key(index)) != Ordering::Equal
    }

    /// Returns the index at which to divide the page between two keys, so that its bytes are about
    /// halved; `None` if all records have one key. After an insertion at the very end, all other
    /// records go to the left: keys that are inserted in order fill their pages.
    pub(super) fn split_point(&self, order: KeyOrder, inserted: usize) -> Option<usize> {
        if inserted + 1 == self.len() && inserted > 0 && self.is_boundary(order, inserted) {
            return Some(inserted);
        }
        let last = self.len().checked_sub(1)?;
        if order.compare(self.key(0), self.key(last)) == Ordering::Equal {
            // All are duplicates of one key. They need not be searched each time that one is added.
            return None;
        }
        let half = (0..self.len()).map(|index| self.cell(index).1).sum::<usize>() / 2;
        let mut best = None;
        let mut before = 0;
        for index in 1..self.len() {
            before += self.cell(index - 1).1;
            if self.is_boundary(order, index) {
                let distance = before.abs_diff(half);
                if best.is_none_or(|(_, least)| distance < least) {
                    best = Some((index, distance));
                }
            }
            if before > half && best.is_some() {
                break;
            }
        }
        best.map(|(index, _)| index)
    }
}

#[inline]
fn head(order: KeyOrder, prefix_bytes: usize, key: &[u8]) -> u32 {
    if order != KeyOrder::Lexical {
        return (order.head(key) >> 32) as u32;
    }
    let rest = key.get(prefix_bytes..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk::<4>() {
        return u32::from_be_bytes(*bytes);
    }
    let mut bytes = [0; 4];
    bytes[..rest.len()].copy_from_slice(rest);
    u32::from_be_bytes(bytes)
}

/// Returns the first index of a range for which `is_before` returns false, or its end. Each step
/// branches, so that a processor that predicts the branch fetches ahead. Without branches, a get in
/// a tree of 60 MB takes a fifth longer.
#[inline]
fn partition_point(range: Range<usize>, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = (low + high) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[inline]
fn read_u32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// A page in memory, which can be changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    pub(super) applied: u64,
    prefix: Vec<u8>,
    heads: Vec<u8>,
    slots: Vec<u8>,
    cells: Vec<u8>,
    /// Bytes of cells that no slot points to.
    dead: usize,
}

impl Page {
    /// Copies a page into memory.
    pub(super) fn copy_of(view: View<'_>) -> Self {
        Self {
            applied: view.applied,
            prefix: heap::copy(view.prefix),
            heads: heap::copy(view.heads),
            slots: heap::copy(view.slots),
            cells: heap::copy(view.cells),
            dead: 0,
        }
    }

    /// Returns a page of some records of another page.
    fn of(order: KeyOrder, view: View<'_>, range: Range<usize>) -> Self {
        let mut page = Self { applied: view.applied, ..Self::default() };
        page.extend(order, view, range);
        page
    }

    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        View {
            applied: self.applied,
            prefix: &self.prefix,
            heads: &self.heads,
            slots: &self.slots,
            cells: &self.cells,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() / 4
    }

    /// Returns the bytes that the page takes in the log, uncompressed.
    pub(super) fn bytes(&self) -> usize {
        HEADER_BYTES + self.prefix.len() + self.heads.len() * 2 + self.cells.len() - self.dead
    }

    /// Returns the bytes of memory of its lists. Their capacities fill whole blocks of the
    /// allocator.
    pub(super) fn memory_bytes(&self) -> usize {
        self.prefix.capacity()
            + self.heads.capacity()
            + self.slots.capacity()
            + self.cells.capacity()
    }

    /// Inserts a record at an index, which must keep the order.
    pub(super) fn insert(&mut self, order: KeyOrder, index: usize, entry: &RecordRef<'_>) {
        self.widen(order, entry.key, self.slots.is_empty());
        let slot = self.push_cell(entry);
        insert_u32(&mut self.heads, index, head(order, self.prefix.len(), entry.key));
        insert_u32(&mut self.slots, index, slot);
    }

    /// Replaces value, meta and version of the record at an index.
    pub(super) fn replace(&mut self, index: usize, value: &[u8], meta: crate::Meta, version: u64) {
        let slot = self.view().slot(index);
        if let Some(cell) = self.cells.get_mut(slot..)
            && cell::overwrite(cell, value, meta, version)
        {
            return;
        }
        let (old, bytes) = self.view().cell(index);
        // The key that was stored first stays.
        let key = old.key.to_vec();
        let entry = RecordRef { key: &key, value, meta, version };
        self.dead += bytes;
        if cell::encoded_bytes(&entry) == bytes {
            let end = self.cells.len();
            heap::reserve(&mut self.cells, bytes);
            cell::encode(&entry, &mut self.cells);
            self.cells.copy_within(end.., slot);
            self.cells.truncate(end);
            self.dead -= bytes;
            return;
        }
        let slot = self.push_cell(&entry);
        self.slots[index * 4..][..4].copy_from_slice(&slot.to_le_bytes());
        self.reclaim_dead_bytes();
    }

    /// Removes records.
    pub(super) fn remove(&mut self, range: Range<usize>) {
        let view = self.view();
        let bytes: usize = range.clone().map(|index| view.cell(index).1).sum();
        self.dead += bytes;
        self.heads.drain(range.start * 4..range.end * 4);
        self.slots.drain(range.start * 4..range.end * 4);
        self.reclaim_dead_bytes();
    }

    /// Appends some records of a page whose keys all come after those of this one.
    pub(super) fn extend(&mut self, order: KeyOrder, view: View<'_>, range: Range<usize>) {
        if let Some(last) = range.clone().next_back() {
            // The common prefix of the first and the last key is that of all keys between them.
            self.widen(order, view.key(range.start), self.slots.is_empty());
            self.widen(order, view.key(last), false);
        }
        let cells: usize = range.clone().map(|index| view.cell(index).1).sum();
        heap::reserve(&mut self.cells, cells);
        heap::reserve(&mut self.heads, range.len() * 4);
        heap::reserve(&mut self.slots, range.len() * 4);
        for index in range {
            let (entry, bytes) = view.cell(index);
            let start = view.slot(index);
            let slot = self.cells.len() as u32;
            self.cells.extend_from_slice(&view.cells[start..start + bytes]);
            let head = head(order, self.prefix.len(), entry.key);
            self.heads.extend_from_slice(&head.to_le_bytes());
            self.slots.extend_from_slice(&slot.to_le_bytes());
        }
    }

    /// Keeps the records before an index, and returns a page of the others.
    pub(super) fn split_off(&mut self, order: KeyOrder, index: usize) -> Self {
        let right = Self::of(order, self.view(), index..self.len());
        *self = Self::of(order, self.view(), 0..index);
        right
    }

    /// Returns the bytes for the log. Their cells are in the order of the records.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes());
        bytes.extend_from_slice(&self.applied.to_le_bytes());
        bytes.extend_from_slice(&(self.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.prefix.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.prefix);
        bytes.extend_from_slice(&self.heads);
        let view = self.view();
        let mut slot = 0u32;
        for index in 0..self.len() {
            bytes.extend_from_slice(&slot.to_le_bytes());
            slot += view.cell(index).1 as u32;
        }
        for index in 0..self.len() {
            let start = view.slot(index);
            bytes.extend_from_slice(&self.cells[start..start + view.cell(index).1]);
        }
        bytes
    }

    /// Shortens the prefix to the part that a new key has in common. The first key becomes the
    /// prefix.
    fn widen(&mut self, order: KeyOrder, key: &[u8], is_first: bool) {
        if order != KeyOrder::Lexical {
            return;
        }
        if is_first {
            self.prefix = heap::copy(&key[..key.len().min(PREFIX_BYTES_MAX)]);
        } else if !key.starts_with(&self.prefix) {
            let common = self.prefix.iter().zip(key).take_while(|(a, b)| a == b).count();
            self.prefix.truncate(common);
            for index in 0..self.len() {
                let head = head(order, common, self.view().key(index));
                self.heads[index * 4..][..4].copy_from_slice(&head.to_le_bytes());
            }
        }
    }

    fn push_cell(&mut self, entry: &RecordRef<'_>) -> u32 {
        // Grows to the next block rather than by doubling: every leaf in memory has spare capacity.
        heap::reserve(&mut self.cells, cell::encoded_bytes(entry));
        let slot = self.cells.len() as u32;
        cell::encode(entry, &mut self.cells);
        slot
    }

    /// Reclaims dead bytes once they exceed [`DEAD_BYTES_MIN`] and half of the cells.
    fn reclaim_dead_bytes(&mut self) {
        if self.dead > DEAD_BYTES_MIN && self.dead > self.cells.len() / 2 {
            let view = self.view();
            let (mut cells, mut slots) = (Vec::new(), Vec::new());
            heap::reserve(&mut cells, self.cells.len() - self.dead);
            heap::reserve(&mut slots, self.slots.len());
            for index in 0..view.len() {
                let (start, bytes) = (view.slot(index), view.cell(index).1);
                slots.extend_from_slice(&(cells.len() as u32).to_le_bytes());
                cells.extend_from_slice(&self.cells[start..start + bytes]);
            }
            let heads = heap::copy(&self.heads);
            (self.cells, self.slots, self.heads, self.dead) = (cells, slots, heads, 0);
        }
        if self.slots.is_empty() {
            self.prefix.clear();
        }
    }
}

fn insert_u32(numbers: &mut Vec<u8>, index: usize, number: u32) {
    let (start, end) = (index * 4, numbers.len());
    heap::reserve(numbers, 4);
    numbers.extend_from_slice(&number.to_le_bytes());
    if start < end {
        numbers.copy_within(start..end, start + 4);
        numbers[start..start + 4].copy_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meta;
    use proptest::prelude::*;

    type Model = Vec<(Vec<u8>, Vec<u8>, u64)>;

    fn check(page: &Page, order: KeyOrder, model: &Model) {
        let bytes = page.encode();
        assert_eq!(bytes.len(), page.bytes());
        for view in [page.view(), View::decode(&bytes).unwrap()] {
            assert!(view.is_sound(order));
            assert_eq!(view.applied, page.applied);
            let records: Model = (0..view.len())
                .map(|index| view.record(index))
                .map(|entry| (entry.key.to_vec(), entry.value.to_vec(), entry.version))
                .collect();
            assert_eq!(&records, model);
        }
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(b'a'..=b'c', 0..5),
            proptest::collection::vec(b'a'..=b'c', 0..5).prop_map(|key| [
                b"a common prefix".to_vec(),
                key
            ]
            .concat()),
            proptest::collection::vec(any::<u8>(), 0..6),
            "-{0,1}[0-9]{1,3}".prop_map(String::into_bytes),
        ]
    }

    fn order() -> impl Strategy<Value = KeyOrder> {
        proptest::sample::select(&KeyOrder::NAMES).prop_map(|(_, order)| order)
    }

    proptest! {
        #[test]
        fn a_page_is_a_sorted_list_of_records(
            order in order(),
            steps in proptest::collection::vec((key(), 0u8..10, 0usize..400), 1..80),
        ) {
            let mut page = Page::default();
            let mut model: Model = Vec::new();
            for (version, (key, step, length)) in steps.into_iter().enumerate() {
                let version = version as u64 + 1;
                let value = vec![version as u8; length];
                let group = page.view().group(order, &key);
                let start = model.partition_point(|(other, ..)| order.compare(other, &key).is_lt());
                let end = model.partition_point(|(other, ..)| order.compare(other, &key).is_le());
                prop_assert_eq!(&group, &(start..end));
                match step {
                    0..2 => {
                        page.remove(group.clone());
                        model.drain(group);
                    }
                    2..4 if !group.is_empty() => {
                        page.replace(group.start, &value, Meta::NONE, version);
                        let stored = model[group.start].0.clone();
                        model[group.start] = (stored, value, version);
                    }
                    4 => {
                        let entry = RecordRef { key: &key, value: &value, meta: Meta::NONE, version };
                        page.insert(order, group.start, &entry);
                        model.insert(group.start, (key, value, version));
                    }
                    _ => {
                        let entry = RecordRef { key: &key, value: &value, meta: Meta::NONE, version };
                        page.insert(order, group.end, &entry);
                        model.insert(group.end, (key, value, version));
                    }
                }
                page.applied = version;
                check(&page, order, &model);
            }
            let copy = Page::copy_of(View::decode(&page.encode()).unwrap());
            check(&copy, order, &model);
            if let Some(point) = page.view().split_point(order, 0) {
                let right = page.split_off(order, point);
                let others = model.split_off(point);
                check(&page, order, &model);
                check(&right, order, &others);
                prop_assert!(order.compare(&model[point - 1].0, &others[0].0).is_lt());
                let both = right.len();
                page.extend(order, right.view(), 0..both);
                model.extend(others);
                check(&page, order, &model);
            } else {
                let keys = model.iter().map(|(key, ..)| key);
                prop_assert!(keys.is_sorted_by(|a, b| order.compare(a, b).is_eq()));
            }
        }

        #[test]
        fn hostile_bytes_are_unsound_or_read_without_a_panic(
            order in order(),
            bytes in proptest::collection::vec(0u8..20, 0..120),
        ) {
            if let Some(view) = View::decode(&bytes) {
                let _ = view.is_sound(order);
                let _ = view.group(order, b"key");
                let _ = view.split_point(order, 0);
                for index in 0..view.len() {
                    let _ = view.record(index);
                }
            }
        }
    }

    #[test]
    fn keys_that_come_in_order_fill_their_page() {
        let mut page = Page::default();
        for number in 0..10u64 {
            let key = number.to_be_bytes();
            let entry = RecordRef { key: &key, value: b"", meta: Meta::NONE, version: 1 };
            page.insert(KeyOrder::Lexical, number as usize, &entry);
        }
        assert_eq!(page.view().split_point(KeyOrder::Lexical, 9), Some(9));
        assert_eq!(page.view().split_point(KeyOrder::Lexical, 3), Some(5));
    }

    #[test]
    fn records_that_are_overwritten_repeatedly_do_not_grow_their_page() {
        let mut page = Page::default();
        let entry = RecordRef { key: b"key", value: b"", meta: Meta::NONE, version: 1 };
        page.insert(KeyOrder::Lexical, 0, &entry);
        for round in 0..1000 {
            page.replace(0, &vec![0; round % 700], Meta::NONE, round as u64);
            assert!(page.memory_bytes() < 6000, "{}", page.memory_bytes());
        }
    }
}
