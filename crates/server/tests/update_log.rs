//! Update log: the entries that a server writes, and those that it executes.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::{Database, Meta};
use server::Dialect;
use server::update_log::{Error, Files, LogOffset, Reader, Settings};
use std::fs;
use std::path::Path;
use support::{hash, logged, logging, memory, records, start_with, table, tree, wait_until};
use wire::Parse;
use wire::binary::{Function, Request, StringsBuffer, encode};
use wire::update_log::{Entry, Operation};

const STORED: &[u8] = b"STORED\r\n";

/// Update log of server 3, which is Tokyo Tyrant.
const MASTER: [&[u8]; 2] = [
    include_bytes!("fixtures/update-log/00000001.ulog"),
    include_bytes!("fixtures/update-log/00000002.ulog"),
];

fn originals() -> Vec<(u16, u16, Vec<u8>)> {
    let bytes = MASTER.concat();
    let mut rest = &bytes[..];
    let mut entries = Vec::new();
    while let Parse::Complete(entry, length) = Entry::parse(rest) {
        entries.push((entry.origin, entry.master, entry.body.to_vec()));
        rest = &rest[length..];
    }
    entries
}

/// Returns a folder with Tokyo Tyrant's log.
fn originals_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (number, bytes) in (1..).zip(MASTER) {
        fs::write(folder.path().join(format!("{number:08}.ulog")), bytes).unwrap();
    }
    folder
}

fn request(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(request, &mut bytes).unwrap();
    bytes
}

fn now_ms() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn misc(name: &[u8], options: u32, arguments: &[&[u8]]) -> Vec<u8> {
    let mut strings = StringsBuffer::default();
    for argument in arguments {
        strings.push(argument).unwrap();
    }
    request(&Request::Misc {
        function: Function::from_name(name),
        options,
        arguments: strings.strings(),
    })
}

fn restore(folder: &Path, timestamp_us: u64, options: u32) -> Vec<u8> {
    let path = folder.to_str().unwrap().as_bytes();
    request(&Request::Restore { path, timestamp_us, options })
}

#[test]
fn requests_are_logged_as_tokyo_tyrant_logs_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = logging(3, folder.path());
    config.dialect = Dialect::TokyoTyrant;
    let server = start_with(config, hash(folder.path()));
    let mut client = server.connect();
    let mut expected = originals();
    for (_, _, body) in &expected {
        let operation = Operation::parse(body).unwrap();
        let status: &[u8] = if operation.succeeded { &[0] } else { &[1] };
        match operation.request {
            // These requests came through other protocols.
            Request::Put { key: b"mc" | b"bin" | b"web key", .. }
            | Request::PutCat { key: b"mc", .. }
            | Request::Out { key: b"mc" | b"key4" } => {}
            Request::Sync => {}
            Request::Misc { function, arguments, .. } => {
                let arguments: Vec<&[u8]> = arguments.iter().collect();
                client.send(&misc(function.name(), 0, &arguments));
                client.read(if function == Function::Get { 10 } else { 5 });
            }
            Request::AddInt { .. } => {
                client.send(&request(&operation.request));
                client.read(5);
            }
            Request::AddDouble { .. } => {
                client.send(&request(&operation.request));
                client.read(17);
            }
            plain => client.exchange(request(&plain), status),
        }
    }
    client.exchange(misc(b"put", 1, &[b"unlogged", b"1"]), b"\0\0\0\0\0");
    client.exchange("set mc 0 0 3\r\nabc\r\n", STORED);
    client.exchange("incr mc 1\r\n", "1\r\n");
    client.exchange("append mc 0 0 1\r\nz\r\n", STORED);
    client.exchange("prepend mc 0 0 1\r\ny\r\n", STORED);
    client.exchange("replace mc 0 0 2\r\nrr\r\n", STORED);
    client.exchange("delete mc\r\n", "DELETED\r\n");
    client.exchange("set bin 0 0 4\r\n\0\x01\r\n\r\n", STORED);
    client.send(b"PUT /web%20key HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\nvia http");
    client.read_until(b"Created\n");
    client.send(b"DELETE /key4 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.read_until(b"OK\n");
    client.exchange(b"\xc8\x70", b"\0");
    // Reads are not logged, and a list is logged as the records that it stores.
    let put = |key: &[u8], value: &[u8]| {
        let mut body = request(&Request::Put { key, value });
        body.push(0);
        (3, 0, body)
    };
    expected.retain(|(_, _, body)| !body.windows(7).any(|part| part == b"\x01get\0\0\0"));
    let list = expected.iter().position(|(_, _, body)| body[1] == 0x90).unwrap();
    expected.splice(list..=list, [put(b"a", b"1"), put(b"b", b"2")]);
    expected.retain(|(_, _, body)| body[1] != 0x90);
    assert_eq!(logged(&folder.path().join("ulog")), expected);
}

