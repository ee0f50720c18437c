//! WebDAV over the records of a server.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use server::{CommandMask, Config, Endpoint, HostNames, Monitor, ReadinessLimits, update_log};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::{Client, Running, config, start, start_with, users, users_with};

/// Opens a database of each kind that can have paths as keys.
fn databases(folder: &std::path::Path) -> Vec<Database> {
    ["*", "+", "a.tch", "a.tcb"]
        .iter()
        .map(|name| match name.len() {
            1 => Database::open(name).unwrap(),
            _ => Database::open(&folder.join(name).display().to_string()).unwrap(),
        })
        .collect()
}

fn memory() -> Running {
    start(Database::open("+").unwrap())
}

/// Returns the paths in the PROPFIND of a folder.
fn listed(client: &mut Client, path: &str) -> Vec<String> {
    let (head, body) = client.request(&format!("PROPFIND {path}"), "Depth: 1\r\n", "");
    assert!(head.starts_with("HTTP/1.1 207 "), "{head}");
    let body = String::from_utf8(body).unwrap();
    let mut paths: Vec<String> = body
        .split("<D:href>")
        .skip(1)
        .map(|rest| rest.split("</D:href>").next().unwrap().to_owned())
        .collect();
    paths.sort();
    paths
}

/// Body of a request for a lock.
const LOCK: &str = "<?xml version=\"1.0\"?><D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/>\
    </D:lockscope><D:locktype><D:write/></D:locktype></D:lockinfo>";

#[test]
fn records_are_files_and_their_keys_are_paths() {
    let folder = tempfile::tempdir().unwrap();
    for database in databases(folder.path()) {
        let server = start(database);
        let mut other = server.connect();
        other.exchange("set c/d/e 0 0 5\r\nvalue\r\n", "STORED\r\n");
        let mut client = server.connect();
        client.status("MKCOL /a/", "", "", 201);
        client.status("PUT /a/b%20c.txt", "Content-Type: text/x-own\r\n", "text", 201);
        assert_eq!(listed(&mut client, "/"), ["/", "/a/", "/c/"]);
        assert_eq!(listed(&mut client, "/a"), ["/a/", "/a/b%20c.txt"]);
        assert_eq!(listed(&mut client, "/c/d"), ["/c/d/", "/c/d/e"]);
        let (head, body) = client.request("GET /c/d/e", "", "");
        assert_eq!((&head[..13], &body[..]), ("HTTP/1.1 200 ", &b"value"[..]));
        let (head, body) = client.request("GET /a/b%20c.txt", "Range: bytes=1-2\r\n", "");
        assert_eq!((&head[..13], &body[..]), ("HTTP/1.1 206 ", &b"ex"[..]));
        assert!(head.to_lowercase().contains("content-type: text/x-own\r\n"), "{head}");
        client.status("MOVE /a/", "Destination: /z\r\n", "", 201);
        client.status("COPY /z/b%20c.txt", "Destination: /c/copy\r\n", "", 201);
        // The key contains a space, which memcached does not allow in a key; a target may contain
        // it.
        let mut plain = server.connect();
        let (head, body) = plain.request("GET /z/b%20c.txt", "", "");
        assert_eq!(body, b"text");
        assert!(head.contains("Content-Type: text/x-own\r\n"), "{head}");
        other.exchange("get c/copy\r\n", "VALUE c/copy 3347054592 4\r\ntext\r\nEND\r\n");
        client.status("DELETE /c", "", "", 204);
        other.exchange("get c/copy\r\nget c/d/e\r\n", "END\r\nEND\r\n");
        assert_eq!(listed(&mut client, "/"), ["/", "/z/"]);
    }
}

