//! Codecs: how the keys and values of a database are given and returned.

use crate::bytes::{class_name, of_buffer, of_text};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// Form of the values.
pub(crate) enum Codec {
    /// Bytes, as they are stored.
    Raw,
    /// `str`, stored as UTF-8.
    Text,
    /// Objects that functions of Python turn into bytes and back. They may also turn them into a
    /// `str` and back, which is stored as UTF-8.
    Functions { dumps: Py<PyAny>, loads: Py<PyAny>, is_text: bool },
}

/// Codec of the values, and form of the keys that are returned.
pub(crate) struct Codecs {
    pub(crate) values: Codec,
    are_keys_text: bool,
}

impl Codecs {
    /// Returns those of the arguments of an opening. `values` is an object of the module
    /// `cabinet._codecs`: a name, or one with `dumps`, `loads` and `is_text`.
    pub(crate) fn new(values: &Bound<'_, PyAny>, keys: &str) -> PyResult<Self> {
        let py = values.py();
        let resolved = py.import("cabinet._codecs")?.call_method1("resolve", (values,))?;
        let values = match resolved.cast::<PyString>() {
            Ok(name) if name == "raw" => Codec::Raw,
            Ok(_) => Codec::Text,
            Err(_) => Codec::Functions {
                dumps: resolved.getattr("dumps")?.unbind(),
                loads: resolved.getattr("loads")?.unbind(),
                is_text: resolved.getattr("is_text")?.extract()?,
            },
        };
        let are_keys_text = match keys {
            "bytes" => false,
            "str" => true,
            _ => {
                let text = format!("keys={keys:?}: choose \"bytes\" or \"str\"");
                return Err(PyValueError::new_err(text));
            }
        };
        Ok(Self { values, are_keys_text })
    }

    /// Returns a copy, for a transaction.
    pub(crate) fn copy(&self, py: Python<'_>) -> Self {
        let values = match &self.values {
            Codec::Raw => Codec::Raw,
            Codec::Text => Codec::Text,
            Codec::Functions { dumps, loads, is_text } => Codec::Functions {
                dumps: dumps.clone_ref(py),
                loads: loads.clone_ref(py),
                is_text: *is_text,
            },
        };
        Self { values, are_keys_text: self.are_keys_text }
    }

    /// Returns the bytes to store for a value.
    #[inline]
    pub(crate) fn encode<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        match &self.values {
            Codec::Raw => of_buffer(value).map_err(|_| {
                let class = class_name(value);
                PyTypeError::new_err(format!(
                    "a value is bytes, not {class}: encode it, or open the database with a codec \
                     such as codec=\"str\" or codec=\"json\""
                ))
            }),
            Codec::Text => match value.cast::<PyString>() {
                Ok(text) => of_text(text),
                Err(_) => {
                    let class = class_name(value);
                    let text = format!("a value is str by the codec \"str\", not {class}");
                    Err(PyTypeError::new_err(text))
                }
            },
            Codec::Functions { dumps, .. } => {
                let dumped = dumps.bind(value.py()).call1((value,))?;
                match dumped.cast::<PyString>() {
                    Ok(text) => of_text(text),
                    Err(_) => of_buffer(&dumped),
                }
            }
        }
    }

    /// Returns the value of stored bytes.
    #[inline]
    pub(crate) fn decode<'py>(&self, bytes: Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
        match &self.values {
            Codec::Raw => Ok(bytes.into_any()),
            Codec::Text => text_of(&bytes),
            Codec::Functions { loads, is_text, .. } => {
                let loads = loads.bind(bytes.py());
                if *is_text { loads.call1((text_of(&bytes)?,)) } else { loads.call1((bytes,)) }
            }
        }
    }

    /// Like [`decode`](Self::decode), of bytes of the library's.
    #[inline]
    pub(crate) fn decode_slice<'py>(
        &self,
        py: Python<'py>,
        bytes: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        self.decode(PyBytes::new(py, bytes))
    }

    /// Returns a stored key.
    #[inline]
    pub(crate) fn key<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let bytes = PyBytes::new(py, key);
        if self.are_keys_text { text_of(&bytes) } else { Ok(bytes.into_any()) }
    }
}

/// Returns the text of bytes in UTF-8. Fails with Python's `UnicodeDecodeError`.
fn text_of<'py>(bytes: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
    let py = bytes.py();
    match std::str::from_utf8(bytes.as_bytes()) {
        Ok(text) => Ok(PyString::new(py, text).into_any()),
        Err(_) => bytes.call_method1(intern!(py, "decode"), (intern!(py, "utf-8"),)),
    }
}
