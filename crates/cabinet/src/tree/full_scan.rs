//! Scans of all records, leaf after leaf, in the order in which the log has the leaves' pages.
//!
//! When the scan begins, the keys are divided into ranges, one for each leaf. The ranges of pages
//! in memory are visited first, then the others in the order in which the log has their pages.
//! These pages are [read ahead](super::read_ahead), without the parts of the log between them. A
//! record is in exactly one range, so it is visited once. If a leaf is divided, joined or moved
//! before the scan reaches its range, the range is looked up in the directory like any other keys.
//!
//! A scan takes 24 bytes of memory per leaf and the bytes of the leaf's lower bound: a fifth of the
//! directory's memory. No page enters the [cache](super::cache), and the log's pages do not stay in
//! memory unless they were there before.
//!
//! # Locks
//!
//! The lock of a leaf is held while its page is copied. No lock is held while records are visited,
//! so a slow visitor delays neither writers nor a checkpoint. Pages of more than
//! [`COPIED_BYTES_MAX`] are an exception: their leaf is locked while their records are visited.

use super::TreeEngine;
use super::directory::Directory;
use super::leaf::Handle;
use super::leaf_access::stored_home;
use super::page::{Page, View};
use super::read_ahead::{GROUP_BYTES_MAX, Part, ReadAhead, joined};
use crate::log::Lsn;
use crate::{Error, FullScan, Result, Visit, VisitKey, Wait};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of leaves that are listed while the directory is locked.
pub(super) const LISTED_AT_ONCE: usize = 512;

/// Bytes of bounds after which no further leaf is listed while the directory is locked.
const LISTED_BOUND_BYTES_MAX: usize = 64 << 10;

/// Approximate bytes of records that a step visits.
const STEP_BYTES: usize = 256 << 10;

/// Bytes of a step that a page counts for, beside those of its records.
pub(super) const PAGE_COST_BYTES: usize = 512;

/// Maximum bytes of a page that is copied, so that its leaf is not locked while its records are
/// visited.
const COPIED_BYTES_MAX: usize = 1 << 20;

/// Number of groups of pages that are visited or being read at a time.
const GROUPS: usize = 2;

/// Scan of a range of keys, in the order of the log.
pub(super) struct PageScan<'e> {
    engine: &'e TreeEngine,
    ranges: Ranges,
    /// The pages of all ranges, in the order of the scan.
    pages: Vec<RangePage>,
    next: usize,
    /// Groups of pages: the one that is being visited, and those after it, which are being read.
    /// Each has the index of the first page after it.
    groups: VecDeque<(usize, ReadAhead<'e>)>,
    /// Pages that the last step has finished. They are kept because its caller may read their
    /// records again.
    shown: Vec<ReadAhead<'e>>,
}

/// The page of a range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RangePage {
    /// LSN of its record in the log, [`Lsn::default`] if it is in memory.
    lsn: Lsn,
    /// Number of the range.
    range: u32,
    /// Bytes of the record that it is in.
    bytes: u32,
}

/// Ranges of keys, each of which ends where the next one begins. `None` is the bound at either end
/// of all keys.
struct Ranges {
    /// Whether the first range has a lower bound.
    has_start: bool,
    /// All lower bounds, concatenated.
    bounds: Vec<u8>,
    /// Offset in `bounds` at which each lower bound ends.
    ends: Vec<usize>,
    /// Upper bound of the last range.
    end: Option<Vec<u8>>,
}

impl Ranges {
    fn push(&mut self, lower: &[u8]) {
        self.bounds.extend_from_slice(lower);
        self.ends.push(self.bounds.len());
    }

    fn lower(&self, range: usize) -> Option<&[u8]> {
        let start = match range.checked_sub(1) {
            Some(before) => self.ends[before],
            None if self.has_start => 0,
            None => return None,
        };
        Some(&self.bounds[start..self.ends[range]])
    }

    fn upper(&self, range: usize) -> Option<&[u8]> {
        if range + 1 < self.ends.len() { self.lower(range + 1) } else { self.end.as_deref() }
    }
}

