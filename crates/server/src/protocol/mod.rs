//! Protocols: from the bytes of a request to the bytes of its reply, in one file per protocol.
//!
//! All protocols decode requests into the same operations. An event loop never waits for the disk.
//! A request that would have to wait is rolled back and is [`Step::Blocked`]. A thread that may
//! wait then executes it from its first byte. Until then the request has changed nothing that would
//! be changed a second time: requests that change several records one by one begin on such a
//! thread.

mod ahead;
mod authentication;
pub(crate) mod extension;
mod http;
mod memcached;
mod memcached_binary;
mod protocols;
pub(crate) mod records;
mod redis;
pub(crate) mod refusal;
mod remotely;
pub(crate) mod reparse;
pub(crate) mod script_call;
pub(crate) mod script_records;
pub(crate) mod session;
mod tokyo_tyrant;

pub(crate) use ahead::Ahead;
pub(crate) use http::Exchange as HttpExchange;
pub(crate) use redis::{RedisSession, announce};

pub use http::belongs_to_webdav;
pub use redis::REDIS_VERSION;

use crate::counters::{Count, Counters, Tally};
use crate::ops::acknowledgement::RefusalReason;
use crate::ops::budget::Charge;
use crate::ops::command_mask::{Command, CommandMask, Protocol};
use crate::ops::execute::{Outcome, Reply, ReplyLimit, Stop, TooLong, execute};
use crate::ops::failure::Failure;
use crate::ops::iterator::Iterators;
use crate::ops::operation::Operation;
use crate::ops::rights::{Need, Right};
use crate::ops::served::Served;
use crate::protocol::script_call::{ScriptCall, ScriptTask};
use crate::protocol::session::Session;
use crate::replication::ReplicaRequest;
use crate::shared::Shared;
use crate::shared::slow_log::SlowRequest;
use crate::store::Store;
use crate::store::events::Event;
use cabinet::Error;
use std::time::Instant;
use wire::http::Method;
use wire::memcached::Dialect;
use wire::{Parse, RequestKind};

/// Context of a request.
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    /// Handle that waits for the disk only if `may_block`.
    pub(crate) database: &'a Store,
    /// Whether this thread may wait.
    pub(crate) may_block: bool,
    pub(crate) counters: &'a Counters,
    /// Counts of the present request, for protocols that add them at its end.
    tally: Tally,
    pub(crate) session: &'a mut Session,
    /// File descriptor of the connection.
    pub(crate) descriptor: i32,
    /// Set once something may have been written, so that the reply has to wait for the log.
    pub(crate) mutated: bool,
    /// Charge for the bytes of a long reply.
    pub(crate) charge: Option<Charge>,
    /// Bytes of the reply that earlier parts of this request have made.
    earlier_bytes: usize,
    /// Time by which the request has to end, once it has waited for a store outside of this
    /// process.
    until: Option<Instant>,
    /// Event of the records that this request puts, if its operations do not show it.
    cause: Option<Event>,
}

/// Result for the bytes at the beginning of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The bytes were a request, which is executed.
    Executed {
        /// Length of the request.
        bytes: usize,
        /// Disposition of the connection.
        next: Next,
    },
    /// The request is incomplete.
    Incomplete {
        /// Length from which another parse makes sense.
        needed: usize,
    },
    /// A script thread has to execute the request, which is [`Session::call`]. Nothing was appended
    /// to the output.
    Called {
        /// Length of the request.
        bytes: usize,
    },
    /// The request is to be executed again somewhat later. Nothing was appended to the output.
    Postponed,
    /// This thread must not execute the request. Nothing was appended to the output.
    Blocked {
        /// Length of the request.
        bytes: usize,
    },
}

/// Disposition of a connection after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The next request is executed.
    GoOn,
    /// The connection is closed, unless more requests have arrived. Then the last of them decides,
    /// as in Tokyo Tyrant.
    CloseIfQuiet,
    /// The connection is closed.
    Close,
    /// The connection is closed after the client had time to read the reply.
    Refuse,
    /// The connection is handed over with this request, which was not parsed: see
    /// [`crate::ConnectionUpgrade`].
    Upgrade,
    /// The connection belongs to a replica from now on.
    Replicate(ReplicaRequest),
}

