//! Rights of users: every protocol refuses an operation without its right, or on other keys.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use server::{Config, PasswordCost, UserEntry, UserFile, Users};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use support::{
    Client, MISC_FAILURE, Packet, Running, config, following, list, logging, memory, memory_tree,
    misc, records, redis, request, start_with, users_with, wait_until,
};
use wire::binary::Request;

/// Users: one with all rights, one who reads, one with a prefix, one with none.
const USERS: &[(&str, &[&str])] = &[
    ("root", &["read", "write", "admin", "scripts"]),
    ("reader", &["read"]),
    ("ann", &["read:a:", "write:a:"]),
    ("nobody", &[]),
];

const FORBIDDEN: &str = "CLIENT_ERROR forbidden\r\n";

const OK: &[u8] = b"\0";
const FAILED: &[u8] = b"\x01";

fn start() -> (Running, Database) {
    let database = memory_tree();
    for (key, value) in [("a:1", "v"), ("a:n", "5"), ("b:1", "w")] {
        database.put(key.as_bytes(), value.as_bytes()).unwrap();
    }
    let config = Config { users: Some(users_with(USERS)), shutdown_command: true, ..config() };
    (start_with(config, database.clone()), database)
}

/// Connects, and logs in over Tokyo Tyrant's protocol, which the other protocols but HTTP share.
fn log_in(server: &Running, name: &str) -> Client {
    let mut client = server.connect();
    client.exchange(misc("login", &[name, "secret"]), b"\0\0\0\0\0");
    client
}

#[test]
fn memcached_refuses_other_keys_and_missing_rights() {
    let (server, database) = start();
    let before = records(&database);
    let mut client = log_in(&server, "ann");
    for line in [
        "get b:1",
        "get a:1 b:1",
        "gets b:1",
        "gat 0 a:1 b:1",
        "set b:1 0 0 1\r\nx",
        "add b:2 0 0 1\r\nx",
        "append b:1 0 0 1\r\nx",
        "delete b:1",
        "incr b:1 1",
        "touch b:1 1",
        "mg b:1 v",
        "ms b:1 1\r\nx",
        "md b:1",
        "ma b:1",
        "me b:1",
        "flush_all",
        "flush_all 10",
        "cache_memlimit 64",
        "lru_crawler metadump all",
        "lru_crawler mgdump all",
        "shutdown",
    ] {
        client.exchange(format!("{line}\r\n"), FORBIDDEN);
    }
    // Without a reply there is no refusal either.
    client.exchange("set b:1 0 0 1 noreply\r\nx\r\nget a:1\r\n", "VALUE a:1 0 1\r\nv\r\nEND\r\n");
    assert_eq!(records(&database), before);
    client.exchange("set a:2 0 0 1\r\nx\r\n", "STORED\r\n");
    client.exchange("incr a:n 1\r\n", "6\r\n");
    client.exchange("version\r\n", "VERSION ");
    let mut reader = log_in(&server, "reader");
    reader.exchange("get a:1 b:1\r\n", "VALUE a:1 0 1\r\nv\r\nVALUE b:1 0 1\r\nw\r\nEND\r\n");
    reader.exchange("set a:1 0 0 1\r\nx\r\n", FORBIDDEN);
    reader.exchange("gat 0 a:1\r\n", FORBIDDEN);
    log_in(&server, "nobody").exchange("get a:1\r\n", FORBIDDEN);
    log_in(&server, "root").exchange("flush_all\r\n", "OK\r\n");
}

