//! Promises of the memcached codec.

mod common;

use common::{assert_is_one_request, exchanges};
use proptest::prelude::*;
use wire::limits::{LINE_BYTES_MAX, MEMCACHED_KEY_BYTES_MAX, MEMCACHED_VALUE_BYTES_MAX};
use wire::memcached::{self, Dialect, Error, Mode, Request, Store, reply};
use wire::{Invalid, Parse, Protocol, sniff};

fn parse(bytes: &[u8]) -> Parse<Request<'_>> {
    memcached::parse(Dialect::Memcached, bytes)
}

fn parse_original(bytes: &[u8]) -> Parse<Request<'_>> {
    memcached::parse(Dialect::TokyoTyrant, bytes)
}

fn outcome(bytes: &[u8]) -> Parse<()> {
    parse(bytes).map(drop)
}

fn whole(bytes: &[u8]) -> Request<'_> {
    only(bytes, parse(bytes))
}

fn whole_original(bytes: &[u8]) -> Request<'_> {
    only(bytes, parse_original(bytes))
}

fn only<'a>(bytes: &[u8], parsed: Parse<Request<'a>>) -> Request<'a> {
    match parsed {
        Parse::Complete(request, length) => {
            assert_eq!(length, bytes.len());
            request
        }
        other => panic!("{other:?}"),
    }
}

fn bad<'a>(error: Error) -> Request<'a> {
    Request::Bad { error, noreply: false }
}

#[test]
fn captured_requests_are_taken_apart_without_a_rest() {
    let mut refused = Vec::new();
    for exchange in exchanges(include_str!("captured/memcached-http.tsv")) {
        if sniff(&exchange.request) != Some(Protocol::Memcached) {
            continue;
        }
        let mut rest = &exchange.request[..];
        while !rest.is_empty() {
            match parse_original(rest) {
                Parse::Complete(request, length) => {
                    let outcome = |bytes: &[u8]| parse_original(bytes).map(drop);
                    assert_is_one_request(&rest[..length], outcome);
                    if let Request::Bad { error, .. } = request {
                        refused.push((exchange.what.clone(), error));
                    }
                    rest = &rest[length..];
                }
                other => panic!("{}: {other:?}", exchange.what),
            }
        }
    }
    let refused: Vec<_> = refused.iter().map(|(what, error)| (&what[..], *error)).collect();
    let expected = [
        ("set short args", Error::MissingArguments),
        ("get no args", Error::MissingArguments),
        ("incr no args", Error::MissingArguments),
        ("delete no args", Error::MissingArguments),
        ("set bad terminator", Error::BadDataChunk),
        ("empty line", Error::UnknownCommand),
        ("unknown", Error::UnknownCommand),
        ("unknown then get", Error::UnknownCommand),
    ];
    assert_eq!(refused, expected);
}

#[test]
fn replies_are_those_captured() {
    let exchanges = exchanges(include_str!("captured/memcached-http.tsv"));
    let check = |what: &str, write: &dyn Fn(&mut Vec<u8>)| {
        let exchange = exchanges.iter().find(|exchange| exchange.what == what).unwrap();
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(out.escape_ascii().to_string(), exchange.response.escape_ascii().to_string());
    };
    check("set", &|out| out.extend(reply::STORED));
    check("get", &|out| {
        reply::value(out, b"mk", 0, b"hello", None);
        out.extend(reply::END);
    });
    check("add exists", &|out| out.extend(reply::NOT_STORED));
    check("delete", &|out| out.extend(reply::DELETED));
    check("delete miss", &|out| out.extend(reply::NOT_FOUND));
    check("incr 5", &|out| reply::number(out, 15));
    check("set short args", &|out| out.extend(Error::MissingArguments.reply()));
    check("version", &|out| reply::version(out, "1.1.41"));
    check("flush_all", &|out| out.extend(reply::OK));
}

#[test]
fn replies_the_original_lacked_are_memcacheds() {
    let mut out = Vec::new();
    reply::value(&mut out, b"k", u32::MAX, b"", Some(u64::MAX));
    reply::stat(&mut out, "pid", "1");
    reply::client_error(&mut out, "why");
    reply::server_error(&mut out, "why");
    let expected = "VALUE k 4294967295 0 18446744073709551615\r\n\r\nSTAT pid 1\r\n\
        CLIENT_ERROR why\r\nSERVER_ERROR why\r\n";
    assert_eq!(out, expected.as_bytes());
}

