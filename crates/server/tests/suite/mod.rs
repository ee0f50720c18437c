//! Basic operations of every protocol, over a server whose database is empty. Each kind of store
//! has to pass them.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]
#![allow(dead_code, reason = "every test file uses another part")]
#![allow(clippy::allow_attributes, reason = "an expectation would fail where all is used")]

pub(crate) mod ids;
pub(crate) mod tables;

use super::support::{self, Client, MISC_FAILURE, Packet, Running, misc, request};
use std::collections::BTreeSet;
use wire::binary::Request;

/// Text protocol of memcached.
pub(crate) fn memcached_text(server: &Running) {
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
}

/// Meta commands of memcached.
pub(crate) fn meta_commands(server: &Running) {
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
}

/// Binary protocol of memcached.
pub(crate) fn memcached_binary(server: &Running) {
    const EXTRAS: &[u8] = &[0, 0, 0, 5, 0, 0, 0, 0];
    let mut client = server.connect();
    let store = |opcode, value, number| Packet { opcode, extras: EXTRAS, key: b"a", value, number };
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
}

/// Protocol of Tokyo Tyrant.
pub(crate) fn tokyo_tyrant(server: &Running) {
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
}

/// HTTP.
pub(crate) fn http_operations(server: &Running) {
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
}

/// Lists of keys, in pages.
pub(crate) fn key_lists(server: &Running) {
    let mut client = server.connect();
    let mut expected = BTreeSet::new();
    for number in 0..25 {
        let key = format!("{}{number:02}", if number % 5 == 0 { "odd" } else { "even" });
        client.exchange(format!("set {key} 0 0 1\r\nv\r\n"), "STORED\r\n");
        if number % 5 != 0 {
            expected.insert(key);
        }
    }
    for limit in [1, 7, 19, 20, 21, 1000] {
        let mut found = Vec::new();
        let mut after = String::new();
        loop {
            let target = format!("GET /?list&prefix=even&limit={limit}{after} HTTP/1.1");
            let (head, body) =
                http(&mut client, &format!("{target}\r\nAccept: application/json"), "");
            assert!(head.starts_with("HTTP/1.1 200"), "{head} {body}");
            // No key needs an escape in JSON.
            let (keys, next) = body.split_once("],").unwrap();
            let keys: Vec<&str> = keys.split('"').filter(|word| word.starts_with("even")).collect();
            assert!(keys.len() <= limit, "{body}");
            found.extend(keys.iter().map(|key| (*key).to_owned()));
            match next.split('"').find(|word| word.starts_with("even")) {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(found.len(), expected.len(), "{limit}: {found:?}");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected, "{limit}");
    }
}

/// Appends that keep a width, additions to fixed-point numbers, and operations on lists of records.
pub(crate) fn counters_and_lists(server: &Running) {
    let mut client = server.connect();
    let key: &[u8] = b"log";
    let double = |integral, fractional| Request::AddDouble { key: b"d", integral, fractional };
    let sum = |integral: i64, fractional: i64| {
        [&[0][..], &integral.to_be_bytes(), &fractional.to_be_bytes()].concat()
    };
    let half = 500_000_000_000;
    for (asked, reply) in [
        (Request::PutShift { key, value: b"abcdef", width: 4 }, b"\0".to_vec()),
        (Request::Get { key }, b"\0\0\0\0\x06abcdef".to_vec()),
        (Request::PutShift { key, value: b"gh", width: 4 }, b"\0".to_vec()),
        (Request::Get { key }, b"\0\0\0\0\x04efgh".to_vec()),
        (Request::PutShift { key, value: b"", width: 1 }, b"\0".to_vec()),
        (Request::Get { key }, b"\0\0\0\0\x01h".to_vec()),
        (double(1, half), sum(1, half)),
        (double(-3, 0), sum(-1, -half)),
        // The record is no number of 8 bytes, or of 4.
        (Request::AddDouble { key, integral: 1, fractional: 0 }, b"\x01".to_vec()),
        (Request::AddInt { key, addend: 1 }, b"\x01".to_vec()),
        (Request::Get { key }, b"\0\0\0\0\x01h".to_vec()),
        (Request::Sync, b"\0".to_vec()),
        (Request::Vanish, b"\0".to_vec()),
    ] {
        client.exchange(request(&asked), reply);
    }
    let none: &[&str] = &[];
    for (name, arguments, elements) in [
        ("putlist", &["a", "1", "b", "2", "c", ""][..], none),
        ("getlist", &["a", "x", "b", "c", "a"], &["a", "1", "b", "2", "c", "", "a", "1"]),
        ("outlist", &["a", "x", "c"], none),
        ("getlist", &["a", "b", "c"], &["b", "2"]),
        ("putlist", none, none),
        ("outlist", none, none),
        ("getlist", none, none),
        ("regex", &["^b$"], &["b", "2"]),
        ("regex", &["^x"], none),
        ("regex", &["*B"], &["b", "2"]),
        ("sync", none, none),
    ] {
        client.exchange(misc(name, arguments), support::list(elements));
    }
    client.exchange(misc("regex", &["("]), MISC_FAILURE);
}

/// A list with several values for a key, over a store that has one value under each.
pub(crate) fn repeated_keys(server: &Running) {
    let mut client = server.connect();
    let pairs: Vec<String> =
        (0..200).flat_map(|number| [format!("k{}", number % 20), number.to_string()]).collect();
    let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
    client.exchange(misc("putlist", &pairs), support::list(&[]));
    for number in 180..200 {
        let key = format!("k{}", number % 20);
        client.exchange(misc("get", &[&key]), support::list(&[&number.to_string()]));
    }
    client.exchange(misc("outlist", &["k0", "k1", "k0"]), support::list(&[]));
    client.exchange(request(&Request::Count), b"\0\0\0\0\0\0\0\0\x12");
}

/// Iterators, and lists of all records.
pub(crate) fn iterators(server: &Running) {
    let mut client = server.connect();
    let mut all = BTreeSet::new();
    for number in 0..30 {
        let key = format!("k{number:02}");
        client.exchange(misc("put", &[&key, &format!("<{key}>")]), b"\0\0\0\0\0");
        all.insert(key);
    }
    let string = |client: &mut Client| {
        let length = u32::from_be_bytes(client.read(4).try_into().unwrap());
        String::from_utf8(client.read(length as usize)).unwrap()
    };
    let next = |client: &mut Client| {
        client.send(&request(&Request::IterNext));
        let is_there = client.read(1) == [0];
        is_there.then(|| string(client))
    };
    // The second iteration is over the records that the first one has left.
    client.exchange(request(&Request::IterInit), b"\0");
    let mut found = Vec::new();
    while let Some(key) = next(&mut client) {
        if found.len() % 2 == 0 {
            client.exchange(request(&Request::Out { key: key.as_bytes() }), b"\0");
            all.remove(&key);
        }
        found.push(key);
    }
    assert_eq!(found.len(), 30);
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 30);
    assert_eq!(next(&mut client), None);
    let next_record = |client: &mut Client| {
        client.send(&misc("iternext", &[]));
        let is_there = client.read(1) == [0];
        let parts = u32::from_be_bytes(client.read(4).try_into().unwrap());
        is_there.then(|| (0..parts).map(|_| string(client)).collect::<Vec<_>>())
    };
    client.exchange(misc("iterinit", &[]), b"\0\0\0\0\0");
    let mut order = Vec::new();
    while let Some(record) = next_record(&mut client) {
        assert_eq!(record, [record[0].clone(), format!("<{}>", record[0])]);
        order.push(record[0].clone());
    }
    assert_eq!(order.iter().cloned().collect::<BTreeSet<_>>(), all);
    // An iteration from a key on goes the same way. A record that is removed is not returned.
    let (from, removed) = (order[5].as_str(), order[6].as_str());
    client.exchange(misc("iterinit", &[from]), b"\0\0\0\0\0");
    assert_eq!(next(&mut client).as_deref(), Some(from));
    client.exchange(request(&Request::Out { key: removed.as_bytes() }), b"\0");
    assert_eq!(next_record(&mut client).unwrap()[0], order[7]);
    client.exchange(misc("iterinit", &["zzz"]), MISC_FAILURE);
    let mut lister = server.connect();
    lister.send(b"lru_crawler metadump all\r\n");
    let list = String::from_utf8(lister.read_until(b"END\r\n")).unwrap();
    assert_eq!(list.lines().filter(|line| line.starts_with("key=k")).count(), order.len() - 1);
    for (pattern, max) in [("^k0", "-1"), ("k", "3"), ("k", "-1")] {
        client.send(&misc("regex", &[pattern, max]));
        assert_eq!(client.read(1), [0]);
        let parts = u32::from_be_bytes(client.read(4).try_into().unwrap());
        let parts: Vec<String> = (0..parts).map(|_| string(&mut client)).collect();
        for record in parts.chunks(2) {
            assert_eq!(record[1], format!("<{}>", record[0]));
            assert_ne!(record[0], removed);
        }
        let of_pattern = |key: &&String| key.starts_with(pattern.trim_start_matches('^'));
        let there = order.iter().filter(of_pattern).filter(|key| *key != removed).count();
        let most = max.parse().unwrap_or(usize::MAX);
        assert_eq!(parts.len() / 2, there.min(most), "{pattern} {max}");
    }
}

