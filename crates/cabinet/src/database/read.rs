//! Reads of single records.

use super::{Database, check_key};
use crate::{LargeValue, RecordRef, Result};

impl Database {
    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.visit_record(key, |entry| entry.value.to_vec())
    }

    /// Calls `visit` with the record of a key. Returns its result; `None` if there is no record.
    pub fn read<T>(&self, key: &[u8], visit: impl FnOnce(RecordRef<'_>) -> T) -> Result<Option<T>> {
        self.visit_record(key, |entry| self.call(|| visit(entry)))
    }

    /// Like [`Database::read`], for a callback of this crate, which does not call the database.
    #[inline]
    pub(super) fn visit_record<T>(
        &self,
        key: &[u8],
        visit: impl FnOnce(RecordRef<'_>) -> T,
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

    /// Opens the value of a key for reading in pieces. Returns `None` if the value has less than
    /// `bytes_min` bytes, or is not stored in one piece on the disk. Use [`Database::read`] then.
    pub fn large_value(&self, key: &[u8], bytes_min: usize) -> Result<Option<LargeValue>> {
        self.enter()?;
        check_key(key)?;
        let logged = self.engine.as_logged();
        logged.map_or(Ok(None), |engine| engine.large_value(key, bytes_min, self.wait))
    }

    /// Returns the size of a key's value, in bytes.
    pub fn value_size(&self, key: &[u8]) -> Result<Option<usize>> {
        self.visit_record(key, |entry| entry.value.len())
    }
}
