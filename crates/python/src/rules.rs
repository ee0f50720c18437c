//! Rules of kinds of databases that the library leaves to its callers.
//!
//! The library takes what Tokyo Cabinet takes: it truncates long values of fixed-length databases,
//! skips bytes of their keys that are not digits, and ignores flags and expiry of rows. Here each
//! of these is an error.

use crate::bytes::of_key;
use crate::errors::{self, Failure};
use crate::expiry::{Seconds, expires_at_ms, meta_of};
use crate::operation::Operation;
use crate::shared::Shared;
use cabinet::Meta;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// Bytes of a key that are shown in an error.
const SHOWN_BYTES_MAX: usize = 32;

/// Keys of a fixed-length database that name a record by its position.
const POSITIONS: [&[u8]; 4] = [b"min", b"max", b"prev", b"next"];

/// Rules of an open database.
#[derive(Clone)]
pub(crate) enum Rules {
    None,
    Table,
    /// Those of a fixed-length database, which knows the width.
    Fixed(Arc<Shared>),
}

impl Rules {
    pub(crate) fn of(shared: &Arc<Shared>) -> Result<Self, Failure> {
        let properties = shared.properties()?;
        Ok(if properties.is_fixed {
            Self::Fixed(Arc::clone(shared))
        } else if properties.is_table {
            Self::Table
        } else {
            Self::None
        })
    }

    /// Returns the bytes of a key.
    #[inline]
    pub(crate) fn key<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = of_key(key)?;
        match self {
            Self::Fixed(_) if !is_id(bytes.as_bytes()) => Err(no_id(key.py(), bytes.as_bytes())),
            _ => Ok(bytes),
        }
    }

    /// Returns the bytes of the key of a record to store.
    #[inline]
    pub(crate) fn key_to_put<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.key(key)?;
        match self {
            Self::Table if bytes.as_bytes().is_empty() => Err(no_key(key.py())),
            _ => Ok(bytes),
        }
    }

    /// Fails if records hold no counters, or none of so many bytes.
    pub(crate) fn check_counter(&self, py: Python<'_>, bytes: usize) -> PyResult<()> {
        match self {
            Self::Table => Err(no_counters(py)),
            _ => self.check_size(py, bytes),
        }
    }

    /// Fails if a value of so many bytes would be truncated.
    #[inline]
    pub(crate) fn check_size(&self, py: Python<'_>, bytes: usize) -> PyResult<()> {
        let Self::Fixed(shared) = self else { return Ok(()) };
        let width = width_of(py, shared)?;
        if bytes <= width { Ok(()) } else { Err(too_long(py, bytes, width)) }
    }

    /// Returns flags and expiry from arguments.
    #[inline]
    pub(crate) fn meta(
        &self,
        py: Python<'_>,
        ttl: Option<Seconds>,
        expires_at: Option<Seconds>,
        flags: u32,
    ) -> PyResult<Meta> {
        if matches!(self, Self::Table) && (ttl.is_some() || expires_at.is_some() || flags != 0) {
            return Err(no_meta(py));
        }
        meta_of(ttl, expires_at, flags)
    }

    /// Returns the time of an expiry from arguments.
    pub(crate) fn expiry(
        &self,
        py: Python<'_>,
        ttl: Option<Seconds>,
        expires_at: Option<Seconds>,
    ) -> PyResult<u64> {
        if matches!(self, Self::Table) {
            return Err(no_meta(py));
        }
        expires_at_ms(ttl, expires_at)
    }
}

/// Returns the bytes of the longest value that a database stores in full.
pub(crate) fn width_of(py: Python<'_>, shared: &Shared) -> Result<usize, Failure> {
    let width: Option<usize> = shared.read(py, &Operation::Width)?;
    Ok(width.unwrap_or(usize::MAX))
}

/// Returns whether a key has no byte that a fixed-length database would skip.
pub(crate) fn is_id(key: &[u8]) -> bool {
    let is_number = !key.is_empty() && key.iter().all(u8::is_ascii_digit);
    is_number || POSITIONS.contains(&key)
}

fn no_id(py: Python<'_>, key: &[u8]) -> PyErr {
    let shown = String::from_utf8_lossy(&key[..key.len().min(SHOWN_BYTES_MAX)]).into_owned();
    let text = format!(
        "the key {shown:?} is not an id: those of a fixed-length database are numbers from 1 on, \
         as text, and min, max, prev and next"
    );
    errors::new(py, "NoIdError", &text)
}

fn too_long(py: Python<'_>, bytes: usize, width: usize) -> PyErr {
    let text = format!(
        "the value has {bytes} bytes, and those of this fixed-length database at most {width}: \
         store a shorter one, or raise the width by optimize(\"width={bytes}\")"
    );
    errors::new(py, "ValueTooLongError", &text)
}

fn no_key(py: Python<'_>) -> PyErr {
    let text =
        "a row with the empty key would be stored with a new one: give it a key, or insert it";
    errors::new(py, "InvalidArgumentError", text)
}

fn no_counters(py: Python<'_>) -> PyErr {
    let text = "the rows of a table are no counters: change a column by modify";
    errors::new(py, "UnsupportedError", text)
}

fn no_meta(py: Python<'_>) -> PyErr {
    let text = "the rows of a table have no expiry and no flags: keep the time in a column, and \
                remove the rows of a query, or open a hash or a tree";
    errors::new(py, "UnsupportedError", text)
}
