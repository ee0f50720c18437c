//! Initial sync: a replica copies its master over the connection while the master is written to.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::{Database, Meta};
use client::{Address, ReplicaLink, Settings, SubscribeRequest};
use server::update_log::Retention;
use server::{Config, Seeding};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use support::{
    MISC_FAILURE, Running, WAIT_MAX, fixed, following, hash, is_following, logged, logging, master,
    memory, memory_tree, misc, records, request, start_with, stat, table, take_replica, tree,
    wait_until, wait_until_equal,
};
use wire::Parse;
use wire::binary::Request;
use wire::replication::{Acknowledgement, FromMaster, Position, SEED, SEED_IF_TOO_OLD};
use wire::update_log::{Entry, Message, Operation};

/// Stores records that an update log which begins later does not have.
fn fill(database: &Database, count: usize) {
    for number in 1..=count {
        database.put(number.to_string().as_bytes(), b"column\0value").unwrap();
    }
}

#[test]
fn an_empty_replica_gets_records_that_are_in_no_log_in_every_kind_of_database() {
    type Open = fn(&Path) -> Database;
    let kinds: [(&str, Open); 6] = [
        ("hash", hash),
        ("tree", tree),
        ("table", table),
        ("fixed", fixed),
        ("memory", |_| memory()),
        ("memory tree", |_| memory_tree()),
    ];
    for (name, open) in kinds {
        for compresses in [false, true] {
            let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let (source, copy) = (open(one.path()), open(other.path()));
            fill(&source, 3000);
            let master = start_with(logging(1, one.path()), source.clone());
            let mut config = following(2, other.path(), master.address);
            config.following.compresses = compresses;
            let replica = start_with(config, copy.clone());
            wait_until_equal(&copy, &source);
            assert_eq!(records(&copy).len(), 3000, "{name}");
            wait_until(|| is_following(&replica));
            // Later changes come from the log.
            master.connect().exchange(request(&Request::Put { key: b"5", value: b"a\0b" }), b"\0");
            wait_until_equal(&copy, &source);
        }
    }
}

#[test]
fn flags_and_expiry_are_copied() {
    for open in [hash, tree] {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (source, copy) = (open(one.path()), open(other.path()));
        let meta = Meta { flags: 7, expires_at_ms: 4_000_000_000_000 };
        source.put_with(b"k", b"v", meta).unwrap();
        if source.has_duplicates() {
            source.put_duplicate(b"k", b"more", cabinet::Side::After).unwrap();
        }
        let master = start_with(logging(1, one.path()), source.clone());
        let replica = start_with(following(2, other.path(), master.address), copy.clone());
        wait_until(|| is_following(&replica));
        assert_eq!(copy.read(b"k", |entry| entry.meta).unwrap(), Some(meta));
        assert_eq!(copy.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
        assert_eq!(copy.len(), source.len());
        if source.has_duplicates() {
            assert_eq!(copy.get_all(b"k").unwrap(), [&b"v"[..], b"more"]);
        }
    }
}

#[test]
fn the_values_of_a_key_are_copied_in_order() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (source, copy) = (tree(one.path()), tree(other.path()));
    for number in 0..200_u32 {
        let value = format!("{number:020000}");
        source.put_duplicate(b"key", value.as_bytes(), cabinet::Side::After).unwrap();
    }
    source.put(b"other", b"value").unwrap();
    let master = start_with(logging(1, one.path()), source.clone());
    let replica = start_with(following(2, other.path(), master.address), copy.clone());
    wait_until(|| is_following(&replica));
    assert!(copy.get_all(b"key").unwrap() == source.get_all(b"key").unwrap());
    assert_eq!(copy.len(), 201);
}

