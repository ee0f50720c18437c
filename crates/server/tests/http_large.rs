//! Large values over HTTP pass through files, not through memory.
//!
//! The test measures the memory of its process, so it is the only test of this file.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use std::io::{Read, Write};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use support::{Client, Running, hash, start};

/// Length of the value, in bytes.
const VALUE_BYTES: usize = 128 << 20;

/// Most memory that server and client may take apart from the page cache, in bytes.
const MEMORY_BYTES_MAX: u64 = 48 << 20;

/// Length of a write, in bytes.
const PIECE_BYTES: usize = 100_000;

/// Returns the anonymous memory of this process, in bytes.
fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Returns bytes of the value. The value has a period that divides none of the lengths here.
fn piece(start: usize, end: usize) -> Vec<u8> {
    const PERIOD: usize = 250_007;
    static PERIOD_BYTES: LazyLock<Vec<u8>> =
        LazyLock::new(|| (0..PERIOD).map(|place| (place % 251) as u8).collect());
    let mut bytes = Vec::with_capacity(end - start);
    while bytes.len() < end - start {
        let place = (start + bytes.len()) % PERIOD;
        let count = (PERIOD - place).min(end - start - bytes.len());
        bytes.extend_from_slice(&PERIOD_BYTES[place..place + count]);
    }
    bytes
}

fn send_plain(client: &mut Client) {
    client.send(
        format!("PUT /plain HTTP/1.1\r\nHost: localhost\r\nContent-Length: {VALUE_BYTES}\r\n\r\n")
            .as_bytes(),
    );
    for start in (0..VALUE_BYTES).step_by(PIECE_BYTES) {
        client.send(&piece(start, VALUE_BYTES.min(start + PIECE_BYTES)));
    }
    client.expect_response("201 Created", "Created\n");
}

fn send_chunked(client: &mut Client) {
    client.send(b"PUT /chunked HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    for start in (0..VALUE_BYTES).step_by(PIECE_BYTES) {
        let data = piece(start, VALUE_BYTES.min(start + PIECE_BYTES));
        client.send(format!("{:x}\r\n", data.len()).as_bytes());
        client.send(&data);
        client.send(b"\r\n");
    }
    client.send(b"0\r\n\r\n");
    client.expect_response("201 Created", "Created\n");
}

fn receive(server: &Running, path: &str) {
    let mut client = server.connect();
    client
        .stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
        .unwrap();
    let head = client.expect_response("200 OK", "");
    assert!(head.contains(&format!("Content-Length: {VALUE_BYTES}\r\n")), "{head}");
    let mut buffer = vec![0; PIECE_BYTES];
    let mut place = 0;
    while place < VALUE_BYTES {
        let wanted = buffer.len().min(VALUE_BYTES - place);
        let received = client.stream.read(&mut buffer[..wanted]).unwrap();
        assert!(received > 0, "closed after {place} bytes");
        assert!(buffer[..received] == piece(place, place + received), "from {place} on");
        place += received;
    }
    client.expect_open();
    let (start, end) = (VALUE_BYTES / 2, VALUE_BYTES / 2 + 3_000_000);
    client.send(
        format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nRange: bytes={start}-{}\r\n\r\n",
            end - 1
        )
        .as_bytes(),
    );
    client.expect_response("206 Partial Content", piece(start, end));
    client.expect_open();
}

#[test]
fn large_values_are_stored_and_sent_without_being_held_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(hash(folder.path()));
    server.connect().expect_open();
    let before = memory_bytes();
    let (most, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(memory_bytes(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        send_plain(&mut server.connect());
        receive(&server, "/plain");
        send_chunked(&mut server.connect());
        receive(&server, "/chunked");
        // Replacing a record compares its key only.
        send_plain(&mut server.connect());
        done.store(true, Ordering::Relaxed);
    });
    let most = most.into_inner().saturating_sub(before);
    println!("{} KiB of memory for values of {} MiB", most >> 10, VALUE_BYTES >> 20);
    assert!(most < MEMORY_BYTES_MAX, "{most} bytes of memory");
    assert_eq!(
        std::fs::read_dir(folder.path().join("casket.tch"))
            .unwrap()
            .filter(|entry| {
                entry.as_ref().unwrap().file_name().to_string_lossy().contains("spool")
            })
            .count(),
        0,
        "files on the way have no name"
    );
}
