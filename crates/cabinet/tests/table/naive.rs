//! Queries as plainly as they can be written: every row is looked at, nothing is encoded.

use cabinet::table::{Condition, Operator, Query, Row, SortKind, SortOrder};
use std::cmp::Ordering;
use std::collections::BTreeMap;

pub(crate) type Rows = BTreeMap<Vec<u8>, Row>;

/// Text of the tests is ASCII, and its numbers are small.
fn text(value: &[u8]) -> &str {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    std::str::from_utf8(&value[..end]).unwrap()
}

fn number(value: &str) -> f64 {
    let value = value.trim_start_matches(|letter: char| letter <= ' ');
    let lower = value.to_lowercase();
    let unsigned = lower.trim_start_matches(['-', '+']);
    let sign = if lower.starts_with('-') { -1.0 } else { 1.0 };
    if unsigned.starts_with("inf") {
        return sign * f64::INFINITY;
    }
    if unsigned.starts_with("nan") {
        return f64::NAN;
    }
    (0..=value.len())
        .rev()
        .filter(|&end| !value[..end].contains(['e', 'E', 'n', 'i']))
        .find_map(|end| value[..end].parse().ok())
        .unwrap_or(0.0)
}

fn normalise(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

fn tokens(value: &str) -> Vec<&str> {
    value.split(|letter| letter <= ' ' || letter == ',').filter(|token| !token.is_empty()).collect()
}

fn holds(condition: &Condition, whole: &[u8]) -> bool {
    let (value, operand) = (text(whole), text(&condition.operand));
    let numbers: Vec<f64> =
        operand.split([' ', ',']).filter(|token| !token.is_empty()).map(number).collect();
    let (normal, phrase) = (normalise(value), normalise(operand));
    match condition.operator {
        Operator::StringEqual => whole == condition.operand,
        Operator::StringIncludes => value.contains(operand),
        Operator::StringBegins => value.starts_with(operand),
        Operator::StringEnds => value.ends_with(operand),
        Operator::StringAllTokens => tokens(operand).iter().all(|t| tokens(value).contains(t)),
        Operator::StringAnyToken => tokens(operand).iter().any(|t| tokens(value).contains(t)),
        Operator::StringEqualAny => tokens(operand).contains(&value),
        Operator::StringMatches => value.contains(operand),
        Operator::NumberEqual => number(value) == number(operand),
        Operator::NumberGreater => number(value) > number(operand),
        Operator::NumberGreaterEqual => number(value) >= number(operand),
        Operator::NumberLess => number(value) < number(operand),
        Operator::NumberLessEqual => number(value) <= number(operand),
        Operator::NumberBetween => {
            let mut bounds =
                [numbers.first().copied().unwrap_or(0.0), numbers.get(1).copied().unwrap_or(0.0)];
            if bounds[0] > bounds[1] {
                bounds.reverse();
            }
            number(value) >= bounds[0] && number(value) <= bounds[1]
        }
        Operator::NumberEqualAny => numbers.contains(&number(value)),
        Operator::TextPhrase => normal.contains(&phrase),
        Operator::TextAll => tokens(operand).iter().all(|token| normal.contains(token)),
        Operator::TextAny => tokens(operand).iter().any(|token| normal.contains(token)),
        Operator::TextExpression => {
            let mut words = phrase.split(' ').filter(|word| !word.is_empty()).peekable();
            // Tests write expressions of words with operators between.
            let mut units: Vec<(Vec<&str>, bool)> = Vec::new();
            let (mut joins, mut negated) = (false, false);
            for word in words.by_ref() {
                match word {
                    "&&" => (joins, negated) = (false, false),
                    "||" => (joins, negated) = (true, false),
                    "!!" => (joins, negated) = (false, true),
                    word => {
                        match units.last_mut() {
                            Some(unit) if joins => unit.0.push(word),
                            _ => units.push((vec![word], negated)),
                        }
                        (joins, negated) = (false, false);
                    }
                }
            }
            units.first().is_some_and(|unit| !unit.1)
                && units
                    .iter()
                    .all(|(any, negated)| any.iter().any(|word| normal.contains(word)) != *negated)
        }
    }
}

fn column<'r>(name: &[u8], primary: &'r [u8], row: &'r Row) -> Option<&'r [u8]> {
    if name.is_empty() { Some(primary) } else { row.get(name) }
}

/// Primary keys of all rows that fulfil the conditions.
pub(crate) fn matches(query: &Query, rows: &Rows) -> Vec<Vec<u8>> {
    let is_match = |primary: &[u8], row: &Row| {
        query.conditions.iter().all(|condition| {
            let value = column(&condition.column, primary, row);
            value.is_some_and(|value| holds(condition, value)) != condition.negate
        })
    };
    let matches = rows.iter().filter(|(primary, row)| is_match(primary, row));
    matches.map(|(primary, _)| primary.clone()).collect()
}

/// How two rows compare in an order.
pub(crate) fn compare(order: &SortOrder, one: (&[u8], &Row), other: (&[u8], &Row)) -> Ordering {
    let value = |(primary, row)| column(&order.column, primary, row);
    match (value(one), value(other)) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(one), Some(other)) => match order.kind {
            SortKind::StringAscending => one.cmp(other),
            SortKind::StringDescending => other.cmp(one),
            SortKind::NumberAscending => compare_numbers(one, other),
            SortKind::NumberDescending => compare_numbers(other, one),
        },
    }
}

/// Compares two values as numbers. NaN comes first.
fn compare_numbers(one: &[u8], other: &[u8]) -> Ordering {
    let (one, other) = (number(text(one)), number(text(other)));
    match (one.is_nan(), other.is_nan()) {
        (false, false) => one.partial_cmp(&other).unwrap(),
        (one, other) => other.cmp(&one),
    }
}
