//! Promises of the codec of memcached's meta commands.

use wire::Parse;
use wire::limits::{MEMCACHED_KEY_BYTES_MAX, META_FLAGS_MAX, META_OPAQUE_BYTES_MAX};
use wire::memcached::{
    ArithmeticMode, Dialect, Error, Meta, MetaKey, MetaMode, MetaVerb, Request, parse, reply,
};

fn whole(text: &str) -> Request<'_> {
    match parse(Dialect::Memcached, text.as_bytes()) {
        Parse::Complete(request, length) => {
            assert_eq!(length, text.len(), "{text}");
            request
        }
        other => panic!("{text}: {other:?}"),
    }
}

fn meta(text: &str) -> Meta<'_> {
    match whole(text) {
        Request::Meta(meta) => *meta,
        other => panic!("{text}: {other:?}"),
    }
}

fn assert_refused(text: &str, error: Error) {
    assert_eq!(whole(text), Request::Bad { error, noreply: false }, "{text}");
}

#[test]
fn flags_come_in_their_order_with_their_tokens() {
    let meta = meta("mg key s v O12 q k\r\n");
    assert_eq!((meta.verb, meta.key.token), (MetaVerb::Get, &b"key"[..]));
    let expected = [(b's', &b""[..]), (b'v', b""), (b'O', b"12"), (b'q', b""), (b'k', b"")];
    assert!(meta.flags.eq(expected));
    assert!(meta.is_quiet && meta.wants_value && !meta.leaves_no_trace && !meta.invalidate);
    assert_eq!((meta.exptime, meta.compare, meta.vivify), (None, None, None));
}

#[test]
fn tokens_are_taken_for_what_they_are() {
    let found = meta("mg k T100 N-5 R30 E7 u\r\n");
    assert_eq!((found.exptime, found.vivify, found.recache), (Some(100), Some(-5), Some(30)));
    assert_eq!((found.assign, found.leaves_no_trace), (Some(7), true));
    let stored = meta("ms k 2 F4294967295 C18446744073709551615 I MA\r\nab\r\n");
    assert_eq!((stored.value, stored.client_flags), (&b"ab"[..], u32::MAX));
    assert_eq!((stored.compare, stored.invalidate), (Some(u64::MAX), true));
    assert_eq!(stored.mode, MetaMode::Append);
    let counted = meta("ma k MD D5 J13 N0\r\n");
    assert_eq!(counted.arithmetic, ArithmeticMode::Decrement);
    assert_eq!((counted.delta, counted.initial, counted.vivify), (5, 13, Some(0)));
    assert_eq!(meta("ma k\r\n").delta, 1);
    assert!(meta("md k x\r\n").removes_value);
}

#[test]
fn every_mode_has_its_letter() {
    for (letter, mode) in [
        ("S", MetaMode::Set),
        ("E", MetaMode::Add),
        ("R", MetaMode::Replace),
        ("A", MetaMode::Append),
        ("P", MetaMode::Prepend),
    ] {
        assert_eq!(meta(&format!("ms k 0 M{letter}\r\n\r\n")).mode, mode);
    }
    for (letter, mode) in [
        ("I", ArithmeticMode::Increment),
        ("+", ArithmeticMode::Increment),
        ("D", ArithmeticMode::Decrement),
        ("-", ArithmeticMode::Decrement),
    ] {
        assert_eq!(meta(&format!("ma k M{letter}\r\n")).arithmetic, mode);
    }
    assert_refused("ms k 0 Ms\r\n\r\n", Error::BadSetMode);
    assert_refused("ma k MS\r\n", Error::BadArithmeticMode);
}

#[test]
fn a_key_in_base64_is_decoded() {
    let meta = meta("mg AAEC/w== k b\r\n");
    let mut buffer = [0; MEMCACHED_KEY_BYTES_MAX];
    assert_eq!(meta.key.bytes(&mut buffer), [0, 1, 2, 255]);
    let plain = MetaKey { token: b"AAEC", is_base64: false };
    assert_eq!(plain.bytes(&mut buffer), b"AAEC");
    let longest = "A".repeat(MEMCACHED_KEY_BYTES_MAX / 4 * 4);
    let text = format!("mg {longest} b\r\n");
    let Request::Meta(meta) = whole(&text) else { panic!() };
    assert_eq!(meta.key.bytes(&mut buffer).len(), longest.len() / 4 * 3);
}

