//! Worker pool: a request that waits for the disk delays its own connection only.

mod support;

use cabinet::{Database, Durability};
use server::Config;
use std::sync::Arc;
use support::{ManualEngine, Running, config, start_engine, start_with};

const COLD: &[u8] = b"VALUE cold 0 1\r\nc\r\nEND\r\n";
const WARM: &[u8] = b"VALUE warm 0 1\r\nw\r\nEND\r\n";

/// Starts a server with a record in memory, and one on a disk that does not answer yet.
fn start(make: impl FnOnce(&Arc<ManualEngine>) -> Running) -> (Arc<ManualEngine>, Running) {
    let engine = ManualEngine::new("casket.tch", Durability::None);
    let server = make(&engine);
    let mut client = server.connect();
    client.exchange(b"set cold 0 0 1\r\nc\r\n", b"STORED\r\n");
    client.exchange(b"set warm 0 0 1\r\nw\r\n", b"STORED\r\n");
    engine.cool(b"cold");
    engine.set_stalled(true);
    (engine, server)
}

#[test]
fn a_slow_disk_delays_only_the_clients_that_read_from_it() {
    let (engine, server) = start(start_engine);
    let mut slow = server.connect();
    slow.send(b"get cold\r\n");
    support::wait_until(|| engine.waiting() == 1);
    server.connect().exchange(b"get warm\r\n", WARM);
    slow.expect_silence(&server);
    assert_eq!(server.stat_value("buffer_bytes"), b"get cold\r\n".len() as u64);
    engine.set_stalled(false);
    slow.expect(COLD);
    assert_eq!(server.stat_value("buffer_bytes"), 0);
}

#[test]
fn replies_through_the_pool_keep_their_order_in_all_protocols() {
    let (engine, server) = start(start_engine);
    let mut client = server.connect();
    client.send(b"get warm\r\nget cold\r\nget warm\r\n");
    client.send(b"\xc8\x30\0\0\0\x04cold\xc8\x30\0\0\0\x04warm");
    client.send(b"GET /cold HTTP/1.1\r\nHost: localhost\r\n\r\nget warm cold\r\n");
    client.expect(WARM);
    client.expect_silence(&server);
    engine.set_stalled(false);
    client.expect(COLD);
    client.expect(WARM);
    client.expect(b"\0\0\0\0\x01c\0\0\0\0\x01w");
    client.expect_response("200 OK", "c");
    client.expect(b"VALUE warm 0 1\r\nw\r\nVALUE cold 0 1\r\nc\r\nEND\r\n");
}

#[test]
fn a_write_that_waited_is_executed_once() {
    let (engine, server) = start(start_engine);
    let mut client = server.connect();
    client.send(b"append cold 0 0 1\r\nd\r\nget cold\r\n");
    support::wait_until(|| engine.waiting() == 1);
    engine.set_stalled(false);
    client.expect(b"STORED\r\nVALUE cold 0 2\r\ncd\r\nEND\r\n");
}

#[test]
fn a_full_queue_parks_connections_until_it_has_a_place() {
    for queue_max in [1, 2, 3] {
        let (engine, server) = start(|engine| {
            let config = Config { pool_threads: 1, pool_queue_max: queue_max, ..config() };
            start_with(config, Database::from_engine(Arc::<ManualEngine>::clone(engine)))
        });
        let mut first = server.connect();
        first.send(b"get cold\r\n");
        support::wait_until(|| engine.waiting() == 1);
        // The thread executes one, the queue is full, and two find no place in it.
        let mut others: Vec<_> = (0..queue_max + 2).map(|_| server.connect()).collect();
        for client in &mut others {
            client.send(b"get cold\r\nget warm\r\n");
        }
        server.pass();
        assert_eq!(server.stat_value("requests_pooled"), 1 + queue_max as u64);
        server.connect().exchange(b"get warm\r\n", WARM);
        engine.set_stalled(false);
        first.expect(COLD);
        for client in &mut others {
            client.expect([COLD, WARM].concat());
        }
        assert_eq!(server.stat_value("requests_pooled"), 3 + queue_max as u64);
    }
}