#[test]
fn a_restored_log_makes_its_records_and_is_logged_again_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let database = hash(folder.path());
    let server = start_with(logging(9, folder.path()), database.clone());
    let from = originals_folder();
    server.connect().exchange(restore(from.path(), 0, 1), b"\0");
    let records = records(&database);
    assert_eq!(records.len(), 64);
    assert_eq!(records[&b"key1"[..]], b"value-number-1+cat");
    assert_eq!(records[&b"key2"[..]], b"-2tail");
    assert_eq!(records[&b"n"[..]], 5_i32.to_le_bytes());
    assert_eq!(records[&b"d"[..]], 1.5_f64.to_le_bytes());
    // The own log is equal apart from time stamps, and has the origins.
    assert_eq!(logged(&folder.path().join("ulog")), originals());
}

#[test]
fn a_restore_begins_at_the_given_time_stamp() {
    let folder = tempfile::tempdir().unwrap();
    let database = hash(folder.path());
    let server = start_with(logging(9, folder.path()), database.clone());
    let from = originals_folder();
    // Time stamp of `put mc abc`.
    server.connect().exchange(restore(from.path(), 1_795_226_397_340_709, 0), b"\0");
    assert_eq!(records(&database).into_keys().collect::<Vec<_>>(), [&b"bin"[..], b"web key"]);
}

#[test]
fn a_checking_restore_ends_at_the_first_difference() {
    let folder = tempfile::tempdir().unwrap();
    let database = hash(folder.path());
    database.put(b"nosuch", b"is there").unwrap();
    let server = start_with(logging(9, folder.path()), database.clone());
    let from = originals_folder();
    server.connect().exchange(restore(from.path(), 0, 1), b"\x01");
    // `out nosuch` did not fail, so no later operation was executed.
    assert_eq!(database.get(b"a").unwrap(), None);
    server.connect().exchange(restore(from.path(), 1_795_226_397_333_166, 0), b"\0");
    assert_eq!(database.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn restoring_a_missing_log_fails_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_with(logging(9, folder.path()), memory());
    server.connect().exchange(restore(&folder.path().join("none"), 0, 0), b"\x01");
    let bad = tempfile::tempdir().unwrap();
    fs::write(bad.path().join("00000001.ulog"), b"no entry").unwrap();
    server.connect().exchange(restore(bad.path(), 0, 0), b"\x01");
    assert_eq!(logged(&folder.path().join("ulog")), []);
}

/// Asserts that a log restored on another server of the same kind makes an equal database.
fn assert_is_repeated(name: &str, open: fn(&Path) -> Database, requests: &[(Vec<u8>, usize)]) {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, second) = (open(one.path()), open(other.path()));
    {
        let server = start_with(logging(1, one.path()), first.clone());
        let mut client = server.connect();
        for (request, reply_bytes) in requests {
            client.send(request);
            client.read(*reply_bytes);
        }
    }
    let server = start_with(logging(2, other.path()), second.clone());
    server.connect().exchange(restore(&one.path().join("ulog"), 0, 1), b"\0");
    assert_eq!(records(&second), records(&first), "{name}");
    assert!(!records(&first).is_empty(), "{name}");
    assert_eq!(logged(&other.path().join("ulog")), logged(&one.path().join("ulog")), "{name}");
}

#[test]
fn duplicates_are_restored() {
    let requests = [
        (misc(b"putlist", 0, &[b"a", b"1", b"a", b"2", b"b", b"3", b"c", b"4"]), 5),
        (misc(b"putdupback", 0, &[b"a", b"0"]), 5),
        (misc(b"out", 0, &[b"a"]), 5),
        (misc(b"outlist", 0, &[b"b"]), 5),
        (request(&Request::Out { key: b"c" }), 1),
    ];
    assert_is_repeated("tree", tree, &requests);
}

/// Returns commands of Redis's protocol, and the length of the replies to them.
fn commands(lines: &[(&str, &str)]) -> (Vec<u8>, usize) {
    let requests = lines.iter().flat_map(|(line, _)| support::redis(line)).collect();
    (requests, lines.iter().map(|(_, reply)| reply.len() + "\r\n".len()).sum())
}

