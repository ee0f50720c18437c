//! Whatever is read of a replication stream is written again as the same bytes, message by message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::Parse;
use wire::update_log::{Message, Operation};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    let mut encoded = Vec::new();
    loop {
        match Message::parse(rest) {
            Parse::Complete(message, length) => {
                message.encode(&mut encoded).expect("what was parsed is within the limits");
                if let Message::Update { body, .. } = message {
                    // Must not panic, whatever it makes of it.
                    let _ = Operation::parse(body);
                }
                rest = &rest[length..];
            }
            Parse::Incomplete(needed) => {
                assert!(needed > rest.len());
                break;
            }
            Parse::Invalid(_) => break,
        }
    }
    assert_eq!(encoded, bytes[..bytes.len() - rest.len()]);
});
