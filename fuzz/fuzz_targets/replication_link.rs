//! Whatever is read of what two servers say to each other is written again as the same bytes,
//! message by message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::Parse;
use wire::replication::{Acknowledgement, FromMaster};

fuzz_target!(|bytes: &[u8]| {
    read(bytes, FromMaster::parse, |message, out| {
        message.encode(out).expect("what was parsed is within the limits");
    });
    read(bytes, Acknowledgement::parse, Acknowledgement::encode);
});

fn read<'a, T>(
    bytes: &'a [u8],
    parse: impl Fn(&'a [u8]) -> Parse<T>,
    encode: impl Fn(&T, &mut Vec<u8>),
) {
    let mut rest = bytes;
    let mut encoded = Vec::new();
    loop {
        match parse(rest) {
            Parse::Complete(message, length) => {
                encode(&message, &mut encoded);
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
}
