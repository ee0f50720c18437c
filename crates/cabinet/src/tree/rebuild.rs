//! A tree whose checkpoint is lost, made anew from the pages and the redo that its log has.
//!
//! Without the checkpoint nothing says which pages are leaves. But a page is all there was between
//! its first key and its last when it was written. So of each key, the newest page that reaches
//! over it is believed, and then the redo after that page.
//!
//! What comes of it is what there was, but for this: a record that was removed comes back if the
//! redo that said so is gone, and if no newer page reaches over its key. A page that is not the
//! newest of its leaf may hold such records; they are left out if the newest was written before
//! the checkpoint was (then whatever had moved from it into another leaf was written too), else
//! they are kept and counted as doubtful. Of a leaf that was joined to another nothing says that
//! it was.

use super::page::View;
use super::recover::order_of;
use super::redo::Operation;
use super::{Shared, TreeDatabase};
use crate::log::StoredKind;
use crate::log::check::Files;
use crate::log::record::{Kind, Record};
use crate::{Compression, Damage, Error, Meta, Options, Order, Result, Version, Wait, compress};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

/// What has become of a tree.
pub(crate) struct Rebuilt {
    pub(crate) tree: TreeDatabase,
    /// Records that may have been removed or moved since the page that they were found in.
    pub(crate) doubtful: u64,
    /// Pages and changes that could be read but mean nothing.
    pub(crate) unreadable: u64,
}

impl TreeDatabase {
    /// Makes a tree in `folder`, which must not exist, of what can be read of another.
    /// `checkpointed` is the sequence number that its last checkpoint began at, if that is known.
    pub(crate) fn rebuild(
        files: &Files<'_>,
        folder: &Path,
        checkpointed: Option<Version>,
        report: &mut dyn FnMut(Damage),
    ) -> Result<Rebuilt> {
        let order = order_of(&files.nature)
            .ok_or_else(|| Error::NotSupported("an order of keys that is not known".into()))?;
        let mut pages = Vec::new();
        let mut newest_change = 0;
        files.walk(
            &mut |record| {
                newest_change = newest_change.max(record.sequence);
                if record.kind == Kind::Page {
                    pages.push(Seen::of(record, order));
                }
                Ok(())
            },
            report,
        )?;
        // One that no log of this length can have had is part of the damage.
        let checkpointed = checkpointed.filter(|sequence| *sequence <= newest_change + 1);
        let cover = Cover::new(pages, order, checkpointed);
        let options = Options { order: Some(order), ..Options::default() };
        let mut rebuilt =
            Rebuilt { tree: Self::open(folder, &options)?, doubtful: 0, unreadable: 0 };
        let has_duplicates = files.nature.kind != StoredKind::Table;
        let mut page = 0;
        // The damage was reported.
        files.walk(
            &mut |record| match record.kind {
                Kind::Page => {
                    page += 1;
                    rebuilt.take_page(&cover, page - 1, record)
                }
                Kind::Put => rebuilt.take_change(&cover, record, has_duplicates),
                Kind::Tombstone | Kind::Batch | Kind::Block | Kind::Filler => Ok(()),
            },
            &mut |_| (),
        )?;
        Ok(rebuilt)
    }
}

impl Rebuilt {
    /// Stores the records of a page that is the one to be believed of their keys.
    fn take_page(&mut self, cover: &Cover, number: usize, record: &Record<'_>) -> Result<()> {
        let Some(bytes) = page_bytes(record) else {
            self.unreadable += 1;
            return Ok(());
        };
        let Some(view) = sound(&bytes, cover.order) else {
            self.unreadable += 1;
            return Ok(());
        };
        for index in 0..view.len() {
            let entry = view.record(index);
            let trust = match cover.page_of(entry.key) {
                Some((owner, trust)) if owner == number => trust,
                _ => continue,
            };
            match trust {
                Trust::Void(_) => continue,
                Trust::Doubtful(_) => self.doubtful += 1,
                Trust::Good(_) => {}
            }
            let shared = &self.tree.shared;
            shared.repeat(None, entry.key, entry.value, entry.meta)?;
        }
        Ok(())
    }

    /// Makes a change that the page that is believed of its key has not seen.
    fn take_change(
        &mut self,
        cover: &Cover,
        record: &Record<'_>,
        has_duplicates: bool,
    ) -> Result<()> {
        let Some((operation, value)) = Operation::decode(record.value) else {
            self.unreadable += 1;
            return Ok(());
        };
        let seen = cover.page_of(record.key).map_or(0, |(_, trust)| trust.applied());
        if record.sequence <= seen {
            return Ok(());
        }
        // Where each key has one value, an insertion replaces what should have been removed.
        let operation = match operation {
            Operation::Insert(_) if !has_duplicates => Operation::Replace(0),
            operation => operation,
        };
        self.tree.shared.repeat(Some(operation), record.key, value, record.meta)
    }
}

