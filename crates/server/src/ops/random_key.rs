//! A random key: the next one after a random place.

use super::execute::{Outcome, Reply, ReplyLimit, Stop};
use crate::store::view::View;
use cabinet::{KeyOrder, Result, ScanCursor};
use std::hash::{BuildHasher, RandomState};

/// Most steps from the beginning of a random key of a tree to its end.
const STEPS_MAX: usize = 64;

/// Appends a key, if there is one. Some keys are more likely than others.
pub(super) fn append(
    store: &View,
    limit: &mut ReplyLimit<'_>,
    reply: &mut impl Reply,
) -> std::result::Result<Outcome, Stop> {
    let Some(key) = any(store)? else { return Ok(Outcome::NoRecord) };
    limit.append(reply, key.len(), |reply| reply.element(&key))?;
    Ok(Outcome::Done)
}

fn any(store: &View) -> Result<Option<Vec<u8>>> {
    let found = match (store.as_numbered(), store.scan_cursor_of(&random().to_be_bytes())) {
        (Some(numbered), _) => {
            let (first, last) = (numbered.min().unwrap_or(0), numbered.max().unwrap_or(0));
            let ids = last.saturating_sub(first).saturating_add(1);
            first_from(store, ScanCursor::Id(first + random() % ids))?
        }
        (None, place @ ScanCursor::Hash(_)) => first_from(store, place)?,
        (None, _) if store.order() == Some(KeyOrder::Lexical) => of_tree(store)?,
        // A number, wherever keys are in the order of numbers.
        (None, _) => first_from(store, ScanCursor::Key(random().to_string().into_bytes()))?,
    };
    match found {
        Some(key) => Ok(Some(key)),
        None => first_from(store, ScanCursor::Start),
    }
}

/// Returns a key of a tree in the order of bytes: byte for byte, the next one after a random byte
/// among those that keys with its beginning have there.
fn of_tree(store: &View) -> Result<Option<Vec<u8>>> {
    let Some(mut key) = first_from(store, ScanCursor::Start)? else { return Ok(None) };
    for length in 0..STEPS_MAX {
        let beginning = key.get(..length).unwrap_or(&key).to_vec();
        let after = |byte: u8| -> Result<Option<Vec<u8>>> {
            let place = [&beginning[..], &[byte]].concat();
            let found = first_from(store, ScanCursor::Key(place))?;
            Ok(found.filter(|found| found.starts_with(&beginning)))
        };
        let Some(lowest) = after(0)? else { return Ok(Some(key)) };
        let Some(low) = lowest.get(length).copied() else { return Ok(Some(lowest)) };
        let (mut high, mut above) = (low, u8::MAX);
        while high < above {
            let middle = high + (above - high).div_ceil(2);
            match after(middle)? {
                Some(_) => high = middle,
                None => above = middle - 1,
            }
        }
        let byte = low + (random() % (u64::from(high - low) + 1)) as u8;
        key = after(byte)?.unwrap_or(lowest);
        // It may be the beginning of others.
        if key.len() == length + 1 && random().is_multiple_of(2) {
            break;
        }
    }
    Ok(Some(key))
}

/// Returns the first key at or after a place.
fn first_from(store: &View, from: ScanCursor) -> Result<Option<Vec<u8>>> {
    let (mut first, mut place) = (None, Some(from));
    while let Some(from) = place.take().filter(|_| first.is_none()) {
        place = store.scan_keys(&from, |key| {
            first.get_or_insert_with(|| key.to_vec());
        })?;
    }
    Ok(first)
}

fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cabinet::Database;
    use std::collections::BTreeSet;

    #[test]
    fn every_key_may_be_the_random_one() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["*", "+", "a.tch", "a.tcb", "a.tcf"] {
            let path = folder.path().join(name).display().to_string();
            let database = Database::open(if name.len() == 1 { name } else { &path });
            let database = database.expect("a database");
            let store = View::from(database.clone());
            assert_eq!(any(&store).expect("no failure"), None, "{name}");
            let key = |number: &u32| number.to_string().into_bytes();
            let keys: BTreeSet<Vec<u8>> = [1, 12, 123, 7, 35].iter().map(key).collect();
            for key in &keys {
                database.put(key, b"v").expect("stored");
            }
            let mut found = BTreeSet::new();
            for _ in 0..1_000_000 {
                found.insert(any(&store).expect("no failure").expect("a key"));
                if found.len() == keys.len() {
                    break;
                }
            }
            assert_eq!(found, keys, "{name}");
        }
    }
    #[test]
    fn trees_in_other_orders_have_random_keys_too() {
        for order in ["decimal", "int32", "int64"] {
            let database = Database::open(&format!("+#order={order}")).expect("a database");
            let store = View::from(database.clone());
            for key in [&b"-"[..], b"-!", b"-z", b"abcdefgh", b"12345678"] {
                let _ = database.put(key, b"v");
            }
            for _ in 0..300 {
                assert!(any(&store).expect("no failure").is_some(), "{order}");
            }
        }
    }
}
