//! Help while a line is typed: colours, hints, and completion of commands, options and keys.

use super::vocabulary::{Expected, Vocabulary};
use super::words;
use crate::paint::Tone;
use crate::remote::Server;
use cabinet::name::Kind;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Helper};
use std::borrow::Cow;
use std::rc::Rc;

/// Most keys that are proposed.
const KEYS_MAX: usize = 50;

/// Most records of a database without an order that are searched for keys.
const SEARCHED_RECORDS_MAX: u64 = 1_000_000;

/// Helper of the editor.
pub(super) struct Assistant {
    vocabulary: Vocabulary,
    server: Rc<Server>,
    has_colours: bool,
}

impl Assistant {
    pub(super) fn new(parser: &clap::Command, server: &Rc<Server>, has_colours: bool) -> Self {
        let vocabulary = Vocabulary::of(parser);
        Self { vocabulary, server: Rc::clone(server), has_colours }
    }

    pub(super) fn set_server(&mut self, server: &Rc<Server>) {
        self.server = Rc::clone(server);
    }

    /// Returns keys that begin with a word, as words. There are none if the search for them would
    /// take long, or the server does not allow it.
    fn keys(&self, word: &str) -> Vec<String> {
        let prefix = match words::split(word.as_bytes()).as_deref() {
            Ok([]) => Vec::new(),
            Ok([prefix]) => prefix.clone(),
            _ => return Vec::new(),
        };
        let is_ordered = matches!(self.server.kind(), Some(Kind::Tree | Kind::MemoryTree));
        let is_small = || self.server.count().is_ok_and(|count| count <= SEARCHED_RECORDS_MAX);
        if self.server.is_broken() || !(is_ordered || is_small()) {
            return Vec::new();
        }
        let mut keys = self.server.keys_with_prefix(&prefix, Some(KEYS_MAX)).unwrap_or_default();
        keys.sort();
        keys.iter().map(|key| words::quoted(key)).collect()
    }
}

impl Helper for Assistant {}

impl Validator for Assistant {}

impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, _position: usize) -> Cow<'l, str> {
        let start = line.len() - line.trim_start().len();
        let end = line[start..].find(char::is_whitespace).map_or(line.len(), |blank| start + blank);
        match self.vocabulary.has(&line[start..end]) {
            true => {
                let command = Tone::Label.paint(&line[start..end], self.has_colours);
                Cow::Owned(format!("{}{command}{}", &line[..start], &line[end..]))
            }
            false => Cow::Borrowed(line),
        }
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(Tone::Faint.paint(hint, self.has_colours))
    }

    fn highlight_candidate<'c>(
        &self,
        candidate: &'c str,
        _completion: CompletionType,
    ) -> Cow<'c, str> {
        Cow::Borrowed(candidate)
    }

    fn highlight_char(&self, _line: &str, _position: usize, kind: CmdKind) -> bool {
        kind != CmdKind::MoveCursor
    }
}

impl Hinter for Assistant {
    type Hint = String;

    fn hint(
        &self,
        line: &str,
        position: usize,
        _context: &rustyline::Context<'_>,
    ) -> Option<String> {
        // Without colours a hint looks as if it was typed.
        let is_shown = self.has_colours && position == line.len();
        if is_shown { self.vocabulary.hint(line) } else { None }
    }
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let line = line.get(..position).unwrap_or(line);
        let (start, expected) = self.vocabulary.expected(line);
        let word = &line[start..];
        let words = match expected {
            Expected::Names(names) => names.into_iter().map(str::to_owned).collect(),
            Expected::Key => self.keys(word),
            Expected::Other => Vec::new(),
        };
        Ok((start, candidates(words, word)))
    }
}

/// Returns the candidates for a word. As many as there may be do not complete it, because others
/// may continue it in another way.
fn candidates(words: Vec<String>, word: &str) -> Vec<Pair> {
    let are_all = words.len() < KEYS_MAX;
    let pair = |word: String| Pair { replacement: format!("{word} "), display: word };
    let others = Pair { display: "...".to_owned(), replacement: word.to_owned() };
    words.into_iter().map(pair).chain((!are_all).then_some(others)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_not_completed_from_a_part_of_the_candidates() {
        for (count, expected) in [(KEYS_MAX - 1, "bench:1"), (KEYS_MAX, "be")] {
            let words = (0..count).map(|number| format!("bench:1{number}")).collect();
            let candidates = candidates(words, "be");
            let common = rustyline::completion::longest_common_prefix(&candidates);
            assert_eq!(common, Some(expected));
        }
    }
}
