//! Commands on HyperLogLogs, which are values in Redis's form.

use super::bits::examine;
use super::transaction::{atomically, check_keys};
use super::{Decision, Failed, Found, SYNTAX, change_checked, find_checked, reply};
use crate::counters::Count;
use crate::ops::conditional::{Action, Presence, Write};
use crate::ops::execute::NoReply;
use crate::ops::operation::Operation;
use crate::protocol::{Context, Halt};
use cabinet::Meta;
use wire::redis::Arguments;
use wire::redis::hyperloglog::{Sketch, SketchError, Union, estimate, is_slow};

/// Most strings of a request that an event loop executes: each takes some 10 microseconds.
const INLINE_STRINGS_MAX: usize = 32;

/// Leaves a request of many or long strings to a thread that may wait.
fn wait_if_long(context: &Context<'_>, arguments: Arguments<'_>) -> Result<(), Halt> {
    match arguments.len() <= INLINE_STRINGS_MAX {
        true => super::wait_if_long(context, arguments).map(|_| ()),
        false => context.wait(),
    }
}

/// Executes `PFADD`.
pub(super) fn add(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let ([key], elements) = arguments.split().ok_or(SYNTAX)?;
    wait_if_long(context, arguments)?;
    context.tally.count(Count::Put);
    let width = width(context);
    let mut is_changed = false;
    let check = check(context);
    change_checked(context, key, check, |_, found| {
        let (mut sketch, meta) = sketch_of(found)?;
        is_changed = found.is_none();
        elements.clone().for_each(|element| is_changed |= sketch.add(element));
        match is_changed {
            true => Ok(Decision::Put(whole(sketch, width)?, meta)),
            false => Ok(Decision::Keep),
        }
    })?;
    reply::integer(output, is_changed.into());
    Ok(())
}

/// Executes `PFCOUNT`. The estimate is not stored, so that it needs no right to write.
pub(super) fn count(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    wait_if_long(context, arguments)?;
    let estimate = match arguments.exactly() {
        Some([key]) => {
            context.tally.count(Count::Get);
            examine(context, key, estimate)?.transpose().map_err(failure)?.unwrap_or(0)
        }
        None => union_of(context, arguments)?.estimate(),
    };
    reply::integer(output, estimate.cast_signed());
    Ok(())
}

/// Executes `PFMERGE`.
pub(super) fn merge(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let ([key], _) = arguments.split().ok_or(SYNTAX)?;
    check_keys(context, arguments.iter())?;
    wait_if_long(context, arguments)?;
    atomically(context, |context| {
        let union = union_of(context, arguments)?;
        let (mut sketch, meta) = sketch_of(find_checked(context, key, check(context))?.as_ref())?;
        sketch.merge(&union);
        let value = whole(sketch, width(context))?;
        context.tally.count(Count::Put);
        let write = Write::new(key, Action::put(Presence::Any, value.as_slice(), meta));
        context.execute(&Operation::Write(write), &mut NoReply)??;
        Ok(())
    })?;
    reply::simple(output, "OK");
    Ok(())
}

/// Returns a function that fails for what is no HyperLogLog by its header, and on a thread that
/// must not wait, for one that takes long to change.
fn check(context: &Context<'_>) -> impl Fn(&[u8]) -> Result<(), Failed> + use<> {
    let may_block = context.may_block;
    move |value| match is_slow(value).map_err(failure)? {
        true if !may_block => Err(Halt::Blocked.into()),
        _ => Ok(()),
    }
}

/// Returns the value of a record, or one without elements, and its flags and expiry.
fn sketch_of(found: Option<&Found>) -> Result<(Sketch, Meta), Failed> {
    let Some(found) = found else { return Ok((Sketch::default(), Meta::NONE)) };
    let sketch = Sketch::try_from(found.value.clone()).map_err(failure)?;
    Ok((sketch, found.meta))
}

/// Returns the bytes to which a fixed-length database cuts values.
fn width(context: &Context<'_>) -> Option<u64> {
    context.shared.served.database.as_numbered().map(|numbered| numbered.width())
}

/// Returns a value to store. Fails if the database would cut it, so that nothing is left of it.
fn whole(sketch: Sketch, width: Option<u64>) -> Result<Vec<u8>, Failed> {
    let value = Vec::from(sketch);
    match width.filter(|width| value.len() as u64 > *width) {
        None => Ok(value),
        Some(width) => Err(Failed::Text(format!(
            "ERR a HyperLogLog of {} bytes is over the width of this database, {width}",
            value.len()
        ))),
    }
}

/// Returns the union of the values of keys.
fn union_of(context: &mut Context<'_>, keys: Arguments<'_>) -> Result<Union, Failed> {
    let mut union = Union::default();
    for key in keys.iter() {
        context.tally.count(Count::Get);
        examine(context, key, |value| union.add(value))?.transpose().map_err(failure)?;
    }
    Ok(union)
}

/// Returns the error for a value that is not a HyperLogLog.
fn failure(error: SketchError) -> Failed {
    match error {
        SketchError::OtherValue => "WRONGTYPE Key is not a valid HyperLogLog string value.".into(),
        SketchError::Corrupted => "INVALIDOBJ Corrupted HLL object detected".into(),
    }
}
