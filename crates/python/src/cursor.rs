//! Cursors of trees, and the duplicates of a key.

use crate::bytes::of_key;
use crate::codec::Codecs;
use crate::errors::{self, Failure};
use crate::expiry::Seconds;
use crate::shared::{Child, Shared};
use crate::store::Store;
use cabinet::{Cursor as Place, CursorPut, Side, Version};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// Cursor of the library's, which ends with the database.
struct Slot(Mutex<Option<Place>>);

impl Child for Slot {
    fn end(&self) {
        drop(self.0.lock().take());
    }
}

/// Cursor over the records of a tree, each duplicate by itself. Movements return whether there is a
/// record. It stays valid while records are written.
#[pyclass(module = "cabinet", frozen)]
pub(crate) struct Cursor {
    shared: Arc<Shared>,
    codecs: Codecs,
    slot: Arc<Slot>,
}

impl Cursor {
    /// Runs an operation that may wait, without the GIL.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Place) -> cabinet::Result<T> + Send,
    ) -> PyResult<T> {
        Ok(py.detach(|| {
            let _open = self.shared.enter()?;
            let mut place = self.slot.0.try_lock().ok_or(Failure::Busy)?;
            Ok::<T, Failure>(run(place.as_mut().ok_or(Failure::Closed)?)?)
        })?)
    }

    /// Returns a part of the current record; `None` without one.
    fn part<'py>(
        &self,
        py: Python<'py>,
        part: impl FnOnce(&Place) -> Option<&[u8]>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let _open = self.shared.enter()?;
        let place = self.slot.0.try_lock().ok_or(Failure::Busy)?;
        let place = place.as_ref().ok_or(Failure::Closed)?;
        Ok(part(place).map(|bytes| PyBytes::new(py, bytes)))
    }

    fn insert(&self, value: &Bound<'_, PyAny>, how: CursorPut) -> PyResult<bool> {
        let py = value.py();
        let value = self.codecs.encode(value)?;
        let value = value.as_bytes();
        self.wait(py, |place| place.put(value, how))
    }
}

#[pymethods]
impl Cursor {
    /// Moves to the first record.
    fn first(&self, py: Python<'_>) -> PyResult<bool> {
        self.wait(py, Place::first)
    }

    /// Moves to the last record.
    fn last(&self, py: Python<'_>) -> PyResult<bool> {
        self.wait(py, Place::last)
    }

    /// Moves to the first record whose key is at or after `key`.
    fn jump(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let bytes = of_key(key)?;
        let bytes = bytes.as_bytes();
        self.wait(key.py(), |place| place.jump(bytes))
    }

    /// Moves to the last record whose key is at or before `key`.
    fn jump_back(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let bytes = of_key(key)?;
        let bytes = bytes.as_bytes();
        self.wait(key.py(), |place| place.jump_back(bytes))
    }

    /// Moves to the next record.
    fn next(&self, py: Python<'_>) -> PyResult<bool> {
        self.wait(py, Place::next)
    }

    /// Moves to the previous record.
    fn prev(&self, py: Python<'_>) -> PyResult<bool> {
        self.wait(py, Place::prev)
    }

    /// Key of the current record; `None` without one.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = self.part(py, Place::key)?;
        key.map(|key| self.codecs.key(py, key.as_bytes())).transpose()
    }

    /// Value of the current record, as of when the cursor moved there; `None` without one.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.part(py, Place::value)?.map(|value| self.codecs.decode(value)).transpose()
    }

    /// Replaces the value of the current record. Returns whether there is one.
    fn put(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.insert(value, CursorPut::Current)
    }

    /// Inserts a duplicate before the current record, and moves to it.
    fn insert_before(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.insert(value, CursorPut::Before)
    }

    /// Inserts a duplicate after the current record, and moves to it.
    fn insert_after(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.insert(value, CursorPut::After)
    }

    /// Removes the current record, and moves to the one after it. Returns whether there was one.
    fn remove(&self, py: Python<'_>) -> PyResult<bool> {
        self.wait(py, Place::remove)
    }
}

#[pymethods]
impl Store {
    /// Returns a cursor of a tree, which is at no record yet.
    fn cursor(&self, py: Python<'_>) -> PyResult<Cursor> {
        let place = self.shared.enter()?.slow.cursor().map_err(errors::library)?;
        let slot = Arc::new(Slot(Mutex::new(Some(place))));
        let weak = Arc::downgrade(&slot);
        self.shared.adopt(weak);
        Ok(Cursor { shared: Arc::clone(&self.shared), codecs: self.codecs.copy(py), slot })
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
        let (key, value) = (key.as_bytes(), value.as_bytes());
        let meta = self.rules.meta(py, ttl, expires_at, flags)?;
        let side = if before { Side::Before } else { Side::After };
        let put = self
            .shared
            .change(py, |database| database.put_duplicate_with(key, value, meta, side))?;
        Ok(put)
    }

    /// Trees: returns all values of a key.
    fn get_all<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let key = self.rules.key(key)?;
        let key = key.as_bytes();
        let values = self.shared.read(py, |database| database.get_all(key))?;
        values.iter().map(|value| self.codecs.decode_slice(py, value)).collect()
    }

    /// Trees: returns the number of values that a key has.
    fn count(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<usize> {
        let key = self.rules.key(key)?;
        let key = key.as_bytes();
        Ok(self.shared.read(py, |database| database.count(key))?)
    }

    /// Trees: removes all values of a key. Returns their number.
    fn remove_all(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<usize> {
        let key = self.rules.key(key)?;
        let key = key.as_bytes();
        Ok(self.shared.change(py, |database| database.remove_all(key))?)
    }
}

/// Drops a cursor of a parent process without using it.
impl Drop for Cursor {
    fn drop(&mut self) {
        if let Err(Failure::Forked) = self.shared.enter()
            && let Some(mut place) = self.slot.0.try_lock()
        {
            std::mem::forget(place.take());
        }
    }
}