#[test]
fn a_transaction_is_one_entry_and_is_restored() {
    let lines = [
        ("SET 1 a\0b", "+OK"),
        ("MULTI", "+OK"),
        ("SET 2 a\0c", "+QUEUED"),
        ("SET 2 a\0d", "+QUEUED"),
        ("DEL 1 3", "+QUEUED"),
        ("EXEC", "*3\r\n+OK\r\n+OK\r\n:1"),
        ("MSET 4 a\0e 5 a\0f", "+OK"),
        ("MULTI", "+OK"),
        ("SET 6 a\0g", "+QUEUED"),
        ("EXEC", "*1\r\n+OK"),
    ];
    type Open = fn(&Path) -> Database;
    let kinds: [(&str, Open); 4] =
        [("hash", hash), ("tree", tree), ("table", table), ("fixed", support::fixed)];
    for (name, open) in kinds {
        assert_is_repeated(name, open, &[commands(&lines)]);
        let folder = tempfile::tempdir().unwrap();
        let server = start_with(logging(1, folder.path()), open(folder.path()));
        let (requests, reply_bytes) = commands(&lines);
        let mut client = server.connect();
        client.send(&requests);
        client.read(reply_bytes);
        assert_eq!(logged(&folder.path().join("ulog")).len(), 4, "{name}");
    }
    // A part of the values of a key is removed, and a record expires.
    let of_duplicates = [
        ("MULTI", "+OK"),
        ("DEL a", "+QUEUED"),
        ("SET b 1 PXAT 4000000000000", "+QUEUED"),
        ("EXEC", "*2\r\n:1\r\n+OK"),
        ("PEXPIRETIME b", ":4000000000000"),
    ];
    let several = misc(b"putlist", 0, &[b"a", b"1", b"a", b"2", b"a", b"3"]);
    assert_is_repeated("duplicates", tree, &[(several, 5), commands(&of_duplicates)]);
}

#[test]
fn a_transaction_that_is_too_long_for_another_database_is_executed_in_parts_there() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    {
        let server = start_with(logging(1, one.path()), hash(one.path()));
        let value = "v".repeat(300_000);
        let pairs: String = (0..20).map(|number| format!(" key{number} {value}")).collect();
        let lines = [(&*format!("MSET{pairs}"), "+OK"), ("SET end 1", "+OK")];
        let (requests, reply_bytes) = commands(&lines);
        let mut client = server.connect();
        client.send(&requests);
        client.read(reply_bytes);
    }
    let name = format!("{}#capsiz=4m", other.path().join("casket.tcb").display());
    let database = Database::open(&name).unwrap();
    let server = start_with(logging(2, other.path()), database.clone());
    server.connect().exchange(restore(&one.path().join("ulog"), 0, 1), b"\0");
    assert_eq!(database.get(b"end").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(database.get(b"key19").unwrap().is_some());
}

#[test]
fn rows_are_restored_under_their_generated_keys() {
    let requests = [
        (misc(b"setindex", 0, &[b"age", b"DEC"]), 5),
        (misc(b"put", 0, &[b"", b"age", b"30"]), 5),
        (misc(b"put", 0, &[b"", b"age", b"4\x000"]), 5),
        (misc(b"putkeep", 0, &[b"1", b"age", b"5\x000"]), 5),
        (misc(b"putcat", 0, &[b"1", b"name", b"Ann"]), 5),
        (request(&Request::AddInt { key: b"", addend: 7 }), 5),
        (misc(b"put", 0, &[b"x", b"age", b"70"]), 5),
        (misc(b"genuid", 0, &[]), 10),
        (misc(b"search", 0, &[b"addcond\0age\0NUMGE\x0060", b"out"]), 5),
    ];
    assert_is_repeated("table", table, &requests);
}

#[test]
fn generated_ids_are_restored() {
    let put = |key: &'static [u8]| (request(&Request::Put { key, value: b"v" }), 1);
    let requests = [
        put(b"007"),
        put(b"next"),
        put(b"prev"),
        put(b"min"),
        put(b"next"),
        (request(&Request::PutKeep { key: b"next", value: b"v" }), 1),
        (request(&Request::PutCat { key: b"next", value: b"v" }), 1),
        (request(&Request::PutCat { key: b"max", value: b"+" }), 1),
        (request(&Request::PutShift { key: b"prev", value: b"v", width: 3 }), 1),
        (request(&Request::AddInt { key: b"next", addend: 5 }), 5),
        (request(&Request::Out { key: b"min" }), 1),
    ];
    assert_is_repeated("fixed", support::fixed, &requests);
}

#[test]
fn flags_and_expiry_are_restored() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = start_with(logging(1, one.path()), hash(one.path()));
    server.connect().exchange("set a 7 0 1\r\nx\r\n", STORED);
    server.connect().exchange("add b 8 2000 1\r\ny\r\n", STORED);
    server.connect().exchange("set c 0 1000 1\r\ny\r\ntouch c 3000\r\n", b"STORED\r\nTOUCHED\r\n");
    let database = hash(other.path());
    let second = start_with(logging(2, other.path()), database.clone());
    second.connect().exchange(restore(&one.path().join("ulog"), 0, 1), b"\0");
    let meta = |key: &[u8]| database.read(key, |entry| entry.meta).unwrap().unwrap();
    assert_eq!((meta(b"a").flags, meta(b"a").expires_at_ms), (7, 0));
    assert_eq!(meta(b"b").flags, 8);
    assert!(meta(b"c").expires_at_ms > meta(b"b").expires_at_ms);
    drop(folder);
}

