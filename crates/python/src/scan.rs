//! Iteration over keys, values and records.
//!
//! Records are read in portions without the GIL. Between two portions an iterator holds nothing of
//! the database but a position, so the database may be closed, and any thread may write.

use crate::bytes::of_key;
use crate::codec::Codecs;
use crate::errors::{self, Failure};
use crate::portion::{Limits, Portion, Position, Wanted};
use crate::shared::Shared;
use crate::store::Store;
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::sync::Arc;

struct State {
    position: Position,
    portion: Portion,
}

/// Iterator over keys, values or records.
#[pyclass(module = "cabinet._cabinet", frozen)]
pub(crate) struct Scan {
    shared: Arc<Shared>,
    codecs: Codecs,
    wanted: Wanted,
    limits: Limits,
    state: Mutex<State>,
}

impl Scan {
    fn new(
        py: Python<'_>,
        store: &Store,
        wanted: Wanted,
        limits: Limits,
        is_reverse: bool,
    ) -> PyResult<Self> {
        let shared = Arc::clone(store.scanned());
        let has_duplicates = shared.properties()?.has_duplicates;
        let position = Position::new(&limits, is_reverse, has_duplicates);
        let state = Mutex::new(State { position, portion: Portion::default() });
        let codecs = store.codecs.copy(py);
        Ok(Self { shared, codecs, wanted, limits, state })
    }

    /// Reads the next portion, which may be empty before the end.
    fn fill(&self, py: Python<'_>, state: &mut State) -> Result<(), Failure> {
        let State { position, portion } = state;
        self.shared.fill(py, &self.limits, self.wanted, position, portion)
    }

    fn object<'py>(
        &self,
        py: Python<'py>,
        key: &[u8],
        value: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self.wanted {
            Wanted::Keys => self.codecs.key(py, key)?,
            Wanted::Values => self.codecs.decode_slice(py, value)?,
            Wanted::Items => {
                let pair = (self.codecs.key(py, key)?, self.codecs.decode_slice(py, value)?);
                pair.into_pyobject(py)?.into_any()
            }
        })
    }
}

#[pymethods]
impl Scan {
    fn __iter__(scan: Bound<'_, Self>) -> Bound<'_, Self> {
        scan
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Waiting with the GIL for a thread that needs it would never end.
        let mut guard = self.state.try_lock().ok_or(Failure::Busy)?;
        let state = &mut *guard;
        loop {
            let is_collecting = matches!(state.position, Position::Collect(_));
            if !is_collecting && let Some((key, value)) = state.portion.next() {
                // The database may have been closed since.
                drop(self.shared.enter()?);
                return self.object(py, key, value).map(Some);
            }
            if matches!(state.position, Position::Ended) {
                return Ok(None);
            }
            // A mutable reference to the state, and not its guard, may go without the GIL.
            let state = &mut *state;
            self.fill(py, state)?;
            py.check_signals()?;
        }
    }
}

#[pymethods]
impl Store {
    fn __iter__(&self, py: Python<'_>) -> PyResult<Scan> {
        self.iter_keys(py, None, None, None, None, false)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Scan> {
        self.iter_keys(py, None, None, None, None, true)
    }

    /// Returns an iterator over keys: those from `start` on and before `stop`, which begin with
    /// `prefix`, and match the regular expression `pattern`; in the reverse order if asked for.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, pattern=None, reverse=false))]
    fn iter_keys(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        pattern: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Scan> {
        let limits = self.limits(py, start, stop, prefix, pattern, reverse)?;
        Scan::new(py, self, Wanted::Keys, limits, reverse)
    }

    /// Like `iter_keys`, over values.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, pattern=None, reverse=false))]
    fn iter_values(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        pattern: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Scan> {
        let limits = self.limits(py, start, stop, prefix, pattern, reverse)?;
        Scan::new(py, self, Wanted::Values, limits, reverse)
    }

    /// Like `iter_keys`, over pairs of keys and values.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, pattern=None, reverse=false))]
    fn iter_items(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        pattern: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Scan> {
        let limits = self.limits(py, start, stop, prefix, pattern, reverse)?;
        Scan::new(py, self, Wanted::Items, limits, reverse)
    }
}

impl Store {
    fn limits(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        pattern: Option<&Bound<'_, PyAny>>,
        is_reverse: bool,
    ) -> PyResult<Limits> {
        let bytes = |key: Option<&Bound<'_, PyAny>>| {
            let bytes = key.filter(|key| !key.is_none()).map(of_key);
            Ok::<_, PyErr>(bytes.transpose()?.map(|key| key.as_bytes().to_vec()))
        };
        let properties = self.scanned().properties()?;
        let order = properties.key_order();
        let has_reverse = properties.has_duplicates || order.is_some() && properties.is_on_memory();
        let (start, stop) = (bytes(start)?, bytes(stop)?);
        if order.is_none() && (start.is_some() || stop.is_some()) {
            let text = "only the keys of a tree have an order: open one (.tcb or +) for ranges";
            return Err(errors::new(py, "UnsupportedError", text));
        }
        if is_reverse && !has_reverse {
            let text = "only a tree is read in reverse order: open one (.tcb or +)";
            return Err(errors::new(py, "UnsupportedError", text));
        }
        let (prefix, pattern) = (bytes(prefix)?.unwrap_or_default(), bytes(pattern)?);
        let limits = Limits::new(start, stop, prefix, pattern);
        limits.prepared(order).map_err(errors::library)
    }
}
