//! Commands of every protocol beyond the exchanges that were captured from Tokyo Tyrant.

#![expect(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

mod support;

use server::{CommandMask, Config};
use support::{
    Client, MISC_FAILURE, Packet, config, list, memory, misc, request, start, start_with,
};
use wire::binary::Request;

/// Returns the version of a record from `gets`.
fn version(client: &mut Client, key: &str) -> u64 {
    client.send(format!("gets {key}\r\n").as_bytes());
    let reply = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
    reply.lines().next().unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn compare_and_swap_stores_at_the_version_that_gets_returned() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange("cas k 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n");
    client.exchange("set k 3 0 1\r\na\r\n", "STORED\r\n");
    let first = version(&mut client, "k");
    client.exchange(format!("cas k 4 0 1 {first}\r\nb\r\n"), "STORED\r\n");
    client.exchange("get k\r\n", "VALUE k 4 1\r\nb\r\nEND\r\n");
    client.exchange(format!("cas k 5 0 1 {first}\r\nc\r\n"), "EXISTS\r\n");
    client.exchange(format!("cas k 5 0 1 {first} noreply\r\nc\r\n"), "");
    let second = version(&mut client, "k");
    assert!(second > first);
    client.exchange(format!("cas k 6 0 1 {second} noreply\r\nd\r\nget k\r\n"), {
        "VALUE k 6 1\r\nd\r\nEND\r\n"
    });
}

#[test]
fn expired_records_are_gone_and_touch_changes_the_expiry() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange("set k 0 -1 1\r\na\r\nget k\r\n", "STORED\r\nEND\r\n");
    client.exchange("touch k 100\r\n", "NOT_FOUND\r\n");
    client.exchange("set k 7 100 1\r\na\r\n", "STORED\r\n");
    client.exchange("gat 1000 k nope\r\n", "VALUE k 7 1\r\na\r\nEND\r\n");
    let before = version(&mut client, "k");
    client.send(b"gats 0 k\r\n");
    let reply = String::from_utf8(client.read_until(b"END\r\n")).unwrap();
    assert!(reply.starts_with("VALUE k 7 1 ") && reply.ends_with("\r\na\r\nEND\r\n"), "{reply}");
    let after = version(&mut client, "k");
    assert_eq!(after, before, "a touch is no change to compare with");
    assert!(reply.contains(&format!(" {after}\r\n")), "{reply}");
    client.exchange("touch k 0\r\n", "TOUCHED\r\n");
    client.exchange("touch k -1\r\nget k\r\n", "TOUCHED\r\nEND\r\n");
    // An expiry in 1970.
    client.exchange("set k 0 2592001 1\r\na\r\nget k\r\n", "STORED\r\nEND\r\n");
}

#[test]
fn appending_and_counting_keep_flags() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange("set k 9 0 1\r\n1\r\n", "STORED\r\n");
    client.exchange("append k 0 0 1\r\n2\r\nprepend k 0 0 1\r\n3\r\n", "STORED\r\nSTORED\r\n");
    client.exchange("incr k 5\r\nget k\r\n", "317\r\nVALUE k 9 3\r\n317\r\nEND\r\n");
    client.exchange("replace k 8 0 1\r\nx\r\nget k\r\n", "STORED\r\nVALUE k 8 1\r\nx\r\nEND\r\n");
    client.exchange("replace nope 8 0 1\r\nx\r\n", "NOT_STORED\r\n");
}

#[test]
fn noreply_suppresses_replies_and_errors_of_commands() {
    let server = start(memory());
    let mut client = server.connect();
    client.send(b"add k 0 0 1 noreply\r\na\r\nadd k 0 0 1 noreply\r\nb\r\n");
    client.send(b"incr nope 1 noreply\r\ndelete nope noreply\r\ntouch nope 1 noreply\r\n");
    client.send(b"verbosity 1 noreply\r\nflush_all noreply\r\n");
    client.exchange("get k\r\n", "END\r\n");
    // A line that cannot be read has a reply, as in memcached 1.6.45.
    const ERROR: &str = "CLIENT_ERROR bad command line format\r\n";
    client.exchange("set k 0 0 x noreply\r\n", ERROR);
    client.exchange("get k\r\n", "END\r\n");
}

