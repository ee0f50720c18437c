//! Parser: bytes to a request.

use super::tokens::next;
use super::{Dialect, Error, Keys, MetaVerb, Mode, Request, Store, meta};
use crate::limits::{LINE_BYTES_MAX, MEMCACHED_KEY_BYTES_MAX, MEMCACHED_VALUE_BYTES_MAX};
use crate::{Invalid, Parse, decimal};
use std::ops::RangeInclusive;

/// Parses the request at the start of `bytes`.
///
/// A malformed line is a [`Request::Bad`] of the line's length, so that the caller can reply and
/// continue. `Invalid` is only for lines longer than [`LINE_BYTES_MAX`], whose end is not awaited.
pub fn parse(dialect: Dialect, bytes: &[u8]) -> Parse<Request<'_>> {
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
    let line_bytes = line.len();
    let verb = next(&mut line).unwrap_or_default();
    let request = match verb {
        b"get" => get(dialect, line, false),
        b"set" => return store(dialect, bytes, line, after, Verb::Set),
        b"mg" => meta::parse(MetaVerb::Get, line).map(boxed),
        b"ms" => return meta_set(bytes, line, after),
        b"gets" => get(dialect, line, true),
        b"add" => return store(dialect, bytes, line, after, Verb::Add),
        b"replace" => return store(dialect, bytes, line, after, Verb::Replace),
        b"append" => return store(dialect, bytes, line, after, Verb::Append),
        b"prepend" => return store(dialect, bytes, line, after, Verb::Prepend),
        b"cas" => return store(dialect, bytes, line, after, Verb::CompareAndSwap),
        b"delete" => return complete(delete(dialect, line), dialect, (line, 1), after),
        b"incr" => {
            let request = arithmetic(dialect, line)
                .map(|(key, amount, noreply)| Request::Increment { key, amount, noreply });
            return complete(request, dialect, (line, 2), after);
        }
        b"decr" => {
            let request = arithmetic(dialect, line)
                .map(|(key, amount, noreply)| Request::Decrement { key, amount, noreply });
            return complete(request, dialect, (line, 2), after);
        }
        b"touch" => return complete(touch(dialect, line), dialect, (line, 2), after),
        b"gat" => get_and_touch(dialect, line, false),
        b"gats" => get_and_touch(dialect, line, true),
        b"md" => meta::parse(MetaVerb::Delete, line).map(boxed),
        b"ma" => meta::parse(MetaVerb::Arithmetic, line).map(boxed),
        b"me" => meta::debug(line).map(|key| Request::MetaDebug { key }),
        b"mn" => Ok(Request::MetaNoOp),
        b"flush_all" => return complete(flush_all(dialect, line), dialect, (line, 0), after),
        b"verbosity" => return complete(verbosity(dialect, line), dialect, (line, 1), after),
        b"stats" => {
            let argument = next(&mut line).unwrap_or_default();
            Ok(Request::Stats { argument, rest: line })
        }
        b"cache_memlimit" => {
            return complete(cache_memory_limit(dialect, line), dialect, (line, 1), after);
        }
        b"lru_crawler" => crawler(line),
        b"shutdown" => {
            let argument = next(&mut line).unwrap_or_default();
            Ok(Request::Shutdown { argument })
        }
        b"version" => Ok(Request::Version),
        b"quit" => Ok(Request::Quit),
        _ if is_of_other_protocol(verb) => Err(Error::OtherProtocol),
        // memcached reports a line that is too short for a command as malformed, not as unknown.
        _ if line_bytes < VERB_BYTES_MIN && dialect == Dialect::Memcached => Err(Error::BadLine),
        _ => Err(Error::UnknownCommand),
    };
    match request {
        Ok(request) => Parse::Complete(request, after),
        Err(error) => bad(error, false, after),
    }
}

/// Returns whether an unknown verb is the name of a header of HTTP, or begins with a control
/// character, as TLS and STUN do.
fn is_of_other_protocol(verb: &[u8]) -> bool {
    verb.len() >= VERB_BYTES_MIN && (verb.ends_with(b":") || verb[0].is_ascii_control())
}

/// Length of the shortest command.
const VERB_BYTES_MIN: usize = 2;

fn boxed(meta: super::Meta<'_>) -> Request<'_> {
    Request::Meta(Box::new(meta))
}

/// Returns whether `verb` begins a request of this protocol.
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
            | b"mg"
            | b"ms"
            | b"md"
            | b"ma"
            | b"me"
            | b"mn"
            | b"flush_all"
            | b"verbosity"
            | b"stats"
            | b"cache_memlimit"
            | b"lru_crawler"
            | b"shutdown"
            | b"version"
            | b"quit"
    )
}

