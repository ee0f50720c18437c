//! The versatile functions of `misc`, called through the binary protocol and through HTTP.

use super::{Context, Halt, functions, leading_number, table, tree};
use crate::admin::scrub;
use crate::counters::Count;
use crate::ops::failure::Failure;
use crate::ops::session::{Cursor, Place};
use crate::update_log::Spread;
use cabinet::{Entry, Meta, Numbered, Position};
use std::ops::ControlFlow;
use wire::binary::Function;

/// Takes an element of the result; answers the length of the reply so far, in bytes.
pub(super) type Take<'t> = &'t mut dyn FnMut(&[u8]) -> usize;

/// Calls a function; answers whether it succeeded. What it gave to `take` before it failed does
/// not count.
pub(super) fn call(
    context: &mut Context<'_>,
    function: Function<'_>,
    arguments: &[&[u8]],
    take: Take<'_>,
) -> Result<bool, Halt> {
    let done = execute(context, function, arguments, take)?;
    context.counters.count(Count::Misc);
    Ok(done)
}

fn execute(
    context: &mut Context<'_>,
    function: Function<'_>,
    arguments: &[&[u8]],
    take: Take<'_>,
) -> Result<bool, Halt> {
    if !functions::exists(function, context.shared.kind) {
        context.fail("do_misc", Failure::Invalid);
        return Ok(false);
    }
    let database = context.database;
    // What goes otherwise in a kind of database, or is only there.
    let done = if let Some(table) = database.table() {
        table::call(context, table, function, arguments, take)?
    } else if database.has_duplicates() {
        tree::call(context, function, arguments, take)?
    } else {
        None
    };
    if let Some(done) = done {
        return Ok(done);
    }
    match (function, arguments) {
        // The columns of a row, of which all but the first name would be lost.
        (Function::Put | Function::PutKeep | Function::PutCat, [_, _, _, ..])
            if !context.is_repeated =>
        {
            context.fail_because("do_misc", "a row with columns can be stored in a table only");
            Ok(false)
        }
        (Function::Put, [key, value, ..]) => {
            Ok(context.attempt_write("do_misc: put", database.put(key, value))?.is_ok())
        }
        (Function::PutKeep, [key, value, ..]) => {
            let stored = database.put_keep(key, value, Meta::NONE);
            let stored = context.attempt_write("do_misc: putkeep", stored)?;
            if let Ok(false) = stored {
                context.fail("do_misc: putkeep", Failure::ExistingRecord);
            }
            Ok(stored.unwrap_or(false))
        }
        (Function::PutCat, [key, value, ..]) => {
            Ok(context.attempt_write("do_misc: putcat", database.put_cat(key, value))?.is_ok())
        }
        (Function::Out, [key, ..]) => {
            let removed = context.attempt_write("do_misc: out", database.remove(key))?;
            if let Ok(false) = removed {
                context.fail("do_misc: out", Failure::NoRecord);
            }
            Ok(removed.unwrap_or(false))
        }
        (Function::Get, [key, ..]) => {
            let found = database.read(key, |entry| {
                // Before it is copied.
                context.check_length(entry.value.len())?;
                context.check_length(take(entry.value))
            });
            match context.attempt("do_misc: get", found)? {
                Ok(Some(length)) => length.map(|()| true),
                Ok(None) => {
                    context.fail("do_misc: get", Failure::NoRecord);
                    Ok(false)
                }
                Err(_) => Ok(false),
            }
        }
        (Function::GetPart, [key, range @ ..]) => get_part(context, key, range, take),
        (Function::GetList, keys) => get_list(context, keys, take),
        (Function::PutList, pairs) => put_list(context, pairs),
        (Function::OutList, keys) => out_list(context, keys),
        (Function::IterInit, []) => {
            context.set_cursor(Cursor::start())?;
            Ok(true)
        }
        (Function::IterInit, [key, ..]) => {
            context.wait()?;
            let cursor = Cursor::start_at(database, key);
            match context.attempt("do_misc: iterinit", cursor)?.unwrap_or(None) {
                Some(cursor) => context.set_cursor(cursor).map(|()| true),
                None => {
                    context.fail("do_misc: iterinit", Failure::NoRecord);
                    Ok(false)
                }
            }
        }
        (Function::IterNext, _) => iter_next(context, take),
        (Function::Sync, _) => {
            context.wait()?;
            Ok(context.attempt("do_misc: sync", database.sync())?.is_ok())
        }
        (Function::Optimize, arguments) => {
            context.wait()?;
            let tuning = String::from_utf8_lossy(arguments.first().copied().unwrap_or_default());
            Ok(context.attempt("do_misc: optimize", database.retune(&tuning))?.is_ok())
        }
        (Function::Vanish, _) => {
            context.wait()?;
            Ok(context.attempt_write("do_misc: vanish", database.clear())?.is_ok())
        }
        (Function::Error, _) => {
            let failure =
                context.session.last_failure.or_else(|| context.shared.last_failure.get());
            let mut text = Failure::text(failure);
            if let (Some(Failure::NoPermission), Some(reason)) =
                (failure, context.shared.gate.reason())
            {
                text.push_str(": ");
                text.push_str(&reason);
            }
            if let Some(reason) = &context.session.last_reason {
                text.push_str(": ");
                text.push_str(reason);
            }
            take(text.as_bytes());
            Ok(true)
        }
        (Function::Promote, _) => {
            context.wait()?;
            let Some(promoted) = context.shared.replication.promote() else {
                context.fail("do_misc: promote", Failure::Invalid);
                return Ok(false);
            };
            take(promoted.master.to_string().as_bytes());
            take(promoted.position_us.to_string().as_bytes());
            Ok(true)
        }
        (Function::Replication, [wire::replication::IDENTITY]) => {
            let log = context.shared.update_log.as_ref();
            Ok(log
                .and_then(|log| log.identity())
                .map(|identity| take(identity.as_bytes()))
                .is_some())
        }
        (Function::Replication, [wire::replication::ROOTS]) => {
            take(Spread::of(context.database).name().as_bytes());
            Ok(true)
        }
        (Function::Check, arguments) => check(context, arguments, take),
        (Function::Replication, _) => {
            take(wire::replication::VERSION);
            Ok(true)
        }
        // Compaction and the cache look after themselves.
        (Function::Defragment | Function::ClearCache, _) => Ok(true),
        (Function::Regex, [pattern, max @ ..]) => {
            regex(context, pattern, maximum(max.first()), take)
        }
        (Function::Range, arguments) => match database.as_numbered() {
            Some(numbered) => range_of_ids(context, numbered, arguments, take),
            None => range(context, arguments, take),
        },
        // Arguments are missing.
        _ => {
            context.fail("do_misc", Failure::Invalid);
            Ok(false)
        }
    }
}

