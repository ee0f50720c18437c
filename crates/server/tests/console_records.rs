//! Console: records, which the handlers of HTTP answer, for whom, and what a hostile request gets.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use server::{ClientPaths, Config, Endpoint, MONITOR_RELAYS_MAX};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{
    Client, Monitored, NAME, Running, config, hash, logging, memory, run, start, start_with, table,
    users, users_with, wait_until,
};

/// Header of a change.
const CHANGE: &str = "X-Tyrant-Console: 1\r\n";

/// Credentials of ann, with the password `secret`.
const ANN: &str = "Authorization: Basic YW5uOnNlY3JldA==\r\n";

/// Longest value that the page asks for, in bytes.
const SHOWN_BYTES: usize = 64 << 10;

/// Returns the value of a header.
fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")))
}

fn status(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}

/// Returns the id by which the console names the database.
fn id(console: &Monitored) -> String {
    let (_, list) = console.get("/ui/databases", "");
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list[0]["name"], NAME);
    list[0]["id"].as_str().unwrap().to_owned()
}

/// A server and a console of it, with the id of the database.
struct Console {
    server: Running,
    console: Monitored,
    id: String,
}

impl Console {
    fn new(server: Running) -> Self {
        let console = Monitored::new(&server);
        let id = id(&console);
        Self { server, console, id }
    }

    fn memory() -> Self {
        Self::new(start(memory()))
    }

    fn record(&self, key: &str) -> String {
        format!("/ui/record?db={}&key={key}", self.id)
    }

    fn ask(&self, line: &str, headers: &str, body: &[u8]) -> (String, Vec<u8>) {
        let length = body.len();
        let head = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        self.console.ask([head.as_bytes(), body].concat())
    }

    fn get(&self, key: &str, headers: &str) -> (String, Vec<u8>) {
        self.ask(&format!("GET {}", self.record(key)), headers, b"")
    }

    fn put(&self, key: &str, headers: &str, value: &[u8]) -> String {
        let line = format!("PUT {}", self.record(key));
        self.ask(&line, &format!("{CHANGE}{headers}"), value).0
    }

    fn delete(&self, key: &str, headers: &str) -> String {
        let line = format!("DELETE {}", self.record(key));
        self.ask(&line, &format!("{CHANGE}{headers}"), b"").0
    }

    fn call(&self, function: &str, headers: &str, form: &str) -> (String, Vec<u8>) {
        let line = format!("POST /ui/call?db={}&name={function}", self.id);
        self.ask(&line, &format!("{CHANGE}{headers}"), form.as_bytes())
    }

    fn keys(&self, query: &str, headers: &str) -> (String, String) {
        let line = format!("GET /ui/keys?db={}{query}", self.id);
        let (head, body) = self.ask(&line, headers, b"");
        (head, String::from_utf8(body).unwrap())
    }
}

#[test]
fn a_record_is_stored_read_changed_and_removed_by_its_version() {
    let console = Console::memory();
    let headers = "If-None-Match: *\r\nContent-Type: text/plain\r\nX-TT-XT: 1000\r\n";
    let head = console.put("a%20b%2Fc", headers, b"value");
    assert_eq!(status(&head), "201");
    assert_eq!(status(&console.put("a%20b%2Fc", headers, b"other")), "412");
    console.server.connect().exchange("mg a\\x20 v\r\n", "EN\r\n");
    let (head, value) = console.get("a%20b%2Fc", "Range: bytes=0-65535\r\n");
    assert_eq!((status(&head), &*value), ("206", &b"value"[..]));
    assert_eq!(header(&head, "Content-Range"), Some("bytes 0-4/5"));
    assert_eq!(header(&head, "X-Tyrant-Type"), Some("text/plain"));
    assert!(header(&head, "X-TT-XT").is_some(), "{head}");
    let tag = header(&head, "ETag").unwrap().to_owned();
    let matching = format!("If-Match: {tag}\r\n");
    assert_eq!(status(&console.put("a%20b%2Fc", &matching, b"new")), "201");
    assert_eq!(status(&console.put("a%20b%2Fc", &matching, b"newer")), "412");
    assert_eq!(status(&console.delete("a%20b%2Fc", &matching)), "412");
    let (head, value) = console.get("a%20b%2Fc", "");
    assert_eq!(value, b"new");
    let matching = format!("If-Match: {}\r\n", header(&head, "ETag").unwrap());
    assert_eq!(status(&console.delete("a%20b%2Fc", &matching)), "200");
    assert_eq!(status(&console.get("a%20b%2Fc", "").0), "404");
    let line = format!("HEAD {}", console.record("a"));
    let (head, body) = console.ask(&line, "", b"");
    assert_eq!((status(&head), body.len()), ("404", 0));
}

