//! TLS: every protocol over it, refusals with a reason, and certificates that change without losing
//! a connection.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

#[path = "../../tls/tests/support/mod.rs"]
mod certificates;
mod support;

use certificates::{Authority, Files};
use server::{Config, Endpoint, HANDSHAKE_TIMEOUT, ServerFiles, TlsSettings};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use support::{Monitored, Running, WAIT_MAX, config, hash, memory, start_with, users};
use tls::{ClientConfig, ClientSettings, SESSION_BYTES, Stream};

fn settings(files: &Files) -> TlsSettings {
    TlsSettings {
        files: ServerFiles {
            certificates: files.certificate.clone(),
            key: files.key.clone(),
            client_authorities: None,
        },
        listen: Vec::new(),
        is_optional: true,
        handshake_timeout: HANDSHAKE_TIMEOUT,
    }
}

/// Returns settings of a server that takes connections with TLS and without on one port.
fn optional(authority: &Authority) -> Config {
    Config { tls: Some(settings(&authority.server(&["127.0.0.1"]))), ..config() }
}

/// Returns settings of a server that requires TLS.
fn required(authority: &Authority) -> Config {
    let config = optional(authority);
    let tls = config.tls.map(|tls| TlsSettings {
        listen: config.listen.clone(),
        is_optional: false,
        ..tls
    });
    Config { listen: Vec::new(), tls, ..config }
}

fn trusting(authority: &Authority, identity: Option<Files>) -> ClientConfig {
    let settings = ClientSettings {
        authorities: Some(authority.file()),
        identity: identity.map(|files| (files.certificate, files.key)),
        ..ClientSettings::default()
    };
    settings.read().unwrap()
}

/// A client over TLS.
struct Secure(Stream);

impl Secure {
    fn try_connect(server: &Running, config: &ClientConfig) -> std::io::Result<Self> {
        let socket = TcpStream::connect(server.address)?;
        let stream = Stream::connect(socket, config, "127.0.0.1", WAIT_MAX)?;
        stream.socket().set_read_timeout(Some(WAIT_MAX))?;
        Ok(Self(stream))
    }

    fn connect(server: &Running, config: &ClientConfig) -> Self {
        Self::try_connect(server, config).unwrap()
    }

    fn send(&self, bytes: &[u8]) {
        (&self.0).write_all(bytes).unwrap();
    }

    fn expect(&self, reply: &[u8]) {
        let mut received = vec![0; reply.len()];
        (&self.0).read_exact(&mut received).unwrap();
        assert_eq!(received.escape_ascii().to_string(), reply.escape_ascii().to_string());
    }

    fn exchange(&self, request: &[u8], reply: &[u8]) {
        self.send(request);
        self.expect(reply);
    }
}

/// Requests of every protocol, and their replies.
const EXCHANGES: &[(&[u8], &[u8])] = &[
    (b"set a 5 0 3\r\nabc\r\n", b"STORED\r\n"),
    (b"\xc8\x10\0\0\0\x01\0\0\0\x02bxy", b"\0"),
    (b"get a b\r\n", b"VALUE a 5 3\r\nabc\r\nVALUE b 0 2\r\nxy\r\nEND\r\n"),
    (b"GET /b HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
    (
        b"\x80\x0a\0\0\0\0\0\0\0\0\0\0noop\0\0\0\0\0\0\0\0",
        b"\x81\x0a\0\0\0\0\0\0\0\0\0\0noop\0\0\0\0\0\0\0\0",
    ),
];

#[test]
fn every_protocol_is_spoken_over_tls_and_without_it_on_one_port() {
    let authority = Authority::new();
    let server = start_with(optional(&authority), memory());
    let config = trusting(&authority, None);
    for (request, reply) in EXCHANGES {
        for cut in 0..request.len() {
            let client = Secure::connect(&server, &config);
            client.send(&request[..cut]);
            client.send(&request[cut..]);
            client.expect(reply);
        }
        server.connect().exchange(request, reply);
    }
    assert_eq!(server.stat_value("tls_failures"), 0);
}

#[test]
fn requests_and_replies_longer_than_all_buffers_pass_over_tls() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let server = start_with(optional(&authority), hash(folder.path()));
    let client = Secure::connect(&server, &trusting(&authority, None));
    let value: Vec<u8> = (0..20_000_000_u32).map(|number| (number >> 8) as u8).collect();
    let head = [&b"\xc8\x10"[..], &1_u32.to_be_bytes(), &(value.len() as u32).to_be_bytes()];
    client.send(&[&head.concat()[..], b"k", &value].concat());
    client.expect(b"\0");
    // The replies wait until the client takes them.
    for _ in 0..3 {
        client.send(b"\xc8\x30\0\0\0\x01k");
    }
    client.send(b"GET /k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    for _ in 0..3 {
        let mut reply = vec![0; 5 + value.len()];
        (&client.0).read_exact(&mut reply).unwrap();
        assert!(reply[5..] == value[..]);
    }
    let mut last = Vec::new();
    (&client.0).read_to_end(&mut last).unwrap();
    assert!(last.starts_with(b"HTTP/1.1 200 OK\r\n") && last.ends_with(&value));
    drop(client);
    server.await_stat_value("curr_connections", |open| open <= 2);
    server.await_stat_value("buffer_bytes", |bytes| bytes < 1000);
}

