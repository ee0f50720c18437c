//! memcached parser: it consumes bytes of any input, needs more, or finds the input too long.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::limits::{MEMCACHED_KEY_BYTES_MAX, META_FLAGS_MAX, META_OPAQUE_BYTES_MAX};
use wire::memcached::{Dialect, Request, parse};
use wire::{Invalid, Parse};

fuzz_target!(|bytes: &[u8]| {
    for dialect in [Dialect::Memcached, Dialect::TokyoTyrant] {
        take_apart(dialect, bytes);
    }
});

fn take_apart(dialect: Dialect, bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        let _ = wire::sniff(rest);
        match parse(dialect, rest) {
            Parse::Complete(request, length) => {
                check(dialect, &request);
                // Without the end of the line or of the data, a request is incomplete.
                let cut = parse(dialect, &rest[..length - 1]);
                assert!(matches!(cut, Parse::Incomplete(_)));
                rest = &rest[length..];
            }
            Parse::Incomplete(needed) => {
                assert!(needed > rest.len());
                return;
            }
            Parse::Invalid(invalid) => {
                assert_eq!(invalid, Invalid::TooLarge);
                return;
            }
        }
    }
}

fn check(dialect: Dialect, request: &Request<'_>) {
    match request {
        Request::Get { keys, .. } | Request::GetAndTouch { keys, .. } => {
            let may_be_none = matches!(request, Request::GetAndTouch { .. });
            assert!(keys.iter().count() > 0 || may_be_none && dialect == Dialect::Memcached);
            assert!(keys.iter().all(|key| !key.is_empty()));
            if dialect == Dialect::Memcached {
                assert!(keys.iter().all(|key| key.len() <= MEMCACHED_KEY_BYTES_MAX));
            }
        }
        Request::Meta(meta) => {
            let mut buffer = [0; MEMCACHED_KEY_BYTES_MAX];
            assert!(!meta.key.bytes(&mut buffer).is_empty());
            assert!(meta.flags.count() <= META_FLAGS_MAX);
            for (flag, token) in meta.flags {
                assert!(flag != b'O' || token.len() <= META_OPAQUE_BYTES_MAX);
            }
        }
        _ => {}
    }
}
