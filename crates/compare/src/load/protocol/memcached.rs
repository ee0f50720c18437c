//! memcached's text protocol.

use super::{Expect, Kind, Parsed, Reply, decimal, garbled, line, push_decimal, text};
use crate::records::text_key;

pub(super) fn encode_set(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"set ");
    out.extend_from_slice(key);
    out.extend_from_slice(b" 0 0 ");
    push_decimal(value.len(), out);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn encode_get(numbers: &[u64], out: &mut Vec<u8>) {
    out.extend_from_slice(b"get");
    for number in numbers {
        out.push(b' ');
        out.extend_from_slice(&text_key(*number));
    }
    out.extend_from_slice(b"\r\n");
}

pub(super) fn parse(kind: Kind, numbers: &[u64], bytes: &[u8], expect: &impl Expect) -> Parsed {
    let mut expected = numbers.iter();
    let (mut found, mut wrong) = (0, 0);
    let mut at = 0;
    loop {
        let Some((line, length)) = line(&bytes[at..])? else { return Ok(None) };
        at += length;
        if kind == Kind::Set && line == b"STORED" {
            return Ok(Some((at, Reply::Stored)));
        }
        if kind != Kind::Set && line == b"END" {
            return Ok(Some((at, Reply::Values { found, wrong })));
        }
        let refusal = line.starts_with(b"SERVER_ERROR")
            || line.starts_with(b"CLIENT_ERROR")
            || line == b"ERROR"
            || line == b"NOT_STORED";
        if refusal {
            return Ok(Some((at, Reply::Refused(text(line)))));
        }
        let Some(rest) = line.strip_prefix(b"VALUE ").filter(|_| kind != Kind::Set) else {
            return Err(garbled("unexpected line", line));
        };
        let mut words = rest.split(|byte| *byte == b' ');
        let (key, _flags) = (words.next().unwrap_or_default(), words.next());
        let Some(size) = words.next().and_then(decimal::<usize>) else {
            return Err(garbled("no value size", line));
        };
        // Replies come in the order of the keys, without the missing ones.
        let Some(number) = expected.find(|number| text_key(**number) == key) else {
            return Err(garbled("a key that was not asked for", line));
        };
        let Some(value) = bytes.get(at..at + size) else { return Ok(None) };
        match bytes.get(at + size..at + size + 2) {
            None => return Ok(None),
            Some(b"\r\n") => {}
            Some(end) => return Err(garbled("value without line end", end)),
        }
        found += 1;
        wrong += usize::from(value != expect.value(*number));
        at += size + 2;
    }
}
