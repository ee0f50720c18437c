//! Replication by Tokyo Tyrant's protocol, between servers, and with masters and replicas simulated
//! over sockets.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::{Database, Durability, Options};
use server::Config;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use support::{
    MISC_FAILURE, Running, WAIT_MAX, config, following, hash, is_following, list, logged, logging,
    memory, misc, records, request, set, set_master, start_master, start_with, stat, table,
    take_replica, tree, wait_until, wait_until_equal,
};
use wire::binary::Request;
use wire::update_log::{Message, Operation};

const STORED: &[u8] = b"STORED\r\n";

/// Stream that server 3, Tokyo Tyrant, sent to a replica.
const STREAM: &[u8] = include_bytes!("fixtures/replication-stream.bin");

/// Time stamp of the last update in the stream, in microseconds since 1970.
const LAST_US: u64 = 1_795_226_398_393_705;

fn start_replica(folder: &Path, master: SocketAddr) -> (Running, Database) {
    let database = hash(folder);
    (start_with(following(2, folder, master), database.clone()), database)
}

#[test]
fn a_replica_whose_kind_of_database_would_lose_values_of_the_master_has_none_of_them() {
    let named =
        |folder: &Path, name: &str| Database::open(folder.join(name).to_str().unwrap()).unwrap();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [first, second] = folders.each_ref().map(|folder| folder.path());
    for (number, (of_master, of_replica, is_refused)) in [
        ("m.tch", "r.tct", true),
        ("m.tct", "r.tch", true),
        ("m.tcb", "r.tch", true),
        ("m.tch", "r.tcf", true),
        ("m.tch", "r.tcb", false),
        ("m.tcf", "r.tch", false),
    ]
    .into_iter()
    .enumerate()
    {
        let folders = [first, second].map(|folder| folder.join(number.to_string()));
        folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let (records, own) = (named(&folders[0], of_master), named(&folders[1], of_replica));
        let master = start_with(logging(1, &folders[0]), records.clone());
        let value: &[u8] = if of_master == "m.tct" { b"name\0x" } else { b"value" };
        records.put(b"7", value).unwrap();
        let replica = start_with(following(2, &folders[1], master.address), own.clone());
        let state = if is_refused { "stopped" } else { "following" };
        wait_until(|| stat(&replica, "replication_state").as_deref() == Some(state));
        if is_refused {
            assert_eq!(own.len(), 0, "{of_master} to {of_replica}");
        } else {
            wait_until(|| own.get(b"7").unwrap().as_deref() == Some(value));
        }
    }
}

#[test]
fn a_client_that_would_not_get_the_log_is_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |server: &Running, refusal: Option<&str>| {
        let mut client = server.connect();
        let reply = if refusal.is_some() { MISC_FAILURE.to_vec() } else { list(&[]) };
        client.exchange(misc("replication", &["admission", "1"]), reply);
        if let Some(refusal) = refusal {
            client.exchange(misc("error", &[]), list(&[refusal]));
        }
    };
    let advice = "start it with --update-log DIR and --server-id N";
    let no_log = format!("2: invalid operation: the server has no update log: {advice}");
    ask(&start_with(config(), memory()), Some(&no_log));
    let master = start_with(logging(1, folder.path()), memory());
    ask(&master, None);
    let masked = Config { mask: "repl".parse().unwrap(), ..config() };
    ask(&start_with(masked, memory()), Some("4: no permission: the server masks repl"));
    // The entries before those of a file that is not the first have been removed.
    set(&master, "a", "1");
    drop(master);
    let log = folder.path().join("ulog");
    fs::rename(log.join("00000001.ulog"), log.join("00000002.ulog")).unwrap();
    let removed = "the log entries from time stamp 1 on have been removed; begin at a later time";
    let removed = format!("2: invalid operation: {removed}");
    ask(&start_with(logging(1, folder.path()), memory()), Some(&removed));
}

