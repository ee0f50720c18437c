//! Large files: WebDAV streams them through the disk, not through memory.
//!
//! This file has a single test, because it measures the memory of the process, which other tests
//! would share.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use support::start;

/// Length of the file.
const FILE_BYTES: usize = 128 << 20;

/// Most memory beside the page cache that the test may use, including its client's.
const MEMORY_BYTES_MAX: u64 = 48 << 20;

/// Bytes per send.
const PIECE_BYTES: usize = 1 << 20;

/// Returns the anonymous memory of this process, in bytes.
fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn large_files_are_stored_read_and_copied_without_being_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("a.tch").display().to_string();
    let server = start(Database::open(&name).unwrap());
    let mut client = server.connect();
    client.status("OPTIONS /", "", "", 200);
    let before = memory_bytes();
    let (most, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let piece: Vec<u8> = (0..PIECE_BYTES).map(|place| (place % 251) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(memory_bytes(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        client.send(
            format!(
                "PUT /file HTTP/1.1\r\nHost: localhost\r\nContent-Length: {FILE_BYTES}\r\n\r\n"
            )
            .as_bytes(),
        );
        for _ in 0..FILE_BYTES / PIECE_BYTES {
            client.send(&piece);
        }
        let head = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
        assert!(head.starts_with("HTTP/1.1 201 "), "{head}");
        client.status("COPY /file", "Destination: /copy\r\n", "", 201);
        client.send(b"GET /copy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let head = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let mut received = vec![0; PIECE_BYTES];
        for number in 0..FILE_BYTES / PIECE_BYTES {
            client.stream.read_exact(&mut received).unwrap();
            assert!(received == piece, "piece {number}");
        }
        client.expect_close();
        done.store(true, Ordering::Relaxed);
    });
    let most = most.into_inner().saturating_sub(before);
    println!("{} KiB of memory for a file of {} MiB", most >> 10, FILE_BYTES >> 20);
    assert!(most < MEMORY_BYTES_MAX, "{most} bytes of memory");
}
