//! Changes of postings in memory: additions with their values, and removals.
//!
//! Changes are gathered in the order in which they come, with their bytes concatenated. They are
//! sorted before they are read. Each has the first bytes of its key as numbers that order like the
//! key, so sorting and merging seldom compare whole keys.

use crate::limits::ROW_POSTINGS_BYTES_MAX;
use std::cmp::Ordering;
use std::ops::Range;

/// Value length that marks the removal of a posting.
const REMOVED: u32 = u32::MAX;

/// Bytes 1 to 24 of a key, as numbers. Byte 0 is the same in all keys.
type Head = [u64; 3];

#[derive(Clone, Copy, Debug)]
struct Item {
    head: Head,
    /// Offset of the key in the changes' bytes; the value follows it.
    start: u32,
    key_len: u32,
    value_len: u32,
}

/// Changes of postings, in the order in which they came, or sorted. All keys begin with the same
/// byte. Keys and values take less than 4 GiB.
#[derive(Debug)]
pub(in crate::table) struct Changes {
    bytes: Vec<u8>,
    items: Vec<Item>,
    /// Bytes above which no more postings are put.
    bytes_max: usize,
}

impl Default for Changes {
    fn default() -> Self {
        Self { bytes: Vec::new(), items: Vec::new(), bytes_max: usize::MAX }
    }
}

/// A posting's key, and its value; `None` for a removal.
pub(in crate::table) type Change<'a> = (&'a [u8], Option<&'a [u8]>);

fn head(key: &[u8]) -> Head {
    let rest = key.get(1..).unwrap_or_default();
    let mut bytes = [0; size_of::<Head>()];
    let len = rest.len().min(bytes.len());
    bytes[..len].copy_from_slice(&rest[..len]);
    let (words, _) = bytes.as_chunks::<8>();
    [words[0], words[1], words[2]].map(u64::from_be_bytes)
}

fn key_in<'b>(bytes: &'b [u8], item: &Item) -> &'b [u8] {
    let start = item.start as usize;
    &bytes[start..start + item.key_len as usize]
}

impl Changes {
    /// Returns empty changes with space for the postings of a typical row. Puts end soon after
    /// [`ROW_POSTINGS_BYTES_MAX`], so that the excess can be noticed without storing all of it.
    pub(in crate::table) fn of_row() -> Self {
        Self {
            bytes: Vec::with_capacity(2048),
            items: Vec::with_capacity(64),
            bytes_max: ROW_POSTINGS_BYTES_MAX,
        }
    }

    /// Adds a posting. The two functions append its key and its value.
    pub(in crate::table) fn put(
        &mut self,
        key: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.bytes.len();
        if start > self.bytes_max {
            return;
        }
        key(&mut self.bytes);
        let key_end = self.bytes.len();
        value(&mut self.bytes);
        let value_len = (self.bytes.len() - key_end) as u32;
        self.note(start, key_end - start, value_len);
    }

    fn note(&mut self, start: usize, key_len: usize, value_len: u32) {
        let head = head(&self.bytes[start..start + key_len]);
        self.items.push(Item { head, start: start as u32, key_len: key_len as u32, value_len });
    }

    fn push(&mut self, (key, value): Change<'_>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let value_len = value.map_or(REMOVED, |value| value.len() as u32);
        self.note(start, key.len(), value_len);
    }

    /// Turns all changes into removals.
    pub(super) fn into_removals(mut self) -> Self {
        self.items.iter_mut().for_each(|item| item.value_len = REMOVED);
        self
    }

    /// Adds later changes.
    pub(super) fn append(&mut self, later: &Self) {
        let shift = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&later.bytes);
        let moved = later.items.iter().map(|item| Item { start: item.start + shift, ..*item });
        self.items.extend(moved);
    }

    pub(in crate::table) fn len(&self) -> usize {
        self.items.len()
    }

    pub(in crate::table) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the bytes of keys and values.
    pub(in crate::table) fn content_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes of memory of the changes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.items.len() * size_of::<Item>()
    }

    /// Returns the changes in their current order.
    pub(in crate::table) fn iter(&self) -> impl Iterator<Item = Change<'_>> {
        self.items.iter().map(|item| (self.key(item), self.value(item)))
    }

    /// Returns the key of the change at an index.
    pub(super) fn key_at(&self, index: usize) -> &[u8] {
        self.key(&self.items[index])
    }

    fn key(&self, item: &Item) -> &[u8] {
        key_in(&self.bytes, item)
    }

    fn value(&self, item: &Item) -> Option<&[u8]> {
        let start = item.start as usize + item.key_len as usize;
        (item.value_len != REMOVED).then(|| &self.bytes[start..start + item.value_len as usize])
    }

    /// Sorts the changes by key, and keeps only the last change of each posting.
    pub(in crate::table) fn sort(&mut self) {
        let bytes = &self.bytes;
        let key = |item: &Item| key_in(bytes, item);
        self.items.sort_unstable_by(|one, other| {
            one.head
                .cmp(&other.head)
                .then_with(|| key(one).cmp(key(other)))
                // Later changes have a greater offset, and come first here.
                .then_with(|| other.start.cmp(&one.start))
        });
        self.items.dedup_by(|other, one| one.head == other.head && key(one) == key(other));
    }

    /// Returns the changes of the postings of a row whose column has changed.
    pub(in crate::table) fn between(mut old: Self, mut new: Self) -> Self {
        if old.is_empty() {
            return new;
        }
        old.sort();
        new.sort();
        let mut changes = Self::default();
        for (key, _) in old.iter().filter(|(key, _)| new.find(key).is_none()) {
            changes.push((key, None));
        }
        for (key, value) in new.iter().filter(|(key, value)| old.find(key) != Some(*value)) {
            changes.push((key, value));
        }
        changes
    }

    /// Returns the change of a posting. The changes must be sorted.
    pub(super) fn find(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let index = self.lower_bound(key);
        let item = self.items.get(index)?;
        (self.key(item) == key).then(|| self.value(item))
    }

    /// Returns the number of changes with a smaller key. The changes must be sorted.
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        let sought = head(key);
        self.items.partition_point(|item| match item.head.cmp(&sought) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.key(item) < key,
        })
    }

    /// Merges two sorted runs of changes.
    pub(super) fn merge(earlier: &Self, later: &Self) -> Self {
        let mut both = Self {
            bytes: Vec::with_capacity(earlier.bytes.len() + later.bytes.len()),
            items: Vec::with_capacity(earlier.len() + later.len()),
            ..Self::default()
        };
        let mut merged = Merged::new([(earlier, 0..earlier.len()), (later, 0..later.len())]);
        while let Some(change) = merged.next() {
            both.push(change);
        }
        both
    }
}

