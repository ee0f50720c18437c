//! Engine traits: the interface of one kind of database.
//!
//! [`Engine`] has the operations on records that every engine has: a read, a blind write, an atomic
//! read-modify-write, a resumable scan. [`Maintenance`] has the operations on the whole database,
//! [`Medium`] those on its files or memory, [`Persistence`] those that only a disk has. [`Family`]
//! gives the operations that only engines of one family have: [`Logged`], [`Ordered`],
//! [`Numbered`]. Named operations (append, add, compare-and-swap, ...) are built on these once, in
//! [`crate::Database`].

pub(crate) mod batch_plan;
mod logged;
mod maintenance;
mod numbered;
pub(crate) mod ordered;
mod steps;

pub use logged::Logged;
pub use maintenance::Maintenance;
pub use numbered::Numbered;
pub use ordered::{Eviction, Ordered, PlaceChange, Seek, Side};
pub(crate) use steps::Steps;

use crate::{
    Batch, Decide, FullScan, KeyOrder, Meta, Result, ScanCursor, Version, Visit, VisitKey,
    VisitMany, Visitor, Wait, Wanted,
};
use std::borrow::Cow;
use std::ops::ControlFlow;

/// Order of the keys of an engine, and operations beyond those of [`Engine`].
#[derive(Clone, Copy)]
pub enum Family<'e> {
    /// Keys have no order.
    Unordered,
    /// Keys have no order, but their records are in the order of a log.
    Logged(&'e dyn Logged),
    /// Scans visit keys in this order. Each key has one value.
    Sorted(KeyOrder),
    /// Keys have an order, and each may have several values.
    Ordered(&'e dyn Ordered),
    /// Keys are ids.
    Numbered(&'e dyn Numbered),
}

/// One open database. All methods may be called from several threads at once.
pub trait Engine: Maintenance {
    /// Calls `visit` with the live record of a key. Returns whether there was one.
    fn read(&self, key: &[u8], wait: Wait, visit: &mut Visit<'_>) -> Result<bool>;

    /// Announces keys that are about to be read or written, so that the cache misses of finding
    /// them overlap. It changes no result.
    fn prefetch(&self, _keys: &[&[u8]]) {}

    /// Calls `visit` with the live record of each key, or with `None` or a failure, in the order of
    /// the keys, until it breaks.
    fn read_each(&self, keys: &[&[u8]], wait: Wait, visit: &mut VisitMany<'_>) -> ControlFlow<()> {
        self.prefetch(keys);
        for key in keys {
            let mut flow = ControlFlow::Continue(());
            match self.read(key, wait, &mut |entry| flow = visit(Ok(Some(entry)))) {
                Ok(true) => flow?,
                Ok(false) => visit(Ok(None))?,
                Err(error) => visit(Err(error))?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Stores a record in place of any that the key has. Returns its version.
    fn put(&self, key: &[u8], value: &[u8], meta: Meta, wait: Wait) -> Result<Version>;

    /// Changes one record atomically. `decide` gets the record, or `None`, and returns the change.
    /// It is called exactly once if the result is `Ok`. Returns the new version, or 0 if nothing
    /// was put.
    fn update(&self, key: &[u8], wait: Wait, decide: &mut Decide<'_>) -> Result<Version>;

    /// Applies all of a batch or nothing of it, also across a crash. Fails with
    /// [`crate::Error::Conflict`] if a record has another version than the batch expects.
    fn write(&self, batch: &Batch, wait: Wait) -> Result<()>;

    /// Visits some live records from a position on; none, if all of them have expired. Returns the
    /// position after them, or `None` at the end. The visitor must not call the engine.
    fn scan(&self, from: &ScanCursor, visitor: Visitor<'_>) -> Result<Option<ScanCursor>>;

    /// Begins a scan of all records, in the order of keys if they have one, otherwise in the
    /// fastest order.
    fn full_scan(&self, _wanted: Wanted, _is_in_order: bool) -> Result<Box<dyn FullScan + '_>> {
        Ok(Box::new(Steps::new(self)))
    }

    /// Returns the position of a scan that begins at `key`.
    fn scan_cursor_of(&self, key: &[u8]) -> ScanCursor;

    /// Returns the stored form of a key where several keys name the same record.
    fn canonical_key<'k>(&self, key: &'k [u8]) -> Result<Cow<'k, [u8]>> {
        Ok(Cow::Borrowed(key))
    }

    /// Returns the family of the engine's keys.
    fn family(&self) -> Family<'_>;
}

impl<'e> dyn Engine + 'e {
    /// Like [`Engine::scan`], with whole records.
    pub fn scan_records(
        &self,
        from: &ScanCursor,
        visit: &mut Visit<'_>,
    ) -> Result<Option<ScanCursor>> {
        self.scan(from, Visitor::Records(visit))
    }

    /// Like [`Engine::scan`], with keys only.
    pub fn scan_keys(
        &self,
        from: &ScanCursor,
        visit: &mut VisitKey<'_>,
    ) -> Result<Option<ScanCursor>> {
        self.scan(from, Visitor::Keys(visit))
    }

    /// Returns the engine as an ordered one, if its keys are ordered.
    pub fn as_ordered(&self) -> Option<&dyn Ordered> {
        match self.family() {
            Family::Ordered(engine) => Some(engine),
            _ => None,
        }
    }

    /// Returns the operations on ids, if the keys are ids.
    pub fn as_numbered(&self) -> Option<&dyn Numbered> {
        match self.family() {
            Family::Numbered(engine) => Some(engine),
            _ => None,
        }
    }

    /// Returns the operations on records in a log, if that is where they are.
    pub fn as_logged(&self) -> Option<&dyn Logged> {
        match self.family() {
            Family::Logged(engine) => Some(engine),
            _ => None,
        }
    }
}