/// Iterators over a store that returns records in the order in which they were stored or changed.
pub(crate) fn iterators_in_order(server: &Running) {
    let mut client = server.connect();
    // More than what is read ahead.
    let mut keys: Vec<String> =
        (0..1000_u32).map(|number| number.wrapping_mul(0x9e37_79b9).to_string()).collect();
    for key in &keys {
        client.exchange(misc("put", &[key, "value"]), b"\0\0\0\0\0");
    }
    let next = |client: &mut Client| {
        client.send(&request(&Request::IterNext));
        (client.read(1) == [0]).then(|| {
            let length = u32::from_be_bytes(client.read(4).try_into().unwrap());
            String::from_utf8(client.read(length as usize)).unwrap()
        })
    };
    let rest =
        |client: &mut Client| -> Vec<String> { std::iter::from_fn(|| next(client)).collect() };
    client.exchange(request(&Request::IterInit), b"\0");
    assert_eq!(rest(&mut client), keys);
    // The iteration of a client is not that of the clients that have begun none.
    let mut other = server.connect();
    assert_eq!(rest(&mut other), keys);
    client.exchange(misc("iterinit", &[&keys[700]]), b"\0\0\0\0\0");
    assert_eq!(rest(&mut client), keys[700..]);
    let changed = keys.remove(10);
    client.exchange(misc("put", &[&changed, "other"]), b"\0\0\0\0\0");
    keys.push(changed);
    client.exchange(request(&Request::IterInit), b"\0");
    assert_eq!(rest(&mut client), keys);
}

