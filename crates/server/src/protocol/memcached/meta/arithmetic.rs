//! Meta command `ma`: arithmetic.

use super::{answer, begin, expiry_after, write_time, write_token};
use crate::ops::conditional::{Action, Counting, Write, Written};
use crate::ops::execute::Outcome;
use crate::ops::expiry;
use crate::ops::number::Arithmetic;
use crate::protocol::memcached::{failure, write};
use crate::protocol::{Context, Halt};
use wire::memcached::reply::{self, CODE_EXISTS, CODE_NOT_FOUND, CODE_OK};
use wire::memcached::{ArithmeticMode, Meta};

/// Executes `ma`.
pub(super) fn arithmetic(
    context: &mut Context<'_>,
    meta: &Meta<'_>,
    key: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let expiry_of_new = || {
        meta.flags.fold(0, |expires_at_ms, (flag, _)| expiry_after(flag, meta, true, expires_at_ms))
    };
    let count = Action::Count(Counting {
        arithmetic: match meta.arithmetic {
            ArithmeticMode::Increment => Arithmetic::Add(meta.delta),
            ArithmeticMode::Decrement => Arithmetic::Subtract(meta.delta),
        },
        create: meta.vivify.map(|_| (meta.initial, expiry_of_new())),
        expires_at_ms: meta.exptime.map(expiry::expires_at_ms),
    });
    let write = Write { assign: meta.assign, ..Write::new(key, count) };
    let mut written = Written::default();
    match write::count(context, write, meta.compare, &mut written)? {
        Ok(Outcome::Done) if meta.is_quiet => {}
        Ok(Outcome::Done) => write_number(output, meta, &written),
        Ok(Outcome::NoRecord) => answer(output, CODE_NOT_FOUND, meta, None),
        Ok(Outcome::NotNumeric) => output.extend_from_slice(reply::NOT_NUMERIC),
        Ok(_) => answer(output, CODE_EXISTS, meta, None),
        Err(error) => failure(output, &error),
    }
    Ok(())
}

fn write_number(output: &mut Vec<u8>, meta: &Meta<'_>, written: &Written) {
    let text = written.number.to_string();
    begin(output, CODE_OK, meta.wants_value.then_some(text.len()));
    let mut expires_at_ms = written.old_expires_at_ms;
    for (flag, token) in meta.flags {
        expires_at_ms = expiry_after(flag, meta, written.is_new, expires_at_ms);
        match flag {
            b'O' => reply::meta_flag(output, flag, token),
            b'k' => write_token(output, meta.key),
            b'c' => {
                let number = meta.assign.unwrap_or(written.version);
                reply::meta_number(output, flag, number);
            }
            b't' => write_time(output, flag, expires_at_ms),
            _ => {}
        }
    }
    output.extend_from_slice(b"\r\n");
    if meta.wants_value {
        output.extend_from_slice(text.as_bytes());
        output.extend_from_slice(b"\r\n");
    }
}
