//! Recorded conversations: replies equal Tokyo Tyrant's byte for byte, except as the tables here
//! state and justify.
//!
//! The exchanges were captured from Tokyo Tyrant in this order, each on a connection of its own.
//! All of a file ran on one fresh database.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use cabinet::Database;
use server::{Config, Dialect, HostNames};
use std::collections::{BTreeMap, BTreeSet};
use support::{Client, Running};

/// Starts a server with Tokyo Tyrant's rules for the memcached protocol.
fn start(database: Database) -> Running {
    let http_hosts = HostNames::any();
    let config = Config { dialect: Dialect::TokyoTyrant, http_hosts, ..support::config() };
    support::start_with(config, database)
}

/// Reply that is expected instead of Tokyo Tyrant's.
enum Expected {
    /// A better reply, and whether the connection is closed after it.
    Improved { reply: &'static [u8], closed: bool },
    /// A list that Tokyo Tyrant has in the order of its file: these elements in any order.
    AnyOrder,
    /// One of the elements of the exchange of this name.
    OneOf { whole: &'static str },
    /// A part of an iteration: the parts together are all keys.
    Iterated,
    /// A reply with this beginning and this end.
    Shaped { start: &'static str, end: &'static str },
    /// Success and any number.
    Count,
    /// These replies to the exchanges of this name, in order.
    Replies(&'static [&'static [u8]]),
}

use Expected::{AnyOrder, Count, Improved, Iterated, OneOf, Replies, Shaped};

/// Calls of scripts fail: there are no scripts.
const NO_SCRIPTS: Expected = Improved { reply: b"\x01", closed: false };

/// Name of exchanges, reason for another reply, and that reply.
type Exceptions = &'static [(&'static str, &'static str, Expected)];

const HASH_BINARY: Exceptions = &[
    ("iternext", "the order is that of the file", Iterated),
    ("fwmkeys t max=-1", "the order is that of the file", AnyOrder),
    ("fwmkeys t max=1", "the order is that of the file", OneOf { whole: "fwmkeys t max=-1" }),
    ("misc regex ^t.", "the order is that of the file", AnyOrder),
    ("misc regex *^T", "the order is that of the file", OneOf { whole: "misc regex ^t." }),
    ("ext echo", "no scripts yet", NO_SCRIPTS),
    ("ext echo xlr", "no scripts yet", NO_SCRIPTS),
    ("ext echo xlg", "no scripts yet", NO_SCRIPTS),
    ("size", "the size is that of the file", Count),
    (
        "misc error NOULOG",
        "Tokyo Tyrant has a last error in each of its threads; here a new connection hears the \
         last one of all",
        Improved { reply: b"\0\0\0\0\x01\0\0\0\x1321: existing record", closed: false },
    ),
];

const ERROR: Expected = Improved { reply: b"ERROR\r\n", closed: false };
const OK: Expected = Improved { reply: b"OK\r\n", closed: false };

const MEMCACHED_HTTP: Exceptions = &[
    (
        "get",
        "flags are kept, where Tokyo Tyrant forgot them",
        Improved { reply: b"", closed: false },
    ),
    (
        "gets",
        "flags are kept, and there is a version to compare with",
        Shaped { start: "VALUE mk 7 5 ", end: "\r\nhello\r\nEND\r\n" },
    ),
    ("cas", "cas works", Improved { reply: b"EXISTS\r\n", closed: false }),
    ("touch", "touch works", Improved { reply: b"TOUCHED\r\n", closed: false }),
    ("verbosity", "verbosity is accepted", OK),
    (
        "set bad terminator",
        "an answer in place of a silent close",
        Improved { reply: b"CLIENT_ERROR bad data chunk\r\n", closed: false },
    ),
    ("empty line", "an answer in place of a silent close", ERROR),
    ("unknown", "an answer in place of a silent close", ERROR),
    (
        "unknown then get",
        "an answer in place of a silent close; flags are kept",
        Improved { reply: b"ERROR\r\nVALUE mk 7 5\r\nhello\r\nEND\r\n", closed: false },
    ),
    (
        "LF only",
        "flags are kept",
        Improved { reply: b"VALUE mk 7 5\r\nhello\r\nEND\r\n", closed: false },
    ),
    (
        "quit then get",
        "flags are kept",
        Improved { reply: b"VALUE mk 7 5\r\nhello\r\nEND\r\n", closed: false },
    ),
    ("version", "our own", Shaped { start: "VERSION ", end: "\r\n" }),
    ("stats", "figures", Shaped { start: "STAT pid ", end: "\r\nEND\r\n" }),
    ("stats items", "figures", Shaped { start: "STAT pid ", end: "\r\nEND\r\n" }),
    (
        "POST xname",
        "no scripts yet",
        Improved {
            reply: b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n\
                Content-Length: 22\r\n\r\nInternal Server Error\n",
            closed: false,
        },
    ),
    (
        "PATCH",
        "an answer in place of a silent close",
        Improved {
            reply: b"HTTP/1.1 405 Method Not Allowed\r\n\
                Allow: OPTIONS, GET, HEAD, PUT, POST, DELETE\r\nContent-Length: 0\r\n\r\n",
            closed: false,
        },
    ),
    (
        "PUT chunked",
        "the chunks are read, where Tokyo Tyrant stored an empty value and closed",
        Improved {
            reply: b"HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\n\
                Created\n",
            closed: false,
        },
    ),
    (
        "PUT expect",
        "the client is told to go on",
        Improved { reply: b"HTTP/1.1 100 Continue\r\n\r\n", closed: false },
    ),
];

const MEMORY_HASH: Exceptions = &[
    (
        "misc error",
        "every kind of database has the reason of a failure",
        Improved { reply: b"\0\0\0\0\x01\0\0\0\x0a0: success", closed: false },
    ),
    ("size", "the size is that of the engine", Count),
    (
        "ext without -ext",
        "Tokyo Tyrant had been built without scripts, and then plays some of its own",
        NO_SCRIPTS,
    ),
];

/// Rows are in the order of their keys. Tokyo Tyrant has them in the order of its file.
const TABLE: Exceptions = &[
    ("search all", "the order is that of the keys", AnyOrder),
    ("search badop", "the order is that of the keys", AnyOrder),
    (
        "iternext",
        "the order is that of the keys; the first of these exchanges starts the iterator",
        Replies(&[b"\0\0\0\0\0", b"\0\0\0\0\x02\0\0\0\x011\0\0\0\x03a\0b"]),
    ),
];

#[test]
fn a_hash_database_replies_to_the_binary_protocol_as_tokyo_tyrant() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(support::hash(folder.path()));
    replay(&server, include_str!("fixtures/conversation-hash-binary.jsonl"), HASH_BINARY);
}

