//! The update log and the replication stream, held against what Tokyo Tyrant wrote.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

#[path = "common/bytes.rs"]
mod bytes;

use bytes::{assert_is_one_request, unhex};
use std::collections::BTreeMap;
use wire::binary::{Function, Request, double_from_parts};
use wire::limits::UPDATE_BODY_BYTES_MAX;
use wire::update_log::{ENTRY_HEADER_BYTES, Entry, Message, Operation};
use wire::{Invalid, Parse};

const MASTER: [&[u8]; 2] = [
    include_bytes!("captured/update-log/00000001.ulog"),
    include_bytes!("captured/update-log/00000002.ulog"),
];
const REPLICA: &[u8] = include_bytes!("captured/update-log-replica/00000001.ulog");
const STREAM: &[u8] = include_bytes!("captured/replication-stream.bin");

/// Entries of a log, as Tokyo Tyrant exported them: time stamp, `origin:master`, command, body.
fn exported(text: &str) -> Vec<(u64, u16, u16, Vec<u8>)> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [timestamp, servers, _command, body] = fields[..] else { panic!("{line}") };
        let (origin, master) = servers.split_once(':').unwrap();
        let number = |text: &str| text.parse().unwrap();
        (timestamp.parse().unwrap(), number(origin), number(master), unhex(body))
    };
    text.lines().map(line).collect()
}

fn entries(bytes: &[u8]) -> Vec<Entry<'_>> {
    let mut rest = bytes;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let Parse::Complete(entry, length) = Entry::parse(rest) else { panic!("{rest:x?}") };
        entries.push(entry);
        rest = &rest[length..];
    }
    entries
}

fn messages(bytes: &[u8]) -> Vec<Message<'_>> {
    let mut rest = bytes;
    let mut messages = Vec::new();
    while !rest.is_empty() {
        let Parse::Complete(message, length) = Message::parse(rest) else { panic!("{rest:x?}") };
        messages.push(message);
        rest = &rest[length..];
    }
    messages
}

/// Database that the operations fill.
#[derive(Default)]
struct Records(BTreeMap<Vec<u8>, Vec<u8>>);

impl Records {
    fn apply(&mut self, request: &Request<'_>) -> bool {
        let records = &mut self.0;
        match *request {
            Request::Put { key, value } => {
                records.insert(key.to_vec(), value.to_vec());
            }
            Request::PutKeep { key, value } => {
                if records.contains_key(key) {
                    return false;
                }
                records.insert(key.to_vec(), value.to_vec());
            }
            Request::PutCat { key, value } => {
                records.entry(key.to_vec()).or_default().extend_from_slice(value);
            }
            Request::PutShift { key, value, width } => {
                let record = records.entry(key.to_vec()).or_default();
                record.extend_from_slice(value);
                let cut = record.len().saturating_sub(width as usize);
                record.drain(..cut);
            }
            Request::Out { key } => return records.remove(key).is_some(),
            Request::AddInt { key, addend } => {
                let old = records
                    .get(key)
                    .map_or(0, |old| i32::from_le_bytes(old[..].try_into().unwrap()));
                records.insert(key.to_vec(), (old + addend).to_le_bytes().to_vec());
            }
            Request::AddDouble { key, integral, fractional } => {
                let old = records
                    .get(key)
                    .map_or(0.0, |old| f64::from_le_bytes(old[..].try_into().unwrap()));
                let sum = old + double_from_parts(integral, fractional);
                records.insert(key.to_vec(), sum.to_le_bytes().to_vec());
            }
            Request::Misc { function: Function::PutList, arguments, .. } => {
                let arguments: Vec<&[u8]> = arguments.iter().collect();
                for [key, value] in arguments.as_chunks::<2>().0 {
                    records.insert(key.to_vec(), value.to_vec());
                }
            }
            Request::Misc { function: Function::Get, .. } | Request::Sync => {}
            ref other => panic!("{other:?}"),
        }
        true
    }

    fn apply_body(&mut self, body: &[u8]) {
        let operation = Operation::parse(body).unwrap();
        assert_eq!(self.apply(&operation.request), operation.succeeded, "{operation:?}");
    }

    fn assert_are_the_masters(mut self) {
        // It was stored with the flag that keeps it out of the log.
        self.0.insert(b"unlogged".to_vec(), b"1".to_vec());
        let mut text = Vec::new();
        for (key, value) in &self.0 {
            text.extend_from_slice(&[&key[..], b"\t", value, b"\n"].concat());
        }
        // The lines were sorted, and one of the values has a line end in it.
        let lines = |text: &[u8]| {
            let mut lines: Vec<String> = text
                .split(|byte| *byte == b'\n')
                .map(|line| line.escape_ascii().to_string())
                .collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(&text), lines(include_bytes!("captured/update-log-final-records.tsv")));
    }
}

#[test]
fn the_originals_logs_are_read_as_the_original_exported_them() {
    for (bytes, text) in [
        (MASTER.concat(), include_str!("captured/update-log.tsv")),
        (REPLICA.to_vec(), include_str!("captured/update-log-replica.tsv")),
    ] {
        let read: Vec<_> = entries(&bytes)
            .iter()
            .map(|entry| (entry.timestamp_us, entry.origin, entry.master, entry.body.to_vec()))
            .collect();
        assert_eq!(read, exported(text));
    }
}

