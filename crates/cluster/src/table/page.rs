//! A page of the entries of an index that a query walks over, while rows change.
//!
//! Entries are read first, and then their rows. If a row has changed in between, the query has to
//! meet it nevertheless, and once. An entry leads to a row that has another one now, which is its
//! own:
//!
//! - If its own one is further on, the row is met there. If the page should have it, but was read
//!   before it was written, it is added to the page.
//! - Otherwise the row was met there before, or it has changed during the walk. The version of a
//!   change has its time, so rows that have changed before the walk are known.
//!
//! A row that was met may change and have its own entry further on then. So the walk remembers all
//! rows that it has met, and looks for those among them that may have changed during it.

use super::cassandra::{Entry, EntryPart};
use super::met::Met;
use crate::version;
use cabinet::Result;
use cabinet::table::outside::ValueRange;
use std::collections::BTreeSet;
use std::path::Path;

/// Time before a walk from which on rows count as changed during it, in milliseconds: clocks of
/// servers may differ, and a change gets its version some time before it is made.
const RECENT_MS: u64 = 5 * 60 * 1000;

/// Relation of an entry to its row's own entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Led {
    /// It is that of the row.
    Own,
    /// The row has another one, further on.
    Later,
    /// The row has another one, before it.
    Earlier,
}

/// Entries that a query meets next.
#[derive(Debug)]
pub(super) struct Page<'r> {
    entries: BTreeSet<Entry>,
    /// Last entry of the page, unless no page follows in its range.
    pub(super) next: Option<Entry>,
    range: &'r ValueRange,
    is_descending: bool,
}

impl<'r> Page<'r> {
    pub(super) fn new(part: EntryPart, range: &'r ValueRange, is_descending: bool) -> Self {
        let EntryPart { entries, next } = part;
        Self { entries: entries.into_iter().collect(), next, range, is_descending }
    }

    /// Takes the next entries, at most so many.
    pub(super) fn take(&mut self, max: usize) -> Vec<Entry> {
        let mut taken = Vec::with_capacity(max.min(self.entries.len()));
        while taken.len() < max
            && let Some(entry) = match self.is_descending {
                true => self.entries.pop_last(),
                false => self.entries.pop_first(),
            }
        {
            taken.push(entry);
        }
        taken
    }

    /// Returns where a row has its own entry, as seen from one that was taken together with others.
    /// `own` is the first one of the row in the ranges of the query.
    pub(super) fn led(&mut self, entry: &Entry, taken: &[Entry], own: &Entry) -> Led {
        if own == entry {
            return Led::Own;
        }
        // One of the same value is in the same place, and may change again and again.
        if own.value == entry.value || self.is_before(own, entry) {
            return Led::Earlier;
        }
        let is_of_page = self.range.contains(&own.value)
            && !self.next.as_ref().is_some_and(|next| self.is_before(next, own));
        if is_of_page && !taken.contains(own) {
            self.entries.insert(own.clone());
        }
        Led::Later
    }

    fn is_before(&self, one: &Entry, other: &Entry) -> bool {
        if self.is_descending { one > other } else { one < other }
    }
}

/// Rows that a walk has met.
#[derive(Debug)]
pub(super) struct MetRows {
    /// Time from which on a row counts as changed during the walk.
    since_ms: u64,
    met: Met,
}

impl MetRows {
    /// Begins a walk. Rows that memory has no place for are remembered in files in `folder`.
    pub(super) fn new(now_ms: u64, folder: &Path) -> Self {
        Self { since_ms: now_ms.saturating_sub(RECENT_MS), met: Met::new(folder) }
    }

    /// Returns whether a walk meets a row at an entry that has led to it. The name is that of the
    /// entries of the row.
    pub(super) fn meets(&mut self, key: &[u8], name: i64, led: Led) -> Result<bool> {
        match led {
            Led::Later => Ok(false),
            Led::Own | Led::Earlier if self.is_recent(name) => self.met.insert(key),
            Led::Own => self.met.add(key).map(|()| true),
            Led::Earlier => Ok(false),
        }
    }

    /// Returns whether a walk meets a row, of this version, which has no entry. No other walk
    /// follows.
    pub(super) fn meets_lacking(&mut self, key: &[u8], version: i64) -> Result<bool> {
        if self.is_recent(version) { self.met.insert(key) } else { Ok(true) }
    }

    fn is_recent(&self, name: i64) -> bool {
        version::time_ms(name) >= self.since_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_790_000_000_000;

    fn entry(value: &[u8], name: i64) -> Entry {
        Entry { value: value.to_vec(), key: b"k".to_vec(), name }
    }

    fn page(values: &[&[u8]], next: Option<&[u8]>, is_descending: bool) -> Page<'static> {
        const RANGE: &ValueRange = &ValueRange { start: Vec::new(), end: None };
        let part = EntryPart {
            entries: values.iter().map(|value| entry(value, 1)).collect(),
            next: next.map(|value| entry(value, 1)),
        };
        Page::new(part, RANGE, is_descending)
    }

