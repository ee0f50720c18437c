//! Commands that list keys.

use super::pattern::{self, matches};
use super::{Failed, NO_INTEGER, SYNTAX, integer, parts, reply};
use crate::counters::Count;
use crate::ops::execute::{Outcome, Reply};
use crate::ops::operation::Operation;
use crate::protocol::Context;
use wire::redis::Arguments;

/// Number of keys that a step visits, unless the client names another one.
const COUNT: usize = 10;

/// Encoder of the keys that match a pattern.
struct Matching<'p> {
    pattern: &'p [u8],
    keys: Vec<u8>,
    count: usize,
    /// Number of the place at which the scan continues, 0 at its end.
    next: u64,
}

impl<'p> Matching<'p> {
    fn new(pattern: &'p [u8]) -> Self {
        Self { pattern, keys: Vec::new(), count: 0, next: 0 }
    }

    /// Appends the keys as an array.
    fn append_to(&self, output: &mut Vec<u8>) {
        reply::array(output, self.count);
        output.extend_from_slice(&self.keys);
    }
}

impl Reply for Matching<'_> {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn element(&mut self, key: &[u8]) {
        if matches(self.pattern, key) {
            reply::string(&mut self.keys, key);
            self.count += 1;
        }
    }

    fn next_place(&mut self, number: u64) {
        self.next = number;
    }
}

/// Returns the beginning that all keys have which match a pattern.
pub(super) fn prefix_of(pattern: &[u8]) -> &[u8] {
    let special = pattern.iter().position(|byte| b"*?[\\".contains(byte));
    &pattern[..special.unwrap_or(pattern.len())]
}

/// Most steps for each byte of a key that an event loop takes, which may compare some hundred keys.
const INLINE_STEPS_MAX: usize = 8;

/// Fails for a pattern that is too long. Leaves one that takes many steps to a thread that may
/// wait.
fn check(context: &Context<'_>, pattern: &[u8]) -> Result<(), Failed> {
    pattern::check(pattern)?;
    if pattern::steps(pattern) > INLINE_STEPS_MAX {
        context.wait()?;
    }
    Ok(())
}

/// Executes `KEYS`.
pub(super) fn matching(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [pattern] = parts(arguments)?;
    check(context, pattern)?;
    // In a fixed-length database, keys are ids, and a prefix is an interval of them.
    let prefix = match context.shared.served.model.has_ids {
        true => b"[min,max]",
        false => prefix_of(pattern),
    };
    context.tally.count(Count::KeysWithPrefix);
    let mut matching = Matching::new(pattern);
    let operation = Operation::KeysWithPrefix { prefix, max: usize::MAX };
    context.execute(&operation, &mut matching)??;
    matching.append_to(output);
    Ok(())
}

/// Executes `SCAN`.
pub(super) fn scan(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let mut strings = arguments.iter();
    let cursor = number(strings.next().unwrap_or_default()).ok_or(INVALID_CURSOR)?;
    let (mut pattern, mut count, mut has_strings) = (&b"*"[..], COUNT, true);
    while let Some(option) = strings.next() {
        let value = strings.next().ok_or(SYNTAX)?;
        match &*option.to_ascii_uppercase() {
            b"COUNT" => {
                let number = integer(value).ok_or(NO_INTEGER)?;
                count = usize::try_from(number).ok().filter(|count| *count > 0).ok_or(SYNTAX)?;
            }
            b"MATCH" => pattern = value,
            b"TYPE" => has_strings = value.eq_ignore_ascii_case(b"string"),
            _ => return Err(SYNTAX.into()),
        }
    }
    check(context, pattern)?;
    let has_ids = context.shared.served.model.has_ids;
    context.tally.count(Count::KeysWithPrefix);
    let mut matching = Matching::new(pattern);
    let prefix = if has_ids { b"" } else { prefix_of(pattern) };
    let operation = Operation::KeyScan { prefix, from: cursor, min: count };
    context.execute(&operation, &mut matching)??;
    reply::array(output, 2);
    reply::string(output, matching.next.to_string().as_bytes());
    if !has_strings {
        matching = Matching::new(pattern);
    }
    matching.append_to(output);
    Ok(())
}

const INVALID_CURSOR: &str = "ERR invalid cursor";

fn number(text: &[u8]) -> Option<u64> {
    let is_decimal = text.first().is_some_and(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_decimal)?.parse().ok()
}

/// Encoder of one key.
struct Key<'o>(&'o mut Vec<u8>);

impl Reply for Key<'_> {
    fn element(&mut self, key: &[u8]) {
        reply::string(self.0, key);
    }
}

/// Executes `RANDOMKEY`.
pub(super) fn random(context: &mut Context<'_>, output: &mut Vec<u8>) -> Result<(), Failed> {
    context.tally.count(Count::KeysWithPrefix);
    if context.execute(&Operation::RandomKey, &mut Key(output))?? != Outcome::Done {
        reply::null(output, context.session.redis.version);
    }
    Ok(())
}
