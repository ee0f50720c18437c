//! Hostile clients: slow, greedy or malformed requests are refused with a reason, and cost a
//! bounded amount of memory.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Durability;
use server::Config;
use std::time::Duration;
use support::{Client, ManualEngine, Packet, config, memory, start, start_engine, start_with};

/// Returns one request of each kind in all protocols, and their replies.
fn mixed() -> (Vec<u8>, Vec<u8>) {
    let pairs: &[(&[u8], &[u8])] = &[
        (b"set a 5 0 3\r\nabc\r\n", b"STORED\r\n"),
        (b"\xc8\x10\0\0\0\x01\0\0\0\x02bxy", b"\0"),
        (b"get a b\r\n", b"VALUE a 5 3\r\nabc\r\nVALUE b 0 2\r\nxy\r\nEND\r\n"),
        (
            b"PUT /c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nzz",
            b"HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\n\
              Created\n",
        ),
        (b"\xc8\x31\0\0\0\x02\0\0\0\x01c\0\0\0\x01n", b"\0\0\0\0\x01\0\0\0\x01\0\0\0\x02czz"),
        (b"foo bar\r\n", b"ERROR\r\n"),
        (
            b"PUT /d HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nq\r\n2\r\nrs\r\n0\r\n\r\n",
            b"HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\n\
              Created\n",
        ),
        (b"\xc8\x90\0\0\0\x03\0\0\0\0\0\0\0\x01get\0\0\0\x01d", b"\0\0\0\0\x01\0\0\0\x03qrs"),
        (b"incr n 1\r\n", b"NOT_FOUND\r\n"),
        (
            b"\x80\x01\0\x01\x08\0\0\0\0\0\0\x0bopaq\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\0equ",
            b"\x81\x01\0\0\0\0\0\x01\0\0\0\x09opaq\0\0\0\0\0\0\0\0Not found",
        ),
        (
            b"\x80\x0d\0\x01\0\0\0\0\0\0\0\x01opaq\0\0\0\0\0\0\0\0e\x80\x0a\0\0\0\0\0\0\0\0\0\0noop\0\0\0\0\0\0\0\0",
            b"\x81\x0a\0\0\0\0\0\0\0\0\0\0noop\0\0\0\0\0\0\0\0",
        ),
    ];
    let requests: Vec<_> = pairs.iter().map(|pair| pair.0).collect();
    let replies: Vec<_> = pairs.iter().map(|pair| pair.1).collect();
    (requests.concat(), replies.concat())
}

#[test]
fn requests_may_be_split_at_any_byte() {
    let server = start(memory());
    let (requests, replies) = mixed();
    for cut in 1..requests.len() {
        let mut client = server.connect();
        client.send(&requests[..cut]);
        server.pass();
        client.send(&requests[cut..]);
        client.expect(&replies);
        client.expect_silence(&server);
    }
}

#[test]
fn requests_may_arrive_byte_by_byte() {
    let server = start(memory());
    let (requests, replies) = mixed();
    let mut client = server.connect();
    for byte in &requests {
        client.send(&[*byte]);
        server.pass();
    }
    client.expect(&replies);
}

#[test]
fn an_incomplete_request_is_dropped_with_its_connection() {
    let server = start(memory());
    let (requests, _) = mixed();
    for cut in 1..requests.len() {
        server.connect().send(&requests[..cut]);
    }
    server.await_stat_value("curr_connections", |connections| connections == 1);
    assert_eq!(server.stat_value("buffer_bytes"), 0);
}

#[test]
fn an_endless_line_is_refused() {
    let server = start(memory());
    let mut client = server.connect();
    let max = wire::limits::LINE_BYTES_MAX;
    client.send(&b"get ".repeat(max / 4)[..max - 1]);
    client.expect_silence(&server);
    client.send(b"x");
    client.expect(b"CLIENT_ERROR line too long\r\n");
    client.expect_close();
}

#[test]
fn a_length_out_of_range_closes_a_binary_connection() {
    let server = start(memory());
    for request in [
        &b"\xc8\x30\xff\xff\xff\xff"[..],
        b"\xc8\x30\x10\0\0\x01",
        b"\xc8\x10\0\0\0\x01\x80\0\0\0",
        b"\xc8\x31\0\x10\0\x01",
        b"\xc8\x90\0\0\x04\0\0\0\0\0\0\0\0\0",
    ] {
        let mut client = server.connect();
        client.send(request);
        client.expect_close();
    }
}

