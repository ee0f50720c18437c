//! Writes of all three protocols of memcached with their counters and failures, and the complete
//! writes of the text protocol: set, add, replace, append, prepend, cas, incr and decr.

use super::{conclude, count_refusal, failure, note};
use crate::counters::Count;
use crate::ops::conditional::{Action, Counting, Precondition, Presence, Write, Written};
use crate::ops::execute::{NoReply, Outcome, Reply};
use crate::ops::expiry;
use crate::ops::number::Arithmetic;
use crate::ops::operation::Operation;
use crate::protocol::{Context, Halt, or_absent};
use crate::shared::script_locks::{Entered, lock_of};
use cabinet::Error;
use wire::memcached::reply::{self, EXISTS, NOT_FOUND, NOT_STORED, STORED};
use wire::memcached::{Dialect, Mode, Store};

/// Stores a value, or a part of one, under a CAS number if there is one to compare.
#[inline(always)]
pub(in crate::protocol) fn store(
    context: &mut Context<'_>,
    write: Write<'_>,
    compare: Option<u64>,
    reply: &mut impl Reply,
) -> Result<Result<Outcome, Error>, Halt> {
    let stored = execute(context, write, compare, reply)?;
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
        note(context.shared, write.key, false);
        return Ok(Ok(Outcome::Done));
    }
    context.counters.count(Count::PutMiss);
    if let Err(error) = &stored {
        count_refusal(context, error);
    }
    if let (Some(_), Ok(outcome)) = (compare, &stored) {
        let is_missing = presence.is_some() && *outcome == Outcome::NoRecord;
        context.counters.count(if is_missing { Count::CasMiss } else { Count::CasBadValue });
    }
    Ok(stored)
}

/// Removes or invalidates a record, if it has the CAS number to compare.
#[inline(always)]
pub(in crate::protocol) fn remove(
    context: &mut Context<'_>,
    write: Write<'_>,
    compare: Option<u64>,
) -> Result<Result<Outcome, Error>, Halt> {
    let removed = execute(context, write, compare, &mut NoReply)?;
    context.counters.count(Count::Out);
    if let Ok(Outcome::NoRecord) = removed {
        context.counters.count(Count::OutMiss);
    }
    Ok(removed)
}

/// Adds to a number or subtracts from it, if the record has the CAS number to compare.
pub(in crate::protocol) fn count(
    context: &mut Context<'_>,
    write: Write<'_>,
    compare: Option<u64>,
    written: &mut Written,
) -> Result<Result<Outcome, Error>, Halt> {
    let counted = execute(context, write, compare, written)?;
    context.counters.count(Count::AddInt);
    let is_found = match &counted {
        Ok(Outcome::Done) => {
            if !written.is_in_place {
                note(context.shared, write.key, false);
            }
            true
        }
        Ok(Outcome::NoRecord) => false,
        _ => return Ok(counted),
    };
    let Action::Count(Counting { arithmetic, .. }) = write.action else { return Ok(counted) };
    context.counters.count(match (arithmetic, is_found) {
        (Arithmetic::Add(_), true) => Count::IncrementHit,
        (Arithmetic::Add(_), false) => Count::IncrementMiss,
        (Arithmetic::Subtract(_), true) => Count::DecrementHit,
        (Arithmetic::Subtract(_), false) => Count::DecrementMiss,
        // The other protocols have no such counters.
        (Arithmetic::AddToLeading(_) | Arithmetic::AddSigned(_), _) => return Ok(counted),
    });
    Ok(counted)
}

/// Enters the script lock of a write that changes the present value, if there are scripts. Ends the
/// request if a locked call holds it.
#[inline(always)]
fn enter<'a>(context: &mut Context<'a>, write: &Write<'_>) -> Result<Option<Entered<'a>>, Halt> {
    let changes = matches!(
        write.action,
        Action::Extend { .. } | Action::Count(_) | Action::Put { presence: Presence::Present, .. }
    );
    if changes && context.shared.has_extension() {
        enter_lock(context, lock_of(write.key)).map(Some)
    } else {
        Ok(None)
    }
}

#[cold]
fn enter_lock<'a>(context: &mut Context<'a>, lock: usize) -> Result<Entered<'a>, Halt> {
    context.shared.script_locks.enter(lock).ok_or_else(|| {
        context.session.awaited_lock = Some(lock);
        Halt::Blocked
    })
}

/// Executes a write.
#[inline(always)]
fn execute(
    context: &mut Context<'_>,
    mut write: Write<'_>,
    compare: Option<u64>,
    reply: &mut impl Reply,
) -> Result<Result<Outcome, Error>, Halt> {
    let precondition = compare.map_or(Precondition::None, Precondition::CasNumber);
    write.precondition = match (write.action, compare) {
        // `add` compares nothing.
        (Action::Put { presence: Presence::Absent, .. }, _) => Precondition::None,
        // No record has the CAS number 0, which stands for none.
        (Action::Extend { .. } | Action::Count(_), Some(0)) => Precondition::None,
        _ => precondition,
    };
    let _entered = enter(context, &write)?;
    let done = context.execute(&Operation::Write(write), reply)?;
    // A key that is invalid in the database is a miss, except for a plain `set`.
    Ok(match write.action {
        Action::Put { presence: Presence::Any, .. } => done,
        Action::Put { presence: Presence::Absent, .. } => or_absent(done, Outcome::RecordExists),
        _ => or_absent(done, Outcome::NoRecord),
    })
}

/// Executes a storage command of the text protocol. `set`, the most frequent one, is compiled
/// separately.
#[inline]
pub(in crate::protocol) fn store_text(
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
    match store(context, write, None, &mut NoReply)? {
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
    match store(context, Write::new(key, action), compare, &mut NoReply)? {
        Ok(outcome) => output.extend_from_slice(match outcome {
            Outcome::Done => STORED,
            Outcome::Unmet => EXISTS,
            Outcome::NoRecord if compare.is_some() => NOT_FOUND,
            _ => NOT_STORED,
        }),
        Err(error) => failure(output, &error),
    }
    Ok(())
}

/// Executes incr or decr of the text protocol.
pub(in crate::protocol) fn count_text(
    context: &mut Context<'_>,
    key: &[u8],
    arithmetic: Arithmetic,
    noreply: bool,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let action = Action::Count(Counting { arithmetic, create: None, expires_at_ms: None });
    let mut written = Written::default();
    let counted = count(context, Write::new(key, action), None, &mut written)?;
    conclude(output, noreply, counted, |output, outcome| match outcome {
        Outcome::Done => reply::number(output, written.number),
        Outcome::NotNumeric => output.extend_from_slice(reply::NOT_NUMERIC),
        _ => output.extend_from_slice(NOT_FOUND),
    });
    Ok(())
}