#[test]
fn a_replica_has_the_records_of_a_master_that_evicts() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = Database::open("*#capsiz=1m").unwrap();
    let master = start_with(logging(1, one.path()), source.clone());
    // A difference would stop it: what was evicted is none.
    let mut config = following(2, other.path(), master.address);
    config.following.check = true;
    let copy = hash(other.path());
    let replica = start_with(config, copy.clone());
    let third = tempfile::tempdir().unwrap();
    let mut config = following(3, third.path(), master.address);
    config.following.check = true;
    let small_copy = Database::open("*#capsiz=512k").unwrap();
    let small = start_with(config, small_copy.clone());
    wait_until(|| is_following(&replica) && is_following(&small));
    set(&master, "old", "1");
    set(&master, "text", "a");
    let long = "v".repeat(100_000);
    for number in 0..20 {
        set(&master, &format!("long{number}"), &long);
    }
    assert_eq!((source.get(b"old").unwrap(), source.get(b"text").unwrap()), (None, None));
    let mut client = master.connect();
    client.exchange("add old 0 0 1\r\n5\r\nincr old 2\r\n", b"STORED\r\n7\r\n");
    let append = request(&Request::PutCat { key: b"text", value: b"b" });
    master.connect().exchange(append, b"\0");
    client.exchange("append text 0 0 1\r\nc\r\n", STORED);
    client.exchange("delete long0\r\ndelete none\r\n", b"NOT_FOUND\r\nNOT_FOUND\r\n");
    client.exchange("delete long18\r\nset end 0 0 1\r\n1\r\n", b"DELETED\r\nSTORED\r\n");
    // The last update of one key may come before updates of others.
    let has = |key: &[u8], value: &[u8]| copy.get(key).unwrap().as_deref() == Some(value);
    wait_until(|| has(b"old", b"7") && has(b"text", b"bc"));
    wait_until(|| copy.get(b"long19").unwrap().is_some() && copy.get(b"long1").unwrap().is_some());
    wait_until(|| copy.get(b"long0").unwrap().is_none());
    // A difference would have stopped them before the last change, or at it.
    for (replica, copy) in [(&replica, &copy), (&small, &small_copy)] {
        wait_until(|| copy.get(b"end").unwrap().is_some() && is_following(replica));
    }
    // Evicted records are still there.
    assert!(copy.get(b"long1").unwrap().is_some() && source.get(b"long1").unwrap().is_none());
}

#[test]
fn a_replica_has_the_duplicates_of_a_tree_that_evicts() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let name = format!("{}#capsiz=4m", one.path().join("casket.tcb").display());
    let source = Database::open(&name).unwrap();
    let master = start_with(logging(1, one.path()), source.clone());
    let copy = tree(other.path());
    let replica = start_with(following(2, other.path(), master.address), copy.clone());
    wait_until(|| is_following(&replica));
    let change = |name: &str, key: &str, value: &str| {
        master.connect().exchange(misc(name, &[key, value]), b"\0\0\0\0\0");
    };
    for key in ["put", "added", "removed", "several"] {
        change("putdup", key, "1");
        change("putdup", key, "2");
    }
    wait_until(|| copy.len() == 8);
    let long = "v".repeat(100_000);
    for number in 0..120 {
        set(&master, &format!("long{number}"), &long);
    }
    for key in ["put", "added", "removed", "several"] {
        assert_eq!(source.get_all(key.as_bytes()).unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(copy.get_all(key.as_bytes()).unwrap().len(), 2);
    }
    set(&master, "put", "3");
    change("putdup", "added", "3");
    change("putdup", "several", "3");
    change("putdupback", "several", "0");
    master.connect().exchange("delete removed\r\n", b"NOT_FOUND\r\n");
    for key in ["removed", "put", "added", "several"] {
        wait_until(|| {
            let (there, here) = (copy.get_all(key.as_bytes()), source.get_all(key.as_bytes()));
            there.unwrap() == here.unwrap()
        });
    }
    assert_eq!(source.get_all(b"added").unwrap(), [b"3"]);
    assert_eq!(source.get_all(b"several").unwrap(), [b"0", b"3"]);
    // Evictions are not logged.
    assert!(copy.get(b"long1").unwrap().is_some() && source.get(b"long1").unwrap().is_none());
}

#[test]
fn a_replica_has_the_rows_of_a_table_that_evicts() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let name = format!("{}#capsiz=4m", one.path().join("casket.tct").display());
    let source = Database::open(&name).unwrap();
    let master = start_with(logging(1, one.path()), source.clone());
    let copy = table(other.path());
    let replica = start_with(following(2, other.path(), master.address), copy.clone());
    wait_until(|| is_following(&replica));
    let call = |name: &str, arguments: &[&str]| {
        master.connect().exchange(misc(name, arguments), b"\0\0\0\0\0");
    };
    let keys = ["put", "added", "number", "removed", "found1", "found2"];
    for key in keys {
        call("put", &[key, "color", "red", "size", key]);
    }
    wait_until(|| copy.len() == keys.len() as u64);
    let long = "v".repeat(100_000);
    for number in 0..120 {
        call("put", &[&format!("long{number}"), "value", &long]);
    }
    for key in keys {
        assert_eq!(source.get(key.as_bytes()).unwrap(), None);
        assert!(copy.get(key.as_bytes()).unwrap().is_some());
    }
    call("put", &["put", "color", "blue"]);
    call("putcat", &["added", "length", "3"]);
    master.connect().exchange("delete removed\r\n", b"NOT_FOUND\r\n");
    let add = request(&Request::AddInt { key: b"number", addend: 5 });
    master.connect().exchange(add, b"\0\0\0\0\x05");
    // The replica would evict another row first.
    call("put", &["found2", "color", "red", "size", "2"]);
    let first = ["addcond\0color\0STREQ\0red", "setorder\0\0STRASC", "setlimit\x001", "out"];
    call("search", &first);
    for key in keys.iter().filter(|key| **key != "found1") {
        wait_until(|| copy.get(key.as_bytes()).unwrap() == source.get(key.as_bytes()).unwrap());
    }
    assert_eq!(source.get(b"added").unwrap().unwrap(), b"length\x003");
    assert_eq!(source.get(b"found2").unwrap(), None);
    // Evictions are not logged.
    assert!(copy.get(b"long1").unwrap().is_some() && source.get(b"long1").unwrap().is_none());
    assert!(copy.get(b"found1").unwrap().is_some());
}