impl TreeEngine {
    /// Begins a scan of the records from the key `from` on and before the key `end`.
    pub(super) fn scan_pages(&self, from: Option<&[u8]>, end: Option<&[u8]>) -> PageScan<'_> {
        let mut ranges = Ranges {
            has_start: from.is_some(),
            bounds: Vec::new(),
            ends: Vec::new(),
            end: end.map(<[u8]>::to_vec),
        };
        let mut pages = Vec::new();
        let mut next = Some(from.map(<[u8]>::to_vec));
        while let Some(from) = next.take() {
            let leaves = self.leaves_from(from, end, LISTED_AT_ONCE);
            let segments = self.log.segments();
            for (lower, handle) in leaves.found {
                let stored = stored_home(&handle.leaf.read());
                let place = stored.and_then(|home| {
                    let segment = segments.get(home.location)?;
                    Some((Lsn::new(segment.number, home.location.offset()), home.total))
                });
                let (lsn, bytes) = place.unwrap_or_default();
                // 2^32 ranges would take more memory than there is.
                let Ok(range) = u32::try_from(ranges.ends.len()) else { break };
                ranges.push(lower.as_deref().unwrap_or_default());
                pages.push(RangePage { lsn, range, bytes });
            }
            next = leaves.next.map(Some);
        }
        pages.sort_unstable();
        let (groups, shown) = (VecDeque::new(), Vec::new());
        PageScan { engine: self, ranges, pages, next: 0, groups, shown }
    }

    /// Returns some leaves from that of a key on, and before `end`: at least one, and at most
    /// `max`.
    pub(super) fn leaves_from(
        &self,
        from: Option<Vec<u8>>,
        end: Option<&[u8]>,
        max: usize,
    ) -> Leaves {
        let directory = self.directory.read();
        let mut index = from.as_deref().map_or(directory.first(), |key| directory.find(key));
        let mut leaves = Leaves { found: Vec::with_capacity(max), next: from };
        let mut bound_bytes = 0;
        loop {
            leaves.found.push((leaves.next.take(), directory.leaf(index).clone()));
            let Some(next) = directory.next(index) else { return leaves };
            let lower = directory.lower(next).unwrap_or_default();
            if end.is_some_and(|end| self.order.compare(lower, end).is_ge()) {
                return leaves;
            }
            leaves.next = Some(lower.to_vec());
            bound_bytes += lower.len();
            if leaves.found.len() >= max || bound_bytes > LISTED_BOUND_BYTES_MAX {
                return leaves;
            }
            index = next;
        }
    }

    /// Calls `visit` with the records from the bound `from` on and before the bound `end`.
    pub(super) fn show_range(
        &self,
        from: Option<&[u8]>,
        end: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let next = self.show_leaf(from, end, visit)?;
        self.show_rest(next, end, visit)
    }

    /// Like `show_range`, from the upper bound of the last leaf on. If that leaf was not divided,
    /// there is nothing more in the range.
    fn show_rest(
        &self,
        mut next: Option<Vec<u8>>,
        end: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        while let Some(from) = &next
            && end.is_none_or(|end| self.order.compare(from, end).is_lt())
        {
            next = self.show_leaf(Some(from), end, visit)?;
        }
        Ok(())
    }

    /// Calls `visit` with the records of a leaf from `from` on and before `end`. Returns the upper
    /// bound of the leaf.
    fn show_leaf(
        &self,
        from: Option<&[u8]>,
        end: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let locate = |directory: &Directory<Handle>| {
            let index = from.map_or(directory.first(), |key| directory.find(key));
            (directory.leaf(index).clone(), directory.upper(index).map(<[u8]>::to_vec))
        };
        let step = |view: View<'_>, upper: &Option<Vec<u8>>| {
            let is_copied = view.bytes() <= COPIED_BYTES_MAX;
            if !is_copied {
                self.show_part(view, from, end, visit);
            }
            (upper.clone(), is_copied.then(|| Page::copy_of(view)))
        };
        let (upper, copy) = self.look_in_passing(Wait::Block, locate, step)?;
        if let Some(page) = copy {
            self.show_part(page.view(), from, end, visit);
        }
        Ok(upper)
    }

    fn show_part(
        &self,
        view: View<'_>,
        from: Option<&[u8]>,
        end: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) {
        let start = from.map_or(0, |from| view.lower_bound(self.order, from));
        let end = end.map_or(view.len(), |end| view.lower_bound(self.order, end));
        self.live(view, start..end.max(start)).for_each(|(_, entry)| visit(entry));
    }
}

/// Leaves, each with the bound from which on it is visited.
pub(super) struct Leaves {
    pub(super) found: Vec<(Option<Vec<u8>>, Handle)>,
    /// Lower bound of the next leaf, if there is one.
    pub(super) next: Option<Vec<u8>>,
}

