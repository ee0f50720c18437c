//! `INCRBYFLOAT`, which adds floats of 80 bits.

use super::long_double::LongDouble;
use super::{Decision, Failed, change, parts, reply};
use crate::counters::Count;
use crate::protocol::Context;
use cabinet::Meta;
use wire::redis::Arguments;

const NO_FLOAT: &str = "ERR value is not a valid float";

/// Executes `INCRBYFLOAT`.
pub(super) fn add(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [key, amount] = parts(arguments)?;
    let amount = LongDouble::read(amount).ok_or(NO_FLOAT)?;
    context.tally.count(Count::AddDouble);
    let mut sum = String::new();
    change(context, key, |found| {
        let (number, meta) = match found {
            Some(found) => (LongDouble::read(&found.value).ok_or(NO_FLOAT)?, found.meta),
            None => (LongDouble::ZERO, Meta::NONE),
        };
        let total = number.plus(amount).ok_or("ERR increment would produce NaN or Infinity")?;
        sum = total.text();
        Ok(Decision::Put(sum.clone().into_bytes(), meta))
    })?;
    reply::string(output, sum.as_bytes());
    Ok(())
}
