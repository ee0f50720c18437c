//! `SLOWLOG`: the server's slow requests, in Redis's form.

use super::{Failed, integer, reply, saturated, too_many};
use crate::ops::command_mask;
use crate::protocol::Context;
use crate::shared::slow_log::SlowRequest;
use std::time::UNIX_EPOCH;
use wire::redis::{Arguments, Command};

/// Requests that `SLOWLOG GET` shows if no number is given.
const SHOWN: usize = 10;

/// Executes `SLOWLOG`.
pub(super) fn describe(
    context: &mut Context<'_>,
    part: &str,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let mut strings = arguments.iter().skip(1);
    let given = strings.next();
    if strings.next().is_some() {
        return Err(too_many(Command::SlowLog, arguments));
    }
    let shown = match given.map(integer) {
        None => SHOWN,
        Some(Some(-1)) => usize::MAX,
        Some(count) => count
            .and_then(|count| usize::try_from(count).ok())
            .ok_or("ERR count should be greater than or equal to -1")?,
    };
    // The requests of others have keys.
    context.permit_command(command_mask::Command::Optimize)?;
    let log = &context.shared.slow_log;
    match part {
        "len" => reply::integer(output, log.since_reset().len() as i64),
        "reset" => {
            log.reset();
            reply::simple(output, "OK");
        }
        _ => {
            let requests = log.since_reset();
            reply::array(output, requests.len().min(shown));
            for (number, request) in requests.iter().take(shown) {
                append(*number, request, output);
            }
        }
    }
    Ok(())
}

/// Appends a slow request: its number, when it ended, its time in microseconds, its command with
/// the beginning of its key, and the address of its client, whose name is not kept.
fn append(number: u64, request: &SlowRequest, output: &mut Vec<u8>) {
    let ended = request.ended.duration_since(UNIX_EPOCH).unwrap_or_default();
    reply::array(output, 6);
    reply::integer(output, saturated(number));
    reply::integer(output, saturated(ended.as_secs()));
    reply::integer(output, saturated(request.total().as_micros()));
    let has_key = !request.key.is_empty();
    reply::array(output, 1 + usize::from(has_key));
    reply::string(output, request.kind.command().as_bytes());
    if has_key {
        reply::string(output, &request.key);
    }
    let client = request.client.map_or_else(String::new, |client| client.to_string());
    reply::string(output, client.as_bytes());
    reply::string(output, b"");
}
