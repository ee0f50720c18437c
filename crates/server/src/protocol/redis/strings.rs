//! Commands on the values of keys.

use super::keys::is_present;
use super::room::{Growth, check_value_length, room_for_value};
use super::time::{TimeUnit, bad_time, check_expiry};
use super::transaction::{atomically, check_keys};
use super::{
    Decision, Failed, Found, NO_INTEGER, SYNTAX, Value, change, change_and_reply, find, integer,
    parts, reply, unmasked, value_to_change, wait_if_long,
};
use crate::counters::Count;
use crate::ops::command_mask;
use crate::ops::conditional::{Action, Counting, Presence, Write, Written};
use crate::ops::execute::{NoReply, Number, Outcome};
use crate::ops::expiry::{now_ms, stored as stored_expiry};
use crate::ops::lists::begin_reads;
use crate::ops::number::Arithmetic;
use crate::ops::operation::Operation;
use crate::protocol::{Context, Halt, or_absent};
use crate::store::events::Event;
use cabinet::{Meta, Ring};
use wire::redis::{Arguments, ArgumentsIter, Command};

/// Executes `GET`.
#[inline]
pub(super) fn get(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key] = parts(arguments)?;
    append_value(context, key, output)
}

/// Appends the value of a key, or its absence.
#[inline]
fn append_value(context: &mut Context<'_>, key: &[u8], output: &mut Vec<u8>) -> Result<(), Failed> {
    context.tally.count(Count::Get);
    let found = context.execute(&Operation::Get { key }, &mut Value::new(output))?;
    if or_absent(found, Outcome::NoRecord)? != Outcome::Done {
        context.tally.count(Count::GetMiss);
        reply::null(output, context.session.redis.version);
    }
    Ok(())
}

/// Options of `SET`.
#[derive(Default)]
struct SetOptions<'i> {
    presence: Option<Presence>,
    /// Text and form of the expiry.
    expiry: Option<(&'i [u8], TimeUnit)>,
    keeps_expiry: bool,
    returns_old: bool,
}

/// Returns the time of a text, in milliseconds since 1970, which is to be later than its beginning.
fn expiry_time(text: &[u8], unit: TimeUnit, command: Command) -> Result<u64, Failed> {
    let number = integer(text).ok_or(NO_INTEGER)?;
    match unit.time(number, command)? {
        at_ms if number > 0 => Ok(at_ms.unsigned_abs()),
        _ => Err(bad_time(command)),
    }
}

