//! Scans of all records in the order of keys, with the pages of the next leaves read ahead.
//!
//! Leaves are listed some hundred at a time, and few at first. The kernel is asked to read their
//! pages in the order of the log. So the disk reads many pages at once while others are visited. No
//! page enters the [cache](super::cache). Pages that were not in memory before are dropped in the
//! step after the one that has visited them.

use super::TreeEngine;
use super::full_scan::{LISTED_AT_ONCE, Leaves};
use super::leaf::{Content, Handle, Home};
use super::read_ahead::{GROUP_BYTES_MAX, Part, ReadAhead, joined};
use crate::{Error, FullScan, Result, Visit, VisitKey};
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of leaves whose pages are read ahead at first, so that a short scan reads few.
const LISTED_FIRST: usize = 8;

/// Approximate bytes of records that a step visits.
const STEP_BYTES: usize = 256 << 10;

/// Scan of a range of keys, in their order.
pub(super) struct KeyScan<'e> {
    engine: &'e TreeEngine,
    /// Bound before which the scan ends.
    end: Option<Vec<u8>>,
    /// The leaves that are being visited, and those after them, whose pages are being read.
    groups: VecDeque<Group<'e>>,
    /// Number of leaves to list next.
    listed: usize,
    /// Pages of leaves that the last step has finished. They are kept because its caller may read
    /// their records again.
    shown: Vec<ReadAhead<'e>>,
    /// Whether a failed step has ended the scan.
    is_cut: bool,
}

/// Neighbouring leaves.
struct Group<'e> {
    /// Lower bounds of the leaves that are not visited yet, last leaf first.
    bounds: Vec<Option<Vec<u8>>>,
    /// Lower bound of the leaf after the group; `None` if there is none.
    next: Option<Vec<u8>>,
    read_ahead: ReadAhead<'e>,
}

impl TreeEngine {
    /// Begins a scan of the records from the key `from` on and before the key `end`, in the order
    /// of keys.
    pub(super) fn scan_keys_in_order(
        &self,
        from: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> KeyScan<'_> {
        let end = end.map(<[u8]>::to_vec);
        let (groups, shown) = (VecDeque::new(), Vec::new());
        let (listed, is_cut) = (LISTED_FIRST, false);
        let mut scan = KeyScan { engine: self, end, groups, listed, shown, is_cut };
        scan.list_from(from.map(<[u8]>::to_vec));
        scan
    }
}

impl KeyScan<'_> {
    /// Lists leaves from a bound on, and starts reading their pages.
    fn list_from(&mut self, bound: Option<Vec<u8>>) {
        let leaves = self.engine.leaves_from(bound, self.end.as_deref(), self.listed);
        self.listed = LISTED_AT_ONCE.min(self.listed * 2);
        let Leaves { found, next } = leaves.within(GROUP_BYTES_MAX);
        let read_ahead = self.engine.brought.read_ahead(&self.engine.pages_of(&found));
        let bounds = found.into_iter().rev().map(|(bound, _)| bound).collect();
        self.groups.push_back(Group { bounds, next, read_ahead });
    }

    fn visit_some(&mut self, visit: &mut Visit<'_>) -> Result<bool> {
        self.shown.clear();
        let mut bytes = 0;
        while bytes < STEP_BYTES {
            if self.groups.len() == 1
                && let Some(next) = self.groups[0].next.clone()
            {
                self.list_from(Some(next));
            }
            let Some(group) = self.groups.front_mut() else { return Ok(false) };
            let Some(from) = group.bounds.pop() else {
                self.shown.extend(self.groups.pop_front().map(|group| group.read_ahead));
                continue;
            };
            let next = group.bounds.last().unwrap_or(&group.next);
            let end = next.as_deref().or(self.end.as_deref());
            let shown = self.engine.show_range(from.as_deref(), end, &mut |entry| {
                bytes += entry.key.len() + entry.value.len();
                visit(entry);
            });
            if !matches!(shown, Ok(()) | Err(Error::Corrupted { .. })) {
                // A scan ends with its first error, unless that is a damaged page.
                self.groups.clear();
                self.is_cut = true;
            }
            shown?;
            // Many leaves without records end a step, too.
            bytes += super::full_scan::PAGE_COST_BYTES;
        }
        Ok(!self.groups.is_empty())
    }
}

impl Leaves {
    /// Returns the first of the leaves, whose pages have about `bytes_max` bytes in the log.
    fn within(mut self, bytes_max: u64) -> Self {
        let mut bytes = 0;
        let count = self.found.iter().take_while(|(_, handle)| {
            let is_within = bytes < bytes_max;
            if let Content::Stored { home, .. } = &handle.leaf.read().content {
                bytes += u64::from(home.total);
            }
            is_within
        });
        let count = count.count();
        if let Some((bound, _)) = self.found.get_mut(count) {
            self.next = bound.take();
            self.found.truncate(count);
        }
        self
    }
}

