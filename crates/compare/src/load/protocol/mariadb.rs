//! MariaDB's client protocol: prepared statements over a table whose primary key is the record's
//! key.
//!
//! A connection logs in and prepares both statements before it is measured. Then a request is one
//! packet, as short as that of a lean client.

use super::{Expect, Garbled, Kind, Parsed, Protocol, Reply, garbled, text};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// Statements that set the server up.
pub(crate) const SET_UP: &[&str] = &[
    "CREATE DATABASE IF NOT EXISTS bench",
    "CREATE TABLE IF NOT EXISTS bench.records \
     (k VARBINARY(64) NOT NULL PRIMARY KEY, v MEDIUMBLOB NOT NULL) ENGINE=InnoDB",
];

/// Statements of a connection: one that stores, one that reads. The server chooses the number of
/// the first; the second has the next number.
const PREPARED: [&str; 2] = [
    "INSERT INTO bench.records (k, v) VALUES (?, ?) ON DUPLICATE KEY UPDATE v = VALUES(v)",
    "SELECT v FROM bench.records WHERE k = ?",
];

const COM_QUERY: u8 = 0x03;
const COM_PREPARE: u8 = 0x16;
const COM_EXECUTE: u8 = 0x17;

/// First bytes of packets.
const OK: u8 = 0x00;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;

/// Long passwords, protocol 4.1, transactions, secure connections, plugins of authentication.
const CAPABILITIES: u32 = 1 | 0x200 | 0x2000 | 0x8000 | 0x8_0000;
const PACKET_BYTES_MAX: u32 = 1 << 24;
const CHARSET_BINARY: u8 = 63;
const TYPE_BYTES: [u8; 2] = [0xfc, 0];
const HEAD_BYTES: usize = 4;

/// InnoDB does not write a row that does not change. So each stored value ends with a unique number
/// of this many bytes.
const STAMP_BYTES: usize = 8;
static STAMP: AtomicU64 = AtomicU64::new(0);

/// Appends a packet, whose body `fill` appends.
fn push_packet(sequence: u8, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, sequence]);
    fill(out);
    let length = (out.len() - start - HEAD_BYTES) as u32;
    out[start..start + 3].copy_from_slice(&length.to_le_bytes()[..3]);
}

/// Appends a string in two parts with its length before it.
fn push_string([start, end]: [&[u8]; 2], out: &mut Vec<u8>) {
    match start.len() + end.len() {
        length @ 0..=250 => out.push(length as u8),
        length @ 251..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&(length as u16).to_le_bytes());
        }
        length => {
            out.push(0xfd);
            out.extend_from_slice(&(length as u32).to_le_bytes()[..3]);
        }
    }
    out.extend_from_slice(start);
    out.extend_from_slice(end);
}

fn encode_execute(statement: u32, parameters: &[[&[u8]; 2]], out: &mut Vec<u8>) {
    push_packet(0, out, |out| {
        out.push(COM_EXECUTE);
        out.extend_from_slice(&statement.to_le_bytes());
        // No cursor, one iteration, no parameter is null, types follow.
        out.extend_from_slice(&[0, 1, 0, 0, 0, 0, 1]);
        parameters.iter().for_each(|_| out.extend_from_slice(&TYPE_BYTES));
        parameters.iter().for_each(|parameter| push_string(*parameter, out));
    });
}

pub(super) fn encode_set(first_statement: u32, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let stamp = STAMP.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    encode_execute(first_statement, &[[key, &[]], [value, &stamp]], out);
}

pub(super) fn encode_get(first_statement: u32, key: &[u8], out: &mut Vec<u8>) {
    encode_execute(first_statement.wrapping_add(1), &[[key, &[]]], out);
}

/// Splits the packet at the start of `bytes` off. Returns its body and the rest.
fn packet(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let [a, b, c, _sequence, rest @ ..] = bytes else { return None };
    rest.split_at_checked(u32::from_le_bytes([*a, *b, *c, 0]) as usize)
}

/// Returns the text of a refusal, if the packet is one.
fn refusal(body: &[u8]) -> Option<String> {
    match body {
        [ERROR, code_low, code_high, words @ ..] => {
            let code = u16::from_le_bytes([*code_low, *code_high]);
            // A state of five characters precedes the text.
            let words = words.strip_prefix(b"#").and_then(|rest| rest.get(5..)).unwrap_or(words);
            Some(format!("error {code}: {}", text(words)))
        }
        _ => None,
    }
}

fn is_end(body: &[u8]) -> bool {
    matches!(body, [END, ..]) && body.len() < 9
}