/// Begins, describes or stops a verification of all checksums.
fn check(context: &mut Context<'_>, arguments: &[&[u8]], take: Take<'_>) -> Result<bool, Halt> {
    let scrub = &context.shared.scrub;
    let number = |text: &[u8]| u64::try_from(leading_number(text)).ok().filter(|rate| *rate > 0);
    match arguments {
        [b"start"] => {
            take(scrub.begin(scrub::CHECK_BYTES_PER_SECOND).to_string().as_bytes());
            Ok(true)
        }
        [b"start", rate] if number(rate).is_some() => {
            let rate = number(rate).unwrap_or(scrub::CHECK_BYTES_PER_SECOND);
            take(scrub.begin(rate).to_string().as_bytes());
            Ok(true)
        }
        [b"state", from @ ..] => {
            let from = from.first().map_or(0, |text| leading_number(text));
            let from = usize::try_from(from).unwrap_or(0);
            scrub.report(from, |element| {
                take(element.as_bytes());
            });
            Ok(true)
        }
        [b"stop"] => Ok(scrub.stop()),
        _ => {
            context.fail("do_misc: check", Failure::Invalid);
            Ok(false)
        }
    }
}

/// A most number of records as Tokyo Tyrant reads it: below 1 is all.
fn maximum(argument: Option<&&[u8]>) -> usize {
    match argument.map_or(0, |text| leading_number(text)) {
        max if max < 1 => usize::MAX,
        max => usize::try_from(max).unwrap_or(usize::MAX),
    }
}

fn get_part(
    context: &mut Context<'_>,
    key: &[u8],
    range: &[&[u8]],
    take: Take<'_>,
) -> Result<bool, Halt> {
    let number =
        |index: usize, default| range.get(index).map_or(default, |text| leading_number(text));
    let start = usize::try_from(number(0, 0)).unwrap_or(0);
    let length = usize::try_from(number(1, -1)).unwrap_or(usize::MAX);
    let found = context.database.read(key, |entry| {
        let part = entry.value.get(start..).filter(|part| !part.is_empty());
        part.map(|part| take(&part[..part.len().min(length)]))
    });
    match context.attempt("do_misc: getpart", found)?.unwrap_or(None) {
        Some(Some(length)) => context.check_length(length).map(|()| true),
        Some(None) => Ok(false),
        None => {
            context.fail("do_misc: getpart", Failure::NoRecord);
            Ok(false)
        }
    }
}

