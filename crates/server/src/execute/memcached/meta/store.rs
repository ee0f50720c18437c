//! `ms` and `md`.

use super::answer;
use crate::counters::Count;
use crate::execute::memcached::expiry::{self, Marks};
use crate::execute::memcached::{extended, failure, note, shown};
use crate::execute::{Context, Halt, or_absent};
use crate::failure::Failure;
use cabinet::Change;
use wire::memcached::reply::{CODE_EXISTS, CODE_NOT_FOUND, CODE_NOT_STORED, CODE_OK};
use wire::memcached::{Meta, MetaMode};

/// How `ms` ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stored {
    Yes,
    /// The condition was not met.
    No,
    /// The record has another number.
    Changed,
    /// There is no record to compare with.
    Missing,
}

/// Executes `ms`.
pub(super) fn set(
    context: &mut Context<'_>,
    meta: &Meta<'_>,
    key: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let shared = context.shared;
    let marks = Marks { is_base64: meta.key.is_base64, ..Marks::default() };
    let expires_at_ms = expiry::expires_at_ms(meta.exptime.unwrap_or(0));
    let fresh = cabinet::Meta {
        flags: meta.client_flags,
        expires_at_ms: expiry::marked(expires_at_ms, marks),
    };
    let (database, value) = (context.database, meta.value);
    let stored = if meta.mode == MetaMode::Set && meta.compare.is_none() {
        database.put_with(key, value, fresh).map(|version| (Stored::Yes, version))
    } else {
        database.modify_versioned(key, |entry| {
            let Some(entry) = entry else {
                return match (meta.mode, meta.compare) {
                    (MetaMode::Add, _) => (Change::Put(value.to_vec(), fresh), Stored::Yes),
                    (MetaMode::Append | MetaMode::Prepend, _) | (_, None) => {
                        (Change::Keep, Stored::No)
                    }
                    (_, Some(_)) => (Change::Keep, Stored::Missing),
                };
            };
            let is_same =
                meta.compare.is_none_or(|number| shared.cas_numbers.matches(entry.version, number));
            match meta.mode {
                MetaMode::Add => (Change::Keep, Stored::No),
                // 0 is no number of a record: here it means that there is none to compare.
                MetaMode::Append | MetaMode::Prepend if is_same || meta.compare == Some(0) => {
                    let is_front = meta.mode == MetaMode::Prepend;
                    (extended(&entry, value, is_front), Stored::Yes)
                }
                MetaMode::Set | MetaMode::Replace if is_same => {
                    (Change::Put(value.to_vec(), fresh), Stored::Yes)
                }
                MetaMode::Set | MetaMode::Replace
                    if meta.invalidate
                        && meta.compare.is_some_and(|number| {
                            number != 0 && number < shared.cas_numbers.number(entry.version)
                        }) =>
                {
                    // A value that comes too late leaves the time of the record as it was, and
                    // does not take from anybody the right to renew it.
                    let old = entry.meta.expires_at_ms;
                    let is_won = expiry::marks(old).is_won;
                    let expires_at_ms =
                        expiry::marked(old, Marks { is_stale: true, is_won, ..marks });
                    let stale = cabinet::Meta { expires_at_ms, ..fresh };
                    (Change::Put(value.to_vec(), stale), Stored::Yes)
                }
                _ => (Change::Keep, Stored::Changed),
            }
        })
    };
    let stored = context.attempt_write("do_mc_store", stored)?;
    let stored = match (meta.mode, meta.compare) {
        (MetaMode::Set, None) => stored,
        (MetaMode::Set | MetaMode::Replace, Some(_)) => or_absent(stored, (Stored::Missing, 0)),
        _ => or_absent(stored, (Stored::No, 0)),
    };
    context.counters.count(match meta.mode {
        MetaMode::Add => Count::PutKeep,
        _ if meta.compare.is_some() => Count::CompareAndSwap,
        _ => Count::Put,
    });
    let (stored, version) = match stored {
        Ok(stored) => stored,
        Err(error) => {
            context.counters.count(Count::PutMiss);
            failure(output, &error);
            return Ok(());
        }
    };
    if stored == Stored::Yes {
        let number = shown(context, version, meta.assign);
        note(context, key, false);
        if !meta.is_quiet {
            answer(output, CODE_OK, meta, Some(number));
        }
        return Ok(());
    }
    context.counters.count(Count::PutMiss);
    let (code, failure) = match stored {
        Stored::Changed => (CODE_EXISTS, Failure::ExistingRecord),
        Stored::Missing => (CODE_NOT_FOUND, Failure::NoRecord),
        _ => (CODE_NOT_STORED, Failure::ExistingRecord),
    };
    context.fail("do_mc_store", failure);
    answer(output, code, meta, Some(0));
    Ok(())
}

/// Executes `md`.
pub(super) fn delete(
    context: &mut Context<'_>,
    meta: &Meta<'_>,
    key: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let shared = context.shared;
    let removed = context.database.modify_versioned(key, |entry| {
        let Some(entry) = entry else { return (Change::Keep, CODE_NOT_FOUND) };
        if !meta.compare.is_none_or(|number| shared.cas_numbers.matches(entry.version, number)) {
            return (Change::Keep, CODE_EXISTS);
        }
        if !meta.invalidate && !meta.removes_value {
            return (Change::Remove, CODE_OK);
        }
        let mut after = entry.meta;
        let value = if meta.removes_value {
            after.flags = 0;
            Vec::new()
        } else {
            entry.value.to_vec()
        };
        if meta.invalidate {
            let marks = expiry::marks(after.expires_at_ms);
            if let Some(exptime) = meta.exptime {
                after.expires_at_ms = expiry::expires_at_ms(exptime);
            }
            let marks = Marks { is_stale: true, is_won: false, ..marks };
            after.expires_at_ms = expiry::marked(after.expires_at_ms, marks);
        }
        (Change::Put(value, after), CODE_OK)
    });
    let removed = context.attempt_write("do_mc_delete", removed)?;
    context.counters.count(Count::Out);
    match or_absent(removed, (CODE_NOT_FOUND, 0)) {
        Ok((code, version)) => {
            if version != 0 {
                shown(context, version, meta.assign);
            }
            if code == CODE_NOT_FOUND {
                context.miss("do_mc_delete", Count::OutMiss);
            }
            if code != CODE_OK || !meta.is_quiet {
                answer(output, code, meta, None);
            }
        }
        Err(error) => failure(output, &error),
    }
    Ok(())
}
