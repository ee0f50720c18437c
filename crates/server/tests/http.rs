//! HTTP beyond Tokyo Tyrant's: versions, ranges, types and expiry of values.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use server::{Config, Dialect};
use std::time::{SystemTime, UNIX_EPOCH};
use support::{
    Client, fixed, hash, list, memory, memory_tree, misc, start, start_with, table, tree,
};

const CREATED: &str = "Created\n";

/// Returns a request without a body, or with one and its length.
fn request(client: &mut Client, line: &str, headers: &str, body: &str) {
    let length =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    client.send(
        format!("{line} HTTP/1.1\r\nHost: localhost\r\n{headers}{length}\r\n{body}").as_bytes(),
    );
}

fn put(client: &mut Client, path: &str, headers: &str, body: &str) {
    request(client, &format!("PUT {path}"), headers, body);
    client.expect_response("201 Created", CREATED);
}

/// Sends a GET, asserts its value, and returns the head of the response.
fn get(client: &mut Client, path: &str, value: &str) -> String {
    request(client, &format!("GET {path}"), "", "");
    client.expect_response("200 OK", value)
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn tag(client: &mut Client, path: &str, value: &str) -> String {
    header(&get(client, path, value), "ETag").unwrap().to_owned()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn a_client_with_the_current_version_gets_a_304() {
    let server = start(memory());
    let mut client = server.connect();
    put(&mut client, "/k", "", "one");
    let first = tag(&mut client, "/k", "one");
    for list in [&first, "*", &format!("\"x\", W/{first}")] {
        for method in ["GET", "HEAD"] {
            request(
                &mut client,
                &format!("{method} /k"),
                &format!("If-None-Match: {list}\r\n"),
                "",
            );
            let head = client.expect_response("304 Not Modified", "");
            assert_eq!(header(&head, "ETag"), Some(&first[..]));
        }
    }
    put(&mut client, "/k", "", "two");
    request(&mut client, "GET /k", &format!("If-None-Match: {first}\r\n"), "");
    let head = client.expect_response("200 OK", "two");
    assert_ne!(header(&head, "ETag"), Some(&first[..]));
    request(&mut client, "GET /k", &format!("If-Match: {first}\r\n"), "");
    client.expect_response("412 Precondition Failed", "Precondition Failed\n");
    request(&mut client, "GET /none", "If-Match: *\r\n", "");
    client.expect_response("412 Precondition Failed", "Precondition Failed\n");
}

#[test]
fn entity_tags_survive_a_restart_on_disk_and_change_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let first = {
        let server = start(hash(folder.path()));
        put(&mut server.connect(), "/k", "", "v");
        tag(&mut server.connect(), "/k", "v")
    };
    let server = start(hash(folder.path()));
    assert_eq!(tag(&mut server.connect(), "/k", "v"), first);
    let in_memory = || {
        let server = start(memory());
        put(&mut server.connect(), "/k", "", "v");
        tag(&mut server.connect(), "/k", "v")
    };
    assert_ne!(in_memory(), in_memory());
}

#[test]
fn conditional_writes_change_only_the_version_that_they_name() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), memory_tree(), hash(folder.path()), tree(folder.path())] {
        let server = start(database);
        let mut client = server.connect();
        let failed = |client: &mut Client| {
            client.expect_response("412 Precondition Failed", "Precondition Failed\n");
        };
        put(&mut client, "/k", "If-None-Match: *\r\n", "one");
        request(&mut client, "PUT /k", "If-None-Match: *\r\n", "two");
        failed(&mut client);
        let first = tag(&mut client, "/k", "one");
        request(&mut client, "PUT /k", &format!("If-Match: {first}\r\n"), "two");
        let head = client.expect_response("201 Created", CREATED);
        let second = tag(&mut client, "/k", "two");
        assert_eq!(header(&head, "ETag"), Some(&second[..]));
        for method in ["PUT", "DELETE"] {
            request(&mut client, &format!("{method} /k"), &format!("If-Match: {first}\r\n"), "");
            failed(&mut client);
        }
        request(&mut client, "PUT /none", "If-Match: *\r\n", "x");
        failed(&mut client);
        let keep = format!("X-TT-PDMODE: 1\r\nIf-Match: {second}\r\n");
        request(&mut client, "PUT /k", &keep, "x");
        client.expect_response("409 Conflict", "Conflict\n");
        let append = format!("X-TT-PDMODE: 2\r\nIf-Match: {second}\r\n");
        request(&mut client, "PUT /k", &append, "+");
        client.expect_response("201 Created", CREATED);
        let third = tag(&mut client, "/k", "two+");
        request(&mut client, "DELETE /k", &format!("If-Match: {third}\r\n"), "");
        client.expect_response("200 OK", "OK\n");
        request(&mut client, "DELETE /k", "If-None-Match: *\r\n", "");
        client.expect_response("404 Not Found", "Not Found\n");
    }
}

