//! Searches: return the keys or rows of a query's results, count them, or remove the rows.

use super::matcher::{Matcher, all_accept};
use super::query::{Query, Report};
use super::write::RowChange;
use super::{Row, Table};
use crate::{Result, Wait};
use std::ops::ControlFlow;

impl Table {
    /// Returns the primary keys of a query's results, in its order, and a report.
    pub fn search(&self, query: &Query) -> Result<(Vec<Vec<u8>>, Report)> {
        let mut found = Vec::new();
        let report = self.for_each_result(query, |primary| {
            found.push(primary.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((found, report))
    }

    /// Returns the number of results of a query.
    pub fn count(&self, query: &Query) -> Result<u64> {
        let unordered = Query { order: None, ..query.clone() };
        let report = self.for_each_result(&unordered, |_| Ok(ControlFlow::Continue(())))?;
        Ok(report.count)
    }

    /// Calls `visit` with the primary keys and the rows of a query's results, in its order, until
    /// it breaks. `visit` may call the table like that of [`Table::for_each_result`].
    pub fn for_each_result_row(
        &self,
        query: &Query,
        mut visit: impl FnMut(&[u8], Row) -> Result<ControlFlow<()>>,
    ) -> Result<Report> {
        self.for_each_result(query, |primary| match self.get(primary)? {
            Some(row) => visit(primary, row),
            // The row was removed since it was found.
            None => Ok(ControlFlow::Continue(())),
        })
    }

    /// Removes the rows of a query's results, and calls `removed` with each of them. The report
    /// counts the removed rows. A row that has changed and no longer meets the conditions is kept.
    pub fn search_out(&self, query: &Query, mut removed: impl FnMut(&[u8], Row)) -> Result<Report> {
        self.check_writable()?;
        let matchers: Vec<Matcher> = query.conditions.iter().map(Matcher::new).collect();
        let mut count = 0;
        let mut report = self.for_each_result(query, |primary| {
            let row = self.change(primary, Wait::Block, &mut |old| {
                let wanted = old.filter(|(row, _)| all_accept(&matchers, primary, *row));
                Ok(match wanted {
                    Some((row, _)) => (RowChange::Remove, Some(row.to_row())),
                    None => (RowChange::Keep, None),
                })
            })?;
            if let Some(row) = row {
                count += 1;
                removed(primary, row);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        report.count = count;
        Ok(report)
    }
}
