//! Recorded conversation: functions result in the same as Tokyo Tyrant's, byte for byte, except as
//! the table here states and justifies.
//!
//! The exchanges were captured from Tokyo Tyrant 1.1.41 with `fixtures/calls.lua`, in this order.
//! All of a database ran on one fresh database.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use scripts::{Allowed, Limits, Scripts, Source};
use server::{ClientPaths, Config, Endpoint, ExtensionSettings, Handle, HostNames, Server};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use support::{memory_tree, named};

const CALLS: &str = include_str!("fixtures/calls.lua");
const CONVERSATION: &str = include_str!("fixtures/conversation-lua.jsonl");

/// Calls of every function with texts, numbers, extremes, nil, booleans and tables: an expression
/// and its result. Before each, the database was emptied and given [`RECORDS`].
const ARGUMENTS: &str = include_str!("fixtures/conversation-lua-arguments.jsonl");
const RECORDS: [(&[u8], &[u8]); 3] = [(b"abc", b"value"), (b"kk", b"vv"), (b"1", b"one")];

/// Beginnings of the calls of [`ARGUMENTS`] that have another result, how many these are, and the
/// reason, which `docs/lua.md` has too.
const ARGUMENTS_OTHERWISE: &[(&str, usize, &str)] = &[
    ("_codec(\"xml\",\"a\\0b\")", 1, "a zero byte does not end a text"),
    ("_codec(\"~xml\",\"a\\0b\")", 1, "a zero byte does not end a text"),
    ("_codec(\"~quote\",\"a\\0b\")", 1, "a zero byte does not end a text"),
    ("_dist(", 2, "a zero byte does not end a text"),
    ("_regex(\"abc\",\"a\\0b\")", 1, "a zero byte does not end a text"),
    ("_split(\"a\\0b\\0\",", 2, "a zero byte does not end a text"),
    ("_strstr(\"abc\",\"a\\0b\")", 1, "a zero byte does not end a text"),
    ("_ucs({0})", 1, "a zero byte does not end a text"),
    ("_ucs({0xd800,0xdc00})", 1, "a pair of units is one character"),
    ("_codec(\"~base\",", 7, "what is not base64 has no bytes beyond it"),
    ("_codec(\"~pack\",", 5, "what is not packed has no text"),
    ("_misc(\"error\"", 5, "a call has a last failure of its own"),
    ("_misc(\"iternext\"", 3, "a call has an iterator of its own, which begins with the first key"),
    ("_misc(\"iterinit\",\"mk\",\"1\",\"2\")", 1, "a function refuses too many arguments"),
    ("_misc(\"put\",", 2, "a function refuses too many arguments"),
    ("_misc(\"$put\",", 2, "a function refuses too many arguments"),
    ("_misc(\"putcat\",", 2, "a function refuses too many arguments"),
    ("_stashout(", 2, "what is not in the stash is not removed"),
];

/// Exchanges of a database that have another result, the reason, and the results that they may
/// have.
type Otherwise = &'static [(&'static str, &'static str, &'static [&'static [u8]])];

const HASH: Otherwise = &[
    (
        "_misc(\"error\")",
        "a call has a last failure of its own",
        &[b"\0\0\0\0\x19{\"2: invalid operation\"}."],
    ),
    ("http missing", "the text is the reason", &[NO_FUNCTION]),
    (
        "_fwmkeys(\"t\")",
        "the order is that of the file",
        &[b"\0\0\0\0\x10{\"two\",\"three\"}.", b"\0\0\0\0\x10{\"three\",\"two\"}."],
    ),
    (
        "_fwmkeys(\"t\",1)",
        "the order is that of the file",
        &[b"\0\0\0\0\x08{\"two\"}.", b"\0\0\0\0\x0a{\"three\"}."],
    ),
    (
        "_misc(\"regex\",\"^t\")",
        "the order is that of the file",
        &[
            b"\0\0\0\0\x1b{\"two\",\"zwei\",\"three\",\"3\"}.",
            b"\0\0\0\0\x1b{\"three\",\"3\",\"two\",\"zwei\"}.",
        ],
    ),
    (
        "_misc(\"regex\",\"^t\",1)",
        "the order is that of the file",
        &[b"\0\0\0\0\x0f{\"two\",\"zwei\"}.", b"\0\0\0\0\x0e{\"three\",\"3\"}."],
    ),
    (
        "_iternext()",
        "the order is that of the file",
        &[
            b"\0\0\0\0\x04\"1\".",
            b"\0\0\0\0\x04\"d\".",
            b"\0\0\0\0\x04\"n\".",
            b"\0\0\0\0\x06\"cnt\".",
            b"\0\0\0\0\x06\"one\".",
            b"\0\0\0\0\x06\"two\".",
            b"\0\0\0\0\x08\"three\".",
        ],
    ),
];

const TABLE: Otherwise = &[
    (
        "_put(\"k3\",\"name\\0cy\\0age\\0041\")",
        "a row is not stored without the value of its last column",
        &[b"\0\0\0\0\x06false."],
    ),
    ("_misc(\"get\",\"k3\")", "that row is not there", &[b"\0\0\0\0\x01."]),
    (
        "local t={} _foreach(function(k,v) t[#t+1]=k return true end) table.sort(t) return t",
        "that row is not there",
        &[b"\0\0\0\0\x11{\"k1\",\"k2\",\"k9\"}."],
    ),
    ("_rnum()", "that row is not there", &[b"\0\0\0\0\x022."]),
    ("_vsiz(\"k1\")", "the size is the length of what _get returns", &[b"\0\0\0\0\x0325."]),
];

const NO_FUNCTION: &[u8] = b"HTTP/1.1 500 Internal Server Error\r\n\
    Content-Type: text/plain\r\nContent-Length: 26\r\n\r\nthere is no function nope\n";

struct Exchange {
    what: String,
    request: Vec<u8>,
    response: Vec<u8>,
}

fn exchanges(database: &str) -> Vec<Exchange> {
    let lines = CONVERSATION.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap().to_string();
        let bytes = |name: &str| {
            let digits = text(name);
            let pairs = digits.as_bytes().chunks(2);
            pairs
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect()
        };
        let is_volatile = line["volatile"].as_bool().unwrap();
        let exchange =
            Exchange { what: text("what"), request: bytes("request"), response: bytes("response") };
        (text("database"), is_volatile, exchange)
    });
    lines.filter(|line| line.0 == database && !line.1).map(|line| line.2).collect()
}