#[test]
fn requests_are_counted_by_their_methods() {
    let server = memory();
    let address = Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 };
    let monitor =
        Monitor::start(&address, ReadinessLimits::default(), HostNames::default()).unwrap();
    monitor.add("records", server.handle());
    let mut client = server.connect();
    client.status("MKCOL /a/", "", "", 201);
    client.status("PUT /a/b", "", "value", 201);
    client.status("GET /a/b", "", "", 200);
    client.status("PROPFIND /a/", "", "", 207);
    let deadline = Instant::now() + Duration::from_secs(120);
    let expected =
        [("webdav", "mkcol"), ("webdav", "put"), ("http", "get"), ("webdav", "propfind")].map(
            |(protocol, command)| format!("protocol=\"{protocol}\",command=\"{command}\"}} 1\n"),
        );
    loop {
        let stream = TcpStream::connect(monitor.local_addresses()[0]).unwrap();
        let mut metrics = Client::new(stream);
        metrics.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let text = String::from_utf8(metrics.read_to_end()).unwrap();
        // A response is counted when it has been sent.
        if expected.iter().all(|line| text.contains(line)) {
            assert!(text.contains("protocol=\"webdav\",class=\"list\""), "{text}");
            break;
        }
        assert!(Instant::now() < deadline, "{text}");
    }
}

#[test]
fn the_console_names_keys_and_respects_locks() {
    let server = memory();
    let address = Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 };
    let monitor =
        Monitor::start(&address, ReadinessLimits::default(), HostNames::default()).unwrap();
    monitor.add("records", server.handle());
    let ask = |line: &str, body: &str| {
        let mut client = Client::new(TcpStream::connect(monitor.local_addresses()[0]).unwrap());
        let length = body.len();
        let head = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nX-Tyrant-Console: 1\r\nContent-Length: {length}"
        );
        client.send(format!("{head}\r\n\r\n{body}").as_bytes());
        String::from_utf8(client.read_to_end()).unwrap()
    };
    let list = ask("GET /ui/databases", "");
    let id = list.split("\"id\":\"").nth(1).unwrap().split('"').next().unwrap();
    let record = |method: &str, key: &str| format!("{method} /ui/record?db={id}&key={key}");
    // Neither a folder nor a path from which `..` was taken out.
    for key in ["a%2F", "a%2F..%2Fb", "%2Fa", "a%2Bb"] {
        assert!(ask(&record("PUT", key), key).starts_with("HTTP/1.1 201 "), "{key}");
        assert!(ask(&record("GET", key), "").ends_with(key), "{key}");
        assert!(ask(&record("DELETE", key), "").starts_with("HTTP/1.1 200 "), "{key}");
    }
    let mut client = server.connect();
    client.status("PUT /k", "", "v", 201);
    client.status("LOCK /k", "Timeout: Second-100\r\n", LOCK, 200);
    for method in ["PUT", "DELETE"] {
        let response = ask(&record(method, "k"), "");
        assert!(response.starts_with("HTTP/1.1 423 "), "{response}");
    }
    assert!(ask(&record("GET", "k"), "").ends_with("\r\n\r\nv"));
}

#[test]
fn a_version_has_the_same_tag_in_both_protocols() {
    let server = memory();
    let (mut plain, mut client) = (server.connect(), server.connect());
    client.status("OPTIONS /", "", "", 200);
    let (head, _) = client.request("PUT /k", "", "one");
    let tag = Client::header(&head, "etag").unwrap();
    let (head, _) = plain.request("HEAD /k", "", "");
    assert_eq!(Client::header(&head, "etag"), Some(tag.clone()));
    client.status("PUT /k", &format!("If-Match: {tag}\r\n"), "two", 204);
    // The server closes a connection after a refusal.
    server.connect().status("PUT /k", &format!("If-Match: {tag}\r\n"), "three", 412);
    server.connect().status("PUT /k", "If-None-Match: *\r\n", "three", 412);
    let lines = format!("If-Match: \"x\"\r\nIf-Match: {tag}\r\n");
    server.connect().status("PUT /k", &lines, "three", 412);
    let (_, body) = plain.request("GET /k", "", "");
    assert_eq!(body, b"two");
}

