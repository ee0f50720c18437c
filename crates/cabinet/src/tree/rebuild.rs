//! Rebuild: restores a damaged tree from its log.
//!
//! For each key, [`super::cover`] chooses the page with its latest state. Then the redo after that
//! page is applied, as far as it is intact, also after holes.
//!
//! The result is the tree as it was, except for the contents of the holes: a key whose last change
//! is lost has an older value, or is back.
//!
//! If the list of leaves is lost, too, a removed record comes back if the redo of its removal is
//! lost and no newer page covers its key. Pages that are not the newest of their leaf may hold such
//! records. The records of such a page are left out if the newest page of the leaf was written
//! before the checkpoint and no hole can have contained another page: then everything that has
//! moved from it into another leaf is there, too. Otherwise they are kept and counted as doubtful.
//! The rebuild does not recognise a leaf that was joined to another.

use super::checkpoint::unpack;
use super::cover::{Cover, Leaves, Seen, Trust};
use super::page::View;
use super::redo::Operation;
use super::{TreeDatabase, TreeEngine};
use crate::base::compress;
use crate::log::checkpoint;
use crate::log::record::{Kind, Record};
use crate::log::remains::Remains;
use crate::log::segments::segment_name;
use crate::{Compression, Damage, Error, KeyOrder, Meta, Result, Version, Wait};
use std::borrow::Cow;
use std::collections::HashSet;

/// Losses and doubts of a tree that was rebuilt.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rebuilt {
    /// Whether the list of leaves is unusable and the log lacks changes.
    pub(crate) is_list_lost: bool,
    /// Number of records that may have been removed, moved or changed since their page was written,
    /// and of changes that may have been made to another duplicate.
    pub(crate) doubtful: u64,
    /// Number of records of the log that are intact, but are not valid pages or changes.
    pub(crate) unreadable: u64,
}

/// Callback for a database without duplicates. Gets a key with its value, or with `None` if the key
/// is removed.
pub(crate) type Set<'s> = dyn FnMut(&[u8], Option<(&[u8], Meta)>) -> Result<()> + 's;

/// Destination of the restored records.
pub(crate) enum Target<'t> {
    /// An empty tree in the same key order.
    Tree(&'t TreeDatabase),
    /// A database without duplicates.
    Single(&'t mut Set<'t>),
}

/// Restores a tree from the remains of its log into `target`, and reports each damage once.
pub(crate) fn rebuild(
    remains: &Remains<'_>,
    order: KeyOrder,
    target: Target<'_>,
    report: &mut dyn FnMut(Damage),
) -> Result<Rebuilt> {
    let mut reported = HashSet::new();
    let mut report = |damage: Damage| {
        // A damaged record may also be a page that is missing.
        if reported.insert((damage.file.clone(), damage.offset)) {
            report(damage);
        }
    };
    let mut pages = Vec::new();
    let mut newest_change = 0;
    let holes = remains.walk(
        &mut |record, _| {
            newest_change = newest_change.max(record.sequence);
            if record.kind == Kind::Page {
                pages.push(seen(record, order));
            }
            Ok(())
        },
        &mut report,
    )?;
    let is_whole = remains.is_whole();
    let leaves = leaves(remains, is_whole, &mut report)?;
    // A sequence number beyond the end of the log is damaged. If there are holes, it does not prove
    // that all pages before it are there.
    let checkpointed =
        checkpointed(remains)?.filter(|sequence| holes == 0 && *sequence <= newest_change + 1);
    let is_list_lost = !leaves.is_complete && (!is_whole || holes > 0);
    let cover = Cover::new(pages, &leaves, is_whole && holes == 0, order, checkpointed);
    for lost in &cover.lost {
        let number = leaves.segments.get(&lost.slot()).copied().unwrap_or(0);
        let file = remains.path_of(&segment_name(number));
        let what = "the page of a leaf cannot be read".into();
        report(Damage { file, offset: lost.offset() as u64, what });
    }
    let mut rebuild =
        Rebuild { cover, order, target, rebuilt: Rebuilt { is_list_lost, ..Rebuilt::default() } };
    let mut page = 0;
    // The damage was reported by the first walk.
    remains.walk(
        &mut |record, holes| match record.kind {
            Kind::Page => {
                page += 1;
                rebuild.take_page(page - 1, record)
            }
            Kind::Put => rebuild.take_change(record, holes > 0),
            Kind::Tombstone | Kind::Batch | Kind::AppendBlock | Kind::Filler | Kind::Mark => Ok(()),
        },
        &mut |_| (),
    )?;
    Ok(rebuild.rebuilt)
}

