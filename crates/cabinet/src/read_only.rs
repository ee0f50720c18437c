//! An engine that refuses writes.

use crate::{
    Batch, Change, Durability, DurableListener, Engine, Entry, Error, LogPosition, Meta, Position,
    Result, Version, Wait,
};
use std::path::{Path, PathBuf};
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

    fn position_of(&self, key: &[u8]) -> Position {
        self.engine.position_of(key)
    }

    fn position_of_prefix(&self, prefix: &[u8]) -> Position {
        self.engine.position_of_prefix(prefix)
    }

    fn len(&self) -> u64 {
        self.engine.len()
    }

    fn size_bytes(&self) -> u64 {
        self.engine.size_bytes()
    }

    fn path(&self) -> PathBuf {
        self.engine.path()
    }

    fn sync(&self) -> Result<()> {
        self.engine.sync()
    }

    fn optimize(&self) -> Result<()> {
        Err(refused())
    }

    fn clear(&self) -> Result<()> {
        Err(refused())
    }

    fn copy_to(&self, path: &Path) -> Result<()> {
        self.engine.copy_to(path)
    }

    fn durability(&self) -> Durability {
        self.engine.durability()
    }

    fn appended(&self) -> LogPosition {
        self.engine.appended()
    }

    fn durable(&self) -> LogPosition {
        self.engine.durable()
    }

    fn wait_durable(&self, position: LogPosition) -> Result<()> {
        self.engine.wait_durable(position)
    }

    fn on_durable(&self, listener: DurableListener) {
        self.engine.on_durable(listener);
    }

    fn figures(&self) -> Vec<(&'static str, String)> {
        self.engine.figures()
    }
}