#[test]
fn one_of_many_writers_of_the_same_version_succeeds() {
    let server = start(memory());
    put(&mut server.connect(), "/k", "", "0");
    let version = tag(&mut server.connect(), "/k", "0");
    let stored = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|_| {
                let (server, version) = (&server, &version);
                scope.spawn(move || {
                    let mut client = server.connect();
                    request(&mut client, "PUT /k", &format!("If-Match: {version}\r\n"), "1");
                    client.read_until(b"\r\n").starts_with(b"HTTP/1.1 201 ")
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).filter(|stored| *stored).count()
    });
    assert_eq!(stored, 1);
}

#[test]
fn a_range_request_returns_that_part_of_the_value() {
    let server = start(memory());
    let mut client = server.connect();
    put(&mut client, "/k", "", "0123456789");
    let head = get(&mut client, "/k", "0123456789");
    assert_eq!(header(&head, "Accept-Ranges"), Some("bytes"));
    let version = header(&head, "ETag").unwrap();
    for (range, part, content_range) in [
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=0-100", "0123456789", "bytes 0-9/10"),
    ] {
        let headers = format!("Range: {range}\r\nIf-Range: {version}\r\n");
        request(&mut client, "GET /k", &headers, "");
        let head = client.expect_response("206 Partial Content", part);
        assert_eq!(header(&head, "Content-Range"), Some(content_range));
        assert_eq!(header(&head, "ETag"), Some(version));
    }
    request(&mut client, "GET /k", "Range: bytes=10-\r\n", "");
    let head = client.expect_response("416 Range Not Satisfiable", "");
    assert_eq!(header(&head, "Content-Range"), Some("bytes */10"));
    for headers in [
        "Range: bytes=0-1\r\nIf-Range: \"other\"\r\n",
        "Range: bytes=0-1\r\nIf-Range: Wed, 18 May 2033 03:33:20 GMT\r\n",
        "Range: bytes=0-1,3-4\r\n",
        "Range: lines=0-1\r\n",
    ] {
        request(&mut client, "GET /k", headers, "");
        client.expect_response("200 OK", "0123456789");
    }
    request(&mut client, "HEAD /k", "Range: bytes=2-4\r\n", "");
    let head = client.expect_response("200 OK", "");
    assert_eq!(header(&head, "Content-Length"), Some("10"));
}

#[test]
fn the_type_of_a_value_is_kept_with_it() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), memory_tree(), hash(folder.path()), tree(folder.path())] {
        let server = start(database);
        let mut client = server.connect();
        for media_type in ["text/html; charset=utf-8", "image/png", "application/x-own; a=\"b\""] {
            put(&mut client, "/k", &format!("Content-Type: {media_type}\r\n"), "v");
            assert_eq!(header(&get(&mut client, "/k", "v"), "Content-Type"), Some(media_type));
        }
        put(&mut client, "/k", "X-TT-PDMODE: 2\r\n", "w");
        let head = get(&mut client, "/k", "vw");
        assert_eq!(header(&head, "Content-Type"), Some("application/x-own; a=\"b\""));
        request(&mut client, "HEAD /k", "", "");
        let head = client.expect_response("200 OK", "");
        assert_eq!(header(&head, "Content-Type"), Some("application/x-own; a=\"b\""));
        put(&mut client, "/k", "", "v");
        let head = get(&mut client, "/k", "v");
        assert_eq!(header(&head, "Content-Type"), Some("application/octet-stream"));
    }
}