#[test]
fn a_client_without_tls_is_told_that_the_port_requires_it() {
    let authority = Authority::new();
    let server = start_with(required(&authority), memory());
    for (request, _) in EXCHANGES {
        let mut client = server.connect();
        client.send(request);
        let reply = String::from_utf8(client.read_to_end()).unwrap();
        if request.starts_with(b"GET ") {
            assert!(reply.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{reply}");
            assert!(reply.ends_with("\n\r\nthis port requires TLS: use https://\n"), "{reply}");
        } else {
            assert_eq!(reply, "SERVER_ERROR this port requires TLS\r\n");
        }
    }
    let client = Secure::connect(&server, &trusting(&authority, None));
    client.exchange(b"get a\r\n", b"END\r\n");
}

#[test]
fn the_first_bytes_on_a_port_with_tls_are_judged_once_there_are_enough() {
    let authority = Authority::new();
    let server = start_with(required(&authority), memory());
    let metrics = support::Monitored::new(&server);
    let received = || metrics.value("tyrant_received_bytes_total", &[]);
    // The server has read each of these bytes before the next one is sent.
    let send_singly = |stream: &mut TcpStream, bytes: &[u8]| {
        for byte in bytes.chunks(1) {
            let before = received();
            stream.write_all(byte).unwrap();
            support::wait_until(|| received() > before);
        }
    };
    let long = "x".repeat(300);
    for (first, rest, reply) in [
        ("GE", "T / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n"),
        ("BREW /", "pot HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n"),
        ("*1\r", "\n$4\r\nPING\r\n", "-ERR this port requires TLS\r\n"),
        ("get", " a\r\n", "SERVER_ERROR this port requires TLS\r\n"),
        // Without an end, a line is refused at a limit.
        ("xx", &long, "SERVER_ERROR this port requires TLS\r\n"),
    ] {
        let mut client = server.connect();
        send_singly(&mut client.stream, first.as_bytes());
        client.send(rest.as_bytes());
        client.expect(reply);
    }
    let mut cut = server.connect();
    send_singly(&mut cut.stream, b"GE");
    cut.stream.shutdown(Shutdown::Write).unwrap();
    cut.expect("SERVER_ERROR this port requires TLS\r\n");

    let mut slow = Records::connect(&server, &trusting(&authority, None));
    let hello = slow.take_unsent();
    send_singly(&mut slow.socket, &hello[..6]);
    slow.send(&hello[6..]);
    slow.shake_hands();
    let request = slow.seal(b"get a\r\n");
    slow.send(&request);
    slow.expect(b"END\r\n");
}

#[test]
fn a_handshake_that_takes_too_long_ends_and_a_client_without_tls_may_wait() {
    let authority = Authority::new();
    for is_required in [false, true] {
        let mut config = if is_required { required(&authority) } else { optional(&authority) };
        let tls = config.tls.as_mut().unwrap();
        tls.handshake_timeout = Duration::from_secs(1);
        let server = start_with(config, memory());
        let mut silent = server.connect();
        let mut slow = server.connect();
        slow.send(&[0x16, 3, 1, 1, 0, 1]);
        slow.expect_close();
        if is_required {
            silent.expect_close();
        } else {
            silent.exchange("get a\r\n", "END\r\n");
            assert_eq!(server.stat_value("tls_failures"), 1);
        }
    }
}

/// Returns the first message of a client.
fn hello(authority: &Authority) -> Vec<u8> {
    let session = tls::Session::client(&trusting(authority, None), "127.0.0.1").unwrap();
    session.unsent().to_vec()
}

#[test]
fn a_handshake_that_is_cut_off_or_continued_with_garbage_costs_only_its_connection() {
    let authority = Authority::new();
    let server = start_with(optional(&authority), memory());
    let hello = hello(&authority);
    let mut garbage = 1_u32;
    let mut failures = 0;
    for length in (1..hello.len()).step_by(7).chain([hello.len()]) {
        let mut cut = server.connect();
        cut.send(&hello[..length]);
        cut.stream.shutdown(Shutdown::Write).unwrap();
        cut.read_to_end();
        let mut wrong = server.connect();
        let bytes: Vec<u8> = (0..300)
            .map(|_| {
                garbage = garbage.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (garbage >> 24) as u8
            })
            .collect();
        wrong.send(&[&hello[..length], &bytes].concat());
        wrong.stream.shutdown(Shutdown::Write).unwrap();
        wrong.read_to_end();
        failures += 2;
    }
    server.await_stat_value("tls_failures", |count| count == failures);
    server.await_stat_value("curr_connections", |open| open == 1);
    server.await_stat_value("buffer_bytes", |bytes| bytes < 1000);
    Secure::connect(&server, &trusting(&authority, None)).exchange(b"get a\r\n", b"END\r\n");
    let metrics = support::Monitored::new(&server);
    let handshakes = |result| metrics.value("tyrant_tls_handshakes_total", &[("result", result)]);
    assert_eq!((handshakes("success"), handshakes("failure")), (1.0, f64::from(failures as u32)));
}

#[test]
fn certificates_are_reloaded_under_a_thousand_connections_and_none_is_lost() {
    let (authority, other) = (Authority::new(), Authority::new());
    let files = authority.server(&["127.0.0.1"]);
    let server = start_with(Config { threads: 2, ..optional(&authority) }, memory());
    let config = trusting(&authority, None);
    let before: Vec<Secure> = (0..1000).map(|_| Secure::connect(&server, &config)).collect();
    // Some of them are in the middle of a request.
    for client in before.iter().step_by(2) {
        client.send(b"set key 0 0 5\r\nva");
    }
    // A file that cannot be used changes nothing.
    let certificate = std::fs::read(&files.certificate).unwrap();
    std::fs::write(&files.certificate, "no certificate").unwrap();
    let error = server.reload_certificates().unwrap_err();
    assert!(error.to_string().contains("server.pem"), "{error}");
    std::fs::write(&files.certificate, certificate).unwrap();
    Secure::connect(&server, &config).exchange(b"get a\r\n", b"END\r\n");

    let replacement = other.server(&["127.0.0.1"]);
    std::fs::copy(&replacement.certificate, &files.certificate).unwrap();
    std::fs::copy(&replacement.key, &files.key).unwrap();
    assert_eq!(server.reload_certificates().unwrap(), Some(Vec::new()));
    // A new trust: the old authority's clients do not connect any more, others do.
    Secure::try_connect(&server, &config).map(drop).unwrap_err();
    let after = Secure::connect(&server, &trusting(&other, None));
    after.exchange(b"get a\r\n", b"END\r\n");
    for (number, client) in before.iter().enumerate() {
        if number % 2 == 0 {
            client.exchange(b"lue\r\n", b"STORED\r\n");
        }
        client.exchange(b"get key\r\n", b"VALUE key 0 5\r\nvalue\r\nEND\r\n");
    }
}

#[test]
fn without_certificates_there_is_nothing_to_reload() {
    let server = start_with(config(), memory());
    assert_eq!(server.reload_certificates().unwrap(), None);
    // The first byte of TLS is not a request.
    let mut client = server.connect();
    client.send(&hello(&Authority::new()));
    client.send(b"\r\n");
    client.expect("ERROR\r\n");
}

/// A client whose records are cut anywhere.
struct Records {
    session: tls::Session,
    socket: TcpStream,
}

impl Records {
    fn connect(server: &Running, config: &ClientConfig) -> Self {
        let socket = TcpStream::connect(server.address).unwrap();
        socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
        Self { session: tls::Session::client(config, "127.0.0.1").unwrap(), socket }
    }

    /// Returns the bytes that are to be sent.
    fn take_unsent(&mut self) -> Vec<u8> {
        let unsent = self.session.unsent().to_vec();
        self.session.consume(unsent.len());
        unsent
    }

    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Reads once. Returns the content.
    fn receive(&mut self) -> Vec<u8> {
        let (mut records, mut plain) = (vec![0; 100_000], Vec::new());
        let kept = self.session.resume(&mut records);
        let received = self.socket.read(&mut records[kept..]).unwrap();
        assert!(received > 0, "the server ended the connection");
        self.session.open(&mut records[..kept + received], &mut plain).unwrap();
        plain
    }

    /// Completes the handshake.
    fn shake_hands(&mut self) {
        while self.session.is_handshaking() {
            let unsent = self.take_unsent();
            self.send(&unsent);
            if self.session.is_handshaking() {
                self.receive();
            }
        }
    }

    fn seal(&mut self, request: &[u8]) -> Vec<u8> {
        self.session.seal(request).unwrap();
        self.take_unsent()
    }

    fn expect(&mut self, reply: &[u8]) {
        let mut plain = Vec::new();
        while plain.len() < reply.len() {
            plain.extend(self.receive());
        }
        assert_eq!(plain.escape_ascii().to_string(), reply.escape_ascii().to_string());
    }
}

#[test]
fn a_record_or_a_handshake_that_has_begun_is_finished_when_the_server_stops() {
    let authority = Authority::new();
    for settings in [optional(&authority), required(&authority)] {
        let server = start_with(Config { stop_wait: WAIT_MAX, ..settings }, memory());
        let config = trusting(&authority, None);
        let mut cut = Records::connect(&server, &config);
        cut.shake_hands();
        let (whole, part) = (cut.seal(b"get a\r\n"), cut.seal(b"set a 0 0 1\r\nv\r\n"));
        let (first, rest) = part.split_at(part.len() / 2);
        cut.send(&[&whole, first].concat());
        // The reply shows that the part after it has arrived too.
        cut.expect(b"END\r\n");
        let mut begun = Records::connect(&server, &config);
        let hello = begun.take_unsent();
        begun.send(&hello);
        while begun.session.unsent().is_empty() {
            begun.receive();
        }
        let idle = Secure::connect(&server, &config);
        idle.exchange(b"get a\r\n", b"END\r\n");

        server.handle.stop();
        // The end of the idle connection shows that the one event loop has looked at all of them.
        assert_eq!((&idle.0).read_to_end(&mut Vec::new()).unwrap(), 0);
        cut.send(rest);
        cut.expect(b"STORED\r\n");
        begun.shake_hands();
        let finished = begun.take_unsent();
        let request = begun.seal(b"get a\r\n");
        begun.send(&[finished, request].concat());
        begun.expect(b"VALUE a 0 1\r\nv\r\nEND\r\n");
    }
}

#[test]
fn a_handshake_that_is_reset_counts_as_a_failure_and_a_later_error_does_not() {
    let authority = Authority::new();
    let server = start_with(optional(&authority), memory());
    let hello = hello(&authority);
    let mut reset = server.connect();
    reset.send(&hello[..hello.len() / 2]);
    let at_once = Some(Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(&reset.stream, at_once).unwrap();
    drop(reset);
    server.await_stat_value("tls_failures", |count| count == 1);

    let mut damaged = Records::connect(&server, &trusting(&authority, None));
    damaged.shake_hands();
    let mut records = damaged.seal(b"get a\r\n");
    *records.last_mut().unwrap() ^= 1;
    damaged.send(&records);
    damaged.socket.read_to_end(&mut Vec::new()).unwrap();
    let metrics = support::Monitored::new(&server);
    let handshakes = |result| metrics.value("tyrant_tls_handshakes_total", &[("result", result)]);
    assert_eq!((handshakes("success"), handshakes("failure")), (1.0, 1.0));
}

#[test]
fn the_end_of_a_clients_stream_leaves_its_replies_and_both_ends_say_that_they_end() {
    let authority = Authority::new();
    let server = start_with(optional(&authority), memory());
    let config = trusting(&authority, None);
    let mut session = tls::Session::client(&config, "127.0.0.1").unwrap();
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(WAIT_MAX)).unwrap();
    let (mut plain, mut has_sent) = (Vec::new(), false);
    while !session.has_ended() {
        if !session.is_handshaking() && !has_sent {
            has_sent = true;
            session.seal(b"set k 0 0 1\r\nv\r\nget k\r\n").unwrap();
            session.seal(b"quit\r\n").unwrap();
        }
        let unsent = session.unsent().to_vec();
        session.consume(unsent.len());
        socket.write_all(&unsent).unwrap();
        let mut records = vec![0; 100_000];
        let kept = session.resume(&mut records);
        let received = socket.read(&mut records[kept..]).unwrap();
        assert!(received > 0, "the server ended without saying so");
        session.open(&mut records[..kept + received], &mut plain).unwrap();
    }
    assert_eq!(plain, b"STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");

    let client = Secure::connect(&server, &config);
    client.send(b"get k\r\n");
    client.0.shut_down().unwrap();
    server.await_stat_value("curr_connections", |open| open == 1);
    assert_eq!(server.stat_value("tls_failures"), 0);
}

#[test]
fn an_idle_connection_is_charged_for_its_session_alone_and_the_budget_bounds_their_number() {
    let authority = Authority::new();
    let sessions = 20;
    let config = Config {
        // Half a session is left for what the others send.
        buffer_bytes_max: sessions * SESSION_BYTES + SESSION_BYTES / 2,
        ..optional(&authority)
    };
    let server = start_with(config, memory());
    let config = trusting(&authority, None);
    let mut open = Vec::new();
    while let Ok(client) = Secure::try_connect(&server, &config) {
        let sent = (&client.0).write_all(b"get a\r\n");
        if sent.and_then(|()| (&client.0).read_exact(&mut [0; 5])).is_err() {
            break;
        }
        open.push(client);
        assert!(open.len() <= sessions);
    }
    assert!(open.len() > sessions / 2, "{}", open.len());
    server.await_stat_value("buffer_bytes", |bytes| bytes == (open.len() * SESSION_BYTES) as u64);
    for client in &open {
        client.exchange(b"get a\r\n", b"END\r\n");
    }
}

#[test]
fn the_console_does_not_stand_in_for_a_required_certificate() {
    let authority = Authority::new();
    let users = Some(users(&[("ann", "secret")]));
    let folder = tempfile::tempdir().unwrap();
    let cases = [(false, None), (false, users.clone()), (true, users)];
    for (number, (may_be_plain, users)) in cases.into_iter().enumerate() {
        let config = if may_be_plain { optional(&authority) } else { required(&authority) };
        let mut config = Config { users, ..config };
        config.tls.as_mut().unwrap().files.client_authorities = Some(authority.file());
        // A Unix socket beside the port needs none.
        config.listen.push(Endpoint::Unix(folder.path().join(format!("socket-{number}"))));
        let server = start_with(config, memory());
        let console = Monitored::new(&server);
        let (_, list) = console.get("/ui/databases", "");
        assert!(list.contains("need certificates"), "{list}");
        let id = list.split("\"id\":\"").nth(1).unwrap().split('"').next().unwrap();
        let credentials = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
        let (head, _) = console.get(&format!("/ui/record?db={id}&key=k"), credentials);
        assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    }
}

#[test]
fn a_client_certificate_that_names_a_user_is_that_users_login() {
    let authority = Authority::new();
    let mut config = Config { users: Some(users(&[("ann", "secret")])), ..optional(&authority) };
    config.tls.as_mut().unwrap().files.client_authorities = Some(authority.file());
    let server = start_with(config, memory());
    let ann = Secure::connect(&server, &trusting(&authority, Some(authority.client("ann"))));
    for (request, reply) in EXCHANGES {
        ann.send(request);
        if request.starts_with(b"GET") {
            let mut rest = vec![0; 17];
            (&ann.0).read_exact(&mut rest).unwrap();
            assert_eq!(rest, *reply);
            // The rest of the head ends with an empty line, and the body has two bytes.
            while !rest.ends_with(b"\r\n\r\nxy") {
                let mut byte = [0];
                (&ann.0).read_exact(&mut byte).unwrap();
                rest.push(byte[0]);
            }
        } else {
            ann.expect(reply);
        }
    }
    // Credentials that are sent count, not the certificate.
    let client = Secure::connect(&server, &trusting(&authority, Some(authority.client("ann"))));
    client.send(b"GET /b HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YW5uOndyb25n\r\n\r\n");
    client.expect(b"HTTP/1.1 401 ");
    let eve = Secure::connect(&server, &trusting(&authority, Some(authority.client("eve"))));
    eve.exchange(b"get a\r\n", b"CLIENT_ERROR unauthenticated\r\n");
    let without = Secure::try_connect(&server, &trusting(&authority, None));
    // In TLS 1.3 the client learns of the refusal with its first read.
    let refused = without.and_then(|client| {
        (&client.0).write_all(b"get a\r\n")?;
        (&client.0).read_exact(&mut [0; 5])
    });
    assert!(refused.unwrap_err().to_string().contains("alert"));
    let mut plain = server.connect();
    plain.exchange("get a\r\n", "CLIENT_ERROR unauthenticated\r\n");
}
