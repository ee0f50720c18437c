//! Random conversations of Redis's protocol.

use super::random::Random;
use super::redis_scripts;
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Most commands of a conversation, which are sent at once.
const COMMANDS_MAX: usize = 25;

/// One of this number of commands is a line of words.
const LINES_EVERY: usize = 8;

/// Longest wait for a reply.
const TIMEOUT: Duration = Duration::from_secs(60);

const KEYS: &[&str] = &["k0", "k1", "k2", "k3", "k4", "k5"];

/// Keys of HyperLogLogs, and most elements that are added to one at once, by their numbers.
const SKETCHES: &[&str] = &["h0", "h1"];
const ELEMENTS: usize = 1500;

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

/// Whole numbers above this one, in November 2023, are times in seconds since 1970.
const TIME_MIN: u64 = 1_700_000_000;

/// Places of bits and bytes, bits, types of bit fields, floats, and dumps, each byte a character.
const PLACES: &[&str] = &[
    "0", "1", "5", "7", "8", "13", "40", "-1", "-3", "-9", "100", "#0", "#1", "#7", "#-1", "abc",
    "",
];
const UNITS: &[&str] = &["BIT", "BYTE", "bit", "foo"];
const BIT_VALUES: &[&str] = &["0", "1", "2", "-1", "abc"];
const TYPES: &[&str] =
    &["u1", "u4", "u8", "i8", "i5", "u16", "i13", "u63", "i64", "u64", "i65", "x8", "u0", "i", ""];
const FLOATS: &[&str] = &[
    "0.1",
    "-0.7",
    "3.0e3",
    "1e-17",
    "123456789.987654321",
    "0x1.8p3",
    "1e20",
    "-1e20",
    "18446744073709551615",
    "inf",
    "nan",
    "1e4932",
    "1e-5000",
    "1e",
    ".5",
    "5.",
    " 1",
];
const DUMPS: &[&str] = &[
    "\0\u{3}abc\n\0\u{d9}\u{ac}0=Ar\u{a2}\u{e2}",
    "\0\u{c0}{\n\0H\u{e2}S\u{e1}\0zg\u{b9}",
    "\0\u{c2}\u{ff}\u{ff}\u{ff}\u{7f}\n\0,t\u{e5}\u{9e}\u{e0}.\u{ad}\u{a1}",
    "\0\u{c3}\u{6}\u{15}\u{1}aa\u{e0}\n\0\n\0\u{fd}\u{c}\u{b3}h\u{7}A?h",
    "\0\u{3}abd\n\0\u{d9}\u{ac}0=Ar\u{a2}\u{e2}",
    "abc",
    "",
];

