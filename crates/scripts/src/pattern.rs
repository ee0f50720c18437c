//! Patterns of Lua 5.1, with a limit of steps and a deadline.
//!
//! Lua's own functions search in C, where no hook of the interpreter fires: a pattern that
//! backtracks would hold a thread for ever. The results and the error messages are those of Lua
//! 5.1. As there, a pattern ends at its first zero byte; `%z` stands for a zero byte.

use crate::clock::Exceeded;
use crate::context::Context;
use crate::limits::PATTERN_LEVELS_MAX;
use std::time::Instant;

/// Captures of a pattern.
const CAPTURES_MAX: usize = 32;

const ESCAPE: u8 = b'%';

/// Steps between two looks at the clock.
const STEPS_PER_CHECK: u64 = 10_000;

/// Reason why a search failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatternError {
    #[error("{0}")]
    Malformed(&'static str),
    #[error("the search for a pattern takes more steps than its limit")]
    Steps,
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
}

type Result<T> = std::result::Result<T, PatternError>;

/// Steps that the searches of one function may take. A step looks at one byte of the pattern: to
/// compare a byte with a set takes as many as the set has bytes.
pub(crate) struct Steps<'c> {
    left: u64,
    context: &'c Context,
}

impl<'c> Steps<'c> {
    pub(crate) fn new(context: &'c Context) -> Self {
        Self { left: context.limits().pattern_steps, context }
    }

    fn take(&mut self, steps: u64) -> Result<()> {
        let before = self.left;
        self.left = before.checked_sub(steps).ok_or(PatternError::Steps)?;
        if before / STEPS_PER_CHECK != self.left / STEPS_PER_CHECK {
            let now = Instant::now();
            self.context.records.leave_loop_if_late(now);
            self.context.clock.check(now)?;
        }
        Ok(())
    }
}

/// A captured part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Captured {
    /// The bytes from a position to another.
    Text(usize, usize),
    /// A position, from 1 on.
    Position(usize),
}

#[derive(Clone, Copy)]
enum Length {
    Unfinished,
    Position,
    Bytes(usize),
}

#[derive(Clone, Copy)]
struct Capture {
    start: usize,
    length: Length,
}

/// Returns whether a pattern stands for itself.
pub(crate) fn is_plain(pattern: &[u8]) -> bool {
    !until_zero(pattern).iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

/// Splits the anchor off a pattern, if it has one.
pub(crate) fn split_anchor(pattern: &[u8]) -> (bool, &[u8]) {
    match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    }
}

fn until_zero(pattern: &[u8]) -> &[u8] {
    &pattern[..memchr::memchr(0, pattern).unwrap_or(pattern.len())]
}

/// A pattern and the text in which it is searched.
pub(crate) struct Matcher<'t, 's, 'c> {
    text: &'t [u8],
    pattern: &'t [u8],
    captures: [Capture; CAPTURES_MAX],
    level: usize,
    depth: usize,
    steps: &'s mut Steps<'c>,
}

impl<'t, 's, 'c> Matcher<'t, 's, 'c> {
    pub(crate) fn new(text: &'t [u8], pattern: &'t [u8], steps: &'s mut Steps<'c>) -> Self {
        let unused = Capture { start: 0, length: Length::Unfinished };
        let pattern = until_zero(pattern);
        Self { text, pattern, captures: [unused; CAPTURES_MAX], level: 0, depth: 0, steps }
    }

    /// Returns the end of the match that begins at `start`, if there is one.
    pub(crate) fn match_at(&mut self, start: usize) -> Result<Option<usize>> {
        self.level = 0;
        self.depth = 0;
        self.step(start, 0)
    }

    /// Returns the first match from `start` on, as its beginning and end.
    pub(crate) fn search(
        &mut self,
        start: usize,
        anchored: bool,
    ) -> Result<Option<(usize, usize)>> {
        for start in start..=self.text.len() {
            if let Some(end) = self.match_at(start)? {
                return Ok(Some((start, end)));
            }
            if anchored {
                break;
            }
        }
        Ok(None)
    }

    /// Returns the number of captures of the last match; the whole match counts if there are none.
    pub(crate) fn captures_or_whole(&self) -> usize {
        self.level.max(1)
    }

    /// Returns the number of captures of the last match.
    pub(crate) fn captures(&self) -> usize {
        self.level
    }

