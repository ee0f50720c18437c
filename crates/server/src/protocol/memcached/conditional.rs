//! Changes of a record on conditions: what meta commands and the binary protocol have in common.

use super::{count_refusal, expiry, extended, note, number::Operation, shown, sum};
use crate::counters::Count;
use crate::ops::failure::Failure;
use crate::protocol::memcached::expiry::Marks;
use crate::protocol::{Context, Halt, or_absent};
use cabinet::{Change, Error, Meta};
use wire::memcached::MetaMode;

/// A value to be stored.
pub(super) struct Store<'a> {
    pub(super) mode: MetaMode,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    /// Flags and expiry of what is new.
    pub(super) fresh: Meta,
    /// The number that the record must have.
    pub(super) compare: Option<u64>,
    /// A value whose number is too low is stored too, as stale.
    pub(super) takes_stale: bool,
    /// Where there is no record to append to, one is made with this expiry, in milliseconds since
    /// 1970.
    pub(super) vivify: Option<u64>,
    /// The number that the record gets.
    pub(super) assign: Option<u64>,
}

/// How storing ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    /// The value is stored.
    Yes {
        /// The record's number for compare-and-swap.
        number: u64,
        /// Length of its whole value.
        value_bytes: usize,
    },
    /// The condition was not met.
    No,
    /// The record has another number.
    Changed,
    /// There is no record to compare with.
    Missing,
}

/// What was decided about a value, before its number is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// Store a value of this length.
    Store(usize),
    Keep(Stored),
}

/// Stores a value.
pub(super) fn store(
    context: &mut Context<'_>,
    store: &Store<'_>,
) -> Result<Result<Stored, Error>, Halt> {
    let shared = context.shared;
    let Store { mode, key, value, fresh, compare, .. } = *store;
    let whole = Decision::Store(value.len());
    let decided = if mode == MetaMode::Set && compare.is_none() {
        context.database.put_with(key, value, fresh).map(|version| (whole, version))
    } else {
        context.database.modify_versioned(key, |entry| {
            let Some(entry) = entry else {
                return match (mode, compare) {
                    (MetaMode::Add, _) => (Change::Put(value.to_vec(), fresh), whole),
                    (MetaMode::Append | MetaMode::Prepend, _) if store.vivify.is_some() => {
                        let expires_at_ms = store.vivify.unwrap_or_default();
                        (Change::Put(value.to_vec(), Meta { expires_at_ms, ..fresh }), whole)
                    }
                    (MetaMode::Append | MetaMode::Prepend, _) | (_, None) => {
                        (Change::Keep, Decision::Keep(Stored::No))
                    }
                    (_, Some(_)) => (Change::Keep, Decision::Keep(Stored::Missing)),
                };
            };
            let is_same =
                compare.is_none_or(|number| shared.cas_numbers.matches(entry.version, number));
            match mode {
                MetaMode::Add => (Change::Keep, Decision::Keep(Stored::No)),
                // 0 is no number of a record: here it means that there is none to compare.
                MetaMode::Append | MetaMode::Prepend if is_same || compare == Some(0) => {
                    let is_front = mode == MetaMode::Prepend;
                    let bytes = entry.value.len() + value.len();
                    (extended(&entry, value, is_front), Decision::Store(bytes))
                }
                MetaMode::Set | MetaMode::Replace if is_same => {
                    (Change::Put(value.to_vec(), fresh), whole)
                }
                MetaMode::Set | MetaMode::Replace
                    if store.takes_stale
                        && compare.is_some_and(|number| {
                            number != 0 && number < shared.cas_numbers.number(entry.version)
                        }) =>
                {
                    // A value that comes too late leaves the time of the record as it was, and
                    // does not take from anybody the right to renew it.
                    let old = entry.meta.expires_at_ms;
                    let is_won = expiry::marks(old).is_won;
                    let is_base64 = expiry::marks(fresh.expires_at_ms).is_base64;
                    let expires_at_ms =
                        expiry::marked(old, Marks { is_stale: true, is_won, is_base64 });
                    let stale = Meta { expires_at_ms, ..fresh };
                    (Change::Put(value.to_vec(), stale), whole)
                }
                _ => (Change::Keep, Decision::Keep(Stored::Changed)),
            }
        })
    };
    let decided = context.attempt_write("do_mc_store", decided)?;
    let decided = match (mode, compare) {
        (MetaMode::Set, None) => decided,
        (MetaMode::Set | MetaMode::Replace, Some(_)) => {
            or_absent(decided, (Decision::Keep(Stored::Missing), 0))
        }
        _ => or_absent(decided, (Decision::Keep(Stored::No), 0)),
    };
    context.counters.count(match mode {
        MetaMode::Add => Count::PutKeep,
        _ if compare.is_some() => Count::CompareAndSwap,
        _ => Count::Put,
    });
    let stored = decided.map(|(decision, version)| match decision {
        Decision::Store(value_bytes) => {
            Stored::Yes { number: shown(context, version, store.assign), value_bytes }
        }
        Decision::Keep(stored) => stored,
    });
    count_compared(context, compare, &stored);
    match &stored {
        Ok(Stored::Yes { .. }) => {
            note(context, key, false);
            return Ok(stored);
        }
        Ok(Stored::Missing) => context.fail("do_mc_store", Failure::NoRecord),
        Ok(Stored::No | Stored::Changed) => context.fail("do_mc_store", Failure::ExistingRecord),
        Err(error) => count_refusal(context, error),
    }
    context.counters.count(Count::PutMiss);
    Ok(stored)
}

