//! `Store`: a database or a transaction, with the operations on single records.

use crate::buffer::Target;
use crate::bytes::of_part;
use crate::codec::Codecs;
use crate::errors::{self, Failure};
use crate::expiry::{RecordMeta, Seconds};
use crate::options::Opening;
use crate::rules::{Rules, width_of};
use crate::shared::{Handle, Shared};
use cabinet::{Change, Error, Meta, RecordRef, Swap, Version};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::sync::Arc;

/// Maximum number of keys that are read at a time once one has to wait.
const KEYS_PER_WAIT: usize = 256;

/// An open database, or a transaction in one.
///
/// The classes `cabinet.Database` and `cabinet.Transaction` add methods in Python.
#[pyclass(module = "cabinet._cabinet", subclass, frozen)]
pub(crate) struct Store {
    pub(crate) shared: Arc<Shared>,
    pub(crate) codecs: Codecs,
    pub(crate) rules: Rules,
    /// The database of a transaction.
    parent: Option<Arc<Shared>>,
}

/// Value that was read: an object already, or bytes that were copied without the GIL.
enum Found {
    Object(Py<PyBytes>),
    Copied(Vec<u8>),
}

impl Found {
    fn bytes(self, py: Python<'_>) -> Bound<'_, PyBytes> {
        match self {
            Self::Object(bytes) => bytes.into_bound(py),
            Self::Copied(bytes) => PyBytes::new(py, &bytes),
        }
    }
}

impl Store {
    /// Returns the value of a key. It is copied once, from the database's memory into the object.
    #[inline]
    fn find<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let object = |record: RecordRef<'_>| Found::Object(PyBytes::new(py, record.value).unbind());
        let found = match self.shared.try_now(|database| database.read(key, object))? {
            Some(found) => found,
            None => self.shared.wait(py, |database| database.get(key))?.map(Found::Copied),
        };
        Ok(found.map(|found| found.bytes(py)))
    }

    /// Returns the bytes of the key and the value of a record to store.
    #[inline]
    pub(crate) fn pair<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        Ok((self.rules.key_to_put(key)?, self.encode(value)?))
    }

    /// Returns the bytes to store for a value.
    #[inline]
    pub(crate) fn encode<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.codecs.encode(value)?;
        self.rules.check_size(value.py(), bytes.as_bytes().len())?;
        Ok(bytes)
    }

    fn put_bytes(&self, py: Python<'_>, key: &[u8], value: &[u8], meta: Meta) -> PyResult<Version> {
        Ok(self.shared.change(py, |database| database.put_with(key, value, meta))?)
    }
}

#[pymethods]
impl Store {
    /// Opens a database by its name, or begins a transaction in one that is open.
    #[new]
    #[pyo3(signature = (name, *, codec=None, keys="bytes", **options))]
    fn new(
        name: &Bound<'_, PyAny>,
        codec: Option<&Bound<'_, PyAny>>,
        keys: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let py = name.py();
        if let Ok(database) = name.cast::<Self>() {
            return database.get().begin(py);
        }
        let raw = pyo3::types::PyString::intern(py, "raw");
        let codecs = Codecs::new(codec.unwrap_or(&raw), keys)?;
        let opening = Opening::new(name, options)?;
        let database = py.detach(|| opening.open()).map_err(errors::library)?;
        let shared = Shared::new(Handle::of_database(database));
        let rules = Rules::of(&shared)?;
        Ok(Self { shared, codecs, rules, parent: None })
    }

