//! The engine trait: one kind of database.
//!
//! It has a read, a blind write, an atomic read-modify-write, a resumable scan, and the care of the
//! whole database. Operations with names of their own (append, add, compare-and-swap, ...) are
//! built on these once, in [`crate::Database`].

mod numbered;
pub(crate) mod ordered;

pub use numbered::Numbered;
pub use ordered::{Eviction, Ordered, PlaceChange, Seek, Side};

use crate::{
    Batch, Change, Damage, Durability, DurableListener, Entry, ExpiredKeys, FullScan, GoOn,
    LogPosition, LongValue, Meta, Options, Position, Result, SnapshotBarrier, Verified, Version,
    Wait, Wanted,
};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// A scan of all records by the steps of [`Engine::scan`].
pub(crate) struct Steps<'e, E: ?Sized> {
    engine: &'e E,
    next: Option<Position>,
}

impl<'e, E: Engine + ?Sized> Steps<'e, E> {
    pub(crate) fn new(engine: &'e E) -> Self {
        Self { engine, next: Some(Position::Start) }
    }
}

impl<E: Engine + ?Sized> FullScan for Steps<'_, E> {
    fn step(&mut self, visit: &mut dyn FnMut(Entry<'_>)) -> Result<bool> {
        let Some(from) = self.next.take() else { return Ok(false) };
        self.next = self.engine.scan(&from, visit)?;
        Ok(self.next.is_some())
    }

    fn step_keys(&mut self, visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let Some(from) = self.next.take() else { return Ok(false) };
        self.next = self.engine.scan_keys(&from, visit)?;
        Ok(self.next.is_some())
    }
}

/// One open database. All methods may be called from any thread at once.
pub trait Engine: Send + Sync {
    /// Names the database among those that are open. What wraps an engine returns that of the
    /// engine, so that a callback of one is known as a callback of the other: see
    /// [`crate::Error::Reentrant`].
    fn identity(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>().addr()
    }

    /// Shows the live record under `key` to `visit`; says whether there was one.
    fn read(&self, key: &[u8], wait: Wait, visit: &mut dyn FnMut(Entry<'_>)) -> Result<bool>;

    /// Opens the value under `key` to be read in pieces, if it has `bytes_min` bytes or more and
    /// lies in one piece where the engine keeps it; else `None`, and [`Engine::read`] tells what
    /// there is.
    fn long_value(&self, _key: &[u8], _bytes_min: usize, _wait: Wait) -> Result<Option<LongValue>> {
        Ok(None)
    }

    /// Says that these keys are about to be read or written, so that the cache misses of finding
    /// them overlap instead of adding up. Costs little, promises nothing.
    fn prefetch(&self, _keys: &[&[u8]]) {}

    /// Stores a record whatever was there; answers its version.
    fn put(&self, key: &[u8], value: &[u8], meta: Meta, wait: Wait) -> Result<Version>;

    /// Decides atomically what becomes of one record. `decide` sees it, or `None`; it is called
    /// exactly once if the result is `Ok`. Answers the new version, or 0 if nothing was put.
    fn update(
        &self,
        key: &[u8],
        wait: Wait,
        decide: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
    ) -> Result<Version>;

    /// Removes the record under `key` if it has expired, of several all that have; says whether it
    /// was there. Rows do not expire.
    fn remove_expired(&self, _key: &[u8], _wait: Wait) -> Result<bool> {
        Ok(false)
    }

    /// Looks for expired records, where only writes do so by themselves.
    fn find_expired(&self) {}

    /// Where the keys of expired records are named that the engine leaves to others to remove;
    /// `None` if it removes them itself.
    fn expired_keys(&self) -> Option<&ExpiredKeys> {
        None
    }

    /// Removes the record under `key` if it is damaged, so that [`Engine::update`] cannot read it;
    /// returns whether it was. Where records share a page, one cannot be told from the others: then
    /// it stays.
    fn remove_damaged(&self, _key: &[u8], _wait: Wait) -> Result<bool> {
        Ok(false)
    }

    /// Applies all of a batch or, also across a crash, nothing of it. Fails with
    /// [`crate::Error::Conflict`] if a record the batch expects at a version has moved on.
    fn write(&self, batch: &Batch) -> Result<()>;

    /// Visits some live records from `from` on (none, where all have expired), and answers where to
    /// go on, or `None` at the end. `visit` must not call back into the engine.
    fn scan(&self, from: &Position, visit: &mut dyn FnMut(Entry<'_>)) -> Result<Option<Position>>;

    /// As [`Engine::scan`], but of keys only, which may spare reading the values.
    fn scan_keys(&self, from: &Position, visit: &mut dyn FnMut(&[u8])) -> Result<Option<Position>> {
        self.scan(from, &mut |entry| visit(entry.key))
    }

    /// Begins a scan of all records.
    fn full_scan(&self, _wanted: Wanted) -> Result<Box<dyn FullScan + '_>> {
        Ok(Box::new(Steps::new(self)))
    }

    /// Begins a scan of all records in whatever order is fastest, also if keys are in order.
    fn scan_in_any_order(&self) -> Result<Box<dyn FullScan + '_>> {
        self.full_scan(Wanted::Records)
    }

    /// Where a scan that begins at `key` starts.
    fn position_of(&self, key: &[u8]) -> Position;

    /// Where a scan that is to meet every key with `prefix` starts: the beginning, unless keys
    /// are in order.
    fn position_of_prefix(&self, _prefix: &[u8]) -> Position {
        Position::Start
    }

    /// The key that the record under `key` has, where several keys mean the same record.
    fn canonical_key<'k>(&self, key: &'k [u8]) -> Result<Cow<'k, [u8]>> {
        Ok(Cow::Borrowed(key))
    }

