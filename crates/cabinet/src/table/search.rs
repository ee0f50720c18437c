//! Searches by name: keys, rows, removal, counting.

use super::matcher::{Matcher, all_accept};
use super::query::{Query, Report};
use super::write::RowChange;
use super::{Row, Table};
use crate::{Result, Wait};
use std::ops::ControlFlow;

impl Table {
    /// Primary keys of the rows that a query asks for, in its order, and what was done.
    pub fn search(&self, query: &Query) -> Result<(Vec<Vec<u8>>, Report)> {
        let mut found = Vec::new();
        let report = self.for_each_result(query, |primary| {
            found.push(primary.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((found, report))
    }

    /// How many results a query has.
    pub fn count(&self, query: &Query) -> Result<u64> {
        let unordered = Query { order: None, ..query.clone() };
        let report = self.for_each_result(&unordered, |_| Ok(ControlFlow::Continue(())))?;
        Ok(report.count)
    }

    /// Rows that a query asks for, in its order, with their primary keys, to `visit`, until that
    /// breaks. `visit` may do what that of [`Table::for_each_result`] may.
    pub fn for_each_result_row(
        &self,
        query: &Query,
        mut visit: impl FnMut(&[u8], Row) -> Result<ControlFlow<()>>,
    ) -> Result<Report> {
        self.for_each_result(query, |primary| match self.get(primary)? {
            Some(row) => visit(primary, row),
            // It was removed a moment ago.
            None => Ok(ControlFlow::Continue(())),
        })
    }

    /// Removes the rows that a query asks for; shows each of them, as it was, to `removed`. The
    /// report counts those removed. A row that has changed and is no longer asked for stays.
    pub fn search_out(&self, query: &Query, mut removed: impl FnMut(&[u8], Row)) -> Result<Report> {
        self.check_writable()?;
        let matchers: Vec<Matcher> = query.conditions.iter().map(Matcher::new).collect();
        let mut count = 0;
        let mut report = self.for_each_result(query, |primary| {
            let row = self.change(primary, Wait::Block, &mut |old| {
                let meant = old.filter(|(row, _)| all_accept(&matchers, primary, *row));
                Ok(match meant {
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
