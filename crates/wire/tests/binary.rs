//! Promises of the binary codec.

mod common;

use common::{assert_is_one_request, exchanges, unhex};
use proptest::prelude::*;
use wire::binary::{
    Function, Progress, Request, Strings, StringsBuffer, encode, parse, parse_resuming, reply,
};
use wire::limits::{BINARY_ARGUMENT_BYTES_MAX, BINARY_COUNT_MAX, FUNCTION_NAME_BYTES_LIMIT};
use wire::{Invalid, Parse};

fn outcome(bytes: &[u8]) -> Parse<()> {
    parse(bytes).map(drop)
}

fn captured() -> Vec<common::Exchange> {
    let mut all = exchanges(include_str!("captured/hash-binary.tsv"));
    all.extend(exchanges(include_str!("captured/memory-hash.tsv")));
    all
}

#[test]
fn captured_requests_survive_parsing_and_encoding() {
    let mut refused = Vec::new();
    for exchange in captured() {
        let mut rest = &exchange.request[..];
        let mut encoded = Vec::new();
        while let Parse::Complete(request, length) = parse(rest) {
            encode(&request, &mut encoded).unwrap();
            rest = &rest[length..];
        }
        if rest.is_empty() {
            assert_eq!(encoded, exchange.request, "{}", exchange.what);
        } else {
            assert!(matches!(parse(rest), Parse::Invalid(_)), "{}", exchange.what);
            refused.push(exchange.what);
        }
    }
    let expected = [
        "unknown cmd 0x99",
        "negative ksiz",
        "too big ksiz (256Mi+1)",
        "mget rnum too big",
        "ext name 1024",
        "unknown then get in 1 packet",
    ];
    assert_eq!(refused, expected);
}

#[test]
fn captured_requests_are_incomplete_until_their_last_byte() {
    for exchange in captured() {
        if let Parse::Complete(_, length) = parse(&exchange.request) {
            assert_is_one_request(&exchange.request[..length], outcome);
        }
    }
}

#[test]
fn replies_are_those_captured() {
    let exchanges = captured();
    let check = |what: &str, write: &dyn Fn(&mut Vec<u8>)| {
        let exchange = exchanges.iter().find(|exchange| exchange.what == what).unwrap();
        let mut out = b"before".to_vec();
        write(&mut out);
        assert_eq!(out[6..], exchange.response, "{what}");
    };
    let list = |out: &mut Vec<u8>, elements: &[&[u8]]| {
        let mut list = reply::List::begin(out);
        elements.iter().for_each(|element| list.string(out, element));
        list.finish(out);
    };
    check("put one=first", &|out| reply::status(out, true));
    check("putkeep one (exists)", &|out| reply::status(out, false));
    check("get one", &|out| reply::value(out, b"!abc"));
    check("vsiz two", &|out| reply::size(out, 6));
    check("addint n -7", &|out| reply::integer(out, -2));
    check("adddouble d -3.25", &|out| reply::double(out, -1.75));
    check("rnum", &|out| reply::count(out, 7));
    check("mget 0", &|out| list(out, &[]));
    check("mget two,nope,three", &|out| {
        let mut list = reply::List::begin(out);
        list.pair(out, b"two", b"second");
        list.pair(out, b"three", b"third");
        assert_eq!(list.len(), 2);
        list.finish(out);
    });
    check("fwmkeys t max=-1", &|out| list(out, &[b"two", b"three"]));
    check("misc get", &|out| list(out, &[b"mv"]));
    check("misc get miss", &|out| reply::misc_failure(out));
}