/// Reason why a request ends before its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Halt {
    /// The request would have to wait.
    Blocked,
    /// A script thread executes the request.
    Called,
    /// The request waits for a time or for replicas.
    Postponed,
    /// The reply would be longer than [`crate::Config::reply_bytes_max`], or than there is memory
    /// for.
    TooLong,
    /// The store outside of this process has not answered.
    Refused(RefusalReason),
    /// The user lacks a right.
    Forbidden,
}

impl Halt {
    /// Returns the reason why a request ends of which a part was executed.
    fn after_a_change(self) -> Self {
        match self {
            Self::Refused(RefusalReason::Unavailable | RefusalReason::TooMany) => {
                Self::Refused(RefusalReason::Unknown)
            }
            halt => halt,
        }
    }

    /// Counts a request whose reply is too long. One that is executed again is counted then.
    #[cold]
    fn count(self, counters: &Counters, count: Count) {
        if self == Self::TooLong {
            counters.count(count);
        }
    }
}

/// Executes the request at the beginning of `input`, or the part of an incomplete one, and appends
/// its reply. `input` is empty only if a long reply is to be continued.
#[inline]
pub(crate) fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
    if context.session.http.is_under_way() {
        return http::go_on(context, input, output);
    }
    if context.shared.pause.may_be_on() && is_paused(context, input) {
        return Step::Postponed;
    }
    if context.shared.remote.is_some() {
        return step_remotely(context, input, output);
    }
    identify(context, input, output)
}

/// Returns whether the request at the beginning of `input` has to wait for the end of a pause.
#[cold]
fn is_paused(context: &Context<'_>, input: &[u8]) -> bool {
    let Shared { pause, config, .. } = context.shared;
    let kind = describe(context.session, config.dialect, RequestKind::NONE, input).kind;
    let now_ms = context.shared.milliseconds_at(Instant::now());
    // A thread that may wait has begun before the pause.
    kind != RequestKind::NONE && !context.may_block && pause.holds(now_ms, kind)
}

/// Executes a request over a store outside of this process, from its first byte each time.
#[cold]
fn step_remotely(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
    let start = output.len();
    context.session.answers.get_or_insert_default().rewind();
    let step = identify(context, input, output);
    let Step::Executed { bytes, .. } = step else { return step };
    let is_refused = context.session.answers.take().is_some_and(|answers| answers.has_left());
    if !is_refused {
        return step;
    }
    // The configuration has changed since the store was asked. So the client is refused what the
    // store may have done.
    output.truncate(start);
    let protocol = context.session.sniff(input).unwrap_or(wire::Protocol::Memcached);
    protocols::refuse_or_close(protocol, input, RefusalReason::Unknown, output);
    Step::Executed { bytes, next: Next::Close }
}

#[inline(always)]
fn identify(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
    match &context.shared.users {
        None => match context.session.sniff(input) {
            Some(protocol) => protocols::step(protocol, context, input, output),
            None => Step::Incomplete { needed: input.len() + 1 },
        },
        Some(users) => authentication::step(context, users, input, output),
    }
}

/// Describes the request at the beginning of `input`. `kind` is that of input in the middle of a
/// request.
#[cold]
pub(crate) fn describe(
    session: &Session,
    dialect: Dialect,
    kind: RequestKind,
    input: &[u8],
) -> SlowRequest {
    let protocol = session.sniff(input);
    let described = protocol.and_then(|protocol| protocols::describe(protocol, dialect, input));
    described.unwrap_or_else(|| SlowRequest::new(kind, b""))
}

/// Returns the error for a client that does not begin with TLS, although the port requires it, by
/// the protocol of its first bytes; `None` if more are needed, unless these are all.
pub(crate) fn require_tls(text: &str, received: &[u8], is_all: bool) -> Option<Vec<u8>> {
    let verb = received.split(|byte| *byte == b' ').next().unwrap_or_default();
    let protocol = match wire::sniff(received) {
        // The rest of the first line may be under way.
        None if Method::from_name(verb).is_some() => wire::Protocol::Http,
        None if !is_all && received.first().is_some_and(u8::is_ascii_graphic) => return None,
        known => known.unwrap_or(wire::Protocol::Memcached),
    };
    let mut reply = Vec::new();
    protocols::require_tls(protocol, text, &mut reply);
    Some(reply)
}

