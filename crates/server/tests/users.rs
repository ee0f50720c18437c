//! Users: a server with users serves only clients that authenticate, in every protocol.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use server::{Config, UserEntry, UserFile, Users, hash_token, new_token};
use std::sync::Arc;
use support::{Client, MISC_FAILURE, Packet, Running, config, memory, misc, start_with, users};

const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";

/// Longest request of a client that has not authenticated, in bytes.
const UNAUTHENTICATED_BYTES_MAX: usize = 64 << 10;

fn start_with_users(opens_tokyo_tyrant: bool) -> Running {
    let users = Some(users(&[("ann", "secret"), ("bob", "other")]));
    start_with(Config { users, opens_tokyo_tyrant, ..config() }, memory())
}

fn sasl<'a>(opcode: u8, mechanism: &'a [u8], data: &'a [u8]) -> Packet<'a> {
    Packet { opcode, key: mechanism, value: data, ..Packet::default() }
}

/// Sends a packet and returns status and text of the response.
fn ask(client: &mut Client, packet: &Packet<'_>) -> (u16, String) {
    let response = client.ask(packet);
    (response.status, String::from_utf8(response.value).unwrap())
}

fn refusal() -> (u16, String) {
    (0x20, "Auth failure.".into())
}

const GET: Packet<'static> = Packet { opcode: 0, extras: b"", key: b"k", value: b"", number: 0 };

#[test]
fn the_binary_protocol_authenticates_by_sasl() {
    let server = start_with_users(false);
    let mut client = server.connect();
    assert_eq!(ask(&mut client, &sasl(0x20, b"", b"")), (0, "PLAIN".into()));
    assert_eq!(ask(&mut client, &sasl(0x0b, b"", b"")).0, 0);
    for (mechanism, message) in [
        (&b"PLAIN"[..], &b"\0ann\0other"[..]),
        (b"PLAIN", b"\0ann\0secret\0"),
        (b"PLAIN", b"x\0ann\0secret"),
        (b"PLAIN", b"ann secret"),
        (b"CRAM-MD5", b"\0ann\0secret"),
    ] {
        assert_eq!(ask(&mut client, &sasl(0x21, mechanism, message)), refusal());
    }
    assert_eq!(ask(&mut client, &sasl(0x22, b"PLAIN", b"\0ann\0secret")), refusal());
    assert_eq!(ask(&mut client, &sasl(0x21, &[b'm'; 33], b"")).0, 4);
    let done = (0, "Authenticated".to_owned());
    assert_eq!(ask(&mut client, &sasl(0x21, b"PLAIN", b"\0ann\0secret")), done);
    assert_eq!(ask(&mut client, &GET).0, 1);
    // In two steps.
    let mut client = server.connect();
    assert_eq!(ask(&mut client, &sasl(0x21, b"PLAIN", b"")), (0x21, String::new()));
    assert_eq!(ask(&mut client, &sasl(0x22, b"PLAIN", b"\0bob\0other")), done);
    assert_eq!(ask(&mut client, &GET).0, 1);
    // A failed login ends the earlier one.
    assert_eq!(ask(&mut client, &sasl(0x21, b"PLAIN", b"\0bob\0secret")), refusal());
    assert_eq!(ask(&mut client, &GET), refusal());
}

#[test]
fn the_binary_protocol_refuses_and_closes_without_a_login() {
    let server = start_with_users(false);
    for opcode in [0x00, 0x01, 0x0a, 0x10, 0x07, 0x09, 0x50] {
        let mut client = server.connect();
        let extras: &[u8] = if opcode == 0x01 { &[0; 8] } else { b"" };
        let key: &[u8] = if matches!(opcode, 0x0a | 0x07) { b"" } else { b"k" };
        let packet = Packet { opcode, extras, key, ..Packet::default() };
        assert_eq!(ask(&mut client, &packet), refusal(), "{opcode:x}");
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        client.expect_close();
    }
}