    #[inline]
    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self.find(key.py(), self.rules.key(key)?.as_bytes())? {
            Some(value) => self.codecs.decode(value),
            None => Err(errors::missing(key)),
        }
    }

    #[inline]
    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, value) = self.pair(key, value)?;
        self.put_bytes(py, key.as_bytes(), value.as_bytes(), Meta::NONE).map(drop)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.remove(key)? { Ok(()) } else { Err(errors::missing(key)) }
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.size(py, key)?.is_some())
    }

    fn __len__(&self) -> PyResult<usize> {
        let length = self.shared.enter()?.slow.len();
        usize::try_from(length).map_err(|_| PyOverflowError::new_err("the number of records"))
    }

    /// Returns the value of a key, or `default`.
    #[pyo3(signature = (key, default=None))]
    #[inline]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.find(py, self.rules.key(key)?.as_bytes())? {
            Some(value) => self.codecs.decode(value).map(Some),
            None => Ok(default),
        }
    }

    /// Returns the value of a key with its flags, expiry and version; `None` without a record.
    fn get_with_meta<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, RecordMeta)>> {
        let key = self.rules.key(key)?;
        let key = key.as_bytes();
        let read = |record: RecordRef<'_>| (record.value.to_vec(), meta_of_record(&record));
        let found = self.shared.read(py, |database| database.read(key, read))?;
        let decoded = found.map(|(value, meta)| Ok((self.codecs.decode_slice(py, &value)?, meta)));
        decoded.transpose()
    }

    /// Returns flags, expiry, version and size of a record; `None` without one.
    fn meta(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<RecordMeta>> {
        let key = self.rules.key(key)?;
        let key = key.as_bytes();
        let read = |record: RecordRef<'_>| meta_of_record(&record);
        Ok(self.shared.read(py, |database| database.read(key, read))?)
    }

    /// Returns the bytes of a value as it is stored; `None` without a record.
    fn size(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let key = self.rules.key(key)?;
        let key = key.as_bytes();
        Ok(self.shared.read(py, |database| database.value_size(key))?)
    }

    /// Copies the stored bytes of a value to the beginning of a buffer that may be written to.
    /// Returns their number; `None` without a record. Fails with `ValueError`, and leaves the
    /// buffer as it was, if it is too small.
    fn get_into(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<Option<usize>> {
        let key = self.rules.key(key)?;
        let key = key.as_bytes();
        let target = Target::new(buffer)?;
        let copy = |record: RecordRef<'_>| target.copy(record.value);
        match self.shared.try_now(|database| database.read(key, copy))? {
            Some(copied) => copied.transpose(),
            None => {
                let value = self.shared.wait(py, |database| database.get(key))?;
                value.map(|value| target.copy(&value)).transpose()
            }
        }
    }

    /// Returns the values of several keys, in their order, with `default` for those without one.
    #[pyo3(signature = (keys, default=None))]
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let default = default.unwrap_or_else(|| py.None().into_bound(py));
        let keys =
            keys.try_iter()?.map(|key| self.rules.key(&key?)).collect::<PyResult<Vec<_>>>()?;
        let keys: Vec<&[u8]> = keys.iter().map(PyBytesMethods::as_bytes).collect();
        let object = |record: RecordRef<'_>| Found::Object(PyBytes::new(py, record.value).unbind());
        let mut found = Vec::with_capacity(keys.len());
        loop {
            self.shared.try_now(|database| {
                for key in &keys[found.len()..] {
                    found.push(database.read(key, object)?);
                }
                Ok(())
            })?;
            // If one has to wait, the next ones probably have to, too.
            let rest = &keys[found.len()..];
            let rest = &rest[..rest.len().min(KEYS_PER_WAIT)];
            if rest.is_empty() {
                break;
            }
            let copied = self.shared.wait(py, |database| {
                rest.iter().map(|key| database.get(key)).collect::<cabinet::Result<Vec<_>>>()
            })?;
            found.extend(copied.into_iter().map(|value| value.map(Found::Copied)));
        }
        let value = |found: Option<Found>| match found {
            Some(found) => self.codecs.decode(found.bytes(py)),
            None => Ok(default.clone()),
        };
        found.into_iter().map(value).collect()
    }

    /// Stores a record, and replaces the one that the key has. Returns its version.
    #[pyo3(signature = (key, value, *, ttl=None, expires_at=None, flags=0))]
    fn put(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<Seconds>,
        expires_at: Option<Seconds>,
        flags: u32,
    ) -> PyResult<Version> {
        let (key, value) = self.pair(key, value)?;
        self.put_bytes(
            py,
            key.as_bytes(),
            value.as_bytes(),
            self.rules.meta(py, ttl, expires_at, flags)?,
        )
    }

    /// Stores several records, given as a mapping or as pairs, all together or none of them.
    #[pyo3(signature = (records, *, ttl=None, expires_at=None, flags=0))]
    fn put_many(
        &self,
        py: Python<'_>,
        records: &Bound<'_, PyAny>,
        ttl: Option<Seconds>,
        expires_at: Option<Seconds>,
        flags: u32,
    ) -> PyResult<()> {
        let meta = self.rules.meta(py, ttl, expires_at, flags)?;
        let mut batch = cabinet::Batch::new();
        let mut put = |key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>| {
            let (key, value) = self.pair(key, value)?;
            batch.put(key.as_bytes(), value.as_bytes(), meta);
            Ok::<(), PyErr>(())
        };
        // As in `dict.update`, a mapping has keys. Most have items, too, which are read faster.
        let items = records.getattr_opt("items")?.map(|items| items.call0()).transpose()?;
        match (items, records.getattr_opt("keys")?) {
            (None, Some(keys)) => {
                for key in keys.call0()?.try_iter()? {
                    let key = key?;
                    put(&key, &records.get_item(&key)?)?;
                }
            }
            (pairs, _) => {
                for pair in pairs.as_ref().unwrap_or(records).try_iter()? {
                    let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
                    put(&key, &value)?;
                }
            }
        }
        Ok(self.shared.change(py, |database| database.write(&batch))?)
    }

    /// Stores a record if the key has none. Returns whether it did.
    #[pyo3(signature = (key, value, *, ttl=None, expires_at=None, flags=0))]
    fn add(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<Seconds>,
        expires_at: Option<Seconds>,
        flags: u32,
    ) -> PyResult<bool> {
        let (key, value) = self.pair(key, value)?;
        let (key, value) = (key.as_bytes(), value.as_bytes());
        let meta = self.rules.meta(py, ttl, expires_at, flags)?;
        Ok(self.shared.change(py, |database| database.put_keep(key, value, meta))?)
    }

    /// Stores a record if the key has one. Returns whether it did.
    #[pyo3(signature = (key, value, *, ttl=None, expires_at=None, flags=0))]
    fn replace(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<Seconds>,
        expires_at: Option<Seconds>,
        flags: u32,
    ) -> PyResult<bool> {
        let (key, value) = self.pair(key, value)?;
        let (key, value) = (key.as_bytes(), value.as_bytes());
        let meta = self.rules.meta(py, ttl, expires_at, flags)?;
        Ok(self.shared.change(py, |database| database.replace(key, value, meta))?)
    }

    /// Returns the value of a key. Stores `default` first if there is none. One atomic step.
    #[pyo3(signature = (key, default=None))]
    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let none = py.None().into_bound(py);
        let default = default.unwrap_or(&none);
        let key = self.rules.key_to_put(key)?;
        let key = key.as_bytes();
        if let Some(value) = self.find(py, key)? {
            return self.codecs.decode(value);
        }
        let encoded = self.encode(default)?;
        let encoded = encoded.as_bytes();
        let decide = |record: Option<RecordRef<'_>>| match record {
            Some(record) => (Change::Keep, Some(record.value.to_vec())),
            None => (Change::Put(encoded.to_vec(), Meta::NONE), None),
        };
        match self.shared.change(py, |database| database.modify(key, decide))? {
            Some(value) => self.codecs.decode_slice(py, &value),
            None => Ok(default.clone()),
        }
    }

    /// Appends bytes (or a `str` as UTF-8) to a value. Creates the record if there is none.
    fn append(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        part: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, part) = (self.rules.key(key)?, of_part(part)?);
        let (key, part) = (key.as_bytes(), part.as_bytes());
        if matches!(self.rules, Rules::Fixed(_)) {
            return self.append_within(py, key, part);
        }
        Ok(self.shared.change(py, |database| database.put_cat(key, part))?)
    }

    /// Removes a record. Returns whether there was one.
    fn remove(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = key.py();
        let key = self.rules.key(key)?;
        let key = key.as_bytes();
        Ok(self.shared.change(py, |database| database.remove(key))?)
    }

    /// Removes the records of several keys, one after the other. Returns how many there were.
    fn remove_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut removed = 0;
        for key in keys.try_iter()? {
            let key = self.rules.key(&key?)?;
            let key = key.as_bytes();
            removed += usize::from(self.shared.change(py, |database| database.remove(key))?);
        }
        Ok(removed)
    }

    /// Removes a record and returns its value, in one atomic step. Without a record returns
    /// `default`, or fails with `MissingKeyError` if none is given.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if default.len() > 1 {
            return Err(PyTypeError::new_err("pop takes a key and at most one default"));
        }
        let bytes = self.rules.key(key)?;
        let bytes = bytes.as_bytes();
        while let Some(value) = self.find(py, bytes)? {
            // A value that cannot be decoded is not removed.
            let decoded = self.codecs.decode(value.clone())?;
            if self.change_if_equal(py, bytes, value.as_bytes(), || Change::Remove)? {
                return Ok(decoded);
            }
        }
        default.get_item(0).map_err(|_| errors::missing(key))
    }

    /// Sets the expiry of a record: seconds from now on, or seconds since the Unix epoch, or never.
    /// Returns whether there was a record.
    #[pyo3(signature = (key, ttl=None, *, expires_at=None))]
    fn touch(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        ttl: Option<Seconds>,
        expires_at: Option<Seconds>,
    ) -> PyResult<bool> {
        let key = self.rules.key(key)?;
        let key = key.as_bytes();
        let time = self.rules.expiry(py, ttl, expires_at)?;
        Ok(self.shared.change(py, |database| database.touch(key, time))?)
    }

    /// Stores a value if the key has the value `expected`. Returns whether it did. Values are
    /// compared as they are stored.
    #[pyo3(signature = (key, expected, value, *, ttl=None, expires_at=None, flags=0))]
    #[expect(clippy::too_many_arguments, reason = "they are the method's in Python")]
    fn compare_and_swap(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        expected: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<Seconds>,
        expires_at: Option<Seconds>,
        flags: u32,
    ) -> PyResult<bool> {
        let (expected, value) = (self.codecs.encode(expected)?, self.encode(value)?);
        let meta = self.rules.meta(py, ttl, expires_at, flags)?;
        let value = value.as_bytes();
        let put = || Change::Put(value.to_vec(), meta);
        let key = self.rules.key(key)?;
        self.change_if_equal(py, key.as_bytes(), expected.as_bytes(), put)
    }

    /// Removes a record if it has the value `expected`. Returns whether it did.
    fn compare_and_remove(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        expected: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let expected = self.codecs.encode(expected)?;
        let key = self.rules.key(key)?;
        self.change_if_equal(py, key.as_bytes(), expected.as_bytes(), || Change::Remove)
    }

    /// Stores a value if the record has this version; 0 stands for no record. Returns whether it
    /// did.
    #[pyo3(signature = (key, version, value, *, ttl=None, expires_at=None, flags=0))]
    #[expect(clippy::too_many_arguments, reason = "they are the method's in Python")]
    fn put_if_version(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        version: Version,
        value: &Bound<'_, PyAny>,
        ttl: Option<Seconds>,
        expires_at: Option<Seconds>,
        flags: u32,
    ) -> PyResult<bool> {
        if version == 0 {
            return self.add(py, key, value, ttl, expires_at, flags);
        }
        let (key, value) = self.pair(key, value)?;
        let (key, value) = (key.as_bytes(), value.as_bytes());
        let meta = self.rules.meta(py, ttl, expires_at, flags)?;
        let swap = self
            .shared
            .change(py, |database| database.compare_and_swap(key, version, value, meta))?;
        Ok(matches!(swap, Swap::Stored(_)))
    }

    /// Adds to an integer of `bits` bits (32 or 64), stored in little-endian order, and returns the
    /// sum. Creates the record if there is none. Fails with `OverflowError`, and changes nothing,
    /// if the sum has more bits.
    #[pyo3(signature = (key, by=1, *, bits=32))]
    fn add_int(&self, py: Python<'_>, key: &Bound<'_, PyAny>, by: i64, bits: u32) -> PyResult<i64> {
        let key = self.rules.key(key)?;
        let key = key.as_bytes();
        self.rules.check_counter(py, (bits / 8) as usize)?;
        let added = match bits {
            32 => self
                .shared
                .change(py, |database| database.try_modify(key, |record| add_to::<4>(record, by))),
            64 => self
                .shared
                .change(py, |database| database.try_modify(key, |record| add_to::<8>(record, by))),
            _ => return Err(PyValueError::new_err(format!("bits={bits}: choose 32 or 64"))),
        };
        let overflow = || PyOverflowError::new_err(format!("the sum has more than {bits} bits"));
        added?.0.ok_or_else(overflow)
    }

    /// Adds to a double and returns the sum. Creates the record if there is none.
    #[pyo3(signature = (key, by=1.0))]
    fn add_float(&self, py: Python<'_>, key: &Bound<'_, PyAny>, by: f64) -> PyResult<f64> {
        let key = self.rules.key(key)?;
        let key = key.as_bytes();
        self.rules.check_counter(py, size_of::<f64>())?;
        Ok(self.shared.change(py, |database| database.add_double(key, by))?)
    }

    /// Removes all records.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.shared.wait(py, cabinet::Database::clear)?)
    }

    /// Closes the database, or discards the transaction. Waits for operations that other threads
    /// have begun; later ones fail. May be called again.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.shared.close(py)?)
    }

    /// Returns an object for the same records, whose operations fail with `BusyError`, and change
    /// nothing, where those of this one wait. Its changes may not be durable yet. It is closed with
    /// this one.
    fn _nonblocking(&self, py: Python<'_>) -> PyResult<Self> {
        let handle = self.shared.enter()?.nonblocking();
        let shared = Shared::new(handle);
        let weak = Arc::downgrade(&shared);
        self.shared.adopt(weak);
        let (codecs, rules) = (self.codecs.copy(py), self.rules.clone());
        Ok(Self { shared, codecs, rules, parent: self.parent.clone() })
    }

    /// Whether operations fail, because it was closed or belongs to the parent of this process.
    #[getter]
    fn closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Writes the changes of a transaction together, and ends it.
    fn _commit(&self, py: Python<'_>) -> PyResult<()> {
        let parent = self.parent.as_ref().ok_or_else(|| errors::defect("not a transaction"))?;
        let transaction = self.shared.take(py)?.transaction.ok_or(Failure::Closed)?;
        py.detach(|| {
            // The database stays open meanwhile.
            let _parent = parent.enter()?;
            Ok::<(), Failure>(transaction.commit()?)
        })?;
        Ok(())
    }
}

