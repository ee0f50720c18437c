//! Which page of a damaged log is to be believed of each key.
//!
//! A page is all that there was between its first key and its last when it was written; one that
//! the checkpoint lists even of all keys of its leaf. Among pages that reach over a key, the one
//! that has seen the latest redo has its last state; of equals, all have the same.

use super::checkpoint::Line;
use crate::log::Location;
use crate::{KeyOrder, Version};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

pub(super) type Key = Box<[u8]>;

/// Facts that are noted of a page in the log.
pub(super) struct Seen {
    pub(super) leaf: u64,
    pub(super) applied: Version,
    pub(super) records: u32,
    /// First and last key; `None` if it is empty or unreadable.
    pub(super) keys: Option<(Key, Key)>,
}

/// The leaves that the last checkpoint lists.
#[derive(Default)]
pub(super) struct Leaves {
    pub(super) lines: Vec<Line>,
    /// The list has all leaves.
    pub(super) is_complete: bool,
    /// Numbers of segments by their slots, which the lines name.
    pub(super) segments: HashMap<usize, u64>,
}

/// Treatment of the records of the page that is believed of a key. The number is that of the last
/// change that is known to be done or undone there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    Good(Version),
    Doubtful(Version),
    Void(Version),
}

impl Trust {
    pub(super) fn applied(self) -> Version {
        match self {
            Self::Good(applied) | Self::Doubtful(applied) | Self::Void(applied) => applied,
        }
    }
}

/// Stands for a page without any record, from before the first change.
const NO_PAGE: usize = usize::MAX;

/// Which page is to be believed of each key.
pub(super) struct Cover {
    order: KeyOrder,
    /// Keys at which the page to be believed may change, in order, each once.
    bounds: Vec<Key>,
    /// The page of what is before the first bound, of that bound, of what is between it and the
    /// next, and so on.
    owners: Vec<Option<(usize, Trust)>>,
    /// Listed pages that are not there.
    pub(super) lost: Vec<Location>,
}

/// A page that reaches over some parts.
struct Claim {
    applied: Version,
    rank: Rank,
    number: usize,
    parts: Range<usize>,
}

/// Rank among those that have seen the same redo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It is listed, but not there.
    Lost,
    Found,
    Listed,
}

impl Cover {
    /// `checkpointed` is the sequence number that the last checkpoint began at, if that is known. A
    /// log that `is_whole` has all changes that there ever were.
    pub(super) fn new(
        pages: Vec<Seen>,
        leaves: &Leaves,
        is_whole: bool,
        order: KeyOrder,
        checkpointed: Option<Version>,
    ) -> Self {
        let trusts = trusts(&pages, checkpointed);
        let mut bounds: Vec<Key> = pages
            .iter()
            .filter_map(|page| page.keys.as_ref())
            .flat_map(|(first, last)| [first.clone(), last.clone()])
            .chain(leaves.lines.iter().skip(1).map(|line| line.lower.clone()))
            .collect();
        bounds.sort_by(|one, other| order.compare(one, other));
        bounds.dedup_by(|one, other| order.compare(one, other) == Ordering::Equal);
        let parts = bounds.len() * 2 + 1;
        let mut cover = Self { order, owners: vec![None; parts], bounds, lost: Vec::new() };
        let mut claims = cover.claims_of_lines(&pages, leaves);
        let mut is_listed = vec![is_whole; parts];
        claims.iter().for_each(|claim| is_listed[claim.parts.clone()].fill(true));
        claims.extend(pages.iter().enumerate().filter_map(|(number, page)| {
            let (first, last) = page.keys.as_ref()?;
            let parts = cover.part_of(first)..cover.part_of(last) + 1;
            Some(Claim { applied: page.applied, rank: Rank::Found, number, parts })
        }));
        if is_whole {
            claims.push(Claim { applied: 0, rank: Rank::Listed, number: NO_PAGE, parts: 0..parts });
        }
        claims.sort_by_key(|claim| Reverse((claim.applied, claim.rank, claim.number)));
        let mut is_lost = vec![false; parts];
        // The next part at or behind each that has no page yet.
        let mut free: Vec<usize> = (0..=parts).collect();
        for Claim { applied, rank, number, parts } in claims {
            let mut part = next_free(&mut free, parts.start);
            while part < parts.end {
                if rank == Rank::Lost {
                    is_lost[part] = true;
                    part = next_free(&mut free, part + 1);
                    continue;
                }
                let trust = if is_lost[part] {
                    Trust::Doubtful(applied)
                } else if is_listed[part] {
                    Trust::Good(applied)
                } else {
                    trusts[number]
                };
                cover.owners[part] = Some((number, trust));
                free[part] = part + 1;
                part = next_free(&mut free, part);
            }
        }
        cover
    }

