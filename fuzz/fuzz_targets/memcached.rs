//! The memcached parser takes something off any input, or wants more, or finds it too long.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::memcached::{Request, parse};
use wire::{Invalid, Parse};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    loop {
        wire::sniff(rest);
        match parse(rest) {
            Parse::Complete(request, length) => {
                if let Request::Get { keys, .. } | Request::GetAndTouch { keys, .. } = request {
                    assert!(keys.iter().count() > 0);
                    assert!(keys.iter().all(|key| !key.is_empty()));
                }
                assert!(matches!(parse(&rest[..length - 1]), Parse::Incomplete(_)));
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
});
