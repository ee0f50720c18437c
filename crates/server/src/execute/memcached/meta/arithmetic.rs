//! `ma`.

use super::{answer, begin, expiry_after, write_time, write_token};
use crate::counters::Count;
use crate::execute::memcached::expiry;
use crate::execute::memcached::number::Operation;
use crate::execute::memcached::sum::{count_arithmetic, counted};
use crate::execute::memcached::{failure, note, shown};
use crate::execute::{Context, Halt, or_absent};
use crate::failure::Failure;
use cabinet::Change;
use wire::memcached::reply::{self, CODE_EXISTS, CODE_NOT_FOUND, CODE_OK};
use wire::memcached::{ArithmeticMode, Meta};

/// How `ma` ended.
enum Counted {
    Yes(Number),
    Missing,
    Changed,
    NoNumber,
}

/// The number there is now.
struct Number {
    number: u64,
    /// Expiry before the command.
    expires_at_ms: u64,
    is_new: bool,
    /// It stands where the last one stood.
    is_in_place: bool,
}

/// Executes `ma`.
pub(super) fn arithmetic(
    context: &mut Context<'_>,
    meta: &Meta<'_>,
    key: &[u8],
    output: &mut Vec<u8>,
) -> Result<(), Halt> {
    let shared = context.shared;
    let operation = match meta.arithmetic {
        ArithmeticMode::Increment => Operation::Add(meta.delta),
        ArithmeticMode::Decrement => Operation::Subtract(meta.delta),
    };
    let counted = context.database.modify_versioned(key, |entry| {
        let (text, mut after, number) = match entry {
            None if meta.vivify.is_none() => return (Change::Keep, Counted::Missing),
            None => {
                let text = meta.initial.to_string().into_bytes();
                (
                    text,
                    cabinet::Meta::NONE,
                    Number {
                        number: meta.initial,
                        expires_at_ms: 0,
                        is_new: true,
                        is_in_place: false,
                    },
                )
            }
            Some(entry) if entry.value.is_empty() => return (Change::Keep, Counted::NoNumber),
            Some(entry) => {
                // 0 is no number of a record: here it means that there is none to compare.
                let compared = meta.compare.filter(|number| *number != 0);
                let matches = |number| shared.cas_numbers.matches(entry.version, number);
                if !compared.is_none_or(matches) {
                    return (Change::Keep, Counted::Changed);
                }
                let Some(sum) = operation.apply(entry.value) else {
                    return (Change::Keep, Counted::NoNumber);
                };
                let after = counted(&entry, sum.is_in_place);
                (
                    sum.text,
                    after,
                    Number {
                        number: sum.number,
                        expires_at_ms: after.expires_at_ms,
                        is_new: false,
                        is_in_place: sum.is_in_place,
                    },
                )
            }
        };
        let expires_at_ms = meta.flags.fold(after.expires_at_ms, |expires_at_ms, (flag, _)| {
            expiry_after(flag, meta, number.is_new, expires_at_ms)
        });
        let marks = expiry::marks(after.expires_at_ms);
        after.expires_at_ms = expiry::marked(expires_at_ms, marks);
        (Change::Put(text, after), Counted::Yes(number))
    });
    let counted = context.attempt_write("do_mc_incr", counted)?;
    context.counters.count(Count::AddInt);
    let is_increment = meta.arithmetic == ArithmeticMode::Increment;
    match or_absent(counted, (Counted::Missing, 0)) {
        Ok((Counted::Yes(number), version)) => {
            count_arithmetic(context, is_increment, true);
            let cas_number = shown(context, version, meta.assign);
            if !number.is_in_place {
                note(context, key, false);
            }
            // memcached is not quiet about a record it has made.
            if !meta.is_quiet || number.is_new {
                write_number(output, meta, &number, cas_number);
            }
        }
        Ok((Counted::Missing, _)) => {
            count_arithmetic(context, is_increment, false);
            context.fail("do_mc_incr", Failure::NoRecord);
            answer(output, CODE_NOT_FOUND, meta, None);
        }
        Ok((Counted::Changed, _)) => answer(output, CODE_EXISTS, meta, None),
        Ok((Counted::NoNumber, _)) => output.extend_from_slice(reply::NOT_NUMERIC),
        Err(error) => failure(output, &error),
    }
    Ok(())
}

fn write_number(output: &mut Vec<u8>, meta: &Meta<'_>, number: &Number, cas_number: u64) {
    let text = number.number.to_string();
    begin(output, CODE_OK, meta.wants_value.then_some(text.len()));
    let mut expires_at_ms = number.expires_at_ms;
    for (flag, token) in meta.flags {
        expires_at_ms = expiry_after(flag, meta, number.is_new, expires_at_ms);
        match flag {
            b'O' => reply::meta_flag(output, flag, token),
            b'k' => write_token(output, meta.key),
            b'c' => reply::meta_number(output, flag, cas_number),
            b't' => write_time(output, flag, expires_at_ms, expiry::now_ms()),
            _ => {}
        }
    }
    output.extend_from_slice(b"\r\n");
    if meta.wants_value {
        output.extend_from_slice(text.as_bytes());
        output.extend_from_slice(b"\r\n");
    }
}
