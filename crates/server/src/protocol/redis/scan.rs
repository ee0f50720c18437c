//! Commands that list keys. A scan has no state in the server where the order of the database is that
//! of numbers: its cursor is the place itself.

use super::pattern::{self, matches};
use super::{Failed, NO_INTEGER, SYNTAX, integer, parts, reply};
use crate::counters::Count;
use crate::ops::execute::Reply;
use crate::ops::operation::Operation;
use crate::protocol::Context;
use cabinet::ScanCursor;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};
use wire::redis::Arguments;

/// Number of keys that a step visits, unless the client names another one.
const COUNT: usize = 10;

/// Encoder of the keys that match a pattern.
struct Matching<'p> {
    pattern: &'p [u8],
    keys: Vec<u8>,
    count: usize,
    /// Place at which the scan continues.
    next: Option<ScanCursor>,
}

impl<'p> Matching<'p> {
    fn new(pattern: &'p [u8]) -> Self {
        Self { pattern, keys: Vec::new(), count: 0, next: None }
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

    fn next_place(&mut self, place: &ScanCursor) {
        self.next = Some(place.clone());
    }
}

/// Returns the beginning that all keys have which match a pattern.
fn prefix_of(pattern: &[u8]) -> &[u8] {
    let special = pattern.iter().position(|byte| b"*?[\\".contains(byte));
    &pattern[..special.unwrap_or(pattern.len())]
}

/// Executes `KEYS`.
pub(super) fn matching(
    context: &mut Context<'_>,
    arguments: Arguments<'_>,
    output: &mut Vec<u8>,
) -> Result<(), Failed> {
    let [pattern] = parts(arguments)?;
    pattern::check(pattern)?;
    // In a fixed-length database, keys are ids, and a prefix is an interval of them.
    let prefix = match context.shared.served.model.has_ids {
        true => b"[min,max]",
        false => prefix_of(pattern),
    };
    context.counters.count(Count::KeysWithPrefix);
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
    pattern::check(pattern)?;
    let has_ids = context.shared.served.model.has_ids;
    let from = match cursor {
        0 => ScanCursor::Start,
        _ => context.shared.redis.cursors.place(cursor, context.database.scan_cursor_of(b"0"))?,
    };
    context.counters.count(Count::KeysWithPrefix);
    let mut matching = Matching::new(pattern);
    let prefix = if has_ids { b"" } else { prefix_of(pattern) };
    let operation = Operation::KeyScan { prefix, from: &from, min: count };
    context.execute(&operation, &mut matching)??;
    let next = matching.next.take().map_or(0, |place| context.shared.redis.cursors.cursor(place));
    reply::array(output, 2);
    reply::string(output, next.to_string().as_bytes());
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

/// Most places of scans that the server keeps.
const CURSORS_MAX: usize = 16_384;

/// Most bytes of their keys.
const CURSOR_BYTES_MAX: usize = 4 << 20;

/// Places of scans in databases that are in the order of their keys, by numbers that rise. The oldest
/// ones are forgotten.
#[derive(Debug, Default)]
pub(super) struct Cursors(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    /// Number of the first place.
    first: u64,
    keys: VecDeque<Box<[u8]>>,
    bytes: usize,
}

impl Cursors {
    /// Returns the place of a cursor that a step has returned. `like` is any place in the database.
    fn place(&self, cursor: u64, like: ScanCursor) -> Result<ScanCursor, Failed> {
        match like {
            ScanCursor::Hash(_) => Ok(ScanCursor::Hash(cursor)),
            ScanCursor::Id(_) => Ok(ScanCursor::Id(cursor)),
            ScanCursor::Start | ScanCursor::Key(_) => {
                let places = self.0.lock();
                let index =
                    cursor.checked_sub(places.first).and_then(|index| index.try_into().ok());
                let key = index.and_then(|index: usize| places.keys.get(index));
                let key = key.ok_or(
                    "ERR invalid cursor: begin again with 0, the scan was too slow, or \
                                     the server was started again",
                )?;
                Ok(ScanCursor::Key(key.to_vec()))
            }
        }
    }

    /// Returns the cursor of a place, which is not 0.
    fn cursor(&self, place: ScanCursor) -> u64 {
        let key = match place {
            ScanCursor::Hash(number) | ScanCursor::Id(number) => return number,
            ScanCursor::Start => return 0,
            ScanCursor::Key(key) => key.into_boxed_slice(),
        };
        let places = &mut *self.0.lock();
        if places.first == 0 {
            // No number is that of another place in a server before this one. All of them have up to
            // 53 bits, which are exact in languages whose numbers have a floating point.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            places.first = (now.as_micros() as u64).max(1);
        }
        places.bytes += key.len();
        places.keys.push_back(key);
        while places.keys.len() > CURSORS_MAX || places.bytes > CURSOR_BYTES_MAX {
            let Some(oldest) = places.keys.pop_front() else { break };
            places.bytes -= oldest.len();
            places.first += 1;
        }
        places.first + places.keys.len() as u64 - 1
    }
}

/// Most steps from the beginning of a random key to its end.
const RANDOM_STEPS_MAX: usize = 64;

/// Executes `RANDOMKEY`: the next key after a random place.
pub(super) fn random(context: &mut Context<'_>, output: &mut Vec<u8>) -> Result<(), Failed> {
    context.counters.count(Count::KeysWithPrefix);
    let numbered = context.database.as_numbered();
    let found = match (context.database.scan_cursor_of(&random_bytes()), numbered) {
        (_, Some(numbered)) => {
            let (first, last) = (numbered.min().unwrap_or(0), numbered.max().unwrap_or(0));
            let at = first + random_number() % (last - first).saturating_add(1);
            first_from(context, &ScanCursor::Id(at))?
        }
        (place @ ScanCursor::Hash(_), None) => first_from(context, &place)?,
        (ScanCursor::Start | ScanCursor::Key(_) | ScanCursor::Id(_), None) => {
            random_of_tree(context)?
        }
    };
    let found = match found {
        Some(key) => Some(key),
        None => first_from(context, &ScanCursor::Start)?,
    };
    match found {
        Some(key) => reply::string(output, &key),
        None => reply::null(output, context.session.redis.version),
    }
    Ok(())
}

/// Returns a key of a tree: byte for byte, the next one after a random byte.
fn random_of_tree(context: &mut Context<'_>) -> Result<Option<Vec<u8>>, Failed> {
    let Some(mut key) = first_from(context, &ScanCursor::Start)? else { return Ok(None) };
    for length in 0..RANDOM_STEPS_MAX.min(key.len()) {
        let place = [&key[..length.min(key.len())], &random_bytes()].concat();
        match first_from(context, &ScanCursor::Key(place))? {
            Some(found) if found.starts_with(&key[..length.min(key.len())]) => key = found,
            // No key is after it.
            _ => {}
        }
    }
    Ok(Some(key))
}

/// A reply that keeps the first key, and is full then.
#[derive(Default)]
struct First(Option<Vec<u8>>);

impl Reply for First {
    fn element(&mut self, key: &[u8]) {
        self.0.get_or_insert_with(|| key.to_vec());
    }

    fn is_full(&self) -> bool {
        self.0.is_some()
    }
}

/// Returns the first key at or after a place.
fn first_from(context: &mut Context<'_>, from: &ScanCursor) -> Result<Option<Vec<u8>>, Failed> {
    let mut first = First::default();
    context.execute(&Operation::KeyScan { prefix: b"", from, min: 1 }, &mut first)??;
    Ok(first.0)
}

fn random_number() -> u64 {
    RandomState::new().hash_one(0)
}

fn random_bytes() -> [u8; 8] {
    random_number().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> ScanCursor {
        ScanCursor::Key(number.to_string().into_bytes())
    }

    #[test]
    fn the_places_of_a_tree_are_kept_up_to_a_limit() {
        let cursors = Cursors::default();
        let first = cursors.cursor(key(0));
        let kept = (1..CURSORS_MAX).map(|number| cursors.cursor(key(number)));
        let last = kept.last().expect("some");
        assert!(first > 0 && last < 1 << 53);
        assert_eq!(cursors.place(first, key(0)).ok(), Some(key(0)));
        let next = cursors.cursor(key(CURSORS_MAX));
        assert!(cursors.place(first, key(0)).is_err() && cursors.place(next + 1, key(0)).is_err());
        assert_eq!(cursors.place(first + 1, key(0)).ok(), Some(key(1)));
        assert_eq!(cursors.place(last, key(0)).ok(), Some(key(CURSORS_MAX - 1)));
    }

    #[test]
    fn the_bytes_of_the_places_are_limited() {
        let cursors = Cursors::default();
        let long = ScanCursor::Key(vec![1; CURSOR_BYTES_MAX / 2]);
        let numbers = [0; 3].map(|_| cursors.cursor(long.clone()));
        assert!(cursors.place(numbers[0], key(0)).is_err());
        assert_eq!(cursors.place(numbers[1], key(0)).ok(), Some(long));
    }

    #[test]
    fn places_in_the_order_of_numbers_are_their_own_cursors() {
        let cursors = Cursors::default();
        for place in [ScanCursor::Hash(5 << 32 | 7), ScanCursor::Id(3)] {
            let cursor = cursors.cursor(place.clone());
            assert_eq!(cursors.place(cursor, place.clone()).ok(), Some(place));
        }
    }
}
