//! memcached's text protocol.

use super::ahead::Grouped;
use super::{
    Context, Halt, Next, Step, finish, incomplete, leading_number, or_absent, within_limit,
};
use crate::counters::Count;
use crate::failure::Failure;
use crate::mask::{Command, Protocol};
use crate::status;
use cabinet::{Change, Error, Meta, Swap};
use std::time::{SystemTime, UNIX_EPOCH};
use wire::Parse;
use wire::memcached::reply::{
    self, DELETED, END, EXISTS, NOT_FOUND, NOT_STORED, OK, STORED, TOUCHED,
};
use wire::memcached::{self, Keys, Mode, Request, Store, parse};

/// Longest expiry that counts from now, in seconds; above it comes an absolute time.
const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// Executes the request at the beginning of `input`.
#[inline]
pub(super) fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
    match within_limit(context, parse(input)) {
        Parse::Complete(request, bytes) => {
            let start = output.len();
            let result = execute(context, request, output);
            finish(output, start, bytes, result, |output| {
                reply::server_error(output, "out of memory writing get response");
            })
        }
        Parse::Incomplete(needed) => incomplete(context, input, needed, || {
            output.extend_from_slice(reply::TOO_LARGE);
        }),
        Parse::Invalid(_) => {
            context.counters.count(Count::Refused);
            reply::client_error(output, "line too long");
            Step::Executed { bytes: input.len(), next: Next::Refuse }
        }
    }
}

#[inline]
fn execute(
    context: &mut Context<'_>,
    request: Request<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    if let Some((command, noreply)) = command(&request)
        && context.refuses(command, Protocol::Memcached)
    {
        answer(output, reply::FORBIDDEN, noreply);
        return Ok(Next::GoOn);
    }
    match request {
        Request::Get { keys, cas } => get(context, keys, cas, output)?,
        Request::Store(request) => {
            let start = output.len();
            store(context, &request, output)?;
            if request.noreply {
                output.truncate(start);
            }
        }
        Request::GetAndTouch { keys, exptime, cas } => {
            get_and_touch(context, keys, exptime, cas, output)?;
        }
        Request::Delete { key, noreply } => {
            let removed = context.attempt_write("do_mc_delete", context.database.remove(key))?;
            let removed = or_absent(removed, false);
            context.counters.count(Count::Out);
            if let Ok(false) = removed {
                context.miss("do_mc_delete", Count::OutMiss);
            }
            conclude(output, noreply, removed, |output, removed| {
                output.extend_from_slice(if removed { DELETED } else { NOT_FOUND });
            });
        }
        Request::Increment { key, amount, noreply } => {
            add(context, key, |number| number.wrapping_add(amount), noreply, output)?;
        }
        Request::Decrement { key, amount, noreply } => {
            add(context, key, |number| number.wrapping_sub(amount), noreply, output)?;
        }
        Request::Touch { key, exptime, noreply } => {
            let touched = context.database.touch(key, expires_at_ms(exptime));
            let touched = or_absent(context.attempt_write("do_mc_touch", touched)?, false);
            context.counters.count(Count::Touch);
            conclude(output, noreply, touched, |output, touched| {
                output.extend_from_slice(if touched { TOUCHED } else { NOT_FOUND });
            });
        }
        // The original ignores the delay.
        Request::FlushAll { delay: _, noreply } => {
            context.wait()?;
            let cleared = context.attempt_write("do_mc_flushall", context.database.clear())?;
            context.counters.count(Count::Vanish);
            conclude(output, noreply, cleared, |output, ()| output.extend_from_slice(OK));
        }
        Request::Verbosity { noreply } => answer(output, OK, noreply),
        Request::Stats { argument: b"reset" } => output.extend_from_slice(b"RESET\r\n"),
        // The original gives the same answer whatever the argument.
        Request::Stats { argument: _ } => {
            context.counters.count(Count::Stat);
            for (name, value) in status::memcached(context.shared) {
                reply::stat(output, &name, &value);
            }
            output.extend_from_slice(END);
        }
        Request::Version => {
            context.counters.count(Count::Stat);
            reply::version(output, status::VERSION);
        }
        Request::Quit => return Ok(Next::CloseIfQuiet),
        Request::Bad { error, noreply } => {
            answer(output, error.reply(), noreply);
            // The original closed without a word in the other cases.
            if error == memcached::Error::MissingArguments {
                return Ok(Next::CloseIfQuiet);
            }
        }
    }
    Ok(Next::GoOn)
}

