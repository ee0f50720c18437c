//! Operations for the workspace's other crates, which the feature `internals` exports: handles of
//! engines, scans in steps, expiry by the caller, and copies at a moment that the caller chooses.

use super::{Database, SteppedScan, check_key};
use crate::base::reentry;
#[cfg(feature = "table")]
use crate::table::RowView;
use crate::{Engine, KeyReports, RecordRef, ReportedKeys, Result, SnapshotBarrier, Wanted};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

impl Database {
    /// Returns a handle of an engine. Use [`Database::from`] for a [`Table`].
    pub fn from_engine(engine: Arc<dyn Engine>) -> Self {
        Self::of_engine(engine)
    }

    /// Announces keys that are about to be read or written, so that the cache misses of finding
    /// them overlap. Changes no result.
    pub fn prefetch(&self, keys: &[&[u8]]) {
        if !reentry::is_within(self.engine_id) {
            self.engine.prefetch(keys);
        }
    }

    /// Calls `visit` with the record of each key, or with `None` or the failure to read it, in the
    /// order of the keys, until it breaks. This is faster than calling [`Database::read`] for each
    /// key.
    pub fn read_each(
        &self,
        mut keys: &[&[u8]],
        mut visit: impl FnMut(Result<Option<RecordRef<'_>>>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.enter()?;
        let mut visit = |found: Result<Option<RecordRef<'_>>>| self.call(|| visit(found));
        loop {
            // The engine gets only valid keys.
            let invalid = keys.iter().position(|key| check_key(key).is_err());
            let (valid, rest) = keys.split_at(invalid.unwrap_or(keys.len()));
            if self.engine.read_each(valid, self.wait, &mut visit).is_break() {
                return Ok(());
            }
            let Some((invalid, rest)) = rest.split_first() else { return Ok(()) };
            if let Err(error) = check_key(invalid)
                && visit(Err(error)).is_break()
            {
                return Ok(());
            }
            keys = rest;
        }
    }

    /// Returns the bytes that a record takes: of memory in an on-memory database, otherwise on the
    /// disk, before it is compressed.
    pub fn record_bytes(&self, record: &RecordRef<'_>) -> u64 {
        self.engine.record_bytes(record)
    }

    /// Returns the stored form of a key. In a fixed-length database `1`, `01` and `min` may name
    /// one record. In other kinds the stored form is the key itself.
    pub fn canonical_key<'k>(&self, key: &'k [u8]) -> Result<Cow<'k, [u8]>> {
        self.enter()?;
        self.engine.canonical_key(key)
    }

    /// Like [`Table::read`](crate::table::Table::read), but a [nonblocking](Database::nonblocking)
    /// handle does not wait for the disk.
    #[cfg(feature = "table")]
    pub fn read_row<T>(
        &self,
        primary: &[u8],
        visit: impl FnOnce(RowView<'_>) -> T,
    ) -> Result<Option<T>> {
        self.enter()?;
        let missing = || self.unsupported("rows", "open a table (.tct)");
        let table = self.table().ok_or_else(missing)?;
        table.read_waiting(primary, self.wait, |row| self.call(|| visit(row)))
    }

    /// Begins a scan of all records in steps. Until it ends or is dropped, it uses up to 8 bytes of
    /// memory per record that is changed before the scan reaches it.
    pub fn full_scan(&self, wanted: Wanted) -> Result<SteppedScan<'_>> {
        self.begin_scan(wanted)
    }

    /// Removes the records of a key that have expired. Returns whether there were any. Call it with
    /// the keys that [`Database::expired_keys`] returns.
    pub fn remove_expired(&self, key: &[u8]) -> Result<bool> {
        self.enter_to_write()?;
        self.engine.remove_expired(key, self.wait)
    }

    /// Like [`copy_to`](Self::copy_to), at a moment that `barrier` chooses.
    pub fn copy_at(&self, path: &Path, barrier: &mut SnapshotBarrier<'_>) -> Result<()> {
        self.enter()?;
        self.engine.medium().copy_at(path, &mut |take| self.call(|| barrier(take)))
    }

    /// Returns whether there is a cap, above which records that were not used lately are evicted.
    pub fn evicts(&self) -> bool {
        self.engine.evicts()
    }

    /// Removes expired records of an engine that otherwise looks for them only while it writes.
    pub fn find_expired(&self) {
        if !self.is_read_only && !reentry::is_within(self.engine_id) {
            self.engine.find_expired();
        }
    }

    /// Returns the keys of expired records that the caller must remove, if the database was opened
    /// with a clock that [hands over](crate::Clock::handing_over).
    pub fn expired_keys(&self) -> Option<&ReportedKeys> {
        self.reports().map(|reports| &reports.expired).filter(|expired| expired.has_begun())
    }

    /// Returns the keys of records that were evicted, if they are [reported](Self::report_evicted).
    pub fn evicted_keys(&self) -> Option<&ReportedKeys> {
        self.reports().map(|reports| &reports.evicted).filter(|evicted| evicted.has_begun())
    }

    /// Leaves expired records to the caller from now on, if the clock of the database can do so.
    pub fn hand_over_expired(&self) {
        if let Some(reports) = self.reports() {
            reports.expired.begin();
        }
    }

    /// Lists the keys of evicted records from now on, if the clock of the database can do so.
    pub fn report_evicted(&self) {
        if let Some(reports) = self.reports() {
            reports.evicted.begin();
        }
    }

    fn reports(&self) -> Option<&KeyReports> {
        self.engine.reports().filter(|_| !self.is_read_only)
    }
}