/// Commands, in which `K`, `V`, `N` and `T` stand for a key, a value, a number and a time. `P`,
/// `U`, `B`, `Y`, `F` and `D` stand for the others above, in their order.
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
    "INCRBYFLOAT K F",
    "INCRBYFLOAT K N",
    "INCRBYFLOAT K V",
    "SET K F",
    "SETBIT K P B",
    "SETBIT K P 1",
    "SETBIT K 4294967296 1",
    "GETBIT K P",
    "GETBIT K N",
    "BITCOUNT K",
    "BITCOUNT K P",
    "BITCOUNT K P P",
    "BITCOUNT K P P U",
    "BITCOUNT K N N BIT",
    "BITCOUNT K P P U V",
    "BITPOS K B",
    "BITPOS K B P",
    "BITPOS K 0 P P",
    "BITPOS K B P P U",
    "BITPOS K 1 N N BIT",
    "BITPOS K 1 P P U V",
    "BITOP AND K K K",
    "BITOP or K K K K",
    "BITOP XOR K K K",
    "BITOP NOT K K",
    "BITOP NOT K K K",
    "BITOP FOO K K",
    "BITOP AND K K",
    "BITFIELD K",
    "BITFIELD K GET Y P",
    "BITFIELD K GET Y P GET Y P SET Y P N",
    "BITFIELD K SET Y P N GET Y P",
    "BITFIELD K SET u8 P N SET i8 P N",
    "BITFIELD K INCRBY Y P N INCRBY Y P N",
    "BITFIELD K INCRBY u4 P 7 INCRBY i64 P N",
    "BITFIELD K OVERFLOW SAT INCRBY Y P N SET Y P N",
    "BITFIELD K OVERFLOW FAIL INCRBY Y P N SET Y P N OVERFLOW WRAP SET i13 5 N",
    "BITFIELD K OVERFLOW FAIL SET u4 P 99",
    "BITFIELD K OVERFLOW FOO",
    "BITFIELD K OVERFLOW",
    "BITFIELD K GET u8",
    "BITFIELD K SET u8 0",
    "BITFIELD K FOO u8 0",
    "BITFIELD_RO K GET Y P GET u8 0",
    "BITFIELD_RO K SET Y P N",
    "LCS K K",
    "LCS K K LEN",
    "LCS K K IDX",
    "LCS K K IDX MINMATCHLEN N",
    "LCS K K IDX MINMATCHLEN 2 WITHMATCHLEN",
    "LCS K K LEN IDX",
    "LCS K K MINMATCHLEN",
    "LCS K K FOO",
    "DUMP K",
    "RESTORE K 0 D",
    "RESTORE K 0 D REPLACE",
    "RESTORE K T D",
    "RESTORE K T000 D REPLACE",
    "RESTORE K T D REPLACE ABSTTL",
    "RESTORE K 9999999999000 D REPLACE ABSTTL",
    "RESTORE K 0 D REPLACE FREQ N",
    "RESTORE K 0 D REPLACE IDLETIME N",
    "RESTORE K 0 D FREQ 5 IDLETIME 5",
    "RESTORE K 0 D IDLETIME",
    "RESTORE K 0 V",
    "PFADD H",
    "PFADD H V V",
    "PFADD H E",
    "PFADD H E",
    "PFADD hc V",
    "PFADD",
    "PFCOUNT H H",
    "PFCOUNT H none H H",
    "PFCOUNT none",
    "PFCOUNT K",
    "PFCOUNT H K",
    "PFMERGE H",
    "PFMERGE H H none",
    "PFMERGE H H H",
    "PFMERGE H hc",
    "PFMERGE H K",
    // Redis stores the estimate of a single key in its value.
    "COPY H hc REPLACE",
    "PFCOUNT hc",
    "PFCOUNT hc",
    "GET H",
    "STRLEN H",
    "EXPIRE H T",
    "TTL H",
    "DEL H",
    "SET H V",
    "OBJECT ENCODING K",
    "OBJECT ENCODING",
    "OBJECT ENCODING K K",
    "OBJECT FREQ K",
    "OBJECT FOO K",
    "OBJECT",
    "MEMORY USAGE none",
    "MEMORY USAGE K SAMPLES",
    "MEMORY USAGE none SAMPLES V",
    "MEMORY USAGE K FOO 1",
    "MEMORY FOO",
    "GETEX K EX T PX T",
    "GETEX K EX T PERSIST",
    "ROLE K",
    "WAIT 0 0",
    "WAIT N T",
    "WAIT 0 N",
    "LASTSAVE K",
    "SLOWLOG GET abc",
    "SLOWLOG GET -2",
    "SLOWLOG GET 1 2",
    "SLOWLOG FOO",
    "LATENCY LATEST",
    "LATENCY RESET K",
    "LATENCY HISTORY K",
    "LATENCY FOO",
    "CONFIG RESETSTAT",
    "CONFIG RESETSTAT K",
    "CLIENT INFO K",
    "CLIENT LIST FOO",
    "CLIENT LIST ID V",
    "CLIENT LIST ID 99999999",
    "CLIENT LIST TYPE V",
    "CLIENT LIST TYPE master",
    "CLIENT KILL V",
    "CLIENT KILL ID N0",
    "CLIENT KILL ID 99999999 TYPE V",
    "CLIENT KILL ID 99999999 SKIPME V",
    "CLIENT KILL USER V",
    "CLIENT KILL USER default ID 99999999",
    "CLIENT KILL ADDR V",
    "CLIENT KILL FOO V",
    "CLIENT UNBLOCK N",
    "CLIENT UNBLOCK 99999999 V",
    "CLIENT UNBLOCK 99999999 ERROR",
    "CLIENT GETREDIR",
    "CLIENT TRACKINGINFO",
    "CLIENT NO-EVICT ON",
    "CLIENT NO-EVICT V",
    "CLIENT REPLY FOO",
    "CLIENT REPLY ON",
    "CLIENT HELP K",
    "INFO cluster",
    "INFO nosuch",
];

