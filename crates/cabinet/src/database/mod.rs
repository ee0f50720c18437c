//! Database: the operations on a database of any kind.
//!
//! The named operations are written here once, on top of the few that an [`Engine`] has:
//!
//! - [`read`]: single records;
//! - [`write`]: changes of single records, and batches;
//! - [`entry`]: a read-modify-write in steps, like that of a map;
//! - [`counters`]: records that hold a number;
//! - [`duplicates`]: several values of a key, cursors;
//! - [`scan`]: all records, or those of a prefix or a pattern, passed to a function;
//! - [`iterate`]: the same as iterators;
//! - `iteration`: all keys, by a caller that comes back for more;
//! - [`maintenance`]: size, durability, copies, verification;
//! - `internals`: operations for the workspace's other crates.

mod counters;
mod cursor;
mod duplicates;
mod entry;
#[cfg(feature = "internals")]
mod internals;
mod iterate;
#[cfg(feature = "internals")]
mod iteration;
mod maintenance;
mod read;
mod scan;
mod write;

pub use cursor::{Cursor, CursorPut};
pub use entry::RecordEntry;
pub use iterate::{Keys, Records};
#[cfg(feature = "internals")]
pub use iteration::Iteration;
pub use scan::SteppedScan;
pub use write::Swap;

use crate::base::reentry;
use crate::limits::KEY_BYTES_MAX;
#[cfg(feature = "table")]
use crate::table::Table;
use crate::{Durability, Engine, Error, Kind, Numbered, Result, Wait};
use std::sync::Arc;

/// Handle of an open database. Clones share it. Dropping the last one closes the database.
///
/// Writes return when they are acknowledged, which depends on the database's [`Durability`], unless
/// the handle is [deferred](Database::deferred).
///
/// # Groups of methods
///
/// - Single records: [`get`](Self::get), [`read`](Self::read), [`put`](Self::put),
///   [`put_keep`](Self::put_keep), [`put_cat`](Self::put_cat), [`remove`](Self::remove),
///   [`touch`](Self::touch).
/// - Read-modify-write: [`modify`](Self::modify), [`entry`](Self::entry),
///   [`compare_and_swap`](Self::compare_and_swap), [`add_int`](Self::add_int),
///   [`transaction`](Self::transaction), [`write`](Self::write) of a [`Batch`](crate::Batch).
/// - Many records: [`iter`](Self::iter), [`keys`](Self::keys), [`prefix`](Self::prefix),
///   [`range`](Self::range) as iterators; [`for_each`](Self::for_each),
///   [`keys_with_prefix`](Self::keys_with_prefix), [`find`](Self::find) with functions.
/// - Trees: [`put_duplicate`](Self::put_duplicate), [`get_all`](Self::get_all),
///   [`cursor`](Self::cursor).
/// - The whole: [`sync`](Self::sync), [`copy_to`](Self::copy_to), [`verify`](Self::verify),
///   [`optimize`](Self::optimize), [`len`](Self::len), [`size_bytes`](Self::size_bytes).
///
/// # Callbacks
///
/// Several operations pass records to a function of the caller, such as [`Database::read`],
/// [`Database::modify`] and [`Database::for_each`]. Such a function must not call the database that
/// called it, neither through this handle nor through a clone, [`Cursor`], [`Transaction`] or
/// [`Table`] of it. Methods that return a [`Result`] fail there with [`Error::Reentrant`], and do
/// nothing. The others may be called: [`Database::len`], [`Database::path`] and
/// [`Database::appended`], for example. Other databases may be called too; two threads that do so
/// in opposite orders may wait for each other. Visitors of the results of a query get copies and
/// may do more, see [`Table::for_each_result`]. Between the steps of an iterator everything may be
/// called.
///
/// [`Cursor`]: crate::Cursor
/// [`Transaction`]: crate::Transaction
#[derive(Clone)]
pub struct Database {
    engine: Arc<dyn Engine>,
    /// The engine, if it is a table.
    #[cfg(feature = "table")]
    table: Option<Arc<Table>>,
    /// Identity of the engine: its callbacks may not call this handle, see [`reentry`].
    engine_id: usize,
    wait: Wait,
    deferred: bool,
    is_read_only: bool,
    /// Kind that it was opened as; `None` if the path determines it.
    kind: Option<Kind>,
    /// Whether writes are acknowledged once they are durable.
    is_always_durable: bool,
}

