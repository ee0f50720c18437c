//! Redis's protocol: events of changes, whichever protocol made them.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod support;

use cabinet::{Clock, Database, Options};
use server::Config;
use support::{
    Client, Running, config, hear, memory, redis as command, start_with, talk, users_with,
};

/// Commands, with their replies, and the events that they raise: names and keys in turn.
const EVENTS: &[(&str, &str, &str)] = &[
    ("SET k v", "+OK", "set k"),
    ("SET k v EX 100", "+OK", "set k expire k"),
    ("SET k v NX", "$-1", ""),
    ("APPEND k w", ":2", "append k"),
    ("SETRANGE k 1 x", ":2", "setrange k"),
    ("GETSET k 1", "$2|vx", "set k"),
    ("INCR k", ":2", "incrby k"),
    ("INCR new", ":1", "incrby new"),
    ("DECRBY newer 2", ":-2", "incrby newer"),
    ("DEL new newer", ":2", "del new del newer"),
    ("SET e v EX 100", "+OK", "set e expire e"),
    ("SET e w KEEPTTL", "+OK", "set e"),
    ("SET e x KEEPTTL GET", "$1|w", "set e"),
    ("GETDEL e", "$1|x", "del e"),
    ("INCRBYFLOAT k 0.5", "$3|2.5", "incrbyfloat k"),
    ("SETBIT k 1 1", ":0", "setbit k"),
    ("EXPIRE k 100", ":1", "expire k"),
    ("PERSIST k", ":1", "persist k"),
    ("GETEX k EX 100", "$3|r.5", "expire k"),
    ("GETEX k PERSIST", "$3|r.5", "persist k"),
    ("MSET a 1 b 2", "+OK", "set a set b"),
    ("MSETNX a 1 c 2", ":0", ""),
    ("RENAME a c", "+OK", "rename_from a rename_to c"),
    ("COPY c d", ":1", "copy_to d"),
    ("GET k", "$3|r.5", ""),
    ("DEL c d e", ":2", "del c del d"),
    ("EXPIRE b -1", ":1", "del b"),
    ("GETDEL k", "$3|r.5", "del k"),
    ("BITOP NOT x nothing", ":0", ""),
    ("PFADD h a", ":1", "pfadd h"),
    ("PFADD h a", ":0", ""),
    ("PFMERGE g h", "+OK", "pfadd g"),
    ("PFCOUNT g h", ":1", ""),
];

fn server(events: &str, database: Database) -> Running {
    let keyspace_events = events.parse().unwrap();
    start_with(Config { threads: 3, keyspace_events, ..config() }, database)
}

/// Subscribes to all channels of events.
fn listen(server: &Running) -> Client {
    let mut listener = server.connect();
    talk(&mut listener, &[("PSUBSCRIBE __key*", "*3|$10|psubscribe|$6|__key*|:1")]);
    listener
}

/// Asserts that the listener hears messages on channels of which the names begin with `prefix`.
fn hear_event(listener: &mut Client, channel: &str, message: &str) {
    let (channel_bytes, bytes) = (channel.len(), message.len());
    hear(
        listener,
        &format!("*4|$8|pmessage|$6|__key*|${channel_bytes}|{channel}|${bytes}|{message}"),
    );
}

/// Asserts that the listener hears events, given as names and keys in turn.
fn hear_events(listener: &mut Client, events: &str) {
    let words: Vec<&str> = events.split_whitespace().collect();
    for event in words.chunks_exact(2) {
        hear_event(listener, &format!("__keyevent@0__:{}", event[0]), event[1]);
    }
}

#[test]
fn each_command_raises_its_events() {
    for database in [memory(), Database::open("+").unwrap()] {
        let server = server("EA", database);
        let (mut listener, mut client) = (listen(&server), server.connect());
        for (line, reply, events) in EVENTS {
            talk(&mut client, &[(line, reply)]);
            hear_events(&mut listener, events);
        }
        // Nothing else came between.
        talk(&mut client, &[("SET end v", "+OK")]);
        hear_events(&mut listener, "set end");
    }
}

#[test]
fn changes_by_other_protocols_raise_events_too() {
    let server = server("KEA", memory());
    let (mut listener, mut client) = (listen(&server), server.connect());
    client.exchange("set k 0 100 1\r\nv\r\n", "STORED\r\n");
    for event in ["set", "expire"] {
        hear_event(&mut listener, "__keyspace@0__:k", event);
        hear_event(&mut listener, &format!("__keyevent@0__:{event}"), "k");
    }
    client.exchange("delete k\r\n", "DELETED\r\n");
    client.exchange("delete k\r\n", "NOT_FOUND\r\n");
    hear_event(&mut listener, "__keyspace@0__:k", "del");
    hear_event(&mut listener, "__keyevent@0__:del", "k");
    let head = "HTTP/1.1 201 Created\r\n";
    let mut http = server.connect();
    http.send(b"PUT /h HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\nv");
    assert_eq!(http.read_until(b"\r\n"), head.as_bytes());
    hear_event(&mut listener, "__keyspace@0__:h", "set");
}