#[test]
fn a_client_that_leaves_while_the_pool_works_for_it_does_no_harm() {
    let (engine, server) = start(start_engine);
    let mut client = server.connect();
    client.send(b"get cold\r\nget cold\r\n");
    support::wait_until(|| engine.waiting() == 1);
    drop(client);
    server.pass();
    engine.set_stalled(false);
    server.await_stat_value("curr_connections", |connections| connections == 1);
}

#[test]
fn a_request_on_very_many_keys_goes_to_the_pool() {
    let (engine, server) = start(start_engine);
    engine.set_stalled(false);
    let mut client = server.connect();
    for keys in [1023, 1024, 1025] {
        let before = server.stat_value("requests_pooled");
        client.send(format!("get{}\r\n", " warm".repeat(keys)).as_bytes());
        let value = &WARM[..WARM.len() - 5];
        client.expect([&value.repeat(keys)[..], b"END\r\n"].concat());
        let pooled = server.stat_value("requests_pooled") - before;
        assert_eq!(pooled, u64::from(keys > 1024), "{keys} keys");
    }
}

#[test]
fn a_request_with_a_long_reply_moves_to_the_pool_between_two_values() {
    const LIMIT: usize = 1 << 20;
    const AROUND: usize = b"VALUE k 0 1234567\r\n\r\n".len();
    for (bytes, pooled) in [(LIMIT - 1, 0), (LIMIT, 0), (LIMIT + 1, 1)] {
        let database = support::memory();
        let size = bytes - AROUND;
        database.put(b"k", &vec![b'v'; size]).expect("stored");
        let server = support::start(database);
        let mut client = server.connect();
        client.send(b"get k\r\nget k k\r\n");
        let received = client.read(3 * bytes + 2 * b"END\r\n".len());
        assert!(received.starts_with(format!("VALUE k 0 {size}\r\n").as_bytes()));
        assert!(received.ends_with(b"v\r\nEND\r\n"));
        assert_eq!(server.stat_value("requests_pooled"), pooled, "{bytes} bytes");
        assert_eq!(server.stat_value("buffer_bytes"), 0);
    }
}

#[test]
fn the_pool_lists_the_sockets_of_the_system() {
    let server = support::start(support::memory());
    let mut client = server.connect();
    client.send(b"stats conns\r\n");
    client.read_until(b"END\r\n");
    let packet = support::Packet { opcode: 0x10, key: b"conns", ..Default::default() };
    client.send(&packet.bytes());
    while !client.response().key.is_empty() {}
    assert_eq!(server.stat_value("requests_pooled"), 2);
}

#[test]
fn a_request_that_waits_counts_once() {
    let (engine, server) = start(start_engine);
    let add_double = [&b"\xc8\x61\0\0\0\x04"[..], &[0; 16], b"cold"].concat();
    let mut clients = Vec::new();
    for request in
        [&b"mg cold T100\r\n"[..], b"mg cold v\r\n", b"stats cachedump 1 1\r\n", &add_double]
    {
        let mut client = server.connect();
        client.send(request);
        clients.push(client);
    }
    support::wait_until(|| engine.waiting() > 0);
    server.pass();
    engine.set_stalled(false);
    for mut client in clients {
        client.read(1);
    }
    for (name, count) in [("cmd_meta", 2), ("cmd_get", 2), ("cmd_touch", 1)] {
        assert_eq!(server.stat_value(name), count, "{name}");
    }
    assert_eq!(support::stat(&server, "cnt_adddouble").as_deref(), Some("1"));
}

#[test]
fn a_get_and_touch_in_the_past_returns_the_value_with_any_number_of_keys() {
    let server = support::start(support::memory());
    let mut client = server.connect();
    for others in [0, 1, 1023, 1024, 1025] {
        client.exchange(b"set warm 0 0 1\r\nw\r\n", b"STORED\r\n");
        client.exchange(format!("gat -1 warm{}\r\n", " none".repeat(others)), WARM);
        client.exchange(b"get warm\r\n", b"END\r\n");
    }
}

#[test]
fn stopping_waits_for_requests_in_execution() {
    let (engine, mut server) = start(start_engine);
    let mut client = server.connect();
    let mut idle = server.connect();
    idle.expect_open();
    client.send(b"get cold\r\n");
    support::wait_until(|| engine.waiting() == 1);
    server.begin_stop();
    idle.expect_close();
    engine.set_stalled(false);
    client.expect(COLD);
    client.expect_close();
    server.join();
}
