//! Queries and indices of tables, as Python gives them.

use cabinet::table::{Condition, IndexChange, Query, Report, SetOperation, SortKind, Table};
use cabinet::{Database, Error};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::ControlFlow;

/// A query: conditions (column, operator, operand), order (column, kind), limit, rows to skip.
#[derive(FromPyObject, Serialize, Deserialize)]
pub(crate) struct Given(
    Vec<(Vec<u8>, String, Vec<u8>)>,
    Option<(Vec<u8>, String)>,
    Option<u64>,
    u64,
);

/// Number of results, steps of the search, rows read, postings read.
pub(crate) type Outcome = (u64, String, u64, u64);

impl Given {
    fn query(&self) -> cabinet::Result<Query> {
        let Self(conditions, order, max, skip) = self;
        let mut query = Query { max: *max, skip: *skip, ..Query::new() };
        for (column, operator, operand) in conditions {
            let condition = Condition::parse(column, operator.as_bytes(), operand)
                .ok_or_else(|| defect(&format!("the operator {operator}")))?;
            if let Some(flaw) = condition.flaw() {
                return Err(Error::BadSearch(format!("{flaw}: correct it")));
            }
            query = query.with_condition(condition);
        }
        if let Some((column, kind)) = order {
            let kind = SortKind::parse(kind.as_bytes())
                .ok_or_else(|| defect(&format!("the order {kind}")))?;
            query = query.order_by(column, kind);
        }
        Ok(query)
    }
}

fn defect(what: &str) -> Error {
    Error::Internal(what.to_owned())
}

fn outcome(report: Report) -> Outcome {
    (report.count, report.hint, report.rows_read, report.postings_read)
}

/// Returns the table of a database. Fails if it has none.
pub(crate) fn table(database: &Database) -> cabinet::Result<&Table> {
    database.table().ok_or(Error::Unsupported {
        operation: "queries and indices",
        kind: "this database, or a transaction,",
        advice: "call it on a table (.tct)",
    })
}

/// Returns a report of queries that are combined by an operation, and the primary keys of their
/// results, if they are wanted.
pub(crate) fn search(
    database: &Database,
    queries: &[Given],
    operation: &str,
    has_keys: bool,
) -> cabinet::Result<(Vec<Vec<u8>>, Outcome)> {
    let queries = queries.iter().map(Given::query).collect::<cabinet::Result<Vec<_>>>()?;
    let operation =
        SetOperation::parse(operation.as_bytes()).ok_or_else(|| defect("the operation of sets"))?;
    let mut keys = Vec::new();
    let report = table(database)?.for_each_set_result(&queries, operation, |key| {
        if has_keys {
            keys.push(key.to_vec());
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((keys, outcome(report)))
}

/// Removes the rows of a query's results.
pub(crate) fn search_out(database: &Database, given: &Given) -> cabinet::Result<Outcome> {
    let table = table(database)?;
    let report = table.search_out(&given.query()?, |_, _| ())?;
    table.acknowledge()?;
    Ok(outcome(report))
}

/// Builds an index of a column, rebuilds it, or removes it.
pub(crate) fn set_index(database: &Database, column: &[u8], kind: &str) -> cabinet::Result<()> {
    let change = IndexChange::parse(kind.as_bytes()).ok_or_else(|| {
        Error::InvalidArgument(format!(
            "{kind:?} is not a type of index: choose \"lex\", \"dec\", \"tok\" or \"qgr\""
        ))
    })?;
    let table = table(database)?;
    table.set_index(column, change)?;
    table.acknowledge()
}

/// Returns the columns that have an index, with its type.
pub(crate) fn indices(database: &Database) -> cabinet::Result<Vec<(Vec<u8>, Cow<'static, str>)>> {
    let indices = table(database)?.indices();
    Ok(indices.into_iter().map(|index| (index.column, index.kind.name().into())).collect())
}
