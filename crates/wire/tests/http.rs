//! Promises of the HTTP codec.

mod common;

use common::{assert_is_one_request, exchanges};
use proptest::prelude::*;
use wire::http::{
    BodyLength, Head, Method, Progress, Request, RestOfBody, Status, head, parse, reply,
};
use wire::http::{form, parse_resuming};
use wire::limits::{
    HTTP_CHUNK_LINE_BYTES_MAX, HTTP_HEAD_BYTES_MAX, HTTP_HEADERS_MAX, HTTP_TRAILER_BYTES_MAX,
};
use wire::{Invalid, Parse, Protocol, sniff};

fn outcome(bytes: &[u8]) -> Parse<()> {
    parse(bytes).map(drop)
}

fn whole(bytes: &[u8]) -> Request<'_> {
    match parse(bytes) {
        Parse::Complete(request, length) => {
            assert_eq!(length, bytes.len());
            request
        }
        other => panic!("{other:?}"),
    }
}

fn whole_head(bytes: &str) -> Head<'_> {
    match head(bytes.as_bytes()) {
        Parse::Complete(head, _) => head,
        other => panic!("{other:?}"),
    }
}

fn refusal(bytes: &str) -> Invalid {
    match parse(bytes.as_bytes()) {
        Parse::Invalid(invalid) => invalid,
        other => panic!("{bytes:?}: {other:?}"),
    }
}

fn captured(what: &str) -> common::Exchange {
    let all = exchanges(include_str!("captured/memcached-http.tsv"));
    all.into_iter().rfind(|exchange| exchange.what == what).expect(what)
}

#[test]
fn captured_requests_are_taken_apart_without_a_rest() {
    let mut count = 0;
    for exchange in exchanges(include_str!("captured/memcached-http.tsv")) {
        if sniff(&exchange.request) == Some(Protocol::Http) && exchange.what != "PUT expect" {
            assert_is_one_request(&exchange.request, outcome);
            count += 1;
        }
    }
    assert_eq!(count, 20);
}

#[test]
fn keys_are_found_in_captured_requests() {
    for (what, key) in [
        ("PUT", "hk a"),
        ("GET", "hk a"),
        ("GET abs", "hk a"),
        ("GET query", "hk a?x=1"),
        ("GET +", "hk a"),
        ("POST mname", ""),
    ] {
        assert_eq!(*whole(&captured(what).request).key(), *key.as_bytes(), "{what}");
    }
}

#[test]
fn only_one_slash_and_one_host_are_taken_off_a_target() {
    for (target, key) in [
        ("//a", "/a"),
        ("a", "a"),
        ("/", ""),
        ("*", "*"),
        ("HTTP://host:1", ""),
        ("http://host/", ""),
        ("http://host//a", "/a"),
        ("/http://host/a", "http://host/a"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\n\r\n");
        assert_eq!(*whole_head(&request).key(), *key.as_bytes(), "{target}");
    }
}

#[test]
fn methods_and_headers_are_found_in_captured_requests() {
    let request = captured("PUT keep").request;
    let request = whole(&request);
    assert_eq!(request.method, Method::Put);
    assert_eq!(request.header("x-tt-pdmode"), Some(&b"1"[..]));
    assert_eq!(request.header_number("X-TT-PDMODE"), Some(1));
    assert_eq!(request.header_number("X-TT-PD"), None);
    assert_eq!(*request.body(), *b"xyz");
    let request = captured("POST xname").request;
    let request = whole(&request);
    assert_eq!(request.method, Method::Post);
    assert_eq!(request.header("X-TT-XNAME"), Some(&b"echo"[..]));
    assert_eq!(request.header_number("X-TT-XNAME"), None);
    for (what, method) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("DELETE", Method::Delete),
        ("PATCH", Method::Dav),
    ] {
        assert_eq!(whole(&captured(what).request).method, method, "{what}");
    }
    assert_eq!(whole_head("OPTIONS * HTTP/1.1\r\n\r\n").method, Method::Options);
    assert_eq!(whole_head("BREW / HTTP/1.1\r\n\r\n").method, Method::Other);
    for name in ["PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK"] {
        assert_eq!(whole_head(&format!("{name} / HTTP/1.1\r\n\r\n")).method, Method::Dav);
    }
}

#[test]
fn form_arguments_of_a_captured_request_are_decoded() {
    let request = captured("POST mname").request;
    let arguments = form::arguments(&whole(&request).body()).unwrap();
    assert_eq!(arguments, [b"hk a".to_vec(), b"no".to_vec()]);
}

