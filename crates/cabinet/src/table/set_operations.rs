//! Set operations: union, intersection and difference of the results of several queries.
//!
//! The results of all queries are sorted by primary key, each with its place, so that the results
//! of one row are adjacent. The rows that remain are sorted by place. Both sorters share the memory
//! of one query.

use super::query::{Query, Report, SetOperation};
use super::sort::{Sorted, Sorter};
use super::sort_order::SortOrder;
use super::{Table, keys};
use crate::base::reentry;
use crate::{Error, Result};
use std::ops::ControlFlow;
use std::path::Path;

impl Table {
    /// Calls `visit` with the primary keys of the rows in the union, intersection or difference of
    /// the results of several queries, until it breaks.
    ///
    /// The limit and the order are those of the first query. In a union, each query is first cut at
    /// its own limit. Without an order, a union is in the order in which rows are first found, a
    /// difference in that of the first query, and an intersection in that of the last one. `visit`
    /// may call the table like that of [`Table::for_each_result`].
    pub fn for_each_set_result(
        &self,
        queries: &[Query],
        operation: SetOperation,
        mut visit: impl FnMut(&[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<Report> {
        self.enter()?;
        let first = match queries {
            [] => return Ok(Report::default()),
            [one] => return self.for_each_result(one, visit),
            [first, ..] => first,
        };
        let mut report = Report::default();
        // Three sorters are in use at a time: two of the sets, and one of a query.
        let (folder, memory_bytes) = (self.temporary_folder(), self.query_memory_bytes / 3 * 2);
        let mut sets = ResultSets::new(&folder, memory_bytes, queries.len(), operation);
        for (number, query) in queries.iter().enumerate() {
            let done = self.run(query, 0, sets.max_of(query), &mut |primary| {
                sets.push(number, primary)?;
                Ok(ControlFlow::Continue(()))
            })?;
            report.rows_read += done.rows_read;
            report.postings_read += done.postings_read;
            report.hint.extend(done.hint.lines().map(|line| format!("[{number}] {line}\n")));
        }
        let order = first.order.as_ref().filter(|_| operation == SetOperation::Union);
        let sort_key = |order: &SortOrder, primary: &[u8]| match &order.column[..] {
            b"" => Ok(order.sort_key(Some(primary))),
            column => {
                let key = self.read(primary, |row| order.sort_key(row.get(column)))?;
                Ok(key.unwrap_or_else(|| order.sort_key(None)))
            }
        };
        let mut kept = match order {
            None => sets.combine(None)?,
            Some(order) => sets.combine(Some(&mut |primary| sort_key(order, primary)))?,
        };
        let (skip, max) = (first.skip, first.max.unwrap_or(u64::MAX));
        let mut met = 0;
        while report.count < max
            && let Some((_, primary)) = kept.next()?
        {
            met += 1;
            if met > skip {
                report.count += 1;
                if reentry::in_result_callback(reentry::engine_id_of(self), || visit(primary))?
                    .is_break()
                {
                    break;
                }
            }
        }
        Ok(report)
    }
}

/// Function that returns the sort key of a result with this primary key.
pub type SortKeyOf<'k> = dyn FnMut(&[u8]) -> Result<Vec<u8>> + 'k;

/// Results of several queries, which a set operation combines.
#[derive(Debug)]
pub struct ResultSets {
    operation: SetOperation,
    /// Number of results of each query so far.
    counts: Vec<u64>,
    /// Results by primary key, each with the number of its query and its place in that query.
    results: Sorter,
    kept: Sorter,
}

impl ResultSets {
    /// Returns `queries` empty sets, which keep about `memory_bytes` bytes in memory, and write the
    /// rest into unnamed files in `folder`.
    pub fn new(
        folder: &Path,
        memory_bytes: usize,
        queries: usize,
        operation: SetOperation,
    ) -> Self {
        let sorter = || Sorter::new(folder, memory_bytes / 2, None);
        Self { operation, counts: vec![0; queries], results: sorter(), kept: sorter() }
    }

    /// Returns the number of results of a query that are needed; `None` for all. Each query of a
    /// union has its own limit.
    pub fn max_of(&self, query: &Query) -> Option<u64> {
        match self.operation {
            SetOperation::Union => query.wanted(),
            SetOperation::Intersection | SetOperation::Difference => None,
        }
    }

    /// Adds the next result of a query.
    pub fn push(&mut self, query: usize, primary: &[u8]) -> Result<()> {
        let mut key = Vec::with_capacity(primary.len() + 2);
        keys::push_escaped_whole(&mut key, primary);
        let place = self.counts.get_mut(query).ok_or_else(no_place)?;
        let numbers = [(query as u64).to_be_bytes(), place.to_be_bytes()].concat();
        *place += 1;
        self.results.push(&key, &numbers)
    }

    /// Returns the primary keys of the combined results as payloads, sorted by the keys that
    /// `sort_key` returns, or by place without it.
    pub fn combine(self, mut sort_key: Option<&mut SortKeyOf<'_>>) -> Result<Sorted> {
        let Self { operation, counts, results, mut kept } = self;
        let mut results = results.finish()?;
        let mut row: Option<Hits> = None;
        loop {
            let next = results.next()?;
            let is_same_row = match (&row, &next) {
                (Some(row), Some((key, _))) => row.key == *key,
                _ => false,
            };
            if !is_same_row && let Some(row) = row.take() {
                row.keep(counts.len(), operation, &mut sort_key, &mut kept)?;
            }
            let Some((key, payload)) = next else { return kept.finish() };
            let row = row.get_or_insert_with(|| Hits { key: key.to_vec(), places: Vec::new() });
            row.places.push(place_of(payload)?);
        }
    }
}

/// Results that are the same row: the numbers of queries, and the places in them.
struct Hits {
    key: Vec<u8>,
    places: Vec<(u64, u64)>,
}

fn no_place() -> Error {
    Error::Internal("a sorted result of an unexpected length".into())
}

fn place_of(payload: &[u8]) -> Result<(u64, u64)> {
    let number = |bytes: Option<&[u8]>| bytes?.try_into().ok().map(u64::from_be_bytes);
    match (number(payload.get(..8)), number(payload.get(8..))) {
        (Some(query), Some(place)) => Ok((query, place)),
        _ => Err(no_place()),
    }
}

impl Hits {
    fn keep(
        &self,
        queries: usize,
        operation: SetOperation,
        sort_key: &mut Option<&mut SortKeyOf<'_>>,
        kept: &mut Sorter,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (self.places.first(), self.places.last()) else {
            return Ok(());
        };
        // A row that changes during a query may be found twice.
        let mut numbers: Vec<u64> = self.places.iter().map(|(number, _)| *number).collect();
        numbers.dedup();
        let place = match operation {
            SetOperation::Union => first,
            SetOperation::Intersection if numbers.len() == queries => last,
            SetOperation::Difference if numbers[..] == [0] => first,
            _ => return Ok(()),
        };
        let Some(primary) = keys::unescape(&self.key) else {
            return Ok(());
        };
        let key = match sort_key {
            None => [place.0.to_be_bytes(), place.1.to_be_bytes()].concat(),
            Some(sort_key) => sort_key(&primary)?,
        };
        kept.push(&key, &primary)
    }
}