/// Lines of words, in which quotes and escapes are as Redis reads them.
const LINES: &[&str] = &[
    "PING",
    "set k0 'a b'",
    "SET k1 \"a\\x41\\n\\q\"",
    "get k0",
    "GET k1",
    "echo a\"b c\"",
    "echo ''",
    "echo 'it\\'s'",
    "  ",
    "",
    "set k0\tv \r",
    "get k0 k1",
    "nosuch 'a b' c",
    "''",
    "echo 'a",
    "echo \"a\"b",
    "echo \"a\\",
];

/// Commands whose values have another encoding than new ones.
const ENCODED_OTHERWISE: &[&str] = &[
    "APPEND",
    "SETRANGE",
    "SETBIT",
    "BITOP",
    "BITFIELD",
    "COPY",
    "RENAME",
    "RENAMENX",
    "RESTORE",
    "INCRBYFLOAT",
];

/// Commands that read the whole database, or remove all of it. Within a transaction they do not see
/// its changes.
const OF_ALL_RECORDS: &[&str] = &["DBSIZE", "KEYS", "SCAN", "RANDOMKEY", "FLUSHALL", "FLUSHDB"];

/// Commands that may remove a record. A watched record that was absent, was made and was removed
/// again counts as unchanged.
const REMOVALS: &[&str] = &[
    "DEL", "UNLINK", "GETDEL", "GETEX", "RENAME", "RENAMENX", "EXPIRE", "PEXPIRE", "EXPIREAT",
    "BITOP", "RESTORE",
];

/// State of a conversation on which the choice of commands depends.
#[derive(Default)]
struct State {
    is_queueing: bool,
    watches: bool,
    subscribes: bool,
    /// Values may have another encoding than new ones.
    is_encoded_otherwise: bool,
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
        let is_encoding = words.join(" ").starts_with("OBJECT ENCODING");
        // A wait ends at once in a transaction, and would have no end otherwise. In Redis it waits
        // for the changes of its connection, and this has none.
        let is_endless = words[0] == "WAIT" && words.len() == 3 && words[1] != "0";
        !(is_encoding && self.is_encoded_otherwise
            || is_endless
            || self.subscribes && words[0].contains("PUBLISH")
            || self.is_queueing && is_of_channels
            || self.is_queueing && (is_one_of(OF_ALL_RECORDS) || is_hello)
            || self.watches && (is_one_of(REMOVALS) || words[0].starts_with("EVAL")))
    }

    fn note(&mut self, words: &[String]) {
        self.is_encoded_otherwise |= ENCODED_OTHERWISE.contains(&words[0].as_str());
        match (words[0].as_str(), words.len()) {
            ("MULTI", 1) => self.is_queueing = true,
            ("RESET", 1) => (self.is_queueing, self.watches, self.subscribes) = Default::default(),
            ("EXEC" | "DISCARD", 1) => (self.is_queueing, self.watches) = Default::default(),
            ("SUBSCRIBE" | "PSUBSCRIBE" | "SSUBSCRIBE", 2..) => self.subscribes = true,
            ("WATCH", 2..) if !self.is_queueing => self.watches = true,
            _ => {}
        }
    }
}

