//! `ma`.

use super::{answer, begin, expiry_after, write_time, write_token};
use crate::protocol::memcached::conditional::{self, Arithmetic, Counted, Number};
use crate::protocol::memcached::failure;
use crate::protocol::memcached::number::Operation;
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
    let arithmetic = Arithmetic {
        key,
        operation: match meta.arithmetic {
            ArithmeticMode::Increment => Operation::Add(meta.delta),
            ArithmeticMode::Decrement => Operation::Subtract(meta.delta),
        },
        compare: meta.compare,
        initial: meta.vivify.map(|_| meta.initial),
        assign: meta.assign,
    };
    let counted = conditional::count(context, &arithmetic, |expires_at_ms, is_new| {
        meta.flags.fold(expires_at_ms, |expires_at_ms, (flag, _)| {
            expiry_after(flag, meta, is_new, expires_at_ms)
        })
    })?;
    match counted {
        Ok(Counted::Yes(_)) if meta.is_quiet => {}
        Ok(Counted::Yes(number)) => write_number(output, meta, &number),
        Ok(Counted::Missing) => answer(output, CODE_NOT_FOUND, meta, None),
        Ok(Counted::Changed) => answer(output, CODE_EXISTS, meta, None),
        Ok(Counted::NoNumber) => output.extend_from_slice(reply::NOT_NUMERIC),
        Err(error) => failure(output, &error),
    }
    Ok(())
}

fn write_number(output: &mut Vec<u8>, meta: &Meta<'_>, number: &Number) {
    let text = number.number.to_string();
    begin(output, CODE_OK, meta.wants_value.then_some(text.len()));
    let mut expires_at_ms = number.expires_at_ms;
    for (flag, token) in meta.flags {
        expires_at_ms = expiry_after(flag, meta, number.is_new, expires_at_ms);
        match flag {
            b'O' => reply::meta_flag(output, flag, token),
            b'k' => write_token(output, meta.key),
            b'c' => reply::meta_number(output, flag, number.cas_number),
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