#[test]
fn the_indices_of_a_table_and_the_next_id_are_copied() {
    use cabinet::table::{IndexChange, IndexKind};
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (source, copy) = (table(one.path()), table(other.path()));
    fill(&source, 10);
    let rows = source.table().unwrap();
    rows.set_index(b"column", IndexChange::Set(IndexKind::Token)).unwrap();
    rows.set_index(b"", IndexChange::Set(IndexKind::Lexical)).unwrap();
    assert_eq!((0..5).map(|_| rows.generate_uid().unwrap()).last(), Some(5));
    let master = start_with(logging(1, one.path()), source.clone());
    let replica = start_with(following(2, other.path(), master.address), copy.clone());
    wait_until(|| is_following(&replica));
    let indices = |database: &Database| {
        let mut indices = database.table().unwrap().indices();
        indices.sort_by(|one, other| one.column.cmp(&other.column));
        indices.into_iter().map(|index| (index.column, index.kind)).collect::<Vec<_>>()
    };
    assert_eq!(indices(&copy), indices(&source));
    assert_eq!(indices(&copy).len(), 2);
    assert_eq!(copy.table().unwrap().last_uid(), 5);
}

/// Changes records until told to stop, so that a missing or repeated change shows.
fn change(server: &Running, name: &str, has_ended: &AtomicBool) {
    let mut client = server.connect();
    let mut number = 0_usize;
    while !has_ended.load(Ordering::SeqCst) {
        number += 1;
        let key = (number * 7 % 2000 + 1).to_string();
        let key = key.as_bytes();
        client.exchange(request(&Request::PutCat { key, value: b"x" }), b"\0");
        let sum = [name, "sum"].concat();
        client.send(&request(&Request::AddInt { key: sum.as_bytes(), addend: 1 }));
        client.read(5);
        match number % 5 {
            0 => {
                client.send(&request(&Request::Out { key }));
                client.read(1);
            }
            1 => {
                let key = format!("{name}{number}");
                let value = number.to_string();
                let put = Request::Put { key: key.as_bytes(), value: value.as_bytes() };
                client.exchange(request(&put), b"\0");
            }
            _ => {}
        }
    }
}

#[test]
fn a_copy_made_during_writes_is_equal_and_has_every_change_once() {
    for open in [hash, tree] {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [one, two, three] = &folders;
        let source = open(one.path());
        fill(&source, 20_000);
        let master = start_with(logging(1, one.path()), source.clone());
        let has_ended = AtomicBool::new(false);
        let (copy, second) = (open(two.path()), open(three.path()));
        std::thread::scope(|scope| {
            for name in ["a", "b"] {
                let (master, has_ended) = (&master, &has_ended);
                scope.spawn(move || change(master, name, has_ended));
            }
            let replica = start_with(following(2, two.path(), master.address), copy.clone());
            // A replica of the first replica gets the same changes.
            let end = start_with(following(3, three.path(), replica.address), second.clone());
            wait_until(|| copy.len() > 19_000 && is_state(&replica, "following"));
            has_ended.store(true, Ordering::SeqCst);
            wait_until_equal(&copy, &source);
            wait_until_equal(&second, &source);
            drop(end);
        });
    }
}

fn is_state(replica: &Running, state: &str) -> bool {
    stat(replica, "replication_state").as_deref() == Some(state)
}

/// Starts a master that keeps little of its log. Returns it and its records.
fn start_forgetful(folder: &Path) -> (Running, Database) {
    let database = hash(folder);
    let mut config = logging(1, folder);
    if let Some(log) = &mut config.update_log {
        log.file_bytes_max = 1000;
        log.retention = Retention { bytes_max: Some(0), age_max: None };
    }
    (start_with(config, database.clone()), database)
}

