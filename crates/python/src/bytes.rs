//! Keys and values: bytes of Python's objects. Those of buffers that may change are copied, so that
//! they stay the same when the GIL is released.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyString};

/// Returns the bytes of a key: those of a `str` as UTF-8, or those of a buffer.
#[inline]
pub(crate) fn of_key<'py>(key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = key.cast_exact::<PyBytes>() {
        return Ok(bytes.clone());
    }
    if let Ok(text) = key.cast::<PyString>() {
        return of_text(text);
    }
    of_buffer(key).map_err(|_| {
        let class = class_name(key);
        PyTypeError::new_err(format!("a key is bytes or str, not {class}"))
    })
}

/// Returns the bytes of a `str` as UTF-8.
pub(crate) fn of_text<'py>(text: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyBytes>> {
    text.encode_utf8()
}

/// Returns the bytes of an object with the buffer protocol, such as `bytes`, `bytearray`,
/// `memoryview` or an array of numpy's.
#[inline]
pub(crate) fn of_buffer<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    Ok(PyMemoryView::from(value)?.call_method0("tobytes")?.cast_into::<PyBytes>()?)
}

/// Returns the bytes of a buffer or a `str`.
pub(crate) fn of_part<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    match value.cast::<PyString>() {
        Ok(text) => of_text(text),
        Err(_) => of_buffer(value),
    }
}

/// Returns the name of the class of an object, for an error.
pub(crate) fn class_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string())
}
