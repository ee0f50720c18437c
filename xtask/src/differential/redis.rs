//! Random conversations of Redis's protocol.

use super::random::Random;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Most commands of a conversation, which are sent at once.
const COMMANDS_MAX: usize = 25;

/// Longest wait for a reply.
const TIMEOUT: Duration = Duration::from_secs(60);

const KEYS: &[&str] = &["k0", "k1", "k2", "k3", "k4", "k5"];

const VALUES: &[&str] = &[
    "",
    "1",
    "-5",
    "0",
    "007",
    " 1",
    "3.5",
    "abc",
    "9223372036854775807",
    "-9223372036854775808",
    "a\r\nb\0c",
    "a value of some more bytes than the others have, so that it is a long one",
];

const NUMBERS: &[&str] = &[
    "1",
    "-1",
    "0",
    "7",
    "100",
    "abc",
    "",
    "+1",
    "01",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
];

/// Times after an option. One that counts from now is not compared with another one: the clocks of
/// the servers have gone on by another time in between.
const TIMES: &[&str] = &["100", "1000", "-1", "0", "abc", "9223372036854775807"];

/// Commands, in which `K`, `V`, `N` and `T` stand for a key, a value, a number and a time.
const COMMANDS: &[&str] = &[
    "GET K",
    "SET K V",
    "SET K V NX",
    "SET K V xx",
    "SET K V EX T",
    "SET K V PX T000",
    "SET K V GET",
    "SET K V KEEPTTL",
    "SET K V XX GET EX T",
    "SET K V EX T PX T",
    "SET K V KEEPTTL EX T",
    "SET K V EX T KEEPTTL",
    "SET K V FOO",
    "SET K V EX",
    "SET K V NX XX",
    "SET K V NX NX",
    "SET K V NX GET",
    "SET K V EXAT 9999999999",
    "SETNX K V",
    "SETEX K T V",
    "PSETEX K T000 V",
    "GETSET K V",
    "GETDEL K",
    "GETEX K",
    "GETEX K EX T",
    "GETEX K PERSIST",
    "GETEX K PERSIST EX T",
    "GETEX K FOO",
    "MGET K K K",
    "MSET K V K V",
    "MSET K",
    "MSET K V K",
    "APPEND K V",
    "STRLEN K",
    "GETRANGE K N N",
    "SUBSTR K N N",
    "SETRANGE K 0 V",
    "SETRANGE K 3 V",
    "SETRANGE K -1 V",
    "SETRANGE K abc V",
    "SETRANGE K 99999999999 V",
    "INCR K",
    "DECR K",
    "INCRBY K N",
    "DECRBY K N",
    "DEL K K",
    "UNLINK K",
    "EXISTS K K",
    "TOUCH K K",
    "TYPE K",
    "EXPIRE K T",
    "EXPIRE K T NX",
    "EXPIRE K T XX",
    "EXPIREAT K 9999999999 GT",
    "EXPIREAT K 9999999998 LT",
    "EXPIRE K T FOO",
    "EXPIRE K T NX GT",
    "EXPIRE K T GT LT",
    "PEXPIRE K T000",
    "EXPIREAT K 9999999999",
    "EXPIREAT K 1",
    "PEXPIREAT K 9999999999999",
    "PERSIST K",
    "TTL K",
    "EXPIRETIME K",
    "DBSIZE",
    "KEYS *",
    "KEYS k?",
    "KEYS k[1-3]",
    "KEYS [^k]*",
    "KEYS K",
    "PING",
    "PING V",
    "PING V V",
    "ECHO V",
    "SELECT 0",
    "SELECT abc",
    "SELECT 99",
    "FLUSHALL",
    "FLUSHDB FOO",
    "nosuch K V",
    "GET",
    "get K K",
    "COMMAND FOO",
    "COMMAND INFO nosuch",
    "CLIENT GETNAME",
    "CLIENT SETNAME V",
    "HELLO 4",
    "HELLO abc",
    "HELLO 2 FOO",
    "EXISTS",
    "PERSIST",
    "TIME V",
    "KEYS",
    "CONFIG GET nosuch",
    "HELLO 3",
    "RESET",
    "QUIT V",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K",
    "COPY K K REPLACE",
    "COPY K K DB 0",
    "COPY K K DB 99",
    "COPY K K DB abc",
    "COPY K K FOO",
    "MSETNX K V K V",
    "MSETNX K V",
    "MSETNX K",
    "SCAN 0 COUNT 1000",
    "SCAN 0 COUNT 1000 MATCH k[1-3]",
    "SCAN 0 COUNT 1000 TYPE string",
    "SCAN 0 COUNT 1000 TYPE list",
    "SCAN 0 COUNT T",
    "SCAN abc",
    "SCAN 0 FOO",
    "SCAN 0 MATCH",
    "RANDOMKEY",
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH K",
    "WATCH K K",
    "UNWATCH",
    "WATCH",
    "EXEC K",
    "CLIENT",
    "CLIENT FOO",
    "CLIENT SETNAME",
    "CONFIG FOO",
    "CONFIG SET nosuch V",
    "CONFIG SET maxmemory 0 save",
    "COMMAND GETKEYS MSET K V K V",
    "COMMAND GETKEYS COPY K K",
    "COMMAND GETKEYS PING K V",
    "COMMAND GETKEYS GET K K",
    "COMMAND GETKEYS nosuch K",
    "COMMAND LIST V",
    "SUBSCRIBE K",
    "PSUBSCRIBE k*",
    "SSUBSCRIBE K",
    "UNSUBSCRIBE K",
    "PUNSUBSCRIBE k*",
    "SUNSUBSCRIBE K",
    "PUBLISH K V",
    "SPUBLISH K V",
    "PUBSUB NUMSUB K K",
    "PUBSUB NUMPAT",
    "PUBSUB CHANNELS",
    "PUBSUB SHARDNUMSUB K",
    "PUBSUB FOO",
    "PUBSUB",
    "SUBSCRIBE",
];