#[test]
fn every_byte_may_be_in_a_key_and_a_value() {
    let console = Console::memory();
    let value: Vec<u8> = (0..=255).collect();
    let key: String = (1..=255).map(|byte| format!("%{byte:02X}")).collect();
    assert_eq!(status(&console.put(&key, "", &value)), "201");
    assert_eq!(console.get(&key, "").1, value);
    for key in ["..", "%2e%2e", "/", "//", "a/../b", "%3Flist", "http%3A%2F%2Fa%2Fb", "%252e", "*"]
    {
        assert_eq!(status(&console.put(key, "", key.as_bytes())), "201", "{key}");
    }
    for key in ["/", "//", "a/../b", "%3Flist", "http%3A%2F%2Fa%2Fb", "%252e", "*"] {
        assert_eq!(console.get(key, "").1, key.as_bytes(), "{key}");
    }
    // The second one is the same key.
    assert_eq!(console.get("..", "").1, b"%2e%2e");
    let longest = "%FF".repeat(64 << 10);
    assert_eq!(status(&console.put(&longest, "", b"long")), "201");
    assert_eq!(console.get(&longest, "").1, b"long");
    assert_eq!(status(&console.get(&format!("{longest}a"), "").0), "413");
    assert_eq!(status(&console.put(&format!("{longest}a"), "", b"")), "413");
}

