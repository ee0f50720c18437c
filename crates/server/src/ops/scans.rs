//! Operations that scan many records.

use super::execute::{Executor, Outcome, Reply, ReplyLimit, Stop, TooLong, if_found};
use super::iterator::Place;
use crate::store::view::View;
use cabinet::{Error, KeyOrder, Numbered, RecordRef, Result as DatabaseResult, ScanCursor, Wanted};
use std::ops::ControlFlow;

/// Bytes of values that [`for_each`] reads ahead. Further values are read one by one.
const AHEAD_BYTES_MAX: usize = 1 << 20;

/// Counts the results of a scan.
struct Found {
    count: usize,
    max: usize,
    /// Whether the results are within the limits of a reply.
    length: Result<(), TooLong>,
}

impl Found {
    fn up_to(max: usize) -> Self {
        Self { count: 0, max, length: Ok(()) }
    }

    /// Calls `append` to add the next result of `bytes`. Breaks at the last wanted result, or if
    /// the reply is too long.
    fn add<R: Reply>(
        &mut self,
        limit: &mut ReplyLimit<'_>,
        reply: &mut R,
        bytes: usize,
        append: impl FnOnce(&mut R),
    ) -> ControlFlow<()> {
        self.length = limit.append(reply, bytes, append);
        self.count += 1;
        if self.count < self.max && self.length.is_ok() && !reply.is_full() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

/// Appends the keys that begin with a prefix. If keys are ids, appends those within an interval.
pub(super) fn keys_with_prefix(
    executor: &mut Executor<'_>,
    prefix: &[u8],
    max: usize,
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    if max == 0 {
        return Ok(Outcome::Done);
    }
    let (store, limit) = (executor.store, &mut executor.limit);
    let mut found = Found::up_to(max);
    let mut visit = |key: &[u8]| found.add(limit, reply, key.len(), |reply| reply.element(key));
    let scanned = match store.as_numbered() {
        None => store.for_each_key_with_prefix(prefix, &mut visit),
        Some(numbered) => match numbered.interval(prefix) {
            Some(ids) => numbered.for_each_key_in(ids, &mut visit),
            None => Ok(()),
        },
    };
    found.length?;
    scanned?;
    Ok(Outcome::Done)
}

/// Appends the keys that begin with a prefix, as often as they have values. In the order of bytes,
/// appends those from `from` on.
pub(super) fn keys_from(
    executor: &mut Executor<'_>,
    prefix: &[u8],
    from: &[u8],
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    let (store, limit) = (executor.store, &mut executor.limit);
    let mut found = Found::up_to(usize::MAX);
    let mut visit = |key: &[u8]| found.add(limit, reply, key.len(), |reply| reply.element(key));
    let mut position = None;
    if store.order() == Some(KeyOrder::Lexical) {
        position = Some(store.scan_cursor_of(from.max(prefix)));
    } else {
        store.for_each_key_with_prefix(prefix, &mut visit)?;
    }
    while let Some(from) = position {
        let mut flow = ControlFlow::Continue(());
        let next = store.scan_keys(&from, |key| match key.starts_with(prefix) {
            _ if flow.is_break() => {}
            true => flow = visit(key),
            false => flow = ControlFlow::Break(()),
        })?;
        position = next.filter(|_| flow.is_continue());
    }
    found.length?;
    Ok(Outcome::Done)
}

/// Appends all records.
pub(super) fn records(
    executor: &mut Executor<'_>,
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    let (store, limit) = (executor.store, &mut executor.limit);
    let mut found = Found::up_to(usize::MAX);
    let scanned = store.for_each(|entry| {
        let bytes = if reply.shows_values() { entry.value.len() } else { 0 };
        found.add(limit, reply, bytes, |reply| reply.record(entry.key, &entry))
    });
    found.length?;
    scanned?;
    Ok(Outcome::Done)
}

/// Calls `visit` with the key and the value of each record until it breaks. `visit` may change
/// records: one that exists from beginning to end is visited once, others may be visited.
pub(crate) fn for_each(
    store: &View,
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> DatabaseResult<()> {
    // Ids are visited in their order, which is not that of the log.
    let mut position = store.as_numbered().map(|_| ScanCursor::Start);
    let mut scan = match position {
        Some(_) => None,
        None => Some(store.scan_all(Wanted::Records)?),
    };
    let is_hidden = store.hidden();
    let mut goes_on = true;
    while goes_on {
        let mut ahead: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        let mut bytes = 0;
        let take = |entry: RecordRef<'_>| {
            if is_hidden(entry.key) {
                return;
            }
            bytes += entry.value.len();
            let value = (bytes <= AHEAD_BYTES_MAX).then(|| entry.value.to_vec());
            ahead.push((entry.key.to_vec(), value));
        };
        goes_on = match (&mut scan, &position) {
            (Some(scan), _) => scan.step(take)?,
            (None, Some(from)) => {
                position = store.scan(from, take)?;
                position.is_some()
            }
            (None, None) => false,
        };
        let mut duplicate = 0;
        for index in 0..ahead.len() {
            let is_same = index > 0 && ahead[index - 1].0 == ahead[index].0;
            duplicate = if is_same { duplicate + 1 } else { 0 };
            let value = match ahead[index].1.take() {
                Some(value) => Some(value),
                None => {
                    let copy = |entry: RecordRef<'_>| entry.value.to_vec();
                    let key = &ahead[index].0;
                    if duplicate > 0 {
                        store.read_duplicate(key, duplicate, copy)?
                    } else {
                        store.read(key, copy)?
                    }
                }
            };
            if let Some(value) = value
                && visit(&ahead[index].0, &value).is_break()
            {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Appends the records whose key matches a regular expression.
pub(super) fn matches(
    executor: &mut Executor<'_>,
    pattern: &[u8],
    max: usize,
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    let (store, limit) = (executor.store, &mut executor.limit);
    let mut found = Found::up_to(max);
    let scanned = store.for_each_match(pattern, |entry| {
        found.add(limit, reply, entry.value.len(), |reply| reply.record(entry.key, &entry))
    });
    found.length?;
    scanned?;
    Ok(Outcome::Done)
}

/// Appends the records from one key on until another, if the keys are ordered.
pub(super) fn range(
    executor: &mut Executor<'_>,
    begin: Option<&[u8]>,
    max: usize,
    end: Option<&[u8]>,
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    let (store, limit) = (executor.store, &mut executor.limit);
    if let Some(numbered) = store.as_numbered() {
        return range_of_ids(numbered, begin, max, end, limit, reply);
    }
    let Some(order) = store.order() else {
        return Err(Stop::Failed(Error::Unsupported {
            operation: "ranges of keys",
            kind: "a database without an order of keys",
            advice: "serve a B+ tree (.tcb)",
        }));
    };
    let mut position = match begin {
        None | Some(b"") => ScanCursor::Start,
        Some(begin) => store.scan_cursor_of(begin),
    };
    let mut found = Found::up_to(max);
    let mut flow = ControlFlow::Continue(());
    while flow.is_continue() {
        let next = store.scan(&position, |entry| {
            if end.is_some_and(|end| order.compare(entry.key, end).is_ge()) {
                flow = ControlFlow::Break(());
            }
            if flow.is_continue() {
                flow = found.add(limit, reply, entry.value.len(), |reply| {
                    reply.record(entry.key, &entry);
                });
            }
        })?;
        match next {
            Some(next) => position = next,
            None => break,
        }
    }
    found.length?;
    Ok(Outcome::Done)
}

/// Appends the records from one id on until another. No record begins at a key that is no id, and
/// an end without digits is no limit.
fn range_of_ids(
    numbered: &dyn Numbered,
    begin: Option<&[u8]>,
    max: usize,
    end: Option<&[u8]>,
    limit: &mut ReplyLimit<'_>,
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    let first = begin.map_or(Some(1), |begin| numbered.id(begin));
    let Some(first) = first else { return Ok(Outcome::Done) };
    let end = end.filter(|end| end.iter().any(u8::is_ascii_digit));
    let last = end.and_then(|end| numbered.id(end)).map_or(u64::MAX, |end| end - 1);
    let mut found = Found::up_to(max);
    let scanned = numbered.for_each_in(first..=last, &mut |entry| {
        found.add(limit, reply, entry.value.len(), |reply| reply.record(entry.key, &entry))
    });
    found.length?;
    scanned?;
    Ok(Outcome::Done)
}

/// Appends the next record of the iterator.
pub(super) fn next_record(
    executor: &mut Executor<'_>,
    reply: &mut impl Reply,
) -> Result<Outcome, Stop> {
    // A key that was taken off the iterator cannot be put back, so this runs on a thread that may
    // wait.
    let store = executor.store;
    while let Some(Place { key, duplicate }) = executor.iterators()?.next(store)? {
        let limit = &mut executor.limit;
        let show = |entry: RecordRef<'_>| {
            limit.append(reply, entry.value.len(), |reply| reply.record(&key, &entry))
        };
        let found = if duplicate > 0 {
            executor.store.read_duplicate(&key, duplicate, show)?
        } else {
            executor.store.read(&key, show)?
        };
        // Without a record, it was removed after its key was read ahead.
        if found.is_some() {
            return if_found(found);
        }
    }
    Ok(Outcome::NoRecord)
}