#[test]
fn redis_refuses_other_keys_and_missing_rights() {
    let (server, database) = start();
    let before = records(&database);
    let forbidden = "-NOPERM this user has no right to do that, or not with this key\r\n";
    let mut client = log_in(&server, "ann");
    for line in [
        "GET b:1",
        "MGET a:1 b:1",
        "SET b:1 x",
        "SET b:1 x NX GET",
        "SETNX b:2 x",
        "SETEX b:1 10 x",
        "PSETEX b:1 10 x",
        "GETSET b:1 x",
        "GETDEL b:1",
        "GETEX b:1 PERSIST",
        "MSET a:2 x b:1 x",
        "APPEND b:1 x",
        "STRLEN b:1",
        "GETRANGE b:1 0 1",
        "SUBSTR b:1 0 1",
        "SETRANGE b:1 0 x",
        "INCR b:1",
        "INCRBY b:1 1",
        "DECR b:1",
        "DECRBY b:1 1",
        "DEL a:1 b:1",
        "UNLINK b:1",
        "EXISTS a:1 b:1",
        "TOUCH b:1",
        "TYPE b:1",
        "EXPIRE b:1 10",
        "PEXPIREAT b:1 1",
        "PERSIST b:1",
        "TTL b:1",
        "PEXPIRETIME b:1",
        "KEYS *",
        "KEYS b:*",
        "SCAN 0",
        "SCAN 0 MATCH b:*",
        "RANDOMKEY",
        "MSETNX a:2 x b:2 y",
        "RENAME a:1 b:2",
        "RENAME b:1 a:2",
        "RENAMENX a:1 b:2",
        "COPY b:1 a:2",
        "COPY a:1 b:2",
        "WATCH b:1",
        "SUBSCRIBE a:1 b:1",
        "PSUBSCRIBE *",
        "PSUBSCRIBE b:*",
        "SSUBSCRIBE b:1",
        "PUBLISH b:1 x",
        "SPUBLISH b:1 x",
        "PUBSUB CHANNELS",
        "PUBSUB NUMSUB b:1",
        "FLUSHDB",
        "FLUSHALL",
    ] {
        client.send(&redis(line));
        let reply = String::from_utf8(client.read_until(b"\r\n")).unwrap();
        assert_eq!(reply, forbidden, "{line}");
    }
    assert_eq!(records(&database), before);
    client.exchange(redis("MSET a:2 x a:3 y"), "+OK\r\n");
    client.exchange(redis("DEL a:2 a:3"), ":2\r\n");
    client.exchange(redis("KEYS a:1"), "*1\r\n$3\r\na:1\r\n");
    client.exchange(redis("SCAN 0 MATCH a:1*"), "*2\r\n$1\r\n0\r\n*1\r\n$3\r\na:1\r\n");
    client.exchange(redis("MULTI"), "+OK\r\n");
    client.exchange(redis("GET b:1"), forbidden);
    client.exchange(redis("SET a:1 x"), "+QUEUED\r\n");
    let aborted = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    client.exchange(redis("EXEC"), aborted);
    assert_eq!(records(&database), before);
    let subscribed = "*3\r\n$10\r\npsubscribe\r\n$4\r\na:x*\r\n:1\r\n";
    client.exchange(redis("PSUBSCRIBE a:x*"), subscribed);
    let mut reader = log_in(&server, "reader");
    reader.exchange(redis("PUBLISH a:x1 m"), forbidden);
    reader.exchange(redis("MGET a:1 b:1"), "*2\r\n$1\r\nv\r\n$1\r\nw\r\n");
    reader.exchange(redis("SET a:1 x"), forbidden);
    reader.exchange(redis("EXPIRE a:1 10"), forbidden);
    log_in(&server, "nobody").exchange(redis("GET a:1"), forbidden);
    log_in(&server, "root").exchange(redis("FLUSHALL"), "+OK\r\n");
}

#[test]
fn memcacheds_binary_protocol_refuses_other_keys_and_missing_rights() {
    let (server, _) = start();
    let ask = |client: &mut Client, opcode: u8, extras: &[u8], key: &[u8], value: &[u8]| {
        let response = client.ask(&Packet { opcode, extras, key, value, ..Packet::default() });
        (response.status, String::from_utf8_lossy(&response.value).into_owned())
    };
    let forbidden = (0x20, "forbidden".to_owned());
    let mut client = log_in(&server, "ann");
    assert_eq!(ask(&mut client, 0x00, b"", b"b:1", b""), forbidden);
    assert_eq!(ask(&mut client, 0x01, &[0; 8], b"b:1", b"x"), forbidden);
    assert_eq!(ask(&mut client, 0x04, b"", b"b:1", b""), forbidden);
    assert_eq!(ask(&mut client, 0x08, b"", b"", b""), forbidden);
    assert_eq!(ask(&mut client, 0x00, b"", b"a:1", b""), (0, "v".into()));
    assert_eq!(ask(&mut client, 0x01, &[0; 8], b"a:1", b"x").0, 0);
    let mut reader = log_in(&server, "reader");
    assert_eq!(ask(&mut reader, 0x00, b"", b"b:1", b""), (0, "w".into()));
    assert_eq!(ask(&mut reader, 0x01, &[0; 8], b"a:1", b"x"), forbidden);
}