impl PageScan<'_> {
    /// Calls `visit` with the records of some leaves. Returns whether there are more.
    fn visit_some(&mut self, visit: &mut Visit<'_>) -> Result<bool> {
        self.shown.clear();
        let mut bytes = 0;
        while bytes < STEP_BYTES
            && let Some(RangePage { range, .. }) = self.pages.get(self.next).copied()
        {
            while self.groups.front().is_some_and(|(end, _)| *end <= self.next) {
                self.shown.extend(self.groups.pop_front().map(|(_, read_ahead)| read_ahead));
            }
            while self.groups.len() < GROUPS && self.list_next() {}
            // A scan ends with its first error, unless that is a damaged page.
            let next = std::mem::replace(&mut self.next, usize::MAX) + 1;
            // Many pages without records end a step, too.
            bytes += PAGE_COST_BYTES;
            let (lower, upper) =
                (self.ranges.lower(range as usize), self.ranges.upper(range as usize));
            let shown = self.engine.show_range(lower, upper, &mut |entry| {
                bytes += entry.key.len() + entry.value.len();
                visit(entry);
            });
            if let Ok(()) | Err(Error::Corrupted { .. }) = shown {
                self.next = next;
            }
            shown?;
        }
        Ok(self.next < self.pages.len())
    }

    /// Starts reading the next pages. Returns whether there are any.
    fn list_next(&mut self) -> bool {
        let first = self.groups.back().map_or(self.next, |(end, _)| *end);
        let rest = &self.pages[first..];
        let mut bytes = 0;
        let count = rest.iter().take_while(|place| {
            let is_within = bytes < GROUP_BYTES_MAX;
            bytes += u64::from(place.bytes);
            is_within
        });
        let places = &rest[..count.count()];
        if places.is_empty() {
            return false;
        }
        let segments = self.engine.log.segments().in_order();
        let parts = places.iter().filter(|place| place.lsn != Lsn::default()).filter_map(|place| {
            let number = place.lsn.number();
            let index = segments.binary_search_by_key(&number, |segment| segment.number).ok()?;
            let segment = Arc::clone(segments.get(index).filter(|segment| !segment.is_missing)?);
            let start = place.lsn.offset() as u64;
            Some(Part { segment, start, end: start + u64::from(place.bytes) })
        });
        let read_ahead = self.engine.brought.read_ahead(&joined(parts));
        self.groups.push_back((first + places.len(), read_ahead));
        true
    }
}