/// Returns the leaves that the checkpoint lists, as far as they can be read.
fn leaves(remains: &Remains<'_>, is_whole: bool, report: &mut dyn FnMut(Damage)) -> Result<Leaves> {
    let mut leaves = Leaves::default();
    let mut read = || {
        let file = remains.path_of(checkpoint::NAME);
        let corrupted = |what: &str| Error::Corrupted { file, offset: 0, what: what.into() };
        let Some(mut checkpoint) = remains.checkpoint()? else {
            // A log with all changes needs no checkpoint.
            return if is_whole { Ok(()) } else { Err(corrupted("it is missing")) };
        };
        // A checkpoint from before the database was cleared is void.
        if remains.whole_from().is_some_and(|first| first > checkpoint.replay_segment) {
            return Ok(());
        }
        let segments = checkpoint.segments.iter();
        leaves.segments = segments.map(|line| (line.slot, line.number)).collect();
        while let Some(block) = checkpoint.next_block()? {
            let none = || checkpoint.corrupted("a block is not a list of leaves");
            leaves.lines.extend(unpack(&block).ok_or_else(none)?);
        }
        leaves.is_complete = !leaves.lines.is_empty();
        Ok(())
    };
    match read() {
        Err(Error::Corrupted { file, offset, what }) => report(Damage { file, offset, what }),
        result => result?,
    }
    Ok(leaves)
}

/// Returns the sequence number at which the checkpoint began, even if the rest of the checkpoint is
/// damaged.
fn checkpointed(remains: &Remains<'_>) -> Result<Option<Version>> {
    match remains.checkpoint() {
        Ok(checkpoint) => Ok(checkpoint.map(|checkpoint| checkpoint.next_sequence)),
        Err(Error::Corrupted { .. }) => remains.checkpoint_began(),
        Err(error) => Err(error),
    }
}

struct Rebuild<'t> {
    cover: Cover,
    order: KeyOrder,
    target: Target<'t>,
    rebuilt: Rebuilt,
}

impl Rebuild<'_> {
    /// Stores the records of a page for whose keys the cover has chosen this page.
    fn take_page(&mut self, number: usize, record: &Record<'_>) -> Result<()> {
        let bytes = page_bytes(record);
        let Some(view) = bytes.as_deref().and_then(|bytes| sound(bytes, self.order)) else {
            self.rebuilt.unreadable += 1;
            return Ok(());
        };
        for index in 0..view.len() {
            let entry = view.record(index);
            let trust = match self.cover.page_of(entry.key) {
                Some((owner, trust)) if owner == number => trust,
                _ => continue,
            };
            match trust {
                Trust::Void(_) => continue,
                Trust::Doubtful(_) => self.rebuilt.doubtful += 1,
                Trust::Good(_) => {}
            }
            match &mut self.target {
                Target::Tree(tree) => {
                    tree.engine.repeat(None, entry.key, entry.value, entry.meta)?;
                }
                Target::Single(set) => set(entry.key, Some((entry.value, entry.meta)))?,
            }
        }
        Ok(())
    }

    /// Makes a change, unless the page chosen for its key contains it.
    fn take_change(&mut self, record: &Record<'_>, is_after_hole: bool) -> Result<()> {
        let Some((operation, value)) = Operation::decode(record.value) else {
            self.rebuilt.unreadable += 1;
            return Ok(());
        };
        let (key, meta) = (record.key, record.meta);
        let seen = self.cover.page_of(key).map_or(0, |(_, trust)| trust.applied());
        if record.sequence <= seen {
            return Ok(());
        }
        match &mut self.target {
            Target::Tree(tree) => {
                if is_after_hole && !operation.is_absolute() {
                    self.rebuilt.doubtful += 1;
                }
                tree.engine.repeat(Some(operation), key, value, meta)
            }
            Target::Single(set) => match operation.on_single() {
                Operation::Set => set(key, Some((value, meta))),
                _ => set(key, None),
            },
        }
    }
}

impl TreeEngine {
    /// Makes a change. Without an operation, adds a duplicate after the others.
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

/// Returns the bytes of the page in a record; `None` if they cannot be decompressed.
pub(super) fn page_bytes<'r>(record: &Record<'r>) -> Option<Cow<'r, [u8]>> {
    match record.compression {
        Compression::None => Some(Cow::Borrowed(record.value)),
        compression => compress::decompress(record.value, compression).ok().map(Cow::Owned),
    }
}

fn sound(bytes: &[u8], order: KeyOrder) -> Option<View<'_>> {
    View::decode(bytes).filter(|view| view.is_sound(order))
}

fn seen(record: &Record<'_>, order: KeyOrder) -> Seen {
    let leaf = record.key.try_into().map_or(u64::MAX, u64::from_le_bytes);
    let bytes = page_bytes(record);
    let Some(view) = bytes.as_deref().and_then(|bytes| sound(bytes, order)) else {
        return Seen { leaf, applied: 0, records: 0, keys: None };
    };
    let last = view.len().checked_sub(1);
    let keys = last.map(|last| (view.key(0).into(), view.key(last).into()));
    Seen { leaf, applied: view.applied, records: view.len() as u32, keys }
}