impl Shared {
    /// Makes a change; without one, adds a duplicate behind the others.
    fn repeat(
        &self,
        operation: Option<Operation>,
        key: &[u8],
        value: &[u8],
        meta: Meta,
    ) -> Result<()> {
        self.change(key, Wait::Block, |state| {
            let group = self.group(state, key);
            let operation = operation.unwrap_or(Operation::Insert(group.len()));
            self.make(state, operation, group, key, value, meta).map(|_| ())
        })
    }
}

/// The bytes of a page's record, unless they cannot be decompressed.
fn page_bytes<'r>(record: &Record<'r>) -> Option<Cow<'r, [u8]>> {
    match record.compression {
        Compression::None => Some(Cow::Borrowed(record.value)),
        compression => compress::decompress(record.value, compression).ok().map(Cow::Owned),
    }
}

fn sound(bytes: &[u8], order: Order) -> Option<View<'_>> {
    View::decode(bytes).filter(|view| view.is_sound(order))
}

type Key = Box<[u8]>;

/// What is noted of a page in the log.
struct Seen {
    leaf: u64,
    applied: Version,
    /// First and last key; `None` if it is empty or unreadable.
    keys: Option<(Key, Key)>,
}

impl Seen {
    fn of(record: &Record<'_>, order: Order) -> Self {
        let leaf = record.key.try_into().map_or(u64::MAX, u64::from_le_bytes);
        let nothing = Self { leaf, applied: 0, keys: None };
        let Some(bytes) = page_bytes(record) else { return nothing };
        let Some(view) = sound(&bytes, order) else { return nothing };
        let last = view.len().checked_sub(1);
        let keys = last.map(|last| (view.key(0).into(), view.key(last).into()));
        Self { leaf, applied: view.applied, keys }
    }
}

/// What is to be made of the records of a page that is believed of their keys. The number is that
/// of the last change that is known to be done or undone there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    Good(Version),
    Doubtful(Version),
    Void(Version),
}

impl Trust {
    fn applied(self) -> Version {
        match self {
            Self::Good(applied) | Self::Doubtful(applied) | Self::Void(applied) => applied,
        }
    }
}

/// Which page is to be believed of each key.
struct Cover {
    order: Order,
    /// First and last keys of all pages, in order, each once.
    bounds: Vec<Key>,
    /// The page of each bound, at twice its index, and behind that of what lies between it and
    /// the next.
    owners: Vec<Option<usize>>,
    trusts: Vec<Trust>,
}

impl Cover {
    fn new(pages: Vec<Seen>, order: Order, checkpointed: Option<Version>) -> Self {
        let trusts = trusts(&pages, checkpointed);
        let mut bounds: Vec<Key> = pages
            .iter()
            .filter_map(|page| page.keys.as_ref())
            .flat_map(|(first, last)| [first.clone(), last.clone()])
            .collect();
        bounds.sort_by(|one, other| order.compare(one, other));
        bounds.dedup_by(|one, other| order.compare(one, other) == Ordering::Equal);
        let mut newest_first: Vec<usize> = (0..pages.len()).collect();
        newest_first.sort_by_key(|number| std::cmp::Reverse((pages[*number].applied, *number)));
        let mut cover = Self { order, owners: vec![None; bounds.len() * 2], bounds, trusts };
        // The next part at or behind each that has no page yet.
        let mut free: Vec<usize> = (0..=cover.owners.len()).collect();
        for number in newest_first {
            let Some((first, last)) = &pages[number].keys else { continue };
            let (Some(first), Some(last)) = (cover.part_of(first), cover.part_of(last)) else {
                continue;
            };
            let mut part = next_free(&mut free, first);
            while part <= last {
                cover.owners[part] = Some(number);
                free[part] = part + 1;
                part = next_free(&mut free, part);
            }
        }
        cover
    }

    /// Where a key is among the bounds and what lies between them.
    fn part_of(&self, key: &[u8]) -> Option<usize> {
        match self.bounds.binary_search_by(|bound| self.order.compare(bound, key)) {
            Ok(at) => Some(2 * at),
            Err(behind) => behind.checked_sub(1).map(|before| 2 * before + 1),
        }
    }

    /// The page to be believed of a key, and how far.
    fn page_of(&self, key: &[u8]) -> Option<(usize, Trust)> {
        let owner = self.owners[self.part_of(key)?]?;
        Some((owner, self.trusts[owner]))
    }
}

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

    fn page(leaf: u64, applied: Version, first: &str, last: &str) -> Seen {
        Seen { leaf, applied, keys: Some((first.as_bytes().into(), last.as_bytes().into())) }
    }

    #[test]
    fn of_each_key_the_newest_page_that_reaches_over_it_is_believed() {
        let pages = vec![
            page(1, 10, "a", "m"),
            page(2, 20, "f", "h"),
            // The same page, moved.
            page(2, 20, "f", "h"),
            page(3, 5, "g", "z"),
            Seen { leaf: 4, applied: 99, keys: None },
        ];
        let cover = Cover::new(pages, Order::Lexical, None);
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
