//! Uploads: bodies that are received into a file, their limits, and aborted uploads.

mod support;

use server::Config;
use support::{Client, config, hash, start, start_with};

/// Length from which a body is received into a file, in bytes.
const LONG: usize = 1 << 20;

fn head(length: usize) -> String {
    format!("PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n")
}

fn refused(client: &mut Client, status: &str) {
    let reply = client.read_to_end();
    let expected = format!("HTTP/1.1 {status}\r\n");
    assert!(reply.starts_with(expected.as_bytes()), "{}", reply.escape_ascii());
}

#[test]
fn the_length_of_an_upload_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let max = 2 * LONG;
    let server = start_with(Config { upload_bytes_max: max, ..config() }, hash(folder.path()));
    for length in [max - 1, max] {
        let mut client = server.connect();
        client.send(head(length).as_bytes());
        client.send(&vec![b'v'; length]);
        client.expect_response("201 Created", "Created\n");
    }
    let mut client = server.connect();
    client.send(head(max + 1).as_bytes());
    refused(&mut client, "413 Payload Too Large");
    let mut client = server.connect();
    client.send(b"PUT /k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("{max:x}\r\n{}\r\n1\r\nv", "v".repeat(max)).as_bytes());
    refused(&mut client, "413 Payload Too Large");
    let mut client = server.connect();
    client.send(b"HEAD /k HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = client.expect_response("200 OK", "");
    assert!(head.contains(&format!("Content-Length: {max}\r\n")), "{head}");
}

#[test]
fn all_uploads_together_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Config { spool_bytes_max: 3 * LONG, ..config() };
    let server = start_with(settings, hash(folder.path()));
    let mut slow = server.connect();
    slow.send(head(2 * LONG).as_bytes());
    slow.send(&vec![b'v'; 2 * LONG - 1]);
    server.await_stat_value("spool_bytes", |bytes| bytes == 2 * LONG as u64 - 1);
    // The event loop does not wait for the disk.
    assert!(server.stat_value("requests_pooled") > 0);
    let mut other = server.connect();
    other.send(head(2 * LONG).as_bytes());
    other.send(&vec![b'v'; 2 * LONG]);
    let reply = String::from_utf8(other.read_to_end()).unwrap();
    assert!(reply.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{reply}");
    assert!(reply.ends_with("too many uploads at the same time: try again later\n"), "{reply}");
    slow.send(b"v");
    slow.expect_response("201 Created", "Created\n");
    // The budget is returned.
    for _ in 0..3 {
        slow.send(head(2 * LONG).as_bytes());
        slow.send(&vec![b'w'; 2 * LONG]);
        slow.expect_response("201 Created", "Created\n");
    }
}

#[test]
fn an_aborted_upload_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Config { spool_bytes_max: 2 * LONG, ..config() };
    let server = start_with(settings, hash(folder.path()));
    let mut client = server.connect();
    client.exchange("set k 0 0 3\r\nold\r\n", "STORED\r\n");
    for _ in 0..3 {
        let mut broken = server.connect();
        broken.send(head(2 * LONG).as_bytes());
        broken.send(&vec![b'v'; LONG]);
        broken.expect_silence(&server);
        broken.stream.shutdown(std::net::Shutdown::Write).unwrap();
        broken.expect_close();
    }
    client.expect_value("/k", "old");
}

#[test]
fn malformed_chunks_are_refused_in_an_upload() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(hash(folder.path()));
    let start = format!(
        "PUT /k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{LONG:x}\r\n{}",
        "v".repeat(LONG)
    );
    for bad in ["xx", "\r\nx\r\n", "\r\n-1\r\n", "\r\nffffffffffffffffff\r\n"] {
        let mut client = server.connect();
        client.send(start.as_bytes());
        client.send(bad.as_bytes());
        let status = if bad.contains('f') { "413 Payload Too Large" } else { "400 Bad Request" };
        refused(&mut client, status);
    }
}