#[test]
fn wrong_flags_are_refused_in_the_words_of_the_command() {
    let words = Error::InvalidOrDuplicateFlag;
    for (flags, error) in [
        ("z", Error::InvalidFlag),
        ("k k", Error::DuplicateFlag),
        ("Tx", Error::BadToken),
        ("N", Error::BadToken),
        ("R", Error::BadToken),
        ("C", Error::BadToken),
        ("F", Error::BadLine),
        ("D", Error::BadDeltaToken),
        ("J-1", Error::BadInitialToken),
        ("M", Error::BadModeLength),
        ("b", Error::BadBase64),
    ] {
        assert_refused(&format!("mg key {flags}\r\n"), error);
        assert_refused(&format!("ms key 3 {flags}\r\nabc\r\n"), error);
        assert_refused(&format!("md key {flags}\r\n"), words);
        assert_refused(&format!("ma key {flags}\r\n"), words);
    }
    assert_refused("mg key x\r\n", Error::InvalidFlag);
    for flag in ["\u{e9}", "!", "@", "{", "1"] {
        assert_refused(&format!("mg key {flag}\r\n"), Error::BadLine);
        assert_refused(&format!("md key {flag}\r\n"), Error::BadLine);
    }
    assert_refused("mg key [\r\n", Error::InvalidFlag);
}

#[test]
fn what_is_missing_is_told() {
    for verb in ["mg", "ms", "md", "ma", "me", "m"] {
        assert_refused(&format!("{verb}\r\n"), Error::BadLine);
    }
    assert_refused("mx\r\n", Error::UnknownCommand);
    assert_refused("ms k\r\n", Error::BadLine);
    assert_refused("ms k S1\r\n", Error::BadLine);
    assert_refused("ms k -1\r\n", Error::BadLine);
}

#[test]
fn debug_takes_a_key_in_base64_too() {
    let key = |token, is_base64| Request::MetaDebug { key: MetaKey { token, is_base64 } };
    assert_eq!(whole("me YQ==\r\n"), key(b"YQ==", false));
    assert_eq!(whole("me YQ== b\r\n"), key(b"YQ==", true));
    assert_eq!(whole("me YQ== v\r\n"), key(b"YQ==", false));
    assert_refused("me a b\r\n", Error::BadLine);
    assert_eq!(whole("mn\r\n"), Request::MetaNoOp);
}

#[test]
fn opaque_tokens_have_a_limit() {
    let line = |length| format!("mg k O{}\r\n", "o".repeat(length));
    meta(&line(META_OPAQUE_BYTES_MAX - 1));
    meta(&line(META_OPAQUE_BYTES_MAX));
    assert_refused(&line(META_OPAQUE_BYTES_MAX + 1), Error::OpaqueTooLong);
}

#[test]
fn flags_have_a_limit() {
    let flags: Vec<char> = "qkOsctfhluvPLIRNTCDJ".chars().collect();
    let flag = |flag: &char| {
        if "RNTCDJ".contains(*flag) { format!(" {flag}1") } else { format!(" {flag}") }
    };
    let flags = |count: usize| flags[..count].iter().map(flag).collect::<String>();
    let line = |verb: &str, count: usize| format!("{verb} k{}\r\n", flags(count));
    for verb in ["mg", "md", "ma"] {
        meta(&line(verb, META_FLAGS_MAX - 1));
        meta(&line(verb, META_FLAGS_MAX));
    }
    assert_refused(&line("mg", META_FLAGS_MAX + 1), Error::TooManyFlagsOfGet);
    assert_refused(&line("md", META_FLAGS_MAX + 1), Error::TooManyFlags);
    let set = |count| format!("ms k 0{}\r\n\r\n", flags(count));
    meta(&set(META_FLAGS_MAX - 2));
    meta(&set(META_FLAGS_MAX - 1));
    let over = set(META_FLAGS_MAX);
    assert_refused(&over[..over.len() - 2], Error::TooManyFlags);
}

#[test]
fn answers_are_put_together_from_flags() {
    let mut out = Vec::new();
    reply::meta_value(&mut out, 3);
    reply::meta_flag(&mut out, b'O', b"12");
    reply::meta_number(&mut out, b'c', u64::MAX);
    reply::meta_base64_key(&mut out, b"\0");
    reply::base64(&mut out, b"ab");
    assert_eq!(out, b"VA 3 O12 c18446744073709551615 kAA== bYWI=");
}
