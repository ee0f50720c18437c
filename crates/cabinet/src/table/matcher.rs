//! Matcher: tests whether rows meet the conditions of a query.

use super::condition::{Condition, Operator};
use super::expression::Expression;
use super::normalise::normalise;
use super::number::Number;
use super::row::RowView;
use super::tokens::{before_nul, contains, of_numbers, of_text};
use regex::bytes::Regex;
use std::cmp::Ordering;

/// A condition with its operand parsed.
pub(super) struct Matcher {
    column: Vec<u8>,
    negate: bool,
    test: Test,
}

/// Test of a value. As in Tokyo Cabinet, most operators compare C strings: operands and values end
/// before their first NUL.
enum Test {
    Equal(Vec<u8>),
    Includes(Vec<u8>),
    Begins(Vec<u8>),
    Ends(Vec<u8>),
    AllTokens(Vec<Vec<u8>>),
    AnyToken(Vec<Vec<u8>>),
    EqualAny(Vec<Vec<u8>>),
    /// `None` if the pattern does not parse. It then matches nothing.
    Matches(Option<Regex>),
    Compare(Number, fn(Ordering) -> bool),
    Between(Number, Number),
    NumberAny(Vec<Number>),
    Phrase(String),
    AllPhrases(Vec<String>),
    AnyPhrase(Vec<String>),
    Expression(Expression),
}

impl Matcher {
    pub(super) fn new(condition: &Condition) -> Self {
        let whole = &condition.operand[..];
        let operand = before_nul(whole);
        let tokens = || of_text(operand).map(<[u8]>::to_vec).collect();
        let compare = |test| Test::Compare(Number::parse(operand), test);
        let test = match condition.operator {
            Operator::StringEqual => Test::Equal(whole.to_vec()),
            Operator::StringIncludes => Test::Includes(operand.to_vec()),
            Operator::StringBegins => Test::Begins(operand.to_vec()),
            Operator::StringEnds => Test::Ends(operand.to_vec()),
            Operator::StringAllTokens => Test::AllTokens(tokens()),
            Operator::StringAnyToken => Test::AnyToken(tokens()),
            Operator::StringEqualAny => Test::EqualAny(tokens()),
            Operator::StringMatches => Test::Matches(crate::base::pattern::compile(operand).ok()),
            Operator::NumberEqual => compare(Ordering::is_eq),
            Operator::NumberGreater => compare(Ordering::is_gt),
            Operator::NumberGreaterEqual => compare(Ordering::is_ge),
            Operator::NumberLess => compare(Ordering::is_lt),
            Operator::NumberLessEqual => compare(Ordering::is_le),
            Operator::NumberBetween => {
                let (least, greatest) = bounds(operand);
                Test::Between(least, greatest)
            }
            Operator::NumberEqualAny => {
                Test::NumberAny(of_numbers(operand).map(Number::parse).collect())
            }
            Operator::TextPhrase => Test::Phrase(normalise(operand)),
            Operator::TextAll => Test::AllPhrases(phrases(operand)),
            Operator::TextAny => Test::AnyPhrase(phrases(operand)),
            Operator::TextExpression => Test::Expression(Expression::parse(operand)),
        };
        Self { column: condition.column.clone(), negate: condition.negate, test }
    }

    /// Returns whether a row meets the condition.
    pub(super) fn accepts(&self, primary: &[u8], row: RowView<'_>) -> bool {
        let value = if self.column.is_empty() { Some(primary) } else { row.get(&self.column) };
        value.is_some_and(|value| self.test.holds_for(value)) != self.negate
    }
}

/// Returns whether all matchers accept a row.
pub(super) fn all_accept(matchers: &[Matcher], primary: &[u8], row: RowView<'_>) -> bool {
    matchers.iter().all(|matcher| matcher.accepts(primary, row))
}

/// Returns the bounds of [`Operator::NumberBetween`]: the lesser and the greater of the operand's
/// first two tokens.
pub(super) fn bounds(operand: &[u8]) -> (Number, Number) {
    let mut tokens = of_numbers(operand);
    let mut next = || Number::parse(tokens.next().unwrap_or_default());
    let (one, other) = (next(), next());
    if one.compare(&other) == Some(Ordering::Greater) { (other, one) } else { (one, other) }
}

/// Returns the tokens of an operand, without normalising them.
pub(super) fn phrases(operand: &[u8]) -> Vec<String> {
    of_text(operand).map(|token| String::from_utf8_lossy(token).into_owned()).collect()
}