fn set_options(mut options: ArgumentsIter<'_>) -> Result<SetOptions<'_>, Failed> {
    let mut read = SetOptions::default();
    while let Some(option) = options.next() {
        let option = option.to_ascii_uppercase();
        let unit = TimeUnit::of_option(&option);
        let has_other =
            read.keeps_expiry || read.expiry.is_some_and(|(_, other)| Some(other) != unit);
        match (&*option, unit) {
            (b"NX", _) if read.presence != Some(Presence::Present) => {
                read.presence = Some(Presence::Absent)
            }
            (b"XX", _) if read.presence != Some(Presence::Absent) => {
                read.presence = Some(Presence::Present)
            }
            (b"GET", _) => read.returns_old = true,
            (b"KEEPTTL", _) if read.expiry.is_none() => read.keeps_expiry = true,
            (_, Some(unit)) if !has_other => {
                read.expiry = Some((options.next().ok_or(SYNTAX)?, unit));
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok(read)
}

/// Executes `SET`.
pub(super) fn set(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let ([key, value], strings) = arguments.split().ok_or(SYNTAX)?;
    if strings.len() == 0 {
        return put(context, key, value, Meta::NONE, Presence::Any, output);
    }
    let options = set_options(strings)?;
    if options.returns_old {
        unmasked(context, command_mask::Command::Get)?;
    }
    let presence = options.presence.unwrap_or(Presence::Any);
    let expires_at_ms = match options.expiry {
        Some((text, unit)) => {
            check_expiry(context)?;
            stored_expiry(expiry_time(text, unit, Command::Set)?)
        }
        None => 0,
    };
    if !options.keeps_expiry && !options.returns_old {
        let meta = Meta { flags: 0, expires_at_ms };
        return put(context, key, value, meta, presence, output);
    }
    context.tally.count(Count::Put);
    let is_met = |found: Option<&Found>| match presence {
        Presence::Any => true,
        Presence::Absent => found.is_none(),
        Presence::Present => found.is_some(),
    };
    if options.keeps_expiry {
        // The expiry is not new.
        context.cause = Some(Event::Set);
    }
    let decide = |found: Option<&Found>| {
        if !is_met(found) {
            return Ok(Decision::Keep);
        }
        let kept_ms = found.filter(|_| options.keeps_expiry).map(|found| found.meta.expires_at_ms);
        let expires_at_ms = kept_ms.unwrap_or(expires_at_ms);
        Ok(Decision::Put(value.to_vec(), Meta { flags: 0, expires_at_ms }))
    };
    if options.returns_old {
        return change_and_reply(context, key, output, decide);
    }
    match is_met(change(context, key, decide)?.as_ref()) {
        true => reply::simple(output, "OK"),
        false => reply::null(output, context.session.redis.version),
    }
    Ok(())
}

/// Stores a value, and appends `OK`, or the absence of a value if `presence` is not met.
fn put(
    context: &mut Context<'_>,
    key: &[u8],
    value: &[u8],
    meta: Meta,
    presence: Presence,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let write = Write::new(key, Action::put(presence, value, meta));
    context.tally.count(Count::Put);
    match context.execute(&Operation::Write(write), &mut NoReply)?? {
        Outcome::Done => reply::simple(output, "OK"),
        _ => reply::null(output, context.session.redis.version),
    }
    Ok(())
}

/// Executes `SETNX`.
pub(super) fn set_if_absent(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key, value] = parts(arguments)?;
    context.tally.count(Count::PutKeep);
    let write = Write::put(key, value, Presence::Absent);
    let outcome = context.execute(&Operation::Write(write), &mut NoReply)??;
    reply::integer(output, i64::from(outcome == Outcome::Done));
    Ok(())
}

/// Executes `SETEX` and `PSETEX`.
pub(super) fn set_with_expiry(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    command: Command,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key, time, value] = parts(arguments)?;
    check_expiry(context)?;
    let expires_at_ms = stored_expiry(expiry_time(time, TimeUnit::of_command(command), command)?);
    put(context, key, value, Meta { flags: 0, expires_at_ms }, Presence::Any, output)
}

/// Executes `GETSET`.
pub(super) fn get_and_set(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key, value] = parts(arguments)?;
    context.tally.count(Count::Put);
    let decide = |_: Option<&Found>| Ok(Decision::Put(value.to_vec(), Meta::NONE));
    change_and_reply(context, key, output, decide)
}

/// Executes `GETDEL`.
pub(super) fn get_and_remove(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key] = parts(arguments)?;
    context.tally.count(Count::Out);
    change_and_reply(context, key, output, |_| Ok(Decision::Remove))
}

/// Executes `GETEX`.
pub(super) fn get_and_expire(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let mut strings = arguments.iter();
    let key = strings.next().ok_or(SYNTAX)?;
    let Some(option) = strings.next() else { return append_value(context, key, output) };
    let option = option.to_ascii_uppercase();
    let expiry = match TimeUnit::of_option(&option) {
        Some(unit) => {
            check_expiry(context)?;
            Some((strings.next().ok_or(SYNTAX)?, unit))
        }
        None if option == b"PERSIST" => {
            context.cause = Some(Event::Persist);
            None
        }
        None => return Err(SYNTAX.into()),
    };
    if strings.next().is_some() {
        return Err(SYNTAX.into());
    }
    context.tally.count(Count::Touch);
    change_and_reply(context, key, output, |found| {
        let Some(found) = found else { return Ok(Decision::Keep) };
        let expires_at_ms = match expiry {
            Some((text, unit)) => match expiry_time(text, unit, Command::GetEx)? {
                at_ms if at_ms <= now_ms() => return Ok(Decision::Remove),
                at_ms => stored_expiry(at_ms),
            },
            None if found.expires_at_ms().is_none() => return Ok(Decision::Keep),
            None => 0,
        };
        Ok(Decision::Put(found.value.clone(), Meta { expires_at_ms, ..found.meta }))
    })
}

/// Times that several records are read while transactions disturb it, after which these are kept
/// out.
const READS_MAX: usize = 3;

