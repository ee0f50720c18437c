//! Tokyo Tyrant's binary protocol.

pub(super) mod functions;
mod protocol;
mod reply;

pub(super) use protocol::TokyoTyrant;

use super::{Context, Halt, Next, Step, finish, incomplete, within_limit};
use crate::access::logins::Login;
use crate::admin::{server_stats, snapshot};
use crate::counters::Count;
use crate::ops::acknowledgement::RefusalReason;
use crate::ops::command_mask::{Command, Protocol};
use crate::ops::decode::{Sender, decode};
use crate::ops::execute::{Outcome, Reply};
use crate::ops::failure::Failure;
use crate::ops::operation::Operation;
use crate::protocol::script_call::{Form, ScriptCall, ScriptLock};
use crate::replication::{self, Extended, ReplicaRequest};
use cabinet::Error;
use functions::Call;
use reply::BinaryReply;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wire::binary::reply::{self as encode, List};
use wire::binary::{
    COMMAND_BYTES, Function, NO_USERS, NOT_LOGGED, Progress, Request, Strings, parse_resuming,
};
use wire::{Described, Invalid, Parse};

/// Executes the request at the beginning of `input`.
fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
    let parsed = parse_resuming(input, &mut context.session.binary);
    match within_limit(context, parsed) {
        Parse::Complete(request, bytes) => {
            context.session.binary = Progress::default();
            perform(context, request, bytes, output)
        }
        Parse::Incomplete(needed) => {
            incomplete(context, input, needed, || encode::status(output, false))
        }
        // Tokyo Tyrant gives no reply, and executes the next request if it has arrived.
        Parse::Invalid(Invalid::UnknownCommand) => {
            Step::Executed { bytes: COMMAND_BYTES.min(input.len()), next: Next::CloseIfQuiet }
        }
        // The start of the next request is unknown.
        Parse::Invalid(_) => Step::Executed { bytes: input.len(), next: Next::Close },
    }
}

/// Executes a request of this length in bytes.
fn perform(
    context: &mut Context<'_>,
    request: Request<'_>,
    bytes: usize,
    output: &mut Vec<u8>,
) -> Step {
    let start = output.len();
    context.session.kind = request.kind();
    // A reason is that of the last request about records: one that succeeds has none.
    if !matches!(request, Request::Stat | Request::Misc { function: Function::Error, .. }) {
        context.session.last_reason = None;
    }
    let is_misc = matches!(request, Request::Misc { .. });
    let is_follow = matches!(request, Request::Follow { .. });
    let is_closing = has_no_word_for_failure(&request);
    context.session.has_read_failure = false;
    let limited = context.session.rights.is_some().then(|| forbidden_command(&request));
    let mut result = execute(context, request, output);
    if result == Err(Halt::Forbidden) {
        output.truncate(start);
        result = Ok(match limited {
            // An empty list would be the reply of a function without a result, such as `reload`.
            None | Some(Command::Misc) => {
                encode::misc_failure(output);
                Next::GoOn
            }
            Some(command) => refuse(context, command, output),
        });
    }
    if is_follow
        && result == Ok(Next::Close)
        && let Some(reason) = &context.session.last_reason
    {
        replication::refuse_for_now(output, context.shared.config.server_id, reason);
        context.shared.logins.log_replica(context.session.peer.as_deref(), reason);
    }
    let is_too_long = result == Err(Halt::TooLong) && !is_misc;
    if is_too_long {
        context.fail_because(
            "reply",
            "the reply is longer than reply-bytes-max, or than memory for it",
        );
    }
    let has_read_failure = context.session.has_read_failure && matches!(result, Ok(Next::GoOn));
    if is_closing && (is_too_long || has_read_failure) {
        output.truncate(start);
        result = Ok(Next::Close);
    }
    finish(
        output,
        start,
        bytes,
        result,
        |_, _| Next::Close,
        |output| {
            if is_misc { encode::misc_failure(output) } else { encode::status(output, false) }
        },
    )
}

/// Returns whether a client would take a failure reply for the absence of a record, or for the end
/// of a list. If a record cannot be read for such a request, or its reply is too long, the
/// connection is closed instead.
fn has_no_word_for_failure(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Get { .. }
            | Request::Out { .. }
            | Request::ValueSize { .. }
            | Request::IterNext
            | Request::KeysWithPrefix { .. }
            | Request::Misc { .. }
    )
}