#[test]
fn a_replica_gets_earlier_and_later_changes() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, source) = start_master(one.path());
    set(&master, "before", "1");
    let (replica, copy) = start_replica(other.path(), master.address);
    wait_until_equal(&copy, &source);
    set(&master, "after", "2");
    master.connect().exchange("set n 0 0 1\r\n5\r\nincr n 2\r\n", b"STORED\r\n7\r\n");
    let add = request(&Request::AddInt { key: b"int", addend: 5 });
    master.connect().exchange(add, b"\0\0\0\0\x05");
    master.connect().exchange("delete before\r\n", b"DELETED\r\n");
    wait_until_equal(&copy, &source);
    assert_eq!(records(&copy).len(), 3);
    // Its own log has the operations with their origin.
    let from_master: Vec<_> = logged(&one.path().join("ulog"))
        .into_iter()
        .map(|(origin, _, body)| (origin, 1, body))
        .collect();
    wait_until(|| logged(&other.path().join("ulog")) == from_master);
    assert_eq!(stat(&replica, "mport"), Some(master.address.port().to_string()));
    assert_eq!(stat(&master, "mhost"), None);
    assert_eq!(stat(&master, "replicas").as_deref(), Some("1"));
}

#[test]
fn a_replica_of_a_replica_gets_the_changes_too() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [one, two, three] = &folders;
    let (master, source) = start_master(one.path());
    let (between, _) = start_replica(two.path(), master.address);
    let last = hash(three.path());
    let end = start_with(following(3, three.path(), between.address), last.clone());
    wait_until(|| is_following(&between) && is_following(&end));
    set(&master, "a", "1");
    wait_until_equal(&last, &source);
    // The record can be read before its log entry is in the file.
    wait_until(|| !logged(&three.path().join("ulog")).is_empty());
    let entries = logged(&three.path().join("ulog"));
    assert_eq!(entries.iter().map(|entry| (entry.0, entry.1)).collect::<Vec<_>>(), [(1, 2)]);
}

#[test]
fn rows_of_a_table_are_replicated() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (source, copy) = (table(one.path()), table(other.path()));
    let master = start_with(logging(1, one.path()), source.clone());
    let _replica = start_with(following(2, other.path(), master.address), copy.clone());
    let put = request(&Request::Put { key: b"", value: b"name\0Ann\0age\x0030" });
    master.connect().exchange(put, b"\0");
    wait_until_equal(&copy, &source);
    assert_eq!(copy.table().unwrap().last_uid(), 1);
}

#[test]
fn a_replica_resumes_when_its_master_is_back() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, source) = start_master(one.path());
    let address = master.address;
    let (_replica, copy) = start_replica(other.path(), address);
    let cat = |server: &Running| {
        let cat = request(&Request::PutCat { key: b"list", value: b"x" });
        server.connect().exchange(cat, b"\0");
    };
    cat(&master);
    wait_until_equal(&copy, &source);
    drop((master, source));
    let mut config = logging(1, one.path());
    config.listen =
        vec![server::Endpoint::Tcp { host: Some("127.0.0.1".into()), port: address.port() }];
    let source = hash(one.path());
    let master = start_with(config, source.clone());
    cat(&master);
    wait_until_equal(&copy, &source);
    assert_eq!(copy.get(b"list").unwrap().as_deref(), Some(&b"xx"[..]));
}

#[test]
fn a_replica_resumes_after_a_restart() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, source) = start_master(one.path());
    for round in 0..3 {
        let add = request(&Request::AddInt { key: b"n", addend: 1 });
        master.connect().exchange(add, [0, 0, 0, 0, round * 2 + 1]);
        {
            let (_replica, copy) = start_replica(other.path(), master.address);
            wait_until_equal(&copy, &source);
        }
        let add = request(&Request::AddInt { key: b"n", addend: 1 });
        master.connect().exchange(add, [0, 0, 0, 0, round * 2 + 2]);
    }
    let (_replica, copy) = start_replica(other.path(), master.address);
    wait_until_equal(&copy, &source);
}

