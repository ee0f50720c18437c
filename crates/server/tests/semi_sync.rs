//! Semi-synchronous replication: clients wait until replicas have their changes on disk.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use client::{Acknowledger, Address, ReplicaLink, Settings, SubscribeRequest};
use server::{Config, OnTimeout, Seeding, SemiSyncSettings};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{
    Client, Running, WAIT_MAX, following, hash, is_following, logging, memory, request, set,
    set_master, start_with, stat, wait_until, wait_until_equal,
};
use wire::binary::Request;
use wire::replication::{Acknowledgement, FromMaster};
use wire::update_log::Message;

const SET: &[u8] = b"set k 0 0 1\r\nv\r\n";
const UNCONFIRMED: &[u8] = b"SERVER_ERROR not confirmed by replicas\r\n";
const UNCONFIRMED_BY_HTTP: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 26\r\n\
      Connection: close\r\n\r\nnot confirmed by replicas\n";

/// Returns the settings of a master whose clients wait for `replicas` replicas, at most for
/// `timeout`.
fn waiting(folder: &Path, replicas: usize, timeout: Duration, on_timeout: OnTimeout) -> Config {
    let semi_sync = Some(SemiSyncSettings { replicas, timeout, on_timeout });
    Config { semi_sync, ..logging(1, folder) }
}

fn start_waiting(
    folder: &Path,
    replicas: usize,
    timeout: Duration,
    on_timeout: OnTimeout,
) -> Running {
    start_with(waiting(folder, replicas, timeout, on_timeout), hash(folder))
}

const SOON: Duration = Duration::from_secs(1);

/// Interval at which replicas acknowledge when nothing has changed.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// A replica that is simulated over a socket. As any, it repeats what it acknowledged last.
struct Replica {
    link: ReplicaLink,
    acknowledged: Arc<Mutex<(Acknowledger, Acknowledgement)>>,
    /// The thread that repeats it ends with this.
    _is_connected: Sender<()>,
}

impl Replica {
    fn of(master: &Running, id: u32) -> Self {
        let address = Address::from(("127.0.0.1", master.address.port()));
        let request = SubscribeRequest { timestamp_us: 1, server_id: id, options: 0, port: 0 };
        let mut link = ReplicaLink::open(&address, &Settings::default()).unwrap();
        link.subscribe(request).unwrap();
        // No server listens before that.
        link.server_id().unwrap();
        let acknowledger = link.acknowledger().unwrap().unwrap();
        let acknowledged = Arc::new(Mutex::new((acknowledger, Acknowledgement::default())));
        let (is_connected, end) = channel();
        let repeated = Arc::clone(&acknowledged);
        std::thread::spawn(move || {
            while end.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                let (acknowledger, last) = &mut *repeated.lock().unwrap();
                // The master may have closed the connection.
                let _ = acknowledger.send(last);
            }
        });
        Self { link, acknowledged, _is_connected: is_connected }
    }

    /// Connects a replica that confirms no further change.
    fn idle(master: &Running) -> Self {
        let mut replica = Self::of(master, 2);
        replica.acknowledge(1);
        // If it connected late, the master gave it up and has it back.
        wait_until(|| {
            stat(master, "semi_sync_replicas").as_deref() == Some("1")
                && is_state(master, "waiting")
        });
        replica
    }

    /// Waits for the next operation and returns its time stamp.
    fn receive(&mut self) -> u64 {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < WAIT_MAX, "waited in vain");
            if let FromMaster::Log(Message::Update { timestamp_us, .. }) = self.link.next().unwrap()
            {
                return timestamp_us;
            }
        }
    }

    /// Confirms that everything up to `timestamp_us` is on disk.
    fn acknowledge(&mut self, durable_us: u64) {
        let executed_us = durable_us;
        self.send(Acknowledgement { executed_us, durable_us, ..Acknowledgement::default() });
    }

    fn send(&mut self, acknowledgement: Acknowledgement) {
        let (acknowledger, last) = &mut *self.acknowledged.lock().unwrap();
        *last = acknowledgement;
        acknowledger.send(last).unwrap();
    }
}

