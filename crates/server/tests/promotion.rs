//! Promotion: read-only replicas that become masters.

mod support;

use server::{Config, Seeding};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use support::{
    MISC_FAILURE, Running, following, hash, is_following, knows, list, logging, misc, promote,
    records, request, set, set_master, start_master, start_with, stat, wait_until,
    wait_until_equal,
};
use wire::binary::Request;

/// Starts a read-only replica of the server at `address`.
fn read_only(folder: &Path, address: SocketAddr) -> Config {
    let mut config = following(2, folder, address);
    config.following.is_writable = false;
    config
}

#[test]
fn a_read_only_replica_refuses_writes_in_every_protocol_and_names_its_master() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, source) = start_master(one.path());
    let copy = hash(other.path());
    let replica = start_with(read_only(other.path(), master.address), copy.clone());
    set(&master, "a", "1");
    wait_until_equal(&copy, &source);
    let reason = format!("this is a read-only replica of {}: write to that server", master.address);
    let refused = format!("SERVER_ERROR {reason}\r\n");
    let mut client = replica.connect();
    for request in [
        "set b 0 0 1\r\n2\r\n",
        "add b 0 0 1\r\n2\r\n",
        "append a 0 0 1\r\n2\r\n",
        "prepend a 0 0 1\r\n2\r\n",
        "cas a 0 0 1 7\r\n2\r\n",
        "delete a\r\n",
        "incr a 1\r\n",
        "touch a 100\r\n",
        "flush_all\r\n",
        "flush_all 1000\r\n",
        "ms b 1\r\n2\r\n",
        "md a\r\n",
        "ma a\r\n",
        "cache_memlimit 8\r\n",
    ] {
        client.exchange(request, &refused);
    }
    client.exchange("get a\r\n", "VALUE a 0 1\r\n1\r\nEND\r\n");
    let (key, value): (&[u8], &[u8]) = (b"a", b"2");
    for refused in [
        Request::Put { key, value },
        Request::PutKeep { key: b"b", value },
        Request::PutCat { key, value },
        Request::PutShift { key, value, width: 3 },
        Request::Out { key },
        Request::AddInt { key: b"n", addend: 1 },
        Request::Vanish,
        Request::Optimize { parameters: b"capsiz=8m" },
        Request::Restore { path: b"ulog", timestamp_us: 0, options: 0 },
    ] {
        client.exchange(request(&refused), b"\x01");
    }
    client.exchange(misc("error", &[]), list(&[&format!("4: no permission: {reason}")]));
    for (name, arguments) in
        [("put", &["a", "2"][..]), ("putlist", &["a", "2"]), ("outlist", &["a"]), ("vanish", &[])]
    {
        client.exchange(misc(name, arguments), MISC_FAILURE);
    }
    client.exchange(misc("get", &["a"]), list(&["1"]));
    client.exchange(request(&Request::Sync), b"\0");
    for method in ["PUT", "DELETE"] {
        let mut client = replica.connect();
        let host = "Host: localhost\r\nConnection: close\r\nContent-Length: 0";
        client.send(format!("{method} /a HTTP/1.1\r\n{host}\r\n\r\n").as_bytes());
        let answer = String::from_utf8(client.read_to_end()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{reason}\n")), "{answer}");
    }
    assert_eq!(records(&copy), records(&source));
    set(&master, "a", "3");
    wait_until_equal(&copy, &source);
}

#[test]
fn a_promoted_replica_takes_writes_and_follows_no_master_until_one_is_set() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, source) = start_master(one.path());
    master.connect().exchange(misc("promote", &[]), MISC_FAILURE);
    let copy = hash(other.path());
    let start = || start_with(read_only(other.path(), master.address), copy.clone());
    {
        let replica = start();
        wait_until(|| is_following(&replica));
        set(&master, "a", "1");
        wait_until_equal(&copy, &source);
        let mut client = replica.connect();
        wait_until(|| is_following(&replica));
        let position = fs::read_to_string(other.path().join("rts")).unwrap();
        let answer = list(&[&master.address.to_string(), position.trim_end()]);
        client.exchange(misc("promote", &[]), answer);
        client.exchange(misc("promote", &[]), MISC_FAILURE);
        set(&replica, "b", "2");
    }
    // With the same options it stays a master.
    let replica = start();
    assert_eq!(stat(&replica, "mhost"), None);
    set(&replica, "c", "3");
    replica.connect().exchange(set_master("127.0.0.1", master.address.port(), 0, 0), b"\0");
    set(&master, "d", "4");
    wait_until(|| copy.get(b"d").unwrap().is_some());
    let mut client = replica.connect();
    client.send(b"set e 0 0 1\r\n5\r\n");
    assert!(client.read_until(b"\r\n").starts_with(b"SERVER_ERROR "));
    drop(replica);
    assert!(stat(&start(), "mhost").is_some());
}

