//! memcached's binary protocol: replies are memcached's.
//!
//! `cargo xtask memcached` compares with memcached itself. The tests here cover each command on its
//! own, and the differences from memcached.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Durability;
use server::{CommandMask, Config};
use support::{
    Client, ManualEngine, Packet, Response, config, hash, memory, memory_tree, start, start_engine,
    start_with, tree,
};

const FLAGS_AND_EXPIRY: &[u8] = &[0, 0, 0, 5, 0, 0, 0, 0];

/// Returns a `set` as memcached clients send it.
const VERSION: &str = concat!("1.6.45-tyrant-", env!("CARGO_PKG_VERSION"));

const GET: u8 = 0x00;
const SET: u8 = 0x01;
const ADD: u8 = 0x02;
const REPLACE: u8 = 0x03;
const DELETE: u8 = 0x04;
const INCREMENT: u8 = 0x05;
const DECREMENT: u8 = 0x06;
const NO_OP: u8 = 0x0a;
const STAT: u8 = 0x10;

fn set<'a>(opcode: u8, key: &'a [u8], value: &'a [u8]) -> Packet<'a> {
    Packet { opcode, extras: FLAGS_AND_EXPIRY, key, value, number: 0 }
}

fn on_key(opcode: u8, key: &[u8]) -> Packet<'_> {
    Packet { opcode, key, ..Packet::default() }
}

fn alone(opcode: u8) -> Packet<'static> {
    Packet { opcode, ..Packet::default() }
}

/// Returns status and text of a response that has nothing else.
fn said(response: &Response) -> (u16, &str) {
    assert!(response.extras.is_empty() && response.key.is_empty(), "{response:?}");
    (response.status, std::str::from_utf8(&response.value).unwrap())
}

#[test]
fn values_are_stored_and_read() {
    let server = start(memory());
    let mut client = server.connect();
    let stored = client.ask(&set(SET, b"k", b"value"));
    assert_eq!(said(&stored), (0, ""));
    assert!(stored.number > 0);
    let found = client.ask(&on_key(GET, b"k"));
    assert_eq!((found.status, found.number), (0, stored.number));
    assert_eq!((&found.extras[..], &found.value[..]), (&[0, 0, 0, 5][..], &b"value"[..]));
    assert_eq!(found.key, b"");
    assert_eq!(client.ask(&on_key(0x0c, b"k")).key, b"k");
    assert_eq!(said(&client.ask(&on_key(GET, b"n"))), (1, "Not found"));
    let missed = client.ask(&on_key(0x0c, b"n"));
    assert_eq!((missed.status, &missed.key[..], &missed.value[..]), (1, &b"n"[..], &b""[..]));
    client.exchange("gets k\r\n", format!("VALUE k 5 5 {}\r\nvalue\r\nEND\r\n", stored.number));
}

#[test]
fn each_condition_of_a_store_has_its_status() {
    let server = start(memory());
    let mut client = server.connect();
    assert_eq!(said(&client.ask(&set(REPLACE, b"k", b"1"))), (1, "Not found"));
    assert_eq!(said(&client.ask(&set(ADD, b"k", b"1"))), (0, ""));
    assert_eq!(said(&client.ask(&set(ADD, b"k", b"1"))), (2, "Data exists for key."));
    let append = |opcode, key| Packet { opcode, key, value: b"x", ..Packet::default() };
    assert_eq!(said(&client.ask(&append(0x0e, b"n"))), (5, "Not stored."));
    assert_eq!(said(&client.ask(&append(0x0f, b"n"))), (5, "Not stored."));
    assert_eq!(said(&client.ask(&append(0x0e, b"k"))), (0, ""));
    assert_eq!(said(&client.ask(&append(0x0f, b"k"))), (0, ""));
    assert_eq!(client.ask(&on_key(GET, b"k")).value, b"x1x");
}