#[test]
fn a_value_is_stored_without_its_type_if_the_list_of_types_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let plain = "application/octet-stream";
    for (database, value, own, listed) in [
        (fixed(folder.path()), "v", plain, "text/plain"),
        (table(folder.path()), "a\0b", plain, plain),
    ] {
        let server = start(database);
        let mut client = server.connect();
        for (sent, kept) in [("application/x-own", own), ("text/plain", listed)] {
            put(&mut client, "/7", &format!("Content-Type: {sent}\r\n"), value);
            assert_eq!(header(&get(&mut client, "/7", value), "Content-Type"), Some(kept));
        }
    }
}

#[test]
fn a_value_expires_when_its_writer_said() {
    let server = start(memory());
    let mut client = server.connect();
    let end = now_s() + 1000;
    for headers in [
        "X-TT-XT: 1000\r\n".to_owned(),
        "Cache-Control: public, max-age=1000\r\n".to_owned(),
        format!("X-TT-XT: {end}\r\nCache-Control: max-age=5\r\n"),
    ] {
        put(&mut client, "/k", &headers, "v");
        let head = get(&mut client, "/k", "v");
        let at: u64 = header(&head, "X-TT-XT").unwrap().parse().unwrap();
        assert!((end..end + 20).contains(&at), "{at} after {headers}");
        let age = header(&head, "Cache-Control").unwrap().strip_prefix("max-age=").unwrap();
        assert!((980..=1000).contains(&age.parse::<u64>().unwrap()), "{age} after {headers}");
        assert!(header(&head, "Expires").unwrap().ends_with(" GMT"));
    }
    put(&mut client, "/k", "X-TT-XT: Wed, 18 May 2033 03:33:20 GMT\r\n", "v");
    let head = get(&mut client, "/k", "v");
    assert_eq!(header(&head, "Expires"), Some("Wed, 18 May 2033 03:33:20 GMT"));
    assert_eq!(header(&head, "X-TT-XT"), Some("2000000000"));
    for headers in ["", "X-TT-XT: 0\r\n", "Cache-Control: max-age=0, no-cache\r\n"] {
        put(&mut client, "/k", headers, "v");
        let head = get(&mut client, "/k", "v");
        assert_eq!(header(&head, "X-TT-XT").or(header(&head, "Cache-Control")), None);
    }
    put(&mut client, "/k", "X-TT-XT: Thu, 01 Jan 1970 00:00:00 GMT\r\n", "v");
    request(&mut client, "GET /k", "", "");
    client.expect_response("404 Not Found", "Not Found\n");
    request(&mut client, "PUT /k", "X-TT-XT: soon\r\n", "v");
    let what = "X-TT-XT is neither a number of seconds nor a date\n";
    client.expect_response("400 Bad Request", what);
}

#[test]
fn the_root_introduces_the_server_unless_it_has_a_record() {
    let server = start(memory());
    let mut client = server.connect();
    request(&mut client, "GET /", "", "");
    let introduction = "This is Tyrant, a key-value server. This path is that of the empty key, \
        which has no record.\nPUT /KEY stores a record, GET /KEY reads it, DELETE /KEY removes it.\n";
    client.expect_response("404 Not Found", introduction);
    put(&mut client, "/", "", "v");
    get(&mut client, "/", "v");
}