/// As after a restore from a backup: what came after it must not be missing.
#[test]
fn a_replica_whose_database_was_replaced_does_not_go_on_from_the_position_of_the_one_before() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, source) = start_master(one.path());
    set(&master, "before", "1");
    let (replica, copy) = start_replica(other.path(), master.address);
    wait_until_equal(&copy, &source);
    let (path, backup) = (copy.path(), other.path().join("backup.tch"));
    copy.copy_to(&backup).unwrap();
    set(&master, "after", "2");
    wait_until_equal(&copy, &source);
    drop((replica, copy));
    fs::remove_dir_all(&path).unwrap();
    fs::rename(&backup, &path).unwrap();
    let (replica, copy) = start_replica(other.path(), master.address);
    wait_until_equal(&copy, &source);
    drop(replica);
    // The position of this database is taken up as before.
    set(&master, "later", "3");
    drop(copy);
    let (replica, copy) = start_replica(other.path(), master.address);
    wait_until_equal(&copy, &source);
    drop((replica, copy));
    // Another database gets another file.
    let third = tempfile::tempdir().unwrap();
    let database = hash(third.path());
    let config = following(3, other.path(), master.address);
    let refused = start_with(config, database.clone());
    wait_until(|| stat(&refused, "replication_state").as_deref() == Some("connecting"));
    drop(refused);
    let config = following(3, third.path(), master.address);
    let follows = start_with(config, database.clone());
    wait_until_equal(&database, &source);
    drop(follows);
    let (_replica, copy) = start_replica(other.path(), master.address);
    set(&master, "last", "4");
    wait_until_equal(&copy, &source);
}

#[test]
fn two_mutual_masters_converge_and_no_change_circulates() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, left) = start_master(one.path());
    let (second, right) = start_replica(other.path(), first.address);
    let port = second.address.port();
    first.connect().exchange(set_master("127.0.0.1", port, 0, 0), b"\0");
    wait_until(|| is_following(&first) && is_following(&second));
    std::thread::scope(|scope| {
        for (server, name) in [(&first, "l"), (&second, "r")] {
            scope.spawn(move || {
                for number in 0..100 {
                    set(server, &format!("{name}{number}"), "v");
                }
            });
        }
    });
    wait_until(|| records(&left).len() == 200);
    wait_until_equal(&left, &right);
    // Each log has the own changes and the other server's, once.
    let count = |folder: &Path, origin: u16, master: u16| {
        let entries = logged(&folder.join("ulog"));
        assert_eq!(entries.len(), 200);
        entries.iter().filter(|entry| (entry.0, entry.1) == (origin, master)).count()
    };
    assert_eq!((count(one.path(), 1, 0), count(one.path(), 2, 2)), (100, 100));
    assert_eq!((count(other.path(), 2, 0), count(other.path(), 1, 1)), (100, 100));
}

#[test]
fn three_masters_in_a_ring_converge_and_no_change_circulates() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let databases: Vec<_> = folders.iter().map(|folder| hash(folder.path())).collect();
    let servers: Vec<_> = (1..)
        .zip(&folders)
        .zip(&databases)
        .map(|((id, folder), database)| start_with(logging(id, folder.path()), database.clone()))
        .collect();
    for (number, server) in servers.iter().enumerate() {
        let port = servers[(number + 1) % 3].address.port();
        server.connect().exchange(set_master("127.0.0.1", port, 0, 0), b"\0");
    }
    wait_until(|| servers.iter().all(is_following));
    for (number, server) in servers.iter().enumerate() {
        set(server, &format!("key{number}"), "v");
        let add =
            request(&Request::PutCat { key: format!("list{number}").as_bytes(), value: b"x" });
        server.connect().exchange(add, b"\0");
    }
    for database in &databases {
        wait_until(|| records(database).len() == 6);
        wait_until_equal(database, &databases[0]);
    }
    assert_eq!(databases[0].get(b"list0").unwrap().as_deref(), Some(&b"x"[..]));
    for folder in &folders {
        assert_eq!(logged(&folder.path().join("ulog")).len(), 6);
    }
}