#[test]
fn keys_are_listed_in_pages_by_their_prefix() {
    let console = Console::new(start(support::memory_tree()));
    for number in 0..250 {
        console.put(&format!("a{number:03}"), "", b"");
    }
    console.put("b%FF", "", b"");
    let mut after = String::new();
    let mut sizes = Vec::new();
    loop {
        let (head, body) = console.keys(&format!("&prefix=a&limit=100{after}"), "");
        assert_eq!(status(&head), "200");
        assert_eq!(header(&head, "Content-Type"), Some("application/json"));
        let page: serde_json::Value = serde_json::from_str(&body).unwrap();
        sizes.push(page["keys"].as_array().unwrap().len());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(sizes, [100, 100, 50]);
    let (_, body) = console.keys("&prefix=b", "");
    assert_eq!(body, r#"{"keys":[{"base64":"Yv8="}],"next":null}"#);
}

#[test]
fn flags_of_other_clients_survive_a_change() {
    let console = Console::memory();
    console.server.connect().exchange("set k 5 0 1\r\na\r\n", "STORED\r\n");
    let (head, _) = console.get("k", "");
    assert_eq!(header(&head, "X-TT-FLAGS"), Some("5"));
    assert_eq!(status(&console.put("k", "X-TT-FLAGS: 5\r\n", b"b")), "201");
    console.server.connect().exchange("get k\r\n", "VALUE k 5 1\r\nb\r\nEND\r\n");
    for flags in ["-1", "4294967296", "x", ""] {
        assert_eq!(status(&console.put("k", &format!("X-TT-FLAGS: {flags}\r\n"), b"c")), "400");
    }
    // Flags of a type, and none, survive as they are, too.
    console.put("t", "Content-Type: text/html\r\n", b"b");
    console.server.connect().exchange("set t.html 0 0 1\r\na\r\n", "STORED\r\n");
    for key in ["t", "t.html"] {
        let (head, _) = console.get(key, "");
        let flags = header(&head, "X-TT-FLAGS").unwrap().to_owned();
        let media_type = header(&head, "X-Tyrant-Type").map(str::to_owned);
        assert_eq!(status(&console.put(key, &format!("X-TT-FLAGS: {flags}\r\n"), b"c")), "201");
        let (head, _) = console.get(key, "");
        assert_eq!(header(&head, "X-TT-FLAGS"), Some(&*flags));
        assert_eq!(header(&head, "X-Tyrant-Type").map(str::to_owned), media_type);
    }
    console.server.connect().exchange("get t.html\r\n", "VALUE t.html 0 1\r\nc\r\nEND\r\n");
}

#[test]
fn functions_of_misc_touch_check_and_sync() {
    let folder = tempfile::tempdir().unwrap();
    let console = Console::new(start(hash(folder.path())));
    console.put("k", "", b"v");
    let (head, _) = console.call("touch", "", "key=k&seconds=1000");
    assert_eq!(status(&head), "200");
    assert!(header(&console.get("k", "").0, "X-TT-XT").is_some());
    assert_eq!(status(&console.call("touch", "", "key=none&seconds=1000").0), "500");
    assert_eq!(status(&console.call("sync", "", "").0), "200");
    let (head, body) = console.call("check", "", "a=state");
    assert_eq!(status(&head), "200");
    assert!(body.starts_with(b"res1=run&"), "{}", body.escape_ascii());
    assert_eq!(status(&console.call("nonsense", "", "").0), "500");
}

#[test]
fn a_long_value_passes_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let console = Console::new(start(hash(folder.path())));
    let value: Vec<u8> = (0..20_000_000_u32).map(|number| (number / 251) as u8).collect();
    assert_eq!(status(&console.put("long", "", &value)), "201");
    let (head, part) = console.get("long", &format!("Range: bytes=0-{}\r\n", SHOWN_BYTES - 1));
    assert_eq!(status(&head), "206");
    assert_eq!(part, &value[..SHOWN_BYTES]);
    assert_eq!(header(&head, "Content-Range"), Some("bytes 0-65535/20000000"));
    let (head, all) = console.get("long", "");
    assert_eq!(status(&head), "200");
    assert!(all == value, "{} bytes", all.len());
}

#[test]
fn a_value_is_never_a_page() {
    let console = Console::memory();
    let value = b"<script>alert(1)</script>";
    for media_type in
        ["text/html", "image/svg+xml", "application/xhtml+xml", "text/javascript", "image/png"]
    {
        console.put("k", &format!("Content-Type: {media_type}\r\n"), value);
        for query in ["", "&as=image/png", "&as=image/gif"] {
            let line = format!("GET {}{query}", console.record("k"));
            let (head, body) = console.ask(&line, "", b"");
            assert_eq!((status(&head), &*body), ("200", &value[..]));
            let shown = query.strip_prefix("&as=").unwrap_or("application/octet-stream");
            assert_eq!(header(&head, "Content-Type"), Some(shown), "{media_type}");
            assert_eq!(header(&head, "X-Tyrant-Type"), Some(media_type));
            for (name, value) in [
                ("Content-Disposition", "attachment"),
                ("X-Content-Type-Options", "nosniff"),
                ("Cross-Origin-Resource-Policy", "same-origin"),
                ("X-Frame-Options", "DENY"),
                ("Cache-Control", "no-store"),
                ("Referrer-Policy", "no-referrer"),
            ] {
                assert_eq!(header(&head, name), Some(value), "{media_type}");
            }
            let policy = header(&head, "Content-Security-Policy").unwrap();
            assert!(policy.contains("default-src 'none'") && policy.contains("sandbox"));
        }
    }
    for shown in ["text/html", "image/svg+xml", "application/pdf", "", "image/png%0d%0aA:%20b"] {
        let line = format!("GET {}&as={shown}", console.record("k"));
        assert_eq!(status(&console.ask(&line, "", b"").0), "400", "{shown}");
    }
}

#[test]
fn hostile_requests_change_and_read_nothing() {
    let console = Console::memory();
    console.put("k", "", b"secret");
    let (id, record) = (&console.id, console.record("k"));
    let own = "Host: localhost\r\n";
    let change = "Host: localhost\r\nX-Tyrant-Console: 1\r\n";
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let path = |path: &str| format!("GET {path}?db={id}&key=k");
    let cases: Vec<(String, String, &str)> = vec![
        // A name that resolves to this machine.
        (format!("GET {record}"), "Host: evil.example\r\n".into(), "421"),
        (format!("GET {record}"), "Host: localhost.evil.example\r\n".into(), "421"),
        (format!("DELETE {record}"), format!("Host: evil.example\r\n{CHANGE}"), "421"),
        (format!("GET {record}"), format!("{own}{own}"), "400"),
        (format!("GET {record}"), "Host: localhost\r\nHost: evil.example\r\n".into(), "400"),
        (format!("GET {record}"), String::new(), "400"),
        // A page of another site.
        (format!("DELETE {record}"), format!("{change}Origin: https://evil.example\r\n"), "403"),
        (format!("DELETE {record}"), format!("{change}Origin: null\r\n"), "403"),
        (format!("DELETE {record}"), format!("{change}Origin: http://localhost:3000\r\n"), "403"),
        (format!("DELETE {record}"), format!("{change}Sec-Fetch-Site: cross-site\r\n"), "403"),
        (format!("DELETE {record}"), format!("{change}Sec-Fetch-Site: same-site\r\n"), "403"),
        (format!("DELETE {record}"), format!("{change}Sec-Fetch-Site: none\r\n"), "403"),
        (format!("GET {record}"), format!("{own}Sec-Fetch-Site: cross-site\r\n"), "403"),
        (format!("GET {record}"), format!("{own}Sec-Fetch-Site: same-site\r\n"), "403"),
        ("GET /ui/databases".into(), format!("{own}Sec-Fetch-Site: cross-site\r\n"), "403"),
        (format!("GET /ui/keys?db={id}"), format!("{own}Sec-Fetch-Site: cross-site\r\n"), "403"),
        // A form, which has no such header.
        (format!("POST /ui/call?db={id}&name=vanish"), format!("{own}{form}"), "403"),
        (format!("DELETE {record}"), own.into(), "403"),
        (format!("DELETE {record}"), format!("{own}X-Tyrant-Console: 0\r\n"), "403"),
        (format!("PUT {record}"), own.into(), "403"),
        // Methods that are not those of the path.
        (format!("POST {record}"), change.into(), "405"),
        (format!("OPTIONS {record}"), change.into(), "405"),
        (format!("PROPFIND {record}"), change.into(), "405"),
        (format!("DELETE /ui/keys?db={id}"), change.into(), "405"),
        (format!("GET /ui/call?db={id}&name=vanish"), change.into(), "405"),
        ("PUT /ui/databases".into(), change.into(), "405"),
        ("POST /ui/".into(), change.into(), "405"),
        // Other paths to the same.
        (path("/ui/../ui/record"), own.into(), "404"),
        (path("/ui/./record"), own.into(), "404"),
        (path("/ui//record"), own.into(), "404"),
        (path("/ui/%72ecord"), own.into(), "404"),
        (path("/ui/%2e%2e/ui/record"), own.into(), "404"),
        (path("/ui/%252e%252e/ui/record"), own.into(), "404"),
        (path("/ui/record%00"), own.into(), "404"),
        (path("/ui/record/"), own.into(), "404"),
        (path("/UI/record"), own.into(), "404"),
        (path("http://localhost/ui/record"), own.into(), "404"),
        // Parameters.
        (format!("GET /ui/record?db={id}"), own.into(), "400"),
        (format!("GET /ui/record?db={id}&key=k&x=1"), own.into(), "400"),
        ("GET /ui/record?db=0&key=k".into(), own.into(), "404"),
        (format!("GET /ui/record?db=..%2F{id}&key=k"), own.into(), "404"),
        ("GET /ui/record?key=k".into(), own.into(), "404"),
        (format!("GET /ui/keys?db={id}&limit=0"), own.into(), "400"),
        (format!("GET /ui/keys?db={id}&limit=10001"), own.into(), "400"),
        (format!("POST /ui/call?db={id}&name=a%0d%0aX-TT-XNAME:%20b"), change.into(), "400"),
        (format!("POST /ui/call?db={id}"), change.into(), "400"),
        // Bodies with two possible ends, or none.
        (
            format!("PUT {record}"),
            format!("{change}Content-Length: 1\r\nContent-Length: 2\r\n"),
            "400",
        ),
        (
            format!("PUT {record}"),
            format!("{change}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
            "400",
        ),
        (format!("PUT {record}"), format!("{change}Transfer-Encoding: chunked\r\n"), "501"),
        (format!("DELETE {record}"), format!("{change}Content-Length: 5\r\n"), "400"),
        (format!("PUT {record}"), format!("{change}Content-Length: 99999999999\r\n"), "413"),
        // The server's own records.
        (format!("GET /ui/record?db={id}&key=%00tyrant%20x"), own.into(), "403"),
        (format!("DELETE /ui/record?db={id}&key=%00tyrant%20x"), change.into(), "403"),
        // A proxy hides who asks, and there are no users.
        (format!("GET {record}"), format!("{own}X-Forwarded-For: 192.0.2.1\r\n"), "403"),
        (format!("GET {record}"), format!("{own}Forwarded: for=192.0.2.1\r\n"), "403"),
        (format!("GET {record}"), format!("{own}Via: 1.1 proxy\r\n"), "403"),
        (format!("GET {record}"), format!("{own}X-Forwarded-Host: example.org\r\n"), "403"),
        // Parts of a value, and encoded ones, are refused as at the port.
        (
            format!("PUT {record}"),
            format!("{change}Content-Range: bytes 0-0/9\r\nContent-Length: 0\r\n"),
            "400",
        ),
        (
            format!("PUT {record}"),
            format!("{change}Content-Encoding: gzip\r\nContent-Length: 0\r\n"),
            "415",
        ),
    ];
    for (line, headers, expected) in &cases {
        let request = format!("{line} HTTP/1.1\r\n{headers}\r\n");
        let (head, body) = console.console.ask(&request);
        assert_eq!(status(&head), *expected, "{request} {head}");
        assert!(!body.windows(6).any(|part| part == b"secret"), "{request}");
        for (name, value) in [("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY")] {
            assert_eq!(header(&head, name), Some(value), "{request}");
        }
        let policy = header(&head, "Content-Security-Policy").unwrap();
        assert!(policy.contains("frame-ancestors 'none'"), "{request}");
    }
    // The bodies are not requests, and the record is as it was.
    assert_eq!(console.get("k", "").1, b"secret");
    let own_site = "Sec-Fetch-Site: same-origin\r\nOrigin: http://localhost\r\n";
    assert_eq!(status(&console.put("k", own_site, b"new")), "201");
    assert_eq!(status(&console.get("k", "Sec-Fetch-Site: none\r\n").0), "200");
}

#[test]
fn a_body_over_the_limit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { upload_bytes_max: 2 << 20, ..config() };
    let console = Console::new(start_with(config, hash(folder.path())));
    assert_eq!(status(&console.put("k", "", &vec![b'a'; 2 << 20])), "201");
    assert_eq!(status(&console.put("k", "", &vec![b'a'; (2 << 20) + 1])), "413");
    assert_eq!(status(&console.put("k", "", &vec![b'a'; 8 << 20])), "413");
    assert_eq!(console.get("k", "").1.len(), 2 << 20);
}

#[test]
fn requests_about_records_leave_connections_for_metrics() {
    let console = Console::memory();
    console.put("k", "", b"v");
    let begin = |_| {
        let mut client = console.console.connect();
        let line = format!("PUT {}", console.record("long"));
        let head =
            format!("{line} HTTP/1.1\r\nHost: localhost\r\n{CHANGE}Content-Length: 9\r\n\r\n");
        client.send(head.as_bytes());
        client
    };
    let get = || status(&console.get("k", "").0).to_owned();
    let await_requests = |count: usize| {
        let is_it = |connections: f64| (connections - count as f64).abs() < 0.5;
        console.console.await_value("tyrant_connections", &[], is_it);
    };
    await_requests(0);
    let mut begun: Vec<_> = (1..MONITOR_RELAYS_MAX).map(begin).collect();
    await_requests(begun.len());
    assert_eq!(get(), "200");
    await_requests(begun.len());
    begun.push(begin(0));
    await_requests(begun.len());
    assert_eq!(get(), "503");
    console.console.expect("/metrics", "200 OK");
    let first = &mut begun[0];
    first.send(b"long body");
    assert!(first.read_to_end().starts_with(b"HTTP/1.1 201 "));
    wait_until(|| get() == "200");
    assert_eq!(console.get("long", "").1, b"long body");
}

#[test]
fn users_log_in_and_see_the_records_of_their_rights() {
    let rights: &[(&str, &[&str])] =
        &[("ann", &["read:a:", "write:a:w"]), ("bob", &["read", "write", "admin"])];
    let console =
        Console::new(start_with(Config { users: Some(users_with(rights)), ..config() }, memory()));
    let bob = "Authorization: Basic Ym9iOnNlY3JldA==\r\n";
    for key in ["a:1", "b:1"] {
        assert_eq!(status(&console.put(key, bob, b"value")), "201");
    }
    for (headers, expected) in [
        ("", "401"),
        ("Authorization: Basic YW5uOm90aGVy\r\n", "401"),
        ("Authorization: Bearer x\r\n", "401"),
        ("Cookie: user=bob\r\n", "401"),
    ] {
        let (head, body) = console.get("a:1", headers);
        assert_eq!(status(&head), expected, "{headers}");
        assert_eq!(body, b"Unauthorized\n");
        let challenge = header(&head, "WWW-Authenticate").unwrap();
        assert!(challenge.starts_with("Basic realm="), "{head}");
        assert_eq!(status(&console.keys("", headers).0), "401");
        assert_eq!(status(&console.put("a:1", headers, b"")), "401");
        assert_eq!(status(&console.call("vanish", headers, "").0), "401");
    }
    assert_eq!(console.get("a:1", ANN).1, b"value");
    assert_eq!(status(&console.get("b:1", ANN).0), "403");
    assert_eq!(status(&console.keys("", ANN).0), "403");
    assert_eq!(status(&console.keys("&prefix=b", ANN).0), "403");
    assert_eq!(console.keys("&prefix=a:", ANN).1, r#"{"keys":["a:1"],"next":null}"#);
    assert_eq!(status(&console.put("a:1", ANN, b"")), "403");
    assert_eq!(status(&console.put("a:w", ANN, b"")), "201");
    assert_eq!(status(&console.delete("b:1", ANN)), "403");
    for function in ["vanish", "check", "optimize", "reload"] {
        assert_ne!(status(&console.call(function, ANN, "a=state").0), "200", "{function}");
    }
    // A proxy may pass on the requests of users. The metrics need none.
    assert_eq!(status(&console.get("a:1", &format!("{ANN}Via: 1.1 proxy\r\n")).0), "200");
    console.console.expect("/metrics", "200 OK");
    assert_eq!(console.get("b:1", bob).1, b"value");
}

/// Header of a browser after a logout: "logout:-".
const NO_USER: &str = "Authorization: Basic bG9nb3V0Oi0=\r\n";

/// Returns headers of wrong passwords: "ann:guess0" and so on.
fn guesses() -> impl Iterator<Item = String> {
    let ends = ["MA", "MQ", "Mg", "Mw", "NA", "NQ", "Ng", "Nw"];
    ends.into_iter().map(|end| format!("Authorization: Basic YW5uOmd1ZXNz{end}==\r\n"))
}

#[test]
fn guesses_of_a_password_have_to_wait() {
    let users = Some(users(&[("ann", "secret")]));
    let console = Console::new(start_with(Config { users, ..config() }, memory()));
    let mut last = String::new();
    for header in guesses() {
        last = console.get("k", &header).0;
    }
    assert_eq!(status(&last), "429");
    assert!(header(&last, "Retry-After").is_some(), "{last}");
}

#[test]
fn guesses_of_a_password_have_to_wait_for_changes_too() {
    let folder = tempfile::tempdir().unwrap();
    let users = Some(users(&[("ann", "secret")]));
    let config = Config { users, ..logging(1, folder.path()) };
    let console = Console::new(start_with(config, memory()));
    let path = format!("GET /ui/changes?db={}", console.id);
    // The name after a logout does not count as a guess.
    for _ in 0..20 {
        let (head, _) = console.ask(&path, NO_USER, b"");
        assert_eq!(status(&head), "401");
    }
    let mut found = Vec::new();
    for header in guesses() {
        found.push(status(&console.ask(&path, &header, b"").0).to_owned());
    }
    assert_eq!(found[0], "401");
    assert_eq!(found.last().unwrap(), "429");
}

#[test]
fn changes_that_are_not_sent_have_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { mask: "repl".parse().unwrap(), ..logging(1, folder.path()) };
    let console = Console::new(start_with(config, memory()));
    let (head, body) = console.ask(&format!("GET /ui/changes?db={}", console.id), "", b"");
    assert_eq!(status(&head), "403");
    let body = String::from_utf8(body).unwrap();
    assert!(body.contains("the server masks repl"), "{body}");
}

#[test]
fn a_database_at_a_unix_socket_alone_has_no_records_on_a_port() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = |name: &str| Endpoint::Unix(folder.path().join(name));
    let listen = vec![endpoint("data.sock")];
    let server = run(server::Server::bind(Config { listen, ..config() }, memory()).unwrap());
    let console = Console::new(server);
    let (head, body) = console.get("k", "");
    assert_eq!(status(&head), "403");
    assert!(body.starts_with(b"it is served at a Unix socket alone"), "{}", body.escape_ascii());
    let (limits, hosts) = (server::ReadinessLimits::default(), server::HostNames::default());
    let monitor = server::Monitor::start(&endpoint("admin.sock"), limits, hosts).unwrap();
    monitor.add(NAME, server::Handle::clone(&console.server.handle));
    let mut client = UnixStream::connect(folder.path().join("admin.sock")).unwrap();
    let request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", console.record("k"));
    client.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert_eq!(status(&response), "404", "{response}");
}