/// Sends a request on a connection of its own. Returns all that the server sends back.
fn reply(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    reply
}

/// Runs a server with the script on this database.
fn start(database: Database) -> (SocketAddr, Handle, JoinHandle<server::Result<()>>) {
    let allowed = Allowed { files: true, programs: true };
    let source = Source::Inline(CALLS.into());
    let scripts = Scripts::open(source, Limits::default(), allowed).unwrap();
    let listen = vec![Endpoint::Tcp { host: Some("127.0.0.1".into()), port: 0 }];
    let config = Config {
        listen,
        client_paths: ClientPaths::Any,
        http_hosts: HostNames::any(),
        ..Config::default()
    };
    let server = Server::bind(config, database).unwrap();
    let settings = ExtensionSettings { threads: 1, ..ExtensionSettings::default() };
    assert!(server.set_extension(Arc::new(scripts), settings));
    let (address, handle) = (server.local_addresses()[0], server.handle());
    (address, handle, std::thread::spawn(|| server.run()))
}

fn replay(database: &str, name: &str, otherwise: Otherwise) {
    let folder = tempfile::tempdir().unwrap();
    let (address, handle, running) = start(named(folder.path(), name));
    let mut differences = Vec::new();
    for exchange in exchanges(database) {
        let reply = reply(address, &exchange.request);
        let allowed = otherwise.iter().find(|(what, ..)| *what == exchange.what);
        let expected = allowed.map_or(vec![&exchange.response[..]], |(.., all)| all.to_vec());
        if !expected.contains(&&reply[..]) {
            differences.push(format!(
                "{}: {} instead of {}",
                exchange.what,
                reply.escape_ascii(),
                expected[0].escape_ascii()
            ));
        }
    }
    handle.stop();
    running.join().unwrap().unwrap();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn functions_over_a_hash_database_do_what_those_of_tokyo_tyrant_do() {
    replay("hash", "casket.tch", HASH);
}

#[test]
fn functions_over_a_tree_do_what_those_of_tokyo_tyrant_do() {
    replay("tree", "casket.tcb", &[]);
}

#[test]
fn functions_over_a_table_do_what_those_of_tokyo_tyrant_do() {
    replay("table", "casket.tct", TABLE);
}

#[test]
fn functions_take_arguments_of_any_kind_as_those_of_tokyo_tyrant_do() {
    let (address, handle, running) = start(memory_tree());
    let sizes = |sizes: &[usize]| -> Vec<u8> {
        sizes.iter().flat_map(|size| (*size as u32).to_be_bytes()).collect()
    };
    // `vanish`, and a `put` of each record, of which each has a reply.
    let mut before = b"\xc8\x72".to_vec();
    for (key, value) in RECORDS {
        before.extend([b"\xc8\x10", &*sizes(&[key.len(), value.len()]), key, value].concat());
    }
    let (mut different, mut same, mut unexplained) =
        ([0; ARGUMENTS_OTHERWISE.len()], 0, Vec::new());
    for line in ARGUMENTS.lines() {
        let (call, result): (String, String) = serde_json::from_str(line).unwrap();
        let head = sizes(&["call".len(), 0, call.len(), 0]);
        let request = [&*before, b"\xc8\x68", &head, b"call", call.as_bytes()].concat();
        let found = reply(address, &request);
        if found == [&[0; 5][..], &sizes(&[result.len()]), result.as_bytes()].concat() {
            same += 1;
        } else if let Some(at) =
            ARGUMENTS_OTHERWISE.iter().position(|(begin, ..)| call.starts_with(begin))
        {
            different[at] += 1;
        } else {
            unexplained.push(format!("{call}: {} instead of {result}", found.escape_ascii()));
        }
    }
    handle.stop();
    running.join().unwrap().unwrap();
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    assert_eq!(different, std::array::from_fn(|at| ARGUMENTS_OTHERWISE[at].1));
    assert!(same >= 3400, "{same}");
}