#[test]
fn an_append_to_a_record_that_has_expired_by_the_restore_is_dropped_with_it() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (database, copy) = (hash(one.path()), hash(other.path()));
    // A whole second: the first milliseconds of one are the marks of meta commands.
    let expires_at_ms = (now_ms() / 1000 + 3600) * 1000;
    let meta = Meta { flags: 7, expires_at_ms };
    let value = 5_i32.to_le_bytes();
    let long = [b'x'; 200];
    let keys = ["cat", "shift", "int", "double", "append", "list", "keep"].map(str::as_bytes);
    for key in keys {
        let value: &[u8] = match key {
            b"double" => &[0; 8],
            b"list" => &long,
            _ => &value,
        };
        database.put_with(key, value, meta).unwrap();
    }
    {
        let server = start_with(logging(1, one.path()), database.clone());
        let mut client = server.connect();
        client.exchange(request(&Request::PutCat { key: b"cat", value: b"+" }), b"\0");
        let shift = Request::PutShift { key: b"shift", value: b"+", width: 3 };
        client.exchange(request(&shift), b"\0");
        client.exchange(request(&Request::AddInt { key: b"int", addend: 1 }), b"\0\0\0\0\x06");
        client.send(&request(&Request::AddInt { key: b"list", addend: 1 }));
        client.read(1);
        let half = Request::AddDouble { key: b"double", integral: 1, fractional: 0 };
        client.send(&request(&half));
        client.read(17);
        client.exchange("append append 0 0 1\r\n+\r\n", STORED);
        client.exchange("append list 0 0 1\r\n+\r\n", STORED);
        client.exchange(request(&Request::PutKeep { key: b"keep", value: b"v" }), b"\x01");
    }
    // A replica that executes it after all of them have expired has none of them.
    let server = start_with(logging(2, other.path()), copy.clone());
    server.connect().exchange(restore(&one.path().join("ulog"), 0, 1), b"\0");
    for key in keys {
        let found = copy.read(key, |entry| (entry.value.to_vec(), entry.meta)).unwrap();
        let expected = (key != b"keep").then(|| (database.get(key).unwrap().unwrap(), meta));
        assert_eq!(found, expected, "{}", key.escape_ascii());
    }
}

#[test]
fn concurrent_changes_of_a_key_are_logged_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let database = hash(folder.path());
    let mut config = logging(1, folder.path());
    config.threads = 4;
    let server = start_with(config, database.clone());
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.connect();
                for number in 0..200 {
                    let key = number % 5;
                    let value = format!("{writer}-{number:03}");
                    let set = format!("set key{key} 0 0 5\r\n{value}\r\n");
                    client.exchange(set, STORED);
                }
            });
        }
    });
    let other = tempfile::tempdir().unwrap();
    let second = hash(other.path());
    let repeating = start_with(logging(2, other.path()), second.clone());
    repeating.connect().exchange(restore(&folder.path().join("ulog"), 0, 1), b"\0");
    assert_eq!(records(&second), records(&database));
    assert_eq!(logged(&folder.path().join("ulog")).len(), 800);
}

#[test]
fn a_log_that_cannot_be_written_refuses_changes_and_resumes_without_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let ulog = folder.path().join("ulog");
    let database = memory();
    let mut config = logging(1, folder.path());
    config.update_log = Some(Settings { file_bytes_max: 1, ..Settings::new(&ulog) });
    let server = start_with(config, database.clone());
    server.connect().exchange("set a 0 0 1\r\n1\r\n", STORED);
    // The next file cannot be made.
    fs::create_dir(ulog.join("00000002.ulog")).unwrap();
    let mut unlucky = server.connect();
    unlucky.send(b"set b 0 0 1\r\n2\r\n");
    // The client gets an error instead of a success.
    unlucky.expect("SERVER_ERROR the update log cannot be written\r\n");
    unlucky.expect_close();
    let mut client = server.connect();
    client.send(b"set c 0 0 1\r\n3\r\n");
    let refusal = String::from_utf8(client.read_until(b"\r\n")).unwrap();
    assert!(refusal.starts_with("SERVER_ERROR ") && refusal.contains("update log"), "{refusal}");
    assert_eq!(database.get(b"c").unwrap(), None);
    client.exchange("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    fs::remove_dir(ulog.join("00000002.ulog")).unwrap();
    wait_until(|| {
        client.send(b"set d 0 0 1\r\n4\r\n");
        client.read_until(b"\r\n") == STORED
    });
    let keys: Vec<u8> = logged(&ulog).iter().map(|(_, _, body)| body[10]).collect();
    assert_eq!(keys, b"abd");
}