#[test]
fn a_row_of_a_table_is_its_columns() {
    let folder = tempfile::tempdir().unwrap();
    let console = Console::new(start(table(folder.path())));
    assert_eq!(status(&console.put("row", "", b"name\0Ann\0age\x0042")), "201");
    assert_eq!(console.get("row", "").1, b"name\0Ann\0age\x0042");
    assert_eq!(status(&console.put("row", "", b"name\0Ann\0age")), "400");
}

#[test]
fn a_server_that_has_ended_has_no_records() {
    let mut console = Console::memory();
    let other = Console::memory();
    console.server = other.server;
    let (head, _) = console.get("k", "");
    assert_eq!(status(&head), "503");
}

#[test]
fn slow_readers_do_not_stop_others() {
    let folder = tempfile::tempdir().unwrap();
    let console = Console::new(start(hash(folder.path())));
    assert_eq!(status(&console.put("long", "", &vec![b'a'; 24 << 20])), "201");
    assert_eq!(status(&console.put("k", "", b"v")), "201");
    let (is_over, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..MONITOR_RELAYS_MAX {
            let mut socket =
                TcpStream::connect(console.console.monitor.local_addresses()[0]).unwrap();
            let request =
                format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", console.record("long"));
            socket.write_all(request.as_bytes()).unwrap();
            let (is_over, has_ended) = (&is_over, &has_ended);
            scope.spawn(move || {
                // Each piece is within the time of a step, the whole is not within minutes.
                let mut piece = [0; 4096];
                while !is_over.load(Ordering::Relaxed)
                    && socket.read(&mut piece).is_ok_and(|n| n > 0)
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                has_ended.store(true, Ordering::Relaxed);
            });
        }
        // On a busy machine one may have ended for another before the first request here.
        wait_until(|| {
            status(&console.get("k", "").0) == "503" || has_ended.load(Ordering::Relaxed)
        });
        wait_until(|| status(&console.get("k", "").0) == "200");
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_client_that_has_ended_its_side_gets_its_response() {
    let console = Console::memory();
    console.put("k", "", b"value");
    for path in ["/health".to_owned(), console.record("k")] {
        let mut socket = TcpStream::connect(console.console.monitor.local_addresses()[0]).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).unwrap();
        // On a busy machine it is asked whether it still reads.
        let response = response.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(status(response), "200", "{path}: {response}");
    }
}

#[test]
fn a_client_that_expects_to_continue_is_told_so() {
    let console = Console::memory();
    let mut client = console.console.connect();
    let record = console.record("k");
    let head = format!(
        "PUT {record} HTTP/1.1\r\nHost: localhost\r\n{CHANGE}Expect: 100-continue\r\n\
         Content-Length: 5\r\n\r\n"
    );
    client.send(head.as_bytes());
    let expected = b"HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(client.read(expected.len()), expected);
    client.send(b"value");
    assert!(client.read_to_end().starts_with(b"HTTP/1.1 201 "));
    assert_eq!(console.get("k", "").1, b"value");
}

#[test]
fn a_long_key_has_a_record() {
    let console = Console::memory();
    let key = "%FF".repeat(60_000);
    assert_eq!(status(&console.put(&key, "", b"value")), "201");
    assert_eq!(console.get(&key, "").1, b"value");
    assert_eq!(status(&console.get(&"%FF".repeat(90_000), "").0), "431");
}

#[test]
fn the_unix_socket_is_for_the_user_of_the_server_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let (limits, hosts) = (server::ReadinessLimits::default(), server::HostNames::default());
    let endpoint = Endpoint::Unix(path.clone());
    let _monitor = server::Monitor::start(&endpoint, limits, hosts).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn an_old_request_or_one_by_another_name_may_be_that_of_a_proxy() {
    let console = Console::memory();
    console.put("k", "", b"secret");
    let record = console.record("k");
    for (request, expected) in [
        (format!("GET {record} HTTP/1.0\r\n\r\n"), "403"),
        (format!("GET {record} HTTP/1.0\r\nHost: localhost\r\n\r\n"), "403"),
        (format!("GET {record} HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n"), "403"),
        (format!("GET {record} HTTP/1.1\r\nHost: 127.0.0.1:9178\r\n\r\n"), "200"),
        (format!("GET {record} HTTP/1.1\r\nHost: [::1]:9178\r\n\r\n"), "200"),
        (format!("GET {record} HTTP/1.1\r\nHost: [::1]\r\n\r\n"), "200"),
        (format!("GET {record} HTTP/1.1\r\nHost: LOCALHOST:1\r\n\r\n"), "200"),
        // The page and its figures are for everyone.
        ("GET /ui/ HTTP/1.0\r\n\r\n".to_owned(), "200"),
        ("GET /ui/figures HTTP/1.0\r\n\r\n".to_owned(), "200"),
    ] {
        let (head, _) = console.console.ask(&request);
        assert_eq!(status(&head), expected, "{request}");
    }
}

#[test]
fn each_database_has_its_own_names_of_the_host() {
    let with = |names: &[&str]| {
        let http_hosts = server::HostNames::of(names.iter().copied());
        let users = Some(users(&[("ann", "secret")]));
        start_with(Config { users, http_hosts, ..config() }, memory())
    };
    let (one, other) = (with(&["one.example"]), with(&["two.example"]));
    let endpoint = Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 };
    // The listener has the names of both.
    let hosts = server::HostNames::of(["one.example", "two.example"]);
    let limits = server::ReadinessLimits::default();
    let monitor = server::Monitor::start(&endpoint, limits, hosts).unwrap();
    monitor.add("one", server::Handle::clone(&one.handle));
    monitor.add("two", server::Handle::clone(&other.handle));
    monitor.set_started();
    let console = Monitored { monitor };
    let (_, list) = console.get("/ui/databases", "");
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    for (database, host, expected) in [
        (0, "one.example", "404"),
        (0, "two.example", "421"),
        (1, "two.example", "404"),
        (1, "one.example", "421"),
        (0, "localhost", "404"),
        (0, "three.example", "421"),
    ] {
        let id = list[database]["id"].as_str().unwrap();
        let request = format!("GET /ui/record?db={id}&key=k HTTP/1.1\r\nHost: {host}\r\n{ANN}\r\n");
        assert_eq!(status(&console.ask(request).0), expected, "{database} {host}");
    }
}