/// Returns why a replica says that its records may differ from its master's.
fn inexact(replica: &Running) -> Option<String> {
    wait_until(|| is_following(replica));
    stat(replica, "replication_inexact")
}

#[test]
fn a_replica_that_clients_have_changed_meanwhile_says_so_and_is_replaced_only_if_that_is_allowed() {
    for (is_logged, is_promoted) in [(true, true), (true, false), (false, true), (false, false)] {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (master, source) = start_master(one.path());
        let copy = hash(other.path());
        let mut config = read_only(other.path(), master.address);
        config.update_log = config.update_log.filter(|_| is_logged);
        let follow = || set_master("127.0.0.1", master.address.port(), 0, 0);
        {
            let replica = start_with(config.clone(), copy.clone());
            wait_until(|| is_following(&replica));
            set(&master, "a", "1");
            wait_until_equal(&copy, &source);
            let leave = || match is_promoted {
                true => promote(&replica),
                false => replica.connect().exchange(set_master("", 0, 0, 0), b"\0"),
            };
            leave();
            replica.connect().exchange(follow(), b"\0");
            assert_eq!(inexact(&replica), None, "nothing was changed here");
            leave();
            set(&replica, "only", "here");
            replica.connect().exchange(follow(), b"\0");
            let reason = inexact(&replica).expect("a reason");
            assert!(reason.contains("here"), "{reason}");
            assert!(copy.get(b"only").unwrap().is_some());
        }
        // That survives a restart, as long as the records are not replaced.
        {
            let replica = start_with(config.clone(), copy.clone());
            assert!(inexact(&replica).is_some());
            assert!(copy.get(b"only").unwrap().is_some());
        }
        config.following.seeding = Seeding::Always;
        let replica = start_with(config, copy.clone());
        wait_until_equal(&copy, &source);
        assert_eq!(inexact(&replica), None, "{is_logged} {is_promoted}");
    }
}

#[test]
fn a_server_without_a_master_notes_that_clients_change_the_records_of_its_position() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, source) = start_master(one.path());
    let copy = hash(other.path());
    let config = read_only(other.path(), master.address);
    let mut alone = config.clone();
    alone.following.master = None;
    for (server_id, text) in [(2, "a"), (0, "b")] {
        set(&master, text, "1");
        let mut always = config.clone();
        always.following.seeding = Seeding::Always;
        {
            let replica = start_with(always, copy.clone());
            wait_until_equal(&copy, &source);
            assert_eq!(inexact(&replica), None);
        }
        alone.server_id = server_id;
        alone.update_log = config.update_log.clone().filter(|_| server_id > 0);
        set(&start_with(alone.clone(), copy.clone()), "only", "here");
        assert!(inexact(&start_with(config.clone(), copy.clone())).is_some());
    }
}

/// The first changes come at once, and one of them makes the note for all.
#[test]
fn many_first_changes_after_a_start_succeed() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..5 {
        fs::write(folder.path().join("rts"), "7\n").unwrap();
        let _ = fs::remove_file(folder.path().join("rts.inexact"));
        let server = start_with(logging(2, folder.path()), hash(folder.path()));
        std::thread::scope(|scope| {
            for number in 0..30 {
                let server = &server;
                scope.spawn(move || set(server, &format!("{round}-{number}"), "v"));
            }
        });
        assert!(fs::read(folder.path().join("rts.inexact")).is_ok());
    }
}

#[test]
fn a_position_file_that_cannot_be_read_keeps_no_client_from_writing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rts"), b"\xff\xfe").unwrap();
    let server = start_with(logging(2, folder.path()), hash(folder.path()));
    set(&server, "a", "v");
}

