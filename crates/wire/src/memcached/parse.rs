//! Bytes to a request.

use super::tokens::next;
use super::{Error, Keys, Mode, Request, Store};
use crate::limits::LINE_BYTES_MAX;
use crate::{Invalid, Parse, decimal};

/// Parses the request at the start of `bytes`.
///
/// A line that is no request is a [`Request::Bad`] of the line's length, so that the caller can
/// answer it and go on. `Invalid` is left for lines longer than [`LINE_BYTES_MAX`], whose end
/// cannot be waited for.
#[must_use]
pub fn parse(bytes: &[u8]) -> Parse<Request<'_>> {
    let Some(line_feed) = memchr::memchr(b'\n', bytes) else {
        return match bytes.len() {
            0..LINE_BYTES_MAX => Parse::Incomplete(bytes.len() + 1),
            _ => Parse::Invalid(Invalid::TooLarge),
        };
    };
    if line_feed >= LINE_BYTES_MAX {
        return Parse::Invalid(Invalid::TooLarge);
    }
    let after = line_feed + 1;
    let mut line = &bytes[..line_feed];
    if let [before @ .., b'\r'] = line {
        line = before;
    }
    let verb = next(&mut line).unwrap_or_default();
    match verb {
        b"get" => complete(get(line, false), line, after),
        b"set" => store(bytes, line, after, Verb::Set),
        b"gets" => complete(get(line, true), line, after),
        b"add" => store(bytes, line, after, Verb::Add),
        b"replace" => store(bytes, line, after, Verb::Replace),
        b"append" => store(bytes, line, after, Verb::Append),
        b"prepend" => store(bytes, line, after, Verb::Prepend),
        b"cas" => store(bytes, line, after, Verb::CompareAndSwap),
        b"delete" => complete(delete(line), line, after),
        b"incr" => complete(
            key_and_number(line).map(|(key, amount, noreply)| Request::Increment {
                key,
                amount,
                noreply,
            }),
            line,
            after,
        ),
        b"decr" => complete(
            key_and_number(line).map(|(key, amount, noreply)| Request::Decrement {
                key,
                amount,
                noreply,
            }),
            line,
            after,
        ),
        b"touch" => complete(
            key_and_number(line).map(|(key, exptime, noreply)| Request::Touch {
                key,
                exptime,
                noreply,
            }),
            line,
            after,
        ),
        b"gat" => complete(get_and_touch(line, false), line, after),
        b"gats" => complete(get_and_touch(line, true), line, after),
        b"flush_all" => complete(flush_all(line), line, after),
        b"verbosity" => complete(verbosity(line), line, after),
        b"stats" => {
            let argument = next(&mut line).unwrap_or_default();
            Parse::Complete(Request::Stats { argument }, after)
        }
        b"version" => Parse::Complete(Request::Version, after),
        b"quit" => Parse::Complete(Request::Quit, after),
        _ => bad(Error::UnknownCommand, false, after),
    }
}

/// Whether `verb` begins a request of this protocol.
pub(crate) fn is_verb(verb: &[u8]) -> bool {
    matches!(
        verb,
        b"get"
            | b"set"
            | b"gets"
            | b"add"
            | b"replace"
            | b"append"
            | b"prepend"
            | b"cas"
            | b"delete"
            | b"incr"
            | b"decr"
            | b"touch"
            | b"gat"
            | b"gats"
            | b"flush_all"
            | b"verbosity"
            | b"stats"
            | b"version"
            | b"quit"
    )
}

fn bad<'a>(error: Error, noreply: bool, length: usize) -> Parse<Request<'a>> {
    Parse::Complete(Request::Bad { error, noreply }, length)
}

#[inline]
fn complete<'a>(
    request: Result<Request<'a>, Error>,
    arguments: &[u8],
    length: usize,
) -> Parse<Request<'a>> {
    match request {
        Ok(request) => Parse::Complete(request, length),
        Err(error) => bad(error, has_noreply(arguments), length),
    }
}

/// Whether one of the tokens asks for silence.
fn has_noreply(mut rest: &[u8]) -> bool {
    while let Some(token) = next(&mut rest) {
        if token == b"noreply" {
            return true;
        }
    }
    false
}

fn argument<'a>(line: &mut &'a [u8]) -> Result<&'a [u8], Error> {
    next(line).ok_or(Error::MissingArguments)
}

fn number(line: &mut &[u8]) -> Result<i64, Error> {
    decimal::signed(argument(line)?).ok_or(Error::BadNumber)
}

#[inline]
fn get(line: &[u8], cas: bool) -> Result<Request<'_>, Error> {
    let keys = Keys::new(line).ok_or(Error::MissingArguments)?;
    Ok(Request::Get { keys, cas })
}

