//! HTTP parser: its result does not depend on how a request was split into packets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::Parse;
use wire::http::range::{ByteRange, select_range};
use wire::http::{Conditions, Progress, RestOfBody, form, head, parse, parse_resuming};

fuzz_target!(|bytes: &[u8]| {
    let _ = wire::sniff(bytes);
    let mut progress = Progress::default();
    let (half, _) = bytes.split_at(bytes.len() / 2);
    let early = parse_resuming(half, &mut progress).map(drop);
    let whole = parse(bytes);
    match early {
        Parse::Incomplete(needed) => {
            assert!(needed > half.len());
            assert_eq!(parse_resuming(bytes, &mut progress), whole);
            if let Parse::Complete(_, length) = whole {
                assert!(needed <= length);
            }
        }
        Parse::Complete((), length) => {
            assert!(matches!(whole, Parse::Complete(_, whole) if whole == length));
        }
        Parse::Invalid(invalid) => assert_eq!(whole, Parse::Invalid(invalid)),
    }
    if let Parse::Complete(request, length) = whole {
        let body = request.body();
        let tag = Some("\"1f\"");
        let _ = Conditions::of(&request).check(tag);
        if let Some(ByteRange::Bytes(start, end)) =
            request.header("Range").map(|range| select_range(range, 9))
        {
            assert!(start < end && end <= 9);
        }
        let Parse::Complete(_, mut position) = head(bytes) else { unreachable!() };
        let mut rest = RestOfBody::of(request.head.body);
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let Parse::Complete(piece, taken) = rest.take(&bytes[position..]) else {
                unreachable!()
            };
            pieces.extend_from_slice(piece);
            position += taken;
        }
        assert_eq!((&pieces[..], position), (&*body, length));
        assert!(body.len() < length);
        assert!(request.key().len() <= request.target.len());
        if let Ok(arguments) = form::arguments(&body) {
            let mut encoded = Vec::new();
            form::results(&mut encoded, arguments.iter().map(Vec::as_slice));
            assert_eq!(form::arguments(&encoded), Ok(arguments));
        }
    }
});