#[test]
fn a_takeover_waits_for_earlier_responses() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("a.tch#durability=always").display().to_string();
    let server = start(Database::open(&name).unwrap());
    let mut client = server.connect();
    client.send(
        b"set k 0 0 1\r\nv\r\nget k\r\nMKCOL /a HTTP/1.1\r\nHost: localhost\r\n\r\nGET /k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    let reply = client.read_to_end();
    let start = b"STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\nHTTP/1.1 201 ";
    assert!(reply.starts_with(start), "{}", reply.escape_ascii());
    assert!(reply.ends_with(b"\r\n\r\nv"), "{}", reply.escape_ascii());
}

#[test]
fn unsent_responses_count_towards_the_memory_limit_after_a_takeover() {
    const VALUE_BYTES: usize = 16 << 20;
    let (output_bytes_max, buffer_bytes_max) = (4 * VALUE_BYTES, 5 * VALUE_BYTES);
    let config = Config { output_bytes_max, buffer_bytes_max, ..config() };
    let database = Database::open("*").unwrap();
    database.put(b"k", &vec![b'v'; VALUE_BYTES]).unwrap();
    let server = start_with(config, database);
    let requests =
        b"get k k k\r\nOPTIONS / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let (mut slow, mut other) = (server.connect(), server.connect());
    slow.send(requests);
    // The response starts once the connection has been taken over.
    assert_eq!(slow.read(6), b"VALUE ");
    other.send(requests);
    assert!(other.read_to_end().starts_with(b"SERVER_ERROR out of memory "));
    assert!(slow.read_to_end().len() > 3 * VALUE_BYTES);
    let mut next = server.connect();
    next.send(requests);
    assert!(next.read_to_end().len() > 3 * VALUE_BYTES);
}

