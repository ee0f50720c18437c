//! Writes of all three protocols of memcached with their counters and failures, and the complete
//! writes of the text protocol: set, add, replace, append, prepend, cas, incr and decr.

use super::{conclude, count_refusal, failure, note};
use crate::counters::Count;
use crate::ops::conditional::{
    Action, Arithmetic, Outcome, Precondition, Presence, Write, Written,
};
use crate::ops::expiry;
use crate::ops::failure::Failure;
use crate::ops::number::Operation;
use crate::protocol::{Context, Halt, or_absent};
use cabinet::Error;
use wire::memcached::reply::{self, EXISTS, NOT_FOUND, NOT_STORED, STORED};
use wire::memcached::{Dialect, Mode, Store};

/// Stores a value, or a part of one, under a CAS number if there is one to compare.
#[inline(always)]
pub(super) fn store(
    context: &mut Context<'_>,
    write: Write<'_>,
    compare: Option<u64>,
    written: Option<&mut Written>,
) -> Result<Result<Outcome, Error>, Halt> {
    let stored = execute(context, "do_mc_store", write, compare, written)?;
    let presence = match write.action {
        Action::Put { presence, .. } => Some(presence),
        _ => None,
    };
    context.counters.count(match presence {
        Some(Presence::Absent) => Count::PutKeep,
        _ if compare.is_some() => Count::CompareAndSwap,
        _ => Count::Put,
    });
    if let Ok(Outcome::Done) = stored {
        if compare.is_some() {
            context.counters.count(Count::CasHit);
        }
        note(context, write.key, false);
        return Ok(Ok(Outcome::Done));
    }
    context.counters.count(Count::PutMiss);
    match &stored {
        Ok(Outcome::Missing) => context.fail("do_mc_store", Failure::NoRecord),
        Ok(_) => context.fail("do_mc_store", Failure::ExistingRecord),
        Err(error) => count_refusal(context, error),
    }
    if let (Some(_), Ok(outcome)) = (compare, &stored) {
        let is_missing = presence.is_some() && *outcome == Outcome::Missing;
        context.counters.count(if is_missing { Count::CasMiss } else { Count::CasBadValue });
    }
    Ok(stored)
}

/// Removes or invalidates a record, if it has the CAS number to compare.
#[inline(always)]
pub(super) fn remove(
    context: &mut Context<'_>,
    write: Write<'_>,
    compare: Option<u64>,
) -> Result<Result<Outcome, Error>, Halt> {
    let removed = execute(context, "do_mc_delete", write, compare, None)?;
    context.counters.count(Count::Out);
    if let Ok(Outcome::Missing) = removed {
        context.miss("do_mc_delete", Count::OutMiss);
    }
    Ok(removed)
}

/// Adds to a number or subtracts from it, if the record has the CAS number to compare.
pub(super) fn count(
    context: &mut Context<'_>,
    write: Write<'_>,
    compare: Option<u64>,
    written: &mut Written,
) -> Result<Result<Outcome, Error>, Halt> {
    let counted = execute(context, "do_mc_incr", write, compare, Some(written))?;
    context.counters.count(Count::AddInt);
    let is_found = match &counted {
        Ok(Outcome::Done) => {
            if !written.is_in_place {
                note(context, write.key, false);
            }
            true
        }
        Ok(Outcome::Missing) => {
            context.fail("do_mc_incr", Failure::NoRecord);
            false
        }
        _ => return Ok(counted),
    };
    let Action::Count(Arithmetic { operation, .. }) = write.action else { return Ok(counted) };
    context.counters.count(match (operation, is_found) {
        (Operation::Add(_), true) => Count::IncrementHit,
        (Operation::Add(_), false) => Count::IncrementMiss,
        (Operation::Subtract(_), true) => Count::DecrementHit,
        (Operation::Subtract(_), false) => Count::DecrementMiss,
        // Tokyo Tyrant has no such counters.
        (Operation::AddToLeading(_), _) => return Ok(counted),
    });
    Ok(counted)
}

