//! Patterns of keys: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a byte that stands for itself.

use super::Failed;
use memchr::memmem;

/// Longest pattern, in bytes: a match takes up to as many steps for each byte of a key.
const PATTERN_BYTES_MAX: usize = 1024;

/// Fails for a pattern that is too long.
pub(super) fn check(pattern: &[u8]) -> Result<(), Failed> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err("ERR a pattern is at most 1024 bytes long".into());
    }
    Ok(())
}

/// Returns whether a pattern matches all of `text`. Takes time of at most the length of the
/// pattern, and [`steps`] for each byte of the text.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (head, mut rest) = Part::first(pattern);
    if !head.is_at(text, 0) {
        return false;
    }
    let mut left = &text[head.length..];
    loop {
        let Some(pattern) = rest else { return left.is_empty() };
        let (part, next) = Part::first(pattern);
        if next.is_none() {
            // The last one is at the end.
            return left.len().checked_sub(part.length).is_some_and(|at| part.is_at(left, at));
        }
        let Some(at) = part.find(left) else { return false };
        left = &left[at + part.length..];
        rest = next;
    }
}

/// Returns the steps that a match takes at most for each byte of the text.
pub(super) fn steps(pattern: &[u8]) -> usize {
    let (mut most, mut rest) = (1, Part::first(pattern).1);
    while let Some(pattern) = rest {
        let (part, next) = Part::first(pattern);
        if next.is_some() && !part.is_literal {
            most = most.max(part.bytes.len());
        }
        rest = next;
    }
    most
}

/// A part of a pattern that has no star.
struct Part<'p> {
    bytes: &'p [u8],
    /// Number of bytes that it matches.
    length: usize,
    /// Whether it matches itself alone.
    is_literal: bool,
}

impl<'p> Part<'p> {
    /// Returns the part before the first star, and the pattern after that star.
    fn first(pattern: &'p [u8]) -> (Self, Option<&'p [u8]>) {
        let (mut at, mut length, mut is_literal) = (0, 0, true);
        while let Some(byte) = pattern.get(at).filter(|byte| **byte != b'*') {
            is_literal &= !b"?[\\".contains(byte);
            at = match (byte, pattern.get(at + 1)) {
                (b'\\', Some(_)) => at + 2,
                (b'[', _) => set(pattern, at + 1, 0).1,
                _ => at + 1,
            };
            length += 1;
        }
        (Self { bytes: &pattern[..at], length, is_literal }, pattern.get(at + 1..))
    }

    /// Returns whether it matches the text at a place.
    fn is_at(&self, text: &[u8], at: usize) -> bool {
        let Some(text) = text.get(at..).and_then(|text| text.get(..self.length)) else {
            return false;
        };
        if self.is_literal {
            return self.bytes == text;
        }
        let step = |at, byte: &u8| one(self.bytes, at, *byte);
        text.iter().try_fold(0, step).is_some()
    }

    /// Returns the first place in the text that it matches.
    fn find(&self, text: &[u8]) -> Option<usize> {
        if self.is_literal {
            return memmem::find(text, self.bytes);
        }
        (0..=text.len().checked_sub(self.length)?).find(|at| self.is_at(text, *at))
    }
}

/// Returns the place in the pattern after the part at `at`, if that matches a byte.
fn one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match (pattern.get(at)?, pattern.get(at + 1)) {
        (b'?', _) => Some(at + 1),
        (b'\\', Some(next)) => (*next == byte).then_some(at + 2),
        (b'[', _) => {
            let (is_in, next) = set(pattern, at + 1, byte);
            is_in.then_some(next)
        }
        (other, _) => (*other == byte).then_some(at + 1),
    }
}

/// Returns whether a byte is in the set that begins at `at`, and the place after the set. As in
/// Redis, the end of the pattern ends a set.
fn set(pattern: &[u8], mut at: usize, byte: u8) -> (bool, usize) {
    let is_inverted = pattern.get(at) == Some(&b'^');
    at += usize::from(is_inverted);
    let mut is_in = false;
    loop {
        match (pattern.get(at), pattern.get(at + 1), pattern.get(at + 2)) {
            (None, ..) => return (is_in != is_inverted, at),
            (Some(b']'), ..) => return (is_in != is_inverted, at + 1),
            (Some(b'\\'), Some(next), _) => {
                is_in |= *next == byte;
                at += 2;
            }
            (Some(first), Some(b'-'), Some(last)) => {
                is_in |= (*first.min(last)..=*first.max(last)).contains(&byte);
                at += 3;
            }
            (Some(first), ..) => {
                is_in |= *first == byte;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_as_in_redis() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("*a*b*", "xxayybzz", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[a", "a", true),
            ("a\\", "a\\", true),
            ("[\\]]", "]", true),
            ("a", "", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    /// The definition: a star takes nothing, or one byte more.
    fn matches_by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.first(), text.first()) {
            (None, _) => text.is_empty(),
            (Some(b'*'), None) => matches_by_definition(&pattern[1..], text),
            (Some(b'*'), Some(_)) => {
                matches_by_definition(&pattern[1..], text)
                    || matches_by_definition(pattern, &text[1..])
            }
            (Some(_), None) => false,
            (Some(_), Some(byte)) => one(pattern, 0, *byte)
                .is_some_and(|next| matches_by_definition(&pattern[next..], &text[1..])),
        }
    }

    /// Returns all strings of up to `length` bytes of an alphabet.
    fn all(alphabet: &[u8], length: u32) -> Vec<Vec<u8>> {
        let mut strings = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..length {
            let longer: Vec<_> = strings[from..]
                .iter()
                .flat_map(|start| alphabet.iter().map(|byte| [start, &[*byte][..]].concat()))
                .collect();
            from = strings.len();
            strings.extend(longer);
        }
        strings
    }

    #[test]
    fn every_short_pattern_matches_as_it_is_defined() {
        let texts = all(b"ab*", 4);
        for pattern in all(b"ab*?\\[]^", 4).into_iter().chain(all(b"a*b?", 6)) {
            for text in &texts {
                let expected = matches_by_definition(&pattern, text);
                assert_eq!(matches(&pattern, text), expected, "{pattern:?} {text:?}");
            }
        }
    }

    #[test]
    fn a_match_takes_steps_for_each_byte_only_for_bytes_of_many_forms_between_stars() {
        let long = "a".repeat(1000);
        for (pattern, expected) in [
            (String::new(), 1),
            (format!("{long}*"), 1),
            (format!("*{long}"), 1),
            (format!("*{long}*{long}*b"), 1),
            (format!("?[ab]*{long}?[ab]"), 1),
            (format!("*{long}?*"), 1001),
            ("*a?*[abc]*\\*b*".into(), 5),
        ] {
            assert_eq!(steps(pattern.as_bytes()), expected, "{pattern}");
        }
    }
    #[test]
    fn a_pattern_of_many_stars_ends() {
        let pattern = "a*".repeat(1000) + "b";
        assert!(!matches(pattern.as_bytes(), &[b'a'; 10_000]));
    }
}
