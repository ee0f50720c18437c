//! Pages of keys: some keys that begin with a prefix, and the key after which the next page begins.

use super::execute::{Executor, Reply, ReplyLimit, Stop};
use crate::store::view::View;
use cabinet::{KeyOrder, ScanCursor};

/// Most keys that are visited for a page. The page ends early if few of them have the prefix.
const VISITED_MAX: usize = 100_000;

/// Appends a page in the order of the database. Trees have the order of bytes. Hash databases have
/// an order without meaning that stays the same. A page ends before `max` keys if
/// the reply is full.
pub(super) fn page(
    store: &View,
    limit: &mut ReplyLimit<'_>,
    prefix: &[u8],
    after: Option<&[u8]>,
    max: usize,
    reply: &mut impl Reply,
) -> Result<(), Stop> {
    let is_sorted = store.order() == Some(KeyOrder::Lexical);
    let mut position = match after {
        Some(after) if !is_sorted || after >= prefix => store.scan_cursor_of(after),
        _ if is_sorted => store.scan_cursor_of(prefix),
        _ => ScanCursor::Start,
    };
    // In the order of hashes, keys with the same hash may come before it.
    let mut skips = after.filter(|_| matches!(position, ScanCursor::Hash(_)));
    let mut last: Vec<u8> = Vec::new();
    let (mut found, mut visited) = (0, 0);
    loop {
        let mut step: Vec<Vec<u8>> = Vec::new();
        let next = store.scan_keys(&position, |key| step.push(key.to_vec()))?;
        if let Some(after) = skips.take()
            && let Some(place) = step.iter().position(|key| key == after)
        {
            step.drain(..=place);
        }
        for key in step {
            if key == last && visited > 0 || after == Some(&key[..]) {
                // The key has several values.
                continue;
            }
            if is_sorted && !key.starts_with(prefix) {
                return Ok(());
            }
            if found == max || visited == VISITED_MAX {
                reply.next_page(&last);
                return Ok(());
            }
            visited += 1;
            if key.starts_with(prefix) {
                found += 1;
                limit.append(reply, key.len(), |reply| reply.element(&key))?;
                if reply.is_full() {
                    reply.next_page(&key);
                    return Ok(());
                }
            }
            last = key;
        }
        match next {
            Some(next) => position = next,
            None => return Ok(()),
        }
    }
}

/// Appends the keys that begin with a prefix from a place on, in the order of the database, until
/// at least `min` keys were visited. The place after them is the same whatever is written
/// meanwhile.
pub(super) fn scan(
    executor: &mut Executor<'_>,
    prefix: &[u8],
    from: u64,
    min: usize,
    reply: &mut impl Reply,
) -> Result<(), Stop> {
    let (store, places) = (executor.store, executor.scan_places()?);
    let limit = &mut executor.limit;
    let is_sorted = store.order() == Some(KeyOrder::Lexical);
    let mut position = match from {
        0 if is_sorted => store.scan_cursor_of(prefix),
        0 => ScanCursor::Start,
        number => places.place(number, store.scan_cursor_of(b"0"))?,
    };
    let (mut visited, mut is_over, mut length) = (0, false, Ok(()));
    let mut last: Option<Vec<u8>> = None;
    loop {
        let next = store.scan_keys(&position, |key| {
            is_over |= is_sorted && !key.starts_with(prefix);
            // A key with several values is visited for each.
            if is_over || length.is_err() || last.as_deref() == Some(key) {
                return;
            }
            visited += 1;
            last = Some(key.to_vec());
            if key.starts_with(prefix) {
                length = limit.append(reply, key.len(), |reply| reply.element(key));
            }
        })?;
        length?;
        match next {
            Some(next) if !is_over && (visited >= min || reply.is_full()) => {
                reply.next_place(places.number(next));
                return Ok(());
            }
            Some(next) if !is_over => position = next,
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::budget::Budget;
    use cabinet::Database;
    use std::collections::BTreeSet;

    #[derive(Default)]
    struct Page {
        keys: Vec<Vec<u8>>,
        next: Option<Vec<u8>>,
        keys_max: Option<usize>,
    }

    impl Reply for Page {
        fn element(&mut self, key: &[u8]) {
            self.keys.push(key.to_vec());
        }

        fn next_page(&mut self, after: &[u8]) {
            self.next = Some(after.to_vec());
        }

        fn is_full(&self) -> bool {
            self.keys_max.is_some_and(|most| self.keys.len() >= most)
        }
    }

    fn page_of(store: &View, prefix: &[u8], after: Option<&[u8]>, max: usize) -> Page {
        let mut found = Page::default();
        fill(store, prefix, after, max, &mut found);
        found
    }

    fn fill(store: &View, prefix: &[u8], after: Option<&[u8]>, max: usize, found: &mut Page) {
        let (budget, charge) = (&Budget::new(usize::MAX), &mut None);
        let mut limit = ReplyLimit { bytes_max: usize::MAX, earlier_bytes: 0, budget, charge };
        page(store, &mut limit, prefix, after, max, found).expect("a page");
    }

    #[test]
    fn a_page_ends_where_the_reply_is_full() {
        let database = Database::open("+").expect("a database");
        for key in [b"a", b"b", b"c", b"d"] {
            database.put(key, b"").expect("stored");
        }
        let database = View::from(database);
        let mut first = Page { keys_max: Some(3), ..Page::default() };
        fill(&database, b"", None, 100, &mut first);
        assert_eq!(first.keys, [b"a", b"b", b"c"]);
        assert_eq!(first.next.as_deref(), Some(&b"c"[..]));
        assert_eq!(page_of(&database, b"", first.next.as_deref(), 100).keys, [b"d"]);
    }

    #[test]
    fn pages_show_each_key_with_the_prefix_once_whatever_the_kind() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = ["*", "+", "a.tch", "a.tcb", "b.tcb#order=decimal"];
        for name in names {
            let path = folder.path().join(name).display().to_string();
            let name = if name.len() == 1 { name } else { &path };
            let database = Database::open(name).expect("a database");
            let mut expected = BTreeSet::new();
            for number in 0..700 {
                let key = format!("{}/{number}", if number % 7 == 0 { "odd" } else { "even" });
                database.put(key.as_bytes(), b"").expect("stored");
                if number % 7 == 0 {
                    expected.insert(key.into_bytes());
                }
            }
            database.put(crate::store::reserved::MEDIA_TYPES, b"").expect("stored");
            let database = View::from(database);
            for limit in [1, 7, 99, 100, 101] {
                let mut found = Vec::new();
                let mut after = None;
                loop {
                    let page = page_of(&database, b"odd", after.as_deref(), limit);
                    assert!(page.keys.len() <= limit);
                    found.extend(page.keys);
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
                assert_eq!(found.len(), expected.len(), "{name} {limit}");
                assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected, "{name} {limit}");
            }
            let all = page_of(&database, b"", None, 10_000);
            assert_eq!(all.keys.len(), 700, "{name}");
        }
    }
}
