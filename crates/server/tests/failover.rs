//! Failover: replicas resume at another replica of their master that has become the master.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use server::{Config, Seeding};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use support::{
    Running, following, hash, is_following, knows, logging, promote, records, request, set,
    set_master, start_with, stat, take_replica, wait_until,
};
use wire::binary::Request;
use wire::replication::{FromMaster, Position, ROOT_LOGS_MAX, Root};
use wire::update_log::{Entry, Message, Operation};

/// Number of records to which the tests append.
const KEYS: usize = 100;

/// Starts a replica of the server at `address` that never makes an initial sync.
fn replica(id: u32, folder: &Path, address: SocketAddr) -> Config {
    let mut config = following(id, folder, address);
    config.following.is_writable = false;
    config.following.seeding = Seeding::Never;
    config
}

/// Appends an entry to the log of a server at a time ahead of the clock of this machine, as a
/// server with a wrong clock does. The entry came from server `master`, or from an own client if
/// that is 0: then other servers lack it.
fn put_ahead(config: &Config, seconds: u64, master: u16) {
    let log = config.update_log.as_ref().unwrap();
    let mut body = Vec::new();
    let request = Request::Put { key: b"ahead", value: b"" };
    Operation { request, succeeded: true }.encode(&mut body).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let timestamp_us = u64::try_from(now.as_micros()).unwrap() + seconds * 1_000_000;
    let mut files = server::update_log::Files::open(&log.folder, 0).unwrap();
    files.append(&Entry { timestamp_us, origin: 9, master, body: &body }).unwrap();
}

/// Appends to every record, so that a repeated or a missing change shows.
fn add(server: &Running, text: &str) {
    let mut client = server.connect();
    for key in 0..KEYS {
        let bytes = text.len();
        client.send(format!("append {key} 0 0 {bytes}\r\n{text}\r\n").as_bytes());
        assert_eq!(client.read_until(b"\r\n"), b"STORED\r\n");
        client.send(format!("incr n{key} 1\r\n").as_bytes());
        client.read_until(b"\r\n");
    }
}

fn begin(server: &Running) {
    for key in 0..KEYS {
        set(server, &key.to_string(), "0");
        set(server, &format!("n{key}"), "0");
    }
}

/// Returns whether every record ends with the last appended text.
fn has(database: &Database, text: &str) -> bool {
    let ends = |key: usize| {
        let value = database.get(key.to_string().as_bytes()).unwrap();
        value.is_some_and(|value| value.ends_with(text.as_bytes()))
    };
    (0..KEYS).all(ends)
}

#[test]
fn a_replica_resumes_at_the_new_master_after_its_last_operation_whatever_the_clocks() {
    for (ahead, next_ahead) in [(0, 0), (600, 0), (0, 600)] {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [one, two, three] = folders.each_ref().map(|folder| folder.path());
        let (first, next, last) = (hash(one), hash(two), hash(three));
        put_ahead(&logging(1, one), ahead, 0);
        let master = start_with(logging(1, one), first);
        let config = replica(2, two, master.address);
        put_ahead(&config, next_ahead, 0);
        let taking = start_with(config.clone(), next.clone());
        begin(&master);
        {
            let going = start_with(replica(3, three, master.address), last.clone());
            wait_until(|| is_following(&taking) && is_following(&going));
            add(&master, "a");
            wait_until(|| has(&last, "a"));
        }
        // An entry of the log there that changes no record.
        taking.connect().exchange(request(&Request::Sync), b"\0");
        add(&master, "b");
        wait_until(|| has(&next, "b"));
        drop(master);
        promote(&taking);
        add(&taking, "c");
        // Its knowledge of the old master's log survives a restart.
        drop(taking);
        let taking = start_with(config, next.clone());
        add(&taking, "d");
        for text in ["e", "f"] {
            let going = start_with(replica(3, three, taking.address), last.clone());
            wait_until(|| is_following(&going));
            add(&taking, text);
            wait_until(|| has(&last, text));
            wait_until(|| records(&last) == records(&next));
        }
        let expected = Some(b"0abcdef".to_vec());
        assert_eq!(last.get(b"7").unwrap(), expected, "{ahead} {next_ahead}");
        assert_eq!(last.get(b"n7").unwrap(), Some(b"6".to_vec()), "{ahead} {next_ahead}");
    }
}