#[test]
fn stats_count_commands_and_reset_clears_the_counts() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange("set k 0 0 1\r\na\r\nadd k 0 0 1\r\nb\r\n", "STORED\r\nNOT_STORED\r\n");
    client.exchange("get k nope\r\n", "VALUE k 0 1\r\na\r\nEND\r\n");
    client.exchange("delete k\r\ndelete k\r\n", "DELETED\r\nNOT_FOUND\r\n");
    for (name, figure) in [
        ("cmd_set", 2),
        ("cmd_set_misses", 1),
        ("cmd_get", 2),
        ("cmd_get_hits", 1),
        ("cmd_delete", 2),
        ("cmd_delete_hits", 1),
        ("curr_items", 0),
        ("threads", 1),
    ] {
        assert_eq!(server.stat_value(name), figure, "{name}");
    }
    client.exchange("stats reset\r\n", "RESET\r\n");
    for name in ["cmd_set", "cmd_set_misses", "cmd_get", "cmd_delete"] {
        assert_eq!(server.stat_value(name), 0, "{name}");
    }
}

#[test]
fn gets_whose_replies_are_too_long_are_counted() {
    let server = start_with(Config { reply_bytes_max: 1000, ..config() }, memory());
    let mut client = server.connect();
    client.exchange(format!("set k 0 0 2000\r\n{}\r\n", "v".repeat(2000)), "STORED\r\n");
    for (number, request) in
        ["get k\r\n", "gets k\r\n", "gat 100 k\r\n", "mg k v\r\n"].into_iter().enumerate()
    {
        client.exchange(request, "SERVER_ERROR out of memory writing get response\r\n");
        assert_eq!(server.stat_value("cmd_get"), number as u64 + 1, "{request}");
    }
    for opcode in [0x00, 0x1d] {
        let extras: &[u8] = if opcode == 0 { &[] } else { &[0, 0, 3, 0] };
        let get = Packet { opcode, extras, key: b"k", ..Packet::default() };
        assert_eq!(client.ask(&get).status, 0x82);
    }
    // A status of failure would say that there is no record.
    client.send(&request(&Request::Get { key: b"k" }));
    client.expect_close();
    let mut client = server.connect();
    client.send(b"GET /k HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.read_until(b"\r\n\r\n");
    assert_eq!(server.stat_value("cmd_get"), 8);
    assert_eq!(server.stat_value("cmd_get_misses"), 0);
}

#[test]
fn stat_has_the_lines_of_tokyo_tyrant_in_its_order() {
    let server = start(memory());
    let mut client = server.connect();
    client.send(b"\xc8\x88");
    assert_eq!(client.read(1), [0]);
    let size = u32::from_be_bytes(client.read(4).try_into().unwrap());
    let text = String::from_utf8(client.read(size as usize)).unwrap();
    let names: Vec<&str> = text.lines().map(|line| line.split('\t').next().unwrap()).collect();
    let expected = "version libver protver os time pid sid type rnum size bigend fd loadavg \
        memsize memrss ru_user ru_sys ru_real cnt_put cnt_putkeep cnt_putcat cnt_putshl cnt_putnr \
        cnt_out cnt_get cnt_mget cnt_vsiz cnt_iterinit cnt_iternext cnt_fwmkeys cnt_addint \
        cnt_adddouble cnt_ext cnt_sync cnt_optimize cnt_vanish cnt_copy cnt_restore cnt_setmst \
        cnt_rnum cnt_size cnt_stat cnt_misc cnt_repl cnt_put_miss cnt_out_miss cnt_get_miss";
    let expected: Vec<&str> = expected.split_ascii_whitespace().collect();
    assert_eq!(names[..expected.len()], expected);
    assert!(text.contains("\ntype\ton-memory hash\n") && text.contains("\nprotver\t0.91\n"));
}

#[test]
fn a_connection_that_starts_an_iterator_has_its_own() {
    let server = start(memory());
    let (mut first, mut second) = (server.connect(), server.connect());
    for key in 0..300 {
        first.exchange(format!("set {key:03} 0 0 1\r\nv\r\n"), "STORED\r\n");
    }
    let next = |client: &mut Client| {
        client.send(b"\xc8\x51");
        (client.read(1) == [0]).then(|| {
            let size = u32::from_be_bytes(client.read(4).try_into().unwrap());
            client.read(size as usize)
        })
    };
    first.exchange(b"\xc8\x50", b"\0");
    let key = next(&mut first).unwrap();
    second.exchange(b"\xc8\x50", b"\0");
    let mut keys = std::collections::BTreeSet::from([key]);
    let mut others = std::collections::BTreeSet::new();
    while let Some(key) = next(&mut first) {
        assert!(keys.insert(key));
        others.extend(next(&mut second));
    }
    others.extend(std::iter::from_fn(|| next(&mut second)));
    assert_eq!((keys.len(), others.len()), (300, 300));
    // A connection without an iterator of its own continues the one that was started last.
    let mut third = server.connect();
    assert!(next(&mut third).is_some());
}

#[test]
fn versatile_functions_follow_tokyo_tyrant_at_the_edges() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange(misc("putlist", &["a", "hello", "b", "", "odd"]), list(&[]));
    client.exchange(misc("getlist", &["b", "odd", "a"]), list(&["b", "", "a", "hello"]));
    client.exchange(misc("getpart", &["a"]), list(&["hello"]));
    client.exchange(misc("getpart", &["a", "4"]), list(&["o"]));
    client.exchange(misc("getpart", &["a", "5"]), MISC_FAILURE);
    client.exchange(misc("getpart", &["a", "1", "3"]), list(&["ell"]));
    client.exchange(misc("getpart", &["a", "1", "99"]), list(&["ello"]));
    client.exchange(misc("getpart", &["b"]), MISC_FAILURE);
    client.exchange(misc("getpart", &["nope"]), MISC_FAILURE);
    client.exchange(misc("putcat", &["a", "!"]), list(&[]));
    client.exchange(misc("get", &["a"]), list(&["hello!"]));
    client.exchange(misc("put", &["a"]), MISC_FAILURE);
    client.exchange(misc("get", &[]), MISC_FAILURE);
    client.exchange(misc("out", &["nope"]), MISC_FAILURE);
    client.exchange(misc("outlist", &["nope", "a"]), list(&[]));
    client.exchange(misc("iterinit", &["nope"]), MISC_FAILURE);
    client.exchange(misc("iterinit", &["b"]), list(&[]));
    client.exchange(misc("iternext", &[]), list(&["b", ""]));
    client.exchange(misc("iternext", &[]), MISC_FAILURE);
    client.exchange(misc("regex", &["^["]), MISC_FAILURE);
    client.exchange(misc("regex", &["*^B$"]), list(&["b", ""]));
    client.exchange(misc("Get", &["b"]), MISC_FAILURE);
    client.exchange(misc("optimize", &["bnum=5"]), list(&[]));
    client.exchange(misc("vanish", &[]), list(&[]));
    client.exchange(b"\xc8\x80", b"\0\0\0\0\0\0\0\0\0");
}