    /// What else the engine can do if its keys are ids.
    fn as_numbered(&self) -> Option<&dyn Numbered> {
        None
    }

    /// Number of records. Expired ones count until they are reclaimed.
    fn len(&self) -> u64;

    /// Whether there is no record.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on disk, or in memory for the on-memory kinds.
    fn size_bytes(&self) -> u64;

    /// Path of the database; `*` and `+` for the on-memory kinds.
    fn path(&self) -> PathBuf;

    /// Makes everything written so far durable.
    fn sync(&self) -> Result<()>;

    /// Reclaims all dead space now.
    fn optimize(&self) -> Result<()>;

    /// As `optimize`, after what an open database can change of itself was set as the options
    /// say. An option that they do not give stays as it is; so does the cap on bytes of a disk
    /// database, but a cap of an on-memory one that they do not give is lifted. A disk database
    /// whose cap was set is not optimized, but brought down to it in the background.
    fn retune(&self, _options: &Options) -> Result<()> {
        self.optimize()
    }

    /// Places of its files that did not hold what had been promised when it was opened, or that an
    /// earlier opening has kept aside.
    fn damages(&self) -> Vec<crate::Damage> {
        Vec::new()
    }

    /// Removes all records.
    fn clear(&self) -> Result<()>;

    /// Removes all records, and stores those that the batch puts. A tree does both or, also across
    /// a crash, nothing.
    fn replace_all(&self, batch: &Batch) -> Result<()> {
        self.clear()?;
        self.write(batch)
    }

    /// Writes a consistent copy of the database to `path`, which must not exist.
    fn copy_to(&self, path: &Path) -> Result<()>;

    /// As `copy_to`, at a moment that `barrier` chooses, see [`SnapshotBarrier`].
    fn copy_at(&self, path: &Path, barrier: &mut SnapshotBarrier<'_>) -> Result<()> {
        // What is in memory is copied while writers wait, whoever has them wait.
        while !barrier(&mut || self.copy_to(path))? {}
        Ok(())
    }

    /// Verifies every checksum of its files while it is in use, see [`crate::Database::verify`].
    fn verify<'r>(
        &self,
        _go_on: &'r mut GoOn<'r>,
        _report: &'r mut dyn FnMut(Damage),
    ) -> Result<Verified> {
        Ok(Verified { is_complete: true, ..Verified::default() })
    }

    /// The durability it was opened with.
    fn durability(&self) -> Durability {
        Durability::None
    }

    /// End of the log: every operation that has returned lies before it.
    fn appended(&self) -> LogPosition {
        0
    }

    /// Everything before this position is durable.
    fn durable(&self) -> LogPosition {
        0
    }

    /// Waits until `position` is durable, or fails as the sync did.
    fn wait_durable(&self, _position: LogPosition) -> Result<()> {
        Ok(())
    }

    /// Calls `listener` whenever the durable position moves, and when syncing has failed for good.
    fn on_durable(&self, _listener: DurableListener) {}

    /// Whether there is a cap on its bytes or, in memory, on its records, so that any of them may
    /// go.
    fn evicts(&self) -> bool {
        false
    }

    /// The engine as one that keeps its keys in order, with duplicates and places, if it is.
    fn as_ordered(&self) -> Option<&dyn Ordered> {
        None
    }

    /// Names and figures worth showing in `stat`.
    fn figures(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