#[test]
fn a_replica_with_more_operations_than_the_new_master_is_refused() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [one, two, three] = folders.each_ref().map(|folder| folder.path());
    let (next, last) = (hash(two), hash(three));
    let master = start_with(logging(1, one), hash(one));
    let config = replica(2, two, master.address);
    begin(&master);
    let going = start_with(replica(3, three, master.address), last.clone());
    {
        let taking = start_with(config.clone(), next.clone());
        add(&master, "a");
        wait_until(|| has(&next, "a") && has(&last, "a"));
        drop(taking);
    }
    add(&master, "b");
    wait_until(|| has(&last, "b"));
    drop(master);
    let taking = start_with(config, next.clone());
    promote(&taking);
    add(&taking, "c");
    going.connect().exchange(set_master("127.0.0.1", taking.address.port(), 0, 0), b"\0");
    wait_until(|| stat(&going, "replication_state").as_deref() == Some("stopped"));
    assert!(has(&last, "b"));
}

#[test]
fn a_replica_follows_one_new_master_after_another() {
    let folders = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let databases = folders.each_ref().map(|folder| hash(folder.path()));
    let start = |number: usize, master: SocketAddr| {
        let config = replica(number as u32 + 1, folders[number].path(), master);
        start_with(config, databases[number].clone())
    };
    let mut master = start_with(logging(1, folders[0].path()), databases[0].clone());
    begin(&master);
    let mut replicas: Vec<_> = (1..4).map(|number| start(number, master.address)).collect();
    wait_until(|| replicas.iter().all(is_following));
    let mut expected = "0".to_owned();
    for (round, text) in ["a", "b", "c"].into_iter().enumerate() {
        add(&master, text);
        expected.push_str(text);
        wait_until(|| databases[round + 1..].iter().all(|database| has(database, text)));
        drop(master);
        master = replicas.remove(0);
        promote(&master);
        let port = master.address.port();
        for replica in &replicas {
            replica.connect().exchange(set_master("127.0.0.1", port, 0, 0), b"\0");
        }
    }
    assert_eq!(databases[3].get(b"7").unwrap(), Some(expected.into_bytes()));
}

#[test]
fn a_replica_copies_a_master_whose_log_has_no_identity() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [one, other, two] = folders.each_ref().map(|folder| folder.path());
    let copy = hash(two);
    let start = |address| {
        let mut config = replica(2, two, address);
        config.following.seeding = Seeding::Always;
        start_with(config, copy.clone())
    };
    {
        let master = start_with(logging(1, one), hash(one));
        begin(&master);
        let replica = start(master.address);
        wait_until(|| is_following(&replica) && copy.len() == 2 * KEYS as u64);
    }
    // The new log has no identity, because the identity cannot be stored.
    std::fs::create_dir_all(other.join("ulog/identity.new")).unwrap();
    let source = hash(other);
    source.put(b"only", b"here").unwrap();
    let master = start_with(logging(1, other), source.clone());
    let replica = start(master.address);
    wait_until(|| is_following(&replica));
    assert_eq!(records(&copy), records(&source));
}

/// Turns the folder of a replica into that of one that was killed before it stored its progress.
fn take_back(folder: &Path, before: &str) {
    std::fs::write(folder.join("rts"), before).unwrap();
    let path = folder.join("rts.lanes");
    let mut notes = std::fs::read(&path).unwrap();
    let position: u64 = before.trim_end().parse().unwrap();
    // The fourth and the fifth number.
    notes[24..40].copy_from_slice(&[position.to_ne_bytes(); 2].concat());
    std::fs::write(path, notes).unwrap();
}

fn value(database: &Database) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    (database.get(b"7").unwrap(), database.get(b"n7").unwrap())
}

fn expected(text: &str) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    (Some(format!("0{text}").into_bytes()), Some(text.len().to_string().into_bytes()))
}

/// Clocks of three servers, in seconds ahead of the clock of this machine.
const CLOCKS: [[u64; 3]; 4] = [[0; 3], [600, 0, 0], [0, 600, 0], [0, 0, 600]];

