//! Login limits: passwords cannot be guessed fast, and a guessing client does not lock out others.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use server::{Config, Endpoint};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use support::{Client, Packet, Running, config, memory, start_with, users};

/// Number of failures after which an address waits.
const FREE_FAILURES: usize = 5;

/// First wait of an address.
const WAIT: Duration = Duration::from_secs(1);

const TOO_MANY: &[u8] = b"CLIENT_ERROR too many failed logins, retry later\r\n";

fn start(listen: Vec<Endpoint>) -> Running {
    let users = Some(users(&[("ann", "secret")]));
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

fn basic(credentials: &str) -> String {
    format!("GET /k HTTP/1.1\r\nAuthorization: Basic {credentials}\r\n\r\n")
}

const RIGHT: &str = "YW5uOnNlY3JldA==";
const WRONG: &str = "YW5uOm90aGVy";

fn sasl(client: &mut Client, message: &[u8]) -> (u16, String) {
    let packet = Packet { opcode: 0x21, key: b"PLAIN", value: message, ..Packet::default() };
    let response = client.ask(&packet);
    (response.status, String::from_utf8(response.value).unwrap())
}

#[test]
fn an_address_waits_in_every_protocol_after_failures_in_any() {
    let failure = b"CLIENT_ERROR authentication failure\r\n";
    let guesses: [fn(&mut Client); 3] = [
        |client| client.exchange(text("other"), b"CLIENT_ERROR authentication failure\r\n"),
        |client| assert_eq!(sasl(client, b"\0ann\0other").1, "Auth failure."),
        |client| {
            client.send(basic(WRONG).as_bytes());
            client.expect_response("401 Unauthorized", "Unauthorized\n");
        },
    ];
    for guess in guesses {
        let server = start(config().listen);
        let mut admitted = server.connect();
        admitted.send(basic(RIGHT).as_bytes());
        admitted.expect_response("404 Not Found", "Not Found\n");
        for _ in 0..FREE_FAILURES {
            guess(&mut server.connect());
        }
        let failed_at = Instant::now();
        for password in ["secret", "other"] {
            let mut client = server.connect();
            client.exchange(text(password), TOO_MANY);
            client.stream.shutdown(std::net::Shutdown::Write).unwrap();
            client.expect_close();
        }
        let too_many = (0x20, "too many failed logins, retry later".to_owned());
        assert_eq!(sasl(&mut server.connect(), b"\0ann\0secret"), too_many);
        let mut client = server.connect();
        client.send(basic(RIGHT).as_bytes());
        let head = client.expect_response("429 Too Many Requests", "Too Many Requests\n");
        assert!(head.contains("\r\nRetry-After: "), "{head}");
        assert!(failed_at.elapsed() < WAIT, "this machine is too slow for this test");
        // A connection that has authenticated stays so.
        admitted.send(basic(RIGHT).as_bytes());
        admitted.expect_response("404 Not Found", "Not Found\n");
        // Another address does not wait.
        let mut other = connect_from(&server, "127.0.0.2");
        other.exchange(text("secret"), "STORED\r\n");
        let figure = |client: &mut Client, name: &str| {
            client.send(b"stats\r\n");
            let text = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
            line.unwrap().parse::<usize>().unwrap()
        };
        assert_eq!(figure(&mut other, "auth_errors"), FREE_FAILURES);
        assert_eq!(figure(&mut other, "logins_refused"), 4);
        // Refused attempts have not made the wait longer.
        std::thread::sleep((failed_at + WAIT).saturating_duration_since(Instant::now()));
        server.connect().exchange(text("secret"), "STORED\r\n");
        server.connect().exchange(text("other"), failure);
        server.connect().exchange(text("secret"), TOO_MANY);
    }
}

#[test]
fn a_second_allows_few_guesses() {
    let server = start(config().listen);
    let end = Instant::now() + WAIT;
    while Instant::now() < end {
        let mut client = server.connect();
        client.send(text("other").repeat(100).as_bytes());
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        client.read_to_end();
    }
    let mut other = connect_from(&server, "127.0.0.2");
    other.exchange(text("secret"), "STORED\r\n");
    other.send(b"stats\r\n");
    let stats = String::from_utf8(other.read_until(b"END\r\n")).unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix("STAT auth_errors ")).unwrap();
    let errors: usize = line.parse().unwrap();
    assert!((FREE_FAILURES..=FREE_FAILURES + 2).contains(&errors), "{errors}");
}

#[test]
fn all_unix_sockets_count_as_one_source_apart_from_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = start([config().listen, vec![Endpoint::Unix(path.clone())]].concat());
    let ask = |request: &str, expected: &[u8]| {
        use std::io::{Read, Write};
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(support::WAIT_MAX)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, expected);
    };
    for _ in 0..FREE_FAILURES {
        ask(&text("other"), b"CLIENT_ERROR authentication failure\r\n");
    }
    ask(&text("secret"), TOO_MANY);
    server.connect().exchange(text("secret"), "STORED\r\n");
}

#[test]
fn a_request_without_credentials_does_not_count_as_a_guess() {
    let server = start(config().listen);
    for _ in 0..2 * FREE_FAILURES {
        let mut client = server.connect();
        client.send(b"GET /k HTTP/1.1\r\n\r\n");
        client.expect_response("401 Unauthorized", "Unauthorized\n");
        server.connect().exchange("get k\r\n", "CLIENT_ERROR unauthenticated\r\n");
    }
    server.connect().exchange(text("secret"), "STORED\r\n");
}