#[test]
fn a_browser_forgets_the_user_who_logs_out() {
    let users = Some(users(&[("ann", "secret")]));
    let console = Console::new(start_with(Config { users, ..config() }, memory()));
    for (headers, expected) in [("", "401"), (ANN, "401"), (NO_USER, "200")] {
        let (head, _) = console.ask("GET /ui/logout", headers, b"");
        assert_eq!(status(&head), expected, "{headers}");
        let realm = header(&console.get("k", "").0, "WWW-Authenticate").map(str::to_owned);
        if expected == "401" {
            assert_eq!(header(&head, "WWW-Authenticate").map(str::to_owned), realm);
        }
    }
    // The name does not count as a guess of a password.
    for _ in 0..20 {
        assert_eq!(status(&console.get("k", NO_USER).0), "401");
    }
    assert_eq!(status(&console.get("k", ANN).0), "404");
}

/// Returns the head of a view of changes, which has begun, and its connection.
fn view_changes(console: &Console, headers: &str) -> (String, Client) {
    let mut client = console.console.connect();
    let line = format!("GET /ui/changes?db={} HTTP/1.1", console.id);
    client.send(format!("{line}\r\nHost: localhost\r\n{headers}\r\n").as_bytes());
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(client.read(1));
    }
    let head = String::from_utf8(head).unwrap();
    assert_eq!(status(&head), "200");
    (head, client)
}