    #[test]
    fn entries_are_taken_in_the_direction_of_the_walk() {
        for (is_descending, expected) in [(false, [b"a", b"b", b"c"]), (true, [b"c", b"b", b"a"])] {
            let mut page = page(&[b"b", b"a", b"c"], None, is_descending);
            let mut taken = page.take(2);
            assert_eq!(taken.len(), 2);
            taken.append(&mut page.take(2));
            let values: Vec<&[u8]> = taken.iter().map(|entry| &entry.value[..]).collect();
            assert_eq!(values, expected);
        }
    }

    #[test]
    fn a_row_is_met_at_its_own_entry_which_is_added_to_the_page_if_it_is_new() {
        for (is_descending, further, beyond) in [(false, b"d", b"y"), (true, b"c", b"a")] {
            let mut page = page(
                &[b"b", b"c", b"d"],
                Some(if is_descending { b"b" } else { b"x" }),
                is_descending,
            );
            let taken = page.take(1);
            let last = if is_descending { b"d" } else { b"b" };
            let from = entry(last, 1);
            assert_eq!(taken, std::slice::from_ref(&from));
            assert_eq!(page.led(&from, &taken, &from), Led::Own);
            assert_eq!(page.led(&from, &taken, &entry(last, 2)), Led::Earlier);
            let before = if is_descending { b"e" } else { b"a" };
            assert_eq!(page.led(&from, &taken, &entry(before, 2)), Led::Earlier);
            assert_eq!(page.entries.len(), 2);
            // It is in the page, is added once, or comes with a later page.
            assert_eq!(page.led(&from, &taken, &entry(further, 1)), Led::Later);
            assert_eq!(page.entries.len(), 2);
            for _ in 0..2 {
                assert_eq!(page.led(&from, &taken, &entry(further, 2)), Led::Later);
                assert_eq!(page.entries.len(), 3);
            }
            assert_eq!(page.led(&from, &taken, &entry(beyond, 2)), Led::Later);
            assert_eq!(page.entries.len(), 3);
        }
    }

    #[test]
    fn a_row_that_has_changed_during_the_walk_is_met_once() {
        let mut rows = MetRows::new(NOW_MS, Path::new("/nowhere"));
        let mut meets = |key: &[u8], name, led| rows.meets(key, name, led).unwrap();
        let old = version::next(0, NOW_MS - RECENT_MS - 1);
        assert!(meets(b"old", old, Led::Own));
        assert!(!meets(b"other", old, Led::Earlier));
        let new = version::next(0, NOW_MS);
        assert!(!meets(b"new", new, Led::Later));
        assert!(meets(b"new", new, Led::Earlier));
        assert!(!meets(b"new", new, Led::Own));
        assert!(!meets(b"new", new, Led::Earlier));
        // A change whose server has a slow clock.
        assert!(meets(b"slow", version::next(0, NOW_MS - RECENT_MS), Led::Earlier));
    }

    #[test]
    fn a_row_that_moves_ahead_after_it_was_met_is_not_met_again() {
        let mut rows = MetRows::new(NOW_MS, Path::new("/nowhere"));
        let old = version::next(0, NOW_MS - RECENT_MS - 1);
        let new = version::next(0, NOW_MS);
        assert!(rows.meets(b"moved", old, Led::Own).unwrap());
        assert!(!rows.meets(b"moved", new, Led::Own).unwrap());
        // One that has lost its value is not met among the rows without any.
        assert!(rows.meets(b"lost", old, Led::Own).unwrap());
        assert!(!rows.meets_lacking(b"lost", new).unwrap());
        assert!(rows.meets_lacking(b"lacking", new).unwrap());
        assert!(rows.meets_lacking(b"lacking too", old).unwrap());
    }

    #[test]
    fn any_number_of_rows_is_remembered() {
        const ROWS: u32 = 300_000;
        let folder = tempfile::tempdir().unwrap();
        let mut rows = MetRows::new(NOW_MS, folder.path());
        let names = [NOW_MS, NOW_MS - RECENT_MS - 1].map(|ms| version::next(0, ms));
        for number in 0..ROWS {
            let name = names[number as usize % 2];
            assert!(rows.meets(&number.to_le_bytes(), name, Led::Own).unwrap());
        }
        for number in (0..ROWS).step_by(1001) {
            let key = number.to_le_bytes();
            for led in [Led::Own, Led::Earlier] {
                assert!(!rows.meets(&key, names[0], led).unwrap(), "{number}");
            }
        }
    }
}
