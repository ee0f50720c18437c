//! Queries: which index or which keys lead to the rows, and the walk over them.
//!
//! Each row that is led to is read and tested for all conditions. An entry counts if the row names
//! it and if it is the first of the row in the ranges that are walked, so a row is met once.
//!
//! An index is chosen by the number of entries that its first bucket has in the ranges of the
//! condition, of which keys have even shares.

use super::READS_AT_ONCE;
use super::Rows;
use super::cassandra::Entry;
use super::definitions::{Definition, Definitions};
use super::tables::StoredRow;
use crate::keys::prefixed;
use crate::order;
use crate::session::Failure;
use cabinet::table::outside::{Filter, Lookup, ValueRange, is_cut};
use cabinet::table::{IndexKind, Order, Query, RowView};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use tokio::task::block_in_place;

/// Ways of conditions that are compared.
const WAYS_MAX: usize = 8;

/// Entries of a bucket that are counted to compare ways.
const COUNTED_MAX: usize = 128;

/// Results of a query up to which an index is walked in the order of the query.
const WALKED_MAX: u64 = 10_000;

/// Rows above which a walk in the order of the query is better than another index and sorting.
const FEW_ROWS: usize = 2048;

/// Ranges that one query reads, one after the other. A condition with more is tested on rows.
const RANGES_MAX: usize = 256;

/// What leads to the rows.
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
        let counted = match index {
            Some(index) => tables.count_in_bucket(index.id, ranges, COUNTED_MAX).await?,
            None if ranges.iter().all(|range| one_key(range).is_some()) => return Ok(ranges.len()),
            None => {
                let mut counted = 0;
                for range in ranges {
                    let (begin, end) = key_bounds(range);
                    let left = (COUNTED_MAX - counted.min(COUNTED_MAX)) as i32;
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
        let mut walk = Walk { rows: self, filter: &filter, wanted: query.wanted(), take };
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
    /// Number of rows that are wanted.
    wanted: Option<u64>,
    take: &'a mut T,
}

impl<T: Take> Walk<'_, T> {
    /// Returns the number of entries that are worth reading at once.
    fn at_once(&self) -> usize {
        self.wanted.map_or(usize::MAX, |wanted| usize::try_from(wanted).unwrap_or(usize::MAX))
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
                if self.meet_keys(vec![key.to_vec()], lacking).await?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                continue;
            }
            let (begin, end) = key_bounds(range);
            let mut begin = Bound::Included(begin);
            loop {
                let wanted = self.at_once();
                let part = tables.order().part(&tables.cluster, &begin, &end, wanted).await?;
                for keys in part.keys.chunks(READS_AT_ONCE) {
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
        let found = self.rows.read_all(&keys).await?;
        let filter = self.filter;
        let hits = block_in_place(|| {
            let accepted = |key: &[u8], row: &[u8]| {
                let row = RowView::new(row);
                filter.accepts(key, row) && lacking.is_none_or(|column| row.get(column).is_none())
            };
            let hit = |(key, row): (Vec<u8>, Option<StoredRow>)| {
                let row = row?.value.filter(|row| accepted(&key, row))?;
                Some(Hit { key, row, value: None })
            };
            keys.into_iter().zip(found).filter_map(hit).collect::<Vec<_>>()
        });
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
                let (wanted, after) = (self.at_once(), last.as_ref());
                let part = tables.entries(index.id, range, is_descending, after, wanted).await?;
                for entries in part.entries.chunks(READS_AT_ONCE) {
                    let keys: Vec<_> = entries.iter().map(|entry| entry.key.clone()).collect();
                    let found = self.rows.read_all(&keys).await?;
                    let filter = self.filter;
                    let hits = block_in_place(|| {
                        let rows = entries.iter().zip(found);
                        let hit = |(entry, row)| live(index, ranges, filter, entry, row);
                        rows.filter_map(hit).collect::<Vec<_>>()
                    });
                    if self.hand_on(hits).await?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                match part.next {
                    None => break,
                    next => last = next,
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    async fn hand_on(&mut self, hits: Vec<Hit>) -> Result<ControlFlow<()>, super::Stop> {
        if hits.is_empty() { Ok(ControlFlow::Continue(())) } else { self.take.take(hits).await }
    }
}

/// Returns the row of an entry, if the entry is not stale, is the first of the row in the ranges,
/// and the row meets the conditions.
fn live(
    index: &Definition,
    ranges: &[ValueRange],
    filter: &Filter,
    entry: &Entry,
    row: Option<StoredRow>,
) -> Option<Hit> {
    let row = row.filter(|row| row.name(index.id) == entry.name)?;
    let value = row.value.filter(|value| filter.accepts(&entry.key, RowView::new(value)))?;
    let is_meant = |value: &Vec<u8>| ranges.iter().any(|range| range.contains(value));
    let first = index.values(&entry.key, &value).into_iter().find(is_meant)?;
    let is_first = first == entry.value;
    is_first.then(|| Hit { key: entry.key.clone(), row: value, value: Some(first) })
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
fn walked(definitions: &Definitions, order: &Order) -> Option<Definition> {
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
fn key_bounds(range: &ValueRange) -> (Vec<u8>, Vec<u8>) {
    let end = range.end.as_ref();
    let end = end.map_or_else(|| order::after_prefix(&prefixed(b"")), |end| prefixed(end));
    (prefixed(&range.start), end)
}