fn next_change(client: &mut Client) -> serde_json::Value {
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            line.extend(client.read(1));
        }
        // An empty line is a heartbeat.
        if line.len() > 1 {
            return serde_json::from_slice(&line).unwrap();
        }
    }
}

#[test]
fn a_view_of_changes_reads_no_change_before_it_and_goes_on_in_the_next_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = logging(1, folder.path());
    let log = config.update_log.as_mut().unwrap();
    log.file_bytes_max = 1 << 20;
    let path = log.folder.join("00000001.ulog");
    let console = Console::new(start_with(config, memory()));
    assert_eq!(status(&console.put("before", "", b"v")), "201");
    // A reader of the entry would fail.
    let bytes = path.metadata().unwrap().len();
    std::fs::write(&path, vec![0; bytes as usize]).unwrap();
    let (_, mut client) = view_changes(&console, "");
    for (key, value_bytes) in [("after", 1), ("long", 3 << 20), ("next", 1)] {
        assert_eq!(status(&console.put(key, "", &vec![b'v'; value_bytes])), "201");
        let change = next_change(&mut client);
        assert_eq!(change["key"], key);
        assert!(change["bytes"].as_u64().unwrap() > value_bytes as u64, "{change}");
    }
    assert!(path.with_file_name("00000002.ulog").exists());
}

