//! Expressions of full-text search, such as `red "green apple" || pear !! rotten`.

use super::normalise::normalise;
use crate::limits::EXPRESSION_UNITS_MAX;

/// One condition of an expression: the text contains one of these phrases or, if negated, none of
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Normalised phrases.
    pub(super) phrases: Vec<String>,
    pub(super) negated: bool,
}

/// Units, all of which must hold. An expression holds for no text if it has no units, or if the
/// first one is negated. Units after the maximum number are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expression(Vec<Unit>);

impl Expression {
    /// Parses an expression. Spaces separate phrases, and double quotes enclose phrases with
    /// spaces. `&&`, which may be omitted, requires both sides, `||` one of them, and `!!` the left
    /// side without the right one.
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

    /// Returns the units; none if the expression holds for no text.
    pub(super) fn units(&self) -> &[Unit] {
        &self.0
    }

    /// Returns whether the expression holds for normalised text.
    pub(super) fn holds_for(&self, text: &str) -> bool {
        !self.0.is_empty()
            && self
                .0
                .iter()
                .all(|unit| unit.phrases.iter().any(|phrase| text.contains(phrase)) != unit.negated)
    }
}

/// Splits text at spaces outside of double quotes, and drops the quotes.
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
    fn expressions_hold_for_the_texts_that_they_describe() {
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
    fn an_expression_that_is_empty_or_begins_with_a_negation_holds_for_no_text() {
        for expression in ["", "!! apple", "&& ||", "!!"] {
            assert!(!Expression::parse(expression.as_bytes()).holds_for("pear"), "{expression}");
        }
    }

    #[test]
    fn units_after_the_limit_are_ignored() {
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