#[test]
fn negative_and_huge_lengths_are_refused() {
    let server = start(memory());
    let bad_line = "CLIENT_ERROR bad command line format\r\n";
    let huge = "99999999999999999999";
    for (length, refusal) in [
        ("-1", bad_line),
        ("-2147483648", bad_line),
        ("2147483646", bad_line),
        (huge, bad_line),
        ("2147483645", "SERVER_ERROR object too large for cache\r\n"),
    ] {
        for verb in ["set k 0 0", "append k 0 0", "ms k"] {
            let mut client = server.connect();
            client.exchange(format!("{verb} {length}\r\n"), refusal);
        }
    }
    for headers in [
        "Content-Length: -1".to_owned(),
        format!("Content-Length: {huge}"),
        "Content-Length: 4294967296".to_owned(),
        "Transfer-Encoding: chunked\r\n\r\n-1".to_owned(),
        "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff".to_owned(),
    ] {
        let mut client = server.connect();
        client.send(format!("PUT /k HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n").as_bytes());
        let reply = String::from_utf8(client.read(10)).unwrap();
        assert_eq!(reply, "HTTP/1.1 4", "{headers}");
    }
    for (key, body, status) in [(1u16, u32::MAX, 3), (1, 0x8000_0000, 3), (u16::MAX, 0, 0x81)] {
        let mut client = server.connect();
        let mut packet = Packet { opcode: 1, extras: &[0; 8], ..Packet::default() }.bytes();
        packet[2..4].copy_from_slice(&key.to_be_bytes());
        packet[8..12].copy_from_slice(&body.to_be_bytes());
        client.send(&packet);
        assert_eq!(client.response().status, status);
    }
}

#[test]
fn an_announced_length_allocates_nothing() {
    let server = start(memory());
    let mut clients = Vec::new();
    for announcement in [
        &b"\xc8\x10\0\0\0\x01\x0f\0\0\0k"[..],
        b"set k 0 0 250000000\r\nx",
        b"PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 250000000\r\n\r\nx",
        b"PUT /k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nf000000\r\nx",
        b"\x80\x01\0\x01\x08\0\0\0\x0f\0\0\0opaq\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0kv",
    ] {
        let mut client = server.connect();
        client.send(announcement);
        client.expect_silence(&server);
        clients.push(client);
    }
    assert!(server.stat_value("buffer_bytes") < 1000);
}

