//! Cover: chooses the page of a damaged log that has the latest state of each key.
//!
//! A page covers the keys from its first to its last: it has all their records of the time when it
//! was written. A page that the checkpoint lists covers all keys of its leaf. Among the pages that
//! cover a key, the one with the latest redo applied has its latest state. Equal pages have the
//! same state.

use super::checkpoint::Line;
use crate::log::Location;
use crate::{KeyOrder, Version};
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

pub(super) type Key = Box<[u8]>;

/// Properties of a page in the log.
pub(super) struct Seen {
    pub(super) leaf: u64,
    pub(super) applied: Version,
    pub(super) records: u32,
    /// First and last key; `None` if the page is empty or unreadable.
    pub(super) keys: Option<(Key, Key)>,
}

/// The leaves that the last checkpoint lists.
#[derive(Default)]
pub(super) struct Leaves {
    pub(super) lines: Vec<Line>,
    /// Whether the list has all leaves.
    pub(super) is_complete: bool,
    /// Numbers of segments by slot. The lines have slots.
    pub(super) segments: HashMap<usize, u64>,
}

/// Treatment of a key's records in its chosen page. The sequence number is that of the last change
/// that need not be applied any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// The records are current as of this change.
    Good(Version),
    /// The records may have been removed or moved since.
    Doubtful(Version),
    /// The records were removed or moved: they are left out.
    Void(Version),
}

impl Trust {
    pub(super) fn applied(self) -> Version {
        match self {
            Self::Good(applied) | Self::Doubtful(applied) | Self::Void(applied) => applied,
        }
    }
}

/// Number of a virtual page without records, from before the first change.
const NO_PAGE: usize = usize::MAX;

/// Choice of a page for each key.
pub(super) struct Cover {
    order: KeyOrder,
    /// Keys at which the chosen page may change, in order, each once.
    bounds: Vec<Key>,
    /// Chosen page of each part: of the keys before the first bound, of that bound, of the keys
    /// between it and the next bound, and so on.
    owners: Vec<Option<(usize, Trust)>>,
    /// Homes of listed pages that are missing.
    pub(super) lost: Vec<Location>,
}

/// A page, and the parts that it covers.
struct Claim {
    applied: Version,
    rank: Rank,
    number: usize,
    parts: Range<usize>,
}

/// Rank of a page among those with the same redo applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Listed, but missing.
    Lost,
    Found,
    Listed,
}

impl Cover {
    /// Chooses a page for each key. `checkpointed` is the sequence number at which the last
    /// checkpoint began, if it is known. `is_whole` means that the log has all changes since the
    /// tree was created or cleared.
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
        // For each part the next one, or itself, that has no page yet.
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
        // The last of equal pages in the log counts: after a join it has records that the older
        // ones lack.
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
                // The end of the last leaf is unknown.
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
            Err(at) => 2 * at,
        }
    }

    /// Returns the page chosen for a key, and the treatment of its records.
    pub(super) fn page_of(&self, key: &[u8]) -> Option<(usize, Trust)> {
        self.owners[self.part_of(key)]
    }
}

/// Returns the treatment of the records of each page for keys that no list covers, so that a newer
/// page may be missing.
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

/// Returns the first free part from a part on. Shortens the path for later calls.
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
    fn the_newest_page_that_covers_a_key_is_chosen() {
        let pages = vec![
            page(1, 10, "a", "m"),
            page(2, 20, "f", "h"),
            // The same page after a move.
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
    fn a_listed_page_covers_all_keys_of_its_leaf() {
        let pages = vec![
            // Older pages with keys that were removed since.
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
    fn an_older_page_is_doubtful_if_the_listed_page_is_lost() {
        let pages = vec![page(1, 5, "a", "e"), page(2, 20, "p", "q"), page(1, 12, "d", "d")];
        let lines = vec![line("", 1, 10), line("m", 2, 20)];
        let leaves = Leaves { lines, is_complete: true, ..Leaves::default() };
        let cover = Cover::new(pages, &leaves, false, KeyOrder::Lexical, Some(15));
        let older = Some((0, Trust::Doubtful(5)));
        expect(&cover, &[("A", None), ("a", older), ("c", older), ("e", older), ("f", None)]);
        expect(&cover, &[("d", Some((2, Trust::Good(12)))), ("m", Some((1, Trust::Good(20))))]);
    }

    #[test]
    fn an_incomplete_list_does_not_cover_the_keys_after_its_end() {
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
