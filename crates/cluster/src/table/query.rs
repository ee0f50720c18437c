//! Queries: which index or which keys lead to the rows, and the walk over them.
//!
//! Each row that is led to is read and tested for all conditions. An entry counts if the row names
//! it and if it is the first of the row in the ranges that are walked, so a row is met once.
//! [`super::page`] has the rows that change meanwhile.
//!
//! An index is chosen by the number of entries that its first bucket has in the ranges of the
//! condition, of which keys have even shares.

use super::READS_AT_ONCE;
use super::Rows;
use super::cassandra::Entry;
use super::definitions::{Definition, Definitions};
use super::page::{MetRows, Page};
use super::tables::StoredRow;
use crate::keys::{KEY_BYTES_MAX, prefixed};
use crate::order;
use crate::records::now_ms;
use crate::session::Failure;
use cabinet::Error;
use cabinet::table::outside::{Filter, Lookup, ValueRange, is_cut};
use cabinet::table::{IndexKind, Query, RowView, SortOrder};
use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use tokio::task::block_in_place;

/// Ways of conditions that are compared.
const WAYS_MAX: usize = 8;

/// Least number of the entries of a bucket that are counted to compare ways.
const COUNTED_MIN: usize = 128;

/// Results of a query up to which an index is walked in the order of the query.
const WALKED_MAX: u64 = 10_000;

/// Rows above which a walk in the order of the query is better than another index and sorting.
const FEW_ROWS: usize = 2048;

/// Rows that are read at the same time before it is known how long they are.
const READS_AT_FIRST: usize = 8;

/// Bytes of rows that are read at the same time, about.
const READ_BYTES: usize = 8 << 20;

/// Ranges that one query reads, one after the other. A condition with more is tested on rows.
const RANGES_MAX: usize = 256;

/// Source of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Driver {
    /// Ranges of the keys.
    Keys(Vec<ValueRange>),
    /// Ranges of an index.
    Index { index: Definition, ranges: Vec<ValueRange>, is_descending: bool },
}

/// How a query is executed.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) driver: Driver,
    /// Whether rows are met in the order of the query.
    pub(super) is_in_order: bool,
    /// Whether rows without the column of the order follow those of the index.
    lacking_follow: bool,
    /// Line of the hint.
    pub(super) hint: String,
}

/// A row that meets the conditions.
#[derive(Debug)]
pub(super) struct Hit {
    pub(super) key: Vec<u8>,
    /// The row, encoded.
    pub(super) row: Vec<u8>,
    /// Value in the index that led to it.
    pub(super) value: Option<Vec<u8>>,
}

/// Takes rows as they are met. Each call gets at most [`READS_AT_ONCE`].
pub(super) trait Take: Send {
    /// Takes rows. Breaks if no more are wanted.
    fn take(
        &mut self,
        hits: Vec<Hit>,
    ) -> impl Future<Output = Result<ControlFlow<()>, super::Stop>> + Send;
}

/// A condition that an index or the keys answer.
struct Access {
    index: Option<Definition>,
    lookup: Lookup,
}

impl Plan {
    /// Returns the index that the plan uses, if there is one.
    pub(super) fn index(&self) -> Option<i32> {
        match &self.driver {
            Driver::Keys(_) => None,
            Driver::Index { index, .. } => Some(index.id),
        }
    }

    /// Returns whether rows are met by falling values. Rows of the same value fall too then.
    pub(super) fn is_descending(&self) -> bool {
        matches!(self.driver, Driver::Index { is_descending: true, .. })
    }

    /// Returns whether the value of a hit stands for several values that are in no order.
    pub(super) fn is_cut(&self, hit: &Hit) -> bool {
        match (&self.driver, &hit.value) {
            (Driver::Index { index, .. }, Some(value)) => is_cut(index.kind, value),
            _ => false,
        }
    }
}