#[test]
fn the_originals_logs_are_written_again_byte_for_byte() {
    for bytes in [MASTER[0], MASTER[1], REPLICA] {
        let mut written = Vec::new();
        for entry in entries(bytes) {
            let mut body = Vec::new();
            Operation::parse(entry.body).unwrap().encode(&mut body).unwrap();
            Entry { body: &body, ..entry }.encode(&mut written).unwrap();
        }
        assert_eq!(written, bytes);
    }
}

#[test]
fn the_originals_stream_is_read_and_written_again_byte_for_byte() {
    let (server_id, stream) = STREAM.split_first_chunk::<4>().unwrap();
    assert_eq!(u32::from_be_bytes(*server_id), 3);
    let mut written = server_id.to_vec();
    let messages = messages(stream);
    for message in &messages {
        message.encode(&mut written).unwrap();
    }
    assert_eq!(written, STREAM);
    assert_eq!(messages.first(), Some(&Message::NoOperation));
    assert_eq!(messages.last(), Some(&Message::NoOperation));
}

#[test]
fn the_stream_carries_what_is_in_the_log() {
    let log = MASTER.concat();
    let logged: Vec<_> = entries(&log)
        .into_iter()
        .map(|entry| (entry.timestamp_us, u32::from(entry.origin), entry.body))
        .collect();
    let sent: Vec<_> = messages(&STREAM[4..])
        .into_iter()
        .filter_map(|message| match message {
            Message::Update { timestamp_us, origin, body } => Some((timestamp_us, origin, body)),
            Message::NoOperation => None,
        })
        .collect();
    assert_eq!(sent, logged);
}

#[test]
fn the_logs_and_the_stream_make_the_records_that_the_original_had() {
    let mut by_log = Records::default();
    for entry in entries(&MASTER.concat()) {
        by_log.apply_body(entry.body);
    }
    by_log.assert_are_the_masters();
    let mut by_stream = Records::default();
    for message in messages(&STREAM[4..]) {
        if let Message::Update { body, .. } = message {
            by_stream.apply_body(body);
        }
    }
    by_stream.assert_are_the_masters();
    let mut by_replica = Records::default();
    for entry in entries(REPLICA) {
        by_replica.apply_body(entry.body);
    }
    by_replica.assert_are_the_masters();
}

#[test]
fn an_entry_and_an_update_are_taken_when_they_are_whole() {
    let first = entries(MASTER[0])[0];
    let mut bytes = Vec::new();
    first.encode(&mut bytes).unwrap();
    assert_is_one_request(&bytes, |bytes| Entry::parse(bytes).map(|_| ()));
    let update = Message::Update { timestamp_us: 1, origin: 70_000, body: first.body };
    let mut bytes = Vec::new();
    update.encode(&mut bytes).unwrap();
    assert_is_one_request(&bytes, |bytes| Message::parse(bytes).map(|_| ()));
    assert_eq!(Message::parse(&bytes), Parse::Complete(update, bytes.len()));
}

#[test]
fn what_begins_with_another_byte_is_no_entry_and_no_message() {
    assert_eq!(Entry::parse(b"\xca"), Parse::Invalid(Invalid::UnknownCommand));
    assert_eq!(Entry::parse(&[0; 100]), Parse::Invalid(Invalid::UnknownCommand));
    assert_eq!(Message::parse(b"\xc8\x10"), Parse::Invalid(Invalid::UnknownCommand));
}

#[test]
fn a_size_over_the_limit_is_refused_before_the_body_has_come() {
    let header = |size: usize| {
        let mut header = vec![0xc9; ENTRY_HEADER_BYTES];
        header[13..].copy_from_slice(&u32::try_from(size).unwrap().to_be_bytes());
        header
    };
    for size in [UPDATE_BODY_BYTES_MAX - 1, UPDATE_BODY_BYTES_MAX] {
        let whole = ENTRY_HEADER_BYTES + size;
        assert_eq!(Entry::parse(&header(size)), Parse::Incomplete(whole));
        assert_eq!(Message::parse(&header(size)), Parse::Incomplete(whole));
    }
    let over = header(UPDATE_BODY_BYTES_MAX + 1);
    assert_eq!(Entry::parse(&over), Parse::Invalid(Invalid::TooLarge));
    assert_eq!(Message::parse(&over), Parse::Invalid(Invalid::TooLarge));
}

#[test]
fn what_is_no_operation_is_refused() {
    let put = unhex("C8 10 00 00 00 01 00 00 00 01 6B 76");
    for (status, expected) in [(0, Some(true)), (1, Some(false)), (2, None)] {
        let body = [&put[..], &[status]].concat();
        assert_eq!(Operation::parse(&body).ok().map(|parsed| parsed.succeeded), expected);
    }
    // Nothing at all, a request that is not whole, and one with something behind it.
    assert_eq!(Operation::parse(b""), Err(Invalid::BadParameters));
    assert_eq!(Operation::parse(&put), Err(Invalid::BadParameters));
    assert_eq!(Operation::parse(&[&put[..], b"x\0"].concat()), Err(Invalid::BadParameters));
    // A request that changes nothing is in no log.
    assert_eq!(Operation::parse(&unhex("C8 80 00")), Err(Invalid::UnknownCommand));
    let get = Operation { request: Request::Get { key: b"k" }, succeeded: true };
    assert_eq!(get.encode(&mut Vec::new()), Err(Invalid::UnknownCommand));
}
