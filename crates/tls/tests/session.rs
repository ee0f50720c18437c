//! Sessions: what passes between both ends arrives, whatever its pieces, and each refusal has a
//! reason at both ends.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use support::{Authority, Files};
use tls::{
    ClientConfig, ClientSettings, Error, INCOMING_BYTES_MAX, SESSION_BYTES, ServerConfig,
    ServerFiles, Session,
};

/// Random numbers, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

fn server_config(files: &Files, client_authority: Option<&Authority>) -> ServerConfig {
    let files = ServerFiles {
        certificates: files.certificate.clone(),
        key: files.key.clone(),
        client_authorities: client_authority.map(Authority::file),
    };
    files.read().unwrap()
}

fn client_config(authority: &Authority, identity: Option<Files>) -> ClientConfig {
    let settings = ClientSettings {
        authorities: Some(authority.file()),
        identity: identity.map(|files| (files.certificate, files.key)),
        ..ClientSettings::default()
    };
    settings.read().unwrap()
}

/// Passes bytes to a session, in one piece. Returns what they contain.
fn receive(session: &mut Session, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut records = vec![0; INCOMING_BYTES_MAX + bytes.len()];
    let kept = session.resume(&mut records);
    records[kept..kept + bytes.len()].copy_from_slice(bytes);
    let mut plain = Vec::new();
    let opened = session.open(&mut records[..kept + bytes.len()], &mut plain);
    opened.map(|()| plain).map_err(|error| error.to_string())
}

fn unsent(session: &mut Session) -> Vec<u8> {
    let bytes = session.unsent().to_vec();
    session.consume(bytes.len());
    bytes
}

/// Passes everything to be sent from one session to the other one, in pieces of random length.
fn pass(from: &mut Session, to: &mut Session, random: &mut Random) -> Result<Vec<u8>, String> {
    let bytes = unsent(from);
    let (mut rest, mut plain) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(random.below(rest.len()) + 1);
        plain.extend(receive(to, piece)?);
        rest = later;
    }
    Ok(plain)
}

