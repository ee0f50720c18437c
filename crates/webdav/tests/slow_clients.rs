//! Slow clients: requests that arrive byte by byte time out, over WebDAV too.

mod support;

use cabinet::Database;
use server::Config;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};
use support::{Client, config, start_with};

const TIMEOUT: Duration = Duration::from_secs(1);
const DRIP: Duration = Duration::from_millis(50);

/// Sends bytes one by one until the server closes the connection. Returns the time that took.
fn drip(client: &mut Client, bytes: &[u8]) -> Duration {
    let began = Instant::now();
    client.stream.set_read_timeout(Some(DRIP)).expect("a limit");
    for byte in bytes {
        let sent = client.stream.write_all(&[*byte]);
        match client.stream.read(&mut [0]) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                assert!(sent.is_ok(), "{sent:?}");
            }
            // Some clients are sent a reason.
            _ => return began.elapsed(),
        }
    }
    panic!("the server waited for all of {} bytes", bytes.len());
}

#[test]
fn a_webdav_request_that_arrives_byte_by_byte_times_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().join("casket.tch").display().to_string();
    let database = Database::open(&name).expect("a database");
    let server = start_with(Config { timeout: Some(TIMEOUT), ..config() }, database);
    let begin =
        "PROPFIND / HTTP/1.1\r\nHost: localhost\r\nDepth: 0\r\nContent-Length: 1000\r\n\r\n";
    let put = "PUT /f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n";
    std::thread::scope(|scope| {
        for (form, begin) in [("a document", begin), ("a head", ""), ("a file", put)] {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.connect();
                // This request makes it a WebDAV connection.
                client.request("PROPFIND /", "Depth: 0\r\n", "");
                client.send(begin.as_bytes());
                let took = drip(&mut client, &[b'A'; 2000]);
                assert!(took >= TIMEOUT / 2, "{form}: {took:?}");
            });
        }
    });
}
