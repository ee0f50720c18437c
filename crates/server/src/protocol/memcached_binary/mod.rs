//! memcached's binary protocol.

mod protocol;
mod sasl;

pub(super) use protocol::MemcachedBinary;

use super::memcached::{admin, note, one_line, stats, touch, write};
use crate::admin::server_stats;
use crate::counters::Count;
use crate::ops::cas_numbers::CasNumbers;
use crate::ops::command_mask;
use crate::ops::conditional::{Action, Counting, Presence, Write, Written};
use crate::ops::execute::{Outcome, Reply};
use crate::ops::expiry;
use crate::ops::number;
use crate::ops::operation::Operation;
use crate::protocol::{Context, Halt, Next, Step, finish, incomplete, or_absent, within_limit};
use cabinet::{Error, RecordRef};
use wire::memcached_binary::reply::{self, Status};
use wire::memcached_binary::{Arithmetic, Command, Echo, Mode, Request, parse};
use wire::{Described, Parse};

/// Executes the request at the beginning of `input`.
#[inline]
fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
    match within_limit(context, parse(input)) {
        Parse::Complete(request, bytes) => perform_request(context, &request, bytes, output),
        Parse::Incomplete(needed) => incomplete(context, input, needed, || {
            if let Some(echo) = Echo::of(input) {
                reply::failure(output, echo, Status::TooLarge);
            }
        }),
        // The first byte already excludes this.
        Parse::Invalid(_) => Step::Executed { bytes: input.len(), next: Next::Close },
    }
}

/// Executes a request of this length in bytes.
fn perform_request(
    context: &mut Context<'_>,
    request: &Request<'_>,
    bytes: usize,
    output: &mut Vec<u8>,
) -> Step {
    context.session.kind = request.kind();
    let start = output.len();
    let mut result = execute(context, request, output);
    if result == Err(Halt::Forbidden) {
        output.truncate(start);
        reply::failure_with(output, request.echo, Status::NotAuthenticated, "forbidden");
        result = Ok(Next::GoOn);
    }
    let refuse = |reason, output: &mut Vec<u8>| {
        protocol::refuse(request.echo, reason, output);
        Next::GoOn
    };
    finish(output, start, bytes, result, refuse, |output| {
        let message = "Out of memory writing get response";
        reply::failure_with(output, request.echo, Status::OutOfMemory, message);
    })
}

/// Reason why a request does not succeed.
pub(super) enum Stop {
    Halt(Halt),
    /// memcached's status for it.
    Status(Status),
    /// There is no record, and the client requested its key in the reply.
    Missing,
    Error(Error),
}

