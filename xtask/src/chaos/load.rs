//! Load: clients that change records continuously, each its own records.

use super::host::{Socket, expect_end};
use crate::random::Random;
use anyhow::{Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Requests per pipeline.
const DEPTH: usize = 32;

/// Keys per kind and client.
const KEYS: u64 = 500;

/// Initial length of a list, in bytes. An append to a list this long is replicated as an append,
/// not as the whole list.
const LIST_BYTES_MIN: usize = 128;

/// Longest value stored, in bytes.
const VALUE_BYTES_MAX: u64 = 400;

/// Pause after each pipeline, so that servers are busy but not saturated.
const PAUSE: Duration = Duration::from_millis(1);

/// Pause before connecting again to a server that is down.
const RETRY: Duration = Duration::from_millis(20);

/// Changes records through a server's socket until `stop`, reconnecting after kills. Increments and
/// appends reveal a change that was executed twice or not at all. Returns the number of
/// acknowledged changes.
pub(super) fn change(socket: &Socket, name: &str, seed: u64, stop: &AtomicBool) -> Result<u64> {
    let mut random = Random(seed);
    let mut acknowledged = 0;
    while !stop.load(Ordering::Relaxed) {
        if let Some(stream) = socket.connect()? {
            acknowledged += talk(stream, name, &mut random, stop)?;
        }
        std::thread::sleep(RETRY);
    }
    ensure!(acknowledged > 0, "no change of client {name} was acknowledged");
    Ok(acknowledged)
}

/// Sends requests until the connection ends.
fn talk(
    mut stream: BufReader<UnixStream>,
    name: &str,
    random: &mut Random,
    stop: &AtomicBool,
) -> Result<u64> {
    let mut acknowledged = 0;
    while !stop.load(Ordering::Relaxed) {
        let requests: String = (0..DEPTH).map(|_| request(name, random)).collect();
        if let Err(error) = stream.get_mut().write_all(requests.as_bytes()) {
            return expect_end(error).map(|()| acknowledged);
        }
        for _ in 0..DEPTH {
            let mut line = String::new();
            match stream.read_line(&mut line) {
                Ok(_) if line.ends_with("\r\n") => {}
                Ok(_) => return Ok(acknowledged),
                Err(error) => return expect_end(error).map(|()| acknowledged),
            }
            let answer = line.trim_end();
            let is_known =
                ["STORED", "NOT_STORED", "DELETED", "NOT_FOUND", "TOUCHED"].contains(&answer);
            let is_number = answer.bytes().all(|byte| byte.is_ascii_digit());
            ensure!(is_known || is_number, "a server responded {answer:?}");
            acknowledged += 1;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(acknowledged)
}

fn request(name: &str, random: &mut Random) -> String {
    let key = random.below(KEYS);
    let mark = random.below(1 << 32);
    let with_value = |command: &str, kind: &str, value: &str| {
        format!("{command} {name}.{kind}{key} 0 0 {}\r\n{value}\r\n", value.len())
    };
    match random.below(100) {
        0..40 => {
            let length = random.below(VALUE_BYTES_MAX) as usize;
            with_value("set", "record", &format!("{mark:0length$}"))
        }
        40..50 => with_value("prepend", "record", &format!("{mark:x} ")),
        50..70 => with_value("append", "list", &format!("{mark:x} ")),
        // A list is stored once: storing it again would hide a duplicate append.
        70..72 => with_value("add", "list", &"-".repeat(LIST_BYTES_MIN)),
        72..75 => with_value("add", "sum", "0"),
        75..93 => format!("incr {name}.sum{key} {}\r\n", mark % 100),
        93..99 => format!("delete {name}.record{key}\r\n"),
        _ => format!("delete {name}.sum{key}\r\n"),
    }
}
