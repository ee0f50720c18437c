//! Tokyo Tyrant's binary protocol: put (0x10), get (0x30), mget (0x31) and ext (0x68). Numbers are
//! 32 bits, big-endian.

use super::{Expect, Kind, Parsed, Reply, Script, garbled};
use crate::records::text_key;

const STATUS_BYTES: usize = 1;

/// First byte of the keys of counters, which differ from those of records.
const COUNTER: u8 = b'#';

fn push_length(length: usize, out: &mut Vec<u8>) {
    // Keys and values here are far below 4 GiB.
    out.extend_from_slice(&(length as u32).to_be_bytes());
}

pub(super) fn encode_set(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xC8, 0x10]);
    push_length(key.len(), out);
    push_length(value.len(), out);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

pub(super) fn encode_get(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xC8, 0x30]);
    push_length(key.len(), out);
    out.extend_from_slice(key);
}

pub(super) fn encode_multi_get(numbers: &[u64], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xC8, 0x31]);
    push_length(numbers.len(), out);
    for number in numbers {
        let key = text_key(*number);
        push_length(key.len(), out);
        out.extend_from_slice(&key);
    }
}

pub(super) fn encode_call(script: Script, key: &[u8], out: &mut Vec<u8>) {
    // Both functions of `script.lua` need no lock of the server.
    let name: &[u8] = match script {
        Script::Empty => b"empty",
        Script::Increment => b"increment",
    };
    out.extend_from_slice(&[0xC8, 0x68]);
    push_length(name.len(), out);
    push_length(0, out);
    push_length(1 + key.len(), out);
    push_length(0, out);
    out.extend_from_slice(name);
    out.push(COUNTER);
    out.extend_from_slice(key);
}

fn length_at(bytes: &[u8], at: usize) -> Option<usize> {
    let digits: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_be_bytes(digits) as usize)
}

pub(super) fn parse(kind: Kind, numbers: &[u64], bytes: &[u8], expect: &impl Expect) -> Parsed {
    let Some(status) = bytes.first() else { return Ok(None) };
    match (status, kind) {
        (0, Kind::Set) => Ok(Some((STATUS_BYTES, Reply::Stored))),
        (0, Kind::Get) => {
            let Some(size) = length_at(bytes, STATUS_BYTES) else { return Ok(None) };
            let start = STATUS_BYTES + 4;
            let Some(value) = bytes.get(start..start + size) else { return Ok(None) };
            let wrong = numbers.first().is_none_or(|number| value != expect.value(*number));
            Ok(Some((start + size, Reply::Values { found: 1, wrong: usize::from(wrong) })))
        }
        (0, Kind::Call(_)) => {
            let Some(size) = length_at(bytes, STATUS_BYTES) else { return Ok(None) };
            let end = STATUS_BYTES + 4 + size;
            Ok((bytes.len() >= end).then_some((end, Reply::Called)))
        }
        (0, Kind::MultiGet) => parse_records(numbers, bytes, expect),
        // Tokyo Tyrant has one status for failures and for missing records.
        (1, Kind::Get) => Ok(Some((STATUS_BYTES, Reply::Values { found: 0, wrong: 0 }))),
        (1, _) => Ok(Some((STATUS_BYTES, Reply::Refused("status 1".into())))),
        _ => Err(garbled("unexpected status", bytes)),
    }
}

fn parse_records(numbers: &[u64], bytes: &[u8], expect: &impl Expect) -> Parsed {
    let Some(count) = length_at(bytes, STATUS_BYTES) else { return Ok(None) };
    if count > numbers.len() {
        return Err(garbled("more records than asked for", bytes));
    }
    let mut expected = numbers.iter();
    let mut at = STATUS_BYTES + 4;
    let mut wrong = 0;
    for _ in 0..count {
        let Some(key_bytes) = length_at(bytes, at) else { return Ok(None) };
        let Some(value_bytes) = length_at(bytes, at + 4) else { return Ok(None) };
        at += 8;
        let Some(record) = bytes.get(at..at + key_bytes + value_bytes) else { return Ok(None) };
        let (key, value) = record.split_at(key_bytes);
        let Some(number) = expected.find(|number| text_key(**number) == key) else {
            return Err(garbled("a key that was not asked for", key));
        };
        wrong += usize::from(value != expect.value(*number));
        at += record.len();
    }
    Ok(Some((at, Reply::Values { found: count, wrong })))
}