impl FullScan for PageScan<'_> {
    fn step(&mut self, visit: &mut Visit<'_>) -> Result<bool> {
        self.visit_some(visit)
    }

    fn step_keys(&mut self, visit: &mut VisitKey<'_>) -> Result<bool> {
        self.visit_some(&mut |entry| visit(entry.key))
    }

    fn passes_damage(&self) -> bool {
        self.next <= self.pages.len()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::io::FaultyStorage;
    use crate::tree::TreeDatabase;
    use crate::{
        Compression, Engine, Error, Maintenance, Meta, Options, Ordered, RecordRef, Side, Wanted,
    };
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    /// Keys and values that a scan has visited, each with its number of visits.
    pub(in super::super) type Met = BTreeMap<(Vec<u8>, Vec<u8>), usize>;

    fn open(storage: &FaultyStorage, options: &Options) -> TreeDatabase {
        let path = Path::new("casket.tcb");
        TreeDatabase::open_on(Arc::new(storage.clone()), path, options, false).unwrap()
    }

    pub(in super::super) fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    pub(in super::super) fn put(tree: &TreeDatabase, number: u32, value: &[u8]) {
        tree.put(&key(number), value, Meta::NONE, Wait::Block).unwrap();
    }

    /// Returns a tree whose pages are scattered in the log, and only on the disk.
    pub(in super::super) fn cold_tree(
        storage: &FaultyStorage,
        records: u32,
        options: &Options,
    ) -> TreeDatabase {
        let tree = open(storage, &Options { cache_bytes: Some(64 << 10), ..options.clone() });
        for number in 0..records {
            put(&tree, number * 7919 % records, &[7; 300]);
        }
        assert_eq!(tree.len(), u64::from(records));
        drop(tree);
        let tree = open(storage, options);
        for segment in tree.engine.log.segments().iter() {
            segment.resident.store(false, Ordering::Relaxed);
        }
        tree
    }

    fn step(scan: &mut dyn FullScan, met: &mut Met) -> bool {
        let note = &mut |entry: RecordRef<'_>| {
            *met.entry((entry.key.to_vec(), entry.value.to_vec())).or_default() += 1;
        };
        scan.step(note).unwrap()
    }

    /// Returns the records that a scan visits if `between` is called between its steps.
    pub(in super::super) fn all_of(scan: &mut dyn FullScan, mut between: impl FnMut()) -> Met {
        let mut met = Met::new();
        while step(scan, &mut met) {
            between();
        }
        met
    }

    fn all(tree: &TreeDatabase) -> Met {
        all_of(&mut *tree.full_scan(Wanted::Records, false).unwrap(), || ())
    }

    #[test]
    fn a_scan_visits_each_record_once_and_brings_no_page_into_memory() {
        for compression in [Compression::None, Compression::Lz4] {
            let storage = FaultyStorage::new();
            let options = Options { compression, ..Options::default() };
            let tree = cold_tree(&storage, 2000, &options);
            let before = tree.cached_bytes();
            let met = all(&tree);
            assert_eq!(met.len(), 2000);
            assert!(met.values().all(|count| *count == 1));
            assert_eq!(tree.cached_bytes(), before);
            // Now some pages are in memory, and some only there.
            (0..2000).step_by(100).for_each(|number| put(&tree, number, b"new"));
            let met = all(&tree);
            assert_eq!(met.len(), 2000);
            assert!(met.values().all(|count| *count == 1));
            assert_eq!(met.keys().filter(|(_, value)| value == b"new").count(), 20);
        }
    }

    #[test]
    fn pages_come_in_the_order_of_the_log() {
        let tree = cold_tree(&FaultyStorage::new(), 2000, &Options::default());
        let segments = tree.engine.log.segments();
        let mut lsns = Vec::new();
        tree.full_scan(Wanted::Records, false)
            .unwrap()
            .step(&mut |entry| {
                let handle = tree.engine.handle_of(entry.key);
                let home = handle.leaf.read().home().unwrap();
                let number = segments.get(home.location).unwrap().number;
                lsns.push(Lsn::new(number, home.location.offset()));
            })
            .unwrap();
        assert!(lsns.is_sorted() && lsns.len() > 500);
        let keys_are_sorted = |met: &[Vec<u8>]| met.is_sorted();
        let mut keys = Vec::new();
        let mut scan = tree.full_scan(Wanted::Records, false).unwrap();
        while scan.step_keys(&mut |key| keys.push(key.to_vec())).unwrap() {}
        assert!(keys.len() == 2000 && !keys_are_sorted(&keys), "the pages are not scattered");
    }

    #[test]
    fn records_that_exist_throughout_are_visited_once_while_leaves_change() {
        const RECORDS: u32 = 9000;
        let options = Options { cache_bytes: Some(64 << 10), ..Options::default() };
        let tree = cold_tree(&FaultyStorage::new(), RECORDS, &options);
        for seed in 0..5_u32 {
            let mut met = Met::new();
            let mut scan = tree.full_scan(Wanted::Records, false).unwrap();
            let mut round = 0;
            while step(&mut *scan, &mut met) {
                round += 1;
                // Some leaves are divided, others emptied and joined. Records of multiples of 3
                // stay.
                for number in 0..60 {
                    let odd = (number * 47 + round * 601 + seed * 97) % (RECORDS / 3) * 3 + 1;
                    tree.add(&key(odd), &[1; 900], Meta::NONE, Side::After, Wait::Block).unwrap();
                    tree.remove_all(&key((odd + 900) % RECORDS), Wait::Block).unwrap();
                }
                if round % 2 == seed % 2 {
                    tree.checkpoint().unwrap();
                }
            }
            let of_kept = |number: u32| {
                let count = |(_, count): (_, &usize)| *count;
                let range = (key(number).to_vec(), vec![])..(key(number + 1).to_vec(), vec![]);
                met.range(range).map(count).sum::<usize>()
            };
            assert!(round > 3);
            assert!((0..RECORDS).step_by(3).all(|number| of_kept(number) == 1), "seed {seed}");
            assert!(met.iter().all(|((_, value), count)| *count == 1 || value.len() == 900));
        }
    }

    #[test]
    fn a_scan_of_a_range_visits_its_keys_and_no_others() {
        let tree = cold_tree(&FaultyStorage::new(), 2000, &Options::default());
        for (from, end) in [
            (None, None),
            (Some(17), None),
            (None, Some(1500)),
            (Some(17), Some(18)),
            (Some(9), Some(9)),
        ] {
            let (first, last) = (from.map(key), end.map(key));
            let (first, last) =
                (first.as_ref().map(|key| &key[..]), last.as_ref().map(|key| &key[..]));
            let expected = from.unwrap_or(0)..end.unwrap_or(2000);
            for is_in_order in [true, false] {
                let mut scan = tree.scan_range(first, last, is_in_order).unwrap();
                let met = all_of(&mut *scan, || ());
                assert!(met.values().all(|count| *count == 1));
                let keys = met.into_keys().map(|(key, _)| key);
                assert!(keys.eq(expected.clone().map(|number| key(number).to_vec())));
            }
        }
    }

    #[test]
    fn a_scan_of_a_part_reads_its_own_pages_and_no_others() {
        let storage = FaultyStorage::new();
        let tree = cold_tree(&storage, 20_000, &Options::default());
        let read_bytes = || -> u64 {
            let segments = tree.engine.log.segments();
            segments.iter().map(|segment| storage.read_bytes(&segment.path).unwrap()).sum()
        };
        let leaves = tree.engine.leaves_from(None, None, 1 << 16).found;
        let bound = leaves[leaves.len() / 2].0.clone().unwrap();
        let total = |handle: &Handle| u64::from(handle.leaf.read().home().unwrap().total);
        let half = &leaves[..leaves.len() / 2];
        let expected: u64 = half.iter().map(|(_, handle)| total(handle)).sum();
        for is_in_order in [false, true] {
            let before = read_bytes();
            let mut scan = tree.scan_range(None, Some(&bound), is_in_order).unwrap();
            let met = all_of(&mut *scan, || ());
            assert!((9000..11_000).contains(&met.len()), "{}", met.len());
            assert_eq!(read_bytes() - before, expected, "in order: {is_in_order}");
        }
        assert_eq!(tree.engine.brought.wanted(), 0);
    }

    #[test]
    fn a_slow_visitor_does_not_lock_the_leaf_that_it_visits() {
        let tree = cold_tree(&FaultyStorage::new(), 2000, &Options::default());
        for is_resident in [false, true] {
            for segment in tree.engine.log.segments().iter() {
                segment.resident.store(is_resident, Ordering::Relaxed);
            }
            for is_in_order in [false, true] {
                let mut scan = tree.full_scan(Wanted::Records, is_in_order).unwrap();
                let is_free = |entry: &RecordRef<'_>| {
                    tree.engine.handle_of(entry.key).leaf.try_write().is_some()
                };
                while scan.step(&mut |entry| assert!(is_free(&entry))).unwrap() {}
            }
        }
    }

    #[test]
    fn pages_stay_until_the_next_step_for_callers_that_read_records_again() {
        let tree = cold_tree(&FaultyStorage::new(), 20_000, &Options::default());
        let mut scan = tree.engine.scan_pages(None, None);
        let mut groups = 0;
        while scan.visit_some(&mut |_| ()).unwrap() {
            groups += scan.shown.len();
        }
        assert!(groups > 0);
    }

    #[test]
    fn a_damaged_page_is_an_error_and_the_scan_goes_on_after_it() {
        let storage = FaultyStorage::new();
        let tree = cold_tree(&storage, 2000, &Options::default());
        let state = tree.engine.handle_of(&key(1000)).leaf;
        let home = state.read().home().unwrap();
        let segments = tree.engine.log.segments();
        let segment = segments.get(home.location).unwrap();
        segment.file.write_at(&[0xee; 8], home.location.offset() as u64 + 100).unwrap();
        for is_in_order in [false, true] {
            let mut met = Met::new();
            let mut errors = Vec::new();
            let mut scan = tree.full_scan(Wanted::Records, is_in_order).unwrap();
            loop {
                let note = &mut |entry: RecordRef<'_>| {
                    *met.entry((entry.key.to_vec(), entry.value.to_vec())).or_default() += 1;
                };
                match scan.step(note) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => errors.push(error),
                }
                assert!(scan.passes_damage());
            }
            assert!(matches!(errors[..], [Error::Corrupted { .. }]), "{errors:?}");
            let has = |number| met.contains_key(&(key(number).to_vec(), vec![7; 300]));
            assert!(!has(1000) && has(0) && has(1999) && met.len() > 1900, "{}", met.len());
            assert!(met.values().all(|count| *count == 1));
            assert!(!scan.step(&mut |_| panic!("a record after the end of the scan")).unwrap());
        }
    }
}