impl Store {
    /// Returns what iterations read: of a transaction its database, without its changes.
    pub(crate) fn scanned(&self) -> &Arc<Shared> {
        self.parent.as_ref().unwrap_or(&self.shared)
    }

    /// Begins a transaction.
    fn begin(&self, py: Python<'_>) -> PyResult<Self> {
        if self.parent.is_some() {
            let text = "a transaction has no transaction within it: commit it first";
            return Err(errors::new(py, "UnsupportedError", text));
        }
        let transaction = self.shared.enter()?.slow.transaction();
        let shared = Shared::new(Handle::of_transaction(transaction));
        let weak = Arc::downgrade(&shared);
        self.shared.adopt(weak);
        let parent = Some(Arc::clone(&self.shared));
        Ok(Self { shared, codecs: self.codecs.copy(py), rules: self.rules.clone(), parent })
    }

    /// Appends to a value of a fixed-length database, which would truncate a longer one.
    fn append_within(&self, py: Python<'_>, key: &[u8], part: &[u8]) -> PyResult<()> {
        let width = width_of(&self.scanned().enter()?.slow);
        let append = |record: Option<RecordRef<'_>>| {
            let (old, meta) = record.map_or((&[][..], Meta::NONE), |old| (old.value, old.meta));
            let bytes = old.len() + part.len();
            if bytes > width {
                (Change::Keep, bytes)
            } else {
                (Change::Put([old, part].concat(), meta), 0)
            }
        };
        let too_long = self.shared.change(py, |database| database.modify(key, append))?;
        self.rules.check_size(py, too_long)
    }

    fn change_if_equal(
        &self,
        py: Python<'_>,
        key: &[u8],
        expected: &[u8],
        change: impl Fn() -> Change + Send + Sync,
    ) -> PyResult<bool> {
        let decide = |record: Option<RecordRef<'_>>| match record {
            Some(record) if record.value == expected => (change(), true),
            _ => (Change::Keep, false),
        };
        Ok(self.shared.change(py, |database| database.modify(key, decide))?)
    }
}

