//! memcached's text protocol.

mod admin;
pub(super) mod binary;
mod meta;
mod sasl;
mod stats;
mod write;

use super::{Context, Halt, Next, Step, finish, incomplete, or_absent, within_limit};
use crate::admin::server_stats;
use crate::counters::Count;
use crate::ops::command_mask::{Command, Protocol};
use crate::ops::conditional::{Action, Outcome, Write};
use crate::ops::expiry;
use crate::ops::failure::Failure;
use crate::ops::hits::Hit;
use crate::ops::number::Operation;
use crate::ops::prefetch::Grouped;
use cabinet::{Change, Entry, Error, Meta};
use std::time::Instant;
use wire::Parse;
use wire::memcached::reply::{self, DELETED, END, NOT_FOUND, OK, TOUCHED};
use wire::memcached::{self, Dialect, Keys, MetaMode, MetaVerb, Mode, Request, parse};

/// Executes the request at the beginning of `input`.
#[inline]
pub(super) fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
    match within_limit(context, parse(context.shared.config.dialect, input)) {
        Parse::Complete(request, bytes) => {
            let start = output.len();
            let result = execute(context, request, output);
            finish(output, start, bytes, result, |output| {
                reply::server_error(output, "out of memory writing get response");
            })
        }
        Parse::Incomplete(needed) => incomplete(context, input, needed, || {
            context.counters.count(Count::StoreTooLarge);
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
    let is_tokyo_tyrant = context.shared.config.dialect == Dialect::TokyoTyrant;
    match request {
        Request::Get { keys, cas } => get(context, keys, cas, output)?,
        Request::Store(request) => {
            let start = output.len();
            write::store_text(context, &request, output)?;
            if request.noreply {
                output.truncate(start);
            }
        }
        Request::Meta(meta) => {
            meta::execute(context, &meta, output)?;
            context.counters.count(Count::Meta);
        }
        Request::MetaDebug { key } => meta::debug(context, key, output)?,
        Request::MetaNoOp => output.extend_from_slice(reply::META_NO_OP),
        Request::GetAndTouch { keys, exptime, cas } => {
            get_and_touch(context, keys, exptime, cas, output)?;
        }
        Request::Delete { key, noreply } => {
            let removed = write::remove(context, Write::new(key, Action::Remove), None)?;
            conclude(output, noreply, removed, |output, removed| {
                let is_removed = removed == Outcome::Done;
                output.extend_from_slice(if is_removed { DELETED } else { NOT_FOUND });
            });
        }
        Request::Increment { key, amount, noreply } => {
            let operation = match is_tokyo_tyrant {
                true => Operation::AddToLeading(amount as i64), // A signed number there.
                false => Operation::Add(amount as u64),
            };
            write::count_text(context, key, operation, noreply, output)?;
        }
        Request::Decrement { key, amount, noreply } => {
            let operation = match is_tokyo_tyrant {
                true => Operation::AddToLeading((amount as i64).wrapping_neg()),
                false => Operation::Subtract(amount as u64),
            };
            write::count_text(context, key, operation, noreply, output)?;
        }
        Request::Touch { key, exptime, noreply } => {
            let touched = touch(context, "do_mc_touch", key, exptime, |_, _| Ok(()))?;
            conclude(output, noreply, touched, |output, touched| {
                output.extend_from_slice(if touched.is_some() { TOUCHED } else { NOT_FOUND });
            });
        }
        Request::FlushAll { delay, noreply } => {
            // Tokyo Tyrant ignores the delay.
            let delay = if is_tokyo_tyrant { 0 } else { delay };
            let cleared = admin::flush_all(context, delay)?;
            conclude(output, noreply, cleared, |output, ()| output.extend_from_slice(OK));
        }
        Request::Verbosity { noreply } => answer(output, OK, noreply),
        // Tokyo Tyrant gives the same reply to any argument.
        Request::Stats { argument, .. } if is_tokyo_tyrant && argument != b"reset" => {
            stats::execute(context, b"", b"", output)?;
        }
        Request::Stats { argument, rest } => stats::execute(context, argument, rest, output)?,
        Request::CacheMemoryLimit { mebibytes, noreply } => {
            let start = output.len();
            admin::cap_memory(context, mebibytes, output)?;
            if noreply {
                output.truncate(start);
            }
        }
        Request::Crawler { command, argument } => {
            admin::crawl(context, command, argument, output)?;
        }
        Request::Shutdown { argument } => return Ok(admin::shut_down(context, argument, output)),
        Request::Version => {
            context.counters.count(Count::Stat);
            reply::version(output, server_stats::memcached_version(context.shared));
        }
        Request::Quit if is_tokyo_tyrant => return Ok(Next::CloseIfQuiet),
        Request::Quit => return Ok(Next::Close),
        Request::Bad { error, noreply } => {
            answer(output, error.reply(), noreply);
            // Tokyo Tyrant closes the connection without a reply in the other cases.
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
    let shared = context.shared;
    let mut done = 0;
    let mut misses = 0;
    for key in Grouped::new(context.database, keys.iter()) {
        context.check_inline(done, output.len() - start)?;
        done += 1;
        let reply = (&mut *output, start);
        let found = context.read_into(("do_mc_get", key), reply, |output, entry| {
            let number = cas.then(|| shared.cas_numbers.number(entry.version));
            reply::value(output, key, entry.meta.flags, entry.value, number);
        })?;
        match or_absent(found, None) {
            Ok(Some(())) => note(context, key, true),
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
    context.wait_before_changing(keys.iter().take(2).count())?;
    let start = output.len();
    for key in keys.iter() {
        let shared = context.shared;
        // The reply has the value before the touch, since this touch may make it expire.
        let touched = touch(context, "do_mc_gat", key, exptime, |context, entry| {
            context.append((&mut *output, start), entry, |output, entry| {
                let number = cas.then(|| shared.cas_numbers.number(entry.version));
                reply::value(output, key, entry.meta.flags, entry.value, number);
            })
        })?;
        context.counters.count(Count::Get);
        match touched {
            Ok(Some(())) => {}
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

/// Sets the expiry of a record, and calls `visit` with the record before that. Without `visit`
/// nothing is done. The CAS number stays.
fn touch<T>(
    context: &mut Context<'_>,
    operation: &'static str,
    key: &[u8],
    exptime: i64,
    visit: impl FnOnce(&mut Context<'_>, Entry<'_>) -> Result<T, Halt>,
) -> Result<Result<Option<T>, Error>, Halt> {
    let shared = context.shared;
    let at_ms = expiry::meta(context.shared.config.ignores_expiry, 0, exptime).expires_at_ms;
    let mut visit = Some(visit);
    let mut number = 0;
    let touched = context.database.modify_versioned(key, |entry| {
        let (Some(entry), Some(visit)) = (entry, visit.take()) else {
            return (Change::Keep, Ok(None));
        };
        let seen = match visit(context, entry) {
            Ok(seen) => seen,
            Err(halt) => return (Change::Keep, Err(halt)),
        };
        number = shared.cas_numbers.number(entry.version);
        let expires_at_ms = expiry::marked(at_ms, expiry::marks(entry.meta.expires_at_ms));
        let change = Change::Put(entry.value.to_vec(), Meta { expires_at_ms, ..entry.meta });
        (change, Ok(Some(seen)))
    });
    let touched = or_absent(context.attempt_write(operation, touched)?, (Ok(None), 0));
    context.counters.count(Count::Touch);
    let (touched, version) = match touched {
        Ok((touched, version)) => (touched?, version),
        Err(error) => return Ok(Err(error)),
    };
    if touched.is_some() {
        shared.cas_numbers.set(version, number);
        note(context, key, true);
    } else {
        context.counters.count(Count::TouchMiss);
    }
    Ok(Ok(touched))
}

/// Notes that a record was stored or read, if access statistics are active.
#[inline]
fn note(context: &Context<'_>, key: &[u8], is_read: bool) {
    if context.shared.hits.is_active() {
        note_now(context, key, is_read);
    }
}

/// Notes an access. A function of its own, so that it does not slow down clients without meta
/// commands.
#[cold]
fn note_now(context: &Context<'_>, key: &[u8], is_read: bool) {
    context.shared.hits.note(key, Hit { is_read, second: now_s(context) });
}

/// Returns the seconds since the server started.
fn now_s(context: &Context<'_>) -> u64 {
    context.shared.milliseconds_at(Instant::now()) / 1000
}

/// Returns whether a key can be part of a line of text.
fn is_plain(key: &[u8]) -> bool {
    !key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f)
}

/// Returns the length that memcached would count for a record, in bytes.
fn item_bytes(entry: &Entry<'_>) -> usize {
    /// Header, CAS number, a byte after the key, a line end after the value.
    const OVERHEAD: usize = 48 + 8 + 1 + 2;
    let flags = if entry.meta.flags == 0 { 0 } else { 4 };
    OVERHEAD + flags + entry.key.len() + entry.value.len()
}

/// Replies with the success or failure of a command, unless the client wants no reply.
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

/// Counts the reason why a value was not stored, as memcached does.
fn count_refusal(context: &Context<'_>, error: &Error) {
    match error {
        Error::ValueTooLong { .. } => context.counters.count(Count::StoreTooLarge),
        Error::NoSpace { .. } | Error::NoMemory { .. } => {
            context.counters.count(Count::StoreNoMemory);
        }
        _ => {}
    }
}

/// Appends the reply for a failure.
fn failure(output: &mut Vec<u8>, error: &Error) {
    match error {
        Error::ValueTooLong { .. } => output.extend_from_slice(reply::TOO_LARGE),
        Error::KeyTooLong { .. } | Error::BadColumn(_) => {
            reply::client_error(output, &one_line(error));
        }
        error => reply::server_error(output, &one_line(error)),
    }
}

fn one_line(error: &Error) -> String {
    error.to_string().replace(char::is_control, " ")
}

/// Returns the command by which a mask refuses a request, and whether the client wants no reply.
fn command(request: &Request<'_>) -> Option<(Command, bool)> {
    Some(match request {
        Request::Get { .. } | Request::MetaDebug { .. } => (Command::Get, false),
        Request::Store(store) => {
            let command = if store.mode == Mode::Add { Command::PutKeep } else { Command::Put };
            (command, store.noreply)
        }
        Request::Meta(meta) => {
            let command = match meta.verb {
                MetaVerb::Get if meta.exptime.or(meta.vivify).or(meta.recache).is_none() => {
                    Command::Get
                }
                MetaVerb::Set if meta.mode == MetaMode::Add => Command::PutKeep,
                MetaVerb::Delete if !meta.invalidate && !meta.removes_value => Command::Out,
                MetaVerb::Arithmetic => Command::AddInt,
                MetaVerb::Get | MetaVerb::Set | MetaVerb::Delete => Command::Put,
            };
            (command, false)
        }
        Request::GetAndTouch { .. } => (Command::Put, false),
        Request::Delete { noreply, .. } => (Command::Out, *noreply),
        Request::Increment { noreply, .. } | Request::Decrement { noreply, .. } => {
            (Command::AddInt, *noreply)
        }
        Request::Touch { noreply, .. } => (Command::Put, *noreply),
        Request::FlushAll { noreply, .. } => (Command::Vanish, *noreply),
        Request::CacheMemoryLimit { noreply, .. } => (Command::Optimize, *noreply),
        Request::Crawler { .. } => (Command::KeysWithPrefix, false),
        Request::Stats { .. } | Request::Version => (Command::Stat, false),
        Request::Verbosity { .. }
        | Request::MetaNoOp
        | Request::Shutdown { .. }
        | Request::Quit
        | Request::Bad { .. } => return None,
    })
}