#[inline]
fn get(
    context: &mut Context<'_>,
    keys: Keys<'_>,
    cas: bool,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let start = output.len();
    let mut done = 0;
    let mut misses = 0;
    for key in Grouped::new(context.database, keys.iter()) {
        context.check_keys(done)?;
        done += 1;
        let found = context.database.read(key, |entry| {
            let version = cas.then_some(entry.version);
            reply::value(output, key, entry.meta.flags, entry.value, version);
        });
        match or_absent(context.attempt("do_mc_get", found)?, None) {
            Ok(Some(())) => context.check_length(output.len() - start)?,
            Ok(None) => misses += 1,
            Err(error) => {
                output.truncate(start);
                failure(output, &error);
                return Ok(());
            }
        }
    }
    output.extend_from_slice(END);
    context.counters.add(Count::Get, done as u64);
    if misses > 0 {
        context.counters.add(Count::GetMiss, misses);
        context.fail("do_mc_get", Failure::NoRecord);
    }
    Ok(())
}

fn get_and_touch(
    context: &mut Context<'_>,
    keys: Keys<'_>,
    exptime: i64,
    cas: bool,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let start = output.len();
    let expires_at_ms = expires_at_ms(exptime);
    for (done, key) in keys.iter().enumerate() {
        context.check_keys(done)?;
        // The value is shown as it was, since it may expire with this very touch.
        let mut write = |entry: cabinet::Entry<'_>, version| {
            reply::value(output, key, entry.meta.flags, entry.value, version);
        };
        let touched = if cas {
            // What a client is to compare with is the version that the touch makes.
            let touched = context.database.touch(key, expires_at_ms);
            if context.attempt_write("do_mc_gat", touched)?.unwrap_or(false) {
                context.database.read(key, |entry| write(entry, Some(entry.version)))
            } else {
                Ok(None)
            }
        } else {
            context.database.modify(key, |entry| match entry {
                None => (Change::Keep, None),
                Some(entry) => {
                    write(entry, None);
                    let meta = Meta { expires_at_ms, ..entry.meta };
                    (Change::Put(entry.value.to_vec(), meta), Some(()))
                }
            })
        };
        context.counters.count(Count::Touch);
        context.counters.count(Count::Get);
        match or_absent(context.attempt_write("do_mc_gat", touched)?, None) {
            Ok(Some(())) => context.check_length(output.len() - start)?,
            Ok(None) => context.miss("do_mc_gat", Count::GetMiss),
            Err(error) => {
                output.truncate(start);
                failure(output, &error);
                return Ok(());
            }
        }
    }
    output.extend_from_slice(END);
    Ok(())
}

#[inline]
fn store(context: &mut Context<'_>, request: &Store<'_>, output: &mut Vec<u8>) -> Result<(), Halt> {
    let Store { mode, key, flags, exptime, value, noreply: _ } = *request;
    let database = context.database;
    let meta = Meta { flags, expires_at_ms: expires_at_ms(exptime) };
    let (count, line) = match mode {
        Mode::Set => (Count::Put, database.put_with(key, value, meta).map(|_| STORED)),
        Mode::Add => (Count::PutKeep, database.put_keep(key, value, meta).map(stored)),
        Mode::Replace => (Count::Put, database.replace(key, value, meta).map(stored)),
        Mode::Append => (Count::Put, database.extend(key, value, false).map(stored)),
        Mode::Prepend => (Count::Put, database.extend(key, value, true).map(stored)),
        Mode::CompareAndSwap(version) => {
            let swap = database.compare_and_swap(key, version, value, meta);
            let line = swap.map(|swap| match swap {
                Swap::Stored(_) => STORED,
                Swap::Changed => EXISTS,
                Swap::Missing => NOT_FOUND,
            });
            (Count::CompareAndSwap, line)
        }
    };
    let line = context.attempt_write("do_mc_store", line)?;
    let line = match mode {
        // To store where nothing can be is a failure; to look first finds nothing.
        Mode::Set => line,
        Mode::CompareAndSwap(_) => or_absent(line, NOT_FOUND),
        _ => or_absent(line, NOT_STORED),
    };
    context.counters.count(count);
    match line {
        Ok(line) => {
            output.extend_from_slice(line);
            if line != STORED {
                context.counters.count(Count::PutMiss);
                let is_there = mode == Mode::Add || line == EXISTS;
                let failure = if is_there { Failure::ExistingRecord } else { Failure::NoRecord };
                context.fail("do_mc_store", failure);
            }
        }
        Err(error) => {
            context.counters.count(Count::PutMiss);
            failure(output, &error);
        }
    }
    Ok(())
}

