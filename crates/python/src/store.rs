//! `Store`: a database or a transaction, with the operations on single records.

use crate::buffer::Target;
use crate::bytes::of_part;
use crate::client::{Hello, Remote};
use crate::codec::Codecs;
use crate::errors::{self, Failure};
use crate::expiry::{RecordMeta, Seconds};
use crate::operation::{Operation, Record};
use crate::options::Opening;
use crate::rules::{Rules, width_of};
use crate::shared::{Handle, Shared};
use crate::wire::Bytes;
use cabinet::{Meta, RecordRef, Version};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::borrow::Cow;
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
            None => self.wait_for(py, key)?.map(Found::Copied),
        };
        Ok(found.map(|found| found.bytes(py)))
    }

    /// Returns the value of a key, without the GIL.
    fn wait_for(&self, py: Python<'_>, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        self.shared.wait(py, &Operation::Get(key.into()))
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
        let record = Record { key: key.into(), value: value.into(), meta };
        Ok(self.shared.change(py, &Operation::Put(record))?)
    }
}

#[pymethods]
impl Store {
    /// Opens a database by its name, or begins a transaction in one that is open.
    #[new]
    #[pyo3(signature = (
        name, *, codec=None, keys="bytes", shared=false, idle_seconds=None, **options
    ))]
    fn new(
        name: &Bound<'_, PyAny>,
        codec: Option<&Bound<'_, PyAny>>,
        keys: &str,
        shared: bool,
        idle_seconds: Option<f64>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let py = name.py();
        if let Ok(database) = name.cast::<Self>() {
            return database.get().begin(py);
        }
        let raw = pyo3::types::PyString::intern(py, "raw");
        let codecs = Codecs::new(codec.unwrap_or(&raw), keys)?;
        let opening = Opening::new(name, options)?;
        let handle = if shared {
            Handle::Remote(share(name, &opening, options, idle_seconds)?)
        } else if idle_seconds.is_some() {
            let text = "idle_seconds is the time of a server: give it with shared=True";
            return Err(PyTypeError::new_err(text));
        } else {
            Handle::of_database(py.detach(|| opening.open()).map_err(errors::library)?)
        };
        let shared = Shared::new(handle);
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

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let length: u64 = self.shared.read(py, &Operation::Length)?;
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
        let get = Operation::GetWithMeta(key.as_bytes().into());
        let found: Option<(Vec<u8>, _)> = self.shared.read(py, &get)?;
        let decoded = found.map(|(value, meta)| Ok((self.codecs.decode_slice(py, &value)?, meta)));
        decoded.transpose()
    }

    /// Returns flags, expiry, version and size of a record; `None` without one.
    fn meta(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<RecordMeta>> {
        let key = self.rules.key(key)?;
        Ok(self.shared.read(py, &Operation::Meta(key.as_bytes().into()))?)
    }

    /// Returns the bytes of a value as it is stored; `None` without a record.
    fn size(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let key = self.rules.key(key)?;
        Ok(self.shared.read(py, &Operation::Size(key.as_bytes().into()))?)
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
                let value = self.wait_for(py, key)?;
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
            let rest = rest.iter().map(|key| Bytes::from(*key)).collect();
            let copied: Vec<Option<Vec<u8>>> = self.shared.wait(py, &Operation::GetMany(rest))?;
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
        Ok(self.shared.change(py, &Operation::Write(Cow::Owned(batch)))?)
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
        let (key, value) = (key.as_bytes().into(), value.as_bytes().into());
        let meta = self.rules.meta(py, ttl, expires_at, flags)?;
        Ok(self.shared.change(py, &Operation::Add(Record { key, value, meta }))?)
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
        let (key, value) = (key.as_bytes().into(), value.as_bytes().into());
        let meta = self.rules.meta(py, ttl, expires_at, flags)?;
        Ok(self.shared.change(py, &Operation::Replace(Record { key, value, meta }))?)
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
        let set = Operation::SetDefault(key.into(), encoded.as_bytes().into());
        let found: Option<Vec<u8>> = self.shared.change(py, &set)?;
        match found {
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
        let (key, part) = (key.as_bytes().into(), part.as_bytes().into());
        // A fixed-length database would truncate a longer value.
        let bytes_max = match self.rules {
            Rules::Fixed(_) => width_of(py, self.scanned())? as u64,
            _ => u64::MAX,
        };
        let append = Operation::Append(key, part, bytes_max);
        let too_long: u64 = self.shared.change(py, &append)?;
        self.rules.check_size(py, too_long as usize)
    }

    /// Removes a record. Returns whether there was one.
    fn remove(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = key.py();
        let key = self.rules.key(key)?;
        self.remove_bytes(py, key.as_bytes())
    }

    /// Removes the records of several keys, one after the other. Returns how many there were.
    fn remove_many(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut removed = 0;
        for key in keys.try_iter()? {
            let key = self.rules.key(&key?)?;
            removed += usize::from(self.remove_bytes(py, key.as_bytes())?);
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
            let remove = Operation::RemoveIfEqual(bytes.into(), value.as_bytes().into());
            if self.shared.change(py, &remove)? {
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
        let time = self.rules.expiry(py, ttl, expires_at)?;
        Ok(self.shared.change(py, &Operation::Touch(key.as_bytes().into(), time))?)
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
        let key = self.rules.key(key)?;
        let (key, value) = (key.as_bytes().into(), value.as_bytes().into());
        let record = Record { key, value, meta };
        let swap = Operation::SwapIfEqual(record, expected.as_bytes().into());
        Ok(self.shared.change(py, &swap)?)
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
        let (key, expected) = (key.as_bytes().into(), expected.as_bytes().into());
        Ok(self.shared.change(py, &Operation::RemoveIfEqual(key, expected))?)
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
        let (key, value) = (key.as_bytes().into(), value.as_bytes().into());
        let meta = self.rules.meta(py, ttl, expires_at, flags)?;
        let swap = Operation::SwapIfVersion(Record { key, value, meta }, version);
        Ok(self.shared.change(py, &swap)?)
    }

    /// Adds to an integer of `bits` bits (32 or 64), stored in little-endian order, and returns the
    /// sum. Creates the record if there is none. Fails with `OverflowError`, and changes nothing,
    /// if the sum has more bits.
    #[pyo3(signature = (key, by=1, *, bits=32))]
    fn add_int(&self, py: Python<'_>, key: &Bound<'_, PyAny>, by: i64, bits: u32) -> PyResult<i64> {
        let key = self.rules.key(key)?;
        self.rules.check_counter(py, (bits / 8) as usize)?;
        if bits != 32 && bits != 64 {
            return Err(PyValueError::new_err(format!("bits={bits}: choose 32 or 64")));
        }
        let add = Operation::AddInt { key: key.as_bytes().into(), by, width: (bits / 8) as u8 };
        let sum: Option<i64> = self.shared.change(py, &add)?;
        let overflow = || PyOverflowError::new_err(format!("the sum has more than {bits} bits"));
        sum.ok_or_else(overflow)
    }

    /// Adds to a double and returns the sum. Creates the record if there is none.
    #[pyo3(signature = (key, by=1.0))]
    fn add_float(&self, py: Python<'_>, key: &Bound<'_, PyAny>, by: f64) -> PyResult<f64> {
        let key = self.rules.key(key)?;
        self.rules.check_counter(py, size_of::<f64>())?;
        Ok(self.shared.change(py, &Operation::AddDouble(key.as_bytes().into(), by))?)
    }

    /// Removes all records.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.shared.wait(py, &Operation::Clear)?)
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
        let entered = self.shared.enter()?;
        let shared = Shared::new(entered.nonblocking());
        let weak = Arc::downgrade(&shared);
        self.shared.adopt(weak);
        let (codecs, rules) = (self.codecs.copy(py), self.rules.clone());
        Ok(Self { shared, codecs, rules, parent: self.parent.clone() })
    }

    /// Lets changes whose reply was lost be repeated: the caller has a lock, by which no other
    /// process changes the same records meanwhile.
    fn _repeat_changes(&self) -> PyResult<()> {
        Ok(self.shared.repeat_changes()?)
    }

    /// Applies changes together or not at all: stores the values, and removes the records of keys
    /// with `None`. With a key and a version, only if its record has that; 0 stands for no record.
    #[pyo3(signature = (changes, expected=None))]
    fn _write(
        &self,
        changes: &Bound<'_, PyDict>,
        expected: Option<(Bound<'_, PyAny>, Version)>,
    ) -> PyResult<()> {
        let mut batch = cabinet::Batch::new();
        for (key, value) in changes {
            let key = self.rules.key(&key)?;
            if value.is_none() {
                batch.remove(key.as_bytes());
            } else {
                batch.put(key.as_bytes(), self.encode(&value)?.as_bytes(), Meta::NONE);
            }
        }
        if let Some((key, version)) = expected {
            let version = Some(version).filter(|version| *version != 0);
            batch.expect(self.rules.key(&key)?.as_bytes(), version);
        }
        Ok(self.shared.change(changes.py(), &Operation::Write(Cow::Owned(batch)))?)
    }

    /// Whether operations fail, because it was closed or belongs to the parent of this process.
    #[getter]
    fn closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Writes the changes of a transaction together, and ends it.
    fn _commit(&self, py: Python<'_>) -> PyResult<()> {
        let parent = self.parent.as_ref().ok_or_else(|| errors::defect("not a transaction"))?;
        let transaction = self.shared.take(py)?;
        // The database stays open meanwhile.
        let _parent = parent.enter()?;
        Ok(transaction.commit(py)?)
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
        let entered = self.shared.enter()?;
        let shared = Shared::new(entered.begin(py)?);
        let weak = Arc::downgrade(&shared);
        self.shared.adopt(weak);
        let parent = Some(Arc::clone(&self.shared));
        Ok(Self { shared, codecs: self.codecs.copy(py), rules: self.rules.clone(), parent })
    }

    fn remove_bytes(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        Ok(self.shared.change(py, &Operation::Remove(key.into()))?)
    }
}

/// Connects to the server of a database that processes share, and starts it unless it runs.
fn share(
    name: &Bound<'_, PyAny>,
    opening: &Opening,
    options: Option<&Bound<'_, PyDict>>,
    idle_seconds: Option<f64>,
) -> PyResult<Remote> {
    let py = name.py();
    let refused = [
        (opening.is_on_memory(), "a database in memory is not shared: give a path"),
        (opening.is_truncated(), "truncate=True would empty it under others: call clear()"),
    ];
    if let Some((_, text)) = refused.iter().find(|(is_given, _)| *is_given) {
        return Err(errors::new(py, "InvalidArgumentError", text));
    }
    let folder = std::path::absolute(opening.path())?;
    let prepare = py.import("cabinet._server")?.getattr("prepare")?;
    let is_created = opening.is_created();
    let start = prepare.call1((name, &folder, options, idle_seconds, is_created))?.unbind();
    let hello = Hello { options: opening.fingerprint(), is_read_only: opening.is_read_only() };
    Ok(Remote::open(py, folder, start, hello)?)
}
