//! Trees through the server, beyond the exchanges that were captured from Tokyo Tyrant.

mod support;

use support::{MISC_FAILURE, list, memory, misc, named, start, tree};

const DONE: &[u8] = b"\0\0\0\0\0";

#[test]
fn an_iteration_returns_every_duplicate_once_with_its_value() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(tree(folder.path()));
    let mut client = server.connect();
    client.exchange(misc("putlist", &["a", "1", "b", "2", "a", "3", "c", "4", "a", "5"]), DONE);
    client.exchange(misc("iterinit", &[]), DONE);
    for pair in [["a", "1"], ["a", "3"], ["a", "5"], ["b", "2"], ["c", "4"]] {
        client.exchange(misc("iternext", &[]), list(&pair));
    }
    client.exchange(misc("iternext", &[]), MISC_FAILURE);
    // The iteration of keys returns each key as often.
    client.exchange(b"\xc8\x50", b"\0");
    for key in [b"a", b"a", b"a", b"b", b"c"] {
        client.exchange(b"\xc8\x51", [b"\0\0\0\0\x01", &key[..]].concat());
    }
    client.exchange(b"\xc8\x51", b"\x01");
}

#[test]
fn a_duplicate_that_was_removed_meanwhile_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(tree(folder.path()));
    let mut client = server.connect();
    client.exchange(misc("putlist", &["a", "1", "a", "2", "b", "3"]), DONE);
    client.exchange(misc("iterinit", &["a"]), DONE);
    client.exchange(misc("iternext", &[]), list(&["a", "1"]));
    client.exchange(misc("out", &["a"]), DONE);
    client.exchange(misc("iternext", &[]), list(&["b", "3"]));
}

#[test]
fn a_list_by_prefix_has_each_key_once_with_any_number_of_values() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(tree(folder.path()));
    let mut client = server.connect();
    client.exchange(misc("putlist", &["k1", "", "k1", "", "k2", "", "k2", "", "z", ""]), DONE);
    let request = b"\xc8\x58\0\0\0\x01\xff\xff\xff\xffk";
    client.exchange(request, list(&["k1", "k2"]));
    let request = b"\xc8\x58\0\0\0\x01\0\0\0\x01k";
    client.exchange(request, list(&["k1"]));
}

#[test]
fn ranges_and_prefixes_follow_the_order_of_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(named(folder.path(), "casket.tcb#order=decimal"));
    let mut client = server.connect();
    client.exchange(misc("putlist", &["10", "c", "9", "b", "-1", "a", "100", "d"]), DONE);
    let all = ["-1", "a", "9", "b", "10", "c", "100", "d"];
    client.exchange(misc("range", &[]), list(&all));
    client.exchange(misc("range", &["", "-1"]), list(&all));
    client.exchange(misc("range", &["9", "0", "100"]), list(&["9", "b", "10", "c"]));
    client.exchange(misc("range", &["9", "1"]), list(&["9", "b"]));
    client.exchange(misc("range", &["2", "0", "1"]), list(&[]));
    let request = b"\xc8\x58\0\0\0\x01\xff\xff\xff\xff1";
    client.exchange(request, list(&["10", "100"]));
}

#[test]
fn memcached_and_http_use_the_first_value() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(tree(folder.path()));
    let mut client = server.connect();
    client.exchange(misc("putlist", &["k", "5", "k", "6"]), DONE);
    client.exchange("get k\r\n", "VALUE k 0 1\r\n5\r\nEND\r\n");
    client.exchange("incr k 3\r\n", "8\r\n");
    client.exchange("append k 0 0 1\r\nx\r\n", "STORED\r\n");
    client.exchange(misc("get", &["k"]), list(&["8x", "6"]));
    client.exchange("set k 7 0 1\r\na\r\n", "STORED\r\n");
    client.exchange("delete k\r\n", "DELETED\r\n");
    client.expect_value("/k", "6");
    client.exchange(
        "DELETE /k HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nOK\n",
    );
    client.exchange(misc("get", &["k"]), MISC_FAILURE);
    client.exchange(misc("error", &[]), list(&["22: no record found"]));
}

#[test]
fn duplicates_are_refused_by_databases_with_one_value_per_key() {
    let server = start(memory());
    let mut client = server.connect();
    client.exchange(misc("putdup", &["k", "v"]), MISC_FAILURE);
    client.exchange(misc("putdupback", &["k", "v"]), MISC_FAILURE);
    client.exchange(misc("get", &["k"]), MISC_FAILURE);
}

#[test]
fn missing_arguments_are_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(tree(folder.path()));
    let mut client = server.connect();
    for name in ["putdup", "putdupback", "put", "get", "out"] {
        client.exchange(misc(name, &[]), MISC_FAILURE);
    }
    client.exchange(misc("putdup", &["k"]), MISC_FAILURE);
    // The last key has no value, and is ignored.
    client.exchange(misc("putlist", &["k", "v", "l"]), DONE);
    client.exchange(misc("getlist", &["k", "l"]), list(&["k", "v"]));
}

#[test]
fn durable_duplicates_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let open = || named(folder.path(), "casket.tcb#durability=always");
    let server = start(open());
    let mut client = server.connect();
    client.exchange(misc("putdup", &["k", "1"]), DONE);
    client.exchange(misc("putdup", &["k", "2"]), DONE);
    client.exchange(misc("putdupback", &["k", "0"]), DONE);
    drop(server);
    let server = start(open());
    server.connect().exchange(misc("get", &["k"]), list(&["0", "1", "2"]));
}

#[test]
fn stat_has_the_kind_of_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(tree(folder.path()));
    let mut client = server.connect();
    client.send(b"\xc8\x88");
    assert_eq!(client.read(1), b"\0");
    let size = client.read(4).try_into().map(u32::from_be_bytes).unwrap();
    let text = String::from_utf8(client.read(size as usize)).unwrap();
    assert!(text.contains("\ntype\tB+ tree\n"), "{text}");
}
