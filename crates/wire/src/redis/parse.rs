//! Parser of requests.

use super::quotes::is_quote;
use super::{Command, Content, Malformed, Request, reply};
use crate::Parse;
use crate::limits::{REDIS_LINE_BYTES_MAX, REDIS_STRING_BYTES_MAX, REDIS_STRINGS_MAX};
use memchr::memchr;

/// Most bytes of a line with a number: its sign, ten digits and the line end, with room to spare.
const NUMBER_LINE_BYTES_MAX: usize = 32;

/// Least bytes of a string, with its length and line ends.
const STRING_BYTES_MIN: usize = b"$0\r\n\r\n".len();

/// Names that begin a line of words, before which no array has come.
const LINES: [&[u8]; 7] = [b"PING", b"ECHO", b"AUTH", b"HELLO", b"INFO", b"COMMAND", b"QUIT"];

/// Returns whether a line, without its line feed, begins a request: `*N`, or a name in capitals, or
/// `ping` alone.
pub(crate) fn is_request(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if let [b'*', digits @ ..] = line {
        let digits = digits.strip_prefix(b"-").unwrap_or(digits);
        return !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    }
    let name = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    LINES.contains(&name) || line.eq_ignore_ascii_case(b"PING")
}

/// Parses the request at the start of `input`.
pub fn parse(input: &[u8]) -> Parse<Request<'_>> {
    parse_resuming(input, &mut Progress::default())
}

/// Progress in an incomplete request: the strings that are whole. It is set back for the next
/// request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of strings that are whole.
    whole: usize,
    /// Place after them, in bytes.
    at: usize,
}

/// Parses as [`parse`] does, and does not read again what it has read of the same request before.
pub fn parse_resuming<'i>(input: &'i [u8], progress: &mut Progress) -> Parse<Request<'i>> {
    match input.first() {
        Some(b'*') => parse_array(input, progress),
        _ => parse_line(input),
    }
}

/// Appends a request as an array.
pub fn append_request(out: &mut Vec<u8>, name: &[u8], arguments: Arguments<'_>) {
    reply::array(out, arguments.len() + 1);
    reply::string(out, name);
    arguments.iter().for_each(|argument| reply::string(out, argument));
}

/// Strings of a request in order, at most [`REDIS_STRINGS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arguments<'i> {
    count: usize,
    bytes: &'i [u8],
    /// Whether they are words of a line.
    are_words: bool,
}

impl<'i> Arguments<'i> {
    /// No strings.
    pub const NONE: Self = Self { count: 0, bytes: b"", are_words: false };

    /// Returns the number of strings.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the strings in order.
    #[inline]
    pub fn iter(&self) -> ArgumentsIter<'i> {
        ArgumentsIter(*self)
    }

    /// Returns the first `N` strings and those after them, if there are as many.
    #[inline]
    pub fn split<const N: usize>(&self) -> Option<([&'i [u8]; N], ArgumentsIter<'i>)> {
        let mut strings = self.iter();
        let first = std::array::from_fn(|_| strings.next().unwrap_or_default());
        (self.count >= N).then_some((first, strings))
    }

    /// Returns the strings if there are exactly `N`.
    #[inline]
    pub fn exactly<const N: usize>(&self) -> Option<[&'i [u8]; N]> {
        let mut strings = self.iter();
        (self.count == N).then(|| std::array::from_fn(|_| strings.next().unwrap_or_default()))
    }
}

/// Iterator over [`Arguments`].
#[derive(Clone, Debug)]
pub struct ArgumentsIter<'i>(Arguments<'i>);

impl<'i> ArgumentsIter<'i> {
    /// Returns the strings that are left.
    pub fn rest(&self) -> Arguments<'i> {
        self.0
    }
}

impl<'i> Iterator for ArgumentsIter<'i> {
    type Item = &'i [u8];

    #[inline]
    fn next(&mut self) -> Option<&'i [u8]> {
        let left = &mut self.0;
        left.count = left.count.checked_sub(1)?;
        if left.are_words {
            return next_word(&mut left.bytes);
        }
        // All of it was parsed before.
        let Line::Number(length, start) = number_line(left.bytes, 1) else { return None };
        let string = left.bytes.get(start..start + length)?;
        left.bytes = left.bytes.get(start + length + 2..).unwrap_or_default();
        Some(string)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.count, Some(self.0.count))
    }
}

impl ExactSizeIterator for ArgumentsIter<'_> {}

/// Returns whether a byte separates words.
pub(super) fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Returns whether a byte ends a word that has begun; as in Redis, fewer do.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Returns a line from its first word on.
pub(super) fn skip_spaces(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|byte| !is_space(*byte));
    &line[start.unwrap_or(line.len())..]
}

pub(super) fn next_word<'i>(line: &mut &'i [u8]) -> Option<&'i [u8]> {
    let rest = skip_spaces(line);
    let end = rest.iter().position(|byte| ends_word(*byte)).unwrap_or(rest.len());
    let (word, rest) = rest.split_at(end);
    *line = rest;
    (!word.is_empty()).then_some(word)
}

/// A line with a number.
pub(super) enum Line {
    /// The number, and where the next line begins.
    Number(usize, usize),
    Incomplete,
    Invalid,
}