/// Returns a replica whose next entries are no longer in the master's log.
fn too_old(one: &Path, other: &Path) -> (Running, Database) {
    {
        let database = hash(one);
        let master = start_with(logging(1, one), database.clone());
        let copy = hash(other);
        let _replica = start_with(following(2, other, master.address), copy.clone());
        master.connect().exchange(request(&Request::Put { key: b"old", value: b"1" }), b"\0");
        wait_until_equal(&copy, &database);
        wait_until(|| fs::read(other.join("rts")).is_ok_and(|text| text.len() > 3));
    }
    let (master, source) = start_forgetful(one);
    let mut client = master.connect();
    for number in 0..100 {
        let key = format!("key{number}");
        client.exchange(request(&Request::Put { key: key.as_bytes(), value: b"new" }), b"\0");
    }
    client.exchange(request(&Request::Out { key: b"old" }), b"\0");
    wait_until(|| !one.join("ulog/00000001.ulog").exists());
    (master, source)
}

/// Returns the settings of a replica that makes an initial sync if told to.
fn seeded(seeding: Seeding, folder: &Path, master: &Running) -> Config {
    let mut config = following(2, folder, master.address);
    config.following.seeding = seeding;
    config
}

#[test]
fn an_outdated_replica_with_records_stops_and_keeps_them() {
    for seeding in [Seeding::Empty, Seeding::Never] {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (master, _) = too_old(one.path(), other.path());
        let copy = hash(other.path());
        let replica = start_with(seeded(seeding, other.path(), &master), copy.clone());
        wait_until(|| is_state(&replica, "stopped"));
        assert_eq!(records(&copy).keys().collect::<Vec<_>>(), [b"old"]);
    }
}

#[test]
fn a_replica_that_needs_entries_after_a_damaged_length_is_told_and_one_that_has_them_goes_on() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [one, late, early] = folders.each_ref().map(|folder| folder.path());
    let put = |master: &Running, key: &[u8]| {
        master.connect().exchange(request(&Request::Put { key, value: b"value" }), b"\0");
    };
    let follow = |id: u32, folder: &Path, master: &Running| {
        let copy = hash(folder);
        (start_with(following(id, folder, master.address), copy.clone()), copy)
    };
    {
        let source = hash(one);
        let master = start_with(logging(1, one), source.clone());
        put(&master, b"key0");
        let (replica, copy) = follow(2, late, &master);
        wait_until_equal(&copy, &source);
        wait_until(|| is_following(&replica));
        drop(replica);
        (1..10).for_each(|number| put(&master, format!("key{number}").as_bytes()));
        let (replica, copy) = follow(3, early, &master);
        wait_until_equal(&copy, &source);
        wait_until(|| is_following(&replica));
    }
    let path = one.join("ulog/00000001.ulog");
    let mut bytes = fs::read(&path).unwrap();
    let entry_bytes = bytes.len() / 10;
    bytes[4 * entry_bytes + 13] ^= 0x10;
    fs::write(&path, &bytes).unwrap();
    let source = hash(one);
    let master = start_with(logging(1, one), source.clone());
    put(&master, b"new");
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let (replica, copy) = follow(2, late, &master);
    wait_until(|| is_state(&replica, "stopped"));
    let reason = stat(&replica, "replication_error").unwrap();
    assert!(reason.contains("00000001.ulog is corrupted at byte"), "{reason}");
    assert_eq!(copy.len(), 1);
    let (_replica, copy) = follow(3, early, &master);
    wait_until_equal(&copy, &source);
}

#[test]
fn an_outdated_replica_with_records_makes_an_initial_sync_if_told_to() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, source) = too_old(one.path(), other.path());
    let copy = hash(other.path());
    let replica = start_with(seeded(Seeding::Always, other.path(), &master), copy.clone());
    wait_until(|| is_following(&replica));
    wait_until_equal(&copy, &source);
    assert_eq!(copy.len(), 100);
}

