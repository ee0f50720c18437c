//! Queries, and what they answer.

use super::condition::{Condition, Operator};
use super::sort_order::{SortKind, SortOrder};

/// Which rows are asked for, in which order, and how many.
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
    /// All of them must hold.
    pub conditions: Vec<Condition>,
    /// `None`: as it is easiest.
    pub order: Option<SortOrder>,
    /// How many results are wanted; `None`: all.
    pub max: Option<u64>,
    /// How many of the first results are left out.
    pub skip: u64,
}

impl Query {
    /// A query for all rows.
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

    /// Limits how many results there are.
    pub fn limit(mut self, max: u64) -> Self {
        self.max = Some(max);
        self
    }

    /// Leaves out the first results.
    pub fn skip(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// How many of the first results are of interest.
    pub fn wanted(&self) -> Option<u64> {
        self.max.map(|max| max.saturating_add(self.skip))
    }
}

/// Outcome and cost of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many results there were.
    pub count: u64,
    /// Steps of the search in the words of Tokyo Cabinet, one line each.
    pub hint: String,
    /// How many rows were read to be tested or sorted.
    pub rows_read: u64,
    /// How many postings of indices led to a row that was looked at or answered.
    pub postings_read: u64,
}

/// How the results of several queries are put together. The numbers are Tokyo Cabinet's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SetOperation {
    /// Results of any of them.
    #[default]
    Union = 0,
    /// Results that all of them have.
    Intersection = 1,
    /// Results of the first that none of the others has.
    Difference = 2,
}

impl SetOperation {
    /// Reads a name in either case, or a number. `None` if there is no such operation.
    pub fn parse(text: &[u8]) -> Option<Self> {
        Some(match std::str::from_utf8(text).ok()?.to_ascii_uppercase().as_str() {
            "0" | "UNION" | "OR" => Self::Union,
            "1" | "ISECT" | "INTERSECTION" | "AND" => Self::Intersection,
            "2" | "DIFF" | "DIFFERENCE" | "ANDNOT" | "NOT" => Self::Difference,
            _ => return None,
        })
    }
}
