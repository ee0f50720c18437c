//! Responses, appended to the connection's output.

use crate::decimal;

/// A value was stored.
pub const STORED: &[u8] = b"STORED\r\n";
/// A condition of add, replace, append or prepend was not met.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// The record has changed since its version was read.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// There is no such record.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// A record was removed.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// An expiry was set.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// flush_all or verbosity was carried out.
pub const OK: &[u8] = b"OK\r\n";
/// The end of values or statistics.
pub const END: &[u8] = b"END\r\n";
/// No such command.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// The operator does not allow the command, in the original's words.
pub const FORBIDDEN: &[u8] = b"CLIENT_ERROR forbidden\r\n";
/// The database failed, in the original's words.
pub const UNEXPECTED: &[u8] = b"SERVER_ERROR unexpected\r\n";
/// The value is longer than the server takes, in memcached's words.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";

/// One record of a get: its line, with the version if there is one, and its data.
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

/// The sum of incr or decr.
#[inline]
pub fn number(out: &mut Vec<u8>, number: u64) {
    decimal::write(out, number);
    out.extend_from_slice(b"\r\n");
}

/// One line of statistics; [`END`] goes after the last.
pub fn stat(out: &mut Vec<u8>, name: &str, value: &str) {
    line(out, &["STAT ", name, " ", value]);
}

/// The version of the server.
pub fn version(out: &mut Vec<u8>, version: &str) {
    line(out, &["VERSION ", version]);
}

/// The request was wrong. `message` has no line end.
pub fn client_error(out: &mut Vec<u8>, message: &str) {
    line(out, &["CLIENT_ERROR ", message]);
}

/// The server failed. `message` has no line end.
pub fn server_error(out: &mut Vec<u8>, message: &str) {
    line(out, &["SERVER_ERROR ", message]);
}

fn line(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}
