//! Commands about the whole database, and about the server.

use super::{Context, Halt, Next, expiry, failure, is_plain, item_bytes};
use crate::counters::Count;
use crate::ops::command_mask::Command;
use crate::ops::execute::{NoReply, Reply};
use crate::ops::operation::Operation;
use crate::shared::Shared;
use cabinet::{Error, RecordRef};
use std::fmt::Write;
use std::time::{Duration, Instant};
use wire::memcached::reply;

/// Least memory that `cache_memlimit` allows, in MiB, as in memcached.
const MEMORY_MEBIBYTES_MIN: u64 = 8;

/// Longest pause of the crawler, in microseconds, as in memcached.
const CRAWLER_PAUSE_MAX: u64 = 1_000_000;

/// Number of memcached's size classes, plus one.
const CLASSES: u64 = 64;

/// Removes all records, now or after a delay. A later `flush_all` replaces an earlier one.
pub(in crate::protocol) fn flush_all(
    context: &mut Context<'_>,
    delay: i64,
) -> Result<Result<(), Error>, Halt> {
    // memcached removes the records stored up to the second before the named one.
    let wait_ms = match delay {
        ..=0 => 0,
        _ => expiry::expires_at_ms(delay).saturating_sub(expiry::now_ms() + 1000),
    };
    context.permit(&Operation::Clear)?;
    if wait_ms > 0 {
        let gate = context.local("delayed removal").and_then(|_| context.shared.served.gate.pass());
        if let Err(error) = context.attempt("do_mc_flushall", gate)? {
            return Ok(Err(error));
        }
        // A time beyond the end of the clock never comes.
        let at = Instant::now().checked_add(Duration::from_millis(wait_ms));
        context.shared.clear_at(at);
        context.counters.count(Count::Vanish);
        return Ok(Ok(()));
    }
    context.wait()?;
    let cleared = context.execute(&Operation::Clear, &mut NoReply)?.map(|_| ());
    if cleared.is_ok() {
        context.shared.clear_at(None);
    }
    context.counters.count(Count::Vanish);
    Ok(cleared)
}

