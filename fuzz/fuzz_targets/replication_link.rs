//! Whatever is read of what two servers say to each other is written again as the same bytes,
//! message by message.
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
