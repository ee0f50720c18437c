//! Transactions: commands that are queued, and then executed as one change of the database.
//!
//! Each command of several records, and each `EXEC`, collects its changes and the versions of the
//! records that it has read. They are written together, unless another client has changed such a
//! record meanwhile: then all of it is executed again. A watched record is one that was read
//! earlier. Commands about the server are executed once, after the changes are written.

use super::channels::{Publications, is_for_subscribers};
use super::room::SLOW_BYTES_MIN;
use super::{Content, Failed, NO_ROOM, clients, reply, run, text_of, wait_if_long};
use crate::ops::budget::{Budget, Charge};
use crate::ops::long::{LONG_BYTES_MIN, room_for_transaction};
use crate::ops::operation::Operation;
use crate::protocol::{Context, Halt, Next};
use crate::shared::evaluator::ScriptLogLevel;
use cabinet::{Error, Version as RecordVersion};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::redis::reply::Version;
use wire::redis::{Arguments, Command, Request, append_request, parse};
use wire::{Class, Effect, Parse, RequestKind};

/// Most bytes of the keys that a connection watches.
const WATCHED_BYTES_MAX: usize = 1 << 20;

/// Bytes that a watched key takes besides its length.
const WATCHED_KEY_BYTES: usize = 48;

/// Most commands of a transaction that an event loop executes.
const INLINE_COMMANDS_MAX: usize = 32;

/// Longest time of the commands of a transaction, in all attempts.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Most bytes of the keys and values of a transaction: those of one batch on the disk.
const BYTES_MAX: usize = 60 << 20;

/// Most lines that the scripts of a transaction write to the log. Further ones are left out.
const LOG_LINES_MAX: usize = 1000;

/// The error in place of a reply that is too long.
const TOO_LONG: &str = "ERR reply over the limit of this server";

/// Attempts after which a transaction waits for its turn among those that other clients have
/// disturbed as well.
const FREE_ATTEMPTS: usize = 8;

/// Most attempts to execute a transaction.
const ATTEMPTS_MAX: usize = 1000;

/// State of a connection, if it has used a transaction.
#[derive(Debug, Default)]
pub(super) struct TransactionState(Option<Box<State>>);

#[derive(Debug, Default)]
struct State {
    queue: Option<Box<Queue>>,
    watched: Watched,
    /// Whether the present request is executed within a transaction.
    is_executing: bool,
    /// Messages of the transaction that is executed.
    publications: Publications,
    /// Lines that its scripts write to the log.
    log: Vec<(ScriptLogLevel, String)>,
    /// Charge for what it holds beside its changes and its reply.
    charge: Option<Charge>,
}

/// Records that are watched.
#[derive(Debug, Default)]
struct Watched {
    /// By key, the version of the record, or none.
    versions: BTreeMap<Box<[u8]>, Option<RecordVersion>>,
    bytes: usize,
}

/// Commands after `MULTI`.
#[derive(Debug, Default)]
struct Queue {
    /// The commands as requests.
    requests: Vec<u8>,
    count: usize,
    /// Whether a command is about the server.
    has_others: bool,
    /// Whether a command executes a script.
    has_scripts: bool,
    /// Whether a command was refused, so that none is executed.
    is_spoilt: bool,
}

