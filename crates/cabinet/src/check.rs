//! Checking a database's files, and saving what can be read of damaged ones.

use crate::io::RealStorage;
use crate::log::StoredKind;
use crate::log::check::Files;
use crate::log::record::{Kind, Record};
use crate::log::segment::{segment_name, segment_path};
use crate::tree::TreeDatabase;
use crate::{Compression, Database, Entry, Error, Options, Order, Result, Side, Wait, compress};
use std::fs;
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
    let files = Files::open(&RealStorage, path.as_ref())?;
    let mut damages = 0;
    let mut report = |damage| {
        damages += 1;
        report(damage);
    };
    files.check_checkpoint(&mut report)?;
    check_leaves(&files, path.as_ref(), &mut report);
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
fn check_leaves(files: &Files<'_>, path: &Path, report: &mut dyn FnMut(Damage)) {
    let file = path.join("checkpoint");
    let is_tree = matches!(files.nature.kind, StoredKind::Tree | StoredKind::Table);
    if is_tree && !file.exists() && !segment_path(path, 1).exists() {
        report(Damage { file, offset: 0, what: "the list of the tree's leaves is missing".into() });
    }
}

/// What [`salvage`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Changes (of a hash or fixed-length database), records or rows that were made again.
    pub changes: u64,
    /// Values that could be read but not decompressed.
    pub unreadable: u64,
    /// Places that were reported.
    pub damages: u64,
    /// The list of a tree's leaves could not be used, so that it was made anew of the pages and
    /// changes in its log: records that were removed may have come back.
    pub is_rebuilt: bool,
    /// Records of such a tree of which a newer page might have told that they were removed.
    pub doubtful: u64,
}

/// Copies what can be read of a database, which nobody has open, into another, which for a table
/// has to be one. Where the newest record of a key cannot be read, an older one may come back.
/// Changes nothing in the first. A tree or table is read from a copy of its files, which lies
/// beside it meanwhile: opening one makes an end of what a crash has left. If it does not open because
/// its checkpoint is damaged, it is made anew of the pages and changes in its log.
pub fn salvage(
    path: impl AsRef<Path>,
    into: &Database,
    report: &mut dyn FnMut(Damage),
) -> Result<Salvaged> {
    let path = path.as_ref();
    let files = Files::open(&RealStorage, path)?;
    let mut salvaged = Salvaged::default();
    let mut damages = 0;
    let mut report = |damage| {
        damages += 1;
        report(damage);
    };
    match files.nature.kind {
        StoredKind::Hash | StoredKind::Fixed => {
            files.walk(&mut |record| repeat(record, into, &mut salvaged), &mut report)?;
        }
        StoredKind::Tree => {
            let copy = Copy::of(path)?;
            let tree = copy.tree(&files, into.order(), &mut salvaged, &mut report)?;
            let ordered = into.engine().as_ordered();
            tree.each_readable(
                &mut |Entry { key, value, meta, .. }| {
                    salvaged.changes += 1;
                    match ordered {
                        Some(ordered) => ordered.add(key, value, meta, Side::After, Wait::Block)?,
                        None => into.put_with(key, value, meta)?,
                    };
                    Ok(())
                },
                &mut report,
            )?;
        }
        StoredKind::Table => {
            let Some(table) = into.table() else {
                return Err(Error::NotSupported("salvaging a table into what is none".into()));
            };
            let copy = Copy::of(path)?;
            let order = Some(Order::Lexical);
            let tree = copy.tree(&files, order, &mut salvaged, &mut report)?;
            salvaged.changes = table.salvage(&tree, &mut report)?;
        }
    }
    salvaged.damages = damages;
    into.sync()?;
    Ok(salvaged)
}

/// Makes one change again.
fn repeat(record: &Record<'_>, into: &Database, salvaged: &mut Salvaged) -> Result<()> {
    match record.kind {
        Kind::Put if record.compression == Compression::None => {
            into.put_with(record.key, record.value, record.meta)?;
        }
        Kind::Put => {
            let Ok(value) = compress::decompress(record.value, record.compression) else {
                salvaged.unreadable += 1;
                return Ok(());
            };
            into.put_with(record.key, &value, record.meta)?;
        }
        Kind::Tombstone => {
            into.remove(record.key)?;
        }
        Kind::Batch | Kind::Page | Kind::Block | Kind::Filler => return Ok(()),
    }
    salvaged.changes += 1;
    Ok(())
}

/// A copy of a database's files that goes away.
struct Copy {
    path: PathBuf,
}

impl Copy {
    fn of(path: &Path) -> Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".salvage");
        let beside = PathBuf::from(name);
        // One that is there already is not ours to remove.
        fs::create_dir(&beside).map_err(|source| {
            let path = beside.clone();
            Error::Io { operation: "create", path, source }
        })?;
        let copy = Self { path: beside };
        let failed = |source| Error::Io { operation: "copy", path: path.to_owned(), source };
        for file in fs::read_dir(path).map_err(failed)? {
            let file = file.map_err(failed)?;
            if file.file_type().is_ok_and(|kind| kind.is_file()) {
                fs::copy(file.path(), copy.path.join(file.file_name())).map_err(failed)?;
            }
        }
        Ok(copy)
    }

    /// The tree in the copy, as it is or made anew.
    fn tree(
        &self,
        files: &Files<'_>,
        order: Option<Order>,
        salvaged: &mut Salvaged,
        report: &mut dyn FnMut(Damage),
    ) -> Result<TreeDatabase> {
        let options = Options { order, ..Options::default() };
        let opened = match files.nature.kind {
            StoredKind::Table => TreeDatabase::open_table(&self.path, &options),
            _ => TreeDatabase::open(&self.path, &options),
        };
        let Err(Error::Corrupted { file, offset, what }) = opened else { return opened };
        report(Damage { file, offset, what });
        let checkpointed = checkpointed(&self.path);
        let folder = self.path.join("rebuilt");
        let rebuilt = TreeDatabase::rebuild(files, &folder, checkpointed, report)?;
        salvaged.is_rebuilt = true;
        salvaged.doubtful = rebuilt.doubtful;
        salvaged.unreadable += rebuilt.unreadable;
        Ok(rebuilt.tree)
    }
}

/// The sequence number that a checkpoint says it began at, be the rest of it as it may.
fn checkpointed(path: &Path) -> Option<u64> {
    let bytes = fs::read(path.join("checkpoint")).ok()?;
    let is_one = bytes.starts_with(b"tyrantck");
    let number = bytes.get(24..32)?.try_into().map(u64::from_le_bytes).ok()?;
    is_one.then_some(number)
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!("removing {}: {error}", self.path.display());
        }
    }
}