#[test]
fn a_master_can_be_set_and_removed_at_run_time() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, source) = start_master(one.path());
    let copy = memory();
    let replica = start_with(logging(2, other.path()), copy.clone());
    set(&master, "a", "1");
    replica.connect().exchange(set_master("127.0.0.1", master.address.port(), 0, 0), b"\0");
    wait_until_equal(&copy, &source);
    // The position is written after the record.
    let position = || fs::read_to_string(other.path().join("rts")).unwrap_or_default();
    let behind_a = || position().trim_end().parse().unwrap_or(0);
    wait_until(|| behind_a() > 0);
    replica.connect().exchange(set_master("", 0, 0, 0), b"\0");
    assert_eq!(stat(&replica, "mhost"), None);
    wait_until(|| stat(&master, "replicas").as_deref() == Some("0"));
    set(&master, "b", "2");
    // From a later time stamp, which is after `a`.
    copy.remove(b"a").unwrap();
    let behind_a = behind_a();
    let again = set_master("127.0.0.1", master.address.port(), behind_a, 0);
    replica.connect().exchange(again, b"\0");
    wait_until(|| copy.get(b"b").unwrap().is_some());
    assert_eq!(records(&copy).len(), 1);
}

#[test]
fn a_server_without_an_id_follows_no_master() {
    let server = support::start(memory());
    server.connect().exchange(set_master("127.0.0.1", 1978, 0, 0), b"\x01");
    server.connect().exchange(set_master("", 0, 0, 0), b"\0");
}

/// Reads the beginning of a master's stream for server 99 from time stamp 1.
fn ask(server: &Running, timestamp_us: u64, server_id: u32) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    stream.write_all(&request(&Request::Replicate { timestamp_us, server_id })).unwrap();
    stream
}

#[test]
fn a_master_sends_the_bytes_of_tokyo_tyrant() {
    let folder = tempfile::tempdir().unwrap();
    let (master, _) = start_master(folder.path());
    set(&master, "a", "1");
    let mut stream = ask(&master, 1, 99);
    let mut received = vec![0; 4 + 1 + 17 + 13];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(received[..5], *b"\0\0\0\x01\xca");
    let update = wire::update_log::Message::parse(&received[5..]);
    let wire::Parse::Complete(Message::Update { origin: 1, body, .. }, 30) = update else {
        panic!("{update:?}")
    };
    let put = Request::Put { key: b"a", value: b"1" };
    assert_eq!(Operation::parse(body).unwrap(), Operation { request: put, succeeded: true });
    // A heartbeat comes every second.
    let mut beat = [0];
    stream.read_exact(&mut beat).unwrap();
    assert_eq!(beat, [0xca]);
}

#[test]
fn a_replica_of_tokyo_tyrants_gets_the_changes_of_a_transaction_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let (master, _) = start_master(folder.path());
    let mut client = master.connect();
    support::talk(&mut client, &[("MSET a 1 b 2", "+OK"), ("SET c 3", "+OK")]);
    let mut stream = ask(&master, 1, 99);
    let mut received = vec![0; 4 + 1 + 3 * 30];
    stream.read_exact(&mut received).unwrap();
    let mut rest = &received[5..];
    let mut times = Vec::new();
    for (key, value) in [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")] {
        let wire::Parse::Complete(Message::Update { timestamp_us, origin: 1, body }, length) =
            Message::parse(rest)
        else {
            panic!("{rest:?}")
        };
        let put = Request::Put { key, value };
        assert_eq!(Operation::parse(body).unwrap(), Operation { request: put, succeeded: true });
        times.push(timestamp_us);
        rest = &rest[length..];
    }
    // A replica that lacks the second one asks for both again.
    assert!(times[0] + 1 == times[1] && times[1] < times[2], "{times:?}");
    drop(stream);
    let mut stream = ask(&master, times[0] + 1, 99);
    let mut received = vec![0; 4 + 1 + 2 * 30];
    stream.read_exact(&mut received).unwrap();
    assert!(received[5..].starts_with(&[0xc9]) && received[35..].starts_with(&[0xc9]));
}

#[test]
fn an_invalid_replica_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (master, _) = start_master(folder.path());
    let without_log = support::start(memory());
    // Time stamp 0, id 0, the master's own id, and a server without an update log.
    for mut stream in
        [ask(&master, 0, 9), ask(&master, 1, 0), ask(&master, 1, 1), ask(&without_log, 1, 9)]
    {
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
    }
}