/// A former master has changes that no replica has received.
#[test]
fn a_replica_with_records_of_its_own_becomes_a_copy_if_told_to_then_or_later() {
    for has_begun in [false, true] {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (source, copy) = (hash(one.path()), hash(other.path()));
        fill(&source, 10);
        let master = start_with(logging(1, one.path()), source.clone());
        master.connect().exchange(request(&Request::Put { key: b"new", value: b"1" }), b"\0");
        copy.put(b"own", b"1").unwrap();
        let mut config = seeded(Seeding::Empty, other.path(), &master);
        config.following.is_writable = false;
        if has_begun {
            let replica = start_with(config.clone(), copy.clone());
            wait_until(|| copy.get(b"new").unwrap().is_some());
            assert!(copy.get(b"own").unwrap().is_some());
            drop(replica);
        }
        config.following.seeding = Seeding::Always;
        let replica = start_with(config.clone(), copy.clone());
        wait_until_equal(&copy, &source);
        wait_until(|| is_following(&replica));
        drop(replica);
        // It is a copy now, and needs no other.
        copy.put(b"own", b"1").unwrap();
        let _replica = start_with(config, copy.clone());
        master.connect().exchange(request(&Request::Put { key: b"newer", value: b"1" }), b"\0");
        wait_until(|| copy.get(b"newer").unwrap().is_some());
        assert!(copy.get(b"own").unwrap().is_some());
    }
}

#[test]
fn an_outdated_replica_without_records_makes_an_initial_sync() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, source) = too_old(one.path(), other.path());
    let copy = hash(other.path());
    copy.clear().unwrap();
    let _replica = start_with(following(2, other.path(), master.address), copy.clone());
    wait_until_equal(&copy, &source);
}

/// Starts a master whose log, which a replica needs, is corrupted.
fn corrupted(one: &Path, other: &Path) -> (Running, Database) {
    {
        let database = hash(one);
        let master = start_with(logging(1, one), database.clone());
        let copy = hash(other);
        let put = |key: &[u8]| {
            master.connect().exchange(request(&Request::Put { key, value: b"1" }), b"\0");
        };
        put(b"old");
        let replica = start_with(following(2, other, master.address), copy.clone());
        wait_until_equal(&copy, &database);
        wait_until(|| fs::read(other.join("rts")).is_ok_and(|text| text.len() > 3));
        drop(replica);
        put(b"new");
    }
    let path = one.join("ulog/00000001.ulog");
    let mut bytes = fs::read(&path).unwrap();
    let Parse::Complete(_, second) = Entry::parse(&bytes) else { panic!("no entry") };
    bytes[second] = 0;
    fs::write(&path, bytes).unwrap();
    let source = hash(one);
    (start_with(logging(1, one), source.clone()), source)
}

#[test]
fn a_replica_of_a_master_with_a_corrupted_log_stops_or_makes_an_initial_sync() {
    for seeding in [Seeding::Empty, Seeding::Always] {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (master, source) = corrupted(one.path(), other.path());
        let copy = hash(other.path());
        let replica = start_with(seeded(seeding, other.path(), &master), copy.clone());
        if seeding == Seeding::Always {
            wait_until_equal(&copy, &source);
            assert_eq!(copy.len(), 2);
        } else {
            wait_until(|| is_state(&replica, "stopped"));
            assert_eq!(records(&copy).keys().collect::<Vec<_>>(), [b"old"]);
        }
    }
}

/// An on-memory database is empty after a restart, whatever its position is.
#[test]
fn a_replica_in_memory_makes_an_initial_sync_after_each_start() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = hash(one.path());
    fill(&source, 10);
    let master = start_with(logging(1, one.path()), source.clone());
    for _ in 0..2 {
        let copy = memory();
        let _replica = start_with(following(2, other.path(), master.address), copy.clone());
        wait_until_equal(&copy, &source);
    }
}

/// The position may be left from other records.
#[test]
fn a_replica_that_starts_empty_requests_a_copy_until_it_has_one() {
    for open in [hash, |_: &Path| memory()] {
        let folder = tempfile::tempdir().unwrap();
        let (listener, address) = listen();
        fs::write(folder.path().join("rts"), "77\n").unwrap();
        let _replica = start_with(following(2, folder.path(), address), open(folder.path()));
        for _ in 0..3 {
            let (_, from_us, options) = take(&listener);
            assert_eq!((from_us, options & SEED), (1, SEED));
        }
    }
}

