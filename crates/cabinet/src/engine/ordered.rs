//! Engines that keep their keys in order: duplicates and places.
//!
//! A key may have several values, its duplicates, which are numbered from 0 on in their order. A
//! method that does not mention duplicates uses the first one.

use crate::{Engine, Error, FullScan, KeyOrder, Meta, Result, Version, Visit, VisitPlaced, Wait};
use std::ops::Range;

/// Position of a new duplicate among those of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before all of them.
    Before,
    /// After all of them.
    After,
}

/// Record to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek<'a> {
    /// The first record.
    First,
    /// The last record: the last duplicate of the last key.
    Last,
    /// The first duplicate of the first key at or after this one.
    AtOrAfter(&'a [u8]),
    /// The last duplicate of the last key at or before this one.
    AtOrBefore(&'a [u8]),
    /// The record after this duplicate of this key, whether or not it exists.
    After(&'a [u8], usize),
    /// The record before this duplicate of this key, whether or not it exists.
    Before(&'a [u8], usize),
}

/// Change at the place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceChange<'a> {
    /// Replaces the value of the record, which keeps its flags and expiry.
    Replace(&'a [u8]),
    /// Inserts a duplicate with this value before the record, in its place.
    InsertBefore(&'a [u8]),
    /// Inserts a duplicate with this value after the record.
    InsertAfter(&'a [u8]),
    /// Removes the record.
    Remove,
}

/// Arguments of [`Ordered::evict`]: the keys, the end, and the removal of a record.
pub struct Eviction<'e> {
    /// Keys that may be evicted. They have no duplicates.
    pub keys: Range<&'e [u8]>,
    /// Returns the bytes still in excess. Eviction ends at 0.
    pub excess_bytes: &'e dyn Fn() -> u64,
    /// Removes a record, unless its version has changed. Returns whether it did. May call the
    /// engine.
    pub remove: &'e mut dyn FnMut(&[u8], Version) -> Result<bool>,
}

/// An engine that keeps its keys in order. As with [`Engine`], `visit` must not call the engine.
pub trait Ordered: Engine {
    /// Returns the order of the keys.
    fn order(&self) -> KeyOrder;

    /// Adds a value to those of a key. Returns its version.
    fn add(&self, key: &[u8], value: &[u8], meta: Meta, side: Side, wait: Wait) -> Result<Version>;

    /// Calls `visit` with all duplicates of a key, in order. Returns their number.
    fn read_all(&self, key: &[u8], wait: Wait, visit: &mut Visit<'_>) -> Result<usize>;

    /// Removes all duplicates of a key. Returns their number.
    fn remove_all(&self, key: &[u8], wait: Wait) -> Result<usize>;

    /// Calls `visit` with the record that `seek` finds, and the number of its duplicate. Returns
    /// whether there is one.
    fn seek(&self, seek: Seek<'_>, wait: Wait, visit: &mut VisitPlaced<'_>) -> Result<bool>;

    /// Returns the next key after those that are stored together with `key`, which become
    /// unreadable together with it. Returns `None` if no keys follow.
    fn beyond(&self, _key: &[u8]) -> Option<Vec<u8>> {
        None
    }

    /// Begins a scan of the records from one key on and before another, in the order of keys or in
    /// the fastest order. Returns `None` if the steps of [`Engine::scan`] are as fast.
    fn scan_range(
        &self,
        _from: Option<&[u8]>,
        _end: Option<&[u8]>,
        _is_in_order: bool,
    ) -> Option<Box<dyn FullScan + '_>> {
        None
    }

    /// Returns the bytes of the records and their cap, if there is one that the owner of the engine
    /// must enforce, see [`Ordered::evict`].
    fn owned_cap(&self) -> Option<(u64, u64)> {
        None
    }

    /// Makes the owner of the engine remove records of a range of keys that were neither read nor
    /// written lately. Calls of several threads wait for each other. Returns false if nothing was
    /// tried because the last call failed and the excess has barely grown since.
    fn evict(&self, _eviction: Eviction<'_>) -> Result<bool> {
        Ok(true)
    }

    /// Applies a change at the place of duplicate number `index` of a key. Returns whether the
    /// duplicate exists.
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
    engine.as_ordered().ok_or(Error::Unsupported {
        operation: "duplicates and cursors",
        kind: "this kind of database",
        advice: "open a B+ tree (.tcb)",
    })
}