#[test]
fn connections_without_webdav_methods_stay_plain_http() {
    let server = memory();
    let mut client = server.connect();
    client.exchange("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    let (head, _) = client.request("GET /k", "", "");
    assert!(head.contains("Accept-Ranges: bytes\r\n"), "{head}");
    client.status("PUT /k", "X-TT-XT: 1000\r\n", "w", 201);
    client.exchange("get k\r\n", "VALUE k 0 1\r\nw\r\nEND\r\n");
    let without = support::start_without(Database::open("*").unwrap());
    let mut client = without.connect();
    client.status("PROPFIND /", "", "", 405);
    client.exchange("get k\r\n", "END\r\n");
}

#[test]
fn a_lock_applies_to_all_http_requests() {
    let server = memory();
    let (mut client, mut other) = (server.connect(), server.connect());
    let (head, _) = client.request("LOCK /k", "Timeout: Second-100\r\n", LOCK);
    assert!(head.starts_with("HTTP/1.1 201 "), "{head}");
    let token = Client::header(&head, "lock-token").unwrap();
    let put = "X-TT-XT: 1000\r\n";
    server.connect().status("PUT /k", put, "v", 423);
    let line = r#"{"put":"k","value":"v"}"#;
    let (_, answer) = other.request("POST /", "Content-Type: application/x-ndjson\r\n", line);
    assert_eq!(answer, b"{\"key\":\"k\",\"error\":\"locked\"}\n");
    server.connect().status("PUT /k", "", "v", 423);
    server.connect().status("DELETE /k", "", "", 423);
    client.status("PUT /k", &format!("If: ({token})\r\n"), "v", 204);
    client.status("UNLOCK /k", &format!("Lock-Token: {token}\r\n"), "", 204);
    server.connect().status("PUT /k", put, "w", 201);
}

#[test]
fn properties_move_with_their_file_and_are_not_listed() {
    let folder = tempfile::tempdir().unwrap();
    for database in databases(folder.path()) {
        let server = start(database);
        let mut client = server.connect();
        client.status("MKCOL /a", "", "", 201);
        client.status("PUT /a/k", "", "v", 201);
        let set = |name: &str, value: &str| {
            format!(
                "<?xml version=\"1.0\"?><D:propertyupdate xmlns:D=\"DAV:\" xmlns:x=\"urn:x\"><D:set>\
                 <D:prop><x:{name}>{value}</x:{name}></D:prop></D:set></D:propertyupdate>"
            )
        };
        for path in ["/a/k", "/a/"] {
            let (head, body) =
                client.request(&format!("PROPPATCH {path}"), "", &set("mood", "glad"));
            assert!(head.starts_with("HTTP/1.1 207 "), "{head}");
            assert!(String::from_utf8(body).unwrap().contains("200 OK"));
        }
        let long = "x".repeat(60_000);
        for (number, status) in [(0, "200"), (1, "200"), (2, "200"), (3, "200"), (4, "507")] {
            let set = set(&format!("long{number}"), &long);
            let (_, body) = client.request("PROPPATCH /a/k", "", &set);
            assert!(String::from_utf8(body).unwrap().contains(&format!("HTTP/1.1 {status} ")));
        }
        // A folder and a file, with properties each.
        assert_eq!(server.records(), 4);
        client.status("MOVE /a", "Destination: /b\r\n", "", 201);
        assert_eq!(server.records(), 4);
        for path in ["/b/k", "/b/"] {
            let (_, body) = client.request(&format!("PROPFIND {path}"), "Depth: 0\r\n", "");
            assert!(String::from_utf8(body).unwrap().contains(">glad<"));
        }
        assert_eq!(listed(&mut client, "/"), ["/", "/b/"]);
        client.status("DELETE /b", "", "", 204);
        assert_eq!(server.records(), 0);
    }
}

#[test]
fn masked_commands_are_forbidden() {
    let mut mask = CommandMask::NONE;
    mask.mask("put,out".parse().unwrap());
    let server = start_with(Config { mask, ..config() }, Database::open("*").unwrap());
    let mut client = server.connect();
    client.status("OPTIONS /", "", "", 200);
    client.status("PUT /k", "", "v", 403);
    client.status("PROPFIND /", "Depth: 1\r\n", "", 207);
}

#[test]
fn a_partial_put_changes_a_part_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for database in databases(folder.path()) {
        let server = start(database);
        let mut client = server.connect();
        client.status("MKCOL /a", "", "", 201);
        client.status("PUT /a/k", "", "0123456789", 201);
        client.status("PUT /a/k", "Content-Range: bytes 3-4/10\r\n", "xy", 204);
        let (_, body) = client.request("GET /a/k", "", "");
        assert_eq!(body, b"012xy56789");
    }
}

#[test]
fn fixed_length_databases_serve_files() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(Database::open(&folder.path().join("a.tcf").display().to_string()).unwrap());
    let mut client = server.connect();
    client.status("PUT /1", "", "0123", 201);
    client.status("PUT /1", "Content-Range: bytes 1-2/4\r\n", "xy", 204);
    client.status("MOVE /1", "Destination: /2\r\n", "", 201);
    client.status("GET /1", "", "", 404);
    let set = "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop><x/></D:prop></D:set></D:propertyupdate>";
    client.status("PROPPATCH /2", "", set, 403);
    let (_, body) = client.request("GET /2", "", "");
    assert_eq!(body, b"0xy3");
    client.status("MOVE /2", "Destination: /name\r\n", "", 403);
    client.status("DELETE /2", "", "", 204);
}

#[test]
fn a_partial_change_keeps_the_type_and_time_of_a_file() {
    let server = memory();
    // A header with a time keeps the request from WebDAV.
    let put = "X-TT-XT: 4000000000\r\nContent-Type: image/png\r\n";
    server.connect().status("PUT /k", put, "0123456789", 201);
    let mut client = server.connect();
    client.status("OPTIONS /", "", "", 200);
    let change = "X-Update-Range: append\r\nContent-Type: application/x-sabredav-partialupdate\r\n";
    client.status("PATCH /k", change, "xy", 204);
    let (head, body) = server.connect().request("GET /k", "", "");
    assert_eq!(body, b"0123456789xy");
    assert!(head.contains("Content-Type: image/png\r\n"), "{head}");
    assert!(head.contains("X-TT-XT: 4000000000\r\n"), "{head}");
    let (new, typed) = ("Content-Range: bytes 0-1/2\r\n", "Content-Type: image/gif\r\n");
    client.status("PUT /new", &format!("{new}{typed}"), "xy", 201);
    client.status("PATCH /new", change, "z", 204);
    let (head, body) = client.request("GET /new", "", "");
    assert_eq!(
        (&body[..], Client::header(&head, "content-type")),
        (&b"xyz"[..], Some("image/gif".into()))
    );
}

