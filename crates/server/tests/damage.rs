//! Damaged records: every protocol reports an error, which no client can take for a missing record
//! or for the end of a list.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use server::Config;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use support::{
    Client, MISC_FAILURE, Packet, Running, config, hash, misc, request, start, start_with, table,
    tree,
};
use wire::binary::Request;

const GET: u8 = 0x00;
const INTERNAL_ERROR: u16 = 0x84;

/// Starts a server whose record `bad` is damaged, beside two others.
fn damaged(open: fn(&Path) -> cabinet::Database) -> (tempfile::TempDir, Running) {
    damaged_with(config(), open)
}

fn damaged_with(
    config: Config,
    open: fn(&Path) -> cabinet::Database,
) -> (tempfile::TempDir, Running) {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    for (key, value) in [("bad", "c\0the bad value"), ("good", "c\0another"), ("x", "c\0y")] {
        database.put(key.as_bytes(), value.as_bytes()).unwrap();
    }
    // A table reads the beginning of its tree when it is opened, so `bad` must come later.
    for number in 0..500 * u32::from(database.table().is_some()) {
        database
            .put(format!("a{number:03}").as_bytes(), &[b"c\0", &[b'z'; 100][..]].concat())
            .unwrap();
    }
    // A tree would not read records that it has in memory.
    drop(database);
    let database = open(folder.path());
    spoil(folder.path(), b"bad value");
    let server = start_with(config, database);
    (folder, server)
}

/// Flips a bit at every occurrence of `text` in the files of a database.
fn spoil(folder: &Path, text: &[u8]) {
    for directory in fs::read_dir(folder).unwrap() {
        for file in fs::read_dir(directory.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            for place in 0..bytes.len().saturating_sub(text.len()) {
                if bytes[place..].starts_with(text) {
                    file.write_at(&[text[0] ^ 1], place as u64).unwrap();
                }
            }
        }
    }
}

/// Asserts that the server closes the connection without a reply to the last of these requests.
fn expect_close(server: &Running, request: &[u8]) {
    let mut client = server.connect();
    // The request before it has its reply.
    client.send(&[&sync_request()[..], request].concat());
    let reply = client.read_to_end();
    assert_eq!(reply.escape_ascii().to_string(), "\\x00", "{}", request.escape_ascii());
}

fn sync_request() -> Vec<u8> {
    request(&Request::Sync)
}

#[test]
fn tokyo_tyrants_protocol_closes_the_connection_rather_than_report_a_missing_record() {
    for open in [hash as fn(&Path) -> _, tree, table] {
        let (_folder, server) = damaged(open);
        expect_close(&server, &request(&Request::Get { key: b"bad" }));
        expect_close(&server, &request(&Request::ValueSize { key: b"bad" }));
        expect_close(&server, &misc("get", &["bad"]));
        expect_close(&server, &misc("getpart", &["bad", "0", "1"]));
        expect_close(&server, &misc("getlist", &["bad"]));
        expect_close(&server, &misc("regex", &["."]));
        assert!(server.stat_value("damaged_records") >= 6);
        assert_eq!(server.stat_value("damaged_segments"), 1);
    }
    for open in [tree as fn(&Path) -> _, table] {
        let (_folder, server) = damaged(open);
        expect_close(&server, &request(&Request::Out { key: b"bad" }));
        expect_close(&server, &request(&Request::KeysWithPrefix { prefix: b"", max: -1 }));
        expect_close(&server, &misc("iterinit", &["bad"]));
        let mut client = server.connect();
        client.exchange(request(&Request::IterInit), b"\0");
        // A 1 would mean the end of the list.
        client.send(&request(&Request::IterNext).repeat(600));
        let listed = client.read_to_end();
        assert!(!listed.contains(&1) && !listed.ends_with(b"x"), "{}", listed.escape_ascii());
    }
    let (_folder, server) = damaged(tree);
    expect_close(&server, &misc("range", &["", "10"]));
    let (_folder, server) = damaged(table);
    expect_close(&server, &misc("search", &["addcond\0c\x000\0nothing"]));
}

#[test]
fn a_search_that_fails_midway_logs_the_rows_that_it_removed() {
    let logs = tempfile::tempdir().unwrap();
    let (folder, server) = damaged_with(support::logging(1, logs.path()), table);
    expect_close(&server, &misc("search", &["addcond\0c\0STRBW\0", "out"]));
    drop(server);
    let database = table(folder.path());
    let mut removed: Vec<String> = (0..500).map(|number| format!("a{number:03}")).collect();
    removed.retain(|key| matches!(database.get(key.as_bytes()), Ok(None)));
    let out = |key: &String| (1, 0, [b"\xc8\x20\0\0\0\x04", key.as_bytes(), b"\0"].concat());
    let expected: Vec<_> = removed.iter().map(out).collect();
    let mut entries = support::logged(&logs.path().join("ulog"));
    // The first entry is that of the sync.
    entries.remove(0);
    entries.sort_unstable();
    assert_eq!(entries, expected);
    assert!(!removed.is_empty());
}

