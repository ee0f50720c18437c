//! Contexts of transactions in a cache, which end whatever handlers of signals do.
//!
//! A handler runs between two steps of a program in Python, and may raise an exception there: after
//! a lock was taken and before that is noted, or at the first step of `__exit__`. Within a function
//! of this module it runs only in the methods that are called. If one of these fails, what it has
//! begun is ended here.

use crate::errors::Failure;
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;

/// Times that an end is tried again which handlers interrupt.
const TRIES: usize = 3;

/// A transaction of this thread in a cache, as a context. Within another one it is a part of that.
///
/// `owner` is a `Storage`, or a `Cache`, whose storage another thread may close until the
/// transaction begins.
#[pyclass(module = "cabinet._cabinet", frozen)]
pub(crate) struct Context {
    owner: Py<PyAny>,
    timeout: f64,
    begun: Mutex<Option<Begun>>,
}

/// Transaction that has begun.
struct Begun {
    storage: Py<PyAny>,
    lock: Py<PyAny>,
    /// Number of transactions of the thread around it.
    depth: usize,
}

impl Begun {
    /// Leaves the storage as it was before the transaction, after an error.
    fn abandon(&self, py: Python<'_>) {
        for _ in 0..TRIES {
            let abandoned = self.storage.call_method1(py, intern!(py, "abandon"), (self.depth,));
            if abandoned.is_ok() {
                break;
            }
        }
    }

    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.lock.call_method0(py, intern!(py, "release"))?;
        if self.storage.getattr(py, intern!(py, "is_unused"))?.is_truthy(py)? {
            self.storage.call_method0(py, intern!(py, "end_use"))?;
        }
        Ok(())
    }
}

impl Context {
    /// Begins the transaction in a storage whose lock is held. Returns false if that was closed.
    fn enter(&self, py: Python<'_>, storage: &Py<PyAny>) -> PyResult<bool> {
        let is_given = storage.is(&self.owner);
        if !is_given && storage.call_method0(py, intern!(py, "is_closed"))?.is_truthy(py)? {
            return Ok(false);
        }
        storage.call_method1(py, intern!(py, "enter"), (self.timeout,))?;
        Ok(true)
    }
}

#[pymethods]
impl Context {
    #[new]
    fn new(owner: Py<PyAny>, timeout: f64) -> Self {
        Self { owner, timeout, begun: Mutex::default() }
    }

    /// Begins the transaction, and returns the storage.
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut closed = None;
        loop {
            let storage = self.owner.call_method1(py, intern!(py, "_storage_to_use"), (closed,))?;
            let lock = storage.getattr(py, intern!(py, "lock"))?;
            let acquired = lock.call_method1(py, intern!(py, "acquire"), (true, self.timeout))?;
            if !acquired.is_truthy(py)? {
                return storage.call_method1(py, intern!(py, "time_out"), (self.timeout,));
            }
            let depth = storage.getattr(py, intern!(py, "depth"))?.extract(py)?;
            let begun = Begun { storage, lock, depth };
            match self.enter(py, &begun.storage) {
                Ok(true) => {
                    let storage = begun.storage.clone_ref(py);
                    *self.begun.lock() = Some(begun);
                    return Ok(storage);
                }
                Ok(false) => {
                    begun.release(py)?;
                    closed = Some(begun.storage);
                }
                Err(error) => {
                    begun.abandon(py);
                    begun.release(py)?;
                    return Err(error);
                }
            }
        }
    }

    /// Commits the changes, or discards them after an exception.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let begun = self.begun.lock().take().ok_or(Failure::Closed)?;
        let left = begun.storage.call_method1(py, intern!(py, "leave"), (kind.is_none(),));
        if left.is_err() {
            begun.abandon(py);
        }
        begun.release(py)?;
        left.map(drop)
    }
}
