//! Plan: chooses the index that leads to the rows of a query, and the remaining tests and sorting.
//!
//! The index with the fewest postings for its condition leads. The postings are counted up to a
//! limit. Lists in the order of primary keys are intersected with it. Conditions without an access
//! path are tested on the rows. If few results are wanted in the order of an indexed column, and
//! the conditions leave many rows, that index is walked instead of sorting.

use super::access_path::{AccessPath, Route, Walk};
use super::formula::Formula;
use super::index::Index;
use super::postings::View;
use super::query::Query;
use super::sort_order::SortOrder;
use crate::Result;
use crate::base::column_index::IndexKind;
use crate::limits::SORTED_PHRASES_MAX;
use std::sync::Arc;

/// Maximum number of postings that are counted to choose the leading index.
const COUNTED_POSTINGS_MAX: u64 = 2048;

/// An index is walked in its order if fewer than one in this number of rows are wanted.
const ROWS_PER_WANTED: u64 = 5;

/// Source of the rows.
pub(super) enum Driver {
    /// Scan of all rows.
    Scan,
    /// Lists in the order of primary keys.
    Postings(Formula),
    /// An index in the order of its values.
    Walk(Walk),
}

/// Plan of a query.
pub(super) struct Plan {
    pub(super) driver: Driver,
    /// Numbers of the conditions that are tested on all rows, even if the driver is exact.
    pub(super) residual: Vec<usize>,
    /// Whether the driver finds rows in the order of the query.
    pub(super) is_in_order: bool,
    /// Whether the rows without the column of the order follow after those of the driver.
    pub(super) lacking_follow: bool,
    /// Lines of the hint.
    pub(super) hint: Vec<String>,
}

/// Inputs of planning.
pub(super) struct Known<'a> {
    pub(super) view: View<'a>,
    /// Indices that may be used, including the rows as the index of primary keys.
    pub(super) indices: &'a [Arc<Index>],
    /// Number of rows in the table.
    pub(super) rows: u64,
    /// Whether indices can be walked from the end.
    pub(super) can_descend: bool,
}