/// Waits until the server has checked that a view may go on.
fn wait_for_heartbeat(client: &mut Client) {
    assert_eq!(client.read(1), b"\n");
}

#[test]
fn a_view_of_changes_goes_on_whatever_the_files_are_that_it_does_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let config = logging(1, folder.path());
    let other = config.update_log.as_ref().unwrap().folder.join("00000009.ulog");
    let console = Console::new(start_with(config, memory()));
    let (_, mut client) = view_changes(&console, "");
    // A reader of the log would fail.
    std::fs::create_dir(other).unwrap();
    wait_for_heartbeat(&mut client);
    wait_for_heartbeat(&mut client);
    assert_eq!(status(&console.put("k", "", b"v")), "201");
    assert_eq!(next_change(&mut client)["key"], "k");
}

#[test]
fn a_view_of_changes_that_fails_has_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let config = logging(1, folder.path());
    let path = config.update_log.as_ref().unwrap().folder.join("00000001.ulog");
    let console = Console::new(start_with(config, memory()));
    // The server goes on to write to the file that had this name.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"").unwrap();
    let (_, mut client) = view_changes(&console, "");
    assert_eq!(status(&console.put("k", "", b"v")), "201");
    let last = next_change(&mut client);
    assert!(last["error"].as_str().unwrap().contains("an incomplete entry"), "{last}");
    assert_eq!(client.read_to_end(), b"");
    // Before it has begun, it is refused.
    std::fs::remove_file(&path).unwrap();
    let (head, body) = console.ask(&format!("GET /ui/changes?db={}", console.id), "", b"");
    assert_eq!(status(&head), "503");
    let body = String::from_utf8(body).unwrap();
    assert!(body.contains("the log cannot be read"), "{body}");
}

