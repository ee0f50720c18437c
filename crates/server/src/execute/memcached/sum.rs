//! incr and decr, of both dialects.

use super::number::Operation;
use super::{conclude, expiry, note};
use crate::counters::Count;
use crate::execute::{Context, Halt, leading_number, or_absent};
use crate::failure::Failure;
use cabinet::{Change, Entry, Meta};
use wire::memcached::reply::{self, NOT_FOUND};

/// incr and decr of the original: on decimal text, never below 0, and on text that is no number
/// from 0.
pub(super) fn add(
    context: &mut Context<'_>,
    key: &[u8],
    add: impl Fn(i64) -> i64,
    noreply: bool,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let sum = context.database.modify(key, |entry| match entry {
        None => (Change::Keep, None),
        Some(entry) => {
            let sum = add(leading_number(entry.value)).max(0);
            (Change::Put(sum.to_string().into_bytes(), entry.meta), Some(sum))
        }
    });
    let sum = or_absent(context.attempt_write("do_mc_incr", sum)?, None);
    context.counters.count(Count::AddInt);
    if let Ok(None) = sum {
        context.fail("do_mc_incr", Failure::NoRecord);
    }
    conclude(output, noreply, sum, |output, sum| match sum {
        Some(sum) => reply::number(output, sum.unsigned_abs()),
        None => output.extend_from_slice(NOT_FOUND),
    });
    Ok(())
}

/// incr and decr of memcached.
pub(super) fn count(
    context: &mut Context<'_>,
    key: &[u8],
    operation: Operation,
    noreply: bool,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let sum = context.database.modify(key, |entry| {
        let Some(entry) = entry else { return (Change::Keep, None) };
        match operation.apply(entry.value) {
            None => (Change::Keep, Some(None)),
            Some(sum) => {
                let after = counted(&entry, sum.is_in_place);
                (Change::Put(sum.text, after), Some(Some((sum.number, sum.is_in_place))))
            }
        }
    });
    let sum = or_absent(context.attempt_write("do_mc_incr", sum)?, None);
    context.counters.count(Count::AddInt);
    match sum {
        Ok(None) => context.fail("do_mc_incr", Failure::NoRecord),
        Ok(Some(Some((_, false)))) => note(context, key, false),
        _ => {}
    }
    if let Ok(found @ (None | Some(Some(_)))) = sum {
        count_arithmetic(context, matches!(operation, Operation::Add(_)), found.is_some());
    }
    conclude(output, noreply, sum, |output, sum| match sum {
        Some(Some((number, _))) => reply::number(output, number),
        Some(None) => output.extend_from_slice(reply::NOT_NUMERIC),
        None => output.extend_from_slice(NOT_FOUND),
    });
    Ok(())
}

/// What goes with a number that was changed: all as it was if it was changed in its place, and
/// otherwise a record that nobody has called stale yet.
pub(super) fn counted(entry: &Entry<'_>, is_in_place: bool) -> Meta {
    let expires_at_ms = entry.meta.expires_at_ms;
    let expires_at_ms = if is_in_place { expires_at_ms } else { expiry::unmarked(expires_at_ms) };
    Meta { expires_at_ms, ..entry.meta }
}

pub(super) fn count_arithmetic(context: &Context<'_>, is_increment: bool, is_found: bool) {
    context.counters.count(match (is_increment, is_found) {
        (true, true) => Count::IncrementHit,
        (true, false) => Count::IncrementMiss,
        (false, true) => Count::DecrementHit,
        (false, false) => Count::DecrementMiss,
    });
}
