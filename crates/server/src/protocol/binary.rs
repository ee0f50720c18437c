//! Tokyo Tyrant's binary protocol.

use super::ahead::Grouped;
use super::{Context, Halt, Next, Step, finish, functions, incomplete, misc, table, within_limit};
use crate::admin::command_mask::{Command, CommandMask, Protocol};
use crate::admin::server_stats;
use crate::admin::snapshot;
use crate::counters::Count;
use crate::ops::failure::Failure;
use crate::ops::session::Cursor;
use crate::replication::{self, Ask, Extended};
use cabinet::{Database, Meta};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wire::binary::reply::{self, List};
use wire::binary::{
    COMMAND_BYTES, Function, Progress, Request, Strings, double_from_parts, parse_resuming,
};
use wire::{Invalid, Parse};

/// Bit of the options of `misc`: it is left out of the update log.
const NOT_LOGGED: u32 = 1;

/// Executes the request at the beginning of `input`.
pub(super) fn step(context: &mut Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Step {
    let parsed = parse_resuming(input, &mut context.session.binary);
    match within_limit(context, parsed) {
        Parse::Complete(request, bytes) => {
            context.session.binary = Progress::default();
            let start = output.len();
            let is_misc = matches!(request, Request::Misc { .. });
            let is_closing = has_no_word_for_failure(&request);
            context.session.has_read_failure = false;
            let mut result = execute(context, request, output);
            if context.session.has_read_failure && is_closing && matches!(result, Ok(Next::GoOn)) {
                output.truncate(start);
                result = Ok(Next::Close);
            }
            finish(output, start, bytes, result, |output| {
                if is_misc { reply::misc_failure(output) } else { reply::status(output, false) }
            })
        }
        Parse::Incomplete(needed) => {
            incomplete(context, input, needed, || reply::status(output, false))
        }
        // Tokyo Tyrant says nothing, and goes on with what follows if that is there already.
        Parse::Invalid(Invalid::UnknownCommand) => {
            Step::Executed { bytes: COMMAND_BYTES.min(input.len()), next: Next::CloseIfQuiet }
        }
        // Where the next request begins is anybody's guess.
        Parse::Invalid(_) => Step::Executed { bytes: input.len(), next: Next::Close },
    }
}

/// Whether a client would take the answer that a request has failed for one that says that there is
/// no record, or no more of them. Where a record could not be read the connection is closed
/// instead.
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

#[inline]
fn execute(
    context: &mut Context<'_>,
    request: Request<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    let command = command(&request);
    let refuses = |command| context.refuses(command, Protocol::Binary);
    let is_refused = match request {
        Request::Misc { function, arguments, .. }
            if context.shared.config.mask != CommandMask::NONE =>
        {
            functions::command(function, arguments.iter()).is_some_and(refuses)
        }
        _ => false,
    };
    if is_refused || refuses(command) {
        return Ok(refuse(context, command, output));
    }
    perform(context, request, output)
}

/// Executes a request, whatever the mask says.
#[inline]
pub(super) fn perform(
    context: &mut Context<'_>,
    request: Request<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    let database = context.database;
    let done = match request {
        Request::Get { key } => {
            let start = output.len();
            let found = context.read_into(("do_get", key), (output, start), |output, entry| {
                reply::value(output, entry.value);
            })?;
            context.counters.count(Count::Get);
            if let Ok(None) = found {
                context.miss("do_get", Count::GetMiss);
            }
            match found {
                Ok(Some(())) => return Ok(Next::GoOn),
                _ => false,
            }
        }
        Request::Put { key, value } => {
            let value = table::value_to_put(context, value);
            let stored = context.attempt_write("do_put", database.put(key, value))?.is_ok();
            stores(context, Count::Put, stored)
        }
        Request::PutNoReply { key, value } => {
            let value = table::value_to_put(context, value);
            let stored = context.attempt_write("do_putnr", database.put(key, value))?.is_ok();
            stores(context, Count::PutNoReply, stored);
            return Ok(Next::GoOn);
        }
        Request::PutKeep { key, value } => {
            let value = table::value_to_put(context, value);
            let stored = database.put_keep(key, value, Meta::NONE);
            let stored = context.attempt_write("do_putkeep", stored)?;
            if let Ok(false) = stored {
                context.fail("do_putkeep", Failure::ExistingRecord);
            }
            stores(context, Count::PutKeep, stored.unwrap_or(false))
        }
        Request::PutCat { key, value } => {
            let value = table::value_to_put(context, value);
            let stored = context.attempt_write("do_putcat", database.put_cat(key, value))?.is_ok();
            stores(context, Count::PutCat, stored)
        }
        Request::PutShift { key, value, width } => {
            let stored = database.put_shift(key, value, width as usize);
            let stored = context.attempt_write("do_putshl", stored)?.is_ok();
            stores(context, Count::PutShift, stored)
        }
        Request::Out { key } => {
            let removed = context.attempt_write("do_out", database.remove(key))?;
            context.counters.count(Count::Out);
            if let Ok(false) = removed {
                context.miss("do_out", Count::OutMiss);
            }
            removed.unwrap_or(false)
        }
        Request::GetMany(keys) => return get_many(context, keys, output),
        Request::ValueSize { key } => {
            let size = context.attempt("do_vsiz", database.value_size(key))?;
            context.counters.count(Count::ValueSize);
            if let Ok(Some(size)) = size {
                reply::size(output, u32::try_from(size).unwrap_or(u32::MAX));
                return Ok(Next::GoOn);
            }
            if let Ok(None) = size {
                context.fail("do_vsiz", Failure::NoRecord);
            }
            false
        }
        Request::IterInit => {
            context.set_cursor(Cursor::start())?;
            context.counters.count(Count::IterInit);
            true
        }
        Request::IterNext => {
            let place = context.next_place("do_iternext")?;
            context.counters.count(Count::IterNext);
            if let Some(place) = place {
                reply::value(output, &place.key);
                return Ok(Next::GoOn);
            }
            false
        }
        Request::KeysWithPrefix { prefix, max } => {
            return keys_with_prefix(context, prefix, max, output);
        }
        Request::AddInt { key, addend } => {
            let sum = context.attempt_write("do_addint", database.add_int(key, addend))?;
            context.counters.count(Count::AddInt);
            if let Ok(sum) = sum {
                reply::sum(output, sum);
                return Ok(Next::GoOn);
            }
            false
        }
        Request::AddDouble { key, integral, fractional } => {
            let addend = double_from_parts(integral, fractional);
            let next = add_double(context, key, addend, output)?;
            context.counters.count(Count::AddDouble);
            return Ok(next);
        }
        Request::Sync => {
            context.wait()?;
            context.counters.count(Count::Sync);
            context.attempt("do_sync", database.sync())?.is_ok()
        }
        Request::Optimize { parameters } => {
            context.wait()?;
            context.counters.count(Count::Optimize);
            let tuning = String::from_utf8_lossy(parameters);
            context.attempt("do_optimize", database.retune(&tuning))?.is_ok()
        }
        Request::Vanish => {
            context.wait()?;
            context.counters.count(Count::Vanish);
            context.attempt_write("do_vanish", database.clear())?.is_ok()
        }
        Request::Copy { path } => {
            context.wait()?;
            context.counters.count(Count::Copy);
            let copied = snapshot::copy(context.shared, database, path);
            context.attempt("do_copy", copied)?.is_ok()
        }
        Request::Count => {
            context.counters.count(Count::Records);
            reply::count(output, database.len());
            return Ok(Next::GoOn);
        }
        Request::Size => {
            context.counters.count(Count::Size);
            reply::count(output, database.size_bytes());
            return Ok(Next::GoOn);
        }
        Request::Stat => {
            context.counters.count(Count::Stat);
            reply::value(output, server_stats::text(context.shared, context.descriptor).as_bytes());
            return Ok(Next::GoOn);
        }
        Request::Misc { function, options, arguments } => {
            let logged = context.database;
            if options & NOT_LOGGED != 0 {
                context.database = context.shared.unlogged(context.may_block);
            }
            let next = call_misc(context, function, arguments, output);
            context.database = logged;
            return next;
        }
        Request::Ext { .. } => {
            context.counters.count(Count::Ext);
            context.fail("do_ext", Failure::Invalid);
            false
        }
        Request::Restore { path, timestamp_us, options } => {
            context.wait()?;
            context.counters.count(Count::Restore);
            if context.attempt("do_restore", context.shared.gate.pass())?.is_err() {
                reply::status(output, false);
                return Ok(Next::GoOn);
            }
            let given = Path::new(std::ffi::OsStr::from_bytes(path));
            let path = context.shared.config.client_paths.present_path("restore", given);
            let Ok(path) = context.attempt("do_restore", path)? else {
                reply::status(output, false);
                return Ok(Next::GoOn);
            };
            let check = replication::checks(options);
            let restored = replication::restore(context.shared, &path, timestamp_us, check);
            context.mutated = true;
            if !restored {
                context.fail("do_restore", Failure::Miscellaneous);
            }
            restored
        }
        Request::SetMaster { host, port, timestamp_us, options } => {
            context.wait()?;
            context.counters.count(Count::SetMaster);
            if !context.shared.config.set_master_command {
                tracing::warn!("setmst refused: clients may not set the master");
                context.fail("do_setmst", Failure::NoPermission);
                reply::status(output, false);
                return Ok(Next::GoOn);
            }
            let set = context.shared.replication.set_master(host, port, timestamp_us, options);
            if !set {
                context.fail("do_setmst", Failure::Invalid);
            }
            set
        }
        Request::Replicate { timestamp_us, server_id } => {
            context.counters.count(Count::Replicate);
            let ask = Ask { replica: server_id, from_us: timestamp_us, extended: None };
            return Ok(Next::Replicate(ask));
        }
        Request::Follow { timestamp_us, server_id, options, port } => {
            context.counters.count(Count::Replicate);
            let extended = Extended { options, port: u16::try_from(port).unwrap_or(0) };
            let extended = Some(extended);
            let ask = Ask { replica: server_id, from_us: timestamp_us, extended };
            return Ok(Next::Replicate(ask));
        }
    };
    reply::status(output, done);
    Ok(Next::GoOn)
}

/// Counts a write of a value; answers whether it was stored.
fn stores(context: &mut Context<'_>, count: Count, stored: bool) -> bool {
    context.counters.count(count);
    if !stored {
        context.counters.count(Count::PutMiss);
    }
    stored
}

fn get_many(
    context: &mut Context<'_>,
    keys: Strings<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    let start = output.len();
    let mut list = List::begin(output);
    for (done, key) in Grouped::new(context.database, keys.iter()).enumerate() {
        context.check_inline(done, output.len() - start)?;
        let reply = (&mut *output, start);
        let found = context.read_into(("do_mget", key), reply, |output, entry| {
            list.pair(output, key, entry.value);
        })?;
        // What no database can have is left out, like what is not there.
        if found.is_err() && context.session.has_read_failure {
            output.truncate(start);
            reply::status(output, false);
            context.counters.count(Count::GetMany);
            return Ok(Next::GoOn);
        }
    }
    list.finish(output);
    context.counters.count(Count::GetMany);
    Ok(Next::GoOn)
}

fn keys_with_prefix(
    context: &mut Context<'_>,
    prefix: &[u8],
    max: i32,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    context.wait()?;
    let start = output.len();
    let max = u32::try_from(max).unwrap_or(u32::MAX);
    let mut list = List::begin(output);
    if max > 0 {
        let mut length = Ok(());
        let scanned = for_each_key_like(context.database, prefix, &mut |key| {
            list.string(output, key);
            length = context.check_length(output.len() - start);
            if list.len() < max && length.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        length?;
        let _ = context.attempt("do_fwmkeys", scanned)?;
    }
    list.finish(output);
    context.counters.count(Count::KeysWithPrefix);
    Ok(Next::GoOn)
}

/// The keys that begin with a prefix; where they are ids, those within an interval.
fn for_each_key_like(
    database: &Database,
    prefix: &[u8],
    visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> cabinet::Result<()> {
    match database.as_numbered() {
        None => database.for_each_key_with_prefix(prefix, visit),
        Some(numbered) => match numbered.interval(prefix) {
            Some(ids) => numbered.for_each_key_in(ids, visit),
            None => Ok(()),
        },
    }
}

fn add_double(
    context: &mut Context<'_>,
    key: &[u8],
    addend: f64,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    // Tokyo Tyrant has no other sign of failure than a sum that is not a number.
    if !addend.is_nan() {
        let sum =
            context.attempt_write("do_adddouble", context.database.add_double(key, addend))?;
        if let Ok(sum) = sum
            && !sum.is_nan()
        {
            reply::double(output, sum);
            return Ok(Next::GoOn);
        }
    }
    reply::status(output, false);
    Ok(Next::GoOn)
}

fn call_misc(
    context: &mut Context<'_>,
    function: Function<'_>,
    arguments: Strings<'_>,
    output: &mut Vec<u8>,
) -> Result<Next, Halt> {
    let start = output.len();
    let arguments: Vec<&[u8]> = arguments.iter().collect();
    let mut list = List::begin(output);
    let mut take = |element: &[u8]| {
        list.string(output, element);
        output.len() - start
    };
    if misc::call(context, function, &arguments, &mut take)? {
        list.finish(output);
    } else {
        output.truncate(start);
        reply::misc_failure(output);
    }
    Ok(Next::GoOn)
}

/// The answer to a masked command.
fn refuse(context: &Context<'_>, command: Command, output: &mut Vec<u8>) -> Next {
    use Command as C;
    match command {
        C::PutNoReply => {}
        C::Replicate => return Next::Close,
        C::GetMany | C::KeysWithPrefix | C::Misc => List::begin(output).finish(output),
        C::Count | C::Size => reply::count(output, 0),
        C::Stat => reply::value(output, server_stats::count_lines(context.shared).as_bytes()),
        _ => reply::status(output, false),
    }
    Next::GoOn
}

fn command(request: &Request<'_>) -> Command {
    match request {
        Request::Put { .. } => Command::Put,
        Request::PutKeep { .. } => Command::PutKeep,
        Request::PutCat { .. } => Command::PutCat,
        Request::PutShift { .. } => Command::PutShift,
        Request::PutNoReply { .. } => Command::PutNoReply,
        Request::Out { .. } => Command::Out,
        Request::Get { .. } => Command::Get,
        Request::GetMany(_) => Command::GetMany,
        Request::ValueSize { .. } => Command::ValueSize,
        Request::IterInit => Command::IterInit,
        Request::IterNext => Command::IterNext,
        Request::KeysWithPrefix { .. } => Command::KeysWithPrefix,
        Request::AddInt { .. } => Command::AddInt,
        Request::AddDouble { .. } => Command::AddDouble,
        Request::Ext { .. } => Command::Ext,
        Request::Sync => Command::Sync,
        Request::Optimize { .. } => Command::Optimize,
        Request::Vanish => Command::Vanish,
        Request::Copy { .. } => Command::Copy,
        Request::Restore { .. } => Command::Restore,
        Request::SetMaster { .. } => Command::SetMaster,
        Request::Count => Command::Count,
        Request::Size => Command::Size,
        Request::Stat => Command::Stat,
        Request::Misc { .. } => Command::Misc,
        Request::Replicate { .. } | Request::Follow { .. } => Command::Replicate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::ops::session::Session;
    use crate::shared::Shared;

    /// What has been looked at is overwritten with what would end the connection, if it were
    /// looked at again.
    #[test]
    fn a_list_that_arrives_in_pieces_is_gone_through_once() {
        let database = Database::open("*").expect("a database in memory");
        let shared = Shared::new(Config::default(), database).expect("a server's state");
        let counters = shared.new_counters();
        let mut session = Session::default();
        let mut output = Vec::new();
        let mut execute = |input: &[u8]| {
            let mut context = Context {
                shared: &shared,
                database: &shared.database,
                may_block: true,
                counters: &counters,
                session: &mut session,
                descriptor: 0,
                mutated: false,
                charge: None,
                is_repeated: false,
            };
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
