//! A record as log operations: the operations that restore it, whatever a replica has under its
//! key.

use crate::store::view::View;
use crate::store::{put_request, strings};
use cabinet::Result;
use wire::binary::{Function, Request};

/// Bytes of values above which further values go into another operation.
const LIST_BYTES: usize = 1 << 20;

/// Calls `take` with each operation in turn, or with a removal if the record is absent. The caller
/// keeps other threads from changing the record meanwhile.
pub(crate) fn record_operations(
    database: &View,
    key: &[u8],
    take: &mut dyn FnMut(Request<'_>),
) -> Result<()> {
    if database.has_duplicates() {
        removal(key, take)?;
        // Clients see flags and expiry of the first value only, and those of other values cannot be
        // read.
        let first = database.read(key, |entry| {
            put_request(key, entry.value, entry.meta, &mut *take);
            entry.value.to_vec()
        })?;
        let values = database.get_all(key)?;
        // The first value may have expired meanwhile.
        let is_there = first.is_some() && first.as_ref() == values.first();
        let mut rest = &values[usize::from(is_there)..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let over = rest.iter().position(|value| {
                bytes += key.len() + value.len();
                bytes > LIST_BYTES
            });
            let (part, after) = rest.split_at(over.unwrap_or(rest.len()).max(1));
            rest = after;
            let pairs: Vec<&[u8]> = part.iter().flat_map(|value| [key, value]).collect();
            call(Function::PutList, &pairs, take)?;
        }
        return Ok(());
    }
    if database.has_rows() {
        let mut called = Ok(());
        let row = database.read_row(key, |row| {
            let mut arguments = vec![key];
            row.columns().for_each(|(name, value)| arguments.extend([name, value]));
            called = call(Function::Put, &arguments, take);
        })?;
        return if row.is_some() { called } else { removal(key, take) };
    }
    let found =
        database.read(key, |entry| put_request(key, entry.value, entry.meta, &mut *take))?;
    if found.is_some() { Ok(()) } else { removal(key, take) }
}

/// Calls `take` with an operation that leaves no record of a key, and succeeds also where there was
/// none.
pub(crate) fn removal(key: &[u8], take: &mut dyn FnMut(Request<'_>)) -> Result<()> {
    call(Function::OutList, &[key], take)
}

fn call(
    function: Function<'_>,
    arguments: &[&[u8]],
    take: &mut dyn FnMut(Request<'_>),
) -> Result<()> {
    let strings = strings(arguments)?;
    take(Request::Misc { function, options: 0, arguments: strings.strings() });
    Ok(())
}
