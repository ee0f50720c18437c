//! Cursors over the records of a tree.

use super::Database;
use crate::engine::ordered::ordered;
use crate::record::check_value;
use crate::{PlaceChange, Result, Seek};

/// Place at which [`Cursor::put`] stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorPut {
    /// Replaces the value of the cursor's record.
    Current,
    /// Inserts a duplicate before the record, and moves the cursor to it.
    Before,
    /// Inserts a duplicate after the record, and moves the cursor to it.
    After,
}

/// Cursor over the records of an ordered database, each duplicate by itself.
///
/// The cursor is at a record or, at first and after it has passed an end, at none. Operations other
/// than movements then report that there is no record. The cursor remembers a place (a key and the
/// number of a duplicate), so concurrent writes do not invalidate it. An operation that fails
/// leaves it where it was.
pub struct Cursor {
    database: Database,
    current: Option<Current>,
}

struct Current {
    key: Vec<u8>,
    index: usize,
    value: Vec<u8>,
}

#[cfg(feature = "internals")]
impl Database {
    /// Returns a cursor at a place that [`Cursor::into_place`] has returned.
    pub fn cursor_at(&self, place: Option<(Vec<u8>, usize, Vec<u8>)>) -> Result<Cursor> {
        let current = place.map(|(key, index, value)| Current { key, index, value });
        Ok(Cursor { current, ..Cursor::new(self.clone())? })
    }
}

#[cfg(feature = "internals")]
impl Cursor {
    /// Returns the place: the key, the number among its duplicates, and the value.
    pub fn into_place(self) -> Option<(Vec<u8>, usize, Vec<u8>)> {
        self.current.map(|Current { key, index, value }| (key, index, value))
    }
}

impl Cursor {
    pub(crate) fn new(database: Database) -> Result<Self> {
        ordered(database.engine())?;
        Ok(Self { database, current: None })
    }

    /// Moves to the first record. Returns whether there is one, like all movements.
    pub fn first(&mut self) -> Result<bool> {
        self.seek(Seek::First)
    }

    /// Moves to the last record.
    pub fn last(&mut self) -> Result<bool> {
        self.seek(Seek::Last)
    }

    /// Moves to the first record whose key is at or after `key`.
    pub fn jump(&mut self, key: &[u8]) -> Result<bool> {
        self.seek(Seek::AtOrAfter(key))
    }

    /// Moves to the last record whose key is at or before `key`.
    pub fn jump_back(&mut self, key: &[u8]) -> Result<bool> {
        self.seek(Seek::AtOrBefore(key))
    }

    /// Moves to the next record.
    #[expect(clippy::should_implement_trait, reason = "it returns no items, and moves both ways")]
    pub fn next(&mut self) -> Result<bool> {
        self.step(|current| Seek::After(&current.key, current.index))
    }

    /// Moves to the previous record.
    pub fn prev(&mut self) -> Result<bool> {
        self.step(|current| Seek::Before(&current.key, current.index))
    }

    /// Returns the key of the current record.
    pub fn key(&self) -> Option<&[u8]> {
        self.current.as_ref().map(|current| &current.key[..])
    }

    /// Returns the value of the current record, as of when the cursor moved there.
    pub fn value(&self) -> Option<&[u8]> {
        self.current.as_ref().map(|current| &current.value[..])
    }

    /// Stores a value at the cursor. Returns whether the cursor is at a record.
    pub fn put(&mut self, value: &[u8], how: CursorPut) -> Result<bool> {
        self.database.enter_to_write()?;
        check_value(value.len())?;
        let Some(current) = &mut self.current else { return Ok(false) };
        let change = match how {
            CursorPut::Current => PlaceChange::Replace(value),
            CursorPut::Before => PlaceChange::InsertBefore(value),
            CursorPut::After => PlaceChange::InsertAfter(value),
        };
        let engine = ordered(self.database.engine())?;
        if !engine.change_at(&current.key, current.index, change, self.database.wait())? {
            self.current = None;
            return Ok(false);
        }
        current.index += usize::from(how == CursorPut::After);
        current.value = value.to_vec();
        self.database.acknowledge()?;
        Ok(true)
    }

    /// Removes the current record, and moves to the one after it. Returns whether the cursor was at
    /// a record.
    pub fn remove(&mut self) -> Result<bool> {
        self.database.enter_to_write()?;
        let Some(current) = &self.current else { return Ok(false) };
        let Current { key, index, .. } = current;
        // It is found first, so that a movement that fails has removed nothing.
        let mut following = self.find(Seek::After(key, *index))?;
        let engine = ordered(self.database.engine())?;
        if !engine.change_at(key, *index, PlaceChange::Remove, self.database.wait())? {
            self.current = None;
            return Ok(false);
        }
        if let Some(following) = following.as_mut().filter(|following| following.key == *key) {
            following.index -= 1;
        }
        self.current = following;
        self.database.acknowledge()?;
        Ok(true)
    }

    fn step(&mut self, seek: impl FnOnce(&Current) -> Seek<'_>) -> Result<bool> {
        self.database.enter()?;
        let Some(current) = &self.current else { return Ok(false) };
        self.current = self.find(seek(current))?;
        Ok(self.current.is_some())
    }

    fn seek(&mut self, seek: Seek<'_>) -> Result<bool> {
        self.database.enter()?;
        self.current = self.find(seek)?;
        Ok(self.current.is_some())
    }

    fn find(&self, seek: Seek<'_>) -> Result<Option<Current>> {
        let mut found = None;
        let engine = ordered(self.database.engine())?;
        engine.seek(seek, self.database.wait(), &mut |entry, index| {
            let (key, value) = (entry.key.to_vec(), entry.value.to_vec());
            found = Some(Current { key, index, value });
        })?;
        Ok(found)
    }
}