#[test]
fn expiry_is_told_of_each_record_that_is_there() {
    for name in ["*", "+"] {
        let server = start(cabinet::Options::new().open(name).unwrap());
        let mut client = server.connect();
        client.exchange("set a 7 2000000000 1\r\nx\r\n", "STORED\r\n");
        client.exchange("set b 0 0 1\r\nx\r\n", "STORED\r\n");
        let told = ["b", "0", "a", "2000000000000"];
        client.exchange(misc("expiry", &["b", "none", "a"]), list(&told));
        client.exchange(misc("expiry", &[]), list(&[]));
        client.exchange(misc("expiry", &["none"]), list(&[]));
    }
    let folder = tempfile::tempdir().unwrap();
    let server = start(support::table(folder.path()));
    server.connect().exchange(misc("expiry", &["a"]), MISC_FAILURE);
}

#[test]
fn range_works_on_ordered_databases() {
    let tree = cabinet::Options::new().open("+").unwrap();
    let server = start(tree);
    let mut client = server.connect();
    client.exchange(misc("putlist", &["a", "1", "b", "2", "c", "3", "d", "4"]), list(&[]));
    client.exchange(misc("range", &["b", "0", "d"]), list(&["b", "2", "c", "3"]));
    client.exchange(misc("range", &["b", "1"]), list(&["b", "2"]));
    client.exchange(misc("range", &["c"]), list(&["c", "3", "d", "4"]));
    client.exchange(misc("range", &["x"]), list(&[]));
    client.exchange(misc("range", &[]), list(&["a", "1", "b", "2", "c", "3", "d", "4"]));
    client.exchange(misc("iterinit", &["bb"]), list(&[]));
    client.exchange(misc("iternext", &[]), list(&["c", "3"]));
    client.exchange(misc("iterinit", &["x"]), MISC_FAILURE);
}

