//! Creating a backup.

use super::catalog::{Catalog, Stamp};
use super::repository::Repository;
use super::source::Source;
use crate::time;
use crate::transfer::progress::Progress;
use anyhow::{Context, Result, bail};
use cabinet::{Damage, Inventory};
use std::collections::BTreeMap;

/// Advice after an interruption.
const UNCHANGED: &str = "the repository has the backups that it had; run the same command again, \
                         and files that were copied are not copied twice";

/// Options of a backup.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CreateOptions {
    /// Copy everything again, including the files in the repository.
    pub(crate) full: bool,
    /// Back up a damaged database as it is.
    pub(crate) accept_damage: bool,
    /// Add the backup to those of another database.
    pub(crate) accept_other_database: bool,
}

/// A new backup.
#[derive(Clone, Debug)]
pub(crate) struct Created {
    pub(crate) name: String,
    pub(crate) catalog: Catalog,
}

/// Creates a backup. Passes damage of the database to `report`.
pub(crate) fn create(
    repository: &Repository,
    source: &Source,
    making: CreateOptions,
    report: &mut dyn FnMut(Damage),
) -> Result<Created> {
    let made_us = time::now_us();
    let making_copy = Progress::of_time("copying the database").explain(UNCHANGED);
    let snapshot = source.snapshot(&making_copy)?;
    drop(making_copy);
    let path = snapshot.path();
    let failed = || format!("cannot read {}", path.display());
    let inventory = Inventory::of(path).with_context(failed)?;
    let newest = repository.newest()?;
    if let Some((name, newest)) = newest
        && newest.database_id != inventory.database_id
        && !making.accept_other_database
    {
        bail!(
            "the newest backup of this repository, {name}, is of another {} database (id {:016x}) \
             than {}, a {} database (id {:016x}), and a restore takes the newest: give each \
             database a repository of its own, or, if this one replaces the other, pass \
             --accept-other-database",
            newest.kind.title(),
            newest.database_id,
            source.name(),
            inventory.kind.title(),
            inventory.database_id
        );
    }
    let known =
        if making.full { Default::default() } else { repository.known(inventory.database_id)? };
    // Files in the repository were already verified when they were copied.
    let mut present = BTreeMap::new();
    let mut bytes = 0;
    for name in &inventory.files {
        let metadata = path.join(name).metadata().with_context(failed)?;
        match known.get(&(name.clone(), Stamp::of(&metadata))) {
            Some(entry) => drop(present.insert(name.as_str(), entry)),
            None => bytes += metadata.len(),
        }
    }
    let is_new = |name: &str| !present.contains_key(name);
    let checking = Progress::of_time("checking new files").explain(UNCHANGED);
    let checked = cabinet::check_those(path, &is_new, report).with_context(failed)?;
    drop(checking);
    if checked.damages > 0 && !making.accept_damage {
        bail!(
            "the database is damaged and was not backed up: tyrant salvage saves what can be read, \
             --accept-damage backs it up as it is"
        );
    }
    let progress = Progress::of_bytes("copying", Some(bytes)).explain(UNCHANGED);
    let position = snapshot.position()?;
    let mut catalog = Catalog {
        made_us,
        kind: inventory.kind,
        database_id: inventory.database_id,
        position_us: position.as_ref().map(|position| position.timestamp_us),
        log: position.and_then(|position| position.log),
        copied_bytes: 0,
        files: Vec::new(),
    };
    for name in &inventory.files {
        if let Some(entry) = present.get(name.as_str()) {
            catalog.files.push((*entry).clone());
            continue;
        }
        let added = repository.add(&path.join(name), name, making.full)?;
        catalog.copied_bytes += added.copied_bytes;
        progress.advance(added.entry.sums.bytes);
        catalog.files.push(added.entry);
    }
    let name = repository.finish(&mut catalog)?;
    snapshot.remove().with_context(|| {
        format!(
            "the backup {name} is complete, but the copy from which it was made is still there and \
             has to be removed"
        )
    })?;
    Ok(Created { name, catalog })
}
