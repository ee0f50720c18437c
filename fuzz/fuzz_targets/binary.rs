//! Whatever the binary parser takes, it encodes to the same bytes, and takes no sooner.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::Parse;
use wire::binary::{encode, parse};

fuzz_target!(|bytes: &[u8]| match parse(bytes) {
    Parse::Complete(request, length) => {
        let mut encoded = Vec::new();
        encode(&request, &mut encoded).expect("what was parsed is within the limits");
        assert_eq!(encoded, bytes[..length]);
        match parse(&bytes[..length - 1]) {
            Parse::Incomplete(needed) => assert_eq!(needed, length),
            other => panic!("{other:?}"),
        }
    }
    Parse::Incomplete(needed) => assert!(needed > bytes.len()),
    Parse::Invalid(_) => {}
});
