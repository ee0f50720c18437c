//! What engines have that keep their keys in order: duplicates, places, cursors.
//!
//! A key may have several values, its duplicates, which are numbered from 0 on in the order in
//! which they stand. What does not speak of duplicates means the first one.

use crate::{Database, Engine, Entry, Error, Meta, Order, Result, Version, Wait};
use std::ops::Range;

/// Where a duplicate goes among those of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before all of them.
    Before,
    /// After all of them.
    After,
}

/// A record to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek<'a> {
    /// The first of all.
    First,
    /// The last of all: the last duplicate of the last key.
    Last,
    /// The first duplicate of the first key at or after this one.
    AtOrAfter(&'a [u8]),
    /// The last duplicate of the last key at or before this one.
    AtOrBefore(&'a [u8]),
    /// The record behind this duplicate of this key, be it there or not.
    After(&'a [u8], usize),
    /// The record in front of this duplicate of this key, be it there or not.
    Before(&'a [u8], usize),
}

/// What becomes of the place where a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceChange<'a> {
    /// The record gets this value; it keeps its flags and expiry.
    Replace(&'a [u8]),
    /// A duplicate with this value goes in front of it, in its place.
    InsertBefore(&'a [u8]),
    /// A duplicate with this value goes behind it.
    InsertAfter(&'a [u8]),
    /// It goes.
    Remove,
}

/// What [`Ordered::evict`] removes, and how far it goes.
pub struct Eviction<'e> {
    /// The keys that may go. There are no duplicates of them.
    pub keys: Range<&'e [u8]>,
    /// Returns how many bytes are still in excess; at 0 it ends.
    pub excess_bytes: &'e dyn Fn() -> u64,
    /// Removes a record, unless it has another version by now; returns whether it did. It may call
    /// the engine.
    pub remove: &'e mut dyn FnMut(&[u8], Version) -> Result<bool>,
}

/// An engine that keeps its keys in order. As with [`Engine`], `visit` must not call back into it.
pub trait Ordered: Engine {
    /// The order of its keys.
    fn order(&self) -> Order;

    /// Stores a value beside those that the key has; answers its version.
    fn add(&self, key: &[u8], value: &[u8], meta: Meta, side: Side, wait: Wait) -> Result<Version>;

    /// Shows all duplicates of a key, in order; answers how many there are.
    fn read_all(&self, key: &[u8], wait: Wait, visit: &mut dyn FnMut(Entry<'_>)) -> Result<usize>;

    /// Removes all duplicates of a key; answers how many there were.
    fn remove_all(&self, key: &[u8], wait: Wait) -> Result<usize>;

    /// Shows the record sought, and the number of its duplicate, to `visit`; says whether there
    /// is one.
    fn seek(
        &self,
        seek: Seek<'_>,
        wait: Wait,
        visit: &mut dyn FnMut(Entry<'_>, usize),
    ) -> Result<bool>;

    /// Where the keys go on behind those that are kept together with this one, and that cannot be
    /// read if it cannot. `None` if none do.
    fn beyond(&self, _key: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Bytes of the records and the cap on them, in this order, where there is a cap and the owner
    /// of the engine is to keep to it, see [`Ordered::evict`].
    fn owned_cap(&self) -> Option<(u64, u64)> {
        None
    }

    /// Has the owner of the engine remove the records of a range of keys that were neither read nor
    /// written lately. The calls of several threads wait for each other. False if nothing was tried
    /// because the last call was in vain, and there is hardly more in excess now.
    fn evict(&self, _eviction: Eviction<'_>) -> Result<bool> {
        Ok(true)
    }

    /// Changes the place of the duplicate number `index` of a key; says whether there is one.
    fn change_at(
        &self,
        key: &[u8],
        index: usize,
        change: PlaceChange<'_>,
        wait: Wait,
    ) -> Result<bool>;
}

/// How [`Cursor::put`] stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorPut {
    /// In place of the record that the cursor stands on.
    Current,
    /// As a duplicate in front of it, on which the cursor then stands.
    Before,
    /// As a duplicate behind it, on which the cursor then stands.
    After,
}

/// Goes through the records of an ordered database, each duplicate by itself.
///
/// It stands on a record or, at first and after it has gone over the end, on none; then everything
/// but going somewhere answers that there is nothing. It stands on a place (a key and the number of
/// a duplicate), so what others write meanwhile does not mislead it.
pub struct Cursor {
    database: Database,
    place: Option<Place>,
}

struct Place {
    key: Vec<u8>,
    index: usize,
    value: Vec<u8>,
}

impl Cursor {
    pub(crate) fn new(database: Database) -> Result<Self> {
        ordered(database.engine())?;
        Ok(Self { database, place: None })
    }

    /// Goes to the first record; says whether there is one.
    pub fn first(&mut self) -> Result<bool> {
        self.seek(Seek::First)
    }

    /// Goes to the last record.
    pub fn last(&mut self) -> Result<bool> {
        self.seek(Seek::Last)
    }

    /// Goes to the first record whose key is at or after `key`.
    pub fn jump(&mut self, key: &[u8]) -> Result<bool> {
        self.seek(Seek::AtOrAfter(key))
    }

    /// Goes to the last record whose key is at or before `key`.
    pub fn jump_back(&mut self, key: &[u8]) -> Result<bool> {
        self.seek(Seek::AtOrBefore(key))
    }

    /// Goes to the next record.
    #[expect(clippy::should_implement_trait, reason = "it lends no records, and goes both ways")]
    pub fn next(&mut self) -> Result<bool> {
        self.step(|place| Seek::After(&place.key, place.index))
    }

    /// Goes to the previous record.
    pub fn prev(&mut self) -> Result<bool> {
        self.step(|place| Seek::Before(&place.key, place.index))
    }

    /// The key it stands on.
    pub fn key(&self) -> Option<&[u8]> {
        self.place.as_ref().map(|place| &place.key[..])
    }

    /// The value it stands on, as it was when the cursor came there.
    pub fn value(&self) -> Option<&[u8]> {
        self.place.as_ref().map(|place| &place.value[..])
    }

    /// Stores a value where it stands; says whether it stands anywhere.
    pub fn put(&mut self, value: &[u8], how: CursorPut) -> Result<bool> {
        self.database.enter()?;
        crate::database::check_value(value.len())?;
        let Some(place) = &mut self.place else { return Ok(false) };
        let change = match how {
            CursorPut::Current => PlaceChange::Replace(value),
            CursorPut::Before => PlaceChange::InsertBefore(value),
            CursorPut::After => PlaceChange::InsertAfter(value),
        };
        let engine = ordered(self.database.engine())?;
        if !engine.change_at(&place.key, place.index, change, self.database.wait())? {
            self.place = None;
            return Ok(false);
        }
        place.index += usize::from(how == CursorPut::After);
        place.value = value.to_vec();
        self.database.acknowledge()?;
        Ok(true)
    }

    /// Removes the record it stands on, and goes to the one behind it; says whether it stood
    /// anywhere.
    pub fn remove(&mut self) -> Result<bool> {
        self.database.enter()?;
        let Some(place) = self.place.take() else { return Ok(false) };
        let engine = ordered(self.database.engine())?;
        let wait = self.database.wait();
        if !engine.change_at(&place.key, place.index, PlaceChange::Remove, wait)? {
            return Ok(false);
        }
        self.database.acknowledge()?;
        match place.index.checked_sub(1) {
            Some(previous) => self.seek(Seek::After(&place.key, previous))?,
            None => self.seek(Seek::AtOrAfter(&place.key))?,
        };
        Ok(true)
    }

    fn step(&mut self, seek: impl FnOnce(&Place) -> Seek<'_>) -> Result<bool> {
        self.database.enter()?;
        match self.place.take() {
            Some(place) => self.seek(seek(&place)),
            None => Ok(false),
        }
    }

    fn seek(&mut self, seek: Seek<'_>) -> Result<bool> {
        self.database.enter()?;
        let mut found = None;
        let engine = ordered(self.database.engine())?;
        engine.seek(seek, self.database.wait(), &mut |entry, index| {
            let (key, value) = (entry.key.to_vec(), entry.value.to_vec());
            found = Some(Place { key, index, value });
        })?;
        self.place = found;
        Ok(self.place.is_some())
    }
}

/// The engine as an ordered one.
pub(crate) fn ordered(engine: &dyn Engine) -> Result<&dyn Ordered> {
    engine.as_ordered().ok_or_else(|| {
        Error::NotSupported("duplicates and cursors, in a database that is not a tree".into())
    })
}