fn bad<'a>(error: Error, noreply: bool, length: usize) -> Parse<Request<'a>> {
    Parse::Complete(Request::Bad { error, noreply }, length)
}

/// Returns the request, or the error of a line whose verb has at least so many arguments.
#[inline]
fn complete<'a>(
    request: Result<Request<'a>, Error>,
    dialect: Dialect,
    (arguments, least): (&[u8], usize),
    length: usize,
) -> Parse<Request<'a>> {
    match request {
        Ok(request) => Parse::Complete(request, length),
        Err(error) => bad(error, is_silent(dialect, arguments, least), length),
    }
}

/// Returns whether a line suppresses its reply. memcached counts the arguments before it looks for
/// `noreply`.
fn is_silent(dialect: Dialect, mut arguments: &[u8], least: usize) -> bool {
    let (mut last, mut count) = (false, 0);
    while let Some(token) = next(&mut arguments) {
        last = token == b"noreply";
        count += 1;
        if last && dialect == Dialect::TokyoTyrant {
            return true;
        }
    }
    last && count >= least
}

/// Most arguments that a verb has.
const ARGUMENTS_MAX: usize = 6;

/// Tokens after a verb.
struct Arguments<'a> {
    tokens: [&'a [u8]; ARGUMENTS_MAX],
    count: usize,
    noreply: bool,
}

impl<'a> Arguments<'a> {
    /// Splits a line. Fails if there are too few tokens. Surplus tokens are ignored except
    /// `noreply`, which memcached accepts as the last token only, Tokyo Tyrant at any position.
    #[inline]
    fn new(
        dialect: Dialect,
        mut line: &'a [u8],
        counts: RangeInclusive<usize>,
    ) -> Result<Self, Error> {
        let mut arguments = Self { tokens: [&[]; ARGUMENTS_MAX], count: 0, noreply: false };
        while let Some(token) = next(&mut line) {
            arguments.noreply = arguments.count >= *counts.start() && token == b"noreply"
                || arguments.noreply && dialect == Dialect::TokyoTyrant;
            if arguments.count < *counts.end() {
                arguments.tokens[arguments.count] = token;
                arguments.count += 1;
            }
        }
        if arguments.count < *counts.start() {
            return Err(missing(dialect));
        }
        Ok(arguments)
    }

    /// Returns the first token as a key.
    #[inline]
    fn key(&self, dialect: Dialect) -> Result<&'a [u8], Error> {
        check_key(dialect, self.tokens[0])
    }
}

#[inline]
fn check_key(dialect: Dialect, key: &[u8]) -> Result<&[u8], Error> {
    if key.len() > MEMCACHED_KEY_BYTES_MAX && dialect == Dialect::Memcached {
        return Err(Error::BadLine);
    }
    Ok(key)
}

#[inline]
fn keys(dialect: Dialect, line: &[u8]) -> Result<Option<Keys<'_>>, Error> {
    let keys = Keys::new(line);
    // No key is longer than the line.
    if line.len() > MEMCACHED_KEY_BYTES_MAX
        && let Some(keys) = keys
    {
        let check = |key| check_key(dialect, key).map_err(|_| Error::KeyTooLongToGet);
        keys.iter().try_for_each(|key| check(key).map(|_| ()))?;
    }
    Ok(keys)
}

/// Returns the error of a line with too few tokens.
fn missing(dialect: Dialect) -> Error {
    match dialect {
        Dialect::Memcached => Error::BadLine,
        Dialect::TokyoTyrant => Error::MissingArguments,
    }
}

#[inline]
fn get(dialect: Dialect, line: &[u8], cas: bool) -> Result<Request<'_>, Error> {
    let keys = keys(dialect, line)?.ok_or(missing(dialect))?;
    Ok(Request::Get { keys, cas })
}

fn get_and_touch(dialect: Dialect, mut line: &[u8], cas: bool) -> Result<Request<'_>, Error> {
    let exptime = next(&mut line).ok_or(missing(dialect))?;
    let keys = Keys::new(line).ok_or(missing(dialect))?;
    let exptime = seconds(dialect, exptime)?;
    self::keys(dialect, line)?;
    Ok(Request::GetAndTouch { keys, exptime, cas })
}

fn seconds(dialect: Dialect, token: &[u8]) -> Result<i64, Error> {
    exptime(dialect, token).ok_or(Error::BadExptime)
}

/// Parses a time in seconds. memcached keeps the low 32 bits, as a signed number: clients that send
/// -1 as 4294967295 mean an expired record.
#[inline]
fn exptime(dialect: Dialect, token: &[u8]) -> Option<i64> {
    match dialect {
        Dialect::Memcached => decimal::low_32_bits_signed(token),
        Dialect::TokyoTyrant => decimal::signed(token),
    }
}