#[test]
fn a_client_with_unread_replies_gets_them_and_does_not_become_a_replica() {
    let folder = tempfile::tempdir().unwrap();
    let database = memory();
    // More bytes than sockets take.
    let long = vec![b'v'; 32 << 20];
    database.put(b"long", &long).unwrap();
    let config = Config { output_bytes_max: 2 * long.len(), ..logging(1, folder.path()) };
    let master = start_with(config, database);
    let replicate = request(&Request::Replicate { timestamp_us: 1, server_id: 9 });
    let mut behind = master.connect();
    behind.send(b"get long\r\n");
    master.pass();
    behind.send(&replicate);
    let mut at_once = master.connect();
    at_once.send(&[b"get none\r\n", &replicate[..]].concat());
    at_once.expect(b"END\r\n");
    at_once.expect_close();
    // Other clients of the same event loop are served meanwhile.
    behind.read(1 << 20);
    master.pass();
    let rest = behind.read_to_end();
    assert!(rest.len() < long.len() && rest.ends_with(b"v\r\nEND\r\n"));
}

/// Accepts a replica as a simulated master and returns its request. It acts as Tokyo Tyrant, which
/// does not have the function that the replica calls first.
fn take(listener: &TcpListener) -> (TcpStream, u64, u32) {
    let mut stream = take_replica(listener, b"\x01\0\0\0\0");
    let mut handshake = [0; 14];
    stream.read_exact(&mut handshake).unwrap();
    assert_eq!(handshake[..2], *b"\xc8\xa0");
    let timestamp_us = u64::from_be_bytes(handshake[2..10].try_into().unwrap());
    (stream, timestamp_us, u32::from_be_bytes(handshake[10..].try_into().unwrap()))
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn tokyo_tyrants_stream_makes_its_records_however_often_it_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = listen();
    let (_replica, copy) = start_replica(folder.path(), address);
    let (server_id, messages) = STREAM.split_at(4);
    let mut rest = messages;
    let mut connections = 0;
    while !rest.is_empty() {
        let (mut stream, from_us, replica_id) = take(&listener);
        assert_eq!(replica_id, 2);
        stream.write_all(server_id).unwrap();
        // Up to 300 bytes of the requested stream per connection, cut anywhere.
        rest = messages;
        while let wire::Parse::Complete(message, length) = Message::parse(rest) {
            if matches!(message, Message::Update { timestamp_us, .. } if timestamp_us >= from_us) {
                break;
            }
            rest = &rest[length..];
        }
        stream.write_all(&rest[..rest.len().min(300)]).unwrap();
        connections += 1;
    }
    assert!(connections > 10);
    wait_until(|| fs::read_to_string(folder.path().join("rts")).unwrap() == format!("{LAST_US}\n"));
    let records = records(&copy);
    assert_eq!(records.len(), 64);
    assert_eq!(records[&b"key1"[..]], b"value-number-1+cat");
    assert_eq!(records[&b"key2"[..]], b"-2tail");
    assert_eq!(records[&b"n"[..]], 5_i32.to_le_bytes());
    assert!(logged(&folder.path().join("ulog")).iter().all(|entry| (entry.0, entry.1) == (3, 3)));
}

/// Returns 20,000 operations whose results show their order and number, on 50 keys, and some
/// between them on no key or on all.
fn operations() -> Vec<u8> {
    let mut operations = Vec::new();
    for number in 0..20_000_u64 {
        let key = format!("key{}", number % 50);
        let value = format!("{number} ");
        let (key, value) = (key.as_bytes(), value.as_bytes());
        let request = match number {
            5_000 => Request::Vanish,
            number if number % 1_111 == 0 => Request::Sync,
            number if number % 97 == 0 => Request::Out { key },
            number if number % 13 == 0 => Request::PutShift { key, value, width: 100 },
            _ => Request::PutCat { key, value },
        };
        operations.extend(update(1 + number, request, true));
    }
    operations
}

#[test]
fn many_threads_execute_operations_with_the_result_of_one() {
    let followed = |threads: usize, seed: u64| {
        let folder = tempfile::tempdir().unwrap();
        let (listener, address) = listen();
        let mut config = following(2, folder.path(), address);
        config.threads = threads;
        let copy = hash(folder.path());
        let replica = start_with(config, copy.clone());
        let operations = operations();
        let mut rest = &operations[..];
        let mut random = seed;
        while !rest.is_empty() {
            let (mut stream, from_us, _) = take(&listener);
            rest = &operations[..];
            while let wire::Parse::Complete(Message::Update { timestamp_us, .. }, length) =
                Message::parse(rest)
                && timestamp_us < from_us
            {
                rest = &rest[length..];
            }
            // Cut anywhere.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let bytes = rest.len().min((random >> 44) as usize);
            stream.write_all(b"\0\0\0\x03").unwrap();
            stream.write_all(&rest[..bytes]).unwrap();
            rest = &rest[bytes..];
        }
        wait_until(|| fs::read(folder.path().join("rts")).unwrap_or_default() == b"20000\n");
        drop(replica);
        (records(&copy), logged(&folder.path().join("ulog")).len())
    };
    let (records, entries) = followed(1, 1);
    // The last operation removed a key.
    assert_eq!((records.len(), entries), (49, 20_000));
    assert_eq!(followed(4, 2), (records, entries));
}