/// Executes `MGET`.
pub(super) fn get_many(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    wait_if_long(context, arguments)?;
    let start = output.len();
    let store = &context.shared.served.database;
    for _ in 0..READS_MAX {
        output.truncate(start);
        let mark = store.commit_mark();
        append_values(context, arguments, output)?;
        // A transaction looks at the versions of all that it reads.
        if context.shared.remote.is_some()
            || context.session.redis.transaction.is_executing()
            || !store.has_commits_since(&mark)
        {
            return Ok(());
        }
    }
    context.wait()?;
    output.truncate(start);
    let _guard = store.keep_commits_out();
    append_values(context, arguments, output)
}

/// Appends the values of keys.
fn append_values(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let (start, earlier_bytes) = (output.len(), context.earlier_bytes);
    reply::array(output, arguments.len());
    for (place, key) in arguments.iter().enumerate() {
        context.earlier_bytes = earlier_bytes + output.len() - start;
        let appended = append_value(context, key, output);
        context.earlier_bytes = earlier_bytes;
        // The keys of a user with rights to some are not looked at before their turn.
        if matches!(appended, Err(Failed::Halt(Halt::Blocked)))
            && Ring::missed() > 0
            && context.session.rights.is_none()
        {
            begin_reads(&context.shared.served.nonblocking, arguments.iter().skip(place));
        }
        appended?;
        context.check_length(output.len() - start)?;
    }
    Ok(())
}

/// Executes `MSET` and `MSETNX`.
pub(super) fn set_many(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    command: Command,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    if !arguments.len().is_multiple_of(2) {
        let name = command.name();
        let text = format!("ERR wrong number of arguments for '{name}' command");
        return Err(Failed::Text(text));
    }
    let only_if_absent = command == Command::MSetNx;
    if context.shared.remote.is_some() && !only_if_absent {
        return set_remotely(context, arguments, output);
    }
    check_keys(context, command.shape().keys(arguments))?;
    let bytes = wait_if_long(context, arguments)?;
    if !only_if_absent && !context.session.redis.transaction.is_executing() {
        return set_together(context, arguments, bytes, output);
    }
    let is_stored = atomically(context, |context| {
        for key in arguments.iter().step_by(2) {
            if only_if_absent && is_present(context, key)? {
                return Ok(false);
            }
        }
        put_each(context, arguments)?;
        Ok(true)
    })?;
    match only_if_absent {
        true => reply::integer(output, i64::from(is_stored)),
        false => reply::simple(output, "OK"),
    }
    Ok(())
}

/// Executes `MSET` outside of a transaction: it depends on no record. `bytes` are those of keys and
/// values.
fn set_together(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    bytes: usize,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    permit_puts(context, arguments)?;
    let _charge = room_for_value(context, bytes)?;
    let count = arguments.len() / 2;
    context.tally.add(Count::Put, count as u32);
    let mut strings = arguments.iter();
    let records = std::iter::from_fn(|| Some((strings.next()?, strings.next()?)));
    let stored = context.local("transactions")?.put_together(records, (count, bytes));
    context.attempt("put", stored)??;
    context.mutated = true;
    reply::simple(output, "OK");
    Ok(())
}

/// Executes `MSET` over a store outside of this process: each record is stored by itself, in order.
#[cold]
fn set_remotely(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    context.wait()?;
    permit_puts(context, arguments)?;
    put_each(context, arguments)?;
    reply::simple(output, "OK");
    Ok(())
}

/// Ends the request if its user may not store one of the records.
fn permit_puts(context: &mut Context<'_>, pairs: Arguments<'_>) -> Result<(), Halt> {
    if context.session.rights.is_none() {
        return Ok(());
    }
    let mut keys = pairs.iter().step_by(2);
    keys.try_for_each(|key| context.permit(&Operation::put(key, b"", Presence::Any)))
}

/// Stores the records of keys and values in turn.
fn put_each(context: &mut Context<'_>, pairs: Arguments<'_>) -> Result<(), Failed> {
    let (mut strings, mut has_stored) = (pairs.iter(), false);
    while let (Some(key), Some(value)) = (strings.next(), strings.next()) {
        context.tally.count(Count::Put);
        let put = Operation::put(key, value, Presence::Any);
        let stored = context.execute(&put, &mut NoReply);
        stored.map_err(|halt| if has_stored { halt.after_a_change() } else { halt })??;
        has_stored = true;
    }
    Ok(())
}

/// Executes `APPEND`.
pub(super) fn append(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key, part] = parts(arguments)?;
    context.tally.count(Count::PutCat);
    let mut written = Written::default();
    context.execute(&Operation::append(key, part), &mut written)??;
    if context.shared.served.model.has_rows {
        // The columns of a row are joined.
        return length_of(context, key, output);
    }
    reply::integer(output, written.value_bytes as i64);
    Ok(())
}