impl<'a> Context<'a> {
    /// Returns the context of a request on a thread that may wait, or not.
    #[inline(always)]
    pub(crate) fn new(
        shared: &'a Shared,
        may_block: bool,
        counters: &'a Counters,
        session: &'a mut Session,
        descriptor: i32,
    ) -> Self {
        let Served { database, nonblocking, .. } = &*shared.served;
        let database = if may_block { database } else { nonblocking };
        Self {
            shared,
            database,
            may_block,
            counters,
            tally: Tally::default(),
            session,
            descriptor,
            mutated: false,
            charge: None,
            earlier_bytes: 0,
            until: None,
            cause: None,
        }
    }

    /// Returns whether any command is masked.
    #[inline]
    fn has_mask(&self) -> bool {
        self.shared.live.mask() != CommandMask::NONE
    }

    /// Executes an operation. Remembers why it failed.
    #[inline(always)]
    fn execute(
        &mut self,
        operation: &Operation<'_>,
        reply: &mut impl Reply,
    ) -> Result<Result<Outcome, Error>, Halt> {
        let shared = self.shared;
        if let Some(remote) = &shared.remote {
            self.permit(operation)?;
            // The copy keeps the operation itself out of memory.
            return self.execute_remotely(remote, &operation.clone(), reply);
        }
        let iterators = Iterators {
            own: &mut self.session.cursor,
            shared: &shared.cursor,
            may_wait: self.may_block,
        };
        let (store, charge) = (self.database, &mut self.charge);
        let rights = self.session.rights.as_deref();
        let mut executor = shared.executor(store, self.may_block, charge, Some(iterators), rights);
        executor.cause = self.cause;
        executor.limit.earlier_bytes = self.earlier_bytes;
        let result = execute(&mut executor, operation, reply);
        self.mutated |= executor.has_changed;
        self.conclude(operation, result)
    }

    /// Remembers why an operation failed.
    #[inline(always)]
    fn conclude(
        &mut self,
        operation: &Operation<'_>,
        result: Result<Outcome, Stop>,
    ) -> Result<Result<Outcome, Error>, Halt> {
        match result {
            Ok(outcome) => {
                self.mutated |= operation.changes_records() && outcome != Outcome::NotNumeric;
                if outcome != Outcome::Done {
                    self.note_outcome(operation.name(), outcome);
                }
                Ok(Ok(outcome))
            }
            Err(Stop::Blocked) => Err(Halt::Blocked),
            Err(Stop::TooLong) => Err(Halt::TooLong),
            Err(Stop::Forbidden(right)) => Err(self.forbid(operation.name(), right)),
            // A failed operation of one step has changed nothing, so its reply need not wait.
            Err(Stop::Failed(error)) => {
                self.note_failure(operation.name(), &error);
                Ok(Err(error))
            }
        }
    }

    /// Remembers an outcome that Tokyo Tyrant calls a failure.
    fn note_outcome(&mut self, operation: &'static str, outcome: Outcome) {
        match outcome {
            Outcome::NoRecord => self.fail(operation, Failure::NoRecord),
            Outcome::RecordExists | Outcome::Unmet | Outcome::UnmetByAbsence => {
                self.fail(operation, Failure::ExistingRecord);
            }
            Outcome::Done | Outcome::NoPart | Outcome::NotNumeric => {}
        }
    }

    /// Remembers why an operation failed in the database.
    #[cold]
    fn note_failure(&mut self, operation: &'static str, error: &Error) {
        self.session.note(error);
        self.fail(operation, Failure::from(error));
        self.counters.count_denial(error);
        // Damage is described in the log, the gate of a replica has a reason of its own, and text
        // that is no number may be usual.
        match error {
            Error::Corrupted { .. } | Error::ReadOnly(_) | Error::NotANumber { .. } => {}
            error => self.session.last_reason = Some(error.to_string().into()),
        }
        tracing::debug!("{operation}: {error}");
    }

