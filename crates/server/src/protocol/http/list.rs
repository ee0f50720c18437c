//! List of keys by prefix, in pages, as JSON.

use super::{Halt, explained, json};
use crate::counters::Count;
use crate::ops::reserved::is_reserved;
use crate::protocol::Context;
use crate::store::view::View;
use cabinet::{Order, Position, Result};
use serde_json::json;
use wire::http::{Head, Method, Status, decode, reply};

/// Most keys of a page.
const KEYS_MAX: usize = 10_000;

/// Keys of a page if the client does not set a limit.
const KEYS_DEFAULT: usize = 1000;

/// Most keys that are visited for a page. The page ends early if few of them have the prefix.
const LOOKED_AT_MAX: usize = 100_000;

/// Parameters of a request.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    prefix: Vec<u8>,
    after: Option<Vec<u8>>,
    limit: usize,
}

/// Returns the query of a request for a list. Only a client that names JSON in `Accept` gets a
/// list, because for other clients the whole target is a key.
pub(super) fn query<'a>(head: &Head<'a>) -> Option<&'a [u8]> {
    let query = head.target.strip_prefix(b"/?list")?;
    let accepts = head.header("Accept").is_some_and(|accept| {
        let types = accept.split(|byte| *byte == b',' || *byte == b';');
        types.map(<[u8]>::trim_ascii).any(|one| one.eq_ignore_ascii_case(json::JSON.as_bytes()))
    });
    let is_list = head.method == Method::Get && accepts && matches!(query, [] | [b'&', ..]);
    is_list.then_some(query)
}

/// Replies with a page.
pub(super) fn list(
    context: &mut Context<'_>,
    query: &[u8],
    output: &mut Vec<u8>,
) -> std::result::Result<(), Halt> {
    // A page reads many records, of any age.
    context.wait()?;
    context.counters.count(Count::KeysWithPrefix);
    let wanted = match Wanted::parse(query) {
        Ok(wanted) => wanted,
        Err(what) => {
            reply::plain_text(output, Status::BadRequest, &what);
            return Ok(());
        }
    };
    let listed = context.local("pages of keys").and_then(|store| page(store, &wanted));
    match context.attempt("do_http_get", listed)? {
        Ok(Page { keys, next }) => {
            let keys: Vec<_> = keys.iter().map(|key| json::from_bytes(key)).collect();
            let next = next.map(|key| json::from_bytes(&key));
            let body = json!({ "keys": keys, "next": next }).to_string();
            context.check_length(body.len())?;
            reply::document(output, json::JSON, body.as_bytes());
        }
        Err(error) => explained(output, &error),
    }
    Ok(())
}

impl Wanted {
    fn parse(query: &[u8]) -> std::result::Result<Self, String> {
        let mut wanted = Self { limit: KEYS_DEFAULT, ..Self::default() };
        for field in query.split(|byte| *byte == b'&').filter(|field| !field.is_empty()) {
            let mut parts = field.splitn(2, |byte| *byte == b'=');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next());
            let value = decode(value.unwrap_or_default());
            match name {
                b"prefix" => wanted.prefix = value.into_owned(),
                b"after" => wanted.after = Some(value.into_owned()),
                b"limit" => {
                    let limit = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
                    let limit = limit.filter(|limit| (1..=KEYS_MAX).contains(limit));
                    wanted.limit = limit.ok_or(format!("limit is a number up to {KEYS_MAX}"))?;
                }
                _ => return Err(format!("no parameter {}", name.escape_ascii())),
            }
        }
        Ok(wanted)
    }
}

struct Page {
    keys: Vec<Vec<u8>>,
    /// Key after which the next page begins, unless this is the last page.
    next: Option<Vec<u8>>,
}

/// Reads a page in the order of the database. Trees have the order of bytes. Hash databases have an
/// order without meaning that stays the same.
fn page(database: &View, wanted: &Wanted) -> Result<Page> {
    let is_sorted = database.order() == Some(Order::Lexical);
    let mut position = match &wanted.after {
        Some(after) if !is_sorted || after[..] >= wanted.prefix[..] => database.position_of(after),
        None | Some(_) if is_sorted => database.position_of(&wanted.prefix),
        None | Some(_) => Position::Start,
    };
    // In the order of hashes, keys with the same hash may come before it.
    let mut skips = wanted.after.as_deref().filter(|_| matches!(position, Position::Hash(_)));
    let mut page = Page { keys: Vec::new(), next: None };
    let mut last: Vec<u8> = Vec::new();
    let mut looked_at = 0;
    loop {
        let mut step: Vec<Vec<u8>> = Vec::new();
        let next = database.scan_keys(&position, |key| step.push(key.to_vec()))?;
        if let Some(after) = skips.take()
            && let Some(place) = step.iter().position(|key| key == after)
        {
            step.drain(..=place);
        }
        for key in step {
            if key == last && looked_at > 0 || wanted.after.as_ref() == Some(&key) {
                // The key has several values.
                continue;
            }
            if is_sorted && !key.starts_with(&wanted.prefix) {
                return Ok(page);
            }
            if page.keys.len() == wanted.limit || looked_at == LOOKED_AT_MAX {
                page.next = Some(last);
                return Ok(page);
            }
            looked_at += 1;
            last.clone_from(&key);
            if key.starts_with(&wanted.prefix) && !is_reserved(&key) {
                page.keys.push(key);
            }
        }
        match next {
            Some(next) => position = next,
            None => return Ok(page),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cabinet::Database;
    use std::collections::BTreeSet;

    fn wanted(prefix: &str, after: Option<Vec<u8>>, limit: usize) -> Wanted {
        Wanted { prefix: prefix.into(), after, limit }
    }

    #[test]
    fn a_query_selects_keys() {
        let parsed = Wanted::parse(b"&prefix=a%2Fb&after=a%2Fb+c&limit=5").expect("a query");
        assert_eq!(parsed, wanted("a/b", Some(b"a/b c".to_vec()), 5));
        assert_eq!(Wanted::parse(b"").expect("a query"), wanted("", None, KEYS_DEFAULT));
        for query in ["&limit=0", "&limit=10001", "&limit=x", "&limit", "&other=1"] {
            Wanted::parse(query.as_bytes()).expect_err(query);
        }
        Wanted::parse(b"&limit=10000").expect("the limit");
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
            database.put(crate::ops::reserved::MEDIA_TYPES, b"").expect("stored");
            let database = View::from(database);
            for limit in [1, 7, 99, 100, 101] {
                let mut found = Vec::new();
                let mut after = None;
                loop {
                    let page = page(&database, &wanted("odd", after, limit)).expect("a page");
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
            let all = page(&database, &wanted("", None, KEYS_MAX)).expect("a page");
            assert_eq!(all.keys.len(), 700, "{name}");
        }
    }
}
