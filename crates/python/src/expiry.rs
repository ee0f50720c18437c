//! Flags and expiry of a record, as arguments and as an object.

use cabinet::Meta;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBool;
use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds of an argument. They are not a bool, which Python takes for a number.
#[derive(Clone, Copy)]
pub(crate) struct Seconds(f64);

impl<'a, 'py> FromPyObject<'a, 'py> for Seconds {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if value.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err("it is a number of seconds, or None, not a bool"));
        }
        value.extract().map(Self)
    }
}

/// Returns flags and expiry from arguments: seconds from now on, or seconds since the Unix epoch.
#[inline]
pub(crate) fn meta_of(
    ttl: Option<Seconds>,
    expires_at: Option<Seconds>,
    flags: u32,
) -> PyResult<Meta> {
    if ttl.is_none() && expires_at.is_none() {
        return Ok(Meta { flags, expires_at_ms: 0 });
    }
    Ok(Meta { flags, expires_at_ms: expires_at_ms(ttl, expires_at)? })
}

/// Returns the milliseconds since the Unix epoch at which a record ceases to exist; 0 is never.
pub(crate) fn expires_at_ms(ttl: Option<Seconds>, expires_at: Option<Seconds>) -> PyResult<u64> {
    let seconds = match (ttl, expires_at) {
        (None, None) => return Ok(0),
        (Some(Seconds(ttl)), None) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            now.as_secs_f64() + ttl
        }
        (None, Some(Seconds(seconds))) => seconds,
        (Some(_), Some(_)) => {
            return Err(PyTypeError::new_err("ttl and expires_at exclude each other: give one"));
        }
    };
    if seconds.is_nan() {
        return Err(PyValueError::new_err("the expiry is not a number: give seconds, or None"));
    }
    if seconds == f64::INFINITY {
        return Ok(0);
    }
    // 0 would be never. A cast saturates.
    Ok(((seconds * 1000.0).ceil() as u64).max(1))
}

/// Flags, expiry, version and size of a record.
#[pyclass(name = "Meta", module = "cabinet", frozen, get_all, eq)]
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordMeta {
    /// Flags without a meaning for the database.
    flags: u32,
    /// Seconds since the Unix epoch at which the record ceases to exist; `None` is never.
    expires_at: Option<f64>,
    /// Number of the record's last change.
    version: u64,
    /// Bytes of the value, as it is stored.
    size: usize,
}

impl RecordMeta {
    pub(crate) fn new(meta: Meta, version: u64, size: usize) -> Self {
        let expires_at_ms = Some(meta.expires_at_ms).filter(|time| *time != 0);
        let expires_at = expires_at_ms.map(|time| time as f64 / 1000.0);
        Self { flags: meta.flags, expires_at, version, size }
    }
}

#[pymethods]
impl RecordMeta {
    fn __repr__(&self) -> String {
        let Self { flags, expires_at, version, size } = self;
        let expires_at = expires_at.map_or_else(|| "None".to_owned(), |time| time.to_string());
        format!("Meta(flags={flags}, expires_at={expires_at}, version={version}, size={size})")
    }
}