/// Accepts a replica as a simulated master of this project. Sends its own id and returns the id and
/// options of the replica.
fn take(listener: &TcpListener) -> (TcpStream, u64, u32) {
    let mut stream = take_replica(listener, b"\0\0\0\0\x01\0\0\0\x011");
    let mut identity = [0; 37];
    stream.read_exact(&mut identity).unwrap();
    assert!(identity.ends_with(b"replication\0\0\0\x08identity"), "{identity:?}");
    // There is no record.
    stream.write_all(b"\x01\0\0\0\0").unwrap();
    let mut ask = [0; 22];
    stream.read_exact(&mut ask).unwrap();
    assert_eq!(ask[..2], *b"\xc8\xa1");
    assert_eq!(ask[10..14], *b"\0\0\0\x02");
    stream.write_all(b"\0\0\0\x01").unwrap();
    let from_us = u64::from_be_bytes(ask[2..10].try_into().unwrap());
    (stream, from_us, u32::from_be_bytes(ask[14..18].try_into().unwrap()))
}

fn send(stream: &mut TcpStream, messages: &[FromMaster<'_>]) {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| message.encode(&mut bytes).unwrap());
    stream.write_all(&bytes).unwrap();
}

fn put(key: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let request = Request::Put { key, value: b"v" };
    Operation { request, succeeded: true }.encode(&mut body).unwrap();
    body
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn a_replica_stopped_during_an_initial_sync_reports_that_and_begins_again() {
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = listen();
    let config = || following(2, folder.path(), address);
    {
        let copy = hash(folder.path());
        let replica = start_with(config(), copy.clone());
        let (mut stream, from_us, options) = take(&listener);
        assert_eq!((from_us, options & SEED), (1, SEED));
        let body = put(b"half");
        let begin = FromMaster::SeedBegin { records: 2, last_uid: 0 };
        let at = FromMaster::Position(Position::default());
        send(&mut stream, &[begin, FromMaster::Record { body: &body }, at]);
        wait_until(|| stat(&replica, "replication_seeded").as_deref() == Some("1"));
        assert_eq!(stat(&replica, "replication_seeding").as_deref(), Some("2"));
        assert!(is_state(&replica, "seeding"));
        // The records copied so far can be read.
        assert_eq!(copy.len(), 1);
    }
    let copy = hash(folder.path());
    let replica = start_with(config(), copy.clone());
    let (mut stream, _, options) = take(&listener);
    assert_eq!(options & SEED, SEED);
    // It cannot become a master before the copy is complete.
    replica.connect().exchange(misc("promote", &[]), MISC_FAILURE);
    assert!(is_state(&replica, "seeding"));
    let body = put(b"whole");
    let begin = FromMaster::SeedBegin { records: 1, last_uid: 0 };
    send(&mut stream, &[begin, FromMaster::Record { body: &body }]);
    send(&mut stream, &[FromMaster::SeedEnd { timestamp_us: 77 }]);
    wait_until(|| is_state(&replica, "following"));
    assert_eq!(records(&copy).keys().collect::<Vec<_>>(), [b"whole"]);
    assert_eq!(fs::read(folder.path().join("rts")).unwrap(), b"77\n");
    drop((stream, replica, copy));
    // It resumes after the copy.
    let _replica = start_with(config(), hash(folder.path()));
    let (_, from_us, options) = take(&listener);
    assert_eq!((from_us, options & SEED), (78, 0));
}

#[test]
fn a_replica_refused_during_an_initial_sync_does_not_ask_again() {
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = listen();
    let replica = start_with(following(2, folder.path(), address), hash(folder.path()));
    let (mut stream, ..) = take(&listener);
    let begin = FromMaster::SeedBegin { records: 2, last_uid: 0 };
    let refused = FromMaster::Refused { is_final: true, reason: b"so it is" };
    send(&mut stream, &[begin, FromMaster::Record { body: &put(b"half") }, refused]);
    wait_until(|| is_state(&replica, "stopped"));
    // It still has an incomplete copy.
    replica.connect().exchange(misc("promote", &[]), MISC_FAILURE);
}

#[test]
fn replicas_of_a_replica_that_makes_an_initial_sync_keep_no_other_records() {
    let (two, three) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (listener, address) = listen();
    let last = hash(three.path());
    let mut end = None;
    // In memory: it is empty after a restart.
    for (key, timestamp_us) in [(&b"gone"[..], 10), (b"new", 20)] {
        let replica = start_with(following(2, two.path(), address), memory());
        let (mut stream, _, options) = take(&listener);
        assert_eq!(options & SEED, SEED);
        let begin = FromMaster::SeedBegin { records: 1, last_uid: 0 };
        send(&mut stream, &[begin, FromMaster::Record { body: &put(key) }]);
        send(&mut stream, &[FromMaster::SeedEnd { timestamp_us }]);
        drop(end.take());
        end = Some(start_with(following(3, three.path(), replica.address), last.clone()));
        let expected = BTreeMap::from([(key.to_vec(), b"v".to_vec())]);
        wait_until(|| records(&last) == expected);
    }
}

#[test]
fn an_incomplete_copy_is_not_continued_with_the_log_of_tokyo_tyrant() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rts.seeding"), b"").unwrap();
    let (listener, address) = listen();
    let replica = start_with(following(2, folder.path(), address), hash(folder.path()));
    let _stream = take_replica(&listener, b"\x01\0\0\0\0");
    wait_until(|| is_state(&replica, "stopped"));
}

#[test]
fn records_stored_before_an_initial_sync_are_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = listen();
    let database = hash(folder.path());
    let _replica = start_with(following(2, folder.path(), address), database.clone());
    let (mut stream, ..) = take(&listener);
    database.put(b"meanwhile", b"v").unwrap();
    send(&mut stream, &[FromMaster::SeedBegin { records: 1, last_uid: 0 }]);
    let (_stream, from_us, options) = take(&listener);
    assert_eq!((from_us, options & SEED), (1, 0));
    assert_eq!(database.len(), 1);
}