#[test]
fn commands_with_a_failure_reply_send_it_and_keep_the_connection_open() {
    let (_folder, server) = damaged(hash);
    let mut client = server.connect();
    // The request fails as a whole, although the other keys are readable.
    client.exchange(b"\xc8\x31\0\0\0\x02\0\0\0\x04good\0\0\0\x03bad", b"\x01");
    client.exchange(request(&Request::AddInt { key: b"bad", addend: 1 }), b"\x01");
    client.exchange(request(&Request::PutCat { key: b"bad", value: b"more" }), b"\x01");
    client.exchange(request(&Request::PutKeep { key: b"bad", value: b"new" }), b"\x01");
    client.exchange(misc("error", &[]), support::list(&["6: invalid record header"]));
    client.exchange(misc("nonsense", &[]), MISC_FAILURE);
}

#[test]
fn a_put_or_a_removal_replaces_a_damaged_record() {
    let (_folder, server) = damaged(hash);
    let mut client = server.connect();
    client.exchange(request(&Request::Out { key: b"bad" }), b"\0");
    client.exchange(request(&Request::Get { key: b"bad" }), b"\x01");
    let (_folder, server) = damaged(hash);
    let mut client = server.connect();
    client.exchange(request(&Request::Put { key: b"bad", value: b"new" }), b"\0");
    client.exchange(request(&Request::Get { key: b"bad" }), b"\0\0\0\0\x03new");
    let (_folder, server) = damaged(hash);
    server.connect().exchange(b"delete bad\r\n", b"DELETED\r\n");
}

/// Asserts that the reply is a server error about corruption, and that the connection stays open.
fn expect_server_error(client: &mut Client, request: &str) {
    client.send(request.as_bytes());
    let line = String::from_utf8(client.read_until(b"\r\n")).unwrap();
    assert!(line.starts_with("SERVER_ERROR ") && line.contains("corrupted"), "{request}: {line}");
    client.expect_open();
}

#[test]
fn memcacheds_protocols_reply_with_a_server_error() {
    for open in [hash as fn(&Path) -> _, tree] {
        let (_folder, server) = damaged(open);
        let mut client = server.connect();
        for request in [
            "get bad\r\n",
            "get x bad\r\n",
            "gets bad\r\n",
            "gat 0 bad\r\n",
            "touch bad 100\r\n",
            "incr bad 1\r\n",
            "append bad 0 0 1\r\na\r\n",
            "add bad 0 0 1\r\na\r\n",
            "replace bad 0 0 1\r\na\r\n",
            "cas bad 0 0 1 5\r\na\r\n",
            "mg bad v\r\n",
            "ma bad\r\n",
            "md bad C5\r\n",
            "me bad\r\n",
            "lru_crawler metadump all\r\n",
            "lru_crawler mgdump all\r\n",
            "stats cachedump 1 0\r\n",
        ] {
            expect_server_error(&mut client, request);
        }
        for opcode in [GET, 0x0c, 0x06, 0x0e, 0x02] {
            let mut client = server.connect();
            let extras: &[u8] = match opcode {
                0x06 => &[0; 20],
                0x02 => &[0; 8],
                _ => &[],
            };
            let packet = Packet { opcode, extras, key: b"bad", ..Packet::default() };
            assert_eq!(client.ask(&packet).status, INTERNAL_ERROR, "{opcode:#x}");
        }
    }
}

