//! Commands on keys, whatever their values are.

use super::connection::select_number;
use super::time::{TimeUnit, check_expiry};
use super::transaction::{atomically, check_keys};
use super::{
    Decision, Failed, Found, NO_INTEGER, SYNTAX, change, expiry_of, find, integer, parts, read,
    reply, saturated, wait_if_long,
};
use crate::counters::Count;
use crate::ops::command_mask;
use crate::ops::conditional::{Action, Presence, Write};
use crate::ops::execute::{NoReply, Number, Outcome};
use crate::ops::expiry::{now_ms, stored};
use crate::ops::operation::Operation;
use crate::protocol::{Context, or_absent};
use crate::store::events::Event;
use cabinet::Meta;
use wire::redis::{Arguments, Command};

/// Executes `DEL` and `UNLINK`.
pub(super) fn remove(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    if arguments.len() > 1 {
        // Records that are removed would not be found a second time.
        context.wait()?;
        for key in arguments.iter() {
            context.permit(&Operation::remove(key))?;
        }
    }
    let mut removed = 0;
    for key in arguments.iter() {
        context.tally.count(Count::Out);
        let done = context.execute(&Operation::remove(key), &mut NoReply);
        let done = done.map_err(|halt| if removed > 0 { halt.after_a_change() } else { halt })?;
        match or_absent(done, Outcome::NoRecord)? {
            Outcome::Done => removed += 1,
            _ => context.tally.count(Count::OutMiss),
        }
    }
    reply::integer(output, removed);
    Ok(())
}

/// Returns whether a key has a record.
pub(super) fn is_present(context: &mut Context<'_>, key: &[u8]) -> Result<bool, Failed> {
    let found = context.execute(&Operation::ValueSize { key }, &mut NoReply)?;
    Ok(or_absent(found, Outcome::NoRecord)? == Outcome::Done)
}

/// Executes `EXISTS` and `TOUCH`.
pub(super) fn count_present(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    wait_if_long(context, arguments)?;
    let mut present = 0;
    for key in arguments.iter() {
        present += i64::from(is_present(context, key)?);
    }
    context.tally.add(Count::ValueSize, arguments.len() as u32);
    reply::integer(output, present);
    Ok(())
}

/// Executes `TYPE`.
pub(super) fn type_of(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key] = parts(arguments)?;
    reply::simple(output, if is_present(context, key)? { "string" } else { "none" });
    Ok(())
}

/// Conditions on the present expiry of a record, whose lack is the end of time.
#[derive(Default)]
struct ExpireOptions {
    if_none: bool,
    if_some: bool,
    if_later: bool,
    if_earlier: bool,
}

impl ExpireOptions {
    fn are_met(&self, present_ms: Option<u64>, new_ms: u64) -> bool {
        !(self.if_none && present_ms.is_some()
            || self.if_some && present_ms.is_none()
            || self.if_later && present_ms.is_none_or(|present_ms| new_ms <= present_ms)
            || self.if_earlier && present_ms.is_some_and(|present_ms| new_ms >= present_ms))
    }
}

/// Executes `EXPIRE` and its like.
pub(super) fn expire(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    command: Command,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let ([key, time], strings) = arguments.split().ok_or(SYNTAX)?;
    check_expiry(context)?;
    let mut options = ExpireOptions::default();
    for option in strings {
        match &*option.to_ascii_uppercase() {
            b"NX" => options.if_none = true,
            b"XX" => options.if_some = true,
            b"GT" => options.if_later = true,
            b"LT" => options.if_earlier = true,
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(Failed::Text(format!("ERR Unsupported option {option}")));
            }
        }
    }
    let ExpireOptions { if_none, if_some, if_later, if_earlier } = options;
    if if_none && (if_some || if_later || if_earlier) {
        let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(text.into());
    }
    if if_later && if_earlier {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    let number = integer(time).ok_or(NO_INTEGER)?;
    let at_ms = TimeUnit::of_command(command).time(number, command)?;
    // A time in the past removes the record.
    let at_ms = u64::try_from(at_ms).unwrap_or(0);
    context.tally.count(Count::Touch);
    let is_masked = context.refuses(command_mask::Command::Out, command_mask::Protocol::Redis);
    let mut is_set = false;
    change(context, key, |found| {
        let Some(found) =
            found.filter(|found| options.are_met(found.expires_at_ms(), stored(at_ms)))
        else {
            is_set = false;
            return Ok(Decision::Keep);
        };
        is_set = true;
        Ok(match at_ms > now_ms() {
            true => {
                let meta = Meta { expires_at_ms: stored(at_ms), ..found.meta };
                Decision::Put(found.value.clone(), meta)
            }
            false if is_masked => return Err("NOPERM the server masks out".into()),
            false => Decision::Remove,
        })
    })?;
    reply::integer(output, i64::from(is_set));
    Ok(())
}