/// Ranges and lists in the order of the keys, over a store that has one.
pub(crate) fn ordered(server: &Running) {
    let mut client = server.connect();
    for key in ["b", "aa", "c", "a", "ab", "\u{1}"] {
        client.exchange(misc("put", &[key, &format!("<{key}>")]), b"\0\0\0\0\0");
    }
    let keys = |keys: &[&str]| -> Vec<u8> {
        let mut reply = [&[0][..], &(keys.len() as u32).to_be_bytes()].concat();
        for key in keys {
            reply.extend((key.len() as u32).to_be_bytes());
            reply.extend(key.as_bytes());
        }
        reply
    };
    for (prefix, max, expected) in [
        (&b""[..], -1, &["\u{1}", "a", "aa", "ab", "b", "c"][..]),
        (b"a", -1, &["a", "aa", "ab"]),
        (b"a", 2, &["a", "aa"]),
        (b"x", -1, &[]),
    ] {
        client.exchange(request(&Request::KeysWithPrefix { prefix, max }), keys(expected));
    }
    for (arguments, expected) in [
        (&["aa", "2"][..], &["aa", "<aa>", "ab", "<ab>"][..]),
        (&["aaa", "-1", "c"], &["ab", "<ab>", "b", "<b>"]),
        (&["c", "-1"], &["c", "<c>"]),
        (&["d", "-1"], &[]),
    ] {
        client.exchange(misc("range", arguments), support::list(expected));
    }
    client.exchange(request(&Request::Out { key: b"ab" }), b"\0");
    client.exchange(misc("range", &["aa", "2"]), support::list(&["aa", "<aa>", "b", "<b>"]));
    client.exchange(misc("put", &["ab", "new"]), b"\0\0\0\0\0");
    client.exchange(misc("range", &["aa", "2"]), support::list(&["aa", "<aa>", "ab", "new"]));
}

/// Pipelines of several connections.
pub(crate) fn pipelines(server: &Running) {
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
}

/// Sends a request of HTTP, and returns status line, headers and body.
pub(crate) fn http(client: &mut Client, head: &str, body: &str) -> (String, String) {
    let length =
        if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    client.send(
        format!("{head}\r\nHost: localhost\r\n{length}\r\n{body}")
            .replace("\n\r\n\r\n", "\n\r\n")
            .as_bytes(),
    );
    let head = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
    let bytes = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let bytes = bytes.map_or(0, |bytes| bytes.parse().unwrap());
    (head, String::from_utf8(client.read(bytes)).unwrap())
}
