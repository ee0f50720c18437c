//! Queries: conditions, order and limit, and the report of a search.

use super::condition::{Condition, Operator};
use super::sort_order::{SortKind, SortOrder};

/// Query: conditions of rows, the order of the results, and their number.
///
/// ```
/// use cabinet::table::{Operator, SortKind, Query};
///
/// let query = Query::new()
///     .with(b"age", Operator::NumberGreaterEqual, b"18")
///     .order_by(b"name", SortKind::StringAscending)
///     .limit(10);
/// assert_eq!(query.conditions.len(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Conditions, all of which must hold.
    pub conditions: Vec<Condition>,
    /// Order of the results; `None` for the fastest order.
    pub order: Option<SortOrder>,
    /// Maximum number of results; `None` for all.
    pub max: Option<u64>,
    /// Number of first results that are skipped.
    pub skip: u64,
}

impl Query {
    /// Returns a query for all rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition on a column; the empty name is the primary key.
    pub fn with(self, column: &[u8], operator: Operator, operand: &[u8]) -> Self {
        self.with_condition(Condition::new(column, operator, operand))
    }

    /// Adds a condition.
    pub fn with_condition(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Orders the results by a column; the empty name is the primary key.
    pub fn order_by(mut self, column: &[u8], kind: SortKind) -> Self {
        self.order = Some(SortOrder { column: column.to_vec(), kind });
        self
    }

    /// Limits the number of results.
    pub fn limit(mut self, max: u64) -> Self {
        self.max = Some(max);
        self
    }

    /// Skips the first results.
    pub fn skip(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// Returns the number of results that must be found, including the skipped ones; `None` for
    /// all.
    pub fn wanted(&self) -> Option<u64> {
        self.max.map(|max| max.saturating_add(self.skip))
    }
}

/// Outcome and cost of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of results.
    pub count: u64,
    /// Steps of the search in the words of Tokyo Cabinet, one line each.
    pub hint: String,
    /// Number of rows that were read for tests or sorting.
    pub rows_read: u64,
    /// Number of postings of indices that led to a row.
    pub postings_read: u64,
}

/// Operation that combines the results of several queries. The numbers are Tokyo Cabinet's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SetOperation {
    /// Results of at least one query.
    #[default]
    Union = 0,
    /// Results of all queries.
    Intersection = 1,
    /// Results of the first query that no other query has.
    Difference = 2,
}

impl SetOperation {
    /// Parses a name in either case, or a number. Returns `None` if there is no such operation.
    pub fn parse(text: &[u8]) -> Option<Self> {
        Some(match std::str::from_utf8(text).ok()?.to_ascii_uppercase().as_str() {
            "0" | "UNION" | "OR" => Self::Union,
            "1" | "ISECT" | "INTERSECTION" | "AND" => Self::Intersection,
            "2" | "DIFF" | "DIFFERENCE" | "ANDNOT" | "NOT" => Self::Difference,
            _ => return None,
        })
    }
}