/// Executes `PERSIST`.
pub(super) fn persist(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key] = parts(arguments)?;
    context.tally.count(Count::Touch);
    let mut is_changed = false;
    change(context, key, |found| {
        let found = found.filter(|found| found.expires_at_ms().is_some());
        is_changed = found.is_some();
        Ok(found.map_or(Decision::Keep, |found| {
            Decision::Put(found.value.clone(), Meta { expires_at_ms: 0, ..found.meta })
        }))
    })?;
    reply::integer(output, i64::from(is_changed));
    Ok(())
}

/// Executes `TTL` and its like.
pub(super) fn time_left(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    command: Command,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key] = parts(arguments)?;
    let mut expiry = None;
    let is_present = read(context, key, |record| expiry = expiry_of(record.meta))?;
    let unit = TimeUnit::of_command(command);
    let number = match expiry {
        _ if !is_present => -2,
        None => -1,
        Some(at_ms) => {
            let time_ms = if unit.is_relative { at_ms.saturating_sub(now_ms()) } else { at_ms };
            // As in Redis: of seconds, the nearest number.
            let time = if unit.ms == 1 { time_ms } else { time_ms.saturating_add(500) / 1000 };
            saturated(time)
        }
    };
    reply::integer(output, number);
    Ok(())
}

/// Executes `RENAME` and `RENAMENX`.
pub(super) fn rename(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    command: Command,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [from, to] = parts(arguments)?;
    let only_if_absent = command == Command::RenameNx;
    context.tally.count(Count::Put);
    check_keys(context, [from, to].into_iter())?;
    let is_renamed = atomically(context, |context| {
        let mut found = find(context, from)?.ok_or("ERR no such key")?;
        if are_same(context, from, to) {
            return Ok(!only_if_absent);
        }
        if only_if_absent && is_present(context, to)? {
            return Ok(false);
        }
        context.permit(&Operation::remove(to))?;
        context.cause = Some(Event::RenameFrom);
        context.execute(&Operation::remove(from), &mut NoReply)??;
        context.cause = Some(Event::RenameTo);
        // Half of it must not be made.
        put(context, to, &mut found).map_err(Failed::whole)?;
        Ok(true)
    })?;
    match only_if_absent {
        true => reply::integer(output, i64::from(is_renamed)),
        false => reply::simple(output, "OK"),
    }
    Ok(())
}

/// Returns whether two keys are those of one record: an id may be spelt in several ways.
fn are_same(context: &Context<'_>, one: &[u8], other: &[u8]) -> bool {
    let numbered = context.shared.served.database.as_numbered();
    let id = |key| numbered.and_then(|numbered| numbered.id(key));
    one == other || id(one).is_some_and(|one| Some(one) == id(other))
}

/// Stores a record that was found under another key, in a transaction.
fn put(context: &mut Context<'_>, key: &[u8], found: &mut Found) -> Result<(), Failed> {
    found.leave_to_transaction(found.value.len());
    let write = Write::new(key, Action::put(Presence::Any, found.value.as_slice(), found.meta));
    context.execute(&Operation::Write(write), &mut NoReply)??;
    Ok(())
}

/// Executes `COPY`.
pub(super) fn copy(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let ([from, to], mut strings) = arguments.split().ok_or(SYNTAX)?;
    let mut replaces = false;
    while let Some(option) = strings.next() {
        match (&*option.to_ascii_uppercase(), strings.len()) {
            (b"REPLACE", _) => replaces = true,
            (b"DB", 1..) => select_number(strings.next().unwrap_or_default())?,
            _ => return Err(SYNTAX.into()),
        }
    }
    if are_same(context, from, to) {
        return Err("ERR source and destination objects are the same".into());
    }
    context.tally.count(Count::Put);
    check_keys(context, [from, to].into_iter())?;
    let is_copied = atomically(context, |context| {
        let Some(mut found) = find(context, from)? else { return Ok(false) };
        if !replaces && is_present(context, to)? {
            return Ok(false);
        }
        put(context, to, &mut found)?;
        Ok(true)
    })?;
    reply::integer(output, i64::from(is_copied));
    Ok(())
}

/// Returns the number of records.
pub(super) fn records(context: &mut Context<'_>) -> Result<u64, Failed> {
    let mut count = None;
    context.execute(&Operation::Count, &mut count)??;
    Ok(if let Some(Number::Count(records)) = count { records } else { 0 })
}

/// Executes `DBSIZE`.
pub(super) fn count(context: &mut Context<'_>, output: &mut Vec<u8>) -> Result<(), Failed> {
    context.tally.count(Count::Records);
    let records = records(context)?;
    reply::integer(output, saturated(records));
    Ok(())
}

/// Executes `FLUSHDB` and `FLUSHALL`.
pub(super) fn clear(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let is_known = |option: &[u8]| {
        option.eq_ignore_ascii_case(b"ASYNC") || option.eq_ignore_ascii_case(b"SYNC")
    };
    if arguments.len() > 1 || !arguments.iter().all(is_known) {
        return Err(SYNTAX.into());
    }
    context.tally.count(Count::Vanish);
    context.execute(&Operation::Clear, &mut NoReply)??;
    reply::simple(output, "OK");
    Ok(())
}
