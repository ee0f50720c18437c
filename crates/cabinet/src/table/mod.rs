//! The table database (`.tct`): rows of columns, indices over columns, and queries.
//!
//! Rows and the postings of all indices are in one engine that keeps its keys in order. Rows are
//! records of the engine. [`postings`] stores the postings in blocks, and keeps the latest changes
//! in memory. A row and its postings change atomically, even if the process crashes.
//! `docs/formats/table.md` draws the records. `docs/queries.md` defines queries and describes how
//! they are executed.
//!
//! # Locks
//!
//! In the order in which they are taken: `building` (one index at a time is built or removed); the
//! lock of eviction, if the table has a cap; `structure` (the list of indices: read by every change
//! of a row, written while the list changes); a stripe (changes of one row queue there); the locks
//! of the postings; the locks of the engine. A query only holds read locks of the indices that it
//! may walk, so that their postings are not removed.

mod accents;
mod access_path;
mod condition;
mod cursor;
mod engine;
mod evict;
mod executor;
mod expression;
mod formula;
mod index;
mod keys;
mod kwic;
mod matcher;
mod meta;
mod normalise;
mod number;
#[cfg(feature = "internals")]
pub mod outside;
mod plan;
mod postings;
mod query;
mod recover;
#[cfg(feature = "internals")]
mod request;
mod row;
mod salvage;
mod search;
mod set_operations;
mod sort;
mod sort_order;
mod tokens;
mod write;

pub use crate::base::column_index::{IndexChange, IndexDescription, IndexKind};
pub use condition::{Condition, Operator};
pub use kwic::{Kwic, Mark};
pub use query::{Query, Report, SetOperation};
#[cfg(feature = "internals")]
pub use request::{SearchAnswer, SearchRequest};
pub use row::{Row, RowView};
pub use sort_order::{SortKind, SortOrder};

use crate::base::reentry;
use crate::scan::{step_past_damage, step_until_break};
use crate::{Durability, Engine, Error, Options, Result, ScanCursor, TreeDatabase, Visit, Wait};
use index::Index;
use parking_lot::{Mutex, RwLock};
use postings::{Flusher, PostingStore};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use write::RowChange;

/// The column that [`Table::add_int`] and [`Table::add_double`] add to.
pub const NUMBER_COLUMN: &[u8] = b"_num";

/// Number of identifiers that are reserved with one write. A crash loses those that were not used.
const UIDS_SET_ASIDE: u64 = 1000;

/// An open table. All methods may be called from any thread at once.
///
/// Callbacks that get a borrowed row must not call the table: methods that return a [`Result`] fail
/// there with [`Error::Reentrant`], see [`crate::Database`]. Visitors of the results of a query may
/// read and change rows.
///
/// ```
/// # fn main() -> cabinet::Result<()> {
/// use cabinet::Options;
/// use cabinet::table::{IndexChange, IndexKind, Operator, SortKind, Query, Row, Table};
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("people.tct");
/// let table = Table::open(&path, &Options::default())?;
/// table.set_index(b"age", IndexChange::Set(IndexKind::Decimal))?;
/// table.put(b"p1", &Row::new().with(b"name", b"ann")?.with(b"age", b"30")?)?;
/// table.put(b"p2", &Row::new().with(b"name", b"bob")?.with(b"age", b"9")?)?;
///
/// let adults = Query::new()
///     .with(b"age", Operator::NumberGreaterEqual, b"18")
///     .order_by(b"name", SortKind::StringAscending);
/// assert_eq!(table.search(&adults)?.0, [b"p1"]);
/// # Ok(())
/// # }
/// ```
pub struct Table {
    engine: Arc<dyn Engine>,
    postings: Arc<PostingStore>,
    /// Flusher of the postings, if the table was opened by its path.
    flusher: Option<Flusher>,
    /// All indices, including those that are being built.
    structure: RwLock<Vec<Arc<Index>>>,
    /// The rows, as the index of primary keys.
    rows_index: Arc<Index>,
    last_index_id: AtomicU32,
    building: Mutex<()>,
    stripes: Box<[Mutex<()>]>,
    rows: AtomicI64,
    uid: Mutex<Uid>,
    /// Last identifier that was used. Read without waiting.
    last_uid: AtomicU64,
    /// Indices that are ready. Read without waiting.
    ready: Mutex<Vec<IndexDescription>>,
    query_memory_bytes: usize,
    is_read_only: bool,
}

/// State of the identifiers.
struct Uid {
    /// Last identifier that was used.
    last: u64,
    /// Last identifier that is reserved on the disk.
    set_aside: u64,
}

