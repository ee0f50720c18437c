//! Generations: the states of a client's keys that its transactions leave behind.
//!
//! Transaction N of a client makes generation N of all of its keys: values that begin with N, some
//! of which will expire in a day, and in each second transaction removals of some keys. Generation
//! 0 is that of no key. Each state follows from its number, so that a read shows which
//! transactions it has seen.

use crate::differential::redis_request;
use crate::random::Random;
use anyhow::{Result, bail, ensure};
use std::collections::BTreeMap;

/// Number of keys of a client, and of commands in a transaction.
pub(super) const KEYS: usize = 100;

/// Longest filling of a value, in bytes; and that of one in [`LONG_EVERY`].
const FILLING_BYTES_MAX: u64 = 40;
const LONG_BYTES_MAX: u64 = 4000;
const LONG_EVERY: u64 = 50;

/// One of this many keys is removed in each second transaction, and one of this many values will
/// expire.
const REMOVED_EVERY: u64 = 4;
const EXPIRES_EVERY: u64 = 8;

/// Expiry of these values, in milliseconds.
const EXPIRY_MS: i64 = 24 * 60 * 60 * 1000;

/// A record as a transaction stores it.
#[derive(Debug, PartialEq, Eq)]
struct Stored {
    value: Vec<u8>,
    expires: bool,
}

/// The keys of one client.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    pub(super) client: usize,
}

impl Keys {
    fn name(self, key: usize) -> String {
        format!("client-{}-key-{key}", self.client)
    }

    /// Returns the record of a key in a generation, or `None` if there is none.
    fn stored(self, generation: u64, key: usize) -> Option<Stored> {
        let mut random = Random((generation << 16) + (self.client << 8 | key) as u64);
        // Key 0 is never removed, so that each generation can be told from the one before.
        let is_removed =
            generation % 2 == 1 && key > 0 && random.below(REMOVED_EVERY) == 0 || generation == 0;
        if is_removed {
            return None;
        }
        let expires = random.below(EXPIRES_EVERY) == 0;
        let is_long = random.below(LONG_EVERY) == 0;
        let filling = random.below(if is_long { LONG_BYTES_MAX } else { FILLING_BYTES_MAX });
        let mut value = format!("{generation}:").into_bytes();
        value.resize(value.len() + filling as usize, b'a' + (generation % 26) as u8);
        Some(Stored { value, expires })
    }

    /// Returns the requests of the transaction that makes a generation.
    pub(super) fn transaction(self, generation: u64) -> Vec<u8> {
        let mut requests = redis_request(&["MULTI"]);
        for key in 0..KEYS {
            let name = self.name(key);
            requests.extend(match self.stored(generation, key) {
                None => redis_request(&["DEL", &name]),
                Some(Stored { value, expires }) => {
                    let value = String::from_utf8_lossy(&value);
                    let expiry = EXPIRY_MS.to_string();
                    let words = ["SET", &name, &value, "PX", &expiry];
                    redis_request(if expires { &words } else { &words[..3] })
                }
            });
        }
        requests.extend(redis_request(&["EXEC"]));
        requests
    }

    /// Returns the lines of the replies to that transaction, made upon another generation.
    pub(super) fn replies(self, generation: u64, before: u64) -> impl Iterator<Item = String> {
        let head = ["+OK".to_owned()].into_iter();
        let queued = std::iter::repeat_n("+QUEUED".to_owned(), KEYS);
        let array = std::iter::once(format!("*{KEYS}"));
        let results = (0..KEYS).map(move |key| match self.stored(generation, key) {
            Some(_) => "+OK".to_owned(),
            None => format!(":{}", u8::from(self.stored(before, key).is_some())),
        });
        head.chain(queued).chain(array).chain(results)
    }

    /// Returns the request for all values.
    pub(super) fn read(self) -> Vec<u8> {
        let names = (0..KEYS).map(|key| self.name(key));
        redis_request(&["MGET".to_owned()].into_iter().chain(names).collect::<Vec<_>>())
    }

    /// Returns the requests for all expiries.
    pub(super) fn read_expiries(self) -> Vec<u8> {
        (0..KEYS).flat_map(|key| redis_request(&["PTTL", &self.name(key)])).collect()
    }

