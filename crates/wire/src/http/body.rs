//! Body of a request, of a given length or in chunks.

use std::borrow::Cow;
use std::ops::Deref;

use super::head::{Head, head};
use crate::limits::{HTTP_CHUNK_LINE_BYTES_MAX, HTTP_TRAILER_BYTES_MAX};
use crate::{Invalid, Parse, Stop};

/// Length of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// Number of bytes.
    Bytes(usize),
    /// Chunks, each after its size, up to an empty one.
    Chunked,
}

/// Complete request: a [`Head`] and a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The head, to which the request dereferences.
    pub head: Head<'a>,
    body: Body<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body<'a> {
    Plain(&'a [u8]),
    /// Well-formed chunks with their lines.
    Chunked(&'a [u8]),
}

impl<'a> Request<'a> {
    /// Returns the body. Chunks are joined into a copy.
    pub fn body(&self) -> Cow<'a, [u8]> {
        match self.body {
            Body::Plain(bytes) => Cow::Borrowed(bytes),
            Body::Chunked(bytes) => {
                let mut joined = Vec::with_capacity(chunks_of(bytes).map(<[u8]>::len).sum());
                chunks_of(bytes).for_each(|data| joined.extend_from_slice(data));
                Cow::Owned(joined)
            }
        }
    }
}

impl<'a> Deref for Request<'a> {
    type Target = Head<'a>;

    fn deref(&self) -> &Head<'a> {
        &self.head
    }
}

/// Position in a request with chunks that is not complete yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Offset of the first chunk, 0 before the head is complete.
    start: usize,
    /// Offset of the next chunk.
    position: usize,
}

/// Parses the request at the start of `bytes`.
///
/// `Incomplete` counts the announced body, so that the caller can refuse a long one early.
pub fn parse(bytes: &[u8]) -> Parse<Request<'_>> {
    parse_resuming(bytes, &mut Progress::default())
}

/// Parses a request that arrives in pieces. The head and the chunks that were parsed before are
/// skipped until a chunked body is complete, so that a body of many small chunks takes linear time.
///
/// `progress` is a new value for each request, and `bytes` begins with the same bytes each time.
pub fn parse_resuming<'a>(bytes: &'a [u8], progress: &mut Progress) -> Parse<Request<'a>> {
    let is_known = progress.start > 0;
    if is_known && let Err(stop) = chunks(bytes, progress) {
        return stop.into();
    }
    let (head, start) = match head(bytes) {
        Parse::Complete(head, start) => (head, start),
        Parse::Incomplete(needed) => return Parse::Incomplete(needed),
        Parse::Invalid(invalid) => return Parse::Invalid(invalid),
    };
    match head.body {
        BodyLength::Bytes(length) => {
            let Some(end) = start.checked_add(length) else {
                return Parse::Invalid(Invalid::TooLarge);
            };
            match bytes.get(start..end) {
                Some(body) => Parse::Complete(Request { head, body: Body::Plain(body) }, end),
                None => Parse::Incomplete(end),
            }
        }
        BodyLength::Chunked => {
            if !is_known {
                *progress = Progress { start, position: start };
            }
            match chunks(bytes, progress) {
                Ok(end) => {
                    let body = Body::Chunked(&bytes[start..progress.position]);
                    Parse::Complete(Request { head, body }, end)
                }
                Err(stop) => stop.into(),
            }
        }
    }
}

const BAD: Stop = Stop::Invalid(Invalid::BadParameters);

/// Returns the end of the trailer. Leaves `progress` before the last, empty chunk.
fn chunks(bytes: &[u8], progress: &mut Progress) -> Result<usize, Stop> {
    let mut position = progress.position;
    while chunk(bytes, &mut position)?.is_some() {
        progress.position = position;
    }
    trailer(bytes, position)
}

/// Returns the data of well-formed chunks.
fn chunks_of(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut position = 0;
    std::iter::from_fn(move || chunk(bytes, &mut position).ok().flatten())
}

/// Returns the data of the chunk at `position` and advances it, or `None` for the last chunk.
fn chunk<'a>(bytes: &'a [u8], position: &mut usize) -> Result<Option<&'a [u8]>, Stop> {
    const LAST: &[u8] = b"0\r\n\r\n";
    let (size, start) = chunk_line(bytes, *position)?;
    if size == 0 {
        *position = start;
        return Ok(None);
    }
    let end = start.checked_add(size).filter(|end| *end < usize::MAX - 2 - LAST.len());
    let end = end.ok_or(Stop::Invalid(Invalid::TooLarge))?;
    match bytes.get(end..end + 2) {
        Some(b"\r\n") => {}
        Some(_) => return Err(BAD),
        None => return Err(Stop::Incomplete(end + 2 + LAST.len())),
    }
    *position = end + 2;
    Ok(Some(&bytes[start..end]))
}

/// Returns the size of the chunk whose line is at `position`, and the offset of its data.
pub(super) fn chunk_line(bytes: &[u8], position: usize) -> Result<(usize, usize), Stop> {
    let rest = bytes.get(position..).unwrap_or_default();
    let line_window = &rest[..rest.len().min(HTTP_CHUNK_LINE_BYTES_MAX)];
    let Some(line_feed) = memchr::memchr(b'\n', line_window) else {
        if rest.len() >= HTTP_CHUNK_LINE_BYTES_MAX {
            return Err(Stop::Invalid(Invalid::TooLarge));
        }
        return Err(Stop::Incomplete(bytes.len() + 1));
    };
    Ok((chunk_size(&rest[..line_feed])?, position + line_feed + 1))
}

/// Parses `line`: a size in hexadecimal, an extension, which is ignored, and a carriage return.
fn chunk_size(line: &[u8]) -> Result<usize, Stop> {
    let line = line.strip_suffix(b"\r").ok_or(BAD)?;
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, extension) = line.split_at(end);
    if digits.is_empty() || !matches!(extension.trim_ascii_start(), [] | [b';', ..]) {
        return Err(BAD);
    }
    let mut size = 0usize;
    for digit in digits {
        let digit = char::from(*digit).to_digit(16).unwrap_or_default();
        size = size.checked_mul(16).ok_or(Invalid::TooLarge)? | digit as usize;
    }
    Ok(size)
}

/// Returns the end of the lines after the last chunk, which are ignored. The last one is empty.
pub(super) fn trailer(bytes: &[u8], start: usize) -> Result<usize, Stop> {
    let rest = &bytes[start..];
    let window = &rest[..rest.len().min(HTTP_TRAILER_BYTES_MAX)];
    let mut line_start = 0;
    for line_feed in memchr::memchr_iter(b'\n', window) {
        if &window[line_start..line_feed] == b"\r" {
            return Ok(start + line_feed + 1);
        }
        line_start = line_feed + 1;
    }
    match rest.len() {
        0..HTTP_TRAILER_BYTES_MAX => Err(Stop::Incomplete(bytes.len() + 1)),
        _ => Err(Stop::Invalid(Invalid::TooLarge)),
    }
}