#[test]
fn every_verb_is_understood() {
    let store = |mode| {
        let (key, value) = (&b"k"[..], &b"ab"[..]);
        Request::Store(Store { mode, key, flags: 7, exptime: -1, value, noreply: false })
    };
    assert_eq!(whole(b"set k 7 -1 2\r\nab\r\n"), store(Mode::Set));
    assert_eq!(whole(b"add k 7 -1 2\r\nab\r\n"), store(Mode::Add));
    assert_eq!(whole(b"replace k 7 -1 2\r\nab\r\n"), store(Mode::Replace));
    assert_eq!(whole(b"append k 7 -1 2\r\nab\r\n"), store(Mode::Append));
    assert_eq!(whole(b"prepend k 7 -1 2\r\nab\r\n"), store(Mode::Prepend));
    assert_eq!(whole(b"cas k 7 -1 2 9\r\nab\r\n"), store(Mode::CompareAndSwap(9)));
    let Request::Get { keys, cas: true } = whole(b"gets a b  c\r\n") else { panic!() };
    assert!(keys.iter().eq([b"a", b"b", b"c"]));
    let Request::Get { keys, cas: false } = whole(b"get a\r\n") else { panic!() };
    assert!(keys.iter().eq([b"a"]));
    let gat = whole(b"gat 60 a b\r\n");
    let Request::GetAndTouch { keys, exptime: 60, cas: false } = gat else { panic!() };
    assert!(keys.iter().eq([b"a", b"b"]));
    assert!(matches!(whole(b"gats 0 a\r\n"), Request::GetAndTouch { cas: true, .. }));
    assert_eq!(whole(b"delete k\r\n"), Request::Delete { key: b"k", noreply: false });
    assert_eq!(whole(b"delete k 0 noreply\r\n"), Request::Delete { key: b"k", noreply: true });
    let (key, noreply) = (&b"k"[..], false);
    let max = i128::from(u64::MAX);
    let incr = whole(b"incr k 18446744073709551615\r\n");
    assert_eq!(incr, Request::Increment { key, amount: max, noreply });
    assert_eq!(whole_original(b"incr k -5\r\n"), Request::Increment { key, amount: -5, noreply });
    assert_eq!(whole(b"decr k 5\r\n"), Request::Decrement { key, amount: 5, noreply });
    assert_eq!(whole(b"touch k 5\r\n"), Request::Touch { key, exptime: 5, noreply });
    assert_eq!(whole(b"flush_all\r\n"), Request::FlushAll { delay: 0, noreply });
    assert_eq!(whole(b"flush_all 10\r\n"), Request::FlushAll { delay: 10, noreply });
    assert_eq!(whole(b"verbosity 1\r\n"), Request::Verbosity { noreply });
    assert_eq!(whole(b"stats\r\n"), Request::Stats { argument: b"", rest: b"" });
    let stats = Request::Stats { argument: b"detail", rest: b" on" };
    assert_eq!(whole(b"stats detail on\r\n"), stats);
    let mebibytes = 64;
    let capped = Request::CacheMemoryLimit { mebibytes, noreply };
    assert_eq!(whole(b"cache_memlimit 64\r\n"), capped);
    let crawler = Request::Crawler { command: b"metadump", argument: b"all" };
    assert_eq!(whole(b"lru_crawler metadump all\r\n"), crawler);
    assert_eq!(whole(b"shutdown\r\n"), Request::Shutdown { argument: b"" });
    assert_eq!(whole(b"version\r\n"), Request::Version);
    assert_eq!(whole(b"quit\r\n"), Request::Quit);
}

