//! Executor: runs the plan of a query. It reads candidates, tests rows, and sorts and limits the
//! results.

use super::Table;
use super::access_path::Walk;
use super::cursor::{BackCursor, Cursor, KeyRange};
use super::formula::{Formula, Source};
use super::index::Index;
use super::keys;
use super::matcher::{Matcher, all_accept};
use super::plan::{Driver, Known, Plan};
use super::postings::View;
use super::query::{Query, Report};
use super::row::RowView;
use super::sort::Sorter;
use super::sort_order::SortOrder;
use crate::base::{deadline, reentry};
use crate::{Result, ScanCursor, Wait};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Callback for a match. Gets its primary key, and its sort key if the matches must be sorted.
type Take<'t> = dyn FnMut(&[u8], Option<Vec<u8>>) -> Result<ControlFlow<()>> + 't;

/// Maximum number of matches of one step of a scan. The next step continues with the others.
const STEP_MATCHES: usize = 256;

impl Table {
    /// Calls `visit` with the primary keys of a query's results, in its order, until it breaks.
    /// `visit` may read and change rows of the table. Setting an index fails there with
    /// [`crate::Error::Reentrant`].
    pub fn for_each_result(
        &self,
        query: &Query,
        mut visit: impl FnMut(&[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<Report> {
        self.enter()?;
        let engine_id = reentry::engine_id_of(self);
        let mut visit = |primary: &[u8]| reentry::in_result_callback(engine_id, || visit(primary));
        self.run(query, query.skip, query.max, &mut visit)
    }

    pub(super) fn run(
        &self,
        query: &Query,
        skip: u64,
        max: Option<u64>,
        visit: &mut dyn FnMut(&[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<Report> {
        // Locked while the list is locked, so that no postings are removed in between.
        let structure = self.structure.read();
        let ready = structure.iter().filter(|index| index.is_ready()).map(Arc::clone);
        let mut indices: Vec<Arc<Index>> = ready.collect();
        let in_use = indices.clone();
        let _in_use: Vec<_> = in_use.iter().map(|index| index.in_use.read_recursive()).collect();
        drop(structure);
        let changes = self.postings.changes();
        let view = View::new(&*self.engine, &changes);
        indices.push(Arc::clone(&self.rows_index));
        let known = Known {
            view,
            indices: &indices,
            rows: self.len(),
            can_descend: self.engine.as_ordered().is_some(),
        };
        let limited = Query { max, skip, ..query.clone() };
        let plan = known.plan(&limited)?;
        let mut executor = Executor::new(self, view, &limited, &plan);
        let hint = executor.all(plan, visit)?;
        Ok(Report { hint, ..executor.report })
    }
}

struct Executor<'a> {
    table: &'a Table,
    view: View<'a>,
    query: &'a Query,
    /// Matchers of all conditions, for candidates that are not exact.
    all: Vec<Matcher>,
    /// Matchers of the conditions that the driver does not cover.
    residual: Vec<Matcher>,
    /// Order by which matches must be sorted; `None` if they are found in the right order.
    sorted_by: Option<&'a SortOrder>,
    report: Report,
}

/// A row that an index leads to.
struct Candidate<'c> {
    primary: &'c [u8],
    is_exact: bool,
    /// The value in the index, if the index is in the wanted order.
    value: Option<&'c [u8]>,
}

impl<'a> Executor<'a> {
    fn new(table: &'a Table, view: View<'a>, query: &'a Query, plan: &Plan) -> Self {
        Self {
            table,
            view,
            query,
            all: query.conditions.iter().map(Matcher::new).collect(),
            residual: plan.residual.iter().map(|&at| Matcher::new(&query.conditions[at])).collect(),
            sorted_by: query.order.as_ref().filter(|_| !plan.is_in_order),
            report: Report::default(),
        }
    }

    /// Runs the plan. Returns the hint.
    fn all(
        &mut self,
        plan: Plan,
        visit: &mut dyn FnMut(&[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<String> {
        let mut hint = plan.hint.clone();
        let (skip, max) = (self.query.skip, self.query.max.unwrap_or(u64::MAX));
        let mut visited = 0u64;
        if max == 0 {
            hint.push("result set size: 0".into());
            return Ok(lines(&hint));
        }
        let Some(order) = self.sorted_by else {
            let mut met = 0u64;
            self.matches(plan, &mut |primary, _| {
                met += 1;
                if met <= skip {
                    return Ok(ControlFlow::Continue(()));
                }
                visited += 1;
                let flow = visit(primary)?;
                Ok(if visited == max { ControlFlow::Break(()) } else { flow })
            })?;
            if visited == max {
                hint.push(format!("limited matching: {met}"));
            }
            hint.push(format!("result set size: {met}"));
            hint.push(match &self.query.order {
                Some(_) => "leaving the index order".into(),
                None => "leaving the natural order".into(),
            });
            self.report.count = visited;
            return Ok(lines(&hint));
        };
        let wanted =
            self.query.wanted().map(|wanted| usize::try_from(wanted).unwrap_or(usize::MAX));
        let budget = self.table.query_memory_bytes;
        let mut sorter = Sorter::new(&self.table.temporary_folder(), budget, wanted);
        self.matches(plan, &mut |primary, key| {
            sorter.push(&key.unwrap_or_default(), primary)?;
            Ok(ControlFlow::Continue(()))
        })?;
        hint.push(format!("result set size: {}", sorter.count()));
        hint.push(format!(
            "sorting the result set: \"{}\"",
            String::from_utf8_lossy(&order.column)
        ));
        let mut sorted = sorter.finish()?;
        let mut met = 0u64;
        while visited < max
            && let Some((_, primary)) = sorted.next()?
        {
            met += 1;
            if met > skip {
                visited += 1;
                if visit(primary)?.is_break() {
                    break;
                }
            }
        }
        self.report.count = visited;
        Ok(lines(&hint))
    }

    /// Calls `take` with all matches, in the order of the driver, until it breaks.
    fn matches(&mut self, plan: Plan, take: &mut Take<'_>) -> Result<()> {
        match plan.driver {
            Driver::Scan => self.scan(None, take).map(|_| ()),
            Driver::Postings(formula) => self.postings(formula, take),
            Driver::Walk(walk) => {
                let flow = self.walk(&walk, take)?;
                if plan.lacking_follow && flow.is_continue() {
                    return self.scan(self.query.order.as_ref(), take).map(|_| ());
                }
                Ok(())
            }
        }
    }

    /// Tests all rows, or only those without the column of an order.
    fn scan(
        &mut self,
        lacking: Option<&SortOrder>,
        take: &mut Take<'_>,
    ) -> Result<ControlFlow<()>> {
        let range = KeyRange::of_prefix(vec![keys::ROWS]);
        let mut next = Some(ScanCursor::Key(range.start.clone()));
        while let Some(position) = next {
            deadline::check()?;
            let mut matches = Vec::new();
            let mut is_past = false;
            let mut left_out = None;
            let mut rows_read = 0;
            let (all, sorted_by) = (&self.all, self.sorted_by);
            let after = self.table.engine.scan_records(&position, &mut |entry| {
                is_past = is_past || left_out.is_some() || !range.is_before_end(entry.key);
                if is_past {
                    return;
                }
                if matches.len() == STEP_MATCHES {
                    left_out = Some(entry.key.to_vec());
                    return;
                }
                rows_read += 1;
                let (primary, row) = (&entry.key[1..], RowView::new(entry.value));
                if lacking.is_some_and(|order| row.get(&order.column).is_some())
                    || !all_accept(all, primary, row)
                {
                    return;
                }
                let key = sorted_by
                    .map(|order| order.sort_key(row.get_or_primary(&order.column, primary)));
                matches.push((primary.to_vec(), key));
            })?;
            self.report.rows_read += rows_read;
            for (primary, key) in matches {
                if take(&primary, key)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            next = match left_out {
                Some(key) => Some(ScanCursor::Key(key)),
                None => after.filter(|_| !is_past),
            };
        }
        Ok(ControlFlow::Continue(()))
    }

    fn postings(&mut self, formula: Formula, take: &mut Take<'_>) -> Result<()> {
        let folder = self.table.temporary_folder();
        // All lists that must be sorted exist at the same time.
        let budget_bytes = self.table.query_memory_bytes / formula.sorted_lists().max(1);
        let source = Source { view: self.view, folder: &folder, budget_bytes };
        let mut postings = formula.open(source)?;
        let mut sought = Vec::new();
        while let Some(posting) = postings.seek(&sought)? {
            let candidate =
                Candidate { primary: &posting.primary, is_exact: posting.is_exact, value: None };
            if self.consider(&candidate, take)?.is_break() {
                break;
            }
            sought = posting.primary;
            sought.push(0);
        }
        Ok(())
    }

    fn walk(&mut self, walk: &Walk, take: &mut Take<'_>) -> Result<ControlFlow<()>> {
        // Values in the index serve as sort keys if it is in the same order.
        let gives_value = self.sorted_by.is_some_and(|order| {
            !walk.index.is_rows()
                && walk.index.column == order.column
                && (walk.index.kind == super::IndexKind::Decimal) == order.kind.is_by_number()
        });
        let view = self.view;
        let mut look = |executor: &mut Self, key: &[u8]| {
            let Some(posting) = walk.parse(key) else { return Ok(ControlFlow::Continue(())) };
            let candidate = Candidate {
                primary: posting.primary,
                is_exact: walk.is_exact && !posting.is_cut,
                value: Some(posting.value).filter(|_| gives_value && !posting.is_cut),
            };
            executor.consider(&candidate, take)
        };
        if !walk.is_descending {
            for range in &walk.ranges {
                let cursor = Cursor::of_keys(view, range.clone());
                let mut cursor = match self.query.wanted() {
                    Some(wanted) if self.sorted_by.is_none() => cursor.for_few(wanted),
                    _ => cursor,
                };
                while let Some((key, _)) = cursor.next()? {
                    if look(self, key)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            return Ok(ControlFlow::Continue(()));
        }
        for range in walk.ranges.iter().rev() {
            let mut cursor = BackCursor::new(view, range.clone());
            while let Some(key) = cursor.next()? {
                if look(self, key)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Calls `take` with a row that an index leads to, if it meets the conditions. The row is read
    /// only for a test, or for its sort key.
    fn consider(
        &mut self,
        candidate: &Candidate<'_>,
        take: &mut Take<'_>,
    ) -> Result<ControlFlow<()>> {
        self.report.postings_read += 1;
        let key = match (self.sorted_by, candidate.value) {
            (Some(order), Some(value)) => Some(order.sort_key_of_posting(value)),
            (Some(order), None) if order.column.is_empty() => {
                Some(order.sort_key(Some(candidate.primary)))
            }
            _ => None,
        };
        let has_key = key.is_some() || self.sorted_by.is_none();
        if candidate.is_exact && self.residual.is_empty() && has_key {
            return take(candidate.primary, key);
        }
        self.report.rows_read += 1;
        let matchers = if candidate.is_exact { &self.residual } else { &self.all };
        let (primary, sorted_by) = (candidate.primary, self.sorted_by);
        let mut found = None;
        self.table.engine.read(&keys::row(primary), Wait::Block, &mut |entry| {
            let row = RowView::new(entry.value);
            if all_accept(matchers, primary, row) {
                let key = sorted_by
                    .map(|order| order.sort_key(row.get_or_primary(&order.column, primary)));
                found = Some(key);
            }
        })?;
        match found {
            Some(key) => take(primary, key),
            None => Ok(ControlFlow::Continue(())),
        }
    }
}

fn lines(hint: &[String]) -> String {
    hint.iter().map(|line| format!("{line}\n")).collect()
}

impl Table {
    /// Returns the number of rows.
    pub fn len(&self) -> u64 {
        self.rows.load(Ordering::Acquire).max(0) as u64
    }

    /// Returns whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
