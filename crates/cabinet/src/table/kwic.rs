//! Key words in context: snippets of text around the words of a query.

use super::condition::Operator;
use super::expression::Expression;
use super::matcher::phrases;
use super::normalise::{for_each_character, normalise};
use super::query::Query;
use super::tokens::before_nul;
use crate::limits::SNIPPETS_MAX;

/// Marks around a found word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Nothing.
    #[default]
    None,
    /// A TAB on each side.
    Tab,
    /// The control characters 2 and 3.
    Control,
    /// Square brackets.
    Bracket,
}

/// Parameters of snippets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kwic {
    /// Characters on each side of a word.
    pub width: usize,
    /// Marks around the word.
    pub mark: Mark,
    /// Whether to skip words that the previous snippet already contains.
    pub no_overlap: bool,
    /// Whether to return the beginning of the text if no word is found.
    pub lead: bool,
}

impl Query {
    /// Returns the words that the conditions on a column look for, normalised.
    pub fn words(&self, column: &[u8]) -> Vec<String> {
        let mut words = Vec::new();
        let conditions = self.conditions.iter();
        for condition in conditions.filter(|c| c.column == column && !c.negate) {
            let operand = before_nul(&condition.operand);
            match condition.operator {
                Operator::StringEqual
                | Operator::StringIncludes
                | Operator::StringBegins
                | Operator::StringEnds
                | Operator::TextPhrase => words.push(normalise(operand)),
                Operator::StringAllTokens
                | Operator::StringAnyToken
                | Operator::StringEqualAny
                | Operator::TextAll
                | Operator::TextAny => {
                    words.extend(phrases(operand).iter().map(|word| normalise(word.as_bytes())));
                }
                Operator::TextExpression => {
                    let expression = Expression::parse(operand);
                    let units = expression.units().iter().filter(|unit| !unit.negated);
                    words.extend(units.flat_map(|unit| unit.phrases.clone()));
                }
                _ => {}
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }
}

impl Kwic {
    /// Returns snippets around the occurrences of normalised words in a text, in order, at most
    /// [`SNIPPETS_MAX`].
    pub fn snippets(&self, text: &[u8], words: &[String]) -> Vec<Vec<u8>> {
        let mut letters = Vec::new();
        for_each_character(text, |letter, offset| {
            letters.push((letter, offset));
            true
        });
        let words: Vec<Vec<char>> = words.iter().map(|word| word.chars().collect()).collect();
        let mut snippets = Vec::new();
        let mut shown_to = 0;
        for (at, &(_, start)) in letters.iter().enumerate() {
            if snippets.len() == SNIPPETS_MAX {
                break;
            }
            let is_word = |word: &&Vec<char>| {
                !word.is_empty()
                    && letters.len() - at >= word.len()
                    && word.iter().zip(&letters[at..]).all(|(one, (other, _))| one == other)
            };
            let Some(word) = words.iter().filter(is_word).max_by_key(|word| word.len()) else {
                continue;
            };
            if self.no_overlap && start < shown_to {
                continue;
            }
            let end = letters.get(at + word.len()).map_or(text.len(), |(_, offset)| *offset);
            let from = backward(text, start, self.width);
            let to = forward(text, end, self.width);
            let (open, close) = self.marks();
            snippets.push(
                [&text[from..start], open, &text[start..end], close, &text[end..to]].concat(),
            );
            shown_to = to;
        }
        if snippets.is_empty() && self.lead {
            snippets.push(text[..forward(text, 0, self.width.saturating_mul(2))].to_vec());
        }
        snippets
    }

    fn marks(&self) -> (&'static [u8], &'static [u8]) {
        match self.mark {
            Mark::None => (b"", b""),
            Mark::Tab => (b"\t", b"\t"),
            Mark::Control => (b"\x02", b"\x03"),
            Mark::Bracket => (b"[", b"]"),
        }
    }
}

/// Returns whether a character of UTF-8 begins with this byte.
fn begins(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

/// Returns the offset that is `characters` characters before `at`, or 0.
fn backward(text: &[u8], mut at: usize, characters: usize) -> usize {
    for _ in 0..characters {
        match text[..at].iter().rposition(|&byte| begins(byte)) {
            Some(before) => at = before,
            None => return 0,
        }
    }
    at
}

/// Returns the offset that is `characters` characters after `at`, or the length of the text.
fn forward(text: &[u8], mut at: usize, characters: usize) -> usize {
    for _ in 0..characters {
        let Some(rest) = text.get(at + 1..) else { return text.len() };
        match rest.iter().position(|&byte| begins(byte)) {
            Some(distance) => at += 1 + distance,
            None => return text.len(),
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn snippets(kwic: Kwic, text: &str, words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        let snippets = kwic.snippets(text.as_bytes(), &words);
        snippets.into_iter().map(|snippet| String::from_utf8(snippet).unwrap()).collect()
    }

    #[test]
    fn snippets_contain_a_word_with_the_text_around_it() {
        let kwic = Kwic { width: 4, mark: Mark::Bracket, ..Kwic::default() };
        let text = "One fish, two fish, rêd FISH";
        assert_eq!(
            snippets(kwic, text, &["fish"]),
            ["One [fish], tw", "two [fish], rê", "rêd [FISH]"]
        );
        assert_eq!(snippets(kwic, text, &["red"]), ["sh, [rêd] FIS"]);
        assert_eq!(snippets(kwic, text, &["cat"]), [""; 0]);
        let once = Kwic { width: 10, no_overlap: true, ..kwic };
        assert_eq!(snippets(once, text, &["fish"]).len(), 2);
        let lead = Kwic { lead: true, ..kwic };
        assert_eq!(snippets(lead, text, &["cat"]), ["One fish"]);
    }

    #[test]
    fn the_words_of_a_query_are_those_of_its_conditions_on_the_column() {
        let query = Query::new()
            .with(b"text", Operator::TextExpression, b"Red || \"green apple\" !! blue")
            .with(b"text", Operator::StringAllTokens, b"A,b")
            .with(b"other", Operator::StringEqual, b"x");
        assert_eq!(query.words(b"text"), ["red", "green apple", "a", "b"]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in proptest::collection::vec(any::<u8>(), 0..60), width in 0usize..20) {
            let kwic = Kwic { width, lead: true, ..Kwic::default() };
            kwic.snippets(&text, &["a".into(), "b ".into()]);
        }
    }
}
