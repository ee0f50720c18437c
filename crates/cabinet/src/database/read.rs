//! Reading single records.

use super::{Database, check_key};
#[cfg(feature = "table")]
use crate::Error;
#[cfg(feature = "table")]
use crate::table::RowView;
use crate::{Entry, LongValue, Result, reentry};
use std::borrow::Cow;

impl Database {
    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.lend(key, |entry| entry.value.to_vec())
    }

    /// Calls `visit` with the record of a key. Returns its result; `None` if there is no record.
    pub fn read<T>(&self, key: &[u8], visit: impl FnOnce(Entry<'_>) -> T) -> Result<Option<T>> {
        self.lend(key, |entry| self.call(|| visit(entry)))
    }

    /// As [`Database::read`], for a callback of this crate, which does not call the database.
    #[inline]
    pub(super) fn lend<T>(
        &self,
        key: &[u8],
        visit: impl FnOnce(Entry<'_>) -> T,
    ) -> Result<Option<T>> {
        self.enter()?;
        check_key(key)?;
        let mut visit = Some(visit);
        let mut result = None;
        self.engine.read(key, self.wait, &mut |entry| {
            result = visit.take().map(|visit| visit(entry));
        })?;
        Ok(result)
    }

    /// Opens the value of a key for reading in pieces. Returns `None` if it has less than
    /// `bytes_min` bytes, or is not stored in one piece on the disk: [`Database::read`] reads it.
    pub fn long_value(&self, key: &[u8], bytes_min: usize) -> Result<Option<LongValue>> {
        self.enter()?;
        check_key(key)?;
        self.engine.long_value(key, bytes_min, self.wait)
    }

    /// Returns the size of a key's value, in bytes.
    pub fn value_size(&self, key: &[u8]) -> Result<Option<usize>> {
        self.lend(key, |entry| entry.value.len())
    }

    /// Announces keys that are about to be read or written, so that the cache misses of finding
    /// them overlap. It changes no result.
    pub fn prefetch(&self, keys: &[&[u8]]) {
        if !reentry::is_within(self.identity) {
            self.engine.prefetch(keys);
        }
    }

    /// Returns the stored form of a key. In a fixed-length database `1`, `01` and `min` may be one
    /// record; elsewhere it is the key itself.
    pub fn canonical_key<'k>(&self, key: &'k [u8]) -> Result<Cow<'k, [u8]>> {
        self.enter()?;
        self.engine.canonical_key(key)
    }

    /// As [`Table::read`](crate::table::Table::read), but a [nonblocking](Database::nonblocking)
    /// handle does not wait for the disk.
    #[cfg(feature = "table")]
    pub fn read_row<T>(
        &self,
        primary: &[u8],
        visit: impl FnOnce(RowView<'_>) -> T,
    ) -> Result<Option<T>> {
        let missing = || Error::NotSupported("rows need a table (.tct)".into());
        self.enter()?;
        let table = self.table().ok_or_else(missing)?;
        table.read_waiting(primary, self.wait, |row| self.call(|| visit(row)))
    }
}