#[test]
fn responses_are_those_captured() {
    let check = |what: &str, write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        let expected = captured(what).response;
        assert_eq!(out.escape_ascii().to_string(), expected.escape_ascii().to_string(), "{what}");
    };
    check("PUT", &|out| reply::message(out, Status::Created));
    check("GET", &|out| reply::response(out, Status::Ok, reply::OCTET_STREAM, b"abc"));
    check("GET 404", &|out| reply::message(out, Status::NotFound));
    check("HEAD", &|out| reply::headers(out, Status::Ok, reply::OCTET_STREAM, 3));
    check("HEAD 404", &|out| reply::bare(out, Status::NotFound));
    check("PUT keep", &|out| reply::message(out, Status::Conflict));
    check("POST xname bad", &|out| reply::message(out, Status::InternalServerError));
    check("POST none", &|out| reply::message(out, Status::BadRequest));
    check("DELETE", &|out| reply::message(out, Status::Ok));
    check("POST mname", &|out| {
        let mut body = Vec::new();
        form::results(&mut body, [&b"hk a"[..], b"abcxyz"]);
        reply::response(out, Status::Ok, form::CONTENT_TYPE, &body);
    });
}

#[test]
fn a_header_value_cannot_end_its_line() {
    let mut out = Vec::new();
    reply::status_line(&mut out, Status::Ok);
    reply::header(&mut out, "X-TT-PATH", "a\r\nb\0c");
    reply::end_of_headers(&mut out);
    assert_eq!(out, b"HTTP/1.1 200 OK\r\nX-TT-PATH: a  b c\r\n\r\n");
}

#[test]
fn keep_alive_follows_the_version_unless_a_header_says_otherwise() {
    for (version, header, keep_alive) in [
        ("1.1", "", true),
        ("1.0", "", false),
        ("1.1", "Connection: Close\r\n", false),
        ("1.0", "connection: KEEP-ALIVE\r\n", true),
        ("1.1", "Connection: upgrade, close\r\n", false),
        ("1.1", "Connection: upgrade\r\n", true),
    ] {
        let request = format!("GET / HTTP/{version}\r\n{header}\r\n");
        assert_eq!(whole_head(&request).keep_alive, keep_alive, "{request}");
    }
}

#[test]
fn a_client_that_waits_for_the_go_ahead_is_seen_before_its_body() {
    let request = captured("PUT expect").request;
    let Parse::Complete(head, length) = head(&request) else { panic!() };
    assert!(head.expects_continue);
    assert_eq!(head.body, BodyLength::Bytes(3));
    assert_eq!(length, request.len());
    assert_eq!(parse(&request), Parse::Incomplete(request.len() + 3));
    assert!(!whole_head("PUT / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n").expects_continue);
    assert!(!whole_head("PUT / HTTP/1.1\r\n\r\n").expects_continue);
}

#[test]
fn chunks_are_joined() {
    let start = "PUT /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, joined) in [
        ("0\r\n\r\n", ""),
        ("3\r\nabc\r\n0\r\n\r\n", "abc"),
        ("3;x=y\r\nabc\r\n0a\r\n0123456789\r\n00\r\nTrailer: x\r\n\r\n", "abc0123456789"),
        ("1 \t; e\r\n\n\r\n0\r\n\r\n", "\n"),
    ] {
        let request = format!("{start}{body}");
        assert_is_one_request(request.as_bytes(), outcome);
        assert_eq!(*whole(request.as_bytes()).body(), *joined.as_bytes());
    }
}

#[test]
fn chunks_without_their_form_are_refused() {
    let start = "PUT /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in ["\r\n", "x\r\n", "-1\r\n", "3\nabc", "3 x\r\n", "3\r\nabcd\r\n", "3\r\nabc\n\n"] {
        assert_eq!(refusal(&format!("{start}{body}")), Invalid::BadParameters, "{body:?}");
    }
    for size in ["10000000000000000", "ffffffffffffffff"] {
        assert_eq!(refusal(&format!("{start}{size}\r\n")), Invalid::TooLarge);
    }
    let long = Parse::Incomplete(start.len() + 10 + 0x7fff_ffff + 2 + 5);
    assert_eq!(parse(format!("{start}7fffffff\r\n").as_bytes()), long);
}

