//! Redis's protocol: strings and keys, over the records of the database as they are.

mod bitfield;
mod bits;
mod channels;
mod clients;
mod connection;
mod dump;
mod float;
mod hyperloglog;
mod info;
mod keys;
mod lcs;
mod long_double;
mod natural;
mod object;
mod pattern;
mod protocol;
mod remove;
mod room;
mod scan;
mod scripts;
mod sections;
mod slow;
mod strings;
mod time;
mod transaction;
mod wait;

pub(crate) use channels::announce;
pub use connection::REDIS_VERSION;
pub(super) use protocol::Redis;

use super::protocols::Protocol as _;
use super::{Context, Halt, Next, Step, finish, incomplete, or_absent, within_limit};
use crate::counters::Count;
use crate::ops::budget::Charge;
use crate::ops::command_mask::{self, Protocol};
use crate::ops::conditional::{Action, Precondition, Presence, Write};
use crate::ops::execute::{INLINE_KEYS_MAX, NoReply, Outcome, Reply};
use crate::ops::expiry::unmarked;
use crate::ops::lists;
use crate::ops::long::LONG_BYTES_MIN;
use crate::ops::number::signed as integer;
use crate::ops::operation::Operation;
use crate::store::events::Event;
use cabinet::{Error, Meta, RecordRef, Ring, Version};
use std::sync::Arc;
use transaction::TransactionState;
use wait::Wait;
use wire::redis::reply::{self, Version as Resp};
use wire::redis::{
    Arguments, Command, Content, Malformed, NoSubcommand, Progress, Request, parse, parse_resuming,
    refusal, refusal_of_part, unquote,
};
use wire::{Described, Parse, RequestKind};

/// State of a connection of this protocol.
#[derive(Debug, Default)]
pub(crate) struct RedisSession {
    /// Version of the protocol that the client has chosen.
    version: Resp,
    /// The client has sent an array: each line is a command from then on.
    has_sent_array: bool,
    /// Which replies the client gets.
    replies: Replies,
    /// The transaction that is queued or executed, and the watched records.
    transaction: TransactionState,
    /// The wait for replicas of the present request.
    wait: Option<Box<Wait>>,
    /// State of an incomplete request.
    progress: Progress,
}

impl RedisSession {
    /// Returns whether each line is a command of this protocol.
    #[inline]
    pub(crate) fn has_sent_array(&self) -> bool {
        self.has_sent_array
    }

    /// Returns the number of commands that are queued, if a transaction has begun.
    #[inline]
    pub(crate) fn queued(&self) -> Option<usize> {
        self.transaction.queued()
    }

    /// Returns whether a request of this kind executes a transaction with scripts.
    pub(crate) fn runs_scripts(&self, kind: RequestKind) -> bool {
        kind == Command::Exec.into() && self.transaction.has_scripts()
    }

    /// Returns whether the present request waits for replicas.
    pub(crate) fn is_waiting(&self) -> bool {
        self.wait.is_some()
    }

    /// Returns the version of the protocol.
    #[inline]
    pub(crate) fn version_number(&self) -> u8 {
        match self.version {
            Resp::Two => 2,
            Resp::Three => 3,
        }
    }

    /// Returns the memory that a client can make the session take, in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.transaction.bytes()
    }
}

/// Replies that a client gets, as it has chosen by `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Replies {
    /// All.
    #[default]
    On,
    /// None.
    Off,
    /// All but that to the next request.
    SkipNext,
}

/// Executes the request at the beginning of `input`.
#[inline]
fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
    let parsed = parse_resuming(input, &mut context.session.redis.progress);
    match within_limit(context, parsed) {
        Parse::Complete(request, bytes) => {
            context.session.redis.progress = Progress::default();
            perform(context, &request, bytes, output)
        }
        Parse::Incomplete(needed) => incomplete(context, input, needed, || {
            reply::error(output, "ERR request over the limit of this server");
        }),
        // Malformed requests are complete.
        Parse::Invalid(_) => Step::Executed { bytes: input.len(), next: Next::Close },
    }
}

