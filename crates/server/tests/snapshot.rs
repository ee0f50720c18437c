//! Snapshots: copies of a database during writes, and the log after them.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{hash, logging, records, start_with};
use wire::binary::{Request, encode};

fn request(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(request, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_copy_and_the_log_after_it_equal_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let database = hash(folder.path());
    let server = start_with(logging(1, folder.path()), database.clone());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut client = server.connect();
                for number in 0..u32::MAX {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // All writers append to the same records, so a missing or repeated append
                    // shows.
                    let key = [b'a' + (number % 3) as u8];
                    let value = [writer, number as u8];
                    let put = request(&Request::PutCat { key: &key, value: &value });
                    let sum = request(&Request::AddInt { key: b"sum", addend: 1 });
                    client.exchange([put, sum].concat(), b"\0\0");
                    client.read(4);
                    if number % 1000 == 999 && writer == 0 {
                        client.exchange(request(&Request::Vanish), b"\0");
                    }
                }
            });
        }
        let mut client = server.connect();
        for copy in 0..5 {
            let path = folder.path().join(format!("copy-{copy}.tch"));
            let path = path.as_os_str().as_encoded_bytes();
            client.exchange(request(&Request::Copy { path }), b"\0");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(server);
    for copy in 0..5 {
        let path = folder.path().join(format!("copy-{copy}.tch"));
        let position = fs::read_to_string(path.join(server::POSITION_FILE)).unwrap();
        let position = server::CopyPosition::parse(&position).unwrap();
        let copied = Database::open(path.to_str().unwrap()).unwrap();
        let log = folder.path().join("ulog");
        let done = server::replay(copied.clone(), &log, &position, u64::MAX).unwrap();
        assert_eq!(done.differing, 0);
        assert!(records(&copied) == records(&database), "copy {copy}");
    }
}

#[test]
fn a_log_with_a_missing_file_is_not_executed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("ulog");
    let mut config = logging(1, folder.path());
    config.update_log.as_mut().unwrap().file_bytes_max = 1;
    let server = start_with(config, support::memory());
    for _ in 0..4 {
        server.connect().exchange(request(&Request::Put { key: b"k", value: b"v" }), b"\0");
    }
    drop(server);
    let begin = server::CopyPosition::default();
    let replay = || server::replay(support::memory(), &log, &begin, u64::MAX);
    assert_eq!(replay().unwrap().operations, 4);
    fs::remove_file(log.join("00000003.ulog")).unwrap();
    let error = replay().unwrap_err().to_string();
    assert!(error.contains("00000003.ulog is missing"), "{error}");
}