#[test]
fn lines_of_chunks_and_trailers_have_a_limit() {
    let start = "PUT /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk_line =
        |length: usize| format!("{start}3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(length - 4));
    assert_eq!(*whole(chunk_line(HTTP_CHUNK_LINE_BYTES_MAX - 1).as_bytes()).body(), *b"abc");
    assert_eq!(*whole(chunk_line(HTTP_CHUNK_LINE_BYTES_MAX).as_bytes()).body(), *b"abc");
    assert_eq!(refusal(&chunk_line(HTTP_CHUNK_LINE_BYTES_MAX + 1)), Invalid::TooLarge);
    let trailer = |length: usize| format!("{start}0\r\n{}\r\n\r\n", "x".repeat(length - 4));
    assert_eq!(*whole(trailer(HTTP_TRAILER_BYTES_MAX - 1).as_bytes()).body(), *b"");
    assert_eq!(*whole(trailer(HTTP_TRAILER_BYTES_MAX).as_bytes()).body(), *b"");
    assert_eq!(refusal(&trailer(HTTP_TRAILER_BYTES_MAX + 1)), Invalid::TooLarge);
}

#[test]
fn a_body_with_two_possible_ends_is_refused() {
    for (headers, invalid) in [
        ("Content-Length: 1\r\nContent-Length: 2", Invalid::BadParameters),
        ("Content-Length: 1\r\nTransfer-Encoding: chunked", Invalid::BadParameters),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Invalid::BadParameters),
        ("Content-Length: +1", Invalid::BadParameters),
        ("Content-Length: -1", Invalid::BadParameters),
        ("Content-Length:", Invalid::BadParameters),
        ("Content-Length: 18446744073709551616", Invalid::TooLarge),
        ("Content-Length: 18446744073709551615", Invalid::TooLarge),
        ("Transfer-Encoding: gzip, chunked", Invalid::UnknownCommand),
        ("Content-Length : 1", Invalid::BadParameters),
        ("Folded: a\r\n b", Invalid::BadParameters),
        ("Host: a\r\nHost: a", Invalid::BadParameters),
    ] {
        assert_eq!(refusal(&format!("PUT / HTTP/1.1\r\n{headers}\r\n\r\n")), invalid, "{headers}");
    }
    let old = "PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refusal(old), Invalid::BadParameters);
    assert_eq!(
        *whole(b"PUT / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx").body(),
        *b"x"
    );
}

#[test]
fn heads_have_a_limit() {
    let request = |length: usize| {
        let rest = " HTTP/1.1\r\n\r\n";
        format!("GET {}{rest}", "k".repeat(length - 4 - rest.len()))
    };
    assert!(matches!(head(request(HTTP_HEAD_BYTES_MAX - 1).as_bytes()), Parse::Complete(..)));
    assert!(matches!(head(request(HTTP_HEAD_BYTES_MAX).as_bytes()), Parse::Complete(..)));
    assert_eq!(refusal(&request(HTTP_HEAD_BYTES_MAX + 1)), Invalid::TooLarge);
    let unended = request(HTTP_HEAD_BYTES_MAX + 1);
    let needed = Parse::Incomplete(HTTP_HEAD_BYTES_MAX);
    assert_eq!(head(&unended.as_bytes()[..HTTP_HEAD_BYTES_MAX - 1]), needed);
    let invalid = Parse::Invalid(Invalid::TooLarge);
    assert_eq!(head(&unended.as_bytes()[..HTTP_HEAD_BYTES_MAX]), invalid);
}

#[test]
fn headers_have_a_limit() {
    let request = |count: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(count));
    assert!(matches!(head(request(HTTP_HEADERS_MAX - 1).as_bytes()), Parse::Complete(..)));
    assert!(matches!(head(request(HTTP_HEADERS_MAX).as_bytes()), Parse::Complete(..)));
    assert_eq!(refusal(&request(HTTP_HEADERS_MAX + 1)), Invalid::TooLarge);
}

/// Cuts a body into chunks of these sizes.
fn in_chunks(mut body: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut bytes = b"PUT /k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let mut sizes = sizes.iter().cycle();
    while !body.is_empty() {
        let (chunk, rest) = body.split_at(body.len().min(*sizes.next().expect("endless")));
        bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
        body = rest;
    }
    bytes.extend(b"0\r\n\r\n");
    bytes
}