#[test]
fn a_client_of_tokyo_tyrant_gets_no_header_that_it_did_not_ask_for() {
    let server =
        start_with(Config { dialect: Dialect::TokyoTyrant, ..support::config() }, memory());
    let mut client = server.connect();
    put(&mut client, "/k", "", "v");
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 1\r\n\r\n";
    client.exchange("GET /k HTTP/1.1\r\nHost: localhost\r\n\r\n", format!("{head}v"));
    client.exchange("HEAD /k HTTP/1.1\r\nHost: localhost\r\n\r\n", head);
    request(&mut client, "GET /k", "If-None-Match: \"x\"\r\n", "");
    let head = client.expect_response("200 OK", "v");
    assert!(header(&head, "ETag").is_some());
}

#[test]
fn a_client_of_tokyo_tyrant_gets_no_type_and_no_expiry() {
    let folder = tempfile::tempdir().unwrap();
    let dialect = Dialect::TokyoTyrant;
    let server = start_with(Config { dialect, ..support::config() }, hash(folder.path()));
    let mut client = server.connect();
    let said = "Content-Type: image/png\r\nX-TT-XT: 1000\r\n";
    for length in [1, 1 << 20] {
        put(&mut client, "/k", said, &"v".repeat(length));
        let head = get(&mut client, "/k", &"v".repeat(length));
        let expected = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n"
        );
        assert_eq!(head, expected);
        request(&mut client, "HEAD /k", "If-None-Match: \"x\"\r\n", "");
        let head = client.expect_response("200 OK", "");
        assert_eq!(header(&head, "Content-Type"), Some("image/png"));
        assert!(header(&head, "X-TT-XT").is_some());
    }
}

#[test]
fn an_append_to_a_missing_record_stores_its_type_and_expiry() {
    let server = start(memory());
    let mut client = server.connect();
    let said = "X-TT-PDMODE: 2\r\nContent-Type: image/png\r\nX-TT-XT: 1000\r\n";
    put(&mut client, "/k", said, "v");
    let other = "X-TT-PDMODE: 2\r\nContent-Type: image/gif\r\nX-TT-XT: 0\r\n";
    put(&mut client, "/k", other, "w");
    let head = get(&mut client, "/k", "vw");
    assert_eq!(header(&head, "Content-Type"), Some("image/png"));
    assert!(header(&head, "X-TT-XT").is_some());
}

#[test]
fn a_put_of_a_part_or_in_a_coding_is_refused() {
    for (header, status) in [
        ("Content-Range: bytes 0-0/3\r\n", "400 Bad Request"),
        ("Content-Range: bytes */3\r\n", "400 Bad Request"),
        ("Content-Encoding: gzip\r\n", "415 Unsupported Media Type"),
    ] {
        for (dialect, status, value) in
            [(Dialect::Memcached, status, "old"), (Dialect::TokyoTyrant, "201 Created", "x")]
        {
            let server = start_with(Config { dialect, ..support::config() }, memory());
            let mut client = server.connect();
            put(&mut client, "/k", "", "old");
            request(&mut client, "PUT /k", header, "x");
            client.expect_response(status, format!("{}\n", &status[4..]));
            get(&mut client, "/k", value);
        }
    }
}

#[test]
fn clients_cannot_reach_the_records_of_the_server() {
    let server = start(memory());
    let mut client = server.connect();
    put(&mut client, "/k", "Content-Type: image/x-own\r\n", "v");
    for method in ["GET", "PUT", "DELETE"] {
        request(&mut client, &format!("{method} /%00tyrant%20media%20types"), "", "");
        client.expect_response("403 Forbidden", "Forbidden\n");
    }
    request(&mut client, "HEAD /%00tyrant%20media%20types", "", "");
    client.expect_response("403 Forbidden", "");
    let lines =
        ["get", "remove"].map(|name| format!("{{\"{name}\":\"\\u0000tyrant media types\"}}\n"));
    request(&mut client, "POST /", "Content-Type: application/x-ndjson\r\n", &lines.concat());
    let answer = "{\"key\":\"\\u0000tyrant media types\",\"error\":\"forbidden\"}\n";
    client.expect_response("200 OK", answer.repeat(2));
    let head = get(&mut client, "/k", "v");
    assert_eq!(header(&head, "Content-Type"), Some("image/x-own"));
}