    fn claims_of_lines(&mut self, pages: &[Seen], leaves: &Leaves) -> Vec<Claim> {
        // The last in the log, which has what an older one lacked that was joined with another.
        let numbers: HashMap<_, usize> = pages
            .iter()
            .enumerate()
            .map(|(number, page)| ((page.leaf, page.applied, page.records), number))
            .collect();
        let mut claims = Vec::with_capacity(leaves.lines.len());
        for (index, line) in leaves.lines.iter().enumerate() {
            let start = if index == 0 { 0 } else { self.part_of(&line.lower) };
            let end = match leaves.lines.get(index + 1) {
                Some(next) => self.part_of(&next.lower),
                None if leaves.is_complete => self.owners.len(),
                // It is not known how far it reaches.
                None => continue,
            };
            let found = numbers.get(&(line.id, line.applied, line.records));
            let (rank, number) = match found {
                Some(number) => (Rank::Listed, *number),
                None => {
                    self.lost.push(line.home.location);
                    (Rank::Lost, NO_PAGE)
                }
            };
            let parts = start..end.max(start);
            claims.push(Claim { applied: line.applied, rank, number, parts });
        }
        claims
    }

    /// Returns the part that a key is in: bound `i` is part `2 * i + 1`, and the keys between it
    /// and the bound before it are part `2 * i`.
    fn part_of(&self, key: &[u8]) -> usize {
        match self.bounds.binary_search_by(|bound| self.order.compare(bound, key)) {
            Ok(at) => 2 * at + 1,
            Err(behind) => 2 * behind,
        }
    }

    /// The page to be believed of a key, and how far.
    pub(super) fn page_of(&self, key: &[u8]) -> Option<(usize, Trust)> {
        self.owners[self.part_of(key)]
    }
}

/// How far pages can be trusted of which no list tells whether there is a newer one.
fn trusts(pages: &[Seen], checkpointed: Option<Version>) -> Vec<Trust> {
    let mut newest: BTreeMap<u64, usize> = BTreeMap::new();
    for (number, page) in pages.iter().enumerate() {
        let best = newest.entry(page.leaf).or_insert(number);
        if page.applied >= pages[*best].applied {
            *best = number;
        }
    }
    let trust = |(number, page): (usize, &Seen)| {
        let newest = newest.get(&page.leaf).copied().unwrap_or(number);
        let newer = pages[newest].applied;
        if newest == number {
            Trust::Good(page.applied)
        } else if checkpointed.is_some_and(|sequence| newer < sequence) {
            Trust::Void(newer)
        } else {
            Trust::Doubtful(page.applied)
        }
    };
    pages.iter().enumerate().map(trust).collect()
}