impl Test {
    fn holds_for(&self, whole: &[u8]) -> bool {
        let value = before_nul(whole);
        let has = |token: &Vec<u8>| of_text(value).any(|other| other == token);
        match self {
            Self::Equal(operand) => whole == operand,
            Self::Includes(operand) => contains(value, operand),
            Self::Begins(operand) => value.starts_with(operand),
            Self::Ends(operand) => value.ends_with(operand),
            Self::AllTokens(tokens) => tokens.iter().all(has),
            Self::AnyToken(tokens) => tokens.iter().any(has),
            Self::EqualAny(tokens) => tokens.iter().any(|token| token == value),
            Self::Matches(pattern) => pattern.as_ref().is_some_and(|regex| regex.is_match(value)),
            Self::Compare(number, test) => Number::parse(value).compare(number).is_some_and(*test),
            Self::Between(least, greatest) => {
                let number = Number::parse(value);
                number.compare(least).is_some_and(Ordering::is_ge)
                    && number.compare(greatest).is_some_and(Ordering::is_le)
            }
            Self::NumberAny(numbers) => {
                let value = Number::parse(value);
                numbers.iter().any(|number| number.equals(&value))
            }
            Self::Phrase(phrase) => normalise(value).contains(phrase),
            Self::AllPhrases(phrases) => {
                let text = normalise(value);
                phrases.iter().all(|phrase| text.contains(phrase))
            }
            Self::AnyPhrase(phrases) => {
                let text = normalise(value);
                phrases.iter().any(|phrase| text.contains(phrase))
            }
            Self::Expression(expression) => expression.holds_for(&normalise(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operator::*;

    fn holds(value: &str, operator: Operator, operand: &str) -> bool {
        let condition = Condition::new(b"", operator, operand.as_bytes());
        Matcher::new(&condition).accepts(value.as_bytes(), RowView::new(b""))
    }

    #[test]
    fn each_operator_has_the_meaning_that_tokyo_cabinet_documents() {
        // Operator, operand, values that meet the condition, values that do not.
        let table: &[(Operator, &str, &[&str], &[&str])] = &[
            (StringEqual, "a b", &["a b"], &["a", "A b", "a b\0"]),
            (StringIncludes, "an", &["banana"], &["bn", "nab"]),
            (StringIncludes, "", &["", "x"], &[]),
            (StringBegins, "ba", &["ba", "banana"], &["abba"]),
            (StringEnds, "na", &["na", "banana"], &["nab"]),
            (StringAllTokens, "red, green", &["green red", "red,blue,green"], &["red", "redgreen"]),
            (StringAllTokens, "", &["", "x"], &[]),
            (StringAnyToken, "red green", &["blue,green"], &["", "reddish"]),
            (StringAnyToken, "", &[], &["", "x"]),
            (StringEqualAny, "red,green", &["red", "green"], &["red green", ""]),
            (StringMatches, "^r.d$", &["red"], &["RED", "reed"]),
            (StringMatches, "*^r.d$", &["RED"], &["reed"]),
            (StringMatches, "(", &[], &["(", ""]),
            (NumberEqual, "0", &["0", "abc", "", "-0.0"], &["1"]),
            (NumberEqual, "1", &["1.0", " 01", "1e9"], &["10"]),
            (NumberGreater, "1", &["1.5", "2", "inf"], &["1", "abc", "nan"]),
            (NumberGreaterEqual, "1", &["1", "2"], &["0.99"]),
            (NumberLess, "1", &["abc", "-inf"], &["1", "nan"]),
            (NumberLessEqual, "1", &["1", "-1"], &["1.1"]),
            (NumberBetween, "5 2", &["2", "3", "5"], &["1", "6"]),
            (NumberBetween, "3", &["0", "3"], &["-1", "4"]),
            (NumberEqualAny, "1,2 3", &["1", "3.0"], &["4", "0"]),
            (NumberEqualAny, "", &[], &["0"]),
            (TextPhrase, "e T\u{c9}", &["\u{c9}  t\u{e9}", "me test"], &["e", "et e"]),
            (TextAll, "red green", &["Green REDDISH"], &["red"]),
            (TextAll, "Red", &[], &["Red", "red"]),
            (TextAny, "red green", &["Green"], &["blue"]),
            (TextExpression, "RED !! green", &["Red"], &["red green", "blue"]),
            (TextExpression, "!! green", &[], &["red"]),
        ];
        for (operator, operand, yes, no) in table {
            for value in *yes {
                assert!(holds(value, *operator, operand), "{value:?} {operator:?} {operand:?}");
            }
            for value in *no {
                assert!(!holds(value, *operator, operand), "{value:?} {operator:?} {operand:?}");
            }
        }
    }

    #[test]
    fn values_and_operands_end_before_a_nul_except_for_equality() {
        assert!(holds("abc\0def", StringEnds, "bc"));
        assert!(!holds("abc\0def", StringIncludes, "def"));
        assert!(holds("abc", StringBegins, "ab\0x"));
        assert!(holds("abc\0def", StringEqual, "abc\0def"));
        assert!(!holds("abc\0def", StringEqual, "abc"));
        assert!(holds("abc\0def", StringEqualAny, "abc"));
    }

    #[test]
    fn a_row_without_the_column_meets_only_negated_conditions() {
        let condition = Condition::new(b"age", NumberEqual, b"0");
        assert!(!Matcher::new(&condition).accepts(b"key", RowView::new(b"")));
        assert!(Matcher::new(&condition.negated()).accepts(b"key", RowView::new(b"")));
    }
}
