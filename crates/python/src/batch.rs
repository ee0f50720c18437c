//! Batches: changes that are applied together or not at all.

use crate::codec::Codecs;
use crate::errors::Failure;
use crate::expiry::Seconds;
use crate::operation::Operation;
use crate::rules::Rules;
use crate::shared::Shared;
use crate::store::Store;
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::borrow::Cow;
use std::sync::Arc;

/// Changes that are collected, and then applied together or not at all.
#[pyclass(module = "cabinet._cabinet", subclass, frozen)]
pub(crate) struct Batch {
    shared: Arc<Shared>,
    codecs: Codecs,
    rules: Rules,
    changes: Mutex<cabinet::Batch>,
}

impl Batch {
    fn with<T>(&self, run: impl FnOnce(&mut cabinet::Batch) -> T) -> PyResult<T> {
        let mut changes = self.changes.try_lock().ok_or(Failure::Busy)?;
        Ok(run(&mut changes))
    }
}

#[pymethods]
impl Batch {
    #[new]
    fn new(store: &Bound<'_, Store>) -> PyResult<Self> {
        let (py, store) = (store.py(), store.get());
        drop(store.shared.enter()?);
        let (shared, codecs) = (Arc::clone(&store.shared), store.codecs.copy(py));
        let rules = store.rules.clone();
        Ok(Self { shared, codecs, rules, changes: Mutex::default() })
    }

    /// Stores a record. A later change of the same key wins.
    #[pyo3(signature = (key, value, *, ttl=None, expires_at=None, flags=0))]
    fn put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<Seconds>,
        expires_at: Option<Seconds>,
        flags: u32,
    ) -> PyResult<()> {
        let (key, value) = (self.rules.key_to_put(key)?, self.codecs.encode(value)?);
        self.rules.check_size(key.py(), value.as_bytes().len())?;
        let meta = self.rules.meta(key.py(), ttl, expires_at, flags)?;
        self.with(|batch| batch.put(key.as_bytes(), value.as_bytes(), meta))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(key, value, None, None, 0)
    }

    /// Removes a record, if there is one.
    fn remove(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let key = self.rules.key(key)?;
        self.with(|batch| batch.remove(key.as_bytes()))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.remove(key)
    }

    /// Applies the batch only if the record has this version; 0 stands for no record.
    fn expect(&self, key: &Bound<'_, PyAny>, version: u64) -> PyResult<()> {
        let key = self.rules.key(key)?;
        let version = Some(version).filter(|version| *version != 0);
        self.with(|batch| batch.expect(key.as_bytes(), version))
    }

    fn __len__(&self) -> PyResult<usize> {
        self.with(|batch| batch.changes().len())
    }

    /// Applies the changes together, and empties the batch. Fails with `ConflictError`, and changes
    /// nothing, if a record has another version than was expected.
    fn write(&self, py: Python<'_>) -> PyResult<()> {
        let batch = self.with(std::mem::take)?;
        Ok(self.shared.change(py, &Operation::Write(Cow::Borrowed(&batch)))?)
    }

    /// Discards the changes.
    fn clear(&self) -> PyResult<()> {
        self.with(std::mem::take).map(drop)
    }
}