fn update(timestamp_us: u64, request: Request<'_>, succeeded: bool) -> Vec<u8> {
    let mut body = Vec::new();
    Operation { request, succeeded }.encode(&mut body).unwrap();
    let mut bytes = Vec::new();
    Message::Update { timestamp_us, origin: 3, body: &body }.encode(&mut bytes).unwrap();
    bytes
}

/// Turns the folder of a replica that has executed the operation of `last_us` into that of one that
/// was killed before it stored that, and had stored `before_us`.
fn take_back(folder: &Path, last_us: u64, before_us: u64) {
    fs::write(folder.join("rts"), format!("{before_us}\n")).unwrap();
    let path = folder.join("rts.lanes");
    let notes = fs::read(&path).unwrap();
    let mut words: Vec<_> =
        notes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    // The file has lines of 8 numbers. The fourth and fifth of the first line are the position. The
    // lines after the partitions have the progress in each log.
    words[3..5].fill(before_us);
    let executed = words.iter_mut().skip(8 * 66);
    let executed: Vec<_> = executed.filter(|word| **word == last_us).collect();
    assert_eq!(executed.len(), 1);
    for word in executed {
        *word = before_us;
    }
    fs::write(path, words.into_iter().flat_map(u64::to_ne_bytes).collect::<Vec<_>>()).unwrap();
}

#[test]
fn an_operation_executed_before_a_kill_is_not_executed_again() {
    for was_executed in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let config =
            || Config { update_log: None, ..following(2, folder.path(), unused_address()) };
        let cat = || update(20, Request::PutCat { key: b"list", value: b"b" }, true);
        let (listener, address) = listen();
        let database = hash(folder.path());
        let mut first = config();
        first.following.master = Some(support::master(address));
        {
            let _replica = start_with(first, database.clone());
            let (mut stream, ..) = take(&listener);
            stream.write_all(b"\0\0\0\x03").unwrap();
            let put = update(10, Request::PutCat { key: b"list", value: b"a" }, true);
            stream.write_all(&[put, cat()].concat()).unwrap();
            wait_until(|| fs::read(folder.path().join("rts")).unwrap_or_default() == b"20\n");
        }
        take_back(folder.path(), 20, 10);
        if !was_executed {
            database.put(b"list", b"a").unwrap();
        }
        let (listener, address) = listen();
        let mut second = config();
        second.following.master = Some(support::master(address));
        let _replica = start_with(second, database.clone());
        let (mut stream, from_us, _) = take(&listener);
        assert_eq!(from_us, 11);
        stream.write_all(b"\0\0\0\x03").unwrap();
        stream.write_all(&cat()).unwrap();
        wait_until(|| fs::read(folder.path().join("rts")).unwrap() == b"20\n");
        assert_eq!(database.get(b"list").unwrap().as_deref(), Some(&b"ab"[..]), "{was_executed}");
    }
}

/// Returns an address that the test replaces.
fn unused_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1))
}

#[test]
fn a_time_stamp_set_by_setmst_is_used_once() {
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = listen();
    let replica = start_with(logging(2, folder.path()), memory());
    replica.connect().exchange(set_master("127.0.0.1", address.port(), 5, 0), b"\0");
    let (mut stream, from_us, _) = take(&listener);
    assert_eq!(from_us, 6);
    stream.write_all(b"\0\0\0\x03").unwrap();
    stream.write_all(&update(10, Request::Put { key: b"k", value: b"v" }, true)).unwrap();
    wait_until(|| fs::read(folder.path().join("rts")).unwrap_or_default() == b"10\n");
    replica.connect().exchange(set_master("", 0, 0, 0), b"\0");
    replica.connect().exchange(set_master("127.0.0.1", address.port(), 0, 0), b"\0");
    assert_eq!(take(&listener).1, 11);
}

#[test]
fn a_checking_replica_stops_at_a_difference_until_its_master_is_set_again() {
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = listen();
    let mut config = following(2, folder.path(), address);
    config.following.check = true;
    let database = memory();
    let replica = start_with(config, database.clone());
    let (mut stream, ..) = take(&listener);
    stream.write_all(b"\0\0\0\x03").unwrap();
    let differs = || update(20, Request::Out { key: b"missing" }, true);
    let behind = || update(30, Request::Put { key: b"behind", value: b"v" }, true);
    let first = update(10, Request::Put { key: b"first", value: b"v" }, true);
    stream.write_all(&[first, differs(), behind()].concat()).unwrap();
    // The replica closes the connection and does not connect again.
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    wait_until(|| fs::read(folder.path().join("rts")).unwrap() == b"10\n");
    replica.connect().exchange(set_master("127.0.0.1", address.port(), 0, 0), b"\0");
    let (mut stream, from_us, _) = take(&listener);
    assert_eq!(from_us, 11);
    stream.write_all(b"\0\0\0\x03").unwrap();
    stream.write_all(&[differs(), behind()].concat()).unwrap();
    wait_until(|| database.get(b"behind").unwrap().is_some());
}

