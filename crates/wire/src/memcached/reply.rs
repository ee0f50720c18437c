//! Replies, which are appended to an output buffer.

use crate::{base64, decimal};

/// A value was stored.
pub const STORED: &[u8] = b"STORED\r\n";
/// A condition of add, replace, append or prepend was not met.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// The record has changed since its version was read.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// The record is missing.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// A record was removed.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// An expiry was set.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// flush_all or verbosity was executed.
pub const OK: &[u8] = b"OK\r\n";
/// The end of values or stats.
pub const END: &[u8] = b"END\r\n";
/// The command is unknown.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// The command is masked, in Tokyo Tyrant's text.
pub const FORBIDDEN: &[u8] = b"CLIENT_ERROR forbidden\r\n";
/// The client has not authenticated.
pub const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
/// The name or the password is wrong.
pub const AUTHENTICATION_FAILED: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
/// The data of the first `set` are not a name and a password.
pub const BAD_AUTHENTICATION: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
/// The data of the first `set` have another length than announced.
pub const BAD_TERMINATION: &[u8] = b"CLIENT_ERROR bad command line termination\r\n";
/// The value is longer than the server accepts, in memcached's text.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";

/// incr or decr of a value that is not a number, in memcached's text.
pub const NOT_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// Reply to `mn`.
pub const META_NO_OP: &[u8] = b"MN\r\n";
/// A meta command was executed; flags follow.
pub const CODE_OK: &[u8] = b"HD";
/// The record of `mg` is missing; flags follow.
pub const CODE_MISS: &[u8] = b"EN";
/// The record of `mg` is missing, without flags.
pub const CODE_MISS_LINE: &[u8] = b"EN\r\n";
/// The record of another meta command is missing; flags follow.
pub const CODE_NOT_FOUND: &[u8] = b"NF";
/// A condition of `ms` was not met; flags follow.
pub const CODE_NOT_STORED: &[u8] = b"NS";
/// The record has another cas number; flags follow.
pub const CODE_EXISTS: &[u8] = b"EX";

/// Appends the beginning of the reply to a meta command with a value. Flags follow, and the value
/// on a line of its own.
#[inline]
pub fn meta_value(out: &mut Vec<u8>, bytes: u64) {
    out.extend_from_slice(b"VA ");
    decimal::write(out, bytes);
}

/// Appends a flag and its token, which may be empty.
#[inline]
pub fn meta_flag(out: &mut Vec<u8>, flag: u8, token: &[u8]) {
    out.extend_from_slice(&[b' ', flag]);
    out.extend_from_slice(token);
}

/// Appends a flag whose token is a number.
#[inline]
pub fn meta_number(out: &mut Vec<u8>, flag: u8, number: u64) {
    out.extend_from_slice(&[b' ', flag]);
    decimal::write(out, number);
}

/// Appends the key in base64, with the flag for base64.
pub fn meta_base64_key(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(b" k");
    base64::encode(out, key);
    out.extend_from_slice(b" b");
}

/// Appends bytes in base64.
pub fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    base64::encode(out, bytes);
}

/// Appends a record of a get: its line, with the version if there is one, and its data.
#[inline]
pub fn value(out: &mut Vec<u8>, key: &[u8], flags: u32, value: &[u8], version: Option<u64>) {
    // Three numbers of at most 20 digits with their spaces, the verb, two line ends.
    out.reserve(key.len() + value.len() + 80);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    decimal::write(out, u64::from(flags));
    out.push(b' ');
    decimal::write(out, value.len() as u64);
    if let Some(version) = version {
        out.push(b' ');
        decimal::write(out, version);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends the result of incr or decr.
#[inline]
pub fn number(out: &mut Vec<u8>, number: u64) {
    decimal::write(out, number);
    out.extend_from_slice(b"\r\n");
}

/// Appends a line of stats. [`END`] follows the last.
pub fn stat(out: &mut Vec<u8>, name: &str, value: &str) {
    line(out, &["STAT ", name, " ", value]);
}

/// Appends the version of the server.
pub fn version(out: &mut Vec<u8>, version: &str) {
    line(out, &["VERSION ", version]);
}

/// Appends an error of the request. `message` has no line end.
pub fn client_error(out: &mut Vec<u8>, message: &str) {
    line(out, &["CLIENT_ERROR ", message]);
}

/// Appends an error of the server. `message` has no line end.
pub fn server_error(out: &mut Vec<u8>, message: &str) {
    line(out, &["SERVER_ERROR ", message]);
}

fn line(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}