#[test]
fn tokyo_tyrants_protocol_refuses_other_keys_and_missing_rights() {
    let (server, database) = start();
    let before = records(&database);
    let mut client = log_in(&server, "ann");
    let (key, value): (&[u8], &[u8]) = (b"b:1", b"x");
    for refused in [
        Request::Get { key },
        Request::Put { key, value },
        Request::PutKeep { key: b"b:2", value },
        Request::PutCat { key, value },
        Request::Out { key },
        Request::ValueSize { key },
        Request::IterInit,
        Request::IterNext,
        Request::Sync,
        Request::Vanish,
        Request::Optimize { parameters: b"" },
        Request::Copy { path: b"x" },
        Request::Restore { path: b"x", timestamp_us: 0, options: 0 },
        Request::SetMaster { host: b"h", port: 1, timestamp_us: 0, options: 0 },
        Request::Ext { name: b"f", options: 0, key, value },
    ] {
        client.exchange(request(&refused), FAILED);
    }
    let none = list(&[]);
    client.exchange(request(&Request::KeysWithPrefix { prefix: b"b:", max: -1 }), &none);
    client.exchange(request(&Request::KeysWithPrefix { prefix: b"a", max: -1 }), &none);
    for (name, arguments) in [
        ("get", &["b:1"][..]),
        ("getlist", &["a:1", "b:1"]),
        ("putlist", &["a:1", "x", "b:1", "x"]),
        ("outlist", &["b:1"]),
        ("range", &["a:", "1", "b"]),
        ("regex", &["^a:"]),
        ("iterinit", &[]),
        ("vanish", &[]),
        ("sync", &[]),
        ("optimize", &[]),
        ("check", &["start"]),
        ("reload", &[]),
        ("metrics", &["databases"]),
        ("promote", &[]),
    ] {
        client.exchange(misc(name, arguments), MISC_FAILURE);
    }
    // The reason is told.
    client.exchange(misc("get", &["b:1"]), MISC_FAILURE);
    client.send(&misc("error", &[]));
    let text = client.read_until(b"keys only");
    assert!(String::from_utf8_lossy(&text).contains("lacks the right read"));
    assert_eq!(records(&database), before);
    // The metrics are of the server, as its status is, and have no key.
    client.send(&misc("metrics", &[]));
    client.read_until(b"tyrant_replicas{database=\"");
    let mut client = log_in(&server, "ann");
    client.exchange(request(&Request::Put { key: b"a:2", value }), OK);
    let keys = request(&Request::KeysWithPrefix { prefix: b"a:", max: -1 });
    client.exchange(keys, b"\0\0\0\0\x03\0\0\0\x03a:1\0\0\0\x03a:2\0\0\0\x03a:n");
    client.exchange(misc("putlist", &["a:1", "x", "a:3", "x"]), b"\0\0\0\0\0");
    for name in ["reader", "ann"] {
        // A replica needs the rights to read and to administer.
        let mut client = log_in(&server, name);
        client.send(&request(&Request::Replicate { timestamp_us: 1, server_id: 2 }));
        client.expect_close();
        // One of this project is told.
        let follow = Request::Follow { timestamp_us: 1, server_id: 2, options: 0, port: 0 };
        let mut client = log_in(&server, name);
        client.send(&request(&follow));
        client.read_until(b"the user lacks the right ");
    }
    let mut reader = log_in(&server, "reader");
    reader.exchange(request(&Request::Get { key: b"b:1" }), b"\0\0\0\0\x01w");
    reader.exchange(request(&Request::IterInit), OK);
    reader.exchange(request(&Request::Put { key: b"b:1", value }), FAILED);
    reader.exchange(request(&Request::Vanish), FAILED);
    log_in(&server, "root").exchange(request(&Request::Vanish), OK);
}