impl Known<'_> {
    pub(super) fn plan(&self, query: &Query) -> Result<Plan> {
        let mut access_paths = self.access_paths(query);
        let ordering = query.order.as_ref().and_then(|order| self.walk_in_order(order));
        let mut leader_count = None;
        // An index always leads if it has the walk of the only condition and is in the wanted
        // order.
        let is_settled = match (&access_paths[..], &ordering) {
            ([AccessPath { route: Route::Walk(walk), .. }], Some(ordering)) => {
                Arc::ptr_eq(&walk.index, &ordering.index)
            }
            _ => false,
        };
        if access_paths.len() > 1 || (ordering.is_some() && !access_paths.is_empty() && !is_settled)
        {
            let mut counted = Vec::with_capacity(access_paths.len());
            let mut least = COUNTED_POSTINGS_MAX;
            for access_path in access_paths {
                let count = access_path.estimate(self.view, COUNTED_POSTINGS_MAX)?;
                least = least.min(count);
                counted.push((count, access_path));
            }
            counted.sort_by_key(|(count, _)| *count);
            access_paths = counted.into_iter().map(|(_, access_path)| access_path).collect();
            leader_count = Some(least);
        }
        if let Some(walk) = ordering
            && let Some(plan) = self.plan_in_order(query, &access_paths, walk, leader_count)
        {
            return Ok(plan);
        }
        Ok(plan_by_condition(query, access_paths, self.can_descend))
    }

    fn access_paths(&self, query: &Query) -> Vec<AccessPath> {
        let conditions = query.conditions.iter().enumerate();
        let access_path = |(number, condition)| {
            self.indices.iter().find_map(|index| AccessPath::of(number, condition, index))
        };
        let mut sorted_lists = 0;
        let is_bounded = |access_path: &AccessPath| {
            let count = sorted_lists + access_path.sorted_lists();
            if count > SORTED_PHRASES_MAX {
                return false;
            }
            sorted_lists = count;
            true
        };
        conditions.filter_map(access_path).filter(is_bounded).collect()
    }

    /// Returns the walk through the whole index that is in an order; `None` if there is none.
    fn walk_in_order(&self, order: &SortOrder) -> Option<Walk> {
        let kind = if order.kind.is_by_number() { IndexKind::Decimal } else { IndexKind::Lexical };
        let is_descending = order.kind.is_descending();
        if is_descending && !self.can_descend {
            return None;
        }
        let index = self.indices.iter().find(|index| {
            index.kind == kind
                && index.column == order.column
                && !index.has_cut_values.load(std::sync::atomic::Ordering::Acquire)
        })?;
        Some(Walk::whole(index, is_descending))
    }

    /// Returns a plan that walks the index in the wanted order; `None` if sorting is better.
    fn plan_in_order(
        &self,
        query: &Query,
        access_paths: &[AccessPath],
        mut walk: Walk,
        leader_count: Option<u64>,
    ) -> Option<Plan> {
        let order = query.order.as_ref()?;
        let leads_to_few = leader_count.is_some_and(|count| count < COUNTED_POSTINGS_MAX);
        let few_are_wanted =
            query.wanted().is_some_and(|wanted| wanted.saturating_mul(ROWS_PER_WANTED) < self.rows);
        // A condition on the same column narrows the walk.
        let narrowing = access_paths.iter().find_map(|access_path| match &access_path.route {
            Route::Walk(narrow) if Arc::ptr_eq(&narrow.index, &walk.index) => {
                Some((access_path.condition, narrow))
            }
            _ => None,
        });
        let is_leading = access_paths.first().map(|access_path| access_path.condition)
            == narrowing.map(|(condition, _)| condition)
            && narrowing.is_some();
        if !is_leading && (leads_to_few || !few_are_wanted) {
            return None;
        }
        let mut residual: Vec<usize> = (0..query.conditions.len()).collect();
        if let Some((condition, narrow)) = narrowing {
            walk.ranges.clone_from(&narrow.ranges);
            walk.is_exact = narrow.is_exact;
            residual.retain(|number| *number != condition);
        }
        let asks_for_column = query
            .conditions
            .iter()
            .any(|condition| !condition.negate && condition.column == order.column);
        let column = String::from_utf8_lossy(&order.column);
        let direction = if walk.is_descending { "desc" } else { "asc" };
        let name = order.kind.name();
        Some(Plan {
            is_in_order: true,
            lacking_follow: !asks_for_column && !walk.index.is_rows(),
            driver: Driver::Walk(walk),
            residual,
            hint: vec![format!("using an index: \"{column}\" {direction} ({name})")],
        })
    }
}

/// Returns the plan in which the first access path leads, with the lists that can be intersected
/// with it.
fn plan_by_condition(query: &Query, access_paths: Vec<AccessPath>, can_descend: bool) -> Plan {
    let mut residual: Vec<usize> = (0..query.conditions.len()).collect();
    let mut hint = Vec::new();
    let mut formulas = Vec::new();
    let mut leader = None;
    for (at, access_path) in access_paths.into_iter().enumerate() {
        match access_path.route {
            Route::Walk(walk) if at == 0 => leader = Some(walk),
            Route::Postings(formula) if leader.is_none() => formulas.push(formula),
            _ => continue,
        }
        residual.retain(|number| *number != access_path.condition);
        hint.push(access_path.hint);
    }
    let driver = match leader {
        // The direction matters only if the results are not sorted.
        Some(walk) => Driver::Walk(Walk {
            is_descending: walk.is_descending && can_descend && query.order.is_none(),
            ..walk
        }),
        None if formulas.len() == 1 => formulas.pop().map_or(Driver::Scan, Driver::Postings),
        None if formulas.is_empty() => {
            hint.push("scanning the whole table".into());
            Driver::Scan
        }
        None => Driver::Postings(Formula::All(formulas)),
    };
    // Rows are found in the order of primary keys, which may be the wanted order.
    let is_by_primary = query.order.as_ref().is_some_and(|order| {
        order.column.is_empty() && !order.kind.is_by_number() && !order.kind.is_descending()
    });
    let is_in_order = is_by_primary && !matches!(driver, Driver::Walk(_));
    Plan { driver, residual, is_in_order, lacking_follow: false, hint }
}
