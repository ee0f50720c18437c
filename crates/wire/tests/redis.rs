//! Redis's protocol: requests in all forms, whole, cut and malformed.

use proptest::prelude::*;
use wire::limits::{REDIS_LINE_BYTES_MAX, REDIS_STRING_BYTES_MAX, REDIS_STRINGS_MAX};
use wire::redis::{Command, Content, Malformed, Progress, Request, parse, parse_resuming, unquote};
use wire::{Described, Parse, Protocol, sniff};

fn encoded(strings: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", strings.len()).into_bytes();
    for string in strings {
        bytes.extend_from_slice(format!("${}\r\n", string.len()).as_bytes());
        bytes.extend_from_slice(string);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn parsed(input: &[u8]) -> (Request<'_>, usize) {
    match parse(input) {
        Parse::Complete(request, bytes) => (request, bytes),
        other => panic!("{other:?} of {}", input.escape_ascii()),
    }
}

#[test]
fn a_request_is_an_array_of_strings_or_a_line_of_words() {
    let array = encoded(&[b"sEt", b"k\r\n", b""]);
    assert_eq!(sniff(&array), Some(Protocol::Redis));
    let next = [&array[..], b"PING\r\n"].concat();
    let (request, bytes) = parsed(&next);
    assert_eq!((request.content, request.name), (Content::Command(Command::Set), &b"sEt"[..]));
    assert_eq!(request.arguments.exactly(), Some([&b"k\r\n"[..], b""]));
    assert_eq!(request.arguments.iter().collect::<Vec<_>>(), [&b"k\r\n"[..], b""]);
    assert_eq!(bytes, array.len());
    let (request, bytes) = parsed(&next[bytes..]);
    assert_eq!((request.content, bytes), (Content::Command(Command::Ping), 6));
    let (request, bytes) = parsed(b" ECHO \t a \r\nrest");
    assert_eq!((request.content, bytes), (Content::Command(Command::Echo), 12));
    assert_eq!(request.arguments.exactly(), Some([&b"a"[..]]));
    for nothing in [&b"*0\r\n"[..], b"*-1\r\n", b"\r\n", b"  \n"] {
        assert_eq!(parsed(nothing).0.content, Content::Nothing);
    }
    let unknown = encoded(&[b"LPUSH", b"l", b"a"]);
    let (request, _) = parsed(&unknown);
    assert_eq!((request.content, request.arguments.len()), (Content::Unknown, 2));
}

#[test]
fn a_line_with_quotes_is_read_as_an_array() {
    let (request, bytes) = parsed(b"set k 'a b'\r\nrest");
    assert_eq!((request.content, bytes, request.is_line()), (Content::Quoted, 13, true));
    let mut array = Vec::new();
    assert!(unquote(request.name, &mut array));
    assert_eq!(array, encoded(&[b"set", b"k", b"a b"]));
    assert!(!parsed(&array).0.is_line() && parsed(b"set k v\n").0.is_line());
    // As in Redis, these separate words, and do not end one that has begun.
    let (request, _) = parsed(b"\x0b\x0cset\tk\x0bv\x0c \r\n");
    assert_eq!(
        (request.name, request.arguments.exactly()),
        (&b"set"[..], Some([&b"k\x0bv\x0c"[..]]))
    );
}

#[test]
fn a_key_is_told_if_there_is_exactly_one() {
    let key = |strings: &[&[u8]]| {
        let bytes = encoded(strings);
        let (request, _) = parsed(&bytes);
        (request.only_key().map(<[u8]>::to_vec), request.name().map(<[u8]>::to_vec))
    };
    let some = |key: &[u8]| Some(key.to_vec());
    assert_eq!(key(&[b"GET", b"a"]), (some(b"a"), some(b"a")));
    assert_eq!(key(&[b"SET", b"a", b"b", b"NX"]), (some(b"a"), some(b"a")));
    assert_eq!(key(&[b"DEL", b"a"]), (some(b"a"), some(b"a")));
    assert_eq!(key(&[b"DEL", b"a", b"b"]), (None, some(b"a")));
    assert_eq!(key(&[b"MSET", b"a", b"b"]), (None, some(b"a")));
    assert_eq!(key(&[b"GET", b"a", b"b"]), (None, some(b"a")));
    assert_eq!(key(&[b"GET"]), (None, None));
    assert_eq!(key(&[b"PING", b"a"]), (None, None));
    assert_eq!(key(&[b"LPUSH", b"a", b"b"]), (None, None));
}

#[test]
fn bytes_that_are_not_a_request_are_malformed() {
    for (bytes, reason) in [
        (format!("*{}\r\n", REDIS_STRINGS_MAX + 1), Malformed::ArrayLength),
        ("*1\r\nx".into(), Malformed::NoString(b'x')),
        ("*01\r\n".into(), Malformed::ArrayLength),
        ("*00\r\n".into(), Malformed::ArrayLength),
        ("*-0\r\n".into(), Malformed::ArrayLength),
        ("*-01\r\n".into(), Malformed::ArrayLength),
        ("*+1\r\n".into(), Malformed::ArrayLength),
        ("*1\r\n$01\r\n".into(), Malformed::StringLength),
        ("*1\r\n$x\r\n".into(), Malformed::StringLength),
        ("*1\r\n$-1\r\n".into(), Malformed::StringLength),
        ("*1\r\n$1\rx".into(), Malformed::StringLength),
        (format!("*1\r\n${}\r\n", REDIS_STRING_BYTES_MAX + 1), Malformed::StringLength),
        (format!("*1\r\n${}", "0".repeat(40)), Malformed::StringLength),
        (format!("PING {}", "x".repeat(REDIS_LINE_BYTES_MAX)), Malformed::LineLength),
    ] {
        let (request, length) = parsed(bytes.as_bytes());
        assert_eq!((request.content, length), (Content::Malformed(reason), bytes.len()), "{bytes}");
    }
    // The longest that are allowed are only incomplete.
    let most = format!("*{REDIS_STRINGS_MAX}\r\n");
    let longest = format!("*1\r\n${REDIS_STRING_BYTES_MAX}\r\n");
    assert!(matches!(parse(most.as_bytes()), Parse::Incomplete(_)));
    let needed = longest.len() + REDIS_STRING_BYTES_MAX + 2;
    assert_eq!(parse(longest.as_bytes()), Parse::Incomplete(needed));
}

/// Strings that come in small pieces are not parsed from the first again with each piece.
#[test]
fn a_request_of_many_strings_is_parsed_a_few_times() {
    let strings: Vec<&[u8]> = vec![b"x"; 100_000];
    let bytes = encoded(&strings);
    let (mut needed, mut parses) = (1, 0);
    while let Parse::Incomplete(more) = parse(&bytes[..needed]) {
        assert!(more > needed, "{more}");
        (needed, parses) = (more.min(bytes.len()), parses + 1);
    }
    assert!(parses < 40, "{parses}");
}

proptest! {
    #[test]
    fn a_cut_request_is_incomplete_and_asks_for_no_more_than_it_has(
        strings in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 1..8)
    ) {
        let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        let bytes = encoded(&strings);
        let mut progress = Progress::default();
        for cut in 1..bytes.len() {
            prop_assert_eq!(parse_resuming(&bytes[..cut], &mut progress), parse(&bytes[..cut]));
            let Parse::Incomplete(needed) = parse(&bytes[..cut]) else {
                panic!("{} at {cut}", bytes.escape_ascii());
            };
            prop_assert!(needed > cut && needed <= bytes.len(), "{} at {}", needed, cut);
        }
        prop_assert_eq!(parse_resuming(&bytes, &mut progress), parse(&bytes));
        let (request, length) = parsed(&bytes);
        prop_assert_eq!(length, bytes.len());
        prop_assert_eq!(request.name, strings[0]);
        prop_assert_eq!(request.arguments.iter().collect::<Vec<_>>(), &strings[1..]);
    }

    #[test]
    fn any_words_are_read_again_from_their_quotes(
        words in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 1..5)
    ) {
        let quoted = |word: &Vec<u8>| {
            let hex: String = word.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("\"{hex}\"")
        };
        let line = words.iter().map(quoted).collect::<Vec<_>>().join(" ");
        let (mut array, words) = (Vec::new(), words.iter().map(Vec::as_slice).collect::<Vec<_>>());
        prop_assert!(unquote(line.as_bytes(), &mut array));
        prop_assert_eq!(array, encoded(&words));
    }

    #[test]
    fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        match parse(&bytes) {
            Parse::Complete(request, length) => {
                prop_assert!(length <= bytes.len());
                prop_assert_eq!(request.arguments.iter().count(), request.arguments.len());
                let mut array = Vec::new();
                if request.content == Content::Quoted && unquote(request.name, &mut array) {
                    prop_assert_eq!(parsed(&array).1, array.len());
                }
            }
            Parse::Incomplete(needed) => prop_assert!(needed > bytes.len()),
            Parse::Invalid(invalid) => panic!("{invalid:?}"),
        }
    }
}
