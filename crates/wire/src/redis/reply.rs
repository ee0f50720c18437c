//! Replies, which are appended to an output buffer.
//!
//! | function | bytes |
//! |---|---|
//! | [`simple`] | `+text` |
//! | [`error`] | `-CODE text` |
//! | [`integer`] | `:number` |
//! | [`string`] | `$length`, the bytes |
//! | [`null`] | `$-1`, in version 3 `_` |
//! | [`null_array`] | `*-1`, in version 3 `_` |
//! | [`array`] | `*count`, then so many replies |
//! | [`push`] | `>count`, then so many parts |
//! | [`map`] | `%pairs`, in version 2 `*` and twice as many |
//! | [`set`] | `~count`, in version 2 as [`array`] |
//! | [`verbatim`] | `=length`, `txt:` and the bytes, in version 2 as [`string`] |

use crate::decimal;

/// Version of the protocol, which a client chooses with `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Version 2, with which each connection begins.
    #[default]
    Two,
    /// Version 3, with more types of replies.
    Three,
}

/// Appends a short text.
#[inline]
pub fn simple(out: &mut Vec<u8>, text: &str) {
    out.push(b'+');
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends an error: a code in capitals, and a text of one line.
pub fn error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    out.extend(text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

/// Appends a number.
#[inline]
pub fn integer(out: &mut Vec<u8>, number: i64) {
    out.push(b':');
    if number < 0 {
        out.push(b'-');
    }
    decimal::write(out, number.unsigned_abs());
    out.extend_from_slice(b"\r\n");
}

/// Appends a string of any bytes.
#[inline]
pub fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends a text for people.
pub fn verbatim(out: &mut Vec<u8>, version: Version, text: &str) {
    if version == Version::Two {
        return string(out, text.as_bytes());
    }
    length(out, b'=', text.len() + 4);
    out.extend_from_slice(b"txt:");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the absence of a value.
#[inline]
pub fn null(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(match version {
        Version::Two => b"$-1\r\n",
        Version::Three => b"_\r\n",
    });
}

/// Appends the absence of an array.
pub fn null_array(out: &mut Vec<u8>, version: Version) {
    match version {
        Version::Two => out.extend_from_slice(b"*-1\r\n"),
        Version::Three => null(out, version),
    }
}

/// Begins an array of `count` replies.
#[inline]
pub fn array(out: &mut Vec<u8>, count: usize) {
    length(out, b'*', count);
}

/// Begins a message of `count` parts that is not a reply, in version 3.
pub fn push(out: &mut Vec<u8>, count: usize) {
    length(out, b'>', count);
}

/// Begins a map of `pairs` pairs of replies.
pub fn map(out: &mut Vec<u8>, version: Version, pairs: usize) {
    match version {
        Version::Two => length(out, b'*', 2 * pairs),
        Version::Three => length(out, b'%', pairs),
    }
}

/// Begins a set of `count` replies, in version 2 an array.
pub fn set(out: &mut Vec<u8>, version: Version, count: usize) {
    match version {
        Version::Two => array(out, count),
        Version::Three => length(out, b'~', count),
    }
}

#[inline]
fn length(out: &mut Vec<u8>, first: u8, number: usize) {
    out.push(first);
    decimal::write(out, number as u64);
    out.extend_from_slice(b"\r\n");
}
