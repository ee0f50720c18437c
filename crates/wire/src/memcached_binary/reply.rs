//! Responses, which are appended to an output buffer.

use super::{Echo, HEADER_BYTES};

/// First byte of every response.
const MAGIC: u8 = 0x81;

/// Status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// Success.
    Ok = 0x00,
    /// The record is missing.
    NotFound = 0x01,
    /// The record is present, or has another cas number.
    Exists = 0x02,
    /// The value is longer than the server accepts.
    TooLarge = 0x03,
    /// The parts of the request do not fit its command.
    InvalidArguments = 0x04,
    /// A condition of append or prepend was not met.
    NotStored = 0x05,
    /// The value is not a number.
    NotNumeric = 0x06,
    /// The client has not authenticated, its credentials are wrong, or it may not do this.
    NotAuthenticated = 0x20,
    /// Authentication needs a further step.
    AuthenticationContinues = 0x21,
    /// The command is unknown.
    UnknownCommand = 0x81,
    /// The server has no space.
    OutOfMemory = 0x82,
    /// The server failed.
    InternalError = 0x84,
}

impl Status {
    /// Returns memcached's text for the status.
    pub fn message(self) -> &'static str {
        match self {
            Status::Ok | Status::AuthenticationContinues => "",
            Status::NotFound => "Not found",
            Status::Exists => "Data exists for key.",
            Status::TooLarge => "Too large.",
            Status::InvalidArguments => "Invalid arguments",
            Status::NotStored => "Not stored.",
            Status::NotNumeric => "Non-numeric server-side value for incr or decr",
            Status::NotAuthenticated => "Auth failure.",
            Status::UnknownCommand => "Unknown command",
            Status::OutOfMemory => "Out of memory",
            Status::InternalError => "Internal error",
        }
    }
}

/// Appends success. `cas` is the cas number of the record, or 0.
#[inline]
pub fn done(out: &mut Vec<u8>, to: Echo, cas: u64) {
    response(out, to, Status::Ok, cas, [&[], &[], &[]]);
}

/// Appends a record: its flags, its key unless it is empty, and its value.
#[inline]
pub fn record(out: &mut Vec<u8>, to: Echo, cas: u64, flags: u32, key: &[u8], value: &[u8]) {
    response(out, to, Status::Ok, cas, [&flags.to_be_bytes(), key, value]);
}

/// Appends the result of increment or decrement.
#[inline]
pub fn counter(out: &mut Vec<u8>, to: Echo, cas: u64, counter: u64) {
    response(out, to, Status::Ok, cas, [&[], &[], &counter.to_be_bytes()]);
}

/// Appends success and a text.
pub fn text(out: &mut Vec<u8>, to: Echo, text: &[u8]) {
    response(out, to, Status::Ok, 0, [&[], &[], text]);
}

/// Appends one of the stats. [`done`] follows the last.
pub fn stat(out: &mut Vec<u8>, to: Echo, name: &str, value: &str) {
    response(out, to, Status::Ok, 0, [&[], name.as_bytes(), value.as_bytes()]);
}

/// Appends that authentication needs a further step of the client.
pub fn authentication_continues(out: &mut Vec<u8>, to: Echo) {
    failure(out, to, Status::AuthenticationContinues);
}

/// Appends that the record under `key` is missing.
pub fn missing_key(out: &mut Vec<u8>, to: Echo, key: &[u8]) {
    response(out, to, Status::NotFound, 0, [&[], key, &[]]);
}

/// Appends a failure with memcached's text.
#[inline]
pub fn failure(out: &mut Vec<u8>, to: Echo, status: Status) {
    failure_with(out, to, status, status.message());
}

/// Appends a failure with another text.
pub fn failure_with(out: &mut Vec<u8>, to: Echo, status: Status, message: &str) {
    response(out, to, status, 0, [&[], &[], message.as_bytes()]);
}

/// Appends a whole response. Its parts are extras, key and value. A key has at most 2^16 - 1 bytes
/// and all parts at most 2^32 - 1, which no record exceeds.
#[inline]
fn response(out: &mut Vec<u8>, to: Echo, status: Status, cas: u64, parts: [&[u8]; 3]) {
    let [extras, key, value] = parts;
    let body = extras.len() + key.len() + value.len();
    let mut header = [0; HEADER_BYTES];
    header[0] = MAGIC;
    header[1] = to.opcode;
    header[2..4].copy_from_slice(&(key.len() as u16).to_be_bytes());
    header[4] = extras.len() as u8;
    header[6..8].copy_from_slice(&(status as u16).to_be_bytes());
    header[8..12].copy_from_slice(&(body as u32).to_be_bytes());
    header[12..16].copy_from_slice(&to.opaque);
    header[16..].copy_from_slice(&cas.to_be_bytes());
    out.reserve(HEADER_BYTES + body);
    out.extend_from_slice(&header);
    for part in parts {
        out.extend_from_slice(part);
    }
}