impl Rows {
    /// Returns how a query is executed.
    pub(super) async fn plan(
        &self,
        definitions: &Definitions,
        query: &Query,
    ) -> Result<Plan, Failure> {
        let mut accesses = accesses(definitions, query);
        let order = query.order.as_ref();
        let by_keys = order.is_some_and(|order| {
            order.column.is_empty() && !order.kind.is_by_number() && !order.kind.is_descending()
        });
        let walked = order.and_then(|order| walked(definitions, order));
        let walked = walked.filter(|_| query.wanted().is_some_and(|wanted| wanted <= WALKED_MAX));
        // The best way of all, and about the number of its rows.
        let mut best: Option<(usize, usize, usize)> = None;
        let ways: usize = accesses.iter().map(|access| access.lookup.ways.len()).sum();
        let mut compared = 0;
        for (number, access) in accesses.iter().enumerate() {
            for (way, ranges) in access.lookup.ways.iter().enumerate() {
                if compared == WAYS_MAX {
                    break;
                }
                compared += 1;
                let rows = match ways {
                    1 if walked.is_none() => 0,
                    _ => self.count(access.index.as_ref(), ranges).await?,
                };
                if best.is_none_or(|(_, _, fewest)| rows < fewest) {
                    best = Some((number, way, rows));
                }
            }
        }
        if let (Some(index), Some(order)) = (walked, order) {
            let narrowing = |access: &Access| {
                let is_same = access.index.as_ref().is_some_and(|own| own.id == index.id);
                is_same && access.lookup.ways.len() == 1
            };
            let narrow = accesses.iter().position(narrowing);
            let leads = best.is_some_and(|(number, ..)| Some(number) == narrow);
            if leads || best.is_none_or(|(_, _, rows)| rows >= FEW_ROWS) {
                let ranges = narrow.map_or_else(
                    || vec![ValueRange::ALL],
                    |number| accesses[number].lookup.ways[0].clone(),
                );
                let asks_for_column = query
                    .conditions
                    .iter()
                    .any(|condition| !condition.negate && condition.column == order.column);
                let is_descending = order.kind.is_descending();
                let direction = if is_descending { "desc" } else { "asc" };
                let column = String::from_utf8_lossy(&order.column);
                let name = order.kind.name();
                return Ok(Plan {
                    hint: format!("using an index: \"{column}\" {direction} ({name})"),
                    driver: Driver::Index { index, ranges, is_descending },
                    is_in_order: true,
                    lacking_follow: !asks_for_column && !order.column.is_empty(),
                });
            }
        }
        let Some((number, way, _)) = best else {
            return Ok(Plan {
                driver: Driver::Keys(vec![ValueRange::ALL]),
                is_in_order: by_keys,
                lacking_follow: false,
                hint: "scanning the whole table".to_owned(),
            });
        };
        let Access { index, mut lookup } = accesses.swap_remove(number);
        let ranges = lookup.ways.swap_remove(way);
        let is_in_order = by_keys && index.is_none();
        let driver = match index {
            None => Driver::Keys(ranges),
            Some(index) => Driver::Index {
                index,
                ranges,
                is_descending: lookup.is_descending && order.is_none(),
            },
        };
        Ok(Plan { driver, is_in_order, lacking_follow: false, hint: lookup.hint })
    }

    /// Returns about how many rows some ranges lead to.
    async fn count(
        &self,
        index: Option<&Definition>,
        ranges: &[ValueRange],
    ) -> Result<usize, Failure> {
        let tables = &self.upkeep.tables;
        // Ways with many rows are told from those with few, however few the buckets are.
        let max = FEW_ROWS.div_ceil(tables.buckets()).max(COUNTED_MIN);
        let counted = match index {
            Some(index) => tables.count_in_bucket(index.id, ranges, max).await?,
            None if ranges.iter().all(|range| one_key(range).is_some()) => return Ok(ranges.len()),
            None => {
                let mut counted = 0;
                for range in ranges {
                    let (begin, end) = key_bounds(range);
                    let left = (max - counted.min(max)) as i32;
                    let (cluster, order) = (&tables.cluster, tables.order());
                    counted += match left {
                        0 => 0,
                        left => order.count_in_bucket(cluster, begin, end, left).await?,
                    };
                }
                counted
            }
        };
        Ok(counted * tables.buckets())
    }

