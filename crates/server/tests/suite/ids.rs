//! Fixed-length databases with values of at most 8 bytes, over a server whose database is empty.
//! Each kind of store whose keys are ids has to pass them.

use super::http;
use super::support::{Client, MISC_FAILURE, Packet, Running, list, misc, request};
use wire::binary::Request;

const DONE: &[u8] = b"\0\0\0\0\0";

/// Returns the reply to a list of keys.
fn keys(keys: &[&str]) -> Vec<u8> {
    let mut reply = vec![0];
    reply.extend((keys.len() as u32).to_be_bytes());
    for key in keys {
        reply.extend((key.len() as u32).to_be_bytes());
        reply.extend(key.as_bytes());
    }
    reply
}

/// Functions of `misc`, whose replies are those of Tokyo Tyrant.
pub(crate) fn functions(server: &Running) {
    let mut client = server.connect();
    for (name, arguments, reply) in [
        ("range", &[][..], Some(&[][..])),
        ("put", &["max", "x"], None),
        ("putlist", &["5", "x", "a9", "b"], Some(&[])),
        ("put", &["prev", "p"], Some(&[])),
        ("range", &[], Some(&["4", "p", "5", "x", "9", "b"])),
        ("range", &["6"], Some(&["9", "b"])),
        ("range", &["x"], Some(&[])),
        ("range", &[""], Some(&[])),
        ("range", &["next"], Some(&[])),
        ("range", &["max"], Some(&["9", "b"])),
        ("range", &["4", "0", "9"], Some(&["4", "p", "5", "x"])),
        ("range", &["4", "1"], Some(&["4", "p"])),
        ("range", &["5", "0", "max"], Some(&["5", "x", "9", "b"])),
        ("range", &["5", "0", "0"], Some(&["5", "x", "9", "b"])),
        ("iterinit", &["100"], None),
        ("iterinit", &[""], None),
        ("iterinit", &["next"], None),
        ("iterinit", &["6"], Some(&[])),
        ("iternext", &[], Some(&["9", "b"])),
        ("iternext", &[], None),
        ("iterinit", &["max"], Some(&[])),
        ("iternext", &[], Some(&["9", "b"])),
        ("get", &["max"], Some(&["b"])),
        ("get", &["min"], Some(&["p"])),
        ("getlist", &["max", "a5", "6"], Some(&["max", "b", "a5", "x"])),
        ("getlist", &["max", "z"], None),
        ("putkeep", &["min", "m"], None),
        ("putkeep", &["next", "m"], Some(&[])),
        ("putcat", &["max", "+"], Some(&[])),
        ("regex", &["^1"], Some(&["10", "m+"])),
        ("putlist", &["next", "1", "z", "2", "20", "3"], None),
        ("outlist", &["11", "20", "9", "10", "7"], Some(&[])),
        ("putlist", &["next", "1", "30", "2", "next", "3"], Some(&[])),
        ("range", &["5"], Some(&["5", "x", "6", "1", "30", "2", "31", "3"])),
        ("outlist", &["max", "max", "min"], Some(&[])),
        ("range", &[], Some(&["5", "x", "6", "1"])),
        ("defrag", &["1", "2"], None),
        ("cacheclear", &["1", "2"], None),
        ("putdup", &["1", "2"], None),
        ("setindex", &["1", "2"], None),
        ("genuid", &["1", "2"], None),
        ("search", &["1", "2"], None),
        ("put", &["5", ""], Some(&[])),
        ("get", &["5"], Some(&[""])),
        ("getpart", &["5"], None),
        ("vanish", &[], Some(&[])),
        ("out", &["min"], None),
        ("get", &["min"], None),
        ("put", &["prev", "x"], None),
        ("put", &["next", "x"], Some(&[])),
        ("range", &[], Some(&["1", "x"])),
        ("put", &["prev", "x"], None),
        ("get", &["prev"], None),
    ] {
        let reply = reply.map_or(MISC_FAILURE.to_vec(), list);
        println!("{name} {arguments:?}");
        client.exchange(misc(name, arguments), reply);
    }
    client.send(&misc("error", &[]));
    assert_eq!(client.read(5), b"\0\0\0\0\x01");
    let length = u32::from_be_bytes(client.read(4).try_into().unwrap());
    let reason = String::from_utf8(client.read(length as usize)).unwrap();
    let start = "2: invalid operation: \"prev\" is no id: ids are numbers from 1 to ";
    assert!(reason.starts_with(start), "{reason}");
    // The greatest id, and the one after it.
    let max = reason.rsplit(' ').next().unwrap().to_owned();
    client.exchange(misc("put", &[&max, "end"]), DONE);
    client.exchange(misc("get", &["max"]), list(&["end"]));
    client.exchange(misc("put", &["next", "x"]), MISC_FAILURE);
    let above = (max.parse::<u64>().unwrap() + 1).to_string();
    client.exchange(misc("put", &[&above, "x"]), MISC_FAILURE);
    client.exchange(misc("get", &["18446744073709551617"]), MISC_FAILURE);
}

