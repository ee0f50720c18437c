//! `ms` and `md`.

use super::{Figures, answer};
use crate::counters::Count;
use crate::protocol::memcached::conditional::{self, Removed, Store, Stored};
use crate::protocol::memcached::expiry::{self, Marks};
use crate::protocol::memcached::{failure, shown};
use crate::protocol::{Context, Halt, or_absent};
use cabinet::Change;
use wire::memcached::Meta;
use wire::memcached::reply::{CODE_EXISTS, CODE_NOT_FOUND, CODE_NOT_STORED, CODE_OK};

/// Executes `ms`.
pub(super) fn set(
    context: &mut Context<'_>,
    meta: &Meta<'_>,
    key: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let marks = Marks { is_base64: meta.key.is_base64, ..Marks::default() };
    let expires_at_ms = expiry::expires_at_ms(meta.exptime.unwrap_or(0));
    let store = Store {
        mode: meta.mode,
        key,
        value: meta.value,
        fresh: cabinet::Meta {
            flags: meta.client_flags,
            expires_at_ms: expiry::marked(expires_at_ms, marks),
        },
        compare: meta.compare,
        takes_stale: meta.invalidate,
        vivify: meta.vivify.map(|exptime| expiry::marked(expiry::expires_at_ms(exptime), marks)),
        assign: meta.assign,
    };
    let (code, number, value_bytes) = match conditional::store(context, &store)? {
        Ok(Stored::Yes { .. }) if meta.is_quiet => return Ok(()),
        Ok(Stored::Yes { number, value_bytes }) => (CODE_OK, number, value_bytes),
        Ok(Stored::No) => (CODE_NOT_STORED, 0, meta.value.len()),
        Ok(Stored::Changed) => (CODE_EXISTS, 0, meta.value.len()),
        Ok(Stored::Missing) => (CODE_NOT_FOUND, 0, meta.value.len()),
        Err(error) => {
            failure(output, &error);
            return Ok(());
        }
    };
    answer(output, code, meta, Some(Figures { number, value_bytes }));
    Ok(())
}

/// Executes `md`.
pub(super) fn delete(
    context: &mut Context<'_>,
    meta: &Meta<'_>,
    key: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    if !meta.invalidate && !meta.removes_value {
        let removed = conditional::remove(context, key, meta.compare)?;
        match removed {
            Ok(Removed::Yes) if meta.is_quiet => {}
            Ok(Removed::Yes) => answer(output, CODE_OK, meta, None),
            Ok(Removed::Changed) => answer(output, CODE_EXISTS, meta, None),
            Ok(Removed::Missing) => answer(output, CODE_NOT_FOUND, meta, None),
            Err(error) => failure(output, &error),
        }
        return Ok(());
    }
    let shared = context.shared;
    let removed = context.database.modify_versioned(key, |entry| {
        let Some(entry) = entry else { return (Change::Keep, CODE_NOT_FOUND) };
        if !meta.compare.is_none_or(|number| shared.cas_numbers.matches(entry.version, number)) {
            return (Change::Keep, CODE_EXISTS);
        }
        let mut after = entry.meta;
        let value = if meta.removes_value {
            // memcached puts a new record without a value in the place of the old one.
            let expires_at_ms = expiry::expires_at_ms(meta.exptime.unwrap_or(0));
            after = cabinet::Meta { flags: meta.client_flags, expires_at_ms };
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
