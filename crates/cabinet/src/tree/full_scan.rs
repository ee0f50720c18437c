//! Scans of all records in the order in which the log has the pages of their leaves.
//!
//! The keys are divided into ranges when the scan begins: one for each leaf that there is then. The
//! ranges of pages in memory are visited first, then those of the others in the order in which the
//! log has their pages. These are [read ahead](super::read_ahead), and what is between them is not.
//! A record is in one range whatever becomes of the leaves. So it is shown once, and it does not
//! matter whether a leaf is divided, joined or moved before the scan has come to it: the range is
//! then looked up like any other keys.
//!
//! A scan takes 24 bytes of memory for each leaf, and those of its lower bound: a fifth of what the
//! directory takes. No page is brought into the [cache](super::cache), and the pages of the log
//! do not stay in memory unless they were there before.
//!
//! # Locks
//!
//! That of a leaf is held while its page is copied. None is held while records are shown, so that a
//! visitor who waits holds up neither writers nor a checkpoint, unless the page is of more than
//! [`COPIED_BYTES_MAX`].

use super::TreeEngine;
use super::directory::Directory;
use super::leaf::Handle;
use super::leaf_access::stored_home;
use super::page::{Page, View};
use super::read_ahead::{GROUP_BYTES_MAX, Part, ReadAhead, joined};
use crate::log::Lsn;
use crate::{FullScan, RecordRef, Result, Wait};
use std::collections::VecDeque;
use std::sync::Arc;

/// Leaves that are listed at a time while the directory is locked.
pub(super) const LISTED_AT_ONCE: usize = 512;

/// Bytes of bounds after which no further leaf is listed in that time.
const LISTED_BOUND_BYTES_MAX: usize = 64 << 10;

/// Bytes of records that a step shows, about.
const STEP_BYTES: usize = 256 << 10;

/// A page counts as so many bytes of a step beside its records.
pub(super) const PAGE_COST_BYTES: usize = 512;

/// Bytes of the longest page that is copied, so that its leaf is not locked while it is shown.
const COPIED_BYTES_MAX: usize = 1 << 20;

/// Groups of pages that are read or on their way at a time.
const GROUPS: usize = 2;

/// Function that a scan calls for each record.
pub(super) type Visit<'v> = dyn FnMut(RecordRef<'_>) + 'v;

