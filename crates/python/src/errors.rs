//! Errors: the exception of each error of the library.
//!
//! The classes are those of the module `cabinet._errors`, so that each may have several bases.

use crate::in_use;
use cabinet::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

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
    /// The server of a shared database failed, or cannot be talked to.
    Server(Fault),
    /// The handler of a signal has raised an exception.
    Raised(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Server(fault)
    }
}

impl From<PyErr> for Failure {
    fn from(raised: PyErr) -> Self {
        Self::Raised(raised)
    }
}

/// Exception of Python, as it is told to another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fault {
    class: String,
    text: String,
    /// Number of the system's error, and the file.
    system: Option<(i32, PathBuf)>,
}

impl Fault {
    pub(crate) fn new(class: &str, text: impl Into<String>) -> Self {
        Self { class: class.into(), text: text.into(), system: None }
    }

    /// Returns that of bytes that only a defect of this package sends.
    pub(crate) fn wire(error: &dyn Display) -> Self {
        Self::new("InternalError", format!("the server of the database was misunderstood: {error}"))
    }

    /// Returns that of a request or reply that is longer than a frame.
    pub(crate) fn too_long(bytes: usize) -> Self {
        let text = format!("{bytes} bytes are more than the server takes at once: give fewer");
        Self::new("BatchTooLongError", text)
    }

    fn raise(&self, py: Python<'_>) -> PyErr {
        match &self.system {
            Some((number, path)) => {
                build(py, &self.class, |class| class.call1((number, &self.text, path)))
            }
            None => new(py, &self.class, &self.text),
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| match failure {
            Failure::Raised(raised) => raised,
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
            Failure::Library(error) => Fault::of(&error).raise(py),
            Failure::Server(fault) => fault.raise(py),
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

impl Fault {
    /// Returns that of an error of the library.
    pub(crate) fn of(error: &Error) -> Self {
        let text = error.to_string();
        let class = match error {
            Error::Io { source, path, .. } => {
                return Self::of_system("IoError", text, source, path);
            }
            Error::NoSpace { path } | Error::NoLogSpace { path } => {
                let text = format!(
                    "no space left for {}: free space on its file system, remove records, or raise \
                     its capacity_bytes, if it has one",
                    path.display()
                );
                let source = io::Error::from_raw_os_error(libc::ENOSPC);
                return Self::of_system("NoSpaceError", text, &source, path);
            }
            Error::InUse { path } => return Self::new("InUseError", in_use::text(path)),
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
        Self::new(class, text)
    }

    /// Returns one with the number of the system's error, which is also an `OSError`.
    pub(crate) fn of_system(class: &str, text: String, source: &io::Error, path: &Path) -> Self {
        let number = source.raw_os_error().unwrap_or(libc::EIO);
        Self { system: Some((number, path.to_owned())), ..Self::new(class, text) }
    }
}

/// Returns the error of a defect of this package.
pub(crate) fn defect(text: &str) -> PyErr {
    PyRuntimeError::new_err(format!("a defect of this package, please report it: {text}"))
}