/// Merge of parts of several sorted runs, oldest run first. Returns only the latest change of each
/// posting.
pub(super) struct Merged<'a> {
    /// Head of the first remaining change of each run. They are adjacent in memory.
    heads: Vec<Head>,
    runs: Vec<(&'a Changes, Range<usize>)>,
}

impl<'a> Merged<'a> {
    pub(super) fn new(runs: impl IntoIterator<Item = (&'a Changes, Range<usize>)>) -> Self {
        let runs: Vec<_> = runs.into_iter().filter(|(_, range)| range.start < range.end).collect();
        let heads = runs.iter().map(|(run, range)| run.items[range.start].head).collect();
        Self { heads, runs }
    }

    pub(super) fn next(&mut self) -> Option<Change<'a>> {
        let &least = self.heads.iter().min()?;
        let mut found: Option<(usize, &'a [u8])> = None;
        let mut are_equal = false;
        for at in (0..self.heads.len()).filter(|at| self.heads[*at] == least) {
            let key = self.first(at).0;
            let ordering = found.map_or(Ordering::Less, |(_, least)| key.cmp(least));
            if ordering.is_le() {
                are_equal = ordering.is_eq();
                found = Some((at, key));
            }
        }
        let (at, key) = found?;
        let change = self.first(at);
        // Backwards, because `advance` may remove a run.
        self.advance(at);
        for other in (0..at).rev() {
            if are_equal && self.heads[other] == least && self.first(other).0 == key {
                self.advance(other);
            }
        }
        Some(change)
    }

    /// Returns the number of remaining changes. Changes of the same posting count separately.
    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(|(_, range)| range.len()).sum()
    }

    fn first(&self, at: usize) -> Change<'a> {
        let (run, range) = &self.runs[at];
        let item = &run.items[range.start];
        (run.key(item), run.value(item))
    }

    fn advance(&mut self, at: usize) {
        let (run, range) = &mut self.runs[at];
        range.start += 1;
        if range.start < range.end {
            self.heads[at] = run.items[range.start].head;
        } else {
            self.runs.remove(at);
            self.heads.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(0u8..3, 0..4).prop_map(|end| [&[2][..], &end].concat()),
            proptest::collection::vec(0u8..2, 2).prop_map(|end| [&[2; 25][..], &end].concat()),
        ]
    }

    fn changes() -> impl Strategy<Value = (Changes, Model)> {
        let value = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..3));
        proptest::collection::vec((key(), value), 0..30).prop_map(|steps| {
            let (mut changes, mut model) = (Changes::default(), Model::new());
            for (key, value) in steps {
                changes.push((&key, value.as_deref()));
                model.insert(key, value);
            }
            changes.sort();
            (changes, model)
        })
    }

    fn model_of(changes: &Changes) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        changes.iter().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect()
    }

    proptest! {
        #[test]
        fn the_last_change_of_a_posting_remains((one, mut model) in changes(), (two, later) in changes()) {
            prop_assert_eq!(model_of(&one), model.clone().into_iter().collect::<Vec<_>>());
            let merged = Changes::merge(&one, &two);
            model.extend(later);
            prop_assert_eq!(model_of(&merged), model.clone().into_iter().collect::<Vec<_>>());
            for (at, (key, value)) in model.iter().enumerate() {
                prop_assert_eq!(merged.lower_bound(key), at);
                prop_assert_eq!(merged.find(key), Some(value.as_deref()));
                let beyond = [&key[..], &[0]].concat();
                prop_assert_eq!(merged.find(&beyond).is_some(), model.contains_key(&beyond));
            }
        }

        #[test]
        fn the_changes_between_two_rows_turn_one_into_the_other(
            (old, before) in changes(), (new, after) in changes(),
        ) {
            let puts = |model: Model| model.into_iter().map(|(key, value)| (key, value.unwrap_or_default()));
            let all = |changes: Changes| {
                let mut puts = Changes::default();
                for (key, value) in changes.iter() {
                    puts.push((key, Some(value.unwrap_or_default())));
                }
                puts
            };
            let mut state: BTreeMap<_, _> = puts(before).collect();
            let between = Changes::between(all(old), all(new));
            for (key, value) in model_of(&between) {
                match value {
                    Some(value) => drop(state.insert(key, value)),
                    None => prop_assert!(state.remove(&key).is_some()),
                }
            }
            prop_assert_eq!(state, puts(after).collect::<BTreeMap<_, _>>());
        }
    }
}
