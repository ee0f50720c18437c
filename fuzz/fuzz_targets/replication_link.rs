//! Messages between two servers: each parsed message encodes to the same bytes.
#![no_main]

mod messages;

use libfuzzer_sys::fuzz_target;
use messages::read;
use wire::replication::{Acknowledgement, FromMaster};

fuzz_target!(|bytes: &[u8]| {
    read(bytes, FromMaster::parse, |message, out| {
        message.encode(out).expect("what was parsed is within the limits");
    });
    read(bytes, Acknowledgement::parse, Acknowledgement::encode);
});
