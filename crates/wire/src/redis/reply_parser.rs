//! Parser of replies of version 2, for clients.

use super::parse::{Line, number_line};
use crate::limits::{
    REDIS_LINE_BYTES_MAX, REDIS_REPLIES_MAX, REDIS_REPLY_DEPTH_MAX, REDIS_STRING_BYTES_MAX,
};
use crate::{Invalid, Parse};
use memchr::memchr;

/// Least bytes of a reply.
const REPLY_BYTES_MIN: usize = b"+\r\n".len();

/// Reply, borrowed from the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'i> {
    /// A short text.
    Simple(&'i [u8]),
    /// An error: a code in capitals and a text.
    Error(&'i [u8]),
    /// A number.
    Integer(i64),
    /// A string of any bytes.
    String(&'i [u8]),
    /// A string over the limit. So many bytes of it and two more for the end of the line follow.
    Oversized(usize),
    /// The absence of a string or an array.
    Null,
    /// An array.
    Array(Replies<'i>),
}

/// Replies of an array in order, at most [`REDIS_REPLIES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replies<'i> {
    count: usize,
    bytes: &'i [u8],
}

impl<'i> Replies<'i> {
    /// Returns the replies if there are exactly `N`.
    pub fn exactly<const N: usize>(mut self) -> Option<[Reply<'i>; N]> {
        (self.count == N).then(|| std::array::from_fn(|_| self.next().unwrap_or(Reply::Null)))
    }
}

impl<'i> Iterator for Replies<'i> {
    type Item = Reply<'i>;

    fn next(&mut self) -> Option<Reply<'i>> {
        self.count = self.count.checked_sub(1)?;
        // All of it was parsed before, within the limits.
        let parsed = parse_nested(self.bytes, usize::MAX, REDIS_REPLY_DEPTH_MAX);
        let Parse::Complete(reply, length) = parsed else { return None };
        self.bytes = self.bytes.get(length..)?;
        Some(reply)
    }
}

/// Parses the reply at the start of `input`. A string of more than `string_bytes_max` bytes is
/// [`Reply::Oversized`], and within an array an error.
pub fn parse_reply(input: &[u8], string_bytes_max: usize) -> Parse<Reply<'_>> {
    parse_nested(input, string_bytes_max, REDIS_REPLY_DEPTH_MAX)
}

fn parse_nested(input: &[u8], string_bytes_max: usize, depth: usize) -> Parse<Reply<'_>> {
    match input.first() {
        None => Parse::Incomplete(REPLY_BYTES_MIN),
        Some(b'+') => text_line(input).map(Reply::Simple),
        Some(b'-') => text_line(input).map(Reply::Error),
        Some(b':') => parse_integer(input),
        Some(b'$') if input.get(1) == Some(&b'-') => parse_null(input),
        Some(b'$') => parse_string(input, string_bytes_max),
        Some(b'*') if input.get(1) == Some(&b'-') => parse_null(input),
        Some(b'*') => parse_array(input, string_bytes_max, depth),
        Some(_) => Parse::Invalid(Invalid::UnknownCommand),
    }
}

/// Parses the text from the second byte to the end of the line.
fn text_line(input: &[u8]) -> Parse<&[u8]> {
    let Some(line_feed) = memchr(b'\n', &input[..input.len().min(REDIS_LINE_BYTES_MAX)]) else {
        return match input.len() < REDIS_LINE_BYTES_MAX {
            true => Parse::Incomplete(input.len() + 1),
            false => Parse::Invalid(Invalid::TooLarge),
        };
    };
    match input[1..line_feed].strip_suffix(b"\r") {
        Some(text) => Parse::Complete(text, line_feed + 1),
        None => Parse::Invalid(Invalid::BadParameters),
    }
}

fn parse_integer(input: &[u8]) -> Parse<Reply<'_>> {
    let (text, length) = match text_line(input) {
        Parse::Complete(text, length) => (text, length),
        Parse::Incomplete(needed) => return Parse::Incomplete(needed),
        Parse::Invalid(invalid) => return Parse::Invalid(invalid),
    };
    match std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
        Some(number) => Parse::Complete(Reply::Integer(number), length),
        None => Parse::Invalid(Invalid::BadParameters),
    }
}

/// Parses a length of -1.
fn parse_null(input: &[u8]) -> Parse<Reply<'_>> {
    match number_line(input, 2) {
        Line::Number(1, length) => Parse::Complete(Reply::Null, length),
        Line::Incomplete => Parse::Incomplete(input.len() + 1),
        Line::Number(..) | Line::Invalid => Parse::Invalid(Invalid::BadParameters),
    }
}

fn parse_string(input: &[u8], string_bytes_max: usize) -> Parse<Reply<'_>> {
    let (length, start) = match number_line(input, 1) {
        Line::Number(length, start) if length <= REDIS_STRING_BYTES_MAX => (length, start),
        Line::Number(..) => return Parse::Invalid(Invalid::TooLarge),
        Line::Incomplete => return Parse::Incomplete(input.len() + 1),
        Line::Invalid => return Parse::Invalid(Invalid::BadParameters),
    };
    if length > string_bytes_max {
        return Parse::Complete(Reply::Oversized(length), start);
    }
    let end = start + length;
    match input.get(end..end + 2) {
        Some(b"\r\n") => Parse::Complete(Reply::String(&input[start..end]), end + 2),
        Some(_) => Parse::Invalid(Invalid::BadParameters),
        None => Parse::Incomplete(end + 2),
    }
}

fn parse_array(input: &[u8], string_bytes_max: usize, depth: usize) -> Parse<Reply<'_>> {
    let (count, first) = match number_line(input, 1) {
        Line::Number(count, first) if count <= REDIS_REPLIES_MAX && depth > 0 => (count, first),
        Line::Number(..) => return Parse::Invalid(Invalid::TooLarge),
        Line::Incomplete => return Parse::Incomplete(input.len() + 1),
        Line::Invalid => return Parse::Invalid(Invalid::BadParameters),
    };
    let mut at = first;
    for left in (0..count).rev() {
        match parse_nested(&input[at..], string_bytes_max, depth - 1) {
            Parse::Complete(Reply::Oversized(_), _) => return Parse::Invalid(Invalid::TooLarge),
            Parse::Complete(_, length) => at += length,
            Parse::Incomplete(needed) => {
                return Parse::Incomplete(at + needed + left * REPLY_BYTES_MIN);
            }
            Parse::Invalid(invalid) => return Parse::Invalid(invalid),
        }
    }
    Parse::Complete(Reply::Array(Replies { count, bytes: &input[first..at] }), at)
}
