//! Engines that keep their keys in order: duplicates and places.
//!
//! A key may have several values, its duplicates, which are numbered from 0 on in the order in
//! which they stand. A method that does not mention duplicates means the first one.

use crate::{Engine, Error, FullScan, KeyOrder, Meta, RecordRef, Result, Version, Wait};
use std::ops::Range;

/// Position of a new duplicate among those of its key.
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

/// Change of the place of a record.
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

/// Records that [`Ordered::evict`] may remove, how it removes one, and when it ends.
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
    fn order(&self) -> KeyOrder;

    /// Stores a value beside those that the key has; answers its version.
    fn add(&self, key: &[u8], value: &[u8], meta: Meta, side: Side, wait: Wait) -> Result<Version>;

    /// Shows all duplicates of a key, in order; answers how many there are.
    fn read_all(
        &self,
        key: &[u8],
        wait: Wait,
        visit: &mut dyn FnMut(RecordRef<'_>),
    ) -> Result<usize>;

    /// Removes all duplicates of a key; answers how many there were.
    fn remove_all(&self, key: &[u8], wait: Wait) -> Result<usize>;

    /// Shows the record sought, and the number of its duplicate, to `visit`; says whether there
    /// is one.
    fn seek(
        &self,
        seek: Seek<'_>,
        wait: Wait,
        visit: &mut dyn FnMut(RecordRef<'_>, usize),
    ) -> Result<bool>;

    /// Returns the key at which the keys go on after those that are kept together with this one,
    /// and that cannot be read if it cannot. `None` if no keys follow.
    fn beyond(&self, _key: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Begins a scan of the records from one key on and before another, in the order of keys or in
    /// whatever order is fastest. `None` if the steps of [`Engine::scan`] are as fast.
    fn scan_range(
        &self,
        _from: Option<&[u8]>,
        _end: Option<&[u8]>,
        _is_in_order: bool,
    ) -> Option<Box<dyn FullScan + '_>> {
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

/// Returns an engine as an ordered one.
pub(crate) fn ordered(engine: &dyn Engine) -> Result<&dyn Ordered> {
    engine
        .as_ordered()
        .ok_or_else(|| Error::NotSupported("duplicates and cursors need a B+ tree (.tcb)".into()))
}