impl TransactionState {
    /// Returns the memory that a client can make it take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |state| {
            let queue = state.queue.as_ref();
            state.watched.bytes + queue.map_or(0, |queue| queue.requests.capacity())
        })
    }

    /// Returns the number of commands that are queued, if a transaction has begun.
    #[inline]
    pub(super) fn queued(&self) -> Option<usize> {
        self.0.as_ref()?.queue.as_ref().map(|queue| queue.count)
    }

    /// Returns whether commands are queued.
    #[inline]
    pub(super) fn is_queueing(&self) -> bool {
        self.0.as_ref().is_some_and(|state| state.queue.is_some())
    }

    /// Returns whether a script is queued.
    pub(super) fn has_scripts(&self) -> bool {
        let queue = self.0.as_ref().and_then(|state| state.queue.as_ref());
        queue.is_some_and(|queue| queue.has_scripts)
    }

    pub(super) fn is_executing(&self) -> bool {
        self.0.as_ref().is_some_and(|state| state.is_executing)
    }

    /// Returns the keys of the watched records and of the queued commands.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let state = self.0.as_ref();
        let watched = state.into_iter().flat_map(|state| state.watched.versions.keys());
        let queue = state.and_then(|state| state.queue.as_ref());
        let requests = queue.into_iter().flat_map(|queue| queue.iter());
        let keys = requests.flat_map(|(request, command)| command.keys(request.arguments));
        watched.map(|key| &**key).chain(keys)
    }

    fn state(&mut self) -> &mut State {
        self.0.get_or_insert_default()
    }

    /// Returns the messages to send after the transaction that is executed; `None` outside of one.
    pub(super) fn publications(&mut self) -> Option<&mut Publications> {
        self.0.as_mut().filter(|state| state.is_executing).map(|state| &mut state.publications)
    }

    /// Adds a line that a script of the transaction that is executed writes to the log.
    pub(super) fn log(&mut self, level: ScriptLogLevel, line: String) {
        let log = &mut self.state().log;
        if log.len() < LOG_LINES_MAX {
            log.push((level, line));
        }
    }

    /// Notes that a command was refused.
    pub(super) fn spoil(&mut self) {
        if let Some(queue) = self.0.as_mut().and_then(|state| state.queue.as_mut()) {
            queue.is_spoilt = true;
        }
    }

    /// Ends a transaction without executing it.
    pub(super) fn end(&mut self) {
        if let Some(state) = &mut self.0 {
            state.queue = None;
            state.unwatch();
        }
    }
}

impl State {
    /// Ends the watching of records. Returns those that were watched.
    fn unwatch(&mut self) -> Watched {
        std::mem::take(&mut self.watched)
    }
}

/// Bytes of a request besides those of its strings, at most, for each of them.
const STRING_FRAME_BYTES: usize = 2 * b"$536870912\r\n".len();

impl Queue {
    /// Makes room for a request of this length in bytes. Returns whether the budget allows it. The
    /// connection is charged for the queue after the request.
    fn reserve(&mut self, bytes: usize, budget: &Arc<Budget>) -> bool {
        let (length, capacity) = (self.requests.len(), self.requests.capacity());
        if length + bytes <= capacity {
            return true;
        }
        let least = length + bytes;
        let has_room = |wanted: &usize| Charge::none(budget).set(*wanted);
        let grown = [2 * capacity, capacity + capacity / 8].map(|grown| least.max(grown));
        let wanted = grown.into_iter().find(has_room);
        if let Some(wanted) = wanted {
            self.requests.reserve_exact(wanted - length);
        }
        wanted.is_some()
    }

    /// Returns the commands.
    fn iter(&self) -> impl Iterator<Item = (Request<'_>, Command)> {
        let mut rest = &self.requests[..];
        std::iter::from_fn(move || {
            let Parse::Complete(request, bytes) = parse(rest) else { return None };
            rest = &rest[bytes..];
            let Content::Command(command) = request.content else { return None };
            Some((request, command))
        })
    }

    /// Returns whether an event loop may execute the commands.
    fn is_short(&self) -> bool {
        !self.has_others
            && self.count <= INLINE_COMMANDS_MAX
            && self.requests.len() < SLOW_BYTES_MIN
    }
}

/// Returns whether a command is executed and not queued.
pub(super) fn ends_queue(command: Command) -> bool {
    matches!(
        command,
        Command::Multi
            | Command::Exec
            | Command::Discard
            | Command::Watch
            | Command::Quit
            | Command::Reset
    )
}

/// A command of a transaction that is executed after it.
struct Deferred<'q> {
    request: Request<'q>,
    command: Command,
    /// Place of its reply among those to the other commands, in bytes.
    place: usize,
    /// Version of the protocol that its client has chosen before it.
    version: Version,
}