#[test]
fn every_command_that_changes_a_record_compares_the_cas_number() {
    let server = start(memory());
    let mut client = server.connect();
    for opcode in [SET, ADD, REPLACE] {
        let missing = Packet { number: 7, ..set(opcode, b"k", b"1") };
        assert_eq!(said(&client.ask(&missing)), (1, "Not found"));
    }
    let number = client.ask(&set(SET, b"k", b"1")).number;
    let sum = [[0; 7].as_slice(), &[1], &[0; 12]].concat();
    let all = |number| {
        [
            Packet { number, ..set(SET, b"k", b"2") },
            Packet { number, ..set(ADD, b"k", b"2") },
            Packet { number, ..set(REPLACE, b"k", b"2") },
            Packet { opcode: 0x0e, key: b"k", value: b"2", number, ..Packet::default() },
            Packet { opcode: 0x0f, key: b"k", value: b"2", number, ..Packet::default() },
            Packet { number, ..on_key(DELETE, b"k") },
        ]
    };
    for packet in all(number + 1) {
        assert_eq!(said(&client.ask(&packet)), (2, "Data exists for key."));
    }
    let changed = Packet { opcode: INCREMENT, extras: &sum, key: b"k", number: 9, value: b"" };
    assert_eq!(said(&client.ask(&changed)), (2, "Data exists for key."));
    let mut number = number;
    for place in 0..6 {
        let answer = client.ask(&all(number)[place]);
        assert_eq!(said(&answer), (0, ""));
        assert_ne!(answer.number, number);
        number = answer.number;
    }
    assert_eq!(said(&client.ask(&on_key(DELETE, b"k"))), (1, "Not found"));
}

#[test]
fn incr_and_decr_create_the_record_if_asked() {
    let server = start(memory());
    let mut client = server.connect();
    let sum = |amount: u64, initial: u64, expiry: u32| {
        [&amount.to_be_bytes()[..], &initial.to_be_bytes(), &expiry.to_be_bytes()].concat()
    };
    let ask = |client: &mut Client, opcode, extras: &[u8]| {
        client.ask(&Packet { opcode, extras, key: b"n", ..Packet::default() })
    };
    let none = ask(&mut client, INCREMENT, &sum(1, 7, u32::MAX));
    assert_eq!(said(&none), (1, "Not found"));
    assert_eq!(ask(&mut client, INCREMENT, &sum(1, 7, 0)).value, 7u64.to_be_bytes());
    assert_eq!(ask(&mut client, INCREMENT, &sum(1, 7, u32::MAX)).value, 8u64.to_be_bytes());
    assert_eq!(ask(&mut client, DECREMENT, &sum(9, 7, 0)).value, 0u64.to_be_bytes());
    assert_eq!(ask(&mut client, INCREMENT, &sum(u64::MAX, 7, 0)).value, u64::MAX.to_be_bytes());
    assert_eq!(ask(&mut client, INCREMENT, &sum(2, 7, 0)).value, 1u64.to_be_bytes());
    client.ask(&set(SET, b"n", b"x"));
    let text = "Non-numeric server-side value for incr or decr";
    assert_eq!(said(&ask(&mut client, INCREMENT, &sum(2, 7, 0))), (6, text));
    // A new number has the expiry of its request.
    client.ask(&on_key(DELETE, b"n"));
    ask(&mut client, INCREMENT, &sum(1, 7, 500));
    client.exchange_in_time("mg n t\r\n", "HD t500\r\n");
    ask(&mut client, INCREMENT, &sum(1, 7, 0));
    client.exchange_in_time("mg n t\r\n", "HD t500\r\n");
}

#[test]
fn a_touch_sets_the_expiry_and_keeps_the_cas_number() {
    let server = start(memory());
    let mut client = server.connect();
    let number = client.ask(&set(SET, b"k", b"v")).number;
    let touch = |opcode, seconds: &'static [u8; 4]| Packet {
        opcode,
        extras: seconds,
        key: b"k",
        ..Packet::default()
    };
    let touched = client.ask(&touch(0x1c, &[0, 0, 1, 0]));
    assert_eq!((touched.status, touched.number), (0, number));
    assert_eq!((&touched.extras[..], &touched.value[..]), (&[0, 0, 0, 5][..], &b""[..]));
    client.exchange("mg k t\r\n", "HD t256\r\n");
    let read = client.ask(&touch(0x1d, &[0, 0, 2, 0]));
    assert_eq!((read.number, &read.key[..], &read.value[..]), (number, &b""[..], &b"v"[..]));
    client.exchange("mg k t\r\n", "HD t512\r\n");
    assert_eq!(client.ask(&touch(0x23, &[0; 4])).key, b"k");
    client.exchange("mg k t\r\n", "HD t-1\r\n");
    client.ask(&on_key(DELETE, b"k"));
    assert_eq!(said(&client.ask(&touch(0x1c, &[0; 4]))), (1, "Not found"));
    assert_eq!(said(&client.ask(&touch(0x1d, &[0; 4]))), (1, "Not found"));
    assert_eq!(client.ask(&touch(0x23, &[0; 4])).key, b"k");
}