#[cfg(feature = "table")]
impl From<Arc<Table>> for Database {
    fn from(table: Arc<Table>) -> Self {
        Self { table: Some(Arc::clone(&table)), ..Self::of_engine(table) }
    }
}

impl Database {
    pub(crate) fn of_engine(engine: Arc<dyn Engine>) -> Self {
        let engine_id = reentry::engine_id_of(&*engine);
        Self::with_engine_id(engine, engine_id)
    }

    /// Like [`of_engine`](Self::of_engine), for an engine whose callbacks count as those of the
    /// engine with this ID.
    pub(crate) fn with_engine_id(engine: Arc<dyn Engine>, engine_id: usize) -> Self {
        let is_read_only = engine.is_read_only();
        let is_always_durable =
            engine.persistence().is_some_and(|log| log.durability() == Durability::Always);
        Self {
            engine,
            #[cfg(feature = "table")]
            table: None,
            engine_id,
            wait: Wait::Block,
            deferred: false,
            is_read_only,
            kind: None,
            is_always_durable,
        }
    }

    /// Sets the kind, which the path may not determine.
    pub(crate) fn of_kind(self, kind: Kind) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// Returns a handle whose operations fail with [`Error::WouldBlock`] instead of waiting for the
    /// disk.
    pub fn nonblocking(&self) -> Self {
        Self { wait: Wait::Never, ..self.clone() }
    }

    /// Returns a handle whose operations wait for the disk, as those of a new handle do.
    pub fn blocking(&self) -> Self {
        Self { wait: Wait::Block, ..self.clone() }
    }

    /// Returns a handle whose writes return before they are durable. Read [`Database::appended`]
    /// after a write, and acknowledge the write once [`Database::durable`] has reached that
    /// position.
    pub fn deferred(&self) -> Self {
        Self { deferred: true, ..self.clone() }
    }

    /// Returns the operations on ids, if this is a fixed-length database.
    pub fn as_numbered(&self) -> Option<&dyn Numbered> {
        self.engine.as_numbered()
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Returns the ID of the engine, see [`reentry`].
    pub(crate) fn engine_id(&self) -> usize {
        self.engine_id
    }

    /// Fails if this thread is in a callback of this database.
    #[inline]
    pub(crate) fn enter(&self) -> Result<()> {
        reentry::check(self.engine_id)
    }

    /// Like [`enter`](Self::enter), for a method that changes the database. Also fails if the
    /// database was opened for reading only.
    #[inline]
    pub(crate) fn enter_to_write(&self) -> Result<()> {
        if self.is_read_only {
            return Err(Error::read_only());
        }
        self.enter()
    }

    /// Runs a function of the caller, which must not call this database.
    #[inline]
    fn call<T>(&self, callback: impl FnOnce() -> T) -> T {
        reentry::in_record_callback(self.engine_id, callback)
    }

    pub(crate) fn wait(&self) -> Wait {
        self.wait
    }

    /// Returns the operations on rows, if this is a table. They return before their changes are
    /// durable, see [`Database::acknowledge`].
    #[cfg(feature = "table")]
    pub fn table(&self) -> Option<&Table> {
        self.table.as_deref()
    }

    /// Waits until all changes so far are as durable as the database's [`Durability`] asks for, as
    /// its own writes do. On a handle of [`Database::deferred`] it does nothing. Needed after
    /// changes by [`Database::table`], which do not wait.
    pub fn acknowledge(&self) -> Result<()> {
        if self.deferred || !self.is_always_durable {
            return Ok(());
        }
        self.engine.persistence().map_or(Ok(()), |log| log.wait_durable(log.appended()))
    }
}

fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::KeyTooLong { bytes: key.len(), max: KEY_BYTES_MAX });
    }
    Ok(())
}