#[test]
fn a_malformed_message_of_a_master_closes_the_connection_and_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = listen();
    let database = hash(folder.path());
    database.put(b"kept", b"v").unwrap();
    let _replica = start_with(following(2, folder.path(), address), database.clone());
    let body = put(b"k");
    for message in [
        FromMaster::Record { body: &body },
        FromMaster::SeedEnd { timestamp_us: 9 },
        FromMaster::Block { bytes: 3, compressed: b"\xff\xff\xff" },
        // It has not requested a copy.
        FromMaster::SeedBegin { records: 1, last_uid: 0 },
    ] {
        let (mut stream, _, options) = take(&listener);
        assert_eq!(options, 0);
        send(&mut stream, &[message]);
        let ended = stream.read_to_end(&mut Vec::new());
        assert!(ended.is_ok_and(|bytes| bytes % Acknowledgement::BYTES == 0));
    }
    take(&listener);
    assert_eq!(records(&database).keys().collect::<Vec<_>>(), [b"kept"]);
}

/// Returns the first message of a server to a simulated replica.
fn first(server: &Running, timestamp_us: u64, options: u32) -> String {
    let address = Address::from(("127.0.0.1", server.address.port()));
    let request = SubscribeRequest { timestamp_us, server_id: 9, options, port: 0 };
    let mut link = ReplicaLink::open(&address, &Settings::default()).unwrap();
    link.subscribe(request).unwrap();
    match link.next().unwrap() {
        FromMaster::Refused { is_final: true, reason } => {
            String::from_utf8(reason.to_vec()).unwrap()
        }
        FromMaster::Refused { is_final: false, reason } => {
            format!("not now: {}", String::from_utf8_lossy(reason))
        }
        FromMaster::SeedBegin { .. } => "copy".into(),
        FromMaster::Position(_) => "position".into(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_position_after_the_end_of_the_log_belongs_to_another_master() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_with(logging(1, folder.path()), memory());
    let put = Request::Put { key: b"k", value: b"v" };
    server.connect().exchange(request(&put), b"\0");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now_us = u64::try_from(now.as_micros()).unwrap();
    // As the position of a copy that was made without changes.
    assert_eq!(first(&server, now_us + 1, 0), "position");
    let ahead_us = now_us + 3_600_000_000;
    let reason = first(&server, ahead_us + 1, 0);
    assert!(
        reason.contains(&format!("{ahead_us} is later than the clock of this server")),
        "{reason}"
    );
    assert_eq!(first(&server, ahead_us + 1, SEED_IF_TOO_OLD), "copy");
    assert!(first(&server, u64::MAX, 0).contains("later than the clock"));
}

#[test]
fn a_replica_that_cannot_be_served_is_told_why_and_asks_again() {
    let without_log = start_with(Config { server_id: 1, ..support::config() }, memory());
    let reason = first(&without_log, 1, 0);
    assert!(reason.starts_with("not now: the server has no update log"), "{reason}");
    let folder = tempfile::tempdir().unwrap();
    let of_same_id = start_with(logging(9, folder.path()), memory());
    let reason = first(&of_same_id, 1, 0);
    assert!(reason.starts_with("not now: its server id is 9, and this server has 9"), "{reason}");
    let folder = tempfile::tempdir().unwrap();
    let replica = start_with(following(2, folder.path(), without_log.address), memory());
    wait_until(|| is_state(&replica, "connecting"));
}

/// Returns the messages on the link of a simulated replica, up to the end of the copy.
fn copied(address: SocketAddr) -> (BTreeMap<Vec<u8>, Vec<u8>>, u64) {
    let address = Address::from((address.ip().to_string().as_str(), address.port()));
    let request = SubscribeRequest { timestamp_us: 1, server_id: 9, options: SEED, port: 0 };
    let mut link = ReplicaLink::open(&address, &Settings::default()).unwrap();
    link.subscribe(request).unwrap();
    let mut records = BTreeMap::new();
    loop {
        match link.next().unwrap() {
            FromMaster::Record { body } => match Operation::parse(body).unwrap().request {
                Request::Put { key, value } => drop(records.insert(key.to_vec(), value.to_vec())),
                other => panic!("{other:?}"),
            },
            FromMaster::SeedEnd { timestamp_us } => return (records, timestamp_us),
            FromMaster::Log(Message::Update { .. }) => panic!("nothing was changed"),
            _ => {}
        }
    }
}

#[test]
fn a_copy_ends_with_the_time_stamp_of_the_last_entry_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let database = hash(folder.path());
    let server = start_with(logging(1, folder.path()), database.clone());
    let mut client = server.connect();
    for key in [b"a", b"b"] {
        client.exchange(request(&Request::Put { key, value: b"v" }), b"\0");
    }
    let (copy, timestamp_us) = copied(server.address);
    assert_eq!(copy, records(&database));
    let mut last_us = 0;
    let mut reader =
        server::update_log::Reader::open(&folder.path().join("ulog"), 0).unwrap().unwrap();
    while let Some(entry) = reader.next(None).unwrap() {
        last_us = entry.timestamp_us;
    }
    assert_eq!(timestamp_us, last_us);
    assert_eq!(logged(&folder.path().join("ulog")).len(), 2);
}

#[test]
fn both_sides_know_the_lag_of_a_replica_also_without_changes() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = hash(one.path());
    let master = start_with(logging(1, one.path()), source.clone());
    let copy = hash(other.path());
    let replica = start_with(following(2, other.path(), master.address), copy.clone());
    for number in 0..10 {
        let key = [number];
        master.connect().exchange(request(&Request::Put { key: &key, value: b"v" }), b"\0");
    }
    let described = || stat(&master, "replica_2").unwrap_or_default();
    wait_until(|| {
        let line = described();
        line.contains("state=streaming") && line.contains("lag_operations=0 lag_seconds=0.000000")
    });
    assert!(described().starts_with("address=127.0.0.1:"), "{}", described());
    wait_until(|| is_following(&replica));
    assert_eq!(stat(&replica, "replication_lag_seconds").as_deref(), Some("0.000000"));
    assert_eq!(stat(&replica, "delay").as_deref(), Some("0.000000"));
}