#[test]
fn the_text_protocol_authenticates_by_its_first_set() {
    let server = start_with_users(false);
    let mut client = server.connect();
    for line in ["get k", "quit", "version", "mg k v", "stats", "foo", "shutdown", "flush_all"] {
        client.exchange(format!("{line}\r\n"), UNAUTHENTICATED);
    }
    client.exchange("add k 0 0 10\r\nann secret\r\n", UNAUTHENTICATED);
    client.exchange("set k 0 0 9\r\nann other\r\n", "CLIENT_ERROR authentication failure\r\n");
    let format = "CLIENT_ERROR bad authentication token format\r\n";
    client.exchange("set k 0 0 3\r\nann\r\n", format);
    let termination = "CLIENT_ERROR bad command line termination\r\n";
    client.exchange("set k 0 0 9\r\nann secret\r\n", termination);
    // The end of the value remains.
    client.expect(UNAUTHENTICATED);
    for data in [" ann  secret ", "ann secret x"] {
        let request = format!("set x 1 2 {}\r\n{data}\r\n", data.len());
        server.connect().exchange(&request, "STORED\r\n");
    }
    client.exchange("set x 1 2 10\r\nann secret\r\n", "STORED\r\n");
    // The set stored no record, and the connection is ann's for every protocol but HTTP.
    client.exchange("get x\r\n", "END\r\n");
    assert_eq!(ask(&mut client, &GET).0, 1);
    client.exchange(b"\xc8\x80", b"\0\0\0\0\0\0\0\0\0");
    client.send(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(client.read_to_end().starts_with(b"HTTP/1.1 401 "));
}

#[test]
fn every_http_request_needs_credentials() {
    let server = start_with_users(false);
    let get =
        |authorization: &str| format!("GET /k HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\n");
    let mut client = server.connect();
    for _ in 0..2 {
        client.send(get("Authorization: Basic YW5uOnNlY3JldA==\r\n").as_bytes());
        assert!(client.read_until(b"Not Found\n").starts_with(b"HTTP/1.1 404 "));
    }
    for authorization in [
        "",
        "Authorization: Basic YW5uOm90aGVy\r\n",
        "Authorization: Basic !\r\n",
        "Authorization: Bearer YW5uOnNlY3JldA==\r\n",
    ] {
        let mut client = server.connect();
        client.send(get(authorization).as_bytes());
        let reply = String::from_utf8(client.read_until(b"Unauthorized\n")).unwrap();
        assert!(reply.starts_with("HTTP/1.1 401 "), "{reply}");
        assert!(reply.contains("\r\nWWW-Authenticate: Basic realm="), "{reply}");
    }
    // A page of another site does not learn whether a password is right.
    for authorization in ["Basic YW5uOnNlY3JldA==", "Basic YW5uOm90aGVy"] {
        let mut client = server.connect();
        let foreign = "GET /k HTTP/1.1\r\nHost: evil.example\r\nAuthorization: ";
        client.send(format!("{foreign}{authorization}\r\n\r\n").as_bytes());
        assert!(client.read_until(b"\r\n").starts_with(b"HTTP/1.1 421 "));
    }
    // The server does not wait for a value without a login.
    let mut client = server.connect();
    client.send(b"PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n");
    assert!(client.read_until(b"Unauthorized\n").starts_with(b"HTTP/1.1 401 "));
    let mut client = server.connect();
    client.send(b"HEAD /k HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(client.read_to_end().ends_with(b"\r\n\r\n"));
}

#[test]
fn tokyo_tyrants_protocol_is_refused_unless_it_is_allowed() {
    let server = start_with_users(false);
    for request in [&b"\xc8\x80"[..], b"\xc8\x30\0\0\0\x01k", b"\xc8\xa0"] {
        let mut client = server.connect();
        client.send(request);
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.read_to_end(), [1]);
    }
    let server = start_with_users(true);
    let mut client = server.connect();
    client.exchange(b"\xc8\x80", b"\0\0\0\0\0\0\0\0\0");
    client.exchange(b"get k\r\n", UNAUTHENTICATED);
}

#[test]
fn a_client_without_a_login_cannot_send_long_requests() {
    let server = start_with_users(false);
    let announcements = [
        format!("set k 0 0 {UNAUTHENTICATED_BYTES_MAX}\r\n").into_bytes(),
        vec![b'x'; UNAUTHENTICATED_BYTES_MAX],
    ];
    for announcement in announcements {
        let mut client = server.connect();
        client.send(&announcement);
        client.expect(UNAUTHENTICATED);
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        client.expect_close();
    }
    let mut client = server.connect();
    let mut packet = sasl(0x21, b"PLAIN", b"").bytes();
    packet[8..12].copy_from_slice(&(UNAUTHENTICATED_BYTES_MAX as u32).to_be_bytes());
    client.send(&packet);
    let response = client.response();
    assert_eq!((response.status, &response.value[..]), (0x20, &b"Auth failure."[..]));
    // The longest request is accepted.
    let line = format!("set k 0 0 {}\r\n", UNAUTHENTICATED_BYTES_MAX - 19);
    let mut request = line.into_bytes();
    request.resize(UNAUTHENTICATED_BYTES_MAX - 2, b' ');
    request.extend_from_slice(b"\r\n");
    let mut client = server.connect();
    client.exchange(request, b"CLIENT_ERROR bad authentication token format\r\n");
}

#[test]
fn an_http_request_counts_as_one_login_however_it_arrives() {
    let server = start_with_users(false);
    let mut client = server.connect();
    let authorization = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
    let body = "Content-Length: 1\r\nExpect: 100-continue\r\n";
    client.send(
        format!("PUT /k HTTP/1.1\r\nHost: localhost\r\n{authorization}{body}\r\n").as_bytes(),
    );
    // The server has parsed the head now.
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"v");
    client.expect_response("201 Created", "Created\n");
    // The pool executes this request.
    let accept = "Accept: application/json\r\n";
    client.send(
        format!("GET /?list HTTP/1.1\r\nHost: localhost\r\n{authorization}{accept}\r\n").as_bytes(),
    );
    client.expect_response("200 OK", "");
    let mut client = server.connect();
    client.exchange("set k 0 0 10\r\nann secret\r\n", "STORED\r\n");
    client.send(b"stats\r\n");
    let text = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
    assert!(text.contains("STAT auth_cmds 3\r\n"), "{text}");
}