#[test]
fn every_http_change_gets_a_reply_if_the_disk_of_the_log_is_full() {
    let long = "v".repeat(3 << 20);
    let put = |value: &str| {
        format!(
            "PUT /b HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{value}",
            value.len()
        )
    };
    let chunked = format!(
        "PUT /b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{long}\r\n0\r\n\r\n",
        long.len()
    );
    let lines: String =
        (0..100).map(|n| format!("{{\"put\":\"b{n}\",\"value\":\"v\"}}\n")).collect();
    let batch = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n{lines}",
        lines.len()
    );
    for request in [put("v"), put(&long), chunked, batch] {
        let folder = tempfile::tempdir().unwrap();
        let ulog = folder.path().join("ulog");
        let mut config = logging(1, folder.path());
        config.update_log = Some(Settings { file_bytes_max: 1, ..Settings::new(&ulog) });
        let server = start_with(config, hash(folder.path()));
        server.connect().exchange("set a 0 0 1\r\n1\r\n", STORED);
        std::os::unix::fs::symlink("/dev/full", ulog.join("00000002.ulog")).unwrap();
        // The first change meets the full disk, the others are refused.
        for _ in 0..2 {
            let mut client = server.connect();
            client.send(request.as_bytes());
            let line = String::from_utf8(client.read_until(b"\r\n")).unwrap();
            let is_batch = request.starts_with("POST");
            let expected = ["HTTP/1.1 507 Insufficient Storage\r\n", "HTTP/1.1 200 OK\r\n"];
            assert!(line == expected[0] || is_batch && line == expected[1], "{line}");
            let rest = String::from_utf8(client.read_until(b"\n")).unwrap();
            if line == expected[1] {
                let answers = client.read_until(b"\"b99\",\"error\":\"Insufficient Storage\"}\n");
                let refused = String::from_utf8_lossy(&answers).matches("Insufficient").count();
                assert!(refused >= 99, "{rest}: {refused}");
            }
        }
        server.connect().exchange("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    }
}

#[test]
fn a_server_that_stops_leaves_a_whole_log_and_no_intent_log() {
    let folder = tempfile::tempdir().unwrap();
    let ulog = folder.path().join("ulog");
    for round in 1..=3 {
        let mut config = logging(1, folder.path());
        config.update_log = Some(Settings { is_asynchronous: true, ..Settings::new(&ulog) });
        let mut server = start_with(config, hash(folder.path()));
        let mut client = server.connect();
        for number in 0..100 {
            client.exchange(format!("set key{number} 0 0 1\r\nv\r\n"), STORED);
        }
        server.begin_stop();
        server.join();
        assert_eq!(logged(&ulog).len(), round * 100);
        let names = fs::read_dir(&ulog).unwrap().map(|item| item.unwrap().file_name());
        let names: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with('j')).collect();
        assert!(names.is_empty(), "{names:?}");
    }
}

#[test]
fn a_server_without_an_id_has_no_log_and_no_master() {
    let folder = tempfile::tempdir().unwrap();
    for (id, is_good) in [(0, false), (1, true), (65_535, true), (65_536, false)] {
        let bound = server::Server::bind(logging(id, folder.path()), memory());
        assert_eq!(bound.is_ok(), is_good, "{id}");
    }
}

/// Body of an entry: the key `key` is removed.
const BODY: &[u8; 10] = b"\xc8\x20\0\0\0\x03key\0";

/// Writes a log of entries with the time stamps 1, 2, ..., each of 17 + 10 bytes.
fn write(folder: &Path, file_bytes_max: u64, entries: u64) {
    let mut files = Files::open(folder, file_bytes_max).unwrap();
    for timestamp_us in files.last_timestamp_us() + 1..=entries {
        let entry = Entry { timestamp_us, origin: 1, master: 0, body: BODY };
        files.append(&entry).unwrap();
    }
}

fn read(folder: &Path, from_us: u64) -> Vec<u64> {
    let mut reader = Reader::open(folder, from_us).unwrap().unwrap();
    let mut timestamps = Vec::new();
    while let Some(entry) = reader.next(None).unwrap() {
        timestamps.push(entry.timestamp_us);
    }
    timestamps
}

#[test]
fn a_file_ends_with_the_entry_that_reaches_the_limit() {
    for (limit, first_file) in [(53, 54), (54, 54), (55, 81), (0, 108)] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), limit, 4);
        let bytes = fs::metadata(folder.path().join("00000001.ulog")).unwrap().len();
        assert_eq!(bytes, first_file, "{limit}");
        assert_eq!(read(folder.path(), 0), [1, 2, 3, 4]);
    }
}

#[test]
fn a_log_that_another_process_writes_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::open(folder.path(), 0).unwrap();
    assert!(matches!(Files::open(folder.path(), 0), Err(Error::InUse { .. })));
    drop(files);
    Files::open(folder.path(), 0).unwrap();
}

#[test]
fn a_log_continues_in_its_last_file() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 54, 3);
    write(folder.path(), 54, 6);
    assert_eq!(read(folder.path(), 0), [1, 2, 3, 4, 5, 6]);
    assert_eq!(read(folder.path(), 5), [5, 6]);
    assert_eq!(read(folder.path(), 7), [] as [u64; 0]);
    assert!(!folder.path().join("00000004.ulog").exists());
}

