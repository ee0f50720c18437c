//! set, add, replace, append, prepend and cas of the text protocol.

use super::{count_refusal, expiry, failure, note};
use crate::counters::Count;
use crate::ops::failure::Failure;
use crate::protocol::{Context, Halt, or_absent};
use cabinet::{Change, Entry, Meta, Swap};
use wire::memcached::reply::{EXISTS, NOT_FOUND, NOT_STORED, STORED};
use wire::memcached::{Dialect, Mode, Store};

#[inline]
pub(super) fn store(
    context: &mut Context<'_>,
    request: &Store<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let Store { mode, key, flags, exptime, value, noreply: _ } = *request;
    let database = context.database;
    let meta = expiry::meta(context, flags, exptime);
    let (count, line) = match mode {
        Mode::Set => (Count::Put, database.put_with(key, value, meta).map(|_| STORED)),
        Mode::Add => (Count::PutKeep, database.put_keep(key, value, meta).map(stored)),
        Mode::Replace => (Count::Put, database.replace(key, value, meta).map(stored)),
        Mode::Append => (Count::Put, extend(context, key, value, false).map(stored)),
        Mode::Prepend => (Count::Put, extend(context, key, value, true).map(stored)),
        Mode::CompareAndSwap(number) => {
            (Count::CompareAndSwap, compare_and_swap(context, key, number, value, meta))
        }
    };
    let line = context.attempt_write("do_mc_store", line)?;
    let line = match mode {
        // To store where nothing can be is a failure; to look first finds nothing.
        Mode::Set => line,
        Mode::CompareAndSwap(_) => or_absent(line, NOT_FOUND),
        _ => or_absent(line, NOT_STORED),
    };
    context.counters.count(count);
    match line {
        Ok(line) => {
            output.extend_from_slice(line);
            if line == STORED {
                note(context, key, false);
            } else {
                context.counters.count(Count::PutMiss);
                let is_there = mode == Mode::Add || line == EXISTS;
                let failure = if is_there { Failure::ExistingRecord } else { Failure::NoRecord };
                context.fail("do_mc_store", failure);
            }
            if count == Count::CompareAndSwap {
                context.counters.count(match line {
                    STORED => Count::CasHit,
                    EXISTS => Count::CasBadValue,
                    _ => Count::CasMiss,
                });
            }
        }
        Err(error) => {
            context.counters.count(Count::PutMiss);
            count_refusal(context, &error);
            failure(output, &error);
        }
    }
    Ok(())
}

fn stored(stored: bool) -> &'static [u8] {
    if stored { STORED } else { NOT_STORED }
}

fn compare_and_swap(
    context: &Context<'_>,
    key: &[u8],
    number: u64,
    value: &[u8],
    meta: Meta,
) -> cabinet::Result<&'static [u8]> {
    let shared = context.shared;
    if shared.cas_numbers.is_used() {
        return context.database.modify(key, |entry| match entry {
            None => (Change::Keep, NOT_FOUND),
            Some(entry) if shared.cas_numbers.matches(entry.version, number) => {
                (Change::Put(value.to_vec(), meta), STORED)
            }
            Some(_) => (Change::Keep, EXISTS),
        });
    }
    Ok(match context.database.compare_and_swap(key, number, value, meta)? {
        Swap::Stored(_) => STORED,
        Swap::Changed => EXISTS,
        Swap::Missing => NOT_FOUND,
    })
}

/// append and prepend: says whether there was a record.
fn extend(context: &Context<'_>, key: &[u8], part: &[u8], is_front: bool) -> cabinet::Result<bool> {
    if context.shared.config.dialect == Dialect::TokyoTyrant {
        return context.database.extend(key, part, is_front);
    }
    context.database.modify(key, |entry| match entry {
        None => (Change::Keep, false),
        Some(entry) => (extended(&entry, part, is_front), true),
    })
}

/// A longer value under the same flags and expiry, which nobody has called stale yet.
pub(super) fn extended(entry: &Entry<'_>, part: &[u8], is_front: bool) -> Change {
    let (first, second) = if is_front { (part, entry.value) } else { (entry.value, part) };
    let expires_at_ms = expiry::unmarked(entry.meta.expires_at_ms);
    Change::Put([first, second].concat(), Meta { expires_at_ms, ..entry.meta })
}