#[test]
fn a_malformed_stream_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let (listener, address) = listen();
    let replica = start_with(following(2, folder.path(), address), memory());
    for nonsense in [&b"\0\0\0\x03nonsense"[..], b"\0\0\0", b"", b"\0\0\0\x03\xc9\xff\xff"] {
        let (mut stream, ..) = take(&listener);
        stream.write_all(nonsense).unwrap();
    }
    // The replica has connected again each time.
    take(&listener);
    replica.connect().expect_open();
}

#[test]
fn a_replica_executes_its_masters_operations_despite_the_command_mask() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, source) = start_master(one.path());
    let mut config = following(2, other.path(), master.address);
    config.mask.mask("allwrite".parse().unwrap());
    let copy = memory();
    let _replica = start_with(config, copy.clone());
    set(&master, "a", "1");
    wait_until_equal(&copy, &source);
}

/// Link between two servers that can be cut without either end being told.
struct Way {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    /// Number of connections that were made.
    connections: Arc<AtomicUsize>,
}

impl Way {
    fn to(server: &Running) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (to, is_cut) = (server.address, Arc::new(AtomicBool::new(false)));
        let (known, connections) = (Arc::clone(&is_cut), Arc::<AtomicUsize>::default());
        let made = Arc::clone(&connections);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                made.fetch_add(1, Ordering::SeqCst);
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(to)) else { return };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let known = Arc::clone(&known);
                    std::thread::spawn(move || Self::pass(from, to, &known));
                }
            }
        });
        Self { address, is_cut, connections }
    }

    /// Forwards bytes until the link is cut, and then keeps both ends open.
    fn pass(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
        let mut bytes = [0; 4096];
        while let Ok(count) = from.read(&mut bytes)
            && count > 0
        {
            while is_cut.load(Ordering::SeqCst) {
                std::thread::park();
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    }
}

/// Time after which either end takes a link without a message for cut, rounded up.
const SILENCE: Duration = Duration::from_secs(5);

#[test]
fn both_ends_notice_a_cut_link_and_an_idle_one_stays_open() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, _) = start_master(one.path());
    let way = Way::to(&master);
    let replica = start_with(following(2, two.path(), way.address), hash(two.path()));
    set(&master, "key", "value");
    wait_until(|| is_following(&replica));
    assert_eq!(stat(&master, "replicas").as_deref(), Some("1"));
    // An idle link stays open. On a loaded machine an end may miss the other's heartbeats once.
    wait_until(|| {
        let before = way.connections.load(Ordering::SeqCst);
        std::thread::sleep(SILENCE);
        way.connections.load(Ordering::SeqCst) == before
            && is_following(&replica)
            && stat(&master, "replicas").as_deref() == Some("1")
    });
    way.is_cut.store(true, Ordering::SeqCst);
    wait_until(|| stat(&master, "replicas").as_deref() == Some("0"));
    wait_until(|| stat(&replica, "replication_state").as_deref() == Some("connecting"));
}

#[test]
fn a_replica_whose_system_stopped_while_it_ran_shows_that_its_records_may_differ() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, source) = start_master(one.path());
    let lanes = other.path().join("rts.lanes");
    for (durability, is_stopped) in
        [(Durability::None, true), (Durability::Always, false), (Durability::None, false)]
    {
        let path = other.path().join("casket.tch");
        let database = Options::new().durability(durability).open(path).unwrap();
        let mut config = following(2, other.path(), master.address);
        config.following.is_writable = false;
        let replica = start_with(config.clone(), database.clone());
        set(&master, "key", "v");
        wait_until_equal(&database, &source);
        wait_until(|| is_following(&replica));
        assert_eq!(stat(&replica, "replication_inexact"), None);
        drop(replica);
        let mut notes = fs::read(&lanes).unwrap();
        // The second number is that of the boot, and the sixth tells that the replica has stopped.
        notes[8] ^= 1;
        notes[40] = u8::from(is_stopped);
        fs::write(&lanes, notes).unwrap();
        let replica = start_with(config, database.clone());
        wait_until(|| is_following(&replica));
        let is_shown = stat(&replica, "replication_inexact").is_some();
        assert_eq!(is_shown, durability == Durability::None && !is_stopped);
    }
}