#[test]
fn a_client_that_expects_a_100_gets_it_before_an_upload() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(hash(folder.path()));
    let mut client = server.connect();
    let head = format!(
        "PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LONG}\r\nExpect: 100-continue\r\n\r\n"
    );
    client.exchange(&head, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send(&vec![b'v'; LONG]);
    client.expect_response("201 Created", "Created\n");
}

#[test]
fn a_connection_stays_open_after_a_chunked_upload() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(hash(folder.path()));
    let mut client = server.connect();
    let chunk = format!("1000\r\n{}\r\n", "v".repeat(0x1000));
    let body = format!("{}0\r\n\r\n", chunk.repeat(2 * LONG / 0x1000));
    for expect in ["", "Expect: 100-continue\r\n"] {
        let head = |key: &str| {
            format!(
                "PUT /{key} HTTP/1.1\r\nHost: localhost\r\n{expect}Transfer-Encoding: chunked\r\n\r\n"
            )
        };
        for (key, body) in [("a", &body[..]), ("b", "3\r\nabc\r\n0\r\n\r\n")] {
            client.send(head(key).as_bytes());
            if !expect.is_empty() {
                client.expect("HTTP/1.1 100 Continue\r\n\r\n");
            }
            client.send(body.as_bytes());
            client.expect_response("201 Created", "Created\n");
        }
        client.expect_value("/b", "abc");
    }
}

#[test]
fn conditional_writes_work_for_large_values() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(hash(folder.path()));
    let mut client = server.connect();
    let body = "v".repeat(LONG);
    let once = format!(
        "PUT /k HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: *\r\nContent-Length: {LONG}\r\n\r\n{body}"
    );
    client.send(once.as_bytes());
    client.expect_response("201 Created", "Created\n");
    client.send(once.as_bytes());
    client.expect_response("412 Precondition Failed", "Precondition Failed\n");
    let typed = format!(
        "PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nX-TT-XT: 100\r\nContent-Length: {LONG}\r\n\r\n{body}"
    );
    client.send(typed.as_bytes());
    client.expect_response("201 Created", "Created\n");
    client.send(b"HEAD /k HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = client.expect_response("200 OK", "");
    assert!(head.contains("Content-Type: image/png\r\n") && head.contains("X-TT-XT: "), "{head}");
}

#[test]
fn a_value_beyond_the_limit_of_the_update_log_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = server::update_log::Settings::new(folder.path().join("log"));
    let settings = Config { update_log: Some(log), server_id: 1, ..config() };
    let server = start_with(settings, hash(folder.path()));
    let max = wire::limits::BINARY_ARGUMENT_BYTES_MAX;
    let mut client = server.connect();
    client.send(head(max).as_bytes());
    client.expect_silence(&server);
    let mut client = server.connect();
    client.send(head(max + 1).as_bytes());
    refused(&mut client, "413 Payload Too Large");
}

#[test]
fn a_refused_upload_is_refused_before_its_body_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(hash(folder.path()));
    for (key, header, status) in [
        ("%00tyrant%20media%20types", "", "403 Forbidden"),
        ("k", "Content-Range: bytes 0-9/10\r\n", "400 Bad Request"),
    ] {
        let mut client = server.connect();
        let head = format!(
            "PUT /{key} HTTP/1.1\r\nHost: localhost\r\n{header}Content-Length: {LONG}\r\n\r\n"
        );
        client.send(head.as_bytes());
        refused(&mut client, status);
    }
}

#[test]
fn a_body_of_an_unknown_method_is_not_waited_for() {
    let server = start(support::memory());
    for method in ["UNKNOWN", "PROPFIND"] {
        let mut client = server.connect();
        let length = 16 * LONG;
        client.send(
            format!("{method} /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\nx")
                .as_bytes(),
        );
        let reply = String::from_utf8(client.read_to_end()).unwrap();
        assert!(reply.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{reply}");
        assert!(reply.contains("\r\nAllow: "), "{reply}");
        assert!(reply.contains("\r\nConnection: close\r\n"), "{reply}");
    }
}
