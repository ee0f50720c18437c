//! Replication stream: each parsed message encodes to the same bytes.
#![no_main]

mod messages;

use libfuzzer_sys::fuzz_target;
use wire::update_log::{Message, Operation};

fuzz_target!(|bytes: &[u8]| {
    messages::read(bytes, Message::parse, |message, out| {
        message.encode(out).expect("what was parsed is within the limits");
        if let Message::Update { body, .. } = message {
            // Must not panic, whatever the result.
            let _ = Operation::parse(body);
        }
    });
});
