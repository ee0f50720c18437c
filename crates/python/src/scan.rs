//! Iteration over keys, values and records.
//!
//! Records are read in portions without the GIL. Between two portions an iterator holds nothing of
//! the database but a position, so the database may be closed, and any thread may write.

use crate::bytes::of_key;
use crate::codec::Codecs;
use crate::errors::{self, Failure};
use crate::shared::Shared;
use crate::store::Store;
use cabinet::{Cursor, Database, KeyOrder, RecordRef, ScanCursor};
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Records of a portion, after which no further step of the database's scan is made.
const PORTION_RECORDS: usize = 256;

/// Bytes of a portion, likewise.
const PORTION_BYTES: usize = 256 << 10;

/// Time of a portion, likewise: so signals such as that of Ctrl-C end a long scan.
const PORTION_TIME: Duration = Duration::from_millis(20);

/// Parts of the records that an iteration returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Keys,
    Values,
    Items,
}

/// Test of keys by a pattern.
type Test = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Records that an iteration returns.
struct Limits {
    order: Option<KeyOrder>,
    /// First key, and the first one that is not returned any more.
    start: Option<Vec<u8>>,
    stop: Option<Vec<u8>>,
    prefix: Vec<u8>,
    test: Option<Test>,
}

impl Limits {
    /// Returns whether a key is before the records to return, among them, or after them. Without an
    /// order, keys are never after them.
    fn side(&self, key: &[u8]) -> Ordering {
        if let Some(order) = self.order {
            if self.start.as_deref().is_some_and(|start| order.compare(key, start).is_lt()) {
                return Ordering::Less;
            }
            if self.stop.as_deref().is_some_and(|stop| order.compare(key, stop).is_ge()) {
                return Ordering::Greater;
            }
        }
        if key.starts_with(&self.prefix) {
            return Ordering::Equal;
        }
        // Only in lexical order are keys with a prefix together.
        let is_after = self.order == Some(KeyOrder::Lexical) && key > &self.prefix[..];
        if is_after { Ordering::Greater } else { Ordering::Less }
    }

    fn is_wanted(&self, key: &[u8]) -> bool {
        self.side(key).is_eq() && self.test.as_ref().is_none_or(|test| test(key))
    }

    /// Returns whether a key and all those before it in order are not among the records to return.
    fn is_before_all(&self, key: &[u8]) -> bool {
        let (Some(order), Some(first)) = (self.order, self.first()) else { return false };
        order.compare(key, first).is_lt()
    }

    /// Returns the key at which an iteration in order begins.
    fn first(&self) -> Option<&[u8]> {
        let prefix = Some(&self.prefix[..]);
        let prefix = prefix.filter(|_| self.order == Some(KeyOrder::Lexical));
        let prefix = prefix.filter(|prefix| !prefix.is_empty());
        self.start.as_deref().max(prefix).filter(|_| self.order.is_some())
    }

    /// Returns the key before which an iteration in reverse order begins; `None` for the end.
    fn end(&self) -> Option<Vec<u8>> {
        let after_prefix = match self.order {
            Some(KeyOrder::Lexical) => successor(&self.prefix),
            _ => None,
        };
        match (self.stop.clone(), after_prefix) {
            (Some(stop), Some(after)) => Some(stop.min(after)),
            (stop, after) => stop.or(after),
        }
    }
}

/// Returns the first key after all those with a prefix; `None` if there is none.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

/// Keys and values, one after the other in one allocation.
#[derive(Default)]
struct Portion {
    bytes: Vec<u8>,
    /// End of each key, and of the value after it.
    ends: Vec<(usize, usize)>,
    /// Number of records that were returned, and the bytes of them.
    returned: usize,
    start: usize,
    /// Whether the last record is returned first.
    is_backwards: bool,
}

impl Portion {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        (self.returned, self.start, self.is_backwards) = (0, 0, false);
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((end, self.bytes.len()));
    }

    fn next(&mut self) -> Option<(&[u8], &[u8])> {
        if self.is_backwards {
            let (middle, end) = self.ends.pop()?;
            let start = self.ends.last().map_or(0, |(_, end)| *end);
            return Some((&self.bytes[start..middle], &self.bytes[middle..end]));
        }
        let (middle, end) = *self.ends.get(self.returned)?;
        let start = std::mem::replace(&mut self.start, end);
        self.returned += 1;
        Some((&self.bytes[start..middle], &self.bytes[middle..end]))
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= PORTION_RECORDS || self.bytes.len() >= PORTION_BYTES
    }
}