#[test]
fn an_incomplete_entry_after_a_crash_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 0, 3);
    let path = folder.path().join("00000001.ulog");
    let whole = fs::read(&path).unwrap();
    for torn in 55..81 {
        fs::write(&path, &whole[..torn]).unwrap();
        assert_eq!(read(folder.path(), 0), [1, 2], "{torn}");
        write(folder.path(), 0, 3);
        assert_eq!(fs::read(&path).unwrap(), whole, "{torn}");
    }
    // Zeros, as a crash of the system leaves them before the blocks are written.
    fs::write(&path, [&whole[..], &[0; 5000]].concat()).unwrap();
    write(folder.path(), 0, 4);
    assert_eq!(read(folder.path(), 0), [1, 2, 3, 4]);
}

#[test]
fn a_corrupted_entry_is_an_error_and_is_not_skipped() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 0, 3);
    let path = folder.path().join("00000001.ulog");
    let mut bytes = fs::read(&path).unwrap();
    bytes[27] = 0x55;
    fs::write(&path, &bytes).unwrap();
    // Writing continues in a new file, so that no byte is lost that may be read by hand.
    write(folder.path(), 0, 2);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let mut reader = Reader::open(folder.path(), 0).unwrap().unwrap();
    assert_eq!(reader.next(None).unwrap().unwrap().timestamp_us, 1);
    let error = reader.next(None).unwrap_err();
    assert!(matches!(error, Error::Corrupted { offset: 27, .. }), "{error}");
}

#[test]
fn a_restore_of_a_log_with_a_damaged_length_fails() {
    let folder = tempfile::tempdir().unwrap();
    let ulog = folder.path().join("one");
    write(&ulog, 0, 6);
    let path = ulog.join("00000001.ulog");
    let whole = fs::read(&path).unwrap();
    let server = start_with(logging(9, folder.path()), hash(folder.path()));
    // The four bytes of the length of the second entry, and of the last one.
    for at in (27 + 13..27 + 17).chain(5 * 27 + 13..5 * 27 + 17) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        server.connect().exchange(restore(&ulog, 0, 0), b"\x01");
        // A copy of a log that is written may end in any entry.
        fs::write(&path, &whole[..5 * 27 + 20]).unwrap();
        server.connect().exchange(restore(&ulog, 0, 0), b"\0");
    }
}

#[test]
fn a_damaged_file_stops_no_reader_that_needs_later_entries_only() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 0, 4);
    let path = folder.path().join("00000001.ulog");
    let mut bytes = fs::read(&path).unwrap();
    bytes[27 + 15] ^= 0x10;
    fs::write(&path, &bytes).unwrap();
    write(folder.path(), 0, 6);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    for (from_us, is_told) in [(0, true), (2, true), (4, true), (5, false), (6, false)] {
        let mut reader = Reader::open(folder.path(), from_us).unwrap().unwrap();
        let next = loop {
            match reader.next(None) {
                Ok(Some(entry)) if entry.timestamp_us < 2 => {}
                other => break other.map(|entry| entry.map(|entry| entry.timestamp_us)),
            }
        };
        match next {
            Err(Error::Corrupted { offset: 27, .. }) => assert!(is_told, "{from_us}"),
            other => assert_eq!((other.unwrap(), is_told), (Some(from_us), false)),
        }
    }
}

#[test]
fn an_entry_that_is_no_longer_kept_is_an_error_and_is_not_skipped() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 1, 5);
    fs::remove_file(folder.path().join("00000001.ulog")).unwrap();
    assert!(matches!(Reader::open(folder.path(), 1), Err(Error::Removed { from_us: 1 })));
    assert_eq!(read(folder.path(), 2), [2, 3, 4, 5]);
}

#[test]
fn a_reader_reports_files_that_were_removed_before_it_reached_them() {
    for is_told in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 1, 5);
        let end = is_told.then_some(LogOffset { file: 5, offset: 27 });
        let mut reader = Reader::open(folder.path(), 0).unwrap().unwrap();
        assert_eq!(reader.next(end).unwrap().unwrap().timestamp_us, 1);
        for number in 1..=3 {
            fs::remove_file(folder.path().join(format!("{number:08}.ulog"))).unwrap();
        }
        // The next read does not skip them either.
        for _ in 0..2 {
            let error = reader.next(end).unwrap_err();
            let missing = folder.path().join("00000002.ulog");
            assert!(matches!(&error, Error::Missing { file } if *file == missing), "{error}");
        }
    }
}

#[test]
fn files_before_the_first_entry_that_is_wanted_may_be_removed_while_a_reader_goes_there() {
    for (from_us, expected) in [(5, Some(5)), (4, Some(4)), (3, None)] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 1, 5);
        // It begins with the first file, as clocks may differ.
        let mut reader = Reader::open(folder.path(), from_us).unwrap().unwrap();
        assert_eq!(reader.file(), 1);
        for number in 1..=3 {
            fs::remove_file(folder.path().join(format!("{number:08}.ulog"))).unwrap();
        }
        let next = reader.next(None).map(|entry| entry.map(|entry| entry.timestamp_us));
        assert_eq!(next.ok().flatten(), expected, "from {from_us}");
    }
}

