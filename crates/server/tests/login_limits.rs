//! Login limits: passwords cannot be guessed fast, and a guessing client does not lock out others.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use server::{Config, Endpoint, PasswordCost, UserEntry, UserFile, Users, hash_token};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{Client, Packet, Running, config, memory, start_with, users};

/// Number of failures after which an address waits.
const FREE_FAILURES: usize = 5;

/// First wait of an address.
const WAIT: Duration = Duration::from_secs(1);

const TOO_MANY: &[u8] = b"CLIENT_ERROR too many failed logins, retry later\r\n";

fn start(listen: Vec<Endpoint>) -> Running {
    let users = Some(users(&[("ann", RIGHT)]));
    start_with(Config { users, listen, ..config() }, memory())
}

/// Connects from another address of this machine.
fn connect_from(server: &Running, address: &str) -> Client {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::new(address.parse().unwrap(), 0)).unwrap();
    connect(&socket, &server.address).unwrap();
    Client::new(TcpStream::from(socket))
}

fn text(password: &str) -> String {
    format!("set k 0 0 {}\r\nann {password}\r\n", password.len() + 4)
}

fn basic(password: &str) -> String {
    let mut credentials = Vec::new();
    wire::base64::encode(&mut credentials, format!("ann:{password}").as_bytes());
    let credentials = String::from_utf8(credentials).unwrap();
    format!("GET /k HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {credentials}\r\n\r\n")
}

/// Password of the user ann.
const RIGHT: &str = "secret";

const DENIED: &str = "CLIENT_ERROR authentication failure\r\n";

/// Returns the reply to a login over a Unix socket.
fn ask_unix(path: &Path, password: &str) -> Vec<u8> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(support::WAIT_MAX)).unwrap();
    stream.write_all(text(password).as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// Returns a figure of `stats`.
fn figure(client: &mut Client, name: &str) -> usize {
    client.send(b"stats\r\n");
    let text = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.unwrap().parse().unwrap()
}

fn sasl(client: &mut Client, message: &[u8]) -> (u16, String) {
    let packet = Packet { opcode: 0x21, key: b"PLAIN", value: message, ..Packet::default() };
    let response = client.ask(&packet);
    (response.status, String::from_utf8(response.value).unwrap())
}

#[test]
fn an_address_waits_in_every_protocol_after_failures_in_any() {
    let guesses: [fn(&mut Client, &str); 3] = [
        |client, password| client.exchange(text(password), DENIED),
        |client, password| {
            assert_eq!(sasl(client, format!("\0ann\0{password}").as_bytes()).1, "Auth failure.");
        },
        |client, password| {
            client.send(basic(password).as_bytes());
            client.expect_response("401 Unauthorized", "Unauthorized\n");
        },
    ];
    for guess in guesses {
        let deadline = Instant::now() + support::WAIT_MAX;
        // On a loaded machine the wait may be over before the replies are there.
        while !refuses_while_waiting(guess) {
            assert!(Instant::now() < deadline, "no four replies of a server within {WAIT:?}");
        }
    }
}

/// Makes the wait of a name begin with `guess`, and checks which attempts are refused until its
/// end. Returns `false` without a check if the attempts were not over before.
fn refuses_while_waiting(guess: fn(&mut Client, &str)) -> bool {
    let server = start(config().listen);
    let mut admitted = server.connect();
    admitted.send(basic(RIGHT).as_bytes());
    admitted.expect_response("404 Not Found", "Not Found\n");
    // The wait begins with the last one.
    let mut began = Instant::now();
    for number in 0..FREE_FAILURES {
        began = Instant::now();
        guess(&mut server.connect(), &format!("guess-{number}"));
    }
    let ask = |password: &str| {
        let mut client = server.connect();
        client.send(text(password).as_bytes());
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        client.read_to_end()
    };
    let refused = [RIGHT, "another"].map(ask);
    let refused_by_sasl = sasl(&mut server.connect(), b"\0ann\0secret");
    let mut client = server.connect();
    client.send(basic(RIGHT).as_bytes());
    let head = client.read_until(b"\r\n\r\n");
    let body = client.read_until(b"\n");
    // One that was tried before is not a new guess.
    let repeated = ask("guess-0");
    if began.elapsed() >= WAIT {
        return false;
    }
    assert_eq!(refused, [TOO_MANY, TOO_MANY]);
    assert_eq!(repeated, DENIED.as_bytes());
    assert_eq!(refused_by_sasl, (0x20, "too many failed logins, retry later".to_owned()));
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{head}");
    assert!(head.contains("\r\nRetry-After: "), "{head}");
    assert_eq!(body, b"too many failed logins, retry later\n");
    // A connection that has authenticated stays so.
    admitted.send(basic(RIGHT).as_bytes());
    admitted.expect_response("404 Not Found", "Not Found\n");
    // Another address does not wait.
    let mut other = connect_from(&server, "127.0.0.2");
    other.exchange(text(RIGHT), "STORED\r\n");
    assert_eq!(figure(&mut other, "auth_errors"), FREE_FAILURES + 1);
    assert_eq!(figure(&mut other, "logins_refused"), 4);
    // Refused attempts have not made the wait longer: it ends, and not before its time.
    let deadline = Instant::now() + support::WAIT_MAX;
    loop {
        let mut client = server.connect();
        client.send(text(RIGHT).as_bytes());
        if client.read_until(b"\r\n") == b"STORED\r\n" {
            break;
        }
        assert!(Instant::now() < deadline, "the wait does not end");
    }
    assert!(began.elapsed() >= WAIT);
    server.connect().exchange(text("yet-another"), DENIED);
    true
}

#[test]
fn a_second_allows_few_guesses() {
    let server = start(config().listen);
    let started = Instant::now();
    let mut guesses = 0;
    while started.elapsed() < WAIT {
        let mut client = server.connect();
        let sent: String =
            (guesses..guesses + 100).map(|number| text(&number.to_string())).collect();
        guesses += 100;
        client.send(sent.as_bytes());
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        client.read_to_end();
    }
    // Each wait is twice as long as the one before.
    let waits = (started.elapsed().as_secs() + 1).ilog2() as usize;
    let mut other = connect_from(&server, "127.0.0.2");
    other.exchange(text(RIGHT), "STORED\r\n");
    let errors = figure(&mut other, "auth_errors");
    assert!((FREE_FAILURES..=FREE_FAILURES + waits).contains(&errors), "{errors}");
}

#[test]
fn a_client_that_repeats_a_wrong_password_makes_nobody_wait() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = start([config().listen, vec![Endpoint::Unix(path.clone())]].concat());
    for number in 0..4 * FREE_FAILURES {
        assert_eq!(ask_unix(&path, "old"), DENIED.as_bytes(), "{number}");
        assert_eq!(ask_unix(&path, RIGHT), b"STORED\r\n", "{number}");
        server.connect().exchange(text("old"), DENIED);
        server.connect().exchange(text(RIGHT), "STORED\r\n");
        let mut client = server.connect();
        client.send(basic("old").as_bytes());
        client.expect_response("401 Unauthorized", "Unauthorized\n");
    }
}