    /// Returns the database of this process, or the reason why there is none for an
    /// operation.
    fn local(&self, operation: &'static str) -> Result<&'a Store, Error> {
        match self.shared.remote {
            None => Ok(self.database),
            Some(_) => Err(Error::Unsupported {
                operation,
                kind: "the store",
                advice: "serve a database on a disk for it",
            }),
        }
    }

    /// Returns the context of a part of this request, on another store.
    fn within<'c>(&'c mut self, database: &'c Store) -> Context<'c> {
        Context {
            shared: self.shared,
            database,
            may_block: self.may_block,
            counters: self.counters,
            tally: Tally::default(),
            session: self.session,
            descriptor: self.descriptor,
            mutated: false,
            charge: self.charge.take(),
            earlier_bytes: self.earlier_bytes,
            until: self.until,
            cause: self.cause,
        }
    }

    /// Returns whether a command is masked, so that the request is denied.
    #[inline]
    fn masks(&self, command: Command, protocol: Protocol) -> bool {
        let is_masked = self.refuses(command, protocol);
        if is_masked {
            self.counters.count(Count::DeniedByMask);
        }
        is_masked
    }

    /// Returns whether a command is masked.
    #[inline]
    fn refuses(&self, command: Command, protocol: Protocol) -> bool {
        self.shared.live.mask().refuses(command, protocol)
    }

    /// Ends the request if its user lacks a right that an operation needs. The executor checks it
    /// too.
    #[inline]
    fn permit(&mut self, operation: &Operation<'_>) -> Result<(), Halt> {
        let has_ids = self.shared.served.model.has_ids;
        let rights = self.session.rights.as_ref();
        let missing = rights.and_then(|rights| rights.missing(operation, has_ids));
        missing.map_or(Ok(()), |right| Err(self.forbid(operation.name(), right)))
    }

    /// Returns whether the user may change the record under a key.
    #[inline]
    fn may_write(&self, key: &[u8]) -> bool {
        let rights = self.session.rights.as_ref();
        let has_ids = self.shared.served.model.has_ids;
        rights.is_none_or(|rights| rights.missing(&Operation::remove(key), has_ids).is_none())
    }

    /// Ends the request if its user lacks a right that a request about the server needs.
    fn permit_command(&mut self, command: Command) -> Result<(), Halt> {
        command.rights().iter().try_for_each(|right| self.require(command, Need::of_all(*right)))
    }

    fn require(&mut self, command: Command, need: Need<'_>) -> Result<(), Halt> {
        let missing = self.session.rights.as_ref().and_then(|rights| rights.lacks(need));
        missing.map_or(Ok(()), |right| Err(self.forbid(command.name(), right)))
    }

    /// Remembers that the user lacks a right.
    #[cold]
    fn forbid(&mut self, operation: &'static str, right: Right) -> Halt {
        self.refuse_because(operation, right.lacking());
        self.counters.count(Count::DeniedByRight);
        Halt::Forbidden
    }

    /// Leaves a call to a script thread.
    fn call<T>(&mut self, mut call: ScriptCall) -> Result<T, Halt> {
        match call.task {
            ScriptTask::Function => {
                self.require(Command::Ext, Need::of_key(Right::Scripts, call.key()))?;
            }
            ScriptTask::Reload => self.permit_command(Command::Optimize)?,
        }
        call.rights.clone_from(&self.session.rights);
        self.session.call = Some(Box::new(call));
        Err(Halt::Called)
    }

    /// Ends the request if this thread must not wait.
    #[inline]
    fn wait(&self) -> Result<(), Halt> {
        if self.may_block { Ok(()) } else { Err(Halt::Blocked) }
    }

    /// Returns the limits of this request's reply.
    #[inline]
    fn limit(&mut self) -> ReplyLimit<'_> {
        let limit = self.shared.limit(&mut self.charge);
        ReplyLimit { earlier_bytes: self.earlier_bytes, ..limit }
    }

