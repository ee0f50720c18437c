//! Access path: the postings of an index that lead to the rows of a condition.

use super::condition::{Condition, Operator};
use super::cursor::{KeyRange, count_up_to};
use super::expression::Expression;
use super::formula::{Formula, Term};
use super::index::{Index, decimal_prefix, gram, lexical, token};
use super::keys;
use super::matcher::{bounds, phrases};
use super::normalise::normalise;
use super::number::Number;
use super::postings::View;
use super::tokens::{before_nul, of_numbers, of_text};
use crate::Result;
use crate::base::column_index::IndexKind;
use crate::limits::INDEXED_VALUE_BYTES_MAX;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Access path of a condition through an index.
pub(super) struct AccessPath {
    /// Number of the condition in the query.
    pub(super) condition: usize,
    pub(super) route: Route,
    /// Line of the hint for this path.
    pub(super) hint: String,
}

pub(super) enum Route {
    /// Lists in the order of primary keys.
    Postings(Formula),
    /// Ranges of an index, in the order of that index.
    Walk(Walk),
}

/// Ranges of postings of an index that is in the order of values.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pub(super) index: Arc<Index>,
    /// Disjoint ranges in ascending order.
    pub(super) ranges: Vec<KeyRange>,
    /// Whether each posting is a row that meets the condition, except postings with cut values.
    pub(super) is_exact: bool,
    pub(super) is_descending: bool,
}

/// A parsed posting of a walk.
pub(super) struct WalkedPosting<'a> {
    /// The value in the encoding of the index.
    pub(super) value: &'a [u8],
    pub(super) primary: &'a [u8],
    pub(super) is_cut: bool,
}

impl Walk {
    /// Returns the walk through a whole index.
    pub(super) fn whole(index: &Arc<Index>, is_descending: bool) -> Self {
        let ranges = vec![KeyRange::of_prefix(index.prefix())];
        Self { index: Arc::clone(index), ranges, is_exact: true, is_descending }
    }

    /// Parses the key of a posting; `None` if it does not parse.
    pub(super) fn parse<'a>(&self, key: &'a [u8]) -> Option<WalkedPosting<'a>> {
        if self.index.is_rows() {
            let primary = key.get(1..)?;
            return Some(WalkedPosting { value: &[], primary, is_cut: false });
        }
        let rest = keys::after_prefix(key)?;
        let len = match self.index.kind {
            IndexKind::Decimal => Number::encoded_len(rest)?,
            _ => keys::escaped_len(rest)?,
        };
        let (value, primary) = rest.split_at(len);
        let is_cut = self.index.kind == IndexKind::Lexical && keys::is_cut(value);
        Some(WalkedPosting { value, primary, is_cut })
    }
}

impl AccessPath {
    /// Returns an estimate of the number of postings. If there are many, it is at least `max`.
    pub(super) fn estimate(&self, view: View<'_>, max: u64) -> Result<u64> {
        match &self.route {
            Route::Postings(formula) => formula.estimate(view, max),
            Route::Walk(walk) => {
                let mut sum = 0;
                for range in &walk.ranges {
                    sum += count_up_to(view, range, max.saturating_sub(sum))?;
                }
                Ok(sum)
            }
        }
    }

    /// Returns the number of lists that must be sorted for this path.
    pub(super) fn sorted_lists(&self) -> usize {
        match &self.route {
            Route::Postings(formula) => formula.sorted_lists(),
            Route::Walk(_) => 0,
        }
    }

    /// Returns the access path of a condition through an index; `None` if there is none.
    pub(super) fn of(number: usize, condition: &Condition, index: &Arc<Index>) -> Option<Self> {
        if condition.negate || condition.no_index || condition.column != index.column {
            return None;
        }
        let route = match index.kind {
            IndexKind::Lexical => by_string(condition, index),
            IndexKind::Decimal => by_number(condition, index),
            IndexKind::Token => by_token(condition, index),
            IndexKind::Gram => by_text(condition, index),
        }?;
        let how = match condition.operator {
            Operator::NumberGreater | Operator::NumberGreaterEqual => "asc (NUMGT/NUMGE)".into(),
            Operator::NumberLess | Operator::NumberLessEqual => "desc (NUMLT/NUMLE)".into(),
            _ if index.kind == IndexKind::Gram => "inverted (FTS)".into(),
            operator if index.kind == IndexKind::Token => format!("inverted ({})", operator.name()),
            operator => format!("asc ({})", operator.name()),
        };
        let column = String::from_utf8_lossy(&index.column);
        let hint = format!("using an index: \"{column}\" {how}");
        Some(Self { condition: number, route, hint })
    }
}

