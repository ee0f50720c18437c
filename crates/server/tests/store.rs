//! One suite of every protocol's basic operations, which each kind of store has to pass; and a
//! store that answers late, out of order, with failures and with unknown outcomes.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use server::Config;
use std::sync::Arc;
use std::time::Duration;
use support::{
    ABLE, Client, DROPPED, HELD, LateStore, MISC_FAILURE, Packet, Running, UNAVAILABLE, UNKNOWN,
    config, hash, memory, memory_tree, misc, request, start, start_with, tree,
};
use wire::binary::Request;

/// Starts a server over a store that answers late.
fn start_late(capabilities: server::Capabilities, config: Config) -> (Arc<LateStore>, Running) {
    let store = LateStore::start(capabilities);
    let remote = Some(Arc::<LateStore>::clone(&store) as _);
    (store, start_with(Config { remote, ..config }, memory()))
}

/// Calls `test` with a server over each kind of store.
fn over_each_store(test: impl Fn(&Running)) {
    let folder = tempfile::tempdir().unwrap();
    for database in [memory(), memory_tree(), hash(folder.path()), tree(folder.path())] {
        test(&start(database));
    }
    let (store, server) = start_late(ABLE, config());
    test(&server);
    store.stop();
}

#[test]
fn memcacheds_text_protocol_has_its_basic_operations_over_each_store() {
    over_each_store(|server| {
        let mut client = server.connect();
        for (request, reply) in [
            ("get a\r\n", "END\r\n"),
            ("set a 5 0 3\r\none\r\n", "STORED\r\n"),
            ("get a\r\n", "VALUE a 5 3\r\none\r\nEND\r\n"),
            ("add a 0 0 3\r\ntwo\r\n", "NOT_STORED\r\n"),
            ("add b 0 0 3\r\ntwo\r\n", "STORED\r\n"),
            ("replace c 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("replace b 1 0 3\r\ntoo\r\n", "STORED\r\n"),
            ("append b 0 0 1\r\n!\r\n", "STORED\r\n"),
            ("prepend b 0 0 1\r\n?\r\n", "STORED\r\n"),
            ("append c 0 0 1\r\n!\r\n", "NOT_STORED\r\n"),
            (
                "get b c a b\r\n",
                "VALUE b 1 5\r\n?too!\r\nVALUE a 5 3\r\none\r\nVALUE b 1 5\r\n?too!\r\nEND\r\n",
            ),
            ("set n 0 0 2\r\n10\r\n", "STORED\r\n"),
            ("incr n 5\r\n", "15\r\n"),
            ("decr n 20\r\n", "0\r\n"),
            ("incr c 1\r\n", "NOT_FOUND\r\n"),
            ("touch a 1000\r\n", "TOUCHED\r\n"),
            ("touch c 1000\r\n", "NOT_FOUND\r\n"),
            ("gat 1000 a\r\n", "VALUE a 5 3\r\none\r\nEND\r\n"),
            ("gat 1000 a c b\r\n", "VALUE a 5 3\r\none\r\nVALUE b 1 5\r\n?too!\r\nEND\r\n"),
            ("cas a 0 0 1 999999\r\nx\r\n", "EXISTS\r\n"),
            ("cas c 0 0 1 999999\r\nx\r\n", "NOT_FOUND\r\n"),
            ("set a 0 -1 1\r\nx\r\n", "STORED\r\n"),
            ("get a\r\n", "END\r\n"),
            ("delete b\r\n", "DELETED\r\n"),
            ("delete b\r\n", "NOT_FOUND\r\n"),
            ("set b 0 0 1 noreply\r\nv\r\nget b\r\n", "VALUE b 0 1\r\nv\r\nEND\r\n"),
            ("flush_all\r\n", "OK\r\n"),
            ("get b n\r\n", "END\r\n"),
        ] {
            client.exchange(request, reply);
        }
        client.exchange("set a 0 0 1\r\nv\r\n", "STORED\r\n");
        client.send(b"gets a\r\n");
        let reply = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
        let number = reply.split_whitespace().nth(4).unwrap();
        client.exchange(format!("cas a 0 0 1 {number}\r\nw\r\n"), "STORED\r\n");
        client.exchange(format!("cas a 0 0 1 {number}\r\nx\r\n"), "EXISTS\r\n");
        client.exchange("get a\r\n", "VALUE a 0 1\r\nw\r\nEND\r\n");
    });
}

#[test]
fn the_meta_commands_have_their_basic_operations_over_each_store() {
    over_each_store(|server| {
        let mut client = server.connect();
        for (request, reply) in [
            ("mg a v\r\n", "EN\r\n"),
            ("ms a 3 F7\r\none\r\n", "HD\r\n"),
            ("mg a v f s\r\n", "VA 3 f7 s3\r\none\r\n"),
            ("ms a 3 ME\r\ntwo\r\n", "NS\r\n"),
            ("ms a 1 MA\r\n!\r\n", "HD\r\n"),
            ("mg a v\r\n", "VA 4\r\none!\r\n"),
            ("mg a T1000 t\r\n", "HD t1000\r\n"),
            ("mg new N1000 t v\r\n", "VA 0 t1000 W\r\n\r\n"),
            ("mg new v\r\n", "VA 0 Z\r\n\r\n"),
            ("md a I\r\n", "HD\r\n"),
            ("mg a v\r\n", "VA 4 X W\r\none!\r\n"),
            ("mg a v\r\n", "VA 4 Z X\r\none!\r\n"),
            ("ma n N0 J5 v\r\n", "VA 1\r\n5\r\n"),
            ("ma n D3 v\r\n", "VA 1\r\n8\r\n"),
            ("ma n MD v\r\n", "VA 1\r\n7\r\n"),
            ("md n\r\n", "HD\r\n"),
            ("md n\r\n", "NF\r\n"),
            ("ms e 1 E77\r\nv\r\n", "HD\r\n"),
            ("mg e c\r\n", "HD c77\r\n"),
            ("ms e 1 C78\r\nw\r\n", "EX\r\n"),
            ("ms e 1 C77\r\nw\r\n", "HD\r\n"),
            ("md e C1\r\n", "EX\r\n"),
            ("me none\r\n", "EN\r\n"),
        ] {
            client.exchange(request, reply);
        }
    });
}

#[test]
fn memcacheds_binary_protocol_has_its_basic_operations_over_each_store() {
    const EXTRAS: &[u8] = &[0, 0, 0, 5, 0, 0, 0, 0];
    over_each_store(|server| {
        let mut client = server.connect();
        let store =
            |opcode, value, number| Packet { opcode, extras: EXTRAS, key: b"a", value, number };
        let on_key = |opcode| Packet { opcode, key: b"a", ..Packet::default() };
        assert_eq!(client.ask(&on_key(0x00)).status, 1);
        let stored = client.ask(&store(0x01, b"one", 0));
        assert_eq!(stored.status, 0);
        let got = client.ask(&on_key(0x00));
        assert_eq!((got.status, &got.value[..], got.number), (0, &b"one"[..], stored.number));
        assert_eq!(client.ask(&store(0x02, b"two", 0)).status, 2);
        assert_eq!(client.ask(&store(0x03, b"two", stored.number + 1_000_000)).status, 2);
        assert_eq!(client.ask(&store(0x03, b"two", stored.number)).status, 0);
        let append = Packet { opcode: 0x0e, key: b"a", value: b"!", ..Packet::default() };
        assert_eq!(client.ask(&append).status, 0);
        assert_eq!(client.ask(&on_key(0x00)).value, b"two!");
        let touch = Packet { opcode: 0x1c, extras: &[0, 0, 3, 0], key: b"a", ..Packet::default() };
        assert_eq!(client.ask(&touch).status, 0);
        let get_and_touch = Packet { opcode: 0x1d, ..touch };
        assert_eq!(client.ask(&get_and_touch).value, b"two!");
        let extras = [&3u64.to_be_bytes()[..], &7u64.to_be_bytes(), &[0; 4]].concat();
        let count = Packet { opcode: 0x05, extras: &extras, key: b"n", ..Packet::default() };
        for number in [7u64, 10] {
            assert_eq!(client.ask(&count).value, number.to_be_bytes());
        }
        assert_eq!(client.ask(&on_key(0x04)).status, 0);
        assert_eq!(client.ask(&on_key(0x04)).status, 1);
    });
}

#[test]
fn tokyo_tyrants_protocol_has_its_basic_operations_over_each_store() {
    over_each_store(|server| {
        let mut client = server.connect();
        let (key, value): (&[u8], &[u8]) = (b"a", b"one");
        for (asked, reply) in [
            (Request::Get { key }, &b"\x01"[..]),
            (Request::Put { key, value }, b"\0"),
            (Request::Get { key }, b"\0\0\0\0\x03one"),
            (Request::PutKeep { key, value }, b"\x01"),
            (Request::PutCat { key, value: b"!" }, b"\0"),
            (Request::ValueSize { key }, b"\0\0\0\0\x04"),
            (Request::PutNoReply { key: b"b", value }, b""),
            (Request::Get { key: b"b" }, b"\0\0\0\0\x03one"),
            (Request::AddInt { key: b"n", addend: 5 }, b"\0\0\0\0\x05"),
            (Request::AddInt { key: b"n", addend: -6 }, b"\0\xff\xff\xff\xff"),
            (Request::Count, b"\0\0\0\0\0\0\0\0\x03"),
            (Request::Out { key }, b"\0"),
            (Request::Out { key }, b"\x01"),
            (Request::ValueSize { key }, b"\x01"),
            (Request::Vanish, b"\0"),
            (Request::Count, b"\0\0\0\0\0\0\0\0\0"),
        ] {
            client.exchange(request(&asked), reply);
        }
        for key in ["a1", "a2", "b1"] {
            client.exchange(misc("put", &[key, "v"]), b"\0\0\0\0\0");
        }
        client.exchange(misc("get", &["a1"]), support::list(&["v"]));
        client.exchange(misc("out", &["c"]), MISC_FAILURE);
        client.exchange(
            b"\xc8\x31\0\0\0\x03\0\0\0\x02a1\0\0\0\x01c\0\0\0\x02b1",
            b"\0\0\0\0\x02\0\0\0\x02\0\0\0\x01a1v\0\0\0\x02\0\0\0\x01b1v",
        );
        client.send(&request(&Request::KeysWithPrefix { prefix: b"a", max: -1 }));
        let keys = client.read(5 + 2 * 6);
        for key in [&b"a1"[..], b"a2"] {
            assert!(keys.windows(2).any(|found| found == key), "{}", keys.escape_ascii());
        }
    });
}

/// Sends a request of HTTP, and returns status line, headers and body.
fn http(client: &mut Client, head: &str, body: &str) -> (String, String) {
    let length =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    client.send(
        format!("{head}\r\nHost: x\r\n{length}\r\n{body}")
            .replace("\n\r\n\r\n", "\n\r\n")
            .as_bytes(),
    );
    let head = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
    let bytes = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let bytes = bytes.map_or(0, |bytes| bytes.parse().unwrap());
    (head, String::from_utf8(client.read(bytes)).unwrap())
}

#[test]
fn http_has_its_basic_operations_over_each_store() {
    over_each_store(|server| {
        let mut client = server.connect();
        let status = |(head, _): &(String, String)| head[9..12].parse::<u16>().unwrap();
        assert_eq!(status(&http(&mut client, "GET /a HTTP/1.1", "")), 404);
        let put = "PUT /a HTTP/1.1\r\nContent-Type: text/plain";
        assert_eq!(status(&http(&mut client, put, "one")), 201);
        let got = http(&mut client, "GET /a HTTP/1.1", "");
        assert_eq!((status(&got), &got.1[..]), (200, "one"));
        assert!(got.0.contains("Content-Type: text/plain\r\n"), "{}", got.0);
        let tag = got.0.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap().to_owned();
        let if_match = |tag: &str| format!("PUT /a HTTP/1.1\r\nIf-Match: {tag}");
        assert_eq!(status(&http(&mut client, &if_match("\"ffffff\""), "x")), 412);
        assert_eq!(status(&http(&mut client, &if_match(&tag), "two")), 201);
        assert_eq!(status(&http(&mut client, &if_match(&tag), "x")), 412);
        let none = format!("GET /a HTTP/1.1\r\nIf-None-Match: {tag}");
        assert_eq!(http(&mut client, &none, "").1, "two");
        assert_eq!(http(&mut client, "GET /a HTTP/1.1\r\nRange: bytes=1-", "").1, "wo");
        let keep = "PUT /a HTTP/1.1\r\nX-TT-PDMODE: 1";
        assert_eq!(status(&http(&mut client, keep, "x")), 409);
        let lines = "{\"get\":\"a\"}\n{\"put\":\"b\",\"value\":\"v\"}\n{\"get\":\"b\"}\n{\"remove\":\"b\"}\n\
                     {\"remove\":\"b\"}\n";
        let batch = "POST / HTTP/1.1\r\nContent-Type: application/x-ndjson";
        let (_, results) = http(&mut client, batch, lines);
        let results: Vec<&str> = results.lines().collect();
        for (result, part) in results.iter().zip([
            "\"value\":\"two\"",
            "\"etag\"",
            "\"value\":\"v\"",
            "\"removed\":true",
            "\"not found\"",
        ]) {
            assert!(result.contains(part), "{result}");
        }
        assert_eq!(results.len(), 5);
        assert_eq!(status(&http(&mut client, "DELETE /a HTTP/1.1", "")), 200);
        assert_eq!(status(&http(&mut client, "DELETE /a HTTP/1.1", "")), 404);
    });
}

#[test]
fn replies_of_a_pipeline_keep_their_order_and_each_request_is_executed_once() {
    over_each_store(|server| {
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let mut client = server.connect();
                let mut expected = "STORED\r\n".to_owned();
                let mut sent = format!("set n{number} 0 0 1\r\n0\r\n");
                for sum in 1..=100 {
                    sent += &format!("incr n{number} 1\r\nget n{number} x\r\n");
                    let length = sum.to_string().len();
                    expected += &format!("{sum}\r\nVALUE n{number} 0 {length}\r\n{sum}\r\nEND\r\n");
                }
                client.send(sent.as_bytes());
                (client, expected)
            })
            .collect();
        for (mut client, expected) in clients {
            client.expect(expected);
        }
    });
}