#[test]
fn noreply_is_seen_at_every_verb_that_has_it() {
    for line in [
        "set k 0 0 0 noreply\r\n\r\n",
        "cas k 0 0 0 1 noreply\r\n\r\n",
        "delete k noreply\r\n",
        "incr k 1 noreply\r\n",
        "decr k 1 noreply\r\n",
        "touch k 1 noreply\r\n",
        "flush_all noreply\r\n",
        "flush_all 1 noreply\r\n",
        "verbosity 1 noreply\r\n",
        "cache_memlimit 64 noreply\r\n",
    ] {
        let noreply = match whole(line.as_bytes()) {
            Request::Store(store) => store.noreply,
            Request::Delete { noreply, .. }
            | Request::Increment { noreply, .. }
            | Request::Decrement { noreply, .. }
            | Request::Touch { noreply, .. }
            | Request::FlushAll { noreply, .. }
            | Request::CacheMemoryLimit { noreply, .. }
            | Request::Verbosity { noreply } => noreply,
            other => panic!("{other:?}"),
        };
        assert!(noreply, "{line}");
    }
    assert_eq!(whole(b"delete noreply\r\n"), Request::Delete { key: b"noreply", noreply: true });
    // A line that lacks arguments or a size has a reply.
    for line in [
        "set noreply\r\n",
        "set a 0 0 noreply\r\n",
        "set a 0 0 -1 noreply\r\n",
        "set a 0 0 x noreply\r\n",
        "set a 0 0 123456789012 noreply\r\n",
        "touch noreply\r\n",
        "incr noreply\r\n",
        "verbosity\r\n",
    ] {
        let refused = Request::Bad { error: Error::BadLine, noreply: false };
        assert_eq!(whole(line.as_bytes()), refused, "{line}");
    }
    for line in ["incr a noreply\r\n", "touch a noreply\r\n", "verbosity noreply\r\n"] {
        assert!(matches!(whole(line.as_bytes()), Request::Bad { noreply: true, .. }), "{line}");
    }
}

#[test]
fn lines_may_end_in_a_bare_line_feed_and_have_tabs() {
    let Request::Store(store) = whole(b"\tset  k\t1 2 3\nabc\r\n") else { panic!() };
    assert_eq!(
        (store.key, store.flags, store.exptime, store.value),
        (&b"k"[..], 1, 2, &b"abc"[..])
    );
}

#[test]
fn data_may_end_in_a_bare_line_feed_only_in_the_originals_dialect() {
    let Request::Store(store) = whole_original(b"set k 1 2 3\nabc\n") else { panic!() };
    assert_eq!(store.value, b"abc");
    assert_eq!(parse(b"set k 1 2 3\nabc\n"), Parse::Incomplete(17));
    assert_eq!(whole(b"set k 1 2 3\nabc\nx"), bad(Error::BadDataChunk));
}

#[test]
fn data_may_hold_any_bytes() {
    let Request::Store(store) = whole(b"set k 0 0 6\r\n\r\n\0\xc8\n\n\r\n") else { panic!() };
    assert_eq!(store.value, b"\r\n\0\xc8\n\n");
}

#[test]
fn a_negative_size_is_refused_and_zero_to_the_original() {
    assert_eq!(whole(b"set a 0 0 -5\r\n"), bad(Error::BadLine));
    let Request::Store(store) = whole_original(b"set a 0 0 -5\r\n\r\n") else { panic!() };
    assert_eq!(store.value, b"");
}

#[test]
fn a_large_value_is_asked_for_as_soon_as_it_is_announced() {
    assert_eq!(parse(b"set k 0 0 1000000\r\n"), Parse::Incomplete(19 + 1_000_000 + 2));
    assert_eq!(parse(b"ms k 1000000\r\n"), Parse::Incomplete(14 + 1_000_000 + 2));
    let line = format!("set k 0 0 {}\r\n", i64::MAX);
    let needed = Parse::Incomplete(line.len() + i64::MAX as usize + 1);
    assert_eq!(parse_original(line.as_bytes()), needed);
    let too_long = format!("set k 0 0 {}\r\n", i64::MAX as u64 + 1);
    assert_eq!(whole_original(too_long.as_bytes()), bad(Error::BadLine));
}

#[test]
fn values_have_a_limit() {
    for (head, tail) in [("set k 0 0 ", ""), ("ms k ", " q")] {
        let line = |size: usize| format!("{head}{size}{tail}\r\n");
        for size in [MEMCACHED_VALUE_BYTES_MAX - 1, MEMCACHED_VALUE_BYTES_MAX] {
            let line = line(size);
            assert_eq!(parse(line.as_bytes()), Parse::Incomplete(line.len() + size + 2));
        }
        let over = line(MEMCACHED_VALUE_BYTES_MAX + 1);
        assert_eq!(whole(over.as_bytes()), bad(Error::BadLine));
    }
}

#[test]
fn keys_have_a_limit_that_the_original_had_not() {
    for shape in
        ["get {}", "get a {} b", "delete {}", "incr {} 1", "touch {} 1", "mg {} v", "me {}"]
    {
        let line = |length: usize| shape.replace("{}", &"k".repeat(length)) + "\r\n";
        for length in [MEMCACHED_KEY_BYTES_MAX - 1, MEMCACHED_KEY_BYTES_MAX] {
            let line = line(length);
            assert!(!matches!(whole(line.as_bytes()), Request::Bad { .. }), "{line}");
        }
        let over = line(MEMCACHED_KEY_BYTES_MAX + 1);
        let is_get = shape.starts_with("get");
        let error = if is_get { Error::KeyTooLongToGet } else { Error::BadLine };
        assert_eq!(whole(over.as_bytes()), bad(error), "{over}");
        if !shape.starts_with('m') {
            assert!(!matches!(whole_original(over.as_bytes()), Request::Bad { .. }), "{over}");
        }
    }
}

