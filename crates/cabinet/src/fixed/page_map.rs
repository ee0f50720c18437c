//! Page map: the pages of a shard by their numbers, as a row that is indexed by arithmetic and a
//! map.
//!
//! Ids are mostly consecutive, and so are the pages of a shard. The row has consecutive pages from
//! any number on, a few of which may be empty. It grows at both ends, and absorbs adjacent pages
//! from the map. The map has the other pages. If the map gets much larger than the row, its longest
//! run of pages becomes the row. So any ids can be found, and ids without large gaps take one step.

use super::page_index::{Page, SHARDS};
use std::collections::{BTreeMap, VecDeque};

/// Bytes of memory that a map uses per page besides the page itself. If pages come in ascending or
/// descending order, nodes of 896 bytes have 6 of 11 entries used, and every 6 nodes have a parent.
/// In mixed order it is about 54 bytes. `crates/cabinet/tests/heap.rs` compares this with the heap.
const MAP_BYTES_PER_PAGE: usize = 88;

/// Distance between the numbers of consecutive pages of a shard.
const STRIDE: u64 = SHARDS as u64;

/// Pages of a shard by their numbers, see the module.
#[derive(Debug, Default)]
pub(super) struct PageMap {
    /// Consecutive pages. The first and the last are not empty.
    row: VecDeque<Page>,
    /// Number of the first page of the row.
    first: u64,
    /// Empty pages in the row.
    gaps: usize,
    /// Pages that are neither in the row nor adjacent to it. None of them is empty.
    others: BTreeMap<u64, Page>,
    /// Pages added to or removed from the map since it was last searched for a longer row.
    changes: usize,
}

impl PageMap {
    /// Returns the index that the page with a number would have in the row.
    #[inline]
    fn place(&self, number: u64) -> usize {
        // The difference wraps, so a number before the first is far beyond the last.
        usize::try_from(number.wrapping_sub(self.first) / STRIDE).unwrap_or(usize::MAX)
    }

