//! Iterators over records. Each step copies some records, at most a few hundred KiB unless values
//! are larger. No lock is held between steps, so writers are not delayed.

use super::{Database, SteppedScan};
use crate::base::deadline;
use crate::{Error, KeyOrder, Record, RecordRef, Result, ScanCursor, Wanted};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

/// Iterator over records, see [`Database::iter`], [`Database::prefix`] and [`Database::range`].
///
/// A record that exists throughout is returned exactly once, other records at most once. An error
/// ends the iteration.
#[must_use = "an iterator does nothing unless it is used"]
pub struct Records<'d> {
    database: &'d Database,
    source: Source<'d>,
    limits: Limits,
    ready: VecDeque<Record>,
    /// Error that follows the ready records.
    failed: Option<Error>,
}

/// Iterator over keys, see [`Database::keys`].
///
/// A key that exists throughout is returned exactly once; in a tree, once for each of its values.
/// An error ends the iteration.
#[must_use = "an iterator does nothing unless it is used"]
pub struct Keys<'d> {
    scan: Option<SteppedScan<'d>>,
    ready: VecDeque<Vec<u8>>,
    /// Error that follows the ready keys.
    failed: Option<Error>,
}

/// Rest of an iteration.
enum Source<'d> {
    /// All records, in the fastest order.
    Scan(SteppedScan<'d>),
    /// Records from a position on, in the order of keys.
    From(ScanCursor),
    Ended,
}

/// Limits of an iteration.
enum Limits {
    None,
    Prefix(Vec<u8>),
    Bounds(KeyOrder, Bound<Vec<u8>>, Bound<Vec<u8>>),
}

impl Limits {
    /// Compares a key with the limits: before, within or after them.
    fn side(&self, key: &[u8]) -> Ordering {
        match self {
            Self::None => Ordering::Equal,
            Self::Prefix(prefix) if key.starts_with(prefix) => Ordering::Equal,
            Self::Prefix(prefix) => key.cmp(prefix),
            Self::Bounds(order, begin, end) => {
                let is_before = match begin {
                    Bound::Included(begin) => order.compare(key, begin).is_lt(),
                    Bound::Excluded(begin) => order.compare(key, begin).is_le(),
                    Bound::Unbounded => false,
                };
                let is_after = match end {
                    Bound::Included(end) => order.compare(key, end).is_gt(),
                    Bound::Excluded(end) => order.compare(key, end).is_ge(),
                    Bound::Unbounded => false,
                };
                // Inverted bounds contain nothing, so the iteration ends.
                match (is_before, is_after) {
                    (_, true) => Ordering::Greater,
                    (true, false) => Ordering::Less,
                    (false, false) => Ordering::Equal,
                }
            }
        }
    }
}

impl Records<'_> {
    /// Reads the next records. After an error the source has ended.
    fn fill(&mut self) -> Result<()> {
        let mut is_past = false;
        let take = |entry: RecordRef<'_>| match self.limits.side(entry.key) {
            Ordering::Less => {}
            Ordering::Equal => self.ready.push_back(entry.into()),
            Ordering::Greater => is_past = true,
        };
        match std::mem::replace(&mut self.source, Source::Ended) {
            Source::Scan(mut scan) => {
                if scan.step(take)? {
                    self.source = Source::Scan(scan);
                }
            }
            Source::From(position) => {
                deadline::check()?;
                let next = self.database.scan(&position, take)?;
                if let Some(next) = next.filter(|_| !is_past) {
                    self.source = Source::From(next);
                }
            }
            Source::Ended => {}
        }
        Ok(())
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(Ok(record));
            }
            if matches!(self.source, Source::Ended) {
                return self.failed.take().map(Err);
            }
            self.failed = self.fill().err();
        }
    }
}

impl Iterator for Keys<'_> {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(key) = self.ready.pop_front() {
                return Some(Ok(key));
            }
            let Some(mut scan) = self.scan.take() else {
                return self.failed.take().map(Err);
            };
            match scan.step_keys(|key| self.ready.push_back(key.to_vec())) {
                Ok(true) => self.scan = Some(scan),
                Ok(false) => {}
                Err(error) => self.failed = Some(error),
            }
        }
    }
}

impl Database {
    /// Returns an iterator over all records, in the fastest order for the kind of database. In a
    /// tree that is the order of keys.
    pub fn iter(&self) -> Result<Records<'_>> {
        Ok(self.records(Source::Scan(self.begin_scan(Wanted::Records)?), Limits::None))
    }

    /// Returns an iterator over all keys, in the order of [`iter`](Self::iter).
    pub fn keys(&self) -> Result<Keys<'_>> {
        let scan = Some(self.begin_scan(Wanted::Keys)?);
        Ok(Keys { scan, ready: VecDeque::new(), failed: None })
    }

    /// Returns an iterator over the records whose keys begin with `prefix`. Reads all records
    /// unless keys are in lexical order.
    pub fn prefix(&self, prefix: &[u8]) -> Result<Records<'_>> {
        let source = match self.order() {
            Some(KeyOrder::Lexical) => Source::From(self.scan_cursor_of(prefix)),
            _ => Source::Scan(self.begin_scan(Wanted::Records)?),
        };
        self.enter()?;
        Ok(self.records(source, Limits::Prefix(prefix.to_vec())))
    }

    /// Returns an iterator over the records with keys between two bounds, in the order of keys,
    /// such as `range("a".."c")`. Fails with [`Error::Unsupported`] if the keys have no order.
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<Records<'_>> {
        self.enter()?;
        let order = self.order().ok_or_else(|| {
            self.unsupported("ranges of keys", "open a B+ tree (.tcb), whose keys are in an order")
        })?;
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let (begin, end) = (owned(bounds.start_bound()), owned(bounds.end_bound()));
        let position = match &begin {
            Bound::Included(key) | Bound::Excluded(key) => self.scan_cursor_of(key),
            Bound::Unbounded => ScanCursor::Start,
        };
        Ok(self.records(Source::From(position), Limits::Bounds(order, begin, end)))
    }

    fn records<'d>(&'d self, source: Source<'d>, limits: Limits) -> Records<'d> {
        Records { database: self, source, limits, ready: VecDeque::new(), failed: None }
    }
}
