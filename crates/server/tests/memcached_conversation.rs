//! Recorded conversations with memcached 1.6.45: stable replies are equal byte for byte, replies
//! with times and numbers of the server's choice are equal apart from these.
//!
//! Each conversation was captured on a fresh memcached, each of its exchanges on a connection of
//! its own. [`EXCEPTIONS`] lists the exchanges with another reply on purpose, and the reasons.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{Client, Running};

/// Commands about memcached's slab classes and version, with the replies of this server.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("version\\r\\n", "the name of this server follows", "VERSION 1.6.45-tyrant-0.1.0\r\n"),
    ("version x\\r\\n", "the name of this server follows", "VERSION 1.6.45-tyrant-0.1.0\r\n"),
    ("slabs reassign 1 2\\r\\n", "there are no slabs", "ERROR\r\n"),
    ("lru_crawler enable\\r\\n", "there is no crawler that could run already", "OK\r\n"),
    (
        "lru_crawler metadump hash\\r\\n",
        "it shows times and numbers",
        "OK\r\nkey=a exp=-1 la=1795317490 cas=2 fetch=no cls=1 size=65 flags=3 \nEND\r\n",
    ),
];

struct Exchange {
    conversation: String,
    request: Vec<u8>,
    reply: Vec<u8>,
    is_closed: bool,
    is_volatile: bool,
}

/// Conversations at the same time. Each has a server, whose end takes a while.
const THREADS: usize = 8;

/// Differences, and the exceptions that were met.
type Compared = (Vec<String>, BTreeSet<&'static str>);

#[test]
fn replies_equal_those_of_memcached_1_6_45() {
    let exchanges = exchanges(include_str!("fixtures/conversation-memcached-1.6.45.jsonl"));
    let conversations: Vec<&[Exchange]> =
        exchanges.chunk_by(|one, next| one.conversation == next.conversation).collect();
    let next = AtomicUsize::new(0);
    let (mut differences, mut excepted) = Compared::default();
    std::thread::scope(|scope| {
        let compare_some = || {
            let mut compared = Compared::default();
            while let Some(conversation) = conversations.get(next.fetch_add(1, Ordering::Relaxed)) {
                compare(conversation, &mut compared);
            }
            compared
        };
        let threads = [(); THREADS].map(|()| scope.spawn(compare_some));
        for thread in threads {
            let (differing, met) = thread.join().unwrap();
            differences.extend(differing);
            excepted.extend(met);
        }
    });
    assert!(differences.is_empty(), "{}\n{} differ", differences.join("\n"), differences.len());
    assert_eq!(excepted.len(), EXCEPTIONS.len(), "each exception is met");
}

/// Compares the replies of a new server in a conversation.
fn compare(conversation: &[Exchange], (differences, excepted): &mut Compared) {
    let server = support::start(support::memory());
    for exchange in conversation {
        let (reply, is_closed) = ask(&server, exchange);
        let request = exchange.request.escape_ascii().to_string();
        let exception = EXCEPTIONS.iter().find(|(name, ..)| *name == request);
        excepted.extend(exception.map(|(name, ..)| *name));
        let expected = exception.map_or(exchange.reply.as_slice(), |(.., reply)| reply.as_bytes());
        if shape(&reply, exchange) != shape(expected, exchange) || is_closed != exchange.is_closed {
            differences.push(format!(
                "{}: {request}\n  memcached: {}{}\n  here:      {}{}",
                exchange.conversation,
                expected.escape_ascii(),
                if exchange.is_closed { " and closes" } else { "" },
                reply.escape_ascii(),
                if is_closed { " and closes" } else { "" },
            ));
        }
    }
}

/// Returns a reply in the form that is compared: numbers of unstable replies are masked.
fn shape(reply: &[u8], exchange: &Exchange) -> String {
    let text = reply.escape_ascii().to_string();
    let shows_times = exchange.request.starts_with(b"lru_crawler metadump");
    if !exchange.is_volatile && !shows_times {
        return text;
    }
    let mut masked = String::new();
    for character in text.chars() {
        match character {
            '0'..='9' if masked.ends_with('#') => {}
            '0'..='9' => masked.push('#'),
            other => masked.push(other),
        }
    }
    masked
}

/// Sends a request on a connection of its own. Returns the reply, and whether the server closed the
/// connection.
fn ask(server: &Running, exchange: &Exchange) -> (Vec<u8>, bool) {
    /// Request after the exchange, whose reply marks the end of the reply before it.
    const END: &[u8] = b"mn\r\n";
    let mut client: Client = server.connect();
    client.send(&exchange.request);
    client.send(END);
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut reply = client.read_to_end();
    let is_closed = !reply.ends_with(b"MN\r\n");
    if !is_closed {
        reply.truncate(reply.len() - END.len());
    }
    (reply, is_closed)
}

fn exchanges(conversations: &str) -> Vec<Exchange> {
    let bytes = |value: &serde_json::Value| -> Vec<u8> {
        let digits = value.as_str().unwrap();
        let pairs = (0..digits.len()).step_by(2);
        pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    };
    let exchange = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        Exchange {
            conversation: value["conversation"].as_str().unwrap().to_owned(),
            request: bytes(&value["request"]),
            reply: bytes(&value["response"]),
            is_closed: value["closed"].as_bool().unwrap(),
            is_volatile: value["volatile"].as_bool().unwrap(),
        }
    };
    conversations.lines().map(exchange).collect()
}
