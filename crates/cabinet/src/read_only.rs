//! An engine that refuses writes.

use crate::engine::ordered::{Ordered, PlaceChange, Seek, Side, ordered};
use crate::{
    Batch, Change, Engine, Entry, Error, FullScan, Meta, Numbered, Options, Order, Position,
    Result, Version, Wait, Wanted,
};
use std::borrow::Cow;
use std::sync::Arc;

/// Passes reads on to another engine and refuses everything else.
pub(crate) struct ReadOnly {
    engine: Arc<dyn Engine>,
}

impl ReadOnly {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Self {
        Self { engine }
    }
}

fn refused() -> Error {
    Error::NotSupported("writing to a database that was opened for reading only".into())
}

impl Engine for ReadOnly {
    fn identity(&self) -> usize {
        self.engine.identity()
    }

    fn read(&self, key: &[u8], wait: Wait, visit: &mut dyn FnMut(Entry<'_>)) -> Result<bool> {
        self.engine.read(key, wait, visit)
    }

    fn put(&self, _key: &[u8], _value: &[u8], _meta: Meta, _wait: Wait) -> Result<Version> {
        Err(refused())
    }

    fn update(
        &self,
        _key: &[u8],
        _wait: Wait,
        _decide: &mut dyn FnMut(Option<Entry<'_>>) -> Change,
    ) -> Result<Version> {
        Err(refused())
    }

    fn write(&self, _batch: &Batch) -> Result<()> {
        Err(refused())
    }

    fn scan(&self, from: &Position, visit: &mut dyn FnMut(Entry<'_>)) -> Result<Option<Position>> {
        self.engine.scan(from, visit)
    }

    fn scan_keys(&self, from: &Position, visit: &mut dyn FnMut(&[u8])) -> Result<Option<Position>> {
        self.engine.scan_keys(from, visit)
    }

    fn full_scan(&self, wanted: Wanted) -> Result<Box<dyn FullScan + '_>> {
        self.engine.full_scan(wanted)
    }

    fn scan_in_any_order(&self) -> Result<Box<dyn FullScan + '_>> {
        self.engine.scan_in_any_order()
    }

    fn position_of(&self, key: &[u8]) -> Position {
        self.engine.position_of(key)
    }

    fn position_of_prefix(&self, prefix: &[u8]) -> Position {
        self.engine.position_of_prefix(prefix)
    }

    fn canonical_key<'k>(&self, key: &'k [u8]) -> Result<Cow<'k, [u8]>> {
        self.engine.canonical_key(key)
    }

    fn as_numbered(&self) -> Option<&dyn Numbered> {
        self.engine.as_numbered()
    }

    fn len(&self) -> u64 {
        self.engine.len()
    }

    fn optimize(&self) -> Result<()> {
        Err(refused())
    }

    fn retune(&self, _options: &Options) -> Result<()> {
        Err(refused())
    }

    fn clear(&self) -> Result<()> {
        Err(refused())
    }

    crate::delegate::delegate_storage!(engine);

    fn as_ordered(&self) -> Option<&dyn Ordered> {
        self.engine.as_ordered().is_some().then_some(self)
    }

    fn figures(&self) -> Vec<(&'static str, String)> {
        self.engine.figures()
    }
}

/// Only of an engine that is ordered itself, see `as_ordered`.
impl Ordered for ReadOnly {
    fn order(&self) -> Order {
        self.engine.as_ordered().map_or_else(Order::default, Ordered::order)
    }

    fn add(
        &self,
        _key: &[u8],
        _value: &[u8],
        _meta: Meta,
        _side: Side,
        _wait: Wait,
    ) -> Result<Version> {
        Err(refused())
    }

    fn read_all(&self, key: &[u8], wait: Wait, visit: &mut dyn FnMut(Entry<'_>)) -> Result<usize> {
        ordered(&*self.engine)?.read_all(key, wait, visit)
    }

    fn remove_all(&self, _key: &[u8], _wait: Wait) -> Result<usize> {
        Err(refused())
    }

    fn seek(
        &self,
        seek: Seek<'_>,
        wait: Wait,
        visit: &mut dyn FnMut(Entry<'_>, usize),
    ) -> Result<bool> {
        ordered(&*self.engine)?.seek(seek, wait, visit)
    }

    fn scan_range(
        &self,
        from: Option<&[u8]>,
        end: Option<&[u8]>,
        is_in_order: bool,
    ) -> Option<Box<dyn FullScan + '_>> {
        self.engine.as_ordered()?.scan_range(from, end, is_in_order)
    }

    fn change_at(
        &self,
        _key: &[u8],
        _index: usize,
        _change: PlaceChange<'_>,
        _wait: Wait,
    ) -> Result<bool> {
        Err(refused())
    }
}