#[test]
fn quiet_commands_reply_only_to_the_unexpected() {
    let server = start(memory());
    let mut client = server.connect();
    let sum = [[0; 7].as_slice(), &[1], &[0; 12]].concat();
    let quiet = [
        set(0x11, b"k", b"1"),
        set(0x12, b"l", b"1"),
        set(0x13, b"k", b"2"),
        Packet { opcode: 0x15, extras: &sum, key: b"k", ..Packet::default() },
        Packet { opcode: 0x16, extras: &sum, key: b"k", ..Packet::default() },
        Packet { opcode: 0x19, key: b"k", value: b"3", ..Packet::default() },
        Packet { opcode: 0x1a, key: b"k", value: b"1", ..Packet::default() },
        on_key(0x09, b"n"),
        on_key(0x0d, b"n"),
        Packet { opcode: 0x1e, extras: &[0; 4], key: b"n", ..Packet::default() },
        Packet { opcode: 0x24, extras: &[0; 4], key: b"n", ..Packet::default() },
    ];
    client.send(&quiet.map(|packet| packet.bytes()).concat());
    assert_eq!(said(&client.ask(&alone(NO_OP))), (0, ""));
    for (packet, key) in [(on_key(0x09, b"k"), &b""[..]), (on_key(0x0d, b"k"), b"k")] {
        let found = client.ask(&packet);
        assert_eq!((&found.key[..], &found.value[..]), (key, &b"123"[..]));
    }
    assert_eq!(client.ask(&Packet { opcode: 0x24, extras: &[0; 4], ..on_key(0, b"k") }).key, b"k");
    assert_eq!(said(&client.ask(&set(0x12, b"k", b"1"))), (2, "Data exists for key."));
    assert_eq!(said(&client.ask(&set(0x13, b"n", b"1"))), (1, "Not found"));
    assert_eq!(said(&client.ask(&on_key(0x14, b"n"))), (1, "Not found"));
    client.send(&[on_key(0x14, b"k").bytes(), alone(0x18).bytes()].concat());
    assert_eq!(said(&client.ask(&on_key(GET, b"l"))), (1, "Not found"));
    client.send(&alone(0x17).bytes());
    client.expect_close();
}

#[test]
fn each_stat_has_a_response_of_its_own() {
    let server = start(memory());
    let mut client = server.connect();
    client.ask(&set(SET, b"k", b"v"));
    for (argument, name) in [
        (&b""[..], "curr_items"),
        (b"settings", "maxconns"),
        (b"items", "items:1:number"),
        (b"slabs", "active_slabs"),
        (b"sizes", "sizes_status"),
        (b"detail dump", "detailed"),
        (b"conns", ""),
    ] {
        client.send(&on_key(STAT, argument).bytes());
        let mut names = Vec::new();
        loop {
            let figure = client.response();
            assert_eq!((figure.opcode, figure.status), (STAT, 0));
            if figure.key.is_empty() {
                break;
            }
            names.push(String::from_utf8(figure.key).unwrap());
        }
        let is_there = names.iter().any(|found| found == name || name.is_empty());
        assert!(is_there, "{name} among {names:?}");
    }
    for argument in [&b"reset"[..], b"detail on", b"detail off"] {
        assert_eq!(said(&client.ask(&on_key(STAT, argument))), (0, ""));
    }
    for argument in [&b"foo"[..], b"detail"] {
        assert_eq!(said(&client.ask(&on_key(STAT, argument))), (1, "Not found"));
    }
}

