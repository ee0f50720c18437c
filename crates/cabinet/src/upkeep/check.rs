//! Database check: verifies a database's files without opening it.

use crate::base::damage::{Checked, Damage};
use crate::fixed::FixedIndex;
use crate::hash::HashIndex;
use crate::io::{RealStorage, Storage};
use crate::keyed::walk_with_index;
use crate::log::check::Files;
use crate::log::record::{Kind, Record};
use crate::log::segments::{segment_name, segment_path};
use crate::log::{SegmentOffset, StoredKind, checkpoint};
use crate::tree::listed_pages;
use crate::{Error, Result};
use std::collections::HashSet;
use std::path::Path;

/// Verifies every checksum of the database in a directory, which no process may have open, and
/// reports all damage. Changes nothing.
pub fn check(path: impl AsRef<Path>, report: &mut dyn FnMut(Damage)) -> Result<Checked> {
    check_those(path, &|_| true, report)
}

/// Like [`check`], but only for those files of the log for whose names `wanted` returns true.
pub fn check_those(
    path: impl AsRef<Path>,
    wanted: &dyn Fn(&str) -> bool,
    report: &mut dyn FnMut(Damage),
) -> Result<Checked> {
    check_in(&RealStorage, path.as_ref(), wanted, report)
}

/// Like [`check_those`], on a storage of the caller's own.
#[cfg(feature = "testing")]
pub fn check_on(
    storage: &dyn Storage,
    path: &Path,
    wanted: &dyn Fn(&str) -> bool,
    report: &mut dyn FnMut(Damage),
) -> Result<Checked> {
    check_in(storage, path, wanted, report)
}

fn check_in(
    storage: &dyn Storage,
    path: &Path,
    wanted: &dyn Fn(&str) -> bool,
    report: &mut dyn FnMut(Damage),
) -> Result<Checked> {
    let mut files = Files::open(storage, path)?;
    let listed = listed_leaves(&files)?;
    if let Some(last) = listed.iter().max() {
        files.note_listed(*last);
    }
    let mut reported = HashSet::new();
    let mut report = |damage: Damage| {
        // A damaged record may also be reported as the page of a leaf.
        if reported.insert((damage.file.clone(), damage.offset)) {
            report(damage);
        }
    };
    files.check_checkpoint(&mut report)?;
    let wanted = |number| wanted(&segment_name(number));
    let mut pages = HashSet::new();
    let mut note = |place, record: &Record<'_>| {
        if record.kind == Kind::Page {
            pages.insert(place);
        }
        Ok(())
    };
    let walked = match files.parameters.kind {
        StoredKind::Hash => {
            let index = || HashIndex::of(files.database_id());
            walk_with_index(&files, &index, &wanted, &mut report)?
        }
        StoredKind::Fixed => walk_with_index(&files, &FixedIndex::default, &wanted, &mut report)?,
        StoredKind::Tree | StoredKind::Table => {
            files.walk_those(&wanted, &mut note, &mut report)?
        }
    };
    check_leaves(&files, listed, &wanted, &pages, &mut report);
    let damages = reported.len() as u64;
    Ok(Checked {
        segments: walked.segments,
        records: walked.records,
        bytes: walked.bytes,
        torn_bytes: walked.torn_bytes,
        damages,
    })
}

/// Checks the pages of a tree. A tree always has a list of its leaves, unless its log still has
/// every change. The listed pages must be among those that were read.
fn check_leaves(
    files: &Files<'_>,
    listed: Vec<SegmentOffset>,
    wanted: &dyn Fn(u64) -> bool,
    pages: &HashSet<SegmentOffset>,
    report: &mut dyn FnMut(Damage),
) {
    if !is_tree(files) {
        return;
    }
    if !files.has_checkpoint() && !files.is_whole {
        let file = files.directory().join(checkpoint::NAME);
        report(Damage { file, offset: 0, what: "the list of the tree's leaves is missing".into() });
    }
    // Missing segments were reported, and removed ones are not listed any more.
    let is_read = |number: u64| wanted(number) && files.numbers().contains(&number);
    for (number, offset) in listed {
        if is_read(number) && !pages.contains(&(number, offset)) {
            let file = segment_path(files.directory(), number);
            report(Damage { file, offset, what: "the page of a leaf cannot be read".into() });
        }
    }
}

fn is_tree(files: &Files<'_>) -> bool {
    matches!(files.parameters.kind, StoredKind::Tree | StoredKind::Table)
}

/// Returns the segments and offsets of the pages that a tree's checkpoint lists; none if the
/// checkpoint is damaged.
fn listed_leaves(files: &Files<'_>) -> Result<Vec<SegmentOffset>> {
    if !is_tree(files) {
        return Ok(Vec::new());
    }
    match files.checkpoint().and_then(listed_pages) {
        Err(Error::Corrupted { .. }) => Ok(Vec::new()),
        listed => listed,
    }
}