/// Commands that read the whole database, or remove all of it. Within a transaction they do not see
/// its changes.
const OF_ALL_RECORDS: &[&str] = &["DBSIZE", "KEYS", "SCAN", "RANDOMKEY", "FLUSHALL", "FLUSHDB"];

/// Commands that may remove a record. A watched record that was absent, was made and was removed
/// again counts as unchanged.
const REMOVALS: &[&str] =
    &["DEL", "UNLINK", "GETDEL", "GETEX", "RENAME", "RENAMENX", "EXPIRE", "PEXPIRE", "EXPIREAT"];

/// State of a conversation on which the choice of commands depends.
#[derive(Default)]
struct State {
    is_queueing: bool,
    watches: bool,
    subscribes: bool,
}

impl State {
    /// Returns whether both servers are known to reply the same.
    fn allows(&self, words: &[String]) -> bool {
        let is_one_of = |names: &[&str]| names.contains(&words[0].as_str());
        // A greeting within the reply of a transaction has names and versions.
        let is_hello = words[0] == "HELLO";
        // A subscriber of version 3 gets its own messages before or after the reply, and commands
        // about channels are refused in a transaction.
        let is_of_channels = words[0].contains("PUBLISH") || words[0].contains("SUBSCRIBE");
        !(self.subscribes && words[0].contains("PUBLISH")
            || self.is_queueing && is_of_channels
            || self.is_queueing && (is_one_of(OF_ALL_RECORDS) || is_hello)
            || self.watches && is_one_of(REMOVALS))
    }

    fn note(&mut self, words: &[String]) {
        match (words[0].as_str(), words.len()) {
            ("MULTI", 1) => self.is_queueing = true,
            ("RESET", 1) => *self = Self::default(),
            ("EXEC" | "DISCARD", 1) => {
                *self = Self { subscribes: self.subscribes, ..Self::default() };
            }
            ("SUBSCRIBE" | "PSUBSCRIBE" | "SSUBSCRIBE", 2..) => self.subscribes = true,
            ("WATCH", 2..) if !self.is_queueing => self.watches = true,
            _ => {}
        }
    }
}

