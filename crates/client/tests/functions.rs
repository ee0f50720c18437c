//! Functions for trees and tables: the requests they send and how they parse responses.

mod fake;

use client::{Error, Row, Search, SetOperation};
use fake::exchange;
use wire::binary::{Function, Request, StringsBuffer, encode};

const FAILURE: &[u8] = b"\x01\0\0\0\0";

/// Returns a call of a function and its response: these elements, or a failure.
fn call(
    name: &str,
    options: u32,
    arguments: &[&str],
    answer: Option<&[&str]>,
) -> (Vec<u8>, Vec<u8>) {
    let mut strings = StringsBuffer::default();
    for argument in arguments {
        strings.push(argument.as_bytes()).expect("a short argument");
    }
    let mut request = Vec::new();
    let call = Request::Misc {
        function: Function::from_name(name.as_bytes()),
        options,
        arguments: strings.strings(),
    };
    encode(&call, &mut request).expect("a short request");
    let Some(elements) = answer else { return (request, FAILURE.to_vec()) };
    let size = |length: usize| u32::try_from(length).expect("a short answer").to_be_bytes();
    let mut response = vec![0];
    response.extend(size(elements.len()));
    for element in elements {
        response.extend(size(element.len()));
        response.extend(element.as_bytes());
    }
    (request, response)
}

fn pair(key: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    (key.into(), value.into())
}

#[test]
fn duplicates_are_added_read_and_removed() {
    let calls = vec![
        call("putdup", 0, &["a", "2b"], Some(&[])),
        call("putdupback", 0, &["a", "0"], Some(&[])),
        call("get", 1, &["a"], Some(&["0", "1", "2b"])),
        call("get", 1, &["b"], None),
        call("outlist", 0, &["a", "b"], Some(&[])),
        call("putdup", 0, &["a", "2b"], None),
    ];
    exchange(calls, |client| {
        client.put_duplicate(b"a", b"2b").unwrap();
        client.put_duplicate_front(b"a", b"0").unwrap();
        assert_eq!(client.get_all(b"a").unwrap(), [&b"0"[..], b"1", b"2b"]);
        assert!(client.get_all(b"b").unwrap().is_empty());
        client.out_all(&[b"a", b"b"]).unwrap();
        assert!(matches!(client.put_duplicate(b"a", b"2b"), Err(Error::Miscellaneous)));
    });
}

#[test]
fn ranges_and_patterns_return_records() {
    let calls = vec![
        call("range", 1, &["", "0"], Some(&["a", "1", "b", "2"])),
        call("range", 1, &["a", "1", "c"], Some(&["a", "1"])),
        call("regex", 1, &["^a", "0"], Some(&["a", "1"])),
    ];
    exchange(calls, |client| {
        assert_eq!(client.range(b"", None, None).unwrap(), [pair("a", "1"), pair("b", "2")]);
        assert_eq!(client.range(b"a", Some(b"c"), Some(1)).unwrap(), [pair("a", "1")]);
        // On the wire 0 would mean no limit.
        assert!(client.range(b"a", None, Some(0)).unwrap().is_empty());
        assert!(client.find(b"^a", Some(0)).unwrap().is_empty());
        assert_eq!(client.find(b"^a", None).unwrap(), [pair("a", "1")]);
    });
}

#[test]
fn rows_are_sent_as_columns() {
    let calls = vec![
        call("put", 0, &["p1", "name", "mikio", "age", "30"], Some(&[])),
        call("putkeep", 0, &["p1", "x", "y"], None),
        call("putcat", 0, &["p1", "new", "1"], Some(&[])),
        call("get", 1, &["p1"], Some(&["name", "mikio", "age", "30", "new", "1"])),
        call("get", 1, &["p2"], None),
        call("get", 1, &["p3"], Some(&[])),
        call("setindex", 0, &["age", "DEC"], Some(&[])),
        call("genuid", 0, &[], Some(&["2"])),
    ];
    exchange(calls, |client| {
        client.put_row(b"p1", &[("name", "mikio"), ("age", "30")]).unwrap();
        assert!(!client.put_row_keep(b"p1", &[("x", "y")]).unwrap());
        client.put_row_cat(b"p1", &[("new", "1")]).unwrap();
        let row = [pair("name", "mikio"), pair("age", "30"), pair("new", "1")];
        assert_eq!(client.get_row(b"p1").unwrap().unwrap(), row);
        assert_eq!(client.get_row(b"p2").unwrap(), None);
        assert_eq!(client.get_row(b"p3").unwrap(), Some(vec![]));
        client.set_index(b"age", b"DEC").unwrap();
        assert_eq!(client.generate_uid().unwrap(), 2);
    });
}

/// Row whose names and values have NUL in them.
const SIZED: &str = "\0\0[[ROW]]\n\0\0\0\0\0\0\0\x02k\0\0\0\0\x02a\0\0\0\0\x031\x002";