#[test]
fn a_store_that_fails_never_looks_like_a_missing_record_or_a_stored_one() {
    let (store, server) = start_late(ABLE, config());
    for key in [UNAVAILABLE, UNKNOWN, DROPPED] {
        let mut client = server.connect();
        for request in [format!("get {key} a\r\n"), format!("set {key} 0 0 1\r\nv\r\n")] {
            client.send(request.as_bytes());
            let reply = String::from_utf8(client.read_until(b"\r\n")).unwrap();
            assert!(reply.starts_with("SERVER_ERROR the store "), "{reply}");
        }
        // The connection serves further requests.
        client.exchange("get a\r\n", "END\r\n");
        let mut silent = server.connect();
        silent.send(format!("set {key} 0 0 1 noreply\r\nv\r\n").as_bytes());
        silent.expect_close();
        let get = Packet { opcode: 0x00, key: key.as_bytes(), ..Packet::default() };
        assert_eq!(client.ask(&get).status, 0x84);
        for asked in [
            Request::Get { key: key.as_bytes() },
            Request::Put { key: key.as_bytes(), value: b"v" },
            Request::Out { key: key.as_bytes() },
        ] {
            let mut client = server.connect();
            client.send(&request(&asked));
            client.expect_close();
        }
        for method in ["GET", "DELETE"] {
            let mut client = server.connect();
            let (head, _) = http(&mut client, &format!("{method} /{key} HTTP/1.1"), "");
            let is_unknown = key == UNKNOWN || key == DROPPED && method == "DELETE";
            let status = if is_unknown { "504" } else { "503" };
            assert_eq!(&head[9..12], status, "{key} {method}");
        }
    }
    store.stop();
}

