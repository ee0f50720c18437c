//! Import target: the database that records are imported into.

use super::ids::IdLimits;
use crate::plural::counted;
use crate::say::say;
use anyhow::{Context, Result, bail, ensure};
use cabinet::name::{Kind, Specification};
use cabinet::table::{Row, RowView, Table};
use cabinet::{Batch, Database, Meta, Side};
use server::{media_type_flags, put_of_front_end};
use std::path::{Path, PathBuf};

/// Approximate bytes of keys and values per batch.
const BATCH_BYTES: usize = 1 << 20;

/// Records per batch.
const BATCH_RECORDS: usize = 1000;

/// A record of the batch.
struct Pending {
    key: Vec<u8>,
    value: Vec<u8>,
    meta: Meta,
    /// Line that it comes from.
    line: u64,
}

/// Whether a command makes the database that it writes to. One that it leaves empty is removed if
/// the command fails, or has read no records.
#[derive(Default)]
pub(crate) struct MadeDatabase(Option<PathBuf>);

impl MadeDatabase {
    /// Looks for the database, before it is opened.
    pub(crate) fn before(specification: &Specification) -> Self {
        let path = Some(&specification.path);
        let is_new = !specification.kind.is_on_memory() && !specification.path.exists();
        Self(path.filter(|_| is_new).cloned())
    }

    /// Removes the database, which must be closed, if the command has made it.
    pub(crate) fn remove(&self) {
        if let Some(path) = &self.0 {
            // The failure of the command is what it reports.
            let _ = std::fs::remove_dir_all(path);
        }
    }

    /// Prints how many records the database has, which must be closed. One that the command has
    /// made is removed if it has none.
    pub(crate) fn conclude(&self, path: &Path, records: u64) {
        let shown = path.display();
        if records > 0 || self.0.is_none() {
            say!("{} in {shown}", counted(records, "record", "records"));
        } else {
            self.remove();
            say!("no records were imported, so {shown} is not made");
        }
    }
}

/// A database that is written in batches.
pub(crate) struct Target {
    database: Database,
    kind: Kind,
    batch: Vec<Pending>,
    batch_bytes: usize,
    /// Records written to the database.
    stored: u64,
    /// Line that the next record comes from.
    line: u64,
    may_repeat: bool,
    /// Whether a record could not be stored.
    has_failed: bool,
}