#[test]
fn parameters_are_found_where_the_original_puts_them() {
    let bytes = unhex("c8 61 00000001 fffffffffffffffd ffffffc5cad6bc00 64");
    let expected = Request::AddDouble { key: b"d", integral: -3, fractional: -250_000_000_000 };
    assert_eq!(parse(&bytes), Parse::Complete(expected, bytes.len()));

    let bytes = unhex("c8 74 00000002 0000000100000002 00000001 2f75");
    let expected = Request::Restore { path: b"/u", timestamp_us: (1 << 32) + 2, options: 1 };
    assert_eq!(parse(&bytes), Parse::Complete(expected, bytes.len()));

    let bytes = unhex("c8 78 00000001 000007ba 0000000100000002 00000001 68");
    let expected =
        Request::SetMaster { host: b"h", port: 1978, timestamp_us: (1 << 32) + 2, options: 1 };
    assert_eq!(parse(&bytes), Parse::Complete(expected, bytes.len()));

    let bytes = unhex("c8 a0 0000000000000001 00000063");
    let expected = Request::Replicate { timestamp_us: 1, server_id: 99 };
    assert_eq!(parse(&bytes), Parse::Complete(expected, bytes.len()));
}

#[test]
fn a_size_is_refused_or_asked_for_before_its_bytes_arrive() {
    for above in [-1, 0, 1] {
        let size = (BINARY_ARGUMENT_BYTES_MAX as i64 + above) as u32;
        let expect = |header: Vec<u8>, other_bytes: usize| {
            let expected = match above {
                1 => Parse::Invalid(Invalid::TooLarge),
                _ => Parse::Incomplete(header.len() + size as usize + other_bytes),
            };
            assert_eq!(parse(&header), expected, "{header:x?}");
        };
        expect(unhex(&format!("c830 {size:08x}")), 0);
        expect(unhex(&format!("c810 00000003 {size:08x}")), 3);
        expect(unhex(&format!("c813 {size:08x} 00000003 00000000")), 3);
        expect(unhex(&format!("c868 00000001 00000000 00000002 {size:08x}")), 3);
        expect(unhex(&format!("c890 00000001 00000000 00000001 78 {size:08x}")), 0);
    }
}

#[test]
fn a_count_is_refused_or_asked_for_before_its_strings_arrive() {
    for above in [-1, 0, 1] {
        let count = (BINARY_COUNT_MAX as i64 + above) as u32;
        let get_many = unhex(&format!("c831 {count:08x}"));
        let misc = unhex(&format!("c890 00000003 00000000 {count:08x}"));
        if above == 1 {
            assert_eq!(parse(&get_many), Parse::Invalid(Invalid::TooLarge));
            assert_eq!(parse(&misc), Parse::Invalid(Invalid::TooLarge));
        } else {
            assert_eq!(parse(&get_many), Parse::Incomplete(6 + 4 * count as usize));
            assert_eq!(parse(&misc), Parse::Incomplete(17 + 4 * count as usize));
        }
    }
    let mut keys = StringsBuffer::default();
    for _ in 0..BINARY_COUNT_MAX {
        keys.push(b"").unwrap();
    }
    assert_eq!(keys.push(b""), Err(Invalid::TooLarge));
    let mut bytes = Vec::new();
    encode(&Request::GetMany(keys.strings()), &mut bytes).unwrap();
    assert_eq!(parse(&bytes), Parse::Complete(Request::GetMany(keys.strings()), bytes.len()));
}

#[test]
fn a_list_asks_for_every_string_still_to_come() {
    let mut bytes = unhex("c831 00000003");
    assert_eq!(parse(&bytes), Parse::Incomplete(6 + 4 * 3));
    bytes.extend(unhex("00000064 6162636465666768"));
    assert_eq!(parse(&bytes), Parse::Incomplete(6 + 4 + 100 + 4 * 2));
}

/// Bytes that were looked at are overwritten with others that would be refused, before the next
/// piece comes: so each string is looked at once, however many pieces there are.
#[test]
fn no_string_of_a_list_that_arrives_in_pieces_is_looked_at_twice() {
    let mut list = StringsBuffer::default();
    let count = 200;
    (0..count).for_each(|n| list.push(&vec![0; n % 7]).unwrap());
    let arguments = list.strings();
    let get_many = Request::GetMany(arguments);
    let misc = Request::Misc { function: Function::PutList, options: 0, arguments };
    for (request, list_start) in [(get_many, 6), (misc, 14 + 7)] {
        let mut whole = Vec::new();
        encode(&request, &mut whole).unwrap();
        let mut progress = Progress::default();
        let mut received = Vec::new();
        for byte in &whole[..whole.len() - 1] {
            received.push(*byte);
            let outcome = parse_resuming(&received, &mut progress).map(drop);
            assert!(matches!(outcome, Parse::Incomplete(_)), "{outcome:?}");
            // A list is not looked at before its sizes can all be there.
            if received.len() >= list_start + 4 * count {
                let seen = whole_strings(&whole[list_start..received.len()]);
                received[list_start..][..seen].fill(0xff);
            }
        }
        received.copy_from_slice(&whole[..whole.len() - 1]);
        received.extend(whole.last());
        let outcome = parse_resuming(&received, &mut progress);
        assert_eq!(outcome, Parse::Complete(request, whole.len()));
    }
}

