//! Cursors of trees, and the duplicates of a key.

use crate::bytes::of_key;
use crate::codec::Codecs;
use crate::errors::Failure;
use crate::expiry::Seconds;
use crate::operation::{Operation, Place, Record, Step};
use crate::shared::Shared;
use crate::store::Store;
use cabinet::Version;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// Cursor over the records of a tree, each duplicate by itself. Movements return whether there is a
/// record. It stays valid while records are written.
#[pyclass(module = "cabinet", frozen)]
pub(crate) struct Cursor {
    shared: Arc<Shared>,
    codecs: Codecs,
    place: Mutex<Option<Place>>,
}

impl Cursor {
    fn step(&self, py: Python<'_>, step: Step<'_>) -> PyResult<bool> {
        let mut place = self.place.try_lock().ok_or(Failure::Busy)?;
        let from = match step {
            Step::First | Step::Last | Step::Jump(_) | Step::JumpBack(_) => None,
            _ => place.clone(),
        };
        let (is_there, to) = self.shared.wait(py, &Operation::Step(from, step))?;
        *place = to;
        Ok(is_there)
    }

    /// Returns a part of the current record; `None` without one.
    fn part<'py>(
        &self,
        py: Python<'py>,
        part: impl FnOnce(&Place) -> &[u8],
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let _open = self.shared.enter()?;
        let place = self.place.try_lock().ok_or(Failure::Busy)?;
        Ok(place.as_ref().map(|place| PyBytes::new(py, part(place))))
    }
}

#[pymethods]
impl Cursor {
    /// Moves to the first record.
    fn first(&self, py: Python<'_>) -> PyResult<bool> {
        self.step(py, Step::First)
    }

    /// Moves to the last record.
    fn last(&self, py: Python<'_>) -> PyResult<bool> {
        self.step(py, Step::Last)
    }

    /// Moves to the first record whose key is at or after `key`.
    fn jump(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let bytes = of_key(key)?;
        self.step(key.py(), Step::Jump(bytes.as_bytes().into()))
    }

    /// Moves to the last record whose key is at or before `key`.
    fn jump_back(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let bytes = of_key(key)?;
        self.step(key.py(), Step::JumpBack(bytes.as_bytes().into()))
    }

    /// Moves to the next record.
    fn next(&self, py: Python<'_>) -> PyResult<bool> {
        self.step(py, Step::Next)
    }

    /// Moves to the previous record.
    fn prev(&self, py: Python<'_>) -> PyResult<bool> {
        self.step(py, Step::Previous)
    }

    /// Key of the current record; `None` without one.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = self.part(py, |(key, _, _)| key)?;
        key.map(|key| self.codecs.key(py, key.as_bytes())).transpose()
    }

    /// Value of the current record, as of when the cursor moved there; `None` without one.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.part(py, |(_, _, value)| value)?.map(|value| self.codecs.decode(value)).transpose()
    }

    /// Replaces the value of the current record. Returns whether there is one.
    fn put(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let bytes = self.codecs.encode(value)?;
        self.step(value.py(), Step::Put(bytes.as_bytes().into()))
    }

    /// Inserts a duplicate before the current record, and moves to it.
    fn insert_before(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let bytes = self.codecs.encode(value)?;
        self.step(value.py(), Step::InsertBefore(bytes.as_bytes().into()))
    }

    /// Inserts a duplicate after the current record, and moves to it.
    fn insert_after(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let bytes = self.codecs.encode(value)?;
        self.step(value.py(), Step::InsertAfter(bytes.as_bytes().into()))
    }

    /// Removes the current record, and moves to the one after it. Returns whether there was one.
    fn remove(&self, py: Python<'_>) -> PyResult<bool> {
        self.step(py, Step::Remove)
    }
}

#[pymethods]
impl Store {
    /// Returns a cursor of a tree, which is at no record yet.
    fn cursor(&self, py: Python<'_>) -> PyResult<Cursor> {
        let (shared, place) = (Arc::clone(&self.shared), Mutex::new(None));
        let cursor = Cursor { shared, codecs: self.codecs.copy(py), place };
        // It fails if the database has no cursors.
        cursor.step(py, Step::Next)?;
        Ok(cursor)
    }

    /// Trees: stores a value beside those that a key has, after them or before them. Returns its
    /// version.
    #[pyo3(signature = (key, value, *, before=false, ttl=None, expires_at=None, flags=0))]
    #[expect(clippy::too_many_arguments, reason = "they are the method's in Python")]
    fn put_duplicate(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        before: bool,
        ttl: Option<Seconds>,
        expires_at: Option<Seconds>,
        flags: u32,
    ) -> PyResult<Version> {
        let (key, value) = self.pair(key, value)?;
        let (key, value) = (key.as_bytes().into(), value.as_bytes().into());
        let meta = self.rules.meta(py, ttl, expires_at, flags)?;
        let put = Operation::PutDuplicate(Record { key, value, meta }, before);
        Ok(self.shared.change(py, &put)?)
    }

    /// Trees: returns all values of a key.
    fn get_all<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let key = self.rules.key(key)?;
        let get = Operation::GetAll(key.as_bytes().into());
        let values: Vec<Option<Vec<u8>>> = self.shared.read(py, &get)?;
        values.iter().flatten().map(|value| self.codecs.decode_slice(py, value)).collect()
    }

    /// Trees: returns the number of values that a key has.
    fn count(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        let key = self.rules.key(key)?;
        Ok(self.shared.read(py, &Operation::Count(key.as_bytes().into()))?)
    }

    /// Trees: removes all values of a key. Returns their number.
    fn remove_all(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<u64> {
        let key = self.rules.key(key)?;
        Ok(self.shared.change(py, &Operation::RemoveAll(key.as_bytes().into()))?)
    }
}