/// Simulates a replica that receives everything and executes nothing.
#[test]
fn the_lag_of_a_replica_that_executes_nothing_grows_with_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_with(logging(1, folder.path()), hash(folder.path()));
    let mut client = server.connect();
    let address = Address::from(("127.0.0.1", server.address.port()));
    let store = |client: &mut support::Client, key: &[u8]| {
        client.exchange(request(&Request::Put { key, value: b"v" }), b"\0");
    };
    store(&mut client, b"before");
    let request = SubscribeRequest { timestamp_us: 1, server_id: 9, options: 0, port: 1234 };
    let mut link = ReplicaLink::open(&address, &Settings::default()).unwrap();
    link.subscribe(request).unwrap();
    let has = |text: &str| stat(&server, "replica_9").is_some_and(|line| line.contains(text));
    wait_until(|| has("lag_operations=1 "));
    for key in [b"a", b"b", b"c"] {
        store(&mut client, key);
    }
    wait_until(|| has("lag_operations=4 "));
    assert!(has("address=127.0.0.1:1234 "));
    let mut acknowledger = link.acknowledger().unwrap().unwrap();
    let acknowledgement = Acknowledgement { executed: 3, ..Acknowledgement::default() };
    acknowledger.send(&acknowledgement).unwrap();
    wait_until(|| has("lag_operations=1 "));
}