/// Bytes of the strings that are there as a whole.
fn whole_strings(list: &[u8]) -> usize {
    let mut end = 0;
    while let Some((size, rest)) = list[end..].split_first_chunk::<4>() {
        let size = u32::from_be_bytes(*size) as usize;
        if rest.len() < size {
            break;
        }
        end += 4 + size;
    }
    end
}

#[test]
fn function_names_have_a_limit() {
    for length in [FUNCTION_NAME_BYTES_LIMIT - 2, FUNCTION_NAME_BYTES_LIMIT - 1] {
        let name = vec![b'f'; length];
        let misc = Request::Misc {
            function: Function::from_name(&name),
            options: 0,
            arguments: Strings::EMPTY,
        };
        let ext = Request::Ext { name: &name, options: 0, key: b"k", value: b"v" };
        for request in [misc, ext] {
            let mut bytes = Vec::new();
            encode(&request, &mut bytes).unwrap();
            assert_eq!(parse(&bytes), Parse::Complete(request, bytes.len()));
        }
    }
    let name = vec![b'f'; FUNCTION_NAME_BYTES_LIMIT];
    let misc = Request::Misc {
        function: Function::from_name(&name),
        options: 0,
        arguments: Strings::EMPTY,
    };
    let ext = Request::Ext { name: &name, options: 0, key: b"k", value: b"v" };
    for request in [misc, ext] {
        assert_eq!(encode(&request, &mut Vec::new()), Err(Invalid::BadParameters));
    }
    for header in ["c890 00000400 00000000 00000000", "c868 00000400 00000000 00000000 00000000"] {
        assert_eq!(parse(&unhex(header)), Parse::Invalid(Invalid::BadParameters));
    }
}

#[test]
fn a_negative_width_is_refused() {
    let bytes = unhex("c813 00000001 00000001 ffffffff 6b76");
    assert_eq!(parse(&bytes), Parse::Invalid(Invalid::BadParameters));
    let request = Request::PutShift { key: b"k", value: b"v", width: 1 << 31 };
    assert_eq!(encode(&request, &mut Vec::new()), Err(Invalid::BadParameters));
    let request = Request::PutShift { key: b"k", value: b"v", width: (1 << 31) - 1 };
    assert_eq!(encode(&request, &mut Vec::new()), Ok(()));
}

#[test]
fn a_string_too_large_to_encode_leaves_the_output_alone() {
    let value = vec![0; BINARY_ARGUMENT_BYTES_MAX + 1];
    let mut out = b"kept".to_vec();
    let request = Request::Put { key: b"k", value: &value };
    assert_eq!(encode(&request, &mut out), Err(Invalid::TooLarge));
    assert_eq!(out, b"kept");
    assert_eq!(StringsBuffer::default().push(&value), Err(Invalid::TooLarge));
}

#[test]
fn other_first_bytes_are_another_protocol() {
    assert_eq!(parse(b"get k\r\n"), Parse::Invalid(Invalid::UnknownCommand));
    assert_eq!(parse(b""), Parse::Incomplete(wire::binary::COMMAND_BYTES));
}

/// The strings and numbers some request is made of.
#[derive(Debug)]
struct Parts {
    strings: [Vec<u8>; 3],
    list: StringsBuffer,
    word: u32,
    longs: [i64; 2],
}