#[test]
fn optimize_changes_the_width_and_the_greatest_id() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(support::fixed(folder.path()));
    let mut client = server.connect();
    client.exchange(misc("put", &["2", "abcdef"]), list(&[]));
    client.exchange(misc("optimize", &["width=3#limsiz=1k"]), list(&[]));
    client.exchange(misc("get", &["2"]), list(&["abc"]));
    client.exchange(misc("put", &["960", ""]), list(&[]));
    client.exchange(misc("put", &["961", ""]), MISC_FAILURE);
    client.exchange(misc("vanish", &[]), list(&[]));
    client.exchange(misc("out", &["min"]), MISC_FAILURE);
}

#[test]
fn a_key_that_is_not_an_id_has_no_record_in_other_protocols() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(support::fixed(folder.path()));
    let mut client = server.connect();
    client.exchange("set a7 3 0 1\r\nx\r\nget a7 k 7\r\n", {
        "STORED\r\nVALUE a7 3 1\r\nx\r\nVALUE 7 3 1\r\nx\r\nEND\r\n"
    });
    client.exchange("delete k\r\nincr k 1\r\ntouch k 1\r\n", {
        "NOT_FOUND\r\nNOT_FOUND\r\nNOT_FOUND\r\n"
    });
    client.exchange("add k 0 0 1\r\nx\r\ncas k 0 0 1 1\r\nx\r\n", "NOT_STORED\r\nNOT_FOUND\r\n");
    client.send("set k 0 0 1\r\nx\r\n".as_bytes());
    assert!(client.read_until(b"\r\n").starts_with(b"SERVER_ERROR "));
    let not_found = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n\
        Content-Length: 10\r\n\r\nNot Found\n";
    client.exchange("GET /k HTTP/1.1\r\nHost: localhost\r\n\r\n", not_found);
    client.exchange("DELETE /0 HTTP/1.1\r\nHost: localhost\r\n\r\n", not_found);
    client
        .exchange("HEAD /k HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 404 Not Found\r\n\r\n");
    client.exchange("PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx", {
        "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\n\
         Content-Length: 22\r\n\r\nInternal Server Error\n"
    });
    client.expect_value("/x7", "x");
}

#[test]
fn optimize_sets_and_removes_the_caps_of_an_on_memory_database() {
    for database in [memory(), support::memory_tree()] {
        let server = start(database);
        let mut client = server.connect();
        for key in 0..1000 {
            client.exchange(format!("set {key:03} 0 0 1\r\nv\r\n"), "STORED\r\n");
        }
        client.exchange(misc("optimize", &["capnum=100"]), list(&[]));
        assert!(server.stat_value("curr_items") <= 100);
        client.exchange(b"\xc8\x71\0\0\0\0", b"\0");
        for key in 0..300 {
            client.exchange(format!("set {key:03} 0 0 1\r\nv\r\n"), "STORED\r\n");
        }
        assert!(server.stat_value("curr_items") >= 300);
    }
}

#[test]
fn each_connection_has_its_own_last_error() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(support::hash(folder.path()));
    let (mut first, mut second) = (server.connect(), server.connect());
    first.exchange(misc("error", &[]), list(&["0: success"]));
    first.exchange(misc("put", &["k", "v"]), list(&[]));
    first.exchange(misc("putkeep", &["k", "v"]), MISC_FAILURE);
    second.exchange(misc("out", &["nope"]), MISC_FAILURE);
    first.exchange(misc("error", &[]), list(&["21: existing record"]));
    second.exchange(misc("error", &[]), list(&["22: no record found"]));
    server.connect().exchange(misc("error", &[]), list(&["22: no record found"]));
}