#[test]
fn no_protocol_lists_or_counts_the_records_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), memory_tree(), hash(folder.path()), tree(folder.path())] {
        let server = start(database.clone());
        let mut client = server.connect();
        put(&mut client, "/k", "Content-Type: image/x-own\r\n", "v");
        put(&mut client, "/l", "Content-Type: image/x-other\r\n", "w");
        assert_eq!(database.len(), 3);
        // rnum
        client.exchange(b"\xc8\x80", b"\0\0\0\0\0\0\0\0\x02");
        assert_eq!(server.stat_value("curr_items"), 2);
        client.exchange(b"\xc8\x50", b"\0");
        let mut keys = Vec::new();
        for _ in 0..2 {
            client.exchange(b"\xc8\x51", b"\0\0\0\0\x01");
            keys.extend(client.read(1));
        }
        keys.sort_unstable();
        assert_eq!(keys, b"kl");
        client.exchange(b"\xc8\x51", b"\x01");
        // fwmkeys
        client.exchange(b"\xc8\x58\0\0\0\x03\xff\xff\xff\xff\0ty", b"\0\0\0\0\0");
        client.exchange(misc("regex", &["tyrant"]), list(&[]));
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(hash(folder.path()));
    let mut client = server.connect();
    let long = "x".repeat(3 << 20);
    client.send(
        format!(
            "PUT /long HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{long}",
            long.len()
        )
        .as_bytes(),
    );
    client.send(
        b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\nget none\r\nGET /long HTTP/1.1\r\nHost: localhost\r\nRange: bytes=-2\r\n\r\n",
    );
    client.send(b"HEAD /long HTTP/1.0\r\n\r\n");
    client.expect_response("201 Created", CREATED);
    client.expect_response("200 OK", &long);
    client.expect(b"END\r\n");
    client.expect_response("206 Partial Content", "xx");
    let head = client.expect_response("200 OK", "");
    assert_eq!(header(&head, "Content-Length"), Some(&long.len().to_string()[..]));
    client.expect_close();
}

#[test]
fn lists_and_batches_are_not_for_other_sites() {
    let server = start(memory());
    let mut client = server.connect();
    put(&mut client, "/k", "Content-Type: text/html\r\n", "v");
    request(&mut client, "GET /?list", "Accept: application/json\r\n", "");
    let list = client.expect_response("200 OK", "{\"keys\":[\"k\"],\"next\":null}");
    let headers = "Content-Type: application/x-ndjson\r\n";
    request(&mut client, "POST /", headers, "{\"delete\":\"none\"}\n");
    let batch = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
    let length: usize = header(&batch, "Content-Length").unwrap().parse().unwrap();
    client.read(length);
    for head in [list, batch] {
        assert_eq!(header(&head, "Cross-Origin-Resource-Policy"), Some("same-origin"), "{head}");
        assert_eq!(header(&head, "X-Frame-Options"), Some("DENY"), "{head}");
    }
    let page = get(&mut client, "/k", "v");
    assert_eq!(header(&page, "X-Frame-Options"), Some("SAMEORIGIN"), "{page}");
    put(&mut client, "/k", "Content-Type: image/png\r\n", "v");
    let image = get(&mut client, "/k", "v");
    assert_eq!(header(&image, "X-Frame-Options"), None, "{image}");
    // Tokyo Tyrant sends none of them.
    let server =
        start_with(Config { dialect: Dialect::TokyoTyrant, ..support::config() }, memory());
    let mut client = server.connect();
    put(&mut client, "/k.html", "", "v");
    let page = get(&mut client, "/k.html", "v");
    assert_eq!(header(&page, "X-Frame-Options"), None, "{page}");
}