/// Returns whether a command is about the server.
fn is_about_server(command: Command) -> bool {
    RequestKind::from(command).effect() == Effect::Server
}

/// Returns whether a command is executed after the transaction, because it must not be executed
/// twice, or without the transaction.
fn is_deferred(command: Command, part: &str) -> bool {
    // Later commands need the scripts that these load, which may be done again.
    let is_of_scripts = command == Command::Script && matches!(part, "load" | "exists" | "help");
    is_about_server(command) && !is_of_scripts
}

/// Executes `MULTI`.
pub(super) fn begin(context: &mut Context<'_>, output: &mut Vec<u8>) -> Result<(), Failed> {
    context.local("transactions")?;
    let state = context.session.redis.transaction.state();
    if state.queue.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    state.queue = Some(Box::default());
    reply::simple(output, "OK");
    Ok(())
}

/// Queues a command, or notes that it is refused.
pub(super) fn queue(
    context: &mut Context<'_>,
    request: &Request<'_>,
    command: Command,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let allowed = check(context, command, request.arguments);
    let max = context.shared.config.request_bytes_max;
    let budget = &context.shared.served.budget;
    let Some(queue) = &mut context.session.redis.transaction.state().queue else { return Ok(()) };
    queue.is_spoilt |= allowed.is_err();
    allowed?;
    if queue.is_spoilt {
        // None is executed.
        reply::simple(output, "QUEUED");
        return Ok(());
    }
    let frames = STRING_FRAME_BYTES * (request.arguments.len() + 2);
    let strings = request.arguments.iter().map(<[u8]>::len).sum::<usize>();
    if !queue.reserve(request.name.len() + strings + frames, budget) {
        **queue = Queue { is_spoilt: true, ..Queue::default() };
        return Err("OOM no memory for the queued commands among all requests".into());
    }
    append_request(&mut queue.requests, request.name, request.arguments);
    queue.count += 1;
    queue.has_others |= is_about_server(command);
    queue.has_scripts |= RequestKind::from(command).class() == Class::Script;
    if queue.requests.len() > max {
        **queue = Queue { is_spoilt: true, ..Queue::default() };
        return Err("ERR the queued commands are over the limit of a request of this server".into());
    }
    reply::simple(output, "QUEUED");
    Ok(())
}

/// Fails for a command that cannot be executed within a transaction, or not by this user.
pub(super) fn check(
    context: &mut Context<'_>,
    command: Command,
    arguments: Arguments<'_>,
) -> Result<(), Failed> {
    let logs_in = command == Command::Auth || command == Command::Hello && arguments.len() > 1;
    if logs_in && context.shared.users.is_some() {
        return Err("ERR a login is not possible within MULTI: log in before it".into());
    }
    if is_for_subscribers(command) && command != Command::Ping {
        return Err(Failed::Text(format!(
            "ERR {} is not supported within MULTI: subscribe before or after it",
            command.name().to_ascii_uppercase()
        )));
    }
    if command == Command::Client && clients::withholds_replies(arguments) {
        return Err("ERR CLIENT REPLY is not supported within MULTI: send it before".into());
    }
    let class = RequestKind::from(command).class();
    if class == Class::Write
        && let Some(reason) = context.shared.served.gate.reason()
    {
        return Err(Failed::Text(format!("READONLY {reason}")));
    }
    for (place, key) in command.shape().keys(arguments).enumerate() {
        let is_source = match command {
            Command::Copy => place == 0,
            Command::BitOp | Command::PfMerge => place > 0,
            _ => false,
        };
        context.permit(&match class == Class::Write && !is_source {
            true => Operation::remove(key),
            false => Operation::Get { key },
        })?;
    }
    Ok(())
}

/// Executes `DISCARD`.
pub(super) fn discard(context: &mut Context<'_>, output: &mut Vec<u8>) -> Result<(), Failed> {
    let state = &mut context.session.redis.transaction;
    if !state.is_queueing() {
        return Err("ERR DISCARD without MULTI".into());
    }
    state.end();
    reply::simple(output, "OK");
    Ok(())
}