#[test]
fn duplicates_are_removed_together_and_never_moved() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("a.tcb").display().to_string();
    let database = Database::open(&name).unwrap();
    for value in [b"1", b"2"] {
        database.put_duplicate(b"a/k", value, cabinet::Side::After).unwrap();
    }
    let server = start(database.clone());
    let mut client = server.connect();
    for path in ["/a", "/a/k"] {
        client.status(&format!("MOVE {path}"), "Destination: /b\r\n", "", 409);
    }
    assert_eq!(database.count(b"a/k").unwrap(), 2);
    client.status("DELETE /a/k", "", "", 204);
    assert_eq!(database.count(b"a/k").unwrap(), 0);
}

#[test]
fn parent_folders_must_exist_and_remain_when_empty() {
    let server = memory();
    let mut client = server.connect();
    client.status("MKCOL /a/b", "", "", 409);
    for request in ["MKCOL /a/b", "MOVE /none", "DELETE /none"] {
        let (head, body) = client.request(request, "Destination: /c/d\r\n", "");
        let body = String::from_utf8(body).unwrap();
        let expected = match head.split(' ').nth(1) {
            Some("409") => "the folder above the path is missing (MKCOL makes it), or a folder has",
            Some("404") => "Not Found",
            _ => panic!("{request}: {head}"),
        };
        assert!(body.starts_with(expected) && body.ends_with('\n'), "{request}: {head}{body}");
        assert_eq!(Client::header(&head, "content-type"), Some("text/plain".into()));
    }
    server.connect().status("PUT /a/b", "", "v", 409);
    server.connect().exchange("set a/b 0 0 1\r\nv\r\n", "STORED\r\n");
    client.status("MKCOL /a", "", "", 405);
    server.connect().status("PUT /a", "", "v", 409);
    client.status("DELETE /a/b", "", "", 204);
    assert_eq!(listed(&mut client, "/a"), ["/a/"]);
    client.status("MOVE /a", "Destination: /a/b\r\n", "", 403);
    client.status("PROPFIND /none", "Depth: 0\r\n", "", 404);
    client.status("PROPFIND /", "Depth: infinity\r\n", "", 207);
}

#[test]
fn an_oversized_folder_is_refused_instead_of_truncated() {
    let database = Database::open("+").unwrap();
    for number in 0..webdav::ENTRIES_MAX {
        database.put(format!("a/{number}").as_bytes(), b"").unwrap();
    }
    let server = start(database.clone());
    let mut client = server.connect();
    // The whole listing would take long.
    client.send(b"PROPFIND /a HTTP/1.1\r\nHost: localhost\r\nDepth: 1\r\n\r\n");
    assert_eq!(client.read_until(b"\r\n"), b"HTTP/1.1 207 Multi-Status\r\n");
    let mut client = server.connect();
    database.put(b"a/more", b"").unwrap();
    client.status("PROPFIND /a", "Depth: 1\r\n", "", 507);
    assert_eq!(listed(&mut client, "/"), ["/", "/a/"]);
}