    /// Calls `take` with the rows that meet the conditions of a query, until it breaks.
    pub(super) async fn walk(
        self: &Arc<Self>,
        plan: &Plan,
        query: &Query,
        take: &mut impl Take,
    ) -> Result<(), super::Stop> {
        let filter = Filter::new(&query.conditions);
        // All rows are read to be sorted.
        let wanted = query.wanted().filter(|_| plan.is_in_order || query.order.is_none());
        let met = MetRows::new(now_ms(), &std::env::temp_dir());
        let at_once = READS_AT_FIRST;
        let mut walk = Walk { rows: self, filter: &filter, wanted, at_once, met, take };
        let flow = match &plan.driver {
            Driver::Keys(ranges) => walk.keys(ranges, None).await?,
            Driver::Index { index, ranges, is_descending } => {
                walk.index(index, ranges, *is_descending).await?
            }
        };
        if plan.lacking_follow && flow.is_continue() {
            let column = query.order.as_ref().map(|order| &order.column[..]);
            return walk.keys(&[ValueRange::ALL], column).await.map(drop);
        }
        Ok(())
    }
}

/// Walk over the rows of a plan.
struct Walk<'a, T> {
    rows: &'a Arc<Rows>,
    filter: &'a Filter,
    /// Number of rows that are wanted. It grows, since some do not meet the conditions.
    wanted: Option<u64>,
    /// Rows that are read at the same time.
    at_once: usize,
    met: MetRows,
    take: &'a mut T,
}