impl From<Halt> for Stop {
    fn from(halt: Halt) -> Self {
        Self::Halt(halt)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

#[inline]
fn execute(
    context: &mut Context<'_>,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    let echo = request.echo;
    if !context.is_authenticated() && !is_for_everybody(&request.command) {
        reply::failure(output, echo, Status::NotAuthenticated);
        return Ok(Next::Refuse);
    }
    let masks = |command| context.masks(command, command_mask::Protocol::Memcached);
    // The expiry is not negative here.
    let reads = matches!(request.command, Command::GetAndTouch { .. });
    if command(&request.command).is_some_and(masks) || reads && masks(command_mask::Command::Get) {
        reply::failure_with(output, echo, Status::NotAuthenticated, "forbidden");
        return Ok(Next::GoOn);
    }
    let start = output.len();
    let result = perform(context, request, output);
    let key_to_get = match request.command {
        Command::Get { key, .. } | Command::GetAndTouch { key, .. } => Some(key),
        _ => None,
    };
    match result {
        Ok(next) => {
            if request.is_quiet && key_to_get.is_none() {
                output.truncate(start);
            }
            return Ok(next);
        }
        Err(stop) => {
            output.truncate(start);
            match (stop, key_to_get) {
                (Stop::Halt(halt), _) => return Err(halt),
                (Stop::Status(Status::NotFound) | Stop::Missing, Some(_)) if request.is_quiet => {}
                (Stop::Missing, Some(key)) => reply::missing_key(output, echo, key),
                (Stop::Missing, None) => reply::failure(output, echo, Status::NotFound),
                (Stop::Status(status), _) => reply::failure(output, echo, status),
                (Stop::Error(error), _) => failure(output, echo, &error),
            }
        }
    }
    Ok(match request.command {
        // The start of the next request after such a header is unknown.
        Command::Malformed | Command::BadLengths => Next::Refuse,
        _ => Next::GoOn,
    })
}

/// Executes a request and appends its reply if it succeeds.
#[inline]
fn perform(
    context: &mut Context<'_>,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Stop> {
    let echo = request.echo;
    match request.command {
        Command::Get { key, wants_key } => get(context, echo, key, wants_key, output)?,
        Command::GetAndTouch { key, expiry, wants_key } => {
            get_and_touch(context, echo, key, expiry, wants_key, output)?;
        }
        Command::Touch { key, expiry } => {
            let mut record = Record::new(context, output, echo, false);
            record.hides_value = true;
            if touch(context, key, expiry.into(), false, &mut record)?? == Outcome::NoRecord {
                return Err(Status::NotFound.into());
            }
        }
        Command::Store { mode, key, flags, expiry, value } => {
            let fresh = expiry::meta(context.shared.config.ignores_expiry, flags, expiry.into());
            // A CAS number replaces every other condition.
            let presence = match (mode, request.compare) {
                (Mode::Set, None) => Presence::Any,
                (Mode::Add, None) => Presence::Absent,
                (Mode::Replace, None) | (_, Some(_)) => Presence::Present,
            };
            let put = Action::put(presence, value, fresh);
            store(context, request, key, put, Status::NotFound, output)?;
        }
        Command::Append { key, value } => extend(context, request, key, value, false, output)?,
        Command::Prepend { key, value } => extend(context, request, key, value, true, output)?,
        Command::Delete { key } => {
            let write = Write::new(key, Action::Remove);
            match write::remove(context, write, request.compare)?? {
                Outcome::Done => reply::done(output, echo, 0),
                Outcome::NoRecord => return Err(Status::NotFound.into()),
                _ => return Err(Status::Exists.into()),
            }
        }
        Command::Increment(sum) => {
            count(context, request, &sum, number::Arithmetic::Add(sum.amount), output)?;
        }
        Command::Decrement(sum) => {
            count(context, request, &sum, number::Arithmetic::Subtract(sum.amount), output)?;
        }
        Command::Flush { delay } => {
            admin::flush_all(context, delay.into())??;
            reply::done(output, echo, 0);
        }
        Command::NoOp | Command::Verbosity => reply::done(output, echo, 0),
        Command::Version => {
            context.counters.count(Count::Stat);
            reply::text(output, echo, server_stats::memcached_version(context.shared).as_bytes());
        }
        Command::Stat { argument } => stat(context, echo, argument, output)?,
        Command::Quit => {
            reply::done(output, echo, 0);
            return Ok(Next::Close);
        }
        Command::SaslMechanisms => sasl::list_mechanisms(context, echo, output)?,
        Command::SaslAuthenticate { mechanism, data } => {
            sasl::authenticate(context, echo, mechanism, data, output)?;
        }
        Command::SaslStep { mechanism, data } => {
            sasl::go_on(context, echo, mechanism, data, output)?;
        }
        Command::Unknown | Command::BadLengths => return Err(Status::UnknownCommand.into()),
        Command::Malformed => return Err(Status::InvalidArguments.into()),
    }
    Ok(Next::GoOn)
}

#[inline]
fn get(
    context: &mut Context<'_>,
    echo: Echo,
    key: &[u8],
    wants_key: bool,
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    let mut record = Record::new(context, output, echo, wants_key);
    let found = context.execute(&Operation::Get { key }, &mut record);
    let found = found.inspect_err(|halt| halt.count(context.counters, Count::Get))?;
    let found = or_absent(found, Outcome::NoRecord)?;
    context.counters.count(Count::Get);
    if found == Outcome::NoRecord {
        context.counters.count(Count::GetMiss);
        return Err(missing(wants_key));
    }
    note(context.shared, key, true);
    Ok(())
}

fn get_and_touch(
    context: &mut Context<'_>,
    echo: Echo,
    key: &[u8],
    expiry: u32,
    wants_key: bool,
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    let mut record = Record::new(context, output, echo, wants_key);
    let touched = touch(context, key, expiry.into(), true, &mut record);
    let touched = touched.inspect_err(|halt| halt.count(context.counters, Count::Get))??;
    context.counters.count(Count::Get);
    if touched == Outcome::NoRecord {
        context.counters.count(Count::GetMiss);
        return Err(missing(wants_key));
    }
    Ok(())
}

/// Encoder of the record that a request returns.
struct Record<'s, 'o> {
    numbers: &'s CasNumbers,
    output: &'o mut Vec<u8>,
    start: usize,
    echo: Echo,
    wants_key: bool,
    hides_value: bool,
}

impl<'s, 'o> Record<'s, 'o> {
    #[inline]
    fn new(context: &Context<'s>, output: &'o mut Vec<u8>, echo: Echo, wants_key: bool) -> Self {
        let numbers = &context.shared.cas_numbers;
        Self { numbers, start: output.len(), output, echo, wants_key, hides_value: false }
    }
}

impl Reply for Record<'_, '_> {
    #[inline]
    fn len(&self) -> usize {
        self.output.len() - self.start
    }

    #[inline]
    fn value(&mut self, record: &RecordRef<'_>) {
        let number = self.numbers.number(record.version);
        let key = if self.wants_key { record.key } else { b"" };
        let value = if self.hides_value { b"" } else { record.value };
        reply::record(self.output, self.echo, number, record.meta.flags, key, value);
    }
}

fn missing(wants_key: bool) -> Stop {
    if wants_key { Stop::Missing } else { Stop::Status(Status::NotFound) }
}

/// Stores a value or a part of one. `missing` is the status if there is no record.
#[inline]
fn store(
    context: &mut Context<'_>,
    request: &Request<'_>,
    key: &[u8],
    action: Action<&[u8]>,
    missing: Status,
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    let mut written = Written::default();
    let write = Write::new(key, action);
    match write::store(context, write, request.compare, &mut written)?? {
        Outcome::Done => reply::done(output, request.echo, written.version),
        Outcome::NoRecord => return Err(missing.into()),
        _ => return Err(Status::Exists.into()),
    }
    Ok(())
}

/// Executes append and prepend.
fn extend(
    context: &mut Context<'_>,
    request: &Request<'_>,
    key: &[u8],
    part: &[u8],
    is_front: bool,
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    let action = Action::Extend { part, is_front, create: None, unmarks: true };
    store(context, request, key, action, Status::NotStored, output)
}

fn count(
    context: &mut Context<'_>,
    request: &Request<'_>,
    sum: &Arithmetic<'_>,
    arithmetic: number::Arithmetic,
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    let config = &context.shared.config;
    let create = sum.create.map(|(initial, expiry)| {
        (initial, expiry::meta(config.ignores_expiry, 0, expiry.into()).expires_at_ms)
    });
    let count = Action::Count(Counting { arithmetic, create, expires_at_ms: None });
    let mut written = Written::default();
    match write::count(context, Write::new(sum.key, count), request.compare, &mut written)?? {
        Outcome::Done => {
            reply::counter(output, request.echo, written.version, written.number);
            Ok(())
        }
        Outcome::NoRecord => Err(Status::NotFound.into()),
        Outcome::NotNumeric => Err(Status::NotNumeric.into()),
        _ => Err(Status::Exists.into()),
    }
}

/// Executes `stat`. As in memcached, some of the arguments may be followed by any text.
fn stat(
    context: &mut Context<'_>,
    echo: Echo,
    argument: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Stop> {
    if argument == b"conns" {
        // The statistics read all sockets of the system.
        context.wait()?;
    }
    context.counters.count(Count::Stat);
    let shared = context.shared;
    if argument.starts_with(b"reset") {
        shared.counters.reset_totals();
    } else if let Some(rest) = argument.strip_prefix(b"detail") {
        // Prefixes of keys have no statistics.
        if rest.starts_with(b" dump") {
            reply::stat(output, echo, "detailed", "END\r\n");
        } else if !rest.starts_with(b" on") && !rest.starts_with(b" off") {
            return Err(Status::NotFound.into());
        }
    } else {
        let argument = if argument.starts_with(b"settings") { b"settings" } else { argument };
        for (name, value) in stats::figures(shared, argument).ok_or(Status::NotFound)? {
            reply::stat(output, echo, &name, &value);
        }
    }
    reply::done(output, echo, 0);
    Ok(())
}

/// Appends the reply for a failure.
fn failure(output: &mut Vec<u8>, echo: Echo, error: &Error) {
    let status = match error {
        Error::ValueTooLong { .. } => return reply::failure(output, echo, Status::TooLarge),
        Error::KeyTooLong { .. } | Error::BadColumn(_) => Status::InvalidArguments,
        Error::NoSpace { .. } | Error::NoLogSpace { .. } | Error::NoMemory { .. } => {
            Status::OutOfMemory
        }
        _ => Status::InternalError,
    };
    reply::failure_with(output, echo, status, &one_line(error));
}

/// Returns whether a client may send a command before it has authenticated.
fn is_for_everybody(command: &Command<'_>) -> bool {
    matches!(
        command,
        Command::Version
            | Command::SaslMechanisms
            | Command::SaslAuthenticate { .. }
            | Command::SaslStep { .. }
            | Command::BadLengths
    )
}

/// Returns the command by which a mask refuses a request.
#[inline]
fn command(command: &Command<'_>) -> Option<command_mask::Command> {
    Some(match command {
        Command::Get { .. } => command_mask::Command::Get,
        Command::Store { mode: Mode::Add, .. } => command_mask::Command::PutKeep,
        Command::GetAndTouch { .. }
        | Command::Touch { .. }
        | Command::Store { .. }
        | Command::Append { .. }
        | Command::Prepend { .. } => command_mask::Command::Put,
        Command::Delete { .. } => command_mask::Command::Out,
        Command::Increment(_) | Command::Decrement(_) => command_mask::Command::AddInt,
        Command::Flush { .. } => command_mask::Command::Vanish,
        Command::Version | Command::Stat { .. } => command_mask::Command::Stat,
        Command::NoOp
        | Command::Verbosity
        | Command::Quit
        | Command::SaslMechanisms
        | Command::SaslAuthenticate { .. }
        | Command::SaslStep { .. }
        | Command::Unknown
        | Command::Malformed
        | Command::BadLengths => return None,
    })
}