#[test]
fn data_of_another_length_are_answered_once_and_what_is_left_is_read_on() {
    let refused = |noreply, length| {
        let error = Error::BadDataChunk;
        Parse::Complete(Request::Bad { error, noreply }, length)
    };
    assert_eq!(parse(b"set a 0 0 1\r\nxyz\r\n"), refused(false, 16));
    assert_eq!(parse(b"ms a 1 q\r\nxyz\r\n"), refused(false, 13));
    assert_eq!(parse(b"set a 0 0 1 noreply\r\nxyz\r\n"), refused(true, 24));
    assert_eq!(parse(b"set a 0 0 1\r\nxy"), Parse::Incomplete(16));
}

#[test]
fn the_original_takes_overlong_data_with_their_line() {
    assert_eq!(whole_original(b"set a 0 0 1\r\nxyz\r\n"), bad(Error::BadDataChunk));
    assert_eq!(whole_original(b"set a 0 0 1\r\nx\ry\n"), bad(Error::BadDataChunk));
    let silent = Request::Bad { error: Error::BadDataChunk, noreply: true };
    assert_eq!(whole_original(b"set a 0 0 1 noreply\r\nxyz\r\n"), silent);
    assert_eq!(parse_original(b"set a 0 0 1\r\nxyz"), Parse::Incomplete(17));
}

#[test]
fn overlong_data_are_not_searched_for_their_end_for_ever() {
    let start = b"set a 0 0 1\r\nx".to_vec();
    let overlong = |length: usize| [start.clone(), vec![b'y'; length]].concat();
    assert!(matches!(parse_original(&overlong(LINE_BYTES_MAX - 1)), Parse::Incomplete(_)));
    let too_large = Parse::Invalid(Invalid::TooLarge);
    assert_eq!(parse_original(&overlong(LINE_BYTES_MAX)), too_large);
    assert_eq!(parse_original(&overlong(LINE_BYTES_MAX + 1)), too_large);
}

#[test]
fn the_original_takes_the_data_behind_a_bad_number() {
    let bad_number = bad(Error::BadLine);
    assert_eq!(whole_original(b"set a x 0 9\r\nflush_all\r\n"), bad_number);
    assert_eq!(whole_original(b"set a 0 x 9\r\nflush_all\r\n"), bad_number);
    assert_eq!(whole_original(b"cas a 0 0 9 x\r\nflush_all\r\n"), bad_number);
    let missing = bad(Error::MissingArguments);
    assert_eq!(whole_original(b"cas a 0 0 9\r\nflush_all\r\n"), missing);
    assert_eq!(whole_original(b"set a 0 0 x\r\n"), bad_number);
}

#[test]
fn data_of_a_refused_line_are_taken_off_if_their_length_is_known() {
    for line in [
        "set a x 0 9\r\nflush_all\r\n",
        "set a -1 0 9\r\nflush_all\r\n",
        "set a 0 x 9\r\nflush_all\r\n",
        "cas a 0 0 9 x\r\nflush_all\r\n",
        "cas a 0 0 9\r\nflush_all\r\n",
        "set a 0 0 x\r\n",
        "set a 0 0\r\n",
        "ms a x\r\n",
    ] {
        assert_eq!(whole(line.as_bytes()), bad(Error::BadLine), "{line}");
    }
    let long = format!("set {} 0 0 9\r\nflush_all\r\n", "k".repeat(MEMCACHED_KEY_BYTES_MAX + 1));
    assert_eq!(whole(long.as_bytes()), bad(Error::BadLine));
    let silent = Request::Bad { error: Error::BadLine, noreply: true };
    assert_eq!(whole(b"set a x 0 9 noreply\r\nflush_all\r\n"), silent);
    assert_eq!(whole(b"ms a 9 z\r\nflush_all\r\n"), bad(Error::InvalidFlag));
}