impl Target {
    /// Opens or creates the database with this name.
    pub(crate) fn open(specification: &Specification) -> Result<Self> {
        let Specification { kind, path, .. } = specification;
        ensure!(
            !kind.is_on_memory(),
            "a database in memory would be lost after the import: name one on disk"
        );
        let database = Database::open_specification(specification)
            .with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self {
            may_repeat: !database.is_empty(),
            database,
            kind: *kind,
            batch: Vec::new(),
            batch_bytes: 0,
            stored: 0,
            line: 0,
            has_failed: false,
        })
    }

    /// Returns the database. The last puts may be missing before [`Target::flush`].
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Returns the number of records or rows written.
    pub(crate) fn stored(&self) -> u64 {
        self.stored
    }

    /// Sets the line that the next record comes from.
    pub(crate) fn begin_line(&mut self, line: u64) {
        self.line = line;
    }

    /// Returns the line that the last record came from. After a failure it is that of the record
    /// that could not be stored.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Returns whether no record waits to be written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.batch.is_empty()
    }

    /// Makes later flushes fail, after a record that could not be stored: a signal must not report
    /// that all are.
    pub(crate) fn note_failure(&mut self) {
        self.has_failed = true;
    }

    /// Returns what a fixed-length database requires of a record.
    pub(crate) fn id_limits(&self) -> Option<IdLimits> {
        self.database.as_numbered().map(IdLimits::of)
    }

    /// Returns the kind of the database.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Makes later puts expect existing keys. Before, a database that was empty is not searched for
    /// them.
    pub(crate) fn expect_repeats(&mut self) {
        self.may_repeat = true;
    }

    /// Stores a record, replacing the values of its key.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], meta: Meta) -> Result<()> {
        ensure!(self.kind != Kind::Table, "a table takes rows, not records");
        let (key, value) = (key.to_vec(), value.to_vec());
        self.batch_bytes += key.len() + value.len();
        self.batch.push(Pending { key, value, meta, line: self.line });
        if self.batch.len() >= BATCH_RECORDS || self.batch_bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Stores a single record: in a database with duplicates after the values of its key, else
    /// replacing them.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8], meta: Meta) -> Result<()> {
        if self.kind != Kind::Tree {
            return self.put(key, value, meta);
        }
        // Earlier puts must be written first.
        self.flush()?;
        self.database.put_duplicate_with(key, value, meta, Side::After)?;
        self.stored += 1;
        Ok(())
    }

    /// Stores a single record whose flags stand for a media type.
    pub(crate) fn add_typed(
        &mut self,
        key: &[u8],
        value: &[u8],
        media_type: &str,
        expires_at_ms: u64,
    ) -> Result<()> {
        let flags = media_type_flags(&self.database, media_type)?;
        self.add(key, value, Meta { flags, expires_at_ms })
    }

    /// Stores a record of a front end of the server.
    pub(crate) fn put_reserved(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let has_any_keys = !matches!(self.kind, Kind::Table | Kind::Fixed);
        ensure!(has_any_keys, "a {} database has no reserved records", self.kind.title());
        Ok(put_of_front_end(&self.database, name, value)?)
    }

    /// Stores one or more values of a key, replacing its values.
    pub(crate) fn put_all(&mut self, key: &[u8], values: &[&[u8]]) -> Result<()> {
        if self.kind == Kind::Tree && self.may_repeat {
            self.flush()?;
            self.database.remove_all(key)?;
        }
        match values {
            [value] => self.put(key, value, Meta::NONE),
            _ if self.kind == Kind::Tree => {
                for value in values {
                    self.add(key, value, Meta::NONE)?;
                }
                Ok(())
            }
            _ => bail!(
                "a key with {} values needs a B+ tree database, and this is a {} database",
                values.len(),
                self.kind.title()
            ),
        }
    }

    /// Stores a row, replacing the row of its key.
    pub(crate) fn put_row(&mut self, key: &[u8], columns: &[(&[u8], &[u8])]) -> Result<()> {
        let mut row = Row::new();
        for (name, value) in columns {
            row.set(name, value)?;
        }
        self.table()?.put(key, &row)?;
        self.stored += 1;
        Ok(())
    }

    /// Returns the database as a table.
    pub(crate) fn table(&self) -> Result<&Table> {
        self.database.table().with_context(|| {
            format!("a row needs a table database, and this is a {} database", self.kind.title())
        })
    }

    /// Writes the batch. If a record cannot be stored, those before it are. Fails again after a
    /// failure, and the records that are not stored stay in the batch.
    pub(crate) fn flush(&mut self) -> Result<()> {
        ensure!(!self.has_failed, "a record before could not be stored");
        let records = &self.batch;
        if records.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        records.iter().for_each(|Pending { key, value, meta, .. }| batch.put(key, value, *meta));
        if self.database.write(&batch).is_ok() {
            self.stored += records.len() as u64;
        } else {
            self.write_one_by_one()?;
        }
        self.batch.clear();
        self.batch_bytes = 0;
        Ok(())
    }

    /// Writes the batch up to the first record that fails.
    fn write_one_by_one(&mut self) -> Result<()> {
        let last = self.line;
        for Pending { key, value, meta, line } in &self.batch {
            self.line = *line;
            if let Err(error) = self.database.put_with(key, value, *meta) {
                self.has_failed = true;
                return Err(error.into());
            }
            self.stored += 1;
        }
        self.line = last;
        Ok(())
    }

    /// Returns whether a key has exactly these values.
    pub(crate) fn has(&self, key: &[u8], values: &[&[u8]]) -> Result<bool> {
        if self.kind == Kind::Tree {
            return Ok(self.database.get_all(key)? == values);
        }
        let [value] = values else { return Ok(false) };
        Ok(self.database.read(key, |entry| entry.value == *value)?.unwrap_or(false))
    }

    /// Returns whether a key has exactly this row.
    pub(crate) fn has_row(&self, key: &[u8], columns: &[(&[u8], &[u8])]) -> Result<bool> {
        let is_same = |row: RowView<'_>| row.columns().eq(columns.iter().copied());
        Ok(self.table()?.read(key, is_same)?.unwrap_or(false))
    }
}