/// Parses the number from byte `at` to the end of its line.
#[inline]
pub(super) fn number_line(input: &[u8], at: usize) -> Line {
    let mut number = 0_usize;
    for (place, byte) in input[at..].iter().take(NUMBER_LINE_BYTES_MAX).enumerate() {
        match byte {
            // As in Redis, a number has no leading zeros.
            b'0'..=b'9' if place == 1 && number == 0 => return Line::Invalid,
            b'0'..=b'9' => {
                let sum = number.checked_mul(10);
                let sum = sum.and_then(|sum| sum.checked_add(usize::from(byte - b'0')));
                let Some(sum) = sum else { return Line::Invalid };
                number = sum;
            }
            b'\r' if place > 0 => {
                return match input.get(at + place + 1) {
                    Some(b'\n') => Line::Number(number, at + place + 2),
                    Some(_) => Line::Invalid,
                    None => Line::Incomplete,
                };
            }
            _ => return Line::Invalid,
        }
    }
    if input.len() - at < NUMBER_LINE_BYTES_MAX { Line::Incomplete } else { Line::Invalid }
}

fn parse_array<'i>(input: &'i [u8], progress: &mut Progress) -> Parse<Request<'i>> {
    if input.get(1) == Some(&b'-') {
        return parse_negative(input);
    }
    let (count, first) = match number_line(input, 1) {
        Line::Number(count, first) if count <= REDIS_STRINGS_MAX => (count, first),
        Line::Incomplete => return Parse::Incomplete(input.len() + 1),
        Line::Number(..) | Line::Invalid => return malformed(Malformed::ArrayLength, input),
    };
    let Some(others) = count.checked_sub(1) else {
        return Parse::Complete(Request::of(Content::Nothing), first);
    };
    let mut at = progress.at.max(first);
    for left in (0..count - progress.whole.min(count)).rev() {
        // The strings after this one take at least so much.
        let least = left * STRING_BYTES_MIN;
        match input.get(at) {
            Some(b'$') => {}
            None => return Parse::Incomplete(at + STRING_BYTES_MIN + least),
            Some(other) => return malformed(Malformed::NoString(*other), input),
        }
        let (length, start) = match number_line(input, at + 1) {
            Line::Number(length, start) if length <= REDIS_STRING_BYTES_MAX => (length, start),
            Line::Incomplete => return Parse::Incomplete((input.len() + 1).max(at + least)),
            Line::Number(..) | Line::Invalid => return malformed(Malformed::StringLength, input),
        };
        // Two bytes end the string; as in Redis, any two.
        let end = start + length + 2;
        if input.len() < end {
            return Parse::Incomplete(end + least);
        }
        at = end;
        *progress = Progress { whole: count - left, at };
    }
    let mut strings = Arguments { count, bytes: &input[first..at], are_words: false }.iter();
    let name = strings.next().unwrap_or_default();
    debug_assert_eq!(strings.len(), others, "the name is one of the strings");
    Parse::Complete(Request::named(name, strings.rest()), at)
}

/// Parses an array of a negative length, which is none.
fn parse_negative(input: &[u8]) -> Parse<Request<'_>> {
    match number_line(input, 2) {
        Line::Number(1.., end) => Parse::Complete(Request::of(Content::Nothing), end),
        Line::Incomplete => Parse::Incomplete(input.len() + 1),
        Line::Number(..) | Line::Invalid => malformed(Malformed::ArrayLength, input),
    }
}

fn parse_line(input: &[u8]) -> Parse<Request<'_>> {
    let Some(line_feed) = memchr(b'\n', &input[..input.len().min(REDIS_LINE_BYTES_MAX)]) else {
        return match input.len() < REDIS_LINE_BYTES_MAX {
            true => Parse::Incomplete(input.len() + 1),
            false => malformed(Malformed::LineLength, input),
        };
    };
    let mut line = &input[..line_feed];
    if line.iter().any(|byte| is_quote(*byte)) {
        let request = Request { name: line, ..Request::of_line(Content::Quoted) };
        return Parse::Complete(request, line_feed + 1);
    }
    let Some(name) = next_word(&mut line) else {
        return Parse::Complete(Request::of_line(Content::Nothing), line_feed + 1);
    };
    let (mut words, mut count) = (line, 0);
    while next_word(&mut words).is_some() {
        count += 1;
    }
    let arguments = Arguments { count, bytes: line, are_words: true };
    Parse::Complete(Request::named(name, arguments), line_feed + 1)
}

fn malformed<'i>(reason: Malformed, input: &'i [u8]) -> Parse<Request<'i>> {
    Parse::Complete(Request::of(Content::Malformed(reason)), input.len())
}

impl<'i> Request<'i> {
    fn of(content: Content) -> Self {
        Self { content, name: b"", arguments: Arguments::NONE }
    }

    fn of_line(content: Content) -> Self {
        let arguments = Arguments { are_words: true, ..Arguments::NONE };
        Self { content, name: b"", arguments }
    }

    /// Returns whether the request is a line of words, and not an array.
    #[inline]
    pub fn is_line(&self) -> bool {
        self.arguments.are_words
    }

    #[inline]
    fn named(name: &'i [u8], arguments: Arguments<'i>) -> Self {
        let content = Command::of_name(name).map_or(Content::Unknown, Content::Command);
        Self { content, name, arguments }
    }
}