/// Returns the words of a random command.
fn command(random: &mut Random) -> Vec<String> {
    if random.one_in(4) {
        return redis_scripts::command(random, KEYS, VALUES, NUMBERS);
    }
    let pattern = random.pick(COMMANDS);
    let mut word = |word: &str| match word {
        "K" => random.pick(KEYS).to_owned(),
        "V" => random.pick(VALUES).to_owned(),
        "N" => random.pick(NUMBERS).to_owned(),
        "T" => random.pick(TIMES).to_owned(),
        "N0" => random.pick(NUMBERS).to_owned() + "0",
        "T000" => format!("{}000", random.pick(TIMES)),
        "P" => random.pick(PLACES).to_owned(),
        "U" => random.pick(UNITS).to_owned(),
        "B" => random.pick(BIT_VALUES).to_owned(),
        "Y" => random.pick(TYPES).to_owned(),
        "F" => random.pick(FLOATS).to_owned(),
        "D" => random.pick(DUMPS).to_owned(),
        "H" => random.pick(SKETCHES).to_owned(),
        word => word.to_owned(),
    };
    let mut words: Vec<String> = pattern.split(' ').map(&mut word).collect();
    if words.last().is_some_and(|word| word == "E") {
        words.pop();
        let first = random.below(ELEMENTS);
        let last = first + random.below(ELEMENTS);
        words.extend((first..last).map(|number| number.to_string()));
    }
    words
}

/// Returns the request of these words.
pub(crate) fn encoded(words: &[impl AsRef<str>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        // Each character is a byte.
        let word: Vec<u8> = word.as_ref().chars().map(|character| character as u8).collect();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(&[&word, &b"\r\n"[..]].concat());
    }
    bytes
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
            (b'$' | b'=', Ok(length)) => {
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes)?;
                text.push_str(&bytes.escape_ascii().to_string());
            }
            (b'*' | b'%' | b'>' | b'~', Ok(count)) => {
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

/// Returns whether two replies are the same. The time of an expiry, in seconds since 1970, may be
/// another one in the server that was asked later.
fn are_same(theirs: &str, ours: &str) -> bool {
    let time = |line: &str| {
        let time: u64 = line.strip_prefix(':')?.parse().ok()?;
        (time > TIME_MIN).then_some(time)
    };
    let mut lines = theirs.split(r"\r\n").zip(ours.split(r"\r\n"));
    theirs.len() == ours.len()
        && lines.all(|(theirs, ours)| {
            let times = time(theirs).zip(time(ours));
            theirs == ours || times.is_some_and(|(theirs, ours)| theirs.abs_diff(ours) <= 1)
        })
}

/// Holds the conversation of a seed with both servers. Fails if they differ.
pub(super) fn compare_answers(seed: u64, redis: u16, tyrant: u16) -> Result<()> {
    let mut random = Random::new(seed);
    let (mut commands, mut bytes, mut state) = (Vec::new(), Vec::new(), State::default());
    for _ in 0..=random.below(COMMANDS_MAX) {
        if random.below(LINES_EVERY) == 0 {
            let line = random.pick(LINES);
            bytes.extend(format!("{line}\r\n").bytes());
            // An empty line has no reply.
            if !line.trim().is_empty() {
                commands.push(vec![line.to_owned()]);
            }
            continue;
        }
        let words = command(&mut random);
        if state.allows(&words) {
            state.note(&words);
            bytes.extend(encoded(&words));
            commands.push(words);
        }
    }
    let mut connections = [Connection::open(redis)?, Connection::open(tyrant)?];
    for connection in &mut connections {
        for words in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"]] {
            connection.send(&encoded(words))?;
            ensure!(connection.reply(false)? == r"+OK\r\n", "{words:?} failed");
        }
        connection.send(&bytes)?;
    }
    for (number, words) in commands.iter().enumerate() {
        let is_set = ["KEYS", "SCAN"].contains(&words[0].as_str());
        let [theirs, ours] = &mut connections;
        let theirs = comparable(words, theirs.reply(is_set)?);
        let ours = comparable(words, ours.reply(is_set)?);
        if !are_same(&theirs, &ours) {
            bail!("command {number}, {words:?}: Redis {theirs:?}, the server {ours:?}");
        }
        if words[0] == "QUIT" || ours.starts_with("-ERR Protocol error") {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::are_same;

    #[test]
    fn times_of_expiries_may_differ_by_a_second_and_nothing_else_may() {
        let replies = |time: &str, other: &str| format!(r"*2\r\n:{time}\r\n:{other}\r\n");
        let one = replies("1796063046", "9");
        assert!(are_same(&one, &one));
        assert!(are_same(&one, &replies("1796063047", "9")));
        for other in [replies("1796063048", "9"), replies("1796063046", "8"), one.repeat(2)] {
            assert!(!are_same(&one, &other), "{other}");
        }
    }
}
