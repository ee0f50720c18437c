//! Importing Tokyo Cabinet's files.

use super::ids::{IdLimits, Refused};
use super::progress::Progress;
use super::target::Target;
use crate::bytes::quoted;
use crate::plural::{counted, unit};
use anyhow::{Context, Result, ensure};
use cabinet::legacy::{File, Item, Shape, Visit};
use cabinet::name::{Kind, Specification};
use cabinet::table::{IndexChange, IndexDescription, Table};
use cabinet::{Damage, Meta};
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Damaged ranges of a file that are printed; the others are only counted.
pub(crate) const DAMAGES_SHOWN_MAX: u64 = 100;

/// Outcome of importing a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Imported {
    /// Stored records.
    pub(crate) records: u64,
    /// Reported damaged ranges.
    pub(crate) damages: u64,
    /// Records that a fixed-length database cannot have.
    pub(crate) refused: u64,
}

/// Returns the files at these paths. A path may be a folder with the files of one partitioned
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
            // Their indices and logs are imported with them.
            if Kind::of_path(&part).is_some() && cabinet::legacy::is_legacy(&part) {
                parts.push(part);
            }
        }
        let shown = path.display();
        let is_database = parts.is_empty() && path.join("manifest").is_file();
        ensure!(
            !is_database,
            "{shown} is a database of this project already: \"tyrant export {shown} FILE\" writes its \
             records, which \"tyrant import FILE --into NAME\" reads; a copy of the folder, while it \
             is not open, is the same database"
        );
        ensure!(!parts.is_empty(), "no Tokyo Cabinet file in the folder {shown}");
        parts.sort();
        files.append(&mut parts);
    }
    Ok(files)
}

/// Returns how many damaged ranges were found.
pub(crate) fn damaged_places(damages: u64) -> String {
    counted(damages, "damaged place was found", "damaged places were found")
}

/// Prints a line about damage while a progress bar is shown.
pub(crate) type Print = fn(&Progress, &str);

/// Imports a file. With `check`, reads everything back. After an interruption, `remaining` says
/// what the user can do.
pub(crate) fn import(
    file: &File,
    target: &mut Target,
    check: bool,
    print: Print,
    remaining: &str,
) -> Result<Imported> {
    let records = file.header().records;
    let was_empty = target.database().is_empty();
    if !was_empty || file.was_open() {
        target.expect_repeats();
    }
    let stored = {
        let progress = Progress::of_records("importing", records).explain(remaining);
        let imported = Imported::default();
        let limits = target.id_limits();
        let place = file.path().display().to_string();
        let refused = Refused::default();
        let mut store =
            Store { target, limits, place, refused, progress, print, imported, failed: None };
        file.read(&mut store)?;
        if let Some(error) = store.failed {
            return Err(error);
        }
        Imported { refused: store.refused.count, ..store.imported }
    };
    target.flush()?;
    if let Shape::Table { last_unique_id } = file.header().shape {
        finish_table(target.table()?, last_unique_id, &file.indices()?)?;
    }
    if was_empty && stored.damages == 0 && !file.was_open() {
        let count = target.database().len();
        ensure!(
            count == stored.records,
            "{} read, but the database has {count}",
            counted(stored.records, "record was", "records were")
        );
    }
    if check {
        let advice = "all records are imported, and not all were read back";
        let progress = Progress::of_records("checking", stored.records).explain(advice);
        let limits = target.id_limits();
        // After damage, and in a file that was not closed, outdated records may have been found as
        // well.
        let may_repeat = stored.damages > 0 || file.was_open();
        let mut check = Check { target, limits, progress, may_repeat, repeated: 0, failed: None };
        file.read(&mut check)?;
        if let Some(error) = check.failed {
            return Err(error);
        }
        if check.repeated > 0 {
            let older = "is an older version of a key found again";
            let olders = "are older versions of keys found again";
            let repeated = counted(check.repeated, "record", "records");
            let line = format!("{repeated} {}", unit(check.repeated, older, olders));
            print(&check.progress, &line);
        }
    }
    Ok(stored)
}

/// Gives a table the indices of a file, and makes its ids continue after those of the file.
fn finish_table(table: &Table, last_unique_id: u64, indices: &[IndexDescription]) -> Result<()> {
    if table.last_uid() < last_unique_id {
        table.set_uid_seed(last_unique_id)?;
    }
    for index in indices {
        match table.set_index(&index.column, IndexChange::SetNew(index.kind)) {
            // An index that the database was given is kept.
            Ok(()) | Err(cabinet::Error::IndexExists) => {}
            Err(error) => {
                let column = index.column.escape_ascii().to_string();
                return Err(error).context(format!("cannot index the column {column:?}"));
            }
        }
    }
    Ok(())
}

/// Stores the items of a file.
struct Store<'a> {
    target: &'a mut Target,
    limits: Option<IdLimits>,
    /// Name of the file.
    place: String,
    refused: Refused,
    progress: Progress,
    print: Print,
    imported: Imported,
    failed: Option<anyhow::Error>,
}

impl Visit for Store<'_> {
    fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
        if let Some(reason) = refusal(self.limits, item) {
            let (print, progress) = (self.print, &self.progress);
            self.refused.note(&self.place, &reason, |line| print(progress, line));
            self.progress.advance(item.records());
            return ControlFlow::Continue(());
        }
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
            (self.print)(&self.progress, "further damage is only counted");
        }
    }
}

/// Returns why a fixed-length database with these limits cannot have a record.
fn refusal(limits: Option<IdLimits>, item: &Item<'_>) -> Option<String> {
    let limits = limits?;
    match item {
        Item::Record { key, value } => limits.refusal(key, value),
        // Trees have lists of values, most of them of one.
        Item::Duplicates { key, values } => match &values[..] {
            [value] => limits.refusal(key, value),
            values => {
                let (key, count) = (quoted(key), values.len());
                Some(format!("the key {key} has {count} values, and an id has one"))
            }
        },
        _ => None,
    }
}

/// Checks that a database contains the items of a file.
struct Check<'a> {
    target: &'a Target,
    limits: Option<IdLimits>,
    progress: Progress,
    may_repeat: bool,
    repeated: u64,
    failed: Option<anyhow::Error>,
}

impl Visit for Check<'_> {
    fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
        if refusal(self.limits, item).is_some() {
            return ControlFlow::Continue(());
        }
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
            Ok(false) => Some(anyhow::anyhow!("the key {:?} was not stored correctly", key())),
            Err(error) => Some(error.context(format!("cannot read the key {:?} back", key()))),
        };
        ControlFlow::Break(())
    }

    fn damage(&mut self, _damage: Damage) {}
}

/// Returns the specification of the database with this name. A new database takes the file's
/// properties where the name has none.
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

/// Describes a file in one line.
pub(crate) fn describe(file: &File) -> String {
    let header = file.header();
    let mut words = vec![format!("{} database", header.kind.title())];
    if let Shape::Tree { order, .. } = header.shape {
        let order = cabinet::KeyOrder::NAMES.iter().find(|(_, other)| Some(*other) == order);
        words.push(format!("in {} order", order.map_or("a custom", |(name, _)| name)));
    }
    words.push(format!("of Tokyo Cabinet's, {}", counted(header.records, "record", "records")));
    if file.was_open() {
        words.push("(it was not closed)".into());
    }
    words.join(" ")
}
