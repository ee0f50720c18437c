//! memcached's binary protocol: set (0x01), get (0x00), and several quiet gets that show their keys
//! (0x0d) before a no-op (0x0a).

use super::{Expect, Kind, Parsed, Reply, garbled};
use crate::records::text_key;

const HEADER_BYTES: usize = 24;

const GET: u8 = 0x00;
const SET: u8 = 0x01;
const NO_OP: u8 = 0x0a;
const GET_KEY_QUIET: u8 = 0x0d;

fn push(opcode: u8, extras: &[u8], key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    // Keys and values here are far below their limits.
    let body = (extras.len() + key.len() + value.len()) as u32;
    out.extend_from_slice(&[0x80, opcode]);
    out.extend_from_slice(&(key.len() as u16).to_be_bytes());
    out.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    out.extend_from_slice(&body.to_be_bytes());
    out.extend_from_slice(&[0; 12]);
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

pub(super) fn encode_set(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    push(SET, &[0; 8], key, value, out);
}

pub(super) fn encode_get(key: &[u8], out: &mut Vec<u8>) {
    push(GET, b"", key, b"", out);
}

pub(super) fn encode_multi_get(numbers: &[u64], out: &mut Vec<u8>) {
    for number in numbers {
        push(GET_KEY_QUIET, b"", &text_key(*number), b"", out);
    }
    push(NO_OP, b"", b"", b"", out);
}

/// A response that has arrived.
struct Response<'a> {
    opcode: u8,
    status: u16,
    key: &'a [u8],
    value: &'a [u8],
    length: usize,
}

fn response(bytes: &[u8]) -> Result<Option<Response<'_>>, super::Garbled> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let key = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let extras = usize::from(header[4]);
    if header[0] != 0x81 || extras + key > body {
        return Err(garbled("no response", header));
    }
    let Some(body) = bytes.get(HEADER_BYTES..HEADER_BYTES + body) else { return Ok(None) };
    let (key, value) = body[extras..].split_at(key);
    Ok(Some(Response {
        opcode: header[1],
        status: u16::from_be_bytes([header[6], header[7]]),
        key,
        value,
        length: HEADER_BYTES + body.len(),
    }))
}

pub(super) fn parse(kind: Kind, numbers: &[u64], bytes: &[u8], expect: &impl Expect) -> Parsed {
    if kind == Kind::MultiGet {
        return parse_records(numbers, bytes, expect);
    }
    let Some(Response { status, value, length, .. }) = response(bytes)? else { return Ok(None) };
    let reply = match (status, kind) {
        (0, Kind::Set) => Reply::Stored,
        (0, _) => {
            let wrong = numbers.first().is_none_or(|number| value != expect.value(*number));
            Reply::Values { found: 1, wrong: usize::from(wrong) }
        }
        (1, Kind::Get) => Reply::Values { found: 0, wrong: 0 },
        (status, _) => Reply::Refused(format!("status {status}: {}", value.escape_ascii())),
    };
    Ok(Some((length, reply)))
}

fn parse_records(numbers: &[u64], bytes: &[u8], expect: &impl Expect) -> Parsed {
    let mut expected = numbers.iter();
    let (mut at, mut found, mut wrong) = (0, 0, 0);
    loop {
        let Some(Response { opcode, status, key, value, length }) = response(&bytes[at..])? else {
            return Ok(None);
        };
        at += length;
        if opcode == NO_OP {
            return Ok(Some((at, Reply::Values { found, wrong })));
        }
        if status != 0 {
            return Err(garbled("a refusal among records", value));
        }
        let Some(number) = expected.find(|number| text_key(**number) == key) else {
            return Err(garbled("a key that was not asked for", key));
        };
        found += 1;
        wrong += usize::from(value != expect.value(*number));
    }
}
