//! Errors: the exception of each error of the library.
//!
//! The classes are those of the module `cabinet._errors`, so that each may have several bases.

use cabinet::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::io;
use std::path::Path;

/// Module of the classes.
static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Reason why an operation of the package failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database was closed, or is being closed.
    Closed,
    /// The database was opened by the process that this one was forked from.
    Forked,
    /// Another thread uses the same iterator, cursor or batch.
    Busy,
    /// The library failed.
    Library(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| match &failure {
            Failure::Closed => new(py, "ClosedError", "it is closed: open the database again"),
            Failure::Forked => new(
                py,
                "ForkedError",
                "the database was opened before this process was forked, and belongs to its \
                 parent: open databases after the fork",
            ),
            Failure::Busy => {
                new(py, "BusyError", "another thread is using it: give each thread one of its own")
            }
            Failure::Library(error) => of_library(py, error),
        })
    }
}

/// Returns the exception of an error of the library.
pub(crate) fn library(error: Error) -> PyErr {
    Failure::Library(error).into()
}

/// Returns an exception of a class of the package with a text.
pub(crate) fn new(py: Python<'_>, class: &str, text: &str) -> PyErr {
    build(py, class, |class| class.call1((text,)))
}

/// Returns the exception of a key without a record.
pub(crate) fn missing(key: &Bound<'_, PyAny>) -> PyErr {
    build(key.py(), "MissingKeyError", |class| class.call1((key,)))
}

fn build<'py>(
    py: Python<'py>,
    class: &str,
    call: impl FnOnce(Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
) -> PyErr {
    let module = MODULE.get_or_try_init(py, || py.import("cabinet._errors").map(Bound::unbind));
    match module.and_then(|module| call(module.bind(py).getattr(class)?)) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

fn of_library(py: Python<'_>, error: &Error) -> PyErr {
    let text = error.to_string();
    let class = match error {
        Error::Io { source, path, .. } => return of_system(py, "IoError", &text, source, path),
        Error::NoSpace { path } | Error::NoLogSpace { path } => {
            let text = format!(
                "no space left for {}: free space on its file system, remove records, or raise its \
                 capacity_bytes, if it has one",
                path.display()
            );
            let source = io::Error::from_raw_os_error(libc::ENOSPC);
            return of_system(py, "NoSpaceError", &text, &source, path);
        }
        Error::InUse { path } => {
            let text = format!(
                "{} is open already, in another process or in this one: close it there, or share \
                 the object that has it open",
                path.display()
            );
            return new(py, "InUseError", &text);
        }
        Error::Corrupted { .. } => "CorruptedError",
        Error::NoMemory { .. } => "NoMemoryError",
        Error::Poisoned(_) => "PoisonedError",
        Error::ReadOnly(_) => "ReadOnlyError",
        Error::Unavailable(_) | Error::NoRoom { .. } => "UnavailableError",
        Error::KeyTooLong { .. } => "KeyTooLongError",
        Error::ValueTooLong { .. } => "ValueTooLongError",
        Error::BatchTooLong { .. } => "BatchTooLongError",
        Error::NoId { .. } => "NoIdError",
        Error::NotANumber { .. } => "NotANumberError",
        Error::Conflict => "ConflictError",
        Error::Late => "LateError",
        Error::WouldBlock => "BusyError",
        Error::Reentrant => "ReentrantError",
        Error::LegacyFile { .. } => "LegacyFileError",
        Error::BadColumn(_) => "BadColumnError",
        Error::BadSearch(_) => "BadSearchError",
        Error::IndexExists => "IndexExistsError",
        Error::NoIndex => "NoIndexError",
        Error::Unsupported { .. } => "UnsupportedError",
        Error::InvalidArgument(_) => "InvalidArgumentError",
        Error::WrongKind { .. } => "WrongKindError",
        Error::TooMany { .. } => "TooManyError",
        Error::Internal(_) => "InternalError",
        Error::BadPattern(_) => "BadPatternError",
        Error::Name(_) => "BadNameError",
        _ => "Error",
    };
    new(py, class, &text)
}

/// Returns an exception with the number of the system's error, which is also an `OSError`.
fn of_system(py: Python<'_>, class: &str, text: &str, source: &io::Error, path: &Path) -> PyErr {
    let number = source.raw_os_error().unwrap_or(libc::EIO);
    build(py, class, |class| class.call1((number, text, path)))
}

/// Returns the error of a defect of this package.
pub(crate) fn defect(text: &str) -> PyErr {
    PyRuntimeError::new_err(format!("a defect of this package, please report it: {text}"))
}