fn execute(
    context: &mut Context<'_>,
    request: Request<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    if let Request::Misc { function: Function::Login, arguments, .. } = request {
        return log_in(context, arguments, output);
    }
    if let Request::Misc { function, options, arguments } = request {
        let call = Call::new(context, function, arguments);
        let is_refused = context.refuses(Command::Misc, Protocol::Binary);
        if is_refused || call.is_refused(context, Protocol::Binary) {
            let masked = call.access().filter(|_| !is_refused).unwrap_or(Command::Misc);
            return Ok(mask(context, masked, Command::Misc, output));
        }
        return call_function(context, &call, options, output);
    }
    let operation = decode(&request, context.shared.served.model, Sender::Client);
    if context.has_mask() {
        let command = command(&request, operation.as_ref().ok());
        if context.refuses(command, Protocol::Binary) {
            return Ok(mask(context, command, command, output));
        }
    }
    match operation {
        Ok(operation) => operate(context, &request, &operation, output),
        Err(_) => administer(context, &request, output),
    }
}

/// Executes a request on records.
#[inline]
fn operate(
    context: &mut Context<'_>,
    request: &Request<'_>,
    operation: &Operation<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    let mut reply = match request {
        Request::GetMany(_) => BinaryReply::records(output),
        Request::KeysWithPrefix { .. } => BinaryReply::strings(output),
        _ => BinaryReply::value(output),
    };
    let result = context.execute(operation, &mut reply);
    if let Err(Halt::TooLong) = result {
        count(context, request, None);
    }
    let result = result?;
    if let Err(Error::Unsupported { .. } | Error::InvalidArgument(_)) = result
        && let Request::PutKeep { .. } | Request::AddInt { .. } | Request::AddDouble { .. } =
            request
    {
        // The status of a failure would look like that of a record that exists.
        return Err(Halt::Refused(RefusalReason::Unavailable));
    }
    let outcome = result.ok();
    count(context, request, outcome);
    let is_done = outcome == Some(Outcome::Done);
    match (request, outcome) {
        (Request::PutNoReply { .. }, _) => {}
        (Request::GetMany(_), Some(_)) | (Request::KeysWithPrefix { .. }, _) => reply.finish(),
        // The value or the number is the reply.
        _ if is_done && reply.len() > 0 => {}
        _ => encode::status(reply.cancel(), is_done),
    }
    Ok(Next::GoOn)
}

/// Counts a request on records, and whether it missed.
#[inline]
fn count(context: &Context<'_>, request: &Request<'_>, outcome: Option<Outcome>) {
    let is_stored = outcome == Some(Outcome::Done);
    let is_missing = outcome == Some(Outcome::NoRecord);
    let (count, miss) = match request {
        Request::Get { .. } => (Count::Get, is_missing.then_some(Count::GetMiss)),
        Request::Put { .. } => (Count::Put, (!is_stored).then_some(Count::PutMiss)),
        Request::PutNoReply { .. } => (Count::PutNoReply, (!is_stored).then_some(Count::PutMiss)),
        Request::PutKeep { .. } => (Count::PutKeep, (!is_stored).then_some(Count::PutMiss)),
        Request::PutCat { .. } => (Count::PutCat, (!is_stored).then_some(Count::PutMiss)),
        Request::PutShift { .. } => (Count::PutShift, (!is_stored).then_some(Count::PutMiss)),
        Request::Out { .. } => (Count::Out, is_missing.then_some(Count::OutMiss)),
        Request::GetMany(_) => (Count::GetMany, None),
        Request::ValueSize { .. } => (Count::ValueSize, None),
        Request::Count => (Count::Records, None),
        Request::IterInit => (Count::IterInit, None),
        Request::IterNext => (Count::IterNext, None),
        Request::KeysWithPrefix { .. } => (Count::KeysWithPrefix, None),
        Request::AddInt { .. } => (Count::AddInt, None),
        Request::AddDouble { .. } => (Count::AddDouble, None),
        Request::Sync => (Count::Sync, None),
        Request::Optimize { .. } => (Count::Optimize, None),
        Request::Vanish => (Count::Vanish, None),
        // Other requests are counted during their execution.
        _ => return,
    };
    context.counters.count(count);
    if let Some(miss) = miss {
        context.counters.count(miss);
    }
}