#[test]
fn a_replica_with_a_malformed_acknowledgement_is_disconnected() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_with(logging(1, folder.path()), hash(folder.path()));
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let follow = Request::Follow { timestamp_us: 1, server_id: 9, options: 0, port: 0 };
    stream.write_all(&request(&follow)).unwrap();
    let mut received = [0; 4 + 26];
    stream.read_exact(&mut received).unwrap();
    assert!(matches!(FromMaster::parse(&received[4..]), Parse::Complete(..)));
    stream.write_all(&[0; Acknowledgement::BYTES]).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    wait_until(|| stat(&server, "replica_9").is_none());
}

#[test]
fn a_replica_stops_at_once_while_its_master_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = listen();
    let mut replica = start_with(following(2, folder.path(), address), memory());
    let (mut stream, _) = listener.accept().unwrap();
    stream.read_exact(&mut [0; 25]).unwrap();
    replica.begin_stop();
    replica.join();
    // It has closed the connection.
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn servers_without_a_log_serve_no_replica() {
    let server = support::start(memory());
    let mut client = server.connect();
    client.send(&request(&Request::Replicate { timestamp_us: 1, server_id: 9 }));
    client.expect_close();
    // One of this project is told why.
    client = server.connect();
    let follow = Request::Follow { timestamp_us: 1, server_id: 9, options: SEED, port: 0 };
    client.send(&request(&follow));
    client.read_until(b"start it with --update-log DIR and --server-id N");
    client.expect_close();
}

/// Returns all records with flags and expiry.
#[test]
fn a_copy_of_an_empty_database_is_followed_by_every_change() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (source, copy) = (memory(), memory());
    let server = start_with(logging(1, one.path()), source.clone());
    let config = Config {
        following: server::Following {
            master: Some(master(server.address)),
            ..logging(2, other.path()).following
        },
        ..logging(2, other.path())
    };
    let replica = start_with(config, copy.clone());
    wait_until(|| is_following(&replica));
    server.connect().exchange(request(&Request::Put { key: b"k", value: b"v" }), b"\0");
    wait_until_equal(&copy, &source);
    let mut seen = 0;
    copy.for_each(|_| {
        seen += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(seen, 1);
}
