//! The functions of `misc` that go otherwise, or that there are only, in a table.

use super::misc::Take;
use super::{Context, Halt};
use crate::ops::failure::Failure;
use crate::store::Store;
use crate::update_log::Scope;
use cabinet::Meta;
use cabinet::name::Kind;
use cabinet::table::{IndexChange, Row, SearchRequest, Table};
use wire::binary::Function;

/// The value that a put of the binary protocol stores.
///
/// In a table, Tokyo Tyrant drops a name without a value behind the last column, and so does this.
/// It also drops one that is all there is, so that nothing is stored; here that is a failure,
/// unless another server has logged it.
#[inline]
pub(super) fn value_to_put<'v>(context: &Context<'_>, value: &'v [u8]) -> &'v [u8] {
    if context.shared.kind != Some(Kind::Table) {
        return value;
    }
    let is_even = value.iter().filter(|byte| **byte == 0).count() % 2 == 1;
    match value.iter().rposition(|byte| *byte == 0) {
        Some(end) if !is_even => &value[..end],
        None if context.is_repeated => b"",
        _ => value,
    }
}

/// Calls a function, if it is one of these; answers whether it succeeded.
pub(super) fn call(
    context: &mut Context<'_>,
    table: &Table,
    function: Function<'_>,
    arguments: &[&[u8]],
    take: Take<'_>,
) -> Result<Option<bool>, Halt> {
    let done = match (function, arguments) {
        (Function::Put, [key, columns @ ..]) => {
            let record = |store: &Store, value: &[u8]| store.put(key, value).map(|_| true);
            let row = |key: &[u8], row: &Row| table.put(key, row).map(|()| true);
            store(context, "do_misc: put", (table, function, key, columns), record, row)?.is_some()
        }
        (Function::PutCat, [key, columns @ ..]) => {
            let record = |store: &Store, value: &[u8]| store.put_cat(key, value).map(|()| true);
            let row = |key: &[u8], row: &Row| table.put_cat(key, row).map(|()| true);
            store(context, "do_misc: putcat", (table, function, key, columns), record, row)?
                .is_some()
        }
        (Function::PutKeep, [key, columns @ ..]) => {
            let record = |store: &Store, value: &[u8]| store.put_keep(key, value, Meta::NONE);
            let row = |key: &[u8], row: &Row| table.put_keep(key, row);
            let operation = "do_misc: putkeep";
            let stored = store(context, operation, (table, function, key, columns), record, row)?;
            if stored == Some(false) {
                context.fail(operation, Failure::ExistingRecord);
            }
            stored.unwrap_or(false)
        }
        (Function::Get, [key, ..]) => get(context, key, take)?,
        (Function::SetIndex, [_, _, ..])
            if arguments.len().is_multiple_of(2) || context.is_repeated =>
        {
            set_indices(context, table, arguments)?
        }
        (Function::Search | Function::MetaSearch, _) => search(context, table, arguments, take)?,
        (Function::GenerateUid, _) => {
            context.wait()?;
            let uid = context.database.generate_uid(table);
            let uid = context.attempt_write("do_misc: genuid", uid)?;
            if let Ok(uid) = &uid {
                take(uid.to_string().as_bytes());
            }
            uid.is_ok()
        }
        _ => return Ok(None),
    };
    Ok(Some(done))
}

/// Stores a row: as any record, where its columns can be joined, which may not have to wait;
/// otherwise as a row, by `function`. Says whether it was stored, or `None` if it failed.
fn store(
    context: &mut Context<'_>,
    operation: &'static str,
    (table, function, key, columns): (&Table, Function<'_>, &[u8], &[&[u8]]),
    record: impl FnOnce(&Store, &[u8]) -> cabinet::Result<bool>,
    row: impl FnOnce(&[u8], &Row) -> cabinet::Result<bool>,
) -> Result<Option<bool>, Halt> {
    // Tokyo Tyrant drops a last name without a value; a client is told.
    let is_even = columns.len().is_multiple_of(2);
    let columns = match columns {
        [whole @ .., _] if !is_even && context.is_repeated => whole,
        columns => columns,
    };
    // No column and one without a name and value would be joined to the same.
    let is_plain = columns.len() != 1 && columns.iter().all(|part| !part.contains(&0));
    let stored = if is_plain {
        record(context.database, &columns.join(&0))
    } else {
        context.wait()?;
        let store = context.database;
        Row::from_parts(columns.iter().copied()).and_then(|parts| {
            // The next identifier in place of an empty key.
            let key = match key {
                b"" => store.generate_uid(table)?.to_string().into_bytes(),
                key => key.to_vec(),
            };
            let arguments = [&[&key[..]], columns].concat();
            let stored = |stored: &bool| *stored;
            store.function(Scope::Key(&key), function, &arguments, stored, || row(&key, &parts))
        })
    };
    Ok(context.attempt_write(operation, stored)?.ok())
}

/// Names and values of a row in turn.
fn get(context: &mut Context<'_>, key: &[u8], take: Take<'_>) -> Result<bool, Halt> {
    let mut length = 0;
    let found = context.database.read_row(key, |row| {
        for (name, value) in row.columns() {
            take(name);
            length = take(value);
        }
    });
    let found = context.attempt("do_misc: get", found)?;
    context.check_length(length)?;
    if let Ok(None) = found {
        context.fail("do_misc: get", Failure::NoRecord);
    }
    Ok(found.is_ok_and(|found| found.is_some()))
}

/// Bytes of a kind of index that is not understood, as far as an error shows it.
const SHOWN_KIND_BYTES_MAX: usize = 40;

fn set_indices(
    context: &mut Context<'_>,
    table: &Table,
    arguments: &[&[u8]],
) -> Result<bool, Halt> {
    context.wait()?;
    let mut changes = Vec::new();
    for [column, kind] in arguments.as_chunks::<2>().0 {
        let Some(change) = IndexChange::parse(kind) else {
            let shown = &kind[..kind.len().min(SHOWN_KIND_BYTES_MAX)];
            let reason = format!("there is no index \"{}\"", shown.escape_ascii());
            context.fail_because("do_misc: setindex", reason);
            return Ok(false);
        };
        changes.push((column, kind, change));
    }
    for (column, kind, change) in changes {
        let set = || table.set_index(column, change);
        let arguments = [*column, *kind];
        let set = context.database.function(
            Scope::Nothing,
            Function::SetIndex,
            &arguments,
            |_| true,
            set,
        );
        if context.attempt_write("do_misc: setindex", set)?.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn search(
    context: &mut Context<'_>,
    table: &Table,
    arguments: &[&[u8]],
    take: Take<'_>,
) -> Result<bool, Halt> {
    context.wait()?;
    let mut request = SearchRequest::parse(arguments.iter().copied());
    if context.is_repeated {
        request.flaw = None;
    }
    let answer = if request.out {
        let answer = context.database.search_out(table, &request);
        context.attempt_write("do_misc: search", answer)?
    } else {
        context.attempt("do_misc: search", table.answer(&request))?
    };
    let Ok(answer) = answer else { return Ok(false) };
    for element in &answer.elements {
        context.check_length(take(element))?;
    }
    Ok(true)
}