/// Executes a request of this length in bytes.
fn perform(
    context: &mut Context<'_>,
    request: &Request<'_>,
    bytes: usize,
    output: &mut Vec<u8>,
) -> Step {
    if request.content == Content::Quoted {
        return perform_quoted(context, request.name, bytes, output);
    }
    context.session.redis.has_sent_array |= !request.is_line();
    // A message that was sent before the request comes before its reply. A thread that may wait
    // leaves later ones to the event loop, as it may have to begin again.
    let is_subscriber = context.session.subscriptions.is_some() && !context.may_block;
    if is_subscriber {
        channels::append_earlier(context, output);
    }
    context.session.kind = request.kind();
    context.session.last.1 = 0;
    let (start, replies) = (output.len(), context.session.redis.replies);
    if replies == Replies::SkipNext {
        context.session.redis.replies = Replies::On;
    }
    let executed = execute(context, request, output);
    if matches!(executed, Err(Failed::Halt(Halt::Blocked))) && Ring::missed() > 0 {
        begin_reads(context, request);
    }
    let executed = executed.or_else(|failed| failed.reply_from(start, output).map(|()| Next::GoOn));
    let refuse = |reason, output: &mut Vec<u8>| Redis::refuse_or_close(b"", reason, output);
    let step = finish(output, start, bytes, executed, refuse, |output| {
        reply::error(output, "ERR reply over the limit of this server");
    });
    match step {
        Step::Executed { .. } => context.tally.add_to(context.counters),
        // It is counted when it is executed again.
        Step::Incomplete { .. } | Step::Called { .. } | Step::Postponed | Step::Blocked { .. } => {
            context.tally.clear();
        }
    }
    let is_publish =
        matches!(request.content, Content::Command(Command::Publish | Command::SPublish));
    if is_subscriber && is_publish && replies == Replies::On {
        // So does the client's own message.
        let reply = output.split_off(start);
        channels::append_earlier(context, output);
        output.extend_from_slice(&reply);
    }
    if replies != Replies::On || context.session.redis.replies != Replies::On {
        withhold(context, request, replies, step, output, start);
    }
    step
}

/// Begins to read the records of a request that has missed one, as it is to miss no other when it
/// is executed again.
#[cold]
fn begin_reads(context: &Context<'_>, request: &Request<'_>) {
    let Content::Command(command) = request.content else { return };
    // The keys of a user with rights to some are not looked at before their turn.
    if context.session.rights.is_some() {
        return;
    }
    let store = &context.shared.served.nonblocking;
    match command {
        Command::Exec => lists::begin_reads(store, context.session.redis.transaction.keys()),
        // It begins at the key that was missed.
        Command::MGet => {}
        // The read of an only one has begun.
        _ if command.keys(request.arguments).nth(1).is_none() => {}
        _ => lists::begin_reads(store, command.keys(request.arguments)),
    }
}

/// Executes a line with quotes, which has this length in bytes with its end.
#[cold]
fn perform_quoted(
    context: &mut Context<'_>,
    line: &[u8],
    bytes: usize,
    output: &mut Vec<u8>,
) -> Step {
    let mut request = Vec::new();
    let is_closed = unquote(line, &mut request);
    let was_array = context.session.redis.has_sent_array;
    let step = match parse(&request) {
        Parse::Complete(request, _) if is_closed => perform(context, &request, bytes, output),
        _ => {
            let content = Content::Malformed(Malformed::Quotes);
            let request = Request { content, name: b"", arguments: Arguments::NONE };
            perform(context, &request, bytes, output)
        }
    };
    context.session.redis.has_sent_array = was_array;
    step
}

/// Takes back the reply to a request that the client does not want. `before` is what it wanted
/// before the request. Confirmations of subscriptions are messages.
#[cold]
fn withhold(
    context: &mut Context<'_>,
    request: &Request<'_>,
    before: Replies,
    step: Step,
    output: &mut Vec<u8>,
    start: usize,
) {
    let after = &mut context.session.redis.replies;
    if !matches!(step, Step::Executed { .. }) {
        // The request is executed again.
        *after = before;
        return;
    }
    let is_wanted = match (before, *after) {
        (Replies::Off, Replies::On) => true,
        (Replies::SkipNext, Replies::On) => {
            let reply = number_of(Command::Client, "reply");
            let is_client = request.content == Content::Command(Command::Client);
            is_client && context.session.last.1 == reply && output[start..].starts_with(b"+")
        }
        _ => false,
    };
    let is_message = matches!(request.content, Content::Command(command)
        if channels::is_for_subscribers(command)
            && !matches!(command, Command::Ping | Command::Quit | Command::Reset));
    if !is_wanted && !is_message {
        output.truncate(start);
    }
}