#[test]
fn adding_up_to_the_least_integer_succeeds() {
    // Tokyo Tyrant stores it and reports a failure.
    let server = start(memory());
    let mut client = server.connect();
    client.exchange(b"\xc8\x60\0\0\0\x01\x7f\xff\xff\xffn", b"\0\x7f\xff\xff\xff");
    client.exchange(b"\xc8\x60\0\0\0\x01\0\0\0\x01n", b"\0\x80\0\0\0");
}

#[test]
fn copy_writes_to_a_path_and_runs_a_command_only_if_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(support::hash(folder.path()));
    let mut client = server.connect();
    client.exchange(misc("put", &["k", "v"]), list(&[]));
    let path = folder.path().join("copy.tch");
    let copy = |path: &str| {
        let size = u32::try_from(path.len()).unwrap().to_be_bytes();
        [&b"\xc8\x73"[..], &size, path.as_bytes()].concat()
    };
    client.exchange(copy(path.to_str().unwrap()), b"\0");
    let options = cabinet::Options::default();
    let copied = options.open(&path).unwrap();
    assert_eq!(copied.get(b"k").unwrap().unwrap(), b"v");
    let made = folder.path().join("made");
    // Without the arguments that follow it.
    let touch = copy(&format!("@touch {} #", made.display()));
    client.exchange(&touch, b"\x01");
    assert!(!made.exists());
    let config = server::Config { copy_command: true, ..support::config() };
    let server = support::start_with(config, memory());
    server.connect().exchange(&touch, b"\0");
    server.connect().exchange(copy("@"), b"\x01");
    server.connect().exchange(copy("@exit 1;"), b"\x01");
    assert!(made.exists());
}

#[test]
fn a_chunked_body_is_stored_whole() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange(
        "PUT /k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nget k\r\n",
        "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\nCreated\n\
         VALUE k 0 5\r\nabcde\r\nEND\r\n",
    );
}

#[test]
fn a_client_that_expects_a_100_gets_it_once() {
    let server = start(memory());
    let mut client = server.connect();
    let head =
        "PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    for _ in 0..2 {
        client.exchange(head, "HTTP/1.1 100 Continue\r\n\r\n");
        client.exchange("a", "");
        client.expect_silence(&server);
        client.exchange("bc", {
            "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\nCreated\n"
        });
    }
    client.exchange("get k\r\n", "VALUE k 0 3\r\nabc\r\nEND\r\n");
}

#[test]
fn malformed_http_is_refused_with_a_status() {
    let server = start(memory());
    for (request, status) in [
        ("PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", "400 Bad Request"),
        (
            "PUT /k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
            "501 Not Implemented",
        ),
        (
            "PUT /k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
            "400 Bad Request",
        ),
        (
            &format!(
                "GET /k HTTP/1.1\r\nHost: localhost\r\nx: {}",
                "y".repeat(wire::limits::HTTP_HEAD_BYTES_MAX)
            ),
            "431 Request Header Fields Too Large",
        ),
    ] {
        let mut client = server.connect();
        client.send(request.as_bytes());
        let reply = String::from_utf8(client.read_until(b"\r\n")).unwrap();
        assert_eq!(reply, format!("HTTP/1.1 {status}\r\n"));
    }
}

#[test]
fn options_list_the_methods_that_are_allowed() {
    let mut mask = CommandMask::NONE;
    mask.mask("put,misc".parse().unwrap());
    let server = start_with(Config { mask, ..config() }, memory());
    let mut client = server.connect();
    client.send(b"OPTIONS / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let reply = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"), "{reply}");
    assert!(reply.contains("\r\nAllow: OPTIONS, GET, HEAD, POST, DELETE\r\n"), "{reply}");
    assert!(reply.contains("\r\nX-TT-TYPE: on-memory hash\r\n"), "{reply}");
}

#[test]
fn a_change_of_an_expiry_neither_reads_nor_removes_where_that_is_masked() {
    let refused = "CLIENT_ERROR forbidden\r\n";
    for (mask, requests) in [
        ("get", &["gat 0 k\r\n", "gats 0 k\r\n", "mg k v T60\r\n", "mg k v\r\n"][..]),
        ("out", &["touch k -1\r\n", "gat -1 k\r\n", "mg k T-1\r\n", "delete k\r\n"]),
    ] {
        let server = start_with(Config { mask: mask.parse().unwrap(), ..config() }, memory());
        let mut client = server.connect();
        client.exchange("set k 0 0 1\r\nv\r\n", "STORED\r\n");
        requests.iter().for_each(|request| client.exchange(*request, refused));
        client.exchange("touch k 60\r\n", "TOUCHED\r\n");
        client.exchange(b"\xc8\x38\0\0\0\x01k", b"\0\0\0\0\x01");
    }
}

