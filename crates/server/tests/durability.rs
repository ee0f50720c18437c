//! With `durability=always` a write is acknowledged once it is on the disk, not before. No other
//! request waits for it.

mod support;

use cabinet::{Durability, LogPosition, Options, Persistence};
use std::sync::Arc;
use support::{ManualEngine, Running, start_engine};

const SET: &[u8] = b"set k 0 0 1\r\nv\r\n";
const STORED: &[u8] = b"STORED\r\n";

fn start() -> (Arc<ManualEngine>, Running) {
    let engine = ManualEngine::new("casket.tch", Durability::Always);
    let server = start_engine(&engine);
    (engine, server)
}

#[test]
fn a_write_is_acknowledged_when_it_is_durable() {
    let (engine, server) = start();
    let mut client = server.connect();
    client.send(SET);
    client.expect_silence(&server);
    engine.make_durable();
    client.expect(STORED);
    client.expect_open();
}

#[test]
fn every_protocol_waits_for_the_disk() {
    let (engine, server) = start();
    let binary = (&b"\xc8\x10\0\0\0\x01\0\0\0\x01kv"[..], &b"\0"[..]);
    let http_reply =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nOK\n";
    let http = (&b"DELETE /k HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], &http_reply[..]);
    for (request, reply) in [binary, http] {
        let mut client = server.connect();
        client.send(request);
        client.expect_silence(&server);
        engine.make_durable();
        client.expect(reply);
    }
}

#[test]
fn reads_do_not_wait_for_the_writes_of_others() {
    let (engine, server) = start();
    let mut writer = server.connect();
    writer.send(SET);
    writer.expect_silence(&server);
    server.connect().exchange(b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    engine.make_durable();
    writer.expect(STORED);
}

#[test]
fn a_sync_releases_the_writes_that_it_covered_and_no_others() {
    let (engine, server) = start();
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(SET);
        client.expect_silence(&server);
    }
    let synced: LogPosition = 2;
    engine.make_durable_up_to(synced);
    let [first, second, third] = &mut clients[..] else { unreachable!() };
    first.expect(STORED);
    second.expect(STORED);
    third.expect_silence(&server);
    engine.make_durable();
    third.expect(STORED);
}

#[test]
fn replies_after_a_write_that_waits_keep_their_order() {
    let (engine, server) = start();
    let mut client = server.connect();
    client.send(&[SET, b"get k\r\n"].concat());
    client.expect_silence(&server);
    // More of the request arrives while the write waits.
    client.send(b"get k\r\nget k\r\n");
    client.expect_silence(&server);
    engine.make_durable();
    let value = "VALUE k 0 1\r\nv\r\nEND\r\n".repeat(3);
    client.expect([STORED, value.as_bytes()].concat());
}

#[test]
fn a_write_that_is_durable_at_once_is_acknowledged_at_once() {
    let (engine, server) = start();
    engine.make_durable_up_to(1_000);
    server.connect().exchange(SET, STORED);
}

#[test]
fn a_write_that_can_no_longer_become_durable_is_never_acknowledged() {
    let (engine, server) = start();
    let mut lucky = server.connect();
    lucky.send(SET);
    lucky.expect_silence(&server);
    let mut unlucky = server.connect();
    unlucky.send(SET);
    unlucky.expect_silence(&server);
    engine.make_durable_up_to(1);
    engine.fail();
    lucky.expect(STORED);
    unlucky.expect_close();
    let mut client = server.connect();
    client.exchange(b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    let refusal = "SERVER_ERROR writing stopped after an earlier failure (the disk is gone): remove \
        its cause, then close the database and open it again\r\n";
    client.exchange(SET, refusal);
}

#[test]
fn a_write_executed_by_the_pool_waits_for_the_disk_too() {
    let (engine, server) = start();
    engine.cool(b"k");
    engine.set_stalled(true);
    let mut client = server.connect();
    client.send(b"add k 0 0 1\r\n5\r\nget k\r\n");
    support::wait_until(|| engine.waiting() == 1);
    engine.set_stalled(false);
    support::wait_until(|| engine.appended() == 1);
    client.expect_silence(&server);
    engine.make_durable();
    client.expect(b"STORED\r\nVALUE k 0 1\r\n5\r\nEND\r\n");
}

#[test]
fn a_client_that_leaves_while_its_write_waits_does_no_harm() {
    let (engine, server) = start();
    let mut client = server.connect();
    client.send(SET);
    client.expect_silence(&server);
    drop(client);
    engine.make_durable();
    server.connect().expect_open();
}

#[test]
fn many_clients_are_acknowledged_by_the_log_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.durability = Durability::Always;
    let database = options.open(folder.path().join("casket.tch")).unwrap();
    let server = support::start(database.clone());
    std::thread::scope(|scope| {
        for client in 0..8 {
            let server = &server;
            scope.spawn(move || {
                let mut connection = server.connect();
                for number in 0..50 {
                    connection.exchange(format!("set {client}-{number} 0 0 1\r\nv\r\n"), STORED);
                }
            });
        }
    });
    assert_eq!(database.len(), 400);
    assert_eq!(database.durable(), database.appended());
}
