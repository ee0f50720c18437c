//! Redis's RESP: SET, GET and MGET.

use super::{Expect, Garbled, Kind, Parsed, Reply, decimal, garbled, line, push_decimal, text};
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

/// A bulk string that has arrived: bytes it takes, and its content unless it is null.
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