#[test]
fn a_view_of_changes_ends_with_the_monitor() {
    let folder = tempfile::tempdir().unwrap();
    let console = Console::new(start_with(logging(1, folder.path()), memory()));
    let (_, mut client) = view_changes(&console, "");
    let Console { console, server, .. } = console;
    drop(console);
    let rest = client.read_to_end();
    assert!(rest.iter().all(|byte| *byte == b'\n'), "{rest:?}");
    drop(server);
}

#[test]
fn changes_are_sent_as_they_are_made_to_those_with_the_rights() {
    let folder = tempfile::tempdir().unwrap();
    let rights: &[(&str, &[&str])] = &[("ann", &["read"]), ("bob", &["read", "write", "admin"])];
    let users = Some(users_with(rights));
    let config = Config { users, ..logging(1, folder.path()) };
    let console = Console::new(start_with(config, memory()));
    let bob = "Authorization: Basic Ym9iOnNlY3JldA==\r\n";
    let path = format!("GET /ui/changes?db={}", console.id);
    for (headers, expected) in
        [("", "401"), ("Authorization: Basic YW5uOm90aGVy\r\n", "401"), (ANN, "403")]
    {
        let (head, body) = console.ask(&path, headers, b"");
        let body = String::from_utf8(body).unwrap();
        assert_eq!(status(&head), expected, "{headers}");
        assert_eq!(body.contains("right"), expected == "403", "{body}");
    }
    let (received, mut client) = view_changes(&console, bob);
    let policy = header(&received, "Content-Security-Policy").unwrap_or_default();
    assert!(policy.contains("default-src 'none'"), "{received}");
    assert_eq!(header(&received, "Referrer-Policy"), Some("no-referrer"));
    assert_eq!(status(&console.put("a%20key", bob, &vec![b'v'; 1 << 20])), "201");
    assert_eq!(status(&console.delete("a%20key", bob)), "200");
    let expiring = format!("{bob}X-TT-XT: 4102444800\r\n");
    assert_eq!(status(&console.put("b", &expiring, b"v")), "201");
    let mut next = || next_change(&mut client);
    let put = next();
    assert_eq!(put["key"], "a%20key");
    assert!(put["bytes"].as_u64().unwrap() > 1 << 20, "{put}");
    let removed = next();
    assert_eq!((&removed["command"], &removed["key"]), (&"out".into(), &"a%20key".into()));
    assert_eq!(removed["failed"], false);
    let expiring = next();
    assert_eq!((&expiring["command"], &expiring["key"]), (&"put".into(), &"b".into()));
}

#[test]
fn changes_need_an_update_log_and_a_copy_needs_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |client_paths, path: &str, expected: &str| {
        let config = Config { client_paths, ..config() };
        let console = Console::new(start_with(config, hash(folder.path())));
        let (head, body) = console.ask(&format!("{path}?db={}", console.id), CHANGE, b"");
        assert_eq!(status(&head), "501");
        let body = String::from_utf8(body).unwrap();
        assert!(body.contains(expected), "{body}");
    };
    refused(ClientPaths::None, "GET /ui/changes", "the server has no update log");
    refused(ClientPaths::None, "POST /ui/copy", "no folder is configured: set copy-dir");
}

#[test]
fn a_copy_is_made_in_the_folder_by_those_with_the_right() {
    let (folder, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let rights: &[(&str, &[&str])] = &[("ann", &["read"]), ("bob", &["read", "write", "admin"])];
    let users = Some(users_with(rights));
    let client_paths = ClientPaths::Within(copies.path().to_owned());
    let config = Config { users, client_paths, ..config() };
    let console = Console::new(start_with(config, hash(folder.path())));
    let bob = format!("{CHANGE}Authorization: Basic Ym9iOnNlY3JldA==\r\n");
    console.put("k", &bob, b"value");
    let last = |headers: &str| {
        let (head, body) = console.ask(&format!("POST /ui/copy?db={}", console.id), headers, b"");
        let body = String::from_utf8(body).unwrap();
        let last = body.lines().last().unwrap_or_default().to_owned();
        (status(&head).to_owned(), serde_json::from_str(&last).unwrap_or(serde_json::Value::Null))
    };
    assert_eq!(last(&bob.replace("X-Tyrant-Console: 1", "A: b")).0, "403");
    assert_eq!(last(CHANGE).0, "401");
    let (_, of_ann) = last(&format!("{CHANGE}{ANN}"));
    assert!(of_ann["error"].as_str().unwrap().contains("right"), "{of_ann}");
    assert_eq!(copies.path().read_dir().unwrap().count(), 0);
    let (_, done) = last(&bob);
    let path = std::path::PathBuf::from(done["path"].as_str().unwrap());
    assert!(path.starts_with(copies.path()), "{done}");
    assert!(done["bytes"].as_u64().unwrap() > 0, "{done}");
    let copy = cabinet::Options::new().open(&path).unwrap();
    assert_eq!(copy.get(b"k").unwrap().as_deref(), Some(&b"value"[..]));
}