/// Executes a request about the server.
fn administer(
    context: &mut Context<'_>,
    request: &Request<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    context.permit_command(command(request, None))?;
    let done = match *request {
        Request::Copy { path } => {
            context.wait()?;
            context.counters.count(Count::Copy);
            let copied = context
                .local("copies")
                .and_then(|store| snapshot::copy(context.shared, store, path));
            context.attempt("copy", copied)?.is_ok()
        }
        Request::Size => {
            context.counters.count(Count::Size);
            let local = context.local("a size in bytes");
            if let Ok(store) = context.attempt("size", local)? {
                encode::count(output, store.size_bytes());
                return Ok(Next::GoOn);
            }
            false
        }
        Request::Stat => {
            context.counters.count(Count::Stat);
            encode::value(
                output,
                server_stats::text(context.shared, context.descriptor).as_bytes(),
            );
            return Ok(Next::GoOn);
        }
        Request::Restore { path, timestamp_us, options } => {
            restore(context, path, timestamp_us, options)?
        }
        Request::SetMaster { host, port, timestamp_us, options } => {
            context.wait()?;
            context.counters.count(Count::SetMaster);
            let local = context.local("replication of its servers");
            if context.attempt("setmst", local)?.is_err() {
                false
            } else if context.shared.config.set_master_command {
                let set = context.shared.replication.set_master(host, port, timestamp_us, options);
                if !set {
                    context.fail("setmst", Failure::Invalid);
                }
                set
            } else {
                tracing::warn!("setmst refused: clients may not set the master");
                context.refuse_because("setmst", "the server was started without --allow-setmst: start it again with that option, or \
                     with --master");
                false
            }
        }
        Request::Replicate { timestamp_us, server_id } => {
            return Ok(replicate(context, timestamp_us, server_id, None));
        }
        Request::Follow { timestamp_us, server_id, options, port } => {
            let extended = Extended { options, port: u16::try_from(port).unwrap_or(0) };
            return Ok(replicate(context, timestamp_us, server_id, Some(extended)));
        }
        Request::Ext { name, options, key, value } => {
            context.counters.count(Count::Ext);
            if context.shared.has_extension() {
                let lock = ScriptLock::of_options(options);
                return context.call(ScriptCall::new((name, key, value), lock, Form::Binary));
            }
            context.fail_because("ext", "the server has no script: start it with --script FILE");
            false
        }
        // Every other request is about records.
        _ => false,
    };
    encode::status(output, done);
    Ok(Next::GoOn)
}

/// Replays the update log of a folder. Returns whether that succeeded.
fn restore(
    context: &mut Context<'_>,
    path: &[u8],
    timestamp_us: u64,
    options: u32,
) -> Result<bool, Halt> {
    context.wait()?;
    context.counters.count(Count::Restore);
    let gate =
        context.local("an update log").and_then(|_| context.shared.served.gate.pass_change(true));
    if context.attempt("restore", gate)?.is_err() {
        return Ok(false);
    }
    let given = Path::new(std::ffi::OsStr::from_bytes(path));
    let path = context.shared.config.client_paths.present_path("restore", given);
    let Ok(path) = context.attempt("restore", path)? else { return Ok(false) };
    let check = replication::checks(options);
    let restored = replication::restore(&context.shared.served, &path, timestamp_us, check);
    context.mutated = true;
    if !restored {
        context.fail("restore", Failure::Miscellaneous);
    }
    Ok(restored)
}

/// Hands the connection to a replica.
fn replicate(
    context: &Context<'_>,
    from_us: u64,
    replica: u32,
    extended: Option<Extended>,
) -> Next {
    context.counters.count(Count::Replicate);
    Next::Replicate(ReplicaRequest { replica, from_us, extended })
}

/// Executes `misc`.
fn call_function(
    context: &mut Context<'_>,
    call: &Call<'_>,
    options: u32,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    let logged = context.database;
    if options & NOT_LOGGED != 0 {
        context.database = context.shared.served.unlogged(context.may_block);
    }
    let mut reply = BinaryReply::strings(output);
    let done = call.run(context, &mut reply);
    context.database = logged;
    if done? {
        reply.finish();
    } else {
        encode::misc_failure(reply.cancel());
    }
    Ok(Next::GoOn)
}

/// Logs in the user of a name and a password. No mask applies. Without either it is no attempt: a
/// client finds out whether the port takes logins before it sends a password.
fn log_in(
    context: &mut Context<'_>,
    arguments: Strings<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    if arguments.is_empty() {
        context.counters.count(Count::Misc);
        encode::misc_failure(output);
        return Ok(Next::GoOn);
    }
    let mut words = arguments.iter();
    let credentials = match (words.next(), words.next(), words.next()) {
        (Some(name), Some(password), None) => Some((name, password)),
        _ => None,
    };
    let login = context.authenticate("Tokyo Tyrant's protocol", credentials)?;
    context.counters.count(Count::Misc);
    if let Login::User(_) = login {
        List::begin(output).finish(output);
        return Ok(Next::GoOn);
    }
    // Only this connection is told.
    context.session.last_failure = Some(Failure::NoPermission);
    let has_users = context.shared.users.is_some();
    let reason = if has_users { "the name or the password is wrong" } else { NO_USERS };
    context.session.last_reason = Some(reason.into());
    encode::misc_failure(output);
    Ok(if let Login::TooSoon { .. } = login { Next::Refuse } else { Next::GoOn })
}