fn get_list(context: &mut Context<'_>, keys: &[&[u8]], take: Take<'_>) -> Result<bool, Halt> {
    let mut bytes = 0;
    for (done, key) in keys.iter().enumerate() {
        context.check_inline(done, bytes)?;
        let found = context.database.read(key, |entry| {
            context.check_length(bytes + entry.value.len())?;
            take(key);
            bytes = take(entry.value);
            context.check_length(bytes)
        });
        let Ok(found) = context.attempt("do_misc: getlist", found)? else { return Ok(false) };
        found.transpose()?;
    }
    Ok(true)
}

fn put_list(context: &mut Context<'_>, pairs: &[&[u8]]) -> Result<bool, Halt> {
    let pairs = pairs.as_chunks::<2>().0;
    context.wait_before_changing(pairs.len())?;
    for [key, value] in pairs {
        let value = table::value_to_put(context, value);
        if context.attempt_write("do_misc: putlist", context.database.put(key, value))?.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn out_list(context: &mut Context<'_>, keys: &[&[u8]]) -> Result<bool, Halt> {
    context.wait_before_changing(keys.len())?;
    for key in keys {
        if context.attempt_write("do_misc: outlist", context.database.remove(key))?.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn iter_next(context: &mut Context<'_>, take: Take<'_>) -> Result<bool, Halt> {
    // Taking a key off the iterator cannot be taken back, so nothing may block after it.
    context.wait()?;
    while let Some(Place { key, duplicate }) = context.next_place("do_misc: iternext")? {
        let mut show = |entry: Entry<'_>| {
            take(&key);
            take(entry.value)
        };
        let found = if duplicate > 0 {
            context.database.read_duplicate(&key, duplicate, &mut show)
        } else {
            context.database.read(&key, &mut show)
        };
        match context.attempt("do_misc: iternext", found)? {
            Ok(Some(length)) => return context.check_length(length).map(|()| true),
            // The record has gone since the key was read ahead.
            Ok(None) => {}
            Err(_) => return Ok(false),
        }
    }
    Ok(false)
}

/// Records that a scan has found.
struct Taken {
    found: usize,
    max: usize,
    /// Whether they are within what a reply may hold.
    length: Result<(), Halt>,
}

impl Taken {
    fn up_to(max: usize) -> Self {
        Self { found: 0, max, length: Ok(()) }
    }

    /// Takes the next one; breaks if it is the last that is wanted, or the reply is too long.
    fn record(
        &mut self,
        context: &mut Context<'_>,
        entry: &Entry<'_>,
        take: Take<'_>,
    ) -> ControlFlow<()> {
        take(entry.key);
        self.length = context.check_length(take(entry.value));
        self.found += 1;
        if self.found < self.max && self.length.is_ok() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

fn regex(
    context: &mut Context<'_>,
    pattern: &[u8],
    max: usize,
    take: Take<'_>,
) -> Result<bool, Halt> {
    context.wait()?;
    let mut taken = Taken::up_to(max);
    let scanned =
        context.database.for_each_match(pattern, |entry| taken.record(context, &entry, take));
    taken.length?;
    Ok(context.attempt("do_misc: regex", scanned)?.is_ok())
}

/// Records from a key on, until another: only where keys are in order.
fn range(context: &mut Context<'_>, arguments: &[&[u8]], take: Take<'_>) -> Result<bool, Halt> {
    let begin = arguments.first().copied().unwrap_or_default();
    let max = maximum(arguments.get(1));
    let end = arguments.get(2).copied();
    let database = context.database;
    let Some(order) = database.order() else {
        context.fail("do_misc: range", Failure::Invalid);
        return Ok(false);
    };
    let mut position = if begin.is_empty() { Position::Start } else { database.position_of(begin) };
    context.wait()?;
    let mut length = Ok(());
    let mut found = 0;
    let mut is_over = false;
    while !is_over {
        let next = database.scan(&position, |entry| {
            is_over |= found >= max
                || length.is_err()
                || end.is_some_and(|end| order.compare(entry.key, end).is_ge());
            if !is_over {
                take(entry.key);
                length = context.check_length(take(entry.value));
                found += 1;
            }
        });
        match context.attempt("do_misc: range", next)? {
            Ok(Some(next)) => position = next,
            Ok(None) => break,
            Err(_) => return Ok(false),
        }
    }
    length.map(|()| true)
}

/// Records from an id on, until another. Nothing begins at what is no id, and what has no digits
/// ends nothing.
fn range_of_ids(
    context: &mut Context<'_>,
    numbered: &dyn Numbered,
    arguments: &[&[u8]],
    take: Take<'_>,
) -> Result<bool, Halt> {
    let first = arguments.first().map_or(Some(1), |begin| numbered.id(begin));
    let Some(first) = first else { return Ok(true) };
    let max = maximum(arguments.get(1));
    let end = arguments.get(2).filter(|end| end.iter().any(u8::is_ascii_digit));
    let last = end.and_then(|end| numbered.id(end)).map_or(u64::MAX, |end| end - 1);
    context.wait()?;
    let mut taken = Taken::up_to(max);
    let scanned =
        numbered.for_each_in(first..=last, &mut |entry| taken.record(context, &entry, take));
    taken.length?;
    Ok(context.attempt("do_misc: range", scanned)?.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::ops::session::Session;
    use crate::shared::Shared;
    use cabinet::Database;
    use std::sync::Arc;

    /// A server's state over a database in a folder.
    fn shared(folder: &std::path::Path, name: &str) -> Arc<Shared> {
        let name = folder.join(name).display().to_string();
        let database = Database::open(&name).expect("a database");
        Shared::new(Config::default(), database).expect("a server's state")
    }

    /// Calls a function as an event loop does, or as a thread does that may wait.
    fn run(
        shared: &Shared,
        may_block: bool,
        name: &[u8],
        arguments: &[&[u8]],
    ) -> Result<bool, Halt> {
        let mut context = Context {
            shared,
            database: if may_block { &shared.database } else { &shared.nonblocking },
            may_block,
            counters: &shared.new_counters(),
            session: &mut Session::default(),
            descriptor: 0,
            mutated: false,
            charge: None,
            is_repeated: false,
        };
        call(&mut context, Function::from_name(name), arguments, &mut |element| element.len())
    }

    #[test]
    fn a_list_of_duplicates_is_added_once_where_the_loop_must_not_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let shared = shared(folder.path(), "casket.tcb");
        let pairs: [&[u8]; 4] = [b"a", b"1", b"a", b"2"];
        assert_eq!(run(&shared, false, b"putlist", &pairs), Err(Halt::Blocked));
        assert_eq!(shared.database.len(), 0);
        assert_eq!(run(&shared, true, b"putlist", &pairs), Ok(true));
        assert_eq!(shared.database.get_all(b"a").expect("values"), [b"1", b"2"]);
    }

    #[test]
    fn a_list_is_begun_only_where_it_can_be_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let shared = shared(folder.path(), "casket.tcf");
        // Each is a new record.
        let pairs: [&[u8]; 4] = [b"next", b"1", b"next", b"2"];
        assert_eq!(run(&shared, false, b"putlist", &pairs[..2]), Ok(true));
        assert_eq!(run(&shared, false, b"putlist", &pairs), Err(Halt::Blocked));
        assert_eq!(shared.database.len(), 1);
        assert_eq!(run(&shared, true, b"putlist", &pairs), Ok(true));
        assert_eq!(shared.database.len(), 3);
        assert_eq!(run(&shared, false, b"outlist", &[b"1", b"2"]), Err(Halt::Blocked));
        assert_eq!(shared.database.len(), 3);
        assert_eq!(run(&shared, false, b"outlist", &[b"1"]), Ok(true));
        assert_eq!(shared.database.len(), 2);
    }

    #[test]
    fn a_row_that_has_to_wait_takes_one_identifier() {
        let folder = tempfile::tempdir().expect("a folder");
        let shared = shared(folder.path(), "casket.tct");
        for name in [&b"put"[..], b"putkeep", b"putcat"] {
            assert_eq!(run(&shared, false, name, &[b"", b"a", b"1"]), Err(Halt::Blocked));
            assert_eq!(run(&shared, true, name, &[b"", b"a", b"1"]), Ok(true));
        }
        assert_eq!(shared.database.table().expect("a table").last_uid(), 3);
    }
}