/// Position of an iteration.
enum Position {
    At(ScanCursor),
    /// In reverse: before all records with this key.
    Before(Vec<u8>),
    Last,
    /// In reverse, in a database that is read forwards only, which is in memory: here, while
    /// records are collected.
    Collect(ScanCursor),
    Ended,
}

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
        let handle = shared.enter()?;
        let first = limits.first().map(|first| handle.slow.scan_cursor_of(first));
        let first = first.unwrap_or_default();
        let position = if !is_reverse {
            Position::At(first)
        } else if handle.slow.has_duplicates() {
            limits.end().map_or(Position::Last, Position::Before)
        } else {
            Position::Collect(first)
        };
        drop(handle);
        let state = Mutex::new(State { position, portion: Portion::default() });
        let codecs = store.codecs.copy(py);
        Ok(Self { shared, codecs, wanted, limits, state })
    }

    /// Reads the next portion, which may be empty before the end.
    fn fill(&self, database: &Database, state: &mut State) -> cabinet::Result<()> {
        let State { position, portion } = state;
        let deadline = Instant::now() + PORTION_TIME;
        if !matches!(position, Position::Collect(_)) {
            portion.clear();
        }
        while Instant::now() < deadline {
            if portion.is_full() && !matches!(position, Position::Collect(_)) {
                break;
            }
            // After an error the iteration has ended.
            *position = match std::mem::replace(position, Position::Ended) {
                Position::At(cursor) => match self.step(database, &cursor, portion)? {
                    Some(next) => Position::At(next),
                    None => break,
                },
                Position::Before(key) => {
                    let mut cursor = database.cursor()?;
                    let is_any = if cursor.jump(&key)? { cursor.prev()? } else { cursor.last()? };
                    self.step_back(&mut cursor, is_any, portion)?
                }
                Position::Last => {
                    let mut cursor = database.cursor()?;
                    let is_any = cursor.last()?;
                    self.step_back(&mut cursor, is_any, portion)?
                }
                Position::Collect(cursor) => match self.step(database, &cursor, portion)? {
                    Some(next) => Position::Collect(next),
                    None => {
                        portion.is_backwards = true;
                        break;
                    }
                },
                Position::Ended => break,
            };
        }
        Ok(())
    }

    fn step(
        &self,
        database: &Database,
        from: &ScanCursor,
        portion: &mut Portion,
    ) -> cabinet::Result<Option<ScanCursor>> {
        let mut is_past = false;
        let mut take = |key: &[u8], value: &[u8]| {
            if self.limits.is_wanted(key) {
                portion.push(key, value);
            } else {
                is_past |= self.limits.side(key).is_gt();
            }
        };
        let next = match self.wanted {
            Wanted::Keys => database.scan_keys(from, |key| take(key, &[])),
            _ => database.scan(from, |record: RecordRef<'_>| take(record.key, record.value)),
        };
        Ok(next?.filter(|_| !is_past))
    }

    /// Reads from the record of a cursor on in reverse order, to the first record of a key.
    fn step_back(
        &self,
        cursor: &mut Cursor,
        mut is_any: bool,
        portion: &mut Portion,
    ) -> cabinet::Result<Position> {
        let deadline = Instant::now() + PORTION_TIME;
        let mut last: Option<Vec<u8>> = None;
        while is_any {
            let (key, value) = (cursor.key().unwrap_or_default(), cursor.value());
            if self.limits.is_before_all(key) {
                return Ok(Position::Ended);
            }
            if last.as_deref() != Some(key) {
                if portion.is_full() || Instant::now() >= deadline {
                    return Ok(last.map_or(Position::Last, Position::Before));
                }
                last = Some(key.to_vec());
            }
            if self.limits.is_wanted(key) {
                let value = if self.wanted == Wanted::Keys { None } else { value };
                portion.push(key, value.unwrap_or_default());
            }
            is_any = cursor.prev()?;
        }
        Ok(Position::Ended)
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
            py.detach(|| Ok::<_, Failure>(self.fill(&self.shared.enter()?.slow, state)?))?;
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
        let handle = self.scanned().enter()?;
        let order = handle.slow.order();
        let has_reverse = handle.slow.has_duplicates()
            || order.is_some() && handle.slow.kind().is_some_and(cabinet::Kind::is_on_memory);
        drop(handle);
        let (start, stop) = (bytes(start)?, bytes(stop)?);
        if order.is_none() && (start.is_some() || stop.is_some()) {
            let text = "only the keys of a tree have an order: open one (.tcb or +) for ranges";
            return Err(errors::new(py, "UnsupportedError", text));
        }
        if is_reverse && !has_reverse {
            let text = "only a tree is read in reverse order: open one (.tcb or +)";
            return Err(errors::new(py, "UnsupportedError", text));
        }
        let test: Option<Test> = match bytes(pattern)? {
            None => None,
            Some(pattern) => {
                let pattern = cabinet::pattern::compile(&pattern).map_err(errors::library)?;
                Some(Box::new(move |key| pattern.is_match(key)))
            }
        };
        Ok(Limits { order, start, stop, prefix: bytes(prefix)?.unwrap_or_default(), test })
    }
}