fn parts() -> impl Strategy<Value = Parts> {
    let string = || prop::collection::vec(any::<u8>(), 0..40);
    let list = prop::collection::vec(string(), 0..6).prop_map(|strings| {
        let mut list = StringsBuffer::default();
        for string in &strings {
            list.push(string).expect("room for a short string");
        }
        list
    });
    (string(), string(), string(), list, any::<u32>(), any::<[i64; 2]>()).prop_map(
        |(first, second, third, list, word, longs)| Parts {
            strings: [first, second, third],
            list,
            word,
            longs,
        },
    )
}

/// Every kind of request made of these parts.
fn requests(parts: &Parts) -> Vec<Request<'_>> {
    let [key, value, name] = parts.strings.each_ref().map(|string| &string[..]);
    let [integral, fractional] = parts.longs;
    let timestamp_us = integral as u64;
    let options = parts.word;
    let arguments = parts.list.strings();
    vec![
        Request::Put { key, value },
        Request::PutKeep { key, value },
        Request::PutCat { key, value },
        Request::PutShift { key, value, width: options >> 1 },
        Request::PutNoReply { key, value },
        Request::Out { key },
        Request::Get { key },
        Request::GetMany(arguments),
        Request::ValueSize { key },
        Request::IterInit,
        Request::IterNext,
        Request::KeysWithPrefix { prefix: key, max: options as i32 },
        Request::AddInt { key, addend: options as i32 },
        Request::AddDouble { key, integral, fractional },
        Request::Ext { name, options, key, value },
        Request::Sync,
        Request::Optimize { parameters: value },
        Request::Vanish,
        Request::Copy { path: value },
        Request::Restore { path: value, timestamp_us, options },
        Request::SetMaster { host: name, port: options, timestamp_us, options },
        Request::Count,
        Request::Size,
        Request::Stat,
        Request::Misc { function: Function::from_name(name), options, arguments },
        Request::Replicate { timestamp_us, server_id: options },
        Request::Follow { timestamp_us, server_id: options, options, port: options },
    ]
}

proptest! {
    #[test]
    fn what_is_encoded_parses_to_the_same(parts in parts(), packet in 1usize..9) {
        for request in requests(&parts) {
            let mut bytes = Vec::new();
            encode(&request, &mut bytes).unwrap();
            prop_assert_eq!(parse(&bytes), Parse::Complete(request.clone(), bytes.len()));
            assert_is_one_request(&bytes, outcome);

            let mut progress = Progress::default();
            for end in (0..bytes.len()).step_by(packet) {
                let resumed = parse_resuming(&bytes[..end], &mut progress);
                prop_assert_eq!(resumed, parse(&bytes[..end]));
            }
            let resumed = parse_resuming(&bytes, &mut progress);
            prop_assert_eq!(resumed, Parse::Complete(request, bytes.len()));
        }
    }

    #[test]
    fn strings_come_out_as_they_went_in(strings in prop::collection::vec(any::<Vec<u8>>(), 0..9)) {
        let mut buffer = StringsBuffer::default();
        strings.iter().for_each(|string| buffer.push(string).unwrap());
        prop_assert_eq!(buffer.strings().len(), strings.len());
        prop_assert_eq!(buffer.strings().iter().len(), strings.len());
        prop_assert!(buffer.strings().iter().eq(strings.iter().map(Vec::as_slice)));
    }

    #[test]
    fn arbitrary_bytes_never_break_the_parser(
        command in any::<u8>(),
        small in prop::collection::vec(prop_oneof![Just(0u8), 0u8..4, any::<u8>()], 0..64),
    ) {
        let mut bytes = vec![wire::binary::MAGIC, command];
        bytes.extend(small);
        if let Parse::Complete(request, length) = parse(&bytes) {
            let mut encoded = Vec::new();
            encode(&request, &mut encoded).unwrap();
            prop_assert_eq!(&encoded, &bytes[..length]);
        }
    }

    #[test]
    fn doubles_travel_with_twelve_decimals(number in -1e3f64..1e3) {
        let (integral, fractional) = wire::binary::double_to_parts(number);
        let back = wire::binary::double_from_parts(integral, fractional);
        prop_assert!((number - back).abs() < 1.1e-12, "{} {}", number, back);
    }
}