#[test]
fn http_replies_with_500_and_a_reason() {
    for is_tree in [false, true] {
        let (_folder, server) = damaged(if is_tree { tree } else { hash });
        let text = "a record is damaged: the server's log tells where\n";
        let mut client = server.connect();
        client.send(b"GET /bad HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.expect_response("500 Internal Server Error", text);
        client.send(b"GET /x HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: *\r\n\r\n");
        if !is_tree {
            client.expect_response("304 Not Modified", "");
            client.send(b"HEAD /bad HTTP/1.1\r\nHost: localhost\r\n\r\n");
            client.expect_response("500 Internal Server Error", "");
            client.send(b"PUT /bad HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: *\r\nContent-Length: 1\r\n\r\na");
            client.expect_response("500 Internal Server Error", text);
        } else {
            client.expect_response("500 Internal Server Error", text);
            client.send(b"GET /?list HTTP/1.1\r\nHost: localhost\r\n\r\n");
            client.expect_response("500 Internal Server Error", text);
        }
    }
}

#[test]
fn a_damaged_large_value_is_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let database = hash(folder.path());
    let value = [&vec![b'a'; 3 << 20][..], b"bad value"].concat();
    database.put(b"long", &value).unwrap();
    spoil(folder.path(), b"bad value");
    let server = start(database);
    let mut client = server.connect();
    client.send(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let text = "a record is damaged: the server's log tells where\n";
    client.expect_response("500 Internal Server Error", text);
    // Once the damage is known, no part of the value is sent either.
    client.send(b"GET /long HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-9\r\n\r\n");
    client.expect_response("500 Internal Server Error", text);
}

fn connect(server: &Running) -> client::Client {
    client::Client::connect(("127.0.0.1", server.address.port())).unwrap()
}

fn finished(client: &client::Client, run: u64) -> client::CheckState {
    loop {
        let state = client.check_state(0).unwrap();
        assert_eq!(state.run, run);
        if state.state != b"running" {
            return state;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_check_of_a_running_server_reports_each_damage() {
    for open in [hash as fn(&Path) -> _, tree, table] {
        let (_folder, server) = damaged(open);
        let client = connect(&server);
        assert_eq!(client.check_state(0).unwrap().state, b"idle");
        let run = client.check(None).unwrap();
        let state = finished(&client, run);
        assert_eq!(state.state, b"finished");
        // In a tree both the change and its page are damaged.
        assert!((1..=2).contains(&state.damages), "{state:?}");
        assert_eq!(state.damages, state.damage.len() as u64);
        let damage = &state.damage[0];
        let damage = String::from_utf8(damage.clone()).unwrap();
        assert!(damage.contains(".log at byte ") && damage.contains("checksum"), "{damage}");
        assert_eq!(client.check_state(1).unwrap().damage[..], state.damage[1..]);
        assert!(server.stat_value("scrubbed_bytes") > 0 && server.stat_value("scrub_last_us") > 0);
    }
    // An on-memory database has nothing to verify.
    let server = start(support::memory());
    let client = connect(&server);
    let state = finished(&client, client.check(None).unwrap());
    assert_eq!((&state.state[..], state.bytes), (&b"finished"[..], 0));
}

#[test]
fn one_check_runs_at_a_time_and_its_rate_can_be_changed_and_it_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let database = hash(folder.path());
    for number in 0..200u32 {
        database.put(&number.to_le_bytes(), &[7; 10_000]).unwrap();
    }
    let server = start(database);
    let client = connect(&server);
    client.check_stop().unwrap_err();
    let run = client.check(Some(1)).unwrap();
    assert_eq!(client.check(Some(1)).unwrap(), run);
    client.put(b"key", b"value").unwrap();
    client.check_stop().unwrap();
    let state = finished(&client, run);
    assert_eq!(state.state, b"stopped");
    assert!(state.bytes < 1_000_000, "{state:?}");
    let run = client.check(Some(1)).unwrap();
    assert_eq!(run, 2);
    server.connect().exchange(misc("check", &["start", "0"]), MISC_FAILURE);
    server.connect().exchange(misc("check", &["what"]), MISC_FAILURE);
    server.connect().exchange(misc("check", &[]), MISC_FAILURE);
    // The server stops during a check.
    drop(server);
}

#[test]
fn a_server_verifies_its_database_on_schedule() {
    let scrub_interval = Some(std::time::Duration::from_millis(50));
    let (_folder, server) = damaged_with(Config { scrub_interval, ..config() }, hash);
    server.await_stat_value("scrubs", |scrubs| scrubs > 1);
    server.await_stat_value("scrub_damages", |damages| damages == 1);
    assert_eq!(server.stat_value("damaged_segments"), 1);
    let metrics = support::Monitored::new(&server);
    for name in ["tyrant_damaged_segments", "tyrant_scrub_damages"] {
        metrics.await_value(name, &[], |damaged| damaged == 1.0);
    }
    assert!(metrics.value("tyrant_scrubs_total", &[]) > 1.0);
    let before = metrics.value("tyrant_damaged_reads_total", &[]);
    server.connect().exchange(request(&Request::Get { key: b"good" }), b"\0\0\0\0\tc\0another");
    assert_eq!(metrics.value("tyrant_damaged_reads_total", &[]), before);
    expect_close(&server, &request(&Request::Get { key: b"bad" }));
    assert!(metrics.value("tyrant_damaged_reads_total", &[]) > before);
    let scrub_interval = None;
    let (_folder, server) = damaged_with(Config { scrub_interval, ..config() }, hash);
    assert_eq!(server.stat_value("scrubs"), 0);
}