    /// Ends the request if its reply has become too long.
    #[inline]
    fn check_length(&mut self, bytes: usize) -> Result<(), Halt> {
        self.limit().check(bytes).map_err(|TooLong| Halt::TooLong)
    }

    /// Ends the request if it has to wait. Remembers other failures of the database.
    #[inline]
    fn attempt<T>(
        &mut self,
        operation: &'static str,
        result: cabinet::Result<T>,
    ) -> Result<Result<T, Error>, Halt> {
        match result {
            Ok(done) => Ok(Ok(done)),
            Err(error) => self.sort(operation, error).map(Err),
        }
    }

    #[cold]
    fn sort(&mut self, operation: &'static str, error: Error) -> Result<Error, Halt> {
        if let Error::WouldBlock = error {
            return Err(Halt::Blocked);
        }
        self.note_failure(operation, &error);
        Ok(error)
    }

    /// Remembers why an operation failed. `operation` is its name in Tokyo Tyrant's log.
    fn fail(&mut self, operation: &'static str, failure: Failure) {
        tracing::debug!("{operation}: operation failed");
        self.session.last_failure = Some(failure);
        self.session.last_reason = None;
        self.shared.last_failure.set(failure);
    }

    /// Remembers why an operation failed, with a text for `misc error`.
    fn fail_because(&mut self, operation: &'static str, reason: impl Into<Box<str>>) {
        self.fail(operation, Failure::Invalid);
        self.session.last_reason = Some(reason.into());
    }

    /// Remembers that the mask has refused a command.
    fn refuse_masked(&mut self, command: Command) {
        self.refuse_because(command.name(), format!("the server masks {}", command.name()));
    }

    /// Remembers why an operation was refused, with a text for `misc error`.
    fn refuse_because(&mut self, operation: &'static str, reason: impl Into<Box<str>>) {
        self.fail(operation, Failure::NoPermission);
        self.session.last_reason = Some(reason.into());
    }
}

/// Ends a request. Takes back its reply if the request is to be executed again, or replaces it with
/// that of `too_long`, or of `refuse` if the store has not answered.
#[inline]
fn finish(
    output: &mut Vec<u8>,
    start: usize,
    bytes: usize,
    result: Result<Next, Halt>,
    refuse: impl FnOnce(RefusalReason, &mut Vec<u8>) -> Next,
    too_long: impl FnOnce(&mut Vec<u8>),
) -> Step {
    let halt = match result {
        Ok(next) => return Step::Executed { bytes, next },
        Err(halt) => halt,
    };
    output.truncate(start);
    match halt {
        Halt::Blocked => Step::Blocked { bytes },
        Halt::Called => Step::Called { bytes },
        Halt::Postponed => Step::Postponed,
        Halt::TooLong => {
            too_long(output);
            Step::Executed { bytes, next: Next::GoOn }
        }
        Halt::Refused(reason) => Step::Executed { bytes, next: refuse(reason, output) },
        // Each protocol has its own reply to it, which is made before.
        Halt::Forbidden => Step::Executed { bytes, next: Next::Close },
    }
}

/// Returns `absent` for a key that is invalid in the database: for a client it has no record.
#[inline]
fn or_absent<T>(result: Result<T, Error>, absent: T) -> Result<T, Error> {
    match result {
        Err(Error::NoId { .. }) => Ok(absent),
        result => result,
    }
}

/// Makes a request over the limit one that never ends. Whether it is accepted must not depend on
/// how it was cut into packets.
#[inline]
fn within_limit<T>(context: &Context<'_>, parsed: Parse<T>) -> Parse<T> {
    match parsed {
        Parse::Complete(_, bytes) if bytes > context.shared.config.request_bytes_max => {
            Parse::Incomplete(bytes)
        }
        parsed => parsed,
    }
}

/// Waits for more of an incomplete request, unless it exceeds the limit; then `refuse` replies.
fn incomplete(context: &Context<'_>, input: &[u8], needed: usize, refuse: impl FnOnce()) -> Step {
    if needed <= context.shared.config.request_bytes_max {
        return Step::Incomplete { needed };
    }
    context.counters.count(Count::Refused);
    refuse();
    Step::Executed { bytes: input.len(), next: Next::Refuse }
}