/// Keys of every form in the binary protocol, and intervals.
pub(crate) fn intervals(server: &Running) {
    let mut client = server.connect();
    for (key, reply) in [
        (&b"1"[..], b"\0"),
        (b"next", b"\0"),
        (b"prev", b"\x01"),
        (b"abc", b"\x01"),
        (b"a5", b"\0"),
        (b" 1\t3", b"\0"),
        (b"007", b"\0"),
        (b"0", b"\x01"),
        (b"", b"\x01"),
    ] {
        client.exchange(request(&Request::Put { key, value: b"v" }), reply);
    }
    let all = &["1", "2", "5", "7", "13"][..];
    for (interval, max, expected) in [
        ("[1,13]", -1, all),
        ("[min,max]", -1, all),
        ("[0,99999999999999999999999]", -1, all),
        ("[prev,next]", -1, all),
        ("(min,max)", -1, &["2", "5", "7"]),
        ("[min,max)", 2, &["1", "2"]),
        ("(1,7]", -1, &["2", "5", "7"]),
        ("[ 2 , a5 ]", -1, &["2", "5"]),
        ("[7,2]", -1, &[]),
        ("[max,min]", -1, &[]),
        ("[max,max]", -1, &["13"]),
        ("[5,]", -1, &[]),
        ("[14,next]", -1, &[]),
        ("1", -1, &[]),
        ("", -1, &[]),
        ("{1,13}", -1, &[]),
        ("[1,13]", 0, &[]),
    ] {
        let prefix = interval.as_bytes();
        println!("{interval}");
        client.exchange(request(&Request::KeysWithPrefix { prefix, max }), keys(expected));
    }
    client.exchange(request(&Request::IterInit), b"\0");
    for id in all {
        let length = [&[0, 0, 0, 0][..], &[id.len() as u8], id.as_bytes()].concat();
        client.exchange(request(&Request::IterNext), length);
    }
    client.exchange(request(&Request::IterNext), b"\x01");
    client.exchange(request(&Request::Out { key: b"max" }), b"\0");
    client.exchange(request(&Request::Get { key: b"max" }), b"\0\0\0\0\x01v");
    client.exchange(request(&Request::Count), b"\0\0\0\0\0\0\0\0\x04");
    // Pages of keys whose text begins with a prefix, in the order of the ids.
    for number in [10, 12, 100, 120, 1000, 20] {
        let key = number.to_string();
        client.exchange(misc("put", &[&key, "v"]), DONE);
    }
    for (target, expected) in [
        ("/?list&prefix=1", "1 10 12 100 120 1000"),
        ("/?list&prefix=12", "12 120"),
        ("/?list&prefix=01", ""),
        ("/?list&prefix=x", ""),
        ("/?list", "1 2 5 7 10 12 20 100 120 1000"),
        ("/?list&after=12", "20 100 120 1000"),
        ("/?list&prefix=1&after=12", "100 120 1000"),
        ("/?list&prefix=1&limit=3", "1 10 12"),
    ] {
        let head = format!("GET {target} HTTP/1.1\r\nAccept: application/json");
        let (head, body) = http(&mut client, &head, "");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let (keys, _) = body.split_once("],").unwrap();
        let keys = keys.split('"').filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
        let listed: Vec<&str> = keys.filter(|word| !word.is_empty()).collect();
        assert_eq!(listed.join(" "), expected, "{target}");
    }
}

