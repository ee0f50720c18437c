//! Changes of records: put, append, remove, compare-and-swap, read-modify-write, batches.

use super::{Database, check_key};
use crate::limits::VALUE_BYTES_MAX;
use crate::record::check_value;
#[cfg(feature = "table")]
use crate::table::Row;
use crate::{Batch, BatchChange, Change, Error, Meta, RecordRef, Result, Version};

/// Outcome of [`Database::compare_and_swap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// The record was stored, with this version.
    Stored(Version),
    /// The record has another version.
    Changed,
    /// There is no such record.
    Missing,
}

impl Database {
    /// Stores a record, replacing any that the key has. Returns its version.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<Version> {
        self.put_with(key, value, Meta::NONE)
    }

    /// Like [`put`](Self::put), with flags and expiry.
    pub fn put_with(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<Version> {
        self.enter_to_write()?;
        check_key(key)?;
        check_value(value.len())?;
        let version = self.engine.put(key, value, meta, self.wait)?;
        self.acknowledge()?;
        Ok(version)
    }

    /// Stores a record if the key has none. Returns whether it did.
    pub fn put_keep(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<bool> {
        self.update(key, |entry| match entry {
            Some(_) => (Change::Keep, false),
            None => (Change::Put(value.to_vec(), meta), true),
        })
    }

    /// Stores a record if the key has one. Returns whether it did.
    pub fn replace(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<bool> {
        self.update(key, |entry| match entry {
            Some(_) => (Change::Put(value.to_vec(), meta), true),
            None => (Change::Keep, false),
        })
    }

    /// Appends to a value. Creates the record if there is none. In a table, adds the columns that
    /// the row lacks.
    pub fn put_cat(&self, key: &[u8], suffix: &[u8]) -> Result<()> {
        #[cfg(feature = "table")]
        if let Some(table) = self.table() {
            self.enter_to_write()?;
            check_key(key)?;
            table.cat(&table.key_to_put(key, self.wait)?, &Row::from_joined(suffix)?, self.wait)?;
            return self.acknowledge();
        }
        self.put_shift(key, suffix, usize::MAX)
    }

    /// Appends to a value and keeps the last `width` bytes of the result. A new record is stored
    /// whole, as Tokyo Cabinet does.
    pub fn put_shift(&self, key: &[u8], suffix: &[u8], width: usize) -> Result<()> {
        let shift = |entry: Option<RecordRef<'_>>| Change::shift(entry.as_ref(), suffix, width);
        self.try_update(key, |entry| Ok((shift(entry)?, ()))).map(|((), _)| ())
    }

    /// Appends to the value of an existing record, or prepends with `front`. The record keeps its
    /// flags and expiry. Returns whether there was one.
    pub fn extend(&self, key: &[u8], part: &[u8], front: bool) -> Result<bool> {
        let extended = self.try_update(key, |entry| match entry {
            None => Ok((Change::Keep, false)),
            Some(entry) => Ok((Change::extend(&entry, part, front)?, true)),
        });
        extended.map(|(is_present, _)| is_present)
    }

    /// Removes a record. Returns whether there was one. Hash and fixed-length databases also remove
    /// a damaged record.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        match self.update(key, |entry| (Change::Remove, entry.is_some())) {
            Err(error @ Error::Corrupted { .. }) => {
                if !self.engine.remove_damaged(key, self.wait)? {
                    return Err(error);
                }
                self.acknowledge()?;
                Ok(true)
            }
            removed => removed,
        }
    }

    /// Stores a record if the key has one with this version.
    pub fn compare_and_swap(
        &self,
        key: &[u8],
        version: Version,
        value: &[u8],
        meta: Meta,
    ) -> Result<Swap> {
        self.enter_to_write()?;
        check_value(value.len())?;
        check_key(key)?;
        let mut outcome = Swap::Missing;
        let stored = self.engine.update(key, self.wait, &mut |entry| match entry {
            None => {
                outcome = Swap::Missing;
                Change::Keep
            }
            Some(entry) if entry.version != version => {
                outcome = Swap::Changed;
                Change::Keep
            }
            Some(_) => {
                outcome = Swap::Stored(0);
                Change::Put(value.to_vec(), meta)
            }
        })?;
        self.acknowledge()?;
        Ok(if let Swap::Stored(_) = outcome { Swap::Stored(stored) } else { outcome })
    }

    /// Sets the expiry of a record, in milliseconds since the Unix epoch; 0 means never. Returns
    /// whether there was a record.
    pub fn touch(&self, key: &[u8], expires_at_ms: u64) -> Result<bool> {
        self.update(key, |entry| match entry {
            None => (Change::Keep, false),
            Some(entry) => {
                (Change::Put(entry.value.to_vec(), Meta { expires_at_ms, ..entry.meta }), true)
            }
        })
    }

    /// Changes a record atomically. `decide` gets the record, and returns the change and a result
    /// of its own. It runs under the lock of the record, so the key has no other change meanwhile.
    pub fn modify<T>(
        &self,
        key: &[u8],
        decide: impl FnMut(Option<RecordRef<'_>>) -> (Change, T),
    ) -> Result<T> {
        self.modify_versioned(key, decide).map(|(answer, _)| answer)
    }

    /// Like [`Database::modify`], for a callback of this crate, which does not call the database.
    pub(super) fn update<T>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<RecordRef<'_>>) -> (Change, T),
    ) -> Result<T> {
        self.try_update(key, |entry| Ok(decide(entry))).map(|(answer, _)| answer)
    }

    /// Like [`Database::modify`], with a callback that may fail, and then changes nothing. Also
    /// returns the version of the stored record; 0 if none was stored.
    pub fn try_modify<T>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<RecordRef<'_>>) -> Result<(Change, T)>,
    ) -> Result<(T, Version)> {
        self.try_update(key, |entry| self.call(|| decide(entry)))
    }

    /// Like [`Database::modify`]. Also returns the version of the stored record; 0 if none was
    /// stored.
    pub fn modify_versioned<T>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<RecordRef<'_>>) -> (Change, T),
    ) -> Result<(T, Version)> {
        self.try_modify(key, |entry| Ok(decide(entry)))
    }

    /// Like [`Database::try_modify`], for a callback of this crate, which does not call the
    /// database.
    #[inline]
    pub(super) fn try_update<T>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<RecordRef<'_>>) -> Result<(Change, T)>,
    ) -> Result<(T, Version)> {
        self.enter_to_write()?;
        check_key(key)?;
        let mut answer = None;
        let version = self.engine.update(key, self.wait, &mut |entry| match decide(entry) {
            Ok((Change::Put(value, _), _)) if value.len() > VALUE_BYTES_MAX => {
                let (bytes, max) = (value.len(), VALUE_BYTES_MAX);
                answer = Some(Err(Error::ValueTooLong { bytes, max }));
                Change::Keep
            }
            Ok((change, result)) => {
                answer = Some(Ok(result));
                change
            }
            Err(error) => {
                answer = Some(Err(error));
                Change::Keep
            }
        })?;
        // `update` calls its closure exactly once when it succeeds.
        let answer = answer
            .ok_or_else(|| Error::Internal("an update did not call its closure".into()))??;
        self.acknowledge()?;
        Ok((answer, version))
    }

    /// Applies all changes of a batch, or none of them.
    pub fn write(&self, batch: &Batch) -> Result<()> {
        self.enter_to_write()?;
        for (key, change) in batch.changes() {
            check_key(key)?;
            if let BatchChange::Put(value, _) = change {
                check_value(value.len())?;
            }
        }
        batch.check_length()?;
        self.engine.write(batch, self.wait)?;
        self.acknowledge()
    }

    /// Removes all records.
    pub fn clear(&self) -> Result<()> {
        self.enter_to_write()?;
        self.engine.replace_all(&Batch::new())?;
        self.acknowledge()
    }
}
