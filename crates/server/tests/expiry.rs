//! Expired records in the update log and on replicas.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::testing::ManualClock;
use cabinet::{Clock, Database, Options};
use server::Config;
use server::update_log::Settings;
use std::collections::BTreeMap;
use std::path::Path;
use support::{
    Running, following, is_following, logged, logging, records, set, set_master, start_with,
    wait_until,
};
use wire::binary::{Function, Request};
use wire::update_log::Operation;

const STORED: &str = "STORED\r\n";

/// All kinds of databases whose records can expire.
const KINDS: [&str; 5] = ["*", "+", "casket.tch", "casket.tcb", "casket.tcf"];

/// Runs a test for each kind at the same time, as it mostly waits.
fn each(kinds: &[&str], test: impl Fn(&str) + Sync) {
    std::thread::scope(|scope| {
        for kind in kinds {
            let test = &test;
            scope.spawn(move || test(kind));
        }
    });
}

fn now_ms() -> u64 {
    u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()
}

/// Opens a database whose server removes expired records. Returns it and its clock.
fn open(folder: &Path, kind: &str) -> (Database, ManualClock) {
    let (clock, time) = Clock::manual(now_ms());
    let mut options = Options::default();
    options.clock = clock.handing_over(true);
    let path = if kind.len() == 1 { kind.into() } else { folder.join(kind) };
    (options.open(path).unwrap(), time)
}

/// Returns the database of a server that executes a log without flags and expiry, as Tokyo
/// Tyrant's.
fn without_expiry(folder: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut records = BTreeMap::new();
    for (_, _, body) in logged(folder) {
        match Operation::parse(&body).unwrap().request {
            Request::Put { key, value } => drop(records.insert(key.to_vec(), value.to_vec())),
            Request::PutKeep { key, value } => {
                records.entry(key.to_vec()).or_insert_with(|| value.to_vec());
            }
            Request::PutCat { key, value } => {
                records.entry(key.to_vec()).or_default().extend_from_slice(value);
            }
            Request::Out { key } => drop(records.remove(key)),
            Request::Misc { function: Function::Put, arguments, .. } => {
                let mut arguments = arguments.iter().map(<[u8]>::to_vec);
                records.insert(arguments.next().unwrap(), arguments.next().unwrap());
            }
            Request::Misc { function: Function::OutList, arguments, .. } => {
                for key in arguments.iter() {
                    records.remove(key);
                }
            }
            other => panic!("{other:?}"),
        }
    }
    records
}

/// Returns the number of removals of a key in the log.
fn removals(folder: &Path, key: &[u8]) -> usize {
    let is_removal = |body: &[u8]| match Operation::parse(body).unwrap().request {
        Request::Misc { function: Function::OutList, arguments, .. } => arguments.iter().eq([key]),
        _ => false,
    };
    logged(folder).iter().filter(|(_, _, body)| is_removal(body)).count()
}

#[test]
fn a_change_of_an_expired_record_is_logged_after_its_removal() {
    each(&KINDS, |kind| {
        let folder = tempfile::tempdir().unwrap();
        let (database, time) = open(folder.path(), kind);
        let server = start_with(logging(1, folder.path()), database.clone());
        let mut client = server.connect();
        for key in 1..=6 {
            client.exchange(format!("set {key} 0 500 3\r\nold\r\n"), STORED);
        }
        time.advance(1_000_000);
        client.exchange("add 1 0 0 3\r\nnew\r\n", STORED);
        client.exchange("append 2 0 0 3\r\nnew\r\n", "NOT_STORED\r\n");
        client.exchange(b"\xc8\x12\0\0\0\x01\0\0\0\x03\x33new", b"\0");
        client.exchange("delete 4\r\n", "NOT_FOUND\r\n");
        client.exchange(b"\xc8\x11\0\0\0\x01\0\0\0\x03\x35new", b"\0");
        client.exchange("replace 6 0 0 3\r\nnew\r\n", "NOT_STORED\r\n");
        drop(server);
        let ulog = folder.path().join("ulog");
        for key in 1..=6 {
            assert_eq!(removals(&ulog, key.to_string().as_bytes()), 1, "{kind} {key}");
        }
        assert_eq!(without_expiry(&ulog), records(&database), "{kind}");
        assert_eq!(records(&database).len(), 3, "{kind}");
    });
}