    /// Returns the page with a number, which may be empty.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<&Page> {
        match self.row.get(self.place(number)) {
            Some(page) => Some(page),
            None if self.others.is_empty() => None,
            None => self.others.get(&number),
        }
    }

    /// Changes the page with a number, which is empty if it did not exist. Returns the result of
    /// `change`, and whether the page had entries before and has entries now.
    #[inline]
    pub(super) fn change<T>(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut Page) -> T,
    ) -> (T, bool, bool) {
        let place = self.place(number);
        if let Some(page) = self.row.get_mut(place) {
            let had_entries = !page.is_empty();
            let result = change(page);
            let has_entries = !page.is_empty();
            if had_entries != has_entries {
                self.note_gap(has_entries);
            }
            return (result, had_entries, has_entries);
        }
        self.change_other(number, change)
    }

    #[cold]
    fn change_other<T>(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut Page) -> T,
    ) -> (T, bool, bool) {
        if let Some(page) = self.others.get_mut(&number) {
            let result = change(page);
            let has_entries = !page.is_empty();
            if !has_entries {
                self.others.remove(&number);
                self.look_for_a_longer_row();
            }
            return (result, true, has_entries);
        }
        let mut page = Page::default();
        let result = change(&mut page);
        let has_entries = !page.is_empty();
        if has_entries {
            self.add(number, page);
        }
        (result, false, has_entries)
    }

    /// Adds a page that does not exist and is not within the row.
    pub(super) fn add(&mut self, number: u64, page: Page) {
        if !self.extend(number, page) {
            self.look_for_a_longer_row();
        }
    }

    /// Appends a page to an end of the row if it is adjacent, or adds it to the map. Returns
    /// whether the row has it.
    fn extend(&mut self, number: u64, page: Page) -> bool {
        if self.row.is_empty() {
            self.first = number;
        }
        if number == self.end() {
            self.push_back(page);
        } else if number.checked_add(STRIDE) == Some(self.first) {
            self.push_front(page);
        } else {
            self.others.insert(number, page);
            return false;
        }
        while let Some(page) = self.others.remove(&self.end()) {
            self.push_back(page);
        }
        while let Some(before) = self.first.checked_sub(STRIDE)
            && let Some(page) = self.others.remove(&before)
        {
            self.push_front(page);
        }
        true
    }

    /// Returns the number of the page that would follow the row.
    fn end(&self) -> u64 {
        self.first + self.row.len() as u64 * STRIDE
    }

    fn push_back(&mut self, page: Page) {
        self.reserve_one();
        self.row.push_back(page);
    }

    fn push_front(&mut self, page: Page) {
        self.reserve_one();
        self.row.push_front(page);
        self.first -= STRIDE;
    }

    /// Reserves room for a page. Doubling the row would waste too much.
    fn reserve_one(&mut self) {
        if self.row.len() == self.row.capacity() {
            self.row.reserve_exact(self.row.len() / 8 + 1);
        }
    }

    /// Notes that a page of the row has become empty, or no longer is.
    fn note_gap(&mut self, has_entries: bool) {
        if has_entries {
            self.gaps -= 1;
            return;
        }
        self.gaps += 1;
        while self.row.back().is_some_and(Page::is_empty) {
            self.row.pop_back();
            self.gaps -= 1;
        }
        while self.row.front().is_some_and(Page::is_empty) {
            self.row.pop_front();
            self.first += STRIDE;
            self.gaps -= 1;
        }
        if 2 * self.gaps > self.row.len() {
            self.dissolve_row();
        }
        if 4 * self.row.len() < self.row.capacity() {
            self.row.shrink_to(2 * self.row.len());
        }
        self.look_for_a_longer_row();
    }

    /// Replaces the row if the map has a longer run of pages. Searches only after half as many
    /// changes as the map has pages, so that each change costs little.
    fn look_for_a_longer_row(&mut self) {
        self.changes += 1;
        if 2 * self.changes < self.others.len() || self.others.len() <= self.row.len() {
            return;
        }
        self.changes = 0;
        let (first, pages) = self.longest_run();
        if pages > self.row.len() {
            self.dissolve_row();
            if let Some(page) = self.others.remove(&first) {
                self.extend(first, page);
            }
        }
    }

    /// Returns the first page and the length of the longest run of pages in the map.
    fn longest_run(&self) -> (u64, usize) {
        let (mut longest, mut run) = ((0, 0), (0, 0));
        for &number in self.others.keys() {
            let follows = number.checked_sub(run.1 as u64 * STRIDE) == Some(run.0);
            run = if follows && run.1 > 0 { (run.0, run.1 + 1) } else { (number, 1) };
            if run.1 > longest.1 {
                longest = run;
            }
        }
        longest
    }

    /// Moves the pages of the row to the map.
    fn dissolve_row(&mut self) {
        let numbers = (0..).map(|index| self.first + index * STRIDE);
        let pages = numbers.zip(std::mem::take(&mut self.row));
        self.others.extend(pages.filter(|(_, page)| !page.is_empty()));
        self.gaps = 0;
    }

    /// Returns the pages that are not empty with their numbers, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Page)> {
        let before = self.others.range(..self.first).map(|(number, page)| (*number, page));
        let after = self.others.range(self.first..).map(|(number, page)| (*number, page));
        let numbers = (0..).map(|index| self.first + index * STRIDE);
        let row = numbers.zip(&self.row).filter(|(_, page)| !page.is_empty());
        before.chain(row).chain(after)
    }

    /// Returns all pages, in any order.
    pub(super) fn pages_mut(&mut self) -> impl Iterator<Item = &mut Page> {
        self.row.iter_mut().chain(self.others.values_mut())
    }

    /// Returns the number of pages that are not empty.
    pub(super) fn len(&self) -> usize {
        self.row.len() - self.gaps + self.others.len()
    }

    /// Returns the bytes of memory of the map, without those of the entries of pages.
    pub(super) fn memory_bytes(&self) -> usize {
        self.row.capacity() * size_of::<Page>()
            + self.others.len() * (size_of::<Page>() + MAP_BYTES_PER_PAGE)
    }

    /// Frees memory that is not needed now.
    pub(super) fn shrink(&mut self) {
        self.row.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Adds or removes a page.
    fn set(map: &mut PageMap, number: u64, is_there: bool) {
        // The ids are those of another page, which the map does not check.
        let change = |page: &mut Page| if is_there { page.set(1, 1) } else { page.remove(1) };
        map.change(number, change);
    }

    /// Checks the invariants of the fields, and that the map has these pages.
    fn check(map: &PageMap, model: &BTreeSet<u64>) {
        let numbers: Vec<_> = map.iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, model.iter().copied().collect::<Vec<_>>());
        assert_eq!(map.len(), model.len());
        assert_eq!(map.gaps, map.row.iter().filter(|page| page.is_empty()).count());
        assert!(2 * map.gaps <= map.row.len(), "{} of {}", map.gaps, map.row.len());
        assert!(map.row.iter().take(1).chain(map.row.back()).all(|page| !page.is_empty()));
        assert!(map.row.iter().all(|page| !page.is_empty() || page.capacity() == 0));
        assert!(map.others.values().all(|page| !page.is_empty()));
        for number in map.others.keys() {
            let next_to_row = map.first.checked_sub(STRIDE) == Some(*number);
            let is_elsewhere = map.place(*number) > map.row.len() && !next_to_row;
            assert!(map.row.is_empty() || is_elsewhere, "{number}");
        }
    }

    /// Numbers of pages of one shard: from 0 on, far from that, and the last one.
    fn numbers() -> impl Strategy<Value = u64> {
        let far = 1u64 << 40;
        let last = (1 << 55) / STRIDE - 1;
        prop_oneof![
            4 => 0..24u64,
            4 => far..far + 24,
            1 => (0..100u64).prop_map(|number| number * 1000),
            1 => last - 2..=last,
        ]
        .prop_map(|index| 7 + index * STRIDE)
    }

    proptest! {
        #[test]
        fn pages_are_found_by_their_numbers(
            steps in prop::collection::vec((numbers(), prop::bool::weighted(0.6)), 1..300),
        ) {
            let (mut map, mut model) = (PageMap::default(), BTreeSet::new());
            for (number, is_there) in steps {
                set(&mut map, number, is_there);
                if is_there {
                    model.insert(number);
                } else {
                    model.remove(&number);
                }
                let has_entries = |page: &Page| !page.is_empty();
                prop_assert_eq!(map.get(number).is_some_and(has_entries), is_there);
                check(&map, &model);
            }
            for number in model.clone() {
                set(&mut map, number, false);
                model.remove(&number);
                check(&map, &model);
            }
            prop_assert_eq!(map.memory_bytes(), 0);
        }
    }

    #[test]
    fn pages_without_large_gaps_are_in_the_row_in_any_order_of_arrival() {
        let orders: [fn(u64) -> u64; 4] =
            [|n| n, |n| 999 - n, |n| n * 617 % 1000, |n| if n < 500 { 2 * n } else { 2 * n - 999 }];
        for order in orders {
            let (mut map, mut model) = (PageMap::default(), BTreeSet::new());
            // The first pages are far away from all that follow.
            for number in [1 << 50, 1 << 51].into_iter().chain((0..1000).map(order)) {
                set(&mut map, number * STRIDE, true);
                model.insert(number * STRIDE);
            }
            check(&map, &model);
            assert_eq!((map.row.len(), map.others.len()), (1000, 2));
            assert!(map.row.capacity() <= 1126);
            // Removing the middle one of three pages leaves a gap, and of two it leaves none.
            for number in (0..1000).filter(|number| number % 3 == 0) {
                set(&mut map, number * STRIDE, false);
                model.remove(&(number * STRIDE));
            }
            check(&map, &model);
            assert_eq!(map.others.len(), 2);
            for number in (0..1000).filter(|number| number % 3 == 1) {
                set(&mut map, number * STRIDE, false);
                model.remove(&(number * STRIDE));
            }
            check(&map, &model);
        }
    }
}
