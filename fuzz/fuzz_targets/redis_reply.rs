//! Replies of Redis's protocol as a client reads them: any bytes are parsed within them, and every
//! beginning of a reply is incomplete.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::Parse;
use wire::redis::{Reply, parse_reply};

/// Longest string, in bytes.
const STRING_BYTES_MAX: usize = 100;

fuzz_target!(|bytes: &[u8]| {
    let Parse::Complete(reply, length) = parse_reply(bytes, STRING_BYTES_MAX) else { return };
    assert!(length <= bytes.len());
    walk(reply);
    let beginning = &bytes[..length - 1];
    assert!(matches!(parse_reply(beginning, STRING_BYTES_MAX), Parse::Incomplete(_)));
});

fn walk(reply: Reply<'_>) {
    if let Reply::Array(replies) = reply {
        replies.for_each(walk);
    }
}
