//! Serving a Tokyo Cabinet file: imports it once, into a database beside it.

use super::legacy::{self, damaged_places};
use super::target::Target;
use crate::plural::counted;
use crate::temporary::TemporaryFolder;
use anyhow::{Context, Result, bail};
use cabinet::files::{folder_of, sync_folder};
use cabinet::legacy::{File, is_legacy};
use cabinet::name::{Kind, Specification};
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Returns the name of the database to serve for `name`. For a Tokyo Cabinet file, the file is
/// imported into the database `into`; the default is `X.imported.tch` for `X.tch`, with the same
/// tuning. An existing database of that name is used as it is. Any other `name` is returned
/// unchanged.
///
/// During an import, and after a killed one, the partial database is called
/// `X.importing-DIGITS.tch`.
pub(crate) fn import_if_legacy(name: &str, into: Option<&str>) -> Result<String> {
    let (path, tuning) = name.find('#').map_or((name, ""), |at| name.split_at(at));
    let path = Path::new(path);
    if !is_legacy(path) {
        if !path.exists() {
            tracing::warn!(
                "there is no {}, so nothing is imported: check its name",
                path.display()
            );
        }
        return Ok(name.to_owned());
    }
    let file = File::open(path)?;
    let name = match into {
        Some(into) => into.to_owned(),
        None => {
            let imported = path.with_extension(with_suffix("imported", file.header().kind));
            let imported = imported.to_str().context("the path is not UTF-8")?;
            format!("{imported}{tuning}")
        }
    };
    let specification = legacy::adopt(&name, &file)?;
    let imported = specification.path.clone();
    if imported.exists() {
        tracing::info!("{} was already imported", path.display());
        return Ok(name);
    }
    let temporary = temporary(&specification)?;
    tracing::info!(
        "importing {} ({}) into {}",
        path.display(),
        legacy::describe(&file),
        imported.display()
    );
    let records = import(&file, specification, &temporary)
        .with_context(|| format!("cannot import {}", path.display()))?;
    tracing::info!("{} imported", counted(records, "record", "records"));
    Ok(name)
}

/// Claims a temporary name for a database. The leftovers of killed imports are removed.
fn temporary(specification: &Specification) -> Result<TemporaryFolder> {
    let report = |error| tracing::warn!("a leftover of an earlier import remains: {error:#}");
    let words = ("importing", "another process is importing into");
    TemporaryFolder::beside_database(&specification.path, suffix(specification.kind), words, report)
}

/// Imports under a temporary name, renamed at the end.
fn import(
    file: &File,
    mut specification: Specification,
    temporary: &TemporaryFolder,
) -> Result<u64> {
    let imported = std::mem::replace(&mut specification.path, temporary.path().to_owned());
    let mut target = Target::open(&specification)?;
    let print = |_: &_, line: &str| tracing::error!("{line}");
    let advice = "the next start imports the file from its beginning";
    let stored = legacy::import(file, &mut target, true, print, advice)?;
    if stored.damages > 0 || stored.refused > 0 {
        let limits = target.id_limits();
        let rest =
            format!("`tyrant import {} --into NAME` imports the rest", file.path().display());
        if stored.damages > 0 {
            bail!("{}; {rest}", damaged_places(stored.damages));
        }
        let required = limits.map(|limits| limits.describe()).unwrap_or_default();
        let refused = counted(stored.refused, "record", "records");
        bail!("{refused} cannot be imported: {required}; {rest}");
    }
    target.database().sync()?;
    drop(target);
    // A signal now would remove a part of the imported database.
    let _signals = temporary.hold_signals();
    // It fails if another process has imported the file meanwhile.
    fs::rename(temporary.path(), &imported)
        .with_context(|| format!("cannot rename to {}", imported.display()))?;
    sync_folder(folder_of(&imported))?;
    Ok(stored.records)
}

/// Returns a word with the suffix of a kind of database on disk.
fn with_suffix(word: &str, kind: Kind) -> OsString {
    format!("{word}.{}", suffix(kind)).into()
}

/// Returns the suffix of the name of a database on the disk.
pub(crate) fn suffix(kind: Kind) -> &'static str {
    match kind {
        Kind::Tree => "tcb",
        Kind::Fixed => "tcf",
        Kind::Table => "tct",
        _ => "tch",
    }
}
