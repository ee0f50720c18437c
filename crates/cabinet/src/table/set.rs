//! Results of several queries, put together.
//!
//! The results of all queries are sorted by primary key, each with its place, so that those of one
//! row stand side by side; what is left is sorted by place. Both within the memory of a query.

use super::order::Order;
use super::query::{Query, Report, SetOperation};
use super::sort::Sorter;
use super::{Table, keys};
use crate::{Engine, Error, Result, reentry};
use std::ops::ControlFlow;

impl Table {
    /// Primary keys of the rows that are in the union, intersection or difference of the results of
    /// several queries, to `visit`, until that breaks.
    ///
    /// Limit and order are those of the first query. Each query of a union is cut at its own
    /// limit before. Without an order, a union comes as it is first seen, a difference in the order
    /// of the first query, an intersection in that of the last one. `visit` may do what that of
    /// [`Table::for_each_result`] may.
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
        let by_primary = self.all_results(queries, operation, &mut report)?;
        let order = first.order.as_ref().filter(|_| operation == SetOperation::Union);
        let kept = self.combine(by_primary, queries.len(), operation, order)?;
        let (skip, max) = (first.skip, first.max.unwrap_or(u64::MAX));
        let mut met = 0;
        let mut kept = kept.finish()?;
        while report.count < max
            && let Some((_, primary)) = kept.next()?
        {
            met += 1;
            if met > skip {
                report.count += 1;
                if reentry::showing(Engine::identity(self), || visit(primary))?.is_break() {
                    break;
                }
            }
        }
        Ok(report)
    }

    fn sorter(&self) -> Sorter {
        // Two of them and that of a query are in use at a time.
        Sorter::new(&self.temporary_folder(), self.query_memory_bytes / 3, None)
    }

    /// The results of all queries by primary key, each with the number of its query and its place
    /// there.
    fn all_results(
        &self,
        queries: &[Query],
        operation: SetOperation,
        report: &mut Report,
    ) -> Result<Sorter> {
        let mut results = self.sorter();
        for (number, query) in queries.iter().enumerate() {
            let max = match operation {
                SetOperation::Union => query.wanted(),
                SetOperation::Intersection | SetOperation::Difference => None,
            };
            let number = number as u64;
            let mut place = 0u64;
            let done = self.run(query, 0, max, &mut |primary| {
                let mut key = Vec::with_capacity(primary.len() + 2);
                keys::push_escaped_whole(&mut key, primary);
                results.push(&key, &[number.to_be_bytes(), place.to_be_bytes()].concat())?;
                place += 1;
                Ok(ControlFlow::Continue(()))
            })?;
            report.rows_read += done.rows_read;
            report.entries_read += done.entries_read;
            report.hint.extend(done.hint.lines().map(|line| format!("[{number}] {line}\n")));
        }
        Ok(results)
    }

    /// The rows that are meant, by their place.
    fn combine(
        &self,
        by_primary: Sorter,
        queries: usize,
        operation: SetOperation,
        order: Option<&Order>,
    ) -> Result<Sorter> {
        let mut kept = self.sorter();
        let mut results = by_primary.finish()?;
        let mut row: Option<Hits> = None;
        loop {
            let next = results.next()?;
            let goes_on = match (&row, &next) {
                (Some(row), Some((key, _))) => row.key == *key,
                _ => false,
            };
            if !goes_on && let Some(row) = row.take() {
                row.keep(self, queries, operation, order, &mut kept)?;
            }
            let Some((key, place)) = next else { return Ok(kept) };
            let row = row.get_or_insert_with(|| Hits { key: key.to_vec(), places: Vec::new() });
            row.places.push(place_of(place)?);
        }
    }
}

/// The results that are one row: numbers of queries and places there, each query once.
struct Hits {
    key: Vec<u8>,
    places: Vec<(u64, u64)>,
}

fn place_of(payload: &[u8]) -> Result<(u64, u64)> {
    let number = |bytes: Option<&[u8]>| bytes?.try_into().ok().map(u64::from_be_bytes);
    match (number(payload.get(..8)), number(payload.get(8..))) {
        (Some(query), Some(place)) => Ok((query, place)),
        _ => Err(Error::NotSupported("a sorted result of another width".into())),
    }
}

impl Hits {
    fn keep(
        &self,
        table: &Table,
        queries: usize,
        operation: SetOperation,
        order: Option<&Order>,
        kept: &mut Sorter,
    ) -> Result<()> {
        let (Some(first), Some(last)) = (self.places.first(), self.places.last()) else {
            return Ok(());
        };
        // A row that changes meanwhile may be met twice in one query.
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
        let key = match order {
            None => [place.0.to_be_bytes(), place.1.to_be_bytes()].concat(),
            Some(order) if order.column.is_empty() => order.sort_key(Some(&primary)),
            Some(order) => table
                .read(&primary, |row| order.sort_key(row.get(&order.column)))?
                .unwrap_or_else(|| order.sort_key(None)),
        };
        kept.push(&key, &primary)
    }
}
