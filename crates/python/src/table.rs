//! Operations of tables: indices, identifiers, queries. Rows are values of a codec in Python.

use crate::bytes::of_key;
use crate::errors::{self, Failure};
use crate::shared::interruptible;
use crate::store::Store;
use cabinet::table::{Condition, IndexChange, Query, Report, SetOperation, SortKind, Table};
use cabinet::{Database, Error};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ops::ControlFlow;

/// A query as Python gives it: conditions (column, operator, operand), order (column, kind), limit,
/// rows to skip.
#[derive(FromPyObject)]
struct Given(Vec<(Vec<u8>, String, Vec<u8>)>, Option<(Vec<u8>, String)>, Option<u64>, u64);

impl Given {
    fn query(self) -> PyResult<Query> {
        let Self(conditions, order, max, skip) = self;
        let mut query = Query { max, skip, ..Query::new() };
        for (column, operator, operand) in conditions {
            let condition = Condition::parse(&column, operator.as_bytes(), &operand)
                .ok_or_else(|| errors::defect(&format!("the operator {operator}")))?;
            if let Some(flaw) = condition.flaw() {
                return Err(PyValueError::new_err(format!("{flaw}: correct it")));
            }
            query = query.with_condition(condition);
        }
        if let Some((column, kind)) = order {
            let kind = SortKind::parse(kind.as_bytes())
                .ok_or_else(|| errors::defect(&format!("the order {kind}")))?;
            query = query.order_by(&column, kind);
        }
        Ok(query)
    }
}

/// Number of results, steps of the search, rows read, postings read.
type Outcome = (u64, String, u64, u64);

fn outcome(report: Report) -> Outcome {
    (report.count, report.hint, report.rows_read, report.postings_read)
}

fn table(database: &Database) -> cabinet::Result<&Table> {
    database.table().ok_or(Error::Unsupported {
        operation: "queries and indices",
        kind: "this database, or a transaction,",
        advice: "call it on a table (.tct)",
    })
}

#[pymethods]
impl Store {
    /// Returns the primary keys of the results of queries, combined by an operation, and a report.
    fn _search<'py>(
        &self,
        py: Python<'py>,
        queries: Vec<Given>,
        operation: &str,
    ) -> PyResult<(Vec<Bound<'py, PyAny>>, Outcome)> {
        let queries = queries.into_iter().map(Given::query).collect::<PyResult<Vec<_>>>()?;
        let operation = SetOperation::parse(operation.as_bytes())
            .ok_or_else(|| errors::defect("the operation of sets"))?;
        let mut keys = Vec::new();
        let report = interruptible(|| {
            self.shared.wait(py, |database| {
                table(database)?.for_each_set_result(&queries, operation, |key| {
                    keys.push(key.to_vec());
                    Ok(ControlFlow::Continue(()))
                })
            })
        })?;
        let keys = keys.iter().map(|key| self.codecs.key(py, key)).collect::<PyResult<_>>()?;
        Ok((keys, outcome(report)))
    }

    /// Returns the report of queries, without their results.
    fn _count(&self, py: Python<'_>, queries: Vec<Given>, operation: &str) -> PyResult<Outcome> {
        let queries = queries.into_iter().map(Given::query).collect::<PyResult<Vec<_>>>()?;
        let operation = SetOperation::parse(operation.as_bytes())
            .ok_or_else(|| errors::defect("the operation of sets"))?;
        let report = interruptible(|| {
            self.shared.wait(py, |database| {
                let go_on = |_: &[u8]| Ok(ControlFlow::Continue(()));
                table(database)?.for_each_set_result(&queries, operation, go_on)
            })
        })?;
        Ok(outcome(report))
    }

    /// Removes the rows of a query's results. Returns the report, whose count is that of the rows.
    fn _search_out(&self, py: Python<'_>, query: Given) -> PyResult<Outcome> {
        let query = query.query()?;
        let report = interruptible(|| {
            self.shared.wait(py, |database| {
                let table = table(database)?;
                let report = table.search_out(&query, |_, _| ())?;
                table.acknowledge()?;
                Ok(report)
            })
        })?;
        Ok(outcome(report))
    }

    /// Builds an index of a column ("lex", "dec", "tok" or "qgr"), rebuilds it ("opt"), or removes
    /// it ("void"). An empty name is the primary key.
    fn _set_index(&self, py: Python<'_>, column: &Bound<'_, PyAny>, kind: &str) -> PyResult<()> {
        let column = of_key(column)?;
        let column = column.as_bytes();
        let change = IndexChange::parse(kind.as_bytes()).ok_or_else(|| {
            PyValueError::new_err(format!(
                "{kind:?} is not a type of index: choose \"lex\", \"dec\", \"tok\" or \"qgr\""
            ))
        })?;
        let set = self.shared.wait(py, |database| {
            let table = table(database)?;
            table.set_index(column, change)?;
            table.acknowledge()
        });
        Ok(set?)
    }

    /// Returns the types of the indices by column.
    fn _indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let indices = self.shared.wait(py, |database| Ok(table(database)?.indices()))?;
        let dict = PyDict::new(py);
        for index in indices {
            dict.set_item(PyBytes::new(py, &index.column), index.kind.name())?;
        }
        Ok(dict)
    }

    /// Returns a number that the table has not returned before.
    fn _new_id(&self, py: Python<'_>) -> Result<u64, Failure> {
        self.shared.wait(py, |database| table(database)?.generate_uid())
    }
}
