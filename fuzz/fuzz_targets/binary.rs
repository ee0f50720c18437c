//! Binary parser: a parsed request encodes to the same bytes, fewer bytes are incomplete, and the
//! result does not depend on how the bytes were split into packets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::Parse;
use wire::binary::{Progress, encode, parse, parse_resuming};

fuzz_target!(|bytes: &[u8]| {
    let whole = parse(bytes);
    match &whole {
        Parse::Complete(request, length) => {
            let mut encoded = Vec::new();
            encode(request, &mut encoded).expect("what was parsed is within the limits");
            assert_eq!(encoded, bytes[..*length]);
            match parse(&bytes[..length - 1]) {
                Parse::Incomplete(needed) => assert_eq!(needed, *length),
                other => panic!("{other:?}"),
            }
        }
        Parse::Incomplete(needed) => assert!(*needed > bytes.len()),
        Parse::Invalid(_) => {}
    }
    let mut progress = Progress::default();
    if let Parse::Incomplete(_) = parse_resuming(&bytes[..bytes.len() / 2], &mut progress) {
        assert_eq!(parse_resuming(bytes, &mut progress), whole);
    }
});
