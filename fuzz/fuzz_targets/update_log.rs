//! Update log: each parsed entry encodes to the same bytes, and fewer bytes are incomplete.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::Parse;
use wire::update_log::{Entry, Operation};

fuzz_target!(|bytes: &[u8]| {
    match Entry::parse(bytes) {
        Parse::Complete(entry, length) => {
            let mut encoded = Vec::new();
            entry.encode(&mut encoded).expect("what was parsed is within the limits");
            assert_eq!(encoded, bytes[..length]);
            if length > 17 {
                assert_eq!(Entry::parse(&bytes[..length - 1]), Parse::Incomplete(length));
            }
            if let Ok(operation) = Operation::parse(entry.body) {
                let mut body = Vec::new();
                operation.encode(&mut body).expect("what was parsed is within the limits");
                assert_eq!(body, entry.body);
            }
        }
        Parse::Incomplete(needed) => assert!(needed > bytes.len()),
        Parse::Invalid(_) => {}
    }
});