impl<T: Take> Walk<'_, T> {
    /// Returns the number of entries that are worth reading next.
    fn next_wanted(&mut self) -> usize {
        let Some(wanted) = self.wanted else { return usize::MAX };
        self.wanted = wanted.checked_mul(2);
        usize::try_from(wanted).unwrap_or(usize::MAX)
    }

    /// Reads rows at the same time, and adapts the number of the next ones to their length.
    async fn read(&mut self, keys: &[Vec<u8>]) -> Result<Vec<Option<StoredRow>>, Failure> {
        let found = self.rows.read_all(keys).await?;
        let rows = found.iter().flatten().flat_map(|row| &row.value);
        let longest = rows.map(Vec::len).max().unwrap_or(0);
        self.at_once = next_at_once(self.at_once, longest);
        Ok(found)
    }

    /// Meets the rows of ranges of keys, or only those that lack a column.
    async fn keys(
        &mut self,
        ranges: &[ValueRange],
        lacking: Option<&[u8]>,
    ) -> Result<ControlFlow<()>, super::Stop> {
        let tables = &self.rows.upkeep.tables;
        for range in ranges {
            if let Some(key) = one_key(range) {
                if key.len() > KEY_BYTES_MAX {
                    continue;
                }
                if self.meet_keys(vec![key.to_vec()], lacking).await?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            }
            let (begin, end) = key_bounds(range);
            let mut begin = Bound::Included(begin);
            loop {
                let wanted = self.next_wanted();
                let part = tables.order().part(&tables.cluster, &begin, &end, wanted).await?;
                let mut left = &part.keys[..];
                while !left.is_empty() {
                    let (keys, rest) = left.split_at(self.at_once.min(left.len()));
                    left = rest;
                    let keys = keys.iter().map(|key| key[1..].to_vec()).collect();
                    if self.meet_keys(keys, lacking).await?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                match part.next {
                    Some(next) => begin = Bound::Excluded(next),
                    None => break,
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    async fn meet_keys(
        &mut self,
        keys: Vec<Vec<u8>>,
        lacking: Option<&[u8]>,
    ) -> Result<ControlFlow<()>, super::Stop> {
        let found = self.read(&keys).await?;
        let (filter, met) = (self.filter, &mut self.met);
        let hits = block_in_place(|| {
            let accepted = |key: &[u8], row: &[u8]| {
                let row = RowView::new(row);
                filter.accepts(key, row) && lacking.is_none_or(|column| row.get(column).is_none())
            };
            let mut hits = Vec::new();
            for (key, row) in keys.into_iter().zip(found) {
                let Some(StoredRow { version, value, .. }) = row else { continue };
                let Some(row) = value.filter(|row| accepted(&key, row)) else { continue };
                // The index may have led to it before it has lost the column.
                if lacking.is_none() || met.meets_lacking(&key, version)? {
                    hits.push(Hit { key, row, value: None });
                }
            }
            Ok::<_, Error>(hits)
        })?;
        self.hand_on(hits).await
    }

    /// Meets the rows of ranges of an index.
    async fn index(
        &mut self,
        index: &Definition,
        ranges: &[ValueRange],
        is_descending: bool,
    ) -> Result<ControlFlow<()>, super::Stop> {
        let tables = &self.rows.upkeep.tables;
        let mut in_turn: Vec<&ValueRange> = ranges.iter().collect();
        if is_descending {
            in_turn.reverse();
        }
        for range in in_turn {
            let mut last: Option<Entry> = None;
            loop {
                let (wanted, after) = (self.next_wanted(), last.as_ref());
                let part = tables.entries(index.id, range, is_descending, after, wanted).await?;
                let mut page = Page::new(part, range, is_descending);
                loop {
                    let entries = page.take(self.at_once);
                    if entries.is_empty() {
                        break;
                    }
                    // A row is the same for all of its entries here.
                    let keys: BTreeSet<_> = entries.iter().map(|entry| &entry.key).collect();
                    let keys: Vec<Vec<u8>> = keys.into_iter().cloned().collect();
                    let found = self.read(&keys).await?;
                    let hits = block_in_place(|| {
                        let rows = keys.iter().zip(found);
                        let meant =
                            |(key, row): (&Vec<u8>, _)| meant(index, ranges, self.filter, key, row);
                        let rows: Vec<Option<(Entry, Vec<u8>)>> = rows.map(meant).collect();
                        self.meet_entries(&mut page, &keys, &entries, rows)
                    })?;
                    if self.hand_on(hits).await?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                match page.next {
                    None => break,
                    next => last = next,
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the rows that are met at some entries. `rows` are those of the keys that are meant,
    /// each with its own entry.
    fn meet_entries(
        &mut self,
        page: &mut Page<'_>,
        keys: &[Vec<u8>],
        entries: &[Entry],
        mut rows: Vec<Option<(Entry, Vec<u8>)>>,
    ) -> Result<Vec<Hit>, Error> {
        let mut hits = Vec::new();
        for entry in entries {
            let Ok(place) = keys.binary_search(&entry.key) else { continue };
            let Some((own, _)) = &rows[place] else { continue };
            let led = page.led(entry, entries, own);
            if self.met.meets(&entry.key, own.name, led)?
                && let Some((own, row)) = rows[place].take()
            {
                hits.push(Hit { key: own.key, row, value: Some(own.value) });
            }
        }
        Ok(hits)
    }

    /// Passes rows on, or none, so that a search whose client is gone ends.
    async fn hand_on(&mut self, hits: Vec<Hit>) -> Result<ControlFlow<()>, super::Stop> {
        self.take.take(hits).await
    }
}

/// Returns the number of rows to be read next, given that of the last ones and the bytes of their
/// longest one.
fn next_at_once(at_once: usize, longest: usize) -> usize {
    (READ_BYTES / longest.max(1)).clamp(1, READS_AT_ONCE.min(at_once * 2))
}

/// Returns a row that meets the conditions, and its first entry in the ranges.
fn meant(
    index: &Definition,
    ranges: &[ValueRange],
    filter: &Filter,
    key: &[u8],
    row: Option<StoredRow>,
) -> Option<(Entry, Vec<u8>)> {
    let row = row?;
    let name = row.name(index.id);
    let row = row.value.filter(|row| filter.accepts(key, RowView::new(row)))?;
    let is_meant = |value: &Vec<u8>| ranges.iter().any(|range| range.contains(value));
    let value = index.values(key, &row).into_iter().find(is_meant)?;
    Some((Entry { value, key: key.to_vec(), name }, row))
}

/// Returns the conditions that an index or the keys answer.
fn accesses(definitions: &Definitions, query: &Query) -> Vec<Access> {
    let mut accesses = Vec::new();
    for condition in &query.conditions {
        let of_keys = Lookup::of(condition, b"", IndexKind::Lexical);
        accesses.extend(of_keys.map(|lookup| Access { index: None, lookup }));
        let ready = definitions.indexes.iter().filter(|index| index.is_ready);
        for index in ready.filter(|index| !index.is_of_keys()) {
            let lookup = Lookup::of(condition, &index.column, index.kind);
            accesses.extend(lookup.map(|lookup| Access { index: Some(index.clone()), lookup }));
        }
    }
    for access in &mut accesses {
        access.lookup.ways.retain(|ranges| ranges.len() <= RANGES_MAX);
    }
    accesses
}

/// Returns the index that is in the order of a query, if there is one.
fn walked(definitions: &Definitions, order: &SortOrder) -> Option<Definition> {
    let kind = if order.kind.is_by_number() { IndexKind::Decimal } else { IndexKind::Lexical };
    let is_in_order = |index: &&Definition| {
        index.is_ready && index.kind == kind && index.column == order.column && !index.is_of_keys()
    };
    definitions.indexes.iter().find(is_in_order).cloned()
}

/// Returns the only key of a range, if it has no more.
fn one_key(range: &ValueRange) -> Option<&[u8]> {
    let end = range.end.as_ref()?;
    let is_one = end.strip_prefix(&range.start[..]) == Some(&[0]);
    is_one.then_some(&range.start[..])
}

/// Returns the first key of a range and the key before which it ends, with the byte before them.
/// Bounds that are longer than any key are cut, so that some keys more may be within them.
fn key_bounds(range: &ValueRange) -> (Vec<u8>, Vec<u8>) {
    let end = match &range.end {
        None => order::after_prefix(&prefixed(b"")),
        Some(end) if end.len() > KEY_BYTES_MAX => {
            order::after_prefix(&prefixed(&end[..KEY_BYTES_MAX]))
        }
        Some(end) => prefixed(end),
    };
    (prefixed(&range.start[..range.start.len().min(KEY_BYTES_MAX)]), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_keys_are_no_longer_than_keys() {
        let long = |byte: u8, more| vec![byte; KEY_BYTES_MAX + more];
        for (start, end) in [(0, 0), (1, 0), (0, 1), (1, 1), (9, 9)] {
            let range = ValueRange { start: long(b'a', start), end: Some(long(b'b', end)) };
            let (first, last) = key_bounds(&range);
            assert!(first.len() <= KEY_BYTES_MAX + 1 && last.len() <= KEY_BYTES_MAX + 1);
            assert_eq!(first, prefixed(&long(b'a', 0)));
            // The last key that may be within them.
            let within = prefixed(&long(b'b', 0));
            assert_eq!(within < last, end > 0);
        }
        let all = key_bounds(&ValueRange::ALL);
        assert_eq!(all, (vec![0], vec![1]));
        let of_255 = ValueRange { start: Vec::new(), end: Some(long(255, 1)) };
        assert_eq!(key_bounds(&of_255).1, [1]);
    }

    #[test]
    fn long_rows_are_read_a_few_at_a_time() {
        assert_eq!(next_at_once(8, 100), 16);
        assert_eq!(next_at_once(64, 100), READS_AT_ONCE);
        assert_eq!(next_at_once(64, READ_BYTES / 3), 3);
        assert_eq!(next_at_once(64, READ_BYTES + 1), 1);
        assert_eq!(next_at_once(1, 0), 2);
    }
}
