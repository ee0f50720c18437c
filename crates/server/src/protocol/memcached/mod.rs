//! memcached's text protocol.

pub(super) mod admin;
mod meta;
mod protocol;
pub(super) mod stats;
pub(super) mod write;

pub(super) use protocol::Memcached;

use super::protocols::Protocol as _;
use super::{Context, Halt, Next, Step, finish, incomplete, or_absent, within_limit};
use crate::admin::server_stats;
use crate::counters::Count;
use crate::ops::command_mask::{Command, Protocol};
use crate::ops::conditional::{Action, Write};
use crate::ops::execute::{NoReply, Outcome, Reply};
use crate::ops::expiry;
use crate::ops::failure::Failure;
use crate::ops::hits::Hit;
use crate::ops::number::Arithmetic;
use crate::ops::operation::{KeyList, Operation};
use crate::ops::touch::Touch;
use crate::shared::Shared;
use cabinet::{Error, RecordRef};
use std::time::Instant;
use wire::memcached::reply::{self, DELETED, END, NOT_FOUND, OK, TOUCHED};
use wire::memcached::{self, Dialect, Keys, MetaMode, MetaVerb, Mode, Request, parse};
use wire::{Described, Parse};

/// Executes the request at the beginning of `input`.
#[inline]
fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
    match within_limit(context, parse(context.shared.config.dialect, input)) {
        Parse::Complete(request, bytes) => perform(context, request, bytes, output),
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

/// Executes a request of this length in bytes.
#[inline]
fn perform(
    context: &mut Context<'_>,
    request: Request<'_>,
    bytes: usize,
    output: &mut Vec<u8>,
) -> Step {
    context.session.kind = request.kind();
    let start = output.len();
    let is_checked = context.shared.remote.is_some() || context.session.rights.is_some();
    let noreply = is_checked && command(&request).is_some_and(|(_, noreply)| noreply);
    // The client would take an error for the reply to its next request.
    let is_silent = context.shared.remote.is_some() && noreply;
    let refuse = |reason, output: &mut Vec<u8>| match is_silent {
        true => Next::Close,
        false => Memcached::refuse_or_close(b"", reason, output),
    };
    let mut result = execute(context, request, output);
    if result == Err(Halt::Forbidden) {
        output.truncate(start);
        answer(output, reply::FORBIDDEN, noreply);
        result = Ok(Next::GoOn);
    }
    finish(output, start, bytes, result, refuse, |output| {
        reply::server_error(output, "out of memory writing get response");
    })
}

fn execute(
    context: &mut Context<'_>,
    request: Request<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    if let Some((command, noreply)) = command(&request)
        && (context.masks(command, Protocol::Memcached)
            || context.has_mask() && also_masked(context, &request))
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
            let arithmetic = match is_tokyo_tyrant {
                true => Arithmetic::AddToLeading(amount as i64), // A signed number there.
                false => Arithmetic::Add(amount as u64),
            };
            write::count_text(context, key, arithmetic, noreply, output)?;
        }
        Request::Decrement { key, amount, noreply } => {
            let arithmetic = match is_tokyo_tyrant {
                true => Arithmetic::AddToLeading((amount as i64).wrapping_neg()),
                false => Arithmetic::Subtract(amount as u64),
            };
            write::count_text(context, key, arithmetic, noreply, output)?;
        }
        Request::Touch { key, exptime, noreply } => {
            let touched = touch(context, key, exptime, false, &mut NoReply)?;
            conclude(output, noreply, touched, |output, touched| {
                let is_touched = touched == Outcome::Done;
                output.extend_from_slice(if is_touched { TOUCHED } else { NOT_FOUND });
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
        Request::Shutdown { argument } => return admin::shut_down(context, argument, output),
        Request::Version => {
            context.counters.count(Count::Stat);
            reply::version(output, server_stats::memcached_version(context.shared));
        }
        Request::Quit if is_tokyo_tyrant => return Ok(Next::CloseIfQuiet),
        Request::Quit => return Ok(Next::Close),
        Request::Bad { error, noreply } => {
            answer(output, error.reply(), noreply);
            // Tokyo Tyrant closes the connection without a reply in the other cases.
            match error {
                memcached::Error::MissingArguments => return Ok(Next::CloseIfQuiet),
                memcached::Error::OtherProtocol => return Ok(Next::Refuse),
                _ => {}
            }
        }
    }
    Ok(Next::GoOn)
}

/// Encoder of the records that a request with keys returns.
struct Values<'s, 'o> {
    shared: &'s Shared,
    output: &'o mut Vec<u8>,
    start: usize,
    /// Whether CAS numbers are shown.
    cas: bool,
    found: u64,
    missed: u64,
}

impl<'s, 'o> Values<'s, 'o> {
    #[inline]
    fn new(shared: &'s Shared, output: &'o mut Vec<u8>, cas: bool) -> Self {
        Self { shared, start: output.len(), output, cas, found: 0, missed: 0 }
    }

    /// Ends the reply. After a failure it is the failure only.
    #[inline]
    fn finish(self, done: Result<Outcome, Error>) {
        match done {
            Ok(_) => self.output.extend_from_slice(END),
            Err(error) => {
                self.output.truncate(self.start);
                failure(self.output, &error);
            }
        }
    }
}

impl Reply for Values<'_, '_> {
    #[inline]
    fn len(&self) -> usize {
        self.output.len() - self.start
    }

    #[inline]
    fn record(&mut self, key: &[u8], record: &RecordRef<'_>) {
        let number = self.cas.then(|| self.shared.cas_numbers.number(record.version));
        reply::value(self.output, key, record.meta.flags, record.value, number);
        note(self.shared, key, true);
        self.found += 1;
    }

    #[inline]
    fn absent(&mut self) {
        self.missed += 1;
    }
}

#[inline]
fn get(
    context: &mut Context<'_>,
    keys: Keys<'_>,
    cas: bool,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let mut values = Values::new(context.shared, output, cas);
    let operation = Operation::GetMany { keys: KeyList::Words(keys) };
    let done = context.execute(&operation, &mut values);
    let done = done.inspect_err(|halt| halt.count(context.counters, Count::Get))?;
    if done.is_ok() {
        context.counters.add(Count::Get, values.found + values.missed);
        if values.missed > 0 {
            context.counters.add(Count::GetMiss, values.missed);
            context.fail("get", Failure::NoRecord);
        }
    }
    values.finish(done);
    Ok(())
}

fn get_and_touch(
    context: &mut Context<'_>,
    keys: Keys<'_>,
    exptime: i64,
    cas: bool,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    if keys.iter().nth(1).is_some() {
        // A second execution would touch the first records again.
        context.wait()?;
    }
    let mut values = Values::new(context.shared, output, cas);
    let mut done = Ok(Outcome::Done);
    let mut is_any_touched = false;
    for key in keys.iter() {
        done = touch(context, key, exptime, true, &mut Keyed { key, values: &mut values })
            .inspect_err(|halt| halt.count(context.counters, Count::Get))
            .map_err(|halt| if is_any_touched { halt.after_a_change() } else { halt })?;
        context.counters.count(Count::Get);
        match done {
            Ok(Outcome::Done) => is_any_touched = true,
            Ok(_) => context.counters.count(Count::GetMiss),
            Err(_) => break,
        }
    }
    values.finish(done);
    Ok(())
}

/// Encoder of one record of several.
struct Keyed<'k, 'v, 's, 'o> {
    key: &'k [u8],
    values: &'v mut Values<'s, 'o>,
}

impl Reply for Keyed<'_, '_, '_, '_> {
    fn len(&self) -> usize {
        self.values.len()
    }

    fn value(&mut self, record: &RecordRef<'_>) {
        self.values.record(self.key, record);
    }
}

/// Sets the expiry of a record, and passes the record before that to `reply`.
pub(super) fn touch(
    context: &mut Context<'_>,
    key: &[u8],
    exptime: i64,
    shows_value: bool,
    reply: &mut impl Reply,
) -> Result<Result<Outcome, Error>, Halt> {
    let at_ms = expiry::meta(context.shared.config.ignores_expiry, 0, exptime).expires_at_ms;
    let touch = Touch { expires_at_ms: Some(at_ms), shows_value, ..Touch::default() };
    let touched = context.execute(&Operation::Touch { key, touch }, reply)?;
    let touched = or_absent(touched, Outcome::NoRecord);
    context.counters.count(Count::Touch);
    match touched {
        Ok(Outcome::Done) => note(context.shared, key, true),
        Ok(_) => context.counters.count(Count::TouchMiss),
        Err(_) => {}
    }
    Ok(touched)
}

/// Notes that a record was stored or read, if access statistics are active.
#[inline]
pub(super) fn note(shared: &Shared, key: &[u8], is_read: bool) {
    if shared.hits.is_active() {
        note_now(shared, key, is_read);
    }
}

/// Notes an access. A function of its own, so that it does not slow down clients without meta
/// commands.
#[cold]
fn note_now(shared: &Shared, key: &[u8], is_read: bool) {
    shared.hits.note(key, Hit { is_read, second: now_s(shared) });
}

/// Returns the seconds since the server started.
fn now_s(shared: &Shared) -> u64 {
    shared.milliseconds_at(Instant::now()) / 1000
}

/// Returns whether a key can be part of a line of text.
fn is_plain(key: &[u8]) -> bool {
    !key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f)
}

/// Returns the length that memcached would count for a record, in bytes.
fn item_bytes(entry: &RecordRef<'_>) -> usize {
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
        Error::NoSpace { .. } | Error::NoLogSpace { .. } | Error::NoMemory { .. } => {
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

pub(super) fn one_line(error: &Error) -> String {
    error.to_string().replace(char::is_control, " ")
}

/// Returns whether a mask refuses what a request does besides its command: a change of an expiry
/// may also read the record, or remove it.
#[cold]
fn also_masked(context: &Context<'_>, request: &Request<'_>) -> bool {
    let (reads, exptime) = match request {
        Request::GetAndTouch { exptime, .. } => (true, Some(*exptime)),
        Request::Touch { exptime, .. } => (false, Some(*exptime)),
        Request::Meta(meta) if meta.verb == MetaVerb::Get => (true, meta.exptime),
        _ => return false,
    };
    let removes = exptime.is_some_and(|exptime| exptime < 0);
    reads && context.masks(Command::Get, Protocol::Memcached)
        || removes && context.masks(Command::Out, Protocol::Memcached)
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