fn by_string(condition: &Condition, index: &Arc<Index>) -> Option<Route> {
    let operand = before_nul(&condition.operand);
    let walk = |ranges, is_exact| {
        Route::Walk(Walk { index: Arc::clone(index), ranges, is_exact, is_descending: false })
    };
    if index.is_rows() {
        let key = |primary: &[u8]| [&[keys::ROWS], primary].concat();
        return Some(match condition.operator {
            Operator::StringEqual => {
                let start = key(&condition.operand);
                let end = [&start[..], &[0]].concat();
                let range = KeyRange { start, end };
                Route::Postings(Formula::Term(Term {
                    prefix: vec![keys::ROWS],
                    range,
                    is_exact: true,
                }))
            }
            Operator::StringBegins => {
                let range = KeyRange::of_prefix(key(operand));
                Route::Postings(Formula::Term(Term {
                    prefix: vec![keys::ROWS],
                    range,
                    is_exact: true,
                }))
            }
            Operator::StringEqualAny => {
                // The token, or the token followed by a NUL and any bytes.
                let tokens: BTreeSet<&[u8]> = of_text(operand).collect();
                let ranges = tokens.iter().map(|token| {
                    let start = key(token);
                    let end = [&start[..], &[1]].concat();
                    KeyRange { start, end }
                });
                walk(ranges.collect(), true)
            }
            _ => return None,
        });
    }
    Some(match condition.operator {
        Operator::StringEqual => {
            let (prefix, is_shared) = lexical::whole(index, &condition.operand);
            Route::Postings(Formula::Term(Term::new(prefix, !is_shared)))
        }
        Operator::StringBegins => {
            let kept = &operand[..operand.len().min(INDEXED_VALUE_BYTES_MAX)];
            let mut prefix = index.prefix();
            keys::push_prefix(&mut prefix, kept);
            walk(vec![KeyRange::of_prefix(prefix)], kept.len() == operand.len())
        }
        Operator::StringEqualAny => {
            let kept = |token: &[u8]| token[..token.len().min(INDEXED_VALUE_BYTES_MAX)].to_vec();
            let is_exact = of_text(operand).all(|token| token.len() <= INDEXED_VALUE_BYTES_MAX);
            let tokens: BTreeSet<Vec<u8>> = of_text(operand).map(kept).collect();
            let ranges = tokens.iter().map(|token| {
                // The token, or the token followed by a NUL and any bytes.
                let mut prefix = index.prefix();
                keys::push_prefix(&mut prefix, token);
                prefix.push(0);
                KeyRange::of_prefix(prefix)
            });
            walk(ranges.collect(), is_exact)
        }
        _ => return None,
    })
}

fn by_number(condition: &Condition, index: &Arc<Index>) -> Option<Route> {
    let operand = before_nul(&condition.operand);
    let number = Number::parse(operand);
    let at = |number: &Number| decimal_prefix(index, number);
    let term = |number: &Number| Formula::Term(Term::new(at(number), true));
    let is_number = |number: &Number| !matches!(number, Number::Undefined);
    let least = at(&Number::NegativeInfinity);
    let end = keys::end_of_prefix(&index.prefix());
    let (start, end) = match condition.operator {
        Operator::NumberEqual if is_number(&number) => {
            return Some(Route::Postings(term(&number)));
        }
        Operator::NumberEqualAny => {
            let numbers = of_numbers(operand).map(Number::parse).filter(is_number);
            let prefixes: BTreeSet<Vec<u8>> = numbers.map(|number| at(&number)).collect();
            let terms = prefixes.into_iter().map(|prefix| Formula::Term(Term::new(prefix, true)));
            return Some(Route::Postings(Formula::Any(terms.collect())));
        }
        Operator::NumberBetween => {
            let (one, other) = bounds(operand);
            if !is_number(&one) || !is_number(&other) {
                return Some(Route::Postings(Formula::Nothing));
            }
            (at(&one), keys::end_of_prefix(&at(&other)))
        }
        Operator::NumberEqual
        | Operator::NumberGreater
        | Operator::NumberGreaterEqual
        | Operator::NumberLess
        | Operator::NumberLessEqual
            if !is_number(&number) =>
        {
            return Some(Route::Postings(Formula::Nothing));
        }
        Operator::NumberGreater => (keys::end_of_prefix(&at(&number)), end),
        Operator::NumberGreaterEqual => (at(&number), end),
        Operator::NumberLess => (least, at(&number)),
        Operator::NumberLessEqual => (least, keys::end_of_prefix(&at(&number))),
        _ => return None,
    };
    let is_descending =
        matches!(condition.operator, Operator::NumberLess | Operator::NumberLessEqual);
    Some(Route::Walk(Walk {
        index: Arc::clone(index),
        ranges: vec![KeyRange { start, end }],
        is_exact: true,
        is_descending,
    }))
}