#[test]
fn times_are_the_low_32_bits_with_a_sign() {
    for (text, seconds) in [
        ("2147483647", i64::from(i32::MAX)),
        ("2147483648", i64::from(i32::MIN)),
        ("4294967295", -1),
        ("4294967296", 0),
        ("-1", -1),
    ] {
        let line = format!("set k 0 {text} 0\r\n\r\n");
        let Request::Store(store) = whole(line.as_bytes()) else { panic!() };
        assert_eq!(store.exptime, seconds, "{text}");
        let line = format!("touch k {text}\r\n");
        assert_eq!(
            whole(line.as_bytes()),
            Request::Touch { key: b"k", exptime: seconds, noreply: false }
        );
        let line = format!("mg k T{text}\r\n");
        let Request::Meta(meta) = whole(line.as_bytes()) else { panic!() };
        assert_eq!(meta.exptime, Some(seconds), "{text}");
    }
    // Tokyo Tyrant reads all of the number.
    let Request::Store(store) = whole_original(b"set k 0 4294967295 0\r\n\r\n") else { panic!() };
    assert_eq!(store.exptime, 4_294_967_295);
}

#[test]
fn numbers_are_taken_up_to_their_limits_and_no_further() {
    let flags = |flags: u64| format!("set k {flags} 0 0\r\n\r\n");
    for number in [u64::from(u32::MAX) - 1, u64::from(u32::MAX)] {
        assert!(matches!(whole(flags(number).as_bytes()), Request::Store(_)));
    }
    // memcached takes the low bits.
    assert!(matches!(whole(flags(1 << 32).as_bytes()), Request::Store(Store { flags: 0, .. })));
    assert_eq!(whole_original(flags(1 << 32).as_bytes()), bad(Error::BadLine));
    assert_eq!(whole(b"incr k 18446744073709551616\r\n"), bad(Error::BadDelta));
    assert_eq!(whole_original(b"incr k 9223372036854775808\r\n"), bad(Error::BadDelta));
    let incr = whole_original(b"incr k 9223372036854775807\r\n");
    assert!(matches!(incr, Request::Increment { .. }));
    assert_eq!(whole(b"incr k x\r\n"), bad(Error::BadDelta));
    assert_eq!(whole(b"incr k -1\r\n"), bad(Error::BadDelta));
    assert_eq!(whole(b"touch k x\r\n"), bad(Error::BadExptime));
    assert_eq!(whole(b"gat x k\r\n"), bad(Error::BadExptime));
    assert_eq!(whole(b"flush_all x\r\n"), bad(Error::BadExptime));
    assert_eq!(whole(b"verbosity x\r\n"), bad(Error::BadLine));
    assert_eq!(whole(b"cache_memlimit x\r\n"), bad(Error::UnknownCommand));
}

#[test]
fn missing_tokens_are_told() {
    for line in [
        "get",
        "gets",
        "get  ",
        "set",
        "set k 0 0",
        "delete",
        "incr k",
        "decr",
        "touch k",
        "gat",
        "gat 0",
        "verbosity",
    ] {
        let line = format!("{line}\r\n");
        assert_eq!(whole(line.as_bytes()), bad(Error::BadLine), "{line}");
        assert_eq!(whole_original(line.as_bytes()), bad(Error::MissingArguments), "{line}");
    }
    assert_eq!(whole(b"cache_memlimit\r\n"), bad(Error::UnknownCommand));
}

#[test]
fn tokens_too_many_are_ignored() {
    for (line, same) in [
        ("set k 0 0 0 x\r\n\r\n", "set k 0 0 0\r\n\r\n"),
        ("set k 0 0 0 noreply x\r\n\r\n", "set k 0 0 0\r\n\r\n"),
        ("set k 0 0 0 x noreply\r\n\r\n", "set k 0 0 0 noreply\r\n\r\n"),
        ("incr k 1 noreply x\r\n", "incr k 1\r\n"),
        ("touch k 1 2\r\n", "touch k 1\r\n"),
        ("delete k 5\r\n", "delete k\r\n"),
        ("delete k x noreply\r\n", "delete k noreply\r\n"),
        ("flush_all 1 2 3\r\n", "flush_all 1\r\n"),
        ("verbosity 1 2 3\r\n", "verbosity 1\r\n"),
    ] {
        assert_eq!(whole(line.as_bytes()), whole(same.as_bytes()), "{line}");
    }
    assert_eq!(whole(b"lru_crawler metadump all x\r\n"), bad(Error::UnknownCommand));
    let delete = Request::Delete { key: b"k", noreply: true };
    assert_eq!(whole_original(b"delete k 0 noreply x\r\n"), delete);
}

