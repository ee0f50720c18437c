//! Checking a database's files.

use crate::Result;
use crate::io::{RealStorage, Storage};
use crate::log::check::Files;
use crate::log::segment::segment_name;
use crate::log::{StoredKind, checkpoint};
use std::path::{Path, PathBuf};

/// A place in a file that does not hold what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Byte offset at which it begins.
    pub offset: u64,
    /// What was found.
    pub what: String,
}

impl Damage {
    /// What a hole in a log is, if it had been promised that there is none.
    pub(crate) fn of(hole: &crate::log::holes::Hole) -> Self {
        Self { file: hole.path.clone(), offset: hole.offset, what: hole.what.into() }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} at byte {}: {}", self.file.display(), self.offset, self.what)
    }
}

/// What [`check`] went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Segments of the log.
    pub segments: u64,
    /// Records in them, dead ones included.
    pub records: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Bytes behind the last record that are none: what a crash left, and the next opening cuts.
    pub torn_bytes: u64,
    /// Places that were reported.
    pub damages: u64,
}

/// Verifies every checksum of the database in a directory, which nobody has open, and reports
/// each place that is damaged. Changes nothing.
pub fn check(path: impl AsRef<Path>, report: &mut dyn FnMut(Damage)) -> Result<Checked> {
    check_those(path, &|_| true, report)
}

/// As [`check`], but of the files of the log goes only through those whose names are `wanted`.
pub fn check_those(
    path: impl AsRef<Path>,
    wanted: &dyn Fn(&str) -> bool,
    report: &mut dyn FnMut(Damage),
) -> Result<Checked> {
    check_on(&RealStorage, path.as_ref(), wanted, report)
}

/// As [`check_those`], on a storage of the caller's own.
pub fn check_on(
    storage: &dyn Storage,
    path: &Path,
    wanted: &dyn Fn(&str) -> bool,
    report: &mut dyn FnMut(Damage),
) -> Result<Checked> {
    let files = Files::open(storage, path)?;
    let mut damages = 0;
    let mut report = |damage| {
        damages += 1;
        report(damage);
    };
    files.check_checkpoint(&mut report)?;
    check_leaves(&files, &mut report);
    let wanted = |number| wanted(&segment_name(number));
    let walked = files.walk_those(&wanted, &mut |_| Ok(()), &mut report)?;
    Ok(Checked {
        segments: walked.segments,
        records: walked.records,
        bytes: walked.bytes,
        torn_bytes: walked.torn_bytes,
        damages,
    })
}

/// A tree has a list of its leaves from the beginning on, and only with its first segment can do
/// without.
fn check_leaves(files: &Files<'_>, report: &mut dyn FnMut(Damage)) {
    let is_tree = matches!(files.nature.kind, StoredKind::Tree | StoredKind::Table);
    if is_tree && !files.has_checkpoint() && files.numbers().first() != Some(&1) {
        let file = files.directory().join(checkpoint::NAME);
        report(Damage { file, offset: 0, what: "the list of the tree's leaves is missing".into() });
    }
}