#[test]
fn a_transaction_raises_its_events_once_it_is_made() {
    let server = server("EA", memory());
    let (mut listener, mut client) = (listen(&server), server.connect());
    talk(
        &mut client,
        &[
            ("WATCH w", "+OK"),
            ("SET w v", "+OK"),
            ("MULTI", "+OK"),
            ("SET k v", "+QUEUED"),
            ("EXEC", "*-1"),
            ("MULTI", "+OK"),
            ("SET k 1", "+QUEUED"),
            ("INCR k", "+QUEUED"),
            ("DEL k", "+QUEUED"),
            ("EXEC", "*3|+OK|:2|:1"),
        ],
    );
    hear_events(&mut listener, "set w set k incrby k del k");
}

#[test]
fn events_are_chosen_by_letters_while_the_server_runs() {
    let server = server("", memory());
    let (mut listener, mut client) = (listen(&server), server.connect());
    let name = "notify-keyspace-events";
    talk(
        &mut client,
        &[
            ("SET k v", "+OK"),
            ("CONFIG GET notify-*", "*2|$22|notify-keyspace-events|$0|"),
            ("CONFIG SET notify-keyspace-events E$", "+OK"),
            ("CONFIG GET notify-*", "*2|$22|notify-keyspace-events|$2|$E"),
            ("SET k v EX 100", "+OK"),
            ("DEL k", ":1"),
            ("CONFIG SET notify-keyspace-events gK", "+OK"),
            ("SET k v EX 100", "+OK"),
            ("CONFIG SET notify-keyspace-events A", "+OK"),
            ("SET k v", "+OK"),
            ("CONFIG SET notify-keyspace-events KEA", "+OK"),
            ("DEL k", ":1"),
        ],
    );
    hear_events(&mut listener, "set k");
    hear_event(&mut listener, "__keyspace@0__:k", "expire");
    hear_event(&mut listener, "__keyspace@0__:k", "del");
    client.send(&command(&format!("CONFIG SET {name} KEAm")));
    let refused = String::from_utf8(client.read_until(b"\r\n")).unwrap();
    assert!(refused.contains("'m' is none of the letters"), "{refused}");
}

#[test]
fn a_record_that_expires_raises_an_event() {
    let now_ms = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    for letters in ["Ex", ""] {
        let (clock, time) = Clock::manual(now_ms);
        let mut options = Options::default();
        options.clock = clock.handing_over(false);
        let database = options.open("*").unwrap();
        let server = server(letters, database);
        let (mut listener, mut client) = (listen(&server), server.connect());
        if letters.is_empty() {
            talk(&mut client, &[("CONFIG SET notify-keyspace-events Ex", "+OK")]);
        }
        talk(&mut client, &[("SET k v EX 100", "+OK"), ("SET kept v", "+OK")]);
        time.advance(200_000);
        hear_events(&mut listener, "expired k");
        talk(&mut client, &[("DBSIZE", ":1")]);
    }
}

#[test]
fn a_record_that_is_evicted_raises_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str| folder.path().join(name).display().to_string();
    // A value of a table is a row.
    let value = format!("a\0{}", "v".repeat(100_000));
    let on_disk = ["one.tch", "one.tcb", "one.tct"].map(named);
    let of_bytes = ["*", "+"].into_iter().map(str::to_owned).chain(on_disk);
    let of_records = ["*".into(), "+".into(), named("two.tcb")].into_iter();
    let names = of_bytes.map(|name| (name, false)).chain(of_records.map(|name| (name, true)));
    for (name, is_of_records) in names {
        let mut options = Options::default();
        options.clock = Clock::default().handing_over(false);
        match is_of_records {
            true => options.capacity_records = 50,
            false => options.capacity_bytes = 4 << 20,
        }
        let database = options.open(&name).unwrap();
        let server = server("Ee", database);
        let (mut listener, mut client) = (listen(&server), server.connect());
        for number in 0..200 {
            talk(&mut client, &[(&format!("SET key{number} {value}"), "+OK")]);
        }
        let head = "*4\r\n$8\r\npmessage\r\n$6\r\n__key*\r\n$22\r\n__keyevent@0__:evicted\r\n";
        listener.expect(head);
        listener.read_until(b"\r\n");
        let evicted = String::from_utf8(listener.read_until(b"\r\n")).unwrap();
        assert!(evicted.starts_with("key"), "{name}: {evicted}");
        talk(&mut client, &[(&format!("EXISTS {}", evicted.trim_end()), ":0")]);
    }
}

#[test]
fn a_user_needs_rights_to_choose_and_to_hear() {
    let users = Some(users_with(&[("reader", &["read:k"])]));
    let server = start_with(Config { users, ..config() }, memory());
    let mut client = server.connect();
    talk(&mut client, &[("AUTH reader secret", "+OK")]);
    for line in ["CONFIG SET notify-keyspace-events KEA", "PSUBSCRIBE __key*"] {
        client.send(&command(line));
        let refused = String::from_utf8(client.read_until(b"\r\n")).unwrap();
        assert!(refused.starts_with("-NOPERM"), "{line}: {refused}");
    }
}