/// Returns the value, without the stamp, in a length-prefixed string that fills `bytes`.
fn value(bytes: &[u8]) -> Result<&[u8], Garbled> {
    let (length, rest) = match bytes {
        [length @ 0..=250, rest @ ..] => (usize::from(*length), rest),
        [0xfc, a, b, rest @ ..] => (usize::from(u16::from_le_bytes([*a, *b])), rest),
        [0xfd, a, b, c, rest @ ..] => (u32::from_le_bytes([*a, *b, *c, 0]) as usize, rest),
        _ => return Err(garbled("no string", bytes)),
    };
    match rest.split_last_chunk::<STAMP_BYTES>() {
        Some((value, _stamp)) if rest.len() == length => Ok(value),
        _ => Err(garbled("another length", bytes)),
    }
}

pub(super) fn parse(kind: Kind, numbers: &[u64], bytes: &[u8], expect: &impl Expect) -> Parsed {
    let Some((body, mut rest)) = packet(bytes) else { return Ok(None) };
    if let Some(refusal) = refusal(body) {
        return Ok(Some((bytes.len() - rest.len(), Reply::Refused(refusal))));
    }
    if kind == Kind::Set {
        return match body {
            [OK, ..] => Ok(Some((bytes.len() - rest.len(), Reply::Stored))),
            _ => Err(garbled("unexpected reply", body)),
        };
    }
    if body != [1] {
        return Err(garbled("not one column", body));
    }
    // The column's definition and an end, then the rows and an end.
    let (mut found, mut wrong, mut ends, mut definitions) = (0, 0, 0, 0);
    loop {
        let Some((body, after)) = packet(rest) else { return Ok(None) };
        rest = after;
        if let Some(refusal) = refusal(body) {
            return Ok(Some((bytes.len() - rest.len(), Reply::Refused(refusal))));
        }
        match ends {
            _ if is_end(body) => ends += 1,
            0 => definitions += 1,
            // A row begins with 0 and a byte whose bits are the null columns.
            _ => match (body, numbers.get(found)) {
                ([OK, 0, string @ ..], Some(number)) => {
                    found += 1;
                    wrong += usize::from(value(string)? != expect.value(*number));
                }
                _ => return Err(garbled("unexpected row", body)),
            },
        }
        if definitions > 1 {
            return Err(garbled("more than one column", body));
        }
        if ends == 2 {
            return Ok(Some((bytes.len() - rest.len(), Reply::Values { found, wrong })));
        }
    }
}

/// Reads one packet.
fn read_packet(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    match refusal(&body) {
        Some(refusal) => Err(io::Error::other(refusal)),
        None => Ok(body),
    }
}

/// Logs in as root without a password.
fn log_in(stream: &mut (impl Read + Write)) -> io::Result<()> {
    read_packet(stream)?;
    let mut request = Vec::new();
    push_packet(1, &mut request, |out| {
        out.extend_from_slice(&CAPABILITIES.to_le_bytes());
        out.extend_from_slice(&PACKET_BYTES_MAX.to_le_bytes());
        out.push(CHARSET_BINARY);
        out.extend_from_slice(&[0; 23]);
        // An empty password has an empty response.
        out.extend_from_slice(b"root\0\0mysql_native_password\0");
    });
    stream.write_all(&request)?;
    match read_packet(stream)?.first() {
        Some(&OK) => Ok(()),
        _ => Err(io::Error::other("the server asks for another authentication")),
    }
}

/// Logs in and prepares the statements. Returns the protocol of this connection.
pub(crate) fn begin(stream: &mut (impl Read + Write)) -> io::Result<Protocol> {
    log_in(stream)?;
    let mut numbers = [0; PREPARED.len()];
    for (number, statement) in numbers.iter_mut().zip(PREPARED) {
        let mut request = Vec::new();
        push_packet(0, &mut request, |out| {
            out.push(COM_PREPARE);
            out.extend_from_slice(statement.as_bytes());
        });
        stream.write_all(&request)?;
        let reply = read_packet(stream)?;
        let Some((&[OK, a, b, c, d, e, f, g, h], _)) = reply.split_first_chunk() else {
            return Err(io::Error::other("a statement is not prepared"));
        };
        *number = u32::from_le_bytes([a, b, c, d]);
        // Definitions of columns and of parameters follow, each list with an end.
        let columns = u16::from_le_bytes([e, f]);
        let parameters = u16::from_le_bytes([g, h]);
        for count in [parameters, columns].into_iter().filter(|count| *count > 0) {
            for _ in 0..=count {
                read_packet(stream)?;
            }
        }
    }
    let [first_statement, second] = numbers;
    if second != first_statement.wrapping_add(1) {
        return Err(io::Error::other("the numbers of the statements do not follow each other"));
    }
    Ok(Protocol::MariaDb { first_statement })
}

/// Logs in and executes statements without results.
pub(crate) fn execute(stream: &mut (impl Read + Write), statements: &[&str]) -> io::Result<()> {
    log_in(stream)?;
    for statement in statements {
        let mut request = Vec::new();
        push_packet(0, &mut request, |out| {
            out.push(COM_QUERY);
            out.extend_from_slice(statement.as_bytes());
        });
        stream.write_all(&request)?;
        read_packet(stream)?;
    }
    Ok(())
}