fn get_and_touch(mut line: &[u8], cas: bool) -> Result<Request<'_>, Error> {
    let exptime = argument(&mut line)?;
    let keys = Keys::new(line).ok_or(Error::MissingArguments)?;
    let exptime = decimal::signed(exptime).ok_or(Error::BadNumber)?;
    Ok(Request::GetAndTouch { keys, exptime, cas })
}

fn delete(mut line: &[u8]) -> Result<Request<'_>, Error> {
    let key = argument(&mut line)?;
    Ok(Request::Delete { key, noreply: has_noreply(line) })
}

fn key_and_number(mut line: &[u8]) -> Result<(&[u8], i64, bool), Error> {
    let key = argument(&mut line)?;
    let number = number(&mut line)?;
    Ok((key, number, has_noreply(line)))
}

fn flush_all(mut line: &[u8]) -> Result<Request<'_>, Error> {
    let noreply = has_noreply(line);
    let delay = match next(&mut line) {
        None | Some(b"noreply") => 0,
        Some(token) => decimal::signed(token).ok_or(Error::BadNumber)?,
    };
    Ok(Request::FlushAll { delay, noreply })
}

fn verbosity(mut line: &[u8]) -> Result<Request<'_>, Error> {
    argument(&mut line)?;
    Ok(Request::Verbosity { noreply: has_noreply(line) })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    CompareAndSwap,
}

/// The line of a storing verb, once its size is known.
struct Header<'a> {
    key: &'a [u8],
    size: usize,
    noreply: bool,
    /// Mode, flags and expiry, or why the line is refused. The data are taken off in either
    /// case, so that they are not read as commands.
    rest: Result<(Mode, u32, i64), Error>,
}

fn store<'a>(bytes: &'a [u8], line: &'a [u8], start: usize, verb: Verb) -> Parse<Request<'a>> {
    let header = match header(line, verb) {
        Ok(header) => header,
        Err(error) => return bad(error, has_noreply(line), start),
    };
    let Some(end) = start.checked_add(header.size).filter(|end| *end < usize::MAX - 2) else {
        return Parse::Invalid(Invalid::TooLarge);
    };
    let length = match bytes.get(end..).unwrap_or_default() {
        [] => return Parse::Incomplete(end + 1),
        [b'\n', ..] => end + 1,
        [b'\r', b'\n', ..] => end + 2,
        [b'\r'] => return Parse::Incomplete(end + 2),
        overlong => return bad_data_chunk(overlong, end, header.noreply),
    };
    match header.rest {
        Ok((mode, flags, exptime)) => {
            let value = &bytes[start..end];
            let Header { key, noreply, .. } = header;
            Parse::Complete(
                Request::Store(Store { mode, key, flags, exptime, value, noreply }),
                length,
            )
        }
        Err(error) => bad(error, header.noreply, length),
    }
}

fn header(mut line: &[u8], verb: Verb) -> Result<Header<'_>, Error> {
    let key = argument(&mut line)?;
    let flags = argument(&mut line)?;
    let exptime = argument(&mut line)?;
    let size = number(&mut line)?;
    // The original reads a negative size as none.
    let size = usize::try_from(size).unwrap_or(0);
    let mode = match verb {
        Verb::Set => Ok(Mode::Set),
        Verb::Add => Ok(Mode::Add),
        Verb::Replace => Ok(Mode::Replace),
        Verb::Append => Ok(Mode::Append),
        Verb::Prepend => Ok(Mode::Prepend),
        Verb::CompareAndSwap => argument(&mut line).and_then(|version| {
            decimal::unsigned(version).map(Mode::CompareAndSwap).ok_or(Error::BadNumber)
        }),
    };
    let flags = decimal::unsigned(flags).and_then(|flags| u32::try_from(flags).ok());
    let numbers = flags.zip(decimal::signed(exptime)).ok_or(Error::BadNumber);
    let rest = mode.and_then(|mode| numbers.map(|(flags, exptime)| (mode, flags, exptime)));
    Ok(Header { key, size, noreply: has_noreply(line), rest })
}

/// The data go on where they should have ended: takes the rest of their line too, which is
/// where the next request most likely begins.
fn bad_data_chunk<'a>(overlong: &[u8], end: usize, noreply: bool) -> Parse<Request<'a>> {
    match memchr::memchr(b'\n', overlong) {
        Some(line_feed) => bad(Error::BadDataChunk, noreply, end + line_feed + 1),
        None if overlong.len() < LINE_BYTES_MAX => Parse::Incomplete(end + overlong.len() + 1),
        None => Parse::Invalid(Invalid::TooLarge),
    }
}
