//! Conversations of memcached's binary protocol.
//!
//! Requests are sent in batches. Between batches the cas numbers in the replies are known. Some
//! later requests name one of them, the same for both servers by its order. Responses are compared
//! byte for byte, except for these numbers: each is replaced by the number of others seen before
//! it.

use super::random::Random;
use crate::memcached::Connection;
use anyhow::{Result, ensure};

/// Batches per conversation, and most requests per batch.
const BATCHES: usize = 12;
const BATCH_REQUESTS_MAX: usize = 8;

/// Length of a header, in bytes.
const HEADER_BYTES: usize = 24;

/// Opaque bytes of the no-op that ends a batch. No other request has them.
const END: [u8; 4] = *b"end!";

const NO_OP: u8 = 0x0a;
const STAT: u8 = 0x10;

/// Holds the conversation of a seed with memcached and with the server, and compares the replies.
pub(super) fn compare_answers(seed: u64, memcached: u16, server: u16) -> Result<()> {
    let conversation = Conversation::new(seed);
    let expected = conversation.hold(memcached)?;
    let answered = conversation.hold(server)?;
    let same = expected.iter().zip(&answered).take_while(|(one, other)| one == other).count();
    ensure!(
        same == expected.len() && same == answered.len(),
        "after {same} equal responses memcached replied\n  {}\nand the server\n  {}\nto\n{}",
        expected.get(same).map_or("nothing", String::as_str),
        answered.get(same).map_or("nothing", String::as_str),
        conversation.text()
    );
    Ok(())
}

/// Generator of requests from a seed.
struct Conversation {
    batches: Vec<Vec<Request>>,
    /// Request that ends the connection.
    last: Request,
}

/// Request and the cas number that it names: none, one that no record has, or one of the latest
/// replies.
#[derive(Clone)]
struct Request {
    packet: Vec<u8>,
    number: Number,
}

#[derive(Clone, Copy)]
enum Number {
    None,
    Wrong,
    /// Index of a seen number, counted back from the last.
    Seen(usize),
}

