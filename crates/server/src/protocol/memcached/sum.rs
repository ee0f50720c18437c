//! incr and decr, of both dialects.

use super::conditional::{self, Arithmetic, Counted};
use super::number::Operation;
use super::{conclude, expiry};
use crate::counters::Count;
use crate::ops::failure::Failure;
use crate::protocol::{Context, Halt, leading_number, or_absent};
use cabinet::{Change, Entry, Meta};
use wire::memcached::reply::{self, NOT_FOUND};

/// incr and decr of Tokyo Tyrant: on decimal text, never below 0, and on text that is no number
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
    let arithmetic = Arithmetic { key, operation, compare: None, initial: None, assign: None };
    let counted = conditional::count(context, &arithmetic, |expires_at_ms, _| expires_at_ms)?;
    conclude(output, noreply, counted, |output, counted| match counted {
        Counted::Yes(number) => reply::number(output, number.number),
        // There is nothing to compare with.
        Counted::Missing | Counted::Changed => output.extend_from_slice(NOT_FOUND),
        Counted::NoNumber => output.extend_from_slice(reply::NOT_NUMERIC),
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