/// Returns requests of exactly `bytes` bytes, and the replies that refuse them.
fn requests_of(bytes: usize) -> [(Vec<u8>, &'static [u8]); 4] {
    let set = |value: usize| format!("set k 0 0 {value}\r\n{}\r\n", "v".repeat(value));
    let put = |value: usize| {
        format!(
            "PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: {value}\r\n\r\n{}",
            "v".repeat(value)
        )
    };
    let fit = |make: &dyn Fn(usize) -> String| {
        (0..bytes).map(make).find(|request| request.len() == bytes).unwrap().into_bytes()
    };
    let value = bytes - 11;
    let mut binary = b"\xc8\x10\0\0\0\x01".to_vec();
    binary.extend_from_slice(&u32::try_from(value).unwrap().to_be_bytes());
    binary.push(b'k');
    binary.resize(bytes, b'v');
    let value = vec![b'v'; bytes - 33];
    let packet =
        Packet { opcode: 1, extras: &[0; 8], key: b"k", value: &value, ..Packet::default() };
    [
        (fit(&set), b"SERVER_ERROR object too large for cache\r\n"),
        (
            fit(&put),
            b"HTTP/1.1 413 Payload Too Large\r\nContent-Type: text/plain\r\n\
              Content-Length: 18\r\n\r\nPayload Too Large\n",
        ),
        (binary, b"\x01"),
        (packet.bytes(), b"\x81\x01\0\0\0\0\0\x03\0\0\0\x0a\x01opq\0\0\0\0\0\0\0\0Too large."),
    ]
}

#[test]
fn requests_over_the_limit_are_refused_however_they_arrive() {
    let server = start_with(Config { request_bytes_max: 1000, ..config() }, memory());
    for bytes in [999, 1000] {
        for (request, _) in requests_of(bytes) {
            let mut client = server.connect();
            client.send(&request);
            client.expect_open_after_reply();
        }
    }
    // A length announced in memcached's protocol does not tell whether the line ends in one byte or
    // two.
    for (bytes, sent) in [(1001, 1001), (1001, 1000), (1002, 600)] {
        for (request, refusal) in requests_of(bytes) {
            let mut client = server.connect();
            client.send(&request[..sent]);
            client.expect(refusal);
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            client.expect_close();
        }
    }
}

impl Client {
    /// Reads the reply to a store, in any protocol, and checks that the connection stays open.
    fn expect_open_after_reply(&mut self) {
        self.send(b"verbosity 1\r\n");
        let reply = self.read_until(b"OK\r\n");
        let reply = reply.escape_ascii().to_string();
        let is_stored = ["STORED", "Created"].iter().any(|word| reply.contains(word))
            || ["\\x00", "\\x81\\x01\\x00\\x00\\x00\\x00\\x00\\x00"]
                .iter()
                .any(|begin| reply.starts_with(begin));
        assert!(is_stored, "{reply}");
    }
}

#[test]
fn the_client_of_a_refused_upload_can_read_the_reason() {
    let server = start(memory());
    let mut client = server.connect();
    client.send(b"PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000000\r\n\r\n");
    // It continues to send, as clients do that read the reply last.
    client.send(&vec![b'x'; 4 << 20]);
    let reply = client.read_to_end();
    assert!(reply.starts_with(b"HTTP/1.1 413 "), "{}", reply.escape_ascii());
}

#[test]
fn replies_over_the_limit_fail() {
    let value = [b'v'; 100];
    let mget = |keys: u8| {
        [&[0xc8, 0x31, 0, 0, 0, keys][..], &b"\0\0\0\x01k".repeat(keys as usize)].concat()
    };
    // Status, count, and per record two sizes, a key and a value.
    let two_bytes = 5 + 2 * (8 + 1 + value.len());
    for (max, succeeds) in [(two_bytes - 1, false), (two_bytes, true), (two_bytes + 1, true)] {
        let server = start_with(Config { reply_bytes_max: max, ..config() }, memory());
        let mut client = server.connect();
        client.exchange([b"set k 0 0 100\r\n", &value[..], b"\r\n"].concat(), b"STORED\r\n");
        client.send(&mget(2));
        assert_eq!(client.read(1), [u8::from(!succeeds)], "limit {max}");
        if succeeds {
            client.read(two_bytes - 1);
        }
        client.expect_open();
    }
    let server = start_with(Config { reply_bytes_max: two_bytes, ..config() }, memory());
    let mut client = server.connect();
    client.exchange([b"set k 0 0 100\r\n", &value[..], b"\r\n"].concat(), b"STORED\r\n");
    client.exchange(b"get k k\r\n", b"SERVER_ERROR out of memory writing get response\r\n");
    client.exchange(b"\xc8\x90\0\0\0\x05\0\0\0\0\0\0\0\x01regex\0\0\0\x01k", {
        let mut reply = b"\0\0\0\0\x02\0\0\0\x01k\0\0\0\x64".to_vec();
        reply.extend_from_slice(&value);
        reply
    });
    client.expect_open();
}

#[test]
fn a_client_that_never_reads_is_no_longer_served() {
    const LIMIT: usize = 1 << 20;
    const VALUE: usize = 100_000;
    const REQUESTS: usize = 400;
    let server = start_with(Config { output_bytes_max: LIMIT, ..config() }, memory());
    let mut client = server.connect();
    let set = [format!("set k 0 0 {VALUE}\r\n").as_bytes(), &[b'v'; VALUE], b"\r\n"].concat();
    client.exchange(set, b"STORED\r\n");
    client.send(&b"get k\r\n".repeat(REQUESTS));
    server.pass();
    let buffered = server.stat_value("buffer_bytes");
    // Its requests wait too. One reply may exceed the limit, and the buffer that grew to hold it
    // may be twice as large.
    let most = 2 * (LIMIT + VALUE) + (64 << 10);
    assert!((LIMIT as u64..most as u64).contains(&buffered), "{buffered} bytes");
    // Other clients are served.
    server.connect().expect_open();
    // No reply is lost once it reads.
    let reply =
        [format!("VALUE k 0 {VALUE}\r\n").as_bytes(), &[b'v'; VALUE], b"\r\nEND\r\n"].concat();
    for _ in 0..REQUESTS {
        assert!(client.read(reply.len()) == reply);
    }
    client.expect_open();
    assert_eq!(server.stat_value("buffer_bytes"), 0);
}

#[test]
fn all_buffers_together_have_a_limit() {
    let server = start_with(Config { buffer_bytes_max: 100_000, ..config() }, memory());
    let mut first = server.connect();
    first.send(b"set k 0 0 1000000\r\n");
    first.send(&[b'x'; 30_000]);
    first.expect_silence(&server);
    let mut second = server.connect();
    second.send(b"set k 0 0 1000000\r\n");
    second.send(&[b'x'; 200_000]);
    let refusal = second.read_to_end();
    // A client that continues to send may lose the end of the reply.
    assert!(b"SERVER_ERROR out of memory\r\n".starts_with(&refusal), "{}", refusal.escape_ascii());
    server.connect().expect_open();
    drop(first);
    server.await_stat_value("buffer_bytes", |bytes| bytes == 0);
}

#[test]
fn connections_have_a_limit() {
    const REFUSAL: &[u8] = b"SERVER_ERROR too many connections\r\n";
    let server = start_with(Config { connections_max: 3, ..config() }, memory());
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.expect_open();
    }
    for _ in 0..2 {
        let mut refused = server.connect();
        refused.expect(REFUSAL);
        refused.expect_close();
    }
    clients.pop();
    support::wait_until(|| {
        let mut client = server.connect();
        client.send(b"verbosity 1\r\n");
        client.read(1) == b"O"
    });
    for client in &mut clients {
        client.expect_open();
    }
}

