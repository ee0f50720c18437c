//! `OBJECT` and `MEMORY`: how a record is kept.

use super::{Failed, NO_INTEGER, SYNTAX, integer, read, reply, saturated};
use crate::protocol::Context;
use wire::redis::Arguments;

/// Longest string that Redis keeps in one piece with its header, in bytes.
const EMBEDDED_BYTES_MAX: usize = 44;

/// Longest number of 64 bits, in bytes.
const NUMBER_BYTES_MAX: usize = "-9223372036854775808".len();

const NO_FREQUENCIES: &str = "ERR An LFU maxmemory policy is not selected, access frequency not \
                              tracked. Please note that when switching between policies at runtime \
                              LRU and LFU data will take some time to adjust.";

/// Returns the encoding that Redis gives a string when it is stored.
fn encoding(value: &[u8]) -> &'static str {
    match value.len() {
        1..=NUMBER_BYTES_MAX if integer(value).is_some() => "int",
        0..=EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    }
}

/// Executes `OBJECT`.
pub(super) fn describe(
    context: &mut Context<'_>,
    part: &str,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let key = arguments.iter().nth(1).unwrap_or_default();
    let mut name = "";
    if !read(context, key, |record| name = encoding(record.value))? {
        reply::null(output, context.session.redis.version);
        return Ok(());
    }
    match part {
        "encoding" => reply::string(output, name.as_bytes()),
        "refcount" => reply::integer(output, 1),
        // "freq".
        _ => return Err(NO_FREQUENCIES.into()),
    }
    Ok(())
}

/// Executes `MEMORY USAGE`.
pub(super) fn usage(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let mut strings = arguments.iter().skip(1);
    let key = strings.next().unwrap_or_default();
    // A string has no members to take a sample of.
    if let Some(option) = strings.next() {
        let count = strings.next().filter(|_| option.eq_ignore_ascii_case(b"SAMPLES"));
        if integer(count.ok_or(SYNTAX)?).ok_or(NO_INTEGER)? < 0 || strings.next().is_some() {
            return Err(SYNTAX.into());
        }
    }
    let (store, mut bytes) = (context.local("memory usage")?, 0);
    match read(context, key, |record| bytes = store.record_bytes(record))? {
        true => reply::integer(output, saturated(bytes)),
        false => reply::null(output, context.session.redis.version),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_that_of_redis() {
        for (value, expected) in [
            ("", "embstr"),
            ("0", "int"),
            ("-5", "int"),
            ("-0", "embstr"),
            ("007", "embstr"),
            ("9223372036854775807", "int"),
            ("-9223372036854775808", "int"),
            ("9223372036854775808", "embstr"),
            (&"x".repeat(EMBEDDED_BYTES_MAX), "embstr"),
            (&"x".repeat(EMBEDDED_BYTES_MAX + 1), "raw"),
        ] {
            assert_eq!(encoding(value.as_bytes()), expected, "{value}");
        }
    }
}
