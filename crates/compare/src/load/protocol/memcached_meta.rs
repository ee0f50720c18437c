//! memcached's meta commands: `ms`, `mg`, and several quiet `mg` that show their keys before `mn`.

use super::{Expect, Kind, Parsed, Reply, decimal, garbled, line, push_decimal, text};
use crate::records::text_key;

pub(super) fn encode_set(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"ms ");
    out.extend_from_slice(key);
    out.push(b' ');
    push_decimal(value.len(), out);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

pub(super) fn encode_get(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"mg ");
    out.extend_from_slice(key);
    out.extend_from_slice(b" v\r\n");
}

pub(super) fn encode_multi_get(numbers: &[u64], out: &mut Vec<u8>) {
    for number in numbers {
        out.extend_from_slice(b"mg ");
        out.extend_from_slice(&text_key(*number));
        out.extend_from_slice(b" v k q\r\n");
    }
    out.extend_from_slice(b"mn\r\n");
}

pub(super) fn parse(kind: Kind, numbers: &[u64], bytes: &[u8], expect: &impl Expect) -> Parsed {
    let mut expected = numbers.iter();
    let (mut at, mut found, mut wrong) = (0, 0, 0);
    loop {
        let Some((line, length)) = line(&bytes[at..])? else { return Ok(None) };
        at += length;
        match (kind, line) {
            (Kind::Set, b"HD") => return Ok(Some((at, Reply::Stored))),
            (Kind::Get, b"EN") | (Kind::MultiGet, b"MN") => {
                return Ok(Some((at, Reply::Values { found, wrong })));
            }
            _ => {}
        }
        let Some(rest) = line.strip_prefix(b"VA ").filter(|_| kind != Kind::Set) else {
            let is_refusal = [&b"SERVER_ERROR"[..], b"CLIENT_ERROR", b"ERROR", b"NS"]
                .iter()
                .any(|word| line.starts_with(word));
            if is_refusal {
                return Ok(Some((at, Reply::Refused(text(line)))));
            }
            return Err(garbled("unexpected line", line));
        };
        let mut words = rest.split(|byte| *byte == b' ');
        let Some(size) = words.next().and_then(decimal::<usize>) else {
            return Err(garbled("no value size", line));
        };
        let key = words.next().and_then(|word| word.strip_prefix(b"k"));
        // The reply to a single key does not show the key.
        let number = expected.find(|number| key.is_none_or(|key| text_key(**number) == key));
        let Some(number) = number else {
            return Err(garbled("a key that was not asked for", line));
        };
        match bytes.get(at..at + size + 2) {
            None => return Ok(None),
            Some(value) => {
                let Some(value) = value.strip_suffix(b"\r\n") else {
                    return Err(garbled("value without line end", &value[size..]));
                };
                wrong += usize::from(value != expect.value(*number));
            }
        }
        found += 1;
        at += size + 2;
        if kind == Kind::Get {
            return Ok(Some((at, Reply::Values { found, wrong })));
        }
    }
}