#[test]
fn a_master_that_is_followed_and_follows_again_is_not_copied_if_all_is_known() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [one, two] = folders.each_ref().map(|folder| folder.path());
    let databases = [one, two].map(hash);
    let config = |id: u32, folder: &Path, master: SocketAddr| {
        let mut config = following(id, folder, master);
        config.following.is_writable = false;
        config.following.seeding = Seeding::Always;
        config
    };
    let take_over = |next: &Running, last: &Running| {
        promote(next);
        last.connect().exchange(set_master("127.0.0.1", next.address.port(), 0, 0), b"\0");
        wait_until(|| is_following(last));
    };
    let mut alone = config(1, one, SocketAddr::from(([127, 0, 0, 1], 1)));
    alone.following.master = None;
    let first = start_with(alone, databases[0].clone());
    let second = start_with(config(2, two, first.address), databases[1].clone());
    wait_until(|| is_following(&second));
    // The first server becomes a copy: what it has of its own has no position.
    take_over(&second, &first);
    for (round, (master, replica)) in
        [(&second, &first), (&first, &second), (&second, &first)].into_iter().enumerate()
    {
        for number in 0..20 {
            set(master, &format!("{round}-{number}"), "value");
        }
        wait_until_equal(&databases[0], &databases[1]);
        wait_until(|| is_following(replica) && knows(if round == 1 { two } else { one }));
        // A server that becomes a copy starts another log.
        let logs = || [one, two].map(|folder| fs::read(folder.join("ulog/identity")).unwrap());
        let before = logs();
        take_over(replica, master);
        assert_eq!(inexact(master), None, "{round}");
        assert!(logs() == before, "{round}");
        assert_eq!(records(&databases[0]), records(&databases[1]));
    }
}

/// Time stamps of two logs cannot be compared: in the log of the new master, the operations of the
/// old one have later time stamps.
#[test]
fn a_replica_of_the_old_master_that_copies_the_new_one_executes_nothing_twice() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let (master, source) = start_master(folders[0].path());
    let next = hash(folders[1].path());
    let replica = start_with(read_only(folders[1].path(), master.address), next.clone());
    let last = hash(folders[2].path());
    let mut config = following(3, folders[2].path(), master.address);
    config.following.is_writable = false;
    config.following.seeding = Seeding::Always;
    let other = start_with(config, last.clone());
    wait_until(|| is_following(&replica) && is_following(&other));
    set(&master, "list", "0");
    for _ in 0..20 {
        master.connect().exchange("append list 0 0 1\r\n+\r\n", "STORED\r\n");
        wait_until_equal(&next, &source);
        wait_until_equal(&last, &source);
    }
    drop(master);
    let mut client = replica.connect();
    client.send(&misc("promote", &[]));
    assert_eq!(client.read(1), b"\0");
    replica.connect().exchange("append list 0 0 1\r\n-\r\n", "STORED\r\n");
    other.connect().exchange(set_master("127.0.0.1", replica.address.port(), 0, 0), b"\0");
    wait_until(|| is_following(&other) && last.get(b"list").unwrap().unwrap().ends_with(b"-"));
    replica.connect().exchange("append list 0 0 1\r\n!\r\n", "STORED\r\n");
    wait_until_equal(&last, &next);
    let expected = format!("0{}-!", "+".repeat(20));
    assert_eq!(last.get(b"list").unwrap().as_deref(), Some(expected.as_bytes()));
}

#[test]
fn a_promotion_that_cannot_be_stored_fails() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (master, source) = start_master(one.path());
    let copy = hash(other.path());
    let replica = start_with(read_only(other.path(), master.address), copy.clone());
    wait_until(|| is_following(&replica));
    // A folder takes the name of the file.
    let new = other.path().join("rts.promoted.new");
    fs::create_dir(&new).unwrap();
    let mut client = replica.connect();
    client.exchange(misc("promote", &[]), MISC_FAILURE);
    client.send(&misc("error", &[]));
    let reason = b"2: invalid operation: the promotion cannot be stored: ";
    client.read(9);
    assert_eq!(client.read(reason.len()), reason);
    // The server is still a replica.
    set(&master, "a", "1");
    wait_until_equal(&copy, &source);
    let mut client = replica.connect();
    client.send(b"set b 0 0 1\r\n2\r\n");
    assert!(client.read_until(b"\r\n").starts_with(b"SERVER_ERROR "));
    fs::remove_dir(&new).unwrap();
    client.send(&misc("promote", &[]));
    assert_eq!(client.read(1), b"\0");
}
