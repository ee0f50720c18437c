//! Conversations of memcached's text protocol: valid and invalid requests are sent in batches, so
//! that both servers must also agree on the rest of a refused request.
//!
//! Between batches the cas numbers in the replies are known. Some later requests name one of them
//! with its record, the same for both servers by its order.
//!
//! Only replies that must differ are normalised before the comparison, see [`normalise`].

use super::random::Random;
use crate::memcached::Connection;
use anyhow::Result;
use std::collections::HashMap;

/// Batches per conversation, and requests per batch apart from those for cas numbers.
const BATCHES: usize = 10;
const BATCH_REQUESTS: usize = 6;

/// Placeholders for a record whose cas number was seen, and for that number.
const RECORD: u8 = b'@';
const NUMBER: u8 = b'#';

/// Longest time that a conversation takes.
const SLACK_SECONDS: u64 = 20;

/// Last request: its reply proves that all earlier replies are complete.
const END: (&[u8], &[u8]) = (b"\r\nmn\r\nversion\r\n", b"MN\r\nVERSION ");

/// Holds the conversation of a seed with memcached and with the server, and compares the replies.
pub(super) fn compare_answers(seed: u64, memcached: u16, server: u16) -> Result<()> {
    let conversation = Conversation::new(seed);
    let expected = conversation.hold(memcached)?;
    let answered = conversation.hold(server)?;
    compare(&conversation, &expected, &answered)
}

/// Sends requests and returns all replies of a server.
pub(super) fn ask(port: u16, requests: &[u8]) -> Result<Vec<u8>> {
    answers(&mut Connection::open(port)?, requests)
}

fn answers(connection: &mut Connection, requests: &[u8]) -> Result<Vec<u8>> {
    connection.send(&[requests, END.0].concat())?;
    let mut answers = connection.read_until(END.1)?;
    while !answers.ends_with(b"\n") {
        answers.extend(connection.read(1)?);
    }
    Ok(answers)
}

fn compare(conversation: &Conversation, expected: &str, answered: &str) -> Result<()> {
    if expected == answered {
        return Ok(());
    }
    let same = expected.lines().zip(answered.lines()).take_while(|(one, other)| one == other);
    let same = same.count();
    let context = |text: &str| {
        text.lines().skip(same.saturating_sub(3)).take(6).collect::<Vec<_>>().join("\n  ")
    };
    anyhow::bail!(
        "after {same} equal lines memcached replied\n  {}\nand the server\n  {}\nto\n{}",
        context(expected),
        context(answered),
        conversation.text()
    )
}

/// Returns the text of a reply, in which these are normalised:
///
/// - cas numbers (`cN` of the meta commands, the last number of a `VALUE` of `gets`, `cas=N` of
///   `me`): each is replaced by the number of others seen before it, so that equal numbers of one
///   server match equal numbers of the other;
/// - times (`tN`, `lN`, `exp=`, `la=`), which depend on the moment: a time of up to
///   [`SLACK_SECONDS`] less is equal, because those in conversations are multiples of 100;
/// - the slab class (`cls=`), which only memcached has, and its version;
/// - the text for a refused line, see [`is_refusal`].
fn normalise(answer: &[u8], seen: &mut Seen) -> String {
    let mut text = String::new();
    for line in answer.split_inclusive(|byte| *byte == b'\n') {
        let line = line.escape_ascii().to_string();
        if is_refusal(&line) {
            text.push_str("refused\n");
            continue;
        }
        let tokens: Vec<&str> = line.split(' ').collect();
        let is_gets = tokens[0] == "VALUE" && tokens.len() == 5;
        let is_meta = matches!(tokens[0], "VA" | "HD" | "ME");
        seen.records.extend(numbered(&tokens));
        for (place, token) in tokens.iter().enumerate() {
            if place > 0 {
                text.push(' ');
            }
            let end = token.find('\\').unwrap_or(token.len());
            let (token, line_end) = token.split_at(end);
            // The tokens of a meta command come after its code and the size of a value.
            let is_flag = is_meta && place > usize::from(tokens[0] != "HD");
            let mut number = |text: &str| {
                let next = seen.indexes.len();
                format!("#{}", seen.indexes.entry(text.to_owned()).or_insert(next))
            };
            text.push_str(&match token.split_at_checked(1) {
                _ if tokens[0] == "VERSION" && place > 0 => String::new(),
                _ if is_gets && place == 4 => number(token),
                Some(("c", digits)) if is_flag && is_number(digits) && digits != "0" => {
                    format!("c{}", number(digits))
                }
                Some(("t" | "l", digits)) if is_flag && is_number(digits) => {
                    format!("{}{}", &token[..1], hundreds(digits))
                }
                _ if is_flag && token.starts_with("cas=") => format!("cas={}", number(&token[4..])),
                _ if is_flag && token.starts_with("cls=") => "cls=".to_owned(),
                _ if is_flag && token.starts_with("la=") => format!("la={}", hundreds(&token[3..])),
                _ if is_flag && token.starts_with("exp=-") && token != "exp=-1" => {
                    format!("exp=-{}", hundreds(&token[5..]))
                }
                _ => token.to_owned(),
            });
            text.push_str(line_end);
        }
        text.push('\n');
    }
    text
}