/// A scan under way.
pub(super) struct PageScan<'e> {
    engine: &'e TreeEngine,
    ranges: Ranges,
    /// The pages of all ranges, in the order of the scan.
    pages: Vec<RangePage>,
    next: usize,
    /// Pages that are being shown, and those after them, which are on their way. Each with the
    /// number of the first page behind them.
    groups: VecDeque<(usize, ReadAhead<'e>)>,
    /// Pages that the last step has shown to the end: its caller may read records again.
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

/// Ranges of keys, each of which ends where the next one begins. Nothing is the bound at either end
/// of all keys.
struct Ranges {
    /// Whether the first one has a lower bound.
    has_start: bool,
    /// The lower bounds, one after the other.
    bounds: Vec<u8>,
    /// Offset in `bounds` of the end of each.
    ends: Vec<usize>,
    /// Bound at which the last one ends.
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
    /// Begins a scan of the records from a key on and before another.
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
                // More ranges than there are numbers for would take more memory than there is.
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

    /// Some leaves from that of a key on, and before `end`: at least one, and at most `max`.
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

    /// Shows the records from a bound on and before another.
    pub(super) fn show_range(
        &self,
        from: Option<&[u8]>,
        end: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let next = self.show_leaf(from, end, visit)?;
        self.show_rest(next, end, visit)
    }

    /// As `show_range`, from where the leaf before has ended. If it has not been divided, that is
    /// the end.
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

    /// Shows the records of a leaf from `from` on and before `end`; returns the bound at which
    /// those after the leaf begin.
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

/// Leaves with the bounds from which on they are to be visited.
pub(super) struct Leaves {
    pub(super) found: Vec<(Option<Vec<u8>>, Handle)>,
    /// The bound of the next one, if there is one.
    pub(super) next: Option<Vec<u8>>,
}

impl PageScan<'_> {
    /// Shows the records of some leaves.
    fn some(&mut self, visit: &mut Visit<'_>) -> Result<bool> {
        self.shown.clear();
        let mut bytes = 0;
        while bytes < STEP_BYTES
            && let Some(RangePage { range, .. }) = self.pages.get(self.next).copied()
        {
            while self.groups.front().is_some_and(|(end, _)| *end <= self.next) {
                self.shown.extend(self.groups.pop_front().map(|(_, read_ahead)| read_ahead));
            }
            while self.groups.len() < GROUPS && self.list_next() {}
            // A scan that has failed is over.
            let next = std::mem::replace(&mut self.next, usize::MAX) + 1;
            // Pages without records end a step, too.
            bytes += PAGE_COST_BYTES;
            let (lower, upper) =
                (self.ranges.lower(range as usize), self.ranges.upper(range as usize));
            self.engine.show_range(lower, upper, &mut |entry| {
                bytes += entry.key.len() + entry.value.len();
                visit(entry);
            })?;
            self.next = next;
        }
        Ok(self.next < self.pages.len())
    }

    /// Has the next pages read. Returns whether there are any.
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
    fn step(&mut self, visit: &mut dyn FnMut(RecordRef<'_>)) -> Result<bool> {
        self.some(visit)
    }

    fn step_keys(&mut self, visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.some(&mut |entry| visit(entry.key))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::io::FaultyStorage;
    use crate::tree::TreeDatabase;
    use crate::{Compression, Engine, Error, Maintenance, Meta, Options, Ordered, Side, Wanted};
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    /// Keys and values that a scan has shown, with how often.
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

    /// A tree whose pages are scattered in the log, and on the disk only.
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

    /// Returns the records that a scan shows if `between` is called between the steps.
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
    fn a_scan_shows_each_record_once_and_brings_no_page_into_memory() {
        for compression in [Compression::None, Compression::Lz4] {
            let storage = FaultyStorage::new();
            let options = Options { compression, ..Options::default() };
            let tree = cold_tree(&storage, 2000, &options);
            let before = tree.cached_bytes();
            let met = all(&tree);
            assert_eq!(met.len(), 2000);
            assert!(met.values().all(|count| *count == 1));
            assert_eq!(tree.cached_bytes(), before);
            // Some pages are in memory, some in memory alone.
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
    fn records_that_exist_throughout_are_shown_once_while_leaves_change() {
        const RECORDS: u32 = 9000;
        let options = Options { cache_bytes: Some(64 << 10), ..Options::default() };
        let tree = cold_tree(&FaultyStorage::new(), RECORDS, &options);
        for seed in 0..5_u32 {
            let mut met = Met::new();
            let mut scan = tree.full_scan(Wanted::Records, false).unwrap();
            let mut round = 0;
            while step(&mut *scan, &mut met) {
                round += 1;
                // Leaves are divided here, emptied and joined there. Multiples of 3 stay.
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
    fn a_range_ends_where_it_is_said_to() {
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
    fn a_visitor_who_waits_holds_up_nobody() {
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
        while scan.some(&mut |_| ()).unwrap() {
            groups += scan.shown.len();
        }
        assert!(groups > 0);
    }

    #[test]
    fn a_damaged_page_is_an_error_and_ends_the_scan() {
        let storage = FaultyStorage::new();
        let tree = cold_tree(&storage, 2000, &Options::default());
        let state = tree.engine.handle_of(&key(1000)).leaf;
        let home = state.read().home().unwrap();
        let segments = tree.engine.log.segments();
        let segment = segments.get(home.location).unwrap();
        segment.file.write_at(&[0xee; 8], home.location.offset() as u64 + 100).unwrap();
        let mut met = Met::new();
        let mut scan = tree.full_scan(Wanted::Records, false).unwrap();
        let error = loop {
            let note = &mut |entry: RecordRef<'_>| {
                met.insert((entry.key.to_vec(), entry.value.to_vec()), 1);
            };
            match scan.step(note) {
                Ok(goes_on) => assert!(goes_on, "no error"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Corrupted { .. }), "{error}");
        assert!(!met.contains_key(&(key(1000).to_vec(), vec![7; 300])));
        assert!(!scan.step(&mut |_| panic!("a record after the end")).unwrap());
    }
}