/// Executes `WATCH`.
pub(super) fn watch(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    if context.session.redis.transaction.is_queueing() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    context.local("transactions")?;
    wait_if_long(context, arguments)?;
    for key in arguments.iter() {
        if context.session.redis.transaction.state().watched.versions.contains_key(key) {
            continue;
        }
        let version = version_of(context, key)?;
        let watched = &mut context.session.redis.transaction.state().watched;
        if watched.bytes + key.len() + WATCHED_KEY_BYTES > WATCHED_BYTES_MAX {
            return Err("ERR a connection watches at most 1 MiB of keys".into());
        }
        watched.bytes += key.len() + WATCHED_KEY_BYTES;
        watched.versions.insert(key.into(), version);
    }
    reply::simple(output, "OK");
    Ok(())
}

/// Executes `UNWATCH`.
pub(super) fn unwatch(context: &mut Context<'_>, output: &mut Vec<u8>) {
    context.session.redis.transaction.state().unwatch();
    reply::simple(output, "OK");
}

/// Returns the version of a record, or none.
fn version_of(context: &mut Context<'_>, key: &[u8]) -> Result<Option<RecordVersion>, Failed> {
    let mut version = None;
    super::read(context, key, |record| version = Some(record.version))?;
    Ok(version)
}

/// Executes `EXEC`.
pub(super) fn execute(context: &mut Context<'_>, output: &mut Vec<u8>) -> Result<Next, Failed> {
    if !context.session.redis.transaction.is_queueing() {
        return Err("ERR EXEC without MULTI".into());
    }
    let state = context.session.redis.transaction.state();
    if !state.queue.as_ref().is_some_and(|queue| queue.is_short()) {
        context.wait()?;
    }
    let state = context.session.redis.transaction.state();
    let before = (state.queue.take().unwrap_or_default(), state.unwatch());
    let version = context.session.redis.version;
    let executed = execute_queue(context, &before, output);
    if let Err(Failed::Halt(Halt::Blocked)) = executed {
        // A thread that may wait executes the request from its beginning.
        context.session.redis.version = version;
        let state = context.session.redis.transaction.state();
        let (queue, watched) = before;
        (state.queue, state.watched) = (Some(queue), watched);
    }
    executed
}