#[test]
fn a_change_with_an_unknown_outcome_is_not_made_again() {
    let (store, server) = start_late(ABLE, config());
    let mut client = server.connect();
    client.send(format!("set {UNKNOWN} 0 0 1\r\n1\r\nincr {UNKNOWN} 1\r\n").as_bytes());
    for _ in 0..2 {
        let reply = client.read_until(b"\r\n");
        assert!(reply.starts_with(b"SERVER_ERROR"), "{}", reply.escape_ascii());
    }
    assert_eq!(store.requests(UNKNOWN), 2);
    store.stop();
}

#[test]
fn a_store_is_refused_what_it_lacks_with_an_error_that_says_so() {
    let unable = server::Capabilities {
        lists_keys: false,
        counts: false,
        clears: false,
        key_bytes_max: 10,
        value_bytes_max: 10,
    };
    let (store, server) = start_late(unable, config());
    let mut client = server.connect();
    client.exchange(
        "flush_all\r\n",
        "SERVER_ERROR not supported: the store has no removal of all records\r\n",
    );
    client
        .exchange("set a 0 0 11\r\n01234567890\r\n", "SERVER_ERROR object too large for cache\r\n");
    client.exchange("set a 0 0 10\r\n0123456789\r\n", "STORED\r\n");
    client.exchange(
        "set 01234567890 0 0 1\r\nv\r\n",
        "CLIENT_ERROR key of 11 bytes is over the limit of 10\r\n",
    );
    // No record has a key that is too long.
    client.exchange("get 01234567890\r\n", "END\r\n");
    client.exchange(
        "get 01234567890 a 01234567891 0123456789 a\r\n",
        "VALUE a 0 10\r\n0123456789\r\nVALUE a 0 10\r\n0123456789\r\nEND\r\n",
    );
    client.exchange(request(&Request::KeysWithPrefix { prefix: b"a", max: -1 }), b"\0\0\0\0\0");
    for (asked, reason) in [
        (request(&Request::Copy { path: b"/tmp/x" }), "the store has no copies"),
        (
            request(&Request::AddDouble { key: b"a", integral: 1, fractional: 0 }),
            "the store has no adddouble",
        ),
    ] {
        client.exchange(asked, b"\x01");
        client.send(&misc("error", &[]));
        let reply = client.read(9);
        let length = u32::from_be_bytes(reply[5..].try_into().unwrap());
        let text = String::from_utf8(client.read(length as usize)).unwrap();
        assert!(text.contains(reason), "{text}");
    }
    store.stop();
}