#[test]
fn a_reader_stops_at_the_given_end_and_resumes_there() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), 54, 5);
    let mut reader = Reader::open(folder.path(), 0).unwrap().unwrap();
    let mut next = |file, offset| {
        let entry = reader.next(Some(LogOffset { file, offset })).unwrap();
        entry.map(|entry| entry.timestamp_us)
    };
    assert_eq!(next(1, 27), Some(1));
    assert_eq!(next(1, 27), None);
    assert_eq!(next(2, 0), Some(2));
    assert_eq!(next(2, 0), None);
    assert_eq!(next(3, 27), Some(3));
}

/// Writes the intent log of a process that was killed while it changed these keys; an empty key is
/// any record.
fn leave_intent_log(ulog: &Path, keys: &[&[u8]]) {
    fs::create_dir_all(ulog).unwrap();
    let mut intent_log = b"tyrant journal 2\n".to_vec();
    intent_log.extend(cabinet::files::page_cache_id(ulog).unwrap());
    for (id, key) in (1_u64..).zip(keys) {
        // Server 1 was changing it for an own client.
        let mut subject = vec![1, 0, 0, 0];
        if !key.is_empty() {
            subject.extend([b"k", *key].concat());
        }
        let mut head = vec![1];
        head.extend(id.to_le_bytes());
        head.extend((subject.len() as u32).to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&head), &subject);
        intent_log.extend(head);
        intent_log.extend(sum.to_le_bytes());
        intent_log.extend(subject);
    }
    // The rest of the file was not written.
    intent_log.resize(4096, 0);
    fs::write(ulog.join("journal.00000001"), intent_log).unwrap();
}

/// Asserts that changes of a killed process, logged at the next start, make an equal copy of a
/// database that lacks them.
fn assert_is_resolved(
    name: &str,
    open: fn(&Path) -> Database,
    keys: &[&[u8]],
    change: fn(&Database),
) {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (database, copy) = (open(one.path()), open(other.path()));
    for database in [&database, &copy] {
        database.put(b"1", b"a\0old").unwrap();
        database.put(b"2", b"a\0old").unwrap();
    }
    change(&database);
    assert_ne!(records(&database), records(&copy), "{name}");
    let ulog = one.path().join("ulog");
    leave_intent_log(&ulog, keys);
    for _ in 0..2 {
        // Another start logs no further entry.
        drop(start_with(logging(1, one.path()), database.clone()));
    }
    let server = start_with(logging(2, other.path()), copy.clone());
    server.connect().exchange(restore(&ulog, 0, 1), b"\0");
    assert_eq!(records(&copy), records(&database), "{name}");
    // They may be those of one transaction.
    assert_eq!(logged(&ulog).len(), 1, "{name}");
}

#[test]
fn records_that_a_killed_process_was_changing_are_logged_as_they_are() {
    let change = |database: &Database| {
        database.put(b"1", b"a\0new").unwrap();
        database.remove(b"2").unwrap();
    };
    let keys: [&[u8]; 3] = [b"1", b"2", b"3"];
    assert_is_resolved("hash", hash, &keys, change);
    assert_is_resolved("tree", tree, &keys, change);
    assert_is_resolved("table", table, &keys, change);
    assert_is_resolved("fixed", support::fixed, &keys, change);
    assert_is_resolved("an id that was given out", support::fixed, &[b"next"], |database| {
        database.put(b"next", b"new").unwrap();
    });
    assert_is_resolved("duplicates", tree, &[b"1"], |database| {
        database.put_duplicate(b"1", b"a\0more", cabinet::Side::After).unwrap();
        database.put(b"1", b"a\0first").unwrap();
    });
    assert_is_resolved("all", hash, &[b""], |database| database.clear().unwrap());
}

#[test]
fn flags_and_expiry_of_these_records_are_logged_too() {
    for open in [hash, tree] {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (database, copy) = (open(one.path()), open(other.path()));
        let meta = Meta { flags: 7, expires_at_ms: 4_000_000_000_000 };
        database.put_with(b"k", b"v", meta).unwrap();
        let ulog = one.path().join("ulog");
        leave_intent_log(&ulog, &[b"k"]);
        drop(start_with(logging(1, one.path()), database));
        let server = start_with(logging(2, other.path()), copy.clone());
        server.connect().exchange(restore(&ulog, 0, 1), b"\0");
        assert_eq!(copy.read(b"k", |entry| entry.meta).unwrap(), Some(meta));
    }
}

