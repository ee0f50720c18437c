//! Lookahead in a pipeline: prefetches the keys of the next requests before the first of them is
//! executed, so that the cache misses of their lookups overlap.

use crate::ops::prefetch::KEYS_AHEAD_MAX;
use crate::shared::Shared;
use wire::memcached::Dialect;
use wire::{Parse, Protocol, binary, memcached, memcached_binary};

/// Prefetches the keys of the whole requests at the beginning of `input`. Returns the length of
/// these requests in bytes. Requests with several keys prefetch their keys themselves.
pub(crate) fn look_ahead(shared: &Shared, input: &[u8]) -> usize {
    let mut keys = [&[][..]; KEYS_AHEAD_MAX];
    let mut count = 0;
    let mut seen = 0;
    while count < KEYS_AHEAD_MAX {
        let rest = &input[seen..];
        let Some((key, bytes)) = next_key(shared.config.dialect, rest) else { break };
        keys[count] = key;
        count += 1;
        seen += bytes;
    }
    if count > 1 {
        shared.served.nonblocking.prefetch(&keys[..count]);
        shared.hits.prefetch(&keys[..count]);
    }
    seen
}

/// Returns the only key of the request at the beginning of `input`, and the request's length.
fn next_key(dialect: Dialect, input: &[u8]) -> Option<(&[u8], usize)> {
    if input.is_empty() {
        return None;
    }
    // Its flags need not be parsed twice.
    if let Some(key) = memcached::meta_get_key(input) {
        return Some(key);
    }
    match wire::sniff(input)? {
        Protocol::Memcached => match memcached::parse(dialect, input) {
            Parse::Complete(request, bytes) => Some((memcached_key(&request)?, bytes)),
            _ => None,
        },
        Protocol::Binary => match binary::parse(input) {
            Parse::Complete(request, bytes) => Some((binary_key(&request)?, bytes)),
            _ => None,
        },
        Protocol::MemcachedBinary => match memcached_binary::parse(input) {
            Parse::Complete(request, bytes) => Some((memcached_binary_key(&request)?, bytes)),
            _ => None,
        },
        Protocol::Http => None,
    }
}

fn memcached_key<'a>(request: &memcached::Request<'a>) -> Option<&'a [u8]> {
    match request {
        memcached::Request::Store(store) => Some(store.key),
        memcached::Request::Get { keys, .. } => {
            let mut keys = keys.iter();
            let first = keys.next()?;
            keys.next().is_none().then_some(first)
        }
        memcached::Request::Delete { key, .. }
        | memcached::Request::Increment { key, .. }
        | memcached::Request::Decrement { key, .. }
        | memcached::Request::Touch { key, .. } => Some(key),
        memcached::Request::Meta(meta) => (!meta.key.is_base64).then_some(meta.key.token),
        _ => None,
    }
}

fn memcached_binary_key<'a>(request: &memcached_binary::Request<'a>) -> Option<&'a [u8]> {
    use memcached_binary::Command as C;
    match request.command {
        C::Get { key, .. }
        | C::GetAndTouch { key, .. }
        | C::Touch { key, .. }
        | C::Store { key, .. }
        | C::Append { key, .. }
        | C::Prepend { key, .. }
        | C::Delete { key } => Some(key),
        C::Increment(sum) | C::Decrement(sum) => Some(sum.key),
        _ => None,
    }
}

fn binary_key<'a>(request: &binary::Request<'a>) -> Option<&'a [u8]> {
    match request {
        binary::Request::Put { key, .. }
        | binary::Request::PutKeep { key, .. }
        | binary::Request::PutCat { key, .. }
        | binary::Request::PutNoReply { key, .. }
        | binary::Request::Out { key }
        | binary::Request::Get { key }
        | binary::Request::ValueSize { key } => Some(key),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_pipeline_are_found_up_to_a_request_that_is_not_whole() {
        let get = b"\x80\x09\0\x01\0\0\0\0\0\0\0\x01opaq\0\0\0\0\0\0\0\0e";
        let input = b"get a\r\nset bb 0 0 2\r\nxy\r\n\xc8\x30\0\0\0\x03cccmg d v\r\n";
        let input = [&input[..], get, b"\xc8\x30\0\0"].concat();
        let mut rest = &input[..];
        let mut keys = Vec::new();
        while let Some((key, bytes)) = next_key(Dialect::Memcached, rest) {
            keys.push(key);
            rest = &rest[bytes..];
        }
        assert_eq!(keys, [&b"a"[..], b"bb", b"ccc", b"d", b"e"]);
        assert_eq!(rest.len(), 4);
    }

    #[test]
    fn a_request_with_several_keys_ends_it() {
        assert_eq!(next_key(Dialect::Memcached, b"get a b\r\n"), None);
        assert_eq!(next_key(Dialect::Memcached, b"stats\r\n"), None);
        assert_eq!(next_key(Dialect::Memcached, b"GET /a HTTP/1.1\r\n\r\n"), None);
    }
}