fn is_state(master: &Running, state: &str) -> bool {
    stat(master, "semi_sync_state").as_deref() == Some(state)
}

#[test]
fn a_change_is_acknowledged_once_enough_replicas_have_it_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let master = start_waiting(folder.path(), 2, WAIT_MAX, OnTimeout::Error);
    let mut client = master.connect();
    client.send(SET);
    let (mut one, mut other) = (Replica::of(&master, 2), Replica::of(&master, 3));
    let at_us = one.receive();
    assert_eq!(other.receive(), at_us);
    client.expect_silence(&master);
    one.acknowledge(at_us);
    other.acknowledge(at_us - 1);
    wait_until(|| stat(&master, "semi_sync_confirmed_us") == Some((at_us - 1).to_string()));
    client.expect_silence(&master);
    other.acknowledge(at_us);
    client.expect(b"STORED\r\n");
}

#[test]
fn a_change_that_a_replica_has_executed_but_not_synced_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let master = start_waiting(folder.path(), 1, WAIT_MAX, OnTimeout::Error);
    let mut client = master.connect();
    client.send(SET);
    let mut replica = Replica::of(&master, 2);
    let at_us = replica.receive();
    let executed = Acknowledgement { executed_us: at_us, executed: 1, ..Default::default() };
    replica.send(executed);
    wait_until(|| stat(&master, "replica_2").is_some_and(|line| line.contains("operations=0 ")));
    client.expect_silence(&master);
    replica.acknowledge(at_us);
    client.expect(b"STORED\r\n");
}

#[test]
fn a_replica_that_acknowledges_what_it_was_not_sent_confirms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let master = start_waiting(folder.path(), 1, WAIT_MAX, OnTimeout::Error);
    let mut client = master.connect();
    client.send(SET);
    for ahead_us in [u64::MAX, 1_000_000] {
        let mut replica = Replica::of(&master, 2);
        let at_us = replica.receive();
        replica.acknowledge(at_us.saturating_add(ahead_us));
        // The master closes the connection.
        while replica.link.next().is_ok() {}
        client.expect_silence(&master);
    }
    let mut replica = Replica::of(&master, 2);
    let at_us = replica.receive();
    replica.acknowledge(at_us);
    client.expect(b"STORED\r\n");
}

#[test]
fn a_replica_with_two_connections_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let master = start_waiting(folder.path(), 2, WAIT_MAX, OnTimeout::Error);
    let mut client = master.connect();
    client.send(SET);
    let (mut one, mut again) = (Replica::of(&master, 2), Replica::of(&master, 2));
    let at_us = one.receive();
    again.receive();
    one.acknowledge(at_us);
    again.acknowledge(at_us);
    wait_until(|| stat(&master, "semi_sync_replicas").as_deref() == Some("1"));
    client.expect_silence(&master);
    let mut other = Replica::of(&master, 3);
    other.receive();
    other.acknowledge(at_us);
    client.expect(b"STORED\r\n");
}

#[test]
fn changes_of_every_protocol_are_confirmed_by_a_replica() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = hash(one.path());
    let config = waiting(one.path(), 1, WAIT_MAX, OnTimeout::Error);
    let master = start_with(config, source.clone());
    let copy = hash(other.path());
    let replica = start_with(following(2, other.path(), master.address), copy.clone());
    wait_until(|| is_following(&replica));
    let mut client = master.connect();
    for number in 0..20 {
        let key = [b'a' + number];
        client.exchange(request(&Request::Put { key: &key, value: b"v" }), b"\0");
        // An acknowledged change is on the replica.
        assert_eq!(copy.get(&key).unwrap().as_deref(), Some(&b"v"[..]));
    }
    // A pipeline of all protocols, with requests for the pool.
    let put = |key: &[u8]| request(&Request::Put { key, value: b"w" });
    let batch = [&put(b"a"), SET, b"get k\r\n", &request(&Request::Sync), &put(b"b")].concat();
    client.exchange(batch, b"\0STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n\0\0");
    client.send(b"PUT /web HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx");
    assert!(client.read_until(b"\r\n").starts_with(b"HTTP/1.1 201"));
    wait_until_equal(&copy, &source);
}