#[test]
fn a_user_who_has_logged_in_does_not_wait_for_guesses_at_other_names() {
    let server = start(config().listen);
    server.connect().exchange(text(RIGHT), "STORED\r\n");
    let mut refused = 0;
    for number in 0..4 * FREE_FAILURES {
        let value = format!("name{number} guess{number}");
        let mut client = server.connect();
        client.send(format!("set k 0 0 {}\r\n{value}\r\n", value.len()).as_bytes());
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        refused += usize::from(client.read_to_end() == TOO_MANY);
        server.connect().exchange(text(RIGHT), "STORED\r\n");
    }
    assert!(refused > 0);
}

#[test]
fn a_right_token_never_waits() {
    let users = Users::of(UserFile {
        users: vec![UserEntry {
            token: Some(hash_token(b"token")),
            ..UserEntry::with_password("ann", RIGHT.as_bytes(), PasswordCost::MIN).unwrap()
        }],
    });
    let server = start_with(Config { users: Some(users.into()), ..config() }, memory());
    let ask = |token: &str, status: &str, body: &str| {
        let mut client = server.connect();
        let head = "GET /k HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer";
        client.send(format!("{head} {token}\r\n\r\n").as_bytes());
        client.expect_response(status, body);
    };
    for number in 0..2 * FREE_FAILURES {
        ask(&format!("token {number}"), "401 Unauthorized", "Unauthorized\n");
        ask("token", "404 Not Found", "Not Found\n");
    }
    server.connect().exchange(text(RIGHT), "STORED\r\n");
}

#[test]
fn all_unix_sockets_count_as_one_source_apart_from_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let deadline = Instant::now() + support::WAIT_MAX;
    loop {
        let server = start([config().listen, vec![Endpoint::Unix(path.clone())]].concat());
        let mut began = Instant::now();
        for number in 0..FREE_FAILURES {
            began = Instant::now();
            assert_eq!(ask_unix(&path, &number.to_string()), DENIED.as_bytes());
        }
        let refused = ask_unix(&path, RIGHT);
        // On a loaded machine the wait may be over before the reply is there.
        if began.elapsed() < WAIT {
            assert_eq!(refused, TOO_MANY);
            server.connect().exchange(text(RIGHT), "STORED\r\n");
            return;
        }
        assert!(Instant::now() < deadline, "no reply of a server within {WAIT:?}");
    }
}

#[test]
fn a_request_without_credentials_does_not_count_as_a_guess() {
    let server = start(config().listen);
    for _ in 0..2 * FREE_FAILURES {
        let mut client = server.connect();
        client.send(b"GET /k HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.expect_response("401 Unauthorized", "Unauthorized\n");
        server.connect().exchange("get k\r\n", "CLIENT_ERROR unauthenticated\r\n");
    }
    server.connect().exchange(text(RIGHT), "STORED\r\n");
}