#[test]
fn http_refuses_other_keys_and_missing_rights() {
    let (server, database) = start();
    let before = records(&database);
    // base64 of NAME:secret
    let (ann, reader) = ("YW5uOnNlY3JldA==", "cmVhZGVyOnNlY3JldA==");
    let mut client = server.connect();
    // The user of the connection does not matter, each request has its own.
    client.exchange(misc("login", &["root", "secret"]), b"\0\0\0\0\0");
    let mut ask = |user: &str, request: &str, body: &str| {
        let (line, headers) = request.split_once('\n').unwrap_or((request, ""));
        let length = body.len();
        client.send(
            format!(
                "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {user}\r\n{headers}\
                 Content-Length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        );
        let head = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
        let length = head
            .split("Content-Length: ")
            .nth(1)
            .map_or("0", |rest| rest.split("\r\n").next().unwrap());
        let length: usize = length.parse().unwrap();
        let is_head = request.starts_with("HEAD");
        let mut body = vec![0; if is_head { 0 } else { length }];
        std::io::Read::read_exact(&mut client.stream, &mut body).unwrap();
        (head[9..12].to_owned(), String::from_utf8(body).unwrap())
    };
    let misc_of = |name: &str| format!("POST /\nX-TT-MNAME: {name}\r\n");
    for (request, body) in [
        ("GET /b:1", ""),
        ("HEAD /b:1", ""),
        ("PUT /b:1", "x"),
        ("PUT /b:1\nX-TT-PDMODE: 2\r\n", "x"),
        ("DELETE /b:1", ""),
        ("GET /?list\nAccept: application/json\r\n", ""),
        ("GET /?list&prefix=a\nAccept: application/json\r\n", ""),
        ("POST /b:1\nX-TT-XNAME: f\r\n", ""),
        (&misc_of("get"), "key=b:1"),
        (&misc_of("vanish"), ""),
    ] {
        let expected = if request.contains("XNAME") { "500" } else { "403" };
        assert_eq!(ask(ann, request, body).0, expected, "{request}");
    }
    let lines = "{\"get\":\"a:1\"}\n{\"get\":\"b:1\"}\n{\"put\":\"b:1\",\"value\":\"x\"}\n";
    let (status, body) = ask(ann, "POST /\nContent-Type: application/x-ndjson\r\n", lines);
    assert_eq!(status, "200", "{body}");
    assert_eq!(body.matches("\"error\":\"forbidden\"").count(), 2, "{body}");
    assert!(body.contains("\"value\":\"v\""), "{body}");
    // A large value is refused before it is received.
    let large = "x".repeat(1 << 20);
    assert_eq!(records(&database), before);
    assert_eq!(ask(ann, "GET /a:1", ""), ("200".into(), "v".into()));
    assert_eq!(ask(ann, "PUT /a:1", "x").0, "201");
    assert_eq!(ask(ann, "GET /?list&prefix=a:\nAccept: application/json\r\n", "").0, "200");
    assert_eq!(ask(reader, "GET /b:1", ""), ("200".into(), "w".into()));
    assert_eq!(ask(reader, "PUT /b:1", "x").0, "403");
    assert_eq!(ask(reader, "GET /?list\nAccept: application/json\r\n", "").0, "200");
    assert_eq!(ask(reader, "PUT /b:1", &large).0, "403");
}

#[test]
fn the_user_of_an_http_request_is_not_that_of_the_requests_after_it() {
    let (server, _) = start();
    let get =
        "GET /b:1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic cm9vdDpzZWNyZXQ=\r\n\r\n";
    let mut client = log_in(&server, "ann");
    // All in one packet, so that they are decoded ahead.
    let forbidden = FORBIDDEN.repeat(4);
    client.send(format!("{get}{}{get}", "get b:1\r\n".repeat(4)).as_bytes());
    assert!(client.read_until(b"\r\n\r\nw").starts_with(b"HTTP/1.1 200 "));
    client.expect(forbidden.as_bytes());
    assert!(client.read_until(b"\r\n\r\nw").starts_with(b"HTTP/1.1 200 "));
}

#[test]
fn a_reload_changes_the_rights_of_present_connections() {
    let (server, _) = start();
    let mut client = log_in(&server, "reader");
    client.exchange("set a:1 0 0 1\r\nx\r\n", FORBIDDEN);
    // The hashes of the file stay the same.
    let users = |rights: &str| {
        let mut entry = UserEntry::with_password("reader", b"secret", PasswordCost::MIN);
        entry.as_mut().unwrap().rights = vec![rights.into()];
        entry.unwrap()
    };
    let entry = users("write");
    let file = |entry: UserEntry| {
        let users = Arc::new(Users::of(UserFile { users: vec![entry] }));
        server.handle.reload(&Config { users: Some(users), ..config() });
    };
    file(entry.clone());
    let mut client = log_in(&server, "reader");
    client.exchange("set a:1 0 0 1\r\nx\r\n", "STORED\r\n");
    file(UserEntry { rights: vec!["read".into()], ..entry });
    client.exchange("set a:1 0 0 1\r\nx\r\n", FORBIDDEN);
    client.exchange("get a:1\r\n", "VALUE a:1 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn a_reload_ends_the_streams_to_replicas_whose_user_may_not_be_one_any_more() {
    let entry = |name: &str| UserEntry::with_password(name, b"secret", PasswordCost::MIN).unwrap();
    let (root, writer) = (entry("root"), entry("writer"));
    let lesser = UserEntry { rights: vec!["read".into()], ..root.clone() };
    let credentials = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&credentials, "root:secret\n").unwrap();
    std::fs::set_permissions(&credentials, PermissionsExt::from_mode(0o600)).unwrap();
    // The user is removed, or lacks a right.
    for after in [vec![writer.clone()], vec![writer.clone(), lesser]] {
        let users =
            |users: &[UserEntry]| Some(Users::of(UserFile { users: users.to_vec() }).into());
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let present = users(&[writer.clone(), root.clone()]);
        let config = Config { users: present.clone(), ..logging(1, folders[0].path()) };
        let master = start_with(config.clone(), memory());
        // One replica of Tokyo Tyrant, and one of this project.
        let mut stream = log_in(&master, "root");
        stream.send(&request(&Request::Replicate { timestamp_us: 1, server_id: 99 }));
        let mut following = following(2, folders[1].path(), master.address);
        following.following.credentials = Some(credentials.path().to_owned());
        let copy = memory();
        let _replica = start_with(following, copy.clone());
        // A reload that changes nothing ends none.
        master.handle.reload(&config);
        let mut writer = log_in(&master, "writer");
        writer.exchange("set k 0 0 6\r\nbefore\r\n", "STORED\r\n");
        stream.read_until(b"before");
        wait_until(|| copy.get(b"k").unwrap().is_some());
        let replicas = |client: &mut Client| {
            client.send(&request(&Request::Stat));
            let length = client.read(5);
            let length = u32::from_be_bytes(length[1..].try_into().unwrap()) as usize;
            let stat = String::from_utf8(client.read(length)).unwrap();
            stat.matches("replica_").count() - stat.matches("state=disconnected").count()
        };
        assert_eq!(replicas(&mut writer), 2);
        master.handle.reload(&Config { users: users(&after), ..config });
        // It fails if the stream does not end.
        stream.read_to_end();
        wait_until(|| replicas(&mut writer) == 0);
        writer.exchange("set after 0 0 1\r\nx\r\n", "STORED\r\n");
        assert!(copy.get(b"after").unwrap().is_none());
    }
}

/// Spellings of an id of a fixed-length database.
fn spellings(id: &str) -> Vec<String> {
    let (first, rest) = id.split_at(1);
    let mut spellings = Vec::new();
    for before in ["", "0", "00", "000", "x", "m", "min", "p0"] {
        for within in ["", "a", "-"] {
            for after in ["", "b", "max"] {
                spellings.push(format!("{before}{first}{within}{rest}{after}"));
            }
        }
    }
    spellings
}

#[test]
fn no_spelling_of_an_id_reaches_a_record_of_another_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let database = support::fixed(folder.path());
    for id in ["7", "17", "100", "250"] {
        database.put(id.as_bytes(), b"5").unwrap();
    }
    let prefixes = ["7", "0", "00", "m", "n", "p", "x", "17x", "[", "("];
    let rights: Vec<String> =
        prefixes.iter().flat_map(|it| [format!("read:{it}"), format!("write:{it}")]).collect();
    let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
    let users = users_with(&[("ann", &rights)]);
    let config = Config { users: Some(users), ..config() };
    let server = start_with(config, database.clone());
    let before = records(&database);
    let mut client = log_in(&server, "ann");
    let mut keys: Vec<String> =
        ["17", "100", "250", "18"].into_iter().flat_map(spellings).collect();
    keys.extend(["min", "max", "prev", "next"].map(String::from));
    let mut forms = 0;
    for name in &keys {
        let key = name.as_bytes();
        for line in [
            format!("get {name}"),
            format!("get 7 {name}"),
            format!("gat 0 {name}"),
            format!("set {name} 0 0 1\r\nx"),
            format!("append {name} 0 0 1\r\nx"),
            format!("delete {name}"),
            format!("incr {name} 1"),
            format!("touch {name} 1"),
            format!("mg {name} v"),
            format!("ms {name} 1\r\nx"),
            format!("md {name}"),
            format!("ma {name}"),
        ] {
            client.exchange(format!("{line}\r\n"), FORBIDDEN);
            forms += 1;
        }
        for form in [
            Request::Get { key },
            Request::Put { key, value: b"x" },
            Request::PutKeep { key, value: b"x" },
            Request::PutCat { key, value: b"x" },
            Request::Out { key },
            Request::ValueSize { key },
        ] {
            client.exchange(request(&form), FAILED);
            forms += 1;
        }
        for (function, arguments) in [
            ("get", &[name.as_str()][..]),
            ("put", &[name, "x"]),
            ("out", &[name]),
            ("getlist", &["7", name]),
            ("putlist", &["7", "x", name, "x"]),
            ("outlist", &["7", name]),
        ] {
            client.exchange(misc(function, arguments), MISC_FAILURE);
            forms += 1;
        }
        for (opcode, extras, value) in
            [(0x00, &b""[..], &b""[..]), (0x01, &[0; 8], b"x"), (0x04, b"", b"")]
        {
            let packet = Packet { opcode, extras, key, value, ..Packet::default() };
            assert_eq!(client.ask(&packet).status, 0x20, "{name}");
            forms += 1;
        }
        for method in ["GET", "PUT", "DELETE"] {
            let length = usize::from(method == "PUT");
            let body = &"x"[..length];
            let mut client = server.connect();
            client.send(
                format!(
                    "{method} /{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                     Authorization: Basic YW5uOnNlY3JldA==\r\nContent-Length: {length}\r\n\r\n{body}"
                )
                .as_bytes(),
            );
            let head = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
            assert_eq!(&head[9..12], "403", "{method} {name}");
            forms += 1;
        }
    }
    assert!(forms >= 3000, "{forms}");
    let none = list(&[]);
    for prefix in ["[1,300]", "[min,max]", "(0,max]", "1", "07"] {
        let prefix = prefix.as_bytes();
        client.exchange(request(&Request::KeysWithPrefix { prefix, max: -1 }), &none);
    }
    client.exchange(request(&Request::IterInit), FAILED);
    assert_eq!(records(&database), before);
    // The record of the right is reached by all spellings of its id.
    for name in ["7", "007", "x7", "7b"] {
        client.exchange(format!("get {name}\r\n"), format!("VALUE {name} 0 1\r\n5\r\nEND\r\n"));
        client.exchange(format!("set {name} 0 0 1\r\n5\r\n"), "STORED\r\n");
    }
    client.exchange("set 71 0 0 1\r\n5\r\n", "STORED\r\n");
}
