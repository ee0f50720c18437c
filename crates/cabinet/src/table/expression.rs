//! Expressions of full-text search, such as `red "green apple" || pear !! rotten`.

use super::normalise::normalise;
use crate::limits::EXPRESSION_UNITS_MAX;

/// One condition of an expression: any of these phrases is there, or, negated, none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Normalised.
    pub(super) phrases: Vec<String>,
    pub(super) negated: bool,
}

/// Units, all of which must hold. An expression without units, or of which the first one is
/// negated, holds for nothing; what is behind the greatest number of units does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expression(Vec<Unit>);

impl Expression {
    /// Reads an expression. Spaces separate phrases, double quotes hold them together; `&&`
    /// (which may be left out) asks for both sides, `||` for either, `!!` for the one before
    /// without the one behind.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut units: Vec<Unit> = Vec::new();
        let (mut negated, mut joins) = (false, false);
        for word in words(&normalise(text)) {
            match word.as_str() {
                "&&" => (negated, joins) = (false, false),
                "||" => (negated, joins) = (false, true),
                "!!" => (negated, joins) = (true, false),
                _ => {
                    let count = units.len();
                    match units.last_mut() {
                        Some(last) if joins => last.phrases.push(word),
                        _ if count == EXPRESSION_UNITS_MAX => break,
                        _ => units.push(Unit { phrases: vec![word], negated }),
                    }
                    (negated, joins) = (false, false);
                }
            }
        }
        if units.first().is_some_and(|first| first.negated) {
            units.clear();
        }
        Self(units)
    }

    /// The units; none if the expression holds for nothing.
    pub(super) fn units(&self) -> &[Unit] {
        &self.0
    }

    /// Whether it holds for normalised text.
    pub(super) fn holds_for(&self, text: &str) -> bool {
        !self.0.is_empty()
            && self
                .0
                .iter()
                .all(|unit| unit.phrases.iter().any(|phrase| text.contains(phrase)) != unit.negated)
    }
}

/// Splits at spaces outside of double quotes, which are dropped.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut is_quoted = false;
    for letter in text.chars().chain([' ']) {
        match letter {
            '"' => is_quoted = !is_quoted,
            ' ' if !is_quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            letter => word.push(letter),
        }
    }
    let rest = word.trim();
    if !rest.is_empty() {
        words.push(rest.to_string());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_hold_as_they_read() {
        for (expression, yes, no) in [
            ("red apple", "a red and green apple", "a red pear"),
            ("RED && Apple", "red apple", "apple"),
            ("\"green apple\"", "a green apple", "green and apple"),
            ("apple || pear", "one pear", "one plum"),
            ("apple !! rotten", "an apple", "a rotten apple"),
            ("fresh apple || pear !! rotten || old", "fresh pear", "fresh old pear"),
            ("\"open apple", "an open apple", "apple open"),
        ] {
            let parsed = Expression::parse(expression.as_bytes());
            assert!(parsed.holds_for(yes), "{expression} holds for {yes}");
            assert!(!parsed.holds_for(no), "{expression} does not hold for {no}");
        }
    }

    #[test]
    fn an_expression_of_nothing_or_of_a_negation_first_holds_for_nothing() {
        for expression in ["", "!! apple", "&& ||", "!!"] {
            assert!(!Expression::parse(expression.as_bytes()).holds_for("pear"), "{expression}");
        }
    }

    #[test]
    fn units_behind_the_limit_do_not_count() {
        for (units, counted) in [
            (EXPRESSION_UNITS_MAX - 1, EXPRESSION_UNITS_MAX - 1),
            (EXPRESSION_UNITS_MAX, EXPRESSION_UNITS_MAX),
            (EXPRESSION_UNITS_MAX + 1, EXPRESSION_UNITS_MAX),
        ] {
            let parsed = Expression::parse("word ".repeat(units).as_bytes());
            assert_eq!(parsed.units().len(), counted);
        }
    }
}