/// Returns the command whose form the reply to a forbidden request has.
fn forbidden_command(request: &Request<'_>) -> Command {
    match request {
        Request::GetMany(_) => Command::GetMany,
        Request::KeysWithPrefix { .. } => Command::KeysWithPrefix,
        Request::Misc { .. } => Command::Misc,
        Request::PutNoReply { .. } => Command::PutNoReply,
        Request::Replicate { .. } | Request::Follow { .. } => Command::Replicate,
        // These have a status.
        Request::Put { .. }
        | Request::PutKeep { .. }
        | Request::PutCat { .. }
        | Request::PutShift { .. }
        | Request::Out { .. }
        | Request::Get { .. }
        | Request::ValueSize { .. }
        | Request::IterInit
        | Request::IterNext
        | Request::AddInt { .. }
        | Request::AddDouble { .. }
        | Request::Ext { .. }
        | Request::Sync
        | Request::Optimize { .. }
        | Request::Vanish
        | Request::Copy { .. }
        | Request::Restore { .. }
        | Request::SetMaster { .. }
        | Request::Count
        | Request::Size
        | Request::Stat => Command::Get,
    }
}

/// Appends the reply to a masked command, which has the form of that to `called`.
fn mask(context: &mut Context<'_>, masked: Command, called: Command, output: &mut Vec<u8>) -> Next {
    context.counters.count(Count::DeniedByMask);
    context.refuse_masked(masked);
    refuse(context, called, output)
}

/// Appends the reply to a refused command.
fn refuse(context: &mut Context<'_>, command: Command, output: &mut Vec<u8>) -> Next {
    use Command as C;
    match command {
        C::PutNoReply => {}
        C::Replicate => return Next::Close,
        C::GetMany | C::KeysWithPrefix | C::Misc => List::begin(output).finish(output),
        C::Count | C::Size => encode::count(output, 0),
        C::Stat => encode::value(output, server_stats::count_lines(context.shared).as_bytes()),
        _ => encode::status(output, false),
    }
    Next::GoOn
}

/// Returns the command by which a mask refuses a request.
fn command(request: &Request<'_>, operation: Option<&Operation<'_>>) -> Command {
    match request {
        Request::PutNoReply { .. } => Command::PutNoReply,
        Request::Copy { .. } => Command::Copy,
        Request::Restore { .. } => Command::Restore,
        Request::SetMaster { .. } => Command::SetMaster,
        Request::Count => Command::Count,
        Request::Size => Command::Size,
        Request::Stat => Command::Stat,
        Request::Ext { .. } => Command::Ext,
        Request::Replicate { .. } | Request::Follow { .. } => Command::Replicate,
        Request::Put { .. }
        | Request::PutKeep { .. }
        | Request::PutCat { .. }
        | Request::PutShift { .. }
        | Request::Out { .. }
        | Request::Get { .. }
        | Request::GetMany(_)
        | Request::ValueSize { .. }
        | Request::IterInit
        | Request::IterNext
        | Request::KeysWithPrefix { .. }
        | Request::AddInt { .. }
        | Request::AddDouble { .. }
        | Request::Sync
        | Request::Optimize { .. }
        | Request::Vanish
        | Request::Misc { .. } => operation.and_then(Operation::access).unwrap_or(Command::Misc),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::protocol::session::Session;
    use crate::shared::Shared;
    use cabinet::Database;

    /// Parsed bytes are overwritten with bytes that would end the connection if they were parsed
    /// again.
    #[test]
    fn a_list_that_arrives_in_pieces_is_gone_through_once() {
        let database = Database::open("*").expect("a database in memory");
        let shared = Shared::for_test(Config::default(), database);
        let counters = shared.counters.add_thread();
        let mut session = Session::default();
        let mut output = Vec::new();
        let mut execute = |input: &[u8]| {
            let mut context = Context::new(&shared, true, &counters, &mut session, 0);
            step(&mut context, input, &mut output)
        };
        let whole = *b"\xc8\x31\0\0\0\x02\0\0\0\x03one\0\0\0\x03two";
        for _ in 0..2 {
            let mut input = whole;
            let last = input.len() - 1;
            assert_eq!(execute(&input[..last]), Step::Incomplete { needed: input.len() });
            input[6..13].fill(0xff);
            assert_eq!(execute(&input[..last]), Step::Incomplete { needed: input.len() });
            let done = Step::Executed { bytes: whole.len(), next: Next::GoOn };
            assert_eq!(execute(&whole), done);
        }
    }
}