/// Counts how a comparison of numbers ended, if there was one.
fn count_compared(context: &Context<'_>, compare: Option<u64>, stored: &Result<Stored, Error>) {
    let (Some(_), Ok(stored)) = (compare, stored) else { return };
    context.counters.count(match stored {
        Stored::Yes { .. } => Count::CasHit,
        Stored::Missing => Count::CasMiss,
        Stored::No | Stored::Changed => Count::CasBadValue,
    });
}

/// How a removal ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Removed {
    Yes,
    /// The record has another number.
    Changed,
    Missing,
}

/// Removes a record, if it has the number to compare with.
pub(super) fn remove(
    context: &mut Context<'_>,
    key: &[u8],
    compare: Option<u64>,
) -> Result<Result<Removed, Error>, Halt> {
    let shared = context.shared;
    let removed = match compare {
        None => {
            let removed = context.database.remove(key);
            removed.map(|removed| if removed { Removed::Yes } else { Removed::Missing })
        }
        Some(number) => context.database.modify(key, |entry| match entry {
            None => (Change::Keep, Removed::Missing),
            Some(entry) if shared.cas_numbers.matches(entry.version, number) => {
                (Change::Remove, Removed::Yes)
            }
            Some(_) => (Change::Keep, Removed::Changed),
        }),
    };
    let removed = or_absent(context.attempt_write("do_mc_delete", removed)?, Removed::Missing);
    context.counters.count(Count::Out);
    if let Ok(Removed::Missing) = removed {
        context.miss("do_mc_delete", Count::OutMiss);
    }
    Ok(removed)
}

/// A number to be added to, or subtracted from.
pub(super) struct Arithmetic<'a> {
    pub(super) key: &'a [u8],
    pub(super) operation: Operation,
    /// The number that the record must have; 0, which none has, is any.
    pub(super) compare: Option<u64>,
    /// What a new record begins with; without it none is made.
    pub(super) initial: Option<u64>,
    /// The number for compare-and-swap that the record gets.
    pub(super) assign: Option<u64>,
}

/// How arithmetic ended.
pub(super) enum Counted {
    Yes(Number),
    Missing,
    /// The record has another number.
    Changed,
    /// The value is no number.
    NoNumber,
}

/// The number there is now.
pub(super) struct Number {
    pub(super) number: u64,
    /// Expiry before the command.
    pub(super) expires_at_ms: u64,
    pub(super) is_new: bool,
    /// It stands where the last one stood.
    is_in_place: bool,
    /// For compare-and-swap.
    pub(super) cas_number: u64,
}

/// Adds to a number or subtracts from it. `expire` has the expiry before, and whether the record is
/// new, and answers the expiry after.
pub(super) fn count(
    context: &mut Context<'_>,
    arithmetic: &Arithmetic<'_>,
    expire: impl Fn(u64, bool) -> u64,
) -> Result<Result<Counted, Error>, Halt> {
    let shared = context.shared;
    let Arithmetic { key, operation, compare, initial, assign } = *arithmetic;
    let counted = context.database.modify_versioned(key, |entry| {
        let (text, mut after, number, is_in_place) = match (entry, initial) {
            (None, None) => return (Change::Keep, Counted::Missing),
            (None, Some(initial)) => (initial.to_string().into_bytes(), Meta::NONE, initial, false),
            (Some(entry), _) if entry.value.is_empty() => return (Change::Keep, Counted::NoNumber),
            (Some(entry), _) => {
                let compared = compare.filter(|number| *number != 0);
                let matches = |number| shared.cas_numbers.matches(entry.version, number);
                if !compared.is_none_or(matches) {
                    return (Change::Keep, Counted::Changed);
                }
                let Some(sum) = operation.apply(entry.value) else {
                    return (Change::Keep, Counted::NoNumber);
                };
                let after = sum::counted(&entry, sum.is_in_place);
                (sum.text, after, sum.number, sum.is_in_place)
            }
        };
        let before = after.expires_at_ms;
        let is_new = entry.is_none();
        after.expires_at_ms = expiry::marked(expire(before, is_new), expiry::marks(before));
        let counted = Number { number, expires_at_ms: before, is_new, is_in_place, cas_number: 0 };
        (Change::Put(text, after), Counted::Yes(counted))
    });
    let counted = context.attempt_write("do_mc_incr", counted)?;
    context.counters.count(Count::AddInt);
    let is_increment = matches!(operation, Operation::Add(_));
    let counted = or_absent(counted, (Counted::Missing, 0)).map(|(mut counted, version)| {
        if let Counted::Yes(number) = &mut counted {
            number.cas_number = shown(context, version, assign);
        }
        counted
    });
    match &counted {
        Ok(Counted::Yes(number)) => {
            count_arithmetic(context, is_increment, true);
            if !number.is_in_place {
                note(context, key, false);
            }
        }
        Ok(Counted::Missing) => {
            count_arithmetic(context, is_increment, false);
            context.fail("do_mc_incr", Failure::NoRecord);
        }
        _ => {}
    }
    Ok(counted)
}

fn count_arithmetic(context: &Context<'_>, is_increment: bool, is_found: bool) {
    context.counters.count(match (is_increment, is_found) {
        (true, true) => Count::IncrementHit,
        (true, false) => Count::IncrementMiss,
        (false, true) => Count::DecrementHit,
        (false, false) => Count::DecrementMiss,
    });
}
