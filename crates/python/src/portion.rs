//! Portions of records, which iterations read at a time: from a database of this process, or by its
//! server.

use cabinet::{Cursor, Database, KeyOrder, RecordRef, ScanCursor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
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
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wanted {
    Keys,
    Values,
    Items,
}

/// Test of keys by a pattern.
type Test = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Records that an iteration returns.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// First key, and the first one that is not returned any more.
    start: Option<Vec<u8>>,
    stop: Option<Vec<u8>>,
    prefix: Vec<u8>,
    /// Regular expression that keys match.
    pattern: Option<Vec<u8>>,
    #[serde(skip)]
    order: Option<KeyOrder>,
    #[serde(skip)]
    test: Option<Test>,
}

impl Limits {
    pub(crate) fn new(
        start: Option<Vec<u8>>,
        stop: Option<Vec<u8>>,
        prefix: Vec<u8>,
        pattern: Option<Vec<u8>>,
    ) -> Self {
        Self { start, stop, prefix, pattern, order: None, test: None }
    }

    /// Returns the limits for a database with this order. Fails if the pattern does not parse.
    pub(crate) fn prepared(&self, order: Option<KeyOrder>) -> cabinet::Result<Self> {
        let mut limits = Self { order, ..self.clone() };
        if let Some(pattern) = &self.pattern {
            let pattern = cabinet::pattern::compile(pattern)?;
            limits.test = Some(Arc::new(move |key| pattern.is_match(key)));
        }
        Ok(limits)
    }

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
    pub(crate) fn first(&self) -> Option<&[u8]> {
        let prefix = Some(&self.prefix[..]);
        let prefix = prefix.filter(|_| self.order == Some(KeyOrder::Lexical));
        let prefix = prefix.filter(|prefix| !prefix.is_empty());
        self.start.as_deref().max(prefix).filter(|_| self.order.is_some())
    }

    /// Returns the key before which an iteration in reverse order begins; `None` for the end.
    pub(crate) fn end(&self) -> Option<Vec<u8>> {
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
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Portion {
    #[serde(serialize_with = "write_bytes", deserialize_with = "read_bytes")]
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
    pub(crate) fn clear(&mut self) {
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

    pub(crate) fn next(&mut self) -> Option<(&[u8], &[u8])> {
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
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum Position {
    At(#[serde(with = "ScanCursorFields")] ScanCursor),
    /// In reverse: before all records with this key.
    Before(Vec<u8>),
    Last,
    /// In reverse, in a database that is read forwards only, which is in memory: here, while
    /// records are collected.
    Collect(#[serde(with = "ScanCursorFields")] ScanCursor),
    Ended,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ScanCursor")]
enum ScanCursorFields {
    Start,
    Hash(u64),
    Key(Vec<u8>),
    Id(u64),
}

fn write_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

fn read_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    <&[u8]>::deserialize(deserializer).map(<[u8]>::to_vec)
}

impl Position {
    /// Returns that of the beginning of an iteration.
    pub(crate) fn new(limits: &Limits, is_reverse: bool, has_duplicates: bool) -> Self {
        if is_reverse && has_duplicates {
            return limits.end().map_or(Self::Last, Self::Before);
        }
        let first = limits.first().map_or(ScanCursor::Start, |key| ScanCursor::Key(key.to_vec()));
        if is_reverse { Self::Collect(first) } else { Self::At(first) }
    }
}

/// Reads the next portion, which may be empty before the end.
pub(crate) fn fill(
    database: &Database,
    limits: &Limits,
    wanted: Wanted,
    position: &mut Position,
    portion: &mut Portion,
) -> cabinet::Result<()> {
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
            Position::At(cursor) => match step(database, limits, wanted, &cursor, portion)? {
                Some(next) => Position::At(next),
                None => break,
            },
            Position::Before(key) => {
                let mut cursor = database.cursor()?;
                let is_any = if cursor.jump(&key)? { cursor.prev()? } else { cursor.last()? };
                step_back(limits, wanted, &mut cursor, is_any, portion)?
            }
            Position::Last => {
                let mut cursor = database.cursor()?;
                let is_any = cursor.last()?;
                step_back(limits, wanted, &mut cursor, is_any, portion)?
            }
            Position::Collect(cursor) => match step(database, limits, wanted, &cursor, portion)? {
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
    database: &Database,
    limits: &Limits,
    wanted: Wanted,
    from: &ScanCursor,
    portion: &mut Portion,
) -> cabinet::Result<Option<ScanCursor>> {
    let mut is_past = false;
    let mut take = |key: &[u8], value: &[u8]| {
        if limits.is_wanted(key) {
            portion.push(key, value);
        } else {
            is_past |= limits.side(key).is_gt();
        }
    };
    let next = match wanted {
        Wanted::Keys => database.scan_keys(from, |key| take(key, &[])),
        _ => database.scan(from, |record: RecordRef<'_>| take(record.key, record.value)),
    };
    Ok(next?.filter(|_| !is_past))
}

/// Reads from the record of a cursor on in reverse order, to the first record of a key.
fn step_back(
    limits: &Limits,
    wanted: Wanted,
    cursor: &mut Cursor,
    mut is_any: bool,
    portion: &mut Portion,
) -> cabinet::Result<Position> {
    let deadline = Instant::now() + PORTION_TIME;
    let mut last: Option<Vec<u8>> = None;
    while is_any {
        let (key, value) = (cursor.key().unwrap_or_default(), cursor.value());
        if limits.is_before_all(key) {
            return Ok(Position::Ended);
        }
        if last.as_deref() != Some(key) {
            // Before the first key it would not know where it was, if the thread has slept so long.
            if let Some(last) = last.take_if(|_| portion.is_full() || Instant::now() >= deadline) {
                return Ok(Position::Before(last));
            }
            last = Some(key.to_vec());
        }
        if limits.is_wanted(key) {
            let value = if wanted == Wanted::Keys { None } else { value };
            portion.push(key, value.unwrap_or_default());
        }
        is_any = cursor.prev()?;
    }
    Ok(Position::Ended)
}