/// Values over the width.
pub(crate) fn values(server: &Running) {
    let mut client = server.connect();
    let key: &[u8] = b"1";
    let got =
        |value: &str| [&[0][..], &(value.len() as u32).to_be_bytes(), value.as_bytes()].concat();
    let long = vec![b'x'; 3 << 20];
    for (asked, value) in [
        (Request::Put { key, value: b"12345678" }, "12345678"),
        (Request::Put { key, value: b"123456789" }, "12345678"),
        (Request::Put { key, value: &long }, "xxxxxxxx"),
        (Request::Put { key, value: b"1234567" }, "1234567"),
        (Request::PutCat { key, value: b"890" }, "12345678"),
        (Request::PutShift { key, value: b"abcd", width: 6 }, "78abcd"),
        (Request::PutShift { key, value: b"0123456789", width: 12 }, "cd012345"),
    ] {
        client.exchange(request(&asked), b"\0");
        client.exchange(request(&Request::Get { key }), got(value));
    }
    client.exchange(request(&Request::PutKeep { key: b"2", value: b"123456789" }), b"\0");
    client.exchange(request(&Request::ValueSize { key: b"2" }), b"\0\0\0\0\x08");
    client.exchange(request(&Request::AddInt { key, addend: 1 }), b"\x01");
    client.exchange(request(&Request::AddInt { key: b"3", addend: 5 }), b"\0\0\0\0\x05");
    client.exchange(request(&Request::AddInt { key: b"a3", addend: -6 }), b"\0\xff\xff\xff\xff");
    client.exchange(request(&Request::AddInt { key: b"max", addend: 3 }), b"\0\0\0\0\x02");
    client.exchange(request(&Request::AddInt { key: b"next", addend: 7 }), b"\0\0\0\0\x07");
    client.exchange(request(&Request::Get { key: b"4" }), b"\0\0\0\0\x04\x07\0\0\0");
    let double = |key| Request::AddDouble { key, integral: 1, fractional: 500_000_000_000 };
    let sum = |integral: u8, fractional: u64| {
        [&[0; 8][..], &[integral], &fractional.to_be_bytes()].concat()
    };
    client.exchange(request(&double(b"5")), sum(1, 500_000_000_000));
    client.exchange(request(&double(b"5")), sum(3, 0));
    for (request, reply) in [
        ("set 7 5 0 10\r\n1234567890\r\n", "STORED"),
        ("get 7\r\n", "VALUE 7 5 8\r\n12345678\r\nEND"),
        ("prepend 7 0 0 3\r\nabc\r\n", "STORED"),
        ("get x7\r\n", "VALUE x7 5 8\r\nabc12345\r\nEND"),
        ("append 7 0 0 3\r\nabc\r\n", "STORED"),
        ("get 7\r\n", "VALUE 7 5 8\r\nabc12345\r\nEND"),
        ("set 8 0 0 8\r\n99999999\r\n", "STORED"),
        ("incr 8 1\r\n", "100000000"),
        ("get 8\r\n", "VALUE 8 0 8\r\n10000000\r\nEND"),
    ] {
        client.exchange(request, format!("{reply}\r\n"));
    }
}