/// Sends `words` as requests of the binary protocol to a server with a log. Returns the log.
fn logged_by(server_folder: &Path, database: Database, requests: &[Request<'_>]) -> Vec<Vec<u8>> {
    let server = start_with(logging(1, server_folder), database);
    let mut client = server.connect();
    for one in requests {
        client.send(&request(one));
        client.read(if matches!(one, Request::AddInt { .. }) { 5 } else { 1 });
    }
    drop(server);
    logged(&server_folder.join("ulog")).into_iter().map(|(_, _, body)| body).collect()
}

#[test]
fn relative_ids_are_logged_as_ids_with_and_without_a_cap() {
    for name in ["casket.tcf#width=8", "casket.tcf#width=8#capsiz=64m"] {
        let folder = tempfile::tempdir().unwrap();
        let value: &[u8] = b"v";
        let requests = [
            Request::Put { key: b"5", value },
            Request::Put { key: b"next", value },
            Request::PutKeep { key: b"prev", value: b"w" },
            Request::PutCat { key: b"max", value },
            Request::AddInt { key: b"next", addend: 7 },
            Request::Out { key: b"min" },
            Request::Out { key: b"max" },
        ];
        let database = support::named(folder.path(), name);
        let bodies = logged_by(folder.path(), database.clone(), &requests);
        let keys: Vec<&[u8]> = bodies
            .iter()
            .map(|body| match Operation::parse(body).unwrap().request {
                Request::Put { key, .. }
                | Request::PutKeep { key, .. }
                | Request::PutCat { key, .. }
                | Request::AddInt { key, .. }
                | Request::Out { key } => key,
                // With a cap a removal succeeds wherever it is executed.
                Request::Misc { function: Function::OutList, arguments, .. }
                    if name.contains("capsiz") =>
                {
                    arguments.iter().next().expect("a key")
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(keys, [&b"5"[..], b"6", b"4", b"6", b"7", b"4", b"7"], "{name}");
        // Executed elsewhere they have the same result, whatever was there before.
        let other = tempfile::tempdir().unwrap();
        let replica = support::named(other.path(), "casket.tcf#width=8");
        replica.put(b"99", b"x").unwrap();
        let server = start_with(logging(2, other.path()), replica.clone());
        let path = folder.path().join("ulog");
        server.connect().exchange(restore(&path, 0, 0), b"\0");
        replica.remove(b"99").unwrap();
        assert_eq!(records(&replica), records(&database), "{name}");
    }
}

#[test]
fn an_addition_to_a_row_is_logged_as_the_resulting_row() {
    let long = "x".repeat(200);
    for dialect in [Dialect::Memcached, Dialect::TokyoTyrant] {
        let folder = tempfile::tempdir().unwrap();
        let database = table(folder.path());
        let mut config = logging(1, folder.path());
        config.dialect = dialect;
        let server = start_with(config, database.clone());
        let mut client = server.connect();
        for value in [String::from("a\0b"), format!("a\0{long}")] {
            let bytes = value.len();
            client.exchange(format!("set row{bytes} 0 0 {bytes}\r\n{value}\r\n"), STORED);
            client.exchange(format!("append row{bytes} 0 0 1\r\nZ\r\n"), STORED);
            client.exchange(format!("prepend row{bytes} 0 0 1\r\nY\r\n"), STORED);
        }
        drop(server);
        let bodies = logged(&folder.path().join("ulog"));
        assert!(bodies.iter().all(|(_, _, body)| body[1] == 0x10), "{bodies:?}");
        let other = tempfile::tempdir().unwrap();
        let replica = table(other.path());
        let server = start_with(logging(2, other.path()), replica.clone());
        let path = folder.path().join("ulog");
        server.connect().exchange(restore(&path, 0, 0), b"\0");
        assert_eq!(records(&replica), records(&database));
        assert_eq!(database.get(b"row3").unwrap().as_deref(), Some(&b"Ya\0bZ"[..]));
    }
}

/// Tokyo Tyrant makes a column of each argument of `misc put`.
#[test]
fn rows_are_logged_without_flags_and_expiry() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_with(logging(1, folder.path()), table(folder.path()));
    let mut client = server.connect();
    client.exchange("set one 7 500 3\r\na\0b\r\n", STORED);
    client.exchange("add two 7 500 3\r\na\0b\r\n", STORED);
    client.exchange("replace one 7 500 3\r\na\0c\r\n", STORED);
    client.exchange("touch one 500\r\n", "TOUCHED\r\n");
    client.exchange("ms three 3 T500 F7\r\na\0b\r\n", "HD\r\n");
    client.exchange("get one\r\n", "VALUE one 0 3\r\na\0c\r\nEND\r\n");
    drop(server);
    let bodies = logged(&folder.path().join("ulog"));
    assert_eq!(bodies.len(), 5);
    for (_, _, body) in bodies {
        let operation = Operation::parse(&body).unwrap();
        let is_plain = matches!(operation.request, Request::Put { .. } | Request::PutKeep { .. });
        assert!(is_plain, "{operation:?}");
    }
}