#[test]
fn masked_commands_are_refused_in_the_form_of_each_protocol() {
    let mut mask = CommandMask::NONE;
    mask.mask("allwrite rnum,fwmkeys,stat".parse().unwrap());
    let server = start_with(Config { mask, ..config() }, memory());
    let mut client = server.connect();
    client.exchange(b"\xc8\x10\0\0\0\x01\0\0\0\x01kv", b"\x01");
    client.exchange(b"\xc8\x18\0\0\0\x01\0\0\0\x01kv", b"");
    client.exchange(misc("get", &["k"]), b"\0\0\0\0\0");
    client.exchange(b"\xc8\x58\0\0\0\0\xff\xff\xff\xff", b"\0\0\0\0\0");
    client.exchange(b"\xc8\x80", b"\0\0\0\0\0\0\0\0\0");
    client.exchange("set k 0 0 1\r\nv\r\n", "CLIENT_ERROR forbidden\r\n");
    client.exchange("stats\r\n", "CLIENT_ERROR forbidden\r\n");
    client.exchange(
        "PUT /k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nv",
        "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nForbidden\n",
    );
    client.exchange("get k\r\n", "END\r\n");
    client.send(b"\xc8\x88");
    assert_eq!(client.read(1), [0]);
    let size = u32::from_be_bytes(client.read(4).try_into().unwrap());
    let text = String::from_utf8(client.read(size as usize)).unwrap();
    assert!(text.lines().all(|line| line.starts_with("cnt_")), "{text}");
}

#[test]
fn an_iterator_begins_at_a_present_key_and_in_an_ordered_database_at_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let places = ["hash", "tree", "fixed", "table"].map(|name| folder.path().join(name));
    places.iter().for_each(|place| std::fs::create_dir(place).unwrap());
    for (database, begins_with_next) in [
        (support::hash(&places[0]), false),
        (support::memory(), false),
        (support::tree(&places[1]), true),
        (support::memory_tree(), true),
        (support::fixed(&places[2]), true),
        (support::table(&places[3]), false),
    ] {
        let server = start(database);
        let mut client = server.connect();
        client.exchange(misc("putlist", &["2", "a\0x", "4", "a\0x"]), b"\0\0\0\0\0");
        client.exchange(misc("iterinit", &["4"]), b"\0\0\0\0\0");
        client.exchange(b"\xc8\x51", b"\0\0\0\0\x014");
        if begins_with_next {
            client.exchange(misc("iterinit", &["3"]), b"\0\0\0\0\0");
            client.exchange(b"\xc8\x51", b"\0\0\0\0\x014");
        } else {
            client.exchange(misc("iterinit", &["3"]), b"\x01\0\0\0\0");
        }
        client.exchange(misc("iterinit", &["5"]), b"\x01\0\0\0\0");
    }
}

#[test]
fn the_least_integer_is_a_valid_sum_and_nan_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(support::hash(folder.path()));
    let mut client = server.connect();
    client.exchange(b"\xc8\x60\0\0\0\x01\x7f\xff\xff\xffi", b"\0\x7f\xff\xff\xff");
    client.exchange(b"\xc8\x60\0\0\0\x01\0\0\0\x01i", b"\0\x80\0\0\0");
    client.exchange(b"\xc8\x60\0\0\0\x01\0\0\0\x01i", b"\0\x80\0\0\x01");
    let add = |integral: i64| {
        let number = [integral.to_be_bytes(), [0; 8]].concat();
        [b"\xc8\x61\0\0\0\x01", &number[..], b"d"].concat()
    };
    let infinity = [b"\0", &i64::MAX.to_be_bytes()[..], &[0; 8]].concat();
    client.exchange(add(i64::MAX), &infinity);
    // Infinity minus infinity. The record stays.
    client.exchange(add(i64::MIN), b"\x01");
    client.exchange(misc("error", &[]), support::list(&["21: existing record"]));
    client.exchange(add(1), &infinity);
}