impl Table {
    /// Opens the table in a directory, or creates it there. The options were checked.
    pub(crate) fn open_checked(path: &Path, options: &Options) -> Result<Self> {
        let storage = crate::io::storage(options.read_only);
        let tree = TreeDatabase::open_table_on(storage, path, options, !options.read_only)?;
        let mut table = Self::of_engine(Arc::new(tree), options)?;
        if !options.read_only {
            table.flusher = Some(Flusher::start(&table.postings)?);
        }
        for index in options.indices.iter().filter(|_| !options.read_only) {
            match table.set_index(&index.column, IndexChange::SetNew(index.kind)) {
                Ok(()) | Err(Error::IndexExists) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(table)
    }

    /// Opens or creates a table in an engine whose keys are in lexical order, and which has no
    /// other records. Uses only the options `read_only`, `query_memory_bytes` and `cache_bytes`.
    #[cfg(feature = "internals")]
    pub fn new(engine: Arc<dyn Engine>, options: &Options) -> Result<Self> {
        Self::of_engine(engine, options)
    }

    fn of_engine(engine: Arc<dyn Engine>, options: &Options) -> Result<Self> {
        let path = engine.medium().path();
        Self::of(engine, options).map_err(|error| recover::with_way_out(&path, error))
    }

    fn of(engine: Arc<dyn Engine>, options: &Options) -> Result<Self> {
        let is_read_only = options.read_only;
        meta::check_layout(&*engine, is_read_only)?;
        let definitions = meta::read_definitions(&*engine)?;
        let is_suspect = meta::is_suspect(&*engine)?;
        if is_suspect {
            recover::forget_postings(&*engine, is_read_only)?;
        }
        if !is_read_only {
            for id in &definitions.dropped {
                index::build::remove_postings(&*engine, *id)?;
            }
        }
        let mut uid = meta::read_uid(&*engine)?;
        let rows = match meta::take_clean_rows(&*engine, is_read_only)? {
            Some(rows) if !is_suspect => rows,
            _ => {
                let survey = recover::survey_rows(&*engine)?;
                if is_suspect {
                    uid = uid.max(survey.uid);
                }
                survey.rows
            }
        };
        let ids = definitions.indices.iter().map(|index| index.id);
        let last_id = ids.chain(definitions.dropped.iter().copied()).max().unwrap_or(0);
        let postings = Arc::new(PostingStore::new(Arc::clone(&engine), options));
        let mut table = Self {
            postings,
            flusher: None,
            structure: RwLock::new(definitions.indices),
            rows_index: Arc::new(Index::new(0, b"", IndexKind::Lexical, true)),
            last_index_id: AtomicU32::new(last_id),
            building: Mutex::new(()),
            stripes: (0..write::STRIPES).map(|_| Mutex::new(())).collect(),
            rows: AtomicI64::new(i64::try_from(rows).unwrap_or(i64::MAX)),
            uid: Mutex::new(Uid { last: uid, set_aside: uid }),
            last_uid: AtomicU64::new(uid),
            ready: Mutex::default(),
            query_memory_bytes: usize::try_from(options.query_memory_bytes).unwrap_or(usize::MAX),
            is_read_only,
            engine,
        };
        table.note_ready(&table.structure.read());
        let recovered =
            if is_suspect { table.rebuild_postings() } else { table.recover_postings() };
        if let Err(error) = recovered {
            // The state is not understood, so nothing may be written.
            table.is_read_only = true;
            return Err(error);
        }
        Ok(table)
    }

    /// Restores the postings that had not reached their blocks when the process ended.
    fn recover_postings(&self) -> Result<()> {
        let structure = self.structure.read();
        self.postings.recover(|primary, before| {
            let now = self.stored(primary)?.map(|(row, _)| row);
            let postings = |row| write::postings_of(&structure, primary, row);
            Ok((postings(before), postings(now.as_deref())))
        })
    }

    /// Stores a row, and replaces the old one if there is one.
    pub fn put(&self, primary: &[u8], row: &Row) -> Result<()> {
        self.enter()?;
        let mut stored = Some(row.encode()?);
        self.change(primary, Wait::Block, &mut |_| {
            let stored = match stored.take() {
                Some(stored) => stored,
                None => row.encode()?,
            };
            Ok((RowChange::Put(stored), ()))
        })
    }

    /// Stores a row if there is none under the primary key. Returns whether it did.
    pub fn put_keep(&self, primary: &[u8], row: &Row) -> Result<bool> {
        self.enter()?;
        self.change(primary, Wait::Block, &mut |old| match old {
            Some(_) => Ok((RowChange::Keep, false)),
            None => Ok((RowChange::Put(row.encode()?), true)),
        })
    }

    /// Adds the columns that the stored row lacks. Stores `row` if there is none.
    pub fn put_cat(&self, primary: &[u8], row: &Row) -> Result<()> {
        self.enter()?;
        self.cat(primary, row, Wait::Block)
    }

    pub(crate) fn cat(&self, primary: &[u8], row: &Row, wait: Wait) -> Result<()> {
        self.change(primary, wait, &mut |old| {
            let mut whole = old.map(|(old, _)| old.to_row()).unwrap_or_default();
            whole.add_missing(row);
            Ok((RowChange::Put(whole.encode()?), ()))
        })
    }

    /// Changes a row atomically. `decide` gets the row (`None` if there is none), changes it, and
    /// returns whether to store the result; `None` removes the row. May call `decide` again if
    /// another writer has changed the row.
    pub fn modify(
        &self,
        primary: &[u8],
        mut decide: impl FnMut(&mut Option<Row>) -> bool,
    ) -> Result<()> {
        self.enter()?;
        self.change(primary, Wait::Block, &mut |old| {
            let mut row = old.map(|(old, _)| old.to_row());
            let is_changed = self.call(|| decide(&mut row));
            Ok(match row {
                _ if !is_changed => (RowChange::Keep, ()),
                Some(row) => (RowChange::Put(row.encode()?), ()),
                None => (RowChange::Remove, ()),
            })
        })
    }

    /// Removes a row. Returns whether there was one.
    pub fn remove(&self, primary: &[u8]) -> Result<bool> {
        self.enter()?;
        self.change(primary, Wait::Block, &mut |old| Ok((RowChange::Remove, old.is_some())))
    }

    /// Returns the row under a primary key.
    pub fn get(&self, primary: &[u8]) -> Result<Option<Row>> {
        self.enter()?;
        self.read_waiting(primary, Wait::Block, |row| row.to_row())
    }

    /// Calls `visit` with the row under a primary key. Returns its result; `None` if there is no
    /// row.
    pub fn read<T>(
        &self,
        primary: &[u8],
        visit: impl FnOnce(RowView<'_>) -> T,
    ) -> Result<Option<T>> {
        self.enter()?;
        self.read_waiting(primary, Wait::Block, |row| self.call(|| visit(row)))
    }

    pub(crate) fn read_waiting<T>(
        &self,
        primary: &[u8],
        wait: Wait,
        visit: impl FnOnce(RowView<'_>) -> T,
    ) -> Result<Option<T>> {
        write::check_primary(primary)?;
        let mut visit = Some(visit);
        let mut result = None;
        self.engine.read(&keys::row(primary), wait, &mut |entry| {
            result = visit.take().map(|visit| visit(RowView::new(entry.value)));
        })?;
        Ok(result)
    }

    /// Adds to the number in the column [`NUMBER_COLUMN`], and returns the sum without its
    /// fraction. Creates the row and the column if they do not exist. Fails like
    /// [`Table::add_double`].
    pub fn add_int(&self, primary: &[u8], addend: i32) -> Result<i32> {
        Ok(self.add_double(primary, f64::from(addend))? as i32)
    }

    /// Adds to the number in the column [`NUMBER_COLUMN`], and returns the sum. Creates the row and
    /// the column if they do not exist. Fails with [`Error::NotANumber`] if the sum is not a
    /// number.
    pub fn add_double(&self, primary: &[u8], addend: f64) -> Result<f64> {
        self.enter()?;
        self.add(primary, addend, Wait::Block)
    }

    pub(crate) fn add(&self, primary: &[u8], addend: f64, wait: Wait) -> Result<f64> {
        self.change(primary, wait, &mut |old| {
            let mut row = old.map(|(old, _)| old.to_row()).unwrap_or_default();
            let sum = row.add_number(addend)?;
            Ok((RowChange::Put(row.encode()?), sum))
        })
    }

    /// Returns a new identifier: 1 in a new table, and later always a greater one, also after a
    /// crash.
    pub fn generate_uid(&self) -> Result<u64> {
        self.enter()?;
        self.next_uid()
    }

    fn next_uid(&self) -> Result<u64> {
        self.check_writable()?;
        let mut uid = self.uid.lock();
        let exhausted = || Error::TooMany { what: "identifiers", max: u64::MAX };
        let next = uid.last.checked_add(1).ok_or_else(exhausted)?;
        if next > uid.set_aside {
            let set_aside = uid.last.saturating_add(UIDS_SET_ASIDE);
            meta::write_uid(&*self.engine, set_aside)?;
            uid.set_aside = set_aside;
        }
        uid.last = next;
        self.last_uid.store(next, Ordering::Relaxed);
        Ok(next)
    }

    /// Makes [`Table::generate_uid`] continue after `seed`.
    pub fn set_uid_seed(&self, seed: u64) -> Result<()> {
        self.enter()?;
        self.check_writable()?;
        let mut uid = self.uid.lock();
        meta::write_uid(&*self.engine, seed)?;
        *uid = Uid { last: seed, set_aside: seed };
        self.last_uid.store(seed, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the last identifier that [`Table::generate_uid`] returned. Callbacks may call this.
    pub fn last_uid(&self) -> u64 {
        self.last_uid.load(Ordering::Relaxed)
    }

    /// Calls `visit` with all rows in the order of their primary keys, until it breaks.
    pub fn for_each_row(
        &self,
        visit: impl FnMut(&[u8], RowView<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.each_row(true, visit, None)
    }

    /// Like [`Table::for_each_row`], in the fastest order. A row that exists throughout is visited
    /// once.
    pub fn for_each_row_in_any_order(
        &self,
        visit: impl FnMut(&[u8], RowView<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.each_row(false, visit, None)
    }

    /// Like [`Table::for_each_row_in_any_order`], also in a damaged table: passes the error of each
    /// part that cannot be read to `report`, and goes on after it.
    pub fn for_each_readable_row(
        &self,
        visit: impl FnMut(&[u8], RowView<'_>) -> ControlFlow<()>,
        report: &mut dyn FnMut(Error),
    ) -> Result<()> {
        self.each_row(false, visit, Some(report))
    }

    fn each_row(
        &self,
        is_in_order: bool,
        mut visit: impl FnMut(&[u8], RowView<'_>) -> ControlFlow<()>,
        mut report: Option<&mut dyn FnMut(Error)>,
    ) -> Result<()> {
        self.enter()?;
        let mut scan = self.scan_all_rows(is_in_order);
        let step = |take: &mut Visit<'_>| {
            crate::base::deadline::check()?;
            match &mut report {
                None => scan.step(take),
                Some(report) => step_past_damage(&mut *scan, take, report),
            }
        };
        step_until_break(step, |entry| {
            self.call(|| visit(&entry.key[1..], RowView::new(entry.value)))
        })
    }

    /// Calls `visit` with some rows from a position on, in the order of primary keys. Returns the
    /// position after them, or `None` at the end. See [`crate::Database::scan`].
    pub fn scan(
        &self,
        from: &ScanCursor,
        mut visit: impl FnMut(&[u8], RowView<'_>),
    ) -> Result<Option<ScanCursor>> {
        self.enter()?;
        self.call(|| {
            self.scan_rows(from, &mut |entry| visit(&entry.key[1..], RowView::new(entry.value)))
        })
    }

    /// Removes all rows. Indices are kept, and are empty. Identifiers begin at 1 again.
    pub fn clear_rows(&self) -> Result<()> {
        self.enter()?;
        self.check_writable()?;
        let _building = self.building.lock();
        let structure = self.structure.write();
        let mut uid = self.uid.lock();
        let mut batch = crate::Batch::new();
        meta::put_layout(&mut batch);
        structure.iter().for_each(|index| meta::put_index(&mut batch, index));
        self.postings.clear(|| self.engine.replace_all(&batch))?;
        for index in structure.iter() {
            index.has_cut_values.store(false, Ordering::Release);
        }
        *uid = Uid { last: 0, set_aside: 0 };
        self.last_uid.store(0, Ordering::Relaxed);
        self.rows.store(0, Ordering::Release);
        Ok(())
    }

    /// Waits until all changes so far are as durable as the table's options require. Other methods
    /// do not wait.
    pub fn acknowledge(&self) -> Result<()> {
        self.enter()?;
        match self.engine.persistence() {
            Some(log) if log.durability() == Durability::Always => log.wait_durable(log.appended()),
            _ => Ok(()),
        }
    }

    /// Fails if this thread is in a callback that got a borrowed row.
    fn enter(&self) -> Result<()> {
        reentry::check(reentry::engine_id_of(self))
    }

    /// Runs a callback of the caller's that gets a borrowed row.
    fn call<T>(&self, callback: impl FnOnce() -> T) -> T {
        reentry::in_record_callback(reentry::engine_id_of(self), callback)
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_read_only {
            return Err(Error::read_only());
        }
        Ok(())
    }

    /// Returns the folder for temporary files: that of the database, if it has one that may be
    /// written to, otherwise that of the system.
    fn temporary_folder(&self) -> PathBuf {
        let path = self.engine.medium().path();
        if path.is_dir() && !self.is_read_only { path } else { std::env::temp_dir() }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.is_read_only {
            return;
        }
        self.flusher = None;
        // The next opening restores changes that cannot be flushed now.
        if let Err(error) = self.postings.flush() {
            tracing::warn!("closing {}: {error}", self.engine.medium().path().display());
        }
        // The next opening counts the rows if their number cannot be noted now.
        if let Err(error) = meta::write_clean(&*self.engine, self.len(), self.last_uid()) {
            tracing::warn!("closing {}: {error}", self.engine.medium().path().display());
        }
    }
}