fn by_token(condition: &Condition, index: &Arc<Index>) -> Option<Route> {
    let tokens: BTreeSet<&[u8]> = of_text(before_nul(&condition.operand)).collect();
    let terms = tokens.into_iter().map(|token| {
        let (prefix, is_shared) = token::whole(index, token);
        or_more(index, Formula::Term(Term::new(prefix, !is_shared)))
    });
    let terms: Vec<Formula> = terms.collect();
    Some(Route::Postings(match condition.operator {
        // Without tokens, all rows with the column meet the condition.
        Operator::StringAllTokens if terms.is_empty() => return None,
        Operator::StringAllTokens => Formula::All(terms),
        Operator::StringAnyToken => Formula::Any(terms),
        _ => return None,
    }))
}

fn by_text(condition: &Condition, index: &Arc<Index>) -> Option<Route> {
    let operand = before_nul(&condition.operand);
    // Each phrase once, even if the operand repeats it.
    let each = |phrases: &[String]| {
        let phrases: BTreeSet<&String> = phrases.iter().collect();
        phrases.into_iter().map(|text| phrase(index, text)).collect::<Option<Vec<_>>>()
    };
    let any = |phrases: &[String]| each(phrases).map(Formula::Any);
    Some(Route::Postings(match condition.operator {
        Operator::TextPhrase => phrase(index, &normalise(operand))?,
        Operator::TextAll => {
            let phrases = phrases(operand);
            if phrases.is_empty() {
                return None;
            }
            Formula::All(each(&phrases)?)
        }
        Operator::TextAny => any(&phrases(operand))?,
        Operator::TextExpression => {
            let expression = Expression::parse(operand);
            let (negative, positive): (Vec<_>, Vec<_>) =
                expression.units().iter().partition(|unit| unit.negated);
            if positive.is_empty() {
                return Some(Route::Postings(Formula::Nothing));
            }
            let all = |units: Vec<&super::expression::Unit>| {
                units.iter().map(|unit| any(&unit.phrases)).collect::<Option<Vec<_>>>()
            };
            Formula::Without(Box::new(Formula::All(all(positive)?)), all(negative)?)
        }
        _ => return None,
    }))
}

/// Returns the rows whose text contains a phrase; `None` for the empty phrase, which all rows with
/// the column contain.
fn phrase(index: &Arc<Index>, text: &str) -> Option<Formula> {
    let letters: Vec<char> = text.chars().collect();
    if letters.is_empty() {
        return None;
    }
    // Normalised text has no NUL, which would end the gram in the key.
    if letters.contains(&'\0') {
        return Some(Formula::Nothing);
    }
    let found = if letters.len() < gram::WIDTH {
        let range = KeyRange::of_prefix(gram::beginning(index, &letters));
        Formula::GramBeginning(range)
    } else {
        let last = letters.len() - gram::WIDTH;
        let places = (0..last).step_by(gram::WIDTH).chain([last]);
        let terms = places.map(|at| {
            let gram = &letters[at..at + gram::WIDTH];
            (at as u32, Term::new(gram::whole(index, gram), true))
        });
        Formula::Phrase(terms.collect())
    };
    Some(or_more(index, found))
}

/// Adds the rows whose values are only partly indexed.
fn or_more(index: &Index, formula: Formula) -> Formula {
    Formula::Any(vec![formula, Formula::Term(Term::new(gram::more(index), false))])
}
