//! Whatever is read of a replication stream is written again as the same bytes, message by message.
#![no_main]

mod messages;

use libfuzzer_sys::fuzz_target;
use wire::update_log::{Message, Operation};

fuzz_target!(|bytes: &[u8]| {
    messages::read(bytes, Message::parse, |message, out| {
        message.encode(out).expect("what was parsed is within the limits");
        if let Message::Update { body, .. } = message {
            // Must not panic, whatever it makes of it.
            let _ = Operation::parse(body);
        }
    });
});