fn delete(dialect: Dialect, line: &[u8]) -> Result<Request<'_>, Error> {
    let arguments = Arguments::new(dialect, line, 1..=1)?;
    let noreply = match dialect {
        // The key may be the last argument, too.
        Dialect::Memcached => is_silent(dialect, line, 1),
        Dialect::TokyoTyrant => arguments.noreply,
    };
    Ok(Request::Delete { key: arguments.key(dialect)?, noreply })
}

fn arithmetic(dialect: Dialect, line: &[u8]) -> Result<(&[u8], i128, bool), Error> {
    let arguments = Arguments::new(dialect, line, 2..=3)?;
    let key = arguments.key(dialect)?;
    let token = arguments.tokens[1];
    let amount = match dialect {
        Dialect::Memcached => decimal::unsigned_with_plus(token).map(i128::from),
        Dialect::TokyoTyrant => decimal::signed(token).map(i128::from),
    };
    Ok((key, amount.ok_or(Error::BadDelta)?, arguments.noreply))
}

fn touch(dialect: Dialect, line: &[u8]) -> Result<Request<'_>, Error> {
    let arguments = Arguments::new(dialect, line, 2..=3)?;
    let key = arguments.key(dialect)?;
    let exptime = seconds(dialect, arguments.tokens[1])?;
    Ok(Request::Touch { key, exptime, noreply: arguments.noreply })
}

fn flush_all(dialect: Dialect, line: &[u8]) -> Result<Request<'_>, Error> {
    let Arguments { tokens, count, noreply } = Arguments::new(dialect, line, 0..=2)?;
    let delay = match count - usize::from(noreply).min(count) {
        0 => 0,
        _ => seconds(dialect, tokens[0])?,
    };
    Ok(Request::FlushAll { delay, noreply })
}

fn verbosity(dialect: Dialect, line: &[u8]) -> Result<Request<'_>, Error> {
    let Arguments { tokens, noreply, .. } = Arguments::new(dialect, line, 1..=2)?;
    if dialect == Dialect::Memcached {
        decimal::unsigned_with_plus(tokens[0]).ok_or(Error::BadLine)?;
    }
    Ok(Request::Verbosity { noreply })
}

fn cache_memory_limit(dialect: Dialect, line: &[u8]) -> Result<Request<'_>, Error> {
    let arguments = Arguments::new(dialect, line, 1..=2).map_err(|_| Error::UnknownCommand)?;
    let Arguments { tokens, noreply, .. } = arguments;
    let mebibytes = decimal::unsigned_with_plus(tokens[0]).ok_or(Error::UnknownCommand)?;
    Ok(Request::CacheMemoryLimit { mebibytes, noreply })
}

fn crawler(mut line: &[u8]) -> Result<Request<'_>, Error> {
    let command = next(&mut line).ok_or(Error::UnknownCommand)?;
    let argument = next(&mut line).unwrap_or_default();
    match next(&mut line) {
        None => Ok(Request::Crawler { command, argument }),
        Some(_) => Err(Error::UnknownCommand),
    }
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

/// Line of a store with a valid size.
struct Header<'a> {
    key: &'a [u8],
    size: usize,
    noreply: bool,
    /// Mode, flags and expiry, or the error that is reported once the data have been consumed.
    rest: Result<(Mode, u32, i64), Error>,
}

fn store<'a>(
    dialect: Dialect,
    bytes: &'a [u8],
    line: &'a [u8],
    start: usize,
    verb: Verb,
) -> Parse<Request<'a>> {
    let header = match header(dialect, line, verb) {
        Ok(header) => header,
        // memcached replies to a line without a valid size in any case.
        Err(error) => {
            let is_silent = dialect == Dialect::TokyoTyrant && is_silent(dialect, line, 0);
            return bad(error, is_silent, start);
        }
    };
    let data = match dialect {
        Dialect::Memcached => data(bytes, start, header.size),
        Dialect::TokyoTyrant => lenient_data(bytes, start, header.size),
    };
    let (value, length) = match data {
        Parse::Complete(value, length) => (value, length),
        Parse::Incomplete(needed) => return Parse::Incomplete(needed),
        Parse::Invalid(invalid) => return Parse::Invalid(invalid),
    };
    let Header { key, noreply, .. } = header;
    match header.rest.and_then(|rest| Ok((value.ok_or(Error::BadDataChunk)?, rest))) {
        Ok((value, (mode, flags, exptime))) => Parse::Complete(
            Request::Store(Store { mode, key, flags, exptime, value, noreply }),
            length,
        ),
        Err(error) => bad(error, noreply, length),
    }
}

