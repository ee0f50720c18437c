//! Redis's RESP: SET, GET, MGET, SCRIPT LOAD and EVALSHA.

use super::{
    Expect, Garbled, Kind, Parsed, Reply, Script, decimal, garbled, line, push_decimal, text,
};
use crate::records::text_key;

fn push_head(kind: u8, number: usize, out: &mut Vec<u8>) {
    out.push(kind);
    push_decimal(number, out);
    out.extend_from_slice(b"\r\n");
}

fn push_bulk(bytes: &[u8], out: &mut Vec<u8>) {
    push_head(b'$', bytes.len(), out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn encode_set(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    push_head(b'*', 3, out);
    push_bulk(b"SET", out);
    push_bulk(key, out);
    push_bulk(value, out);
}

pub(super) fn encode_get(key: &[u8], out: &mut Vec<u8>) {
    push_head(b'*', 2, out);
    push_bulk(b"GET", out);
    push_bulk(key, out);
}

pub(super) fn encode_multi_get(numbers: &[u64], out: &mut Vec<u8>) {
    push_head(b'*', numbers.len() + 1, out);
    push_bulk(b"MGET", out);
    for number in numbers {
        push_bulk(&text_key(*number), out);
    }
}

/// Returns the text of a script, and its SHA-1 digest, which names it in Redis.
fn text_and_digest(script: Script) -> (&'static [u8], &'static [u8]) {
    match script {
        Script::Empty => (b"return ''", b"470dd86f42b395aa514b1e8bd80fec43898f32ef"),
        Script::Increment => {
            (b"return redis.call('INCR', KEYS[1])", b"61636018f4e6b5817b89791bbed242f93fa089e3")
        }
    }
}

pub(super) fn encode_load(script: Script, out: &mut Vec<u8>) {
    push_head(b'*', 3, out);
    push_bulk(b"SCRIPT", out);
    push_bulk(b"LOAD", out);
    push_bulk(text_and_digest(script).0, out);
}

pub(super) fn encode_call(script: Script, key: &[u8], out: &mut Vec<u8>) {
    push_head(b'*', 4, out);
    push_bulk(b"EVALSHA", out);
    push_bulk(text_and_digest(script).1, out);
    push_bulk(b"1", out);
    push_head(b'$', 1 + key.len(), out);
    out.push(b'#');
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

/// A bulk string that has arrived: its length in bytes, and its content unless it is null.
type Bulk<'a> = (usize, Option<&'a [u8]>);

fn bulk(bytes: &[u8]) -> Result<Option<Bulk<'_>>, Garbled> {
    let Some((head, start)) = line(bytes)? else { return Ok(None) };
    let Some(size) = head.strip_prefix(b"$").and_then(decimal::<i64>) else {
        return Err(garbled("not a bulk string", head));
    };
    let Ok(size) = usize::try_from(size) else { return Ok(Some((start, None))) };
    match bytes.get(start..start + size + 2) {
        None => Ok(None),
        Some(content) => match content.strip_suffix(b"\r\n") {
            Some(value) => Ok(Some((start + size + 2, Some(value)))),
            None => Err(garbled("value without line end", &content[size..])),
        },
    }
}

pub(super) fn parse(kind: Kind, numbers: &[u64], bytes: &[u8], expect: &impl Expect) -> Parsed {
    if bytes.first() == Some(&b'-') {
        return Ok(line(bytes)?.map(|(line, length)| (length, Reply::Refused(text(line)))));
    }
    if matches!(kind, Kind::Call(_)) {
        let is_number = bytes.first() == Some(&b':');
        let length = if is_number {
            line(bytes)?.map(|(_, length)| length)
        } else {
            bulk(bytes)?.map(|(length, _)| length)
        };
        return Ok(length.map(|length| (length, Reply::Called)));
    }
    let mut at = 0;
    if kind != Kind::Get {
        let Some((head, length)) = line(bytes)? else { return Ok(None) };
        if kind == Kind::Set && head == b"+OK" {
            return Ok(Some((length, Reply::Stored)));
        }
        let count = head.strip_prefix(b"*").and_then(decimal::<usize>);
        if kind == Kind::Set || count != Some(numbers.len()) {
            return Err(garbled("unexpected reply", head));
        }
        at = length;
    }
    let (mut found, mut wrong) = (0, 0);
    for number in numbers {
        let Some((length, value)) = bulk(&bytes[at..])? else { return Ok(None) };
        at += length;
        if let Some(value) = value {
            found += 1;
            wrong += usize::from(value != expect.value(*number));
        }
    }
    Ok(Some((at, Reply::Values { found, wrong })))
}
