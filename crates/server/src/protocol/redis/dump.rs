//! `DUMP` and `RESTORE`, by which values are moved between servers and Redis.

use super::keys::is_present;
use super::remove::remove_unmasked;
use super::room::{SLOW_BYTES_MIN, room_for_value};
use super::time::check_expiry;
use super::{Failed, NO_INTEGER, SYNTAX, find, integer, parts, reply};
use crate::counters::Count;
use crate::ops::conditional::{Action, Presence, Write};
use crate::ops::execute::{NoReply, Outcome};
use crate::ops::expiry::{now_ms, stored};
use crate::ops::operation::Operation;
use crate::protocol::Context;
use cabinet::Meta;
use wire::redis::{Arguments, ArgumentsIter, DumpError, read_dump};

/// Executes `DUMP`.
pub(super) fn dump(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key] = parts(arguments)?;
    let Some(found) = find(context, key)? else {
        context.tally.count(Count::Get);
        reply::null(output, context.session.redis.version);
        return Ok(());
    };
    if found.value.len() >= SLOW_BYTES_MIN {
        context.wait()?;
    }
    context.tally.count(Count::Get);
    let mut dump = Vec::new();
    wire::redis::dump(&mut dump, &found.value);
    context.check_length(dump.len())?;
    reply::string(output, &dump);
    Ok(())
}

/// Options of `RESTORE`. Those of Redis's eviction are checked, and have no effect.
#[derive(Default)]
struct RestoreOptions {
    replaces: bool,
    is_absolute: bool,
}

fn restore_options(mut options: ArgumentsIter<'_>) -> Result<RestoreOptions, Failed> {
    let mut read = RestoreOptions::default();
    let (mut has_idle_time, mut has_frequency) = (false, false);
    while let Some(option) = options.next() {
        match &*option.to_ascii_uppercase() {
            b"REPLACE" => read.replaces = true,
            b"ABSTTL" => read.is_absolute = true,
            b"IDLETIME" if options.len() > 0 && !has_frequency => {
                let idle_time = options.next().and_then(integer).ok_or(NO_INTEGER)?;
                if idle_time < 0 {
                    return Err("ERR Invalid IDLETIME value, must be >= 0".into());
                }
                has_idle_time = true;
            }
            b"FREQ" if options.len() > 0 && !has_idle_time => {
                let frequency = options.next().and_then(integer).ok_or(NO_INTEGER)?;
                if !(0..=255).contains(&frequency) {
                    return Err("ERR Invalid FREQ value, must be >= 0 and <= 255".into());
                }
                has_frequency = true;
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok(read)
}

/// Executes `RESTORE`.
pub(super) fn restore(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let ([key, time, dump], strings) = arguments.split().ok_or(SYNTAX)?;
    let options = restore_options(strings)?;
    context.permit(&Operation::put(key, b"", Presence::Any))?;
    if !options.replaces && is_present(context, key)? {
        return Err(BUSY.into());
    }
    let time_ms = integer(time).ok_or(NO_INTEGER)?;
    if time_ms < 0 {
        return Err("ERR Invalid TTL value, must be >= 0".into());
    }
    if time_ms > 0 {
        check_expiry(context)?;
    }
    if dump.len() >= SLOW_BYTES_MIN {
        context.wait()?;
    }
    let dumped = read_dump(dump).map_err(failure)?;
    let _charge = room_for_value(context, dumped.length_max())?;
    let value = dumped.string().map_err(failure)?;
    let now_ms = now_ms();
    let expires_at_ms = match time_ms.unsigned_abs() {
        0 => None,
        at_ms if options.is_absolute => Some(at_ms),
        // As in Redis, a time that is over 63 bits is one in the past.
        left_ms => Some(now_ms.saturating_add(left_ms) % (1 << 63)),
    };
    if expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
        if options.replaces {
            remove_unmasked(context, key)?;
        }
        reply::simple(output, "OK");
        return Ok(());
    }
    let meta = Meta { flags: 0, expires_at_ms: expires_at_ms.map_or(0, stored) };
    let presence = if options.replaces { Presence::Any } else { Presence::Absent };
    let write = Write::new(key, Action::put(presence, &value, meta));
    context.tally.count(Count::Put);
    match context.execute(&Operation::Write(write), &mut NoReply)?? {
        Outcome::Done => reply::simple(output, "OK"),
        // Another client has made the record meanwhile.
        _ => return Err(BUSY.into()),
    }
    Ok(())
}

const BUSY: &str = "BUSYKEY Target key name already exists.";

/// Returns the error for a dump that cannot be restored.
fn failure(error: DumpError) -> Failed {
    match error {
        DumpError::VersionOrChecksum => "ERR DUMP payload version or checksum are wrong".into(),
        DumpError::Format => "ERR Bad data format".into(),
        DumpError::OtherType(name) => {
            Failed::Text(format!("ERR the dump is that of a {name}: this server has strings only"))
        }
    }
}