#[test]
fn a_hash_database_replies_to_memcached_and_http_as_tokyo_tyrant() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(support::hash(folder.path()));
    let conversation = include_str!("fixtures/conversation-memcached-http.jsonl");
    replay(&server, conversation, MEMCACHED_HTTP);
}

#[test]
fn an_on_memory_hash_database_replies_as_tokyo_tyrant() {
    let server = start(support::memory());
    replay(&server, include_str!("fixtures/conversation-memory-hash.jsonl"), MEMORY_HASH);
}

#[test]
fn an_on_memory_tree_database_replies_as_tokyo_tyrant() {
    let server = start(support::memory_tree());
    replay(&server, include_str!("fixtures/conversation-memory-tree.jsonl"), &[]);
}

#[test]
fn a_fixed_length_database_replies_as_tokyo_tyrant() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(support::fixed(folder.path()));
    replay(&server, include_str!("fixtures/conversation-fixed.jsonl"), &[]);
}

#[test]
fn a_tree_replies_as_tokyo_tyrant() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(support::tree(folder.path()));
    replay(&server, include_str!("fixtures/conversation-btree.jsonl"), &[]);
}

#[test]
fn a_table_replies_as_tokyo_tyrant() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(support::table(folder.path()));
    replay(&server, include_str!("fixtures/conversation-table.jsonl"), TABLE);
}

struct Exchange {
    what: String,
    request: Vec<u8>,
    reply: Vec<u8>,
    closed: bool,
}

fn exchanges(conversation: &str) -> Vec<Exchange> {
    let bytes = |value: &serde_json::Value| -> Vec<u8> {
        let digits = value.as_str().unwrap().as_bytes();
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    };
    conversation
        .lines()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            Exchange {
                what: value["what"].as_str().unwrap().to_owned(),
                request: bytes(&value["request"]),
                reply: bytes(&value["response"]),
                closed: value["closed"].as_bool().unwrap(),
            }
        })
        .collect()
}