/// Reason why changes are refused.
const NONE_THERE: &str = "no replica acknowledges changes: retry once one does";

#[test]
fn a_change_that_is_not_confirmed_in_time_is_an_error_and_later_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let master = start_waiting(folder.path(), 1, SOON, OnTimeout::Error);
    let mut replica = Replica::idle(&master);
    let mut client = master.connect();
    client.exchange(SET, UNCONFIRMED);
    wait_until(|| is_state(&master, "refusing"));
    let mut second = master.connect();
    second.send(b"set new 0 0 1\r\nv\r\n");
    assert!(second.read_until(b"\r\n").starts_with(b"SERVER_ERROR"));
    for line in ["PUT /new", "DELETE /k"] {
        let head = "Host: localhost\r\nContent-Type: text/x-mine\r\nContent-Length: 0\r\n";
        let mut by_http = master.connect();
        by_http.send(format!("{line} HTTP/1.1\r\n{head}Connection: close\r\n\r\n").as_bytes());
        let answer = String::from_utf8(by_http.read_to_end()).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
        assert!(answer.ends_with(&format!("\n{NONE_THERE}\n")), "{answer}");
    }
    let mut binary = master.connect();
    binary.exchange(request(&Request::Put { key: b"new", value: b"v" }), b"\x01");
    let reason = format!("9999: miscellaneous error: {NONE_THERE}");
    binary.exchange(support::misc("error", &[]), support::list(&[&reason]));
    // The second change was not made, the first was.
    second.exchange(b"get new k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    let at_us = replica.receive();
    replica.acknowledge(at_us);
    loop {
        wait_until(|| is_state(&master, "waiting"));
        let mut third = master.connect();
        third.send(b"set new 0 0 1\r\nv\r\n");
        let at_us = replica.receive();
        replica.acknowledge(at_us);
        let answer = third.read_until(b"\r\n");
        if answer == b"STORED\r\n" {
            break;
        }
        // The acknowledgement is too late.
        assert_eq!(answer, UNCONFIRMED);
    }
}

/// Sends a batch that is not confirmed, and asserts these replies and the end of the connection.
fn assert_unconfirmed(batch: &[u8], expected: &[u8]) {
    assert_unconfirmed_by(memory(), batch, expected);
}

