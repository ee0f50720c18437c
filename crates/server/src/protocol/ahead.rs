//! Lookahead in a pipeline: decodes the next requests and prefetches their keys before the first of
//! them is executed, so that the cache misses of their lookups overlap.

use super::protocols::Decoded;
use super::{Context, Step};
use crate::ops::lists;
use crate::store::view::KEYS_AHEAD_MAX;
use wire::Protocol;

/// Requests that are decoded and not executed yet, with their lengths in bytes.
pub(crate) struct Ahead<'i> {
    requests: [Option<(Decoded<'i>, usize)>; KEYS_AHEAD_MAX],
    next: usize,
}

impl<'i> Ahead<'i> {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { requests: [const { None }; KEYS_AHEAD_MAX], next: 0 }
    }

    /// Decodes the requests of one key at the beginning of `input`, and prefetches their keys.
    /// Requests with several keys prefetch their keys themselves. Does nothing for requests that
    /// are decoded one by one. All requests that were decoded before are executed.
    #[inline]
    pub(crate) fn decode(&mut self, context: &mut Context<'_>, input: &'i [u8]) {
        // A request of HTTP has its own user, and none of another protocol that names one key
        // changes that of the connection. Over another store, each request is executed again.
        let is_alone = context.shared.remote.is_some()
            || context.shared.pause.may_be_on()
            || context.session.http.is_under_way()
            || context.session.sniff(input) == Some(Protocol::Http)
            || !context.stays_authenticated();
        if !is_alone {
            self.decode_all(context, input);
        }
    }

    #[inline(never)]
    fn decode_all(&mut self, context: &Context<'_>, input: &'i [u8]) {
        self.next = 0;
        let shared = context.shared;
        let mut keys = [&[][..]; KEYS_AHEAD_MAX];
        let mut count = 0;
        let mut rest = input;
        while count < KEYS_AHEAD_MAX
            && let Some(protocol) = context.session.sniff(rest)
            && let Some((request, bytes)) = Decoded::of(protocol, shared.config.dialect, rest)
            && bytes <= shared.config.request_bytes_max
            && let Some(key) = request.only_key()
        {
            keys[count] = key;
            self.requests[count] = Some((request, bytes));
            count += 1;
            rest = &rest[bytes..];
            if protocol == Protocol::Redis && !context.session.redis.has_sent_array() {
                // After the first array lines are read otherwise.
                break;
            }
        }
        if count > 1 {
            shared.served.nonblocking.prefetch(&keys[..count]);
            shared.hits.prefetch(&keys[..count]);
        }
    }

    /// Begins to read the records of the requests at the beginning of `input` that are not in
    /// memory. Those of a user with rights to some keys have to wait for their turn.
    #[cold]
    pub(crate) fn begin_reads(context: &mut Context<'_>, input: &'i [u8]) {
        if context.session.rights.is_some() {
            return;
        }
        let mut ahead = Self::new();
        ahead.decode(context, input);
        let keys = ahead.requests.iter().flatten().filter_map(|(request, _)| request.only_key());
        lists::begin_reads(&context.shared.served.nonblocking, keys);
    }

    /// Executes the next request, if there is one.
    pub(crate) fn step(&mut self, context: &mut Context<'_>, output: &mut Vec<u8>) -> Option<Step> {
        let (request, bytes) = self.requests.get_mut(self.next)?.take()?;
        self.next += 1;
        Some(request.perform(context, bytes, output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counters;
    use crate::protocol::session::Session;
    use crate::shared::Shared;
    use crate::{Config, UserEntry, UserFile, Users};
    use cabinet::Database;
    use std::sync::Arc;
    use wire::memcached::Dialect;

    #[test]
    fn the_keys_of_a_pipeline_are_found_up_to_a_request_that_is_not_whole() {
        let get = b"\x80\x09\0\x01\0\0\0\0\0\0\0\x01opaq\0\0\0\0\0\0\0\0e";
        let input = b"get a\r\nset bb 0 0 2\r\nxy\r\n\xc8\x30\0\0\0\x03cccmg d v\r\n";
        let input = [&input[..], get, b"\xc8\x30\0\0"].concat();
        let mut rest = &input[..];
        let mut keys = Vec::new();
        while let Some(protocol) = wire::sniff(rest)
            && let Some((request, bytes)) = Decoded::of(protocol, Dialect::Memcached, rest)
        {
            keys.push(request.only_key().expect("a key"));
            rest = &rest[bytes..];
        }
        assert_eq!(keys, [&b"a"[..], b"bb", b"ccc", b"d", b"e"]);
        assert_eq!(rest.len(), 4);
    }

    #[test]
    fn with_users_the_pipeline_of_a_user_alone_is_decoded_ahead() {
        let entry = UserEntry { name: "ann".into(), ..UserEntry::default() };
        let users = Users::of(UserFile { users: vec![entry] });
        let user = Arc::clone(users.find(b"ann").expect("a user"));
        let config = Config { users: Some(users.into()), ..Config::default() };
        let shared = Shared::for_test(config, Database::open("*").expect("a database"));
        let (counters, mut session) = (Counters::default(), Session::default());
        let mut context = Context::new(&shared, false, &counters, &mut session, 0);
        let decoded = |context: &mut Context<'_>| {
            let mut ahead = Ahead::new();
            ahead.decode(context, b"get a\r\nget b\r\nGET /c HTTP/1.1\r\nHost: localhost\r\n\r\n");
            ahead.requests.iter().flatten().count()
        };
        assert_eq!(decoded(&mut context), 0);
        context.session.peer.get_or_insert_default().set_user(Some(user));
        assert_eq!(decoded(&mut context), 2);
        let users = shared.users.as_ref().expect("users");
        users.replace(Arc::new(Users::of(UserFile { users: Vec::new() })));
        assert_eq!(decoded(&mut context), 0);
    }

    #[test]
    fn a_request_with_several_keys_ends_it() {
        for input in
            [&b"get a b\r\n"[..], b"stats\r\n", b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"]
        {
            let protocol = wire::sniff(input).expect("a protocol");
            let decoded = Decoded::of(protocol, Dialect::Memcached, input);
            assert_eq!(decoded.and_then(|(request, _)| request.only_key()), None);
        }
    }
}
