//! Responses, appended to the connection's output.

use super::{Echo, HEADER_BYTES};

/// First byte of every response.
const MAGIC: u8 = 0x81;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// As it should.
    Ok = 0x00,
    /// There is no such record.
    NotFound = 0x01,
    /// There is such a record, or it has another number.
    Exists = 0x02,
    /// The value is longer than the server takes.
    TooLarge = 0x03,
    /// The parts of the request are not those of its command.
    InvalidArguments = 0x04,
    /// A condition of append or prepend was not met.
    NotStored = 0x05,
    /// The value to add to is no number.
    NotNumeric = 0x06,
    /// The client has not said who it is, or is not who it says, or may not do this.
    NotAuthenticated = 0x20,
    /// Authentication takes a further step.
    AuthenticationGoesOn = 0x21,
    /// There is no such command.
    UnknownCommand = 0x81,
    /// The server has no room.
    OutOfMemory = 0x82,
    /// The server failed.
    InternalError = 0x84,
}

impl Status {
    /// Returns memcached's text for the status.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Status::Ok | Status::AuthenticationGoesOn => "",
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

/// Success and nothing more; `number` is that of the record, or 0.
#[inline]
pub fn done(out: &mut Vec<u8>, to: Echo, number: u64) {
    response(out, to, Status::Ok, number, [&[], &[], &[]]);
}

/// A record: its flags, its key unless it is empty, and its value.
#[inline]
pub fn record(out: &mut Vec<u8>, to: Echo, number: u64, flags: u32, key: &[u8], value: &[u8]) {
    response(out, to, Status::Ok, number, [&flags.to_be_bytes(), key, value]);
}

/// The sum of increment or decrement.
#[inline]
pub fn sum(out: &mut Vec<u8>, to: Echo, number: u64, sum: u64) {
    response(out, to, Status::Ok, number, [&[], &[], &sum.to_be_bytes()]);
}

/// Success and a text.
pub fn text(out: &mut Vec<u8>, to: Echo, text: &[u8]) {
    response(out, to, Status::Ok, 0, [&[], &[], text]);
}

/// One figure of the statistics; [`done`] goes after the last.
pub fn stat(out: &mut Vec<u8>, to: Echo, name: &str, value: &str) {
    response(out, to, Status::Ok, 0, [&[], name.as_bytes(), value.as_bytes()]);
}

/// Authentication takes a further step of the client's.
pub fn authentication_goes_on(out: &mut Vec<u8>, to: Echo) {
    failure(out, to, Status::AuthenticationGoesOn);
}

/// There is no record under a key, which is shown.
pub fn missing_key(out: &mut Vec<u8>, to: Echo, key: &[u8]) {
    response(out, to, Status::NotFound, 0, [&[], key, &[]]);
}

/// A failure in the words that memcached has for it.
#[inline]
pub fn failure(out: &mut Vec<u8>, to: Echo, status: Status) {
    failure_with(out, to, status, status.message());
}

/// A failure in other words.
pub fn failure_with(out: &mut Vec<u8>, to: Echo, status: Status, message: &str) {
    response(out, to, status, 0, [&[], &[], message.as_bytes()]);
}

/// A whole response. Its parts are extras, key and value; a key has at most 2^16 - 1 bytes and all
/// together at most 2^32 - 1, which no record exceeds.
#[inline]
fn response(out: &mut Vec<u8>, to: Echo, status: Status, number: u64, parts: [&[u8]; 3]) {
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
    header[16..].copy_from_slice(&number.to_be_bytes());
    out.reserve(HEADER_BYTES + body);
    out.extend_from_slice(&header);
    for part in parts {
        out.extend_from_slice(part);
    }
}