/// Executes the queued commands, unless a watched record has changed.
fn execute_queue(
    context: &mut Context<'_>,
    (queue, watched): &(Box<Queue>, Watched),
    output: &mut Vec<u8>,
) -> Result<Next, Failed> {
    if queue.is_spoilt {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    let (start, version) = (output.len(), context.session.redis.version);
    let until = Instant::now() + TIME_MAX;
    let mut deferred = Vec::new();
    // The charge covers the commands that are left until they are executed.
    let (is_executed, _held) = atomically_held(context, |context| {
        output.truncate(start);
        deferred.clear();
        // An attempt before may have changed it.
        context.session.redis.version = version;
        for (key, version) in &watched.versions {
            if version_of(context, key)? != *version {
                return Ok(false);
            }
        }
        reply::array(output, queue.count);
        for (request, command) in queue.iter() {
            if let Some(reason) = reason_to_end(context, until) {
                return Err(Failed::Text(format!("ERR {reason}: nothing was changed")));
            }
            if is_deferred(command, part_of(command, &request)) {
                let version = context.session.redis.version;
                deferred.push(Deferred { request, command, place: output.len() - start, version });
            } else {
                context.earlier_bytes = output.len() - start;
                execute_one(context, command, &request, output)?;
                context.earlier_bytes = 0;
            }
            charge(context, deferred.capacity() * size_of::<Deferred<'_>>())?;
            context.check_length(output.len() - start)?;
        }
        Ok(true)
    })?;
    if !is_executed {
        reply::null_array(output, context.session.redis.version);
        return Ok(Next::GoOn);
    }
    execute_deferred(context, &deferred, until, start, output)
}

/// Returns the reason why no other command of a transaction must be executed, if there is one.
fn reason_to_end(context: &Context<'_>, until: Instant) -> Option<&'static str> {
    if context.shared.served.is_stopping() {
        return Some("the server is stopping");
    }
    (Instant::now() > until).then_some("the transaction takes longer than 10 s")
}

/// Executes the commands that a transaction has left, and puts their replies at their places among
/// those from `start` on. As the transaction is made, a reply that is too long is an error alone,
/// and so is each one after it or after the time, whose commands are not executed.
fn execute_deferred(
    context: &mut Context<'_>,
    deferred: &[Deferred<'_>],
    until: Instant,
    start: usize,
    output: &mut Vec<u8>,
) -> Result<Next, Failed> {
    if deferred.is_empty() {
        return Ok(Next::GoOn);
    }
    let (mut next, version) = (Next::GoOn, context.session.redis.version);
    let (mut replies, mut parts) = (Vec::new(), Vec::with_capacity(deferred.len()));
    let mut is_too_long = false;
    for Deferred { request, command, place, version } in deferred {
        context.session.redis.version = *version;
        let own = replies.len();
        let refusal = match reason_to_end(context, until) {
            _ if is_too_long => Some(TOO_LONG.to_owned()),
            reason => reason.map(|reason| format!("ERR {reason}: the command was not executed")),
        };
        let executed = match refusal {
            Some(text) => {
                reply::error(&mut replies, &text);
                Ok(Next::GoOn)
            }
            None => execute_one(context, *command, request, &mut replies).and_then(|executed| {
                context.check_length(output.len() - start + replies.len())?;
                Ok(executed)
            }),
        };
        match executed {
            Ok(Next::GoOn) => {}
            Ok(other) => next = other,
            Err(_) => {
                replies.truncate(own);
                reply::error(&mut replies, TOO_LONG);
                is_too_long = true;
            }
        }
        parts.push((start + place, own..replies.len()));
    }
    context.session.redis.version = version;
    // Each moves all that comes after it, so that the last one is the first.
    let mut from = output.len();
    output.resize(from + replies.len(), 0);
    let mut to = output.len();
    for (place, own) in parts.into_iter().rev() {
        let moved = from - place;
        output.copy_within(place..from, to - moved);
        (from, to) = (place, to - moved - own.len());
        output[to..to + own.len()].copy_from_slice(&replies[own]);
    }
    Ok(next)
}

/// Returns the name of the subcommand of a queued request, which was checked.
fn part_of(command: Command, request: &Request<'_>) -> &'static str {
    command.subcommand(request.arguments).unwrap_or_default()
}

/// Executes a queued command, and appends its reply. As in Redis, its failure does not undo the
/// others.
fn execute_one(
    context: &mut Context<'_>,
    command: Command,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Failed> {
    let start = output.len();
    let arguments = request.arguments;
    let executed = check_keys(context, command.shape().keys(arguments))
        .and_then(|()| run(context, command, part_of(command, request), arguments, output));
    match executed.map_err(Failed::of_transaction) {
        Ok(next) => Ok(next),
        Err(failed @ Failed::Whole(_)) => Err(failed),
        Err(failed) => {
            failed.reply_from(start, output)?;
            Ok(Next::GoOn)
        }
    }
}

/// Takes the memory for what a transaction holds beside its changes and its reply: events,
/// messages, and `other_bytes`.
pub(super) fn charge(context: &mut Context<'_>, other_bytes: usize) -> Result<(), Failed> {
    let state = context.session.redis.transaction.state();
    let bytes = context.database.pending_event_bytes() + state.publications.bytes() + other_bytes;
    if bytes < LONG_BYTES_MIN {
        return Ok(());
    }
    let budget = &context.shared.served.budget;
    let charge = state.charge.get_or_insert_with(|| Charge::none(budget));
    match charge.set(bytes) {
        true => Ok(()),
        false => Err(Failed::Whole(NO_ROOM.to_owned())),
    }
}

impl Failed {
    /// Returns the reason why all of a transaction does not succeed, for a change that it cannot
    /// hold.
    pub(super) fn of_transaction(self) -> Self {
        match self {
            Self::Database(error @ (Error::BatchTooLong { .. } | Error::NoRoom { .. })) => {
                Self::Whole(text_of(&error))
            }
            failed => failed,
        }
    }
}

/// Fails if a key cannot be changed within a transaction.
pub(super) fn check_keys<'k>(
    context: &Context<'_>,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<(), Failed> {
    Ok(context.shared.served.database.check_transaction_keys(keys)?)
}

/// Executes `run` so that its changes are made together or not at all, and no other client changes
/// a record meanwhile that it reads. `run` is called again after such a change.
pub(super) fn atomically<T>(
    context: &mut Context<'_>,
    run: impl FnMut(&mut Context<'_>) -> Result<T, Failed>,
) -> Result<T, Failed> {
    atomically_held(context, run).map(|(result, _)| result)
}

/// Does as [`atomically`]. Returns also the charge for what the transaction holds beside its
/// changes and its reply.
fn atomically_held<T>(
    context: &mut Context<'_>,
    mut run: impl FnMut(&mut Context<'_>) -> Result<T, Failed>,
) -> Result<(T, Option<Charge>), Failed> {
    if context.session.redis.transaction.is_executing() {
        return run(context).map(|result| (result, None));
    }
    let database = context.local("transactions")?;
    let shared = context.shared;
    let mut turn = None;
    for attempt in 0..ATTEMPTS_MAX {
        if attempt == FREE_ATTEMPTS {
            context.wait()?;
            turn = Some(shared.transaction_turn.lock());
        }
        let has_room = room_for_transaction(&shared.served.budget);
        let transaction = database.transaction(BYTES_MAX, has_room);
        context.session.redis.transaction.state().is_executing = true;
        let mut within = context.within(transaction.store());
        let result = run(&mut within).map_err(Failed::of_transaction);
        let (charge, tally) = (within.charge.take(), within.tally);
        context.charge = charge;
        let state = context.session.redis.transaction.state();
        state.is_executing = false;
        let messages = std::mem::take(&mut state.publications);
        let log = std::mem::take(&mut state.log);
        let held = state.charge.take();
        let result = match result {
            Ok(result) => result,
            Err(failed) => {
                tally.move_to(&mut context.tally);
                write_log(&log);
                return Err(failed);
            }
        };
        match database.commit(transaction) {
            Ok(has_changed) => {
                context.mutated |= has_changed;
                tally.move_to(&mut context.tally);
                messages.send(&shared.channels);
                write_log(&log);
                return Ok((result, held));
            }
            Err(Error::Conflict) => {}
            Err(error) => return Err(context.sort("transaction", error)?.into()),
        }
    }
    drop(turn);
    Err("ERR other clients change the same records all the time: try again".into())
}

/// Writes the lines of scripts to the log.
fn write_log(lines: &[(ScriptLogLevel, String)]) {
    for (level, line) in lines {
        match level {
            ScriptLogLevel::Debug | ScriptLogLevel::Verbose => tracing::debug!("script: {line}"),
            ScriptLogLevel::Notice => tracing::info!("script: {line}"),
            ScriptLogLevel::Warning => tracing::warn!("script: {line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_cannot_double_is_not_copied_for_every_few_commands() {
        let budget = Budget::new(100_000);
        let (mut queue, mut copies) = (Queue::default(), 0);
        while queue.reserve(100, &budget) {
            let capacity = queue.requests.capacity();
            queue.requests.extend([0; 100]);
            assert_eq!(queue.requests.capacity(), capacity);
            copies += usize::from(queue.requests.len() + 100 > capacity);
        }
        assert!(queue.requests.len() > 85_000);
        assert!(copies < 30, "{copies}");
    }
}
