//! Parts of a table for a store that keeps rows and postings elsewhere, such as in a cluster: tests
//! of conditions on rows, the values under which an index has a row, and the ranges of values in
//! which a condition's rows are.
//!
//! Such a store keeps indexed values in the order of their bytes, and finds postings by ranges. It
//! tests each row that a posting leads to, so a range may have postings of other rows.

pub use super::set_operations::{ResultSets, SortKeyOf};
pub use super::sort::{Sorted, Sorter, unnamed_file};

use super::access_path::{AccessPath, Route};
use super::condition::Condition;
use super::cursor::KeyRange;
use super::engine::changed_row;
use super::formula::Formula;
use super::index::{Index, gram};
use super::keys;
use super::matcher::{Matcher, all_accept};
use super::postings::Changes;
use super::{IndexKind, Row, RowView};
use crate::Result;
use std::sync::Arc;

/// Number of the index in the keys that are parsed here.
const ID: u32 = 0;

/// Conditions of a query, parsed for tests on rows.
pub struct Filter(Vec<Matcher>);

impl Filter {
    /// Returns a filter for rows that meet all of the conditions.
    pub fn new(conditions: &[Condition]) -> Self {
        Self(conditions.iter().map(Matcher::new).collect())
    }

    /// Returns whether a row meets the conditions.
    pub fn accepts(&self, primary: &[u8], row: RowView<'_>) -> bool {
        all_accept(&self.0, primary, row)
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Filter").field("conditions", &self.0.len()).finish()
    }
}

/// Returns the row of a value of joined columns that replaces the row `old`. Fails with
/// [`crate::Error::BadColumn`] if the value has an invalid column, or is derived from a row with
/// NUL in its columns, whose ends are lost.
pub fn replace_joined(old: Option<RowView<'_>>, value: &[u8]) -> Result<Row> {
    let joined = old.map(|row| (row, row.to_joined()));
    changed_row(joined.as_ref().map(|(row, joined)| (*row, &joined[..])), value)
}

/// Limits of the values of one row in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueLimits {
    /// Maximum number of values.
    pub count: usize,
    /// Maximum bytes of all values. The first value may exceed it.
    pub bytes: usize,
    /// Bytes that each value counts for beside its own.
    pub bytes_beside: usize,
}

impl ValueLimits {
    /// Returns the number of leading values that are within the limits.
    fn fitting(&self, values: &[Vec<u8>]) -> usize {
        let mut bytes = 0_usize;
        let fits = |value: &&Vec<u8>| {
            let is_first = bytes == 0;
            bytes += value.len() + self.bytes_beside;
            is_first || bytes <= self.bytes
        };
        values.iter().take(self.count).take_while(fits).count()
    }
}

/// Returns the values under which an index has a row with this value in its column, in order, each
/// once. Values beyond the limits are left out. Instead, the first value is one that all
/// [`Lookup`]s in the index have in their ranges.
///
/// A lexical index of primary keys has no values: the rows themselves are the index.
pub fn indexed_values(
    kind: IndexKind,
    column: &[u8],
    value: &[u8],
    limits: ValueLimits,
) -> Vec<Vec<u8>> {
    let index = Index::new(ID, column, kind, true);
    let mut postings = Changes::default();
    index.put_postings(b"", value, &mut postings);
    let skipped = index.prefix().len();
    let mut values: Vec<Vec<u8>> =
        postings.iter().map(|(key, _)| key[skipped..].to_vec()).collect();
    values.sort_unstable();
    values.dedup();
    let fitting = limits.fitting(&values);
    if values.len() > fitting {
        values.truncate(fitting);
        let more = gram::more(&index)[skipped..].to_vec();
        if values.first() != Some(&more) {
            values.insert(0, more);
        }
    }
    values
}

/// Returns whether an indexed value is only the beginning of the row's value. Values with the same
/// beginning are then not in the order of the rows' values.
pub fn is_cut(kind: IndexKind, indexed: &[u8]) -> bool {
    kind == IndexKind::Lexical && keys::is_cut(indexed)
}

/// Indexed values from `start` on and before `end`, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueRange {
    /// First value.
    pub start: Vec<u8>,
    /// Value before which the range ends.
    pub end: Option<Vec<u8>>,
}

impl ValueRange {
    /// The range of all values.
    pub const ALL: Self = Self { start: Vec::new(), end: None };

    /// Returns whether a value is in the range.
    pub fn contains(&self, value: &[u8]) -> bool {
        value >= &self.start[..] && self.end.as_ref().is_none_or(|end| value < &end[..])
    }
}

