//! Operations on keys in order: several values of a key, and cursors.

use super::{Database, check_key};
use crate::engine::ordered::ordered;
use crate::record::check_value;
use crate::{Cursor, Family, KeyOrder, Meta, RecordRef, Result, Seek, Side, Version};

impl Database {
    /// Returns the order of the keys, or `None` if the database does not keep them in order.
    pub fn order(&self) -> Option<KeyOrder> {
        match self.engine.family() {
            Family::Ordered(engine) => Some(engine.order()),
            Family::Sorted(order) => Some(order),
            Family::Unordered | Family::Logged(_) | Family::Numbered(_) => None,
        }
    }

    /// Returns whether a key may have several values.
    pub fn has_duplicates(&self) -> bool {
        self.engine.as_ordered().is_some()
    }

    /// Stores a value before or after those that a key has. Like all functions for duplicates,
    /// fails with [`Unsupported`](crate::Error::Unsupported) if the database has none.
    pub fn put_duplicate(&self, key: &[u8], value: &[u8], side: Side) -> Result<Version> {
        self.put_duplicate_with(key, value, Meta::NONE, side)
    }

    /// Like [`put_duplicate`](Self::put_duplicate), with flags and expiry of this value.
    pub fn put_duplicate_with(
        &self,
        key: &[u8],
        value: &[u8],
        meta: Meta,
        side: Side,
    ) -> Result<Version> {
        self.enter_to_write()?;
        check_key(key)?;
        check_value(value.len())?;
        let engine = ordered(&*self.engine)?;
        let version = engine.add(key, value, meta, side, self.wait)?;
        self.acknowledge()?;
        Ok(version)
    }

    /// Calls `visit` with a key's value number `index`, counted from 0, and returns its result;
    /// `None` if the key has fewer values.
    pub fn read_duplicate<T>(
        &self,
        key: &[u8],
        index: usize,
        visit: impl FnOnce(RecordRef<'_>) -> T,
    ) -> Result<Option<T>> {
        self.enter()?;
        check_key(key)?;
        let engine = ordered(&*self.engine)?;
        let seek = match index.checked_sub(1) {
            None => Seek::AtOrAfter(key),
            Some(previous) => Seek::After(key, previous),
        };
        let mut visit = Some(visit);
        let mut result = None;
        engine.seek(seek, self.wait, &mut |entry, found| {
            if found == index && engine.order().compare(entry.key, key).is_eq() {
                result = visit.take().map(|visit| self.call(|| visit(entry)));
            }
        })?;
        Ok(result)
    }

    /// Returns all values of a key.
    pub fn get_all(&self, key: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.enter()?;
        check_key(key)?;
        let mut values = Vec::new();
        ordered(&*self.engine)?
            .read_all(key, self.wait, &mut |entry| values.push(entry.value.to_vec()))?;
        Ok(values)
    }

    /// Returns the number of values that a key has.
    pub fn count(&self, key: &[u8]) -> Result<usize> {
        self.enter()?;
        check_key(key)?;
        ordered(&*self.engine)?.read_all(key, self.wait, &mut |_| ())
    }

    /// Removes all values of a key. Returns their number.
    pub fn remove_all(&self, key: &[u8]) -> Result<usize> {
        self.enter_to_write()?;
        check_key(key)?;
        let removed = ordered(&*self.engine)?.remove_all(key, self.wait)?;
        self.acknowledge()?;
        Ok(removed)
    }

    /// Returns a cursor that is not at a record yet.
    pub fn cursor(&self) -> Result<Cursor> {
        self.enter()?;
        Cursor::new(self.clone())
    }
}
