//! Importing Tokyo Cabinet's own files.

use super::progress::Progress;
use super::target::Target;
use anyhow::{Context, Result};
use cabinet::legacy::{File, Item, Shape, Visit};
use cabinet::name::{Kind, Specification};
use cabinet::table::{IndexChange, IndexDescription, Table};
use cabinet::{Damage, Meta};
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Damaged places of a file that are printed; the others are counted.
const DAMAGES_SHOWN_MAX: u64 = 100;

/// What became of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Imported {
    /// Records that were stored.
    pub(crate) records: u64,
    /// Damaged places that were reported.
    pub(crate) damages: u64,
}

/// The files meant by paths, of which some may be folders of the files of one partitioned
/// database.
pub(crate) fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut parts = Vec::new();
        for entry in
            fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?
        {
            let part = entry?.path();
            // Their indices and logs come along with them.
            if Kind::of_path(&part).is_some() && cabinet::legacy::is_legacy(&part) {
                parts.push(part);
            }
        }
        anyhow::ensure!(
            !parts.is_empty(),
            "there is no file of Tokyo Cabinet's in the folder {}",
            path.display()
        );
        parts.sort();
        files.append(&mut parts);
    }
    Ok(files)
}

/// Prints a line about damage while there is a bar.
pub(crate) type Print = fn(&Progress, &str);

/// Imports a file; then, if asked, reads everything back.
pub(crate) fn import(
    file: &File,
    target: &mut Target,
    check: bool,
    print: Print,
) -> Result<Imported> {
    let records = file.header().records;
    let was_empty = target.database().is_empty();
    if !was_empty || file.was_open() {
        target.expect_repeats();
    }
    let stored = {
        let progress = Progress::of_records("importing", records);
        let imported = Imported::default();
        let mut store = Store { target, progress, print, imported, failed: None };
        file.read(&mut store)?;
        if let Some(error) = store.failed {
            return Err(error);
        }
        store.imported
    };
    target.flush()?;
    if let Shape::Table { last_unique_id } = file.header().shape {
        finish_table(target.table()?, last_unique_id, &file.indices()?)?;
    }
    if was_empty && stored.damages == 0 && !file.was_open() {
        let count = target.database().len();
        anyhow::ensure!(
            count == stored.records,
            "{} records were read, but the database holds {count}",
            stored.records
        );
    }
    if check {
        let progress = Progress::of_records("checking", stored.records);
        // Behind damage, and in a file whose writer was killed, what is older than something
        // else may have been found as well.
        let may_repeat = stored.damages > 0 || file.was_open();
        let mut check = Check { target, progress, may_repeat, repeated: 0, failed: None };
        file.read(&mut check)?;
        if let Some(error) = check.failed {
            return Err(error);
        }
        if check.repeated > 0 {
            let repeated = check.repeated;
            let line = format!("{repeated} records are older ones of keys that came again");
            print(&check.progress, &line);
        }
    }
    Ok(stored)
}

/// Gives a table the indices of a file, and lets its identifiers go on behind those of the file.
fn finish_table(table: &Table, last_unique_id: u64, indices: &[IndexDescription]) -> Result<()> {
    if table.last_uid() < last_unique_id {
        table.set_uid_seed(last_unique_id)?;
    }
    for index in indices {
        match table.set_index(&index.column, IndexChange::SetNew(index.kind)) {
            // One that the database was given stays.
            Ok(()) | Err(cabinet::Error::IndexExists) => {}
            Err(error) => {
                let column = index.column.escape_ascii().to_string();
                return Err(error).context(format!("cannot index the column {column:?}"));
            }
        }
    }
    Ok(())
}

/// Stores what a file holds.
struct Store<'a> {
    target: &'a mut Target,
    progress: Progress,
    print: Print,
    imported: Imported,
    failed: Option<anyhow::Error>,
}

impl Visit for Store<'_> {
    fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
        let stored = match item {
            Item::Record { key, value } => self.target.put(key, value, Meta::NONE),
            Item::Duplicates { key, values } => self.target.put_all(key, values),
            Item::Row { key, columns } => self.target.put_row(key, columns),
            _ => Err(anyhow::anyhow!("an item of an unknown kind")),
        };
        if let Err(error) = stored {
            let key = item.key().escape_ascii().to_string();
            self.failed = Some(error.context(format!("cannot store the key {key:?}")));
            return ControlFlow::Break(());
        }
        self.imported.records += item.records();
        self.progress.advance(item.records());
        ControlFlow::Continue(())
    }

    fn damage(&mut self, damage: Damage) {
        self.imported.damages += 1;
        self.target.expect_repeats();
        if self.imported.damages <= DAMAGES_SHOWN_MAX {
            (self.print)(&self.progress, &damage.to_string());
        } else if self.imported.damages == DAMAGES_SHOWN_MAX + 1 {
            (self.print)(&self.progress, "there is more; what follows is counted only");
        }
    }
}

/// Looks whether a database holds what a file does.
struct Check<'a> {
    target: &'a Target,
    progress: Progress,
    may_repeat: bool,
    repeated: u64,
    failed: Option<anyhow::Error>,
}

impl Visit for Check<'_> {
    fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
        let held = match item {
            Item::Record { key, value } => self.target.has(key, &[value]),
            Item::Duplicates { key, values } => self.target.has(key, values),
            Item::Row { key, columns } => self.target.has_row(key, columns),
            _ => Ok(false),
        };
        self.progress.advance(item.records());
        let key = || item.key().escape_ascii().to_string();
        self.failed = match held {
            Ok(true) => return ControlFlow::Continue(()),
            Ok(false) if self.may_repeat => {
                self.repeated += item.records();
                return ControlFlow::Continue(());
            }
            Ok(false) => Some(anyhow::anyhow!("the key {:?} was not stored as it is", key())),
            Err(error) => Some(error.context(format!("cannot read the key {:?} back", key()))),
        };
        ControlFlow::Break(())
    }

    fn damage(&mut self, _damage: Damage) {}
}

/// The database of this name, or, if it is yet to be created, one that is as the file where the
/// name does not say otherwise.
pub(crate) fn adopt(name: &str, file: &File) -> Result<Specification> {
    let mut specification = Specification::parse(name)?;
    let options = &mut specification.options;
    if !specification.path.exists() {
        match file.header().shape {
            Shape::Tree { order, .. } => options.order = options.order.or(order),
            Shape::Fixed { width, limit_bytes, .. } => {
                options.width = options.width.or(Some(width));
                options.limit_bytes = options.limit_bytes.or(Some(limit_bytes));
            }
            _ => {}
        }
    }
    Ok(specification)
}

/// What a file is, in a line.
pub(crate) fn describe(file: &File) -> String {
    let header = file.header();
    let mut words = vec![format!("{} database", header.kind.title())];
    if let Shape::Tree { order, .. } = header.shape {
        let order = cabinet::Order::NAMES.iter().find(|(_, other)| Some(*other) == order);
        words.push(format!("in {} order", order.map_or("a custom", |(name, _)| name)));
    }
    words.push(format!("of Tokyo Cabinet's, {} records", header.records));
    if file.was_open() {
        words.push("(it was not closed)".into());
    }
    words.join(" ")
}
