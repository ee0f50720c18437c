//! Slow clients: a timeout covers a whole request in every form, and a fast enough transfer may
//! take longer.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use server::{BYTES_PER_SECOND_MIN, Config};
use std::io::{Read, Write};
use std::time::{Duration, Instant};
use support::{Client, Packet, Running, WAIT_MAX, config, hash, memory, start_with};

const TIMEOUT: Duration = Duration::from_secs(1);

/// Interval at which a slow client sends or takes a byte, many times within the timeout.
const DRIP: Duration = Duration::from_millis(50);

fn timed() -> Config {
    Config { timeout: Some(TIMEOUT), ..config() }
}

/// Sends `request` byte by byte, much slower than the timeout allows. Returns the time until the
/// server closed the connection.
fn drip(client: &mut Client, request: &[u8]) -> Duration {
    let began = Instant::now();
    for byte in request {
        if client.stream.write_all(&[*byte]).is_err() {
            return began.elapsed();
        }
        client.stream.set_read_timeout(Some(DRIP)).unwrap();
        match client.stream.read(&mut [0]) {
            Ok(0) => return began.elapsed(),
            Ok(_) => panic!("an answer to part of a request"),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return began.elapsed();
            }
            Err(_) => {}
        }
    }
    panic!("the server waited for all of {} bytes", request.len());
}

/// Sends all requests slowly at the same time, and asserts that each connection is closed.
fn all_end(server: &Running, requests: &[(&str, Vec<u8>)]) {
    std::thread::scope(|scope| {
        for (form, request) in requests {
            scope.spawn(move || {
                let took = drip(&mut server.connect(), request);
                assert!(took >= TIMEOUT, "{form}: {took:?}");
            });
        }
    });
    server.await_stat_value("connections_timed_out", |count| count == requests.len() as u64);
}

/// Length of a value that takes far longer than the timeout byte by byte, in bytes.
const VALUE: [u8; 2000] = [b'v'; 2000];

#[test]
fn a_slow_request_times_out_in_every_protocol() {
    let server = start_with(timed(), memory());
    let with_value = |head: &[u8]| [head, &VALUE, b"\r\n"].concat();
    let mut binary = vec![0xc8, 0x10];
    binary.extend(1u32.to_be_bytes());
    binary.extend((VALUE.len() as u32).to_be_bytes());
    binary.push(b'k');
    binary.extend(VALUE);
    let packet =
        Packet { opcode: 1, extras: &[0; 8], key: b"k", value: &VALUE, ..Packet::default() };
    let requests = [
        ("Tokyo Tyrant", binary),
        ("memcached text", with_value(b"set k 0 0 2000\r\n")),
        ("memcached text, a line", [b"get ", &VALUE[..200], b"\r\n"].concat()),
        ("memcached meta", with_value(b"ms k 2000\r\n")),
        ("memcached binary", packet.bytes()),
        (
            "HTTP, head",
            [b"GET /k HTTP/1.1\r\nHost: localhost\r\nX: ", &VALUE[..], b"\r\n\r\n"].concat(),
        ),
        (
            "HTTP, body",
            with_value(b"PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2002\r\n\r\n"),
        ),
    ];
    all_end(&server, &requests);
    assert_eq!(server.stat_value("curr_items"), 0);
}

#[test]
fn a_slow_upload_times_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_with(timed(), hash(folder.path()));
    let upload =
        [b"PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n", &VALUE[..]]
            .concat();
    all_end(&server, &[("an upload", upload)]);
    assert_eq!(server.stat_value("spool_bytes"), 0);
}

#[test]
fn each_request_of_a_connection_has_its_own_timeout() {
    let server = start_with(timed(), memory());
    repeat_if_late(|| {
        let mut client = server.connect();
        let mut ends_in_time = |request: &[u8], since: Instant| {
            let mut reply = [0; 8];
            let sent = client.stream.write_all(request);
            let is_stored = sent.and_then(|()| client.stream.read_exact(&mut reply)).is_ok();
            assert!(is_stored || since.elapsed() >= TIMEOUT, "closed after {:?}", since.elapsed());
            assert!(!is_stored || reply == *b"STORED\r\n", "{}", reply.escape_ascii());
            is_stored
        };
        let began = Instant::now();
        let mut since = began;
        let mut request = &b"set k 0 0 1\r\nv\r\nset k 0 0 1\r\nw"[..];
        while began.elapsed() < 2 * TIMEOUT {
            let next = Instant::now();
            if !ends_in_time(request, since) {
                return false;
            }
            std::thread::sleep(TIMEOUT / 4);
            // The next request begins in the packet that ends the last one.
            (since, request) = (next, b"\r\nset k 0 0 1\r\nw");
        }
        ends_in_time(b"\r\n", since)
    });
}

/// Repeats a test until it keeps to the server's time limits, which it may miss on a loaded
/// machine. It returns `false` if it has not.
fn repeat_if_late(test: impl Fn() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !test() {
        assert!(Instant::now() < deadline, "it never keeps to the time limits");
    }
}

#[test]
fn a_fast_enough_upload_may_outlast_the_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_with(timed(), hash(folder.path()));
    let piece = vec![b'v'; BYTES_PER_SECOND_MIN as usize / 4];
    std::thread::scope(|scope| {
        for (announced, pieces) in [("in memory", 12), ("an upload", 300)] {
            let (server, piece) = (&server, &piece);
            scope.spawn(move || {
                repeat_if_late(|| {
                    let mut client = server.connect();
                    let (began, mut is_late) = (Instant::now(), false);
                    let mut is_sent = |bytes: &[u8], sent: u32| {
                        let result = client.stream.write_all(bytes);
                        // Each piece adds a quarter of a second.
                        is_late |= began.elapsed() >= TIMEOUT + sent * Duration::from_millis(250);
                        assert!(result.is_ok() || is_late, "{announced}: {result:?}");
                        result.is_ok()
                    };
                    let bytes = pieces as usize * piece.len();
                    let head = format!(
                        "PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: {bytes}\r\n\r\n"
                    );
                    is_sent(head.as_bytes(), 0);
                    for sent in 0..pieces {
                        if !is_sent(piece, sent) {
                            return false;
                        }
                        // Longer than the timeout, faster than the least rate.
                        if sent < 12 {
                            std::thread::sleep(Duration::from_millis(200));
                        }
                    }
                    assert!(began.elapsed() > 2 * TIMEOUT, "{announced}");
                    // A connection that was closed cannot be shut down.
                    let _ = client.stream.shutdown(std::net::Shutdown::Write);
                    let reply = client.read_to_end();
                    let is_stored = reply.starts_with(b"HTTP/1.1 20");
                    assert!(is_stored || is_late, "{announced}: {}", reply.escape_ascii());
                    is_stored
                });
            });
        }
    });
}

#[test]
fn a_client_that_reads_too_slowly_is_disconnected() {
    let server = start_with(timed(), memory());
    let mut client = server.connect();
    client.send(b"set k 0 0 1000000\r\n");
    client.exchange([&[b'v'; 1_000_000][..], b"\r\n"].concat(), b"STORED\r\n");
    client.send(&b"get k\r\n".repeat(30));
    let began = Instant::now();
    // Each read frees a part of the socket buffer.
    while server.stat_value("connections_timed_out") == 0 {
        assert!(began.elapsed() < WAIT_MAX, "it is served for ever");
        let _ = client.stream.read(&mut [0; 512]);
        std::thread::sleep(DRIP);
    }
}