#[test]
fn searches_return_keys_rows_counts_and_hints() {
    let asked = ["addcond\0age\0NUMGE\x0030", "setorder\0name\0STRDESC", "setlimit\x005\x001"];
    let with = |more: &[&'static str]| [&asked[..], more].concat();
    let calls = vec![
        call("search", 1, &[], Some(&["p1", "p2"])),
        call("search", 1, &asked, Some(&["p1"])),
        call("search", 1, &with(&["get", "sized"]), Some(&["\0p1\0name\0joker", "\0p2"])),
        call("search", 1, &with(&["get\0\0age", "sized"]), Some(&["\0p1\0age\x0030"])),
        call("search", 1, &["get", "sized"], Some(&[SIZED])),
        call("search", 1, &["get", "sized"], Some(&[&SIZED[..SIZED.len() - 1]])),
        call("search", 1, &with(&["count"]), Some(&["3"])),
        call("search", 0, &with(&["out", "count"]), Some(&["4"])),
        call("search", 1, &with(&["count", "hint"]), Some(&["4", "\0\0[[HINT]]\nhow\n"])),
        call("search", 1, &with(&["count", "hint"]), Some(&["4"])),
        call("search", 1, &["setlimit\0-1\x000"], None),
    ];
    exchange(calls, |client| {
        assert_eq!(client.search(&Search::new()).unwrap(), [b"p1", b"p2"]);
        let search = Search::new()
            .condition(b"age", b"NUMGE", b"30")
            .order_by(b"name", b"STRDESC")
            .limit(Some(5), 1);
        assert_eq!(client.search(&search).unwrap(), [b"p1"]);
        let row = |key: &str, columns| Row { key: key.into(), columns };
        assert_eq!(
            client.search_rows::<&[u8]>(&search, &[]).unwrap(),
            [row("p1", vec![pair("name", "joker")]), row("p2", vec![]),]
        );
        let columns = vec![pair("age", "30")];
        assert_eq!(client.search_rows(&search, &["age"]).unwrap(), [row("p1", columns)]);
        let columns = vec![pair("a\0", "1\x002")];
        let all = Search::new();
        assert_eq!(client.search_rows::<&[u8]>(&all, &[]).unwrap(), [row("k\0", columns)]);
        let cut = client.search_rows::<&[u8]>(&all, &[]);
        assert!(matches!(cut, Err(Error::Receive(_))), "{cut:?}");
        assert_eq!(client.search_count(&search).unwrap(), 3);
        assert_eq!(client.search_out(&search).unwrap(), 4);
        assert_eq!(client.search_hint(&search).unwrap(), b"how\n");
        // A server that sends no hint.
        client.search_hint(&search).unwrap_err();
        client.search(&Search::new().limit(None, 0)).unwrap_err();
    });
}

#[test]
fn an_invalid_number_is_an_error() {
    let calls = vec![
        call("genuid", 0, &[], Some(&[])),
        call("genuid", 0, &[], Some(&["x"])),
        call("genuid", 0, &[], None),
    ];
    exchange(calls, |client| {
        for _ in 0..3 {
            assert!(matches!(client.generate_uid(), Err(Error::Miscellaneous)));
        }
    });
}

#[test]
fn an_invalid_search_is_never_sent() {
    exchange(vec![], |client| {
        let bad = [
            Search::new().condition(b"name", b"BOGUS", b"x"),
            Search::new().condition(b"name", b"!!STREQ", b"x"),
            Search::new().condition(b"name", b"19", b"x"),
            Search::new().condition(b"name", b"", b"x"),
            Search::new().condition(b"na\0me", b"STREQ", b"x"),
            Search::new().condition(b"name", b"STRBW", b"x\0y"),
            Search::new().order_by(b"name", b"UP"),
            Search::new().order_by(b"name", b"4"),
            Search::new()
                .combine(SetOperation::Union, Search::new().condition(b"a", b"BOGUS", b"x")),
        ];
        for search in bad {
            for result in [
                client.search(&search).map(drop),
                client.search_rows(&search, &["a"]).map(drop),
                client.search_count(&search).map(drop),
                client.search_out(&search).map(drop),
                client.search_hint(&search).map(drop),
            ] {
                assert!(matches!(result, Err(Error::BadSearch(_))), "{search:?}: {result:?}");
            }
        }
        let sound = Search::new().condition(b"a", b"STREQ", b"x");
        let both = sound.clone().combine(SetOperation::Intersection, sound.clone());
        assert!(matches!(client.search_out(&both), Err(Error::BadSearch(_))));
        let column = client.search_rows(&sound, &["a\0b"]);
        assert!(matches!(column, Err(Error::BadSearch(_))));
    });
}