    /// Returns the generation of all values that were read together. Fails if they are of several.
    pub(super) fn generation(self, values: &[Option<Vec<u8>>]) -> Result<u64> {
        let Some(generation) = number(values[0].as_deref()) else {
            bail!("client {}: key 0 holds no number: {}", self.client, summary(values))
        };
        for (key, value) in values.iter().enumerate() {
            let expected = self.stored(generation, key).map(|stored| stored.value);
            ensure!(
                *value == expected,
                "client {}: key 0 is of transaction {generation}, key {key} is not: {}",
                self.client,
                summary(values)
            );
        }
        Ok(generation)
    }

    /// Fails if the replies to [`Self::read_expiries`] are not those of a generation.
    pub(super) fn check_expiries(self, generation: u64, replies: &[String]) -> Result<()> {
        for (key, reply) in replies.iter().enumerate() {
            let ms = reply.strip_prefix(':').and_then(|number| number.parse::<i64>().ok());
            let is_right = match self.stored(generation, key) {
                None => ms == Some(-2),
                Some(Stored { expires: false, .. }) => ms == Some(-1),
                Some(_) => ms.is_some_and(|ms| 0 < ms && ms <= EXPIRY_MS),
            };
            ensure!(is_right, "{}: PTTL is {reply:?} in {generation}", self.name(key));
        }
        Ok(())
    }
}

/// Returns the generation that a value names, 0 for none.
fn number(value: Option<&[u8]>) -> Option<u64> {
    let Some(value) = value else { return Some(0) };
    std::str::from_utf8(value).ok()?.split_once(':')?.0.parse().ok()
}

/// Returns how many values there are of each generation.
fn summary(values: &[Option<Vec<u8>>]) -> String {
    let mut counts = BTreeMap::new();
    for value in values {
        let name = match (value, number(value.as_deref())) {
            (None, _) => "no record".to_owned(),
            (_, Some(number)) => format!("transaction {number}"),
            (_, None) => "no number".to_owned(),
        };
        *counts.entry(name).or_insert(0) += 1;
    }
    let counts: Vec<String> =
        counts.into_iter().map(|(name, count)| format!("{count} of {name}")).collect();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: Keys = Keys { client: 1 };

    fn values(generation: u64) -> Vec<Option<Vec<u8>>> {
        (0..KEYS).map(|key| MINE.stored(generation, key).map(|stored| stored.value)).collect()
    }

    #[test]
    fn a_whole_generation_is_found() {
        for generation in 0..100 {
            assert_eq!(MINE.generation(&values(generation)).unwrap(), generation);
        }
    }

    #[test]
    fn a_part_of_a_transaction_is_refused_wherever_it_ends() {
        for generation in 0..4 {
            for end in 1..KEYS {
                let (mut torn, after) = (values(generation), values(generation + 1));
                if torn[end..] == after[end..] {
                    continue;
                }
                torn[..end].clone_from_slice(&after[..end]);
                MINE.generation(&torn).unwrap_err();
            }
        }
    }

    #[test]
    fn transactions_remove_and_expire() {
        let count = |generation, is_counted: fn(Option<Stored>) -> bool| {
            (0..KEYS).filter(|key| is_counted(MINE.stored(generation, *key))).count()
        };
        assert!(count(1, |stored| stored.is_none()) > 10);
        assert_eq!(count(2, |stored| stored.is_none()), 0);
        assert!(count(2, |stored| stored.is_some_and(|stored| stored.expires)) > 3);
    }

    #[test]
    fn another_expiry_is_refused() {
        let replies: Vec<String> = (0..KEYS)
            .map(|key| match MINE.stored(1, key) {
                None => ":-2".to_owned(),
                Some(stored) if stored.expires => ":1000".to_owned(),
                Some(_) => ":-1".to_owned(),
            })
            .collect();
        MINE.check_expiries(1, &replies).unwrap();
        for key in 0..KEYS {
            let mut wrong = replies.clone();
            wrong[key] = if wrong[key] == ":-1" { ":1000" } else { ":-1" }.to_owned();
            MINE.check_expiries(1, &wrong).unwrap_err();
        }
    }
}