/// Ranges of an index for a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Alternatives, at least one. Each is a list of disjoint ranges in ascending order. All rows
    /// that meet the condition have a value in one of the ranges of each alternative.
    pub ways: Vec<Vec<ValueRange>>,
    /// Whether Tokyo Cabinet returns the greatest values first.
    pub is_descending: bool,
    /// Line for the hint.
    pub hint: String,
}

impl Lookup {
    /// Returns the lookup of a condition in an index; `None` if the index cannot find its rows. The
    /// ranges in a lexical index of primary keys, whose column has the empty name, are ranges of
    /// keys.
    pub fn of(condition: &Condition, column: &[u8], kind: IndexKind) -> Option<Self> {
        let index = Arc::new(Index::new(ID, column, kind, true));
        let AccessPath { route, hint, .. } = AccessPath::of(0, condition, &index)?;
        let (ways, is_descending) = match route {
            Route::Walk(walk) => (vec![walk.ranges], walk.is_descending),
            Route::Postings(formula) => (ways(&formula), false),
        };
        let prefix = index.prefix();
        let of_values = |range: KeyRange| {
            let value = |key: &[u8]| key.strip_prefix(&prefix[..]).map(<[u8]>::to_vec);
            ValueRange { start: value(&range.start).unwrap_or_default(), end: value(&range.end) }
        };
        let apart = |ranges: Vec<KeyRange>| joined(ranges.into_iter().map(of_values).collect());
        let ways: Vec<_> = ways.into_iter().map(apart).collect();
        (!ways.is_empty()).then_some(Self { ways, is_descending, hint })
    }
}

/// Returns alternative lists of ranges, each of which has a posting of every row of a formula.
fn ways(formula: &Formula) -> Vec<Vec<KeyRange>> {
    match formula {
        Formula::Nothing => vec![Vec::new()],
        Formula::Term(term) => vec![vec![term.range.clone()]],
        Formula::Phrase(terms) => terms.iter().map(|(_, term)| vec![term.range.clone()]).collect(),
        Formula::GramBeginning(range) => vec![vec![range.clone()]],
        Formula::All(parts) => parts.iter().flat_map(ways).collect(),
        Formula::Any(parts) => {
            let parts: Vec<_> = parts.iter().map(ways).collect();
            if parts.iter().any(Vec::is_empty) {
                return Vec::new();
            }
            let count = parts.iter().map(Vec::len).max().unwrap_or(1);
            let way = |number: usize| {
                parts.iter().flat_map(|ways| ways[number.min(ways.len() - 1)].clone()).collect()
            };
            (0..count).map(way).collect()
        }
        Formula::Without(positive, _) => ways(positive),
    }
}