/// Returns whether a line refuses a request in a text that memcached 1.6.45, which the server
/// follows, has changed since 1.6.18, which is compared here. The new texts are tested by the
/// conversations that were captured from 1.6.45.
///
/// Other changes of 1.6.45 are left out of the conversations: it discards the data of a refused
/// store, and replies to it despite `noreply`; it ignores surplus tokens; `gat` requires a key; a
/// key over 250 bytes in `get`; `C` of `mg`; `s` and `N` of `ms`; `q` of `ma` with a new record;
/// `!` as a flag.
fn is_refusal(line: &str) -> bool {
    [
        r"ERROR\r\n",
        r"CLIENT_ERROR bad command line format\r\n",
        r"ERROR: shutdown not enabled\r\n",
        r"SERVER_ERROR: shutdown not enabled\r\n",
    ]
    .contains(&line)
}

/// cas numbers in the replies of a server.
#[derive(Default)]
struct Seen {
    /// Number of others seen before each.
    indexes: HashMap<String, usize>,
    /// Keys and the cas numbers of their records, the latest at the end.
    records: Vec<(String, String)>,
}

/// Returns the key and the cas number in a line, if it has both unchanged.
fn numbered(tokens: &[&str]) -> Option<(String, String)> {
    let whole = |token: &str| token.split('\\').next().unwrap_or_default().to_owned();
    match tokens {
        ["VALUE", key, _, _, number] => Some((whole(key), whole(number))),
        ["VA" | "HD", flags @ ..] if flags.iter().all(|flag| whole(flag) != "b") => {
            let shown = |letter| flags.iter().find_map(|flag| flag.strip_prefix(letter)).map(whole);
            Some((shown('k')?, shown('c').filter(|number| number != "0")?))
        }
        _ => None,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns a time in hundreds of seconds, as it was up to [`SLACK_SECONDS`] ago.
fn hundreds(text: &str) -> String {
    text.parse().map_or(text.to_owned(), |seconds: u64| {
        // memcached wraps negative times to 2^32.
        if seconds <= SLACK_SECONDS || seconds > u64::from(u32::MAX / 2) {
            "0".to_owned()
        } else {
            ((seconds + SLACK_SECONDS) / 100 * 100).to_string()
        }
    })
}

/// Generator of requests from a seed.
struct Conversation {
    batches: Vec<Vec<Request>>,
}

/// Request, and the record and cas number that it names, counted back from the last.
struct Request {
    text: Vec<u8>,
    back: usize,
}

impl Conversation {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // Both servers begin a conversation without records.
        let mut batches = vec![vec![Request::plain(b"flush_all\r\n")]];
        for _ in 0..BATCHES {
            let mut batch = Vec::new();
            for _ in 0..BATCH_REQUESTS {
                let request = request(&mut random);
                // memcached changes a number in place, with its length, unless a reply that shows
                // it is still being sent. This makes it send all replies, and ends the rest of too
                // long data.
                let is_sum =
                    [&b"incr "[..], b"decr ", b"ma "].iter().any(|verb| request.starts_with(verb));
                if is_sum {
                    batch.push(Request::plain(b"\r\nmn\r\n"));
                }
                batch.push(Request { text: request, back: random.below(3) });
            }
            // cas numbers for the next batch.
            let line = format!("\r\ngets {} {}\r\n", random.pick(KEYS), random.pick(KEYS));
            batch.push(Request::plain(line.as_bytes()));
            batches.push(batch);
        }
        Self { batches }
    }

    /// Holds the conversation with one server and returns its replies in the form that is compared.
    fn hold(&self, port: u16) -> Result<String> {
        let mut connection = Connection::open(port)?;
        let mut seen = Seen::default();
        let mut text = String::new();
        for batch in &self.batches {
            let requests: Vec<_> =
                batch.iter().map(|request| request.bytes(&seen.records)).collect();
            let answers = answers(&mut connection, &requests.concat())?;
            text.push_str(&normalise(&answers, &mut seen));
        }
        Ok(text)
    }

    fn text(&self) -> String {
        let line = |request: &Request| format!("  {}", request.text.escape_ascii());
        self.batches.iter().flatten().map(line).collect::<Vec<_>>().join("\n")
    }
}

impl Request {
    fn plain(text: &[u8]) -> Self {
        Self { text: text.to_owned(), back: 0 }
    }

    /// Returns the bytes with one of the seen records and its cas number.
    fn bytes(&self, records: &[(String, String)]) -> Vec<u8> {
        let record = records.iter().rev().nth(self.back);
        let (key, number) = record.map_or(("a", "1"), |(key, number)| (key, number));
        let mut bytes = Vec::new();
        for byte in &self.text {
            match *byte {
                RECORD => bytes.extend_from_slice(key.as_bytes()),
                NUMBER => bytes.extend_from_slice(number.as_bytes()),
                byte => bytes.push(byte),
            }
        }
        bytes
    }
}

const KEYS: &[&str] = &["a", "b", "c", "num", "d%20~", "ke"];
/// Keys. memcached returns a key that was not stored as base64 as it is, even if it would end the
/// line, so there are none of these here.
const BASE64_KEYS: &[&str] = &["YQ==", "Yg==", "bnVt", "eHk=", "w6k=", "YQ", "!!", "YR=="];
/// Values. None is only white space: memcached reads past such a value to find a number.
const VALUES: &[&str] = &[
    "",
    "x",
    "10",
    "9",
    "99",
    "0",
    "18446744073709551615",
    "18446744073709551616",
    "12 ",
    " 7",
    "abc",
    "+5",
    "1 2",
    "007",
    "x\r\ny",
    "x\n",
];
const TIMES: &[&str] = &["0", "100", "500", "1000", "-1", "0", "0", "2592000", "x", "", "1x"];
const NUMBERS: &[&str] =
    &["0", "1", "2", "5", "100", "18446744073709551615", "18446744073709551616", "x", "", "-1"];

/// Returns a request, mostly a valid one.
fn request(random: &mut Random) -> Vec<u8> {
    let long = "k".repeat(249 + random.below(2));
    let key = if random.one_in(60) { long.as_str() } else { random.pick(KEYS) };
    let time = random.time();
    let noreply = if random.one_in(6) { " noreply" } else { "" };
    let number = random.number();
    match random.below(36) {
        0..=5 => store(random, key, noreply),
        6 | 7 => format!("get {key}\r\n").into(),
        8 => format!("gets {key} {}\r\n", random.pick(KEYS)).into(),
        9 if time.is_empty() => format!("gat x {key}\r\n").into(),
        9 => format!("gat {time} {key}\r\n").into(),
        10 => format!("gats {time} {key} {}\r\n", random.pick(KEYS)).into(),
        11 => format!("touch {key} {time}{noreply}\r\n").into(),
        12 => format!("delete {key}{}{noreply}\r\n", random.pick(&["", "", "", " 0"])).into(),
        13 | 14 => format!("incr {key} {number}{noreply}\r\n").into(),
        15 => format!("decr {key} {number}{noreply}\r\n").into(),
        16..=21 => meta_set(random, key),
        22..=26 => {
            let flags = random.flags("kOsctfhluvvqvPLbTTNR", 7);
            meta_line("mg", key, &flags, random)
        }
        27 | 28 => {
            let flags = random.flags("kOqbIICTPLv", 4);
            meta_line("md", key, &flags, random)
        }
        29..=31 => {
            // Without T, which memcached ignores if the number gets longer.
            let flags = random.flags("kObCNJDMtcvvD", 5);
            meta_line("ma", key, &flags, random)
        }
        32 => format!("me {key}\r\n").into(),
        33 => b"mn\r\n".to_vec(),
        _ => random
            .pick(&[
                "get",
                "gets ",
                "set a 0 0",
                "gat",
                "incr a",
                "touch a",
                "delete",
                "",
                " ",
                "x",
                "mx a",
                "m",
                "me",
                "mg",
                "ms a",
                "ma",
                "md",
                "verbosity",
                "verbosity 1",
                "verbosity x",
                "verbosity 1 noreply",
                "flush_all",
                "flush_all 0",
                "flush_all noreply",
                "flush_all x",
                "stats foo",
                "stats detail",
                "stats detail on",
                "stats cachedump",
                "stats reset",
                "lru_crawler",
                "lru_crawler metadump",
                "lru_crawler foo bar",
                "lru_crawler sleep 100",
                "lru_crawler sleep 1000001",
                "lru_crawler tocrawl x",
                "cache_memlimit",
                "cache_memlimit x",
                "cache_memlimit 1",
                "shutdown",
                "GET a",
                "mn x",
            ])
            .bytes()
            .chain(*b"\r\n")
            .collect(),
    }
}

fn store(random: &mut Random, key: &str, noreply: &str) -> Vec<u8> {
    let verb = random.pick(&["set", "set", "add", "replace", "append", "prepend", "cas"]);
    let value = random.pick(VALUES);
    let flags = random.pick(&["0", "0", "7", "4294967295", "4294967296", "+3"]);
    let size = match random.below(30) {
        0 => "x".to_owned(),
        1 => "-1".to_owned(),
        2 => (value.len() + 1).to_string(),
        3 => value.len().saturating_sub(1).to_string(),
        4 => "2147483646".to_owned(),
        _ => value.len().to_string(),
    };
    let flags = if random.one_in(4) { flags } else { "5" };
    // No record of either server has any of these numbers except the first.
    let number = if verb == "cas" { random.pick(&[" #", " #", " #", " 1", " 0"]) } else { "" };
    let key = if number == " #" { "@" } else { key };
    let time = random.good_time();
    let is_refused = matches!(&*size, "x" | "-1" | "2147483646") || flags == "4294967296";
    let noreply = if is_refused { "" } else { noreply };
    format!("{verb} {key} {flags} {time} {size}{number}{noreply}\r\n{value}\r\n").into()
}

fn meta_set(random: &mut Random, key: &str) -> Vec<u8> {
    let value = random.pick(VALUES);
    let flags = random.flags("kOqbcFTMMCIPLft", 5);
    let size = match random.below(30) {
        0 => "x".to_owned(),
        1 => "-1".to_owned(),
        2 => (value.len() + 1).to_string(),
        _ => value.len().to_string(),
    };
    let mut line = meta_line("ms", key, &flags, random);
    line.truncate(line.len() - 2);
    // The size comes before the flags.
    let at = line.iter().enumerate().filter(|(_, byte)| **byte == b' ').nth(1);
    let at = at.map_or(line.len(), |(at, _)| at);
    line.splice(at..at, format!(" {size}").into_bytes());
    line.extend_from_slice(format!("\r\n{value}\r\n").as_bytes());
    line
}

fn meta_line(verb: &str, key: &str, flags: &[char], random: &mut Random) -> Vec<u8> {
    let is_base64 = flags.contains(&'b');
    let compares = !is_base64 && flags.contains(&'C') && !random.one_in(3);
    let key = match () {
        () if is_base64 => random.pick(BASE64_KEYS),
        () if compares => "@",
        () => key,
    };
    let mut line = format!("{verb} {key}");
    for flag in flags {
        let token = match flag {
            'O' if random.one_in(10) => "o".repeat(30 + random.below(2)),
            'O' => random.pick(&["1", "abc", ""]).to_owned(),
            'P' | 'L' => "path".to_owned(),
            // For negative times memcached returns meaningless ones.
            'N' => random.pick(&["0", "100", "500", "x", ""]).to_owned(),
            'T' => random.time().to_owned(),
            'R' => random.pick(&["50", "300", "700", "x", ""]).to_owned(),
            'F' => random.pick(&["0", "3", "4294967295", "x", ""]).to_owned(),
            'C' if compares => "#".to_owned(),
            'C' => random.pick(&["1", "1", "0", "18446744073709551615", "x"]).to_owned(),
            'D' | 'J' => random.number().to_owned(),
            'M' if verb == "ma" => {
                random.pick(&["I", "D", "+", "-", "I", "D", "x", "", "II"]).to_owned()
            }
            'M' => random.pick(&["S", "E", "R", "A", "P", "A", "P", "x", "", "SS"]).to_owned(),
            _ => String::new(),
        };
        line.push_str(&format!(" {flag}{token}"));
    }
    if random.one_in(40) {
        line.push_str(random.pick(&[" z", " k k", " q q"]));
    }
    line.push_str("\r\n");
    line.into_bytes()
}

impl Random {
    /// Returns a time, rarely an invalid one.
    fn time(&mut self) -> &'static str {
        if self.one_in(8) { TIMES[self.below(TIMES.len())] } else { self.good_time() }
    }

    /// Returns a time that is a number.
    fn good_time(&mut self) -> &'static str {
        TIMES[self.below(TIMES.len() - 3)]
    }

    /// Returns a number, rarely an invalid one.
    fn number(&mut self) -> &'static str {
        let end = if self.one_in(8) { NUMBERS.len() } else { NUMBERS.len() - 4 };
        NUMBERS[self.below(end)]
    }

    /// Returns some of `flags`, each once.
    fn flags(&mut self, from: &str, most: usize) -> Vec<char> {
        let from: Vec<char> = from.chars().collect();
        let mut flags = Vec::new();
        for _ in 0..self.below(most + 1) {
            let flag = from[self.below(from.len())];
            if !flags.contains(&flag) {
                flags.push(flag);
            }
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_conversation() {
        assert_eq!(Conversation::new(7).text(), Conversation::new(7).text());
        assert_ne!(Conversation::new(7).text(), Conversation::new(8).text());
    }

    #[test]
    fn a_request_names_the_cas_number_of_its_own_server() {
        let request = Request { text: b"cas @ 0 0 1 #\r\nx\r\n".to_vec(), back: 1 };
        let mut seen = Seen::default();
        assert_eq!(request.bytes(&seen.records), b"cas a 0 0 1 1\r\nx\r\n");
        normalise(
            b"VALUE b 5 1 17\r\nx\r\nEND\r\nHD c0 kn\r\nHD kn\r\nHD c18 kYQ== b\r\n",
            &mut seen,
        );
        normalise(b"VA 1 kc t100 c18\r\nx\r\n", &mut seen);
        assert_eq!(request.bytes(&seen.records), b"cas b 0 0 1 17\r\nx\r\n");
        let last = Request { back: 0, ..request };
        assert_eq!(last.bytes(&seen.records), b"cas c 0 0 1 18\r\nx\r\n");
    }

    #[test]
    fn replies_that_must_differ_are_normalised_and_others_are_kept() {
        let alike = |answer: &[u8]| normalise(answer, &mut Seen::default());
        let one = alike(b"HD c17 t99\r\nVALUE k 5 1 17\r\nx\r\nHD c18 k17\r\n");
        let other = alike(b"HD c400 t100\r\nVALUE k 5 1 400\r\nx\r\nHD c401 k17\r\n");
        assert_eq!(one, other);
        for different in [
            &b"HD c17 t99\r\nVALUE k 5 1 18\r\nx\r\nHD c18 k17\r\n"[..],
            b"HD c17 t199\r\nVALUE k 5 1 17\r\nx\r\nHD c18 k17\r\n",
            b"HD c17 t-1\r\nVALUE k 5 1 17\r\nx\r\nHD c18 k17\r\n",
            b"HD c17 t99\r\nVALUE k 5 1 17\r\nx\r\nHD c18 k18\r\n",
            b"HD c0 t99\r\nVALUE k 5 1 17\r\nx\r\nHD c18 k17\r\n",
        ] {
            assert_ne!(one, alike(different), "{}", different.escape_ascii());
        }
    }
}