fn meta_of_record(record: &RecordRef<'_>) -> RecordMeta {
    RecordMeta::new(record.meta, record.version, record.value.len())
}

/// Adds to an integer of `WIDTH` bytes. Also returns the sum; `None`, and no change, if it has
/// more.
fn add_to<const WIDTH: usize>(
    record: Option<RecordRef<'_>>,
    by: i64,
) -> cabinet::Result<(Change, Option<i64>)> {
    let (old, meta) = match &record {
        None => (0, Meta::NONE),
        Some(record) if record.value.len() == WIDTH => {
            let is_negative = record.value[WIDTH - 1] >= 0x80;
            let mut bytes = [if is_negative { 0xff } else { 0 }; 8];
            bytes[..WIDTH].copy_from_slice(record.value);
            (i64::from_le_bytes(bytes), record.meta)
        }
        Some(_) => return Err(Error::NotANumber { width: WIDTH }),
    };
    let unused_bits = 64 - 8 * WIDTH as u32;
    let fits = |sum: &i64| *sum << unused_bits >> unused_bits == *sum;
    Ok(match old.checked_add(by).filter(fits) {
        Some(sum) => (Change::Put(sum.to_le_bytes()[..WIDTH].to_vec(), meta), Some(sum)),
        None => (Change::Keep, None),
    })
}
