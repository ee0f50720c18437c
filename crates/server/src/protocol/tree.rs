//! The functions of `misc` that go otherwise, or that there are only, where a key may have several
//! values.

use super::misc::Take;
use super::{Context, Halt};
use crate::ops::failure::Failure;
use cabinet::Side;
use wire::binary::Function;

/// Calls a function, if it is one of these; answers whether it succeeded.
pub(super) fn call(
    context: &mut Context<'_>,
    function: Function<'_>,
    arguments: &[&[u8]],
    take: Take<'_>,
) -> Result<Option<bool>, Halt> {
    let done = match (function, arguments) {
        (Function::PutDuplicate, [key, value, ..]) => {
            put(context, "do_misc: putdup", key, value, Side::After)?
        }
        (Function::PutDuplicateBack, [key, value, ..]) => {
            put(context, "do_misc: putdupback", key, value, Side::Before)?
        }
        (Function::Get, [key, ..]) => {
            let values = get_all(context, "do_misc: get", key)?;
            for value in values.iter().flatten() {
                context.check_length(take(value))?;
            }
            if values.as_ref().is_some_and(Vec::is_empty) {
                context.fail("do_misc: get", Failure::NoRecord);
            }
            values.is_some_and(|values| !values.is_empty())
        }
        (Function::GetList, keys) => get_list(context, keys, take)?,
        (Function::PutList, pairs) => put_list(context, pairs)?,
        (Function::OutList, keys) => out_list(context, keys)?,
        _ => return Ok(None),
    };
    Ok(Some(done))
}

fn put(
    context: &mut Context<'_>,
    operation: &'static str,
    key: &[u8],
    value: &[u8],
    side: Side,
) -> Result<bool, Halt> {
    let stored = context.database.put_duplicate(key, value, side);
    Ok(context.attempt_write(operation, stored)?.is_ok())
}

/// All values of a key, or `None` if that failed.
fn get_all(
    context: &mut Context<'_>,
    operation: &'static str,
    key: &[u8],
) -> Result<Option<Vec<Vec<u8>>>, Halt> {
    Ok(context.attempt(operation, context.database.get_all(key))?.ok())
}

/// Each value behind its key.
fn get_list(context: &mut Context<'_>, keys: &[&[u8]], take: Take<'_>) -> Result<bool, Halt> {
    let mut bytes = 0;
    for (done, key) in keys.iter().enumerate() {
        context.check_inline(done, bytes)?;
        let Some(values) = get_all(context, "do_misc: getlist", key)? else { return Ok(false) };
        for value in &values {
            take(key);
            bytes = take(value);
            context.check_length(bytes)?;
        }
    }
    Ok(true)
}

/// Adds values beside those that the keys have.
fn put_list(context: &mut Context<'_>, pairs: &[&[u8]]) -> Result<bool, Halt> {
    let pairs = pairs.as_chunks::<2>().0;
    context.wait_before_changing(pairs.len())?;
    for [key, value] in pairs {
        if !put(context, "do_misc: putlist", key, value, Side::After)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes all values of the keys.
fn out_list(context: &mut Context<'_>, keys: &[&[u8]]) -> Result<bool, Halt> {
    context.wait_before_changing(keys.len())?;
    for key in keys {
        let removed = context.database.remove_all(key);
        if context.attempt_write("do_misc: outlist", removed)?.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}