#[test]
fn idle_connections_own_no_buffers() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let server = start(memory());
    let (requests, replies) = mixed();
    let mut clients: Vec<_> = (0..1000).map(|_| server.connect()).collect();
    for _ in 0..2 {
        for client in &mut clients {
            client.send(&requests);
        }
        for client in &mut clients {
            client.expect(&replies);
        }
    }
    assert_eq!(server.stat_value("curr_connections"), 1001);
    assert_eq!(server.stat_value("buffer_bytes"), 0);
}

#[test]
fn an_incomplete_request_times_out_and_an_idle_connection_does_not() {
    let timeout = Some(Duration::from_secs(1));
    let server = start_with(Config { timeout, ..config() }, memory());
    let mut idle = server.connect();
    idle.expect_open();
    let mut stuck = server.connect();
    stuck.send(b"\xc8\x30\0\0");
    stuck.expect_close();
    idle.expect_open();
    assert_eq!(server.stat_value("connections_timed_out"), 1);
}

#[test]
fn a_client_that_never_reads_times_out() {
    let timeout = Some(Duration::from_secs(1));
    let server = start_with(Config { timeout, ..config() }, memory());
    let mut client = server.connect();
    client.send(b"set k 0 0 1000000\r\n");
    client.exchange([&[b'v'; 1_000_000][..], b"\r\n"].concat(), b"STORED\r\n");
    client.send(&b"get k\r\n".repeat(100));
    server.await_stat_value("connections_timed_out", |count| count == 1);
    assert_eq!(server.stat_value("buffer_bytes"), 0);
}

#[test]
fn an_idle_timeout_closes_idle_connections() {
    let idle_timeout = Some(Duration::from_secs(1));
    let server = start_with(Config { idle_timeout, ..config() }, memory());
    let mut client = server.connect();
    client.expect_open();
    client.expect_close();
}

#[test]
fn a_client_may_end_its_stream_before_it_reads() {
    let server = start(memory());
    let mut client = server.connect();
    let (requests, replies) = mixed();
    client.send(&requests);
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read_to_end().escape_ascii().to_string(), replies.escape_ascii().to_string());
}

#[test]
fn a_full_disk_is_reported_in_the_form_of_each_protocol() {
    let engine = ManualEngine::new("casket.tch", Durability::None);
    let server = start_engine(&engine);
    let mut client = server.connect();
    client.exchange(b"set k 0 0 1\r\nv\r\n", b"STORED\r\n");
    engine.set_full(true);
    let full = "SERVER_ERROR no space left for casket.tch: free space on its file system, or raise \
        its cap (capsiz) if it has one\r\n";
    client.exchange(b"set k 0 0 1\r\nw\r\n", full);
    client.exchange(b"set k 0 0 1 noreply\r\nw\r\nverbosity 1\r\n", b"OK\r\n");
    client.exchange(b"\xc8\x10\0\0\0\x01\0\0\0\x01kw", b"\x01");
    client.exchange(
        b"PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nw",
        b"HTTP/1.1 507 Insufficient Storage\r\nContent-Type: text/plain\r\nContent-Length: 128\r\n\r\n\
          no space left for the database: free space on the file system of the server, or raise the \
          database's cap (capsiz) if it has one\n",
    );
    client.exchange(b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    engine.set_full(false);
    client.exchange(b"set k 0 0 1\r\nw\r\n", b"STORED\r\n");
}