/// The first free part at or behind one. Shortens the way for those who come after.
fn next_free(free: &mut [usize], from: usize) -> usize {
    let mut part = from;
    while free[part] != part {
        free[part] = free[free[part]];
        part = free[part];
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::leaf::Home;

    fn page(leaf: u64, applied: Version, first: &str, last: &str) -> Seen {
        let keys = Some((first.as_bytes().into(), last.as_bytes().into()));
        Seen { leaf, applied, records: 2, keys }
    }

    fn line(lower: &str, id: u64, applied: Version) -> Line {
        Line {
            lower: lower.as_bytes().into(),
            id,
            home: Home { location: Location::from_bits(8), total: 0 },
            records: 2,
            bytes: 0,
            applied,
            expires_at_ms: u64::MAX,
        }
    }

    fn expect(cover: &Cover, expected: &[(&str, Option<(usize, Trust)>)]) {
        for (key, expected) in expected {
            assert_eq!(cover.page_of(key.as_bytes()), *expected, "{key}");
        }
    }

    #[test]
    fn of_each_key_the_newest_page_that_reaches_over_it_is_believed() {
        let pages = vec![
            page(1, 10, "a", "m"),
            page(2, 20, "f", "h"),
            // The same page, moved.
            page(2, 20, "f", "h"),
            page(3, 5, "g", "z"),
            Seen { leaf: 4, applied: 99, records: 0, keys: None },
        ];
        let cover = Cover::new(pages, &Leaves::default(), false, KeyOrder::Lexical, None);
        for (key, expected) in [
            ("A", None),
            ("a", Some(0)),
            ("ez", Some(0)),
            ("f", Some(2)),
            ("g", Some(2)),
            ("h", Some(2)),
            ("h0", Some(0)),
            ("m", Some(0)),
            ("m0", Some(3)),
            ("z", Some(3)),
            ("z0", None),
        ] {
            assert_eq!(cover.page_of(key.as_bytes()).map(|(page, _)| page), expected, "{key}");
        }
    }

    #[test]
    fn a_listed_page_is_believed_of_all_keys_of_its_leaf() {
        let pages = vec![
            // Older ones, which reach over what was removed since.
            page(1, 5, "a", "e"),
            page(2, 6, "m", "z"),
            page(1, 10, "b", "c"),
            page(2, 20, "p", "q"),
            // Written after the checkpoint.
            page(2, 30, "q", "r"),
        ];
        let lines = vec![line("", 1, 10), line("m", 2, 20)];
        let leaves = Leaves { lines, is_complete: true, ..Leaves::default() };
        let cover = Cover::new(pages, &leaves, false, KeyOrder::Lexical, Some(15));
        let (first, second) = (Some((2, Trust::Good(10))), Some((3, Trust::Good(20))));
        let newer = Some((4, Trust::Good(30)));
        expect(&cover, &[("A", first), ("b", first), ("e", first), ("l", first)]);
        expect(&cover, &[("m", second), ("p", second), ("q", newer), ("r", newer)]);
        expect(&cover, &[("s", second), ("z", second), ("zz", second)]);
    }

    #[test]
    fn where_a_listed_page_is_lost_an_older_one_is_in_doubt() {
        let pages = vec![page(1, 5, "a", "e"), page(2, 20, "p", "q"), page(1, 12, "d", "d")];
        let lines = vec![line("", 1, 10), line("m", 2, 20)];
        let leaves = Leaves { lines, is_complete: true, ..Leaves::default() };
        let cover = Cover::new(pages, &leaves, false, KeyOrder::Lexical, Some(15));
        let older = Some((0, Trust::Doubtful(5)));
        expect(&cover, &[("A", None), ("a", older), ("c", older), ("e", older), ("f", None)]);
        expect(&cover, &[("d", Some((2, Trust::Good(12)))), ("m", Some((1, Trust::Good(20))))]);
    }

    #[test]
    fn a_list_that_breaks_off_says_nothing_of_what_follows() {
        let pages = vec![page(1, 10, "b", "c"), page(2, 20, "n", "o"), page(2, 18, "m", "z")];
        let lines = vec![line("", 1, 10), line("m", 2, 20)];
        let leaves = Leaves { lines, ..Leaves::default() };
        let cover = Cover::new(pages, &leaves, false, KeyOrder::Lexical, None);
        expect(&cover, &[("l", Some((0, Trust::Good(10)))), ("n", Some((1, Trust::Good(20))))]);
        expect(&cover, &[("z", Some((2, Trust::Doubtful(18)))), ("zz", None)]);
    }

    #[test]
    fn a_whole_log_leaves_no_doubt() {
        let pages = vec![page(1, 10, "b", "c"), page(1, 5, "a", "e")];
        let cover = Cover::new(pages, &Leaves::default(), true, KeyOrder::Lexical, None);
        let nothing = Some((NO_PAGE, Trust::Good(0)));
        expect(&cover, &[("A", nothing), ("a", Some((1, Trust::Good(5)))), ("z", nothing)]);
        expect(&cover, &[("b", Some((0, Trust::Good(10))))]);
    }

    #[test]
    fn a_page_with_a_newer_one_of_its_leaf_is_void_or_doubtful() {
        let pages = || vec![page(1, 10, "a", "z"), page(1, 20, "a", "m"), page(2, 5, "zz", "zzz")];
        let good = [Trust::Good(20), Trust::Good(5)];
        for (checkpointed, old) in [
            (None, Trust::Doubtful(10)),
            (Some(20), Trust::Doubtful(10)),
            (Some(21), Trust::Void(20)),
        ] {
            let trusts = trusts(&pages(), checkpointed);
            assert_eq!(trusts, [old, good[0], good[1]]);
        }
    }
}
