//! Parser of Redis's protocol: it consumes bytes of any input, needs more, or finds it malformed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::limits::REDIS_STRINGS_MAX;
use wire::redis::{Content, Progress, parse, parse_resuming, unquote};
use wire::{Described, Parse};

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while !rest.is_empty() {
        let _ = (wire::sniff(rest), wire::sniff_after_array(rest));
        // A request that arrives in pieces is the same.
        let mut progress = Progress::default();
        for end in (1..rest.len()).step_by(7) {
            if !matches!(parse_resuming(&rest[..end], &mut progress), Parse::Incomplete(_)) {
                progress = Progress::default();
                break;
            }
        }
        assert_eq!(parse_resuming(rest, &mut progress), parse(rest));
        match parse(rest) {
            Parse::Complete(request, length) => {
                let arguments = request.arguments;
                assert!(arguments.len() < REDIS_STRINGS_MAX);
                assert_eq!(arguments.iter().count(), arguments.len());
                let _ = (request.kind(), request.only_key(), request.name());
                let mut array = Vec::new();
                if request.content == Content::Quoted && unquote(request.name, &mut array) {
                    // Its words are an array, which is a request or empty.
                    assert!(
                        matches!(parse(&array), Parse::Complete(_, bytes) if bytes == array.len())
                    );
                }
                if !matches!(request.content, Content::Malformed(_)) {
                    // Without its last byte a request is incomplete, or not one.
                    let cut = parse(&rest[..length - 1]);
                    let is_cut = match cut {
                        Parse::Incomplete(needed) => needed <= length,
                        Parse::Complete(request, _) => {
                            matches!(request.content, Content::Malformed(_))
                        }
                        Parse::Invalid(_) => false,
                    };
                    assert!(is_cut);
                }
                rest = &rest[length..];
            }
            Parse::Incomplete(needed) => {
                assert!(needed > rest.len());
                return;
            }
            Parse::Invalid(invalid) => panic!("{invalid:?}"),
        }
    }
});