#[test]
fn a_replica_of_a_killed_replica_resumes_at_the_first_master_and_back_whatever_the_clocks() {
    for clocks in CLOCKS {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [one, two, three] = folders.each_ref().map(|folder| folder.path());
        let (first, next, last) = (hash(one), hash(two), hash(three));
        put_ahead(&logging(1, one), clocks[0], 0);
        put_ahead(&logging(2, two), clocks[1], 9);
        put_ahead(&logging(3, three), clocks[2], 9);
        let master = start_with(logging(1, one), first);
        let middle = start_with(replica(2, two, master.address), next.clone());
        begin(&master);
        let mut text = String::new();
        for (round, to_middle) in [true, false, true, false].into_iter().enumerate() {
            let address = if to_middle { middle.address } else { master.address };
            let going = start_with(replica(3, three, address), last.clone());
            let mut positions = Vec::new();
            for part in ["a", "b"] {
                add(&master, part);
                text.push_str(part);
                wait_until(|| has(&last, part) && has(&next, part) && is_following(&going));
                positions.push(std::fs::read_to_string(three.join("rts")).unwrap());
            }
            wait_until(|| knows(three) && is_following(&going));
            drop(going);
            take_back(three, &positions[0]);
            add(&master, "c");
            text.push('c');
            wait_until(|| has(&next, "c"));
            assert!(!has(&last, "c"), "{round}");
        }
        let _going = start_with(replica(3, three, middle.address), last.clone());
        wait_until(|| has(&last, "c"));
        assert_eq!(value(&last), expected(&text), "{clocks:?}");
    }
}

#[test]
fn a_replica_of_two_mutual_masters_changes_from_one_to_the_other_whatever_the_clocks() {
    for clocks in CLOCKS {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [one, two, three] = folders.each_ref().map(|folder| folder.path());
        let databases = [one, two, three].map(hash);
        for (number, folder) in [one, two, three].into_iter().enumerate() {
            put_ahead(&logging(number as u32 + 1, folder), clocks[number], 0);
        }
        let never = |mut config: Config| {
            config.following.seeding = Seeding::Never;
            config
        };
        let first = start_with(never(logging(1, one)), databases[0].clone());
        let config = never(following(2, two, first.address));
        let second = start_with(config, databases[1].clone());
        let port = second.address.port();
        first.connect().exchange(set_master("127.0.0.1", port, 0, 0), b"\0");
        wait_until(|| is_following(&first) && is_following(&second));
        begin(&first);
        wait_until(|| has(&databases[1], "0"));
        let mut text = String::new();
        for (round, server) in [&first, &second, &first, &second].into_iter().enumerate() {
            let going = start_with(replica(3, three, server.address), databases[2].clone());
            for (from, part) in [(&first, "a"), (&second, "b"), (&first, "c")] {
                add(from, part);
                text.push_str(part);
                wait_until(|| databases.iter().all(|database| has(database, part)));
            }
            wait_until(|| [one, two, three].into_iter().all(knows) && is_following(&going));
            drop(going);
            for (from, part) in [(&second, "d"), (&first, "e")] {
                add(from, part);
                text.push_str(part);
                wait_until(|| databases[..2].iter().all(|database| has(database, part)));
            }
            assert!(!has(&databases[2], "e"), "{round}");
        }
        let _going = start_with(replica(3, three, first.address), databases[2].clone());
        wait_until(|| has(&databases[2], "e"));
        assert_eq!(value(&databases[2]), expected(&text), "{clocks:?}");
    }
}

#[test]
fn a_replica_continues_that_receives_more_logs_than_it_can_store() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let config = replica(2, folder.path(), listener.local_addr().unwrap());
    let database = hash(folder.path());
    let server = start_with(config, database.clone());
    // A master of this project, simulated over a socket.
    let mut stream = take_replica(&listener, b"\0\0\0\0\x01\0\0\0\x011");
    for (question_bytes, answer) in [(37, &b"\0\0\0\x08identity"[..]), (34, b"\0\0\0\x05bytes")] {
        stream.read_exact(&mut vec![0; question_bytes]).unwrap();
        stream.write_all(&[&b"\0\0\0\0\x01"[..], answer].concat()).unwrap();
    }
    stream.read_exact(&mut [0; 22]).unwrap();
    stream.write_all(b"\0\0\0\x09").unwrap();
    let mut send = |message: &FromMaster<'_>| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    };
    let logs = ROOT_LOGS_MAX as u64 * 3;
    for log in 1..=logs {
        let mut body = Vec::new();
        let request = Request::PutCat { key: b"key", value: b"+" };
        Operation { request, succeeded: true }.encode(&mut body).unwrap();
        let message = Message::Update { timestamp_us: 10 + log, origin: 9, body: &body };
        send(&FromMaster::Rooted { root: Root { log, timestamp_us: 5 }, message });
        let at = Position { now_us: 20, timestamp_us: 10 + log, ..Position::default() };
        send(&FromMaster::Position(at));
    }
    let expected = vec![b'+'; ROOT_LOGS_MAX * 3];
    wait_until(|| database.get(b"key").unwrap().as_ref() == Some(&expected));
    assert_eq!(stat(&server, "replication_state").as_deref(), Some("following"));
}