/// Reason why a request does not succeed.
enum Failed {
    Halt(Halt),
    /// A code and a text.
    Text(String),
    /// The same, and the transaction in which the request is must not be made.
    Whole(String),
    Database(Error),
}

impl Failed {
    /// Returns the reason why all of a transaction does not succeed.
    fn whole(self) -> Self {
        match self {
            Self::Text(text) => Self::Whole(text),
            Self::Database(error) => Self::Whole(text_of(&error)),
            failed => failed,
        }
    }

    /// Replaces the reply from `start` on with the error. Returns the reason of a request that ends
    /// without one.
    fn reply_from(self, start: usize, output: &mut Vec<u8>) -> Result<(), Halt> {
        let text = match self {
            Self::Halt(Halt::Forbidden) => FORBIDDEN.to_owned(),
            Self::Halt(halt) => return Err(halt),
            Self::Text(text) | Self::Whole(text) => text,
            Self::Database(error) => text_of(&error),
        };
        output.truncate(start);
        reply::error(output, &text);
        Ok(())
    }
}

impl From<Halt> for Failed {
    fn from(halt: Halt) -> Self {
        Self::Halt(halt)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<&str> for Failed {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

const FORBIDDEN: &str = "NOPERM this user has no right to do that, or not with this key";
const SYNTAX: &str = "ERR syntax error";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";

/// Returns the error of a failure of the database.
fn text_of(error: &Error) -> String {
    let code = match error {
        Error::ReadOnly(_) => "READONLY",
        Error::Unavailable(_) => "NOREPLICAS",
        Error::NoMemory { .. } => "OOM",
        Error::NoRoom { .. } => return NO_ROOM.to_owned(),
        _ => "ERR",
    };
    format!("{code} {error}")
}

fn execute(
    context: &mut Context<'_>,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Failed> {
    let (command, arguments) = match request.content {
        Content::Command(command) => (command, request.arguments),
        // `perform` has read quotes.
        Content::Nothing | Content::Quoted => return Ok(Next::GoOn),
        // A browser was made to send it by a page of another site.
        Content::Unknown if is_of_http(request.name) => return Ok(Next::Close),
        Content::Unknown => {
            context.session.redis.transaction.spoil();
            return Err(Failed::Text(unknown(request)));
        }
        Content::Malformed(reason) => {
            context.tally.count(Count::Refused);
            reply::error(output, &format!("ERR Protocol error: {}", text_of_malformed(reason)));
            return Ok(Next::Refuse);
        }
    };
    if !command.shape().takes(arguments.len() + 1) {
        let reason = format!("wrong number of arguments for '{}' command", command.name());
        return Err(reject(context, command, &reason));
    }
    let part = command.subcommand(arguments).map_err(|reason| {
        context.session.redis.transaction.spoil();
        Failed::Text(text_of_part(command, arguments, reason))
    })?;
    if !part.is_empty() {
        context.session.last.1 = number_of(command, part);
    }
    if context.session.subscriptions.is_some()
        && context.session.redis.version == Resp::Two
        && !channels::is_for_subscribers(command)
    {
        let separator = if part.is_empty() { "" } else { "|" };
        let reason = format!(
            "Can't execute '{}{separator}{part}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / \
             QUIT / RESET are allowed in this context",
            command.name()
        );
        return Err(reject(context, command, &reason));
    }
    if context.session.redis.transaction.is_queueing() && !transaction::ends_queue(command) {
        transaction::queue(context, request, command, output)?;
        return Ok(Next::GoOn);
    }
    run(context, command, part, arguments, output)
}

/// Returns the number of a subcommand, from 1 on; 0 for `HELP`.
fn number_of(command: Command, part: &str) -> u8 {
    let place = command.subcommands().iter().position(|one| one.name == part);
    place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(0)
}

/// Returns the error of a command that is neither executed nor queued.
#[cold]
fn reject(context: &mut Context<'_>, command: Command, reason: &str) -> Failed {
    let transaction = &mut context.session.redis.transaction;
    Failed::Text(match command {
        Command::Exec => {
            transaction.end();
            format!("EXECABORT Transaction discarded because of: {reason}")
        }
        _ => {
            transaction.spoil();
            format!("ERR {reason}")
        }
    })
}

/// Executes a command, whose subcommand and number of arguments were checked.
fn run(
    context: &mut Context<'_>,
    command: Command,
    part: &str,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Failed> {
    let further = match command {
        Command::GetSet
        | Command::GetDel
        | Command::GetEx
        | Command::Copy
        | Command::SetBit
        | Command::BitOp
        | Command::BitField
        | Command::PfAdd
        | Command::PfMerge => Some(command_mask::Command::Get),
        Command::Rename | Command::RenameNx => Some(command_mask::Command::Out),
        _ => None,
    };
    if part == "help" {
        let lines: Vec<String> = command.help().collect();
        reply::array(output, lines.len());
        lines.iter().for_each(|line| reply::simple(output, line));
        return Ok(Next::GoOn);
    }
    mask_of(command).into_iter().chain(further).try_for_each(|masked| unmasked(context, masked))?;
    context.cause = cause_of(command);
    match command {
        Command::Get => strings::get(context, arguments, output)?,
        Command::Set => strings::set(context, arguments, output)?,
        Command::SetNx => strings::set_if_absent(context, arguments, output)?,
        Command::SetEx | Command::PSetEx => {
            strings::set_with_expiry(context, arguments, command, output)?
        }
        Command::GetSet => strings::get_and_set(context, arguments, output)?,
        Command::GetDel => strings::get_and_remove(context, arguments, output)?,
        Command::GetEx => strings::get_and_expire(context, arguments, output)?,
        Command::MGet => strings::get_many(context, arguments, output)?,
        Command::MSet | Command::MSetNx => {
            strings::set_many(context, arguments, command, output)?;
        }
        Command::Append => strings::append(context, arguments, output)?,
        Command::StrLen => strings::length(context, arguments, output)?,
        Command::GetRange | Command::SubStr => strings::part(context, arguments, output)?,
        Command::SetRange => strings::overwrite(context, arguments, output)?,
        Command::Incr => strings::add(context, arguments, Some(1), false, output)?,
        Command::Decr => strings::add(context, arguments, Some(-1), false, output)?,
        Command::IncrBy => strings::add(context, arguments, None, false, output)?,
        Command::DecrBy => strings::add(context, arguments, None, true, output)?,
        Command::Del | Command::Unlink => keys::remove(context, arguments, output)?,
        Command::Exists | Command::Touch => keys::count_present(context, arguments, output)?,
        Command::Type => keys::type_of(context, arguments, output)?,
        Command::Expire | Command::PExpire | Command::ExpireAt | Command::PExpireAt => {
            keys::expire(context, arguments, command, output)?;
        }
        Command::Persist => keys::persist(context, arguments, output)?,
        Command::Ttl | Command::PTtl | Command::ExpireTime | Command::PExpireTime => {
            keys::time_left(context, arguments, command, output)?;
        }
        Command::Rename | Command::RenameNx => {
            keys::rename(context, arguments, command, output)?;
        }
        Command::Copy => keys::copy(context, arguments, output)?,
        Command::Keys => scan::matching(context, arguments, output)?,
        Command::Scan => scan::scan(context, arguments, output)?,
        Command::RandomKey => scan::random(context, output)?,
        Command::Multi => transaction::begin(context, output)?,
        Command::Exec => return transaction::execute(context, output),
        Command::Discard => transaction::discard(context, output)?,
        Command::Watch => transaction::watch(context, arguments, output)?,
        Command::Unwatch => transaction::unwatch(context, output),
        Command::DbSize => keys::count(context, output)?,
        Command::FlushDb | Command::FlushAll => keys::clear(context, arguments, output)?,
        Command::Subscribe | Command::PSubscribe | Command::SSubscribe => {
            channels::subscribe(context, command, arguments, output)?;
        }
        Command::Unsubscribe | Command::PUnsubscribe | Command::SUnsubscribe => {
            channels::unsubscribe(context, command, arguments, output)?;
        }
        Command::Publish | Command::SPublish => {
            channels::publish(context, command, arguments, output)?;
        }
        Command::PubSub => channels::describe(context, part, arguments, output)?,
        Command::Ping => connection::ping(context, arguments, output)?,
        Command::Echo => connection::echo(context, arguments, output)?,
        Command::Auth => connection::authenticate(context, arguments, output)?,
        Command::Hello => connection::hello(context, arguments, output)?,
        Command::Reset => connection::reset(context, output),
        Command::Select => connection::select(arguments, output)?,
        Command::Client => return clients::execute(context, part, arguments, output),
        Command::CommandInfo => info::commands(context, part, arguments, output)?,
        Command::Config => info::settings(context, part, arguments, output)?,
        Command::Info => sections::describe(context, arguments, output)?,
        Command::Time => info::time(output),
        Command::IncrByFloat => float::add(context, arguments, output)?,
        Command::SetBit => bits::set(context, arguments, output)?,
        Command::GetBit => bits::get(context, arguments, output)?,
        Command::BitCount => bits::count(context, arguments, output)?,
        Command::BitPos => bits::position(context, arguments, output)?,
        Command::BitOp => bits::combine(context, arguments, output)?,
        Command::BitField => bitfield::execute(context, arguments, false, output)?,
        Command::BitFieldRo => bitfield::execute(context, arguments, true, output)?,
        Command::Lcs => lcs::compare(context, arguments, output)?,
        Command::PfAdd => hyperloglog::add(context, arguments, output)?,
        Command::PfCount => hyperloglog::count(context, arguments, output)?,
        Command::PfMerge => hyperloglog::merge(context, arguments, output)?,
        Command::Dump => dump::dump(context, arguments, output)?,
        Command::Restore => dump::restore(context, arguments, output)?,
        Command::Eval | Command::EvalRo | Command::EvalSha | Command::EvalShaRo => {
            scripts::evaluate(context, command, arguments, output)?;
        }
        Command::Script => scripts::manage(context, part, arguments, output)?,
        Command::Function => scripts::functions(context, part, arguments, output)?,
        Command::Object => object::describe(context, part, arguments, output)?,
        Command::Memory => object::usage(context, arguments, output)?,
        Command::Role => sections::role(context, output),
        Command::LastSave => reply::integer(output, sections::started_s(context)),
        Command::SlowLog => slow::describe(context, part, arguments, output)?,
        Command::Latency if part == "reset" => reply::integer(output, 0),
        // "history" and "latest": events are not recorded.
        Command::Latency => reply::array(output, 0),
        Command::Wait => wait::wait(context, arguments, output)?,
        Command::Quit => {
            reply::simple(output, "OK");
            return Ok(Next::Close);
        }
    }
    Ok(Next::GoOn)
}

/// Returns the event of a record that a command puts, if that is more than a put.
#[inline]
fn cause_of(command: Command) -> Option<Event> {
    Some(match command {
        Command::SetRange => Event::SetRange,
        Command::SetBit | Command::BitField => Event::SetBit,
        Command::IncrByFloat => Event::IncrByFloat,
        Command::PfAdd | Command::PfMerge => Event::PfAdd,
        Command::Incr | Command::Decr | Command::IncrBy | Command::DecrBy => Event::IncrBy,
        Command::GetEx
        | Command::Expire
        | Command::PExpire
        | Command::ExpireAt
        | Command::PExpireAt => Event::Expire,
        Command::Persist => Event::Persist,
        Command::Rename | Command::RenameNx => Event::RenameTo,
        Command::Copy => Event::CopyTo,
        Command::Restore => Event::Restore,
        _ => return None,
    })
}

/// Fails if a command is masked.
fn unmasked(context: &Context<'_>, command: command_mask::Command) -> Result<(), Failed> {
    match context.masks(command, Protocol::Redis) {
        true => Err(Failed::Text(format!("NOPERM the server masks {}", command.name()))),
        false => Ok(()),
    }
}

/// Returns the command by which a mask refuses a request.
fn mask_of(command: Command) -> Option<command_mask::Command> {
    use command_mask::Command as C;
    Some(match command {
        Command::Get
        | Command::GetRange
        | Command::SubStr
        | Command::Exists
        | Command::Touch
        | Command::Watch
        | Command::Type
        | Command::Ttl
        | Command::PTtl
        | Command::ExpireTime
        | Command::PExpireTime => C::Get,
        Command::MGet => C::GetMany,
        Command::StrLen => C::ValueSize,
        Command::SetNx => C::PutKeep,
        Command::Append => C::PutCat,
        Command::Set
        | Command::SetEx
        | Command::PSetEx
        | Command::GetSet
        | Command::GetEx
        | Command::MSet
        | Command::MSetNx
        | Command::Copy
        | Command::Rename
        | Command::RenameNx
        | Command::SetRange
        | Command::Expire
        | Command::PExpire
        | Command::ExpireAt
        | Command::PExpireAt
        | Command::Persist => C::Put,
        Command::Incr | Command::Decr | Command::IncrBy | Command::DecrBy => C::AddInt,
        Command::Del | Command::Unlink | Command::GetDel => C::Out,
        Command::Keys | Command::Scan | Command::RandomKey => C::KeysWithPrefix,
        Command::DbSize => C::Count,
        Command::FlushDb | Command::FlushAll => C::Vanish,
        Command::GetBit
        | Command::BitCount
        | Command::BitPos
        | Command::BitFieldRo
        | Command::Lcs
        | Command::PfCount
        | Command::Dump
        | Command::Object
        | Command::Memory => C::Get,
        Command::SetBit
        | Command::BitOp
        | Command::BitField
        | Command::PfAdd
        | Command::PfMerge
        | Command::Restore => C::Put,
        Command::IncrByFloat => C::AddDouble,
        Command::Eval
        | Command::EvalRo
        | Command::EvalSha
        | Command::EvalShaRo
        | Command::Script
        | Command::Function => C::Ext,
        Command::SlowLog => C::Optimize,
        Command::Info | Command::Config | Command::Latency | Command::Role | Command::LastSave => {
            C::Stat
        }
        Command::Ping
        | Command::Echo
        | Command::Auth
        | Command::Hello
        | Command::Reset
        | Command::Quit
        | Command::Select
        | Command::Client
        | Command::CommandInfo
        | Command::Multi
        | Command::Exec
        | Command::Discard
        | Command::Unwatch
        | Command::Subscribe
        | Command::PSubscribe
        | Command::SSubscribe
        | Command::Unsubscribe
        | Command::PUnsubscribe
        | Command::SUnsubscribe
        | Command::Publish
        | Command::SPublish
        | Command::PubSub
        | Command::Wait
        | Command::Time => return None,
    })
}

/// Most bytes of a name or of arguments that an error repeats.
const SHOWN_BYTES_MAX: usize = 128;

/// Returns the error for a subcommand that a command does not have.
fn text_of_part(command: Command, arguments: Arguments<'_>, reason: NoSubcommand) -> String {
    let given = arguments.iter().next().unwrap_or_default();
    let (name, given_text) = (command.name(), String::from_utf8_lossy(shortened(given)));
    let capitals = name.to_ascii_uppercase();
    match (reason, refusal_of_part(command, given)) {
        (NoSubcommand::Arity(part), _) => {
            format!("ERR wrong number of arguments for '{name}|{part}' command")
        }
        (NoSubcommand::Unknown, Some(reason)) => {
            let part = given_text.to_ascii_uppercase();
            format!("ERR {capitals} {part} is not supported: {reason}")
        }
        (NoSubcommand::Unknown, None) => {
            format!("ERR unknown subcommand '{given_text}'. Try {capitals} HELP.")
        }
    }
}

/// Returns the error for a subcommand that has too many arguments, as only its own check of them
/// finds in Redis.
fn too_many(command: Command, arguments: Arguments<'_>) -> Failed {
    let given = arguments.iter().next().unwrap_or_default();
    let (given, capitals) = (String::from_utf8_lossy(given), command.name().to_ascii_uppercase());
    Failed::Text(format!(
        "ERR unknown subcommand or wrong number of arguments for '{given}'. Try {capitals} HELP."
    ))
}

fn shortened(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    &bytes[..end.min(SHOWN_BYTES_MAX)]
}

/// Returns the error for a command that the server does not know.
fn unknown(request: &Request<'_>) -> String {
    if let Some(reason) = refusal(request.name) {
        let name = String::from_utf8_lossy(request.name).to_ascii_uppercase();
        return format!("ERR {name} is not supported: {reason}");
    }
    let shown = |bytes| String::from_utf8_lossy(shortened(bytes)).into_owned();
    let mut text =
        format!("ERR unknown command '{}', with args beginning with: ", shown(request.name));
    let mut left = SHOWN_BYTES_MAX;
    for argument in request.arguments.iter() {
        if left == 0 {
            break;
        }
        let argument = shown(&argument[..argument.len().min(left)]);
        left = left.saturating_sub(argument.len() + "'' ".len());
        text.push_str(&format!("'{argument}' "));
    }
    text
}

/// Returns whether the name of a command is the first word of a request or a header of HTTP.
fn is_of_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:")
}

fn text_of_malformed(reason: Malformed) -> String {
    match reason {
        Malformed::ArrayLength => "invalid multibulk length".into(),
        Malformed::StringLength => "invalid bulk length".into(),
        Malformed::NoString(byte) => {
            format!("expected '$', got '{}'", char::from(byte).escape_default())
        }
        Malformed::Quotes => "unbalanced quotes in request".into(),
        Malformed::LineLength => "too big inline request".into(),
    }
}

/// A record as it was found, whose memory is charged.
struct Found {
    value: Vec<u8>,
    meta: Meta,
    version: Version,
    charge: Charge,
}

impl Found {
    /// Returns the time at which it expires, in milliseconds since 1970; `None` for never.
    fn expires_at_ms(&self) -> Option<u64> {
        expiry_of(self.meta)
    }

    /// Returns the memory before a transaction takes its own for a value of this length in bytes:
    /// the transaction is charged for the copies that this one is there besides.
    fn leave_to_transaction(&mut self, bytes: usize) {
        if self.value.len() >= LONG_BYTES_MIN {
            self.charge.set(COPIES * self.value.len().saturating_sub(bytes));
        }
    }
}

/// Returns a copy of the value that a change begins with, which is empty without a record, and its
/// flags and expiry.
fn value_to_change(found: Option<&Found>) -> (Vec<u8>, Meta) {
    found.map_or((Vec::new(), Meta::NONE), |found| (found.value.clone(), found.meta))
}

fn expiry_of(meta: Meta) -> Option<u64> {
    Some(unmarked(meta.expires_at_ms)).filter(|at_ms| *at_ms != 0)
}

/// A reply that passes a record to a closure, and shows nothing of its value.
struct Visit<F>(F);

impl<F: FnMut(&RecordRef<'_>)> Reply for Visit<F> {
    fn shows_values(&self) -> bool {
        false
    }

    fn value(&mut self, record: &RecordRef<'_>) {
        (self.0)(record);
    }
}

/// Passes a record to `visit`, if there is one. Returns whether there is.
fn read(
    context: &mut Context<'_>,
    key: &[u8],
    visit: impl FnMut(&RecordRef<'_>),
) -> Result<bool, Failed> {
    let found = context.execute(&Operation::Get { key }, &mut Visit(visit))?;
    Ok(or_absent(found, Outcome::NoRecord)? == Outcome::Done)
}

/// Copies of a value that a change has in memory at one time.
const COPIES: usize = 3;

/// Returns a record. A long one is read by a thread that may wait, if there is memory for it.
fn find(context: &mut Context<'_>, key: &[u8]) -> Result<Option<Found>, Failed> {
    find_checked(context, key, |_| Ok(()))
}

/// Returns a record, unless `check` fails for its value, which is not copied before.
fn find_checked(
    context: &mut Context<'_>,
    key: &[u8],
    check: impl Fn(&[u8]) -> Result<(), Failed>,
) -> Result<Option<Found>, Failed> {
    let (may_block, budget) = (context.may_block, Arc::clone(&context.shared.served.budget));
    let mut found = Ok(None);
    read(context, key, |record| {
        let RecordRef { value, meta, version, .. } = *record;
        let mut charge = Charge::none(&budget);
        let checked = check(value);
        found = match value.len() >= LONG_BYTES_MIN {
            _ if checked.is_err() => checked.map(|()| None),
            true if !may_block => Err(Failed::Halt(Halt::Blocked)),
            true if !charge.set(COPIES * value.len()) => {
                Err(Error::NoRoom { bytes: value.len() }.into())
            }
            _ => Ok(Some(Found { value: value.to_vec(), meta, version, charge })),
        };
    })?;
    found
}

const NO_ROOM: &str = "OOM no memory for the value among all requests: try again later";

/// Change of a record that was found, or of its absence.
enum Decision {
    Keep,
    Put(Vec<u8>, Meta),
    Remove,
}

/// Changes a record as `decide` says, which is asked again if another client changes the record
/// meanwhile. Returns the record before the change.
fn change(
    context: &mut Context<'_>,
    key: &[u8],
    mut decide: impl FnMut(Option<&Found>) -> Result<Decision, Failed>,
) -> Result<Option<Found>, Failed> {
    change_checked(context, key, |_| Ok(()), |_, found| decide(found))
}

/// Changes a record, and appends the value that it had, or its absence. A value that is too long
/// for a reply is not changed.
fn change_and_reply(
    context: &mut Context<'_>,
    key: &[u8],
    output: &mut Vec<u8>,
    mut decide: impl FnMut(Option<&Found>) -> Result<Decision, Failed>,
) -> Result<(), Failed> {
    let decide = |context: &mut Context<'_>, found: Option<&Found>| {
        context.check_length(found.map_or(0, |found| found.value.len()))?;
        decide(found)
    };
    match change_checked(context, key, |_| Ok(()), decide)? {
        Some(before) => reply::string(output, &before.value),
        None => reply::null(output, context.session.redis.version),
    }
    Ok(())
}

/// Changes a record, unless `check` fails for its value, which is not copied before.
fn change_checked(
    context: &mut Context<'_>,
    key: &[u8],
    check: impl Fn(&[u8]) -> Result<(), Failed>,
    mut decide: impl FnMut(&mut Context<'_>, Option<&Found>) -> Result<Decision, Failed>,
) -> Result<Option<Found>, Failed> {
    loop {
        let mut found = find_checked(context, key, &check)?;
        let decision = decide(context, found.as_ref())?;
        if let (Some(found), Decision::Put(value, _)) = (&mut found, &decision)
            && context.session.redis.transaction.is_executing()
        {
            found.leave_to_transaction(value.len());
        }
        let action = match &decision {
            Decision::Keep => return Ok(found),
            Decision::Put(value, meta) => {
                let presence = if found.is_some() { Presence::Present } else { Presence::Absent };
                Action::put(presence, value.as_slice(), *meta)
            }
            Decision::Remove if found.is_none() => return Ok(None),
            Decision::Remove => Action::Remove,
        };
        let precondition =
            found.as_ref().map_or(Precondition::None, |found| Precondition::Version(found.version));
        let write = Write { precondition, ..Write::new(key, action) };
        let outcome = context.execute(&Operation::Write(write), &mut NoReply)??;
        // Otherwise another client was quicker.
        if outcome == Outcome::Done {
            return Ok(found);
        }
    }
}

/// Encoder of one value.
struct Value<'o> {
    output: &'o mut Vec<u8>,
    start: usize,
}

impl<'o> Value<'o> {
    #[inline]
    fn new(output: &'o mut Vec<u8>) -> Self {
        Self { start: output.len(), output }
    }
}

impl Reply for Value<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.output.len() - self.start
    }

    #[inline]
    fn value(&mut self, record: &RecordRef<'_>) {
        reply::string(self.output, record.value);
    }
}

/// Returns a number as replies have it: the largest one for all that are larger.
fn saturated(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Leaves a request of many or long strings to a thread that may wait. Returns the bytes of all.
fn wait_if_long(context: &Context<'_>, arguments: Arguments<'_>) -> Result<usize, Halt> {
    let bytes = arguments.iter().map(<[u8]>::len).sum();
    if arguments.len() > INLINE_KEYS_MAX || bytes >= LONG_BYTES_MIN {
        context.wait()?;
    }
    Ok(bytes)
}

/// Returns the only strings of a request, whose number was checked.
fn parts<const N: usize>(arguments: Arguments<'_>) -> Result<[&[u8]; N], Failed> {
    arguments.exactly().ok_or_else(|| SYNTAX.into())
}
