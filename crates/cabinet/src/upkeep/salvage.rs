//! Salvage: saves the readable records of a damaged database.

use crate::base::compress;
use crate::io::{MemoryStorage, RealStorage, Storage};
use crate::log::StoredKind;
use crate::log::record::{Kind, Record};
use crate::log::remains::Remains;
use crate::tree::{Signs, Target, TreeDatabase, order_of, rebuild};
use crate::{Compression, Damage, Database, Error, KeyOrder, RecordRef, Result, Side, Wait, name};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Counts of a [`salvage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Changes (of a hash or fixed-length database), records or rows that were copied.
    pub changes: u64,
    /// Values that could be read but not decompressed, and invalid pages and changes of a tree.
    pub unreadable: u64,
    /// Number of damages that were reported.
    pub damages: u64,
    /// Whether changes may be missing: records may have older values, or may be back after they
    /// were removed.
    pub may_be_stale: bool,
    /// Whether the list of a tree's leaves could not be used, so that it was rebuilt from all pages
    /// and changes in its log. More removed records may then be back.
    pub is_rebuilt: bool,
    /// Records of a tree that were found in a page that is not the last of their leaf, and changes
    /// that may belong to another duplicate.
    pub doubtful: u64,
}

/// Copies all readable records of a database, which no process may have open, into another. For a
/// table the other must be one, too. If the newest record of a key cannot be read, an older one may
/// come back. Writes nothing to the damaged database, which may be on a read-only file system. A
/// tree is rebuilt in a folder beside the other database, whose name ends in `.salvage`.
pub fn salvage(
    path: impl AsRef<Path>,
    into: &Database,
    report: &mut dyn FnMut(Damage),
) -> Result<Salvaged> {
    salvage_as(path, None, into, report)
}

/// Like [`salvage`], for a database of this kind. The kind is needed only if no manifest can be
/// read and the records do not show it.
pub fn salvage_as(
    path: impl AsRef<Path>,
    kind: Option<name::Kind>,
    into: &Database,
    report: &mut dyn FnMut(Damage),
) -> Result<Salvaged> {
    salvage_in(&RealStorage, path.as_ref(), kind, into, report)
}

/// Like [`salvage_as`], on a storage of the caller's own.
#[cfg(feature = "testing")]
pub fn salvage_on(
    storage: &dyn Storage,
    path: &Path,
    kind: Option<name::Kind>,
    into: &Database,
    report: &mut dyn FnMut(Damage),
) -> Result<Salvaged> {
    salvage_in(storage, path, kind, into, report)
}

fn salvage_in(
    storage: &dyn Storage,
    path: &Path,
    kind: Option<name::Kind>,
    into: &Database,
    report: &mut dyn FnMut(Damage),
) -> Result<Salvaged> {
    into.enter_to_write()?;
    let remains = Remains::open(storage, path)?;
    let mut salvaged = Salvaged::default();
    let mut damages = 0;
    let mut report = |damage| {
        damages += 1;
        report(damage);
    };
    if !compress::HAS_ALL {
        // Pages that this build cannot decompress would count as damaged.
        remains.walk(&mut |record, _| compress::require(record.compression), &mut |_| ())?;
    }
    let (kind, order) = kind_of(&remains, kind, into)?;
    match kind {
        StoredKind::Hash | StoredKind::Fixed => {
            remains.walk(&mut |record, _| repeat(record, into, &mut salvaged), &mut report)?;
        }
        StoredKind::Tree => {
            let scratch = Scratch::beside(into)?;
            let tree = TreeDatabase::scratch(scratch.storage(), &scratch.tree(), order)?;
            let rebuilt = rebuild(&remains, order, Target::Tree(&tree), &mut report)?;
            salvaged.is_rebuilt = rebuilt.is_list_lost;
            salvaged.doubtful = rebuilt.doubtful;
            salvaged.unreadable = rebuilt.unreadable;
            let ordered = into.engine().as_ordered();
            tree.each_record(&mut |RecordRef { key, value, meta, .. }| {
                salvaged.changes += 1;
                match ordered {
                    Some(ordered) => ordered.add(key, value, meta, Side::After, Wait::Block)?,
                    None => into.put_with(key, value, meta)?,
                };
                Ok(())
            })?;
        }
        #[cfg(not(feature = "table"))]
        StoredKind::Table => return Err(Error::without_tables()),
        #[cfg(feature = "table")]
        StoredKind::Table => {
            let Some(table) = into.table() else {
                return Err(Error::InvalidArgument(
                    "rows cannot be salvaged into other kinds: give a table (.tct)".into(),
                ));
            };
            let rebuilt = table.salvage(&remains, &mut report)?;
            salvaged.changes = table.len();
            salvaged.is_rebuilt = rebuilt.is_list_lost;
            salvaged.doubtful = rebuilt.doubtful;
            salvaged.unreadable = rebuilt.unreadable;
        }
    }
    salvaged.damages = damages;
    salvaged.may_be_stale = damages > 0 || salvaged.unreadable > 0 || salvaged.doubtful > 0;
    into.sync()?;
    Ok(salvaged)
}

/// Returns the kind of a database and the order of its keys: from the manifest, or else as given,
/// or else as its records show.
fn kind_of(
    remains: &Remains<'_>,
    given: Option<name::Kind>,
    into: &Database,
) -> Result<(StoredKind, KeyOrder)> {
    let asked = match given {
        None => None,
        Some(name::Kind::Hash) => Some(StoredKind::Hash),
        Some(name::Kind::Tree) => Some(StoredKind::Tree),
        Some(name::Kind::Fixed) => Some(StoredKind::Fixed),
        Some(name::Kind::Table) => Some(StoredKind::Table),
        Some(kind @ (name::Kind::MemoryHash | name::Kind::MemoryTree)) => {
            let what = format!(
                "an {} database has no files: give the kind of those to salvage",
                kind.title()
            );
            return Err(Error::InvalidArgument(what));
        }
    };
    if let Some(parameters) = &remains.parameters {
        if asked.is_some_and(|asked| asked != parameters.kind) {
            let what = format!("the database is of kind {:?}: salvage it as such", parameters.kind);
            return Err(Error::InvalidArgument(what));
        }
        let is_tree = matches!(parameters.kind, StoredKind::Tree | StoredKind::Table);
        let order = if is_tree { order_of(parameters) } else { Some(KeyOrder::default()) };
        let unknown = || Error::Unsupported {
            operation: "the order of keys of this database",
            kind: "this version",
            advice: "salvage it with the version that made it",
        };
        return Ok((parameters.kind, order.ok_or_else(unknown)?));
    }
    let mut signs = Signs::default();
    remains.walk(
        &mut |record, _| {
            signs.note(record);
            Ok(())
        },
        &mut |_| (),
    )?;
    let order = signs.order().or(into.order()).unwrap_or_default();
    match asked.or(signs.kind()) {
        Some(StoredKind::Table) => Ok((StoredKind::Table, KeyOrder::Lexical)),
        Some(kind) => Ok((kind, order)),
        None => Err(Error::InvalidArgument(
            "the manifest is lost, and the records do not tell the kind: give the kind".into(),
        )),
    }
}

/// Repeats one change of a hash or fixed-length database.
fn repeat(record: &Record<'_>, into: &Database, salvaged: &mut Salvaged) -> Result<()> {
    match record.kind {
        Kind::Put if record.compression == Compression::None => {
            into.put_with(record.key, record.value, record.meta)?;
        }
        Kind::Put => {
            compress::require(record.compression)?;
            let Ok(value) = compress::decompress(record.value, record.compression) else {
                salvaged.unreadable += 1;
                return Ok(());
            };
            into.put_with(record.key, &value, record.meta)?;
        }
        Kind::Tombstone => {
            into.remove(record.key)?;
        }
        Kind::Batch | Kind::Page | Kind::AppendBlock | Kind::Filler | Kind::Mark => return Ok(()),
    }
    salvaged.changes += 1;
    Ok(())
}

/// Temporary storage in which a tree is rebuilt: a folder beside the other database, or memory if
/// that database is in memory.
struct Scratch {
    folder: Option<PathBuf>,
}

impl Scratch {
    fn beside(into: &Database) -> Result<Self> {
        let own = into.path();
        if !own.is_dir() {
            return Ok(Self { folder: None });
        }
        let mut name = own.into_os_string();
        name.push(".salvage");
        let path = PathBuf::from(name);
        // An existing folder must not be removed.
        match fs::create_dir(&path) {
            Ok(()) => Ok(Self { folder: Some(path) }),
            Err(source) => Err(Error::Io { operation: "create", path, source }),
        }
    }

    fn storage(&self) -> Arc<dyn Storage> {
        match self.folder {
            Some(_) => Arc::new(RealStorage),
            None => Arc::new(MemoryStorage::default()),
        }
    }

    fn tree(&self) -> PathBuf {
        self.folder.as_deref().unwrap_or(Path::new("")).join("casket.tcb")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder
            && let Err(error) = fs::remove_dir_all(folder)
        {
            tracing::warn!("removing {}: {error}", folder.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, Maintenance, Meta, Options};

    #[test]
    fn a_tree_in_memory_may_be_larger_than_its_cache() {
        let options = Options {
            segment_bytes: Some(64 << 10),
            leaf_bytes: Some(512),
            cache_bytes: Some(8 << 10),
            ..Options::default()
        };
        let scratch = Scratch { folder: None };
        let tree =
            TreeDatabase::open_on(scratch.storage(), &scratch.tree(), &options, false).unwrap();
        let value = |round: u32, key: u32| format!("value {key} of round {round}").into_bytes();
        for round in 0..3 {
            for key in 0..2000u32 {
                let value = value(round, key);
                tree.put(&key.to_be_bytes(), &value, Meta::NONE, Wait::Block).unwrap();
            }
            tree.optimize(None).unwrap();
        }
        let mut keys = 0u32;
        tree.each_record(&mut |entry| {
            assert_eq!(entry.value, value(2, keys));
            keys += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(keys, 2000);
    }
}