/// Executes `cache_memlimit`.
pub(in crate::protocol) fn cap_memory(
    context: &mut Context<'_>,
    mebibytes: u64,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    if mebibytes < MEMORY_MEBIBYTES_MIN {
        output.extend_from_slice(b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n");
        return Ok(());
    }
    context.wait()?;
    let tuning = format!("capsiz={}", mebibytes.saturating_mul(1 << 20));
    let retune = Operation::Retune { tuning: tuning.as_bytes() };
    match context.execute(&retune, &mut NoReply)? {
        Ok(_) => output.extend_from_slice(reply::OK),
        Err(error) => failure(output, &error),
    }
    Ok(())
}

/// Executes `shutdown`.
pub(in crate::protocol) fn shut_down(
    context: &mut Context<'_>,
    argument: &[u8],
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    context.permit_command(Command::Optimize)?;
    if !context.shared.config.shutdown_command {
        output.extend_from_slice(b"SERVER_ERROR: shutdown not enabled\r\n");
        return Ok(Next::GoOn);
    }
    Ok(match argument {
        b"" | b"graceful" => {
            tracing::info!("stopping on request of a client");
            context.shared.served.stop.set();
            Next::Close
        }
        _ => {
            reply::client_error(output, "invalid shutdown mode");
            Next::GoOn
        }
    })
}

/// Executes `lru_crawler`. There is no crawler: its settings are accepted, and its lists are
/// written.
pub(in crate::protocol) fn crawl(
    context: &mut Context<'_>,
    command: &[u8],
    argument: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let number = std::str::from_utf8(argument).ok().and_then(|text| text.parse::<u64>().ok());
    match (command, argument) {
        (b"enable" | b"disable", b"") => output.extend_from_slice(reply::OK),
        (_, b"") => output.extend_from_slice(reply::ERROR),
        (b"sleep", _) => match number {
            None => reply::client_error(output, "bad command line format"),
            Some(0..=CRAWLER_PAUSE_MAX) => output.extend_from_slice(reply::OK),
            Some(_) => reply::client_error(output, "sleep must be one second or less"),
        },
        (b"tocrawl", _) => match number {
            None => reply::client_error(output, "bad command line format"),
            Some(_) => output.extend_from_slice(reply::OK),
        },
        (b"metadump" | b"mgdump" | b"crawl", _) => match classes(argument) {
            None => output.extend_from_slice(b"BADCLASS invalid class id\r\n"),
            Some(_) if command == b"crawl" => output.extend_from_slice(reply::OK),
            Some(is_listed) => {
                let start = output.len();
                output.extend_from_slice(reply::OK);
                let end = if command == b"metadump" { reply::END } else { reply::CODE_MISS_LINE };
                if !is_listed || list(context, command == b"metadump", output)? {
                    output.extend_from_slice(end);
                } else {
                    output.drain(start..start + reply::OK.len());
                }
            }
        },
        _ => output.extend_from_slice(reply::ERROR),
    }
    Ok(())
}

/// Returns whether class 1, which has all records, is among these classes. Returns `None` if the
/// argument is invalid.
fn classes(argument: &[u8]) -> Option<bool> {
    if matches!(argument, b"all" | b"hash") {
        return Some(true);
    }
    let mut is_first = false;
    for class in argument.split(|byte| *byte == b',') {
        let class: u64 = std::str::from_utf8(class).ok()?.parse().ok()?;
        if !(1..CLASSES).contains(&class) {
            return None;
        }
        is_first |= class == 1;
    }
    Some(is_first)
}

/// Lists all records, by their metadata or by their keys alone. After a failure the reply is the
/// failure only, and the result is false.
fn list(context: &mut Context<'_>, is_full: bool, output: &mut Vec<u8>) -> Result<bool, Halt> {
    context.wait()?;
    context.shared.hits.activate();
    let start = output.len();
    let mut dump = Dump { shared: context.shared, is_full, start, output: &mut *output };
    if let Err(error) = context.execute(&Operation::Records, &mut dump)? {
        output.truncate(start);
        failure(output, &error);
        return Ok(false);
    }
    Ok(true)
}

/// Encoder of a list of records without their values.
struct Dump<'r> {
    shared: &'r Shared,
    is_full: bool,
    output: &'r mut Vec<u8>,
    start: usize,
}

impl Reply for Dump<'_> {
    fn len(&self) -> usize {
        self.output.len() - self.start
    }

    fn shows_values(&self) -> bool {
        false
    }

    fn record(&mut self, key: &[u8], entry: &RecordRef<'_>) {
        if self.is_full {
            return full_line(self.shared, entry, self.output);
        }
        self.output.extend_from_slice(b"mg ");
        if is_plain(key) {
            self.output.extend_from_slice(key);
        } else {
            reply::base64(self.output, key);
            self.output.extend_from_slice(b" b");
        }
        self.output.extend_from_slice(b"\r\n");
    }
}

fn full_line(shared: &Shared, entry: &RecordRef<'_>, output: &mut Vec<u8>) {
    let hit = shared.hits.find(entry.key);
    let idle_s = super::meta::seconds_since(shared, hit);
    let fetch = if hit.is_some_and(|hit| hit.is_read) { "yes" } else { "no" };
    output.extend_from_slice(b"key=");
    for byte in entry.key {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                output.push(*byte);
            }
            byte => output.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    let mut line = String::new();
    let exp = expiry::unix_seconds(entry.meta.expires_at_ms)
        .map_or("-1".to_owned(), |second| second.to_string());
    // Writing to a string cannot fail.
    let _ = writeln!(
        line,
        " exp={exp} la={} cas={} fetch={fetch} cls=1 size={} flags={} ",
        (expiry::now_ms() / 1000).saturating_sub(idle_s),
        shared.cas_numbers.number(entry.version),
        item_bytes(entry),
        entry.meta.flags,
    );
    output.extend_from_slice(line.as_bytes());
}