/// Carries out a handshake. Returns the reasons of the client and of the server if it fails.
fn connect(
    client: &ClientConfig,
    server: &ServerConfig,
    host: &str,
) -> Result<(Session, Session), (Option<String>, Option<String>)> {
    let mut client = Session::client(client, host).unwrap();
    let mut server = Session::server(server).unwrap();
    let mut random = Random(7);
    for _ in 0..10 {
        let at_server = pass(&mut client, &mut server, &mut random).err();
        let at_client = pass(&mut server, &mut client, &mut random).err();
        if at_server.is_some() || at_client.is_some() {
            // Both learn why.
            let at_server = at_server.or_else(|| pass(&mut client, &mut server, &mut random).err());
            return Err((at_client, at_server));
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok((client, server))
}

#[test]
fn content_passes_in_both_directions_whatever_the_pieces_of_its_records() {
    let authority = Authority::new();
    let server = server_config(&authority.server(&["localhost"]), None);
    let client = client_config(&authority, None);
    let mut random = Random(1);
    let (mut client, mut server) = connect(&client, &server, "localhost").unwrap();
    assert_eq!(server.client_user(), None);
    for length in [0, 1, 100, 16 << 10, (16 << 10) + 1, 200_000] {
        let content = random.bytes(length);
        let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
        for piece in content.chunks(70_000) {
            client.seal(piece).unwrap();
            at_server.extend(pass(&mut client, &mut server, &mut random).unwrap());
            server.seal(piece).unwrap();
            at_client.extend(pass(&mut server, &mut client, &mut random).unwrap());
        }
        assert!(at_server == content && at_client == content, "{length}");
    }
}

#[test]
fn a_session_at_rest_owns_no_buffer() {
    let authority = Authority::new();
    let server = server_config(&authority.server(&["localhost"]), None);
    let (mut client, mut server) =
        connect(&client_config(&authority, None), &server, "localhost").unwrap();
    let mut scratch = vec![0; 100_000];
    for length in [10, 50_000] {
        server.lend(&mut scratch);
        server.seal(&vec![1; length]).unwrap();
        let records = unsent(&mut server);
        server.give_back(&mut scratch);
        assert_eq!(receive(&mut client, &records).unwrap().len(), length);
        client.seal(&vec![2; length]).unwrap();
        let records = unsent(&mut client);
        let (first, rest) = records.split_at(5);
        assert_eq!(receive(&mut server, first).unwrap(), b"");
        assert_eq!(server.bytes(), SESSION_BYTES + 5);
        assert_eq!(receive(&mut server, rest).unwrap().len(), length);
        assert_eq!(server.bytes(), SESSION_BYTES);
        assert_eq!(scratch.len(), 100_000);
    }
}

#[test]
fn each_end_may_end_its_stream_while_the_other_one_goes_on() {
    let authority = Authority::new();
    let server = server_config(&authority.server(&["localhost"]), None);
    let (mut client, mut server) =
        connect(&client_config(&authority, None), &server, "localhost").unwrap();
    let mut random = Random(3);
    client.seal(b"last").unwrap();
    client.close();
    client.seal(b"more").unwrap_err();
    assert_eq!(pass(&mut client, &mut server, &mut random).unwrap(), b"last");
    assert!(server.has_ended());
    server.seal(b"reply").unwrap();
    assert!(!unsent(&mut server).is_empty());
    server.close();
    assert!(!server.unsent().is_empty());
}

#[test]
fn a_certificate_that_the_client_does_not_trust_is_refused_with_a_reason_at_both_ends() {
    let (authority, other) = (Authority::new(), Authority::new());
    let valid = authority.server(&["localhost", "127.0.0.1"]);
    let server = server_config(&valid, None);
    let trusting = client_config(&authority, None);
    for host in ["localhost", "127.0.0.1"] {
        connect(&trusting, &server, host).unwrap();
    }
    let expired = server_config(&authority.expired_server(&["localhost"]), None);
    for (client, server, host, reason) in [
        (&client_config(&other, None), &server, "localhost", "authority is unknown"),
        (&trusting, &server, "elsewhere", "not valid for name"),
        (&trusting, &server, "127.0.0.2", "not valid for name"),
        (&trusting, &expired, "localhost", "expired"),
    ] {
        let (at_client, at_server) = connect(client, server, host).unwrap_err();
        assert!(at_client.as_ref().unwrap().contains(reason), "{at_client:?}");
        assert!(at_server.as_ref().unwrap().contains("alert"), "{at_server:?}");
    }
    let settings = ClientSettings { accepts_any_server: true, ..ClientSettings::default() };
    connect(&settings.read().unwrap(), &server, "elsewhere").unwrap();
    let settings = ClientSettings {
        authorities: Some(authority.file()),
        server_name: Some("localhost".to_owned()),
        ..ClientSettings::default()
    };
    connect(&settings.read().unwrap(), &server, "elsewhere").unwrap();
}

#[test]
fn a_server_with_authorities_of_clients_requires_a_certificate_and_learns_its_user() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = server_config(&authority.server(&["localhost"]), Some(&authority));
    let client = client_config(&authority, Some(authority.client("ann")));
    let (_, session) = connect(&client, &server, "localhost").unwrap();
    assert_eq!(session.client_user().as_deref(), Some("ann"));
    for (identity, reason) in [
        (None, "no certificates"),
        (Some(other.client("ann")), "authority is unknown"),
        (Some(authority.expired_client("late")), "expired"),
        // A server's certificate is not that of a client.
        (Some(authority.server(&["localhost"])), "key usage"),
    ] {
        let client = client_config(&authority, identity);
        let (at_client, at_server) = connect(&client, &server, "localhost").unwrap_err();
        assert!(at_server.as_ref().unwrap().contains(reason), "{at_server:?}");
        assert!(at_client.as_ref().unwrap().contains("alert"), "{at_client:?}");
    }
}

#[test]
fn random_bytes_after_any_part_of_a_handshake_end_the_session_at_most() {
    let authority = Authority::new();
    let server = server_config(&authority.server(&["localhost"]), None);
    let client = client_config(&authority, None);
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut server = Session::server(&server).unwrap();
        let mut client = Session::client(&client, "localhost").unwrap();
        let mut alive = true;
        for _ in 0..random.below(3) {
            alive = pass(&mut client, &mut server, &mut random).is_ok()
                && pass(&mut server, &mut client, &mut random).is_ok();
        }
        assert!(alive, "{seed}");
        for _ in 0..10 {
            let mut bytes = if random.below(2) == 0 { unsent(&mut client) } else { Vec::new() };
            if random.below(2) == 0 {
                // The head of a record, so that the rest is taken for its content.
                bytes.extend([20 + random.below(5) as u8, 3, 3, 0, random.below(200) as u8]);
            }
            let length = random.below(300);
            bytes.extend(random.bytes(length));
            if receive(&mut server, &bytes).is_err() {
                assert!(server.is_over());
            }
            // Replies are sent meanwhile.
            let _ = server.seal(b"reply");
            assert!(server.bytes() < SESSION_BYTES + 2 * INCOMING_BYTES_MAX);
        }
    }
}

#[test]
fn a_message_longer_than_what_a_session_keeps_is_refused() {
    let authority = Authority::new();
    let server = server_config(&authority.server(&["localhost"]), None);
    let mut session = Session::server(&server).unwrap();
    // The head of a message that is announced as longer, in records of one byte each.
    let head = [1, 0, 0xff, 0];
    let mut refused = None;
    for number in 0..INCOMING_BYTES_MAX {
        let byte = head.get(number).copied().unwrap_or(0);
        if let Err(error) = receive(&mut session, &[22, 3, 1, 0, 1, byte]) {
            refused = Some(error);
            break;
        }
    }
    assert!(refused.is_some_and(|error| error.contains("longer")));
    assert!(session.is_over());
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let files = authority.server(&["localhost"]);
    let other = authority.client("other");
    let nothing = authority.folder().join("nothing");
    let good = ServerFiles {
        certificates: files.certificate.clone(),
        key: files.key.clone(),
        client_authorities: None,
    };
    good.read().unwrap();
    let read = |change: &dyn Fn(&mut ServerFiles)| {
        let mut files = good.clone();
        change(&mut files);
        files.read().unwrap_err()
    };
    assert!(matches!(read(&|to| to.certificates = nothing.clone()), Error::Read { .. }));
    assert!(matches!(read(&|to| to.certificates = files.key.clone()), Error::NoCertificate { .. }));
    assert!(matches!(read(&|to| to.key = files.certificate.clone()), Error::NoKey { .. }));
    let wrong_key = read(&|to| to.key = other.key.clone());
    assert!(wrong_key.to_string().contains("server.pem"), "{wrong_key}");
    let keys = read(&|to| to.client_authorities = Some(files.key.clone()));
    assert!(matches!(keys, Error::NoCertificate { .. }));
    let settings = ClientSettings {
        server_name: Some("no name".to_owned()),
        accepts_any_server: true,
        ..ClientSettings::default()
    };
    assert!(matches!(settings.read().unwrap_err(), Error::ServerName(_)));
}