/// Returns the words of a random command.
fn command(random: &mut Random) -> Vec<String> {
    let pattern = random.pick(COMMANDS);
    let mut word = |word: &str| match word {
        "K" => random.pick(KEYS).to_owned(),
        "V" => random.pick(VALUES).to_owned(),
        "N" => random.pick(NUMBERS).to_owned(),
        "T" => random.pick(TIMES).to_owned(),
        "T000" => format!("{}000", random.pick(TIMES)),
        word => word.to_owned(),
    };
    pattern.split(' ').map(&mut word).collect()
}

fn encoded(words: &[impl AsRef<str>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes.push_str(&format!("${}\r\n{}\r\n", word.as_ref().len(), word.as_ref()));
    }
    bytes.into_bytes()
}

/// Connection to one of the servers.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.0.get_mut().write_all(bytes)?)
    }

    /// Reads one reply, as it was sent, but the elements of each array in an order of their own if
    /// `is_set`. It is empty if the connection was closed.
    fn reply(&mut self, is_set: bool) -> Result<String> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line)?;
        let mut text = line.escape_ascii().to_string();
        let Some((kind, number)) = line.split_first() else { return Ok(text) };
        let number = String::from_utf8_lossy(number);
        let number: i64 = number.trim_end().parse().unwrap_or(-1);
        match (kind, usize::try_from(number)) {
            (b'$', Ok(length)) => {
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes)?;
                text.push_str(&bytes.escape_ascii().to_string());
            }
            (b'*' | b'%' | b'>', Ok(count)) => {
                let count = if *kind == b'%' { 2 * count } else { count };
                let elements = (0..count).map(|_| self.reply(is_set));
                let mut elements = elements.collect::<Result<Vec<_>>>()?;
                if is_set {
                    elements.sort();
                }
                text.push_str(&elements.concat());
            }
            _ => {}
        }
        Ok(text)
    }
}

/// Returns the part of a reply that is the same in both servers. A greeting has names, versions and
/// numbers of connections, so that only the number of its fields is compared.
fn comparable(command: &[String], reply: String) -> String {
    match command[0].as_str() {
        "HELLO" if reply.starts_with(['*', '%']) => reply[..3].to_owned(),
        "RANDOMKEY" if reply.starts_with("$2") => "a key".to_owned(),
        _ => reply,
    }
}

/// Holds the conversation of a seed with both servers. Fails if they differ.
pub(super) fn compare_answers(seed: u64, redis: u16, tyrant: u16) -> Result<()> {
    let mut random = Random::new(seed);
    let (mut commands, mut state) = (Vec::new(), State::default());
    for _ in 0..=random.below(COMMANDS_MAX) {
        let words = command(&mut random);
        if state.allows(&words) {
            state.note(&words);
            commands.push(words);
        }
    }
    let bytes: Vec<u8> = commands.iter().flat_map(|words| encoded(words)).collect();
    let mut connections = [Connection::open(redis)?, Connection::open(tyrant)?];
    for connection in &mut connections {
        connection.send(&encoded(&["FLUSHALL"]))?;
        ensure!(connection.reply(false)? == r"+OK\r\n", "FLUSHALL failed");
        connection.send(&bytes)?;
    }
    for (number, words) in commands.iter().enumerate() {
        let is_set = ["KEYS", "SCAN"].contains(&words[0].as_str());
        let [theirs, ours] = &mut connections;
        let theirs = comparable(words, theirs.reply(is_set)?);
        let ours = comparable(words, ours.reply(is_set)?);
        if theirs != ours {
            bail!("command {number}, {words:?}: Redis {theirs:?}, the server {ours:?}");
        }
        if words[0] == "QUIT" {
            break;
        }
    }
    Ok(())
}
