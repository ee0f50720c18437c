//! Responses, which are appended to an output buffer.
//!
//! | function | bytes | commands |
//! |---|---|---|
//! | [`status`] | `00` or `01` | those that only succeed or fail; every failure but `misc`'s |
//! | [`value`] | `00 size bytes` | get, iternext, ext, stat |
//! | [`size`] | `00 u32` | vsiz |
//! | [`integer`] | `00 i32` | addint |
//! | [`double`] | `00 i64 i64` | adddouble |
//! | [`count`] | `00 u64` | rnum, size |
//! | [`List`] | `00 u32` and as many strings or pairs | mget, fwmkeys, misc |
//! | [`misc_failure`] | `01 00000000` | misc |

use super::MAGIC;
use super::command::{MISC, PUT_NO_REPLY};

/// Status byte of success.
pub const OK: u8 = 0;

/// Status byte of failure.
pub const FAILURE: u8 = 1;

/// Appends success or failure.
#[inline]
pub fn status(out: &mut Vec<u8>, ok: bool) {
    out.push(if ok { OK } else { FAILURE });
}

/// Appends success and a string.
#[inline]
pub fn value(out: &mut Vec<u8>, value: &[u8]) {
    out.reserve(5 + value.len());
    out.push(OK);
    string(out, value);
}

/// Appends success and the size of a value, in bytes.
#[inline]
pub fn size(out: &mut Vec<u8>, bytes: u32) {
    out.push(OK);
    out.extend_from_slice(&bytes.to_be_bytes());
}

/// Appends success and an integer.
#[inline]
pub fn integer(out: &mut Vec<u8>, number: i32) {
    out.push(OK);
    out.extend_from_slice(&number.to_be_bytes());
}

/// Appends success and a double, in the parts of [`double_to_parts`](super::double_to_parts).
pub fn double(out: &mut Vec<u8>, sum: f64) {
    let (integral, fractional) = super::double_to_parts(sum);
    out.push(OK);
    out.extend_from_slice(&integral.to_be_bytes());
    out.extend_from_slice(&fractional.to_be_bytes());
}

/// Appends success and a number of records or of bytes.
#[inline]
pub fn count(out: &mut Vec<u8>, count: u64) {
    out.push(OK);
    out.extend_from_slice(&count.to_be_bytes());
}

/// Appends the failure of a request that begins with `head`.
pub fn failure_of(head: &[u8], out: &mut Vec<u8>) {
    match head {
        [MAGIC, MISC, ..] => misc_failure(out),
        // The client would take a byte for the reply to the next request.
        [MAGIC, PUT_NO_REPLY, ..] => {}
        _ => status(out, false),
    }
}

/// Appends the failure of `misc`, which has an empty list.
pub fn misc_failure(out: &mut Vec<u8>) {
    out.extend_from_slice(&[FAILURE, 0, 0, 0, 0]);
}

/// Writer of success and a list whose length is known at its end.
///
/// ```
/// use wire::binary::reply::List;
///
/// let mut out = Vec::new();
/// let mut list = List::begin(&mut out);
/// list.pair(&mut out, b"k", b"value");
/// list.finish(&mut out);
/// assert_eq!(out, b"\0\0\0\0\x01\0\0\0\x01\0\0\0\x05kvalue");
/// ```
#[derive(Debug)]
#[must_use = "a list that is not finished keeps a length of zero"]
pub struct List {
    count_at: usize,
    count: u32,
}

impl List {
    /// Begins a list at the end of `out`. The other functions take the same `out`, and its present
    /// bytes must not be removed before the list is finished.
    pub fn begin(out: &mut Vec<u8>) -> Self {
        out.push(OK);
        let count_at = out.len();
        out.extend_from_slice(&[0; 4]);
        Self { count_at, count: 0 }
    }

    /// Appends an element of fwmkeys or misc.
    pub fn string(&mut self, out: &mut Vec<u8>, element: &[u8]) {
        string(out, element);
        self.count += 1;
    }

    /// Appends an element of mget: both sizes, then key and value.
    pub fn pair(&mut self, out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
        let (key, value) = (bounded(key), bounded(value));
        out.reserve(8 + key.len() + value.len());
        out.extend_from_slice(&(key.len() as u32).to_be_bytes());
        out.extend_from_slice(&(value.len() as u32).to_be_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
        self.count += 1;
    }

    /// Returns the number of elements so far.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Returns whether there is no element yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Writes the length at the beginning of the list.
    pub fn finish(self, out: &mut [u8]) {
        out[self.count_at..self.count_at + 4].copy_from_slice(&self.count.to_be_bytes());
    }
}

fn string(out: &mut Vec<u8>, string: &[u8]) {
    let string = bounded(string);
    out.extend_from_slice(&(string.len() as u32).to_be_bytes());
    out.extend_from_slice(string);
}

/// Returns a string without the bytes that a 32-bit size cannot count. No database has such a
/// value; the response would still be well-formed.
fn bounded(string: &[u8]) -> &[u8] {
    &string[..string.len().min(u32::MAX as usize)]
}
