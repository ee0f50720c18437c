//! Meta commands `ms` and `md`: set and delete.

use super::{Figures, answer};
use crate::ops::conditional::{Action, Presence, Write, Written};
use crate::ops::execute::Outcome;
use crate::ops::expiry::{self, Marks, marked};
use crate::protocol::memcached::{failure, write};
use crate::protocol::{Context, Halt};
use wire::memcached::reply::{CODE_EXISTS, CODE_NOT_FOUND, CODE_NOT_STORED, CODE_OK};
use wire::memcached::{Meta, MetaMode};

/// Executes `ms`.
pub(super) fn set(
    context: &mut Context<'_>,
    meta: &Meta<'_>,
    key: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let marks = Marks { is_base64: meta.key.is_base64, ..Marks::default() };
    let fresh = |exptime| cabinet::Meta {
        flags: meta.client_flags,
        expires_at_ms: marked(expiry::expires_at_ms(exptime), marks),
    };
    let presence = match (meta.mode, meta.compare) {
        (MetaMode::Add, _) => Presence::Absent,
        (MetaMode::Set, None) => Presence::Any,
        _ => Presence::Present,
    };
    let is_extended = matches!(meta.mode, MetaMode::Append | MetaMode::Prepend);
    let action = if is_extended {
        Action::Extend {
            part: meta.value,
            is_front: meta.mode == MetaMode::Prepend,
            create: meta.vivify.map(fresh),
            unmarks: true,
        }
    } else {
        Action::Put {
            value: meta.value,
            meta: fresh(meta.exptime.unwrap_or(0)),
            presence,
            takes_stale: meta.invalidate,
        }
    };
    let write = Write { assign: meta.assign, ..Write::new(key, action) };
    let mut written = Written::default();
    let stored = write::store(context, write, meta.compare, &mut written)?;
    let (code, number, value_bytes) = match stored {
        Ok(Outcome::Done) if meta.is_quiet => return Ok(()),
        Ok(Outcome::Done) => (CODE_OK, meta.assign.unwrap_or(written.version), written.value_bytes),
        Ok(Outcome::Unmet) => (CODE_EXISTS, 0, meta.value.len()),
        Ok(Outcome::NoRecord) if meta.compare.is_some() && !is_extended => {
            (CODE_NOT_FOUND, 0, meta.value.len())
        }
        Ok(_) => (CODE_NOT_STORED, 0, meta.value.len()),
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
    let expires_at_ms = meta.exptime.map(expiry::expires_at_ms);
    let action = if meta.removes_value {
        // memcached replaces the old record with a new one without a value.
        let marks = Marks { is_stale: meta.invalidate, ..Marks::default() };
        let expires_at_ms = marked(expires_at_ms.unwrap_or(0), marks);
        let meta = cabinet::Meta { flags: meta.client_flags, expires_at_ms };
        Action::put(Presence::Present, &b""[..], meta)
    } else if meta.invalidate {
        Action::Invalidate { expires_at_ms }
    } else {
        Action::Remove
    };
    let write = Write { assign: meta.assign, ..Write::new(key, action) };
    let code = match write::remove(context, write, meta.compare)? {
        Ok(Outcome::Done) if meta.is_quiet => return Ok(()),
        Ok(Outcome::Done) => CODE_OK,
        Ok(Outcome::NoRecord) => CODE_NOT_FOUND,
        Ok(_) => CODE_EXISTS,
        Err(error) => {
            failure(output, &error);
            return Ok(());
        }
    };
    answer(output, code, meta, None);
    Ok(())
}