    /// Returns a capture of the last match, which is from `start` to `end`.
    pub(crate) fn capture(&self, index: usize, start: usize, end: usize) -> Result<Captured> {
        if index >= self.level {
            return match index {
                0 => Ok(Captured::Text(start, end)),
                _ => Err(PatternError::Malformed("invalid capture index")),
            };
        }
        let Capture { start, length } = self.captures[index];
        match length {
            Length::Unfinished => Err(PatternError::Malformed("unfinished capture")),
            Length::Position => Ok(Captured::Position(start + 1)),
            Length::Bytes(bytes) => Ok(Captured::Text(start, start + bytes)),
        }
    }

    /// Matches the rest of the pattern one level deeper.
    fn deeper(&mut self, at: usize, pattern: usize) -> Result<Option<usize>> {
        if self.depth == PATTERN_LEVELS_MAX {
            return Err(PatternError::Malformed("pattern too complex"));
        }
        self.depth += 1;
        let end = self.step(at, pattern)?;
        self.depth -= 1;
        Ok(end)
    }

    /// Matches the pattern from `pattern` on with the text from `at` on.
    fn step(&mut self, mut at: usize, mut pattern: usize) -> Result<Option<usize>> {
        loop {
            self.steps.take(1)?;
            let Some(&first) = self.pattern.get(pattern) else { return Ok(Some(at)) };
            let second = self.pattern.get(pattern + 1).copied();
            match (first, second) {
                (b'(', Some(b')')) => {
                    return self.begin_capture(at, pattern + 2, Length::Position);
                }
                (b'(', _) => return self.begin_capture(at, pattern + 1, Length::Unfinished),
                (b')', _) => return self.end_capture(at, pattern + 1),
                (b'$', None) => return Ok((at == self.text.len()).then_some(at)),
                (ESCAPE, Some(b'b')) => match self.balance(at, pattern + 2)? {
                    Some(end) => {
                        at = end;
                        pattern += 4;
                    }
                    None => return Ok(None),
                },
                (ESCAPE, Some(b'f')) => {
                    let class = pattern + 2;
                    if self.pattern.get(class) != Some(&b'[') {
                        return malformed("missing '[' after '%f' in pattern");
                    }
                    let end = self.class_end(class)?;
                    self.steps.take(2 * (end - class) as u64)?;
                    let before = if at == 0 { 0 } else { self.text[at - 1] };
                    let after = self.text.get(at).copied().unwrap_or(0);
                    if self.is_in_set(before, class, end - 1)
                        || !self.is_in_set(after, class, end - 1)
                    {
                        return Ok(None);
                    }
                    pattern = end;
                }
                (ESCAPE, Some(digit)) if digit.is_ascii_digit() => {
                    match self.same_as_capture(at, digit)? {
                        Some(end) => {
                            at = end;
                            pattern += 2;
                        }
                        None => return Ok(None),
                    }
                }
                _ => {
                    let end = self.class_end(pattern)?;
                    self.steps.take((end - pattern) as u64)?;
                    let is_match = self.is_single(at, pattern, end);
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if is_match && let Some(end) = self.deeper(at + 1, end + 1)? {
                                return Ok(Some(end));
                            }
                            pattern = end + 1;
                        }
                        Some(b'*') => return self.most(at, pattern, end),
                        Some(b'+') if is_match => return self.most(at + 1, pattern, end),
                        Some(b'-') => return self.fewest(at, pattern, end),
                        Some(b'+') => return Ok(None),
                        _ if !is_match => return Ok(None),
                        _ => {
                            at += 1;
                            pattern = end;
                        }
                    }
                }
            }
        }
    }

    fn most(&mut self, at: usize, pattern: usize, end: usize) -> Result<Option<usize>> {
        let mut count = 0;
        while self.is_single(at + count, pattern, end) {
            self.steps.take((end - pattern) as u64)?;
            count += 1;
        }
        loop {
            if let Some(end) = self.deeper(at + count, end + 1)? {
                return Ok(Some(end));
            }
            let Some(less) = count.checked_sub(1) else { return Ok(None) };
            count = less;
        }
    }

    fn fewest(&mut self, mut at: usize, pattern: usize, end: usize) -> Result<Option<usize>> {
        loop {
            if let Some(end) = self.deeper(at, end + 1)? {
                return Ok(Some(end));
            }
            self.steps.take((end - pattern) as u64)?;
            if !self.is_single(at, pattern, end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn begin_capture(
        &mut self,
        at: usize,
        pattern: usize,
        length: Length,
    ) -> Result<Option<usize>> {
        if self.level == CAPTURES_MAX {
            return malformed("too many captures");
        }
        self.captures[self.level] = Capture { start: at, length };
        self.level += 1;
        let end = self.deeper(at, pattern)?;
        if end.is_none() {
            self.level -= 1;
        }
        Ok(end)
    }

    fn end_capture(&mut self, at: usize, pattern: usize) -> Result<Option<usize>> {
        let is_open = |capture: &Capture| matches!(capture.length, Length::Unfinished);
        let Some(index) = self.captures[..self.level].iter().rposition(is_open) else {
            return malformed("invalid pattern capture");
        };
        self.captures[index].length = Length::Bytes(at - self.captures[index].start);
        let end = self.deeper(at, pattern)?;
        if end.is_none() {
            self.captures[index].length = Length::Unfinished;
        }
        Ok(end)
    }

    /// Matches a back reference. Returns its end.
    fn same_as_capture(&mut self, at: usize, digit: u8) -> Result<Option<usize>> {
        let index = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let (start, bytes) = match self.captures[..self.level].get(index) {
            None | Some(Capture { length: Length::Unfinished, .. }) => {
                return malformed("invalid capture index");
            }
            Some(Capture { length: Length::Position, .. }) => return Ok(None),
            Some(Capture { start, length: Length::Bytes(bytes) }) => (*start, *bytes),
        };
        self.steps.take(bytes as u64)?;
        let captured = &self.text[start..start + bytes];
        Ok(self.text[at..].starts_with(captured).then_some(at + bytes))
    }

    /// Matches `%bxy`. Returns its end.
    fn balance(&mut self, at: usize, pattern: usize) -> Result<Option<usize>> {
        let &[begin, end, ..] = &self.pattern[pattern..] else {
            return malformed("unbalanced pattern");
        };
        if self.text.get(at) != Some(&begin) {
            return Ok(None);
        }
        let mut open = 1;
        let rest = &self.text[at + 1..];
        for (offset, &byte) in rest.iter().enumerate() {
            if byte == end {
                open -= 1;
                if open == 0 {
                    self.steps.take(offset as u64)?;
                    return Ok(Some(at + offset + 2));
                }
            } else if byte == begin {
                open += 1;
            }
        }
        self.steps.take(rest.len() as u64)?;
        Ok(None)
    }

    /// Returns the end of the class that begins at `pattern`.
    fn class_end(&self, pattern: usize) -> Result<usize> {
        match self.pattern[pattern] {
            ESCAPE if pattern + 1 == self.pattern.len() => {
                malformed("malformed pattern (ends with '%')")
            }
            ESCAPE => Ok(pattern + 2),
            b'[' => {
                let mut at = pattern + 1;
                if self.pattern.get(at) == Some(&b'^') {
                    at += 1;
                }
                loop {
                    let Some(&byte) = self.pattern.get(at) else {
                        return malformed("malformed pattern (missing ']')");
                    };
                    at += 1;
                    if byte == ESCAPE && at < self.pattern.len() {
                        at += 1;
                    }
                    if self.pattern.get(at) == Some(&b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(pattern + 1),
        }
    }

    /// Returns whether the byte at `at` is in the class from `pattern` to `end`.
    fn is_single(&self, at: usize, pattern: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(at) else { return false };
        match self.pattern[pattern] {
            b'.' => true,
            ESCAPE => is_in_class(byte, self.pattern[pattern + 1]),
            b'[' => self.is_in_set(byte, pattern, end - 1),
            own => own == byte,
        }
    }

    /// Returns whether a byte is in the set from the bracket at `open` to the one at `close`.
    fn is_in_set(&self, byte: u8, open: usize, close: usize) -> bool {
        let mut at = open + 1;
        let is_complement = self.pattern[at] == b'^';
        if is_complement {
            at += 1;
        }
        while at < close {
            let is_member = if self.pattern[at] == ESCAPE {
                at += 1;
                is_in_class(byte, self.pattern[at])
            } else if self.pattern[at + 1] == b'-' && at + 2 < close {
                at += 2;
                (self.pattern[at - 2]..=self.pattern[at]).contains(&byte)
            } else {
                self.pattern[at] == byte
            };
            if is_member {
                return !is_complement;
            }
            at += 1;
        }
        is_complement
    }
}

fn malformed<T>(message: &'static str) -> Result<T> {
    Err(PatternError::Malformed(message))
}

/// Returns whether a byte is in the class with this letter; an upper letter is the complement.
fn is_in_class(byte: u8, class: u8) -> bool {
    let is_member = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_member != class.is_ascii_uppercase()
}