/// Executes `STRLEN`.
pub(super) fn length(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key] = parts(arguments)?;
    context.tally.count(Count::ValueSize);
    length_of(context, key, output)
}

/// Appends the length of a value, 0 for none.
fn length_of(context: &mut Context<'_>, key: &[u8], output: &mut Vec<u8>) -> Result<(), Failed> {
    let mut size = None;
    or_absent(context.execute(&Operation::ValueSize { key }, &mut size)?, Outcome::NoRecord)?;
    let bytes = if let Some(Number::Size(bytes)) = size { bytes } else { 0 };
    reply::integer(output, bytes as i64);
    Ok(())
}

/// Executes `GETRANGE`: bytes from one place to another, which count from the end if negative.
pub(super) fn part(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key, first, last] = parts(arguments)?;
    let first = integer(first).ok_or(NO_INTEGER)?;
    let last = integer(last).ok_or(NO_INTEGER)?;
    context.tally.count(Count::Get);
    let found = find(context, key)?;
    let value = found.map(|found| found.value).unwrap_or_default();
    let length = value.len() as i64;
    if first < 0 && last < 0 && first > last || value.is_empty() {
        reply::string(output, b"");
        return Ok(());
    }
    let place = |at: i64| if at < 0 { at.saturating_add(length).max(0) } else { at };
    let (first, last) = (place(first), place(last).min(length - 1));
    let part = if first > last { &[][..] } else { &value[first as usize..=last as usize] };
    context.check_length(part.len())?;
    reply::string(output, part);
    Ok(())
}

/// Executes `SETRANGE`: overwrites a part of a value, which grows with zero bytes if need be.
pub(super) fn overwrite(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key, at, part] = parts(arguments)?;
    let at = integer(at).ok_or(NO_INTEGER)?;
    let at = usize::try_from(at).map_err(|_| "ERR offset is out of range")?;
    let end = at.saturating_add(part.len());
    let grown_bytes = if part.is_empty() { 0 } else { end };
    check_value_length(grown_bytes)?;
    let mut growth = Growth::to(context, grown_bytes)?;
    context.tally.count(Count::Put);
    let mut bytes = 0;
    change(context, key, |found| {
        growth.take(found)?;
        let (mut value, meta) = value_to_change(found);
        if part.is_empty() {
            bytes = value.len();
            return Ok(Decision::Keep);
        }
        if value.len() < end {
            value.resize(end, 0);
        }
        value[at..end].copy_from_slice(part);
        bytes = value.len();
        Ok(Decision::Put(value, meta))
    })?;
    reply::integer(output, bytes as i64);
    Ok(())
}

/// Executes `INCR` and its like: adds `amount`, or the number that the request has.
pub(super) fn add(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    amount: Option<i64>,
    subtracts: bool,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let mut strings = arguments.iter();
    let key = strings.next().ok_or(SYNTAX)?;
    let amount = match (amount, strings.next()) {
        (Some(amount), _) => amount,
        (None, text) => text.and_then(integer).ok_or(NO_INTEGER)?,
    };
    let amount = match subtracts {
        true => amount.checked_neg().ok_or("ERR decrement would overflow")?,
        false => amount,
    };
    context.tally.count(Count::AddInt);
    loop {
        let count = Counting {
            arithmetic: Arithmetic::AddSigned(amount),
            create: None,
            expires_at_ms: None,
        };
        let mut written = Written::default();
        let write = Write::new(key, Action::Count(count));
        match context.execute(&Operation::Write(write), &mut written)?? {
            Outcome::Done => {
                reply::integer(output, written.number as i64);
                return Ok(());
            }
            Outcome::NoRecord => {
                let text = amount.to_string();
                let put = Operation::put(key, text.as_bytes(), Presence::Absent);
                if context.execute(&put, &mut NoReply)?? == Outcome::Done {
                    reply::integer(output, amount);
                    return Ok(());
                }
                // Another client has made the record meanwhile.
            }
            _ => {
                let found = find(context, key)?;
                let is_number = found.is_some_and(|found| integer(&found.value).is_some());
                return Err(match is_number {
                    true => "ERR increment or decrement would overflow".into(),
                    false => NO_INTEGER.into(),
                });
            }
        }
    }
}