/// Executes a write.
#[inline(always)]
fn execute(
    context: &mut Context<'_>,
    operation: &'static str,
    mut write: Write<'_>,
    compare: Option<u64>,
    written: Option<&mut Written>,
) -> Result<Result<Outcome, Error>, Halt> {
    let precondition = compare.map_or(Precondition::None, Precondition::CasNumber);
    write.precondition = match (write.action, compare) {
        // `add` compares nothing.
        (Action::Put { presence: Presence::Absent, .. }, _) => Precondition::None,
        // No record has the CAS number 0, which stands for none.
        (Action::Extend { .. } | Action::Count(_), Some(0)) => Precondition::None,
        _ => precondition,
    };
    match context.writer().write(write, written) {
        Ok(outcome) => {
            context.mutated = true;
            Ok(Ok(outcome))
        }
        Err(error) => fail(context, operation, write.action, error),
    }
}

/// Ends a failed write. A key that is invalid in the database is a miss, except for a plain `set`.
#[cold]
fn fail(
    context: &mut Context<'_>,
    operation: &'static str,
    action: Action<'_>,
    error: Error,
) -> Result<Result<Outcome, Error>, Halt> {
    let failed = context.attempt_write(operation, Err(error))?;
    Ok(match action {
        Action::Put { presence: Presence::Any, .. } => failed,
        Action::Put { presence: Presence::Absent, .. } => or_absent(failed, Outcome::Exists),
        _ => or_absent(failed, Outcome::Missing),
    })
}

/// Executes a storage command of the text protocol. `set`, the most frequent one, is compiled
/// separately.
#[inline]
pub(super) fn store_text(
    context: &mut Context<'_>,
    request: &Store<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let Store { mode, key, flags, exptime, value, noreply: _ } = *request;
    if mode != Mode::Set {
        return store_text_under(context, request, output);
    }
    let meta = expiry::meta(context.shared.config.ignores_expiry, flags, exptime);
    let write = Write::new(key, Action::put(Presence::Any, value, meta));
    match store(context, write, None, None)? {
        Ok(_) => output.extend_from_slice(STORED),
        Err(error) => failure(output, &error),
    }
    Ok(())
}

/// Executes all storage commands but `set`.
#[inline(never)]
fn store_text_under(
    context: &mut Context<'_>,
    request: &Store<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let Store { mode, key, flags, exptime, value, noreply: _ } = *request;
    let config = &context.shared.config;
    let put = |presence| {
        Action::put(presence, value, expiry::meta(config.ignores_expiry, flags, exptime))
    };
    let unmarks = config.dialect != Dialect::TokyoTyrant;
    let extend = |is_front| Action::Extend { part: value, is_front, create: None, unmarks };
    let (action, compare) = match mode {
        Mode::Set => (put(Presence::Any), None),
        Mode::Add => (put(Presence::Absent), None),
        Mode::Replace => (put(Presence::Present), None),
        Mode::Append => (extend(false), None),
        Mode::Prepend => (extend(true), None),
        Mode::CompareAndSwap(number) => (put(Presence::Present), Some(number)),
    };
    match store(context, Write::new(key, action), compare, None)? {
        Ok(outcome) => output.extend_from_slice(match outcome {
            Outcome::Done => STORED,
            Outcome::Unmet => EXISTS,
            Outcome::Missing if compare.is_some() => NOT_FOUND,
            _ => NOT_STORED,
        }),
        Err(error) => failure(output, &error),
    }
    Ok(())
}

/// Executes incr or decr of the text protocol.
pub(super) fn count_text(
    context: &mut Context<'_>,
    key: &[u8],
    operation: Operation,
    noreply: bool,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let action = Action::Count(Arithmetic { operation, create: None, expires_at_ms: None });
    let mut written = Written::default();
    let counted = count(context, Write::new(key, action), None, &mut written)?;
    conclude(output, noreply, counted, |output, outcome| match outcome {
        Outcome::Done => reply::number(output, written.number),
        Outcome::NotNumeric => output.extend_from_slice(reply::NOT_NUMERIC),
        _ => output.extend_from_slice(NOT_FOUND),
    });
    Ok(())
}
