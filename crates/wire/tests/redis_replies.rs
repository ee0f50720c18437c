//! Replies of Redis's protocol as a client reads them: whole, cut and malformed.

use proptest::prelude::*;
use wire::limits::{REDIS_LINE_BYTES_MAX, REDIS_REPLIES_MAX, REDIS_REPLY_DEPTH_MAX};
use wire::redis::{Replies, Reply, parse_reply};
use wire::{Invalid, Parse};

/// Longest string that these tests accept, in bytes.
const STRING_BYTES_MAX: usize = 1000;

fn parsed(input: &[u8]) -> (Reply<'_>, usize) {
    match parse_reply(input, STRING_BYTES_MAX) {
        Parse::Complete(reply, length) => (reply, length),
        other => panic!("{other:?} of {}", input.escape_ascii()),
    }
}

fn elements<'i>(reply: Reply<'i>) -> Replies<'i> {
    let Reply::Array(elements) = reply else { panic!("{reply:?} is not an array") };
    elements
}

#[test]
fn each_reply_is_parsed_to_its_end() {
    for (input, reply) in [
        (&b"+OK\r\n"[..], Reply::Simple(b"OK")),
        (b"-ERR no\r\n", Reply::Error(b"ERR no")),
        (b":-9223372036854775808\r\n", Reply::Integer(i64::MIN)),
        (b"$3\r\na\r\n\r\n", Reply::String(b"a\r\n")),
        (b"$0\r\n\r\n", Reply::String(b"")),
        (b"$-1\r\n", Reply::Null),
        (b"*-1\r\n", Reply::Null),
    ] {
        let more = [input, b":1\r\n"].concat();
        assert_eq!(parsed(&more), (reply, input.len()));
        for length in 0..input.len() {
            match parse_reply(&input[..length], STRING_BYTES_MAX) {
                Parse::Incomplete(needed) => assert!((length + 1..=input.len()).contains(&needed)),
                other => panic!("{other:?} of {}", input[..length].escape_ascii()),
            }
        }
    }
}

#[test]
fn an_array_has_its_replies_in_order_and_needs_all_of_them() {
    let input = b"*2\r\n$1\r\n0\r\n*3\r\n$1\r\na\r\n$-1\r\n:7\r\n";
    let (reply, length) = parsed(input);
    assert_eq!(length, input.len());
    let Some([cursor, keys]) = elements(reply).exactly() else { panic!("{reply:?}") };
    assert_eq!(cursor, Reply::String(b"0"));
    let keys: Vec<_> = elements(keys).collect();
    assert_eq!(keys, [Reply::String(b"a"), Reply::Null, Reply::Integer(7)]);
    assert!(elements(reply).exactly::<3>().is_none());
    for length in 0..input.len() {
        let parsed = parse_reply(&input[..length], STRING_BYTES_MAX);
        assert!(matches!(parsed, Parse::Incomplete(_)), "{parsed:?}");
    }
}

#[test]
fn limits_hold_at_their_edges() {
    let line = |length: usize| format!("+{}\r\n", "a".repeat(length - 3)).into_bytes();
    assert!(matches!(parsed(&line(REDIS_LINE_BYTES_MAX)).0, Reply::Simple(_)));
    let too_long = parse_reply(&line(REDIS_LINE_BYTES_MAX + 1), STRING_BYTES_MAX).map(drop);
    assert_eq!(too_long, Parse::Invalid(Invalid::TooLarge));

    let string = |length: usize| format!("${length}\r\n{}\r\n", "a".repeat(length)).into_bytes();
    assert!(matches!(parsed(&string(STRING_BYTES_MAX)).0, Reply::String(_)));
    let (reply, length) = parse_oversized(STRING_BYTES_MAX + 1);
    assert_eq!((reply, length), (STRING_BYTES_MAX + 1, b"$1001\r\n".len()));
    let nested = [b"*1\r\n", &string(STRING_BYTES_MAX + 1)[..]].concat();
    assert!(matches!(parse_reply(&nested, STRING_BYTES_MAX), Parse::Invalid(Invalid::TooLarge)));

    let deep = |depth: usize| format!("{}:1\r\n", "*1\r\n".repeat(depth)).into_bytes();
    parsed(&deep(REDIS_REPLY_DEPTH_MAX));
    let too_deep = parse_reply(&deep(REDIS_REPLY_DEPTH_MAX + 1), STRING_BYTES_MAX).map(drop);
    assert_eq!(too_deep, Parse::Invalid(Invalid::TooLarge));

    let array = |count: usize| parse_reply(format!("*{count}\r\n").as_bytes(), 0).map(drop);
    assert!(matches!(array(REDIS_REPLIES_MAX), Parse::Incomplete(_)));
    assert_eq!(array(REDIS_REPLIES_MAX + 1), Parse::Invalid(Invalid::TooLarge));
}

fn parse_oversized(length: usize) -> (usize, usize) {
    let head = format!("${length}\r\n");
    match parse_reply(head.as_bytes(), STRING_BYTES_MAX) {
        Parse::Complete(Reply::Oversized(announced), end) => (announced, end),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bytes_that_are_no_reply_are_refused() {
    for input in [
        &b"HTTP/1.1 400\r\n"[..],
        b"\0",
        b":\r\n",
        b":1x\r\n",
        b":9223372036854775808\r\n",
        b"$-2\r\n",
        b"$a\r\n",
        b"$99999999999999999999999\r\n",
        b"*-2\r\n",
        b"*1\r\nx",
        b"$1\r\nabc",
        b"+OK\n",
    ] {
        let parsed = parse_reply(input, STRING_BYTES_MAX);
        assert!(matches!(parsed, Parse::Invalid(_)), "{parsed:?} of {}", input.escape_ascii());
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_fail_or_read_beyond_them(
        input in prop::collection::vec(prop::sample::select(&b"+-:$*0123\r\na"[..]), 0..60),
    ) {
        if let Parse::Complete(reply, length) = parse_reply(&input, STRING_BYTES_MAX) {
            prop_assert!(length <= input.len());
            if let Reply::Array(replies) = reply {
                prop_assert!(replies.count() <= REDIS_REPLIES_MAX);
            }
        }
    }
}