impl TreeEngine {
    /// Returns the parts of the log that contain the pages of leaves, in the order of the log.
    /// Parts with small gaps between them are joined.
    fn pages_of(&self, leaves: &[(Option<Vec<u8>>, Handle)]) -> Vec<Part> {
        let segments = self.log.segments();
        let mut homes: Vec<(u64, Home)> = Vec::with_capacity(leaves.len());
        for (_, handle) in leaves {
            if let Content::Stored { home, .. } = &handle.leaf.read().content
                && let Some(segment) = segments.get(home.location)
            {
                homes.push((segment.number, *home));
            }
        }
        homes.sort_unstable_by_key(|(number, home)| (*number, home.location));
        joined(homes.into_iter().filter_map(|(_, home)| {
            let segment = Arc::clone(segments.get(home.location)?);
            let start = home.location.offset() as u64;
            Some(Part { segment, start, end: start + u64::from(home.total) })
        }))
    }
}

impl FullScan for KeyScan<'_> {
    fn step(&mut self, visit: &mut Visit<'_>) -> Result<bool> {
        self.visit_some(visit)
    }

    fn step_keys(&mut self, visit: &mut VisitKey<'_>) -> Result<bool> {
        self.visit_some(&mut |entry| visit(entry.key))
    }

    fn passes_damage(&self) -> bool {
        !self.is_cut
    }
}

#[cfg(test)]
mod tests {
    use super::super::full_scan::tests::{all_of, cold_tree, key, put};
    use super::*;
    use crate::io::FaultyStorage;
    use crate::{Engine, Meta, Options, Ordered, Side, Wait, Wanted};

    #[test]
    fn a_scan_in_order_brings_no_page_into_memory() {
        let tree = cold_tree(&FaultyStorage::new(), 20_000, &Options::default());
        let before = tree.cached_bytes();
        let mut keys = Vec::new();
        let mut scan = tree.full_scan(Wanted::Keys, true).unwrap();
        while scan.step_keys(&mut |key| keys.push(key.to_vec())).unwrap() {}
        assert!(
            keys.iter()
                .eq((0..20_000).map(|number| key(number).to_vec()).collect::<Vec<_>>().iter())
        );
        assert_eq!(tree.cached_bytes(), before);
    }

    #[test]
    fn few_leaves_are_listed_at_first_and_the_bytes_of_their_pages_are_bounded() {
        let tree = cold_tree(&FaultyStorage::new(), 20_000, &Options::default());
        let mut scan = tree.engine.scan_keys_in_order(None, None);
        assert_eq!(scan.groups[0].bounds.len(), LISTED_FIRST);
        scan.visit_some(&mut |_| ()).unwrap();
        assert!(scan.groups.iter().any(|group| group.bounds.len() > LISTED_FIRST));
        let of = |max| tree.engine.leaves_from(None, None, LISTED_AT_ONCE).within(max);
        let all = of(u64::MAX);
        let total = |handle: &Handle| u64::from(handle.leaf.read().home().unwrap().total);
        for max in [0, 1, 20_000, 1 << 20] {
            let some = of(max);
            let bytes: Vec<u64> = some.found.iter().map(|(_, handle)| total(handle)).collect();
            let last = bytes.last().copied().unwrap_or(0);
            assert!(bytes.iter().sum::<u64>() < max + last + 1, "{max}");
            let bound = all.found.get(bytes.len()).map_or(&all.next, |(bound, _)| bound);
            assert_eq!(some.next, *bound, "{max}");
        }
    }

    #[test]
    fn the_pages_of_the_next_leaves_are_listed_in_the_order_of_the_log() {
        let tree = cold_tree(&FaultyStorage::new(), 20_000, &Options::default());
        let leaves = tree.engine.leaves_from(None, None, LISTED_AT_ONCE);
        assert!(leaves.found.len() > 100 && leaves.next.is_some());
        let parts = tree.engine.pages_of(&leaves.found);
        let places: Vec<_> = parts.iter().map(|part| (part.segment.number, part.start)).collect();
        assert!(places.is_sorted() && places.len() < leaves.found.len());
        for (_, handle) in &leaves.found {
            let home = handle.leaf.read().home().unwrap();
            let start = home.location.offset() as u64;
            let has_page = |part: &Part| {
                part.segment.slot == home.location.slot()
                    && part.start <= start
                    && start + u64::from(home.total) <= part.end
            };
            assert!(parts.iter().any(has_page));
        }
    }

    #[test]
    fn records_that_exist_throughout_are_visited_once_while_leaves_change() {
        const RECORDS: u32 = 9000;
        let options = Options { cache_bytes: Some(64 << 10), ..Options::default() };
        let tree = cold_tree(&FaultyStorage::new(), RECORDS, &options);
        let mut round = 0;
        let met = all_of(&mut *tree.full_scan(Wanted::Records, true).unwrap(), || {
            round += 1;
            for number in 0..60 {
                let odd = (number * 47 + round * 601) % (RECORDS / 3) * 3 + 1;
                tree.add(&key(odd), &[1; 900], Meta::NONE, Side::After, Wait::Block).unwrap();
                tree.remove_all(&key((odd + 900) % RECORDS), Wait::Block).unwrap();
                put(&tree, odd + 1, &[2; 300]);
            }
            if round % 2 == 0 {
                tree.checkpoint().unwrap();
            }
        });
        assert!(round > 3);
        for number in (0..RECORDS).step_by(3) {
            assert_eq!(met.get(&(key(number).to_vec(), vec![7; 300])), Some(&1));
        }
    }
}