proptest! {
    #[test]
    fn a_body_arrives_as_it_was_sent(
        body: Vec<u8>,
        sizes in prop::collection::vec(1usize..40, 1..5),
        packet in 1usize..30,
    ) {
        let mut plain = format!("PUT /k HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        plain.extend(&body);
        assert_is_one_request(&plain, outcome);
        prop_assert_eq!(&*whole(&plain).body(), &body[..]);

        let chunked = in_chunks(&body, &sizes);
        assert_is_one_request(&chunked, outcome);
        prop_assert_eq!(&*whole(&chunked).body(), &body[..]);

        let mut progress = Progress::default();
        let mut end = 0;
        loop {
            end = chunked.len().min(end + packet);
            match parse_resuming(&chunked[..end], &mut progress) {
                Parse::Complete(request, length) => {
                    prop_assert_eq!(length, chunked.len());
                    prop_assert_eq!(&*request.body(), &body[..]);
                    break;
                }
                Parse::Incomplete(needed) => prop_assert!(needed > end && end < chunked.len()),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_body_taken_piece_by_piece_is_the_same(
        body in prop::collection::vec(any::<u8>(), 1..500),
        sizes in prop::collection::vec(1usize..40, 1..5),
        packet in 1usize..30,
    ) {
        let chunked = in_chunks(&body, &sizes);
        let mut plain = format!("PUT /k HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        plain.extend(&body);
        for request in [plain, chunked] {
            let Parse::Complete(head, mut position) = head(&request) else { panic!() };
            let mut rest = RestOfBody::of(head.body);
            prop_assert_eq!(rest.bytes_in(&request[position..]), request.len() - position);
            let mut taken = Vec::new();
            let mut end = position;
            while !rest.is_empty() {
                match rest.take(&request[position..end]) {
                    Parse::Complete(data, length) => {
                        taken.extend_from_slice(data);
                        position += length;
                    }
                    Parse::Incomplete(needed) => {
                        prop_assert!(needed > end - position && end < request.len());
                        end = request.len().min(end + packet);
                    }
                    other => panic!("{other:?}"),
                }
            }
            prop_assert_eq!(position, request.len());
            prop_assert_eq!(&taken, &body);
        }
    }

    #[test]
    fn a_key_arrives_as_it_was_sent(key: Vec<u8>) {
        let mut request = "GET /".to_string();
        key.iter().for_each(|byte| request.push_str(&format!("%{byte:02x}")));
        request.push_str(" HTTP/1.1\r\n\r\n");
        prop_assert_eq!(&*whole_head(&request).key(), &key[..]);
    }

    #[test]
    fn arguments_and_results_are_inverse(values in prop::collection::vec(any::<Vec<u8>>(), 0..9)) {
        let mut form = Vec::new();
        form::results(&mut form, values.iter().map(Vec::as_slice));
        prop_assert_eq!(form::arguments(&form).unwrap(), values);
    }

    #[test]
    fn arbitrary_bytes_never_break_the_parser(
        headers in prop::collection::vec(
            prop::sample::select(&[
                "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n", "Connection: ,\r\n",
                "a:\n", "\r\n", "3\r\nabc\r\n", "0\r\n", "ff\r\n", "\r", "\n", "abc", "\u{e9}: x\r\n",
            ][..]),
            0..8,
        ),
    ) {
        let bytes = format!("PUT / HTTP/1.1\r\n{}", headers.concat()).into_bytes();
        match parse(&bytes) {
            Parse::Complete(request, length) => {
                prop_assert!(length <= bytes.len());
                prop_assert!(request.body().len() < length);
            }
            Parse::Incomplete(needed) => prop_assert!(needed > bytes.len()),
            Parse::Invalid(_) => {}
        }
    }
}

#[test]
fn the_head_is_read_once_while_chunks_come() {
    let request =
        b"PUT /key HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n";
    let body = request.len() - b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n".len();
    let mut progress = Progress::default();
    assert!(matches!(parse_resuming(&request[..body], &mut progress), Parse::Incomplete(_)));
    // If it were read again, this would be no request.
    let mut unread = request.to_vec();
    unread[..body].fill(0);
    for end in body..request.len() {
        let found = parse_resuming(&unread[..end], &mut progress);
        assert!(matches!(found, Parse::Incomplete(_)), "{end}: {found:?}");
    }
    let Parse::Complete(found, length) = parse_resuming(request, &mut progress) else {
        panic!("the request is whole");
    };
    assert_eq!((found.body().as_ref(), length), (&b"ab"[..], request.len()));
}