impl Conversation {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let batch = |random: &mut Random| {
            let requests = 1 + random.below(BATCH_REQUESTS_MAX);
            let mut batch = Vec::new();
            for _ in 0..requests {
                let request = request(random);
                // memcached changes a number in place unless a reply that shows it is still being
                // sent. This makes it send all replies.
                if is_arithmetic(request.packet[1]) {
                    batch.push(plain(NO_OP, b"", b"", b""));
                }
                batch.push(request);
            }
            batch
        };
        // Both servers begin a conversation without records.
        let mut batches = vec![vec![plain(0x08, b"", b"", b"")]];
        batches.extend((0..BATCHES).map(|_| batch(&mut random)));
        Self { batches, last: last(&mut random) }
    }

    /// Holds the conversation with one server and returns all responses as text.
    fn hold(&self, port: u16) -> Result<Vec<String>> {
        let mut connection = Connection::open(port)?;
        let mut numbers = Vec::new();
        let mut responses = Vec::new();
        for batch in &self.batches {
            let mut bytes: Vec<u8> =
                batch.iter().flat_map(|request| request.bytes(&numbers)).collect();
            let mut end = plain(NO_OP, b"", b"", b"").packet;
            end[12..16].copy_from_slice(&END);
            bytes.extend(end);
            connection.send(&bytes)?;
            loop {
                let packet = response(&mut connection)?;
                if packet[12..16] == END {
                    break;
                }
                responses.push(show(&packet, &mut numbers));
            }
        }
        connection.send(&self.last.packet)?;
        while !connection.is_at_end()? {
            responses.push(show(&response(&mut connection)?, &mut numbers));
        }
        Ok(responses)
    }

    fn text(&self) -> String {
        let requests = self.batches.iter().flatten().chain([&self.last]);
        let lines = requests.map(|request| {
            let number = match request.number {
                Number::None => String::new(),
                Number::Wrong => " with a wrong number".to_owned(),
                Number::Seen(back) => format!(" with the number {back} before the last"),
            };
            format!("  {}{number}", request.packet.escape_ascii())
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl Request {
    fn bytes(&self, numbers: &[u64]) -> Vec<u8> {
        let number = match self.number {
            Number::None => 0,
            Number::Wrong => u64::MAX - 1,
            Number::Seen(back) => numbers.iter().rev().nth(back).copied().unwrap_or(0),
        };
        let mut packet = self.packet.clone();
        packet[16..HEADER_BYTES].copy_from_slice(&number.to_be_bytes());
        packet
    }
}

/// Reads one response.
fn response(connection: &mut Connection) -> Result<Vec<u8>> {
    let mut packet = connection.read(HEADER_BYTES)?;
    ensure!(packet[0] == 0x81, "no response: {}", packet.escape_ascii());
    let body = u32::from_be_bytes([packet[8], packet[9], packet[10], packet[11]]);
    packet.extend(connection.read(body as usize)?);
    Ok(packet)
}

/// Returns the text of a response.
fn show(packet: &[u8], numbers: &mut Vec<u64>) -> String {
    let (header, body) = packet.split_at(HEADER_BYTES);
    let number = header[16..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let number = match numbers.iter().position(|seen| *seen == number) {
        _ if number == 0 => "none".to_owned(),
        Some(place) => format!("#{place}"),
        None => {
            numbers.push(number);
            format!("#{}", numbers.len() - 1)
        }
    };
    // The versions of the servers differ.
    let body = if header[1] == 0x0b { &b"version"[..] } else { body };
    let header = if header[1] == 0x0b { &header[..8] } else { &header[..16] };
    format!("{} {} number {number}", header.escape_ascii(), body.escape_ascii())
}

fn plain(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Request {
    let body = extras.len() + key.len() + value.len();
    let mut packet = vec![0x80, opcode];
    packet.extend_from_slice(&(key.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[extras.len() as u8, 0, 0, 0]);
    packet.extend_from_slice(&(body as u32).to_be_bytes());
    packet.extend_from_slice(&[0; 12]);
    for part in [extras, key, value] {
        packet.extend_from_slice(part);
    }
    Request { packet, number: Number::None }
}

const KEYS: &[&str] = &["a", "b", "c", "num", "d e", "\r\n"];
const VALUES: &[&str] =
    &["", "x", "10", "9", "99", "0", "18446744073709551615", "12 ", " 7", "abc", "1 2", "x\r\ny"];
/// Excludes requests that end the connection.
const EXPIRIES: &[u32] = &[0, 0, 100, 2_592_000, 4_102_444_800, u32::MAX];
const AMOUNTS: &[u64] = &[0, 1, 2, 5, 100, u64::MAX];

fn is_arithmetic(opcode: u8) -> bool {
    matches!(opcode, 0x05 | 0x06 | 0x15 | 0x16)
}

/// Returns a request that leaves the connection open.
fn request(random: &mut Random) -> Request {
    let long = "k".repeat(249 + random.below(2));
    let key = if random.one_in(60) { long.as_str() } else { random.pick(KEYS) }.as_bytes();
    let value = random.pick(VALUES).as_bytes();
    let expiry = EXPIRIES[random.below(EXPIRIES.len())].to_be_bytes();
    let flags = [0, 7, u32::MAX][random.below(3)].to_be_bytes();
    let amount = AMOUNTS[random.below(AMOUNTS.len())].to_be_bytes();
    let initial = AMOUNTS[random.below(AMOUNTS.len())].to_be_bytes();
    let pick = |random: &mut Random, opcodes: &[u8]| opcodes[random.below(opcodes.len())];
    let mut request = match random.below(20) {
        0..=3 => {
            let opcode = pick(random, &[0x01, 0x11]);
            plain(opcode, &[flags, expiry].concat(), key, value)
        }
        4 | 5 => {
            let opcode = pick(random, &[0x02, 0x03, 0x12, 0x13]);
            plain(opcode, &[flags, expiry].concat(), key, value)
        }
        6..=9 => plain(pick(random, &[0x00, 0x09, 0x0c, 0x0d]), b"", key, b""),
        10 => plain(pick(random, &[0x04, 0x14]), b"", key, b""),
        11..=13 => {
            let opcode = pick(random, &[0x05, 0x06, 0x15, 0x16]);
            plain(opcode, &[&amount[..], &initial, &expiry].concat(), key, b"")
        }
        14 | 15 => plain(pick(random, &[0x0e, 0x0f, 0x19, 0x1a]), b"", key, value),
        16 | 17 => {
            let opcode = pick(random, &[0x1c, 0x1d, 0x1e, 0x23, 0x24]);
            plain(opcode, &expiry, key, b"")
        }
        18 if random.one_in(4) => {
            let extras: &[u8] = if random.one_in(2) { &[0; 4] } else { b"" };
            plain(pick(random, &[0x08, 0x18]), extras, b"", b"")
        }
        18 => plain(pick(random, &[NO_OP, 0x0b, 0x20, 0x1f, 0x25, 0xff]), b"", b"", b""),
        // All other stats depend on the server.
        _ => {
            let arguments = ["reset", "detail dump", "detail off", "detail", "foo", "sizes"];
            plain(STAT, b"", random.pick(&arguments).as_bytes(), b"")
        }
    };
    let compares =
        matches!(request.packet[1], 0x01..=0x06 | 0x0e | 0x0f | 0x11..=0x16 | 0x19 | 0x1a);
    request.number = match random.below(8) {
        0 if compares => Number::Wrong,
        1 | 2 if compares => Number::Seen(random.below(4)),
        _ => Number::None,
    };
    let opaque = random.below(usize::MAX >> 32) as u32;
    // Not the opaque bytes of the end.
    request.packet[12..16].copy_from_slice(&(opaque & 0x7f00_ffff).to_be_bytes());
    request
}

/// Returns a request that ends the connection. It has no value, so that no unread byte resets the
/// connection.
fn last(random: &mut Random) -> Request {
    let long = [b'k'; 251];
    let mut longer = plain(0x00, b"", b"a", b"");
    longer.packet[11] = 0;
    match random.below(11) {
        0 => plain(0x07, b"", b"", b""),
        1 => plain(0x17, b"", b"", b""),
        2 => plain(0x00, b"", b"", b""),
        3 => plain(0x00, b"", &long, b""),
        4 => plain(0x01, &[0; 4], b"a", b""),
        5 => plain(0x05, &[0; 16], b"a", b""),
        6 => plain(NO_OP, b"", b"a", b""),
        7 => plain(0x08, &[0; 8], b"", b""),
        8 => plain(0x1d, &[0; 8], b"a", b""),
        9 => plain(STAT, &[0; 4], b"", b""),
        _ => longer,
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
    fn equal_cas_numbers_are_normalised_alike_and_other_bytes_are_kept() {
        let packet = |number: u8, value: u8| {
            let mut packet = vec![0; HEADER_BYTES];
            packet[HEADER_BYTES - 1] = number;
            packet.push(value);
            packet
        };
        let all = |packets: &[Vec<u8>]| {
            let mut numbers = Vec::new();
            packets.iter().map(|packet| show(packet, &mut numbers)).collect::<Vec<_>>()
        };
        let one = all(&[packet(5, 1), packet(9, 1), packet(5, 1), packet(0, 1)]);
        assert_eq!(one, all(&[packet(7, 1), packet(3, 1), packet(7, 1), packet(0, 1)]));
        assert_ne!(one, all(&[packet(7, 1), packet(3, 1), packet(3, 1), packet(0, 1)]));
        assert_ne!(one, all(&[packet(7, 1), packet(3, 1), packet(7, 1), packet(8, 1)]));
        assert_ne!(one, all(&[packet(7, 2), packet(3, 1), packet(7, 1), packet(0, 1)]));
    }
}
