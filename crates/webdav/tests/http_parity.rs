//! Parity: a connection that has used WebDAV accepts and refuses the same as a new one.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use server::Config;
use support::{Client, Running, config, start, start_with, start_without, users};

fn memory() -> Running {
    start(Database::open("+").unwrap())
}

/// Returns a connection that has used WebDAV.
fn webdav_connection(server: &Running) -> Client {
    let mut client = server.connect();
    client.status("PROPFIND /", "Depth: 0\r\n", "", 207);
    client
}

/// Returns the status and body of a GET.
fn get(client: &mut Client, target: &str) -> (String, String) {
    let (head, body) = client.request(&format!("GET {target}"), "", "");
    (head[9..12].to_owned(), String::from_utf8(body).unwrap())
}

/// A request: its line, headers and body.
type Sent = (&'static str, &'static str, &'static str);

/// Requests of both front ends, which no other one of them changes the meaning of.
const REQUESTS: &[Sent] = &[
    ("GET /t.html", "", ""),
    ("GET /none", "", ""),
    ("GET /", "", ""),
    ("GET /?prefix=t", "", ""),
    ("GET /f/", "", ""),
    ("GET /f", "", ""),
    ("GET /a%2Fb", "", ""),
    ("GET /t.html", "Range: bytes=1-2\r\n", ""),
    ("GET /t.html", "Range: bytes=0-1,3-4\r\n", ""),
    ("GET /t.html", "Range: bytes=100-\r\n", ""),
    ("GET /t.html", "If-None-Match: *\r\n", ""),
    ("GET /t.html", "If-Match: \"x\"\r\n", ""),
    ("GET /t.html", "If-Range: \"x\"\r\nRange: bytes=0-1\r\n", ""),
    ("HEAD /t.html", "", ""),
    ("HEAD /none", "", ""),
    ("PUT /put.txt", "", "new"),
    ("PUT /put.txt", "If-None-Match: *\r\n", "new"),
    ("PUT /put.txt", "X-TT-PDMODE: 1\r\n", "new"),
    ("PUT /t.html", "Content-Range: bytes 0-1/15\r\n", "zz"),
    ("PUT /none/x", "", "no folder"),
    ("DELETE /out", "", ""),
    ("DELETE /none", "", ""),
    ("PATCH /t.html", "X-Update-Range: bytes=1-2\r\n", "zz"),
    (
        "PATCH /t.html",
        "X-Update-Range: bytes=1-2\r\nContent-Type: application/x-sabredav-partialupdate\r\n",
        "zz",
    ),
    ("POST /t.html", "", "x"),
    ("OPTIONS /", "", ""),
    ("OPTIONS *", "", ""),
    ("OPTIONS /a%2Fb", "", ""),
    ("TRACE /", "", ""),
    ("BREW /", "", ""),
    ("PROPFIND /f/", "Depth: 1\r\n", ""),
    ("PROPFIND /a%2Fb", "Depth: 0\r\n", ""),
    ("MKCOL /put.txt/", "", ""),
    ("COPY /t.html", "Destination: /put.txt\r\n", ""),
    ("MOVE /out", "Destination: /put.txt\r\n", ""),
];

/// Returns the response to a request, without what differs from moment to moment.
fn response(client: &mut Client, (line, headers, body): Sent) -> (String, Vec<u8>) {
    let (head, body) = client.request(line, headers, body);
    let moment = ["date:", "etag:"];
    let lines = head.lines().filter(|line| {
        let line = line.to_ascii_lowercase();
        !moment.iter().any(|name| line.starts_with(name))
    });
    let mut lines: Vec<&str> = lines.collect();
    lines[1..].sort_unstable();
    (lines.join("\n"), body)
}

#[test]
fn a_request_is_answered_alike_whatever_came_before_it() {
    let server = memory();
    let reset = || {
        for key in ["put.txt", "put.txt/"] {
            server.remove(key.as_bytes());
        }
        server.put(b"t.html", b"<p>hi there</p>");
        server.put(b"out", b"value");
    };
    server.put(b"f/x", b"value");
    for request in REQUESTS {
        reset();
        let expected = response(&mut server.connect(), *request);
        for before in REQUESTS {
            reset();
            let mut client = server.connect();
            let (head, _) = client.request(before.0, before.1, before.2);
            if Client::header(&head, "connection").is_some_and(|option| option == "close") {
                continue;
            }
            reset();
            let (head, body) = response(&mut client, *request);
            assert_eq!(head, expected.0, "{request:?} after {before:?}");
            assert!(body == expected.1, "{request:?} after {before:?}");
        }
    }
}

#[test]
fn a_client_that_has_ended_its_stream_gets_its_replies() {
    let server = memory();
    server.put(b"k", b"value");
    for requests in [&["PROPFIND /k"][..], &["GET /k"], &["PROPFIND /k", "GET /k", "PROPFIND /k"]] {
        let mut client = server.connect();
        for request in requests {
            client.send(format!("{request} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        }
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        let replies = String::from_utf8(client.read_to_end()).unwrap();
        let heads = ["HTTP/1.1 207 Multi-Status\r\n", "HTTP/1.1 200 OK\r\n"];
        let count: usize = heads.iter().map(|head| replies.matches(head).count()).sum();
        assert_eq!(count, requests.len(), "{replies}");
    }
}

#[test]
fn a_target_means_the_same_with_and_without_webdav() {
    let server = memory();
    for key in [
        "a+b", "a b", "a%b", "a?b", "a#b", "a/b", "a//b", "x=1", "\u{e4}", "a", "a&b;c", "a~b",
        "...", "http:", "%2F",
    ] {
        server.put(key.as_bytes(), format!("value of {key}").as_bytes());
    }
    for (target, key) in [
        ("/a+b", Some("a+b")),
        ("/a%2Bb", Some("a+b")),
        ("/a%20b", Some("a b")),
        ("/a%b", Some("a%b")),
        ("/a%25b", Some("a%b")),
        ("/a%3Fb", Some("a?b")),
        ("/a?b", Some("a")),
        ("/a/b?x=1&y=2", Some("a/b")),
        ("/a%23b", Some("a#b")),
        ("/a//b", Some("a/b")),
        ("//a///b", Some("a/b")),
        ("/./a/./b", Some("a/b")),
        ("/a/../a/b", Some("a/b")),
        ("/x/%2e%2E/a", Some("a")),
        ("/...", Some("...")),
        ("/x=1", Some("x=1")),
        ("/a&b;c", Some("a&b;c")),
        ("/a%7eb", Some("a~b")),
        ("/%c3%a4", Some("\u{e4}")),
        ("/\u{e4}", Some("\u{e4}")),
        ("/http:", Some("http:")),
        ("http://h/a", Some("a")),
        ("/%252F", Some("%2F")),
        ("/none", None),
        ("/A", None),
    ] {
        let expected = match key {
            Some(key) => ("200".to_owned(), format!("value of {key}")),
            None => ("404".to_owned(), get(&mut webdav_connection(&server), target).1),
        };
        assert_eq!(get(&mut webdav_connection(&server), target), expected, "{target}");
        let (status, body) = get(&mut server.connect(), target);
        assert_eq!(status, expected.0, "{target}");
        assert!(key.is_none() || body == expected.1, "{target}");
    }
    for target in ["/a%2Fb", "/a#b", "/..", "/a/../..", "/%00", "a"] {
        for mut client in [server.connect(), webdav_connection(&server)] {
            assert_eq!(get(&mut client, target).0, "400", "{target}");
        }
    }
    // Without WebDAV they mean the same as in Tokyo Tyrant.
    let plain = start_without(Database::open("+").unwrap());
    plain.put(b"a b?x//y", b"value");
    assert_eq!(get(&mut plain.connect(), "/a+b?x//y"), ("200".into(), "value".into()));
}

#[test]
fn a_query_does_not_change_the_listing_of_a_folder() {
    let server = memory();
    server.put(b"a/b", b"value");
    for target in ["/a/", "/a/?x=1", "//a/"] {
        let fresh = get(&mut server.connect(), target);
        assert_eq!(fresh.0, "200", "{target}");
        assert_eq!(get(&mut webdav_connection(&server), target), fresh, "{target}");
    }
}

#[test]
fn records_are_shared_between_webdav_and_plain_http() {
    let server = memory();
    let mut webdav = webdav_connection(&server);
    for (number, name) in ["a+b", "a%20b", "a?q", "x//y+z", "%c3%a4"].iter().enumerate() {
        let value = format!("{number}");
        if name.contains("//") {
            webdav.status("MKCOL /x", "", "", 201);
        }
        webdav.status(&format!("PUT /{name}"), "", &value, 201);
        assert_eq!(get(&mut server.connect(), &format!("/{name}")), ("200".into(), value));
        let keep = "X-TT-PDMODE: 1\r\n";
        server.connect().status(&format!("PUT /{name}"), keep, "other", 409);
        server.connect().status(&format!("DELETE /{name}"), "", "", 204);
        assert_eq!(get(&mut webdav, &format!("/{name}")).0, "404");
    }
}

#[test]
fn a_body_with_two_lengths_is_refused_and_later_bytes_are_ignored() {
    let server = memory();
    let length = "Content-Length: 5\r\n";
    let coding = "Transfer-Encoding: chunked\r\n";
    let smuggled = "0\r\n\r\nset k 0 0 1\r\nv\r\nPUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nv";
    for headers in [[length, coding], [coding, length], [length, "Content-Length: 6\r\n"]] {
        for mut client in [server.connect(), webdav_connection(&server)] {
            let head = format!("PUT /a HTTP/1.1\r\nHost: localhost\r\n{}\r\n", headers.concat());
            client.send(format!("{head}{smuggled}").as_bytes());
            let reply = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
            assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            let rest = String::from_utf8(client.read_to_end()).unwrap();
            assert!(!rest.contains("STORED") && !rest.contains("HTTP/1.1"), "{rest}");
        }
    }
    assert_eq!(server.records(), 0);
}

/// A page of another site, whose name may resolve to the server's address, reads and changes
/// nothing, whichever request the connection began with.
#[test]
fn requests_of_other_sites_are_refused() {
    let server = memory();
    server.put(b"k", b"value");
    let length = "Content-Length: 1\r\n";
    for (line, headers, expected) in [
        ("GET /k", "Host: evil.example:1978\r\n", 421),
        ("GET /", "Host: evil.example\r\n", 421),
        ("HEAD /k", "Host: evil.example\r\n", 421),
        ("OPTIONS /", "Host: evil.example\r\n", 421),
        ("PROPFIND /", "Host: evil.example\r\n", 421),
        ("PUT /k", &format!("Host: evil.example\r\n{length}"), 421),
        ("PUT /k", &format!("Host: localhost\r\nOrigin: http://evil.example\r\n{length}"), 403),
        ("PUT /k", &format!("Host: localhost\r\nOrigin: null\r\n{length}"), 403),
        ("POST /k", &format!("Host: localhost\r\nOrigin: http://localhost:1\r\n{length}"), 403),
        ("DELETE /k", "Host: localhost\r\nOrigin: http://evil.example\r\n", 403),
        ("MKCOL /f", "Host: localhost\r\nOrigin: http://evil.example\r\n", 403),
        ("PUT /k", "Host: localhost\r\nHost: evil.example\r\nContent-Length: 0\r\n", 400),
        ("GET /k", "", 400),
        ("GET /k", "Host: localhost\r\nOrigin: http://evil.example\r\n", 200),
        ("GET /k", "Host: [::1]:1978\r\n", 200),
        ("PUT /k", &format!("Host: localhost\r\nOrigin: https://localhost\r\n{length}"), 204),
    ] {
        for mut client in [server.connect(), webdav_connection(&server)] {
            let body = if headers.contains(length) { "x" } else { "" };
            client.send(format!("{line} HTTP/1.1\r\n{headers}\r\n{body}").as_bytes());
            let head = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
            let expected = if expected == 204 {
                "HTTP/1.1 20".into()
            } else {
                format!("HTTP/1.1 {expected} ")
            };
            assert!(head.starts_with(&expected), "{line} {headers} {head}");
        }
        let kept = get(&mut server.connect(), "/k").1;
        assert_eq!(kept == "value", expected != 204, "{line} {headers} {kept}");
    }
}

/// A question how much of an upload has arrived, and a body in a coding, are not the file.
#[test]
fn a_put_of_something_else_than_the_file_is_refused_and_the_file_stays() {
    let server = memory();
    server.put(b"k", b"value");
    for (headers, body, expected) in [
        ("Content-Range: bytes */6\r\n", "", 400),
        ("Content-Range: bytes */*\r\n", "", 400),
        ("Content-Range: bytes  */6\r\n", "abcdef", 400),
        ("Content-Range: bytes */6\r\nContent-Range: bytes 0-1/6\r\n", "ab", 400),
        ("Content-Encoding: gzip\r\n", "abc", 415),
        ("Content-Encoding: identity\r\nContent-Encoding: br\r\n", "abc", 415),
    ] {
        for mut client in [server.connect(), webdav_connection(&server)] {
            client.status("PUT /k", headers, body, expected);
        }
        assert_eq!(get(&mut server.connect(), "/k").1, "value", "{headers}");
    }
    for mut client in [server.connect(), webdav_connection(&server)] {
        client.status("PUT /k", "Content-Encoding: identity\r\n", "new", 204);
    }
}

/// A body is not received first.
#[test]
fn a_request_of_another_site_is_refused_at_its_head() {
    let server = memory();
    let expect = "Expect: 100-continue\r\n";
    for (method, bytes) in [("PUT", 30_000_000), ("PUT", 1000), ("POST", 200_000_000)] {
        for mut client in [server.connect(), webdav_connection(&server)] {
            let head = format!(
                "{method} /k HTTP/1.1\r\nHost: evil.example\r\n{expect}Content-Length: {bytes}\r\n\r\n"
            );
            client.send(head.as_bytes());
            let reply = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
            assert!(reply.starts_with("HTTP/1.1 421 "), "{reply}");
        }
    }
}

/// A browser sends any method, and any body. The first header ends the connection.
#[test]
fn a_method_of_memcached_does_not_make_the_body_commands() {
    let server = memory();
    for verb in ["version", "set", "gets", "mg", "ms", "mn", "flush_all", "stats", "x", "a.b"] {
        let mut client = server.connect();
        let body = "set pwned 0 0 1\r\nx\r\n";
        let head = "Host: evil.example:1978\r\nContent-Length: 20\r\nA: b";
        client.send(format!("{verb} / HTTP/1.1\r\n{head}\r\n\r\n{body}").as_bytes());
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        let reply = String::from_utf8(client.read_to_end()).unwrap();
        assert!(!reply.contains("STORED"), "{verb}: {reply}");
    }
    // The beginning of TLS and of STUN.
    for hello in [&b"\x16\x03\x01\x02\0"[..], b"\0\x03\0\x50\x21\x12\xa4\x42"] {
        let mut client = server.connect();
        client.send(&[hello, b"\r\nset pwned 0 0 1\r\nx\r\n"].concat());
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.read_to_end(), b"ERROR\r\n");
    }
    assert_eq!(server.records(), 0);
}

#[test]
fn a_destination_on_another_server_is_refused() {
    let server = memory();
    let mut client = webdav_connection(&server);
    client.status("PUT /a", "", "value", 201);
    for method in ["COPY", "MOVE"] {
        for foreign in ["http://b/c", "https://b:1/c", "http://localhost:81/c"] {
            let destination = format!("Destination: {foreign}\r\n");
            webdav_connection(&server).status(&format!("{method} /a"), &destination, "", 502);
        }
    }
    assert_eq!(server.records(), 1);
    client.status("COPY /a", "Destination: http://localhost:80/b+c\r\n", "", 201);
    assert_eq!(get(&mut server.connect(), "/b+c"), ("200".into(), "value".into()));
}

#[test]
fn responses_forbid_content_type_sniffing() {
    let server = memory();
    server.put(b"a/b", b"<script>");
    for mut client in [server.connect(), webdav_connection(&server)] {
        for line in ["GET /a/b", "HEAD /a/b", "GET /a/"] {
            let (head, _) = client.request(line, "", "");
            let sniffing = Client::header(&head, "X-Content-Type-Options");
            assert_eq!(sniffing.as_deref(), Some("nosniff"), "{line}: {head}");
        }
    }
}

#[test]
fn only_pages_are_kept_out_of_frames_of_other_sites() {
    let server = memory();
    for name in ["a/t.html", "a/t.xhtml", "a/t.png", "a/t"] {
        server.put(name.as_bytes(), b"value");
    }
    for mut client in [server.connect(), webdav_connection(&server)] {
        for (name, expected) in [
            ("t.html", Some("SAMEORIGIN")),
            ("t.xhtml", Some("SAMEORIGIN")),
            ("t.png", None),
            ("t", None),
        ] {
            for method in ["GET", "HEAD"] {
                let (head, _) = client.request(&format!("{method} /a/{name}"), "", "");
                let frames = Client::header(&head, "X-Frame-Options");
                assert_eq!(frames.as_deref(), expected, "{method} {name}: {head}");
                let policy = Client::header(&head, "Cross-Origin-Resource-Policy");
                assert_eq!(policy, None, "{method} {name}: {head}");
            }
        }
    }
}

#[test]
fn http_1_0_responses_declare_keep_alive_and_their_end() {
    let server = memory();
    server.put(b"a", b"value");
    let old =
        |line: &str, headers: &str| format!("{line} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n");
    let keep = "Connection: keep-alive\r\n";
    for mut client in [server.connect(), webdav_connection(&server)] {
        for _ in 0..2 {
            client.send(old("GET /a", keep).as_bytes());
            let head = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
            let connection = Client::header(&head, "connection");
            assert_eq!(connection.as_deref(), Some("keep-alive"), "{head}");
            client.expect("value");
        }
        client.send(old("GET /a", "").as_bytes());
        let reply = String::from_utf8(client.read_to_end()).unwrap();
        assert!(reply.ends_with("\r\n\r\nvalue") && !reply.contains("keep-alive"), "{reply}");
    }
    for headers in ["Depth: 1\r\n", &format!("Depth: 1\r\n{keep}")] {
        for mut client in [server.connect(), webdav_connection(&server)] {
            client.send(old("PROPFIND /", headers).as_bytes());
            let reply = String::from_utf8(client.read_to_end()).unwrap();
            assert!(reply.trim_end().ends_with("</D:multistatus>"), "{reply}");
            assert!(!reply.to_lowercase().contains("chunked"), "{reply}");
            assert!(!reply.to_lowercase().contains("keep-alive"), "{reply}");
        }
    }
}

#[test]
fn password_guesses_are_throttled_but_admitted_connections_are_not() {
    let users = users(&[("ann", "secret")]);
    let server =
        start_with(Config { users: Some(users), ..config() }, Database::open("+").unwrap());
    let right = "Depth: 0\r\nAuthorization: Basic YW5uOnNlY3JldA==\r\n";
    let wrong = |number: u8| {
        let mut credentials = Vec::new();
        wire::base64::encode(&mut credentials, format!("ann:other {number}").as_bytes());
        let credentials = String::from_utf8(credentials).unwrap();
        format!("Depth: 0\r\nAuthorization: Basic {credentials}\r\n")
    };
    let mut admitted = server.connect();
    admitted.status("PROPFIND /", right, "", 207);
    // A request without a user name does not count as a guess.
    for _ in 0..10 {
        server.connect().status("PROPFIND /", "Depth: 0\r\n", "", 401);
    }
    for number in 0..5 {
        let mut guesser = server.connect();
        guesser.status("PROPFIND /", &wrong(number), "", 401);
        guesser.expect_close();
    }
    // This head is checked before the connection is taken over.
    for headers in [right, &wrong(5)] {
        let (head, _) = server.connect().request("PROPFIND /", headers, "");
        assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
        assert!(Client::header(&head, "retry-after").is_some(), "{head}");
    }
    admitted.status("PROPFIND /", right, "", 207);
    let (head, _) = admitted.request("PROPFIND /", &wrong(6), "");
    assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
    assert!(Client::header(&head, "retry-after").is_some(), "{head}");
}