/// Sorts ranges, and joins those that overlap or touch.
fn joined(mut ranges: Vec<ValueRange>) -> Vec<ValueRange> {
    ranges.sort_unstable_by(|one, other| one.start.cmp(&other.start));
    let mut apart: Vec<ValueRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match apart.last_mut() {
            Some(last) if last.end.as_ref().is_none_or(|end| range.start <= *end) => {
                let is_longer = match (&last.end, &range.end) {
                    (None, _) => false,
                    (_, None) => true,
                    (Some(end), Some(other)) => other > end,
                };
                if is_longer {
                    last.end = range.end;
                }
            }
            _ => apart.push(range),
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Operator;
    use proptest::prelude::*;

    const KINDS: [IndexKind; 4] =
        [IndexKind::Lexical, IndexKind::Decimal, IndexKind::Token, IndexKind::Gram];

    fn limited(count: usize) -> ValueLimits {
        ValueLimits { count, bytes: usize::MAX, bytes_beside: 0 }
    }

    fn is_found(lookup: &Lookup, values: &[Vec<u8>]) -> bool {
        let in_way = |way: &Vec<ValueRange>| {
            values.iter().any(|value| way.iter().any(|range| range.contains(value)))
        };
        lookup.ways.iter().all(in_way)
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof!["[ab1 ,\\-.]{0,7}", "[0-3]{1,2}", "(ab|ba|1|12)( (ab|ba|1)){0,3}", "[a\0]{0,4}"]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Rows that meet a condition are in each alternative of its lookup, even if few of their
        /// values are in the index.
        #[test]
        fn each_way_leads_to_all_rows_of_a_condition(
            operator in 0u64..19, operand in text(), value in text(), max in 0usize..5,
        ) {
            let operator = Operator::from_number(operator).unwrap();
            let condition = Condition::new(b"c", operator, operand.as_bytes());
            let stored = Row::new().with(b"c", value.as_bytes()).unwrap().encode().unwrap();
            if Filter::new(std::slice::from_ref(&condition)).accepts(b"k", RowView::new(&stored)) {
                for kind in KINDS {
                    let max = if kind as u8 > 1 { max } else { usize::MAX };
                    let values = indexed_values(kind, b"c", value.as_bytes(), limited(max));
                    let lookup = Lookup::of(&condition, b"c", kind);
                    if let Some(lookup) = lookup {
                        prop_assert!(is_found(&lookup, &values), "{kind:?} {lookup:?} {values:?}");
                        for way in &lookup.ways {
                            let apart = |pair: &[ValueRange]| {
                                pair[0].end.as_ref().is_some_and(|end| *end < pair[1].start)
                            };
                            prop_assert!(way.windows(2).all(apart), "{way:?}");
                        }
                    }
                }
            }
        }

        /// Keys that meet a condition are in its lookup in the lexical index of keys.
        #[test]
        fn lookups_of_keys_contain_the_keys_that_meet_their_condition(
            operator in 0u64..19, operand in text(), key in text(),
        ) {
            let operator = Operator::from_number(operator).unwrap();
            let condition = Condition::new(b"", operator, operand.as_bytes());
            let filter = Filter::new(std::slice::from_ref(&condition));
            if filter.accepts(key.as_bytes(), RowView::new(b""))
                && let Some(lookup) = Lookup::of(&condition, b"", IndexKind::Lexical)
            {
                prop_assert!(is_found(&lookup, &[key.into_bytes()]), "{lookup:?}");
            }
        }
    }

    #[test]
    fn a_lookup_excludes_most_other_rows() {
        for (kind, operator, operand, found, missed) in [
            (IndexKind::Lexical, Operator::StringEqual, "b", &["b"][..], &["a", "bb", "", "c"][..]),
            (IndexKind::Lexical, Operator::StringBegins, "b", &["b", "bz"], &["a", "c"]),
            (IndexKind::Lexical, Operator::StringEqualAny, "a,c", &["a", "c"], &["b", "aa"]),
            (IndexKind::Decimal, Operator::NumberGreater, "2", &["3", "10"], &["2", "-1", "nan"]),
            (IndexKind::Decimal, Operator::NumberLess, "2", &["1", "-10"], &["2", "10"]),
            (IndexKind::Decimal, Operator::NumberBetween, "2 1", &["1", "1.5", "2"], &["0", "3"]),
            (IndexKind::Decimal, Operator::NumberEqualAny, "1 3", &["1", "3.0"], &["2"]),
            (IndexKind::Token, Operator::StringAnyToken, "a b", &["b", "x a"], &["x", "ab"]),
            (IndexKind::Gram, Operator::TextPhrase, "abc", &["xabc", "ABC d"], &["ab c", "bc"]),
            (IndexKind::Gram, Operator::TextPhrase, "a", &["xa", "A"], &["b"]),
        ] {
            let condition = Condition::new(b"c", operator, operand.as_bytes());
            let lookup = Lookup::of(&condition, b"c", kind).unwrap();
            for (values, expected) in [(found, true), (missed, false)] {
                for value in values {
                    let indexed = indexed_values(kind, b"c", value.as_bytes(), limited(usize::MAX));
                    assert_eq!(is_found(&lookup, &indexed), expected, "{operator:?} {value}");
                }
            }
        }
    }

    #[test]
    fn the_values_of_an_index_are_limited_and_cut() {
        let many = "a b c d";
        for (max, values) in [(3, 4), (4, 4), (5, 4)] {
            let found = indexed_values(IndexKind::Token, b"c", many.as_bytes(), limited(max));
            assert_eq!(found.len(), values);
            assert_eq!(found[0].len() == 1, max < 4);
        }
        let all = indexed_values(IndexKind::Token, b"c", many.as_bytes(), limited(4));
        let each = all[0].len() + 5;
        for (bytes, fitting) in
            [(0, 1), (each - 1, 1), (2 * each - 1, 1), (2 * each, 2), (4 * each - 1, 3)]
        {
            let limits = ValueLimits { count: 4, bytes, bytes_beside: 5 };
            let found = indexed_values(IndexKind::Token, b"c", many.as_bytes(), limits);
            assert_eq!(found[1..], all[..fitting]);
        }
        let limits = ValueLimits { count: 4, bytes: 4 * each, bytes_beside: 5 };
        assert_eq!(indexed_values(IndexKind::Token, b"c", many.as_bytes(), limits), all);
        let long = vec![b'x'; crate::limits::INDEXED_VALUE_BYTES_MAX];
        for (value, expected) in [(&long[..], false), (&[&long[..], b"x"].concat(), true)] {
            let found = indexed_values(IndexKind::Lexical, b"c", value, limited(1));
            assert_eq!(is_cut(IndexKind::Lexical, &found[0]), expected);
        }
    }
}