fn replay(server: &Running, conversation: &str, exceptions: Exceptions) {
    let exchanges = exchanges(conversation);
    let mut iterated = (BTreeSet::new(), BTreeSet::new());
    let mut replied = BTreeMap::new();
    for exchange in &exchanges {
        let what = &exchange.what;
        let exception = exceptions.iter().find(|(name, _, _)| name == what);
        let mut client = server.connect();
        client.send(&exchange.request);
        let mut closed = exchange.closed;
        match exception.map(|(_, _, expected)| expected) {
            None => expect(&mut client, what, &exchange.reply),
            Some(Improved { reply, closed: better }) => {
                expect(&mut client, what, &improved(exchange, reply));
                closed = *better;
            }
            Some(AnyOrder) => {
                let reply = client.read(exchange.reply.len());
                assert_eq!(elements(&reply), elements(&exchange.reply), "{what}");
            }
            Some(OneOf { whole }) => {
                let reply = read_list(&mut client);
                let whole = exchanges.iter().find(|exchange| exchange.what == *whole).unwrap();
                let (one, all) = (elements(&reply), elements(&whole.reply));
                assert!(one.len() == 1 && one.is_subset(&all), "{what}: {one:?} of {all:?}");
            }
            Some(Iterated) => {
                iterated.0.insert(read_key(&mut client));
                iterated.1.insert(exchange.reply.clone());
            }
            Some(Shaped { start, end }) => {
                let mut reply = client.read_until(start.as_bytes());
                assert_eq!(reply, start.as_bytes(), "{what}");
                reply = client.read_until(end.as_bytes());
                assert!(!reply.is_empty(), "{what}");
            }
            Some(Replies(replies)) => {
                let named = replied.entry(what).or_insert(0);
                expect(&mut client, what, replies[*named]);
                *named += 1;
            }
            Some(Count) => assert_eq!(client.read(9)[0], 0, "{what}"),
        }
        if closed {
            client.expect_close();
        } else if what != "PUT expect" {
            // Any further reply would come before this one.
            client.expect_open();
        }
    }
    assert_eq!(iterated.0, iterated.1, "all keys are iterated over");
    for (name, _, _) in exceptions {
        assert!(exchanges.iter().any(|exchange| exchange.what == *name), "{name} is no exchange");
    }
}

fn expect(client: &mut Client, what: &str, reply: &[u8]) {
    let received = client.read(reply.len());
    assert_eq!(received.escape_ascii().to_string(), reply.escape_ascii().to_string(), "{what}");
}

/// Returns the better reply. `get` is the one name with several exchanges. Its reply is made from
/// Tokyo Tyrant's: the flags of the key `mk` were set to 7.
fn improved(exchange: &Exchange, reply: &[u8]) -> Vec<u8> {
    if exchange.what != "get" {
        return reply.to_vec();
    }
    let original = String::from_utf8(exchange.reply.clone()).unwrap();
    original.replace("VALUE mk 0", "VALUE mk 7").into_bytes()
}

/// Returns the keys of a list, or its pairs of key and value.
fn elements(reply: &[u8]) -> BTreeSet<Vec<u8>> {
    let (header, mut rest) = reply.split_at(5);
    assert_eq!(header[0], 0);
    let mut elements = Vec::new();
    while let Some((size, after)) = rest.split_first_chunk() {
        let (element, after) = after.split_at(u32::from_be_bytes(*size) as usize);
        elements.push(element.to_vec());
        rest = after;
    }
    // fwmkeys returns keys, regex returns keys and values.
    let is_pairs = elements.iter().any(|element| element == b"second" || element == b"third");
    elements.chunks(if is_pairs { 2 } else { 1 }).map(<[_]>::concat).collect()
}

fn read_list(client: &mut Client) -> Vec<u8> {
    let mut list = client.read(5);
    for _ in 0..u32::from_be_bytes(list[1..].try_into().unwrap()) {
        let size = client.read(4);
        list.extend_from_slice(&size);
        list.extend(client.read(u32::from_be_bytes(size.try_into().unwrap()) as usize));
    }
    list
}

/// Reads a key of the iterator, or `None` at its end.
fn read_key(client: &mut Client) -> Vec<u8> {
    let mut reply = client.read(1);
    if reply == b"\0" {
        let size = client.read(4);
        reply.extend_from_slice(&size);
        reply.extend(client.read(u32::from_be_bytes(size.try_into().unwrap()) as usize));
    }
    reply
}
