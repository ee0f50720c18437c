//! List of keys by prefix, in pages, as JSON.

use super::{Halt, explained, json};
use crate::counters::Count;
use crate::ops::execute::Reply;
use crate::ops::operation::Operation;
use crate::protocol::Context;
use serde_json::{Value, json};
use wire::http::{Head, Method, Status, decode, reply};

/// Most keys of a page.
const KEYS_MAX: usize = 10_000;

/// Bytes of keys after which a page ends.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// Keys of a page if the client does not set a limit.
const KEYS_DEFAULT: usize = 1000;

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
) -> Result<(), Halt> {
    if context.shared.remote.is_none() {
        // A page reads many records, of any age.
        context.wait()?;
    }
    let wanted = match Wanted::parse(query) {
        Ok(wanted) => wanted,
        Err(what) => {
            context.counters.count(Count::KeysWithPrefix);
            reply::plain_text(output, Status::BadRequest, &what);
            return Ok(());
        }
    };
    let Wanted { prefix, after, limit } = &wanted;
    let operation = Operation::KeyPage { prefix, after: after.as_deref(), max: *limit };
    let mut page = Page::default();
    let listed = context.execute(&operation, &mut page);
    if !matches!(listed, Err(Halt::Blocked)) {
        // One that is blocked is executed again.
        context.counters.count(Count::KeysWithPrefix);
    }
    match listed? {
        Ok(_) => {
            let Page { keys, next, .. } = page;
            let body = json!({ "keys": keys, "next": next }).to_string();
            context.check_length(body.len())?;
            reply::document(output, json::JSON, body.as_bytes());
        }
        Err(error) => explained(output, &error),
    }
    Ok(())
}

/// Encoder of a page.
#[derive(Default)]
struct Page {
    keys: Vec<Value>,
    /// Length of the keys.
    bytes: usize,
    /// Key after which the next page begins, unless this is the last page.
    next: Option<Value>,
}

impl Reply for Page {
    fn element(&mut self, key: &[u8]) {
        self.keys.push(json::from_bytes(key));
        self.bytes += key.len();
    }

    fn len(&self) -> usize {
        self.bytes
    }

    fn is_full(&self) -> bool {
        self.bytes >= PAGE_BYTES_MAX
    }

    fn next_page(&mut self, after: &[u8]) {
        self.next = Some(json::from_bytes(after));
    }
}

impl Wanted {
    fn parse(query: &[u8]) -> Result<Self, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