#[test]
fn the_depth_of_folders_is_limited() {
    let database = Database::open("+").unwrap();
    let key = |parts: usize| vec!["a"; parts].join("/");
    let max = webdav::DEPTH_MAX;
    let server = start(database.clone());
    let mut client = server.connect();
    client.status("MKCOL /d", "", "", 201);
    database.put(key(max).as_bytes(), b"v").unwrap();
    client.status("COPY /a", "Destination: /b\r\n", "", 201);
    assert_eq!(
        database.get([b"b", &key(max).as_bytes()[1..]].concat().as_slice()).unwrap().as_deref(),
        Some(&b"v"[..])
    );
    client.status("MOVE /a", "Destination: /d/a\r\n", "", 414);
    client.status("MOVE /a", "Destination: /c\r\n", "", 201);
    client.status("DELETE /c", "", "", 204);
    client.status("DELETE /b", "", "", 204);
    // One part too many, and the longest key possible.
    for parts in [max + 1, 32 << 10] {
        database.put(key(parts).as_bytes(), b"v").unwrap();
        for line in ["COPY /a", "DELETE /a"] {
            let (head, body) = client.request(line, "Destination: /b\r\n", "");
            assert!(head.starts_with("HTTP/1.1 207 "), "{head}");
            assert!(String::from_utf8(body).unwrap().contains("HTTP/1.1 414 "));
        }
        client.status("DELETE /b", "", "", 204);
        assert_eq!(database.get(key(parts).as_bytes()).unwrap().as_deref(), Some(&b"v"[..]));
        server.connect().status(&format!("PUT /{}", key(max + 1)), "", "w", 414);
        database.clear().unwrap();
    }
}

#[test]
fn deeply_nested_documents_are_refused() {
    let server = memory();
    let mut client = server.connect();
    client.status("PUT /k", "", "v", 201);
    // The most levels that fit into a document.
    let levels = (64 << 10) / "<a>".len();
    for line in ["PROPFIND /k", "PROPPATCH /k", "LOCK /k"] {
        server.connect().status(line, "", &"<a>".repeat(levels), 400);
    }
    server.connect().status("PROPFIND /k", "", &" ".repeat((64 << 10) + 1), 413);
    client.status("PROPFIND /k", "Depth: 0\r\n", "", 207);
}

#[test]
fn changes_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    std::fs::create_dir(&log).unwrap();
    let settings = update_log::Settings::new(&log);
    let config = Config { update_log: Some(settings), server_id: 1, ..config() };
    let server = start_with(config, Database::open("*").unwrap());
    let mut client = server.connect();
    client.status("MKCOL /logged-folder", "", "", 201);
    client.status("PUT /logged-folder/file", "", "logged-value", 201);
    drop(server);
    let bytes: Vec<u8> = std::fs::read_dir(&log)
        .unwrap()
        .filter(|entry| {
            entry.as_ref().unwrap().path().extension().is_some_and(|kind| kind == "ulog")
        })
        .flat_map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    for text in ["logged-folder/", "logged-folder/file", "logged-value"] {
        assert!(bytes.windows(text.len()).any(|window| window == text.as_bytes()), "{text}");
    }
}

#[test]
fn a_server_stops_while_connections_are_open() {
    let server = memory();
    let mut client = server.connect();
    client.status("OPTIONS /", "", "", 200);
    client.send(b"PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf");
    drop(server);
    client.expect_close();
}

#[test]
fn every_request_must_authenticate() {
    let config = Config { users: Some(users(&[("Aladdin", "open sesame")])), ..config() };
    let server = start_with(config, Database::open("*").unwrap());
    let right = "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n";
    let wrong = "Authorization: Basic QWxhZGRpbjpzZXNhbWU=\r\n";
    for headers in ["", wrong] {
        server.connect().status("OPTIONS /", headers, "", 401);
        let mut client = server.connect();
        client.status("OPTIONS /", right, "", 200);
        let (head, _) = client.request("PROPFIND /", headers, "");
        assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
        assert!(Client::header(&head, "www-authenticate").unwrap().starts_with("Basic "));
        client.expect_close();
    }
}