#[test]
fn the_removal_of_an_expired_record_is_logged_once_without_any_access() {
    each(&KINDS, |kind| {
        let folder = tempfile::tempdir().unwrap();
        let (database, time) = open(folder.path(), kind);
        let server = start_with(logging(1, folder.path()), database.clone());
        let mut client = server.connect();
        for key in 1..=100 {
            client.exchange(format!("set {key} 0 500 3\r\nold\r\n"), STORED);
        }
        client.exchange("set 200 0 5000 4\r\nlong\r\n", STORED);
        time.advance(1_000_000);
        wait_until(|| database.len() == 1);
        drop(server);
        let ulog = folder.path().join("ulog");
        for key in 1..=100 {
            assert_eq!(removals(&ulog, key.to_string().as_bytes()), 1, "{kind} {key}");
        }
        assert_eq!(without_expiry(&ulog), records(&database), "{kind}");
        assert_eq!(records(&database).len(), 1, "{kind}");
    });
}

#[test]
fn the_removal_of_a_record_that_expires_while_the_server_is_down_is_logged_after_its_start() {
    each(&["casket.tch", "casket.tcb", "casket.tcf"], |kind| {
        let folder = tempfile::tempdir().unwrap();
        let (database, _) = open(folder.path(), kind);
        let server = start_with(logging(1, folder.path()), database.clone());
        server.connect().exchange("set 1 0 500 3\r\nold\r\n", STORED);
        drop((server, database));
        let (database, time) = open(folder.path(), kind);
        time.advance(1_000_000);
        let server = start_with(logging(1, folder.path()), database.clone());
        wait_until(|| database.is_empty());
        drop(server);
        assert_eq!(removals(&folder.path().join("ulog"), b"1"), 1, "{kind}");
    });
}

/// Starts a replica whose clock is `ahead_ms` ahead of its master's, and that removes no record on
/// its own.
fn replica(folder: &Path, kind: &str, config: Config, ahead_ms: u64) -> (Running, Database) {
    let (database, time) = open(folder, kind);
    time.advance(ahead_ms);
    let mut config = config;
    config.following.is_writable = false;
    config.update_log = Some(Settings::new(folder.join("ulog")));
    (start_with(config, database.clone()), database)
}

#[test]
fn the_master_decides_which_records_have_expired_whatever_the_clock_of_a_replica() {
    each(&KINDS, |kind| {
        for ahead_ms in [0, 600_000] {
            let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let (database, time) = open(one.path(), kind);
            let master = start_with(logging(1, one.path()), database.clone());
            let config = following(2, two.path(), master.address);
            let (server, copy) = replica(two.path(), kind, config, ahead_ms);
            let mut client = master.connect();
            client.exchange("set 1 0 500 3\r\nold\r\n", STORED);
            client.exchange("set 2 0 500 3\r\nold\r\n", STORED);
            set(&master, "3", "stays");
            wait_until(|| is_following(&server) && copy.len() == 3);
            let ulog = two.path().join("ulog");
            // First the records of the initial sync.
            let before = [b"1", b"2"].map(|key| removals(&ulog, key));
            client.exchange("touch 1 100000\r\n", "TOUCHED\r\n");
            time.advance(1_000_000);
            client.exchange("add 2 0 0 3\r\nnew\r\n", STORED);
            wait_until(|| is_following(&server) && records(&copy) == records(&database));
            assert_eq!(records(&copy).len(), 3, "{kind} {ahead_ms}");
            // The replica removes nothing on its own, although both records may have expired by its
            // clock.
            let since = [b"1", b"2"].map(|key| removals(&ulog, key));
            assert_eq!(since, [before[0], before[1] + 1], "{kind} {ahead_ms}");
            assert_eq!(without_expiry(&ulog), records(&database), "{kind} {ahead_ms}");
        }
    });
}

#[test]
fn mutual_masters_each_remove_records_that_have_expired_by_their_own_clock() {
    each(&KINDS, |kind| {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [one, two] = folders.each_ref().map(|folder| folder.path());
        let [(left, left_time), (right, right_time)] = [one, two].map(|folder| open(folder, kind));
        let first = start_with(logging(1, one), left.clone());
        let second = start_with(following(2, two, first.address), right.clone());
        let port = second.address.port();
        first.connect().exchange(set_master("127.0.0.1", port, 0, 0), b"\0");
        wait_until(|| is_following(&first) && is_following(&second));
        set(&first, "9", "stays");
        first.connect().exchange("set 1 0 500 3\r\nold\r\n", STORED);
        second.connect().exchange("set 2 0 500 3\r\nold\r\n", STORED);
        first.connect().exchange("set 3 0 5000 3\r\nold\r\n", STORED);
        wait_until(|| left.len() == 4 && right.len() == 4);
        // One record expires by the clock of the second server, the other by that of the first.
        right_time.advance(1_000_000);
        wait_until(|| left.len() == 2 && right.len() == 2);
        left_time.advance(10_000_000);
        wait_until(|| left.len() == 1 && right.len() == 1);
        drop((first, second));
        for folder in [one, two] {
            let ulog = folder.join("ulog");
            assert_eq!([b"1", b"2", b"3"].map(|key| removals(&ulog, key)), [1; 3], "{kind}");
        }
    });
}