#[test]
fn a_login_without_a_name_is_a_question_and_no_failure() {
    let server = start_with_users(false);
    let metrics = support::Monitored::new(&server);
    let mut client = server.connect();
    client.exchange(misc("login", &[]), MISC_FAILURE);
    client.exchange(misc("login", &["ann", "secret"]), b"\0\0\0\0\0");
    metrics.await_value("tyrant_logins_total", &[("result", "success")], |count| count == 1.0);
    assert_eq!(metrics.value("tyrant_logins_total", &[("result", "failure")]), 0.0);
}

#[test]
fn failed_logins_are_counted() {
    let server = start_with_users(false);
    let mut client = server.connect();
    client.exchange("set k 0 0 9\r\nann other\r\n", "CLIENT_ERROR authentication failure\r\n");
    client.exchange("set k 0 0 10\r\nann secret\r\n", "STORED\r\n");
    client.send(b"stats\r\n");
    let text = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
    assert!(text.contains("STAT auth_cmds 2\r\n") && text.contains("STAT auth_errors 1\r\n"));
    let metrics = support::Monitored::new(&server);
    for (result, count) in [("success", 1.0), ("failure", 1.0), ("refused", 0.0)] {
        assert_eq!(metrics.value("tyrant_logins_total", &[("result", result)]), count, "{result}");
    }
}

#[test]
fn tokyo_tyrants_protocol_logs_in_with_a_function_of_misc() {
    let server = start_with_users(false);
    let size = b"\xc8\x80";
    let empty: &[u8] = b"\0\0\0\0\0\0\0\0\0";
    for arguments in [&[][..], &["ann"], &["ann", "other"], &["ann", "secret", "x"]] {
        let mut client = server.connect();
        client.exchange(misc("login", arguments), MISC_FAILURE);
        // Only the login itself is possible before it.
        client.exchange(size, b"\x01");
        client.expect_close();
    }
    let mut client = server.connect();
    let login = misc("login", &["ann", "secret"]);
    for byte in &login[..login.len() - 1] {
        client.send(&[*byte]);
    }
    client.exchange(&login[login.len() - 1..], b"\0\0\0\0\0");
    client.exchange(size, empty);
    client.exchange("get k\r\n", "END\r\n");
    // A failed login ends the earlier one.
    client.exchange(misc("login", &["bob", "secret"]), MISC_FAILURE);
    client.exchange(misc("login", &["bob", "other"]), b"\0\0\0\0\0");
    client.exchange(size, empty);
    // Requests that follow in the same bytes are executed after the login.
    let mut client = server.connect();
    client.exchange([&login[..], size].concat(), [b"\0\0\0\0\0", empty].concat());
    let without = support::start(memory());
    without.connect().exchange(&login, MISC_FAILURE);
}

#[test]
fn http_takes_tokens() {
    let token = new_token().unwrap();
    let entry = UserEntry {
        name: "ann".into(),
        token: Some(hash_token(token.as_bytes())),
        rights: vec!["read".into()],
        ..UserEntry::default()
    };
    let users = Some(Arc::new(Users::of(UserFile { users: vec![entry] })));
    let server = start_with(Config { users, ..config() }, memory());
    let status = |authorization: &str| {
        let mut client = server.connect();
        client
            .send(format!("GET /k HTTP/1.0\r\nAuthorization: {authorization}\r\n\r\n").as_bytes());
        String::from_utf8(client.read_to_end()).unwrap()[9..12].to_owned()
    };
    assert_eq!(status(&format!("Bearer {token}")), "404");
    assert_eq!(status(&format!("bearer  {token}")), "404");
    for authorization in [format!("Bearer {token}0"), "Bearer ".into(), "Bearer".into(), token] {
        assert_eq!(status(&authorization), "401", "{authorization}");
    }
}

#[test]
fn a_reload_ends_the_logins_of_users_who_are_removed_or_have_another_password() {
    let server = start_with_users(false);
    let log_in = |name: &str, password: &str| {
        let mut client = server.connect();
        client.exchange(misc("login", &[name, password]), b"\0\0\0\0\0");
        client
    };
    let (mut ann, mut bob) = (log_in("ann", "secret"), log_in("bob", "other"));
    let mut page = server.connect();
    let get =
        b"GET /k HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YW5uOnNlY3JldA==\r\n\r\n";
    page.send(get);
    page.expect(b"HTTP/1.1 404 Not Found\r\n");
    let reload = |list: &[(&str, &str)]| {
        server.handle.reload(&Config { users: Some(users(list)), ..config() });
    };
    // The same password with another salt is another one.
    reload(&[("ann", "new"), ("carl", "secret")]);
    for client in [&mut ann, &mut bob] {
        client.exchange(b"\xc8\x80", b"\x01");
        client.expect_close();
    }
    page.send(get);
    assert!(String::from_utf8(page.read_to_end()).unwrap().contains("HTTP/1.1 401 "));
    log_in("ann", "new").exchange("get k\r\n", "END\r\n");
    log_in("carl", "secret").exchange("get k\r\n", "END\r\n");
}