/// A user of a prefix may not read the key of a file that would have the name of its folder.
#[test]
fn a_user_makes_the_folder_that_his_prefix_names_and_is_told_the_right_that_he_lacks() {
    let users = users_with(&[("Aladdin", &["read:docs/", "write:docs/"])]);
    let config = Config { users: Some(users), ..config() };
    let server = start_with(config, Database::open("+").unwrap());
    // base64 of NAME:secret
    let user = "Authorization: Basic QWxhZGRpbjpzZWNyZXQ=\r\n";
    server.connect().status("PUT /docs/f", user, "v", 409);
    server.connect().status("MKCOL /docs/", user, "", 201);
    server.connect().status("MKCOL /docs/", user, "", 405);
    server.connect().status("PUT /docs/f", user, "v", 201);
    for request in ["PROPFIND /docs", "MKCOL /mine/", "PUT /mine"] {
        let (head, body) = server.connect().request(request, user, "");
        assert!(head.starts_with("HTTP/1.1 403 "), "{request}: {head}");
        let body = String::from_utf8(body).unwrap();
        assert!(body.starts_with("the user lacks the right "), "{request}: {body}");
    }
}

#[test]
fn a_user_reaches_the_files_of_his_rights_only() {
    let rights: &[&str] = &["read:docs/", "write:docs/"];
    let users = users_with(&[("Aladdin", rights), ("root", &["read", "write"])]);
    let config = Config { users: Some(users), ..config() };
    let server = start_with(config, Database::open("+").unwrap());
    // base64 of NAME:secret
    let (user, root) = ("QWxhZGRpbjpzZWNyZXQ=", "cm9vdDpzZWNyZXQ=");
    let status = |user: &str, request: &str, headers: &str, body: &str, expected: u16| {
        let headers = format!("Authorization: Basic {user}\r\n{headers}");
        server.connect().status(request, &headers, body, expected);
    };
    let destination = |path: &str| format!("Destination: http://localhost{path}\r\n");
    status(root, "MKCOL /docs/", "", "", 201);
    status(root, "MKCOL /other/", "", "", 201);
    status(root, "PUT /other/a", "", "a", 201);
    status(user, "PUT /docs/a", "", "a", 201);
    status(user, "GET /docs/a", "", "", 200);
    status(user, "PROPFIND /docs/", "Depth: 1\r\n", "", 207);
    status(user, "MKCOL /docs/b/", "", "", 201);
    status(user, "COPY /docs/a", &destination("/docs/c"), "", 201);
    let patch = "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop><x xmlns=\"y\">1</x></D:prop>\
                 </D:set></D:propertyupdate>";
    let lock = "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:exclusive/></D:lockscope>\
                <D:locktype><D:write/></D:locktype></D:lockinfo>";
    status(user, "PROPPATCH /docs/a", "", patch, 207);
    for (request, headers, body) in [
        ("GET /other/a", "", ""),
        ("PUT /other/a", "", "b"),
        ("PUT /other/b", "", "b"),
        ("DELETE /other/a", "", ""),
        ("MKCOL /mine/", "", ""),
        ("PROPFIND /other/", "Depth: 1\r\n", ""),
        ("PROPPATCH /other/a", "", patch),
        ("LOCK /other/a", "", lock),
        ("COPY /other/a", &destination("/docs/d"), ""),
        ("MOVE /other/a", &destination("/docs/d"), ""),
    ] {
        status(user, request, headers, body, 403);
    }
    // The parent folder is none of his.
    status(user, "COPY /docs/a", &destination("/other/c"), "", 409);
    status(root, "GET /other/c", "", "", 404);
    status(root, "GET /other/a", "", "", 200);
    status(root, "GET /docs/d", "", "", 404);
    // The library shows a folder that cannot be listed as empty.
    let headers = format!("Authorization: Basic {user}\r\nDepth: 1\r\n");
    let (head, listed) = server.connect().request("PROPFIND /", &headers, "");
    assert!(head.starts_with("HTTP/1.1 207 ") || head.starts_with("HTTP/1.1 403 "), "{head}");
    let listed = String::from_utf8(listed).unwrap();
    assert!(!listed.contains("/other") && !listed.contains("/docs"), "{listed}");
}