#[test]
fn the_remaining_commands_are_answered_too() {
    let server = start(memory());
    let mut client = server.connect();
    assert_eq!(said(&client.ask(&alone(0x0b))), (0, VERSION));
    client.exchange("version\r\n", format!("VERSION {VERSION}\r\n"));
    let verbosity = Packet { opcode: 0x1b, extras: &[0, 0, 0, 1], ..Packet::default() };
    assert_eq!(said(&client.ask(&verbosity)), (0, ""));
    assert_eq!(
        said(&client.ask(&Packet { value: b"body", ..alone(0x50) })),
        (0x81, "Unknown command")
    );
    for opcode in [0x20, 0x21, 0x22] {
        let key: &[u8] = if opcode == 0x20 { b"" } else { b"PLAIN" };
        assert_eq!(said(&client.ask(&on_key(opcode, key))), (0x81, "Unknown command"));
    }
    client.ask(&set(SET, b"k", b"v"));
    let flush = Packet { opcode: 0x08, extras: &[0, 0, 1, 0], ..Packet::default() };
    assert_eq!(said(&client.ask(&flush)), (0, ""));
    assert_eq!(client.ask(&on_key(GET, b"k")).status, 0);
    assert_eq!(said(&client.ask(&alone(0x08))), (0, ""));
    assert_eq!(client.ask(&on_key(GET, b"k")).status, 1);
    assert_eq!(said(&client.ask(&alone(0x07))), (0, ""));
    client.expect_close();
}

#[test]
fn a_malformed_request_gets_an_error_and_closes_the_connection() {
    let server = start(memory());
    let key = [b'k'; 251];
    let mut longer = on_key(GET, b"k").bytes();
    longer[3] = 2;
    for (request, refusal) in [
        (on_key(GET, b"").bytes(), (4, "Invalid arguments")),
        (on_key(GET, &key).bytes(), (4, "Invalid arguments")),
        (on_key(NO_OP, b"k").bytes(), (4, "Invalid arguments")),
        (set(DELETE, b"k", b"").bytes(), (4, "Invalid arguments")),
        (longer, (0x81, "Unknown command")),
    ] {
        let mut client = server.connect();
        client.send(&request);
        assert_eq!(said(&client.response()), refusal);
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        client.expect_close();
    }
}

#[test]
fn every_kind_of_database_replies_alike() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory_tree(), hash(folder.path()), tree(folder.path())] {
        let server = start(database);
        let mut client = server.connect();
        let number = client.ask(&set(SET, b"k", b"5")).number;
        assert_eq!(client.ask(&on_key(GET, b"k")).number, number);
        let sum = [[0; 7].as_slice(), &[1], &[0; 12]].concat();
        let counted = Packet { opcode: INCREMENT, extras: &sum, key: b"k", ..Packet::default() };
        assert_eq!(client.ask(&counted).value, 6u64.to_be_bytes());
        assert_eq!(said(&client.ask(&on_key(DELETE, b"k"))), (0, ""));
    }
}

#[test]
fn protocols_may_alternate_on_a_connection() {
    let server = start(memory());
    let mut client = server.connect();
    client.send(&set(0x11, b"k", b"v").bytes());
    client.exchange("get k\r\n", "VALUE k 5 1\r\nv\r\nEND\r\n");
    client.exchange(b"\xc8\x30\0\0\0\x01k", b"\0\0\0\0\x01v");
    assert_eq!(client.ask(&on_key(GET, b"k")).value, b"v");
}

#[test]
fn limits_and_failures_have_statuses_of_the_protocol() {
    let settings = Config { request_bytes_max: 200, reply_bytes_max: 150, ..config() };
    let server = start_with(settings, memory());
    let mut client = server.connect();
    // Header, extras and key take 33 bytes.
    let value = [b'v'; 168];
    assert_eq!(said(&client.ask(&set(SET, b"k", &value[..167]))), (0, ""));
    // Header and flags take 28.
    let text = "Out of memory writing get response";
    assert_eq!(said(&client.ask(&on_key(GET, b"k"))), (0x82, text));
    assert_eq!(said(&client.ask(&set(SET, b"k", &value[..122]))), (0, ""));
    assert_eq!(client.ask(&on_key(GET, b"k")).value.len(), 122);
    assert_eq!(said(&client.ask(&set(SET, b"k", &value))), (3, "Too large."));
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    client.expect_close();

    let mut mask = CommandMask::NONE;
    mask.mask("put".parse().unwrap());
    let server = start_with(Config { mask, ..config() }, memory());
    assert_eq!(said(&server.connect().ask(&set(SET, b"k", b"v"))), (0x20, "forbidden"));

    let engine = ManualEngine::new("casket.tch", Durability::None);
    let server = start_engine(&engine);
    engine.set_full(true);
    let refused = server.connect().ask(&set(SET, b"k", b"v"));
    let full = "no space left for casket.tch: free space on its file system, or raise its cap \
        (capsiz) if it has one";
    assert_eq!(said(&refused), (0x82, full));
}