#[test]
fn requests_in_flight_are_limited_and_those_of_a_client_that_has_gone_end() {
    let limited = Config { remote_requests_max: 2, ..config() };
    let (store, server) = start_late(ABLE, limited);
    let key = format!("{HELD}1");
    let get = format!("get {key}\r\n");
    let mut gone = server.connect();
    gone.send(format!("set {key} 0 0 1\r\nv\r\n").as_bytes());
    let mut waiting = server.connect();
    waiting.send(format!("set {key} 0 0 1\r\nw\r\n").as_bytes());
    store.wait_for(&key, 2);
    let mut refused = server.connect();
    refused
        .exchange(&get, "SERVER_ERROR too many requests wait for the store: nothing was done\r\n");
    drop(gone);
    store.release();
    waiting.expect("STORED\r\n");
    refused.send(b"get a\r\n");
    refused.expect("END\r\n");
    for _ in 0..10 {
        refused.exchange("get a\r\n", "END\r\n");
    }
    store.stop();
}

#[test]
fn a_store_that_never_answers_holds_no_request_beyond_its_time() {
    let timeout = Duration::from_secs(3);
    let (store, server) = start_late(ABLE, Config { remote_timeout: timeout, ..config() });
    let key = format!("{HELD}1");
    let unavailable = "SERVER_ERROR the store is unavailable: nothing was done\r\n";
    let unknown = "SERVER_ERROR the store has not answered: it is unknown what was done\r\n";
    let waiting: Vec<_> = [
        (format!("get {key} a\r\n"), unavailable),
        (format!("set {key} 0 0 1\r\nv\r\n"), unknown),
        // This one is executed by the worker pool.
        (format!("gat 100 {key} a\r\n"), unknown),
    ]
    .into_iter()
    .map(|(request, reply)| {
        let mut client = server.connect();
        client.send(request.as_bytes());
        (client, reply)
    })
    .collect();
    let mut waited: Vec<Client> = waiting
        .into_iter()
        .map(|(mut client, reply)| {
            client.expect(reply);
            client
        })
        .collect();
    // The late answers are dropped, and further requests get their own.
    store.release();
    for client in &mut waited {
        client.exchange("set a 0 0 1\r\nv\r\n", "STORED\r\n");
        client.exchange("get a\r\n", "VALUE a 0 1\r\nv\r\nEND\r\n");
    }
    store.stop();
}

#[test]
fn the_head_of_a_value_over_the_limit_of_a_reply_is_sent_over_each_store() {
    let limited = || Config { reply_bytes_max: 1000, ..config() };
    let (store, late) = start_late(ABLE, limited());
    for server in [&start_with(limited(), memory()), &late] {
        let mut client = server.connect();
        client.exchange(format!("set k 0 0 2000\r\n{}\r\n", "v".repeat(2000)), "STORED\r\n");
        client.send(b"HEAD /k HTTP/1.1\r\nHost: x\r\n\r\n");
        let head = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("Content-Length: 2000\r\n"), "{head}");
        assert_eq!(&http(&mut client, "GET /k HTTP/1.1", "").0[9..12], "500");
    }
    store.stop();
}