fn stored(stored: bool) -> &'static [u8] {
    if stored { STORED } else { NOT_STORED }
}

/// incr and decr: on decimal text, never below 0, and on text that is no number from 0.
fn add(
    context: &mut Context<'_>,
    key: &[u8],
    add: impl Fn(i64) -> i64,
    noreply: bool,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let sum = context.database.modify(key, |entry| match entry {
        None => (Change::Keep, None),
        Some(entry) => {
            let sum = add(leading_number(entry.value)).max(0);
            (Change::Put(sum.to_string().into_bytes(), entry.meta), Some(sum))
        }
    });
    let sum = or_absent(context.attempt_write("do_mc_incr", sum)?, None);
    context.counters.count(Count::AddInt);
    if let Ok(None) = sum {
        context.fail("do_mc_incr", Failure::NoRecord);
    }
    conclude(output, noreply, sum, |output, sum| match sum {
        Some(sum) => reply::number(output, sum.unsigned_abs()),
        None => output.extend_from_slice(NOT_FOUND),
    });
    Ok(())
}

/// Answers with what was done, or with why it failed, or not at all.
fn conclude<T>(
    output: &mut Vec<u8>,
    noreply: bool,
    done: Result<T, Error>,
    write: impl FnOnce(&mut Vec<u8>, T),
) {
    if noreply {
        return;
    }
    match done {
        Ok(done) => write(output, done),
        Err(error) => failure(output, &error),
    }
}

fn answer(output: &mut Vec<u8>, line: &[u8], noreply: bool) {
    if !noreply {
        output.extend_from_slice(line);
    }
}

/// What the client is told of a failure.
fn failure(output: &mut Vec<u8>, error: &Error) {
    match error {
        Error::ValueTooLong { .. } => output.extend_from_slice(reply::TOO_LARGE),
        Error::KeyTooLong { .. } => reply::client_error(output, &one_line(error)),
        error => reply::server_error(output, &one_line(error)),
    }
}

fn one_line(error: &Error) -> String {
    error.to_string().replace(char::is_control, " ")
}

/// The point in time that an expiry of the protocol means, as [`Meta`] has it.
fn expires_at_ms(exptime: i64) -> u64 {
    match exptime {
        0 => 0,
        // Long past.
        i64::MIN..0 => 1,
        _ => {
            let now_ms = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
            let begin_ms = if exptime <= RELATIVE_SECONDS_MAX { now_ms } else { 0 };
            begin_ms.saturating_add(exptime.unsigned_abs().saturating_mul(1000))
        }
    }
}

/// What a mask would have to name, and whether the client wants no answer.
fn command(request: &Request<'_>) -> Option<(Command, bool)> {
    Some(match request {
        Request::Get { .. } => (Command::Get, false),
        Request::Store(store) => {
            let command = if store.mode == Mode::Add { Command::PutKeep } else { Command::Put };
            (command, store.noreply)
        }
        Request::GetAndTouch { .. } => (Command::Put, false),
        Request::Delete { noreply, .. } => (Command::Out, *noreply),
        Request::Increment { noreply, .. } | Request::Decrement { noreply, .. } => {
            (Command::AddInt, *noreply)
        }
        Request::Touch { noreply, .. } => (Command::Put, *noreply),
        Request::FlushAll { noreply, .. } => (Command::Vanish, *noreply),
        Request::Stats { .. } | Request::Version => (Command::Stat, false),
        Request::Verbosity { .. } | Request::Quit | Request::Bad { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_counts_from_now_up_to_thirty_days_and_from_1970_above() {
        assert_eq!(expires_at_ms(0), 0);
        assert_eq!(expires_at_ms(-1), 1);
        assert!(expires_at_ms(RELATIVE_SECONDS_MAX) > 1_700_000_000_000);
        assert_eq!(expires_at_ms(RELATIVE_SECONDS_MAX + 1), 2_592_001_000);
        assert_eq!(expires_at_ms(i64::MAX), u64::MAX);
    }
}