#[test]
fn verbs_are_told_from_their_prefixes_and_other_cases() {
    for line in ["ge k\r\n", "gett k\r\n", "GET k\r\n"] {
        assert_eq!(whole(line.as_bytes()), bad(Error::UnknownCommand), "{line}");
    }
    // memcached calls these malformed.
    for line in ["\0\r\n", "y\r\n", " \r\n", "\n"] {
        assert_eq!(whole(line.as_bytes()), bad(Error::BadLine), "{line}");
        assert_eq!(whole_original(line.as_bytes()), bad(Error::UnknownCommand), "{line}");
    }
}

#[test]
fn a_key_of_64_kib_fits_into_a_line_of_the_original() {
    let key = vec![b'k'; 64 << 10];
    let bytes = [b"set ".to_vec(), key.clone(), b" 0 0 1\r\nx\r\n".to_vec()].concat();
    let Request::Store(store) = whole_original(&bytes) else { panic!() };
    assert_eq!(store.key, key);
}

#[test]
fn lines_have_a_limit() {
    let line = |length: usize| {
        let mut line = b"get k k ".repeat(length.div_ceil(8));
        line.resize(length - 1, b'k');
        line.push(b'\n');
        line
    };
    assert!(matches!(whole(&line(LINE_BYTES_MAX - 1)), Request::Get { .. }));
    assert!(matches!(whole(&line(LINE_BYTES_MAX)), Request::Get { .. }));
    assert_eq!(parse(&line(LINE_BYTES_MAX + 1)), Parse::Invalid(Invalid::TooLarge));
    let unended = vec![b'k'; LINE_BYTES_MAX];
    assert_eq!(parse(&unended[1..]), Parse::Incomplete(LINE_BYTES_MAX));
    assert_eq!(parse(&unended), Parse::Invalid(Invalid::TooLarge));
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("blank", |byte| !b" \t\r\n".contains(byte));
    prop::collection::vec(byte, 1..20)
}

proptest! {
    #[test]
    fn a_stored_value_arrives_as_it_was_sent(
        key in key(),
        flags: u32,
        exptime in any::<i32>().prop_map(i64::from),
        value: Vec<u8>,
        version: u64,
        noreply: bool,
    ) {
        let size = value.len();
        let suffix = if noreply { " noreply" } else { "" };
        for (verb, mode, argument) in [
            ("set", Mode::Set, String::new()),
            ("append", Mode::Append, String::new()),
            ("cas", Mode::CompareAndSwap(version), format!(" {version}")),
        ] {
            let mut bytes = format!("{verb} ").into_bytes();
            bytes.extend(&key);
            bytes.extend(format!(" {flags} {exptime} {size}{argument}{suffix}\r\n").into_bytes());
            bytes.extend(&value);
            bytes.extend(b"\r\n");
            let store = Store { mode, key: &key, flags, exptime, value: &value, noreply };
            prop_assert_eq!(parse(&bytes), Parse::Complete(Request::Store(store), bytes.len()));
            assert_is_one_request(&bytes, outcome);
        }
    }

    #[test]
    fn keys_arrive_as_they_were_sent(keys in prop::collection::vec(key(), 1..9)) {
        let mut bytes = b"get ".to_vec();
        bytes.extend(keys.join(&b' '));
        bytes.extend(b"\r\n");
        assert_is_one_request(&bytes, outcome);
        let Request::Get { keys: parsed, .. } = whole(&bytes) else { panic!() };
        prop_assert!(parsed.iter().eq(keys.iter().map(Vec::as_slice)));
    }

    #[test]
    fn arbitrary_lines_never_break_the_parser(
        verb in prop::sample::select(&[
            "get", "set", "cas", "incr", "touch", "gat", "flush_all", "stats", "delete", "mg", "ms",
            "md", "ma", "me", "x", "",
        ][..]),
        rest in prop::collection::vec(prop::sample::select(&b" \t\r\n019-+kxbCTOM=\xc8"[..]), 0..40),
    ) {
        let bytes = [verb.as_bytes(), &rest].concat();
        for parsed in [parse(&bytes), parse_original(&bytes)] {
            match parsed {
                Parse::Complete(_, length) => prop_assert!(length > 0 && length <= bytes.len()),
                Parse::Incomplete(needed) => prop_assert!(needed > bytes.len()),
                Parse::Invalid(invalid) => prop_assert_eq!(invalid, Invalid::TooLarge),
            }
        }
    }
}