/// The other protocols, in which a key that is no id has no record.
pub(crate) fn protocols(server: &Running) {
    let mut client = server.connect();
    for (request, reply) in [
        ("set a7 3 0 1\r\nx\r\n", "STORED"),
        ("get a7 k 7\r\n", "VALUE a7 3 1\r\nx\r\nVALUE 7 3 1\r\nx\r\nEND"),
        ("get min next max\r\n", "VALUE min 3 1\r\nx\r\nVALUE max 3 1\r\nx\r\nEND"),
        ("delete k\r\n", "NOT_FOUND"),
        ("incr k 1\r\n", "NOT_FOUND"),
        ("touch k 1\r\n", "NOT_FOUND"),
        ("touch 7 1000\r\n", "TOUCHED"),
        ("gat 1000 07 k\r\n", "VALUE 07 3 1\r\nx\r\nEND"),
        ("add k 0 0 1\r\nx\r\n", "NOT_STORED"),
        ("cas k 0 0 1 1\r\nx\r\n", "NOT_FOUND"),
        ("add 7 0 0 1\r\ny\r\n", "NOT_STORED"),
        ("add next 0 0 1\r\n1\r\n", "STORED"),
        ("incr max 4\r\n", "5"),
        ("replace max 0 0 1\r\n6\r\n", "STORED"),
        ("replace next 0 0 1\r\n6\r\n", "NOT_STORED"),
        ("get 8\r\n", "VALUE 8 0 1\r\n6\r\nEND"),
        ("mg 8 v k\r\n", "VA 1 k8\r\n6"),
        ("mg k v\r\n", "EN"),
        ("ms 9 2\r\nab\r\n", "HD"),
        ("ma 10 N0 J5 v\r\n", "VA 1\r\n5"),
        ("md 10\r\n", "HD"),
        ("md 10\r\n", "NF"),
        ("delete max\r\n", "DELETED"),
        ("get 9\r\n", "END"),
    ] {
        println!("{request}");
        client.exchange(request, format!("{reply}\r\n"));
    }
    client.send("set k 0 0 1\r\nx\r\n".as_bytes());
    assert!(client.read_until(b"\r\n").starts_with(b"SERVER_ERROR "));
    let mut binary = server.connect();
    let get = |key| Packet { opcode: 0x00, key, ..Packet::default() };
    assert_eq!(binary.ask(&get(b"7")).value, b"x");
    assert_eq!(binary.ask(&get(b"min")).value, b"x");
    assert_eq!(binary.ask(&get(b"k")).status, 1);
    let put = Packet { opcode: 0x01, extras: &[0; 8], key: b"11", value: b"v", number: 0 };
    let stored = binary.ask(&put);
    assert_eq!(stored.status, 0);
    let swap = Packet { key: b"011", number: stored.number, ..put };
    assert_eq!(binary.ask(&swap).status, 0);
    assert_eq!(binary.ask(&swap).status, 2);
    assert_eq!(binary.ask(&Packet { opcode: 0x04, key: b"11", ..Packet::default() }).status, 0);
    let status = |client: &mut Client, head: &str, body: &str| {
        let (head, body) = http(client, head, body);
        (head[9..12].parse::<u16>().unwrap(), body)
    };
    for (head, body, expected) in [
        ("GET /k HTTP/1.1", "", (404, "Not Found\n")),
        ("DELETE /0 HTTP/1.1", "", (404, "Not Found\n")),
        ("PUT /k HTTP/1.1", "x", (500, "Internal Server Error\n")),
        ("GET /x7 HTTP/1.1", "", (200, "x")),
        ("PUT /next HTTP/1.1", "9 bytes..", (201, "Created\n")),
        ("GET /9 HTTP/1.1", "", (200, "9 bytes.")),
        ("DELETE /max HTTP/1.1", "", (200, "OK\n")),
        ("GET /9 HTTP/1.1", "", (404, "Not Found\n")),
    ] {
        let (status, text) = status(&mut client, head, body);
        assert_eq!((status, &text[..]), expected, "{head}");
    }
}