#[inline]
fn header(dialect: Dialect, line: &[u8], verb: Verb) -> Result<Header<'_>, Error> {
    let counts = if verb == Verb::CompareAndSwap { 4..=5 } else { 4..=4 };
    let arguments = Arguments::new(dialect, line, counts)?;
    let Arguments { tokens, count, noreply } = arguments;
    let [_, flags, exptime, size, version, ..] = tokens;
    let mode = match verb {
        Verb::Set => Ok(Mode::Set),
        Verb::Add => Ok(Mode::Add),
        Verb::Replace => Ok(Mode::Replace),
        Verb::Append => Ok(Mode::Append),
        Verb::Prepend => Ok(Mode::Prepend),
        Verb::CompareAndSwap if count < 5 => Err(missing(dialect)),
        Verb::CompareAndSwap => {
            decimal::unsigned_with_plus(version).map(Mode::CompareAndSwap).ok_or(Error::BadLine)
        }
    };
    let exptime = self::exptime(dialect, exptime).ok_or(Error::BadLine);
    let size = decimal::signed(size).ok_or(Error::BadLine)?;
    match dialect {
        Dialect::Memcached => {
            let size = usize::try_from(size).ok().filter(|size| *size <= MEMCACHED_VALUE_BYTES_MAX);
            let size = size.ok_or(Error::BadLine)?;
            // Data follow a line that is refused for another reason.
            let key = arguments.key(dialect);
            let flags = decimal::low_32_bits(flags).ok_or(Error::BadLine);
            let rest = mode.and_then(|mode| Ok((mode, flags?, exptime?)));
            Ok(Header { key: tokens[0], size, noreply, rest: key.and(rest) })
        }
        Dialect::TokyoTyrant => {
            // A negative size is not a size.
            let size = usize::try_from(size).unwrap_or(0);
            let flags = decimal::unsigned(flags).and_then(|flags| u32::try_from(flags).ok());
            let flags = flags.ok_or(Error::BadLine);
            let rest = mode.and_then(|mode| Ok((mode, flags?, exptime?)));
            Ok(Header { key: tokens[0], size, noreply, rest })
        }
    }
}

/// Parses a block of data that ends in CRLF. Returns `None` if it ends otherwise; these bytes are
/// consumed.
#[inline]
fn data(bytes: &[u8], start: usize, size: usize) -> Parse<Option<&[u8]>> {
    // A size is far below the limit of the type.
    let (end, length) = (start + size, start + size + 2);
    match bytes.get(end..length) {
        None => Parse::Incomplete(length),
        Some(b"\r\n") => Parse::Complete(Some(&bytes[start..end]), length),
        Some(_) => Parse::Complete(None, length),
    }
}

/// Parses a block of data that ends in CRLF or LF. If it is longer, the rest of its line is
/// consumed too: the next request most likely begins after it.
fn lenient_data(bytes: &[u8], start: usize, size: usize) -> Parse<Option<&[u8]>> {
    let Some(end) = start.checked_add(size).filter(|end| *end < usize::MAX - 2) else {
        return Parse::Invalid(Invalid::TooLarge);
    };
    let length = match bytes.get(end..).unwrap_or_default() {
        [] => return Parse::Incomplete(end + 1),
        [b'\n', ..] => end + 1,
        [b'\r', b'\n', ..] => end + 2,
        [b'\r'] => return Parse::Incomplete(end + 2),
        overlong => {
            return match memchr::memchr(b'\n', overlong) {
                Some(line_feed) => Parse::Complete(None, end + line_feed + 1),
                None if overlong.len() < LINE_BYTES_MAX => {
                    Parse::Incomplete(end + overlong.len() + 1)
                }
                None => Parse::Invalid(Invalid::TooLarge),
            };
        }
    };
    Parse::Complete(Some(&bytes[start..end]), length)
}

fn meta_set<'a>(bytes: &'a [u8], line: &'a [u8], start: usize) -> Parse<Request<'a>> {
    let line = match meta::set(line) {
        Ok(line) => line,
        Err(error) => return bad(error, false, start),
    };
    match data(bytes, start, line.size) {
        Parse::Complete(value, length) => {
            // memcached discards the data of a refused line without checking their end.
            let request = line
                .meta
                .and_then(|meta| Ok((meta, value.ok_or(Error::BadDataChunk)?)))
                .map(|(meta, value)| boxed(super::Meta { value, ..meta }));
            match request {
                Ok(request) => Parse::Complete(request, length),
                Err(error) => bad(error, false, length),
            }
        }
        Parse::Incomplete(needed) => Parse::Incomplete(needed),
        Parse::Invalid(invalid) => Parse::Invalid(invalid),
    }
}
