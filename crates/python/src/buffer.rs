//! Buffers of the caller's that values are copied into.
//!
//! The buffer protocol is part of Python's stable ABI from 3.11 on. The functions and the structure
//! are the same in 3.9 and 3.10, so they are declared here.

use pyo3::exceptions::PyValueError;
use pyo3::ffi::{Py_ssize_t, PyObject};
use pyo3::prelude::*;
use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;

/// Flag that asks for a buffer that may be written to. It is contiguous then.
const WRITABLE: c_int = 1;

/// `Py_buffer` of `pybuffer.h`.
#[repr(C)]
struct PyBuffer {
    start: *mut c_void,
    object: *mut PyObject,
    length: Py_ssize_t,
    item_size: Py_ssize_t,
    is_read_only: c_int,
    dimensions: c_int,
    format: *mut c_char,
    shape: *mut Py_ssize_t,
    strides: *mut Py_ssize_t,
    suboffsets: *mut Py_ssize_t,
    internal: *mut c_void,
}

impl PyBuffer {
    const fn empty() -> Self {
        Self {
            start: null_mut(),
            object: null_mut(),
            length: 0,
            item_size: 0,
            is_read_only: 0,
            dimensions: 0,
            format: null_mut(),
            shape: null_mut(),
            strides: null_mut(),
            suboffsets: null_mut(),
            internal: null_mut(),
        }
    }
}

#[expect(unsafe_code, reason = "pyo3 has them only with the stable ABI of Python 3.11")]
// SAFETY: these are the declarations of Python's `abstract.h`.
unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut PyObject, view: *mut PyBuffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut PyBuffer);
}

/// A buffer that may be written to. Its object cannot move or resize it meanwhile.
pub(crate) struct Target<'py> {
    view: Box<PyBuffer>,
    _attached: PhantomData<Python<'py>>,
}

impl<'py> Target<'py> {
    /// Returns the buffer of an object. Fails with `BufferError` or `TypeError` if the object has
    /// none, or one that is read-only or in pieces.
    pub(crate) fn new(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let mut view = Box::new(PyBuffer::empty());
        #[expect(unsafe_code, reason = "see above")]
        // SAFETY: the object is alive, this thread is attached to the interpreter, and the
        // structure is writable. It stays at its address until it is released.
        let status = unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *view, WRITABLE) };
        if status != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Self { view, _attached: PhantomData })
    }

    /// Copies bytes to its beginning, and returns their number. Fails with `ValueError` if it is
    /// too small.
    pub(crate) fn copy(&self, bytes: &[u8]) -> PyResult<usize> {
        let size = self.view.length as usize;
        if bytes.len() > size {
            return Err(PyValueError::new_err(format!(
                "the value has {} bytes, and the buffer {size}: give a larger one",
                bytes.len()
            )));
        }
        #[expect(unsafe_code, reason = "see above")]
        // SAFETY: the object has lent at least this many bytes that may be written to, until they
        // are released. The other bytes are the library's, so both do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.view.start.cast(), bytes.len());
        }
        Ok(bytes.len())
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "see above")]
        // SAFETY: it was filled by `PyObject_GetBuffer`, and this thread is attached, as the
        // lifetime of the structure says.
        unsafe {
            PyBuffer_Release(&raw mut *self.view);
        }
    }
}