fn assert_unconfirmed_by(database: Database, batch: &[u8], expected: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    database.put(b"old", b"o").unwrap();
    let config = waiting(folder.path(), 1, SOON, OnTimeout::Error);
    let master = start_with(config, database);
    let _replica = Replica::idle(&master);
    let mut client = master.connect();
    client.send(batch);
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let received = client.read_to_end();
    assert_eq!(received.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

#[test]
fn an_unconfirmed_pipeline_is_answered_up_to_its_first_change() {
    let get = b"get old\r\n";
    let found = b"VALUE old 0 1\r\no\r\nEND\r\n";
    assert_unconfirmed(&[&get[..], SET, get, SET].concat(), &[&found[..], UNCONFIRMED].concat());
    let get = request(&Request::Get { key: b"old" });
    let put = request(&Request::Put { key: b"k", value: b"v" });
    assert_unconfirmed(&[&get[..], &put, &get].concat(), b"\0\0\0\0\x01o\x01");
    assert_unconfirmed(&support::misc("put", &["k", "v"]), b"\x01\0\0\0\0");
    assert_unconfirmed(
        b"PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nv",
        UNCONFIRMED_BY_HTTP,
    );
    // Requests that the pool executes.
    assert_unconfirmed(&request(&Request::Vanish), b"\x01");
}

#[test]
fn an_unconfirmed_upload_is_refused_in_the_form_of_http() {
    /// A body of this length is received into a file.
    const LONG: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let head = format!("PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LONG}\r\n\r\n");
    // Each piece begins as a request of the binary protocol does.
    let upload = [head.as_bytes(), &vec![0xc8; LONG]].concat();
    assert_unconfirmed_by(hash(folder.path()), &upload, UNCONFIRMED_BY_HTTP);
}

#[test]
fn a_master_continues_without_replicas_if_configured() {
    let folder = tempfile::tempdir().unwrap();
    let master = start_waiting(folder.path(), 1, SOON, OnTimeout::Fallback);
    let mut client = master.connect();
    client.exchange(SET, b"STORED\r\n");
    assert!(is_state(&master, "asynchronous"));
    client.exchange(SET, b"STORED\r\n");
    let mut replica = Replica::of(&master, 2);
    replica.receive();
    let at_us = replica.receive();
    replica.acknowledge(at_us);
    wait_until(|| is_state(&master, "waiting"));
    client.send(SET);
    let at_us = replica.receive();
    replica.acknowledge(at_us);
    client.expect(b"STORED\r\n");
}

#[test]
fn missing_replicas_are_noticed_without_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let master = start_waiting(folder.path(), 1, SOON, OnTimeout::Error);
    wait_until(|| is_state(&master, "refusing"));
}

#[test]
fn a_replica_of_an_empty_log_counts() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let master = start_waiting(one.path(), 1, SOON, OnTimeout::Error);
    wait_until(|| is_state(&master, "refusing"));
    let mut config = following(2, other.path(), master.address);
    // A replica that makes an initial sync has a position once the copy is complete.
    config.following.seeding = Seeding::Never;
    let _replica = start_with(config, hash(other.path()));
    wait_until(|| is_state(&master, "waiting"));
}

#[test]
fn a_replica_with_a_change_of_its_own_counts_before_the_next_change() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = hash(one.path());
    let config = waiting(one.path(), 1, SOON, OnTimeout::Error);
    let master = start_with(config, source.clone());
    let mut config = following(2, other.path(), master.address);
    config.following.is_writable = false;
    let copy = hash(other.path());
    let replica = start_with(config, copy.clone());
    wait_until(|| is_following(&replica) && is_state(&master, "waiting"));
    set(&master, "a", "1");
    replica.connect().exchange(set_master("", 0, 0, 0), b"\0");
    set(&replica, "own", "2");
    wait_until(|| is_state(&master, "refusing"));
    let end_us = stat(&master, "semi_sync_confirmed_us").unwrap();
    // The master lacks the change, so the replica continues at its position.
    replica.connect().exchange(set_master("127.0.0.1", master.address.port(), 0, 0), b"\0");
    wait_until(|| is_state(&master, "waiting"));
    let line = stat(&master, "replica_2").unwrap();
    assert!(line.ends_with(&format!("executed_us={end_us} durable_us={end_us}")), "{line}");
    set(&master, "b", "3");
    assert_eq!(copy.get(b"b").unwrap().as_deref(), Some(&b"3"[..]));
}

#[test]
fn reads_do_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let master = start_waiting(folder.path(), 1, WAIT_MAX, OnTimeout::Error);
    let mut client: Client = master.connect();
    client.exchange(b"get k\r\n", b"END\r\n");
}

#[test]
fn waiting_requires_an_update_log_and_a_replica() {
    let folder = tempfile::tempdir().unwrap();
    let none = waiting(folder.path(), 0, SOON, OnTimeout::Error);
    let without = Config { update_log: None, ..waiting(folder.path(), 1, SOON, OnTimeout::Error) };
    for config in [none, without] {
        let error = server::Server::bind(config, memory()).err().unwrap();
        assert!(matches!(error, server::Error::SemiSync), "{error}");
    }
}
